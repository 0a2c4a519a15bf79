"""The actions for a node or GPU with a finding: a closed set, the lightest first.

The words are those of NVIDIA's Xid catalogue (RESTART_APP, RESET_GPU, CONTACT_SUPPORT) and of NVSentinel's health
events (NONE, UNKNOWN: github.com/NVIDIA/NVSentinel, data-models/protobufs/health_event.proto). Both distinguish bare
metal (RESTART_BM) from a virtual machine (RESTART_VM), which a pod cannot: here both are REBOOT_NODE. UNKNOWN is
lighter than every action on a node, so that one GPU's UNKNOWN does not hide another's known action.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Action(StrEnum):
    """One action, by its word in records, metrics and labels."""

    NONE = "NONE"
    RESTART_APP = "RESTART_APP"
    UNKNOWN = "UNKNOWN"
    RESET_GPU = "RESET_GPU"
    REBOOT_NODE = "REBOOT_NODE"
    CONTACT_SUPPORT = "CONTACT_SUPPORT"


IN_WORDS = {
    Action.NONE: "nothing",
    Action.RESTART_APP: "restart the job; the node can stay in service",
    Action.UNKNOWN: "look it up (the remedy, NVIDIA's Xid catalogue): the finding alone does not determine it",
    Action.RESET_GPU: "drain the node and reset the GPU",
    Action.REBOOT_NODE: "drain the node and reboot it",
    Action.CONTACT_SUPPORT: "take the node out of service and contact its vendor's support (RMA)",
}
_WEIGHTS = {action: weight for weight, action in enumerate(Action)}


def weight(word: str) -> int:
    """Return the index of an action, lightest first; -1 for any other word."""
    return _WEIGHTS[Action(word)] if word in _WEIGHTS else -1


def heaviest(words: Iterable[str]) -> Action | None:
    """Return the heaviest action; other words, such as '', are ignored. None without an action."""
    return max((Action(word) for word in words if word in _WEIGHTS), key=_WEIGHTS.__getitem__, default=None)


def in_words(word: str) -> str:
    """Return an action in words; '' for any other word."""
    return IN_WORDS[Action(word)] if word in _WEIGHTS else ""
