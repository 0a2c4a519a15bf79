"""A refusal is reported with the object, the refusing component, and advice: for limits, object counts, policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jobs.cluster.client.errors import ApiError, api_error
from jobs.cluster.client.kube import path
from jobs.diagnosis.refusals import read_refusal
from jobs.run.launcher import Launcher
from jobs.trial.spec import TrialSpec
from seatrial.faults.catalogue import catalogue
from tests.table import table

if TYPE_CHECKING:
    from jobs.cluster.client.kube import Kube
    from tests.jobs.conftest import Asked, FakeApi


@pytest.mark.parametrize(
    ("message", "subject", "advice"),
    [
        (
            'pods "x" is forbidden: exceeded quota: q, requested: limits.cpu=16, used: limits.cpu=8, limited: limits.cpu=16',
            "resourcequota/q",
            "lower limits",
        ),
        (
            'pods "x" is forbidden: exceeded quota: q, requested: cpu=8,limits.memory=64Gi, used: x, limited: y',
            "resourcequota/q",
            "lower limits",
        ),
        (
            'pods "x" is forbidden: exceeded quota: q, requested: requests.nvidia.com/gpu=8, used: limits.cpu=1, limited: y',
            "resourcequota/q",
            "fewer nodes",
        ),
        (
            'configmaps "x" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=1',
            "resourcequota/q",
            "objects",
        ),
        (
            'services "x" is forbidden: exceeded quota: q, requested: count/services=1, used: x, limited: y',
            "resourcequota/q",
            "objects",
        ),
        (
            'pods "x" is forbidden: exceeded quota: q, requested: count/pods=1, used: x, limited: y',
            "resourcequota/q",
            "fewer nodes",
        ),
        (
            'pods "x" is forbidden: failed quota: q: must specify limits.cpu for: main; limits.memory for: main',
            "resourcequota/q",
            "set limits (cpu, memory)",
        ),
        (
            'pods "x" is forbidden: failed quota: q: must specify cpu for: main; memory for: main',
            "resourcequota/q",
            "set cpu and memory",
        ),
    ],
)
def test_the_advice_fits_what_the_quota_counts(message: str, subject: str, advice: str) -> None:
    """Limits are not requests, and object counts are not nodes."""
    refusal = read_refusal(message)
    assert (refusal.fault, refusal.subject) == ("quota.exceeded", subject)
    assert advice in f"{refusal.suggestion}; {refusal.remedy}"


GPU, USED = "requests.nvidia.com/gpu=8", "requests.nvidia.com/gpu=16"


@table(
    "asked, used, limited, pods, in_use",
    [
        (GPU, USED, "requests.nvidia.com/gpu=16", 2, True),
        ("requests.cpu=8,requests.memory=32Gi", "x", "requests.cpu=20,requests.memory=64Gi", 2, True),
        (GPU, GPU, "requests.nvidia.com/gpu=8", 2, False),  # used by the first of two pods
        (GPU, USED, "requests.nvidia.com/gpu=16", 3, False),
        (GPU, USED, "requests.nvidia.com/gpu=16", 0, False),
        ("requests.cpu=8,requests.memory=33Gi", "x", "requests.cpu=20,requests.memory=64Gi", 2, False),
        ("count/jobs.batch=1", "count/jobs.batch=5", "count/jobs.batch=5", 1, False),
        ("requests.cpu=8", "x", "limited", 1, False),
        ("garbage", "x", "garbage", 1, False),
    ],
)
def test_a_quota_with_room_for_all_pods_is_only_in_use(
    asked: str, used: str, limited: str, pods: int, in_use: bool
) -> None:
    """The server's amounts decide; unreadable amounts, and counts that do not free up, are exceeded."""
    text = f'pods "x" is forbidden: exceeded quota: q, requested: {asked}, used: {used}, limited: {limited}'
    refusal = read_refusal(text, pods)
    assert (refusal.fault, refusal.in_use) == ("quota.in-use" if in_use else "quota.exceeded", in_use)


@pytest.mark.parametrize(
    ("resource", "message", "fault", "subject", "kind_and_name"),
    [
        (
            "services",
            "services \"x\" is forbidden: ValidatingAdmissionPolicy 'no-services' with binding 'b' denied request: no",
            "admission.denied",
            "policy/no-services",
            "Service seatrial-r1 could not be created, refused by policy/no-services: ",
        ),
        (
            "configmaps",
            'configmaps "x" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1',
            "quota.exceeded",
            "resourcequota/q",
            "ConfigMap seatrial-r1 could not be created, refused by resourcequota/q: ",
        ),
        (
            "jobs",
            'jobs.batch "x" is forbidden: not on Fridays',
            "admission.denied",
            "job/seatrial-r1",
            "Job seatrial-r1 could not be created: ",
        ),
    ],
)
def test_the_object_that_was_refused_is_named(
    kube: Kube, api: FakeApi, resource: str, message: str, fault: str, subject: str, kind_and_name: str
) -> None:
    """A policy on Services is not attributed to the Job."""

    def answer(asked: Asked) -> tuple[int, dict[str, str], Any]:
        if asked.verb == "POST" and asked.path.endswith(f"/{resource}"):
            return 403, {}, {"kind": "Status", "reason": "Forbidden", "message": message}
        if asked.verb == "POST":
            return 201, {}, asked.body
        return 404, {}, {"kind": "Status", "reason": "NotFound"}

    api.answer = answer
    analysis = Launcher(kube).run(TrialSpec(run_id="r1", namespace="ns", image="x", nodes=2, gpus_per_node=8)).analysis
    assert analysis is not None
    assert (analysis.fault, analysis.subject) == (fault, subject)
    assert analysis.observed.startswith(kind_and_name)
    assert analysis.expected == f"the API server accepts the {kind_and_name.split(maxsplit=1)[0]}"


DENIED = 'admission webhook "vtrainjob.kb.io" denied the request: '


@pytest.mark.parametrize(
    ("message", "fault", "subject", "advice"),
    [
        (
            f"{DENIED}unsupported runtime: ClusterTrainingRuntime.trainer.kubeflow.org",
            "launcher.runtime-unknown",
            "webhook/vtrainjob.kb.io",
            "restart Kueue's controller",
        ),
        (
            f"{DENIED}runtime 'torch-of-others' not found",
            "launcher.runtime-missing",
            "clustertrainingruntime/torch-of-others",
            "Apply Trainer's runtimes",
        ),
        (
            f"{DENIED}no runtime of team a is approved",
            "admission.denied",
            DENIED.split('"')[1],
            "Exempt the training namespace",
        ),
        (
            'admission webhook "gate.example.com" denied the request: unsupported runtime: runc',
            "admission.denied",
            "webhook/gate.example.com",
            "Exempt the training namespace",
        ),
    ],
)
def test_what_kueue_says_of_a_trainjobs_runtime(message: str, fault: str, subject: str, advice: str) -> None:
    """The runtimes may not be loaded yet, or this one is missing; messages of other components remain theirs."""
    refusal = read_refusal(message)
    assert refusal.fault == fault
    assert subject in refusal.subject
    assert advice in (refusal.remedy or catalogue()[fault].remedy)


UNANSWERED = (
    'Internal error occurred: failed calling webhook "vpj.example.org": failed to call webhook: Post '
    '"https://operator.team.svc:443/validate?timeout=10s": no endpoints available for service "operator"'
)


@pytest.mark.parametrize(
    ("status", "message", "fault"),
    [
        (500, UNANSWERED, "admission.webhook-down"),
        (500, "Internal error occurred: etcdserver: request timed out", ""),
        (451, DENIED + "no", "admission.denied"),
    ],
)
def test_a_webhook_refuses_by_whatever_status(kube: Kube, api: FakeApi, status: int, message: str, fault: str) -> None:
    """If the webhook does not respond, the API server returns 500; another 500 is not a refusal."""

    def answer(asked: Asked) -> tuple[int, dict[str, str], Any]:
        if asked.verb == "POST" and asked.path.endswith("/jobs"):
            return status, {}, {"kind": "Status", "reason": "InternalError", "message": message}
        if asked.verb == "POST":
            return 201, {}, asked.body
        return 404, {}, {"kind": "Status", "reason": "NotFound"}

    api.answer = answer
    spec = TrialSpec(run_id="r1", namespace="ns", image="x", nodes=2, gpus_per_node=8)
    if not fault:
        with pytest.raises(ApiError, match="etcdserver"):
            Launcher(kube).run(spec)
        return
    analysis = Launcher(kube).run(spec).analysis
    assert analysis is not None
    assert (analysis.fault, analysis.err_class) == (fault, "ERR_INFRA")


def test_the_namespace_that_takes_nothing_new_is_named() -> None:
    message = (
        'jobs.batch "x" is forbidden: unable to create new content in namespace team because it is being terminated'
    )
    assert (read_refusal(message).fault, read_refusal(message).subject) == ("namespace.terminating", "team")


def test_a_create_that_fails_knows_its_object(kube: Kube, api: FakeApi) -> None:
    """The object is known for any reason of the failure; an error of another request has no object."""
    api.answer = lambda _: (409, {}, {"kind": "Status", "reason": "AlreadyExists"})
    with pytest.raises(Exception, match="AlreadyExists") as caught:
        kube.create(path("services", namespace="ns"), {"kind": "Service", "metadata": {"name": "a"}})
    assert getattr(caught.value, "refused", None) == "Service a"
    assert api_error("GET /x", 404, {}).refused == ""
