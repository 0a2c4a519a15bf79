"""The digest over all sources that a pod runs, which the record keeps and a reader can recompute.

`unzip -d src probe.pyz && cd src && find * -type f | LC_ALL=C sort | xargs sha256sum | sha256sum` prints it, too.
"""

from __future__ import annotations

import hashlib
import zipfile
from typing import Iterable, Optional, Tuple


def digest_of(sources: Iterable[Tuple[str, bytes]]) -> str:
    """Return the digest of files by path: of sha256sum's output for them, in the order of their paths."""
    lines = ["%s  %s\n" % (hashlib.sha256(text).hexdigest(), path) for path, text in sorted(sources)]
    return "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()


def of_archive(path: str) -> Optional[str]:
    """Return the digest of an archive's content; None if it is unreadable."""
    try:
        with zipfile.ZipFile(path) as packed:
            return digest_of((name, packed.read(name)) for name in packed.namelist())
    except (OSError, zipfile.BadZipFile, RuntimeError):
        return None
