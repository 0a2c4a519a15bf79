"""The profiles' errors, in a separate light module: many commands accept a profile but rarely read one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a profile; the text is one line."""

    text: str
    path: str = ""  # the key, such as floors[0].size
    file: str = ""  # the name of its file
    line: int = 0  # line of the file, from 1; 0: unknown


class ProfileError(ValueError):
    """The user's file is not a valid profile; the message is one line, about the first of its ``problems``."""

    def __init__(self, text: str, path: str = "", file: str = "") -> None:
        super().__init__(f"{file}: {text}" if file else text)
        self.problems: Sequence[Problem] = (Problem(text, path, file),)

    @classmethod
    def of(cls, problems: Sequence[Problem], file: str = "") -> Self:
        """Return one error for several problems of a file."""
        error = cls(problems[0].text, problems[0].path, file)
        error.problems = [replace(each, file=file) for each in problems]
        return error
