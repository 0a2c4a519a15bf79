"""Options of the query and the options body: dry run, field validation, pagination, deletion options.

Invalid numbers and enum values are rejected as by the API server.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .paths import is_true
from .schema.errors import ApiError, bad_request, expired, forbidden_field, invalid, invalid_value, unsupported
from .schema.types import Decoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .schema.values import Object

FIELD_VALIDATION = ("", "Ignore", "Warn", "Strict")
POLICIES = ("Foreground", "Background", "Orphan")


def number(query: Mapping[str, str], name: str) -> int | None:
    """Parse an integer parameter; 400 for any other text."""
    text = query.get(name)
    if text is None or text == "":
        return None
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def dry_run(values: list[str], options_kind: str) -> bool:
    """Return whether dryRun=All is given; 422 for any other value."""
    if any(value != "All" for value in values):
        raise invalid(options_kind, "meta.k8s.io", "", [unsupported("dryRun", values, ["All"])])
    return bool(values)


def field_validation(query: Mapping[str, str], options_kind: str) -> str:
    """Return Ignore, Warn (the default) or Strict."""
    asked = query.get("fieldValidation", "")
    if asked not in FIELD_VALIDATION:
        raise invalid(options_kind, "meta.k8s.io", "", [unsupported("fieldValidation", asked, FIELD_VALIDATION)])
    return asked or "Warn"


@dataclass(slots=True)
class ListOptions:
    """The options of a list or a watch."""

    label_selector: str
    field_selector: str
    limit: int
    start: str  # the key after which the page starts
    revision: int | None  # of the snapshot to which a continue token is pinned, or that is requested exactly
    resource_version: str
    match: str
    timeout_s: int | None
    bookmarks: bool
    send_initial: bool

    @classmethod
    def read(cls, query: Mapping[str, str]) -> ListOptions:
        """Parse the query of a list or a watch."""
        token = query.get("continue", "")
        version = query.get("resourceVersion", "")
        if version:
            number(query, "resourceVersion")
        revision, start = _read_token(token) if token else (None, "")
        match = query.get("resourceVersionMatch", "")
        if match and match not in ("Exact", "NotOlderThan"):
            cause = unsupported("resourceVersionMatch", match, ["Exact", "NotOlderThan", ""])
            raise invalid("ListOptions", "meta.k8s.io", "", [cause])
        if match and not version and not query.get("sendInitialEvents"):
            cause = forbidden_field(
                "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
            )
            raise invalid("ListOptions", "meta.k8s.io", "", [cause])
        _initial_events(query, match)
        if match == "Exact" and version not in ("", "0"):
            revision = int(version)
        return cls(
            query.get("labelSelector", ""),
            query.get("fieldSelector", ""),
            number(query, "limit") or 0,
            start,
            revision,
            version,
            match,
            number(query, "timeoutSeconds"),
            is_true(query.get("allowWatchBookmarks")) if "allowWatchBookmarks" in query else False,
            is_true(query.get("sendInitialEvents")) if "sendInitialEvents" in query else False,
        )


def _initial_events(query: Mapping[str, str], match: str) -> None:
    if "sendInitialEvents" not in query:
        return
    if "watch" not in query or not is_true(query["watch"]):
        cause = forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list")
        raise invalid("ListOptions", "meta.k8s.io", "", [cause])
    if match != "NotOlderThan":
        text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise invalid("ListOptions", "meta.k8s.io", "", [forbidden_field("resourceVersionMatch", text)])


def make_token(revision: int, start: str) -> str:
    """Return an opaque continue token: start of the next page, and its snapshot."""
    body = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(body.encode()).rstrip(b"=").decode()


def _read_token(token: str) -> tuple[int, str]:
    try:
        body = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(body["rv"]), str(body["start"])
    except (ValueError, KeyError, TypeError):
        raise bad_request("continue key is not valid: illegal base64 data") from None


def token_expired(start: str) -> ApiError:
    """Return the 410 for a continue token without its snapshot, with a token for an inconsistent continuation."""
    error = expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )
    error.details = {"continue": make_token(-1, start)}
    return error


@dataclass(slots=True)
class DeleteOptions:
    """The options of a deletion, from the body and from the query."""

    grace: int | None
    propagation: str | None
    uid: str | None
    resource_version: str | None
    dry_run: bool

    @classmethod
    def read(cls, query: Mapping[str, str], dry: list[str], body: Object | None) -> DeleteOptions:
        """Merge query and body; the body takes precedence."""
        body = Decoder("DeleteOptions", "v1").decode(body or {}, "meta.v1.DeleteOptions")
        grace = body.get("gracePeriodSeconds", number(query, "gracePeriodSeconds"))
        orphan = body.get("orphanDependents")
        if orphan is None and "orphanDependents" in query:
            orphan = is_true(query["orphanDependents"])
        policy = body.get("propagationPolicy") or query.get("propagationPolicy") or None
        causes = []
        if orphan is not None and policy is not None:
            causes.append(
                invalid_value(
                    "propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set"
                )
            )
        if policy is not None and policy not in POLICIES:
            causes.append(unsupported("propagationPolicy", policy, [*POLICIES, "nil"]))
        if causes:
            raise invalid("DeleteOptions", "meta.k8s.io", "", causes)
        if orphan is not None:
            policy = "Orphan" if orphan else "Background"
        preconditions = body.get("preconditions") or {}
        asked = dry_run([*dry, *(body.get("dryRun") or [])], "DeleteOptions")
        return cls(grace, policy, preconditions.get("uid"), preconditions.get("resourceVersion"), asked)


__all__ = ["DeleteOptions", "ListOptions", "dry_run", "field_validation", "make_token", "number", "token_expired"]
