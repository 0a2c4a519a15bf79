"""Tokens of service accounts, scales of workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import bodies, patches
from .answers import respond
from .cells import selector
from .schema.errors import bad_request, conflict, invalid, invalid_value, not_found
from .schema.types import Decoder
from .schema.values import clone, rfc3339

if TYPE_CHECKING:
    from aiohttp import web

    from .call import Call
    from .schema.values import Object

MIN_TOKEN_S = 600
MAX_TOKEN_S = 2**32
DEFAULT_TOKEN_S = 3600


async def token(call: Call) -> web.Response:
    """Answer a TokenRequest."""
    account = call.current()
    content = await bodies.read(call.request)
    body = bodies.mapping(content, bodies.media_type(call.request)) if content else {}
    spec = Decoder("TokenRequest", "v1").decode(body, "authentication.v1.TokenRequest").get("spec", {})
    seconds = spec.get("expirationSeconds") or DEFAULT_TOKEN_S
    if seconds < MIN_TOKEN_S:
        text = "may not specify a duration less than 10 minutes"
        raise invalid(
            "TokenRequest", "authentication.k8s.io", "", [invalid_value("spec.expirationSeconds", seconds, text)]
        )
    if seconds > MAX_TOKEN_S:
        text = "may not specify a duration larger than 2^32 seconds"
        raise invalid(
            "TokenRequest", "authentication.k8s.io", "", [invalid_value("spec.expirationSeconds", seconds, text)]
        )
    meta = account["metadata"]
    bound = _bound(call, spec.get("boundObjectRef"))
    authority = call.store.authority
    signed = authority.token(
        meta["namespace"], meta["name"], meta["uid"], seconds=seconds, audiences=spec.get("audiences") or (), pod=bound
    )
    claims = authority.claims(signed)
    assert claims is not None
    status = {"token": signed, "expirationTimestamp": rfc3339(claims["exp"])}
    answer = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "creationTimestamp": call.store.now()},
        "spec": {**spec, "audiences": claims["aud"], "expirationSeconds": seconds},
        "status": status,
    }
    return respond(answer, code=201)


def _bound(call: Call, reference: Object | None) -> tuple[str, str] | None:
    if not reference:
        return None
    if reference.get("kind") != "Pod":
        raise bad_request(
            f"cannot bind token to object of type {reference.get('apiVersion', '')}, Kind={reference.get('kind', '')}"
        )
    pod = call.store.get("pods", call.route.namespace, reference.get("name", ""))
    if pod is None:
        raise not_found("pods", "", reference.get("name", ""))
    uid = pod["metadata"]["uid"]
    if reference.get("uid") not in (None, "", uid):
        why = (
            f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise conflict("pods", "", reference["name"], why)
    return pod["metadata"]["name"], uid


async def scale(call: Call) -> web.Response:
    """Read or write the replica count of a workload."""
    obj = call.current()
    if call.route.verb == "get":
        return respond(_scale(obj))
    content = await bodies.read(call.request)
    media = bodies.media_type(call.request)
    if call.route.verb == "patch":
        change = bodies.decode(content, "application/json")
        held = _scale(obj)
        desired = (
            patches.json_patch(held, change)
            if media == patches.JSON_PATCH
            else patches.merge_patch(clone(held), change)
        )
        request = call.write("PatchOptions")
    else:
        desired = bodies.mapping(content, media)
        request = call.write("UpdateOptions")
    replicas = (desired.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        text = "must be greater than or equal to 0"
        raise invalid("Scale", "autoscaling", obj["metadata"]["name"], [invalid_value("spec.replicas", replicas, text)])
    version = (desired.get("metadata") or {}).get("resourceVersion")
    new = clone(obj)
    new["spec"]["replicas"] = replicas
    new["metadata"]["resourceVersion"] = version or obj["metadata"]["resourceVersion"]
    return respond(_scale(call.store.replace(call.kind.key, new, request=request)))


def _scale(obj: Object) -> Object:
    meta = {
        key: obj["metadata"][key]
        for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if key in obj["metadata"]
    }
    given = obj["spec"].get("selector")
    status: Object = {"replicas": obj.get("status", {}).get("replicas", 0)}
    if given is not None:
        status["selector"] = selector(
            given if "matchLabels" in given or "matchExpressions" in given else {"matchLabels": given}
        )
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": meta,
        "spec": {"replicas": obj["spec"].get("replicas", 0)},
        "status": status,
    }


__all__ = ["scale", "token"]
