"""The steps from a forked child of the agent to the command of a container.

An error before the command runs is written to a status pipe as {stage, errno, error}; a successful exec closes the
pipe, so the agent knows that the container has started.
"""

# ruff: noqa: PTH112, PTH123
# (importing pathlib would double the time in which the agent starts)
from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import termios
from typing import Any, NoReturn

from .filesystem import View
from .syscalls import NEWIPC, NEWNET, NEWNS, NEWUSER, NEWUTS, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, call, prctl

LAST_CAPABILITY = 63


class Child:
    """The steps of a child between fork and exec; `stage` names the current one."""

    def __init__(self, spec: dict[str, Any], stdio: list[int], status: int) -> None:
        self.spec, self.stdio, self.status = spec, stdio, status
        self.stage = "namespaces"

    def contain(self, namespaces: list[int], keep: list[str], bound: list[str]) -> None:
        """Join the sandbox's namespaces and build the container's own file systems."""
        for fd in namespaces:
            call("setns", fd, 0)
        call("unshare", NEWNS)
        self.stage = "mounts"
        View(keep, bound).build(self.spec["mounts"], self.spec["cwd"])

    def join(self, container: int) -> None:
        """Enter a running container, given the pidfd of its first process."""
        call("setns", container, NEWNS | NEWUTS | NEWIPC | NEWNET)

    def run(self, contained: bool) -> NoReturn:
        """Set folder, descriptors, user and permissions, then exec the command."""
        self.stage = "cwd"
        if contained or os.path.isdir(self.spec["cwd"]):
            os.chdir(self.spec["cwd"])
        out, error, *given = self.stdio
        for fd, source in enumerate([given[0] if given else os.open("/dev/null", os.O_RDONLY), out, error]):
            os.dup2(source, fd)
        if self.spec.get("terminal"):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.stage = "limits"
        _, most = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (most, most))
        self.stage = "user"
        self._restrict()
        if contained:
            self._be_user()
        self.stage = "exec"
        self.become(self.spec["argv"], self.spec["env"])

    def become(self, argv: list[str], env: dict[str, str]) -> NoReturn:
        """Replace this program by the command."""
        os.execvpe(argv[0], argv, env)  # noqa: S606 - the pod's own command

    def _restrict(self) -> None:
        """Drop capabilities that the container does not keep; without any capability there is nothing to drop."""
        capabilities = set(self.spec["capabilities"])
        for capability in range(LAST_CAPABILITY + 1):
            if capability not in capabilities:
                prctl(PR_CAPBSET_DROP, capability)
        if self.spec.get("no_new_privileges"):
            prctl(PR_SET_NO_NEW_PRIVS, 1)

    def _be_user(self) -> None:
        """Switch to a user other than root, in a nested namespace."""
        uid, gid = self.spec.get("uid") or 0, self.spec.get("gid") or 0
        if uid or gid:
            call("unshare", NEWUSER)
            for name, text in ("setgroups", "deny"), ("uid_map", f"{uid} 0 1"), ("gid_map", f"{gid} 0 1"):
                with open("/proc/self/" + name, "w") as file:
                    file.write(text)

    def fail(self, error: BaseException) -> None:
        """Report an error to the agent."""
        report = {"stage": self.stage, "errno": getattr(error, "errno", None), "error": str(error)}
        os.write(self.status, json.dumps(report).encode())


def fresh_process() -> None:
    """Undo changes by Python and the agent: signal handling and the session."""
    for number in signal.SIGPIPE, signal.SIGXFSZ:
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
