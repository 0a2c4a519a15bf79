"""RDMA writes of a sweep's pair, rail by rail, to distinguish a slow link from slow NCCL on a suspect node."""

from __future__ import annotations

import time
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from .rdmaprogram import SPARE_S, Program, read

READY_S = 20.0  # for the peer's program to listen
NOT_YET = b"Couldn't connect to"


class ByRail:
    """The writes of two nodes of a sweep, rail by rail: one side serves each on an agreed port, the other measures.

    Only the coordinator connects the two, so the first failure ends the writes: otherwise the sides could use different
    NICs. The second direction is the same run with exchanged data roles (`--reversed`).
    """

    def __init__(self, program: Program, labels: Sequence[str], port: int, over: Callable[[], bool]) -> None:
        self.program, self.labels, self.port, self.over = program, labels, str(port), over
        self.limit_s = program.seconds + SPARE_S

    def serve(self) -> None:
        """Serve each write in both directions until the peer has finished or fails."""
        for label, way in self._runs():
            words = [*self.program.words(label), *way, "-p", self.port]
            if self.program.run(words, label, READY_S + self.limit_s, self.over).exit != 0:
                return

    def measure(self, address: str) -> Dict[str, List[float]]:
        """Return the measured rates by NIC, to the other node and from it, in Gb/s."""
        values: Dict[str, List[float]] = {}
        for label, way in self._runs():
            value = self._value([*self.program.words(label), *way, "-p", self.port, address], label)
            if value is None:
                break
            values.setdefault(label, []).append(value)
        return values

    def _runs(self) -> Iterator[Tuple[str, List[str]]]:
        known = [label for label in self.labels if label in self.program.labels]
        return ((label, way) for label in known for way in ([], ["--reversed"]))

    def _value(self, words: Sequence[str], label: str) -> Optional[float]:
        """Run the measurement as soon as the peer listens."""
        until = time.monotonic() + READY_S
        while not self.over():
            answer = self.program.run(words, label, self.limit_s, self.over)
            if NOT_YET not in answer.err or time.monotonic() >= until:
                return read(answer.out.decode("utf-8", "replace")) if answer.exit == 0 else None
            time.sleep(0.1)
        return None
