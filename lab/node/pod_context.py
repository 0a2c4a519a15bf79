"""The services of a node for a pod's containers and volumes: objects, images, environment, hardware, events."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

from .environment import DEFAULT_PATH, ConfigError, service_links
from .logs import Log
from .network import Sandbox
from .network.interface import Process, StartError
from .services import NodeServices
from .status import ContainerState
from .volumes import Volumes

Object = dict[str, Any]


class Stopped(Exception):  # noqa: N818 - no error: the pod is to end
    """The pod is terminating; nothing may be started any more."""


class PodContext:
    """A pod and the node that it is bound to."""

    def __init__(self, kubelet: NodeServices, pod: Object) -> None:
        self.kubelet, self.pod = kubelet, pod
        self.node: str = pod["spec"]["nodeName"]
        self.uid: str = pod["metadata"]["uid"]
        root = Path(kubelet.network.root)
        self.folder = root / "pods" / self.uid
        self.sandbox: Sandbox | None = None
        self.pod_ip = self.fqdn = ""
        self.files: list[Object] = []
        self.stopping = self.finishing = False
        self.grace_s = 0.0
        """The grace period in seconds of a stopping pod."""
        places = (self.folder, self.lookup, self.allocatable, root / "claims")
        self.volumes = Volumes(pod, *places, self.token, self.host_folder)
        self._wake = asyncio.Event()
        self._grace = asyncio.Event()

    def publish(self) -> None:
        """Write the current status."""
        raise NotImplementedError

    async def pause(self, seconds: float, *, wake: bool = False) -> None:
        """Wait; with `wake` also for a change in the namespace. Raises Stopped when the pod terminates or ends."""
        if self.stopping or self.finishing:
            raise Stopped
        if wake:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), seconds)
        else:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._grace.wait(), seconds)
        if self.stopping or self.finishing:
            raise Stopped

    @property
    def allocatable(self) -> Object:
        """Return the node's allocatable resources."""
        node = self.kubelet.store.get("nodes", None, self.node) or {}
        return dict((node.get("status") or {}).get("allocatable") or {})

    def now(self) -> str:
        """Return the current time in the format of objects."""
        return self.kubelet.store.now()

    def lookup(self, key: str, name: str) -> Object | None:
        """Return an object of the pod's namespace."""
        return self.kubelet.store.get(key, self.pod["metadata"]["namespace"], name)

    def token(self, audience: str, seconds: int) -> str:
        """Return a token of the pod's service account, for an audience."""
        return self.kubelet.token(self.pod, audience, seconds)

    def event(self, kind: str, reason: str, message: str, field_path: str = "") -> None:
        """Record an event about this pod."""
        self.kubelet.store.event(self.pod, kind, reason, message, "kubelet", host=self.node, field_path=field_path)

    def missing_commands(self, image: str) -> frozenset[str]:
        """Return commands that the image lacks, even if this machine has them."""
        lacks = getattr(self.kubelet.images, "lacks", None)
        return frozenset(lacks(image)) if lacks else frozenset()

    def daemons(self, image: str) -> frozenset[str]:
        """Return programs of the image that this machine lacks: they run without any effect."""
        programs = getattr(self.kubelet.images, "programs", None)
        return frozenset(programs(image)) if programs else frozenset()

    def host_folder(self, path: str) -> Path | None:
        """Return a folder of the node that pods may mount, or None."""
        folder = getattr(self.kubelet.hardware, "host_folder", None)
        source: Path | None = folder(path, self.node) if folder else None
        return source

    def check_pull_secrets(self) -> None:
        """Record which pull secrets are missing; the pull is tried anyway."""
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
        """Return the variables of the runtime, the services and the hardware, which precede the pod's own."""
        store, namespace = self.kubelet.store, self.pod["metadata"]["namespace"]
        env = {"PATH": DEFAULT_PATH, "HOSTNAME": self.hostname, "HOME": "/root"}
        kubernetes = store.get("services", "default", "kubernetes")
        env.update(service_links([kubernetes] if kubernetes else []))
        if self.pod["spec"].get("enableServiceLinks", True):
            env.update(service_links(store.list("services", namespace)))
        env.update(self.kubelet.hardware.env(self.pod, self.node))
        return env

    def hardware_mounts(self) -> list[Object]:
        """Return the mounts for the node's devices."""
        return list(self.kubelet.hardware.mounts(self.pod, self.node))

    @property
    def hostname(self) -> str:
        """The pod's host name: at most 63 characters."""
        spec = self.pod["spec"]
        name = self.node if spec.get("hostNetwork") else spec.get("hostname") or self.pod["metadata"]["name"]
        return str(name)[:63].rstrip("-.")


class ContainerContext:
    """A container of a pod, with the data for its probes, pulls and sessions."""

    def __init__(self, worker: PodContext, spec: Object, *, init: bool, ephemeral: bool = False) -> None:
        self.worker, self.spec, self.init, self.ephemeral = worker, spec, init, ephemeral
        self.name: str = spec["name"]
        self.state = ContainerState(self.name)
        self.process: Process | None = None
        self.log: Log | None = None
        self.previous: Log | None = None
        self.killed_by = ""
        self.input: asyncio.StreamWriter | None = None
        self._killing = False

    @property
    def field_path(self) -> str:
        """The container's field path for events."""
        part = "initContainers" if self.init else "ephemeralContainers" if self.ephemeral else "containers"
        return f"spec.{part}{{{self.name}}}"

    def event(self, kind: str, reason: str, message: str) -> None:
        """Record an event about this container."""
        self.worker.event(kind, reason, message, self.field_path)

    def context(self) -> Object:
        """Return the container's security context merged over that of the pod."""
        return {**(self.worker.pod["spec"].get("securityContext") or {}), **(self.spec.get("securityContext") or {})}

    async def spawn(self, argv: list[str], stdio: list[int], *, terminal: bool = False) -> Process:
        """Start an additional command in the running container."""
        raise NotImplementedError

    async def hook(self, hook: Object) -> None:
        """Run a lifecycle hook: a command or a pause; HTTP hooks do nothing here."""
        if "sleep" in hook:
            await asyncio.sleep(hook["sleep"].get("seconds", 0))
        elif "exec" in hook:
            await self.execute(hook["exec"].get("command") or [], 600)

    async def execute(self, command: list[str], timeout_s: float) -> tuple[int | None, str]:
        """Run a command inside; return (exit code or None after the time limit, its output)."""
        if self.process is None or not command:
            return 126, "container not running"
        reading, writing = os.pipe()
        try:
            other = await self.spawn(command, [writing, writing])
        except (StartError, ConfigError) as error:
            os.close(reading)
            return 127, str(error)
        finally:
            os.close(writing)
        try:
            code = await asyncio.wait_for(asyncio.shield(other.exited), timeout_s)
        except TimeoutError:
            other.signal(signal.SIGKILL)
            code = None
        os.set_blocking(reading, False)
        output = b""
        with contextlib.suppress(BlockingIOError):
            output = os.read(reading, 10 * 1024)
        os.close(reading)
        return code, output.decode(errors="replace")

    async def stop(self, grace_s: float, event: str = "") -> None:
        """Stop the container: preStop, SIGTERM, and SIGKILL after the grace period."""
        process = self.process
        if process is None or self._killing:
            return
        self._killing = True
        self.event("Normal", "Killing", event or f"Stopping container {self.name}")
        deadline = time.monotonic() + grace_s
        hook = (self.spec.get("lifecycle") or {}).get("preStop")
        try:
            if hook:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.hook(hook), max(grace_s, 0.001))
            process.signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(process.exited), max(0, deadline - time.monotonic()))
            process.signal(signal.SIGKILL)
        finally:
            self._killing = False
