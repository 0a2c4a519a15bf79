"""seatrial mark: nodes that a record releases, nodes that it marks as failed, and records without effect."""

from __future__ import annotations

import datetime
import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cli.listing import declared_checks
from cli.mark import faults_of, judged, main, refused, was_tried
from jobs.cluster import node_labels
from jobs.cluster.client.kube import Kube
from reports.record import Run
from reports.schema import completed
from tests.onsim import Sim

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
KUBE: Any = SimpleNamespace(server="https://one:6443", authority="aa")


@cache
def of_a_full_run() -> tuple[str, ...]:
    """Return the ids of the suite's checks, except one."""
    return tuple(name for name in declared_checks() if name != "rdma.ports")


def record(verdict: str = "go", *failed: str, **changes: Any) -> dict[str, Any]:
    """Return a record of a trial on nodes a and b, made now; ``failed``: subjects of the findings of a failed check."""
    findings = [{"subject": subject, "ok": False, "observed": "", "fault": "rdma.port-down"} for subject in failed]
    made = {
        "schema": 1,
        "run_id": "abc",
        "verdict": verdict,
        "exit_code": {"go": 0, "no-go": 1, "inconclusive": 10}[verdict],
        "coverage": {"said": "", "asked": "", "tried": ["a", "b", "gpu-node-0"], "untried": [], "pool": None},
        "scope": "full",
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cluster": {"server": KUBE.server, "ca": KUBE.authority, "namespace": "default"},
        "trial": {"hosts": {"pod-0": "a", "pod-1": "b"}},
        "checks": [
            *({"id": name, "outcome": "skipped", "seconds": 0, "findings": []} for name in of_a_full_run()),
            {"id": "rdma.ports", "outcome": "failed" if failed else "passed", "seconds": 1, "findings": findings},
        ],
        "collectives": {},
    }
    return dict(completed(Run().to_dict() | made | changes))


def test_a_pass_is_of_every_node_that_was_tried() -> None:
    assert judged(record()) == {"a": False, "b": False}


def test_a_node_that_is_at_fault_failed_and_its_partner_is_not_known() -> None:
    report = record("no-go", "b mlx5_0", "b mlx5_1", "storageclass/x")
    assert judged(report) == {"a": None, "b": True}
    assert faults_of(report, "b") == ("rdma.port-down",)


def test_a_fault_of_no_node_opens_none() -> None:
    assert judged(record("no-go", "queue/training")) == {"a": None, "b": None}
    assert judged(record("inconclusive")) == {"a": None, "b": None}


def test_a_sweep_opens_what_it_has_proven() -> None:
    assert judged(record("no-go", "b", sweep={"proven": ["a"]})) == {"a": False, "b": True}


def test_what_is_wrong_with_no_single_node_opens_none_that_a_sweep_has_proven() -> None:
    """A queue fault and a uniformly slow cluster do not prevent the release of a proven node."""
    sweep = {"proven": ["a", "b"]}
    assert judged(record("no-go", "queue/training", sweep=sweep)) == {"a": None, "b": None}
    slow = {"id": "sweep.nodes", "outcome": "failed", "fault": "sweep.fleet", "seconds": 1, "findings": []}
    slow["findings"] = [{"subject": "cluster", "ok": False, "observed": "", "fault": "sweep.fleet"}]
    assert judged(record("no-go", sweep=sweep, checks=[slow])) == {"a": None, "b": None}


def test_a_bad_pair_is_a_fault_of_neither_of_its_nodes() -> None:
    report = record("no-go", "a - b", "a -> b")
    assert judged(report) == {"a": None, "b": None}
    assert faults_of(report, "a") == ()


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({}, ""),
        ({"scope": "partial"}, "partial"),
        ({"cluster": {"server": "https://two:6443", "ca": "bb"}}, "the record is of"),
        ({"cluster": {"server": "https://one:6443", "ca": "bb"}}, "the record is of"),  # rebuilt at the same address
        ({"cluster": {"server": "https://lb:6443", "ca": "aa"}}, ""),  # the same cluster under another name
        ({"cluster": {"server": "https://two:6443", "ca": ""}}, "the record is of"),
        ({"started": "2020-01-01T00:00:00+00:00"}, "hours ago"),
        ({"started": "2020-01-01T00:00:00"}, "does not state when"),
        ({"trial": {}}, "tried no node"),
        ({"interrupted": "received SIGTERM"}, "its checks are not"),
        ({"required": ["gpu.free"]}, "its checks are not"),
        ({"checks": record()["checks"][-1:]}, "checks of a full run are not in it"),
        ({"checks": record()["checks"][1:]}, f"1 checks of a full run are not in it ({of_a_full_run()[0]}"),
        ({"sweep": {"proven": ["a"]}}, "(sweep."),  # a sweep has separate checks
    ],
)
def test_only_a_whole_recent_record_of_this_cluster_marks(changes: dict[str, Any], phrase: str) -> None:
    why = refused(record(**changes), KUBE)
    assert phrase in why
    assert bool(phrase) == bool(why)


ACTION = {"node": "b", "action": "RESET_GPU", "said": "x", "parts": {"b GPU 3": "RESET_GPU"}}


@pytest.mark.parametrize(
    ("report", "label", "message"),
    [
        (
            record("no-go", "b mlx5_0", actions={"b": ACTION}),
            "RESET_GPU",
            "drain the node and reset the GPU (Recommended Action=RESET_GPU); rdma.port-down",
        ),
        (record("no-go", "b mlx5_0"), None, "rdma.port-down"),  # no action, as in older records
        (record("no-go", "b", actions={"b": {**ACTION, "action": "rm -rf"}}), None, "rdma.port-down"),
        (record("go", actions={"b": ACTION}), None, ""),  # it passed and needs no action
        (record("inconclusive", actions={"b": ACTION}), None, ""),
    ],
)
def test_a_failed_node_is_given_what_to_do_with_it(
    report: dict[str, Any],
    label: str | None,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The action is in the condition's message and a label; its partner and passed nodes have none."""
    kube: Any = Nodes()
    monkeypatch.setattr("cli.mark.connect", lambda _: kube)
    monkeypatch.setattr("cli.mark.was_tried", lambda *_: True)
    (tmp_path / "report.json").write_text(json.dumps(report))
    main([str(tmp_path), "--node-condition", "--label-nodes"])
    labels = {path: body["metadata"]["labels"] for path, body in kube.written if "status" not in body}
    assert labels["/api/v1/nodes/b"]["seatrial/action"] == label
    assert labels["/api/v1/nodes/a"]["seatrial/action"] is None
    conditions = {path: body["status"]["conditions"][0]["message"] for path, body in kube.written if "status" in body}
    assert conditions["/api/v1/nodes/b/status"] == f"{message} (boot unknown)".strip()
    assert conditions["/api/v1/nodes/a/status"] == "(boot unknown)"
    assert ("b: failed; drain the node and reset the GPU\n" in capsys.readouterr().out) == (label is not None)


class Taints:
    """An API server with one node; ``busy``: number of recent concurrent writes."""

    def __init__(self, *keys: str, busy: int = 0) -> None:
        self.taints, self.busy, self.version = [{"key": key, "effect": "NoSchedule"} for key in keys], busy, 1

    def list(self, _path: str, **_: Any) -> tuple[list[dict[str, Any]], str]:
        metadata = {"name": "a", "resourceVersion": str(self.version)}
        return [{"metadata": metadata, "spec": {"taints": list(self.taints)}}], ""

    def patch(self, path: str, body: dict[str, Any], **_: Any) -> None:
        if self.busy:
            self.busy, self.version = self.busy - 1, self.version + 1
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise node_labels.Conflict(path, status=409, reason="Conflict", message="the object has been modified")
        self.taints, self.version = body["spec"]["taints"] or [], self.version + 1


def test_only_the_named_taint_is_taken_away() -> None:
    kube: Any = Taints("seatrial/canary", "nvidia.com/gpu", busy=2)
    node_labels.untaint(kube, "a", "seatrial/canary")
    assert [taint["key"] for taint in kube.taints] == ["nvidia.com/gpu"]
    node_labels.untaint(kube, "a", "seatrial/canary")  # no taint present: no write
    assert kube.version == 4


@pytest.mark.parametrize(
    ("joined", "turned", "is_it"),
    [
        ({"hours": 5}, {"hours": 5}, True),
        ({"minutes": 22}, {"minutes": 21}, True),  # an autoscaler added it while the run waited
        ({"minutes": 5}, {"minutes": 5}, False),
        ({"hours": 5}, {"minutes": 5}, False),  # it has rebooted, or was lost for a while
        ({"hours": 5}, None, False),
        (None, None, False),
    ],
)
def test_a_machine_that_came_after_the_run_is_not_the_one_that_was_tried(
    joined: dict[str, int] | None, turned: dict[str, int] | None, is_it: bool
) -> None:
    """A new machine with the same name has other GPUs and another driver; or the same machine has rebooted."""
    report: Any = record(started=ago(minutes=30), seconds=600.0)
    node: dict[str, Any] = {"status": {"conditions": [{"type": "MemoryPressure", "lastTransitionTime": ago()}]}}
    if joined:
        node["metadata"] = {"name": "a", "creationTimestamp": ago(**joined).replace("+00:00", "Z")}
    if turned:
        node["status"]["conditions"].append({"type": "Ready", "lastTransitionTime": ago(**turned)})
    assert was_tried(node, report) is is_it


@pytest.mark.parametrize(("seconds", "marks"), [(25 * 3600.0, True), (60.0, False)])
def test_a_soak_of_a_day_is_as_old_as_its_end(seconds: float, marks: bool) -> None:
    assert (refused(record(started=ago(hours=26), seconds=seconds), KUBE) == "") is marks


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Sim]:
    served = Sim(ROOT, tmp_path, "healthy")
    yield served
    served.close()


@pytest.mark.slow
def test_a_pass_hands_the_node_over_and_a_failure_does_not(
    sim: Sim, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Condition, label and taint on a served cluster: failed, unknown, then released by a pass only."""
    kube = Kube.connect(kubeconfig=str(sim.config), context=None, namespace=None)
    node, taints = "gpu-node-0", [{"key": "seatrial/canary", "value": "true", "effect": "NoSchedule"}]
    kube.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": taints}})
    here = {"cluster": {"server": kube.server, "ca": kube.authority}, "trial": {"hosts": {"p": node}}}
    arguments = [str(tmp_path / "report.json"), "--node-condition", "--label-nodes", "--untaint", "seatrial/canary"]
    for report, code, status, label in (
        (record("no-go", node, actions={node: {**ACTION, "node": node}}, **here), 1, "True", "failed"),
        (record("inconclusive", **here), 10, "Unknown", None),
        (record("go", **here), 0, "False", "passed"),
    ):
        (tmp_path / "report.json").write_text(json.dumps(report))
        assert main([*arguments, "--kubeconfig", str(sim.config)]) == code
        stored = kube.get(f"/api/v1/nodes/{node}")
        conditions = {each["type"]: each for each in stored["status"]["conditions"]}
        assert conditions["SeatrialFailed"]["status"] == status
        assert conditions["Ready"]["status"] == "True"
        assert stored["metadata"]["labels"].get("seatrial/trial") == label
        asked = "RESET_GPU" if status == "True" else None
        assert stored["metadata"]["labels"].get("seatrial/action") == asked
        assert ("Recommended Action=RESET_GPU" in conditions["SeatrialFailed"]["message"]) == (asked is not None)
        assert bool(stored["spec"].get("taints")) == (status != "False")
    assert f"{node}: passed" in capsys.readouterr().out


class Nodes:
    """Records writes to nodes."""

    server, authority = "https://one:6443", "aa"

    def __init__(self) -> None:
        self.written: list[tuple[str, Any]] = []

    def list(self, _path: str, fieldSelector: str = "") -> tuple[list[dict[str, Any]], str]:  # noqa: N803 -- the API's word
        return [{"metadata": {"name": fieldSelector.partition("=")[2], "resourceVersion": "1"}}], ""

    def patch(self, path: str, body: Any, **_: Any) -> None:
        self.written.append((path, body))


def test_before_a_change_every_pass_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass with the old driver does not apply to the new one, and must be repeated. No taint is removed."""
    kube: Any = Nodes()
    monkeypatch.setattr("cli.mark.connect", lambda _: kube)
    old = record("go", started="2026-01-01T00:00:00+00:00", scope="partial")
    (tmp_path / "report.json").write_text(json.dumps(old))
    arguments = [str(tmp_path), "--node-condition", "--label-nodes"]
    assert main([*arguments, "--forget"]) == 0
    statuses = [b["status"]["conditions"][0]["status"] for _, b in kube.written if "status" in b]
    assert statuses == ["Unknown"] * 2
    assert [b["metadata"]["labels"] for _, b in kube.written if "status" not in b] == [
        {node_labels.LABEL: None, node_labels.ACTION: None}
    ] * 2
    kube.written.clear()
    assert main(arguments) == 10
    assert main([*arguments, "--forget", "--untaint", "seatrial/canary"]) == 4
    assert kube.written == []


def test_a_record_of_an_earlier_round_opens_nothing() -> None:
    """A failed change left the folder with the content of the previous one."""
    before, after = record(started=ago(minutes=30)), record(started=ago(minutes=10))
    assert refused(after, KUBE, before) == ""
    for stale in (record(started=ago(minutes=50)), before):
        assert "began before the one that it must come after" in refused(stale, KUBE, before)
    assert "does not state" in refused(after, KUBE, record(started="once"))


def ago(**time: int) -> str:
    return (datetime.datetime.now(datetime.UTC) - datetime.timedelta(**time)).isoformat(timespec="seconds")


def test_saying_nothing_is_a_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 4
    assert "say how" in capsys.readouterr().err


def test_the_rule_waits_for_what_is_written() -> None:
    """The shipped rule has our condition with the status of a pass, and a taint that the gate's profile tolerates."""
    rule = yaml.safe_load((ROOT / "deploy" / "gates" / "node-readiness.yaml").read_text())
    assert (rule["apiVersion"], rule["kind"]) == ("readiness.node.x-k8s.io/v1alpha1", "NodeReadinessRule")
    assert rule["spec"]["conditions"] == [{"type": node_labels.CONDITION, "requiredStatus": "False"}]
    assert rule["spec"]["enforcementMode"] == "continuous"
    profile = yaml.safe_load((ROOT / "deploy" / "gates" / "profile.yaml").read_text())
    assert rule["spec"]["taint"]["key"] in {each["key"] for each in profile["pod"]["tolerations"]}
