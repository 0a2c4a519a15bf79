"""The errors of the API client, as one small tree.

    ClusterError                    anything below; its text is one line that a user can act on
    ├── ConfigError                 kubeconfig or context missing, broken or unusable: nothing was sent
    ├── Unreachable                 no answer in time: refused, timed out, reset, TLS
    └── ApiError                    the API server answered with an error Status
        ├── Unauthorized            401
        ├── Forbidden               403
        ├── NotFound                404
        ├── Conflict                409 (also AlreadyExists)
        ├── Gone                    410: a resourceVersion or continue token is too old
        └── Invalid                 400, 422: the object was refused by validation

Every message names the server, the verb, the path and the reason, with secrets and control characters removed.
"""

# Named as the API names these errors, without the suffix Error.
# ruff: noqa: N818

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..redact import safe

if TYPE_CHECKING:
    from ..unstructured import Unstructured


class ClusterError(Exception):
    """The cluster did not answer, or refused the request."""


class ConfigError(ClusterError):
    """The kubeconfig, its context or its credentials cannot be used; a usage error."""


class Unreachable(ClusterError):
    """No usable answer from the API server within the deadline."""


class ApiError(ClusterError):
    """An error Status of the API server: `status` (HTTP), `reason`, `message` and `details`.

    `refused` names the object of a refused create ("Service seatrial-r1").
    """

    refused = ""

    def __init__(
        self, where: str, *, status: int, reason: str = "", message: str = "", details: Unstructured | None = None
    ) -> None:
        self.status = status
        self.reason = safe(reason, 100) or f"HTTP {status}"
        self.message = safe(message, 1000)
        self.details: Unstructured = details or {}
        super().__init__(f"{where}: {status} {self.reason}" + (f": {self.message}" if self.message else ""))


class Unauthorized(ApiError):
    """401: the credentials were not accepted."""


class Forbidden(ApiError):
    """403: a missing permission, or a refusal by an admission plugin (quota, PodSecurity, webhook)."""


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409: already exists, or changed in between."""


class Gone(ApiError):
    """410: the resourceVersion has expired; list again."""


class Invalid(ApiError):
    """400 or 422: the request or the object is not valid."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}


def api_error(where: str, status: int, body: Any) -> ApiError:
    """Return the error for an HTTP `status` and the decoded `body` (a Status object, or any content of a proxy)."""
    fields: Unstructured = body if isinstance(body, dict) else {"message": str(body or "")}
    # The Status of an expired continue token has a token for the rest of the list in its metadata.
    parts = [fields.get("details"), fields.get("metadata")]
    details = {key: value for part in parts if isinstance(part, dict) for key, value in part.items()}
    return _BY_STATUS.get(status, ApiError)(
        where,
        status=status,
        reason=str(fields.get("reason") or ""),
        message=str(fields.get("message") or ""),
        details=details,
    )
