"""What can still be known of a job that is not there: its events outlive it for a while."""

from __future__ import annotations

from ..cluster.client.errors import ClusterError
from ..cluster.client.kube import Kube, path
from ..cluster.facts.events import read_events
from ..cluster.redact import safe
from ..trial.launchers import KINDS

_KINDS = frozenset(kind.kind for kind in KINDS.values())
EVENT_TTL = "events are kept for about an hour (kube-apiserver --event-ttl)"


def absent(kube: Kube, namespace: str, name: str) -> str:
    """Say whether a job that is not there once was: one line. Reads events only; where they are denied it says so."""
    missing = f"there is no job {safe(name, 100)} in namespace {namespace}"
    try:
        items, _ = kube.list(path("events", namespace=namespace))
    except ClusterError as error:
        return f"{missing}; whether there was one its events would tell, which cannot be read: {safe(error, 200)}"
    events = [event for event in read_events(items) if event.name == name and event.kind in _KINDS]
    if not events:
        return (
            f"{missing}, and no event of one: there never was, or it ended longer ago than its events last; {EVENT_TTL}"
        )
    last = events[-1]
    return (
        f"{missing} any more: it was judged, canceled, or outlived by its time (deadlines.ttl_s); its last event "
        f"is of {last.when or 'an unknown time'}: {last}"
    )
