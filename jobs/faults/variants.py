"""What a line says beyond its fault: the variants of an entry of the catalogue, of which the first that fits counts.

A variant has ``pattern`` (a regular expression, or several), which speaks for itself, or ``words`` (any of them), which
are looked for once nothing else of the job explains the line. ``cause`` may quote the expression's groups by number,
and as ``{said}`` the end of the line's chain of errors. ``why`` names the fault of the catalogue that explains the
line and lends what the entry does not say; without one it has its own ``confirm``, ``remedy`` and ``failure`` class.
``example`` is a line that it fits, ``near_miss`` one that it does not.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Variant:
        """Return the variant of an entry. Raises TypeError for a key that no variant has."""
        lists = {kind: entry.get(kind, ()) for kind in ("pattern", "words")}
        return cls(
            **{**entry, **{kind: (each,) if isinstance(each, str) else tuple(each) for kind, each in lists.items()}}
        )

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


def last_words(text: str) -> str:
    """Return what stands at the end of a chain of errors, each behind a colon: what failed, and why."""
    parts = text.strip().rstrip(".\"'").removesuffix(": unknown").split(": ")
    words = parts[-1]
    for part in reversed(parts[:-1]):
        if len(words) + len(part) > 140 or part.endswith("error"):
            break
        words = f"{part}: {words}"
    return words[-200:]
