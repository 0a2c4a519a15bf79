"""The argument of ``--on``: node names, or the folder of a run; other values are rejected before the run starts."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.cluster.client.errors import ClusterError
from jobs.cluster.redact import safe
from jobs.cluster.unstructured import name_of
from jobs.listing import first_of, nearest
from jobs.trial.names import SUBDOMAIN
from reports.record import coverage_of, read_json
from reports.schema import RecordError

if TYPE_CHECKING:
    from jobs.cluster.client.kube import Kube

ANSWER_S = 15.0
"""Timeout in seconds for reading one node; the API checks judge a slower server."""
SHOWN = 3
NEAR = 5


def names_in(text: str) -> tuple[str, ...]:
    """Split a comma-separated list into unique names."""
    return tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))


def tried(text: str, cwd: Path) -> tuple[str, ...]:
    """Return the nodes of the run in the folder given by --on; () if it names nodes. Raises pytest.UsageError."""
    folder = cwd / text
    if not text or "," in text:
        return ()
    if (place := _record(folder)) is None:
        if "/" in text or folder.exists():
            what = "it holds no report.json" if folder.is_dir() else "there is no such folder"
            raise pytest.UsageError(f"--on {safe(text, 200)}: {what}{_nearest_run(text, cwd)}")
        return ()
    try:
        nodes = coverage_of(read_json(place)).tried
    except RecordError as error:
        raise pytest.UsageError(f"--on {text}: {error}") from error
    if not nodes:
        raise pytest.UsageError(f"--on {text}: that run tried no nodes")
    return nodes


def refuse_unknown(names: Sequence[str], kube: Kube | None, cwd: Path) -> None:
    """Raise pytest.UsageError, with the nearest valid name, for unknown names in --on.

    If nodes cannot be listed, or there are none, the checks judge that. A single unknown name is probably meant as a
    folder, since a trial needs several nodes. ``kube``: None if no cluster may be accessed.
    """
    nodes = _nodes(names, kube) if kube is not None else set()
    missing = [name for name in names if name not in nodes]
    if len(names) == 1 and missing:
        near = _nearest_run(names[0], cwd) or nearest(names[0], nodes)
        text = f"--on {safe(names[0], 200)}: neither the folder of a run nor two nodes of the cluster{near}"
        raise pytest.UsageError(text)
    if nodes and missing:
        shown = first_of((safe(name, 100) for name in missing), SHOWN)
        what = "no such node is" if len(missing) == 1 else "no such nodes are"
        raise pytest.UsageError(f"--on {shown}: {what} in the cluster{nearest(missing[0], nodes)}")


def _nodes(names: Sequence[str], kube: Kube) -> set[str]:
    """Return the names that are nodes and, if one is not, all nodes; nothing if the server does not list them."""
    from jobs.cluster.client.kube import path  # noqa: PLC0415 -- --help does not load the client

    def listed(**params: str) -> Iterator[str]:
        return map(name_of, kube.list(path("nodes"), deadline_s=ANSWER_S, **params)[0])

    try:
        # Nodes are read one by one: a fleet has thousands of them, and the checks list them all soon afterwards.
        if all(SUBDOMAIN.fullmatch(name) and name in listed(fieldSelector=f"metadata.name={name}") for name in names):
            return set(names)
        return set(listed())
    except ClusterError:
        return set()


def _record(place: Path) -> Path | None:
    """Return a file unchanged, the record of a run in a folder, or the first of several in its subfolders."""
    if place.is_file():
        return place
    return next((p for p in (place / "report.json", *sorted(place.glob("*/report.json"))) if p.exists()), None)


def _nearest_run(text: str, cwd: Path) -> str:
    """Return '; did you mean FOLDER?' for the run folder with the nearest name; '' without one."""
    above, slash, name = text.rstrip("/").rpartition("/")
    place = cwd / (above + slash)
    with contextlib.suppress(OSError):
        names = [each.name for each in place.iterdir() if each.is_dir()]
        runs = [each for each in difflib.get_close_matches(name, names, NEAR) if _record(place / each)]
        return f"; did you mean {safe(above + slash + runs[0], 200)}?" if runs else ""
    return ""
