"""Results of the API, permission, namespace and admission checks for a server's answers."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from checks import test_admission as admission_checks
from checks import test_api as api_checks
from checks import test_namespace as namespace_checks
from checks.framework.evidence import CannotTell, CheckFailed
from checks.profiles.loader import Profile
from checks.profiles.schema import ApiSection
from checks.rules import rights
from checks.rules.admission import refusal, try_pods
from checks.rules.api import at_least, contact
from jobs.cluster.client.errors import Unauthorized, Unreachable
from jobs.cluster.client.http_client import Response
from jobs.cluster.facts.namespace import namespace_state
from jobs.trial.manifests import dry_pod
from tests.checks.answers import JOB, POD, FakeKube, error, quota
from tests.table import table

FORBIDDEN = 'pods "p" is forbidden: '


def test_contact_distinguishes_the_ways_of_not_being_answered():
    """Unreachable and unauthorized are different faults; an older server without whoami is fine."""
    assert contact(FakeKube()).version == "v1.36.2"
    assert contact(FakeKube(whoami=error(404, "nf"))).fault == ""
    assert contact(FakeKube(whoami=Unauthorized("x", status=401))).fault == "api.unauthorized"
    assert contact(FakeKube(version=Unreachable("refused"), whoami=Unreachable("refused"))).fault == "api.unreachable"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1.36.2", True),
        ("v1.28.0-eks-1", True),
        ("v1.27.9", False),
        ("v1.9.0", False),
        ("v2.0.1", True),
        ("", None),
        ("x", None),
    ],
)
def test_versions_are_compared_as_numbers(version, expected):
    """1.9 is older than 1.28 (api.version-too-old); a malformed version is undetermined."""
    assert at_least(version, "1.28") is expected


def test_an_api_that_does_not_answer_is_an_error_with_a_fault(evidence):
    """The state of the cluster is unknown: inconclusive, and the catalogue gives the next step."""
    with pytest.raises(CannotTell) as raised:
        api_checks.test_api_server_answers(FakeKube(whoami=Unreachable("connection refused")), evidence)
    assert raised.value.fault == "api.unreachable"
    with pytest.raises(CannotTell) as raised:
        api_checks.test_api_server_answers(FakeKube(whoami=Unauthorized("x", status=401)), evidence)
    assert raised.value.fault == "api.unauthorized"
    with pytest.raises(CannotTell):
        api_checks.test_api_server_answers(FakeKube(version={"hello": "proxy"}), evidence)


@pytest.mark.parametrize(
    ("skew", "fault"), [(0.4, ""), (-59.0, ""), (61.0, "api.clock-skew"), (-1800.0, "api.clock-skew"), (None, "")]
)
def test_a_skewed_clock_is_never_held_against_the_cluster(evidence, skew, fault):
    """Either clock may be wrong; without a Date header the skew is unknown."""
    if skew is not None and not fault:
        return api_checks.test_clocks_agree(FakeKube(skew=skew), evidence)
    with pytest.raises(CannotTell) as raised:
        api_checks.test_clocks_agree(FakeKube(skew=skew), evidence)
    assert raised.value.fault == fault
    return None


def test_latency_is_judged_by_the_profile_only(evidence, h100):
    """Without a limit latency is only shown; with one the median is judged (api.slow)."""
    kube = FakeKube()
    kube.seconds = [0.02] * 9 + [4.0]
    with pytest.raises(pytest.skip.Exception, match="no limit; the median of 10 answers is 20 ms"):
        api_checks.test_api_server_answers_soon_enough(kube, h100, evidence)
    limited = replace(h100, api=ApiSection(latency_max_s=0.1))
    api_checks.test_api_server_answers_soon_enough(kube, limited, evidence)
    kube.seconds = [0.2] * 10
    evidence.__init__()
    with pytest.raises(CheckFailed):
        api_checks.test_api_server_answers_soon_enough(kube, limited, evidence)
    assert [f.fault for f in evidence.findings] == ["api.slow"]


def test_an_old_control_plane_fails(evidence, h100):
    """1.27 lacks the index label."""
    with pytest.raises(CheckFailed):
        api_checks.test_kubernetes_is_new_enough(FakeKube(version={"gitVersion": "v1.27.16"}), h100, evidence)
    assert [f.fault for f in evidence.findings] == ["api.version-too-old"]


def session(*needs, tenant=False, profile=None):
    """Minimal session for the permission checks."""
    return SimpleNamespace(needs=frozenset(needs), tenant=tenant, profile=profile or Profile())


def test_a_missing_right_is_named_and_sight_is_not_asked_for(evidence, spec):
    """A missing permission of the run fails the check; one that only adds visibility is a note with alternatives."""
    answers = rights.Answers(FakeKube(denied={("create", "jobs"), ("list", "nodes")}))
    with pytest.raises(CheckFailed):
        namespace_checks.test_every_right_of_the_run_is_granted(
            session("run", "nodes", "pods"), answers, spec, evidence
        )
    assert [(f.subject, f.fault) for f in evidence.findings if not f.ok] == [
        ("create jobs.batch in team", "rights.missing")
    ]
    assert any("list nodes" in note and "--tenant" in note for note in evidence.notes)
    evidence.__init__()
    namespace_checks.test_every_right_of_a_training_job_is_granted(rights.Answers(FakeKube()), spec, evidence)


def test_no_right_is_asked_for_twice(evidence, spec):
    """The two permission checks share the answers."""
    kube = FakeKube()
    answers = rights.Answers(kube)
    namespace_checks.test_every_right_of_the_run_is_granted(
        session("run", "training", "nodes"), answers, spec, evidence
    )
    namespace_checks.test_every_right_of_a_training_job_is_granted(answers, spec, evidence)
    assert len(kube.asked) == len(set(kube.asked))


def test_a_tenants_excess_is_shown_and_judged_where_the_profile_says_so(evidence, h100):
    """An administrator may use --tenant; a profile that requires least privilege fails (rights.excessive)."""
    answers = rights.Answers(
        FakeKube(denied=[(r.verb, r.resource) for r in rights.EXCESSIVE if r.resource != "secrets"])
    )
    check = namespace_checks.test_a_tenant_may_not_reach_beyond_its_namespace
    with pytest.raises(pytest.skip.Exception, match="not a tenant's run"):
        check(session(), answers, h100, evidence)
    check(session(tenant=True), answers, h100, evidence)
    assert {f.observed.partition(" ")[0] for f in evidence.findings} == {"allowed", "denied"}
    evidence.__init__()
    with pytest.raises(CheckFailed):
        check(session(tenant=True), answers, replace(h100, least_rights=True), evidence)
    assert {f.fault for f in evidence.findings if not f.ok} == {"rights.excessive"}
    assert {f.subject for f in evidence.findings if not f.ok} == {
        "get secrets in all namespaces",
        "list secrets in all namespaces",
    }


def admission_check(kube, spec, evidence):
    admission = try_pods(kube, dry_pod(spec), {"kind": "Job"}, pods=spec.nodes)
    admission_checks.test_namespace_admits_the_pods(kube, admission, evidence)


def test_admission_shows_quota_by_quota(evidence, spec, h100):
    """Each quota that is too small for the gang is a separate finding."""
    small = quota({"requests.nvidia.com/gpu": "8", "pods": "1"})
    with pytest.raises(CheckFailed):
        admission_check(FakeKube(quotas=[small]), spec, evidence)
    assert {(f.subject, f.fault) for f in evidence.findings} == {("resourcequota/q", "quota.exceeded")}
    evidence.findings.clear()
    admission_check(FakeKube(), spec, evidence)
    namespace_checks.test_namespace_is_ready(FakeKube(), evidence)
    evidence.__init__()
    with pytest.raises(CannotTell):
        namespace_checks.test_namespace_is_ready(FakeKube(get={}), evidence)
    evidence.__init__()
    with pytest.raises(CannotTell):
        api_checks.test_kubernetes_is_new_enough(FakeKube(version={}), h100, evidence)


def test_every_right_is_asked_for_where_it_applies():
    """Namespaced permissions are checked in our namespace, cluster-wide ones globally, and the order is kept."""
    kube = FakeKube(denied={("create", "jobs")})
    asked = [*rights.RUN, *rights.NEEDS["nodes"], *rights.NEEDS["pods"]]
    answers = rights.ask(kube, asked)
    denied = [r.subject("team") for r, a in answers if not a.allowed]
    assert denied == ["create jobs.batch in team"]  # rights.missing
    assert ("list", "nodes", "", "", "") in kube.asked
    assert ("get", "pods", "", "log", "team") in kube.asked
    assert [r for r, _ in answers] == asked


def test_rights_are_named_as_kubectl_does():
    """The subject of a finding can be typed into kubectl."""
    assert rights.Right("get", "pods", subresource="log").subject("a") == "get pods/log in a"
    assert rights.Right("list", "nodes", scope="cluster").subject("a") == "list nodes"


@table(
    "answers, ok, fault",
    [
        ({}, True, ""),
        ({"get": error(404, 'namespaces "team" not found')}, False, "namespace.missing"),
        ({"get": {"status": {"phase": "Terminating"}}}, False, "namespace.terminating"),
        (
            {"get": {"metadata": {"deletionTimestamp": "t"}, "status": {"phase": "Active"}}},
            False,
            "namespace.terminating",
        ),
        ({"get": {}}, None, ""),
        ({"get": error(403, "no")}, True, ""),
        ({"get": error(403, "no"), "ConfigMap": error(404, 'namespaces "team" not found')}, False, "namespace.missing"),
        (
            {
                "get": error(403, "no"),
                "ConfigMap": error(
                    403, "unable to create new content in namespace team because it is being terminated"
                ),
            },
            False,
            "namespace.terminating",
        ),
        ({"get": error(403, "no"), "ConfigMap": error(403, "no")}, None, ""),
    ],
)
def test_the_namespace_is_seen_or_tried(answers, ok, fault):
    """A tenant without permission to read the namespace learns its state from a dry-run create."""
    state_finding = namespace_state(FakeKube(**answers))
    assert (state_finding.ok, state_finding.fault) == (ok, fault)


def test_the_pod_is_tried_as_a_pod():
    """A Job is accepted even if its pods violate a policy, so the dry run creates a pod."""
    kube = FakeKube()
    assert try_pods(kube, POD, JOB, pods=2).ok is True
    assert kube.asked == ["Pod"]


UNANSWERED = (
    'Internal error occurred: failed calling webhook "mpod.kb.io": failed to call webhook: Post '
    '"https://kueue-webhook-service.kueue-system.svc:443/mutate--v1-pod?timeout=10s": dial tcp 10.96.0.7:443: connect: '
    "connection refused"
)


@table(
    "message, fault",
    [
        (FORBIDDEN + 'violates PodSecurity "restricted:latest": unrestricted capabilities', "pod-security.denied"),
        (FORBIDDEN + "exceeded quota: q, requested: requests.nvidia.com/gpu=8, used: 0, limited: 2", "quota.exceeded"),
        (FORBIDDEN + "failed quota: q: must specify requests.cpu for: c", "quota.exceeded"),
        (FORBIDDEN + "maximum memory usage per Container is 1Gi, but limit is 32Gi", "limitrange.denied"),
        (FORBIDDEN + 'pod rejected: RuntimeClass "nvidia" not found', "runtimeclass.missing"),
        (FORBIDDEN + "no PriorityClass with name low was found", "priorityclass.missing"),
        (
            FORBIDDEN + 'error looking up service account team/robot: serviceaccount "robot" not found',
            "serviceaccount.missing",
        ),
        ('admission webhook "validate.kyverno.svc" denied the request: image not allowed', "admission.denied"),
        (UNANSWERED, "admission.webhook-down"),
        (FORBIDDEN + "some policy of the provider", "admission.denied"),
    ],
)
def test_each_gate_is_distinguished(message, fault):
    """The API server's own messages are recognised; any other refusal is from a webhook or a policy."""
    admission = try_pods(FakeKube(Pod=error(403, message)), POD, JOB, pods=2)
    assert (admission.ok, admission.fault) == (False, fault)
    assert admission.observed == message


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (422, "The pods \"p\" is invalid: : ValidatingAdmissionPolicy 'gpu-only' with binding 'b' denied request: no"),
        (400, 'admission webhook "validate.kyverno.svc-fail" denied the request: no'),
        (403, FORBIDDEN + "unable to validate against any security context constraint: [provider restricted-v2: no]"),
    ],
)
def test_a_policy_refuses_with_whatever_status_it_likes(status, message):
    """The default is 422, Kyverno uses 400, OpenShift's constraints 403: all are refusals by the cluster."""
    refused = refusal(error(status, message))
    assert (refused.ok, refused.fault) == (False, "admission.denied")
    assert refused.subject != "pod"


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, 'admission webhook "x" does not support dry run'),
        (500, "etcd is gone"),
        (422, 'Pod "p" is invalid: spec.x: y'),
        (404, 'namespaces "team" not found'),
    ],
)
def test_what_no_gate_said_is_not_reported(status, message):
    """A webhook without dry-run support, a server error and an invalid pod are not refusals by the cluster."""
    refused = refusal(error(status, message))
    assert refused.ok is None
    assert refused.fault == ("admission.no-dry-run" if "dry run" in message else "")


def test_without_the_right_to_create_pods_the_job_is_tried():
    """The Job's PodSecurity warning is read, and hidden parts are reported."""
    no_right = error(
        403, 'pods is forbidden: User "t" cannot create resource "pods" in API group "" in the namespace "team"'
    )
    admission = try_pods(FakeKube(Pod=no_right), POD, JOB, pods=2)
    assert admission.ok is True
    assert "not seen" in admission.notes[0]


@pytest.mark.parametrize(
    ("warn", "enforce", "ok"),
    [
        ("restricted", "restricted", False),
        ("baseline", "restricted", False),  # restricted also forbids whatever baseline forbids
        ("baseline", "baseline", False),
        ("restricted", "baseline", None),
        ("restricted", "privileged", True),
        ("restricted", "", None),  # the cluster-wide default is not visible
        ("restricted", None, None),  # no permission to read
    ],
)
def test_a_job_is_warned_by_one_level_and_its_pods_are_refused_by_another(warn, enforce, ok):
    no_right = error(403, 'User "t" cannot create resource "pods" in API group "" in the namespace "team"')
    warned = Response(201, {}, warnings=(f'would violate PodSecurity "{warn}:latest": runAsNonRoot != true',))
    labels = {"pod-security.kubernetes.io/enforce": enforce} if enforce else {}
    namespace = error(403, "namespaces is forbidden") if enforce is None else {"metadata": {"labels": labels}}
    kube = FakeKube(Pod=no_right, Job=warned, get=namespace)
    admission = try_pods(kube, POD, JOB, pods=2)
    assert (admission.ok, admission.fault) == (ok, "" if ok else "pod-security.denied")
