"""Fake mpirun of Open MPI 4: it starts the processes of an MPI program on their nodes.

One call per host, ranks by slot. It reads the host file, starts the command in every worker through the remote shell,
gives each process its rank, prints their output, and ends all when one fails. It serves the all-gather that replaces
PMIx.
"""

from __future__ import annotations

import base64
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import mpitexts, remote, sshd
from .allgather import AllGather
from .mpioptions import MpiOptions, MpiUsageError, hosts_of, parse
from .mpitexts import framed

# Variables of the launcher that every process gets without -x.
SHELL_ARGUMENTS = "OMPI_MCA_plm_rsh_args"
FORWARDED = ("OMPI_", "PMIX_", "PRTE_")


@dataclass(slots=True)
class Host:
    """A host with its slots and its ranks."""

    name: str
    slots: int
    ranks: list[int] = field(default_factory=list)


def main() -> int:
    """Run a program on all hosts; return the exit code of the first process that failed."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    try:
        options = parse(sys.argv[1:])
        _root(options)
        hosts = [Host(name, slots) for name, slots in hosts_of(options)]
        size = _place(hosts, options)
    except MpiUsageError as error:
        print(framed(str(error)), file=sys.stderr)
        return 1
    return Launch(hosts, size, options).run()


def _root(options: MpiOptions) -> None:
    allowed = options.allow_root or (
        os.environ.get("OMPI_ALLOW_RUN_AS_ROOT") == "1" and os.environ.get("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") == "1"
    )
    if os.geteuid() == 0 and not allowed:
        raise MpiUsageError(mpitexts.ROOT)


def _place(hosts: list[Host], options: MpiOptions) -> int:
    """Assign ranks to every host, by slot or by a number per node; return the number of ranks."""
    room = [options.per_node or host.slots for host in hosts]
    processes = options.count or sum(room)
    capacity = (
        sum(room)
        if options.oversubscribe or not options.per_node
        else sum(min(given, host.slots) for given, host in zip(room, hosts, strict=True))
    )
    if processes > capacity and not options.oversubscribe:
        raise MpiUsageError(mpitexts.SLOTS.format(wanted=processes, program=options.command[0]))
    rank = 0
    while rank < processes:
        for host, given in zip(hosts, room, strict=True):
            for _ in range(given):
                if rank < processes:
                    host.ranks.append(rank)
                    rank += 1
    return processes


class Launch:
    """One run of a program."""

    def __init__(self, hosts: list[Host], size: int, options: MpiOptions) -> None:
        self.hosts, self.size, self.options = [h for h in hosts if h.ranks], size, options
        self.gathering = AllGather(size)
        self.lines: list[socket.socket] = []
        self.codes: dict[int, int] = {}
        self.failed: tuple[int, int] | None = None
        self.trouble = ""
        self._tails: dict[tuple[int, int], bytes] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()

    def run(self) -> int:
        """Start all processes, wait for their end, report the result."""
        self.gathering.start()
        threads = [
            threading.Thread(target=self._host, args=(number, host), daemon=True)
            for number, host in enumerate(self.hosts)
        ]
        for thread in threads:
            thread.start()
        self._over.wait()
        for line in list(self.lines):
            line.close()
        with self._lock:
            return self._verdict()

    def _host(self, number: int, host: Host) -> None:
        try:
            line = self._call(host, [self._command(number, host, local) for local in range(len(host.ranks))])
            self.lines.append(line)
            for said in remote.lines(line):
                if "refused" in said:
                    self._lost(said["refused"])
                    return
                self._said(host, said)
            if any(rank not in self.codes for rank in host.ranks):
                self._lost(f"Connection to {host.name} closed by remote host.")
        except (remote.RemoteError, OSError) as error:
            self._lost(str(error))

    def _call(self, host: Host, commands: list[dict[str, Any]]) -> socket.socket:
        """Start a command on a host through the remote shell; on this host, directly with mpirun's environment."""
        if host.name.split(".")[0] not in ("localhost", socket.gethostname()):
            attempts = 10 if "ConnectionAttempts=10" in os.environ.get(SHELL_ARGUMENTS, "") else 1
            return remote.call(host.name, commands, attempts=attempts)
        line, other = socket.socketpair()
        threading.Thread(
            target=sshd.serve, args=(other, remote.lines(other), commands, dict(os.environ)), daemon=True
        ).start()
        return line

    def _command(self, number: int, host: Host, local: int) -> dict[str, Any]:
        env = {key: value for key, value in os.environ.items() if key.startswith(FORWARDED)} | self.options.exported
        env |= {f"OMPI_MCA_{key}": value for key, value in self.options.mca}
        rank = host.ranks[local]
        env |= {
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": str(self.size),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(local),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(len(host.ranks)),
            "OMPI_COMM_WORLD_NODE_RANK": str(local),
            "OMPI_UNIVERSE_SIZE": str(self.size),
            "PMIX_RANK": str(rank),
            "OMPI_ARGV": " ".join(self.options.command[1:]),
            "OMPI_COMMAND": self.options.command[0],
            "OMPI_MCA_orte_hnp_uri": f"1.0;tcp://{self.gathering.address}:{self.gathering.port}",
            "OMPI_MCA_orte_ess_node_rank": str(local),
            "OMPI_FIRST_RANKS": "0",
            "OMPI_NUM_APP_CTX": "1",
            "OMPI_MCA_ess_base_vpid": str(number + 1),
        }
        return {"id": rank, "argv": self.options.command, "env": env, "cwd": self.options.folder}

    def _said(self, host: Host, said: dict[str, Any]) -> None:
        rank = said["id"]
        with self._lock:
            if self._over.is_set():
                return
            if "data" in said:
                self._show(rank, said["stream"], base64.b64decode(said["data"]))
                return
            self.codes[rank] = said["exit"]
            if said.get("lost"):
                self.trouble = mpitexts.EXECUTABLE.format(rank=rank, node=host.name.split(".")[0], program=said["lost"])
            if said["exit"] and self.failed is None:
                self.failed = rank, said["exit"]
            if self.failed or len(self.codes) == self.size:
                self._over.set()

    def _lost(self, why: str) -> None:
        with self._lock:
            if self._over.is_set():
                return
            print(why, file=sys.stderr)
            self.trouble = mpitexts.DAEMONS
            self.failed = self.failed or (-1, 1)
            self._over.set()

    def _show(self, rank: int, stream: int, data: bytes) -> None:
        """Print output; with --tag-output every line names its process."""
        if not self.options.tag:
            os.write(1 if self.options.merge else stream, data)
            return
        held = self._tails.pop((rank, stream), b"") + data
        name = "stdout" if stream == 1 or self.options.merge else "stderr"
        *whole, tail = held.split(b"\n")
        if tail:
            self._tails[rank, stream] = tail
        text = b"".join(f"[1,{rank}]<{name}>:".encode() + each + b"\n" for each in whole)
        os.write(1 if self.options.merge else stream, text)

    def _verdict(self) -> int:
        for (rank, stream), tail in sorted(self._tails.items()):
            os.write(stream, f"[1,{rank}]<{'stdout' if stream == 1 else 'stderr'}>:".encode() + tail + b"\n")
        if self.trouble:
            print(framed(self.trouble), file=sys.stderr)
            return 1
        if self.failed is None:
            return 0
        rank, code = self.failed
        if code < 0:
            name = signal.strsignal(-code) or "Unknown"
            text = mpitexts.SIGNAL.format(rank=rank, node=self._node(rank), number=-code, name=name)
            print(framed(text), file=sys.stderr)
            return 128 - code
        print(framed(mpitexts.ABORTED), file=sys.stderr)
        print(framed(mpitexts.NONZERO.format(job=os.getpid(), rank=rank, code=code)), file=sys.stderr)
        return code

    def _node(self, rank: int) -> str:
        return next((host.name.split(".")[0] for host in self.hosts if rank in host.ranks), Path("?").name)
