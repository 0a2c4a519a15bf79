"""Logs of a trial's own pods: their evidence lines hold the analysis, and the pods of a run are one job.

A pod of the trial prints no NCCL log: it analyses its ranks' files and prints the state of that analysis in numbered
parts (jobs.run.evidence). Any other log passes through untouched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from jobs import nccl
from jobs.nccl.job_document import Expected, JobDocument
from jobs.run.evidence import EvidenceReader, StageData
from jobs.run.stages import COLLECTIVE, SWEEP_STAGES

_EVIDENCE = re.compile(rb'\{"seatrial": ?1, ?"run": ?"([^"\\]{1,80})", ?"rank": ?(\d{1,6}), ?')
_SNIFF = 256 * 1024  # a probe's first evidence line is its start
_LONGEST = 64 * 1024
_MOST_RANKS = 4096
_OF_A_SWEEP = "These are the pods of a sweep, whose tests are judged together: its report holds the verdict."


@dataclass(slots=True)
class TrialLogs:
    """Takes trial logs out of a stream of sources, and concludes from what their probes reported."""

    names: dict[str, dict[str, None]] = field(default_factory=dict)
    """Run -> the names of its logs."""
    readers: dict[tuple[str, int], EvidenceReader] = field(default_factory=dict)
    """Run and rank -> what reads it."""
    logs: dict[tuple[str, int], str] = field(default_factory=dict)
    """Run and rank -> the name of its log."""

    def other_sources(self, sources: Iterable[tuple[str, Iterable[bytes]]]) -> Iterator[tuple[str, Iterable[bytes]]]:
        """Yield the sources that are no trial's logs; the others are read here."""
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
        run = match[1].decode("utf-8", "replace")
        key = (run, int(match[2]))
        if key not in self.readers and len(self.readers) >= _MOST_RANKS:
            return
        self.names.setdefault(run, {})[name] = None
        self.logs.setdefault(key, name)
        self.readers.setdefault(key, EvidenceReader(run)).feed(line[match.start() :])

    def jobs(self, expect: Expected) -> list[JobDocument]:
        """Return one job document for each collective of each run, in the order of the run's stages.

        What each node runs on its own is a job of each.
        """
        from checks.profiles.trial import NODE, OPERATIONS  # noqa: PLC0415 -- most logs are no trial's

        documents = []
        for run, names in self.names.items():
            ranks = {key: reader.result() for key, reader in sorted(self.readers.items()) if key[0] == run}
            stages = dict.fromkeys(s for rank in ranks.values() for s in rank.stages if s.startswith(COLLECTIVE))
            for stage in stages:
                ran = {key: rank.stages[stage] for key, rank in ranks.items() if stage in rank.stages}
                name_of_stage = stage.removeprefix(COLLECTIVE)
                alone = name_of_stage == NODE
                for members in [[key] for key in ran] if alone else [list(ran)]:
                    results = [ran[key] for key in members]
                    parts = [
                        nccl.Partial.from_dict(data["nccl"]) for data in results if isinstance(data.get("nccl"), dict)
                    ]
                    shown = [self.logs[key] for key in members] if alone else names
                    stage_of = [f"{name}: {name_of_stage}" for name in shown]
                    documents += _concluded(parts, stage_of, results, expect, OPERATIONS.get(name_of_stage))
            if not stages:
                documents += _concluded([], list(names), [], expect)
                if any(stage in SWEEP_STAGES for rank in ranks.values() for stage in rank.stages):
                    made = documents[-1]
                    made["sentence"], made["faults"], made["causes"], made["advice"] = _OF_A_SWEEP, [], [], None
        return documents


def _concluded(
    parts: list[nccl.Partial],
    names: list[str],
    results: list[StageData],
    expect: Expected,
    collective: str | None = None,
) -> list[JobDocument]:
    """Conclude from the pods' parts; without any, an empty log says the honest thing, and the probe says why.

    ``collective`` is what the stage ran, for a table that does not name it.
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
