"""The kinds of objects that launch a trial, one module each; the evidence is the same for all."""

from __future__ import annotations

from .foreign import JobSet, RayJob, StatefulSet, unread
from .indexed import IndexedJob
from .kind import Kind
from .mpijob import MpiJob
from .pytorchjob import PyTorchJob
from .trainjob import TrainJob

__all__ = ["KINDS", "READ", "Kind", "TrainJob", "kind_of", "unread"]

KINDS: dict[str, Kind] = {kind.name: kind for kind in (IndexedJob(), MpiJob(), PyTorchJob(), TrainJob())}

READ: tuple[Kind, ...] = (*KINDS.values(), JobSet(), RayJob(), StatefulSet())
"""All kinds of jobs that are explained; a TrainJob precedes the JobSet of its name."""


def kind_of(name: str) -> Kind:
    """Return the kind of a profile's launcher; the spec has rejected unknown ones."""
    return KINDS[name]
