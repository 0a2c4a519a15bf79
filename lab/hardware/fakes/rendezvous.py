"""The rendezvous of a job's nodes over TCP: each gets the data of all others.

Real TCP: node 0 listens on MASTER_PORT and waits for the others. The others resolve MASTER_ADDR with the pod's own
resolver and retry to connect until the timeout, as torch's store does. Each side sends one JSON line; a second line
from every rank and a response are the barrier at the end.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any


class RendezvousError(Exception):
    """Ranks are missing; the text is torch's."""


class Rendezvous:
    """The connections of one job."""

    def __init__(self, address: str, port: int, node: int, nodes: int, timeout_s: float) -> None:
        self.address, self.port, self.node, self.nodes = address, port, node, nodes
        self.deadline, self.timeout_s = time.monotonic() + timeout_s, timeout_s
        self.peers: dict[int, tuple[socket.socket, Any]] = {}

    def all_gather(self, mine: dict[str, Any]) -> list[dict[str, Any]]:
        """Send this node's data to the others; return every node's data, in the order of their ranks."""
        if self.nodes == 1:
            return [mine]
        if self.node == 0:
            everything = self._gather(mine)
            for sock, _ in self.peers.values():
                _send(sock, everything)
            return everything
        while True:
            sock = self._connect()
            stream = sock.makefile("r", encoding="utf-8")
            try:
                _send(sock, mine)
                answer: list[dict[str, Any]] = self._read(stream)
            except (RendezvousError, OSError):  # the previous listener was not the store: retry, as torch does
                stream.close()
                sock.close()
                if time.monotonic() >= self.deadline:
                    raise
                time.sleep(min(0.1, self._left()))
            else:
                self.peers[0] = (sock, stream)
                return answer

    def barrier(self) -> None:
        """Wait until every node has reached this point."""
        for node, (sock, stream) in sorted(self.peers.items()):
            if self.node == 0:
                self._read(stream)
            else:
                _send(sock, {"done": node})
        for sock, stream in self.peers.values():
            if self.node == 0:
                _send(sock, {"done": True})
            else:
                self._read(stream)

    def close(self) -> None:
        """Close all connections."""
        for sock, stream in self.peers.values():
            stream.close()
            sock.close()

    def _gather(self, mine: dict[str, Any]) -> list[dict[str, Any]]:
        said: dict[int, dict[str, Any]] = {0: mine}
        try:
            listener = socket.create_server(("", self.port), reuse_port=False)
        except OSError as error:
            raise RendezvousError(
                "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
                f"address. port: {self.port}, useIpv6: false, code: {-(error.errno or 0)}, "
                f"name: EADDRINUSE, message: {error.strerror}"
            ) from None
        with listener:
            while len(said) < self.nodes:
                try:
                    listener.settimeout(self._left())
                    sock, _ = listener.accept()
                    sock.settimeout(self._left())
                    stream = sock.makefile("r", encoding="utf-8")
                    theirs = json.loads(stream.readline())
                    said[theirs["node"]] = theirs
                    self.peers[theirs["node"]] = (sock, stream)
                except (OSError, ValueError, KeyError, TypeError):
                    if time.monotonic() >= self.deadline:
                        raise self._timed_out(len(said)) from None
        return [said[node] for node in sorted(said)]

    def _connect(self) -> socket.socket:
        reason = ""
        while time.monotonic() < self.deadline:
            try:
                sock = socket.create_connection((self.address, self.port), timeout=min(5.0, self._left()))
                if (
                    sock.getsockname() == sock.getpeername()
                ):  # on one machine, a connection to a free port may connect to itself
                    sock.close()
                    raise ConnectionRefusedError("the socket connected to itself")
            except OSError as error:
                reason = str(error)
                time.sleep(min(0.1, self._left()))
            else:
                sock.settimeout(self._left())
                return sock
        raise RendezvousError(
            f"torch.distributed.DistNetworkError: The client socket has timed out after {self.timeout_s * 1000:.0f}ms "
            f"while trying to connect to ({self.address}, {self.port}). Last error: {reason}"
        )

    def _read(self, stream: Any) -> Any:
        try:
            return json.loads(stream.readline())
        except (OSError, ValueError):
            raise RendezvousError(
                f"torch.distributed.DistNetworkError: Connection to ({self.address}, {self.port}) was closed or timed "
                "out while waiting for the other nodes"
            ) from None

    def _left(self) -> float:
        return max(0.05, self.deadline - time.monotonic())

    def _timed_out(self, came: int) -> RendezvousError:
        return RendezvousError(
            f"torch.distributed.DistStoreError: Timed out after {self.timeout_s:.0f} seconds waiting for clients. "
            f"{came}/{self.nodes} clients joined."
        )


def _send(sock: socket.socket, value: Any) -> None:
    sock.sendall(json.dumps(value).encode() + b"\n")
