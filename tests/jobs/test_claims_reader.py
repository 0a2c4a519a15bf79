"""PVCs and classes as they are read, and the parts that missing permissions or a tenant's run hide."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jobs.cluster.client.errors import Forbidden, NotFound
from jobs.cluster.facts import claims

PVC = {
    "spec": {"storageClassName": "nfs", "accessModes": ["ReadWriteMany"], "volumeName": "pv-1"},
    "status": {"phase": "Bound", "capacity": {"storage": "2Ti"}},
}
EVENTS = {
    "items": [
        {"reason": "Old", "message": "x", "lastTimestamp": "2026-01-01T00:00:00Z"},
        {"reason": "ProvisioningFailed", "message": "no room", "lastTimestamp": "2026-01-02T00:00:00Z"},
    ]
}


def kube(answers: dict[str, object]) -> SimpleNamespace:
    asked: list[str] = []

    def get(path: str, **_: object) -> object:
        asked.append(path)
        answer = answers.get(path.rpartition("/")[2])
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            raise NotFound(path, status=404, message="no such object")
        return answer

    def listed(path: str, **more: object) -> tuple[object, str]:
        page = get(path, **more)
        assert isinstance(page, dict)
        return page["items"], "1"

    return SimpleNamespace(namespace="team", get=get, list=listed, asked=asked)


def test_a_bound_claim_and_its_class_are_read_once() -> None:
    """PVCs, their classes, and the profile's classes need one request each."""
    api = kube({"results": PVC, "nfs": {"provisioner": "nfs.csi.k8s.io", "volumeBindingMode": "Immediate"}})
    bound, classes = claims.read(api, ["results", "results"], ["nfs"])
    assert (bound["results"].phase, bound["results"].access_modes, bound["results"].size) == (
        "Bound",
        ("ReadWriteMany",),
        "2Ti",
    )
    assert classes["nfs"].provisioner == "nfs.csi.k8s.io"
    assert len(api.asked) == 2


def test_a_pending_claim_brings_its_last_event() -> None:
    """The latest message explains why the PVC is not bound."""
    api = kube({"results": {"spec": {}, "status": {"phase": "Pending"}}, "events": EVENTS})
    assert claims.claim(api, "results").event == "ProvisioningFailed: no room"
    assert claims.claim(kube({"results": {"spec": None, "status": "odd"}}), "results").phase == "Pending"


@pytest.mark.parametrize("name", ["results", "nfs"])
def test_missing_and_hidden_are_different(name: str) -> None:
    """404 means that the PVC does not exist; 403 says nothing about it."""
    read = claims.claim if name == "results" else claims.storage_class
    assert (read(kube({}), name).exists, read(kube({}), name).hidden) == (False, "")
    assert read(kube({name: Forbidden("x", status=403, message="may not")}), name).hidden == "may not"


def test_a_tenant_asks_for_no_class() -> None:
    """StorageClasses are cluster-wide, so a tenant's run never requests them."""
    api = kube({"results": PVC})
    _, classes = claims.read(api, ["results"], ["fast"], tenant=True)
    assert {name: each.hidden for name, each in classes.items()} == dict.fromkeys(
        ("fast", "nfs"), "not readable by a tenant"
    )
    assert len(api.asked) == 1
