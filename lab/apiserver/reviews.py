"""Access and self-subject reviews: objects that are created as a query and not stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .access import Attributes, User, authorize, by_token, rules_for
from .schema.errors import ApiError, Cause, bad_request, invalid
from .schema.requests import ISSUER

if TYPE_CHECKING:
    from collections.abc import Callable

    from .schema.values import Object
    from .store import Store

NO_EXPLANATION = {"allowed": False}


def _attributes(spec: Object) -> Attributes:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (path is None):
        text = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise invalid("", "authorization.k8s.io", "", [Cause("spec.resourceAttributes", "FieldValueInvalid", text)])
    if path is not None:
        return Attributes(path.get("verb", ""), path=path.get("path", ""))
    assert resource is not None
    names = ("verb", "group", "resource", "subresource", "namespace", "name")
    return Attributes(**{name: resource.get(name, "") for name in names})


def _decide(store: Store, user: User, asked: Attributes) -> Object:
    reason = authorize(store, user, asked)
    if reason is None:
        return dict(NO_EXPLANATION)
    return {"allowed": True, "reason": reason} if reason else {"allowed": True}


def self_access(store: Store, user: User, body: Object) -> Object:
    """Answer a SelfSubjectAccessReview."""
    return {**body, "status": _decide(store, user, _attributes(body.get("spec") or {}))}


def access(store: Store, _user: User, body: Object) -> Object:
    """Answer a SubjectAccessReview or a LocalSubjectAccessReview."""
    spec = body.get("spec") or {}
    asked = _attributes(spec)
    if not spec.get("user") and not spec.get("groups"):
        cause = Cause(
            "spec.user", "FieldValueInvalid", 'Invalid value: "": at least one of user or group must be specified'
        )
        raise invalid("", "authorization.k8s.io", "", [cause])
    subject = User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""))
    return {**body, "status": _decide(store, subject, asked)}


def self_rules(store: Store, user: User, body: Object) -> Object:
    """Answer a SelfSubjectRulesReview."""
    namespace = (body.get("spec") or {}).get("namespace", "")
    if not namespace:
        raise bad_request("no namespace on request")
    resource_rules: list[dict[str, Any]] = []
    other_rules: list[dict[str, Any]] = []
    if "system:masters" in user.groups:
        resource_rules.append({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
        other_rules.append({"verbs": ["*"], "nonResourceURLs": ["*"]})
    for _, rule in rules_for(store, user, namespace):
        if rule.get("resources"):
            names = ("verbs", "apiGroups", "resources", "resourceNames")
            resource_rules.append({name: rule[name] for name in names if rule.get(name)})
        if rule.get("nonResourceURLs"):
            other_rules.append({name: rule[name] for name in ("verbs", "nonResourceURLs")})
    status = {"resourceRules": resource_rules, "nonResourceRules": other_rules, "incomplete": False}
    return {**body, "spec": {}, "status": status}


def self_subject(store: Store, user: User, body: Object) -> Object:
    """Answer a SelfSubjectReview."""
    meta = {**(body.get("metadata") or {}), "creationTimestamp": store.now()}
    return {**body, "metadata": meta, "status": {"userInfo": user.info()}}


def token(store: Store, _user: User, body: Object) -> Object:
    """Answer a TokenReview."""
    spec = body.get("spec") or {}
    audiences = spec.get("audiences") or [ISSUER]
    try:
        user = by_token(store, store.authority, spec.get("token", ""), audiences)
    except ApiError:
        return {**body, "status": {"user": {}, "error": "[invalid bearer token]"}}
    claims = store.authority.claims(spec["token"])
    meant = [name for name in audiences if claims is None or name in claims["aud"]]
    return {**body, "status": {"authenticated": True, "user": user.info(), "audiences": meant}}


REVIEWS: dict[str, Callable[[Store, User, Object], Object]] = {
    "selfsubjectaccessreviews.authorization.k8s.io": self_access,
    "subjectaccessreviews.authorization.k8s.io": access,
    "localsubjectaccessreviews.authorization.k8s.io": access,
    "selfsubjectrulesreviews.authorization.k8s.io": self_rules,
    "selfsubjectreviews.authentication.k8s.io": self_subject,
    "tokenreviews.authentication.k8s.io": token,
}

__all__ = ["REVIEWS"]
