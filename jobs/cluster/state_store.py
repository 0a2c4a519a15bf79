"""The state of scheduled runs: one ConfigMap for the history, one with results, and Events.

A ConfigMap holds at most 1 MiB (kubernetes.io/docs/concepts/configuration/configmap): the stored data is bounded here.
"""

from __future__ import annotations

import datetime
import json
import secrets
from collections.abc import Mapping

from .client.errors import Conflict, NotFound
from .client.kube import Kube, path
from .redact import redact, safe
from .unstructured import Unstructured, as_map

LARGEST = 900_000
"""Bytes of one ConfigMap's data; the object's own fields need some room, too."""
LONGEST_EVENT = 1000
"""Characters; the API refuses an Event with a message above 1,024 bytes."""
LABELS = {"app.kubernetes.io/name": "seatrial", "app.kubernetes.io/component": "state"}


class StateStoreError(Exception):
    """The stored state cannot be read, or is too large to store; one line."""


def load(kube: Kube, name: str) -> tuple[dict[str, str], str]:
    """Return a ConfigMap's data and its resourceVersion; {} and "" if it does not exist."""
    try:
        raw = kube.get(path("configmaps", name, namespace=kube.namespace))
    except NotFound:
        return {}, ""
    data = {str(key): str(value) for key, value in as_map(raw.get("data")).items()}
    return data, str(as_map(raw.get("metadata")).get("resourceVersion") or "")


def parsed(data: Mapping[str, str], name: str, key: str) -> dict[str, object]:
    """Return the JSON object under one key of a ConfigMap; {} if it is missing. Raises StateStoreError."""
    if key not in data:
        return {}
    try:
        state = json.loads(data[key])
    except (ValueError, RecursionError) as error:
        raise StateStoreError(f"configmap {name}: {key} is damaged (not JSON); delete it to start over") from error
    if not isinstance(state, dict):
        raise StateStoreError(f"configmap {name}: {key} is damaged (not an object); delete it to start over")
    return state


def save(
    kube: Kube, name: str, data: Mapping[str, str], *, version: str = "", was: Mapping[str, str] | None = None
) -> None:
    """Write a whole ConfigMap; with ``version``, only if unchanged since. Raises StateStoreError, ClusterError.

    ``was``: its data at that version; a concurrent change of a label or an annotation does not matter.
    """
    size = sum(len(key) + len(value.encode()) for key, value in data.items())
    if size > LARGEST:
        raise StateStoreError(f"configmap {name}: {size} bytes are more than it holds ({LARGEST})")
    body: Unstructured = {"metadata": {"labels": LABELS}, "data": dict(data)}
    if version:
        place = path("configmaps", name, namespace=kube.namespace)
        try:
            kube.patch(place, body | {"metadata": {"resourceVersion": version}})
        except Conflict:
            stored, newer = load(kube, name)
            if stored == dict(data):  # our own change, sent twice after a connection error
                return
            if stored != was:
                raise
            kube.patch(place, body | {"metadata": {"resourceVersion": newer}})
        return
    whole = {"apiVersion": "v1", "kind": "ConfigMap"} | body | {"metadata": {"name": name, "labels": LABELS}}
    try:
        kube.create(path("configmaps", namespace=kube.namespace), whole)
    except Conflict:
        kube.patch(path("configmaps", name, namespace=kube.namespace), body)


def event(kube: Kube, about: Mapping[str, str], *, reason: str, message: str, warning: bool) -> None:
    """Record an Event on an object of the namespace (apiVersion, kind, name, uid)."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about['name'][:200]}.{secrets.token_hex(8)}", "namespace": kube.namespace},
        "involvedObject": {**about, "namespace": kube.namespace},
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": safe(redact(message), LONGEST_EVENT),
        "source": {"component": "seatrial"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    kube.create(path("events", namespace=kube.namespace), body)
