"""The HTTPS server: routes a request to a verb; start and stop.

It listens on loopback only, and on sockets that are passed to it (the pod network's).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml
from aiohttp import web

from . import deleting, discovery, openapi, podparts, reading, streams, subresources, writing
from .access import Attributes, authenticate, authorize, check, impersonate
from .answers import page_not_found, raw, refuse, respond, text
from .bodies import mapping, media_type, of_kind, read
from .call import Call
from .paths import route
from .reviews import REVIEWS
from .schema.errors import ApiError, method_not_allowed

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Sequence

    from .access import User
    from .authority import Authority
    from .paths import Route
    from .schema.kinds import Kind
    from .store import Store

    Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

LOG = logging.getLogger("sim.api")
ADMIN, NOBODY = "kubernetes-admin", "user-without-rights"
SERVICE_ADDRESS = "10.96.0.1"
HOSTS = (
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    SERVICE_ADDRESS,
)
HEALTH = ("healthz", "livez", "readyz")
HEALTH_CHECKS = (
    "ping",
    "log",
    "etcd",
    "informer-sync",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/rbac/bootstrap-roles",
)
PATHS = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
_NAME_FIELD = re.compile(r"(?:^|,)metadata\.name==?([^,]+)")


def unserved() -> ApiError:
    """Return the 404 for an unknown resource."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


@dataclass(slots=True)
class Server:
    """A running API server."""

    url: str
    kubeconfig: str  # text, for the administrator
    nobody_kubeconfig: str  # text, for a user without permissions
    authority: Authority
    _runner: web.ServerRunner

    async def stop(self) -> None:
        """Close the listeners and every connection; on return, no socket of this server is open."""
        server = self._runner.server
        transports = [each.transport for each in server.connections if each.transport] if server else []
        await self._runner.cleanup()
        for transport in transports:
            with contextlib.suppress(AttributeError):  # raised by Python 3.11.2 if the connection has ended
                transport.abort()  # closing would wait for the client's TLS close alert
        await asyncio.sleep(0)  # the loop closes the sockets in its next iteration


async def serve(
    store: Store,
    *,
    kubelet: podparts.Kubelet | None = None,
    version: str = "v1.36.2",
    port: int = 0,
    sockets: Sequence[socket.socket] = (),
    hosts: Sequence[str] = (),
    around: Callable[[Handler], Handler] | None = None,
) -> Server:
    """Serve a store over HTTPS on 127.0.0.1 and on further listening sockets; return when it is ready.

    `hosts` are further names and addresses for the server's certificate (the API Service's address in the pod network).
    `around` wraps the handler of all requests.
    """
    front = Front(store, kubelet or podparts.NoKubelet(), version)
    handler = around(front.handle) if around else front.handle
    runner = web.ServerRunner(web.Server(handler, handler_cancellation=True, access_log=None), shutdown_timeout=1.0)
    await runner.setup()
    try:
        context = store.authority.server_context([*HOSTS, *hosts])
        site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=context)
        await site.start()
        for extra in sockets:
            await web.SockSite(runner, extra, ssl_context=context).start()
    except BaseException:  # also on cancellation: its port must be released
        await runner.cleanup()
        raise
    bound: Any = site._server  # noqa: SLF001 - aiohttp offers no other way to learn the chosen port
    front.address = f"127.0.0.1:{bound.sockets[0].getsockname()[1]}"
    url = f"https://{front.address}"
    admin = kubeconfig(store.authority, url, ADMIN, store.authority.static_token(ADMIN, ["system:masters"]))
    nobody = kubeconfig(store.authority, url, NOBODY, store.authority.static_token(NOBODY))
    return Server(url, admin, nobody, store.authority, runner)


def kubeconfig(authority: Authority, url: str, user: str, token: str, namespace: str = "default") -> str:
    """Return a kubeconfig with one context."""
    ca = base64.b64encode(authority.ca_pem.encode()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sim", "cluster": {"server": url, "certificate-authority-data": ca}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "sim", "context": {"cluster": "sim", "user": user, "namespace": namespace}}],
        "current-context": "sim",
    }
    return yaml.safe_dump(document, sort_keys=False)


SOFTWARE = "seatrial-sim"
"""The Server header, by which a client recognises a simulated cluster."""


class Front:
    """The request handler: it authenticates, authorizes, and calls the verb."""

    def __init__(self, store: Store, kubelet: podparts.Kubelet, version: str) -> None:
        self.store = store
        self.kubelet = kubelet
        self.version = version
        self.address = ""
        self._aggregated: dict[tuple[str, bool], tuple[int, bytes, str]] = {}

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Handle one request; the Server header marks the response as simulated."""
        answer = await self._judged(request)
        if not answer.prepared:
            answer.headers["Server"] = SOFTWARE
        return answer

    async def _judged(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except ApiError as error:
            return refuse(error)
        except ConnectionError:
            raise
        except Exception:  # a server returns 500 and continues; the traceback is logged
            LOG.exception("%s %s", request.method, request.path)
            return refuse(
                ApiError(500, "InternalError", "Internal error occurred: the simulated server failed; see its log")
            )

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = route(request.method, request.path, request.rel_url.query)
        attributes = asked.attributes()
        if asked.is_resource and asked.verb in ("list", "watch", "deletecollection"):
            named = _NAME_FIELD.search(request.rel_url.query.get("fieldSelector", ""))
            if named:
                attributes = Attributes(
                    attributes.verb, attributes.group, attributes.resource, "", attributes.namespace, named[1]
                )
        user = self._who(request, attributes)
        check(self.store, user, attributes)
        if not asked.is_resource:
            return self._plain(request, asked)
        kind = self.store.kinds.by_path.get((asked.group, asked.version, asked.resource))
        if kind is None:
            served = self.store.kinds.groups().get(asked.group, {})
            if asked.group and not served:
                return page_not_found()
            raise unserved()
        return await self._resource(request, asked, kind, user)

    def _who(self, request: web.BaseRequest, asked: Attributes) -> User:
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport else None
        tls = transport.get_extra_info("ssl_object") if transport and certificate else None
        der = tls.getpeercert(binary_form=True) if tls else None
        user = authenticate(
            self.store, self.store.authority, request.headers.get("Authorization", ""), certificate, der
        )
        return impersonate(self.store, user, request.headers, request.headers.getall("Impersonate-Group", []), asked)

    # -- paths that are not resources

    def _plain(self, request: web.BaseRequest, asked: Route) -> web.StreamResponse:
        parts = [part for part in asked.path.split("/") if part]
        first = parts[0] if parts else ""
        if request.method not in ("GET", "HEAD"):
            return page_not_found()
        if first in HEALTH:
            return self._health(request, parts)
        if first in ("api", "apis"):
            return self._discovery(request, parts)
        if parts[:2] == ["openapi", "v3"]:
            return self._openapi(parts[2:])
        documents: dict[str, Any] = {
            "": lambda: {"paths": PATHS},
            "version": lambda: discovery.version_info(self.version),
            "openid/v1/jwks": self.store.authority.jwks,
        }
        document = documents.get("/".join(parts))
        return respond(document()) if document else page_not_found()

    def _openapi(self, parts: list[str]) -> web.Response:
        if not parts:
            return respond(openapi.index(self.store.kinds))
        version = parts[-1]
        group = parts[1] if len(parts) == 3 and parts[0] == "apis" else ""
        good = len(parts) == (3 if group else 2)
        document = openapi.document(self.store.kinds, group, version, self.version) if good else None
        return respond(document) if document else page_not_found()

    def _health(self, request: web.BaseRequest, parts: list[str]) -> web.Response:
        if len(parts) > 1:
            return text("ok") if "/".join(parts[1:]) in HEALTH_CHECKS else page_not_found()
        if "verbose" not in request.rel_url.query:
            return text("ok")
        return text("".join(f"[+]{name} ok\n" for name in HEALTH_CHECKS) + f"{parts[0]} check passed\n")

    def _discovery(self, request: web.BaseRequest, parts: list[str]) -> web.Response:
        kinds = self.store.kinds
        document: Any = None
        if len(parts) == 1:
            version = discovery.wants_aggregated(request.headers.get("Accept", ""))
            if version:
                return self._aggregate(request, version, core=parts[0] == "api")
            document = discovery.core_versions(self.address) if parts[0] == "api" else discovery.group_list(kinds)
        elif parts[0] == "api":
            document = discovery.resource_list(kinds, "", parts[1]) if len(parts) == 2 else None
        elif len(parts) == 2:
            document = discovery.one_group(kinds, parts[1])
        elif len(parts) == 3:
            document = discovery.resource_list(kinds, parts[1], parts[2])
            if document is None and parts[1] in kinds.groups():
                raise unserved()
        return respond(document) if document is not None else page_not_found()

    def _aggregate(self, request: web.BaseRequest, version: str, *, core: bool) -> web.Response:
        changed, body, etag = self._aggregated.get((version, core), (-1, b"", ""))
        if changed != self.store.kinds.changed:
            body, etag = discovery.aggregated(self.store.kinds, version, core=core)
            self._aggregated[version, core] = (self.store.kinds.changed, body, etag)
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers={"ETag": etag})
        media = discovery.AGGREGATED.format(version=version)
        response = raw(body, headers={"ETag": etag, "Vary": "Accept"})
        response.headers["Content-Type"] = media
        return response

    # -- resources

    async def _resource(self, request: web.BaseRequest, asked: Route, kind: Kind, user: User) -> web.StreamResponse:
        call = Call(self.store, request, asked, kind, user)
        if asked.subresource:
            return await self._subresource(call)
        if not kind.namespaced and asked.namespace and kind.key != "namespaces":
            raise unserved()
        if kind.namespaced and not asked.namespace and asked.verb not in ("list", "watch", "deletecollection"):
            if asked.verb == "create" and kind.key in REVIEWS:
                pass
            elif asked.name or asked.verb != "create":
                raise unserved()
            else:
                raise method_not_allowed()
        if asked.verb not in kind.verbs or (
            (asked.verb == "create") == bool(asked.name) and asked.verb in ("create", "update", "patch")
        ):
            raise method_not_allowed()
        if kind.key in REVIEWS:
            return await self._review(call)
        if kind.key == "bindings":
            return await podparts.bind(call)
        return await self._verb(call)

    async def _verb(self, call: Call) -> web.StreamResponse:
        verb = call.route.verb
        if verb == "watch":
            return await reading.watch(call)
        if verb == "get":
            return reading.get(call)
        if verb == "list":
            return await reading.list_objects(call)
        writes = {
            "create": writing.create,
            "update": writing.update,
            "patch": writing.patch,
            "delete": deleting.delete,
            "deletecollection": deleting.delete_collection,
        }
        return await writes[verb](call)

    async def _review(self, call: Call) -> web.Response:
        body = of_kind(mapping(await read(call.request), media_type(call.request)), call.kind)
        body = call.decoded(body, "CreateOptions")
        body = {"kind": call.kind.kind, "apiVersion": call.kind.api_version, "metadata": {}, **body}
        return respond(REVIEWS[call.kind.key](self.store, call.user, body), code=201)

    async def _subresource(self, call: Call) -> web.StreamResponse:
        sub = call.kind.sub(call.route.subresource)
        if sub is None:
            raise unserved()
        if call.route.verb not in sub.verbs:
            raise method_not_allowed()
        if sub.name in ("log", "exec", "attach", "portforward"):
            serve_pod = podparts.log if sub.name == "log" else streams.converse
            return await serve_pod(call, self.kubelet)
        parts = {
            "binding": podparts.bind,
            "eviction": podparts.evict,
            "token": subresources.token,
            "scale": subresources.scale,
        }
        if sub.name in parts:
            return await parts[sub.name](call)
        if sub.name in ("status", "finalize", "ephemeralcontainers", "resize", "approval"):
            return await self._verb(call)
        raise ApiError(501, "NotImplemented", f"the simulated cluster does not serve {call.kind.plural}/{sub.name}")


__all__ = ["Front", "Server", "authorize", "kubeconfig", "serve"]
