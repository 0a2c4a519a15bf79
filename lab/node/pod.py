"""The life of one pod on its node, from the binding to its removal.

One task per pod: volumes, sandbox, init containers one by one, then the others at once; a deletion or a deadline
interrupts the current step.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Coroutine
from typing import Any

from ..apiserver.schema.errors import ApiError
from ..apiserver.schema.values import clone
from ..controlplane.scheduler.volumes import elsewhere
from .attachments import AttachmentError
from .container import Container
from .network.interface import NetworkError
from .pod_context import PodContext, Stopped
from .runtime import MACHINE
from .services import NodeServices
from .status import is_sidecar, pod_status
from .volumes import MountError, pod_files

Object = dict[str, Any]
DEADLINE = {
    "phase": "Failed",
    "reason": "DeadlineExceeded",
    "message": "Pod was active on the node longer than the specified deadline",
}
FIRST_RETRY_S, MAX_RETRY_S = 0.5, 122
"""Back-off of volume operations (pkg/volume/util/nestedpendingoperations)."""
ENDED = ("Succeeded", "Failed")


class PodWorker(PodContext):
    """One pod on its node."""

    def __init__(self, kubelet: NodeServices, pod: Object) -> None:
        super().__init__(kubelet, pod)
        spec = pod["spec"]
        self.inits = [Container(self, c, init=True) for c in spec.get("initContainers") or []]
        self.mains = [Container(self, c, init=False) for c in spec["containers"]]
        self.containers = {c.name: c for c in (*self.inits, *self.mains)}
        self.extras: list[Container] = []
        """Ephemeral containers, in the order of their addition."""
        self.shown_ip = ""
        self.override: Object | None = None
        self._sidecars: set[asyncio.Task[None]] = set()
        self._stop_task: asyncio.Task[None] | None = None

    def updated(self, pod: Object) -> None:
        """Start new ephemeral containers after a change of the pod's object."""
        self.pod = pod
        for spec in pod["spec"].get("ephemeralContainers") or []:
            if spec["name"] not in self.containers and self.sandbox is not None and not self.stopping:
                container = Container(self, spec, init=False, ephemeral=True)
                self.extras.append(container)
                self.containers[container.name] = container
                task = asyncio.create_task(self._run(container))
                self._sidecars.add(task)
                task.add_done_callback(self._sidecars.discard)

    def nudge(self) -> None:
        """Wake the pod after a change of a ConfigMap or a Secret in its namespace."""
        self._wake.set()

    # -- status

    def publish(self) -> None:
        """Write the current status; that of a pod with stopped containers only after its sandbox is removed."""
        if self.stopping and self.sandbox is not None and all(c.state.terminated for c in self.mains):
            return
        meta = self.pod["metadata"]
        states = {name: container.state for name, container in self.containers.items()}

        def change(pod: Object) -> None:
            if pod["metadata"]["uid"] != self.uid:
                return
            pod["status"] = clone(
                pod_status(
                    pod,
                    states,
                    self.now(),
                    sandbox=self.sandbox is not None,
                    host_ip=self.kubelet.host_ip(self.node),
                    pod_ip=self.shown_ip,
                    override=self.override,
                    ending=self.stopping and self.finishing,
                )
            )

        if self.node in self.kubelet.offline:
            return
        stored = self.kubelet.store.mutate("pods", meta["namespace"], meta["name"], change, "status")
        if stored is not None and stored["metadata"]["uid"] == self.uid:
            self.pod = stored

    # -- life

    async def run(self) -> None:
        """Run the pod to its end, and leave only the log."""
        waiting = "PodInitializing" if self.inits else "ContainerCreating"
        for container in self.containers.values():
            container.state.wait(waiting if not container.init else "PodInitializing")
        if self._refused():
            return
        self.publish()
        deadline = asyncio.create_task(self._deadline())
        try:
            await self._live()
        except Stopped:
            pass
        except (NetworkError, OSError) as error:
            self.event("Warning", "FailedCreatePodSandBox", f"Failed to create pod sandbox: {MACHINE}{error}")
        finally:
            deadline.cancel()
            if not self.kubelet.closing:
                await self._end()

    def _refused(self) -> bool:
        """Return whether the node rejects the pod: then it fails before anything of it runs (kubelet.rejectPod)."""
        refuse = getattr(self.kubelet.hardware, "refuse", None)
        why = refuse(self.pod, self.node) if refuse else None
        if why:
            reason, message = why
            self.event("Warning", reason, message)
            self.override = {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}"}
            self.publish()
        return bool(why)

    async def _live(self) -> None:
        await self._volumes()
        await self._sandbox()
        for container in self.inits:
            if is_sidecar(container.spec):
                task = asyncio.create_task(self._run(container))
                self._sidecars.add(task)
                while not container.state.started and not task.done():
                    await self.pause(0.02)
            else:
                await container.run()
                if (container.state.terminated or {}).get("exitCode") != 0:
                    return
            self.publish()
        for container in self.mains:
            container.state.wait("ContainerCreating") if container.state.waiting else None
        await asyncio.gather(*(self._run(container) for container in self.mains))

    async def _run(self, container: Container) -> None:
        with contextlib.suppress(Stopped):
            await container.run()

    async def _attached(self) -> None:
        """Wait while a volume for a single node is in use on another (attach-detach controller)."""
        delay = FIRST_RETRY_S
        while conflict := elsewhere(self.kubelet.store, self.pod):
            volume, users = conflict
            why = f'Multi-Attach error for volume "{volume}" Volume is already used by pod(s) {", ".join(users)}'
            self.kubelet.store.event(self.pod, "Warning", "FailedAttachVolume", why, "attachdetach-controller")
            await self.pause(delay)
            delay = min(delay * 2, MAX_RETRY_S)

    async def _volumes(self) -> None:
        await self._attached()
        delay = FIRST_RETRY_S
        while True:
            try:
                self.volumes.set_up()
            except MountError as error:
                self.event("Warning", "FailedMount", str(error))
                await self.pause(delay, wake=True)
                delay = min(delay * 2, MAX_RETRY_S)
            else:
                return

    async def _sandbox(self) -> None:
        spec = self.pod["spec"]
        while why := self.kubelet.no_runtime(self.node, spec.get("runtimeClassName")):
            self.event(
                "Warning",
                "FailedCreatePodSandBox",
                f"Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: {why}",
            )
            await self.pause(10)
        host = bool(spec.get("hostNetwork"))
        self.pod_ip = self.kubelet.host_ip(self.node) if host else self.kubelet.address(self.node)
        if not host:
            await self._attach()
        namespace = self.pod["metadata"]["namespace"]
        domain = f"{spec['subdomain']}.{namespace}.svc.cluster.local" if spec.get("subdomain") else ""
        fqdn = f"{self.hostname}.{domain}" if domain else self.hostname
        if host:
            self.sandbox = await self.kubelet.host_sandbox(self.node, self.volumes.tmpfs)
        else:
            name = fqdn if spec.get("setHostnameAsFQDN") else self.hostname
            wires = getattr(self.kubelet.hardware, "wires", None)
            self.sandbox = await self.kubelet.network.sandbox(
                self.pod_ip, name, self.volumes.tmpfs, **({"wires": wires(self.pod, self.node)} if wires else {})
            )
            await self.kubelet.policies.isolate(self.pod, self.pod_ip)
        self.fqdn = fqdn
        self.files = pod_files(
            self.folder / "etc",
            hostname=self.hostname,
            fqdn=fqdn,
            ip=self.pod_ip,
            aliases=spec.get("hostAliases") or [],
            **self.kubelet.resolver(self.pod),
        )
        self.volumes.refresh()  # the pod's address is known now
        self.publish()
        self.shown_ip = self.pod_ip  # shown after the next sync with the runtime

    async def _attach(self) -> None:
        """Attach the world's additional networks; the annotations about them are set before anything runs."""
        attach = getattr(self.kubelet.hardware, "attach", None)
        notes: dict[str, str] = {}
        while attach is not None:
            try:
                notes = attach(self.pod, self.node, self.pod_ip)
            except AttachmentError as error:
                meta = self.pod["metadata"]
                who = f"{meta['namespace']}/{meta['name']}"
                self.event(
                    "Warning",
                    "FailedCreatePodSandBox",
                    "Failed to create pod sandbox: rpc error: code = "
                    f'Unknown desc = failed to setup network for sandbox "{self.uid.replace("-", "")}": plugin '
                    'type="multus-shim" name="multus-cni-network" failed (add): CmdAdd (shim): CNI request '
                    f"failed with status 400: 'ERRORED: error configuring pod [{who}] networking: "
                    f"[{who}/{self.uid}:multus-cni-network]: {error}'",
                )
                await self.pause(10)
            else:
                break
        if notes:
            meta = self.pod["metadata"]
            changed = self.kubelet.store.mutate(
                "pods",
                meta["namespace"],
                meta["name"],
                lambda pod: pod["metadata"].setdefault("annotations", {}).update(notes),
            )
            self.pod = changed or self.pod

    async def _deadline(self) -> None:
        seconds = self.pod["spec"].get("activeDeadlineSeconds")
        if seconds is None:
            return
        await asyncio.sleep(seconds)
        self.override = dict(DEADLINE)
        self.event("Normal", "DeadlineExceeded", DEADLINE["message"])
        self.stop(self.pod["spec"].get("terminationGracePeriodSeconds", 30))
        self.publish()

    def stop(self, grace_s: float) -> None:
        """End the pod: every container gets SIGTERM and, after the grace period, SIGKILL."""
        self.stopping, self.grace_s = True, grace_s
        self._grace.set()
        self._wake.set()
        if self._stop_task is None or grace_s == 0:
            self._stop_task = asyncio.create_task(self._stop(grace_s))

    async def _stop(self, grace_s: float) -> None:
        if grace_s == 0:
            for container in self.containers.values():
                if container.process is not None:
                    container.process.signal(9)
        stops = asyncio.gather(*(c.stop(grace_s) for c in (*self.extras, *self.mains)))
        await asyncio.sleep(0)  # they are notified, then the pod's new generation is acknowledged
        if not self.finishing:
            self.publish()
        await stops
        await asyncio.gather(*(c.stop(grace_s) for c in self.inits))

    async def _end(self) -> None:
        """Stop the sidecars, remove the sandbox, write the last status, and remove a deleted pod."""
        self.finishing = True
        grace = self.pod["spec"].get("terminationGracePeriodSeconds", 30)
        if not self.stopping:
            self.grace_s = grace
        self._grace.set()  # a sidecar in back-off is not started again
        self._wake.set()
        for container in reversed(self.inits):
            await container.stop(grace)
        for container in self.extras:
            await container.stop(0)
        for task in list(self._sidecars):
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for container in self.inits:
            container.state.not_again()
        if self._stop_task is not None:
            await self._stop_task
        if self.sandbox is not None:
            self.kubelet.release(self.sandbox)
            self.sandbox = None
        if (
            self.stopping
            and self.override is None
            and any(c.process is None and c.state.terminated is None for c in self.mains)
        ):
            self._never_ran()
        self.publish()
        shutil.rmtree(self.folder / "volumes", ignore_errors=True)
        self.gone()

    def _never_ran(self) -> None:
        """Report containers that never ended by themselves as ended with unknown status."""
        for container in self.mains:
            if container.state.terminated is None:
                container.state.waiting = None
                container.state.terminated = {
                    "exitCode": 137,
                    "reason": "ContainerStatusUnknown",
                    "startedAt": None,
                    "finishedAt": None,
                    "message": "The container could not be located when the pod was terminated",
                }

    def gone(self) -> None:
        """Remove a deleted pod from the API after its last process has ended."""
        meta = self.pod["metadata"]
        current = self.kubelet.store.get("pods", meta["namespace"], meta["name"])
        metadata = (current or {"metadata": {}})["metadata"]
        if metadata.get("uid") != self.uid or not metadata.get("deletionTimestamp"):
            return
        with contextlib.suppress(ApiError):
            self.kubelet.store.delete("pods", meta["namespace"], meta["name"], grace=0, uid=self.uid)


def background(coroutine: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> asyncio.Task[None]:
    """Run a coroutine in the background, referenced until it ends."""
    task = asyncio.create_task(coroutine)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task
