"""The life of one container: pull, configure, start, watch, end, and start again.

Waiting reasons, exit codes, messages and events are those of a 1.36 kubelet on containerd (api-contract/recordings).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from typing import Any

from . import memory, plain, probes, pulling, sessions
from .environment import ConfigError, Environment, expand
from .logs import Log, pump, termination_message
from .network.interface import Process, StartError
from .pod_context import ContainerContext
from .runtime import RUNC, capabilities, start_error
from .status import EPOCH, is_sidecar
from .volumes import MountError

Object = dict[str, Any]
BACKOFF_S, MAX_BACKOFF_S, QUIET_S = 10, 300, 600
DRAIN_S = 2
"""MaxContainerBackOff and its initial value in pkg/kubelet; it is reset after a container has run for 10 minutes."""
PAUSE = ["sh", "-c", "trap 'kill $!; exit 0' TERM; sleep infinity & wait"]
"""Ends on SIGTERM like an image's daemons and pause; the first process of a namespace without a handler would ignore
it."""


class Container(ContainerContext):
    """One container of a pod, through all its restarts."""

    _backoff = BACKOFF_S

    async def run(self) -> None:
        """Run until the container needs no further restart."""
        while True:
            await self._once()
            if self.worker.stopping or not self._restarts():
                return
            await self._back_off()

    def _restarts(self) -> bool:
        ended = self.state.terminated or {}
        policy = self.worker.pod["spec"].get("restartPolicy", "Always")
        if self.ephemeral:
            return False
        if self.init and not is_sidecar(self.spec):
            return bool(ended.get("exitCode")) and policy != "Never"
        if is_sidecar(self.spec):
            return not self.worker.finishing
        own = self.spec.get("restartPolicy") or policy
        return own == "Always" or (own == "OnFailure" and bool(ended.get("exitCode")))

    async def _back_off(self) -> None:
        ran = self._ran_for()
        if ran > QUIET_S:
            self._backoff, self.state.restarts = BACKOFF_S, self.state.restarts
        elif self.state.restarts:  # the first restart is immediate
            meta = self.worker.pod["metadata"]
            pod = f"{meta['name']}_{meta['namespace']}({meta['uid']})"
            self.state.wait(
                "CrashLoopBackOff", f"back-off {self._text()} restarting failed container={self.name} pod={pod}"
            )
            self.event("Warning", "BackOff", f"Back-off restarting failed container {self.name} in pod {pod}")
            self.worker.publish()
            await self.worker.pause(self._backoff)
            self._backoff = min(self._backoff * 2, MAX_BACKOFF_S)
        self.state.restarts += 1

    def _text(self) -> str:
        minutes, seconds = divmod(self._backoff, 60)
        return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"

    def _ran_for(self) -> float:
        return time.monotonic() - self._started if self.state.started or self.state.terminated else 0.0

    _started = 0.0

    async def _once(self) -> None:
        await pulling.pull(self)
        env = await self._configure()
        await self._start(env)
        if self.process is not None:
            # A pod that is terminated during the start had no process to stop yet; a kubelet repeats until nothing
            # runs.
            ends = self.worker.stopping or self.worker.finishing
            late = [asyncio.create_task(self.stop(self.worker.grace_s))] if ends else []
            await self._watch(self.process)
            await asyncio.gather(*late)

    # -- before the start

    async def _configure(self) -> dict[str, str]:
        while True:
            try:
                self._refuse_root()
                return Environment(
                    self._as_the_kubelet_has_it(),
                    self.spec,
                    self.worker.lookup,
                    self.worker.allocatable,
                    self.worker.base_env(),
                ).build()
            except ConfigError as error:
                self.state.wait("CreateContainerConfigError", str(error))
                self.event("Warning", "Failed", f"Error: {error}")
                self.worker.publish()
                await self.worker.pause(BACKOFF_S, wake=True)
                self.event(
                    "Normal",
                    "Pulled",
                    f'Container image "{self.spec["image"]}" already present on machine and can be accessed by the pod',
                )

    def _as_the_kubelet_has_it(self) -> Object:
        """Return the pod with the addresses of its sandbox, which its published status shows later."""
        pod, ip = self.worker.pod, self.worker.pod_ip
        host = self.worker.kubelet.host_ip(self.worker.node)
        status = {"hostIP": host, "hostIPs": [{"ip": host}], "podIP": ip, "podIPs": [{"ip": ip}]}
        return {**pod, "status": {**(pod.get("status") or {}), **status}} if ip else pod

    def _refuse_root(self) -> None:
        context, meta = self.context(), self.worker.pod["metadata"]
        if context.get("runAsNonRoot") and not context.get("runAsUser"):
            pod = f"{meta['name']}_{meta['namespace']}({meta['uid']})"
            raise ConfigError(
                f'container has runAsNonRoot and image will run as root (pod: "{pod}", container: {self.name})'
            )

    # -- start

    def _command(self, env: dict[str, str]) -> list[str]:
        command = [expand(part, env) for part in self.spec.get("command") or []]
        arguments = [expand(part, env) for part in self.spec.get("args") or []]
        # An image's own entrypoint is unknown here: without a command the container waits, like "pause".
        return [*(command or ([] if arguments else PAUSE)), *arguments]

    async def _start(self, env: dict[str, str]) -> None:
        worker, state = self.worker, self.state
        folder = worker.folder / "containers" / self.name
        folder.mkdir(parents=True, exist_ok=True)
        message = folder / "termination-log"
        message.write_bytes(b"")
        message.chmod(0o666)
        self.previous, self.log = (
            self.log or self.previous,
            Log(str(folder / f"{state.restarts}.log"), worker.kubelet.log_max_bytes),
        )
        state.container_id = "containerd://" + os.urandom(32).hex()
        state.image_id = worker.kubelet.image_id(worker.node, self.spec["image"])
        state.created = True
        self.event("Normal", "Created", "Container created")
        argv = self._command(env)
        path = self.spec.get("terminationMessagePath") or "/dev/termination-log"
        try:
            mounts = [
                *worker.files,
                *memory.cgroup(folder, self.spec),
                *worker.hardware_mounts(),
                {"source": str(message), "target": path},
                *worker.volumes.mounts(self.spec, env),
            ]
            self.process = await self._spawn(argv, env, mounts)
        except (StartError, MountError, OSError) as error:
            self._not_started(f"{RUNC}{error}" if isinstance(error, MountError) else start_error(error, argv[0]))
            return
        self._started = time.monotonic()
        if state.terminated is not None:
            state.last = {"terminated": state.terminated}
        state.terminated, state.running = None, {"startedAt": worker.now()}
        state.started = not self.spec.get("startupProbe")
        state.ready = state.started and not self.spec.get("readinessProbe") and (not self.init or is_sidecar(self.spec))
        self.event("Normal", "Started", "Container started")
        worker.publish()

    async def _spawn(self, argv: list[str], env: dict[str, str], mounts: list[Object]) -> Process:
        log, context = self.log, self.context()
        if log is None or self.worker.sandbox is None:
            raise OSError(errno.ESRCH, "the sandbox is gone")
        missing = self.worker.missing_commands(self.spec["image"])
        if argv[0].rpartition("/")[2] in missing:
            raise StartError({"stage": "exec", "errno": errno.ENOENT, "error": argv[0]})
        if argv[0] in self.worker.daemons(self.spec["image"]):
            argv = PAUSE
        pipes = [os.pipe(), os.pipe()]
        pumps = [
            asyncio.create_task(pump(reading, name, log))
            for (reading, _), name in zip(pipes, ("stdout", "stderr"), strict=True)
        ]
        self._pumps = asyncio.gather(*pumps, return_exceptions=True)
        self._pumps.add_done_callback(lambda _: log.end())
        self._mounts = mounts
        argv, env = self._placed(argv, env)
        given = await self._open_input() if self.spec.get("stdin") else []
        try:
            return await self.worker.sandbox.start(
                argv,
                env,
                stdio=[pipes[0][1], pipes[1][1], *given],
                mounts=mounts,
                cwd=self.spec.get("workingDir") or "/",
                uid=context.get("runAsUser"),
                gid=context.get("runAsGroup"),
                capabilities=capabilities(context),
                no_new_privileges=context.get("allowPrivilegeEscalation") is False,
            )
        finally:
            for fd in (pipes[0][1], pipes[1][1], *given):
                os.close(fd)

    def _placed(self, argv: list[str], env: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        """Return command and environment with the paths of this machine."""
        if self.worker.kubelet.network.mode != "plain":
            return argv, env
        return plain.rewrite(self.worker, self.worker.folder / "containers" / self.name, argv, env, self._mounts)

    async def _open_input(self) -> list[int]:
        reading, writing = os.pipe()
        if self.input is not None:
            self.input.close()
        self.input = await sessions.writer(writing)
        return [reading]

    _pumps: asyncio.Future[list[BaseException | None]] | None = None

    async def close(self) -> None:
        """Stop reading the container's output: the cluster ends."""
        if self._pumps is not None:
            self._pumps.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pumps
        if self.input is not None:
            self.input.close()
        if self.log is not None:
            self.log.end()

    def _not_started(self, why: str) -> None:
        self.process = None
        self.event("Warning", "Failed", f"Error: {why}")
        if self.state.terminated is not None:
            self.state.last = {"terminated": self.state.terminated}
        self.state.running = None
        self.state.terminated = {
            "exitCode": 128,
            "reason": "StartError",
            "message": why,
            "startedAt": EPOCH,
            "finishedAt": self.worker.now(),
            "containerID": self.state.container_id,
        }
        self.worker.publish()

    # -- while it runs

    async def _watch(self, process: Process) -> None:
        self.killed_by = ""
        tasks = [asyncio.create_task(job) for job in (*probes.jobs(self), *memory.jobs(self))]
        hook = (self.spec.get("lifecycle") or {}).get("postStart")
        if hook:
            tasks.append(asyncio.create_task(self.hook(hook)))
        try:
            code = await process.exited
            if self._pumps is not None:  # the remaining output precedes the end
                with contextlib.suppress(TimeoutError):  # a process that left the session may still hold the pipe
                    await asyncio.wait_for(asyncio.shield(self._pumps), DRAIN_S)
        finally:
            for task in tasks:
                task.cancel()
        self._end(code)

    def _end(self, code: int) -> None:
        state = self.state
        exit_code = code if code >= 0 else 128 - code
        reason = self.killed_by or ("Completed" if exit_code == 0 else "Error")
        falls_back = exit_code and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        file = self.worker.folder / "containers" / self.name / "termination-log"
        message = termination_message(file, self.log if falls_back else None)
        started = (state.running or {}).get("startedAt", EPOCH)
        state.running = None
        state.terminated = {
            "exitCode": exit_code,
            "reason": reason,
            **({"message": message} if message else {}),
            "startedAt": started,
            "finishedAt": self.worker.now(),
            "containerID": state.container_id,
        }
        self.process = None
        state.started = False
        state.ready = self.init and not is_sidecar(self.spec) and exit_code == 0
        self.worker.publish()

    async def spawn(self, argv: list[str], stdio: list[int], *, terminal: bool = False) -> Process:
        """Start an additional command in the running container."""
        process, sandbox, context = self.process, self.worker.sandbox, self.context()
        if process is None or sandbox is None:
            raise StartError({"stage": "exec", "errno": errno.ESRCH, "error": "container not running"})
        if argv[0].rpartition("/")[2] in self.worker.missing_commands(self.spec["image"]):
            raise StartError({"stage": "exec", "errno": errno.ENOENT, "error": argv[0]})
        env = Environment(
            self.worker.pod, self.spec, self.worker.lookup, self.worker.allocatable, self.worker.base_env()
        ).build()
        argv, env = self._placed(argv, {**env, "TERM": "xterm"} if terminal else env)
        return await sandbox.execute(
            process,
            argv,
            env,
            stdio=stdio,
            terminal=terminal,
            cwd=self.spec.get("workingDir") or "/",
            uid=context.get("runAsUser"),
            gid=context.get("runAsGroup"),
        )
