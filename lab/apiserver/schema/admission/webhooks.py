"""Admission plugins MutatingAdmissionWebhook and ValidatingAdmissionWebhook.

There is no server behind a webhook here. Annotations of its configuration define its responses: `sim.seatrial/denies`
is the message with which it rejects every matching object; without it, objects are allowed. `sim.seatrial/patches` is
the JSON patch (RFC 6902) of a mutating webhook; the removal of a missing field is skipped, since a webhook creates its
patch from the object that it receives. Messages and codes are those of
k8s.io/apiserver/pkg/admission/plugin/webhook/errors and its validating dispatcher.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonpatch
import jsonpointer

from .. import defaults, selectors
from ..errors import ApiError

if TYPE_CHECKING:
    from ..kinds import Kind
    from ..requests import Request
    from ..seams import Objects
    from ..values import Object

CONFIGURATIONS = "validatingwebhookconfigurations.admissionregistration.k8s.io"
MUTATING = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
PATCHES = "sim.seatrial/patches"
DENIES = "sim.seatrial/denies"
WITHOUT_EFFECT = ("None", "NoneOnDryRun")


def judge(store: Objects, kind: Kind, new: Object, request: Request) -> None:
    """Call every webhook with matching rules and selectors."""
    for configuration in store.list(CONFIGURATIONS):
        said = (configuration["metadata"].get("annotations") or {}).get(DENIES, "")
        for hook in configuration.get("webhooks") or []:
            if _meant(store, hook, kind, new):
                _ask(hook, request, said)


def mutate(store: Objects, kind: Kind, new: Object, request: Request) -> None:
    """Let every mutating webhook with matching rules and selectors change the object.

    New fields then get their defaults.
    """
    for configuration in store.list(MUTATING):
        annotations = configuration["metadata"].get("annotations") or {}
        for hook in configuration.get("webhooks") or []:
            if _meant(store, hook, kind, new):
                _ask(hook, request, annotations.get(DENIES, ""))
                _patch(new, json.loads(annotations.get(PATCHES, "[]")))
                if not kind.custom:
                    defaults.fill(kind.key, new)


def _patch(new: Object, operations: list[Object]) -> None:
    for operation in operations:
        try:
            changed = jsonpatch.JsonPatch([operation]).apply(new)
        except (jsonpatch.JsonPatchConflict, jsonpointer.JsonPointerException):
            continue
        new.clear()
        new.update(changed)


def _ask(hook: Object, request: Request, said: str) -> None:
    name = hook.get("name", "")
    if request.dry_run and hook.get("sideEffects") not in WITHOUT_EFFECT:
        raise ApiError(400, "BadRequest", f'admission webhook "{name}" does not support dry run')
    if said:
        raise ApiError(403, "Forbidden", f'admission webhook "{name}" denied the request: {said}')


def _meant(store: Objects, hook: Object, kind: Kind, new: Object) -> bool:
    if not any(_matches(rule, kind) for rule in hook.get("rules") or []):
        return False
    namespace = store.get("namespaces", None, new["metadata"].get("namespace", "")) if kind.namespaced else None
    labels = (namespace or {}).get("metadata", {}).get("labels") or {}
    return _selected(hook.get("namespaceSelector"), labels) and _selected(
        hook.get("objectSelector"), new["metadata"].get("labels") or {}
    )


def _selected(selector: Object | None, labels: Object) -> bool:
    return not selector or selectors.labels(selector)(labels)


def _matches(rule: Object, kind: Kind) -> bool:
    def some(part: str, value: str) -> bool:
        return bool({"*", value} & set(rule.get(part) or []))

    created = some("operations", "CREATE")
    return created and some("apiGroups", kind.group) and some("resources", kind.plural)
