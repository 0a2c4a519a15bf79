"""A queue's state for the trial is read from its messages: admitted, waiting, or never."""

import pytest

from jobs.diagnosis.podfacts import pod_facts
from jobs.run.cleanup import sweep
from jobs.run.queueing import Queueing
from jobs.trial.parts import Queue

UID = "u-1"
JOB = {"metadata": {"name": "seatrial-a", "uid": UID}}


def workload(*conditions, **more):
    said = [
        {"type": kind, "status": status, "reason": reason, "message": message}
        for kind, status, reason, message in conditions
    ]
    return {
        "metadata": {"name": "job-seatrial-a-1", "ownerReferences": [{"uid": UID}]},
        "spec": more.pop("spec", {}),
        "status": {"conditions": said, "admission": {"clusterQueue": "gpus"}, **more},
    }


def kueue(api, kube, items, *, versions=("v1beta1",)):
    def answer(asked):
        if any(f"/{version}/" in asked.path for version in versions) and asked.path.endswith("/workloads"):
            return 200, {}, {"metadata": {}, "items": items}
        return 404, {}, {"reason": "NotFound", "message": "the server could not find the requested resource"}

    api.answer = answer
    queueing = Queueing(kube, Queue(kind="kueue", name="team"), "ns", "seatrial-a")
    queueing.look(JOB, started=False)
    return queueing


NO_FLAVOR = "couldn't assign flavors to pod set main: "
TAINT = "untolerated taint {gpu yes NoSchedule <nil>} in flavor h100"
FULL = "insufficient unused quota for nvidia.com/gpu in flavor a100, 8 more needed"
SHORT = "insufficient quota for nvidia.com/gpu in flavor a100, previously considered podsets requests (0) + current podset request (16) > maximum capacity (8)"
TOPOLOGY = 'topology "racks" allows to fit only 1 out of 2 pod(s)'


def pending(message, reason="Pending"):
    return workload(("QuotaReserved", "False", reason, message))


@pytest.mark.parametrize(
    ("raw", "fault", "subject", "hopeless"),
    [
        (pending("LocalQueue team doesn't exist", "Inadmissible"), "queue.missing", "localqueue/team", True),
        (pending("ClusterQueue gpus doesn't exist", "Inadmissible"), "queue.missing", "clusterqueue/gpus", True),
        (
            pending("LocalQueue team is terminating or missing", "Inadmissible"),
            "queue.missing",
            "localqueue/team",
            True,
        ),
        (pending("ClusterQueue gpus not found"), "queue.missing", "clusterqueue/gpus", True),
        (pending("Workload namespace doesn't match ClusterQueue selector"), "queue.namespace", "localqueue/team", True),
        (
            pending(
                "resources didn't satisfy LimitRange constraints: [spec.podSets[0].template.spec.containers[0]: Invalid value]"
            ),
            "limitrange.denied",
            "localqueue/team",
            True,
        ),
        (pending(f"{NO_FLAVOR}{TAINT}"), "queue.flavor", "localqueue/team", True),
        (pending(f"{NO_FLAVOR}flavor h100 doesn't match node affinity"), "queue.flavor", "localqueue/team", True),
        (pending(f"{NO_FLAVOR}{TAINT}, {FULL}"), "queue.waiting", "localqueue/team", False),
        (pending(f"{NO_FLAVOR}{TAINT}, {SHORT}"), "queue.quota-short", "localqueue/team", True),
        (pending(f"{NO_FLAVOR}{TAINT}, {TOPOLOGY}"), "queue.waiting", "localqueue/team", False),
        (pending(f"{NO_FLAVOR}{SHORT}, {TOPOLOGY}"), "queue.waiting", "localqueue/team", False),
        (pending("ClusterQueue gpus is inactive", "Inadmissible"), "queue.stopped", "clusterqueue/gpus", True),
        (pending("LocalQueue team is stopped", "Inadmissible"), "queue.stopped", "localqueue/team", True),
        (
            pending("couldn't assign flavors to pod set main: resource rdma/hca unavailable in ClusterQueue"),
            "queue.uncovered",
            "localqueue/team",
            True,
        ),
        (
            pending(
                "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor h100, request > maximum capacity (16 > 8)"
            ),
            "queue.quota-short",
            "localqueue/team",
            True,
        ),
        (
            pending(
                "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor h100, previously considered podsets requests (16) + current podset request (8) > maximum capacity (16)"
            ),
            "queue.quota-short",
            "localqueue/team",
            True,
        ),
        (
            pending(
                "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 8 more needed"
            ),
            "queue.waiting",
            "localqueue/team",
            False,
        ),
        (
            workload(
                ("QuotaReserved", "True", "QuotaReserved", ""),
                admissionChecks=[{"name": "nodes", "state": "Rejected", "message": "no capacity"}],
            ),
            "queue.stopped",
            "admissioncheck/nodes",
            True,
        ),
        (workload(spec={"active": False}), "queue.stopped", "localqueue/team", True),
    ],
    ids=[
        "local",
        "cluster",
        "local-deleted",
        "cluster-deleted",
        "namespace",
        "limit-range",
        "taint",
        "labels",
        "taint-or-full",
        "taint-or-short",
        "taint-or-topology",
        "short-or-topology",
        "inactive",
        "stopped",
        "uncovered",
        "short",
        "short-014",
        "waiting",
        "rejected",
        "deactivated",
    ],
)
def test_what_keeps_the_trial_out_is_named(api, kube, raw, fault, subject, hopeless):
    """Kueue's own texts (0.9 to 0.17); waiting helps only with a full queue."""
    symptom = kueue(api, kube, [raw]).symptom()
    assert (symptom.fault, symptom.subject, symptom.hopeless) == (fault, subject, hopeless)


def test_a_trial_that_is_let_in_is_not_waited_for(api, kube):
    """Admitted, with the kind of admission; a later API version is also read."""
    raw = workload(
        ("QuotaReserved", "True", "QuotaReserved", ""), ("Admitted", "True", "Admitted", "The workload is admitted")
    )
    queueing = kueue(api, kube, [raw], versions=("v1beta2",))
    assert not queueing.waiting and queueing.symptom() is None
    facts = queueing.facts()
    assert (facts.subject, facts.cluster_queue) == ("job-seatrial-a-1", "gpus")
    assert facts.admitted_s is not None and len(facts.conditions) == 2


def test_a_workload_that_is_taken_out_again_was_disturbed(api, kube):
    """Preemption says nothing about the cluster, so the trial is retried."""
    admitted = workload(("Admitted", "True", "Admitted", ""))
    queueing = kueue(api, kube, [admitted])
    queueing.raw = workload(
        ("Admitted", "False", "NoReservation", ""), ("Evicted", "True", "Preempted", "to accommodate a workload")
    )
    assert queueing.symptom().disrupted


@pytest.mark.parametrize("near", [True, False])
def test_the_workload_that_preempted_is_named_where_it_is_of_our_namespace(api, kube, near):
    """Kueue reports uids only."""
    uid = "4f1d9b6e-0d4e-4b0c-9a35-1c1d6a4c2f11"
    urgent = workload(("Admitted", "True", "Admitted", ""))
    urgent["metadata"] |= {"name": "job-urgent-7", "uid": uid}
    urgent["metadata"]["ownerReferences"] = [{"uid": "u-2", "kind": "Job", "name": "urgent"}]
    queueing = kueue(api, kube, [workload(("Admitted", "True", "Admitted", "")), *([urgent] if near else [])])
    text = f"Preempted to accommodate a workload (UID: {uid}, JobUID: u-2) due to prioritization in the ClusterQueue"
    queueing.raw = workload(("Admitted", "False", "NoReservation", ""), ("Evicted", "True", "Preempted", text))
    said = queueing.symptom().issue.message
    assert said.endswith("that workload is job-urgent-7 (Job/urgent)" if near else "in the ClusterQueue")


def test_another_jobs_workload_is_not_ours(api, kube):
    """The owner's uid decides, or the label set by Kueue."""
    other = workload(("Admitted", "True", "Admitted", ""))
    other["metadata"]["ownerReferences"] = [{"uid": "u-2"}]
    queueing = kueue(api, kube, [other])
    assert queueing.waiting and queueing.symptom().fault == "queue.unmanaged" and queueing.symptom().grace_s >= 15


def test_what_may_not_be_seen_is_no_fault(api, kube):
    """A tenant without permission to list workloads: not seen; started pods show that it was admitted."""
    api.answer = lambda _: (403, {}, {"reason": "Forbidden", "message": "no"})
    queueing = Queueing(kube, Queue(kind="kueue", name="team"), "ns", "seatrial-a")
    queueing.look(JOB, started=True)
    assert queueing.symptom() is None and not queueing.waiting and "no" in queueing.facts().not_seen


def test_volcanos_group_waits_until_it_runs(api, kube):
    """Volcano's group is unschedulable until its phase is Running."""
    group = {
        "metadata": {"name": "seatrial-a"},
        "status": {
            "phase": "Inqueue",
            "conditions": [
                {
                    "type": "Unschedulable",
                    "status": "True",
                    "reason": "NotEnoughResources",
                    "message": "2/2 tasks in gang unschedulable",
                }
            ],
        },
    }
    api.answer = lambda _: (200, {}, group)
    queueing = Queueing(kube, Queue(kind="volcano"), "ns", "seatrial-a")
    queueing.look(JOB, started=False)
    assert (queueing.symptom().fault, queueing.symptom().hopeless) == ("gang.unschedulable", False)
    assert queueing.waiting
    group["status"]["phase"] = "Running"
    queueing._asked = -1e9
    queueing.look(JOB, started=False)
    assert not queueing.waiting and queueing.symptom() is None and queueing.facts().name == "default"


# -- other information of the cluster ----------------------------------------------------------------------------------


def test_pods_tell_their_images_networks_and_delays():
    """Pull times come from the kubelet's events; a cached image took none."""
    pod = {
        "metadata": {
            "name": "p",
            "uid": "x",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"k8s.v1.cni.cncf.io/network-status": "[]"},
        },
        "spec": {"nodeName": "n"},
        "status": {
            "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:02Z"}],
            "containerStatuses": [
                {
                    "name": "trial",
                    "image": "i:1",
                    "imageID": "i@sha256:1",
                    "restartCount": 1,
                    "state": {"running": {"startedAt": "2026-01-01T00:01:30Z"}},
                }
            ],
        },
    }

    def event(message, name="p"):
        return {"involvedObject": {"kind": "Pod", "name": name, "uid": "x"}, "reason": "Pulled", "message": message}

    events = [
        event('Successfully pulled image "i:1" in 1m22.5s (1m30s including waiting). Image size: 9 bytes.'),
        event('Container image "j:1" already present on machine'),
        event("x", "q"),
    ]
    (facts,) = pod_facts([pod], events, lambda _: 0)
    assert facts.pull_seconds == {"i:1": 82.5, "j:1": 0.0} and facts.images == {"trial": ("i:1", "i@sha256:1")}
    assert pod_facts([{"metadata": {"name": "p"}}], ["junk"], lambda _: 0)[0].images == {}


@pytest.mark.parametrize(
    ("asked", "status", "event"),
    [
        ("nvcr.io/x@sha256:9", "sha256:5fde", "nvcr.io/x@sha256:9"),
        ("busybox", "docker.io/library/busybox:latest", "busybox"),
        ("busybox", "docker.io/library/busybox:latest", "busybox:latest"),
        ("nvcr.io/x:2", "nvcr.io/x:also-2", "nvcr.io/x:2"),
    ],
)
def test_an_image_is_called_what_the_pod_calls_it(asked, status, event):
    """Runtimes report the image's id for a digest, a full name for a short one, or another tag."""
    pod = {
        "metadata": {"name": "p", "uid": "x"},
        "spec": {"containers": [{"name": "trial", "image": asked}]},
        "status": {
            "containerStatuses": [{"name": "trial", "image": status, "imageID": "nvcr.io/x@sha256:9", "state": {}}]
        },
    }
    pulled = {
        "involvedObject": {"kind": "Pod", "name": "p", "uid": "x"},
        "reason": "Pulled",
        "message": f'Successfully pulled image "{event}" in 95s (95s including waiting). Image size: 9 bytes.',
    }
    (facts,) = pod_facts([pod], [pulled], lambda _: 0)
    assert facts.images == {"trial": (asked, "nvcr.io/x@sha256:9")}
    assert facts.pull_seconds == {asked: 95.0}


# -- clean-up ----------------------------------------------------------------------------------------------------------

OURS = {"app.kubernetes.io/managed-by": "seatrial"}


def ours(name, run, **more):
    return {"metadata": {"name": name, "uid": name, "labels": OURS | {"app.kubernetes.io/instance": run}}, **more}


def test_a_sweep_leaves_a_running_trial_alone(api, kube):
    """A current trial of another user is kept unless requested; kinds that are not served are skipped.

    These have no lease: a user may wait for an unfinished job, which is reported as the reason.
    """
    ended = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    done = {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
    held = {
        "/apis/batch/v1/namespaces/ns/jobs": [ours("seatrial-a", "a"), ours("seatrial-b", "b", **ended)],
        "/api/v1/namespaces/ns/configmaps": [ours("seatrial-a", "a"), ours("seatrial-b", "b")],
        "/apis/kubeflow.org/v2beta1/namespaces/ns/mpijobs": [ours("seatrial-c", "c"), ours("seatrial-d", "d", **done)],
        "/api/v1/namespaces/ns/services": [],
        "/api/v1/namespaces/ns/pods": [],
    }
    api.answer = lambda asked: (
        (200, {}, {"metadata": {}, "items": held[asked.path]})
        if asked.path in held
        else (404, {}, {"reason": "NotFound"})
    )
    swept = sweep(kube, "ns", dry_run=True)
    assert swept.deleted == ("mpijob/seatrial-d", "job/seatrial-b", "configmap/seatrial-b")
    why = "it is still running, without a lease"
    assert swept.kept == (f"mpijob/seatrial-c: {why}", f"job/seatrial-a: {why}") and swept.left == ()
    assert len(sweep(kube, "ns", dry_run=True, living=True).deleted) == 6


def test_a_kind_that_may_not_be_listed_is_only_missed_where_it_is_served(api, kube):
    """Without permission to list MPIJobs an API server returns 403 whether there are any or not."""
    served = []

    def answer(asked):
        if asked.path == "/apis/kubeflow.org" and served:
            return 200, {}, {"versions": [{"version": "v2beta1"}]}
        if asked.path == "/apis/kubeflow.org/v2beta1" and served:
            return 200, {}, {"resources": [{"name": "mpijobs"}]}
        if asked.path.endswith(("/jobs", "/configmaps", "/services", "/pods")):
            return 200, {}, {"metadata": {}, "items": []}
        if "/namespaces/" in asked.path:
            return 403, {}, {"reason": "Forbidden", "message": "cannot list"}
        return 404, {}, {"reason": "NotFound"}

    api.answer = answer
    assert sweep(kube, "ns") == ((), (), (), (), ())
    served.append(True)
    assert sweep(kube, "ns") == ((), (), (), ("mpijobs.kubeflow.org",), ())
