"""Add a running job's answers: an answer of NCCL RAS, complete or cut, and a dump by its bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..reader.lines.clean import printable
from . import flight_recorder, ras, ras_text
from .pickles import PickleRefusedError

if TYPE_CHECKING:
    from .model import Evidence

MAX_NOTES = 50


def take_sample(evidence: Evidence, source: str, text: str) -> bool:
    """Add an answer, and return whether it was valid; a truncated or foreign one is noted in ``not_seen``."""
    name = f"{source}, answer {len(evidence.samples) + 1}"
    try:
        form = ras.form_of(text)
        if form == "json":
            ras.read_json(evidence, name, text)
        elif form == "text" and "\nWarnings\n" in text:  # its last heading, which every version prints
            ras_text.read_text(evidence, name, text)
        else:
            raise ValueError("no answer of NCCL RAS")  # noqa: TRY301 -- one word for all of them
    except ValueError:
        said = f"{source}: truncated, or not an answer of NCCL RAS: "
        if not any(note.startswith(said) for note in evidence.not_seen):  # three answers have three timestamps
            _note(evidence, f"{said}{printable(text.strip(), 80)!r}")
        return False
    evidence.files.append(name)
    return True


def take_dump(evidence: Evidence, source: str, data: bytes) -> None:
    """Add a Flight Recorder dump; the source's name ends in the rank."""
    try:
        if not flight_recorder.is_dump(data):
            raise PickleRefusedError("no Flight Recorder dump")  # noqa: TRY301
        members: flight_recorder.Members = {}
        flight_recorder.add(evidence, *flight_recorder.parse(source, data, members), members)
        evidence.files.append(source)
    except PickleRefusedError as error:
        _note(evidence, f"{source}: {error}")


def _note(evidence: Evidence, text: str) -> None:
    if len(evidence.not_seen) < MAX_NOTES:
        evidence.not_seen.append(text)
