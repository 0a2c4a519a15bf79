"""The client of one Kubernetes API server; every call has a deadline.

Requests are raw JSON over the connection pool of the official client, which credentials.py prepares. Typed lists cost
seconds and gigabytes at 5,000 nodes, and the official Watch loses events.
"""

from __future__ import annotations

import builtins
import contextlib
import email.utils
import importlib.metadata
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

from ..redact import safe
from ..unstructured import Unstructured, as_map
from .answers import Page, Pages, T, read_page, same_kind, the_object, watched
from .credentials import api_client, origin
from .errors import ApiError, ClusterError, Forbidden, Gone, NotFound, Unreachable, api_error
from .http_client import DEADLINE_S, SILENCE_S, HttpClient, Response
from .kubeconfig import ClusterSource, locate
from .reading import CancelToken, chunks, is_loopback, lines, read_all

# Inside the class, `list` is the method.
Items: TypeAlias = list[Any]

PAGE = 500  # 250-500 balances round trips and memory at 20 ms latency (measured at 5,000 nodes)
LIST_S = 60.0  # for all pages: 150,000 pods, the most that Kubernetes is tested with, are 300 pages


@dataclass(frozen=True, slots=True)
class Allowed:
    """The result of a SelfSubjectAccessReview."""

    allowed: bool
    reason: str = ""


def client_version() -> str:
    """Return the version of the installed Kubernetes client, without importing it."""
    return importlib.metadata.version("kubernetes")


def path(
    resource: str, name: str = "", *, namespace: str = "", group: str = "", version: str = "v1", sub: str = ""
) -> str:
    """Build the URL path of a resource: core group unless `group` is given, cluster scope unless `namespace` is."""
    parts = ["", "apis", group, version] if group else ["", "api", version]
    if namespace:
        parts += ["namespaces", namespace]
    parts += [part for part in (resource, name, sub) if part]
    return "/".join(quote(part, safe="") for part in parts)


class Kube(HttpClient):
    """One API server, accessed through one context; threads may share it."""

    def __init__(self, client: Any, source: ClusterSource) -> None:
        super().__init__(client, source.server, origin(source), loopback=is_loopback(source.server))
        self.namespace = source.namespace
        self.context = source.context
        self.authority = source.ca
        self._greeting: tuple[Response, float] | None = None

    @classmethod
    def connect(cls, kubeconfig: str | None = None, context: str | None = None, namespace: str | None = None) -> Kube:
        """Prepare a client without sending a request. Raises ConfigError for unusable settings."""
        source = locate(kubeconfig, context, namespace)
        return cls(api_client(source), source)

    # -- verbs ---------------------------------------------------------------------------------------------------

    def get(self, url_path: str, *, deadline_s: float = DEADLINE_S, **params: Any) -> Any:
        """GET one object."""
        answer = self.request("GET", url_path, params=params, deadline_s=deadline_s).body
        return the_object(answer, url_path, self.where("GET", url_path))

    def create(self, url_path: str, body: Any, *, dry_run: bool = False, deadline_s: float = DEADLINE_S) -> Response:
        """POST an object with strict field validation; a dry run is repeatable, a real create is not."""
        params = {"fieldValidation": "Strict", "fieldManager": "seatrial"} | ({"dryRun": "All"} if dry_run else {})
        try:
            answer = self.request("POST", url_path, params=params, body=body, deadline_s=deadline_s, repeatable=dry_run)
        except ApiError as error:
            error.refused = f"{body.get('kind')} {as_map(body.get('metadata')).get('name') or ''}".strip()
            raise
        same_kind(answer.body, body, self.where("POST", url_path))
        return answer

    def patch(
        self, url_path: str, body: Any, *, strategic: bool = False, deadline_s: float = DEADLINE_S, **params: Any
    ) -> Any:
        """Apply a merge patch; the callers' patches set absolute values, so repeating one is safe.

        ``strategic``: merge lists by their items' key; a plain merge patch replaces them.
        """
        answer = self.request(
            "PATCH",
            url_path,
            params={"fieldValidation": "Strict", "fieldManager": "seatrial"} | params,
            body=body,
            content_type=f"application/{'strategic-' if strategic else ''}merge-patch+json",
            deadline_s=deadline_s,
            repeatable=True,
        )
        return the_object(answer.body, url_path, self.where("PATCH", url_path))

    def delete(self, url_path: str, *, propagation: str = "Background", uid: str = "") -> Any:
        """DELETE one object, only if it still has this `uid` where one is given."""
        options: Unstructured = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
        return self.request("DELETE", url_path, body=options).body

    def list(self, url_path: str, *, deadline_s: float = LIST_S, **params: Any) -> tuple[Items, str]:
        """List all items, page by page, and the resourceVersion to watch from."""
        items: Items = []
        version = ""
        for page, version in self.pages(url_path, deadline_s=deadline_s, **params):  # noqa: B007
            items.extend(page)
        return items, version

    def pages(self, url_path: str, *, deadline_s: float = LIST_S, **params: Any) -> Iterator[tuple[Items, str]]:
        """Yield (items, resourceVersion) page by page; follow the server's token after an expired one."""
        return self.read_pages(url_path, lambda item: item, deadline_s=deadline_s, **params)

    def read_pages(
        self, url_path: str, read: Callable[[Any], T], *, deadline_s: float = LIST_S, **params: Any
    ) -> Iterator[tuple[builtins.list[T], str]]:
        """Yield the same, converted by `read`; each object is dropped before the next one is decoded."""
        where = self.where("GET", url_path)

        def decoded(data: bytes) -> Page[T] | Unreachable:
            try:
                return read_page(data, url_path, where, read)
            except Unreachable as error:
                return error  # an invalid response; a retry would hide it

        pages = Pages(where, deadline_s)
        first = {"limit": PAGE} | params
        token = ""
        while True:
            asked = first | ({"continue": token} if token else {})
            try:
                left_s = max(0.1, pages.left_s)
                page = self.request("GET", url_path, params=asked, deadline_s=left_s, decoder=decoded).body
            except Gone as gone:
                # https://kubernetes.io/docs/reference/using-api/api-concepts/#the-resourceversion-parameter: the error
                # carries a token that continues with a newer, inconsistent view; complete enough for an inventory.
                token = str(gone.details.get("continue") or "")
                if not token:
                    raise
                pages.turn(Page([], token))
                continue
            except Unreachable as error:
                raise (pages.overdue() if pages.left_s <= 0 else error) from error
            if isinstance(page, Unreachable):
                raise page
            yield pages.turn(page), page.version
            if not (token := page.token):
                return

    def watch(
        self,
        url_path: str,
        *,
        resource_version: str,
        timeout_s: float = 60.0,
        cancel_token: CancelToken | None = None,
        **params: Any,
    ) -> Iterator[tuple[str, Unstructured]]:
        """Yield (type, object) from one watch connection until the server ends it; raise Gone for an expired version.

        Bookmarks are yielded, too: the next watch starts at their resourceVersion. Blank and incomplete lines are
        skipped. Another thread may end the watch through `cancel_token`.
        """
        asked = params | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": int(timeout_s),
        }
        end = time.monotonic() + timeout_s + SILENCE_S
        label = self.where("WATCH", url_path)
        with self.open("GET", url_path, asked, end=end, silence_s=timeout_s + 5, cancel_token=cancel_token) as raw:
            if raw.status >= 300:
                raise api_error(
                    label, raw.status, self.decode("WATCH", url_path, raw.status, read_all(raw, end, label))
                )
            for line in lines(raw, end, label):
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                kind, item = (event.get("type"), event.get("object")) if isinstance(event, dict) else (None, None)
                if not isinstance(item, dict):
                    continue
                if kind == "ERROR":
                    code = item.get("code")
                    raise api_error(label, code if isinstance(code, int) else 500, item)
                if kind == "BOOKMARK" or watched(item, url_path, label):
                    yield str(kind), item

    @contextlib.contextmanager
    def log_stream(
        self,
        namespace: str,
        pod: str,
        *,
        deadline_s: float,
        silence_s: float = 60.0,
        cancel_token: CancelToken | None = None,
        **params: str | int | bool | None,
    ) -> Iterator[Iterator[bytes]]:
        """Open a pod's log as an iterator of byte chunks as they come; ``params`` are fields of PodLogOptions."""
        url_path = path("pods", pod, namespace=namespace, sub="log")
        label = self.where("GET", url_path)
        end = time.monotonic() + deadline_s
        with self.open(
            "GET", url_path, params, end=end, silence_s=silence_s, accept="*/*", cancel_token=cancel_token
        ) as raw:
            if raw.status >= 300:
                body = self.decode("GET", url_path, raw.status, read_all(raw, end, label))
                raise self.refusal("GET", url_path, raw.status, body)
            yield chunks(raw, end, label)

    # -- access and version -----------------------------------------------------------------------------------------

    def version(self) -> Unstructured:
        """Return /version: major, minor, gitVersion, platform. Requested once and cached."""
        answer = self._greet()[0].body
        return answer if isinstance(answer, dict) else {}

    def whoami(self) -> str:
        """Return the identity that the server sees; '' on servers older than 1.28."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        url_path = path("selfsubjectreviews", group="authentication.k8s.io")
        try:
            answer = self.request("POST", url_path, body=body, repeatable=True).body
        except NotFound:
            return ""
        status = as_map(same_kind(answer, body, self.where("POST", url_path)).get("status"))
        return safe(as_map(status.get("userInfo")).get("username") or "", 200)

    def server_time_skew(self) -> float | None:
        """Estimate server clock minus ours in seconds (resolution 1 s, from the Date header); None if not reported.

        Uses the response to /version, so it costs no additional request.
        """
        answer, middle = self._greet()
        try:
            return email.utils.parsedate_to_datetime(answer.headers.get("date", "")).timestamp() + 0.5 - middle
        except (TypeError, ValueError):
            return None

    def _greet(self) -> tuple[Response, float]:
        """Return the response to /version, and when it was sent by our clock."""
        if self._greeting is None:
            answer = self.request("GET", "/version", deadline_s=15.0)
            self._greeting = answer, time.time() - answer.seconds / 2
        return self._greeting

    def can(
        self,
        verb: str,
        resource: str,
        *,
        group: str = "",
        subresource: str = "",
        namespace: str | None = None,
        name: str = "",
    ) -> Allowed:
        """Query a permission of this account (SelfSubjectAccessReview); namespace "" is cluster-wide, None our own."""
        attributes = {
            "verb": verb,
            "group": group,
            "resource": resource,
            "subresource": subresource,
            "namespace": self.namespace if namespace is None else namespace,
            "name": name,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
        }
        url_path = path("selfsubjectaccessreviews", group="authorization.k8s.io")
        answer = self.request("POST", url_path, body=body, repeatable=True).body
        status = as_map(same_kind(answer, body, self.where("POST", url_path)).get("status"))
        if not isinstance(status.get("allowed"), bool):
            raise Unreachable(f"{self.where('POST', url_path)}: the answer does not say whether it is allowed")
        reason = status.get("reason") or status.get("evaluationError") or ""
        return Allowed(status.get("allowed") is True and status.get("denied") is not True, safe(reason, 300))

    def require(self, verb: str, resource: str, *, group: str = "", namespace: str | None = None) -> None:
        """Raise Forbidden if the permission is missing, without trying the request; pass if the review fails.

        For requests that most accounts never make: no request exceeds the permissions that are printed for a run.
        """
        try:
            allowed = self.can(verb, resource, group=group, namespace=namespace).allowed
        except ClusterError:
            return
        if not allowed:
            where = self.where(verb.upper(), f"{resource}.{group}".rstrip("."))
            raise Forbidden(where, status=403, message=f"no permission to {verb} {resource}")

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()
