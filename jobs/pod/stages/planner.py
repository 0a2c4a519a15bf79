"""The pure planner of a sweep (sweep/), adapted to the messages of agents and trial."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ..sweep import decode, judgement, model, plan
from ..sweep.model import Done, Fleet, Result, Rules
from . import fleettest

Answers = Dict[str, Dict[str, Any]]  # the results of a test's nodes
Nodes = Tuple[str, ...]

MOST_RAILS = 32
MOST_TEXT = 200  # characters of a node's text
PROGRESS = "round %(number)d of about %(rounds)d, %(pairs)d of about %(of_pairs)d pairs tested, %(at_fault)d at fault"
PROGRESS += ", %(suspects)d suspects, about %(left_s)d s left"


class Planner:
    """The planner of rounds, which also joins results and decodes faults."""

    def __init__(self) -> None:
        self.done = model.Done
        self.next_round = plan.next_round
        self.matchings = judgement.matchings_of
        self.decode = decode.decode
        self.spare = decode.spare

    def fleet(self, nodes: Sequence[str], leaves: Dict[str, str], gone: Dict[str, str]) -> Fleet:
        """Return a fleet of nodes in test order."""
        return model.Fleet(tuple(nodes), {node: leaves[node] for node in nodes if node in leaves}, gone)

    def rules(self, limits: Dict[str, Any]) -> Rules:
        """Return the rules of the trial, by name."""
        known = {name for name in model.Rules.__dataclass_fields__ if name in limits}
        return model.Rules(**{name: limits[name] for name in known})

    def result(self, nodes: Nodes, answers: Answers) -> Result:
        """Join the results of a test's nodes; an incomplete result does not count.

        A terminating pod also ends its test: its partner's program then fails, too, and proves nothing. A malformed
        answer counts as no report of its node.
        """
        answers = _read(answers)
        states = {node: answer.get("state") for node, answer in answers.items()}
        reported = tuple(node for node in nodes if states.get(node) not in (None, fleettest.NOTHING))
        at = tuple(node for node in nodes if answers.get(node, {}).get("transport"))
        lead = answers.get(nodes[0]) or {}
        if any(_whole(answer.get("wrong")) for answer in answers.values()):
            own = tuple(node for node in nodes if len(nodes) == 1)
            return self._result(model.WRONG_SUMS, reported, own)
        if at:
            return self._result(model.WRONG_TRANSPORT, reported, at)
        ending = {node for node, answer in answers.items() if answer.get("interrupted") is True}
        if ending and set(states.values()) != {fleettest.MEASURED}:
            return self._result(model.NOTHING_MEASURED, tuple(node for node in reported if node not in ending), ())
        for state, outcome in ((fleettest.NO_END, model.NO_END), (fleettest.FAILED, model.FAILED)):
            if state in states.values():
                return self._result(outcome, reported, ())
        busbw = _number(lead.get("busbw"))
        measured = busbw is not None or (len(nodes) == 1 and _whole(lead.get("products")))  # one GPU has no busbw
        silent = {nodes[0]} if not measured and states.get(nodes[0]) == fleettest.MEASURED else set()
        silent |= {node for node, answer in answers.items() if not _says_all(answer)}
        if any(states.get(node) != fleettest.MEASURED for node in nodes) or silent:
            return self._result(model.NOTHING_MEASURED, tuple(node for node in reported if node not in silent), ())
        rails = tuple(_number(value) for value in lead.get("rails") or ())
        return model.Result(model.MEASURED, busbw, rails, reported, ())

    def _result(self, outcome: str, reported: Nodes, at: Nodes) -> Result:
        return model.Result(outcome, None, (), reported, at)

    def progress(self, fleet: Fleet, rules: Rules, history: Sequence[Done], round_s: Sequence[float]) -> str:
        """Return the progress of the sweep as text; the rest is an estimate.

        `round_s` holds the seconds that each round of this run took.
        """
        blame, last = self.decode(fleet, rules, history), history[-1].round
        pairings = max(0, self.matchings(fleet, rules) - last.stage)
        pairs = sum(len(test) > 1 for done in history for test in done.round.tests)
        more = pairings + bool(blame.suspects)
        figures = {"number": last.number, "rounds": last.number + more, "pairs": pairs, "suspects": len(blame.suspects)}
        figures["of_pairs"] = pairs + pairings * ((len(fleet.nodes) - len(fleet.gone)) // 2) + len(blame.suspects)
        figures["left_s"] = int(more * sum(round_s) / len(round_s))
        return PROGRESS % dict(figures, at_fault=len(blame.findings))

    def restored(self, text: str) -> List[Done]:
        """Return the rounds of a resumed sweep, as packed by the runner (zlib, base64)."""
        if not text:
            return []
        rows = json.loads(zlib.decompress(b64decode(text)).decode("utf-8"))
        return [self._restored(row) for row in rows]

    def _restored(self, row: Dict[str, Any]) -> Done:
        results = {}
        for test in row["tests"]:
            nodes = tuple(test["nodes"])
            reported = tuple(test.get("reported", nodes))
            rails = tuple(test.get("rails") or ())
            results[nodes] = model.Result(
                test["outcome"], test.get("busbw"), rails, reported, tuple(test.get("at") or ())
            )
        return self.done(model.Round(row["number"], row["stage"], tuple(results)), results, row["seconds"])


def _read(answers: Answers) -> Answers:
    """Replace malformed answers by the result of a test that measured nothing."""
    wrong = {node: _malformed(answer) for node, answer in answers.items()}
    refused = {node: fleettest.nothing("its answer is malformed: %s" % why) for node, why in wrong.items() if why}
    return dict(answers, **refused)


def _malformed(answer: Any) -> str:
    """Describe the first field of an answer that has not the form in which agents send it; '' if all have."""
    if not isinstance(answer, dict):
        return "it is no object"
    for name, (form, fits) in _FORMS.items():
        value = answer.get(name)
        if value is not None and not fits(value):
            return "%s is not %s" % (name, form)
    return ""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(item is None or isinstance(item, (int, float)) for item in value)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_numbers, value))


def _is_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(item == 0 or _whole(item) for item in value.values())


def _is_lists(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_list, value.values()))


def _is_hardware(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    gpus, cards = value.get("gpus") or [], value.get("cards") or {}
    rows = [*gpus, *cards.values()] if isinstance(gpus, list) and isinstance(cards, dict) else [None]
    return all(isinstance(row, dict) for row in rows)


_FORMS: Dict[str, Tuple[str, Callable[[Any], bool]]] = {
    "state": ("text", _is_text),
    "why": ("text", _is_text),
    "transport": ("text", _is_text),
    "rails": ("a list", _is_list),
    "copies": ("a list of numbers", _is_numbers),
    "rows": ("a list of lists of numbers", _is_table),
    "errors": ("an object of counts", _is_counts),
    "writes": ("an object of lists", _is_lists),
    "hardware": ("an object of GPUs and cards", _is_hardware),
}
"""The fields of an agent's answer whose form matters before their values do; a field may be null or missing."""


def _says_all(answer: Dict[str, Any]) -> bool:
    """Return whether each node that measured also reports its sums and its transport.

    A missing report is not a pass.
    """
    if answer.get("state") != fleettest.MEASURED:
        return True
    wrong = answer.get("wrong")
    counted = isinstance(wrong, int) and not isinstance(wrong, bool) and wrong >= 0
    return counted and isinstance(answer.get("transport"), str)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _number(value: Any) -> Optional[float]:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9
    return float(value) if good else None


def printed(nodes: Nodes, result: Result, answers: Answers) -> Dict[str, Any]:
    """Return a test in printed form: the result, and the facts that explain it."""
    answers = _read(answers)
    row: Dict[str, Any] = {"nodes": list(nodes), "outcome": result.outcome}
    if result.busbw is not None:
        row["busbw"] = round(result.busbw, 3)
    if result.rails:
        row["rails"] = [value if value is None else round(value, 3) for value in result.rails]
    if set(result.reported) != set(nodes):
        row["reported"] = list(result.reported)
    if result.at:
        row["at"] = list(result.at)
    lead = answers.get(nodes[0]) or {}
    for key in ("rows", "copies", "hardware"):
        if lead.get(key):
            row[key] = lead[key]
    reasons = {n: _text(answer.get("transport") or answer.get("why")) for n, answer in answers.items()}
    reasons = {node: text for node, text in reasons.items() if text}
    errors = {node: answer["errors"] for node, answer in answers.items() if answer.get("errors")}
    for answer in answers.values():
        if answer.get("writes"):
            known = list(answer["writes"].items())[:MOST_RAILS]
            row["writes"] = {_text(name)[:40]: list(map(_number, ways[:2])) for name, ways in known}
    for key, each in (("why", reasons), ("errors", errors)):
        if each:
            row[key] = dict(list(each.items())[:4])
    return row


def _text(value: Any) -> str:
    return "".join(char if char.isprintable() else " " for char in str(value or ""))[:MOST_TEXT]
