"""HTTP requests to one server: credentials, retries, deadlines.

A request has a connect timeout, a read timeout, and a deadline for the whole response. Only safe requests are repeated:
reads and deletions on any temporary failure. All others are repeated only on 429, which a server sends before it
processes the request.
"""

from __future__ import annotations

import contextlib
import gc
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ..redact import safe
from .errors import ApiError, ConfigError, Unreachable, api_error
from .reading import CancelToken, Params, pause, query, read_all, transport, warning

CONNECT_S = 5.0
SILENCE_S = 15.0
DEADLINE_S = 30.0
_BROKEN_CREDENTIALS = re.compile(r"PEM lib|NO_START_LINE|KEY_VALUES_MISMATCH|NO_CERTIFICATE_OR_CRL_FOUND|BAD_BASE64")
_ATTEMPTS = 4
_REMEMBERED = 200
_TEMPORARY = frozenset({429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Response:
    """One response: the decoded body, the headers in lower case, and the texts of its `Warning:` headers."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the cyclic collector: decoding makes millions of containers that all survive (2-7x CPU otherwise)."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class HttpClient:
    """A client of one server, over the official client's connection pool; threads may share it."""

    def __init__(self, client: Any, server: str, origin: str, *, loopback: bool) -> None:
        self._client = client
        self._pool = client.rest_client.pool_manager
        self._auth_lock = threading.Lock()
        self.server = server
        self.origin = origin
        self.loopback = loopback
        # As client-go does (tools/clientcmd, ClientConfig: "only try to read the auth information if we are secure").
        self.sends_credentials = not server.lower().startswith("http://")
        self.seconds: deque[float] = deque(maxlen=_REMEMBERED)  # response times of the last requests
        self.software = ""  # the Server header of the last response; Kubernetes itself sends none

    def request(
        self,
        verb: str,
        url_path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        content_type: str = "application/json",
        deadline_s: float = DEADLINE_S,
        repeatable: bool | None = None,
        decoder: Callable[[bytes], Any] = json.loads,
    ) -> Response:
        """Send one request and decode its JSON response; raise a ClusterError for anything but 2xx.

        `decoder`: for responses without an error; it raises ValueError for anything but JSON.

        `repeatable` requests (GET, DELETE and those that the caller marks) are repeated on 429, 5xx and lost
        connections. All others are repeated only on 429, which the server sends before it processes a request.
        """
        may_repeat = verb in {"GET", "DELETE"} if repeatable is None else repeatable
        end = time.monotonic() + deadline_s
        for attempt in range(1, _ATTEMPTS + 1):
            last = attempt == _ATTEMPTS
            try:
                answer = self._once(verb, url_path, params, body, content_type, end, decoder)
            except Unreachable:
                wait = pause(attempt, "")
                if last or not may_repeat or time.monotonic() + wait >= end:
                    raise
            else:
                if answer.status < 300:
                    return answer
                repeat = answer.status == 429 or (may_repeat and answer.status in _TEMPORARY)
                wait = pause(attempt, answer.headers.get("retry-after", ""))
                if last or not repeat or time.monotonic() + wait >= end:
                    raise self.refusal(verb, url_path, answer.status, answer.body)
            time.sleep(wait)
        raise Unreachable(f"{self.where(verb, url_path)}: no attempt was made")  # pragma: no cover

    def _once(
        self,
        verb: str,
        url_path: str,
        params: Params | None,
        body: Any,
        content_type: str,
        end: float,
        decoder: Callable[[bytes], Any],
    ) -> Response:
        begin = time.monotonic()
        with self.open(verb, url_path, params, body=body, content_type=content_type, end=end, compress=True) as raw:
            data = read_all(raw, end, self.where(verb, url_path))
            headers = {key.lower(): value for key, value in raw.headers.items()}
            warnings = tuple(warning(text) for text in raw.headers.getlist("Warning"))
        self.software = headers.get("server", "")
        took = time.monotonic() - begin
        self.seconds.append(took)
        decoder = decoder if raw.status < 300 else json.loads
        return Response(raw.status, self.decode(verb, url_path, raw.status, data, decoder), headers, warnings, took)

    def decode(
        self, verb: str, url_path: str, status: int, data: bytes, decoder: Callable[[bytes], Any] = json.loads
    ) -> Any:
        """Decode a JSON body; the text of an error that is not JSON is kept as its message."""
        try:
            with gc_paused():
                return decoder(data or b"{}")
        except ValueError as error:
            text = data[:500].decode("utf-8", "replace")
            if status >= 300:
                return {"message": text}
            raise Unreachable(
                f"{self.where(verb, url_path)}: the answer is not JSON, is this a Kubernetes API? {safe(text, 120)!r}"
            ) from error

    @contextlib.contextmanager
    def open(
        self,
        verb: str,
        url_path: str,
        params: Params | None,
        *,
        end: float,
        body: Any = None,
        content_type: str = "application/json",
        silence_s: float = SILENCE_S,
        accept: str = "application/json",
        cancel_token: CancelToken | None = None,
        compress: bool = False,
    ) -> Iterator[Any]:
        """Open one exchange and always return the connection to the pool; convert transport errors to Unreachable."""
        import urllib3  # noqa: PLC0415  (comes with kubernetes)

        remaining = end - time.monotonic()
        if remaining <= 0:
            raise Unreachable(f"{self.where(verb, url_path)}: deadline passed before it was sent")
        headers = self._headers(verb, url_path, accept, compress=compress)
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = json.dumps(body).encode()
        raw: Any = None
        try:
            raw = self._pool.request(
                verb,
                self.server + url_path + query(params),
                body=data,
                headers=headers,
                preload_content=False,
                redirect=False,
                retries=False,
                timeout=urllib3.Timeout(connect=min(CONNECT_S, remaining), read=min(silence_s, remaining)),
            )
            if cancel_token is not None:
                cancel_token.attach(raw)
            yield raw
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            if _BROKEN_CREDENTIALS.search(str(error)):  # read only when the first connection is made
                raise ConfigError(
                    f"{self.origin}: client certificate, key or CA is not usable: {safe(error, 200)}"
                ) from error
            raise Unreachable(f"{self.where(verb, url_path)}: {transport(error)}") from error
        finally:
            if raw is not None:
                raw.close()  # a finished response has returned its connection already; one read in part must not

    def _headers(self, verb: str, url_path: str, accept: str, *, compress: bool) -> dict[str, str]:
        headers = {"Accept": accept, "User-Agent": "seatrial"}
        if compress and not self.loopback:
            headers["Accept-Encoding"] = "gzip"  # 11:1 on nodes; not worth the CPU on loopback, and delays streams
        with self._auth_lock:  # a token refresh (exec plugin, rotated service account) is not thread-safe
            try:
                self._client.update_params_for_auth(headers, [], ["BearerToken"], url_path, verb, None)
            except Exception as error:  # the refresh hook runs foreign plugins that raise any exception
                raise ConfigError(f"cannot renew the credentials of {self.origin}: {safe(error, 300)}") from error
        for key in [key for key in headers if key.lower() == "authorization"]:
            value = headers.pop(key)
            if self.sends_credentials:
                headers[key] = value.strip()  # a token file ends in a newline (client-go trims it, too)
        return headers

    def upgrade_options(self, verb: str, url_path: str) -> dict[str, Any]:
        """Return options for websocket-client to connect as this client does: credentials, TLS settings, proxy."""
        from urllib3.util.ssl_ import create_urllib3_context  # noqa: PLC0415  (comes with kubernetes)

        settings, pool = self._client.configuration, self._pool.connection_pool_kw
        headers = self._headers(verb, url_path, "*/*", compress=False)
        options: dict[str, Any] = {"header": [f"{key}: {value}" for key, value in headers.items()]}
        proxy = urlsplit(settings.proxy or "")
        if proxy.hostname and (getattr(self._pool, "proxy", None) or getattr(self._pool, "proxy_url", None)):
            kind = proxy.scheme if proxy.scheme.startswith("socks") else "http"
            options |= {"http_proxy_host": proxy.hostname, "http_proxy_port": proxy.port, "proxy_type": kind}
            if proxy.username:
                options["http_proxy_auth"] = (proxy.username, proxy.password or "")
        else:  # the official client has read the environment's proxy settings already, and uses no proxy
            options["http_no_proxy"] = ["*"]
        if self.server.lower().startswith("https://"):
            context = pool.get("ssl_context") or create_urllib3_context(cert_reqs=pool.get("cert_reqs"))
            if pool.get("ca_certs") or pool.get("ca_cert_data"):
                context.load_verify_locations(pool.get("ca_certs"), cadata=pool.get("ca_cert_data"))
            elif context.verify_mode:
                context.load_default_certs()
            if pool.get("cert_file"):
                context.load_cert_chain(pool["cert_file"], pool.get("key_file"))
            context.check_hostname = bool(context.verify_mode) and pool.get("assert_hostname") is not False
            name = {"server_hostname": pool["server_hostname"]} if pool.get("server_hostname") else {}
            options["sslopt"] = {"context": context, **name}
        return options

    def where(self, verb: str, url_path: str) -> str:
        """Name server, verb and path, for messages."""
        return f"{safe(self.server, 200)}: {verb} {safe(url_path, 300)}"

    def refusal(self, verb: str, url_path: str, status: int, body: Any) -> ApiError:
        """Return the error for an invalid response."""
        anonymous = status in {401, 403} and not self.sends_credentials
        where = self.where(verb, url_path) + (" (plain http: no credentials are sent)" if anonymous else "")
        return api_error(where, status, body)
