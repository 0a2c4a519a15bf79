"""The pods' program, compiled once: each of the tests' many pods would spend a third of its start on it.

Python takes what is compiled only where it is of the very text that lies beside it (PEP 552, checked hash).
"""

from __future__ import annotations

import functools
import importlib.util
import py_compile
import tempfile
from pathlib import Path, PurePath

from jobs import pod


@functools.cache
def of_the_pods() -> dict[str, bytes]:
    """Text of each Python file that a pod gets -> the file that Python would leave of it in __pycache__."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "source.py"), Path(folder, "made")

        def compiled(path: str, text: str) -> bytes:
            source.write_text(text, encoding="utf-8")
            mode = py_compile.PycInvalidationMode.CHECKED_HASH
            py_compile.compile(str(source), str(made), path, doraise=True, invalidation_mode=mode)
            return made.read_bytes()

        return {text: compiled(path, text) for path, text in pod.files().items() if path.endswith(".py")}


def lay_beside(source: Path, text: str) -> None:
    """Lay what is compiled of a file beside it, if it is one of the pods'."""
    if source.suffix == ".py" and (made := of_the_pods().get(text)) is not None:
        place = Path(importlib.util.cache_from_source(PurePath(source)))
        if not place.exists():
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(made)
