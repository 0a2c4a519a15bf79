"""`seatrial cron` with failures around it: its state, its folder, its Lease, its Pushgateway."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cli.__main__ import main
from cli.schedule import node_history
from cli.schedule.cron import ScheduledRun
from jobs.cluster.client.errors import ClusterError
from jobs.cluster.client.kube import Kube
from jobs.cluster.state_store import StateStoreError
from tests.onsim import Sim
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAPS = "/api/v1/namespaces/default/configmaps"
pytestmark = pytest.mark.usefixtures("forked_children")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/seatrial-cron"
REMEMBERED = {"tested": 0.0, "passed": 0.0, "strikes": 0, "suspect": False, "faults": []}


@pytest.fixture(scope="module")
def cluster(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the kubeconfig of a healthy cluster."""
    served = Sim(root, tmp_path_factory.mktemp("cluster"), "healthy")
    yield str(served.config)
    served.close()


@pytest.fixture
def kube(cluster: str, monkeypatch: pytest.MonkeyPatch) -> Kube:
    """Return a client; the cluster's nodes were tested a minute ago, so that a run is short."""
    monkeypatch.delenv("SEATRIAL_JOB_NAME", raising=False)
    made = Kube.connect(kubeconfig=cluster)
    for place in (LEASE, f"{MAPS}/seatrial-state", f"{MAPS}/seatrial-results"):
        try:
            made.delete(place)
        except ClusterError:
            continue
    now = time.time()
    nodes = {name: REMEMBERED | {"tested": now - 60, "passed": now - 60} for name in ("gpu-node-0", "gpu-node-1")}
    remember(made, json.dumps({"schema": 1, "nodes": nodes, "past": [], "last_success": 5.0}))
    return made


def remember(kube: Kube, text: str) -> None:
    """Write the state of an earlier run."""
    try:
        kube.create(
            MAPS,
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "seatrial-state"},
                "data": {"state.json": text},
            },
        )
    except ClusterError:
        kube.patch(f"{MAPS}/seatrial-state", {"data": {"state.json": text}})


def state(kube: Kube) -> Any:
    """Return the history."""
    return json.loads(kube.get(f"{MAPS}/seatrial-state")["data"]["state.json"])


def cron(cluster: str, out: Path, *more: str) -> int:
    """Run seatrial cron."""
    return main(["cron", "--kubeconfig", cluster, "--profile", "h100-ib", "--out", str(out), *more])


@pytest.mark.slow
def test_a_pushgateway_that_is_down_costs_a_line(
    kube: Kube, cluster: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The verdict is unchanged, the metrics are in folder and ConfigMap; the address's password is not printed."""
    assert cron(cluster, tmp_path, "--push", "http://user:swordfish@127.0.0.1:9/") == 0
    said = capfd.readouterr()
    assert "could not be pushed" in said.out
    assert "swordfish" not in said.out + said.err
    metrics = (tmp_path / "metrics.prom").read_text()
    assert kube.get(f"{MAPS}/seatrial-results")["data"]["metrics.prom"] == metrics
    assert 'seatrial_node_bad{node="gpu-node-1"} 0.0' in metrics
    assert "seatrial_last_success_timestamp_seconds 5.0" in metrics


@pytest.mark.slow
@pytest.mark.parametrize("text", ["{", "[]", "null", "[" * 50_000])
def test_a_damaged_memory_is_begun_anew(
    text: str,
    kube: Kube,
    cluster: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An invalid manual edit of the ConfigMap is reported, the state is rewritten, and scheduled runs continue."""
    monkeypatch.setattr("cli.schedule.node_history.choose", lambda *_, **__: node_history.Choice((), "a test"))
    remember(kube, text)
    assert cron(cluster, tmp_path) == 0
    assert "damaged" in capfd.readouterr().out
    assert state(kube)["schema"] == 1


@pytest.mark.slow
def test_what_a_newer_version_remembers_is_left_alone(kube: Kube, cluster: str, tmp_path: Path) -> None:
    """Exit code 10, and the state is unchanged."""
    remember(kube, '{"schema": 2, "new": true}')
    assert cron(cluster, tmp_path) == 10
    assert state(kube) == {"schema": 2, "new": True}


@pytest.mark.slow
def test_nodes_that_left_are_forgotten(kube: Kube, cluster: str, tmp_path: Path) -> None:
    """A bad node that was removed from the cluster is forgotten; a time in the future is ignored."""
    now = time.time()
    nodes = {name: REMEMBERED | {"tested": now - 60, "passed": now - 60} for name in ("gpu-node-0", "gpu-node-1")}
    nodes["gone"] = REMEMBERED | {"strikes": 2}
    remember(kube, json.dumps({"schema": 1, "nodes": nodes}))
    assert cron(cluster, tmp_path) == 0
    assert set(state(kube)["nodes"]) == {"gpu-node-0", "gpu-node-1"}
    assert "gone" not in (tmp_path / "metrics.prom").read_text()


@pytest.mark.slow
def test_a_run_that_loses_its_lease_ends_and_writes_nothing(
    kube: Kube, cluster: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run may be active and owns the state. Exit code 10, whatever the findings."""
    monkeypatch.setattr("jobs.cluster.client.lease.Lease.__init__.__kwdefaults__", {"seconds": 1})
    before = kube.get(f"{MAPS}/seatrial-state")["metadata"]["resourceVersion"]

    def steal() -> None:
        def held() -> bool:
            with contextlib.suppress(ClusterError):
                return bool(kube.get(LEASE)["spec"].get("holderIdentity"))
            return False

        until(held, "a lease")
        kube.patch(LEASE, {"spec": {"holderIdentity": "thief", "renewTime": "2099-01-01T00:00:00.000000Z"}})

    thief = threading.Thread(target=steal)
    thief.start()
    code = cron(cluster, tmp_path)
    thief.join()
    assert code == 10, capfd.readouterr()
    assert "the lease was lost" in capfd.readouterr().out
    assert kube.get(f"{MAPS}/seatrial-state")["metadata"]["resourceVersion"] == before
    assert kube.get(LEASE)["spec"]["holderIdentity"] == "thief"


@pytest.mark.slow
def test_a_verdict_is_reported_where_nothing_can_be_remembered(
    kube: Kube, cluster: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the ConfigMaps cannot be written, that is reported; metrics and verdict are still produced."""

    def refuse(*_: Any, **__: Any) -> None:
        raise StateStoreError("no room for it")

    monkeypatch.setattr("cli.schedule.cron.save", refuse)
    assert cron(cluster, tmp_path) == 0
    said = capfd.readouterr().out
    assert "configmap seatrial-state could not be written" in said
    assert "VERDICT of the scheduled run: go" in said
    assert (tmp_path / "metrics.prom").exists()


@pytest.mark.slow
def test_results_that_are_too_large_leave_the_verdict(
    kube: Kube, cluster: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ConfigMap holds a mebibyte: larger metrics are omitted from it, and are in the folder."""
    monkeypatch.setattr("jobs.cluster.state_store.LARGEST", 5000)
    assert cron(cluster, tmp_path) == 0
    assert "bytes are more than it holds" in capfd.readouterr().out
    data = kube.get(f"{MAPS}/seatrial-results")["data"]
    assert json.loads(data["latest.json"])["verdict"] == "go"
    assert data["metrics.prom"] == ""
    assert (tmp_path / "metrics.prom").stat().st_size > 5000


@pytest.mark.slow
def test_nodes_are_marked_where_that_is_asked_for(kube: Kube, cluster: str, tmp_path: Path) -> None:
    """Nodes whose judgement changed get a label and a condition; other marks on a node are kept."""

    def shown(name: str) -> tuple[str | None, dict[str, Any]]:
        node = kube.get(f"/api/v1/nodes/{name}")
        conditions = {c["type"]: c for c in node["status"]["conditions"]}
        assert conditions["Ready"]["status"] == "True"
        return node["metadata"]["labels"].get("seatrial/trial"), conditions.get("SeatrialFailed", {})

    assert cron(cluster, tmp_path, "--label-nodes", "--node-condition") == 0  # no trial, so no change
    assert shown("gpu-node-0") == (None, {})
    remember(kube, "{}")
    assert cron(cluster, tmp_path, "--label-nodes", "--node-condition") == 0
    for node in ("gpu-node-0", "gpu-node-1"):
        word, condition = shown(node)
        assert (word, condition["status"], condition["reason"]) == ("passed", "False", "TrialPassed")
        assert condition["lastTransitionTime"]


@pytest.mark.slow
def test_a_cluster_that_is_full_is_no_news(root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Other teams use every GPU, night after night: preflight passes otherwise, and no node is at fault."""
    full = Sim(root, tmp_path, "gpus-taken")
    try:
        remember(
            Kube.connect(kubeconfig=str(full.config)),
            json.dumps(
                {
                    "schema": 1,
                    "nodes": {n: REMEMBERED | {"tested": 1.0, "passed": 1.0} for n in ("gpu-node-0", "gpu-node-1")},
                }
            ),
        )
        for _ in range(2):
            assert cron(str(full.config), tmp_path / "out") == 0
            assert "it does not count" in capfd.readouterr().out
        metrics = (tmp_path / "out" / "metrics.prom").read_text()
        assert 'seatrial_run_verdict{verdict="go"} 1.0' in metrics
        assert 'seatrial_node_bad{node="gpu-node-0"} 0.0' in metrics
    finally:
        full.close()


@pytest.mark.slow
def test_a_scheduled_sweep_takes_idle_nodes_oldest_first(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All three places go to the nodes that waited longest; the others are reported, and come next with the suspect."""
    world = tmp_path / "six.yaml"
    world.write_text("name: six\ntitle: t\nbreaks: nothing\nfaults: []\noutcome: go\nworld: {nodes: 6}\n")
    served = Sim(root, tmp_path, str(world))
    try:
        now = time.time()
        known = REMEMBERED | {"tested": now - 60, "passed": now - 60}
        nodes = {f"gpu-node-{number}": known for number in range(6)}
        nodes["gpu-node-4"] = REMEMBERED | {"tested": now - 600, "suspect": True}
        nodes["gpu-node-2"] = REMEMBERED | {"tested": now - 40 * 86400, "passed": 1.0}
        nodes["gpu-node-0"] = REMEMBERED | {"tested": now - 50 * 86400, "passed": 1.0}
        nodes["gpu-node-5"] = REMEMBERED | {"tested": now - 30 * 86400, "passed": 1.0}
        nodes["gpu-node-3"] = REMEMBERED | {"tested": now - 29 * 86400, "passed": 1.0}
        kube = Kube.connect(kubeconfig=str(served.config))
        remember(kube, json.dumps({"schema": 1, "nodes": nodes}))
        assert cron(str(served.config), tmp_path / "out", "--sweep", "3") == 0
        said = capfd.readouterr().out
        assert "trial on gpu-node-0, gpu-node-2, gpu-node-5: of 6 idle nodes 1 under suspicion and 4 due" in said
        assert "not tested for 28 days, since never idle when a run came: gpu-node-3" in said
        assert "3 of 6 nodes tried" in said
        after = state(kube)["nodes"]
        assert {name for name, node in after.items() if node["tested"] > now} == {
            "gpu-node-0",
            "gpu-node-2",
            "gpu-node-5",
        }
        assert cron(str(served.config), tmp_path / "out", "--sweep", "3") == 0
        assert (
            "trial on gpu-node-4, gpu-node-0, gpu-node-3: of 6 idle nodes 1 under suspicion" in capfd.readouterr().out
        )
        assert not state(kube)["nodes"]["gpu-node-4"]["suspect"]
        metrics = kube.get(f"{MAPS}/seatrial-results")["data"]["metrics.prom"]
        assert 'seatrial_node_trials{node="gpu-node-4"} 1.0' in metrics
        assert 'seatrial_node_failed_trials{node="gpu-node-4"} 0.0' in metrics
        assert cron(str(served.config), tmp_path / "out", "--sweep", "3") == 0
        assert "no trial: all 6 idle nodes were tested within" in capfd.readouterr().out
    finally:
        served.close()


@pytest.mark.slow
def test_another_namespaces_trial_goes_first(
    kube: Kube, cluster: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With two CronJobs on the same GPUs, pods that wait for each other's nodes would block both."""
    remember(kube, "{}")
    kube.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}})
    ask = {"resources": {"requests": {"nvidia.com/gpu": 8}, "limits": {"nvidia.com/gpu": 8}}}
    kube.create(
        "/api/v1/namespaces/team-b/pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "trial-0", "labels": {"app.kubernetes.io/name": "seatrial"}},
            "spec": {"nodeSelector": {"not": "yet"}, "containers": [{"name": "c", "image": "i", **ask}]},
        },
    )
    try:
        assert cron(cluster, tmp_path) == 0
        assert "no trial: a trial of namespace team-b waits for GPUs" in capfd.readouterr().out
    finally:
        kube.delete("/api/v1/namespaces/team-b/pods/trial-0")


@pytest.mark.slow
def test_old_runs_are_forgotten_also_killed_ones(kube: Kube, cluster: str, tmp_path: Path) -> None:
    """Folders of runs without a record are removed, too; other folders stay."""
    for number, name in enumerate(["aaaaaaaaa2", "aaaaaaaaa3", "my-results", "aaaaaaaaa4"]):
        (tmp_path / name / "logs").mkdir(parents=True)
        os.utime(tmp_path / name, (number, number))
    assert cron(cluster, tmp_path, "--keep", "2") == 0
    left = {p.name for p in tmp_path.iterdir() if p.is_dir()}
    assert left >= {"my-results", "aaaaaaaaa4"}
    assert not left & {"aaaaaaaaa2", "aaaaaaaaa3"}
    assert len(left) == 3


def test_runs_that_cannot_be_forgotten_leave_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder vanished while the trial ran, or a run's folder vanished just now."""
    options = SimpleNamespace(out=tmp_path / "gone", keep=1)
    run = ScheduledRun(None, None, options, None, "aaaaaaaaa2", ())  # type: ignore[arg-type]
    run._forget()
    assert run.messages == [f"no older run was deleted from {tmp_path / 'gone'}: No such file or directory"]
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.parametrize(
    "more",
    [
        ["--every", "nan"],
        ["--every", "-1"],
        ["--keep", "0"],
        ["--sweep", "1"],
        ["--cluster", "sim:healthy"],
        ["--on=a,b"],
        ["--out", "/proc/nowhere"],
        ["--out", "/etc/hostname"],
        ["--profile", "nobody"],
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(
    more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The refusal is one line with exit code 4, also for an unwritable folder."""
    assert cron("nowhere", tmp_path, *more) == 4
    assert len(capsys.readouterr().err.splitlines()) == 1
