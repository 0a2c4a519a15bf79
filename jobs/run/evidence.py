"""The evidence of one rank: its probe's numbered lines, collected until they are complete.

The probe prints one JSON object per line (at most 8 KiB; larger data in numbered parts) among ordinary output. Lines
are numbered from 1 without gaps, so that a lost or torn line is detected and never mistaken for a pass. All of it is
untrusted text: it is bounded here, and redacted before it is shown.

Any program that can write to a pod's output can print a line that looks like evidence. So the output is validated
against the types of its stages once, on arrival. A stage with fields of other types or bounds is rejected as a whole.
The same types fill null and missing fields: with an empty list or mapping, and a single value with None, which is
unknown. Unlisted fields are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from ..cluster.json_types import at, filled, is_number
from ..cluster.redact import redact_value
from ..cluster.unstructured import as_map
from .stages import COLLECTIVE, NUMBERED, STAGES, SWEEP_STAGES
from .stages.hardware import EndStage

BY_PREFIX = (COLLECTIVE, *NUMBERED)
_TYPES = {**STAGES, **SWEEP_STAGES}
StageData: TypeAlias = dict[str, Any]
"""A stage's output, by its type in jobs/run/stages."""


def taken(stage: str, data: StageData) -> tuple[StageData, str]:
    """Return a stage's data with every key of its type, and where it differs from the probe's format; '' if it fits.

    A stage that is not read has no type, and stays as it is.
    """
    hint = _TYPES.get(next((name for name in BY_PREFIX if stage.startswith(name)), stage))
    made, problem = filled(hint, data) if hint else (data, "")
    return made, at(stage, problem) if problem else _unread(made.get("nccl"), stage)


def _unread(part: object, stage: str) -> str:
    """Explain why the log reader cannot read its own part back."""
    if part:
        from seatrial.logs.reader.errors import NcclLogError  # noqa: PLC0415 -- collecting checks reads no log
        from seatrial.logs.reader.state.partial import Partial  # noqa: PLC0415

        try:
            Partial.from_dict(as_map(part))
        except NcclLogError as error:
            return f"{stage}.nccl: {error}"
    return ""


MARK = '{"seatrial"'
LONGEST_LINE = 16_384
# A collective's analysis is bounded to 200 KiB by the probe; a rank's whole evidence stays far below this.
_MOST_BYTES = 32 << 20
_MOST_LINES = 50_000
_MOST_PARTS = 4096
_RANK = re.compile(r'"rank": ?(\d{1,6})[,}]')
# mpirun --tag-output's prefix of each piece of a rank's output, also in the middle of a long line read in pieces
# (open-mpi/ompi, orte/mca/iof/base/iof_base_output.c; openpmix/prrte adds a blank).
_TAG = re.compile(r"\[(?:[\w.@-]{1,100}[@,])?(\d{1,10}),(\d{1,10})\]<(stdout|stderr|stddiag)>: ?")


@dataclass(frozen=True, slots=True)
class RankEvidence:
    """All evidence of one rank: `stages` maps a stage to its data, `missing` has the lost line numbers."""

    rank: int | None = None
    stages: dict[str, StageData] = field(default_factory=dict)  # by name; their fields are below
    seconds: dict[str, float] = field(default_factory=dict)
    missing: tuple[int, ...] = ()
    complete: bool = False
    summary: dict[str, str] = field(default_factory=dict)
    lines: int = 0
    problem: str = ""


def parse(lines: Iterable[bytes | str], run: str) -> RankEvidence:
    """Read one rank's evidence from its log; lines of other runs and ordinary output are skipped."""
    reader = EvidenceReader(run)
    for line in lines:
        reader.feed(line)
    return reader.result()


class EvidenceReader:
    """A collector of evidence, line by line while a log is followed."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._rank: int | None = None
        self._hashes: dict[int, int] = {}  # line number -> hash of its text
        self._parts: dict[str, dict[int, str]] = {}
        self._part_counts: dict[str, int] = {}
        self._stages: dict[str, StageData] = {}
        self._seconds: dict[str, float] = {}
        self._bytes = 0
        self._announced = 0
        self._summary: dict[str, str] = {}
        self._problem = ""

    @property
    def ended(self) -> bool:
        """Whether the probe's last stage was read."""
        return "end" in self._stages

    @property
    def end(self) -> EndStage | None:
        """The probe's last stage; `stopped` is the reason of an early end."""
        return cast("EndStage | None", self._stages.get("end"))

    def feed(self, line: bytes | str) -> bool:
        """Read one line; return True if it was evidence of this run."""
        text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
        text = text.strip()
        if not text.startswith(MARK):
            return False
        if len(text) > LONGEST_LINE or len(self._hashes) >= _MOST_LINES or self._bytes > _MOST_BYTES:
            self._problem = self._problem or "more evidence than a probe prints: the rest was ignored"
            return False
        message = _object(text)
        if message is None or message.get("run") != self._run or not self._same_rank(message):
            return False
        if "lines" in message and "stage" not in message:
            self._take_summary(message)
            return True
        return self._take_line(message, len(text))

    def _take_line(self, message: Mapping[str, object], size: int) -> bool:
        number, stage = message.get("n"), message.get("stage")
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= _MOST_LINES:
            return False
        if not isinstance(stage, str):
            return False
        said = json.dumps(message, sort_keys=True)
        # A log that is read again repeats its lines; a line that differs is rejected.
        if number in self._hashes:
            if self._hashes[number] != hash(said):
                self._problem = self._problem or f"line {number} of the evidence was sent twice, and differs"
            return True
        self._hashes[number] = hash(said)
        self._bytes += size
        if is_number(seconds := message.get("seconds")):
            self._seconds[stage] = float(seconds)
        if "part" in message:
            self._take_part(stage, message)
        elif isinstance(data := message.get("data"), dict):
            self._keep(stage, data)
        return True

    def summarize(self, termination_message: str) -> None:
        """Read the termination message: it has the expected number of lines, and survives lost logs."""
        message = _object(termination_message.strip()[:LONGEST_LINE])
        if message and message.get("run") == self._run and self._same_rank(message):
            self._take_summary(message)

    def result(self) -> RankEvidence:
        """Return the evidence of the lines so far."""
        last = max(self._hashes, default=0)
        expected = max(last, self._announced)
        missing = tuple(number for number in range(1, expected + 1) if number not in self._hashes)
        return RankEvidence(
            rank=self._rank,
            stages=dict(self._stages),
            seconds=dict(self._seconds),
            missing=missing,
            complete=self.ended and not missing and not self._problem,
            summary=dict(self._summary),
            lines=len(self._hashes),
            problem=self._problem,
        )

    def _same_rank(self, message: Mapping[str, object]) -> bool:
        rank = message.get("rank")
        if not isinstance(rank, int) or isinstance(rank, bool) or rank < 0:
            return rank is None
        if self._rank is None:
            self._rank = rank
        return rank == self._rank

    def _take_summary(self, message: Mapping[str, object]) -> None:
        lines, stages = message.get("lines"), message.get("stages")
        if isinstance(lines, int) and 0 <= lines <= _MOST_LINES:
            self._announced = max(self._announced, lines)
        if isinstance(stages, dict):
            self._summary = {str(k)[:100]: str(v)[:40] for k, v in list(stages.items())[:100]}

    def _take_part(self, stage: str, message: Mapping[str, object]) -> None:
        part, parts, chunk = message.get("part"), message.get("parts"), message.get("chunk")
        if not (isinstance(part, int) and isinstance(parts, int) and isinstance(chunk, str)):
            return
        if not 1 <= part <= parts <= _MOST_PARTS:
            return
        if self._part_counts.setdefault(stage, parts) != parts:
            self._problem = f"stage {stage}: its parts disagree on their number"
            return
        pieces = self._parts.setdefault(stage, {})
        pieces[part] = chunk
        if len(pieces) < parts:
            return
        data = _object("".join(pieces[index] for index in sorted(pieces)))
        del self._parts[stage]
        if data is None:
            self._problem = f"stage {stage}: its parts do not join to JSON"
        else:
            self._keep(stage, data)

    def _keep(self, stage: str, data: StageData) -> None:
        if stage in self._stages:
            self._problem = self._problem or f"stage {stage} was reported twice"
            return
        made, wrong = taken(stage, data)
        if wrong:
            self._problem = self._problem or f"not in the probe's format: {wrong}"
            return
        self._stages[stage] = redact_value(made)


class Streams:
    """A separator for the output of several processes in one stream of mpirun."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, ...], str] = {}

    def lines(self, line: str) -> Iterator[str]:
        """Add a line of the stream; yield the lines of single processes that it completes."""
        tags = list(_TAG.finditer(line))
        if not tags:
            yield line
            return
        if line[: tags[0].start()].strip():
            yield line[: tags[0].start()]
        ends = [tag.start() for tag in tags[1:]] + [len(line)]
        for tag, end in zip(tags, ends, strict=True):
            whole = self._begun.pop(tag.groups(), "") + line[tag.end() : end]
            if end == len(line):  # the newline is this process's: all others continue
                yield whole
            elif len(whole) <= LONGEST_LINE and len(self._begun) <= _MOST_PARTS:
                self._begun[tag.groups()] = whole


class MultiplexedReader:
    """A reader of several ranks' evidence in one log, that of mpirun's launcher; otherwise like an EvidenceReader."""

    def __init__(self, run: str, ranks: int) -> None:
        self._run, self._expected = run, ranks
        self._streams = Streams()
        self._readers: dict[int, EvidenceReader] = {}

    @property
    def ended(self) -> bool:
        """Whether every rank's last stage was read."""
        return sum(1 for reader in self._readers.values() if reader.ended) >= self._expected

    def feed(self, line: bytes | str) -> bool:
        """Read one line of the stream; return True if it contained evidence."""
        any_taken = False
        text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
        for text_line in self._streams.lines(text):
            said = _RANK.search(text_line[:400]) if text_line.lstrip().startswith(MARK) else None
            if said is None or int(said[1]) >= self._expected:
                continue
            reader = self._readers.setdefault(int(said[1]), EvidenceReader(self._run))
            any_taken = reader.feed(text_line) or any_taken
        return any_taken

    @property
    def end(self) -> EndStage | None:
        """The last stage of a rank that ended early, else of any."""
        ends = [reader.end for reader in self._readers.values() if reader.end is not None]
        return next((end for end in ends if end["stopped"]), ends[0] if ends else None)

    @property
    def ranks(self) -> frozenset[int]:
        """The ranks with output."""
        return frozenset(self._readers)

    def of(self, rank: int) -> EvidenceReader:
        """Return the reader of one rank."""
        return self._readers.setdefault(rank, EvidenceReader(self._run))

    def results(self) -> dict[int, RankEvidence]:
        """Return the evidence of every rank with output."""
        return {rank: reader.result() for rank, reader in sorted(self._readers.items())}


def _object(text: str) -> StageData | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
