"""Privilege escalation: a user may only grant permissions of their own, except with `escalate` or `bind`.

The check of pkg/registry/rbac:
https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .access import Attributes, authorize, rules_for
from .schema.errors import forbidden, not_found

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .call import Call
    from .schema.values import Object

GROUP = "rbac.authorization.k8s.io"
ROLES = (f"roles.{GROUP}", f"clusterroles.{GROUP}")
BINDINGS = (f"rolebindings.{GROUP}", f"clusterrolebindings.{GROUP}")


def guard(call: Call, obj: Object) -> None:
    """Raise the 403 if a role or a binding would grant a permission that its author lacks."""
    if call.kind.key not in (*ROLES, *BINDINGS):
        return
    old = call.existing() if call.route.name else None
    parts = ("rules", "aggregationRule") if call.kind.key in ROLES else ("roleRef", "subjects")
    if old is not None and all(obj.get(part) == old.get(part) for part in parts):
        return
    namespace = call.route.namespace
    if call.kind.key in ROLES:
        verb, resource, name, rules = "escalate", call.kind.plural, obj["metadata"].get("name", ""), obj.get("rules")
    else:
        verb, (resource, name, rules) = "bind", _referenced(call, obj.get("roleRef") or {})
    if authorize(call.store, call.user, Attributes(verb, GROUP, resource, "", namespace, name)) is not None:
        return
    held = [rule for _, rule in rules_for(call.store, call.user, namespace)]
    missing = [sub for rule in rules or [] for sub in _single(rule) if not any(_covers(own, sub) for own in held)]
    if missing:
        groups = " ".join(json.dumps(group) for group in call.user.groups)
        who = f'user "{call.user.name}" (groups=[{groups}])'
        text = f"{who} is attempting to grant RBAC permissions not currently held:\n"
        raise forbidden(call.kind.plural, GROUP, obj["metadata"].get("name", ""), text + _listed(missing))


def _referenced(call: Call, reference: Object) -> tuple[str, str, list[Object]]:
    """Return resource, name and rules of the role that is bound."""
    name = reference.get("name", "")
    plural = "roles" if reference.get("kind") == "Role" else "clusterroles"
    role = call.store.get(f"{plural}.{GROUP}", call.route.namespace if plural == "roles" else None, name)
    if role is None and authorize(call.store, call.user, Attributes("bind", GROUP, plural, "", "", name)) is None:
        raise not_found(plural, GROUP, name)
    return plural, name, (role or {}).get("rules") or []


def _single(rule: Object) -> Iterator[Object]:
    """Split rules into one verb, one resource and one group each."""
    for verb in rule.get("verbs") or []:
        for url in rule.get("nonResourceURLs") or []:
            yield {"verbs": [verb], "nonResourceURLs": [url]}
        for group in rule.get("apiGroups") or []:
            for resource in rule.get("resources") or []:
                for name in rule.get("resourceNames") or [None]:
                    names = {} if name is None else {"resourceNames": [name]}
                    yield {"verbs": [verb], "apiGroups": [group], "resources": [resource], **names}


def _covers(own: Object, sub: Object) -> bool:
    def has(part: str) -> bool:
        mine: Sequence[str] = own.get(part) or ()
        return "*" in mine or sub[part][0] in mine

    if not has("verbs"):
        return False
    if "nonResourceURLs" in sub:
        url = sub["nonResourceURLs"][0]
        return any(u == url or (u.endswith("*") and url.startswith(u[:-1])) for u in own.get("nonResourceURLs") or ())
    resource, mine = sub["resources"][0], own.get("resources") or ()
    covered = "*" in mine or resource in mine or ("/" in resource and f"*/{resource.partition('/')[2]}" in mine)
    names = own.get("resourceNames") or ()
    return covered and has("apiGroups") and (not names or sub.get("resourceNames", [None])[0] in names)


def _listed(missing: list[Object]) -> str:
    """Format the rules as text, with the verbs of one resource together."""
    merged: dict[str, list[str]] = {}
    for rule in missing:
        shown = [
            f"{label}:[{json.dumps(rule[part][0])}]"
            for part, label in (
                ("apiGroups", "APIGroups"),
                ("resources", "Resources"),
                ("resourceNames", "ResourceNames"),
                ("nonResourceURLs", "NonResourceURLs"),
            )
            if part in rule
        ]
        merged.setdefault(", ".join(shown), []).append(json.dumps(rule["verbs"][0]))
    return "\n".join(sorted(f"{{{what}, Verbs:[{' '.join(verbs)}]}}" for what, verbs in merged.items()))
