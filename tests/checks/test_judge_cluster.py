"""What the API, rights, namespace and admission checks say of a server's answers."""

from types import SimpleNamespace

import pytest

from checks import rights
from checks.admission import namespace_state, pod_of, refusal, try_pods
from checks.api import at_least, contact
from checks.quota import demand
from jobs.errors import Unauthorized, Unreachable, api_error
from jobs.kube import Allowed, Response


class FakeKube:
    """Answers from a table of (method, path end) to a value or an error."""

    namespace = "team"
    server = "https://k"

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    def _answer(self, key, default=None):
        value = self.answers.get(key, default)
        if isinstance(value, Exception):
            raise value
        return value

    def version(self):
        return self._answer("version", {"gitVersion": "v1.36.2"})

    def whoami(self):
        return self._answer("whoami", "trainer")

    def server_time_skew(self):
        return self._answer("skew", 0.0)

    def get(self, path, **_):
        return self._answer("get", {"status": {"phase": "Active"}})

    def list(self, path, **_):
        return self._answer("quotas", []), "1"

    def create(self, path, body, *, dry_run=False, **_):
        assert dry_run, "a check creates nothing"
        self.asked.append(body["kind"])
        return self._answer(body["kind"], Response(201, body))

    def can(self, verb, resource, *, group="", subresource="", namespace=None, name=""):
        self.asked.append((verb, resource, group, subresource, namespace))
        denied = self.answers.get("denied", ())
        return Allowed((verb, resource) not in denied, "no RBAC policy matched")


def error(status, message, reason=""):
    return api_error("POST /x", status, {"message": message, "reason": reason})


FORBIDDEN = 'pods "p" is forbidden: '


def test_contact_tells_the_ways_of_not_being_answered_apart():
    """Unreachable and unauthorized are different faults; an older server that does not know whoami is fine."""
    assert contact(FakeKube()).version == "v1.36.2"
    assert contact(FakeKube(whoami=error(404, "nf"))).fault == ""
    assert contact(FakeKube(whoami=Unauthorized("x", status=401))).fault == "api.unauthorized"
    assert contact(FakeKube(version=Unreachable("refused"), whoami=Unreachable("refused"))).fault == "api.unreachable"


@pytest.mark.parametrize(
    ("version", "expected"),
    [("v1.36.2", True), ("v1.28.0-eks-1", True), ("v1.27.9", False), ("v1.9.0", False), ("v2.0.1", True), ("", None), ("x", None)],
)
def test_versions_are_compared_as_numbers(version, expected):
    """1.9 is older than 1.28 (api.version-too-old), and what is no version is not told."""
    assert at_least(version, "1.28") is expected


def test_every_right_is_asked_for_where_it_applies():
    """Namespaced rights in our namespace, cluster-wide ones everywhere; the answers keep their order."""
    kube = FakeKube(denied={("create", "jobs")})
    found = rights.ask(kube, [*rights.RUN, *rights.SIGHT])
    denied = [r.subject("team") for r, a in found if not a.allowed]
    assert denied == ["create jobs.batch in team"]  # rights.missing
    assert ("list", "nodes", "", "", "") in kube.asked
    assert ("get", "pods", "", "log", "team") in kube.asked
    assert [r for r, _ in found] == [*rights.RUN, *rights.SIGHT]


def test_rights_are_named_as_kubectl_does():
    """The subject of a finding is what one types."""
    assert rights.Right("get", "pods", subresource="log").subject("a") == "get pods/log in a"
    assert rights.Right("list", "nodes", scope="cluster").subject("a") == "list nodes"


@pytest.mark.parametrize(
    ("answers", "ok", "fault"),
    [
        ({}, True, ""),
        ({"get": error(404, 'namespaces "team" not found')}, False, "namespace.missing"),
        ({"get": {"status": {"phase": "Terminating"}}}, False, "namespace.terminating"),
        ({"get": {"metadata": {"deletionTimestamp": "t"}, "status": {"phase": "Active"}}}, False, "namespace.terminating"),
        ({"get": {}}, None, ""),
        ({"get": error(403, "no")}, True, ""),
        ({"get": error(403, "no"), "ConfigMap": error(404, 'namespaces "team" not found')}, False, "namespace.missing"),
        ({"get": error(403, "no"), "ConfigMap": error(403, "unable to create new content in namespace team because it is being terminated")},
         False, "namespace.terminating"),
        ({"get": error(403, "no"), "ConfigMap": error(403, "no")}, None, ""),
    ],
)  # fmt: skip
def test_the_namespace_is_seen_or_tried(answers, ok, fault):
    """A tenant who may not read the namespace still learns its state from a create that is not done."""
    found = namespace_state(FakeKube(**answers))
    assert (found.ok, found.fault) == (ok, fault)


JOB = {
    "kind": "Job",
    "metadata": {"name": "seatrial-abc", "namespace": "team"},
    "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {
        "containers": [{"name": "trial", "resources": {
            "requests": {"cpu": "8", "memory": "32Gi"}, "limits": {"memory": "32Gi", "nvidia.com/gpu": "8"}}}],
        "initContainers": [{"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
                           {"name": "once", "resources": {"requests": {"cpu": "9"}}}]}}},
}  # fmt: skip


def test_the_pod_is_tried_as_a_pod():
    """The Job's template becomes the pod that the Job controller would create; the Job itself is left alone."""
    pod = pod_of(JOB)
    assert (pod["kind"], pod["metadata"]) == ("Pod", {"labels": {"a": "b"}, "name": "seatrial-abc-0", "namespace": "team"})
    pod["spec"]["containers"].clear()
    assert JOB["spec"]["template"]["spec"]["containers"]
    kube = FakeKube()
    assert try_pods(kube, JOB, pods=2).ok is True
    assert kube.asked == ["Pod"]


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        (FORBIDDEN + 'violates PodSecurity "restricted:latest": unrestricted capabilities', "pod-security.denied"),
        (FORBIDDEN + "exceeded quota: q, requested: requests.nvidia.com/gpu=8, used: 0, limited: 2", "quota.exceeded"),
        (FORBIDDEN + "failed quota: q: must specify requests.cpu for: c", "quota.exceeded"),
        (FORBIDDEN + "maximum memory usage per Container is 1Gi, but limit is 32Gi", "limitrange.denied"),
        (FORBIDDEN + 'pod rejected: RuntimeClass "nvidia" not found', "runtimeclass.missing"),
        (FORBIDDEN + "no PriorityClass with name low was found", "priorityclass.missing"),
        ('admission webhook "validate.kyverno.svc" denied the request: image not allowed', "admission.denied"),
        (FORBIDDEN + "some policy of the provider", "admission.denied"),
    ],
)
def test_each_gate_is_told_apart(message, fault):
    """The API server's own texts are known; anything else that forbids is a webhook or a policy."""
    found = try_pods(FakeKube(Pod=error(403, message)), JOB, pods=2)
    assert (found.ok, found.fault) == (False, fault)
    assert found.observed == message


@pytest.mark.parametrize(
    ("status", "message"),
    [(400, 'admission webhook "x" does not support dry run'), (500, "etcd is gone"), (422, 'Pod "p" is invalid: spec.x: y'),
     (404, 'namespaces "team" not found')],
)  # fmt: skip
def test_what_no_gate_said_is_not_told(status, message):
    """A webhook that cannot dry-run, a server in trouble and a pod that is itself wrong are no refusal of the cluster."""
    assert refusal(error(status, message)).ok is None


def test_without_the_right_to_create_pods_the_job_is_tried():
    """The Job's PodSecurity warning is read, and what stays unseen is said."""
    no_right = error(403, 'pods is forbidden: User "t" cannot create resource "pods" in API group "" in the namespace "team"')
    found = try_pods(FakeKube(Pod=no_right), JOB, pods=2)
    assert found.ok is True
    assert "not seen" in found.notes[0]
    warned = Response(201, {}, warnings=('would violate PodSecurity "restricted:latest": runAsNonRoot != true',))
    found = try_pods(FakeKube(Pod=no_right, Job=warned), JOB, pods=2)
    assert (found.ok, found.fault) == (False, "pod-security.denied")


def quota(hard, used=None, **spec):
    return {"metadata": {"name": "q"}, "spec": spec, "status": {"hard": hard, "used": used or {}}}


@pytest.mark.parametrize(
    ("hard", "used", "short"),
    [({"requests.nvidia.com/gpu": "16"}, {}, None), ({"requests.nvidia.com/gpu": "8"}, {}, ("requests.nvidia.com/gpu", "16", "8 of 8")),
     ({"requests.nvidia.com/gpu": "16"}, {"requests.nvidia.com/gpu": "8"}, ("requests.nvidia.com/gpu", "16", "8 of 16")),
     ({"cpu": "18"}, {}, None), ({"requests.cpu": "17"}, {}, ("requests.cpu", "18", "17 of 17")),
     ({"memory": "64Gi"}, {}, None), ({"limits.memory": "63Gi"}, {}, ("limits.memory", "68719476736", "67645734912 of 63Gi")),
     ({"pods": "1"}, {}, ("pods", "2", "1 of 1")), ({"count/jobs.batch": "3"}, {"count/jobs.batch": "3"}, ("count/jobs.batch", "1", "0 of 3")),
     ({"persistentvolumeclaims": "0", "requests.amd.com/gpu": "0"}, {}, None), ({"cpu": "garbage"}, {}, None)],
)  # fmt: skip
def test_a_quota_must_have_room_for_the_whole_gang(hard, used, short):
    """One pod that fits says nothing about two; what the trial does not use is no shortage."""
    found = try_pods(FakeKube(quotas=[quota(hard, used)]), JOB, pods=2)
    assert [(s.resource, s.needed, s.left) for s in found.shortages] == ([short] if short else [])
    assert found.fault == ("quota.exceeded" if short else "")


def test_quotas_that_are_not_seen_or_scoped_are_said_so():
    """A scoped quota and one that may not be read are named as not judged, and do not fail."""
    scoped = try_pods(FakeKube(quotas=[quota({"pods": "0"}, scopes=["BestEffort"])]), JOB, pods=2)
    assert scoped.ok is True
    assert "scopes" in scoped.notes[0]
    hidden = try_pods(FakeKube(quotas=error(403, "no")), JOB, pods=2)
    assert hidden.ok is True
    assert "no right" in hidden.notes[0]


def test_a_pod_counts_as_the_quota_controller_counts_it():
    """Sidecars add up, an init container counts where it asks for more, a limit without a request is the request."""
    found = {k: str(v.normalize()) for k, v in demand(JOB["spec"]["template"]["spec"]).items()}
    assert found["cpu"] == "9"
    assert found["requests.nvidia.com/gpu"] == "8"
    assert SimpleNamespace(**{"pods": found["pods"]}).pods == "1"
