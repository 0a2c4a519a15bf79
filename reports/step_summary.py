"""The step summary of a GitHub workflow: an external file that no judgement depends on."""

from __future__ import annotations

import os
from pathlib import Path


def append(text: str) -> str:
    """Append to the summary of this workflow's step, if it has one; return an error text, or ''.

    docs.github.com, workflow commands, adding a job summary.
    """
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return ""
    try:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        return f"the step summary could not be written: {error.strerror or error} (GITHUB_STEP_SUMMARY)"
    return ""
