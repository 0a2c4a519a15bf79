"""Results of trials on nodes: labels, a condition, removal of a taint; all off by default.

A workload's nodeSelector uses the label. Users of node-problem-detector watch conditions, where True is a problem. A
failed node also shows its action if a finding names one: as a label for controllers, and in the condition's message.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence

from seatrial.faults.actions import heaviest, in_words

from .client.errors import Conflict
from .client.kube import Kube, path
from .facts.conditions import OURS
from .facts.inventory import driver, read_node
from .redact import safe
from .unstructured import Unstructured, as_list, as_map, by_type, labels_of, uid_of

LABEL = "seatrial/trial"
ACTION = "seatrial/action"
CONDITION = OURS
_ATTEMPTS = 5
_STATES = {True: "failed", False: "passed", None: None}
_STATUS = {True: ("True", "TrialsFailed"), False: ("False", "TrialPassed"), None: ("Unknown", "NotJudged")}
_KEY = re.compile(r"(?:([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_KUBERNETES = re.compile(r"(?:.*\.)?(?:kubernetes|k8s)\.io")
_FREE = ("node-restriction.kubernetes.io", "readiness.k8s.io")
"""Prefixes of Kubernetes for use by others: administrators, and the node-readiness-controller."""
Unchanged = Callable[[Unstructured], bool]


def _always(_: Unstructured) -> bool:
    return True


def label(kube: Kube, node: str, bad: bool | None, *, action: str = "") -> None:
    """Label a node passed or failed, a failed one with its action; None removes both labels. Raises ClusterError."""
    asked = heaviest((action,)) if bad else None
    kube.patch(path("nodes", node), {"metadata": {"labels": {LABEL: _STATES[bad], ACTION: asked and str(asked)}}})


def condition(
    kube: Kube,
    node: str,
    bad: bool | None,
    *,
    faults: Sequence[str] = (),
    action: str = "",
    unchanged: Unchanged = _always,
) -> bool | None:
    """Set our condition of a node for the machine as it is now; return its status. Raises ClusterError.

    The message of a failed node has the action in words and in the form of NVSentinel's conditions. The faults and the
    identity of the tested machine follow.

    ``unchanged``: whether this is the tested machine; a different one has no known result. A pass of a node without a
    boot id is not recorded: it would outlive a reboot.
    """
    said = bad

    def change(raw: Unstructured) -> tuple[str, Unstructured]:
        nonlocal said
        said = bad if unchanged(raw) and (bad or booted(raw)) else None
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        status, reason = _STATUS[said]
        asked = [f"{in_words(action)} (Recommended Action={action})"] if said and in_words(action) else []
        entry: Unstructured = {
            "type": CONDITION,
            "status": status,
            "reason": reason,
            "lastHeartbeatTime": now,
            "message": f"{safe('; '.join(filter(None, [*asked, ', '.join(faults)])), 400)} {_signature(raw)}".strip(),
        }
        entry |= {"lastTransitionTime": now} if _ours(raw).get("status") != status else {}
        return "/status", {"status": {"conditions": [entry]}}

    _write(kube, node, change)
    return said


def untaint(kube: Kube, node: str, key: str, unchanged: Unchanged = _always) -> bool:
    """Remove a taint, with any effect, and a label of that key; return False if the machine has changed.

    Raises ClusterError.
    """
    is_it = True

    def change(raw: Unstructured) -> tuple[str, Unstructured] | None:
        nonlocal is_it
        is_it = unchanged(raw)
        if not is_it or not carries(raw, key):
            return None
        taints = as_list(as_map(raw.get("spec")).get("taints"))
        remaining = [taint for taint in taints if taint.get("key") != key]
        body: Unstructured = {"spec": {"taints": remaining or None}} if len(remaining) < len(taints) else {}
        return "", body | ({"metadata": {"labels": {key: None}}} if key in labels_of(raw) else {})

    _write(kube, node, change)
    return is_it


def forbidden(key: str) -> str:
    """Explain why a taint or label of this key must not be removed; '' if it may be.

    Without Kubernetes' own labels and taints, pods are scheduled to the node wrongly, or not at all.
    """
    known = _KEY.fullmatch(key)
    if known is None:
        return f"{safe(key, 80)!r} is not a key of a taint or label, such as seatrial/new (without value and effect)"
    prefix = known.group(1) or ""
    if key in (LABEL, ACTION):
        return f"{key} is not removed: it records a result"
    if _KUBERNETES.fullmatch(prefix) and prefix not in _FREE:
        return f"{safe(key, 80)} is not removed: it belongs to Kubernetes"
    return ""


def carries(raw: Unstructured, key: str) -> bool:
    """Return whether a node has a taint or a label of this key."""
    return key in labels_of(raw) or any(t.get("key") == key for t in as_list(as_map(raw.get("spec")).get("taints")))


def machine(raw: Unstructured) -> str:
    """Identify a node's machine by boot and driver: after a reboot or an upgrade it differs from the tested one."""
    known = safe(driver(read_node(raw)), 100)
    return f"boot {booted(raw) or 'unknown'}" + (f", driver {known}" if known else "")


def booted(raw: Unstructured) -> str:
    """Return a node's boot id; '' where its kubelet reports none, so that no reboot is noticed."""
    return read_node(raw).boot


def is_of_this_machine(raw: Unstructured) -> bool:
    """Return whether our condition was written for the machine as it is now; False where that is unknown."""
    return bool(booted(raw)) and str(_ours(raw).get("message") or "").endswith(_signature(raw))


def is_same_machine(raw: Unstructured, other: Unstructured) -> bool:
    """Return whether both are one Node object, of one boot with one driver; False where that is unknown."""
    same = uid_of(raw) == uid_of(other) and machine(raw) == machine(other)
    return same and bool(uid_of(raw)) and bool(booted(raw))


def judged(raw: Unstructured) -> bool | None:
    """Return our condition's result for the machine as it is now: True failed, False passed, None nothing."""
    status = str(_ours(raw).get("status"))
    return {"True": True, "False": False}.get(status) if is_of_this_machine(raw) else None


def outlived(raw: Unstructured) -> bool:
    """Return whether our condition reports passed for a machine that has rebooted since, or may have."""
    written_for = str(_ours(raw).get("message"))
    return _ours(raw).get("status") == "False" and not (booted(raw) and f"(boot {booted(raw)}" in written_for)


def written(raw: Unstructured) -> float:
    """Return when our condition was last written, in seconds since 1970; 0 if never."""
    try:
        return datetime.datetime.fromisoformat(str(_ours(raw).get("lastHeartbeatTime"))).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def read(kube: Kube, node: str) -> Unstructured:
    """Return a node from the API server, {} if it does not exist. Raises ClusterError.

    Uses list, because every run has that permission and none has that to get one node.
    """
    nodes, _ = kube.list(path("nodes"), fieldSelector=f"metadata.name={node}")
    return next((each for each in nodes if as_map(each.get("metadata")).get("name") == node), {})


def _ours(raw: Unstructured) -> Unstructured:
    return by_type(as_map(raw.get("status"))).get(CONDITION) or {}


def _signature(raw: Unstructured) -> str:
    return f"({machine(raw)})"


def _write(kube: Kube, node: str, change: Callable[[Unstructured], tuple[str, Unstructured] | None]) -> None:
    """Patch the version that was read, never a concurrent change; ``change`` returns None to write nothing."""
    for attempt in range(_ATTEMPTS):
        raw = read(kube, node)
        made = change(raw)
        if made is None:
            return
        subresource, body = made
        version = as_map(raw.get("metadata")).get("resourceVersion")
        metadata = {**as_map(body.get("metadata")), "resourceVersion": version}
        try:
            kube.patch(path("nodes", node) + subresource, {**body, "metadata": metadata}, strategic=bool(subresource))
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return
