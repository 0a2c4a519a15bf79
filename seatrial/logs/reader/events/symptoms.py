"""The symptoms that a line may show, as patterns, in the order in which they are tried: the first match wins.

They are in the catalogue of faults (seatrial/faults/logs); `python -m seatrial.faults` writes the file read here.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple, Optional, Tuple

from ..lines.patterns import HEX_DIGITS, AnyOf, Patterns, needed
from ..own_symptoms import LINES

CAUSE = "cause"  # by itself the reason of a failure
WHY = "why"  # explains a choice (sockets, no GPUDirect); a fault only together with that choice
DEGRADED = "degraded"  # works, but worse than the hardware could
CONSEQUENCE = "consequence"  # another rank failed first
BENIGN = "benign"


class Symptom(NamedTuple):
    """One kind of line: the fault it mentions, and what role it plays."""

    fault: str
    role: str
    pattern: bytes
    words: Tuple[bytes, ...]  # every match holds one of them
    nccls: bool  # only NCCL says so, or a plugin of its
    lasting: bool  # of a job that completed all the same, it leaves nothing proven

    @property
    def shows(self) -> str:
        """The part that a note keeps."""
        return "%s %s" % (self.role, self.fault)


def _read() -> Tuple[Symptom, ...]:
    # out of a zip, too: its loader gives a module no __spec__ before Python 3.10; OSError without the file
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
# Of which a match of what others say holds one.
FOREIGN_WORDS = tuple(dict.fromkeys(word for item in SYMPTOMS if not item.nccls for word in item.words))
_PATTERNS = Patterns((item, item.pattern) for item in SYMPTOMS)
_GATE = AnyOf(word.translate(HEX_DIGITS) for item in SYMPTOMS for word in item.words)  # most messages hold none


def may_show(shape: bytes) -> bool:
    """Say whether any message of this shape, its hexadecimal digits made 0, may show a symptom."""
    return _GATE.contained_in(shape)


def classify(text: bytes) -> Optional[Symptom]:
    """Return the symptom that a message shows, or None.

    Benign ones are returned too, so that they are not taken for unknown.
    """
    return next(_PATTERNS.matches(text[:1200]), None)
