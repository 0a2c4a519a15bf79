"""The pods' program: one archive that Python executes (PEP 441), of the sources in jobs/pod and seatrial/logs/reader.

`__main__.py` is jobs/pod/probe.py; the rest is below `PACKAGE`, with the reader as `reader/`. Imports of READER are
changed to that name, and nothing else in the sources. The same sources make the same archive on any machine,
independent of its clock and its umask; compressors differ, so the digest is that of the sources.
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
"""A name that no installed module of an image has: the archive is also on the path of torchrun's workers."""
HOST_ONLY = ("ras_client.py", "sweep/rows.py", "sweep/section.py", "sweep/saved.py")
"""Files that run elsewhere, or belong to the runner's part of the sweep's planner, which writes and reads the record.
"""
READER = "seatrial.logs.reader"
"""The package that jobs/pod imports; the archive renames it, because an image may have its own `seatrial` installed."""
_SYMPTOMS = f"{PACKAGE}/reader/events/symptoms.json"
_OLDEST = (1980, 1, 1, 0, 0, 0)  # the earliest time of a zip entry
_READABLE = 0o100644 << 16


def files() -> Mapping[str, str]:
    """Return every file: path in the archive -> source. The pods' reader also has a user's own faults."""
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
    """Yield path and text of the sources in a folder, including the symptoms of logs as data."""
    for path in (*folder.rglob("*.py"), *folder.rglob("*.json")):
        yield path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8")


def archive(sources: Mapping[str, str]) -> bytes:
    """Pack the sources: sorted, with one time and one mode; the entry is uncompressed, so that Python needs no zlib."""
    return _packed(tuple(sorted(sources.items())))


@lru_cache(maxsize=2)  # a run builds its objects several times
def _packed(sources: tuple[tuple[str, str], ...]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        for name, text in sources:
            entry = zipfile.ZipInfo(name, _OLDEST)
            entry.create_system, entry.external_attr = 3, _READABLE  # Unix, on any machine
            how = zipfile.ZIP_STORED if name == ENTRY else zipfile.ZIP_DEFLATED
            made.writestr(entry, text.encode(), how, 9)
    return packed.getvalue()


def digest(sources: Mapping[str, str]) -> str:
    """Return the digest of the pods' program, which they also report (evidence, stage `start`)."""
    return digest_of((name, text.encode()) for name, text in sources.items())
