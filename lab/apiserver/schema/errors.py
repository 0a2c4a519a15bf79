"""The error of the API: one exception, rendered as a `Status` object.

    ApiError
      built by: not_found, already_exists, conflict, forbidden, invalid, bad_request, expired, gone_quota ...

The sentences are the ones of k8s.io/apimachinery `api/errors` as recorded from a 1.36 server (api-contract).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "ApiError",
    "Cause",
    "already_exists",
    "bad_request",
    "conflict",
    "duplicate",
    "expired",
    "forbidden",
    "forbidden_field",
    "invalid",
    "invalid_value",
    "method_not_allowed",
    "not_found",
    "qualified",
    "quote",
    "required",
    "too_long",
    "too_many_requests",
    "unsupported",
]


class ApiError(Exception):
    """An API error: HTTP code, machine-readable reason, message, optional details."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}

    def status(self) -> dict[str, Any]:
        """Return the `Status` object for the client."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        body["code"] = self.code
        return body


@dataclass(frozen=True, slots=True)
class Cause:
    """One invalid field, as in `details.causes[]`."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def quote(value: Any) -> str:
    """Format a value as Go's field errors do: strings quoted, numbers and booleans bare, null."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value is None:
        return "null"
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def required(field: str, detail: str = "") -> Cause:
    """Return the error that the field is required."""
    return Cause(field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def invalid_value(field: str, value: Any, detail: str) -> Cause:
    """Return the error that the field's value is invalid."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {quote(value)}: {detail}")


def unsupported(field: str, value: Any, supported: Iterable[str]) -> Cause:
    """Return the error that the value is not a member of the enum."""
    listed = ", ".join(f'"{word}"' for word in supported)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {quote(value)}: supported values: {listed}")


def duplicate(field: str, value: Any) -> Cause:
    """Return the error that two list elements share a unique value."""
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {quote(value)}")


def forbidden_field(field: str, detail: str) -> Cause:
    """Return the error that the field may not be set or changed here."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {detail}")


def not_found_field(field: str, value: Any) -> Cause:
    """Return the error that the named object does not exist."""
    return Cause(field, "FieldValueNotFound", f"Not found: {quote(value)}")


def too_long(field: str, limit: int) -> Cause:
    """Return the error that the field has too many bytes."""
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def qualified(name: str, group: str) -> str:
    """Return `jobs.batch` for a grouped resource and `pods` for one of core."""
    return f"{name}.{group}" if group else name


def _details(name: str, group: str, kind: str, **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    return {**details, **more}


def not_found(plural: str, group: str, name: str) -> ApiError:
    """404: the object does not exist."""
    return ApiError(404, "NotFound", f'{qualified(plural, group)} "{name}" not found', _details(name, group, plural))


def already_exists(plural: str, group: str, name: str) -> ApiError:
    """409: an object with this name already exists."""
    return ApiError(
        409, "AlreadyExists", f'{qualified(plural, group)} "{name}" already exists', _details(name, group, plural)
    )


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(plural: str, group: str, name: str, why: str = MODIFIED) -> ApiError:
    """409: the object has changed since the writer read it."""
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}',
        _details(name, group, plural),
    )


def forbidden(plural: str, group: str, name: str, why: str) -> ApiError:
    """403: an authorizer or an admission plugin rejected the request."""
    subject = f'{qualified(plural, group)} "{name}"' if name else qualified(plural, group)
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", _details(name, group, plural))


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """422: the object is invalid; every invalid field is a cause."""
    texts = list(dict.fromkeys(str(cause) for cause in causes))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return ApiError(
        422,
        "Invalid",
        f'{qualified(kind, group)} "{name}" is invalid: {listed}',
        _details(
            name, group, kind, causes=[{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
        ),
    )


def bad_request(message: str) -> ApiError:
    """400: the request cannot be parsed."""
    return ApiError(400, "BadRequest", message)


def method_not_allowed(message: str = "the server does not allow this method on the requested resource") -> ApiError:
    """405: the path exists, but does not support the verb."""
    return ApiError(405, "MethodNotAllowed", message, {})


def expired(message: str) -> ApiError:
    """410: the resourceVersion (or continue token) is older than the kept history."""
    return ApiError(410, "Expired", message)


def too_many_requests(message: str, seconds: int = 1, causes: Sequence[dict[str, Any]] = ()) -> ApiError:
    """429: retry later (also for an eviction that violates a disruption budget)."""
    details: dict[str, Any] = {"retryAfterSeconds": seconds} if seconds else {}
    if causes:
        details["causes"] = list(causes)
    return ApiError(429, "TooManyRequests", message, details)
