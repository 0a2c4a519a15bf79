"""Replacement for PMIx: an all-gather between the processes of an MPI program, served by mpirun.

A process connects to the address in OMPI_MCA_orte_hnp_uri and sends one line of JSON {"rank", "round", "value"}. When
all have sent theirs, it receives one line with the list of values by rank. `all_gather` is the client.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from typing import Any

PATIENCE_S = 600
ADDRESS = "OMPI_MCA_orte_hnp_uri"


class AllGather:
    """The server in mpirun."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._server = socket.create_server(("0.0.0.0", 0), backlog=1024)  # noqa: S104 - the pod's addresses
        self.port = int(self._server.getsockname()[1])
        self.address = socket.gethostbyname(socket.gethostname())
        self._rounds: dict[str, dict[int, tuple[Any, socket.socket]]] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Serve in the background."""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            line, _ = self._server.accept()
            threading.Thread(target=self._one, args=(line,), daemon=True).start()

    def _one(self, line: socket.socket) -> None:
        try:
            with line.makefile("rb") as reader:
                said = json.loads(reader.readline(1 << 22) or b"null")
        except (OSError, ValueError):
            return
        if not isinstance(said, dict):
            return
        with self._lock:
            gathered = self._rounds.setdefault(str(said["round"]), {})
            gathered[int(said["rank"])] = said["value"], line
            if len(gathered) < self.size:
                return
            del self._rounds[str(said["round"])]
        answer = json.dumps([gathered[rank][0] for rank in sorted(gathered)]).encode() + b"\n"
        for _, other in gathered.values():
            try:
                other.sendall(answer)
                other.close()
            except OSError:
                continue


def all_gather(name: str, value: Any, patience_s: float = PATIENCE_S) -> list[Any]:
    """Send this process's value, return those of all ranks; OSError if mpirun does not respond."""
    address = re.search(r"tcp://([^:]+):(\d+)", os.environ.get(ADDRESS, ""))
    if address is None:
        raise OSError("this process was not started by mpirun")
    with socket.create_connection((address[1], int(address[2])), patience_s) as line:
        said = {"rank": int(os.environ["OMPI_COMM_WORLD_RANK"]), "round": name, "value": value}
        line.sendall(json.dumps(said).encode() + b"\n")
        with line.makefile("rb") as reader:
            answer = reader.readline()
    if not answer:
        raise OSError("mpirun has gone")
    return list(json.loads(answer))
