"""A 200 response that does not answer the request is an error: never an empty cluster or a TypeError, and it
terminates."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.cluster.client import answers
from jobs.cluster.client.answers import is_of, resource_of
from jobs.cluster.client.errors import ClusterError, Unreachable
from jobs.cluster.client.kube import path
from jobs.cluster.client.shapes import Unreadable, wrong
from jobs.cluster.facts.inventory import Inventory
from tests.jobs.conftest import DATA
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from jobs.cluster.client.kube import Kube
    from tests.jobs.conftest import FakeApi

NODES = {"kind": "NodeList", "metadata": {}, "items": [{"metadata": {"name": "a"}}]}


def pod(name: str, **more: Any) -> dict[str, Any]:
    """Return a pod as in a list."""
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"containers": []}, **more}


@pytest.mark.parametrize(
    "answer",
    [
        {"kind": "Status", "status": "Success", "metadata": {}},
        {"kind": "PodList", "items": []},
        {"kind": "NodeList", "metadata": {}},
        [],
        "ok",
        {"kind": "Node", "metadata": {"name": "x"}, "items": []},
        {"items": []},
        {},
        {"kind": "NodeList", "items": {}},
        {"kind": "NodeList", "items": [None]},
        {"kind": "NodeList", "items": [{"metadata": {}}]},
        {"kind": ["NodeList"], "items": []},
    ],
)
def test_another_kind_or_a_list_without_items_is_no_list_of_nodes(kube: Kube, api: FakeApi, answer: Any) -> None:
    """Such an answer would be read as a cluster without nodes."""
    api.answer = lambda _: (200, {}, json.dumps(answer).encode())
    with pytest.raises(Unreachable, match="GET /api/v1/nodes: "):
        kube.list(path("nodes"))


def test_nothing_is_free_where_the_pods_are_not_reported(kube: Kube, api: FakeApi) -> None:
    """The node list is valid, but the pod list has another kind: that does not show a cluster without GPU holders."""
    api.answer = lambda asked: (200, {}, NODES if asked.path.endswith("nodes") else {"kind": "Status", "items": []})
    with pytest.raises(Unreachable, match="the answer is a Status, not a list of pods"):
        Inventory.read(kube)


@pytest.mark.parametrize(
    "answer",
    [
        {"kind": "Status", "metadata": {}},
        {"kind": "Pod", "metadata": {"name": "x"}},
        [],
        {"metadata": {"name": "x"}},
        {"kind": "Namespace", "metadata": {}},
    ],
)
def test_another_object_is_not_the_one_that_was_asked_for(kube: Kube, api: FakeApi, answer: Any) -> None:
    """A GET, a PATCH and a create need an object of the requested kind in response."""
    api.answer = lambda _: (200, {}, json.dumps(answer).encode())
    with pytest.raises(Unreachable):
        kube.get(path("namespaces", "x"))
    with pytest.raises(Unreachable):
        kube.patch(path("namespaces", "x"), {})
    with pytest.raises(Unreachable, match="a Lease was sent"):
        kube.create(path("leases", namespace="x", group="coordination.k8s.io"), {"kind": "Lease"})


def test_a_right_is_denied_only_by_who_says_so(kube: Kube, api: FakeApi) -> None:
    """Another kind, or an `allowed` that is not a boolean, is not a fault."""
    for body in (
        {"kind": "Status", "status": {"allowed": False}},
        {"kind": "SelfSubjectAccessReview", "status": {"allowed": "no"}},
    ):
        api.answer = lambda _, body=body: (201, {}, body)
        with pytest.raises(Unreachable):
            kube.can("list", "nodes")


def test_the_path_says_which_kind_to_expect() -> None:
    """The kind follows from Kubernetes' plural rule for every requested resource."""
    assert resource_of("/api/v1/namespaces/ns/pods/p/log") == ("pods", True)
    assert resource_of("/api/v1/namespaces/ns") == ("namespaces", True)
    assert resource_of("/apis/batch/v1/namespaces/ns/jobs") == ("jobs", False)
    assert [resource_of(p)[0] for p in ("/version", "/apis/batch", "/apis/batch/v1", "/api/v1")] == [""] * 4
    kinds = [
        "ClusterPolicy",
        "DeviceClass",
        "StorageClass",
        "ResourceSlice",
        "NodeResourceTopology",
        "NetworkAttachmentDefinition",
        "MPIJob",
        "Lease",
    ]
    named = [
        "clusterpolicies",
        "deviceclasses",
        "storageclasses",
        "resourceslices",
        "noderesourcetopologies",
        "network-attachment-definitions",
        "mpijobs",
        "leases",
    ]
    assert all(is_of(kind, name) for kind, name in zip(kinds, named, strict=True))
    assert not is_of("", "") and not is_of(None, "pods") and not is_of("Pod", "nodes")


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"status": {"allocatable": "8"}}, "status.allocatable is the text '8', not a mapping"),
        (
            {"status": {"allocatable": {"nvidia.com/gpu": [8]}}},
            "status.allocatable['nvidia.com/gpu'] is a list, not a quantity",
        ),
        ({"status": {"allocatable": {"nvidia.com/gpu": "-8"}}}, "not a quantity"),
        ({"status": {"conditions": {"type": "Ready"}}}, "status.conditions is a mapping, not a list"),
        ({"status": {"conditions": [None]}}, "status.conditions[0] is null, not a mapping"),
        (
            {"status": {"conditions": [{"type": ["Ready"], "status": "True"}]}},
            "status.conditions[0].type is a list, not text",
        ),
        ({"spec": {"taints": 5}}, "spec.taints is the number 5, not a list"),
        ({"spec": {"unschedulable": "no"}}, "spec.unschedulable is the text 'no', not true or false"),
    ],
)
def test_a_field_of_another_type_names_object_and_path(
    kube: Kube, api: FakeApi, item: dict[str, Any], said: str
) -> None:
    """The error is one line; the API server's schema would have refused the object."""
    api.answer = lambda _: (200, {}, {"kind": "NodeList", "items": [{"metadata": {"name": "gpu-1"}, **item}]})
    with pytest.raises(Unreadable) as caught:
        kube.list(path("nodes"))
    assert "Node gpu-1: " in str(caught.value) and said in str(caught.value)


def test_null_is_absent_and_other_fields_are_nobodys_business() -> None:
    """Go writes null for absent; a field that is not read may have any type."""
    assert not wrong(
        "Node", {"metadata": {"name": "a", "labels": None}, "spec": None, "status": {"conditions": None, "images": 7}}
    )
    assert not wrong("ClusterPolicy", {"metadata": {"name": "a"}, "spec": {"driver": 5}})
    assert wrong("ClusterPolicy", {"metadata": {"name": "a"}, "spec": []})


def test_an_event_that_cannot_be_read_is_as_one_that_was_dropped(kube: Kube, api: FakeApi) -> None:
    """Events are supplementary and may be lost anyway."""
    good, bad = (
        {"metadata": {"name": name}, "reason": reason} for name, reason in (("a", "Pulled"), ("b", ["Failed"]))
    )
    api.answer = lambda _: (200, {}, {"kind": "EventList", "items": [bad, good]})
    assert kube.list(path("events"))[0] == [good]


def test_what_a_real_api_server_wrote_is_read() -> None:
    """No recording of a real cluster is refused."""
    read = 0
    for file in sorted((DATA / "recordings").glob("*.json")):
        for moment in json.loads(file.read_text())["moments"].values():
            for kind in ("Job", "Pod", "Event", "Node"):
                for item in moment.get(f"{kind.lower()}s") or []:
                    assert not wrong(kind, item), file
                    read += 1
    assert read > 100


@pytest.mark.parametrize(
    ("token", "items", "said"),
    [
        (lambda _: "same", lambda n: [pod(f"p{n}")], "repeats"),
        (str, lambda _: [pod("same")], "repeats"),
        (str, lambda _: [], "3 empty pages"),
        (str, lambda n: [pod(f"p{n}-{i}") for i in range(500)], "more than 2000 objects"),
    ],
)
def test_a_list_that_never_ends_ends_at_once(
    kube: Kube, api: FakeApi, monkeypatch: pytest.MonkeyPatch, token: Any, items: Any, said: str
) -> None:
    """Repeated tokens or pages, empty pages, or more objects than Kubernetes can hold."""
    monkeypatch.setattr(answers, "MOST_OBJECTS", 2000)
    pages = itertools.count()

    def answer(_: Any) -> tuple[int, dict[str, str], Any]:
        number = next(pages)
        return 200, {}, {"metadata": {"continue": token(number)}, "items": items(number)}

    api.answer = answer
    with pytest.raises(Unreachable, match=said):
        kube.list(path("pods"))
    assert len(api.asked) < 7


def test_a_list_that_takes_too_long_says_how_long_and_how_far(
    kube: Kube, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit applies to the whole list, not to its last request."""
    pages, passed = itertools.count(), [0.0]
    monkeypatch.setattr(answers, "time", SimpleNamespace(monotonic=lambda: passed[0]))

    def answer(_: Any) -> tuple[int, dict[str, str], Any]:
        number = next(pages)
        passed[0] += HANG_S
        return 200, {}, {"metadata": {"continue": str(number)}, "items": [pod(f"p{number}")]}

    api.answer = answer
    with pytest.raises(ClusterError, match=r"the list had not ended after 3000 s \(5 objects on 5 pages\)"):
        kube.list(path("pods"), deadline_s=5 * HANG_S)
