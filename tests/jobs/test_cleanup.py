"""Created objects are deleted or reported; foreign objects are never touched."""

import signal
from types import SimpleNamespace

import pytest

from jobs.cluster.client.errors import Forbidden, Unreachable
from jobs.cluster.client.kube import path
from jobs.run import cleanup
from jobs.run.cleanup import GONE_S, STILL_GONE_S, Ledger, delete, sweep
from jobs.run.creation import Creation
from jobs.trial.launchers import KINDS
from jobs.trial.manifests import Manifests

OURS = {"app.kubernetes.io/managed-by": "seatrial", "app.kubernetes.io/instance": "r1"}


class Cluster:
    """Objects by path, deleted with their uid as precondition."""

    def __init__(self, api):
        self.objects = {}
        self.deleted = []
        self.stuck = set()
        self.versions = ()  # of resource claims
        api.answer = self.answer

    def add(self, resource, name, *, group="", labels=None, uid="u", finalizers=(), version="v1"):
        url = path(resource, name, namespace="ns", group=group, version=version)
        self.objects[url] = {
            "metadata": {"name": name, "uid": uid, "labels": labels or {}, "finalizers": list(finalizers)}
        }
        self.objects[url] |= {"spec": {"containers": []}} if resource == "pods" else {}
        return url

    def answer(self, asked):
        if asked.verb == "GET" and asked.path in self.objects:
            return 200, {}, self.objects[asked.path]
        if asked.verb == "GET" and asked.path.rsplit("/", 1)[-1] in {"jobs", "services", "configmaps", "pods"}:
            # A server that ignores the selector: the clean-up must not rely on it.
            return (
                200,
                {},
                {"metadata": {}, "items": [o for url, o in self.objects.items() if url.startswith(asked.path + "/")]},
            )
        if (
            asked.verb == "GET"
            and asked.path.split("/")[3] in self.versions
            and asked.path.endswith("/resourceclaimtemplates")
        ):
            return (
                200,
                {},
                {
                    "metadata": {},
                    "items": [o for url, o in self.objects.items() if o["metadata"]["name"] == "seatrial-r1-gpus"],
                },
            )
        if asked.verb == "DELETE" and asked.path in self.objects:
            uid = (asked.body.get("preconditions") or {}).get("uid")
            if uid and uid != self.objects[asked.path]["metadata"]["uid"]:
                return 409, {}, {"reason": "Conflict", "message": "uid does not match"}
            self.deleted.append((asked.path, asked.body["propagationPolicy"]))
            if asked.path not in self.stuck:
                del self.objects[asked.path]
            return 200, {}, {}
        return 404, {}, {"reason": "NotFound", "message": "not found"}


def test_a_ledger_is_undone_newest_first():
    """Last in, first out; removed entries are skipped."""
    ledger, done = Ledger(), []
    for name in "abc":
        ledger.enter(name, lambda name=name: done.append(name))
    ledger.strike(ledger.enter("d", lambda: done.append("d")))
    assert ledger.open == ("c", "b", "a")
    assert ledger.unwind() == [] and done == ["c", "b", "a"] and ledger.open == ()
    assert ledger.unwind() == []


def test_what_cannot_be_undone_is_named_and_the_rest_goes_on():
    """One failure must not prevent the other deletions."""
    ledger, done = Ledger(), []

    def fail():
        raise Unreachable("http://x: DELETE /y: connection refused")

    def broken():
        raise KeyError("oops")

    ledger.enter("first", lambda: done.append(1))
    ledger.enter("job/x in ns", fail)
    ledger.enter("other", broken)
    left = ledger.unwind()
    assert done == [1]
    assert left == ["other: KeyError: 'oops'", "job/x in ns: http://x: DELETE /y: connection refused"]


def test_unwinding_has_a_deadline(monkeypatch):
    """Entries that were not reached are reported, too."""
    passed, ledger = [0.0], Ledger()
    monkeypatch.setattr(cleanup, "time", SimpleNamespace(monotonic=lambda: passed[0]))
    ledger.enter("never reached", lambda: None)
    ledger.enter("slow", lambda: passed.__setitem__(0, 61.0))
    assert ledger.unwind(deadline_s=60.0) == ["never reached: not tried, clean-up took longer than 60 s"]


def test_a_job_is_deleted_in_the_foreground_and_awaited(kube, api):
    """A Job is deleted by its uid, including its pods."""
    cluster = Cluster(api)
    url = cluster.add("jobs", "seatrial-x", group="batch")
    delete(kube, "jobs", "batch", "ns", "seatrial-x", uid="u")()
    assert cluster.deleted == [(url, "Foreground")] and url not in cluster.objects


def test_what_a_lost_node_keeps_is_waited_for_once(kube, api, monkeypatch):
    """Pods on a lost node cannot end, so the Job remains: reported at the end of the trial, and checked again at the
    end of the run."""
    waits = []

    def never(*_, wait_s, **__):
        waits.append(wait_s)
        raise Unreachable("job/seatrial-x: not gone")

    monkeypatch.setattr("jobs.run.creation.delete", never)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "seatrial-x", "namespace": "ns", "labels": {}},
        "spec": {},
    }
    api.answer = lambda asked: (
        201 if asked.verb == "POST" else 200,
        {},
        job | {"metadata": job["metadata"] | {"uid": "u"}},
    )
    ledger = Ledger()
    creation = Creation(kube, ledger, "r1", lambda _: None)
    creation.create(Manifests(kind=KINDS["indexed"], job=job, configmap={"metadata": job["metadata"]}))
    creation.give_up()
    assert ledger.unwind() == [
        "job/seatrial-x in ns: job/seatrial-x: not gone",
        "configmap/seatrial-x in ns: job/seatrial-x: not gone",
    ]
    assert sorted(waits) == [STILL_GONE_S, STILL_GONE_S, GONE_S, GONE_S]


def created(kube, api, cluster, monkeypatch):
    """Return a trial of a Job, a ConfigMap and a Service with a short deletion wait; its ledger and its creation."""
    monkeypatch.setattr("jobs.run.creation.GONE_S", 0.3)

    def answer(asked):
        if asked.verb != "POST":
            return cluster.answer(asked)
        name, resource = asked.body["metadata"]["name"], asked.path.rsplit("/", 1)[-1]
        if "dryRun" not in asked.query:
            cluster.add(resource, name, group="batch" if resource == "jobs" else "", uid=resource)
        return 201, {}, asked.body | {"metadata": asked.body["metadata"] | {"uid": resource}}

    api.answer = answer
    meta = {"name": "seatrial-x", "namespace": "ns", "labels": {}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {}}
    configmap, service = ({"apiVersion": "v1", "kind": kind, "metadata": meta} for kind in ("ConfigMap", "Service"))
    ledger = Ledger()
    creation = Creation(kube, ledger, "r1", lambda _: None)
    monkeypatch.setattr(kube, "patch", lambda *_, **__: {})
    creation.create(Manifests(kind=KINDS["indexed"], job=job, configmap=configmap, service=service))
    return ledger, creation


STUCK = {"jobs": "/apis/batch/v1", "services": "/api/v1", "configmaps": "/api/v1"}


@pytest.mark.parametrize(
    "stuck", [(), ("services",), ("jobs",), ("services", "configmaps"), ("services", "configmaps", "jobs")]
)
def test_what_holds_gpus_is_deleted_first_and_nothing_waits_for_what_does_not_go(kube, api, monkeypatch, stuck):
    """The Job's DELETE comes first, then all others, then the waiting: each remaining object is reported as not
    deleted."""
    cluster = Cluster(api)
    cluster.stuck = {f"{STUCK[kind]}/namespaces/ns/{kind}/seatrial-x" for kind in stuck}
    ledger, _ = created(kube, api, cluster, monkeypatch)
    api.asked.clear()
    left = ledger.unwind()
    verbs = [(asked.verb, asked.path.rsplit("/", 2)[1]) for asked in api.asked]
    assert verbs[0] == ("DELETE", "jobs")
    assert sorted(verbs[:3]) == [("DELETE", kind) for kind in ("configmaps", "jobs", "services")]
    assert {verb for verb, _ in verbs[3:]} <= {"GET"}
    assert sorted(text.partition("/")[0] + "s" for text in left) == sorted(stuck)
    assert all("not gone after" in text and "not tried" not in text for text in left)


def test_a_job_whose_deletion_was_answered_is_never_reported_as_not_tried(kube, api, monkeypatch):
    """A Job that was reported at the end of the trial may still exist when the run's clean-up time expires."""
    cluster = Cluster(api)
    cluster.stuck = {"/apis/batch/v1/namespaces/ns/jobs/seatrial-x"}
    ledger, creation = created(kube, api, cluster, monkeypatch)
    passed = [0.0]
    clock = SimpleNamespace(
        monotonic=lambda: passed[0], sleep=lambda seconds: passed.__setitem__(0, passed[0] + seconds)
    )
    monkeypatch.setattr(cleanup, "time", clock)
    monkeypatch.setattr("jobs.run.creation.STILL_GONE_S", 0.1)
    creation.give_up()
    assert ledger.open == ("job/seatrial-x in ns",)
    ledger.enter("slow", lambda: clock.sleep(0.2))
    ledger.enter("later", lambda: None)
    left = ledger.unwind(deadline_s=0.1)
    assert [text.partition(":")[0] for text in left if "not gone after" in text] == ["job/seatrial-x in ns"]
    assert [text for text in left if "not tried" in text] == []


@pytest.mark.parametrize(
    ("nodes", "lost", "waits"), [(["n1"], {"n1"}, False), (["n0", "n1"], {"n1"}, True), (["n1"], set(), True)]
)
def test_pods_on_a_lost_node_are_not_waited_for(kube, api, monkeypatch, nodes, lost, waits):
    """No kubelet can end pods on a lost node; pods elsewhere end within their grace period, and are waited for."""
    cluster = Cluster(api)
    cluster.stuck = {"/apis/batch/v1/namespaces/ns/jobs/seatrial-x"}
    ledger, creation = created(kube, api, cluster, monkeypatch)
    for node in nodes:
        cluster.objects[cluster.add("pods", f"seatrial-x-{node}", labels=OURS)]["spec"]["nodeName"] = node
    slept = []
    monkeypatch.setattr(cleanup, "time", SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append))
    creation.lost = frozenset(lost)
    creation.give_up()
    assert bool(slept) is waits
    assert ("last pods are on a lost node: n1" in ledger.unwind()[0]) is not waits


def test_a_sweep_deletes_every_runs_job_before_it_waits_for_one(kube, api, monkeypatch):
    """A lost node keeps the first Job; the GPUs of the second are still freed."""
    cluster = Cluster(api)
    others = OURS | {"app.kubernetes.io/instance": "r2"}
    cluster.stuck = {cluster.add("jobs", "seatrial-r1", group="batch", labels=OURS)}
    cluster.add("services", "seatrial-r1", labels=OURS)
    cluster.add("jobs", "seatrial-r2", group="batch", labels=others)
    monkeypatch.setattr(
        "jobs.run.cleanup._await_gone", lambda *_: cluster.deleted.append("waited") or never_gone("job/seatrial-r1")
    )
    swept = sweep(kube, "ns", living=True)
    places = [each if each == "waited" else each[0].rsplit("/", 2)[1] for each in cluster.deleted]
    assert places[:3] == ["jobs", "jobs", "services"]
    assert set(places[3:]) == {"waited"}
    assert swept.deleted == ()
    assert len(swept.left) == 3


def never_gone(what):
    raise Unreachable(f"{what}: not gone")


def test_an_object_of_the_same_name_that_is_not_ours_stays(kube, api):
    """Another user created the object after ours was deleted."""
    cluster = Cluster(api)
    url = cluster.add("services", "seatrial-x", uid="foreign")
    assert delete(kube, "services", "", "ns", "seatrial-x", uid="ours") is None
    assert url in cluster.objects and not cluster.deleted
    assert delete(kube, "services", "", "ns", "gone", uid="ours") is None


def test_what_does_not_go_is_reported_with_the_reason(kube, api):
    """The reason is a finalizer without a controller, or a dead kubelet."""
    cluster = Cluster(api)
    cluster.stuck.add(
        cluster.add("jobs", "seatrial-x", group="batch", finalizers=("batch.kubernetes.io/job-tracking",))
    )
    with pytest.raises(
        Unreachable,
        match=r"not gone after 0 s \(marked for deletion, held by finalizers batch.kubernetes.io/job-tracking\)",
    ):
        delete(kube, "jobs", "batch", "ns", "seatrial-x", uid="u", wait_s=0.3)()


@pytest.mark.parametrize(
    ("finalizers", "node", "holds"),
    [
        (("example.com/audit",), "n1", "pod/seatrial-r1-0-x, held by finalizers example.com/audit"),
        ((), "n1", "pod/seatrial-r1-0-x, which the kubelet of n1 has not ended"),
        (None, "", ""),  # no pod is left
    ],
)
def test_a_job_that_waits_for_its_pods_is_reported_with_what_holds_those(kube, api, finalizers, node, holds):
    """foregroundDeletion, its own finalizer, belongs to the garbage collector and explains nothing."""
    cluster = Cluster(api)
    cluster.stuck.add(
        cluster.add("jobs", "seatrial-r1", group="batch", labels=OURS, finalizers=("foregroundDeletion",))
    )
    if finalizers is not None:
        pod = cluster.add("pods", "seatrial-r1-0-x", labels=OURS, finalizers=finalizers)
        cluster.objects[pod]["spec"]["nodeName"] = node
    with pytest.raises(Unreachable) as caught:
        delete(kube, "jobs", "batch", "ns", "seatrial-r1", uid="u", wait_s=0.1)()
    waits = f"; it waits for {holds}" if holds else ""
    assert str(caught.value).endswith(f"(marked for deletion, held by finalizers foregroundDeletion{waits})")


def test_a_sweep_touches_only_what_has_our_label_and_our_name(kube, api):
    """Other objects stay even if the server returns more than was requested."""
    cluster = Cluster(api)
    mine = cluster.add("jobs", "seatrial-r1", group="batch", labels=OURS)
    service = cluster.add("services", "seatrial-r1", labels=OURS)
    foreign = [
        cluster.add("jobs", "training", group="batch", labels={"team": "a"}),
        cluster.add("jobs", "copycat", group="batch", labels=OURS),
        cluster.add("configmaps", "seatrial-notes", labels={"app.kubernetes.io/managed-by": "Helm"}),
        cluster.add("pods", "seatrial-lookalike"),
    ]
    assert sweep(kube, "ns", dry_run=True, living=True).deleted == ("job/seatrial-r1", "service/seatrial-r1")
    assert mine in cluster.objects
    swept = sweep(kube, "ns", living=True)
    assert swept.deleted == ("job/seatrial-r1", "service/seatrial-r1") and swept.left == ()
    assert service not in cluster.objects and all(url in cluster.objects for url in foreign)


@pytest.mark.parametrize("served", [("v1beta1",), ("v1beta2", "v1beta1"), ("v1", "v1beta2", "v1beta1")])
def test_claim_templates_are_swept_in_the_version_that_the_cluster_serves(kube, api, served):
    """Claim templates are beta in Kubernetes 1.32 and 1.33; if several versions are served, each object is deleted
    once."""
    cluster = Cluster(api)
    cluster.versions = served
    url = cluster.add(
        "resourceclaimtemplates", "seatrial-r1-gpus", group="resource.k8s.io", version=served[0], labels=OURS
    )
    assert sweep(kube, "ns").deleted == ("resourceclaimtemplate/seatrial-r1-gpus",)
    assert [each for each, _ in cluster.deleted] == [url]


def test_a_sweep_of_one_run_leaves_other_runs_alone(kube, api):
    """Two concurrent runs must not delete each other's objects."""
    cluster = Cluster(api)
    other = cluster.add("jobs", "seatrial-r2", group="batch", labels=OURS | {"app.kubernetes.io/instance": "r2"})
    assert sweep(kube, "ns", run_id="r1").deleted == ()
    assert other in cluster.objects
    assert all(
        "app.kubernetes.io/instance=r1" in asked.query["labelSelector"]
        for asked in api.asked
        if asked.verb == "GET" and asked.path.endswith("jobs")
    )


def test_a_namespace_that_cannot_be_listed_is_not_called_clean(kube, api):
    """An empty observation is never a pass."""
    api.answer = lambda _: (403, {}, {"reason": "Forbidden", "message": "no"})
    with pytest.raises(Forbidden):
        sweep(kube, "ns")


def refusing(cluster, served):
    """Answer like the API server to an account without permission to list this kind, which is served."""
    group, version, plural = served

    def answer(asked):
        if asked.path.endswith("/selfsubjectaccessreviews"):
            wanted = asked.body["spec"]["resourceAttributes"]
            return 201, {}, {"status": {"allowed": (wanted["group"], wanted["resource"]) != (group, plural)}}
        if asked.path == f"/apis/{group}":
            return 200, {}, {"versions": [{"version": version}]}
        if asked.path == f"/apis/{group}/{version}":
            return 200, {}, {"resources": [{"name": plural}]}
        return cluster.answer(asked)

    return answer


SERVED = [
    ("kubeflow.org", "v2beta1", "mpijobs"),
    ("kubeflow.org", "v1", "pytorchjobs"),
    ("trainer.kubeflow.org", "v1alpha1", "trainjobs"),
    ("scheduling.volcano.sh", "v1beta1", "podgroups"),
]


@pytest.mark.parametrize("served", SERVED)
def test_a_kind_that_may_not_be_listed_and_owns_nothing_here_is_a_note(kube, api, served):
    """The Role of a run without that operator: the namespace is as clean as this account can make it."""
    cluster = Cluster(api)
    cluster.add("jobs", "seatrial-r1", group="batch", labels=OURS)
    api.answer = refusing(cluster, served)
    swept = sweep(kube, "ns", living=True)
    assert (swept.deleted, swept.left, swept.unseen) == (("job/seatrial-r1",), (), (f"{served[2]}.{served[0]}",))
    assert sweep(kube, "ns").left == ()


@pytest.mark.parametrize(("served", "kind"), list(zip(SERVED, ("MPIJob", "PyTorchJob", "TrainJob"), strict=False)))
@pytest.mark.parametrize("living", [False, True])
def test_what_launched_a_leftover_and_may_not_be_listed_is_left(kube, api, served, kind, living):
    """The ConfigMap shows that a launcher's job exists: deleting only that would leave the job and its GPUs."""
    cluster = Cluster(api)
    url = cluster.add("configmaps", "seatrial-r1", labels=OURS)
    owner = {"apiVersion": f"{served[0]}/{served[1]}", "kind": kind, "name": "seatrial-r1", "uid": "o"}
    cluster.objects[url]["metadata"]["ownerReferences"] = [owner]
    api.answer = refusing(cluster, served)
    swept = sweep(kube, "ns", living=living)
    (left,) = swept.left
    assert left.startswith(f"{kind.lower()}/seatrial-r1: ") and f"no permission to list {served[2]}" in left
    assert swept.unseen == ()


def test_a_leftover_of_a_job_that_is_gone_goes_where_another_kind_may_not_be_listed(kube, api):
    """The owner of a leftover is a Job, and all Jobs were listed: no MPIJob can own it."""
    cluster = Cluster(api)
    url = cluster.add("configmaps", "seatrial-r1", labels=OURS)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "seatrial-r1", "uid": "o"}
    cluster.objects[url]["metadata"]["ownerReferences"] = [owner]
    api.answer = refusing(cluster, SERVED[0])
    swept = sweep(kube, "ns")
    assert (swept.deleted, swept.left, swept.kept) == (("configmap/seatrial-r1",), (), ())


@pytest.mark.parametrize("plural", ["jobs", "services", "configmaps"])
def test_a_kind_that_every_run_creates_and_may_not_be_listed_is_left(kube, api, plural):
    """An unlisted kind is not reported as clean."""
    cluster = Cluster(api)
    api.answer = lambda asked: (
        (403, {}, {"reason": "Forbidden", "message": "no"})
        if asked.path.endswith(f"/{plural}")
        else cluster.answer(asked)
    )
    (left,) = sweep(kube, "ns").left
    assert left.startswith("unknown ") and plural in left


def test_importing_installs_no_handler():
    """A library must not take over its host's signals."""
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert cleanup.GONE_S < cleanup.UNWIND_S
