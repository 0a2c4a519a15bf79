"""The kubelet of all nodes: starts and ends the pods that are bound to them.

There is one kubelet for all simulated nodes. Pods that were already running at its start are initial objects without
processes, which it only removes when they are deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from collections.abc import AsyncIterator
from typing import Any

from ..apiserver.schema.errors import ApiError
from ..apiserver.store import Store
from . import logs as reading
from .container import Container
from .heartbeat import beat
from .kwok import is_kwok, no_log, simulate
from .logs import Log
from .network import Network
from .network.interface import StartError
from .pod import ENDED, PodWorker, background
from .runtime import exec_error
from .seams import Hardware, Images
from .services import NodeServices
from .sessions import Attachment, Execution

Object = dict[str, Any]
BAD_REQUEST = "BadRequest"


class Kubelet(NodeServices):
    """The kubelet of all nodes, which runs pods as processes; the API server reads logs through it."""

    def __init__(
        self,
        store: Store,
        network: Network,
        images: Images | None = None,
        hardware: Hardware | None = None,
        *,
        log_max_bytes: int = reading.MAX_BYTES,
        reached: bool = True,
    ) -> None:
        super().__init__(store, network, images, hardware, log_max_bytes)
        self.reached = reached
        """Whether the API server can reach the kubelets' port, for logs and terminals."""
        self.workers: dict[str, PodWorker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: list[Any] = []

    # -- start and end

    def start(self) -> None:
        """Watch the pods, and their network policies."""
        self.policies.start()
        background(beat(self), self._tasks)
        self._ends = [self.store.subscribe("pods", self._pod_changed)]
        self._ends += [self.store.subscribe(key, self._config_changed) for key in ("configmaps", "secrets")]
        for pod in self.store.list("pods"):
            if (pod.get("status") or {}).get("phase", "Pending") == "Pending":
                self._pod_changed("ADDED", pod, None)

    async def close(self) -> None:
        """Drop all pods; their processes end with the network."""
        self.policies.close()
        self.closing = True
        for end in self._ends:
            end()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for worker in self.workers.values():
            for container in worker.containers.values():
                await container.close()

    def kill(self, node: str, job: str = "batch.kubernetes.io/job-name") -> None:
        """Send SIGKILL to the main processes of a node's pods with a label, those of jobs."""
        for worker in self.workers.values():
            if worker.node == node and (not job or job in (worker.pod["metadata"].get("labels") or {})):
                for container in worker.containers.values():
                    if container.process is not None:
                        container.process.signal(signal.SIGKILL)

    def said(self, text: str, label: str) -> bool:
        """Return whether a container of the pods with a label has a text in its log."""
        logs = (
            container.log
            for worker in self.workers.values()
            if label in (worker.pod["metadata"].get("labels") or {})
            for container in worker.containers.values()
        )
        return any(log is not None and text.encode() in log.path.read_bytes() for log in logs)

    def power_off(self, node: str) -> None:
        """Power a node off: its processes end, and its kubelet does not report it."""
        self.offline.add(node)
        self.kill(node, "")

    def tell(self, node: str) -> None:
        """Publish the state of a node's pods after a power failure."""
        for worker in self.workers.values():
            if worker.node == node:
                worker.publish()

    def _pod_changed(self, change: str, pod: Object, _: Object | None) -> None:
        meta = pod["metadata"]
        node = pod["spec"].get("nodeName")
        worker = self.workers.get(meta["uid"])
        if change == "DELETED":
            self._forget(meta["uid"])
        elif worker is None:
            if node and node not in self.offline and self.store.get("nodes", None, node) is not None:
                self._new(pod)
        elif meta.get("deletionTimestamp") and node not in self.offline:
            worker.pod = pod
            worker.stop(meta.get("deletionGracePeriodSeconds") or 0)
            if pod["status"].get("phase") in ENDED:
                worker.gone()
        else:
            worker.updated(pod)

    def _new(self, pod: Object) -> None:
        meta, phase = pod["metadata"], (pod.get("status") or {}).get("phase", "Pending")
        if meta.get("deletionTimestamp"):
            with contextlib.suppress(ApiError):
                self.store.delete("pods", meta["namespace"], meta["name"], grace=0, uid=meta["uid"])
        elif phase == "Pending" and is_kwok(self._node(pod)):
            node = pod["spec"]["nodeName"]
            background(simulate(self.store, pod, self.host_ip(node), self.address(node)), self._tasks)
        elif phase == "Pending":
            worker = PodWorker(self, pod)
            self.workers[meta["uid"]] = worker
            background(worker.run(), self._tasks)

    def _forget(self, uid: str) -> None:
        worker = self.workers.pop(uid, None)
        if worker is not None:
            worker.stop(0)
            shutil.rmtree(worker.folder / "containers", ignore_errors=True)

    def _config_changed(self, _: str, new: Object, __: Object | None) -> None:
        for worker in self.workers.values():
            if worker.pod["metadata"]["namespace"] == new["metadata"]["namespace"]:
                worker.nudge()

    # -- terminals

    async def execute(
        self, ns: str, pod: str, container: str, command: list[str], *, stdin: bool, tty: bool
    ) -> Execution:
        """Start a command in a running container; ApiError 500 with the runtime's message if it fails."""
        target = self.running(ns, pod, container)
        session = Execution(terminal=tty)
        try:
            await session.start(target, command or [""], stdin=stdin)
        except StartError as error:
            raise ApiError(
                500,
                "InternalError",
                "Internal error occurred: error executing command in container: "
                f"failed to exec in container: {exec_error(error, command)}",
            ) from None
        return session

    def attach(self, ns: str, pod: str, container: str) -> Attachment:
        """Attach to a running container."""
        return Attachment(self.running(ns, pod, container))

    def running(self, ns: str, pod: str, name: str) -> Container:
        """Return the running container; ApiError 500 with the kubelet's message otherwise."""
        obj = self.store.need("pods", ns, pod)
        self._reachable(obj, ns, pod, name)
        worker = self.workers.get(obj["metadata"]["uid"])
        container = worker.containers.get(name) if worker else None
        if container is None or container.process is None:
            raise ApiError(500, "InternalError", f'unable to upgrade connection: container not found ("{name}")')
        return container

    # -- logs

    def logs(
        self,
        ns: str,
        pod: str,
        container: str,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        since_seconds: int | None = None,
        since_time: str | None = None,
        timestamps: bool = False,
        limit_bytes: int | None = None,
        previous: bool = False,
    ) -> AsyncIterator[bytes]:
        """Stream a container's log; ApiError 400 with the real messages if it does not exist."""
        obj = self.store.need("pods", ns, pod)
        asked = [word for word, is_asked in (("follow", follow), ("timestamps", timestamps)) if is_asked]
        self._reachable(obj, ns, pod, container, "&".join(f"{word}=true" for word in asked))
        worker = self.workers.get(obj["metadata"]["uid"])
        log = self._log(worker, pod, container, previous)
        since = reading.epoch(since_time) if since_time else None
        if since_seconds is not None:
            since = self.store.clock() - since_seconds
        options = reading.Options(follow, tail_lines, since, timestamps, limit_bytes)
        return reading.read(log, options) if log is not None else _nothing()

    def _node(self, pod: Object) -> Object | None:
        return self.store.get("nodes", None, pod["spec"].get("nodeName", ""))

    def _reachable(self, pod: Object, ns: str, name: str, container: str, query: str = "") -> None:
        node = pod["spec"].get("nodeName", "")
        if node in self.offline or not self.reached:
            address = f"{self.host_ip(node)}:10250"
            why = "connect: no route to host" if node in self.offline else "i/o timeout"
            query = f"?{query}" if query else ""
            raise ApiError(
                500,
                "",
                f'Get "https://{address}/containerLogs/{ns}/{name}/{container}{query}": dial tcp {address}: {why}',
            )
        if is_kwok(self._node(pod)):
            raise no_log(ns, name, container)

    def _log(self, worker: PodWorker | None, pod: str, name: str, previous: bool) -> Log | None:
        container = worker.containers.get(name) if worker else None
        if container is None:
            return None
        if previous:
            ended = container.previous if container.process is not None else container.log
            if container.state.last and ended is not None:
                return ended
            raise ApiError(400, BAD_REQUEST, f'previous terminated container "{name}" in pod "{pod}" not found')
        if container.log is not None:
            return container.log
        reason = (container.state.waiting or {}).get("reason", "ContainerCreating")
        why = {"ErrImagePull": "image can't be pulled", "ImagePullBackOff": "trying and failing to pull image"}
        raise ApiError(
            400, BAD_REQUEST, f'container "{name}" in pod "{pod}" is waiting to start: {why.get(reason, reason)}'
        )


async def _nothing() -> AsyncIterator[bytes]:
    for _ in ():
        yield b""
