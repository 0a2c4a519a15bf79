"""Choice of nodes and partners by `seatrial cron --new-nodes`, and cases without a release."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from checks.profiles.loader import load_profile
from checks.profiles.trial import spec_of
from checks.rules.pool import pool_of
from cli import mark
from cli.canary import hosts_of, only_these
from cli.schedule.cron import ScheduledRun, main
from cli.schedule.new_nodes import Outlook, assumed, outlook, standing
from cli.schedule.node_history import learn
from cli.schedule.remembered import NodeHistory, Watched
from jobs.cluster import node_labels as marking
from jobs.cluster.facts.inventory import Inventory, PodUse, read_node
from tests.checks.test_node_history import record
from tests.table import table

KEY, NOW = "seatrial/new", 1_800_000_000.0
PROFILE: Any = load_profile("h100-ib")
GPU = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"


def raw(
    name: str,
    status: str = "",
    *,
    boot: str = "b1",
    of: str = "",
    taints: tuple[str, ...] = (),
    labels: dict[str, str] | None = None,
    ready: bool = True,
    offered: int = 8,
    written: str = "2026-01-01T00:00:00Z",
    **spec: Any,
) -> dict[str, Any]:
    """Return a node; ``status``: our condition's status, for boot ``of``."""
    conditions = [{"type": "Ready", "status": str(ready), "reason": "KubeletReady", "message": ""}]
    if status:
        message = f"rdma.port-down (boot {of or boot})" if status == "True" else f"(boot {of or boot})"
        conditions.append(
            {"type": "SeatrialFailed", "status": status, "message": message, "lastHeartbeatTime": written}
        )
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {PRODUCT: "H100", "kubernetes.io/hostname": name} | (labels or {}),
        },
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints], **spec},
        "status": {
            "conditions": conditions,
            "nodeInfo": {"bootID": boot},
            "capacity": {GPU: "8"},
            "allocatable": {GPU: str(offered)},
        },
    }


def seen(
    *nodes: dict[str, Any], key: str = "", busy: tuple[str, ...] = (), most: int = 0, state: NodeHistory | None = None
) -> Outlook:
    """Return the actions that a run would take."""
    pods = [PodUse("team", "train", node, {GPU: 8}, "Job/train", "Running") for node in busy]
    cluster = Inventory(nodes=tuple(map(read_node, nodes)), pods=tuple(pods))
    spec: Any = spec_of(PROFILE, run_id="r", namespace="default", tolerations=({"key": KEY, "operator": "Exists"},))
    raws = {node["metadata"]["name"]: node for node in nodes}
    pool = pool_of(cluster, PROFILE)
    state = assumed(state or NodeHistory(), {node.name: raws[node.name] for node in pool.nodes}, key, NOW)
    return outlook(cluster, pool, spec, raws, state, key=key, most=most, now=NOW)


P1, P2 = raw("p1", "False"), raw("p2", "False")


@table(
    "node, stands",
    [
        (raw("n"), None),
        (raw("n", "Unknown"), None),
        (raw("n", "False"), False),
        (raw("n", "True"), True),
        (raw("n", "False", of="b0"), None),  # rebooted since it passed
        (raw("n", "True", of="b0"), None),  # rebooted since it failed
        (raw("n", "False", of="b"), None),  # a substring of a name does not match
        (raw("n", "False", taints=(KEY,)), None),
        (raw("n", "False", labels={KEY: "true"}), None),
        (raw("n", "False", taints=("seatrial/newer",)), False),
        (raw("n", "True", taints=(KEY,)), True),  # its taint remains, and it is not tested again without a change
        (
            raw("n", "False", labels={"nvidia.com/cuda.driver-version.full": "580.1"}),
            None,
        ),  # passed with another driver
        (raw("n", "False", boot="", of="unknown"), None),  # no boot id: a reboot would not be noticed
        (raw("n", "True", boot="", of="unknown"), None),
        (raw("n", "False", boot="", of="b1"), None),
        (raw("n", "False", boot="b1", of="unknown"), None),
        (raw("n", "False", of="b1, driver 580.1"), None),  # its driver is not known any more
        ({}, None),
    ],
)
def test_a_node_is_what_its_condition_says_of_the_machine_as_it_is(node: dict[str, Any], stands: bool | None) -> None:
    assert standing(node, KEY) is stands


@table(
    "nodes, busy, chosen, said",
    [
        ((P1, P2), (), (), "no unproven node"),
        ((raw("n"), P1, P2), (), ("n", "p1"), "n unproven, with nodes that have passed"),
        ((raw("n"), P1, P2), ("p1",), ("n", "p2"), "with nodes that have passed"),
        (
            (raw("n"), raw("p1", "False", unschedulable=True), P2),
            (),
            ("n", "p2"),
            "with nodes",
        ),  # cordoned by another tool
        ((raw("n"), raw("p1", "False", of="b0")), (), ("n", "p1"), "tried with each other"),  # no proof for this boot
        ((raw("n"), raw("p1", "True"), P2), (), ("n", "p2"), "with nodes"),  # a failed node is not a partner
        ((raw("n"), raw("m")), (), ("m", "n"), "tried with each other, and a failure may be of any of them"),
        ((raw("n", labels={PRODUCT: "H100-NVL"}), P1, P2), (), (), "would need a proven partner of the same kind"),
        ((raw("n"), P1), ("p1",), (), "would need a proven partner"),
        ((raw("n"),), (), (), "would need a proven partner"),
        ((raw("n"), P1), ("n",), (), "none can be tried"),
        ((raw("n", ready=False), P1, P2), (), (), "none can be tried"),
        ((raw("n", taints=("vendor/sick",)), P1, P2), (), (), "none can be tried"),
        ((raw("n", offered=7), P1, P2), (), ("n", "p1"), "n unproven"),  # the trial names the missing GPU
        # In turn: the longest untested first, including trials without a result.
        (
            (raw("a", "Unknown", written="2026-01-02T00:00:00Z"), raw("b", "Unknown"), P1, P2),
            (),
            ("b", "p1"),
            "b unproven",
        ),
        # A new node of another kind is tested if the first one has no partner.
        ((raw("a", labels={PRODUCT: "H100-NVL"}), raw("b"), P1, P2), (), ("b", "p1"), "b unproven"),
    ],
)
def test_an_unproven_node_is_tried_with_a_proven_one_of_its_kind(
    nodes: tuple[dict[str, Any], ...], busy: tuple[str, ...], chosen: tuple[str, ...], said: str
) -> None:
    met = seen(*nodes, busy=busy)
    assert met.choice.nodes == chosen
    assert said in met.choice.why
    assert met.waits == ("no unproven" not in said)


def test_what_a_user_cordoned_is_left_alone_and_no_trouble() -> None:
    """Cordoned nodes and failed nodes without a change are left alone."""
    met = seen(raw("n", unschedulable=True), raw("f", "True"), P1, P2)
    assert (met.choice.nodes, met.waits) == ((), False)
    assert met.notes == ("failed, and not changed since: f", "n waits: cordoned (8 of 8 free)")


def test_a_taint_that_the_pods_do_not_tolerate_is_reported() -> None:
    met = seen(raw("n", taints=("readiness.k8s.io/seatrial",)), P1, P2)
    assert met.waits
    assert "n waits: taint readiness.k8s.io/seatrial:NoSchedule" in met.notes[0]


def test_a_new_node_whose_gpus_are_not_seen_yet_is_reported() -> None:
    """The device plugin and labels may appear within a minute; another profile's new node is left to that profile."""
    bare = raw("bare", taints=(KEY,), offered=0)
    bare["metadata"]["labels"], bare["status"]["capacity"], bare["status"]["allocatable"] = {}, {}, {}
    other = raw("other", taints=(KEY,), labels={PRODUCT: "L40S"})
    met = seen(P1, P2, bare, other, key=KEY)
    assert (met.choice.nodes, met.waits) == ((), True)
    assert met.notes == ("bare waits: marked as new, but it does not have the profile's GPUs",)
    assert not seen(P1, P2, other, key=KEY).waits


def test_a_node_without_a_boot_id_waits_and_is_no_partner() -> None:
    """A pass would be believed after any reboot; one that an earlier version wrote is withdrawn."""
    met = seen(raw("n", boot=""), P1, P2)
    assert (met.choice.nodes, met.waits) == ((), True)
    assert met.notes[0].startswith("n waits: its kubelet reports no boot id (status.nodeInfo.bootID)")
    old = raw("p", "False", boot="", of="unknown")
    assert seen(raw("n"), old, P2).choice.nodes == ("n", "p2")
    assert marking.outlived(old)
    assert marking.outlived(raw("p", "False", boot="", of="b1"))
    assert not marking.outlived(P1)


def test_an_empty_pool_is_not_one_without_work() -> None:
    met = seen(raw("other", labels={PRODUCT: "L40S"}))
    assert met.waits
    assert "the profile's pool has no node" in met.choice.why


def test_a_sweep_takes_several_each_with_a_proven_one() -> None:
    assert seen(raw("a"), raw("b"), P1, P2, most=4).choice.nodes == ("a", "p1", "b", "p2")


def test_who_is_under_suspicion_is_no_partner() -> None:
    """A nightly run suspects the node, but did not write its condition."""
    state = NodeHistory({"p1": Watched(passed=1.0, suspect=True)})
    assert seen(raw("n"), P1, P2, state=state).choice.nodes == ("n", "p2")


def test_a_failed_pair_is_a_fault_of_the_new_node_and_only_for_what_the_trial_shows() -> None:
    """The partner's condition is proof even without a run in this history; a queue is not a fault."""
    nodes = {"a": raw("a", "Unknown"), "b": raw("b", "False")}
    state = assumed(NodeHistory(), nodes, KEY, NOW)
    pair = learn(state, record("no-go", subject="a -> b"), now=NOW)
    assert (pair.nodes["a"].strikes, pair.nodes["a"].faults, pair.nodes["b"].good) == (1, ("x.y",), True)
    again = learn(assumed(pair, nodes, KEY, NOW), record("no-go", subject="a -> b"), now=NOW)
    assert again.bad == ("a",)
    seen_by_the_api: Any = record("no-go", subject="localqueue/trial")
    seen_by_the_api["checks"][0]["stage"] = "preflight"
    queue = learn(state, seen_by_the_api, now=NOW)
    assert (queue.nodes["a"].strikes, queue.nodes["b"].good) == (0, True)
    changed = assumed(pair, nodes | {"a": raw("a", "Unknown", of="b0")}, KEY, NOW)
    assert changed.nodes["a"].strikes == 0  # failures of another machine do not count


class Served:
    """An API server with one node, which may be replaced before any read."""

    server = authority = namespace = ""

    def __init__(self, *states: dict[str, Any]) -> None:
        self.states, self.written = list(states), []

    def list(self, _path: str, **_: Any) -> tuple[list[dict[str, Any]], str]:
        return [self.states.pop(0) if len(self.states) > 1 else self.states[0]], ""

    def patch(self, path: str, body: dict[str, Any], **_: Any) -> None:
        self.written.append((path, body))


def statuses(kube: Any) -> list[str]:
    return [body["status"]["conditions"][0]["status"] for _, body in kube.written if "status" in body]


TRIED = raw("a", taints=(KEY,))
REPLACED = {**TRIED, "metadata": {**TRIED["metadata"], "uid": "another"}}
BOOTED = raw("a", taints=(KEY,), boot="b2")
UPGRADED = raw("a", taints=(KEY,), labels={"nvidia.com/cuda.driver-version.full": "590.1"})
UNBOOTED = raw("a", taints=(KEY,), boot="")
UNNAMED = {**TRIED, "metadata": {key: value for key, value in TRIED["metadata"].items() if key != "uid"}}


def marked(
    kube: Any, verdict: str, monkeypatch: pytest.MonkeyPatch, *, why: str = "", tried: dict[str, Any] = TRIED
) -> bool:
    """Mark nodes after a run with this verdict on a and b, of which a is new."""
    monkeypatch.setattr("cli.schedule.cron.was_tried", lambda *_: True)
    monkeypatch.setattr("cli.schedule.cron.refused", lambda *_: why)
    options = SimpleNamespace(new_nodes=KEY, node_condition=False, label_nodes=False)
    run = ScheduledRun(kube, None, options, PROFILE, "r", ())  # type: ignore[arg-type]
    run.machines = {"a": tried, "b": raw("b", "False")}
    before = assumed(NodeHistory(), run.machines, KEY, NOW)
    made = record(verdict, subject="" if verdict == "go" else "a -> b")
    return run._mark(before, learn(before, made, now=NOW), made, ("a", "b"))


@pytest.mark.parametrize(
    ("states", "verdict", "why", "status", "opened"),
    [
        ((TRIED,), "go", "", "False", True),
        ((TRIED,), "go", "the run was a partial one", "Unknown", False),
        ((TRIED,), "inconclusive", "", "Unknown", False),
        ((TRIED,), "no-go", "", "Unknown", False),
        ((REPLACED,), "go", "", "Unknown", False),
        ((BOOTED,), "go", "", "Unknown", False),
        ((UPGRADED,), "go", "", "Unknown", False),
        ((TRIED, REPLACED), "go", "", "False", False),  # between its condition and its taint
        ((TRIED, BOOTED), "go", "", "False", False),
    ],
)
def test_a_taint_goes_only_after_a_pass_of_that_machine_in_this_run(
    states: tuple[dict[str, Any], ...],
    verdict: str,
    why: str,
    status: str,
    opened: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a replacement, a reboot or a driver change the tested node no longer exists."""
    at_b = raw("b", "False", taints=(KEY,))  # its partner was marked as new while the trial ran
    kube: Any = Served(*states)
    kube.list = lambda _path, fieldSelector, seen=kube.list: ([at_b], "") if fieldSelector.endswith("=b") else seen("")  # noqa: N803
    all_opened = marked(kube, verdict, monkeypatch, why=why)
    of_a = [(path, body) for path, body in kube.written if path.endswith(("/a", "/a/status"))]
    assert [body["status"]["conditions"][0]["status"] for _, body in of_a if "status" in body] == [status]
    taken = [body["spec"]["taints"] for path, body in of_a if "spec" in body]
    assert taken == ([None] if opened else [])
    assert not [body for path, body in kube.written if path.endswith("/b")]
    assert all_opened == opened


@pytest.mark.parametrize("node", [UNBOOTED, UNNAMED], ids=["no boot id", "no uid"])
def test_a_machine_that_cannot_be_told_from_another_is_not_opened(
    node: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same answer before and after the trial, in which nothing says that it is one machine in one boot."""
    kube: Any = Served(node)
    assert not marked(kube, "go", monkeypatch, tried=node)
    assert statuses(kube)[0] == "Unknown"
    assert not any("spec" in body for _, body in kube.written)


@pytest.mark.parametrize(
    ("node", "bad", "said"), [(UNBOOTED, False, None), (UNBOOTED, True, True), (TRIED, False, False)]
)
def test_a_condition_says_passed_only_of_a_known_boot(node: dict[str, Any], bad: bool, said: bool | None) -> None:
    """The same applies to `seatrial mark --node-condition`; a failure remains one, since it closes the node."""
    kube: Any = Served(node)
    assert marking.condition(kube, "a", bad) is said
    assert statuses(kube) == [{None: "Unknown", True: "True", False: "False"}[said]]


def test_a_label_goes_with_the_taint_and_what_others_wrote_stays() -> None:
    node = raw("a", taints=(KEY, "other/taint"), labels={KEY: "true"})
    kube: Any = Served(node)
    marking.untaint(kube, "a", KEY)
    ((_, body),) = kube.written
    assert [taint["key"] for taint in body["spec"]["taints"]] == ["other/taint"]
    assert body["metadata"]["labels"] == {KEY: None}


def test_only_the_chosen_nodes_are_judged_where_labels_name_them() -> None:
    cluster = Inventory(nodes=tuple(map(read_node, (raw("a"), raw("b"), P1))), pods=())
    assert only_these(hosts_of(("a", "p1"), cluster)) == "kubernetes.io/hostname in (a,p1)"
    unnamed = raw("c")
    del unnamed["metadata"]["labels"]["kubernetes.io/hostname"]
    assert only_these(hosts_of(("c",), Inventory(nodes=(read_node(unnamed),), pods=()))) == ""


def test_its_metrics_are_not_pushed(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--profile", "h100-ib", "--out", str(tmp_path), "--new-nodes", "--push", "http://127.0.0.1:9"]
    assert main(arguments) == 4
    assert "--push is not for --new-nodes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("kubernetes.io/hostname", "belongs to Kubernetes"),  # on all nodes: without it no pod is bound
        ("node-role.kubernetes.io/control-plane", "belongs to Kubernetes"),
        ("node.kubernetes.io/not-ready", "belongs to Kubernetes"),
        ("topology.k8s.io/zone", "belongs to Kubernetes"),
        ("seatrial/trial", "records a result"),
        ("seatrial/action", "records a result"),
        ("seatrial/new=true:NoSchedule", "not a key"),
        ("a,b", "not a key"),
        ("seatrial/", "not a key"),
    ],
)
def test_a_key_that_is_not_the_gates_own_is_refused(key: str, words: str, tmp_path: Any, capsys: Any) -> None:
    """A wrong key is refused before a trial, because a pass would remove it from the node."""
    assert main(["--profile", "h100-ib", "--out", str(tmp_path), f"--new-nodes={key}"]) == 4
    assert mark.main([str(tmp_path), "--untaint", key]) == 4
    assert capsys.readouterr().err.count(words) == 2


def test_keys_of_gates_are_taken() -> None:
    keys = ("seatrial/new", "new", "node-restriction.kubernetes.io/new", "readiness.k8s.io/seatrial", "x.example/A_b.c")
    assert [marking.forbidden(key) for key in keys] == [""] * len(keys)
