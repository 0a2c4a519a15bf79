"""Marks of results on nodes: labels, a condition, a taint that is removed; all off by default.

A selector of a workload requests the label; node-problem-detector's users watch conditions, whose True is bad news.
A failed node also has its action where a finding tells one: a label for controllers, and in the condition's message.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from ..faults.actions import heaviest, in_words
from .client.errors import Conflict
from .client.kube import Kube, path
from .facts.conditions import OURS
from .redact import safe
from .unstructured import Unstructured, as_list, as_map

LABEL = "seatrial/trial"
ACTION = "seatrial/action"
CONDITION = OURS
_ATTEMPTS = 5
_STATES = {True: "failed", False: "passed", None: None}
_STATUS = {True: ("True", "TrialsFailed"), False: ("False", "TrialPassed"), None: ("Unknown", "NotJudged")}


def label(kube: Kube, node: str, bad: bool | None, *, action: str = "") -> None:
    """Label a node passed or failed, a failed one with its action; None takes both away. Raises ClusterError."""
    asked = heaviest((action,)) if bad else None
    kube.patch(path("nodes", node), {"metadata": {"labels": {LABEL: _STATES[bad], ACTION: asked and str(asked)}}})


def condition(
    kube: Kube, node: str, bad: bool | None, *, faults: Sequence[str] = (), action: str = "", turned: bool
) -> None:
    """Set only our condition of a node; ``turned`` reports that it had another status. Raises ClusterError.

    The message has what to do, in words and by its word in the form of NVSentinel's conditions, then the faults.
    """
    said = [f"{in_words(action)} (Recommended Action={action})"] if bad and in_words(action) else []
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    status, reason = _STATUS[bad]
    entry: Unstructured = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "lastHeartbeatTime": now,
        "message": safe("; ".join(filter(None, [*said, ", ".join(faults)])), 400),
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
        try:  # the list is replaced whole: never over what somebody else has just written
            kube.patch(
                path("nodes", node), {"metadata": {"resourceVersion": version}, "spec": {"taints": remaining or None}}
            )
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
