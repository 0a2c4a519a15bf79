"""The files that a trial pod needs: the probe, its stages, the bench and the reader of NCCL's logs, as text.

What lies in this folder runs inside somebody else's container image: standard library only, Python 3.8 and newer, no
import from the rest of the suite. Nothing here is imported by the suite itself but `files`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

HOST_ONLY = ("rows.py", "section.py", "saved.py")
"""Of the sweep's planner: what the runner writes into the record and reads from it."""
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_DOCSTRING = re.compile(r'^([ \t]*)r?"""((?:[^"\\]|\\.|"(?!""))*)"""$', re.MULTILINE | re.DOTALL)
# Blanks in front of a line that stands in brackets: behind one that opens or a comma, before one that closes, and
# between the pieces of a string.
_CONTINUED = re.compile(r"""(?<=[(\[{,]\n)[ ]+|^[ ]+(?=[)\]}])|(?<=["']\n)[ ]+(?=(?:rb|[rbf])?["'])""", re.MULTILINE)


@cache
def files() -> Mapping[str, str]:
    """Return every shipped file: path below /seatrial -> text. `trial.json` is the manifests' to add.

    Comments and docstrings are empty there, and lines in brackets are not indented, since a ConfigMap holds 1 MiB: all
    lines keep their numbers.
    """
    here = Path(__file__).resolve().parent
    sources = [(here, here / "probe.py"), (here, here / "measure.py")]
    sources += [
        (here, path) for folder in ("stages", "bench", "sweep") for path in sorted((here / folder).glob("*.py"))
    ]
    sources = [(root, path) for root, path in sources if path not in {here / "sweep" / name for name in HOST_ONLY}]
    analyzer = here / "nccl_reader"
    sources += [(analyzer.parent, path) for path in sorted((*analyzer.rglob("*.py"), *analyzer.rglob("*.json")))]
    texts = {path.relative_to(root).as_posix(): _bare(path.read_text(encoding="utf-8")) for root, path in sources}
    return MappingProxyType(texts)


def _bare(source: str) -> str:
    told = _DOCSTRING.sub(lambda match: match[1] + '""' + "\n" * match[2].count("\n"), source)
    return _CONTINUED.sub("", _COMMENT.sub("", told))
