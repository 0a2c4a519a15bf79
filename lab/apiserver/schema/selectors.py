"""Label selectors (text and LabelSelector objects) and field selectors.

The grammar is that of k8s.io/apimachinery `labels.Parse` and `fields.ParseSelector`. Each function returns a
predicate, so that a selector is parsed once and applied to thousands of objects.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .errors import bad_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Predicate = Callable[[Mapping[str, Any]], bool]

_TOKEN = re.compile(r"\s*(?:(?P<op>==|!=|=|!|\(|\)|,|<|>)|(?P<word>[^\s,()=!<>]+))")
_KEY = re.compile(
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
)
_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    "is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


class _Requirement:
    """One comparison of a label: the key, an operator and values."""

    __slots__ = ("key", "operator", "values")

    def __init__(self, key: str, operator: str, values: frozenset[str]) -> None:
        self.key = key
        self.operator = operator
        self.values = values

    def holds(self, labels: Mapping[str, str]) -> bool:
        if self.operator == "in":
            return self.key in labels and labels[self.key] in self.values
        if self.operator == "notin":
            return self.key not in labels or labels[self.key] not in self.values
        if self.operator == "exists":
            return self.key in labels
        if self.operator == "absent":
            return self.key not in labels
        return self._compares(labels)

    def _compares(self, labels: Mapping[str, str]) -> bool:
        try:
            mine, theirs = int(labels[self.key]), int(next(iter(self.values)))
        except (KeyError, ValueError):
            return False
        return mine > theirs if self.operator == "gt" else mine < theirs


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise bad_request(f"unable to parse requirement: found '{text[at:]}'")
        tokens.append(match["op"] or match["word"])
        at = match.end()
    return tokens


class _Parser:
    """Recursive descent over the tokens of a label selector."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def requirements(self) -> list[_Requirement]:
        requirements: list[_Requirement] = []
        while self.peek():
            requirements.append(self.requirement())
            if self.peek() == ",":
                self.take()
                if not self.peek():
                    raise bad_request("unable to parse requirement: found '', expected: identifier after ','")
            elif self.peek():
                raise bad_request(
                    f"unable to parse requirement: found '{self.peek()}', expected: ',' or 'end of string'"
                )
        return requirements

    def requirement(self) -> _Requirement:
        if self.peek() == "!":
            self.take()
            return _Requirement(self.key(), "absent", frozenset())
        key, operator = self.key(), self.peek()
        if operator in ("", ","):
            return _Requirement(key, "exists", frozenset())
        self.take()
        if operator in ("=", "==", "!="):
            return _Requirement(key, "notin" if operator == "!=" else "in", frozenset([self.value()]))
        if operator in ("in", "notin"):
            return _Requirement(key, operator, self.values())
        if operator in ("<", ">"):
            return _Requirement(key, "gt" if operator == ">" else "lt", frozenset([self.value()]))
        raise bad_request(f"unable to parse requirement: found '{operator}', expected: in, notin, =, ==, !=, gt, lt")

    def key(self) -> str:
        key = self.take()
        if not _KEY.match(key):
            raise bad_request(
                f'unable to parse requirement: <nil>: Invalid value: "{key}": name part must consist of '
                "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
                "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
                "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            )
        return key

    def value(self) -> str:
        if self.peek() in ("", ","):
            return ""
        return _checked(self.take())

    def values(self) -> frozenset[str]:
        if self.take() != "(":
            raise bad_request("unable to parse requirement: found '', expected: '('")
        values: list[str] = []
        expects = True
        while (token := self.take()) != ")":
            if not token:
                raise bad_request("unable to parse requirement: found '', expected: ',', or ')'")
            if token == ",":  # noqa: S105 - punctuation
                if expects:
                    values.append("")
                expects = True
            else:
                values.append(_checked(token))
                expects = False
        if expects:
            values.append("")
        return frozenset(values)


def _checked(value: str) -> str:
    if len(value) > 63 or not _VALUE.match(value):
        raise bad_request(f'unable to parse requirement: values[0][]: Invalid value: "{value}": {VALUE_RULE}')
    return value


def labels(selector: str | Mapping[str, Any] | None) -> Callable[[Mapping[str, str]], bool]:
    """Compile a label selector, as text or as a LabelSelector object, to a predicate on a label mapping.

    A LabelSelector that is `None` matches nothing, an empty one everything (as in the API types); empty text
    matches everything (as in a list request).
    """
    if selector is None:
        return lambda _labels: False
    requirements = _Parser(selector).requirements() if isinstance(selector, str) else _from_object(selector)
    if not requirements:
        return lambda _labels: True
    return lambda given: all(requirement.holds(given) for requirement in requirements)


def _from_object(selector: Mapping[str, Any]) -> list[_Requirement]:
    requirements = [
        _Requirement(key, "in", frozenset([str(value)])) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    operators = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent", "Gt": "gt", "Lt": "lt"}
    for expression in selector.get("matchExpressions") or []:
        operator = operators.get(expression.get("operator", ""), "in")
        requirements.append(
            _Requirement(expression.get("key", ""), operator, frozenset(expression.get("values") or []))
        )
    return requirements


def matches(selector: str | Mapping[str, Any] | None, obj: Mapping[str, Any]) -> bool:
    """Return whether an object's labels match a selector."""
    return labels(selector)(obj.get("metadata", {}).get("labels") or {})


# Field labels in addition to metadata.name and metadata.namespace: the conversion functions of the API packages
# (pkg/apis/core/v1/conversion.go and its siblings); all others are rejected.
SELECTABLE: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
    "jobs.batch": ("status.successful",),
    "replicationcontrollers": ("status.replicas",),
    "replicasets.apps": ("status.replicas",),
    "certificatesigningrequests.certificates.k8s.io": ("spec.signerName",),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "events.events.k8s.io": (
        "regarding.kind",
        "regarding.namespace",
        "regarding.name",
        "regarding.uid",
        "regarding.apiVersion",
        "regarding.resourceVersion",
        "regarding.fieldPath",
        "reason",
        "reportingController",
        "type",
    ),
}


def _value(key: str, obj: Mapping[str, Any], path: str) -> str:
    if key.startswith("events") and path in ("source", "reportingComponent", "reportingController"):
        named = obj.get("source", {}).get("component", "") if path == "source" else ""
        return str(named or obj.get("reportingComponent") or obj.get("source", {}).get("component", ""))
    if key == "events.events.k8s.io" and path.startswith("regarding."):
        path = "involvedObject." + path.removeprefix("regarding.")
    at: Any = obj
    for part in path.split("."):
        at = at.get(part) if isinstance(at, dict) else None
    if isinstance(at, bool):
        return "true" if at else "false"
    if at is None:
        return "false" if path in ("spec.unschedulable", "spec.hostNetwork") else ""
    return str(at)


_TERM = re.compile(r"^(.*?)(!=|==|=)(.*)$", re.DOTALL)


def _unescape(value: str) -> str:
    return re.sub(r"\\([,=\\])", r"\1", value)


def fields(selector: str, key: str, what: str = "") -> Predicate:
    """Compile a field selector for a resource to a predicate on its objects; 400 for an unsupported field."""
    terms: list[tuple[str, bool, str]] = []
    for raw in re.split(r"(?<!\\),", selector):
        if not raw.strip():
            continue
        match = _TERM.match(raw.strip())
        if match is None:
            raise bad_request(f"invalid selector: '{selector}'; can't understand '{raw}'")
        path, operator, value = match.groups()
        if path not in ("metadata.name", "metadata.namespace") and path not in SELECTABLE.get(key, ()):
            raise bad_request(_unsupported(key, path, what))
        terms.append((path, operator != "!=", _unescape(value)))
    return lambda obj: all((_value(key, obj, path) == value) is equal for path, equal, value in terms)


def _unsupported(key: str, path: str, what: str) -> str:
    if key == "jobs.batch":
        return f'field label "{path}" not supported for batchv1.Job'
    if key in SELECTABLE:
        return f"field label not supported: {path}"
    return f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"' + what
