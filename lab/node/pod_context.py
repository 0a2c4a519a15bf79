"""What the containers and volumes of a pod ask their node for: objects, images, environment, hardware, events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .environment import DEFAULT_PATH, service_links

if TYPE_CHECKING:
    from pathlib import Path

    from .kubelet import Kubelet

Object = dict[str, Any]


class PodContext:
    """A pod and the node that it is bound to."""

    def __init__(self, kubelet: Kubelet, pod: Object) -> None:
        self.kubelet, self.pod = kubelet, pod
        self.node: str = pod["spec"]["nodeName"]

    @property
    def allocatable(self) -> Object:
        """What the node offers."""
        node = self.kubelet.store.get("nodes", None, self.node) or {}
        return dict((node.get("status") or {}).get("allocatable") or {})

    def now(self) -> str:
        """The time as objects carry it."""
        return self.kubelet.store.now()

    def lookup(self, key: str, name: str) -> Object | None:
        """An object of the pod's namespace."""
        return self.kubelet.store.get(key, self.pod["metadata"]["namespace"], name)

    def token(self, audience: str, seconds: int) -> str:
        """A token of the pod's service account, for an audience."""
        return self.kubelet.token(self.pod, audience, seconds)

    def event(self, kind: str, reason: str, message: str, field_path: str = "") -> None:
        """Record an event about this pod."""
        self.kubelet.store.event(self.pod, kind, reason, message, "kubelet", host=self.node, field_path=field_path)

    def has_image(self, image: str) -> bool:
        """Whether the node has the image."""
        return self.kubelet.has_image(self.node, image)

    def image_id(self, image: str) -> str:
        """The digest of an image that was pulled."""
        return self.kubelet.image_id(self.node, image)

    def missing_commands(self, image: str) -> frozenset[str]:
        """Commands that the image does not contain, though this machine may have them."""
        lacks = getattr(self.kubelet.images, "lacks", None)
        return frozenset(lacks(image)) if lacks else frozenset()

    def daemons(self, image: str) -> frozenset[str]:
        """Programs of the image that this machine has not: they run, and do nothing that could be seen."""
        programs = getattr(self.kubelet.images, "programs", None)
        return frozenset(programs(image)) if programs else frozenset()

    def host_folder(self, path: str) -> Path | None:
        """A folder of the node that pods may mount, or None."""
        folder = getattr(self.kubelet.hardware, "host_folder", None)
        source: Path | None = folder(path, self.node) if folder else None
        return source

    def check_pull_secrets(self) -> None:
        """Say which pull secrets are missing; the pull is tried anyway."""
        named = [s.get("name", "") for s in self.pod["spec"].get("imagePullSecrets") or []]
        missing = [name for name in named if self.lookup("secrets", name) is None]
        if missing:
            self.event(
                "Warning",
                "FailedToRetrieveImagePullSecret",
                f"Unable to retrieve some image pull secrets ({', '.join(missing)}); attempting to pull the "
                "image may not succeed.",
            )

    def base_env(self) -> dict[str, str]:
        """What the runtime, the services and the hardware define before the pod's own variables."""
        store, namespace = self.kubelet.store, self.pod["metadata"]["namespace"]
        env = {"PATH": DEFAULT_PATH, "HOSTNAME": self.hostname, "HOME": "/root"}
        kubernetes = store.get("services", "default", "kubernetes")
        env.update(service_links([kubernetes] if kubernetes else []))
        if self.pod["spec"].get("enableServiceLinks", True):
            env.update(service_links(store.list("services", namespace)))
        env.update(self.kubelet.hardware.env(self.pod, self.node))
        return env

    def hardware_mounts(self) -> list[Object]:
        """What the devices of the node add."""
        return list(self.kubelet.hardware.mounts(self.pod, self.node))

    @property
    def hostname(self) -> str:
        """The pod's host name: at most 63 characters."""
        spec = self.pod["spec"]
        name = self.node if spec.get("hostNetwork") else spec.get("hostname") or self.pod["metadata"]["name"]
        return str(name)[:63].rstrip("-.")
