"""A sweep read from the `sweep` section of a record, to be resumed: its fleet, rules and history."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .model import OUTCOMES, Done, Fleet, Nodes, Result, Round, Rules
from .section import MOST_RAILS, MOST_TESTS, MOST_TEXT

MOST_NODES = 100_000
MOST_ROUNDS = 100_000


def saved(section: Mapping[str, Any]) -> Tuple[Fleet, Rules, List[Done]]:
    """Return fleet, rules and history of a section. Raises ValueError (one line) for invalid content.

    A resumed sweep may have other rules and nodes: entries outside its fleet are ignored.
    """
    try:
        return _saved(section)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError("the sweep of the record is damaged: %s" % (error or "an unknown form")) from error


def _saved(section: Mapping[str, Any]) -> Tuple[Fleet, Rules, List[Done]]:
    if section["tests_left_out"]:
        raise ValueError("the sweep of the record is too large to continue: tests were left out")
    nodes = section["elements"]["nodes"]
    names = tuple(_name(row["name"]) for row in nodes)
    if not len(set(names)) == len(names) <= MOST_NODES:
        raise ValueError("the sweep of the record is damaged: its nodes")
    fleet = Fleet(names, {_name(row["name"]): str(row["leaf"])[:MOST_TEXT] for row in nodes if row["leaf"]})
    by_round: Dict[int, Dict[Nodes, Result]] = {}
    for row in section["tests"][: MOST_TESTS + 1]:
        test = tuple(sorted(_name(name) for name in row["nodes"]))
        if len(test) not in (1, 2) or len(set(test)) < len(test):
            raise ValueError("the sweep of the record is damaged: a test of %d nodes" % len(test))
        by_round.setdefault(_whole(row["round"]), {})[test] = _result(row, test)
    history = []
    for row in section["rounds"]:
        number, stage = _whole(row["number"]), _whole(row["stage"])
        results = by_round.pop(number, {})
        history.append(Done(Round(number, stage, tuple(results)), results, _number(row["seconds"]) or 0.0))
    if len(history) > MOST_ROUNDS or sorted(done.round.number for done in history) != list(range(1, 1 + len(history))):
        raise ValueError("the sweep of the record is damaged: its rounds are not 1 to %d" % len(history))
    if by_round:
        raise ValueError("the sweep of the record is damaged: tests of no round")
    return fleet, _rules(section["rules"]), history


def _result(row: Mapping[str, Any], test: Nodes) -> Result:
    if row["outcome"] not in OUTCOMES:
        raise ValueError("the sweep of the record is damaged: an unknown outcome")
    rails = tuple(_number(value) for value in row.get("rails_gbps", ())[:MOST_RAILS])
    reported = tuple(_name(name) for name in row.get("reported", test))
    at = tuple(_name(name) for name in row.get("at", ()))
    return Result(row["outcome"], _number(row.get("busbw_gbps")), rails, reported, at)


def _rules(recorded: Mapping[str, Any]) -> Rules:
    values: Dict[str, Any] = {}
    for each in fields(Rules):
        value = recorded.get(each.name, each.default)
        optional = each.default is None
        whole = isinstance(each.default, int)
        if not (value is None and optional):
            value = bool(value) if isinstance(each.default, bool) else _whole(value) if whole else _number(value)
        values[each.name] = value
    return Rules(**values)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MOST_TEXT:
        raise ValueError("the sweep of the record is damaged: a node without a name")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise ValueError("the sweep of the record is damaged: %.40r is not a number" % (value,))
    return value


def _number(value: Any) -> Optional[float]:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError("the sweep of the record is damaged: %.40r is not a number" % (value,))
    return float(value)
