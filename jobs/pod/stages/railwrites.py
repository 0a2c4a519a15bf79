"""RDMA writes of a sweep's pair, rail by rail: where a node is in doubt, a slow link differs from slow NCCL."""

from __future__ import annotations

import time
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from .rdmaprogram import SPARE_S, Program, read

READY_S = 20.0  # for the other side's program to listen
NOT_YET = b"Couldn't connect to"


class ByRail:
    """The writes of two nodes of a sweep, rail by rail: one waits for each on a port that both know, one measures.

    Nothing but the coordinator connects the two. So what fails ends them: else one would wait for another NIC than the
    other writes from. The second way is the same run with the roles of the data exchanged (`--reversed`).
    """

    def __init__(self, program: Program, labels: Sequence[str], port: int, over: Callable[[], bool]) -> None:
        self.program, self.labels, self.port, self.over = program, labels, str(port), over
        self.limit_s = program.seconds + SPARE_S

    def serve(self) -> None:
        """Be written to, and write, until the other side is through or fails."""
        for label, way in self._runs():
            words = [*self.program.words(label), *way, "-p", self.port]
            if self.program.run(words, label, READY_S + self.limit_s, self.over).exit != 0:
                return

    def measure(self, address: str) -> Dict[str, List[float]]:
        """Return by NIC what went to the other node and what came, in Gb/s, as far as it was measured."""
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
        """Run it as soon as the other side listens."""
        until = time.monotonic() + READY_S
        while not self.over():
            answer = self.program.run(words, label, self.limit_s, self.over)
            if NOT_YET not in answer.err or time.monotonic() >= until:
                return read(answer.out.decode("utf-8", "replace")) if answer.exit == 0 else None
            time.sleep(0.1)
        return None
