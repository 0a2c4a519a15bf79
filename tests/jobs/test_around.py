"""Events around a job on one time axis, with likely causes separated from merely nearby ones."""

import datetime

import pytest

from jobs.cluster.facts.events import read_events
from jobs.diagnosis import around
from tests.table import table

BEGIN = datetime.datetime(2026, 1, 2, 3, 0, tzinfo=datetime.UTC)
FAILED = 600


def at(seconds):
    return (BEGIN + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(name, node, *, ended=None, code=1, conditions=()):
    state = {"running": {"startedAt": at(10)}}
    if ended is not None:
        end = {"exitCode": code, "reason": "Error", "startedAt": at(10), "finishedAt": at(ended)}
        state = {"terminated": end}
    return {
        "metadata": {"name": name, "creationTimestamp": at(0)},
        "spec": {"nodeName": node},
        "status": {"containerStatuses": [{"name": "main", "state": state}], "conditions": list(conditions)},
    }


PODS = [pod("train-0", "gpu-0", ended=FAILED + 5), pod("train-1", "gpu-1", ended=FAILED)]
NODES = {"train-0": "gpu-0", "train-1": "gpu-1"}


def event(reason, seconds, kind="Node", name="gpu-1", text="", type_="Warning"):
    target = {"kind": kind, "name": name}
    return {"involvedObject": target, "reason": reason, "message": text, "type": type_, "lastTimestamp": at(seconds)}


def judged_moments(*events, nodes=(), lines=(), pods=PODS):
    moments = [moment for each in pods for moment in around.from_pod(each)]
    moments += around.from_events(read_events(events), NODES)
    moments += [moment for node in nodes for moment in around.from_node(node)]
    moments += around.from_lines(pods[1], lines)
    return around.judged(moments, pods)


def roles(*events, **more):
    return {moment.text: moment.role for moment in judged_moments(*events, **more)}


def node(name, **conditions):
    listed = [{"type": k, "status": s, "lastTransitionTime": at(t), "reason": "R"} for k, (s, t) in conditions.items()]
    return {"metadata": {"name": name}, "status": {"conditions": listed}}


def test_the_first_failure_and_what_came_before_it_on_its_node():
    """One ordered axis; the second failure is a consequence of the first."""
    moments = judged_moments(
        event("XidError", FAILED - 12, text="NVRM: Xid (PCI:0000:1b): 79, GPU has fallen off the bus")
    )
    assert [(moment.kind, moment.role) for moment in moments] == [
        ("gpu", "likely"),
        ("failure", "failure"),
        ("failure", "nearby"),
    ]
    assert moments[0].why == "12 s before train-1 failed first, on its node"
    assert moments[2].why == "after the first failure"


@pytest.mark.parametrize(
    ("seconds", "role"),
    [
        (FAILED - 1700, "nearby"),
        (FAILED - 500, "likely"),
        (FAILED, "likely"),
        (FAILED + 1, "likely"),
        (FAILED + 3, "nearby"),
    ],
)
def test_a_cause_comes_before_its_effect_and_within_a_timeout(seconds, role):
    """Events before the job's start do not count; whole seconds are tolerated; later events are consequences or
    unrelated."""
    text = "Xid 79"
    assert roles(event("XidError", seconds, text=text)).get(f"XidError: {text}", "nearby") == role


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("NVRM: Xid (PCI:0000:1b:00): 31, pid=99, name=python, MMU Fault", "possible"),
        ("Xid 13: Graphics Exception", "possible"),
        ("NVRM: Xid (PCI:0000:1b:00): 79, pid=31, GPU has fallen off the bus", "likely"),
        ("NVRM: Xid (PCI:0000:31:00): 48, DBE", "likely"),
        ("NVRM: Xid (PCI:0000:1b:00): 31; NVRM: Xid (PCI:0000:1b:00): 95", "likely"),
        ("an Xid without its number", "likely"),
    ],
)
def test_an_xid_that_programs_bring_about_is_no_fault_of_a_gpu(text, role):
    """An Xid that programs can cause is shown with its usual meaning; a program bug is not a fault of the machine."""
    (moment,) = (each for each in judged_moments(event("XidError", FAILED - 2, text=text)) if each.kind == "gpu")
    assert moment.role == role and ("program itself" in moment.why) is (role == "possible")


def test_a_trouble_of_hours_ago_is_only_nearby():
    """The time exceeds any default timeout of torch.distributed."""
    late = [pod("train-0", "gpu-0", ended=8000), pod("train-1", "gpu-1", ended=7990)]
    assert roles(event("XidError", 600, text="Xid 63"), pods=late)["XidError: Xid 63"] == "nearby"


def test_the_failing_pods_own_node_goes_before_others():
    """A more severe problem elsewhere in the job remains possible; foreign nodes are not requested."""
    role_of = roles(
        event("XidError", FAILED - 100, name="gpu-0", text="Xid 79"),
        event("LinkDown", FAILED - 30, text="mlx5_3 port 1 down"),
        event("XidError", FAILED - 5, name="gpu-9", text="Xid 48"),
    )
    assert role_of["LinkDown: mlx5_3 port 1 down"] == "likely" and role_of["XidError: Xid 79"] == "possible"
    assert "XidError: Xid 48" not in role_of


def test_an_eviction_is_harder_than_all_else():
    """The eviction ended the pod."""
    disrupted = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "lastTransitionTime": at(FAILED - 2),
    }
    pods = [PODS[0], pod("train-1", "gpu-1", ended=FAILED, conditions=[disrupted])]
    role_of = roles(event("IOError", FAILED - 3, text="Input/output error on sda"), pods=pods)
    assert role_of["EvictionByEvictionAPI"] == "likely" and role_of["IOError: Input/output error on sda"] == "possible"


def test_a_lost_node_is_reported_late():
    """NotReady is reported up to 50 s after the loss; a later report is unrelated."""
    assert roles(nodes=[node("gpu-1", Ready=("Unknown", FAILED + 45))])["Ready=Unknown (R)"] == "likely"
    assert roles(nodes=[node("gpu-1", Ready=("Unknown", FAILED + 90))])["Ready=Unknown (R)"] == "nearby"
    assert roles(nodes=[node("gpu-1", Ready=("True", FAILED + 20))])["Ready=True again"] == "nearby"
    assert roles(nodes=[node("gpu-1", Ready=("True", -900))]) == roles()  # since before the job
    assert roles(nodes=[node("gpu-1", KernelDeadlock=("True", FAILED - 9))])["KernelDeadlock=True (R)"] == "likely"
    assert roles(nodes=[node("gpu-1", KernelDeadlock=("False", FAILED - 9))]) == roles()


def test_storage_is_reported_by_events_and_by_the_programs_words():
    """A mount that failed before the container started had succeeded in the end."""
    early = event("FailedMount", 5, kind="Pod", name="train-1", text="MountVolume.SetUp failed")
    line = f"{at(FAILED - 4)} OSError: [Errno 5] Input/output error: '/data/shard-7'"
    moments = judged_moments(early, lines=[line, f"{at(FAILED - 4)} loss 2.1", "no time Input/output error"])
    assert [(moment.kind, moment.role) for moment in moments[:2]] == [("storage", "nearby"), ("storage", "likely")]
    assert moments[0].why == "before its container started successfully"
    assert moments[1].why == "4 s before train-1 failed first, in this pod"


def test_a_logs_own_offset_and_nanoseconds_are_one_axis_with_the_rest():
    """The container runtime's node may be in another time zone."""
    line = "2026-01-02T05:09:58.123456789+02:00 Input/output error"
    (the_moment,) = (moment for moment in judged_moments(lines=[line]) if moment.kind == "storage")
    assert (the_moment.at, the_moment.role) == ("2026-01-02T03:09:58.123Z", "likely")


def test_of_a_job_that_has_not_failed_nothing_is_at_fault():
    """A job that has not failed has no failure to explain."""
    running = [pod("train-0", "gpu-0"), pod("train-1", "gpu-1", ended=500, code=0)]
    assert set(roles(event("XidError", 300, text="Xid 63"), pods=running).values()) == {"nearby"}


def test_foreign_times_and_texts_are_bounded():
    """Events without a time or a zone, or in a flood, are dropped, the likely cause never."""
    flood = [event("XidError", FAILED - n % 500, name="gpu-0", text=f"Xid {n}") for n in range(500)]
    odd = {
        "involvedObject": {"kind": "Node", "name": "gpu-1"},
        "reason": "Xid",
        "type": "Warning",
        "lastTimestamp": "soon",
    }
    moments = judged_moments(*flood, odd, event("XidError", FAILED - 1, text="Xid 79 \x1b[31m" + "x" * 5000))
    assert len(moments) == around.MOST and all(len(moment.text) <= 300 for moment in moments)
    assert [moment.node for moment in moments if moment.role == "likely"] == ["gpu-1"]
    assert not any("\x1b" in moment.text for moment in moments)


NO_PREEMPTION = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 3 Preemption is not helpful."


@table(
    "warned, kind, role",
    [
        (event("FailedScheduling", 3, kind="Pod", name="train-1", text=NO_PREEMPTION), None, None),
        (event("Preempted", FAILED - 1, kind="Pod", name="train-1", text="by team/other"), "eviction", "likely"),
        (
            event("CheckLimitsForResolvConf", FAILED - 60, text="Resolv.conf file has been truncated"),
            "other",
            "possible",
        ),
        (event("ImageGCFailed", FAILED - 60, text="wanted to free 9 bytes"), "other", "possible"),
        (
            event("TaintManagerEviction", FAILED - 5, "Pod", "train-1", "Cancelling deletion of Pod n/train-1"),
            None,
            None,
        ),
        (
            event("TaintManagerEviction", FAILED - 5, "Pod", "train-1", "Marking for deletion Pod n/train-1"),
            "eviction",
            "likely",
        ),
        (event("DeletingNode", FAILED - 5, text="not in the cloud any more", type_="Normal"), "node", "likely"),
        (event("ScaleDown", FAILED - 5, "Pod", "train-1", "for node scale down", "Normal"), "node", "likely"),
        (event("ScaleDownFailed", FAILED - 5, text="no place for its pods"), "other", "possible"),
        (event("SystemOOM", FAILED - 2, text="victim process: python"), "node", "likely"),
        (event("EvictionThresholdMet", FAILED - 9, text="to reclaim ephemeral-storage"), "node", "likely"),
    ],
)
def test_what_every_cluster_says_of_healthy_jobs_is_no_cause(warned, kind, role):
    """The scheduler mentions preemption to each waiting pod; many kubelet warnings are harmless."""
    kinds = [(moment.kind, moment.role) for moment in judged_moments(warned) if moment.kind != "failure"]
    assert kinds == ([(kind, role)] if kind else [])


def test_an_evicted_pod_that_reports_no_container_is_the_failure():
    ended = {"status": "True", "reason": "TerminationByKubelet", "lastTransitionTime": at(FAILED)}
    evicted = pod("train-1", "gpu-1", conditions=[{"type": "DisruptionTarget", **ended}])
    evicted["status"] |= {"containerStatuses": [], "phase": "Failed", "reason": "Evicted"}
    assert roles(pods=[PODS[0], evicted]) == {
        "TerminationByKubelet": "likely",
        "the pod failed: Evicted": "failure",
        "container main ended: Error, exit code 1": "nearby",
    }


def test_a_cause_that_goes_on_began_before_its_effect():
    """For an event with a count of nine, the last time is after the failure, and the first time counts."""
    again = event("IBLinkDown", FAILED + 30) | {"firstTimestamp": at(FAILED - 100), "count": 9}
    assert [moment.role for moment in judged_moments(again) if moment.kind == "link"] == ["likely", "nearby"]
    other_time = event("IBLinkDown", -30) | {"firstTimestamp": at(-100), "count": 9}
    assert [moment for moment in judged_moments(other_time) if moment.kind == "link"] == []


@table(
    "line, kind",
    [
        ("bnxt_en 0000:3b:00.0 eth0: NIC Link is Down", "link"),
        ("mlx5_core 0000:1b:00.0 ens1f0np0: Link down", "link"),
        ("bond0: (slave ens1): link status definitely down, disabling slave", "link"),
        ("mlx5_0 port 1 state DOWN", "link"),
        ("port_state: DOWN", "link"),
        ("NCCL WARN NET/IB : mlx5_0:1 Got async event : port error", "link"),
        ("OSError: [Errno 122] Disk quota exceeded", "storage"),
        ("cache Evicted 3 entries, then Input/output error", "storage"),
        ("0/3 nodes: Preemption is not helpful for scheduling", ""),
        ("fp8 support is DOWN", ""),
        ("Downloading from link lost-and-found", ""),
        ("loaded model.layers.0.mlp.port_down_proj", ""),
    ],
)
def test_lines_of_links_and_storage_and_those_that_only_look_like_them(line, kind):
    assert around.kind_of("", line) == kind
