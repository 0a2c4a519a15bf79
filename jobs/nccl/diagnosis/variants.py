"""What a line says beyond its fault: the entries of ../variants/*.yaml, by subject: the first that fits counts.

An entry has ``pattern`` (a regular expression, or several), which speaks for itself, or ``words`` (any of them), which
are looked for once nothing else of the job explains the line. ``cause`` may quote the expression's groups by number,
and as ``{said}`` the end of the line's chain of errors. ``why`` names the fault of the catalogue that explains the
line and lends what the entry does not say; without one it has its own ``confirm``, ``remedy`` and ``failure`` class.
``example`` is a line that it fits, ``near_miss`` one that it does not.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parents[1] / "variants"
_PLACE = re.compile(r"\{(\d)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One of the causes that a fault hides, told by its line."""

    example: str
    pattern: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    cause: str | None = None
    why: str | None = None
    confirm: str = ""
    remedy: str = ""
    failure: str = ""
    near_miss: str = ""

    def of_form(self, text: str) -> Detail | None:
        """Return what a text says, where one of the expressions fits it."""
        for pattern in self.pattern:
            if match := re.search(pattern, text):
                groups = ("it" if part is None else part for part in match.groups())
                cause = self.cause and self.cause.format(*groups, said=last_words(text))
                return Detail(self.why, cause, self._filled(*match.groups()))
        return None

    def _filled(self, *groups: str | None) -> Variant:
        """Put what the line names into the commands, as {0} and {1}; it is a log's, and goes into a user's shell."""

        def name(match: re.Match[str]) -> str:
            return shlex.quote(groups[int(match[1])] or "NAME")

        return replace(self, confirm=_PLACE.sub(name, self.confirm), remedy=_PLACE.sub(name, self.remedy))

    def of_words(self, text: str) -> Detail | None:
        """Return what a text says, where it holds one of the words."""
        return Detail(self.why, self.cause, self) if any(words in text for words in self.words) else None


class Detail(NamedTuple):
    """What a line says: the fault that explains it, the cause in words, and the entry with its advice."""

    why: str | None = None
    cause: str | None = None
    variant: Variant | None = None


def formed(fault: str, text: str) -> Detail | None:
    """Return what a line of a fault says by the first expression that fits it; None where none does."""
    return next((said for each in variants_of(fault) if (said := each.of_form(text)) is not None), None)


def worded(fault: str, text: str) -> Detail | None:
    """Return what a line of a fault says by the first of its words; None where it has none."""
    return next((said for each in variants_of(fault) if (said := each.of_words(text)) is not None), None)


@cache
def variants_of(fault: str) -> tuple[Variant, ...]:
    """Return the variants of a fault in their order: each is read when the fault is found."""
    text = _texts().get(fault)
    if text is None:
        return ()
    import yaml  # noqa: PLC0415 -- a log that finds nothing reads none

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast; a PyYAML without libyaml lacks it
    entries = yaml.load(text, Loader=loader)[fault]  # noqa: S506 -- both are safe
    for entry in entries:
        for kind in ("pattern", "words"):
            entry[kind] = (entry[kind],) if isinstance(entry.get(kind), str) else tuple(entry.get(kind, ()))
    return tuple(Variant(**entry) for entry in entries)


def known() -> tuple[str, ...]:
    """Return the faults that have variants."""
    return tuple(_texts())


@cache
def _texts() -> dict[str, str]:
    texts: dict[str, str] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for part in re.split(r"(?m)^(?=\S+:$)", path.read_text(encoding="utf-8"))[1:]:
            texts[part.partition(":")[0]] = part
    return texts


def last_words(text: str) -> str:
    """Return what stands at the end of a chain of errors, each behind a colon: what failed, and why."""
    parts = text.strip().rstrip(".\"'").removesuffix(": unknown").split(": ")
    words = parts[-1]
    for part in reversed(parts[:-1]):
        if len(words) + len(part) > 140 or part.endswith("error"):
            break
        words = f"{part}: {words}"
    return words[-200:]
