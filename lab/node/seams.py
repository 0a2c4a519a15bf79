"""The interfaces that kubelets need: images, hardware, and the node's view of the cluster."""

from __future__ import annotations

from typing import Any, Protocol

Object = dict[str, Any]


class ImageMissing(Exception):  # noqa: N818 - the name says what happened
    """An image that cannot be pulled; str() is the runtime's message. Any exception of this name is accepted."""


class Images(Protocol):
    """The registries."""

    async def pull(self, image: str) -> None:
        """Return when the image is pulled; raise ImageMissing with the runtime's message otherwise."""


class Hardware(Protocol):
    """Additions of a node's device plugins and fakes to a container."""

    def mounts(self, pod: Object, node: str) -> list[Object]:
        """Return additional mounts: {source, target, readonly}."""

    def env(self, pod: Object, node: str) -> dict[str, str]:
        """Return additional variables; PATH with the fakes first."""

    # Optional: attach(pod, node, ip) -> annotations. Attaches additional networks, or raises AttachmentError. Optional:
    # wires(pod, node) -> the properties of the pod's veth pair (Network.sandbox). Optional: refuse(pod, node) ->
    # (reason, message) if the kubelet must reject the pod, else None.


class NoImages:
    """Registries in which every image exists."""

    async def pull(self, image: str) -> None:
        """Return at once."""


class NoHardware:
    """Nodes without devices."""

    def mounts(self, pod: Object, node: str) -> list[Object]:  # noqa: ARG002 - the seam's signature
        """Return no mounts."""
        return []

    def env(self, pod: Object, node: str) -> dict[str, str]:  # noqa: ARG002 - the seam's signature
        """Return no variables."""
        return {}
