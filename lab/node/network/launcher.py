"""The launcher, which starts the agent and ensures that nothing outlives the cluster.

The launcher stays outside. It ends everything when the process that requested the cluster has ended, and removes the
cluster's folder.
"""
# ruff: noqa: PTH123
# (importing pathlib would double the time in which the agent starts)

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import sys

from .agent import Agent, NamespaceAgent, PlainAgent
from .family import kill_descendants
from .filesystem import private_root
from .syscalls import (
    MAX_MESSAGE,
    NEWIPC,
    NEWNET,
    NEWNS,
    NEWPID,
    NEWUSER,
    NEWUTS,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    call,
    mount_fresh,
    prctl,
)


def _serve(control: socket.socket, keep: list[str], mode: str) -> None:
    """Build the namespaces and serve, in the child; report the step that failed."""
    step = "root file system"
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        agent: Agent
        if mode == "plain":
            prctl(PR_SET_CHILD_SUBREAPER, 1)
            agent = PlainAgent(control, keep, [])
        else:
            bound = private_root(keep)
            mount_fresh("proc", "/proc")
            step = "network"
            made = NamespaceAgent(control, keep, bound)
            step = "container"
            made.try_out()
            agent = made
        step = "running"
        agent.run()
    except OSError as error:
        _refuse(control, step, error)


def _refuse(control: socket.socket, step: str, error: OSError) -> None:
    message = {"ready": False, "step": step, "errno": error.errno, "error": str(error)}
    control.send(json.dumps(message).encode())
    os._exit(1)


def _unshare(control: socket.socket) -> None:
    ids, step = (os.geteuid(), os.getegid()), "user namespace"
    try:
        call("unshare", NEWUSER)
        step = "user mapping"
        for name, text in ("setgroups", "deny"), ("uid_map", f"0 {ids[0]} 1"), ("gid_map", f"0 {ids[1]} 1"):
            with open("/proc/self/" + name, "w") as file:
                file.write(text)
        step = "namespaces"
        call("unshare", NEWNS | NEWNET | NEWPID | NEWUTS | NEWIPC)
    except OSError as error:
        _refuse(control, step, error)


def main(control_fd: int, parent: int, mode: str, keep: list[str]) -> None:
    """Fork the agent, wait until it or the outside process ends, then end the agent and remove the folder.

    `keep[0]` is the kubelet's folder; it is removed at the end, however the outside process ended.
    """
    control = socket.socket(fileno=control_fd)
    control.set_inheritable(False)
    control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_MESSAGE)
    outside = os.pidfd_open(parent)
    if os.getppid() != parent:
        return
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, signal.SIG_IGN)  # the outside process decides when the cluster ends
    reaper = os.fork()  # the process that removes the folder stays outside the namespaces
    if reaper:
        control.close()
        select.select([outside, os.pidfd_open(reaper)], [], [])
        os.waitpid(reaper, 0)
        shutil.rmtree(keep[0], ignore_errors=True)
        sys.exit(0)
    if mode == "plain":
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    else:
        _unshare(control)
    pid = os.fork()
    if pid == 0:
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            signal.signal(number, signal.SIG_DFL)
        _serve(control, keep, mode)
        os._exit(0)
    control.close()
    agent = os.pidfd_open(pid)
    select.select([outside, agent], [], [])
    if mode == "plain":
        select.select([agent], [], [], 5)  # the agent ends its descendants first
    os.kill(pid, signal.SIGKILL)  # by pidfd, not PDEATHSIG, which is sent when the starting *thread* ends
    os.waitpid(pid, 0)
    if mode == "plain":
        kill_descendants()
    os._exit(0)
