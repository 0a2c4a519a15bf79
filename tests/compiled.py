"""The pods' program, compiled once: each of the tests' many pods would spend a third of its start on it.

Python uses compiled code only if it belongs to the exact text next to it (PEP 552, checked hash).
"""

from __future__ import annotations

import functools
import py_compile
import tempfile
import zipfile
from pathlib import Path

from jobs.trial import payload


@functools.cache
def of_the_pods() -> dict[str, bytes]:
    """Return the path of each file in the archive -> its __pycache__ content."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "source.py"), Path(folder, "made")

        def compiled(path: str, text: str) -> bytes:
            source.write_text(text, encoding="utf-8")
            mode = py_compile.PycInvalidationMode.CHECKED_HASH
            py_compile.compile(str(source), str(made), path, doraise=True, invalidation_mode=mode)
            return made.read_bytes()

        return {
            path: compiled(path, text)
            for path, text in payload.files().items()
            if path.endswith(".py") and path != payload.ENTRY
        }


def add_to(archive: Path) -> None:
    """Add the compiled pod files to an archive of them."""
    with zipfile.ZipFile(archive, "a") as packed:
        for path, made in of_the_pods().items():
            if path in packed.NameToInfo:
                packed.writestr(path + "c", made)
