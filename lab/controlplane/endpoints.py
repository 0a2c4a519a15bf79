"""The EndpointSlice controller: the pods behind each Service.

EndpointSlices of at most 100 endpoints, and the older Endpoints object, from the pods that a Service selects.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.errors import ApiError
from .queue import Key, Queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..apiserver.store import Store

Object = dict[str, Any]
SLICES = "endpointslices.discovery.k8s.io"
MAX_ENDPOINTS = 100
"""Default of --max-endpoints-per-slice (https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/)."""
MANAGER = "endpointslice-controller.k8s.io"
ENDED = ("Succeeded", "Failed")


def is_ready(pod: Object) -> bool:
    """Return whether the pod's condition Ready is True."""
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or [])


def is_headless(service: Object) -> bool:
    """Return whether a Service is headless."""
    return bool(service["spec"].get("clusterIP") == "None")


def endpoint(service: Object, pod: Object, zone: str) -> Object | None:
    """Return the endpoint of a pod; None if it has none (no address yet, or ended)."""
    status, spec, meta = pod["status"], pod["spec"], pod["metadata"]
    if not status.get("podIP") or status.get("phase") in ENDED:
        return None
    terminating, serving = bool(meta.get("deletionTimestamp")), is_ready(pod)
    ready = bool(service["spec"].get("publishNotReadyAddresses")) or (serving and not terminating)
    named = spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]
    return {
        "addresses": [status["podIP"]],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        **({"hostname": spec["hostname"]} if named else {}),
        "targetRef": {"kind": "Pod", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]},
        "nodeName": spec.get("nodeName"),
        **({"zone": zone} if zone else {}),
    }


def ports(service: Object, pod: Object | None) -> list[Object] | None:
    """Return the ports of the slices; named target ports are looked up in a pod."""
    slice_ports = []
    for port in service["spec"].get("ports") or []:
        target: Any = port.get("targetPort", port["port"])
        if isinstance(target, str):
            named = {
                p.get("name"): p["containerPort"]
                for c in (pod["spec"]["containers"] if pod else [])
                for p in c.get("ports") or []
            }
            target = named.get(target)
        if target is not None:
            slice_ports.append({"name": port.get("name", ""), "port": target, "protocol": port.get("protocol", "TCP")})
    return slice_ports or None


class EndpointController:
    """The controller of EndpointSlices and Endpoints of all Services."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue = Queue(self.sync)
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        """Watch Services and pods."""
        self._ends = [self._store.subscribe("services", self._service), self._store.subscribe("pods", self._pod)]
        for service in self._store.list("services"):
            self._service("ADDED", service, None)

    def close(self) -> None:
        """Stop."""
        self._queue.close()
        for end in self._ends:
            end()

    def _service(self, _: str, service: Object, __: Object | None) -> None:
        self._queue.add((service["metadata"]["namespace"], service["metadata"]["name"]))

    def _pod(self, _: str, pod: Object, old: Object | None) -> None:
        namespace = pod["metadata"]["namespace"]
        for service in self._store.list("services", namespace):
            selector = service["spec"].get("selector")
            for version in (pod, old):
                if selector and version and selector.items() <= (version["metadata"].get("labels") or {}).items():
                    self._queue.add((namespace, service["metadata"]["name"]))

    def sync(self, key: Key) -> float | None:
        """Update the slices of one Service."""
        service = self._store.get("services", *key)
        held = self._store.list(SLICES, key[0], f"kubernetes.io/service-name={key[1]}")
        held = [
            s
            for s in held
            if (s["metadata"].get("labels") or {}).get("endpointslice.kubernetes.io/managed-by") == MANAGER
        ]
        if service is None or service["metadata"].get("deletionTimestamp"):
            return None  # the garbage collector removes what the Service owned
        selector = service["spec"].get("selector")
        if not selector or service["spec"].get("type") == "ExternalName":
            return None
        text = ",".join(f"{k}={v}" for k, v in selector.items())
        pods = self._store.list("pods", key[0], text)
        endpoints = [e for e in (endpoint(service, p, self._zone(p)) for p in pods) if e]
        chosen = ports(service, pods[0] if pods else None)
        self._spread(service, held, endpoints, chosen)
        self._legacy(service, endpoints, chosen)
        return None

    def _zone(self, pod: Object) -> str:
        node = self._store.get("nodes", None, pod["spec"].get("nodeName") or "")
        return str(((node or {"metadata": {}})["metadata"].get("labels") or {}).get("topology.kubernetes.io/zone", ""))

    def _spread(
        self, service: Object, held: list[Object], endpoints: list[Object], chosen: list[Object] | None
    ) -> None:
        """Change as few slices as possible: endpoints stay in their slice, new ones fill gaps."""
        uid_of = {e["targetRef"]["uid"]: e for e in endpoints}
        groups: list[list[Object]] = []
        for slice_ in held:
            stay = [
                uid_of.pop(e["targetRef"]["uid"])
                for e in slice_.get("endpoints") or []
                if e.get("targetRef") and e["targetRef"]["uid"] in uid_of
            ]
            groups.append(stay)
        for new in uid_of.values():
            space = next((g for g in groups if len(g) < MAX_ENDPOINTS), None)
            if space is None:
                space = []
                groups.append(space)
            space.append(new)
        if not groups:
            groups.append([])
        for number, group in enumerate(groups):
            if number >= len(held):
                self._create(service, group, chosen)
            elif group or number == 0:
                self._update(held[number], group, chosen, headless=is_headless(service))
            else:
                meta = held[number]["metadata"]
                with contextlib.suppress(ApiError):
                    self._store.delete(SLICES, meta["namespace"], meta["name"])

    def _create(self, service: Object, group: list[Object], chosen: list[Object] | None) -> None:
        meta = service["metadata"]
        body = {
            "metadata": {
                "generateName": f"{meta['name']}-",
                "namespace": meta["namespace"],
                "labels": {
                    **(meta.get("labels") or {}),
                    "endpointslice.kubernetes.io/managed-by": MANAGER,
                    "kubernetes.io/service-name": meta["name"],
                    **({"service.kubernetes.io/headless": ""} if is_headless(service) else {}),
                },
                "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": self._store.now()},
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "Service",
                        "name": meta["name"],
                        "uid": meta["uid"],
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
            },
            "addressType": "IPv4",
            "endpoints": group or None,
            "ports": chosen,
        }
        with contextlib.suppress(ApiError):  # the namespace is terminating
            self._store.create(
                SLICES, body, meta["namespace"], user="system:serviceaccount:kube-system:endpointslice-controller"
            )

    def _update(self, held: Object, group: list[Object], chosen: list[Object] | None, *, headless: bool) -> None:
        labelled = "service.kubernetes.io/headless" in (held["metadata"].get("labels") or {})
        if (held.get("endpoints") or []) == group and held.get("ports") == chosen and labelled == headless:
            return

        def change(slice_: Object) -> None:
            slice_["endpoints"], slice_["ports"] = group or None, chosen
            meta = slice_["metadata"]
            meta.setdefault("annotations", {})["endpoints.kubernetes.io/last-change-trigger-time"] = self._store.now()
            if headless:
                meta.setdefault("labels", {})["service.kubernetes.io/headless"] = ""
            else:
                meta.get("labels", {}).pop("service.kubernetes.io/headless", None)

        self._store.mutate(SLICES, held["metadata"]["namespace"], held["metadata"]["name"], change)

    def _legacy(self, service: Object, endpoints: list[Object], chosen: list[Object] | None) -> None:
        """Update the Endpoints object for older clients."""
        meta = service["metadata"]

        def addresses(ready: bool) -> list[Object]:
            return [
                {
                    "ip": e["addresses"][0],
                    **({"hostname": e["hostname"]} if "hostname" in e else {}),
                    "nodeName": e["nodeName"],
                    "targetRef": e["targetRef"],
                }
                for e in endpoints
                if e["conditions"]["ready"] == ready
            ]

        parts = {"addresses": addresses(True), "notReadyAddresses": addresses(False)}
        subset = {k: v for k, v in parts.items() if v}
        subsets = [{**subset, **({"ports": chosen} if chosen else {})}] if subset else None
        labels = {
            **(meta.get("labels") or {}),
            "endpoints.kubernetes.io/managed-by": "endpoint-controller",
            **({"service.kubernetes.io/headless": ""} if is_headless(service) else {}),
        }
        if self._store.get("endpoints", meta["namespace"], meta["name"]) is None:
            body: Object = {"metadata": {"name": meta["name"], "namespace": meta["namespace"], "labels": labels}}
            with contextlib.suppress(ApiError):
                self._store.create(
                    "endpoints",
                    {**body, **({"subsets": subsets} if subsets else {})},
                    meta["namespace"],
                    user="system:serviceaccount:kube-system:endpoint-controller",
                )
            return

        def change(obj: Object) -> None:
            if subsets:
                obj["subsets"] = subsets
            else:
                obj.pop("subsets", None)

        self._store.mutate("endpoints", meta["namespace"], meta["name"], change)
