"""Validation of security contexts: user and groups, privileges, seccomp and AppArmor profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import Cause, invalid_value, required, unsupported

if TYPE_CHECKING:
    from ..values import Object

PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
LARGEST_ID = 2147483647
CHANGES = ("Always", "OnRootMismatch")


def of_pod(context: Any, at: str) -> list[Cause]:
    """Validate a pod's security context."""
    context = context or {}
    causes = _ids(context, at, ("runAsUser", "runAsGroup", "fsGroup"))
    for index, group in enumerate(context.get("supplementalGroups") or []):
        causes += _id(group, f"{at}.supplementalGroups[{index}]")
    change = context.get("fsGroupChangePolicy")
    if change is not None and change not in CHANGES:
        causes.append(unsupported(f"{at}.fsGroupChangePolicy", change, CHANGES))
    return causes + _profiles(context, at)


def of_container(context: Any, at: str) -> list[Cause]:
    """Validate a container's security context."""
    context = context or {}
    causes = _ids(context, at, ("runAsUser", "runAsGroup"))
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            text = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            causes.append(invalid_value(at, context, text))
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or []):
            text = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            causes.append(invalid_value(at, context, text))
    return causes + _profiles(context, at)


def _ids(context: Object, at: str, names: tuple[str, ...]) -> list[Cause]:
    return [cause for name in names if name in context for cause in _id(context[name], f"{at}.{name}")]


def _id(value: int, at: str) -> list[Cause]:
    if 0 <= value <= LARGEST_ID:
        return []
    return [invalid_value(at, value, f"must be between 0 and {LARGEST_ID}, inclusive")]


def _profiles(context: Object, at: str) -> list[Cause]:
    causes: list[Cause] = []
    for field, word in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        profile = context.get(field)
        if profile is None:
            continue
        kind, own = profile.get("type", ""), profile.get("localhostProfile")
        if not kind:
            causes.append(required(f"{at}.{field}.type", f"type is required when {field} is set"))
        elif kind not in PROFILES:
            causes.append(unsupported(f"{at}.{field}.type", kind, PROFILES))
        if kind == "Localhost" and not own:
            text = f"must be set when {word} type is Localhost"
            causes.append(required(f"{at}.{field}.localhostProfile", text))
        elif kind != "Localhost" and own is not None:
            text = f"can only be set when {word} type is Localhost"
            causes.append(invalid_value(f"{at}.{field}.localhostProfile", own, text))
    return causes
