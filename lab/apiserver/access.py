"""Authentication and authorization: bearer tokens, client certificates, impersonation, RBAC on the stored roles.

Messages are those of the API server: "User "x" cannot list resource "pods" in API group "" in the namespace "y"".
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .schema.errors import ApiError, forbidden, qualified
from .schema.requests import ISSUER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .authority import Authority
    from .schema.values import Object
    from .store import Store

RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated requester."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, list[str]] = field(default_factory=dict)

    def info(self) -> Object:
        """Return the user as `status.userInfo` of a review."""
        parts = {"username": self.name, "uid": self.uid, "groups": list(self.groups), "extra": dict(self.extra)}
        return {key: value for key, value in parts.items() if value}


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of a request: a verb on a resource, or on another path."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""  # set for non-resource requests only

    def sentence(self, user: str) -> str:
        """Describe who cannot do what, and where."""
        if self.path:
            return f'User "{user}" cannot {self.verb} path "{self.path}"'
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'User "{user}" cannot {self.verb} resource "{resource}" in API group "{self.group}" {where}'

    def refusal(self, user: str, reason: str = "") -> ApiError:
        """Return the 403 for these attributes."""
        text = self.sentence(user) + (f": {reason}" if reason else "")
        if self.path:
            return ApiError(403, "Forbidden", f"forbidden: {text}", {})
        return forbidden(self.resource, self.group, self.name, text)


# -- authentication


def unauthorized() -> ApiError:
    """Return the 401 for unknown credentials."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def service_account(namespace: str, name: str, uid: str = "", extra: Mapping[str, list[str]] | None = None) -> User:
    """Return the user of a service account."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", groups, uid, extra or {})


def authenticate(
    store: Store, authority: Authority, authorization: str, certificate: Mapping[str, Any] | None, der: bytes | None
) -> User:
    """Return the user of the credentials; 401 for an unknown token."""
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() == "bearer" and token:
        return by_token(store, authority, token.strip())
    if certificate:
        return _by_certificate(certificate, der or b"")
    return ANONYMOUS


def by_token(store: Store, authority: Authority, token: str, audiences: Sequence[str] = (ISSUER,)) -> User:
    """Return the user of a bearer token; 401 if it is unknown, or for other audiences."""
    if token in authority.static:
        name, groups = authority.static[token]
        return User(name, (*groups, "system:authenticated"))
    claims = authority.claims(token)
    if claims is None or not set(claims["aud"]) & set(audiences):
        raise unauthorized()
    bound = claims["kubernetes.io"]
    namespace, account = bound["namespace"], bound["serviceaccount"]
    current = store.get("serviceaccounts", namespace, account["name"])
    if current is None or current["metadata"]["uid"] != account["uid"]:
        raise unauthorized()
    extra = {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]}
    if "pod" in bound:
        pod = store.get("pods", namespace, bound["pod"]["name"])
        if pod is None or pod["metadata"]["uid"] != bound["pod"]["uid"]:
            raise unauthorized()  # a token expires with the pod to which it is bound
        extra["authentication.kubernetes.io/pod-name"] = [bound["pod"]["name"]]
        extra["authentication.kubernetes.io/pod-uid"] = [bound["pod"]["uid"]]
    return service_account(namespace, account["name"], account["uid"], extra)


def _by_certificate(certificate: Mapping[str, Any], der: bytes) -> User:
    names: list[str] = []
    groups: list[str] = []
    for attributes in certificate.get("subject", ()):
        for key, value in attributes:
            if key == "commonName":
                names.append(value)
            elif key == "organizationName":
                groups.append(value)
    if not names:
        raise unauthorized()
    digest = hashlib.sha256(der).hexdigest()
    extra = {"authentication.kubernetes.io/credential-id": [f"X509SHA256={digest}"]}
    return User(names[-1], (*groups, "system:authenticated"), "", extra)


def impersonate(store: Store, user: User, headers: Mapping[str, str], groups: Sequence[str], asked: Attributes) -> User:
    """Return the impersonated user, if the requesting user may impersonate it.

    The error names the request, not the impersonated user: the text of constrained impersonation in 1.36.
    """
    name = headers.get("Impersonate-User", "")
    if not name:
        if groups:
            raise ApiError(400, "BadRequest", "requested [{Group  x  }] without impersonating a user")
        return user
    if name.startswith("system:serviceaccount:") and name.count(":") == 3:
        _, _, namespace, account = name.split(":")
        attributes = Attributes("impersonate", "", "serviceaccounts", "", namespace, account)
        become = service_account(namespace, account)
        mode = "serviceaccount"
    else:
        attributes = Attributes("impersonate", "", "users", "", "", name)
        become = User(name, ())
        mode = "user-info"
    for needed in (attributes, *(Attributes("impersonate", "", "groups", "", "", group) for group in groups)):
        if authorize(store, user, needed) is None:
            raise replace(asked, verb=f"impersonate-on:{mode}:{asked.verb}").refusal(user.name)
    chosen = list(groups) or list(become.groups)
    if "system:authenticated" not in chosen and name != ANONYMOUS.name:
        chosen.append("system:authenticated")
    return User(name, tuple(chosen), headers.get("Impersonate-Uid", ""))


# -- authorization


def authorize(store: Store, user: User, asked: Attributes) -> str | None:
    """Return why it is allowed (an empty text for the superuser group); None if no rule allows it."""
    if "system:masters" in user.groups:
        return ""
    for reason, rule in rules_for(store, user, asked.namespace):
        if rule_allows(rule, asked):
            return reason
    return None


def check(store: Store, user: User, asked: Attributes) -> None:
    """Raise the 403 unless the request is allowed."""
    if authorize(store, user, asked) is None:
        raise asked.refusal(user.name)


def rules_for(store: Store, user: User, namespace: str) -> Iterator[tuple[str, Object]]:
    """Yield (reason, rule) for every rule that applies to the user cluster-wide or in a namespace."""
    for binding in store.list(f"clusterrolebindings.{RBAC}"):
        subject = _bound(binding, user, "")
        if subject:
            yield from _granted(store, binding, "", subject)
    if namespace:
        for binding in store.list(f"rolebindings.{RBAC}", namespace):
            subject = _bound(binding, user, namespace)
            if subject:
                yield from _granted(store, binding, namespace, subject)


def _bound(binding: Object, user: User, namespace: str) -> str:
    """Return the subject of a binding that matches the user, as text; "" if none does."""
    for subject in binding.get("subjects") or []:
        kind, name = subject.get("kind"), subject.get("name", "")
        if kind == "User" and name == user.name:
            return f'User "{name}"'
        if kind == "Group" and name in user.groups:
            return f'Group "{name}"'
        if kind == "ServiceAccount":
            home = subject.get("namespace") or namespace
            if user.name == f"system:serviceaccount:{home}:{name}":
                return f'ServiceAccount "{name}/{home}"'
    return ""


def _granted(store: Store, binding: Object, namespace: str, subject: str) -> Iterator[tuple[str, Object]]:
    reference = binding.get("roleRef", {})
    name = reference.get("name", "")
    if reference.get("kind") == "Role":
        role = store.get(f"roles.{RBAC}", namespace, name)
    else:
        role = store.get(f"clusterroles.{RBAC}", None, name)
    if role is None:
        return
    bound = f"{binding['metadata']['name']}/{namespace}" if namespace else binding["metadata"]["name"]
    why = f'RBAC: allowed by {binding["kind"]} "{bound}" of {reference.get("kind")} "{name}" to {subject}'
    for rule in role.get("rules") or []:
        yield why, rule


def _any(patterns: Sequence[str], value: str) -> bool:
    return "*" in patterns or value in patterns


def rule_allows(rule: Object, asked: Attributes) -> bool:
    """Return whether one PolicyRule covers a request (pkg/apis/rbac/v1 evaluation helpers)."""
    if not _any(rule.get("verbs") or (), asked.verb):
        return False
    if asked.path:
        return any(_path_matches(pattern, asked.path) for pattern in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames") or ()
    if not _any(rule.get("apiGroups") or (), asked.group) or (names and asked.name not in names):
        return False
    resources = rule.get("resources") or ()
    if not asked.subresource:
        return _any(resources, asked.resource)
    return bool({"*", f"{asked.resource}/{asked.subresource}", f"*/{asked.subresource}"} & set(resources))


def _path_matches(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


__all__ = [
    "ANONYMOUS",
    "Attributes",
    "User",
    "authenticate",
    "authorize",
    "by_token",
    "check",
    "impersonate",
    "qualified",
    "rules_for",
    "service_account",
]
