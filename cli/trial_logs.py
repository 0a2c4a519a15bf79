"""Logs of a trial's own pods: their evidence lines contain the analysis, and the pods of a run are one job.

A pod of the trial prints no NCCL log: it analyses its ranks' files and prints the state of that analysis in numbered
parts (jobs.run.evidence). Any other log passes through untouched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from jobs.run.evidence import EvidenceReader, RankEvidence, StageData
from jobs.run.stages import COLLECTIVE, SWEEP_STAGES
from seatrial import logs as nccl
from seatrial.logs.job_document import Expected, JobDocument

_EVIDENCE = re.compile(rb'\{"seatrial": ?1, ?"run": ?"([^"\\]{1,80})", ?"rank": ?(\d{1,6}), ?')
_ADDRESS = re.compile(rb'"MASTER_ADDR": ?"([^"\\]{1,253})"')
_START = re.compile(rb'"stage": ?"start"')
_SNIFF = 256 * 1024  # a probe's first evidence line is its start
_LONGEST = 64 * 1024
_MOST_RANKS = 4096
_OF_A_SWEEP = "These are pods of a sweep; its tests are judged together: its report holds the verdict."


class Pod(NamedTuple):
    """The origin of an evidence line. `attempt`: its rendezvous address, unique for each attempt; or empty."""

    run: str
    attempt: str
    rank: int


@dataclass(slots=True)
class TrialLogs:
    """Separates trial logs from a stream of sources, and concludes from their probes' reports."""

    readers: dict[Pod, EvidenceReader] = field(default_factory=dict)
    """Readers of a pod's evidence, in the order of the logs."""
    logs: dict[Pod, dict[str, None]] = field(default_factory=dict)
    """The names of a pod's logs."""
    _attempts: dict[tuple[str, str, int], str] = field(default_factory=dict)
    """Log, run and rank -> the attempt of the current lines."""

    def other_sources(self, sources: Iterable[tuple[str, Iterable[bytes]]]) -> Iterator[tuple[str, Iterable[bytes]]]:
        """Yield the sources that are not a trial's logs; read the trial's logs."""
        for name, chunks in sources:
            rest = iter(chunks)
            head = b""
            for chunk in rest:
                head += chunk
                if len(head) >= _SNIFF or _EVIDENCE.search(head):
                    break
            if _EVIDENCE.search(head):
                self._read(name, chain([head], rest))
            else:
                yield name, chain([head], rest)

    def _read(self, name: str, chunks: Iterator[bytes]) -> None:
        tail = b""
        for chunk in chunks:
            *lines, tail = (tail + chunk).split(b"\n")
            tail = tail[:_LONGEST]
            for line in lines:
                self._line(name, line)
        self._line(name, tail)

    def _line(self, name: str, line: bytes) -> None:
        match = _EVIDENCE.search(line[:_LONGEST])
        if match is None:
            return
        run, rank, text = match[1].decode("utf-8", "replace"), int(match[2]), line[match.start() :]
        if _START.search(text, 0, 200):
            address = _ADDRESS.search(text)
            self._attempts[name, run, rank] = address[1].decode("utf-8", "replace") if address else ""
        pod = Pod(run, self._attempts.get((name, run, rank), ""), rank)
        if pod not in self.readers and len(self.readers) >= _MOST_RANKS:
            return
        self.logs.setdefault(pod, {})[name] = None
        self.readers.setdefault(pod, EvidenceReader(run)).feed(text)

    def _runs(self) -> Iterator[dict[Pod, RankEvidence]]:
        """Return the pods of each attempt of each run, except attempts that were stopped and repeated."""
        read = {pod: reader.result() for pod, reader in sorted(self.readers.items())}
        for run in dict.fromkeys(pod.run for pod in self.readers):
            attempts: dict[str, dict[Pod, RankEvidence]] = {}
            for pod, evidence in read.items():
                if pod.run == run:
                    attempts.setdefault(pod.attempt, {})[pod] = evidence
            order = sorted(attempts, key=lambda attempt: max(map(_started, attempts[attempt].values())))
            *before, last = order
            for attempt in before:
                if not attempt:  # a probe without its start belongs to the others
                    attempts[last] = attempts[attempt] | attempts[last]
                elif not any(map(_stopped, attempts[attempt].values())):
                    yield attempts[attempt]
            yield attempts[last]

    def jobs(self, expect: Expected) -> list[JobDocument]:
        """Return one job document for each collective of each run, in the order of the run's stages.

        Each node's run alone is a separate job.
        """
        from checks.profiles.trial import NODE, OPERATIONS  # noqa: PLC0415 -- most logs are not a trial's

        documents = []
        for ranks in self._runs():
            names = list(dict.fromkeys(name for pod in ranks for name in self.logs[pod]))
            stages = dict.fromkeys(s for rank in ranks.values() for s in rank.stages if s.startswith(COLLECTIVE))
            for stage in stages:
                ran = {key: rank.stages[stage] for key, rank in ranks.items() if stage in rank.stages}
                name_of_stage = stage.removeprefix(COLLECTIVE)
                alone = name_of_stage == NODE
                for members in [[key] for key in ran] if alone else [list(ran)]:
                    results = [ran[key] for key in members]
                    parts = [nccl.Partial.from_dict(data["nccl"]) for data in results if data.get("nccl")]
                    shown = [next(iter(self.logs[key])) for key in members] if alone else names
                    stage_of = [f"{name}: {name_of_stage}" for name in shown]
                    documents += _concluded(parts, stage_of, results, expect, OPERATIONS.get(name_of_stage))
            if not stages:
                documents += _concluded([], names, [], expect)
                if any(stage in SWEEP_STAGES for rank in ranks.values() for stage in rank.stages):
                    made = documents[-1]
                    made["sentence"], made["faults"], made["causes"], made["advice"] = _OF_A_SWEEP, [], [], None
        return documents


def _started(pod: RankEvidence) -> float:
    """Return the start time of the pod's probe in seconds since 1970; 0 if the log lacks it."""
    when = pod.stages.get("start", {}).get("time")
    return float(when) if isinstance(when, int | float) else 0.0


def _stopped(pod: RankEvidence) -> bool:
    """Return whether a pod was terminated externally, or its log ends before its probe did."""
    end = pod.stages.get("end")
    return end is None or bool(end.get("stopped"))


def _concluded(
    parts: list[nccl.Partial],
    names: list[str],
    results: list[StageData],
    expect: Expected,
    collective: str | None = None,
) -> list[JobDocument]:
    """Judge the trial's log from the pods' parts; if there are none, use an empty log and the probe's reason.

    ``collective`` is the stage's collective, for a table that does not name it.
    """
    whole = nccl.merge(parts) if parts else nccl.read([(names[0], [])])
    documents = nccl.conclude(whole, expect, one_job=True)
    for document in documents:
        document["files"] = names
        for table in document["tables"]:
            table["collective"] = table["collective"] or collective
        if not parts:
            why = next((str(data["skipped"]) for data in results if data.get("skipped")), "its log ends before that")
            document["sentence"] = f"The trial did not run its collective: {why[:300]}."
    return documents
