"""The symptoms that a line may show, as patterns, in the order in which they are tried: the first match wins.

They are in the catalogue of faults (seatrial/faults/logs); `python -m seatrial.faults` writes the file that this module
reads.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple, Optional, Tuple

from ..lines.patterns import HEX_DIGITS, AnyOf, Patterns, needed
from ..own_symptoms import LINES

CAUSE = "cause"  # by itself the reason of a failure
WHY = "why"  # explains a choice (sockets, no GPUDirect); a fault only together with that choice
DEGRADED = "degraded"  # works, but below the hardware's performance
CONSEQUENCE = "consequence"  # another rank failed first
BENIGN = "benign"


class Symptom(NamedTuple):
    """One kind of line: the fault it mentions, and its role."""

    fault: str
    role: str
    pattern: bytes
    words: Tuple[bytes, ...]  # every match has one of them
    nccls: bool  # only NCCL prints it, or one of its plugins
    lasting: bool  # even in a completed job, it leaves nothing proven

    @property
    def shows(self) -> str:
        """Return the part that a note keeps."""
        return "%s %s" % (self.role, self.fault)


def _read() -> Tuple[Symptom, ...]:
    # also from a zip: before Python 3.10 its loader gives a module no __spec__; OSError without the file
    spec = globals().get("__spec__")
    loader = spec.loader if spec is not None else globals()["__loader__"]
    symptoms = []
    known = json.loads(loader.get_data(os.path.join(os.path.dirname(__file__), "symptoms.json")))
    for each in (*known, *LINES):
        pattern = each["pattern"].encode()
        role, nccls, lasting = each.get("role", CAUSE), "who" in each, "lasting" in each
        symptoms.append(Symptom(each["fault"], role, pattern, needed(pattern), nccls, lasting))
    return tuple(symptoms)


SYMPTOMS = _read()
# A match in a foreign text has one of these words.
FOREIGN_WORDS = tuple(dict.fromkeys(word for item in SYMPTOMS if not item.nccls for word in item.words))
_PATTERNS = Patterns((item, item.pattern) for item in SYMPTOMS)
_GATE = AnyOf(word.translate(HEX_DIGITS) for item in SYMPTOMS for word in item.words)  # most messages hold none


def may_show(shape: bytes) -> bool:
    """Return whether any message of this shape, its hexadecimal digits made 0, may show a symptom."""
    return _GATE.contained_in(shape)


def classify(text: bytes) -> Optional[Symptom]:
    """Return the symptom that a message shows, or None.

    Benign ones are returned, too, so that they do not count as unknown.
    """
    return next(_PATTERNS.matches(text[:1200]), None)
