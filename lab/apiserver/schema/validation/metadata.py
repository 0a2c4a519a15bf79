"""Validation of metadata: names, labels, annotations, finalizers and owner references (apimachinery validation)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..errors import Cause, duplicate, invalid_value, required, too_long

if TYPE_CHECKING:
    from ..values import Object

LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = LABEL + r"(\." + LABEL + r")*"
QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL, _SUBDOMAIN, _QUALIFIED = (re.compile(f"^({pattern})$") for pattern in (LABEL, SUBDOMAIN, QUALIFIED))
_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")

LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '" + LABEL + "')"
)
SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '" + SUBDOMAIN + "')"
)
QUALIFIED_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '" + QUALIFIED + "')"
)
VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    "is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
MAX_ANNOTATIONS = 256 * 1024
LABEL_NAMED = ("namespaces", "services")
RBAC_KINDS = ("roles.", "clusterroles.", "rolebindings.", "clusterrolebindings.")
BANNED_OWNERS = {("v1", "Event")}


def length(limit: int) -> str:
    """Return the text for a value with too many bytes."""
    return f"must be no more than {limit} bytes"


def dns_label(value: str) -> list[str]:
    """Return the error message for an invalid RFC 1123 label."""
    messages = [length(63)] if len(value) > 63 else []
    if _LABEL.match(value):
        return messages
    return [*messages, "must not contain dots" if _SUBDOMAIN.match(value) else LABEL_TEXT]


def own_name(name: str, at: str, taken: set[str]) -> list[Cause]:
    """Validate and record the name of a list entry: a DNS label that no other entry has."""
    if not name:
        causes = [required(f"{at}.name")]
    elif wrong := dns_label(name):
        causes = [invalid_value(f"{at}.name", name, text) for text in wrong]
    else:
        causes = [duplicate(f"{at}.name", name)] if name in taken else []
    taken.add(name)
    return causes


def dns_subdomain(value: str) -> list[str]:
    """Return the error message for an invalid RFC 1123 subdomain."""
    messages = [length(253)] if len(value) > 253 else []
    return messages if _SUBDOMAIN.match(value) else [*messages, SUBDOMAIN_TEXT]


def path_segment(value: str) -> list[str]:
    """Return the error message for an invalid path segment."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return [f"may not contain '{bad}'" for bad in ("/", "%") if bad in value]


def qualified_name(value: str) -> list[str]:
    """Return the error message for an invalid label key."""
    prefix, slash, name = value.rpartition("/")
    messages: list[str] = []
    if slash and "/" in prefix:
        return [
            "a qualified name "
            + QUALIFIED_TEXT[:-1]
            + ") with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    if slash and not prefix:
        messages.append("prefix part must be non-empty")
    elif slash:
        messages += ["prefix part " + text for text in dns_subdomain(prefix)]
    if not name:
        return [*messages, "name part must be non-empty", "name part " + QUALIFIED_TEXT]
    if len(name) > 63:
        messages.append("name part " + length(63))
    return messages if _QUALIFIED.match(name) else [*messages, "name part " + QUALIFIED_TEXT]


def label_value(value: str) -> list[str]:
    """Return the error message for an invalid label value."""
    messages = [length(63)] if len(value) > 63 else []
    return messages if _VALUE.match(value) else [*messages, VALUE_TEXT]


def labels(given: Any, field: str) -> list[Cause]:
    """Return the errors of a label mapping."""
    causes = []
    for key, value in (given or {}).items():
        causes += [invalid_value(field, key, text) for text in qualified_name(key)]
        causes += [invalid_value(field, value, text) for text in label_value(value)]
    return causes


def annotation_map(given: Any, field: str) -> list[Cause]:
    """Return the errors of annotations."""
    causes = []
    size = 0
    for key, value in (given or {}).items():
        causes += [invalid_value(field, key, text) for text in qualified_name(key.lower())]
        size += len(key.encode()) + len(value.encode())
    if size > MAX_ANNOTATIONS:
        causes.append(too_long(field, MAX_ANNOTATIONS))
    return causes


def name_rule(key: str) -> Any:
    """Return the function that validates the names of a kind."""
    if key in LABEL_NAMED:
        return dns_label
    if key == "events" or key.startswith(RBAC_KINDS):
        return path_segment
    return dns_subdomain


def check(key: str, obj: Object, *, namespaced: bool) -> list[Cause]:
    """Return all errors of an object's metadata."""
    meta = obj.get("metadata", {})
    causes: list[Cause] = []
    rule = name_rule(key)
    prefix = meta.get("generateName")
    if prefix:
        # A prefix may end in '-', since random characters are appended (MaskTrailingDash).
        causes += [invalid_value("metadata.generateName", prefix, text) for text in rule(re.sub(r"-$", "a", prefix))]
    name = meta.get("name", "")
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    else:
        causes += [invalid_value("metadata.name", name, text) for text in rule(name)]
    if namespaced and not meta.get("namespace"):
        causes.append(required("metadata.namespace"))
    causes += labels(meta.get("labels"), "metadata.labels")
    causes += annotation_map(meta.get("annotations"), "metadata.annotations")
    causes += owner_references(meta.get("ownerReferences"))
    for finalizer in meta.get("finalizers") or []:
        causes += [invalid_value("metadata.finalizers", finalizer, text) for text in qualified_name(finalizer)]
    return causes


def owner_references(given: Any) -> list[Cause]:
    """Return the errors of owner references."""
    field = "metadata.ownerReferences"
    causes: list[Cause] = []
    controller = ""
    for reference in given or []:
        version = reference.get("apiVersion", "")
        if not version:
            causes.append(invalid_value(f"{field}.apiVersion", version, "version must not be empty"))
        for part in ("kind", "name", "uid"):
            if not reference.get(part):
                causes.append(invalid_value(f"{field}.{part}", reference.get(part, ""), "must not be empty"))
        if (version, reference.get("kind")) in BANNED_OWNERS:
            causes.append(invalid_value(field, reference, f"{reference['kind']} is disallowed from being an owner"))
        if reference.get("controller"):
            this = f"{reference.get('kind')}/{reference.get('name')}"
            if controller:
                text = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{controller} and {this}"
                )
                causes.append(invalid_value(field, given, text))
            controller = controller or this
    return causes


def selector(given: Any, field: str) -> list[Cause]:
    """Return the errors of a LabelSelector."""
    if not isinstance(given, dict):
        return []
    causes = labels(given.get("matchLabels"), f"{field}.matchLabels")
    for index, expression in enumerate(given.get("matchExpressions") or []):
        at = f"{field}.matchExpressions[{index}]"
        operator, values = expression.get("operator", ""), expression.get("values") or []
        if operator in ("In", "NotIn") and not values:
            causes.append(required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist") and values:
            text = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(Cause(f"{at}.values", "FieldValueForbidden", text))
        elif operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            causes.append(invalid_value(f"{at}.operator", operator, "not a valid selector operator"))
        causes += [
            invalid_value(f"{at}.key", expression.get("key", ""), t) for t in qualified_name(expression.get("key", ""))
        ]
    return causes
