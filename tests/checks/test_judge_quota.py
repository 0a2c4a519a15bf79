"""Room in the namespace's quotas for the whole gang, counted like the quota controller."""

import pytest

from checks.rules.admission import try_pods
from checks.rules.quota import demand, in_scope
from tests.checks.answers import JOB, POD, FakeKube, error, quota


@pytest.mark.parametrize(
    ("hard", "used", "short"),
    [
        ({"requests.nvidia.com/gpu": "16"}, {}, None),
        ({"requests.nvidia.com/gpu": "8"}, {}, ("requests.nvidia.com/gpu", "16 for 2 pods", "8 of 8 left")),
        (
            {"requests.nvidia.com/gpu": "16"},
            {"requests.nvidia.com/gpu": "8"},
            ("requests.nvidia.com/gpu", "16 for 2 pods", "8 of 16 left"),
        ),
        ({"cpu": "18"}, {}, None),
        ({"requests.cpu": "17"}, {}, ("requests.cpu", "18 for 2 pods", "17 of 17 left")),
        ({"memory": "64Gi"}, {}, None),
        ({"limits.memory": "63Gi"}, {}, ("limits.memory", "68719476736 for 2 pods", "67645734912 of 63Gi left")),
        ({"pods": "1"}, {}, ("pods", "2 for 2 pods", "1 of 1 left")),
        ({"count/jobs.batch": "3"}, {"count/jobs.batch": "3"}, ("count/jobs.batch", "1 for the trial", "0 of 3 left")),
        (
            {"configmaps": "1"},
            {"configmaps": "2"},
            ("configmaps", "1 for the trial", "0 of 1 left (2 used: more than that, since the quota was lowered)"),
        ),
        ({"persistentvolumeclaims": "0", "requests.amd.com/gpu": "0"}, {}, None),
        ({"cpu": "garbage"}, {}, None),
    ],
)
def test_a_quota_must_have_room_for_the_whole_gang(hard, used, short):
    """Room for one pod does not show room for two; resources that the trial does not use do not count."""
    admission = try_pods(FakeKube(quotas=[quota(hard, used)]), POD, JOB, pods=2)
    assert [(s.resource, s.needed, s.left) for s in admission.shortages] == ([short] if short else [])
    assert admission.fault == ("quota.exceeded" if short else "")
    granted = {
        key.removeprefix("requests.") for key, limit in hard.items() if "/" in key and limit not in ("0", "garbage")
    }
    assert admission.granted == granted


@pytest.mark.parametrize(
    ("hard", "used", "ok", "faults"),
    [
        ({"requests.nvidia.com/gpu": "16"}, {"requests.nvidia.com/gpu": "16"}, None, ["quota.in-use"]),
        ({"requests.nvidia.com/gpu": "16"}, {"requests.nvidia.com/gpu": "8"}, None, ["quota.in-use"]),
        ({"pods": "4"}, {"pods": "3"}, None, ["quota.in-use"]),
        ({"requests.nvidia.com/gpu": "15"}, {"requests.nvidia.com/gpu": "8"}, False, ["quota.exceeded"]),
        ({"requests.nvidia.com/gpu": "8"}, {}, False, ["quota.exceeded"]),
        ({"count/jobs.batch": "3"}, {"count/jobs.batch": "3"}, False, ["quota.exceeded"]),
        ({"cpu": "17", "pods": "4"}, {"pods": "3"}, False, ["quota.exceeded", "quota.in-use"]),
    ],
)
@pytest.mark.parametrize("refused", [False, True], ids=["one pod fits", "no pod fits"])
def test_a_quota_that_is_large_enough_and_in_use_is_not_at_fault(hard, used, ok, faults, refused):
    """A quota that is too small is at fault, and object counts do not free up; also when the dry run is refused."""
    text = "pods is forbidden: exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4"
    answers = {"Pod": error(403, text)} if refused else {}
    admission = try_pods(FakeKube(quotas=[quota(hard, used)], **answers), POD, JOB, pods=2)
    assert admission.ok is ok
    assert [short.fault for short in admission.shortages] == faults


def test_a_quota_that_is_not_yet_counted_limits_all_the_same():
    """A new quota has no status yet; its spec has the limit."""
    fresh = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.nvidia.com/gpu": "8"}}}
    assert try_pods(FakeKube(quotas=[fresh]), POD, JOB, pods=2).fault == "quota.exceeded"


@pytest.mark.parametrize(
    ("scope", "counts"),
    [
        ({"scopes": ["BestEffort"]}, False),
        ({"scopes": ["NotBestEffort"]}, True),
        ({"scopes": ["Terminating"]}, False),
        ({"scopes": ["NotTerminating"]}, True),
        ({"scopes": ["NotTerminating", "BestEffort"]}, False),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]
                }
            },
            False,
        ),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}}, True),
    ],
)
def test_a_scoped_quota_counts_the_pods_of_its_scope(scope, counts):
    """A quota for other pods is ignored; one for these pods counts them all."""
    admission = try_pods(FakeKube(quotas=[quota({"pods": "0"}, **scope)]), POD, JOB, pods=2)
    assert admission.fault == ("quota.exceeded" if counts else "")
    assert admission.notes == ()


@pytest.mark.parametrize(
    ("operator", "own", "counts"),
    [
        ("In", "high", True),
        ("In", "low", False),
        ("NotIn", "low", True),
        ("Exists", "low", True),
        ("Exists", "", False),
    ],
)
def test_a_quota_of_a_priority_class_counts_the_pods_of_that_class(operator, own, counts):
    term = {"scopeName": "PriorityClass", "operator": operator, "values": ["high"]}
    assert in_scope({"scopeSelector": {"matchExpressions": [term]}}, {"priorityClassName": own}) is counts


def test_quotas_that_are_not_seen_or_scoped_are_said_so():
    """A scoped quota and an unreadable one are listed as not judged, and do not fail."""
    scoped = try_pods(FakeKube(quotas=[quota({"pods": "0"}, scopes=["CrossNamespacePodAffinity"])]), POD, JOB, pods=2)
    assert scoped.ok is True
    assert "scopes" in scoped.notes[0]
    hidden = try_pods(FakeKube(quotas=error(403, "no")), POD, JOB, pods=2)
    assert hidden.ok is True
    assert "no permission" in hidden.notes[0]


def test_a_pod_counts_as_the_quota_controller_counts_it():
    """Sidecars add up, an init container counts if it requests more, and a limit without a request is the request."""
    demanded = {k: str(v.normalize()) for k, v in demand(JOB["spec"]["template"]["spec"]).items()}
    assert demanded["cpu"] == "9"
    assert demanded["requests.nvidia.com/gpu"] == "8"
    assert demanded["pods"] == "1"
