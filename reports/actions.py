"""The action for each node, as every form of the report shows it: read from the record, not derived again."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from .plain import plain
from .schema import RecordedAction

TITLE = "Node actions"
PARTS = 8
"""Maximum number of parts of a node that a line names; the record has all."""
NODES = 50
"""Maximum number of nodes with one value that a line names."""


def lines(actions: Mapping[str, RecordedAction]) -> list[str]:
    """Return a line for each node with an action, the heaviest action first."""
    return [plain(f"{node} {sentence(each)}") for node, each in actions.items()]


def sentence(each: RecordedAction) -> str:
    """Return a node's action as its word and in words, and that of each of its GPUs, since two may differ."""
    said = f"{each['action']}: {each['said']}" if each["said"] else each["action"]
    if [*each["parts"]] in ([], [each["node"]]):
        return said
    parts = sorted(each["parts"].items(), key=lambda part: part[1] != each["action"])
    own = [f"{subject.removeprefix(each['node']).strip() or 'the node'} {word}" for subject, word in parts[:PARTS]]
    more = f", {len(parts) - PARTS} more" if len(parts) > PARTS else ""
    return f"{said}; {', '.join(own)}{more}"


def in_one_line(actions: Mapping[str, RecordedAction]) -> str:
    """Return the action word of each node; '' without an action."""
    shown = [f"{plain(node)}: {plain(each['action'])}" for node, each in islice(actions.items(), NODES)]
    return ", ".join(shown) + (f" and {len(actions) - NODES} more" if len(actions) > NODES else "")
