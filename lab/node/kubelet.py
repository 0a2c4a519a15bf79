"""The kubelet of all nodes: starts and ends the pods that are bound to them.

One kubelet for all simulated nodes.  Pods that were already running when it started are the world's furniture:
objects without processes, which it only removes when they are deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import re
import shutil
import signal
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.errors import ApiError
from . import logs as reading
from .heartbeat import beat
from .kwok import is_kwok, no_log, simulate
from .network.interface import StartError
from .network.policy import PolicyController
from .pod import ENDED, PodWorker, background
from .runtime import exec_error
from .seams import Hardware, Images, NoHardware, NoImages
from .sessions import Attachment, Execution

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ..apiserver.store import Store
    from .container import Container
    from .logs import Log
    from .network import Network, Sandbox

Object = dict[str, Any]
DNS = "10.96.0.10"
HANDLERS = frozenset({"", "runc", "nvidia", "nvidia-cdi", "nvidia-legacy"})
"""Runtime handlers of a node that does not list its own: containerd's and those the NVIDIA toolkit adds."""
BAD_REQUEST = "BadRequest"


class Kubelet:
    """Runs pods of all nodes as processes; the API server asks it for logs."""

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
        self.store, self.network = store, network
        self.reached = reached
        """Whether the API server gets through to the kubelets' port, for logs and terminals."""
        self.images: Images = images or NoImages()
        self.hardware: Hardware = hardware or NoHardware()
        self.log_max_bytes = log_max_bytes
        self.offline: set[str] = set()
        """Nodes without power: their pods go on in the API as they were."""
        self.closing = False
        self.workers: dict[str, PodWorker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: list[Any] = []
        self._numbers: dict[str, itertools.count[int]] = {}
        self._nodes: dict[str, int] = {}
        self._pulled: set[tuple[str, str]] = set()
        self._hosts: dict[str, Sandbox] = {}
        self.policies = PolicyController(store, network)

    # -- start and end

    def start(self) -> None:
        """Watch the pods, and the policies of their network."""
        self.policies.start()
        background(beat(self), self._tasks)
        self._ends = [self.store.subscribe("pods", self._pod_changed)]
        self._ends += [self.store.subscribe(key, self._config_changed) for key in ("configmaps", "secrets")]
        for pod in self.store.list("pods"):
            if (pod.get("status") or {}).get("phase", "Pending") == "Pending":
                self._pod_changed("ADDED", pod, None)

    async def close(self) -> None:
        """Forget all pods; their processes end with the network."""
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
        """Send SIGKILL to the main processes of a node's pods that have a label, those of jobs."""
        for worker in self.workers.values():
            if worker.node == node and (not job or job in (worker.pod["metadata"].get("labels") or {})):
                for container in worker.containers.values():
                    if container.process is not None:
                        container.process.signal(signal.SIGKILL)

    def said(self, text: str, label: str) -> bool:
        """Whether a container of the pods that have a label has a text in its log."""
        logs = (
            container.log
            for worker in self.workers.values()
            if label in (worker.pod["metadata"].get("labels") or {})
            for container in worker.containers.values()
        )
        return any(log is not None and text.encode() in log.path.read_bytes() for log in logs)

    def power_off(self, node: str) -> None:
        """Take the power from a node: its processes end, and its kubelet says nothing of it."""
        self.offline.add(node)
        self.kill(node, "")

    def tell(self, node: str) -> None:
        """Write what became of a node's pods while it had no power."""
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

    # -- what pods ask for

    def host_ip(self, node: str) -> str:
        """The node's own address."""
        status = (self.store.get("nodes", None, node) or {}).get("status") or {}
        return next((a["address"] for a in status.get("addresses") or [] if a["type"] == "InternalIP"), "10.0.0.1")

    def address(self, node: str) -> str:
        """A free address for a pod of the node, from its pod CIDR where it has one of the cluster's."""
        number = next(self._numbers.setdefault(node, itertools.count()))
        cidr = ((self.store.get("nodes", None, node) or {}).get("spec") or {}).get("podCIDR", "")
        if own := re.fullmatch(r"10\.(24[4-7])\.(\d+)\.0/24", cidr):
            return self.network.pod_address((int(own[1]) - 244) * 256 + int(own[2]), number)
        return self.network.pod_address(self._nodes.setdefault(node, 255 - len(self._nodes) % 256), number)

    async def host_sandbox(self, node: str, tmpfs: dict[str, int]) -> Sandbox:
        """The network of the node itself, for pods with hostNetwork."""
        if node not in self._hosts:
            self._hosts[node] = await self.network.sandbox(self.host_ip(node), node, tmpfs)
        return self._hosts[node]

    def release(self, worker: PodWorker) -> None:
        """Let a pod's sandbox go; the node's own stays."""
        if worker.sandbox is not None and worker.sandbox not in self._hosts.values():
            worker.sandbox.remove()

    def resolver(self, pod: Object) -> dict[str, Any]:
        """nameserver, search and options of a pod's resolv.conf, by its dnsPolicy."""
        namespace, spec = pod["metadata"]["namespace"], pod["spec"]
        policy, config = spec.get("dnsPolicy", "ClusterFirst"), spec.get("dnsConfig") or {}
        outside = policy in ("Default", "None") or (policy == "ClusterFirst" and spec.get("hostNetwork"))
        search = [] if outside else [f"{namespace}.svc.cluster.local", "svc.cluster.local", "cluster.local"]
        options = [] if outside else ["ndots:5"]
        options += [f"{o['name']}:{o['value']}" if o.get("value") else o["name"] for o in config.get("options") or []]
        servers = config.get("nameservers") or []
        # The node's own resolver knows nothing of the cluster; this address of TEST-NET-1 never answers.
        server = servers[0] if servers else ("192.0.2.53" if outside else DNS)
        return {"nameserver": server, "search": [*search, *(config.get("searches") or [])], "options": options}

    def no_runtime(self, node: str, runtime_class: str | None) -> str:
        """Why the node cannot make a sandbox of that class; empty where it can."""
        if not runtime_class:
            return ""
        runtime = self.store.get("runtimeclasses.node.k8s.io", None, runtime_class) or {}
        handler = runtime.get("handler", runtime_class)
        status = (self.store.get("nodes", None, node) or {}).get("status") or {}
        known = {h.get("name", "") for h in status.get("runtimeHandlers") or []} or HANDLERS
        return "" if handler in known | HANDLERS else f'no runtime for "{handler}" is configured'

    def has_image(self, node: str, image: str) -> bool:
        """Whether a node has an image, by its status or because it was pulled."""
        status = (self.store.get("nodes", None, node) or {}).get("status") or {}
        listed = any(image in (i.get("names") or []) for i in status.get("images") or [])
        return listed or (node, image) in self._pulled

    def image_id(self, node: str, image: str) -> str:
        """A digest, the same for the same image; from now on the node has it."""
        self._pulled.add((node, image))
        return "sha256:" + hashlib.sha256(image.encode()).hexdigest()

    def token(self, pod: Object, audience: str, seconds: int) -> str:
        """A service account token for a pod's volume."""
        meta = pod["metadata"]
        name = pod["spec"].get("serviceAccountName", "default")
        account = self.store.get("serviceaccounts", meta["namespace"], name)
        if account is None:
            return ""
        return str(
            self.store.authority.token(
                meta["namespace"],
                name,
                account["metadata"]["uid"],
                seconds=seconds,
                audiences=(audience,) if audience else (),
                pod=(meta["name"], meta["uid"]),
            )
        )

    # -- terminals

    async def execute(
        self, ns: str, pod: str, container: str, command: list[str], *, stdin: bool, tty: bool
    ) -> Execution:
        """Start a command in a running container; ApiError 500 with the runtime's text where it cannot."""
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
        """Listen to a running container."""
        return Attachment(self.running(ns, pod, container))

    def running(self, ns: str, pod: str, name: str) -> Container:
        """The container, while it runs; ApiError 500 with the kubelet's text otherwise."""
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
        """Stream a container's log; raises ApiError 400 with the real texts without one."""
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
