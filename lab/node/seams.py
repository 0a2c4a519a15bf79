"""The interfaces to what kubelets need: images, hardware, and the node's view of the cluster."""

from __future__ import annotations

from typing import Any, Protocol

Object = dict[str, Any]


class ImageMissing(Exception):  # noqa: N818 - the name says what happened
    """An image cannot be pulled; str() is the runtime's text.  Any exception of this name is understood."""


class Images(Protocol):
    """The registries."""

    async def pull(self, image: str) -> None:
        """Return when the image is there; raise ImageMissing with the runtime's text otherwise."""


class Hardware(Protocol):
    """What a node's device plugins and fakes add to a container."""

    def mounts(self, pod: Object, node: str) -> list[Object]:
        """More mounts: {source, target, readonly}."""

    def env(self, pod: Object, node: str) -> dict[str, str]:
        """More environment; PATH with the fakes first."""

    # Optional: attach(pod, node, ip) -> annotations. Attaches further networks, or raises AttachmentError.
    # Optional: wires(pod, node) -> the properties of the pod's cables (Network.sandbox).
    # Optional: refuse(pod, node) -> (reason, message) where the kubelet must not admit the pod, else None.


class NoImages:
    """Every image is there."""

    async def pull(self, image: str) -> None:
        """Succeed."""


class NoHardware:
    """Nodes without devices."""

    def mounts(self, pod: Object, node: str) -> list[Object]:  # noqa: ARG002 - the seam's signature
        """No mounts."""
        return []

    def env(self, pod: Object, node: str) -> dict[str, str]:  # noqa: ARG002 - the seam's signature
        """No environment."""
        return {}
