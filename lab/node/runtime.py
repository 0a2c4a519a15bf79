"""The errors and defaults of runc, and the message for errors of this machine.

The texts of containerd and runc (api-contract/recordings/command-not-found), and the capabilities of a container.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from .network.interface import DEFAULT_CAPABILITIES, StartError

Object = dict[str, Any]
RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    "unable to start container process: "
)
MACHINE = "the embedded cluster could not set up this pod on this machine: "
"""Not a message of a runtime: an error of this machine is not a fault of the simulated cluster."""
COMMANDS_OWN = (errno.ENOENT, errno.EACCES, errno.EISDIR, errno.ENOTDIR, errno.ENOEXEC, errno.ELOOP)
"""Errors of execve(2) because of the file; any other error is this machine's."""
CAPABILITIES = {
    name: number
    for number, name in enumerate(
        (
            "CHOWN",
            "DAC_OVERRIDE",
            "DAC_READ_SEARCH",
            "FOWNER",
            "FSETID",
            "KILL",
            "SETGID",
            "SETUID",
            "SETPCAP",
            "LINUX_IMMUTABLE",
            "NET_BIND_SERVICE",
            "NET_BROADCAST",
            "NET_ADMIN",
            "NET_RAW",
            "IPC_LOCK",
            "IPC_OWNER",
            "SYS_MODULE",
            "SYS_RAWIO",
            "SYS_CHROOT",
            "SYS_PTRACE",
            "SYS_PACCT",
            "SYS_ADMIN",
            "SYS_BOOT",
            "SYS_NICE",
            "SYS_RESOURCE",
            "SYS_TIME",
            "SYS_TTY_CONFIG",
            "MKNOD",
            "LEASE",
            "AUDIT_WRITE",
            "AUDIT_CONTROL",
            "SETFCAP",
            "MAC_OVERRIDE",
            "MAC_ADMIN",
            "SYSLOG",
            "WAKE_ALARM",
            "BLOCK_SUSPEND",
            "AUDIT_READ",
            "PERFMON",
            "BPF",
            "CHECKPOINT_RESTORE",
        )
    )
}


def start_error(error: Exception, command: str) -> str:
    """Return runc's message about a container whose command could not be started."""
    if isinstance(error, StartError) and error.stage == "exec" and error.errno in COMMANDS_OWN:
        return RUNC + _why(error, command)
    return f"{MACHINE}{error}"


def exec_error(error: StartError, command: list[str]) -> str:
    """Return runc's message about an additional command that could not be started in a container."""
    runc = "OCI runtime exec failed: exec failed: unable to start container process: "
    return f'failed to start exec "{os.urandom(32).hex()}": {runc}{_why(error, (command or [""])[0])}: unknown'


def _why(error: StartError, command: str) -> str:
    quoted = f'exec: "{command}": '
    if error.errno == errno.ENOENT and "/" not in command:
        return f"{quoted}executable file not found in $PATH"
    if error.errno == errno.ENOENT:
        return f"{quoted}stat {command}: no such file or directory"
    if error.errno in (errno.EACCES, errno.EISDIR):
        return f"{quoted}permission denied"
    return f"{quoted}{os.strerror(error.errno or errno.EINVAL).lower()}"


def capabilities(context: Object) -> frozenset[int]:
    """Return the capabilities of a security context, including the default ones."""
    changes = context.get("capabilities") or {}
    add = {name.upper().removeprefix("CAP_") for name in changes.get("add") or []}
    drop = {name.upper().removeprefix("CAP_") for name in changes.get("drop") or []}
    every = frozenset(CAPABILITIES.values())
    granted = every if context.get("privileged") or "ALL" in add else DEFAULT_CAPABILITIES
    if "ALL" in drop:
        granted = frozenset()
    granted -= {CAPABILITIES[name] for name in drop if name in CAPABILITIES}
    return granted | {CAPABILITIES[name] for name in add if name in CAPABILITIES}
