"""The bills of materials of records, as versions by place, so that two sides can be held together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..schema import Record

_VERSION = re.compile(r"\d|/|:")
DEEPEST = 20


def installed(side: Sequence[Record]) -> dict[str, set[str]]:
    """Return every version that a side's records name, by where it stands in the bill of materials."""
    versions: dict[str, set[str]] = {}
    for record in side:
        for key, value in _flat(record["bom"], ""):
            versions.setdefault(key, set()).add(value)
        for job in record["collectives"].values():
            if job and job["nccl_versions"]:
                versions.setdefault("nccl", set()).update(job["nccl_versions"])
    return versions


def _flat(value: object, path: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield what is installed as (where, what); versions that are counted or described stand as keys of a mapping."""
    if depth > DEEPEST:
        yield path, "(nested too deeply)"
    elif isinstance(value, dict):
        named = {str(key): item for key, item in value.items()}
        if any(_VERSION.search(key) for key in named) and not any(isinstance(v, dict | list) for v in named.values()):
            yield from ((path, _described(key, details)) for key, details in named.items())
            return
        for key, item in named.items():
            yield from _flat(item, f"{path}.{key}".lstrip("."), depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _flat(item, path, depth + 1)
    elif value is not None:
        yield path, str(value)


def _described(version: str, details: object) -> str:
    """A version, with what is told of it unless that is a count or part of it: an image with its digest."""
    return f"{version} ({details})" if isinstance(details, str) and details and details not in version else version
