"""How a node shows what scheduled runs found on it: a label and a condition, both off by default.

A selector of a workload asks for the label; node-problem-detector's users watch conditions, whose True is bad news.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from .client.kube import path
from .redact import safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .client.kube import Kube

LABEL = "seatrial/trial"
CONDITION = "SeatrialFailed"
_STATES = {True: "failed", False: "passed", None: None}
_STATUS = {True: ("True", "TrialsFailed"), False: ("False", "TrialPassed"), None: ("Unknown", "NotJudged")}


def label(kube: Kube, node: str, bad: bool | None) -> None:
    """Label a node passed or failed; None takes the label away. Raises ClusterError."""
    kube.patch(path("nodes", node), {"metadata": {"labels": {LABEL: _STATES[bad]}}})


def condition(kube: Kube, node: str, bad: bool | None, *, faults: Sequence[str] = (), turned: bool) -> None:
    """Set our condition of a node, and no other one; ``turned`` says that it was another one. Raises ClusterError."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    status, reason = _STATUS[bad]
    entry: dict[str, Any] = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "lastHeartbeatTime": now,
        "message": safe(", ".join(faults), 300),
    }
    entry |= {"lastTransitionTime": now} if turned else {}
    kube.patch(path("nodes", node) + "/status", {"status": {"conditions": [entry]}}, strategic=True)
