"""Events and nodes, which explain what became of a job; read now and then, and done without where they are refused."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from ..cluster.client.errors import ClusterError, Forbidden
from ..cluster.client.kube import Kube, path
from ..cluster.facts.events import Event, read_event
from ..cluster.unstructured import Unstructured, as_list, as_map, name_of, uid_of

_EVENTS_EVERY_S = 2.0
_NODES_EVERY_S = 20.0
_NODES_READ_S = 60.0
_REFUSALS = 3
# More objects than this, and one list of all events is cheaper than asking for each.
_FEW = 8


class Explanations:
    """The events of a namespace and the nodes of a pool as they were last read."""

    def __init__(self, kube: Kube, namespace: str, selector: str = "", *, sees_nodes: bool = True) -> None:
        self._kube, self._namespace, self._selector, self._sees_nodes = kube, namespace, selector, sees_nodes
        self._nodes_refused = 0
        self._asked_events = self._asked_nodes = -1e9
        self._events: dict[str, Event] = {}
        self.nodes: list[Any] = []

    @property
    def events(self) -> list[Event]:
        """All that were read."""
        return list(self._events.values())

    def read_events(self, names: Sequence[str], *, now: bool) -> None:
        """Add what events say of objects of these names, at most every two seconds unless it has to be `now`."""
        if not now and time.monotonic() - self._asked_events < _EVENTS_EVERY_S:
            return
        self._asked_events = time.monotonic()
        selectors = [f"involvedObject.name={name}" for name in names] if len(names) <= _FEW else [""]
        items: list[Any] = []
        # Events only explain: without them (no right, an outage) the objects still tell what is wrong.
        with contextlib.suppress(ClusterError):
            for selector in selectors:
                url_path = path("events", namespace=self._namespace)
                items += self._kube.list(url_path, fieldSelector=selector, deadline_s=10.0)[0]
            events = {uid_of(item) or name_of(item): read_event(item) for item in items if isinstance(item, dict)}
            self._events |= {uid: event for uid, event in events.items() if event is not None}

    def read_nodes(self, *, now: bool) -> bool:
        """Read the nodes anew, at most every 20 seconds unless it has to be `now`; False where they were not read."""
        if not now and time.monotonic() - self._asked_nodes < _NODES_EVERY_S:
            return False
        if not self._sees_nodes or self._nodes_refused >= _REFUSALS:
            return False
        self._asked_nodes = time.monotonic()
        try:
            pages = self._kube.pages(path("nodes"), labelSelector=self._selector, deadline_s=_NODES_READ_S)
            # All of them or none: what no node of a first page offers, one of the next may.
            self.nodes = [_small(node) for page, _ in pages for node in page if isinstance(node, dict)]
        except Forbidden:
            self._nodes_refused += 1  # by a restarted API server for a moment, else for good
            return False
        except ClusterError:
            return False
        self._nodes_refused = 0
        return True


def _small(node: Unstructured) -> Unstructured:
    """What the diagnosis reads of a node."""
    meta, spec, status = (as_map(node.get(key)) for key in ("metadata", "spec", "status"))
    return {
        "metadata": {"name": meta.get("name")},
        "spec": {"taints": as_list(spec.get("taints"))},
        "status": {key: status.get(key) for key in ("conditions", "capacity", "allocatable")},
    }
