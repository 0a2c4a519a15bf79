"""The next run deletes the leftovers of a dead run, and never those of a live one."""

import pytest

from jobs.cluster.client.kube import path
from jobs.cluster.facts.inventory import Inventory, PodUse
from jobs.cluster.renewal import record
from jobs.run.cleanup import sweep, sweep_dead
from jobs.run.job_lookup import with_runners
from jobs.trial.rooms import holders


class Cluster:
    """Objects by path; those of runs in `living` are renewed at every read."""

    def __init__(self, api):
        self.objects, self.living, self.listed, self.forbidden, self.reads = {}, set(), [], set(), 0
        api.answer = self.answer

    def add(self, resource, run, *, group="", version="v1", suffix="", leased=False, **more):
        name = f"seatrial-{run}{suffix}"
        labels = {"app.kubernetes.io/managed-by": "seatrial", "app.kubernetes.io/instance": run}
        meta = {"name": name, "uid": f"u-{name}", "labels": labels, "annotations": record(1) if leased else {}}
        url = path(resource, name, namespace="ns", group=group, version=version)
        self.objects[url] = {"metadata": meta | more.pop("metadata", {}), "spec": {}, **more}
        return url

    def answer(self, asked):
        last = asked.path.rsplit("/", 1)[-1]
        if last in self.forbidden:
            return 403, {}, {"reason": "Forbidden", "message": f"no {last}"}
        stored = self.objects.get(asked.path)
        if asked.verb == "GET" and stored is not None:
            if stored["metadata"]["labels"]["app.kubernetes.io/instance"] in self.living:
                stored["metadata"]["annotations"] = record(1)
            return 200, {}, stored
        if asked.verb == "DELETE" and stored is not None:
            del self.objects[asked.path]
            return 200, {}, {}
        if asked.verb == "GET" and asked.path.endswith(("/mpijobs", "/jobs", "/services", "/configmaps", "/pods")):
            self.listed.append(last)
            items = [o for url, o in self.objects.items() if url.startswith(asked.path + "/")]
            return 200, {}, {"metadata": {}, "items": items}
        return 404, {}, {"reason": "NotFound", "message": "not found"}


RUNNING = {"spec": {"suspend": False}, "status": {"active": 2}}


SUSPENDED = {"spec": {"suspend": True}, "status": {"conditions": [{"type": "Suspended", "status": "True"}]}}


COMPLETE = {"spec": {}, "status": {"conditions": [{"type": "Complete", "status": "True"}]}}


@pytest.mark.parametrize("state", [RUNNING, SUSPENDED, COMPLETE], ids=["running", "suspended", "complete"])
def test_a_dead_run_is_swept_and_a_living_one_never(kube, api, state):
    """The job's state does not matter: also between creation and start, and while its logs are still read."""
    cluster = Cluster(api)
    for run in ("dead", "alive"):
        cluster.add("jobs", run, group="batch", leased=True, **state)
        cluster.add("configmaps", run)
    cluster.living = {"alive"}
    swept = sweep(kube, "ns")
    assert swept.deleted == ("job/seatrial-dead", "configmap/seatrial-dead")
    assert swept.left == ()
    assert len(swept.kept) == 1
    assert swept.kept[0].startswith("job/seatrial-alive: its run is in progress, held by ")
    assert sorted(cluster.objects) == [url for url in sorted(cluster.objects) if "alive" in url]
    assert len(cluster.objects) == 2


def test_two_that_sweep_at_once_do_not_fail(kube, api):
    """The other clean-up deleted the object first, which is the intended result."""
    cluster = Cluster(api)
    url = cluster.add("jobs", "dead", group="batch", leased=True, **RUNNING)
    answer = cluster.answer

    def slower(asked):
        if asked.verb == "DELETE":
            cluster.objects.pop(url, None)
        return answer(asked)

    api.answer = slower
    assert sweep(kube, "ns").left == ()


def test_without_a_lease_only_what_has_ended_is_swept(kube, api):
    """A user may wait for an object applied by hand or by an earlier version."""
    cluster = Cluster(api)
    cluster.add("jobs", "r1", group="batch", **RUNNING)
    cluster.add("pods", "r1", suffix="-0")
    cluster.add("jobs", "r2", group="batch", **COMPLETE)
    swept = sweep(kube, "ns")
    assert swept.deleted == ("job/seatrial-r2",)
    assert swept.kept == ("job/seatrial-r1: it is still running, without a lease",)
    assert sweep(kube, "ns", living=True).deleted == ("job/seatrial-r1", "pod/seatrial-r1-0")


def test_the_lease_of_an_operators_job_answers_for_the_job_that_the_operator_made(kube, api):
    """The MPI Operator's launcher is a Job with our labels and without a lease."""
    cluster = Cluster(api)
    cluster.add("mpijobs", "r1", group="kubeflow.org", version="v2beta1", leased=True, spec={}, status={})
    cluster.add("jobs", "r1", group="batch", suffix="-launcher", **RUNNING)
    cluster.living = {"r1"}
    assert sweep(kube, "ns").deleted == ()
    cluster.living = set()
    assert sweep(kube, "ns").deleted == ("mpijob/seatrial-r1", "job/seatrial-r1-launcher")


def test_what_is_being_deleted_is_only_waited_for(kube, api):
    """The lease of an object that is being deleted is not watched."""
    cluster = Cluster(api)
    cluster.add(
        "jobs", "r1", group="batch", leased=True, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, **RUNNING
    )
    said = []
    assert sweep(kube, "ns", tell=said.append).deleted == ("job/seatrial-r1",)
    assert said == []


def test_what_belongs_to_a_job_is_listed_before_it(kube, api):
    """A run that starts between two lists is never seen without its sign of life."""
    cluster = Cluster(api)
    sweep(kube, "ns")
    assert cluster.listed.index("configmaps") < cluster.listed.index("jobs")
    assert cluster.listed.index("pods") < cluster.listed.index("mpijobs")


def test_where_launchers_cannot_be_seen_nothing_that_may_be_theirs_is_deleted(kube, api):
    """The pods may belong to a live MPIJob that an account without permission cannot see."""
    cluster = Cluster(api)
    cluster.add("pods", "r1", suffix="-worker-0")
    cluster.forbidden = {"jobs"}
    swept = sweep(kube, "ns")
    assert swept.deleted == ()
    assert swept.kept == ("pod/seatrial-r1-worker-0: its launcher cannot be read",)


def test_what_an_operator_made_is_not_deleted_without_a_look_at_what_it_belongs_to(kube, api):
    """An MPIJob's launcher has ended while its run still reads: a Job with our labels, owned by another kind."""
    cluster = Cluster(api)
    url = cluster.add("mpijobs", "r1", group="kubeflow.org", version="v2beta1", leased=True, spec={}, status={})
    owner = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "seatrial-r1", "uid": "u-seatrial-r1"}
    owned = {"metadata": {"ownerReferences": [owner]}}
    cluster.add("jobs", "r1", group="batch", suffix="-launcher", **COMPLETE | owned)
    cluster.add("pods", "r1", suffix="-worker-0", **owned)
    cluster.living = {"r1"}
    assert sweep_dead(kube, "indexed").deleted == ()
    unknown = cluster.objects.pop(url)  # like a restarted API server that has not read the definitions yet
    api.answer = lambda asked: (404, {}, {"reason": "NotFound"}) if "/mpijobs" in asked.path else cluster.answer(asked)
    swept = sweep(kube, "ns")
    assert swept.deleted == ()
    assert "pod/seatrial-r1-worker-0: its launcher cannot be read" in swept.kept
    api.answer = cluster.answer
    assert set(sweep(kube, "ns").deleted) == {"job/seatrial-r1-launcher", "pod/seatrial-r1-worker-0"}
    cluster.objects[url] = unknown
    assert sweep(kube, "ns").deleted == ()


def test_the_next_run_asks_for_what_it_has_rights_on_and_says_what_it_watches(kube, api):
    """The next run reads Jobs and the kind that it launches; all other objects are deleted with them."""
    cluster = Cluster(api)
    cluster.add("jobs", "r1", group="batch", leased=True, **SUSPENDED)
    cluster.add("configmaps", "r1")
    said = []
    assert sweep_dead(kube, "mpijob", said.append).deleted == ("job/seatrial-r1",)
    assert set(cluster.listed) == {"jobs", "mpijobs"}
    assert len(said) == 1
    assert "watching for 1 s whether its runner is alive" in said[0]


def held_by(*pods):
    """Return an inventory of these pods, each (namespace, owner, app), all with GPUs on one node."""
    uses = [
        PodUse(namespace, f"p{n}", "a", {"nvidia.com/gpu": 8}, owner, "Running", app=app)
        for n, (namespace, owner, app) in enumerate(pods)
    ]
    return Inventory((), tuple(uses))


@pytest.mark.parametrize(
    ("annotations", "watched", "said"),
    [
        (record(1), True, "that is in progress, held by "),
        (record(1), False, "that is in progress or was killed (held by "),
        (record(1, released=True), True, "that was detached (seatrial job attach seatrial-r1)"),
        ({}, True, ""),
    ],
)
def test_who_holds_gpus_is_reported_by_the_lease_of_the_run(kube, api, annotations, watched, said):
    """A job that was watched and still exists is live; without a lease its state is unknown."""
    cluster = Cluster(api)
    cluster.add("jobs", "r1", group="batch", metadata={"annotations": annotations})
    (pod,) = with_runners(kube, held_by(("ns", "Job/seatrial-r1", "seatrial")), watched=watched).pods
    assert pod.runner.startswith(said) and bool(pod.runner) == bool(said)
    assert f"a trial of seatrial {said or 'that is in progress or was killed'}" in holders([pod], "nvidia.com/gpu")


def test_only_trials_of_our_namespace_are_asked_about(kube, api):
    """Other leases are not readable, and other workloads have none."""
    Cluster(api)
    pods = [("team-b", "Job/seatrial-r1", "seatrial"), ("ns", "Job/train", "train"), ("ns", "", "seatrial")]
    before = held_by(*pods)
    assert with_runners(kube, before, watched=True) is before
    assert api.asked == []
    refused = held_by(("ns", "MPIJob/seatrial-r1", "seatrial"))
    api.answer = lambda _: (403, {}, {"reason": "Forbidden", "message": "no"})
    assert with_runners(kube, refused, watched=True) is refused
