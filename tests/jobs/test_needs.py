"""Rules shared by an admission policy and a manifest's lint: CEL and function agree for any pod."""

import celpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.profiles.loader import load_profile
from checks.profiles.trial import spec_of
from jobs.trial.needs import QUEUE, needs_of, queue_need
from jobs.trial.parts import Queue
from tests.jobs.test_admission_policy import evaluate


@pytest.fixture(scope="module", autouse=True)
def ready():
    """Have CEL raise the recursion limit, which must not change within a property."""
    celpy.Environment()


SPEC = spec_of(load_profile("h100-ib"), run_id="r", namespace="train", annotations={"k8s.v1.cni.cncf.io/networks": "n"})
NIC = next(iter(SPEC.resources))
AMOUNTS = st.dictionaries(
    st.sampled_from(["nvidia.com/gpu", NIC, "cpu"]), st.sampled_from(["0", "1", "4", "8", "16", 1, 8]), max_size=3
)
SECURITY = st.fixed_dictionaries(
    {},
    optional={
        "privileged": st.booleans(),
        "capabilities": st.fixed_dictionaries(
            {}, optional={"add": st.lists(st.sampled_from(["IPC_LOCK", "CAP_IPC_LOCK", "ALL", "SYS_TIME"]), max_size=2)}
        ),
    },
)
CONTAINER = st.fixed_dictionaries(
    {"name": st.just("c")},
    optional={
        "resources": st.fixed_dictionaries({}, optional={"limits": AMOUNTS}),
        "securityContext": SECURITY,
        "restartPolicy": st.just("Always"),
    },
)
POD = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {}, optional={"annotations": st.sampled_from([{}, {"k8s.v1.cni.cncf.io/networks": "x"}])}
        ),
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(CONTAINER, min_size=1, max_size=2)},
            optional={"initContainers": st.lists(CONTAINER, max_size=2)},
        ),
    }
)


def test_every_kind_of_need_is_there():
    assert [need.fault for need in needs_of(SPEC)] == [
        "manifest.no-rdma",
        "manifest.no-network",
        "manifest.no-ipc-lock",
    ]


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(POD)
def test_the_policy_and_the_lint_say_the_same_of_any_pod(pod):
    for need in needs_of(SPEC):
        assert need.met(pod) == evaluate(need.cel, pod), need.fault


def test_the_queue_is_needed_only_where_there_is_one():
    queued = spec_of(load_profile("h100-ib"), run_id="r", namespace="t", queue=Queue(kind="kueue", name="q"))
    need = queue_need(queued)
    for job in ({"metadata": {}}, {"metadata": {"labels": {}}}, {"metadata": {"labels": {QUEUE: "q"}}}):
        assert need.met(job) == evaluate(need.cel, job)
    assert queue_need(SPEC) is None
    assert queue_need(spec_of(load_profile("h100-ib"), run_id="r", namespace="t", queue=Queue(kind="volcano"))) is None
