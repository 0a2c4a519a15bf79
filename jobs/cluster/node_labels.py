"""Marks of results on nodes: a label, a condition, a taint that is removed; all off by default.

A selector of a workload requests the label; node-problem-detector's users watch conditions, where True is a problem.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from .client.errors import Conflict
from .client.kube import Kube, path
from .facts.conditions import OURS
from .redact import safe
from .unstructured import Unstructured, as_list, as_map

LABEL = "seatrial/trial"
CONDITION = OURS
_ATTEMPTS = 5
_STATES = {True: "failed", False: "passed", None: None}
_STATUS = {True: ("True", "TrialsFailed"), False: ("False", "TrialPassed"), None: ("Unknown", "NotJudged")}


def label(kube: Kube, node: str, bad: bool | None) -> None:
    """Label a node passed or failed; None takes the label away. Raises ClusterError."""
    kube.patch(path("nodes", node), {"metadata": {"labels": {LABEL: _STATES[bad]}}})


def condition(kube: Kube, node: str, bad: bool | None, *, faults: Sequence[str] = (), turned: bool) -> None:
    """Set only our condition of a node; ``turned`` reports that it had another status. Raises ClusterError."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    status, reason = _STATUS[bad]
    entry: Unstructured = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "lastHeartbeatTime": now,
        "message": safe(", ".join(faults), 300),
    }
    entry |= {"lastTransitionTime": now} if turned else {}
    kube.patch(path("nodes", node) + "/status", {"status": {"conditions": [entry]}}, strategic=True)


def read(kube: Kube, node: str) -> Unstructured:
    """Return a node from the API server, {} if it does not exist. Raises ClusterError.

    It is listed: that permission every run has, and to get one node none.
    """
    nodes, _ = kube.list(path("nodes"), fieldSelector=f"metadata.name={node}")
    return next((each for each in nodes if as_map(each.get("metadata")).get("name") == node), {})


def untaint(kube: Kube, node: str, key: str) -> None:
    """Remove a taint from a node, with any effect; a missing one is fine. Raises ClusterError."""
    for attempt in range(_ATTEMPTS):
        raw = read(kube, node)
        taints = as_list(as_map(raw.get("spec")).get("taints"))
        remaining = [taint for taint in taints if taint.get("key") != key]
        if len(remaining) == len(taints):
            return
        version = as_map(raw.get("metadata")).get("resourceVersion")
        try:  # the list is replaced whole: never over a concurrent change
            kube.patch(
                path("nodes", node), {"metadata": {"resourceVersion": version}, "spec": {"taints": remaining or None}}
            )
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
