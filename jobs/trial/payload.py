"""The pods' program: one archive that Python executes (PEP 441), of the sources in jobs/pod and seatrial/logs/reader.

Its layout is the mount's: `__main__.py` is jobs/pod/probe.py, below `PACKAGE` lies the rest, the reader as `reader/`;
imports of READER name it there, and nothing else of the sources changes. The same sources make the same archive
whatever the machine, its clock and its umask; compressors differ, so the digest is that of the sources.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType

import seatrial.logs.reader
from seatrial.logs.reader.own_symptoms import LINES

from ..pod.stages.payload import digest_of

ARCHIVE = "probe.pyz"
ENTRY = "__main__.py"
PACKAGE = "seatrial_pod"
"""No module that an image has installed is called so: the archive is on the path of torchrun's workers, too."""
HOST_ONLY = ("ras_client.py", "sweep/rows.py", "sweep/section.py", "sweep/saved.py")
"""Files that run elsewhere, or are the runner's part of the sweep's planner: it writes the record and reads from it."""
READER = "seatrial.logs.reader"
"""What jobs/pod imports; an image may have a `seatrial` of its own installed, so the archive has none."""
_SYMPTOMS = f"{PACKAGE}/reader/events/symptoms.json"
_OLDEST = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold
_READABLE = 0o100644 << 16


def files() -> Mapping[str, str]:
    """Return every file: path in the archive -> source. The pods' reader knows a user's own faults, too."""
    shipped = _shipped()
    if not LINES:
        return shipped
    lines = [json.dumps(line) for line in (*json.loads(shipped[_SYMPTOMS]), *LINES)]
    return MappingProxyType({**shipped, _SYMPTOMS: "[\n" + ",\n".join(lines) + "\n]\n"})


@cache
def _shipped() -> Mapping[str, str]:
    own, reader = Path(__file__).resolve().parents[1] / "pod", Path(seatrial.logs.reader.__file__).parent
    texts = {f"reader/{name}": text for name, text in _below(reader)}
    texts |= {name: text.replace(f"from {READER}", f"from {PACKAGE}.reader") for name, text in _below(own)}
    entry = texts.pop("probe.py")
    return MappingProxyType(
        {ENTRY: entry, **{f"{PACKAGE}/{name}": texts[name] for name in sorted(texts) if name not in HOST_ONLY}}
    )


def _below(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield path and text of the sources in a folder; the symptoms of logs are data."""
    for path in (*folder.rglob("*.py"), *folder.rglob("*.json")):
        yield path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8")


def archive(sources: Mapping[str, str]) -> bytes:
    """Pack the sources: sorted, of one time and one mode; the entry is stored, so that Python reads it without zlib."""
    return _packed(tuple(sorted(sources.items())))


@lru_cache(maxsize=2)  # a run builds its objects several times
def _packed(sources: tuple[tuple[str, str], ...]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        for name, text in sources:
            entry = zipfile.ZipInfo(name, _OLDEST)
            entry.create_system, entry.external_attr = 3, _READABLE  # Unix, wherever it is made
            how = zipfile.ZIP_STORED if name == ENTRY else zipfile.ZIP_DEFLATED
            made.writestr(entry, text.encode(), how, 9)
    return packed.getvalue()


def digest(sources: Mapping[str, str]) -> str:
    """Return the digest of the pods' program, which they report, too (evidence, stage `start`)."""
    return digest_of((name, text.encode()) for name, text in sources.items())
