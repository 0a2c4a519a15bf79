"""Results of nodes.gpu, gpu.allocatable and gpu.free for an inventory."""

import datetime
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from checks import test_nodes as node_checks
from checks.framework.evidence import Blocked, CannotTell
from checks.profiles.loader import Profile
from checks.rules.capacity import placed, releases, room_findings, rooms
from checks.rules.nodes import node_findings, offer, offers, other_events, refusals, report_findings
from checks.rules.pool import Pool, pool_of
from cli.listing import declared_checks
from jobs.cluster.client.errors import Forbidden
from jobs.cluster.facts.conditions import Report, reported, warned
from jobs.cluster.facts.inventory import PodUse, Taint
from jobs.trial.rooms import tolerated
from reports.record import Run
from tests.checks import operands


def test_two_healthy_nodes_raise_nothing(inventory, node, h100, spec, bad):
    """A healthy pair passes all three rules, and every node has a finding."""
    cluster = inventory([node("a"), node("b")])
    assert [f.subject for f in node_findings(cluster, pool_of(cluster, h100), h100)] == ["a", "b"]
    assert not bad(node_findings(cluster, pool_of(cluster, h100), h100))
    assert not bad(offer(n, h100) for n in cluster.nodes)
    assert [r.fault for r in rooms(cluster, cluster.nodes, spec)] == ["", ""]


def test_an_empty_cluster_is_never_green(inventory, h100, bad):
    """No nodes is a separate fault, not an empty pass."""
    assert bad(node_findings(inventory([]), Pool(), h100)) == [("cluster", "nodes.none")]


def test_cpu_nodes_alone_are_no_gpu_cluster(inventory, node, h100, bad):
    """Nodes without any GPU sign are one fault of the cluster."""
    cluster = inventory([node("a", None, None), node("b", None, None)])
    assert bad(node_findings(cluster, pool_of(cluster, h100), h100)) == [("cluster", "nodes.no-gpu")]


def test_gpus_of_another_vendor_are_another_profiles(inventory, node, h100, bad):
    """Without --profile, or with a wrong one, an AMD cluster is not reported as having no GPUs; it is not judged."""
    amd = replace(node("a", None, None), capacity={"amd.com/gpu": 8})
    cluster = inventory([amd, node("cpu", None, None)])
    for profile in (Profile(), h100):
        (finding,) = node_findings(cluster, pool_of(cluster, profile), profile)
        assert (finding.ok, finding.fault) == (None, "nodes.other-kind")
        assert finding.observed == "no nvidia.com/gpu, but amd.com/gpu (a)"


def test_one_gpu_node_is_too_few(inventory, node, h100, bad):
    """A trial over two nodes cannot be run on one."""
    cluster = inventory([node("a"), node("cpu", None, None)])
    assert bad(node_findings(cluster, pool_of(cluster, h100), h100)) == [("cluster", "nodes.too-few")]


@pytest.mark.parametrize(("nodes", "fault"), [(["a"], "nodes.too-few"), (["cpu"], "nodes.no-gpu")])
def test_what_a_selector_leaves_out_is_no_fault_of_a_cluster(inventory, node, h100, nodes, fault):
    """--nodes selected too few nodes; other nodes may exist."""
    cluster = inventory([node("cpu", None, None) if name == "cpu" else node(name) for name in nodes])
    (finding, *_) = node_findings(cluster, pool_of(cluster, h100), h100, selector="rack=r1")
    assert (finding.ok, finding.fault) == (None, fault)
    assert "--nodes rack=r1" in finding.observed


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        ({"ready": False}, "nodes.not-ready"),
        ({"pressures": ("DiskPressure",)}, "nodes.pressure"),
        ({"ready": False, "pressures": ("DiskPressure",)}, "nodes.not-ready"),
    ],
)
def test_a_node_that_is_not_ready_is_named(inventory, node, h100, bad, broken, fault):
    """NotReady and pressure are faults of the node, one each."""
    cluster = inventory([node("a"), node("b", **broken)])
    assert bad(node_findings(cluster, pool_of(cluster, h100), h100)) == [("b", fault)]


@pytest.mark.parametrize(
    ("capacity", "allocatable", "fault"),
    [
        (8, 8, ""),
        (8, 7, "gpu.missing"),
        (7, 7, "gpu.missing"),
        (8, 0, "gpu.none-allocatable"),
        (None, None, "gpu.none-allocatable"),
        (0, 0, "gpu.none-allocatable"),
        (32, 32, "gpu.oversubscribed"),
    ],
)
def test_the_number_of_gpus_is_the_profiles(node, h100, capacity, allocatable, fault):
    """The offered number is compared with the profile; a self-consistent node may still have lost a GPU."""
    finding = offer(node("a", capacity, allocatable), h100)
    assert (finding.fault, finding.ok) == (fault, not fault)


@pytest.mark.parametrize(
    ("capacity", "allocatable", "said"),
    [
        (None, None, "no nvidia.com/gpu at all: no device plugin has registered"),
        (0, 0, "a device plugin existed before"),
        (8, 0, "0 allocatable of 8 in capacity"),
    ],
    ids=["never registered", "gone for minutes, or the kubelet restarted", "stopped, or all unhealthy"],
)
def test_what_is_there_of_a_device_plugin_is_said(node, h100, capacity, allocatable, said):
    """The kubelet keeps the capacity for minutes after a plugin stops, then reports 0; the key remains (real nodes)."""
    assert offer(node("a", capacity, allocatable), h100).observed.startswith(("0 allocatable", "no nvidia"))
    assert said in offer(node("a", capacity, allocatable), h100).observed


PLACED, STATE = "nvidia.com/gpu.deploy.device-plugin", "nvidia.com/mig.config.state"


@pytest.mark.parametrize(
    ("amount", "labels", "pods", "said"),
    [
        (0, {}, [operands.pod("plugin-1")], "gpu-operator/plugin-1 is Ready: it found no GPU, or its kubelet lost it"),
        (None, {}, [operands.pod("plugin-1")], "gpu-operator/plugin-1 is Ready"),
        (0, {}, [operands.pod("plugin-1", ready=False)], "existed before and is gone"),
        (0, {PLACED: "false"}, [], f"; {PLACED}=false"),
        (None, {PLACED: "false"}, [], f"; {PLACED}=false"),
        (
            0,
            {PLACED: "paused-for-mig-change", STATE: "pending"},
            [],
            f"{PLACED}=paused-for-mig-change, {STATE}=pending",
        ),
        (0, {PLACED: "true", STATE: "failed"}, [], f"; {STATE}=failed"),
        (0, {PLACED: "true", STATE: "success"}, [], "existed before and is gone"),
    ],
)
def test_what_keeps_a_device_plugin_away_is_said_and_a_ready_one_is_not_called_gone(
    inventory, node, h100, amount, labels, pods, said
):
    """The remedies differ: a label, MIG manager, the plugin's dependency, or its pod and the kubelet."""
    cluster = inventory([node("a", amount, amount, labels=labels)])
    (finding,) = offers(Pool(cluster.nodes), h100, 1, {"a": pods})
    assert finding.fault == "gpu.none-allocatable"
    assert said in finding.observed
    assert not any(each.ready for each in pods) or "existed before and is gone" not in finding.observed
    assert not said.endswith("any more") or finding.observed.endswith(said)


def test_without_a_profile_capacity_is_the_yardstick(node):
    """Only allocatable below capacity can then be detected; the check ends as an error."""
    assert offer(node("a", 8, 7), Profile()).fault == "gpu.missing"
    assert offer(node("a", 4, 4), Profile()).ok is True


def test_taken_gpus_name_their_holder(inventory, node, spec):
    """The finding has the owner and the namespace of the pods that hold the GPUs."""
    pods = [("nb", "w-0", "a", 8, "Job/notebook"), ("nb", "w-1", "b", 8, "Job/notebook")]
    node_rooms = rooms(cluster := inventory([node("a"), node("b")], pods), cluster.nodes, spec)
    assert [r.fault for r in node_rooms] == ["gpu.taken", "gpu.taken"]
    assert node_rooms[0].observed == "0 of 8 free; in use by other workloads: Job/notebook in nb (8)"
    assert releases(cluster, node_rooms, spec) == []


SLURM, TEAM = ("slurm", "w", "b", 8, "NodeSet/w"), ("x", "p", "b", 8, "Job/other")


@pytest.mark.parametrize(
    ("a", "pods", "expected"),
    [
        ({}, [TEAM], {"a": (True, ""), "b": (None, "gpu.taken")}),
        ({}, [SLURM], {"a": (True, ""), "b": (None, "gpu.held-by-slurm")}),
        ({"unschedulable": True}, [TEAM], {"a": (False, "nodes.cordoned"), "b": (None, "gpu.taken")}),
        ({"unschedulable": True}, [], {"a": (False, "nodes.cordoned"), "b": (True, "")}),
        ({"capacity": 8, "allocatable": 7}, [TEAM], {"a": (False, "gpu.missing"), "b": (None, "gpu.taken")}),
        ({"capacity": 4, "allocatable": 4}, [], {"a": (False, "gpu.missing"), "b": (True, "")}),
    ],
)
def test_gpus_in_use_by_others_are_nobodys_fault(inventory, node, spec, a, pods, expected):
    """Other reasons remain faults: a cordon, a GPU that is not offered."""
    cluster = inventory([node("a", **a), node("b")], pods)
    findings = room_findings(rooms(cluster, cluster.nodes, spec), spec)
    assert {f.subject: (f.ok, f.fault) for f in findings} == expected


def test_a_cordoned_node_is_not_at_fault_where_busy_ones_would_be_enough(inventory, node, spec):
    """The trial waits for the two busy nodes; the cordon of a third changes nothing."""
    pods = [("x", f"p-{name}", name, 8, "Job/other") for name in "ab"]
    cluster = inventory([node("a"), node("b"), node("c", unschedulable=True)], pods)
    findings = room_findings(rooms(cluster, cluster.nodes, spec), spec)
    assert [(f.subject, f.ok, f.fault) for f in findings] == [
        ("a", None, "gpu.taken"),
        ("b", None, "gpu.taken"),
        ("c", None, ""),
    ]


def test_a_slurm_nodeset_is_named_with_the_command_that_frees_its_nodes(inventory, node, spec):
    """Only the missing number of nodes is taken from Slurm."""
    pods = [("slurm", f"w-{n}", name, 8, "NodeSet/worker") for n, name in enumerate("abc")]
    pods += [("slurm", "login", "d", 0, "Deployment/login"), ("other", "w-0", "d", 0, "NodeSet/worker")]
    node_rooms = rooms(cluster := inventory([node(name) for name in "abcd"], pods), cluster.nodes, spec)
    assert [r.fault for r in node_rooms] == ["gpu.held-by-slurm"] * 3 + [""]
    (said,) = releases(cluster, node_rooms, spec)
    assert "kubectl -n slurm scale nodesets.slinky.slurm.net/worker --replicas=2 frees 1 of its 3 nodes" in said


def test_a_cordon_is_one_cause_not_two(inventory, node, spec):
    """A cordoned node also has a control plane taint, and perhaps busy GPUs: only the cordon is reported."""
    taint = ("node.kubernetes.io/unschedulable", "", "NoSchedule")
    cluster = inventory([node("a", unschedulable=True, taints=[taint])], [("x", "p", "a", 8, "")])
    assert [r.fault for r in rooms(cluster, cluster.nodes, spec)] == ["nodes.cordoned"]


def test_a_foreign_taint_is_named(inventory, node, spec):
    """A taint that the pod does not tolerate prevents scheduling; the GPU taint of managed clusters is tolerated."""
    cluster = inventory(
        [
            node("a", taints=[("team", "vision", "NoSchedule")]),
            node("b", taints=[(spec.gpu_resource, "present", "NoSchedule")]),
            node("c", taints=[("soft", "", "PreferNoSchedule")]),
        ]
    )
    node_rooms = rooms(cluster, cluster.nodes, spec)
    assert [r.fault for r in node_rooms] == ["nodes.tainted", "", ""]
    assert "team=vision:NoSchedule" in node_rooms[0].observed


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "k"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations_match_as_kubernetes_does(toleration, expected):
    """Key, operator, value and effect follow Kubernetes' defaults."""
    assert tolerated(Taint("k", "v", "NoSchedule"), [toleration]) is expected


def test_what_the_user_chose_and_is_not_there_raises_no_fault(inventory, h100):
    """A selector or name that matches no node is inconclusive and is quoted."""
    (finding,) = node_findings(inventory([]), Pool(), h100, "pool=nosuch")
    assert (finding.ok, finding.fault, finding.observed) == (
        None,
        "nodes.other-kind",
        "no node matches --nodes pool=nosuch",
    )
    unknown = [f for f in node_findings(inventory([]), Pool(), h100, "", ("gone", "gone")) if f.ok is None]
    assert [(f.subject, f.fault) for f in unknown] == [("gone", "nodes.other-kind")]


def test_a_trial_is_placed_only_on_nodes_that_have_room_with_the_unfit(inventory, node, h100, spec):
    """Of four nodes one is unfit and one cordoned: two are enough for two pods and too few for three."""
    nodes = [node("a"), node("b"), node("c"), node("d", unschedulable=True)]
    cluster = inventory(nodes)
    judged_pool = pool_of(cluster, h100)
    assert placed(cluster, judged_pool, spec, ["a"]).avoided == ("a",)
    named = replace(spec, node_names=("a", "b", "c", "d"))
    assert placed(cluster, judged_pool, named, ["a"]).node_names == ("b", "c")
    with pytest.raises(Blocked, match="needs 3 nodes, and 2 are left without a"):
        placed(cluster, judged_pool, replace(spec, nodes=3), ["a"])


def conditions(*triples):
    """Return a node's status with conditions (type, status, message)."""
    return {"conditions": [{"type": kind, "status": state, "message": said} for kind, state, said in triples]}


@pytest.mark.parametrize(
    ("kind", "state", "said", "ok"),
    [
        ("GpuUnhealthy", "True", "XID 79 on GPU 3", False),
        ("GPUMissing", "True", "7 of 8", False),
        ("AcceleratedHardwareReady", "False", "NvidiaXID48Error", False),
        ("AcceleratedHardwareReady", "Unknown", "the agent is gone", None),
        ("EtcdIsVoter", "True", "MemberNotLearner", True),
        ("EtcdIsVoter", "False", "MemberIsLearner", None),
        ("GpuIsLost", "True", "", False),
        ("IBLinkFlapping", "True", "mlx5_3", False),
        ("GpuXidError", "True", "Xid 13: of a program", None),
        ("GpuNvlinkWatch", "True", "ErrorCode:DCGM_FR_IMEX_UNHEALTHY GPU:0 IMEX daemon status is -3 (not READY)", None),
        ("GpuNvlinkWatch", "True", "ErrorCode:DCGM_FR_IMEX_UNHEALTHY GPU:0; ErrorCode:DCGM_FR_NVLINK_DOWN", False),
        ("KernelDeadlock", "True", "task hung", None),
        ("KernelReady", "False", "soft lockup", None),
        ("GpuUnhealthy", "False", "", True),
        ("AcceleratedHardwareReady", "True", "", True),
        ("GpuUnhealthy", "Unknown", "", True),
        ("SeatrialFailed", "True", "an earlier run", True),
        ("NetworkUnavailable", "False", "", True),
        ("DiskPressure", "True", "judged as pressure", True),
    ],
)
def test_a_condition_of_an_agent_is_judged_by_what_its_name_promises(node, kind, state, said, ok):
    """nodes.unhealthy: a condition about GPUs or links fails, any other leaves the node undetermined."""
    sick = replace(node("a"), reports=tuple(reported("a", conditions((kind, state, said)))))
    (finding,) = report_findings([sick], [])
    assert (finding.ok, finding.fault) == (ok, "" if ok else "nodes.unhealthy")
    assert ok or f"{kind}={state}" in finding.observed


def test_a_warning_event_about_a_gpu_leaves_its_node_open_and_others_are_mentioned(node):
    """An event of the last hour may be about a repaired fault."""
    events = [Report("a", "XIDError", "event XIDError (Xid 79)"), Report("b", "ImageGCFailed", "event ImageGCFailed")]
    nodes = [node("a"), node("b"), node("c")]
    assert [finding.ok for finding in report_findings(nodes, events)] == [None, True, True]
    assert list(other_events(nodes, events)) == ["b: event ImageGCFailed"]


@pytest.mark.parametrize(
    ("message", "action"),
    [("XID 79 on GPU 3", "REBOOT_NODE"), ("Xid 999 on gpu-79", "UNKNOWN"), ("GPU 3 is lost", "UNKNOWN")],
)
def test_a_condition_that_names_an_xid_asks_for_what_the_xid_does(node, message, action):
    """Without an Xid the fault's entry decides; an event may be old and requires no action."""
    reports = tuple(reported("gpu-79", conditions(("GpuUnhealthy", "True", message))))
    (found,) = report_findings([replace(node("gpu-79"), reports=reports)], [])
    assert (found.ok, found.action) == (False, action)
    (found,) = report_findings([node("gpu-79")], [Report("gpu-79", "XIDError", f"event XIDError ({message})")])
    assert (found.ok, found.action) == (None, "")


def test_what_one_condition_asks_for_is_not_said_of_another(node):
    """An agent that requires no action does not affect another agent's missing GPU."""
    nothing = ("GpuNvlinkWatch", "True", "ErrorCode:X Recommended Action=NONE")
    for others, action in (((), "NONE"), ((("GPUMissing", "True", "7 of 8"),), "UNKNOWN")):
        reports = tuple(reported("a", conditions(nothing, *others)))
        (found,) = report_findings([replace(node("a"), reports=reports)], [])
        assert (found.ok, found.action) == (False, action)


def test_a_nodes_own_name_makes_no_report_one_about_its_gpus(node):
    """Nodes are named gpu-node-1, and agents include node names in every message."""
    (sick,) = [
        replace(node("gpu-1"), reports=tuple(reported("gpu-1", conditions(("KernelDeadlock", "True", "gpu-1 hangs")))))
    ]
    assert [finding.ok for finding in report_findings([sick], [])] == [None]
    rebooted = [Report("gpu-1", "Rebooted", "event Rebooted (Node gpu-1 has been rebooted)")]
    assert [finding.ok for finding in report_findings([node("gpu-1")], rebooted)] == [True]
    assert list(other_events([node("gpu-1")], rebooted)) == ["gpu-1: event Rebooted (Node gpu-1 has been rebooted)"]


def test_of_each_reason_the_newest_warning_of_a_node_is_read(kube_of):
    def event(name, reason, when, kind="Node", level="Warning"):
        return {
            "involvedObject": {"kind": kind, "name": name},
            "type": level,
            "reason": reason,
            "message": when,
            "lastTimestamp": when,
        }

    items = [event("a", "XIDError", "2"), event("a", "XIDError", "1"), event("p", "x", "1", kind="Pod")]
    items.append(event("a", "NodeReady", "3", level="Normal"))
    found, hidden = warned(kube_of(items))
    assert ([each.text for each in found], hidden) == (["event XIDError (2)"], "")
    assert warned(kube_of(None)) == ([], "events: 403 HTTP 403: events is forbidden")


@pytest.fixture
def kube_of():
    """Return a client that lists some items, or has no permission to list."""

    class Client:
        def __init__(self, items):
            self.items = items

        def list(self, where, **_):
            if self.items is None:
                raise Forbidden("events", status=403, message="events is forbidden")
            return self.items, "1"

    return Client


def refused(at="a", resource="nvidia.com/gpu", hours=1.0):
    """Return a pod that a node's kubelet refused for lack of a device, so many hours ago."""
    since = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=hours)).isoformat(timespec="seconds")
    return PodUse("x", "train-0", at, {resource: 8}, "", "Failed", trouble="Allocate failed", since=since)


def running(hours, resource="nvidia.com/gpu", phase="Running"):
    """Return a pod on node a that started so many hours ago."""
    return replace(refused("a", resource, hours), name="train-1", phase=phase)


@pytest.mark.parametrize(
    ("failed", "pods", "named"),
    [
        ([refused()], [], ["a"]),
        ([refused(), refused("b"), refused("b")], [], ["a", "b"]),
        ([refused(resource="rdma/hca")], [running(0.5)], ["a"]),  # GPUs are allocated, NICs are not
        ([refused()], [running(2)], ["a"]),  # it started earlier
        ([refused()], [running(0.5, phase="Pending")], ["a"]),
        ([refused()], [running(0.5)], []),  # recovered
        ([refused(hours=30)], [], []),
        ([refused("elsewhere")], [], []),
        ([refused(resource="example.com/fpga")], [], []),  # the trial does not request it
        ([], [], []),
    ],
)
def test_a_kubelet_that_refused_devices_is_reported_until_a_pod_gets_some(inventory, node, failed, pods, named):
    """Undetermined: a plugin that has just restarted also refuses once."""
    cluster = replace(inventory([node("a"), node("b")]), refused=tuple(failed), pods=tuple(pods))
    findings = list(refusals(cluster, cluster.nodes, ["nvidia.com/gpu", "rdma/hca"]))
    assert [f.subject for f in findings] == ["a", "b"]
    assert [f.subject for f in findings if f.ok is None and f.fault == "nodes.devices-refused"] == named
    assert all(f.ok or "x/train-0" in f.observed for f in findings)
    assert all(f.ok for f in refusals(cluster, cluster.nodes, ["nvidia.com/gpu", "rdma/hca"], ["a", "b"]))


def test_refused_devices_are_asked_for_last():
    """Refused devices are evaluated last, with or without a trial, so that evidence of its pods counts."""
    assert list(declared_checks())[-1] == list(declared_checks(["-m=preflight"]))[-1] == "gpu.admitted"


@pytest.mark.parametrize("tried", [(), ("a",), ("b",)])
def test_a_trial_on_the_node_shows_that_devices_are_handed_out(inventory, node, spec, h100, evidence, tried):
    """A pod with evidence on that node shows it; a trial on another node does not count."""
    cluster = replace(inventory([node("a"), node("b")]), refused=(refused("a"),))
    session = SimpleNamespace(run=Run(trial={"pods": {f"p-{name}": name for name in tried}}))
    with nullcontext() if "a" in tried else pytest.raises(CannotTell, match="refused x/train-0"):
        node_checks.test_kubelets_admit_pods_with_devices(cluster, Pool(cluster.nodes), spec, h100, session, evidence)
