"""A finding that is red on both sides: whether it got worse, better, or only differs.

The observed and the expected text of a finding begin with the compared value, mostly a number: the farther from the
expected one, the worse. Whole numbers (GPUs, ports, ranks) are counts without noise; for other numbers a tenth is
noise. For values with a unit (GB/s, ms) half is noise: ``regression.py`` judges such numbers by statistics.
"""

from __future__ import annotations

import re

from ..schema import RecordedFinding

_TOKEN = re.compile(r"\S*\d\S*")
"""A word with a digit: a number, or a name that may differ in another run."""
_NUMBER = re.compile(r"(?P<number>\d+(?:\.\d+)?)[,;:)]*")
_WAITED = re.compile(r"(?<![\w.])\d+(?:\.\d+)?\s?(?:[mu]?s|min|seconds|minutes|hours)\b")
"""The duration of a wait, which differs in every run."""
NOISE, NOISE_OF_A_UNIT = 0.1, 0.5


def turned_red(was: RecordedFinding, now: RecordedFinding) -> str:
    """Return 'worse', 'better', or 'unclear' for a finding that both sides show; '' if it is the same."""
    old, new = (_WAITED.sub("", side["observed"]) for side in (was, now))
    pairs = list(zip(_numbers(old), _numbers(new), strict=False))
    if _TOKEN.sub("#", old) != _TOKEN.sub("#", new):
        return "unclear"
    changed = [index for index, (a, b) in enumerate(pairs) if _differ(a, b, was["unit"])]
    if not changed:
        return ""
    expected = _numbers(was["expected"])
    first = pairs[0]
    if changed[0] or None in first or not expected or expected[0] is None or was["expected"] != now["expected"]:
        return "unclear"
    aim = float(expected[0])
    before, after = (abs(float(value or 0) - aim) for value in first)
    return "worse" if after > before else "better"


def _numbers(text: str) -> list[str | None]:
    """Return each token with a digit as a number; None for a name."""
    numbers = (_NUMBER.fullmatch(token) for token in _TOKEN.findall(text))
    return [match["number"] if match else None for match in numbers]


def _differ(before: str | None, after: str | None, unit: str) -> bool:
    if before is None or after is None:
        return False
    if before.isdigit() and after.isdigit() and not unit:
        return int(before) != int(after)
    old, new = float(before), float(after)
    return abs(new - old) > (NOISE_OF_A_UNIT if unit else NOISE) * max(old, new)
