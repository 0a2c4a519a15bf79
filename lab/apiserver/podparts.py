"""Subresources of a pod: its log, its binding to a node, its eviction.

The kubelet is an interface: `kubelet.logs(...)` yields bytes and raises errors with the kubelet's own texts.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from ..controlplane.scheduler.binding import mark_disrupted
from . import bodies
from .answers import respond
from .options import DeleteOptions, number
from .paths import is_true
from .schema.errors import (
    ApiError,
    Cause,
    bad_request,
    conflict,
    forbidden_field,
    invalid,
    invalid_value,
    not_found,
    required,
    too_many_requests,
)
from .schema.requests import Request
from .schema.selectors import matches
from .schema.types import Decoder
from .schema.values import epoch

EVICTED = "EvictionByEvictionAPI", "Eviction API: evicting"
"""The reason of a pod's disruption (pkg/registry/core/pod/storage/eviction.go)."""

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .call import Call
    from .schema.values import Object
    from .store import Store


class Kubelet(Protocol):
    """The interface from the API server to the nodes."""

    def logs(
        self,
        ns: str,
        pod: str,
        container: str,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        since_seconds: int | None = None,
        since_time: str | None = None,
        timestamps: bool = False,
        limit_bytes: int | None = None,
        previous: bool = False,
    ) -> AsyncIterator[bytes]:
        """Yield a container's log."""


NOTHING: tuple[bytes, ...] = ()


class NoKubelet:
    """The kubelet of a cluster without running nodes: every log is unreachable."""

    async def logs(self, ns: str, pod: str, container: str, **_options: object) -> AsyncIterator[bytes]:
        """Raise the error of an unreachable node."""
        for piece in NOTHING:
            yield piece
        path = f"https://127.0.0.1:10250/containerLogs/{ns}/{pod}/{container}"
        why = "dial tcp 127.0.0.1:10250: connect: connection refused"
        raise ApiError(500, "InternalError", f'Get "{path}": {why}')


def _log_options(call: Call) -> dict[str, object]:
    query, name = call.query, call.route.name
    causes: list[Cause] = []
    tail, since, limit = (number(query, key) for key in ("tailLines", "sinceSeconds", "limitBytes"))
    since_time = query.get("sinceTime") or None
    if tail is not None and tail < 0:
        causes.append(invalid_value("tailLines", tail, "must be greater than or equal to 0"))
    if limit is not None and limit < 1:
        causes.append(invalid_value("limitBytes", limit, "must be greater than 0"))
    if since is not None and since_time:
        causes.append(forbidden_field("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif since is not None and since < 1:
        causes.append(invalid_value("sinceSeconds", since, "must be greater than 0"))
    if since_time:
        try:
            epoch(since_time)
        except ValueError:
            text = f'parsing time "{since_time}" as "2006-01-02T15:04:05Z07:00": cannot parse "{since_time}" as "2006"'
            raise bad_request(text) from None
    if causes:
        raise invalid("PodLogOptions", "", name, causes)
    return {
        "follow": _flag(call, "follow"),
        "tail_lines": tail,
        "since_seconds": since,
        "since_time": since_time,
        "timestamps": _flag(call, "timestamps"),
        "limit_bytes": limit,
        "previous": _flag(call, "previous"),
    }


def _flag(call: Call, name: str) -> bool:
    return name in call.query and is_true(call.query[name])


def chosen_container(pod: Object, asked: str) -> str:
    """Return the container whose log is requested, chosen by the rules of the pod log strategy."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    regular = [container["name"] for container in spec.get("containers", [])]
    init = [container["name"] for container in spec.get("initContainers", [])]
    ephemeral = [container["name"] for container in spec.get("ephemeralContainers", [])]
    if asked:
        if asked in (*regular, *init, *ephemeral):
            return asked
        raise bad_request(f"container {asked} is not valid for pod {name}")
    if len(regular) == 1 and not init and not ephemeral:
        return str(regular[0])
    if len(regular) == 1 and not ephemeral and not any(c.get("restartPolicy") for c in spec.get("initContainers", [])):
        listed = f", choose one of: [{' '.join(regular)}] or one of the init containers: [{' '.join(init)}]"
        raise bad_request(f"a container name must be specified for pod {name}{listed}")
    listed = f", choose one of: [{' '.join(regular)}]"
    if init:
        listed += f" or one of the init containers: [{' '.join(init)}]"
    raise bad_request(f"a container name must be specified for pod {name}{listed}")


async def log(call: Call, kubelet: Kubelet) -> web.StreamResponse:
    """Stream a container's log."""
    pod = call.current()
    options = _log_options(call)
    container = chosen_container(pod, call.query.get("container", ""))
    node = pod["spec"].get("nodeName", "")
    headers = {"Content-Type": "text/plain", "Cache-Control": "no-cache, private"}
    if not node:
        return web.Response(status=204, headers={"Cache-Control": "no-cache, private"})  # not scheduled: no log yet
    if call.store.get("nodes", None, node) is None:
        raise not_found("pods", "", node)  # like the real server, which names the node and calls it a pod
    lines = kubelet.logs(pod["metadata"]["namespace"], pod["metadata"]["name"], container, **options)  # type: ignore[arg-type]
    async with contextlib.aclosing(lines) as stream:  # type: ignore[type-var]
        first = await anext(stream, None)  # errors must come before the first byte
        response = web.StreamResponse(headers=headers)
        response.enable_chunked_encoding()
        await response.prepare(call.request)
        if first is not None:
            await response.write(first)
            async for piece in stream:
                if piece:
                    await response.write(piece)
        await response.write_eof()
    return response


async def bind(call: Call) -> web.Response:
    """Bind a pod to a node."""
    body = bodies.mapping(await bodies.read(call.request), bodies.media_type(call.request))
    name = call.route.name or body.get("metadata", {}).get("name", "")
    target = Decoder("Binding", "v1").decode(body, "core.v1.Binding").get("target", {}).get("name", "")
    if not target:
        raise invalid("Binding", "", name, [required("target.name")])
    place(call.store, call.route.namespace, name, target)
    return respond({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, code=201)


def place(store: Store, ns: str, name: str, node: str) -> Object:
    """Set a pod's node, as a Binding does."""
    pod = store.need("pods", ns, name)
    held = pod["spec"].get("nodeName")
    if pod["metadata"].get("deletionTimestamp"):
        raise conflict("pods/binding", "", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if held:
        raise conflict("pods/binding", "", name, f'pod {name} is already assigned to node "{held}"')

    def assign(new: Object) -> None:
        new["spec"]["nodeName"] = node
        conditions = [c for c in new["status"].get("conditions", []) if c["type"] != "PodScheduled"]
        conditions.append(
            {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": store.now()}
        )
        new["status"]["conditions"] = conditions

    placed = store.mutate("pods", ns, name, assign)
    assert placed is not None
    return placed


async def evict(call: Call) -> web.Response:
    """Evict a pod, unless a disruption budget forbids it."""
    content = await bodies.read(call.request)
    body = bodies.mapping(content, bodies.media_type(call.request)) if content else {}
    options = DeleteOptions.read(call.query, call.query.getall("dryRun", []), body.get("deleteOptions"))
    pod = call.current()
    ended = pod["status"].get("phase") in ("Succeeded", "Failed")
    if not ended:
        _budget(call.store, pod)
    request = Request(user=call.user.name, dry_run=options.dry_run)
    if not ended and not options.dry_run and not pod["metadata"].get("deletionTimestamp"):
        mark_disrupted(call.store, pod, *EVICTED)
    call.store.delete(
        "pods", call.route.namespace, call.route.name, options.grace, options.propagation, options.uid, request=request
    )
    return respond({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, code=201)


def _budget(store: Store, pod: Object) -> None:
    """Reject an eviction that a disruption budget forbids; counted here if no controller writes the status."""
    namespace = pod["metadata"]["namespace"]
    for budget in store.list("poddisruptionbudgets.policy", namespace):
        selector = budget.get("spec", {}).get("selector")
        if not matches(selector, pod):
            continue
        status = budget.get("status", {})
        if "observedGeneration" in status:
            need, have = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        else:
            need, have = _healthy(budget["spec"], [p for p in store.list("pods", namespace) if matches(selector, p)])
        if have - 1 >= need:
            continue
        name = budget["metadata"]["name"]
        text = f"The disruption budget {name} needs {need} healthy pods and has {have} currently"
        cause = {"reason": "DisruptionBudget", "message": text}
        raise too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", 0, [cause])


def _healthy(spec: Object, pods: list[Object]) -> tuple[int, int]:
    """Return the required number of healthy pods, and the actual one."""
    healthy = sum(
        any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions") or [])
        for pod in pods
    )
    if spec.get("maxUnavailable") is not None:
        return max(len(pods) - _share(spec["maxUnavailable"], len(pods)), 0), healthy
    return _share(spec.get("minAvailable", 0), len(pods)), healthy


def _share(amount: int | str, total: int) -> int:
    """Parse a number, or a percentage of a total, rounded up."""
    return -(-int(amount.rstrip("%")) * total // 100) if isinstance(amount, str) else amount
