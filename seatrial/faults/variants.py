"""The variants of a catalogue entry: details of a fault in a text. The first match counts.

A variant has ``pattern`` (a regular expression, or several), which is sufficient alone, or ``words`` (any of them),
which are searched only if nothing else in the job explains the line. ``cause`` may quote the expression's groups by
number, and as ``{said}`` the end of the line's chain of errors. ``why`` names the fault of the catalogue that explains
the line and supplies what the entry lacks. ``like`` names the entry (or several) with more specific variants of the
same line; it may have its own ``failure`` class. Without either it has its own ``confirm``, ``remedy`` and ``failure``
class. ``example`` is a line that it matches, ``near_miss`` one that it does not match.

A message of a cluster component shows its fault by itself: ``who`` names the component: api, kueue, kubelet, volumes,
admission, eviction, pressure, oom, mpirun, registry, runtime, scheduler, or exit (the exit code of a container). All
variants of one component are tried in the order of the catalogue, except those ``before`` another entry. ``subject``
names the subject by the expression's named groups; a text in brackets is left out if its group is empty. ``final``:
another attempt would end the same.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

_PLACE = re.compile(r"\{(\d)\}")
_NAMED = re.compile(r"\{(\w+)\}")
_OPTIONAL = re.compile(r"\[([^\]]*)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One of the causes of a fault, shown by its line."""

    example: str
    pattern: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    cause: str | None = None
    why: str | None = None
    confirm: str = ""
    remedy: str = ""
    failure: str = ""
    near_miss: str = ""
    like: tuple[str, ...] = ()
    who: str = ""
    before: str = ""
    subject: str = ""
    final: bool = False

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Variant:
        """Return the variant of an entry. Raises TypeError for an unknown key."""
        lists = {kind: entry.get(kind, ()) for kind in ("pattern", "words", "like")}
        return cls(
            **{**entry, **{kind: (each,) if isinstance(each, str) else tuple(each) for kind, each in lists.items()}}
        )

    def of_form(self, text: str) -> Detail | None:
        """Return the details of a text that one of the expressions matches."""
        for pattern in self.pattern:
            if match := re.search(pattern, text):
                groups = ("it" if part is None else part for part in match.groups())
                cause = self.cause and self.cause.format(*groups, said=last_words(text))
                return Detail(self.why, cause, self._filled(match))
        return None

    def _filled(self, found: re.Match[str]) -> Variant:
        """Insert a line's names into the commands, as {0} and {1}; they come from a log and go into a user's shell."""
        groups, named = found.groups(), found.groupdict()

        def name(match: re.Match[str]) -> str:
            return shlex.quote(groups[int(match[1])] or "NAME")

        def part(match: re.Match[str]) -> str:
            return match[1].format_map(named) if all(named.get(each) for each in _NAMED.findall(match[1])) else ""

        confirm, remedy = (_PLACE.sub(name, text) for text in (self.confirm, self.remedy))
        subject = _OPTIONAL.sub(part, self.subject)
        return replace(self, confirm=confirm, remedy=remedy, subject=subject)

    def of_words(self, text: str) -> Detail | None:
        """Return the details of a text with one of the words."""
        return Detail(self.why, self.cause, self) if any(words in text for words in self.words) else None


class Detail(NamedTuple):
    """The details of a line: the fault that explains it, the cause in words, and the entry with its advice."""

    why: str | None = None
    cause: str | None = None
    variant: Variant | None = None


def last_words(text: str) -> str:
    """Return the end of a chain of errors separated by colons: the failure and its reason."""
    parts = text.strip().rstrip(".\"'").removesuffix(": unknown").split(": ")
    words = parts[-1]
    for part in reversed(parts[:-1]):
        if len(words) + len(part) > 140 or part.endswith("error"):
            break
        words = f"{part}: {words}"
    return words[-200:]


_BY_SUBJECT = re.compile(r"\s?\[\[(.*?)(?:\|\|(.*?))?\]\]", re.DOTALL)


def told_of(text: str, *, trial: bool | None) -> str:
    """Return a text of the catalogue in its form for a trial or for a user's job; None: a text without marks.

    It contains [[of a trial||of any other job]] for words that differ; without a second part nothing is printed.
    """
    if trial is None:
        return text

    def choose(match: re.Match[str]) -> str:
        chosen = match[1] if trial else match[2] or ""
        return match[0][: match[0].index("[")] + chosen if chosen else ""

    return _BY_SUBJECT.sub(choose, text)


_KNOWN = re.compile(r"\b(?:JOB|POD|NODE|IMAGE|WORKER|COMMAND)\b(?![:=.])")
"""Placeholders of commands that a job's answer or a run's record can fill; not the headers of kubectl's columns."""


def named(text: str, names: Mapping[str, str]) -> str:
    """Replace placeholders in capitals by names, quoted for a shell; one without a known name is unchanged."""
    return _KNOWN.sub(lambda word: shlex.quote(names[word[0]]) if names.get(word[0]) else word[0], text)


def fill(text: str, subject: str = "", namespace: str = "", *, trial: bool | None = True) -> str:
    """Insert subject, node, permission and namespace into a command; unknown ones remain placeholders in capitals.

    The values come from the cluster and are quoted, since the command goes into a user's shell. A finding's subject
    starts with the node's name if it is about a node, and continues with 'rail mlx5_3' if it is about one of its rails.
    A pair reads 'NODE - NODE', a permission 'create jobs.batch in ns'.
    """
    parts_of_subject = subject.split()
    rail = subject.partition(" rail ")[2].split(", ")[0]
    values = {
        "{subject}": shlex.quote(subject) if subject else "NAME",
        "{node}": shlex.quote(parts_of_subject[0]) if parts_of_subject else "NODE",
        "{pair}": shlex.quote(",".join(subject.split(" - "))) if subject else "NODE,NODE",
        "{rail}": shlex.quote(rail) if rail else "DEVICE",
        "{right}": right_arguments(subject) or "VERB RESOURCE",
        "{namespace}": shlex.quote(namespace) if namespace else "NAMESPACE",
    }
    text = told_of(text, trial=trial)
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text


def right_arguments(subject: str) -> str:
    """Convert 'get pods/log in ns' to arguments of kubectl auth can-i: 'get pods --subresource=log -n ns'."""
    right, _, namespace = subject.partition(" in ")
    verb, _, resource = right.partition(" ")
    if not resource:
        return ""
    name, _, sub = resource.partition("/")
    parts = [verb, name, f"--subresource={sub}" if sub else "", f"-n {namespace}" if namespace else ""]
    return " ".join(shlex.quote(w) for p in parts for w in p.split())
