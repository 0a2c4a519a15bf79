"""The store: one revision, no lost writes, deletion in stages, counted events."""

from __future__ import annotations

import pytest

from lab.apiserver.store import ApiError, Store

POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}}


@pytest.fixture
def store() -> Store:
    return Store()


def test_every_write_raises_the_one_resource_version(store):
    """Kinds share one counter, so that a list's revision orders everything."""
    first = store.create("configmaps", {"metadata": {"name": "a"}}, "default")
    second = store.create("secrets", {"metadata": {"name": "a"}}, "default")
    assert int(second["metadata"]["resourceVersion"]) == int(first["metadata"]["resourceVersion"]) + 1


def test_a_write_that_changes_nothing_keeps_the_revision(store):
    """Reconcilers write often, and watchers must not be notified each time."""
    made = store.create("configmaps", {"metadata": {"name": "a"}, "data": {"k": "v"}}, "default")
    again = store.mutate("configmaps", "default", "a", lambda obj: obj["data"].update(k="v"))
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_stale_writer_is_reported(store):
    """Optimistic concurrency: replace with an old resourceVersion is 409 Conflict."""
    made = store.create("configmaps", {"metadata": {"name": "a"}}, "default")
    store.mutate("configmaps", "default", "a", lambda obj: obj.update(data={"k": "v"}))
    with pytest.raises(ApiError) as caught:
        store.replace("configmaps", made)
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")


def test_only_a_change_of_the_wish_counts_a_generation(store):
    """Status writes must not look like spec changes to controllers."""
    made = store.create("pods", POD, "default")
    store.mutate("pods", "default", "p", lambda obj: obj["status"].update(phase="Running"), "status")
    assert store.get("pods", "default", "p")["metadata"]["generation"] == 1 == made["metadata"]["generation"]
    store.mutate("pods", "default", "p", lambda obj: obj["spec"].update(activeDeadlineSeconds=5))
    assert store.get("pods", "default", "p")["metadata"]["generation"] == 2


def test_a_bound_pod_leaves_in_two_steps(store):
    """A pod on a node is marked with its grace period; the kubelet removes it with grace 0."""
    store.create("pods", POD, "default")
    store.mutate("pods", "default", "p", lambda obj: obj["spec"].update(nodeName="n"))
    marked = store.delete("pods", "default", "p")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert store.get("pods", "default", "p") is not None
    store.delete("pods", "default", "p", grace=0)
    assert store.get("pods", "default", "p") is None


def test_a_pod_without_a_node_leaves_at_once(store):
    """No process of an unscheduled pod runs, so there is no wait."""
    store.create("pods", POD, "default")
    store.delete("pods", "default", "p")
    assert store.get("pods", "default", "p") is None


def test_finalizers_hold_an_object_until_they_are_gone(store):
    """Delete marks the object; removing the last finalizer removes it."""
    store.create("configmaps", {"metadata": {"name": "a", "finalizers": ["example.com/hold"]}}, "default")
    store.delete("configmaps", "default", "a")
    assert store.get("configmaps", "default", "a")["metadata"]["deletionTimestamp"]
    store.mutate("configmaps", "default", "a", lambda obj: obj["metadata"].pop("finalizers"))
    assert store.get("configmaps", "default", "a") is None


def test_a_job_deleted_without_a_policy_orphans_its_pods(store):
    """batch/v1 keeps the old default: the finalizer `orphan` informs the garbage collector."""
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "a"}]}}}
    store.create("jobs.batch", {"metadata": {"name": "j"}, "spec": spec}, "default")
    assert store.delete("jobs.batch", "default", "j")["metadata"]["finalizers"] == ["orphan"]


def test_subscribers_hear_of_changes_in_order(store):
    """Controllers receive ADDED, MODIFIED, DELETED in order."""
    heard = []
    store.subscribe("configmaps", lambda kind, obj, old: heard.append((kind, obj["metadata"]["name"], old is not None)))
    store.create("configmaps", {"metadata": {"name": "a"}}, "default")
    store.mutate("configmaps", "default", "a", lambda obj: obj.update(data={"k": "v"}))
    store.delete("configmaps", "default", "a")
    store.deliver()
    assert heard == [("ADDED", "a", False), ("MODIFIED", "a", True), ("DELETED", "a", True)]


def test_history_forgets_and_says_so():
    """A watch from before the window is 410 Expired, never silently incomplete."""
    store = Store(window=4)
    for number in range(12):
        store.create("configmaps", {"metadata": {"name": f"c{number}"}}, "default")
    with pytest.raises(ApiError) as caught:
        store.history("configmaps").since(1001)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")


def test_the_past_can_be_listed_while_history_reaches_back(store):
    """Pages of a list are pinned to one revision."""
    store.create("configmaps", {"metadata": {"name": "a"}}, "default")
    then = store.revision
    store.create("configmaps", {"metadata": {"name": "b"}}, "default")
    store.delete("configmaps", "default", "a")
    assert [stored.name for stored in store.scan_at("configmaps", "default", then)] == ["a"]


def test_the_same_event_again_is_counted(store):
    """Kubernetes keeps one Event per cause and increments its count."""
    pod = store.create("pods", POD, "default")
    for _ in range(3):
        store.event(pod, "Warning", "BackOff", "Back-off", "kubelet", "n")
    (event,) = store.list("events", "default")
    assert event["count"] == 3


def test_a_terminating_namespace_takes_no_more_objects(store):
    """403 NamespaceTerminating, so that cleanup can complete."""
    store.create("namespaces", {"metadata": {"name": "x"}})
    store.create("serviceaccounts", {"metadata": {"name": "default"}}, "x")
    store.delete("namespaces", None, "x")
    with pytest.raises(ApiError) as caught:
        store.create("configmaps", {"metadata": {"name": "a"}}, "x")
    assert caught.value.details["causes"][0]["reason"] == "NamespaceTerminating"
    assert store.event({"kind": "Pod", "metadata": {"name": "p", "namespace": "x"}}, "Normal", "A", "b", "c") is None


def test_a_long_generate_name_is_cut(store):
    """Names stay within 63 bytes: 58 of the prefix and five random letters."""
    made = store.create("configmaps", {"metadata": {"generateName": "a" * 80}}, "default")
    assert len(made["metadata"]["name"]) == 63
