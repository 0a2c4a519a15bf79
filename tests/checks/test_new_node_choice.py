"""Whom `seatrial cron --new-nodes` tries and beside whom, and when it opens nobody."""

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
    """A node; ``status``: what our condition says of it, of the boot ``of``."""
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
    """What a run would do."""
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
        (raw("n", "False", of="b0"), None),  # it has booted since it passed
        (raw("n", "True", of="b0"), None),  # and since it failed
        (raw("n", "False", of="b"), None),  # no part of a name is the name
        (raw("n", "False", taints=(KEY,)), None),
        (raw("n", "False", labels={KEY: "true"}), None),
        (raw("n", "False", taints=("seatrial/newer",)), False),
        (raw("n", "True", taints=(KEY,)), True),  # its taint stays, and it is not tried again without a change
        (
            raw("n", "False", labels={"nvidia.com/cuda.driver-version.full": "580.1"}),
            None,
        ),  # passed with another driver
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
        ),  # the cordon is another's
        ((raw("n"), raw("p1", "False", of="b0")), (), ("n", "p1"), "tried with each other"),  # no proof of this boot
        ((raw("n"), raw("p1", "True"), P2), (), ("n", "p2"), "with nodes"),  # a failed one is no partner
        ((raw("n"), raw("m")), (), ("m", "n"), "tried with each other, and a failure may be any one's"),
        ((raw("n", labels={PRODUCT: "H100-NVL"}), P1, P2), (), (), "would need a proven partner of the same kind"),
        ((raw("n"), P1), ("p1",), (), "would need a proven partner"),
        ((raw("n"),), (), (), "would need a proven partner"),
        ((raw("n"), P1), ("n",), (), "none can be tried"),
        ((raw("n", ready=False), P1, P2), (), (), "none can be tried"),
        ((raw("n", taints=("vendor/sick",)), P1, P2), (), (), "none can be tried"),
        ((raw("n", offered=7), P1, P2), (), ("n", "p1"), "n unproven"),  # the trial names what it lacks
        # By turns: who was tried longest ago, also where that showed nothing.
        (
            (raw("a", "Unknown", written="2026-01-02T00:00:00Z"), raw("b", "Unknown"), P1, P2),
            (),
            ("b", "p1"),
            "b unproven",
        ),
        # Another kind's new node is tried where the first one's has no partner.
        ((raw("a", labels={PRODUCT: "H100-NVL"}), raw("b"), P1, P2), (), ("b", "p1"), "b unproven"),
    ],
)
def test_an_unproven_node_is_tried_beside_a_proven_one_of_its_kind(
    nodes: tuple[dict[str, Any], ...], busy: tuple[str, ...], chosen: tuple[str, ...], said: str
) -> None:
    met = seen(*nodes, busy=busy)
    assert met.choice.nodes == chosen
    assert said in met.choice.why
    assert met.waits == ("no unproven" not in said)


def test_what_somebody_cordoned_is_left_alone_and_no_trouble() -> None:
    """Nor is a node that failed and has not changed."""
    met = seen(raw("n", unschedulable=True), raw("f", "True"), P1, P2)
    assert (met.choice.nodes, met.waits) == ((), False)
    assert met.notes == ("failed, and not changed since: f", "n waits: cordoned (8 of 8 free)")


def test_a_taint_that_the_pods_do_not_tolerate_is_told() -> None:
    met = seen(raw("n", taints=("readiness.k8s.io/seatrial",)), P1, P2)
    assert met.waits
    assert "n waits: taint readiness.k8s.io/seatrial:NoSchedule" in met.notes[0]


def test_a_new_node_whose_gpus_are_not_seen_yet_is_told() -> None:
    """Its device plugin and its labels may come in a minute; another profile's new node is that one's."""
    bare = raw("bare", taints=(KEY,), offered=0)
    bare["metadata"]["labels"], bare["status"]["capacity"], bare["status"]["allocatable"] = {}, {}, {}
    other = raw("other", taints=(KEY,), labels={PRODUCT: "L40S"})
    met = seen(P1, P2, bare, other, key=KEY)
    assert (met.choice.nodes, met.waits) == ((), True)
    assert met.notes == ("bare waits: marked as new, and no node with GPUs as the profile has them",)
    assert not seen(P1, P2, other, key=KEY).waits


def test_an_empty_pool_is_not_one_without_work() -> None:
    met = seen(raw("other", labels={PRODUCT: "L40S"}))
    assert met.waits
    assert "the profile's pool has no node" in met.choice.why


def test_a_sweep_takes_several_each_with_a_proven_one() -> None:
    assert seen(raw("a"), raw("b"), P1, P2, most=4).choice.nodes == ("a", "p1", "b", "p2")


def test_who_is_under_suspicion_is_no_partner() -> None:
    """A nightly run doubts it, and did not write its condition."""
    state = NodeHistory({"p1": Watched(passed=1.0, suspect=True)})
    assert seen(raw("n"), P1, P2, state=state).choice.nodes == ("n", "p2")


def test_a_failed_pair_blames_the_new_node_and_only_for_what_the_trial_shows() -> None:
    """Its partner's condition is proof enough, though no run of this history tried it; a queue is nobody's fault."""
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
    assert changed.nodes["a"].strikes == 0  # another machine's failures are not its own


class Served:
    """An API server with one node, which somebody may replace before any read."""

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


def marked(kube: Any, verdict: str, monkeypatch: pytest.MonkeyPatch, *, why: str = "") -> bool:
    """Mark after a run of this verdict on a and b, of which a is new."""
    monkeypatch.setattr("cli.schedule.cron.was_tried", lambda *_: True)
    monkeypatch.setattr("cli.schedule.cron.refused", lambda *_: why)
    options = SimpleNamespace(new_nodes=KEY, node_condition=False, label_nodes=False)
    run = ScheduledRun(kube, None, options, PROFILE, "r", ())  # type: ignore[arg-type]
    run.machines = {"a": TRIED, "b": raw("b", "False")}
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
    """Another node under its name, a boot, another driver: what was tried is not there any more."""
    at_b = raw("b", "False", taints=(KEY,))  # somebody marked its partner as new while the trial ran
    kube: Any = Served(*states)
    kube.list = lambda _path, fieldSelector, seen=kube.list: ([at_b], "") if fieldSelector.endswith("=b") else seen("")  # noqa: N803
    all_opened = marked(kube, verdict, monkeypatch, why=why)
    of_a = [(path, body) for path, body in kube.written if path.endswith(("/a", "/a/status"))]
    assert [body["status"]["conditions"][0]["status"] for _, body in of_a if "status" in body] == [status]
    taken = [body["spec"]["taints"] for path, body in of_a if "spec" in body]
    assert taken == ([None] if opened else [])
    assert not [body for path, body in kube.written if path.endswith("/b")]
    assert all_opened == opened


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
        ("kubernetes.io/hostname", "is of Kubernetes"),  # a label of all nodes: without it nothing is bound to them
        ("node-role.kubernetes.io/control-plane", "is of Kubernetes"),
        ("node.kubernetes.io/not-ready", "is of Kubernetes"),
        ("topology.k8s.io/zone", "is of Kubernetes"),
        ("seatrial/trial", "a mark of a result"),
        ("seatrial/action", "a mark of a result"),
        ("seatrial/new=true:NoSchedule", "no key"),
        ("a,b", "no key"),
        ("seatrial/", "no key"),
    ],
)
def test_a_key_that_is_not_the_gates_own_is_refused(key: str, words: str, tmp_path: Any, capsys: Any) -> None:
    """Before a trial: its pass would take it from the node."""
    assert main(["--profile", "h100-ib", "--out", str(tmp_path), f"--new-nodes={key}"]) == 4
    assert mark.main([str(tmp_path), "--untaint", key]) == 4
    assert capsys.readouterr().err.count(words) == 2


def test_keys_of_gates_are_taken() -> None:
    keys = ("seatrial/new", "new", "node-restriction.kubernetes.io/new", "readiness.k8s.io/seatrial", "x.example/A_b.c")
    assert [marking.forbidden(key) for key in keys] == [""] * len(keys)
