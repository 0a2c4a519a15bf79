"""Older clusters with fewer or different fields: created objects, and attributed faults."""

from types import SimpleNamespace

import pytest

from jobs.cluster.client.errors import NotFound, api_error
from jobs.cluster.client.http_client import Response
from jobs.diagnosis.state import FailureAnalysis, JobState
from jobs.run.cleanup import Ledger
from jobs.run.creation import Creation
from jobs.run.launcher import Launcher
from jobs.run.result import TrialResult
from jobs.run.waiting import WatchOutcome
from jobs.trial.manifests import build
from jobs.trial.parts import ClaimSpec
from jobs.trial.spec import TrialSpec

FILES = {"__main__.py": "print(1)\n"}


def spec(**more):
    return TrialSpec(**({"run_id": "abc", "namespace": "ns", "image": "i:1"} | more))


class Kube:
    """A server that serves resource claims in some versions only, and refuses with an error if one is given."""

    server, namespace = "https://x", "ns"

    def __init__(self, *served, refusal=None):
        self.served, self.refusal, self.made = served, refusal, []

    def create(self, url_path, body, *, dry_run=False, **_):
        if self.refusal is not None:
            raise self.refusal
        if "/resource.k8s.io/" in url_path and url_path.split("/")[3] not in self.served:
            raise api_error("POST", 404, {"message": "the server could not find the requested resource"})
        if not dry_run:
            self.made.append(body)
        return Response(201, {"metadata": body["metadata"] | {"uid": "u"}})

    def patch(self, *_, **__):
        return {}

    def get(self, _):
        return {"status": {"phase": "Active"}}


CLAIMED = {"claims": (ClaimSpec(name="gpus", device_class="gpu.nvidia.com", count=8),), "gpu_resource": ""}


@pytest.mark.parametrize(
    ("served", "version", "nested"),
    [
        (("v1", "v1beta2", "v1beta1"), "v1", True),
        (("v1beta2", "v1beta1"), "v1beta2", True),
        (("v1beta1",), "v1beta1", False),
    ],
)
def test_devices_are_claimed_in_the_version_that_the_cluster_serves(served, version, nested):
    """Claims are beta in Kubernetes 1.32 and 1.33; the request of the first beta is flat."""
    kube = Kube(*served)
    Creation(kube, Ledger(), "abc", lambda _: None).create(build(spec(**CLAIMED), FILES))
    (template,) = (body for body in kube.made if body["kind"] == "ResourceClaimTemplate")
    assert template["apiVersion"] == f"resource.k8s.io/{version}"
    assert template["metadata"]["ownerReferences"][0]["uid"] == "u"
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    request_fields = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 8}
    assert request == ({"name": "gpus", "exactly": request_fields} if nested else {"name": "gpus", **request_fields})


def test_a_cluster_without_device_claims_says_so():
    """Nothing is created, and the refusal names the newest version."""
    kube = Kube()
    with pytest.raises(NotFound, match="could not find the requested resource"):
        Creation(kube, Ledger(), "abc", lambda _: None).create(build(spec(**CLAIMED), FILES))
    assert kube.made == []


@pytest.mark.parametrize(
    ("status", "message", "blamed"),
    [
        (422, 'Job.batch "seatrial-abc" is invalid: spec.template.spec.x: Invalid value', "ERR_PROGRAM"),
        (400, 'strict decoding error: unknown field "spec.podFailurePolicy"', "ERR_PROGRAM"),
        (
            422,
            "The jobs \"j\" is invalid: : ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
            "ERR_INFRA",
        ),
        (400, 'admission webhook "validate.kyverno.svc-fail" denied the request: no', "ERR_INFRA"),
        (403, 'jobs.batch "j" is forbidden: exceeded quota: q, requested: count/jobs.batch=1', "ERR_INFRA"),
    ],
)
def test_an_object_that_is_not_valid_is_no_fault_of_the_cluster(status, message, blamed):
    """A refusal by a cluster's gate is no-go; a field unknown to the API server is our error (undetermined)."""
    kube = Kube(refusal=api_error("POST", status, {"message": message, "reason": "Invalid"}))
    result = Launcher(kube).run(spec(), FILES)
    assert (result.state, result.analysis.err_class) == ("Error", blamed)


@pytest.mark.parametrize(
    ("reason", "second", "attempts", "ends"),
    [
        ("OutOfnvidia.com/gpu", "Complete", 2, None),
        ("OutOfnvidia.com/gpu", "Error", 2, "container.start"),
        ("UnexpectedAdmissionError", "Error", 1, "container.start"),
    ],
)
def test_a_kubelet_that_still_counts_others_pods_is_asked_once_more(monkeypatch, reason, second, attempts, ends):
    """The scheduler's view was ahead: retried once, and accepted the second time; an unhealthy device is not such a
    race."""
    refused = FailureAnalysis(
        fault="container.start",
        subject="p",
        observed=f"pod p: {reason}: Pod was rejected",
        expected="",
        suggestion="",
        err_class="ERR_INFRA",
    )
    results = [
        TrialResult(job="j", state=JobState.ERROR, analysis=refused),
        TrialResult(job="j", state=JobState(second), analysis=None if second == "Complete" else refused),
    ]
    monkeypatch.setattr(Launcher, "_once", lambda *_: results.pop(0))
    result = Launcher(Kube()).run(spec(), FILES)
    assert result.attempts == attempts
    assert (result.analysis.fault if result.analysis else None) == ends


def test_every_attempt_has_all_of_its_time_to_start(monkeypatch):
    """A deadline judges only attempts that had all of the time, also one after a late interruption."""
    now, given = [0.0], []
    interrupted = FailureAnalysis(
        fault="job.disrupted", subject="p", observed="", expected="", suggestion="", disrupted=True
    )
    ends = [WatchOutcome(state=JobState.ERROR, analysis=interrupted), WatchOutcome(state=JobState.COMPLETE)]

    def watcher(_, *, limits, **__):
        given.append(limits.start_s)
        now[0] += 10 * limits.start_s
        return SimpleNamespace(keep=lambda: ends[len(given) - 1], followers={}, events=[], queueing=None)

    monkeypatch.setattr("jobs.run.launcher.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(Creation, "give_up", lambda *_: None)
    monkeypatch.setattr("jobs.run.launcher.Watcher", watcher)
    result = Launcher(Kube()).run(spec(), FILES)
    assert (result.attempts, result.state) == (2, JobState.COMPLETE)
    assert given == [spec().deadlines.start_s] * 2
