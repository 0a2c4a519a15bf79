"""Validation of affinity: node selector terms, pod affinity terms and their weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import Cause, forbidden_field, invalid_value, required
from . import metadata

if TYPE_CHECKING:
    from ..values import Object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def affinity(given: Any, field: str) -> list[Cause]:
    """Validate an Affinity."""
    causes: list[Cause] = []
    given = given or {}
    node = given.get("nodeAffinity") or {}
    if node.get(REQUIRED) is not None:
        at = f"{field}.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
        terms = node[REQUIRED].get("nodeSelectorTerms") or []
        if not terms:
            causes.append(required(at, "must have at least one node selector term"))
        for index, term in enumerate(terms):
            causes += node_term(term, f"{at}[{index}]")
    for index, weighted in enumerate(node.get(PREFERRED) or []):
        at = f"{field}.nodeAffinity.{PREFERRED}[{index}]"
        causes += _weight(weighted, at) + node_term(weighted.get("preference") or {}, f"{at}.preference")
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = given.get(kind) or {}
        for index, term in enumerate(pods.get(REQUIRED) or []):
            causes += _pod_term(term, f"{field}.{kind}.{REQUIRED}[{index}]")
        for index, weighted in enumerate(pods.get(PREFERRED) or []):
            at = f"{field}.{kind}.{PREFERRED}[{index}]"
            causes += _weight(weighted, at) + _pod_term(weighted.get("podAffinityTerm") or {}, f"{at}.podAffinityTerm")
    return causes


def _weight(weighted: Object, at: str) -> list[Cause]:
    weight = weighted.get("weight", 0)
    return [] if 1 <= weight <= 100 else [invalid_value(f"{at}.weight", weight, "must be in the range 1-100")]


def node_term(term: Object, at: str) -> list[Cause]:
    """Validate a node selector term."""
    causes: list[Cause] = []
    for part in ("matchExpressions", "matchFields"):
        for index, expression in enumerate(term.get(part) or []):
            where = f"{at}.{part}[{index}]"
            operator, values = expression.get("operator", ""), expression.get("values") or []
            if operator in ("In", "NotIn") and not values:
                causes.append(required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
            elif operator in ("Exists", "DoesNotExist") and values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                causes.append(forbidden_field(f"{where}.values", text))
            elif operator in ("Gt", "Lt") and len(values) != 1:
                causes.append(
                    required(f"{where}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
                )
            elif operator not in OPERATORS:
                causes.append(invalid_value(f"{where}.operator", operator, "not a valid selector operator"))
            if part == "matchExpressions":
                key = expression.get("key", "")
                causes += [invalid_value(f"{where}.key", key, text) for text in metadata.qualified_name(key)]
    return causes


def _pod_term(term: Object, at: str) -> list[Cause]:
    causes = metadata.selector(term.get("labelSelector"), f"{at}.labelSelector")
    key = term.get("topologyKey", "")
    if not key:
        causes.append(required(f"{at}.topologyKey", "can not be empty"))
        return causes
    return causes + [invalid_value(f"{at}.topologyKey", key, text) for text in metadata.qualified_name(key)]
