"""`seatrial cron --new-nodes` in the embedded cluster: new and repaired nodes, repeated failures, near misses."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cli.__main__ import main
from cli.schedule.cron import ScheduledRun
from jobs.cluster import node_labels as marking
from jobs.cluster.client.errors import ClusterError
from jobs.cluster.client.kube import Kube
from tests.onsim import Sim, left_over
from tests.program import Program
from tests.waiting import HANG_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY, NEW, PROVEN = "seatrial/new", "gpu-node-2", ("gpu-node-0", "gpu-node-1")
TAINT = {"key": KEY, "effect": "NoSchedule"}
FOREIGN = {"key": "vendor.example/keep", "effect": "PreferNoSchedule"}
TOLERATIONS = [{"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": KEY, "operator": "Exists"}]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_children")]


class Fleet:
    """A served cluster whose third node is new, and the runs on it."""

    def __init__(self, root: Path, folder: Path, scenario: str) -> None:
        self.sim = Sim(root, folder, scenario)
        self.kube = Kube.connect(kubeconfig=str(self.sim.config))
        self.folder = folder
        self.profile = folder / "profile.yaml"
        self.profile.write_text(yaml.safe_dump({"extends": "h100-ib", "pod": {"tolerations": TOLERATIONS}}))

    @property
    def arguments(self) -> list[str]:
        given = ["--kubeconfig", str(self.sim.config), "--profile", str(self.profile)]
        return ["cron", *given, "--out", str(self.folder / "out"), f"--new-nodes={KEY}"]

    def run(self) -> int:
        """Start one scheduled run."""
        return main(self.arguments)

    @property
    def runs(self) -> int:
        """Return the number of runs that have started a trial."""
        return len(list((self.folder / "out").glob("*/report.json")))

    def shown(self, name: str) -> tuple[str, str, bool]:
        """Return the status of our condition on a node, its message, and whether it has the taint of new nodes."""
        raw = marking.read(self.kube, name)
        conditions = {each["type"]: each for each in raw["status"]["conditions"]}
        assert conditions["Ready"]["status"] == "True"
        ours = conditions.get(marking.CONDITION, {})
        return ours.get("status", ""), ours.get("message", ""), TAINT in (raw["spec"].get("taints") or [])

    def reset(self) -> None:
        """Reset the state: two nodes have passed, the third has just joined, and no history exists."""
        for name in (*PROVEN, NEW):
            taints = [TAINT, FOREIGN] if name == NEW else None
            self.kube.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": taints, "unschedulable": None}})
            marking.condition(self.kube, name, False if name in PROVEN else None)
        for name in ("seatrial-state", "seatrial-results"):
            try:
                self.kube.delete(f"/api/v1/namespaces/default/configmaps/{name}")
            except ClusterError:
                continue

    def reboot(self, name: str, boot: str) -> None:
        """Simulate a reboot of the node."""
        self.kube.patch(f"/api/v1/nodes/{name}/status", {"status": {"nodeInfo": {"bootID": boot}}})


@pytest.fixture(scope="module")
def served(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Serve the shipped scenario."""
    made = Fleet(root, tmp_path_factory.mktemp("fleet"), "healthy-new-node")
    yield made
    made.sim.close()


@pytest.fixture
def fleet(served: Fleet) -> Fleet:
    """Return the fleet in its initial state."""
    served.reset()
    return served


def broken(root: Path, folder: Path, **world: Any) -> Fleet:
    """Return the fleet with a fault in its world."""
    made = yaml.safe_load((root / "lab" / "scenarios" / "healthy-new-node.yaml").read_text())
    made["world"] |= world
    (folder / "broken.yaml").write_text(yaml.safe_dump(made))
    return Fleet(root, folder, str(folder / "broken.yaml"))


def test_a_new_node_is_opened_after_it_has_passed_with_a_proven_one(
    fleet: Fleet, capfd: pytest.CaptureFixture[str]
) -> None:
    """Only the new node's taint is removed; a manually cordoned node is not a partner and stays cordoned; then nothing
    is due."""
    fleet.kube.patch(f"/api/v1/nodes/{PROVEN[0]}", {"spec": {"unschedulable": True}})
    assert fleet.run() == 0
    said = capfd.readouterr().out
    assert f"trial on {NEW}, {PROVEN[1]}: {NEW} unproven, with nodes that have passed" in said
    assert f"{NEW}: passed" in said
    status, message, tainted = fleet.shown(NEW)
    assert (status, tainted) == ("False", False)
    assert message.startswith("(boot ")
    raw = marking.read(fleet.kube, NEW)
    assert raw["spec"]["taints"] == [FOREIGN]
    assert marking.read(fleet.kube, PROVEN[0])["spec"]["unschedulable"]
    runs = fleet.runs
    assert fleet.run() == 0
    assert "no unproven node: nothing is started" in capfd.readouterr().out
    assert (fleet.runs, left_over(fleet.kube)) == (runs, [])


def test_a_repaired_node_is_tried_again_only_after_a_change(fleet: Fleet, capfd: pytest.CaptureFixture[str]) -> None:
    """Without a change a failed node gets no trial; after a reboot it is tried and released."""
    marking.condition(fleet.kube, NEW, True, faults=["rdma.port-down"])
    runs = fleet.runs
    assert fleet.run() == 0
    assert f"failed, and not changed since: {NEW}" in capfd.readouterr().out
    assert (fleet.runs, fleet.shown(NEW)[::2]) == (runs, ("True", True))
    fleet.reboot(NEW, "after-the-repair")
    assert fleet.run() == 0
    assert fleet.shown(NEW)[::2] == ("False", False)
    fleet.reboot(NEW, "and-again")  # a rebooted node has not passed: also during manual work on it
    fleet.kube.patch(f"/api/v1/nodes/{NEW}", {"spec": {"unschedulable": True}})
    assert fleet.run() == 0
    said = capfd.readouterr().out
    assert f"{NEW} passed before its last boot" in said
    assert f"{NEW} waits: cordoned" in said
    assert (fleet.runs, fleet.shown(NEW)[0]) == (runs + 1, "Unknown")
    fleet.kube.patch(f"/api/v1/nodes/{NEW}", {"spec": {"unschedulable": None}})
    assert fleet.run() == 0
    assert fleet.shown(NEW)[0] == "False"
    assert fleet.runs == runs + 2


def test_a_node_that_boots_during_its_trial_stays_closed(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The machine that passed no longer exists in that state."""
    child = ScheduledRun._child

    def and_boots(run: ScheduledRun, choice: Any) -> int:
        code = child(run, choice)
        fleet.reboot(NEW, "meanwhile")
        return code

    monkeypatch.setattr(ScheduledRun, "_child", and_boots)
    assert fleet.run() == 10
    assert f"{NEW}: not known" in capfd.readouterr().out
    assert fleet.shown(NEW)[::2] == ("Unknown", True)


def test_a_run_that_is_ended_half_way_leaves_nothing_and_opens_no_one(fleet: Fleet) -> None:
    """SIGTERM while the trial's pods run, like an eviction of the runner: the taint stays, the next run tries again."""
    runner = Program([sys.executable, "-m", "checks", *fleet.arguments], env=dict(os.environ))
    until(lambda: any(name.startswith("pods/") for name in left_over(fleet.kube)), "the trial's pods")
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(HANG_S) != 0
    assert left_over(fleet.kube) == []
    assert fleet.shown(NEW)[::2] == ("Unknown", True)


@pytest.mark.parametrize(
    ("world", "fault", "first"),
    [
        ({"hardware": {NEW: {"rdma": {"devices": {"mlx5_3": {"state": "DOWN"}}}}}}, "rdma.port-down", 10),
        ({"collective": {"paths": [{"nodes": [NEW], "scale": 0.5}]}}, "nccl.low-bandwidth", 10),
        (
            {"node": {NEW: {"status": {"allocatable": {"nvidia.com/gpu": "7"}}}}},
            "gpu.missing",
            1,
        ),  # visible in the API, hence not transient
    ],
    ids=["names-the-node", "names-no-node", "lacks-a-gpu"],
)
def test_a_node_that_fails_again_stays_closed_and_its_partner_is_not_at_fault(
    world: dict[str, Any], fault: str, first: int, root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first failure is repeated; then the condition has the fault, and without a change no trial follows."""
    fleet = broken(root, tmp_path, **world)
    try:
        fleet.reset()
        marking.condition(fleet.kube, NEW, True, faults=["gpu.missing"])
        fleet.reboot(NEW, "after-the-repair")
        for code, status in ((first, "Unknown"), (1, "True")):
            assert fleet.run() == code, capfd.readouterr().out
            said = capfd.readouterr().out
            assert f"{NEW}: {'failed' if status == 'True' else 'not known'} (" in said
            shown, message, tainted = fleet.shown(NEW)
            assert (shown, tainted) == (status, True)
            assert fault in message
            assert message.endswith("(boot after-the-repair, driver 580.95.05)")
            assert [fleet.shown(name)[0] for name in PROVEN] == ["False", "False"]
        assert fleet.run() == 0
        assert f"failed, and not changed since: {NEW}" in capfd.readouterr().out
        assert fleet.runs == 2
        data = fleet.kube.get("/api/v1/namespaces/default/configmaps/seatrial-state")["data"]
        nodes = json.loads(data["state.json"])["nodes"]
        assert [(nodes[name]["strikes"], nodes[name]["suspect"]) for name in PROVEN] == [(0, False)] * 2
    finally:
        fleet.sim.close()


def test_a_sweep_opens_several_at_once(fleet: Fleet, capfd: pytest.CaptureFixture[str]) -> None:
    """Two of three nodes are new."""
    marking.condition(fleet.kube, PROVEN[0], None)
    assert main([*fleet.arguments, "--sweep", "3"]) == 0
    said = capfd.readouterr().out
    assert f"{PROVEN[0]}, {NEW} unproven, with nodes that have passed" in said
    assert [fleet.shown(name)[::2] for name in (*PROVEN, NEW)] == [("False", False)] * 3


def test_a_node_without_a_partner_stays_closed(root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A busy partner makes the run inconclusive, is reported, and no pod is started."""
    fleet = broken(root, tmp_path)
    try:
        fleet.reset()
        for name in PROVEN:
            fleet.kube.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
        assert fleet.run() == 10
        said = capfd.readouterr().out
        assert f"{NEW} would need a proven partner of the same kind with free GPUs" in said
        assert (fleet.runs, fleet.shown(NEW)[::2]) == (0, ("Unknown", True))
    finally:
        fleet.sim.close()
