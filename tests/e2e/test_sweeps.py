"""Disturbed sweeps: flaky tests are reported, interrupted sweeps are resumed, and no object is left behind."""

import functools
import json
import os
import re
import subprocess
import textwrap

import pytest

from jobs.cluster.client.kube import Kube
from tests.onsim import Sim
from tests.program import Program, seatrial
from tests.waiting import HANG_S, until

WORLD = """
name: cut-off
title: The pod that leads a sweep is taken away
breaks: {breaks}
faults: []
outcome: go
world:
  nodes: 8
  {world}
"""


@pytest.fixture
def sweep(tmp_path):
    """Run a sweep of a scenario; return exit code, record and output."""

    def run(scenario, *options, out="out"):
        done = seatrial("sweep", "--cluster", f"sim:{scenario}", "--out", str(tmp_path / out), *options)
        return done.returncode, json.loads((tmp_path / out / "report.json").read_text()), done.stdout + done.stderr

    return run


@pytest.mark.slow
def test_a_sweep_whose_leader_was_taken_away_goes_on(sweep, tmp_path):
    """Results so far are kept, the reason of the end is reported, and --resume runs only the missing tests."""
    file = tmp_path / "cut-off.yaml"
    file.write_text(
        WORLD.format(breaks="rank 0's pod", world="happens: [{do: delete, index: 0, says: 'sweep: round 2'}]")
    )
    code, first, said = sweep(file, out="first")
    assert (code, first["verdict"]) == (10, "inconclusive"), said
    assert "which led the sweep" in said and "--resume" in said
    file.write_text(WORLD.format(breaks="nothing", world="dns: {mode: ok}"))
    code, second, said = sweep(file, "--resume", str(tmp_path / "first"), out="second")
    assert (code, second["verdict"]) == (0, "go"), said
    before = len(first["sweep"]["rounds"])
    assert second["sweep"]["resumed"]["rounds"] == before
    assert second["sweep"]["tests"][: len(first["sweep"]["tests"])] == [
        {**test, "share": after.get("share")} if "share" in test else test
        for test, after in zip(first["sweep"]["tests"], second["sweep"]["tests"], strict=False)
    ]


@pytest.mark.slow
def test_a_node_whose_pod_is_preempted_while_it_trains_trains_when_it_is_back(sweep, tmp_path):
    """A preempted pod's steps were interrupted; the replacement pod's single-node tests start from the beginning."""
    file = tmp_path / "preempted.yaml"
    file.write_text(
        WORLD.format(breaks="one pod", world="happens: [{do: preempt, index: 3, says: nodes are connected}]")
    )
    code, record, said = sweep(file, "--training")
    assert (code, record["verdict"], len(record["sweep"]["proven"])) == (0, "go", 8), said


def _second_round(running, out):
    assert running.poll() is None, running.communicate()
    return any('"sweep.round.2"' in log.read_text() for log in out.glob("logs/*.log"))


@pytest.mark.slow
def test_a_sweep_that_is_asked_to_end_says_how_it_goes_on(tmp_path):
    """After SIGTERM the completed rounds count, and the command to resume is printed."""
    world = tmp_path / "six.yaml"
    world.write_text("name: six\ntitle: t\nbreaks: nothing\nfaults: []\noutcome: go\nworld: {nodes: 6}\n")
    out = tmp_path / "out"
    arguments = ["checks", "sweep", "--cluster", f"sim:{world}", "--out", str(out)]
    running = Program(arguments, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    until(functools.partial(_second_round, running, out), "the second round")
    running.terminate()
    said, _ = running.communicate(timeout=HANG_S)
    assert running.returncode == 2, said
    interrupted = json.loads((out / "report.json").read_text())["interrupted"]
    assert re.fullmatch(
        rf"received SIGTERM; \d rounds of it are kept: seatrial sweep --resume {out} continues from there", interrupted
    )
    assert "--resume" in said


@pytest.mark.slow
def test_a_tenant_names_the_nodes_of_a_sweep(sweep):
    """Only the scheduler knows idle nodes; with --on the sweep runs, and without it one line explains it."""
    code, _, said = sweep("tenant-healthy", "--tenant", out="first")
    assert code == 10
    assert "Not judged, the nodes are not visible to this account: name those to sweep with --on NODE,NODE" in " ".join(
        said.split()
    )
    code, record, said = sweep("tenant-healthy", "--tenant", "--on", "gpu-node-0,gpu-node-1", out="second")
    assert (code, len(record["sweep"]["proven"])) == (0, 2), said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "code", "why"), [("healthy-kueue", 0, "2 of 2 nodes proven"), ("kueue-full", 10, "its queue")]
)
def test_a_sweep_goes_through_a_queue(sweep, scenario, code, why):
    """Kueue admits all pods or none; a sweep without room waits, and the nodes are not judged."""
    got, record, said = sweep(scenario, "--queue", "kueue:trial")
    assert got == code, said
    assert why in " ".join(said.split())
    assert record["sweep"]["findings"] == []


ONE_GPU = {
    "one-gpu.yaml": """
        name: one-gpu
        title: Nodes of one H100
        extends: h100-ib
        gpu: {count: 1, bus_ids: ["1B"], numa: [0]}
        fabric: {devices: [mlx5_0]}
        gpu_labels: {nvidia.com/gpu.count: "1"}
    """,
    "ours.yaml": """
        title: One H100 a node
        gpu: {per_node: 1}
        fabric: {kind: ib, rails: 1, rail_gbit_s: 400, gdr: true}
        pod: {image: "nvcr.io/nvidia/pytorch:25.08-py3", resources: {rdma/hca_shared_devices_a: 1}}
        floors:
          - {collective: all_reduce, algorithm: ring, nodes: 2, size: 64M, busbw_gbps: 30, topology: two nodes, source: ours}
    """,
    "world.yaml": """
        name: world
        title: Nodes of one H100
        breaks: nothing
        faults: []
        outcome: go
        run: {profile: ours.yaml}
        world: {platform: one-gpu.yaml, nodes: 4, hardware: {gpu-node-2: {gpus: {0: {wrong: WRONG}}}}}
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "code"), [(0, 0), (3, 1)])
def test_nodes_of_one_gpu_are_tested_alone_too(sweep, tmp_path, wrong, code):
    """Products, copies and clocks are tested; there is no bus to measure."""
    for name, text in ONE_GPU.items():
        (tmp_path / name).write_text(textwrap.dedent(text).replace("WRONG", str(wrong)))
    got, record, said = sweep(tmp_path / "world.yaml", "--profile", str(tmp_path / "ours.yaml"))
    assert got == code, said
    assert {f["names"][0] for f in record["sweep"]["findings"]} == ({"gpu-node-2"} if wrong else set()), said
    assert ("3 of 2000 products of the same matrices differ" in " ".join(said.split())) == bool(wrong)
    first = [test for test in record["sweep"]["tests"] if len(test["nodes"]) == 1]
    assert sorted(test["nodes"][0] for test in first) == [f"gpu-node-{n}" for n in range(4)]
    assert set(record["sweep"]["hardware"]) == {f"gpu-node-{n}" for n in range(4)}


def left(kube):
    """Return a sweep's objects in its namespace: jobs, pods, Services and ConfigMaps with its label."""
    places = ("/apis/batch/v1/{}/jobs", "/api/v1/{}/pods", "/api/v1/{}/services", "/api/v1/{}/configmaps")
    label = "app.kubernetes.io/managed-by=seatrial"
    listed = [kube.list(place.format("namespaces/default"), labelSelector=label)[0] for place in places]
    return [item["metadata"]["name"] for items in listed for item in items]


@pytest.mark.slow
def test_a_sweep_whose_runner_was_killed_is_cleaned_up_and_goes_on(root, tmp_path):
    """After kill -9 no record is written, and the rounds in the coordinator's log are not run again."""
    world = tmp_path / "eight.yaml"
    world.write_text("name: eight\ntitle: t\nbreaks: nothing\nfaults: []\noutcome: go\nworld: {nodes: 8}\n")
    served = Sim(root, tmp_path, str(world))
    try:
        kube = Kube.connect(kubeconfig=str(served.config))
        where = ["--kubeconfig", str(served.config)]
        first, second = tmp_path / "first", tmp_path / "second"
        arguments = ["sweep", *where, "--profile", "h100-ib", "--out"]
        running = Program(
            ["checks", *arguments, str(first)], env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        until(functools.partial(_second_round, running, first), "the second round")
        running.kill()
        running.communicate(HANG_S)
        assert not (first / "report.json").exists()
        assert left(kube)
        done = seatrial("cleanup", *where, "--all")
        assert left(kube) == [], done.stdout + done.stderr
        done = seatrial(*arguments, str(second), "--resume", str(first))
        record = json.loads((second / "report.json").read_text())
        assert (done.returncode, record["verdict"]) == (0, "go"), done.stdout + done.stderr
        rounds = record["sweep"]["resumed"]["rounds"]
        assert rounds >= 2
        assert [each["number"] for each in record["sweep"]["rounds"]] == list(
            range(1, 1 + len(record["sweep"]["rounds"]))
        )
        assert left(kube) == []
        assert not (second / "sweep.json").exists()
        assert seatrial(*arguments, str(second), "--resume", str(second)).returncode == 4
        assert (second / "report.json").exists(), "the data to resume from is kept"
    finally:
        served.close()


FIRST_ROUND = """
name: first-round
title: The pod that leads a sweep is taken away in its first round
breaks: rank 0's pod, and another team holds gpu-node-3
faults: []
outcome: inconclusive
world:
  nodes: 4
  workloads:
    pretrain:
      {kind: Deployment, namespace: research, image: "r.example/p:1", replicas: 1, nodes: [gpu-node-3],
       requests: {nvidia.com/gpu: "8", cpu: "96"}}
  happens: [{do: delete, index: 0, says: nodes are connected}]
"""


@pytest.mark.slow
def test_nodes_whose_pods_ran_are_tried_though_no_round_of_theirs_was_reported(sweep, tmp_path):
    """Nodes with a pod are reported as not tested; a node without any pod is not tried."""
    file = tmp_path / "first-round.yaml"
    file.write_text(FIRST_ROUND)
    code, record, said = sweep(file)
    assert (code, record["sweep"]["rounds"]) == (10, []), said
    names = [f"gpu-node-{n}" for n in range(4)]
    assert (record["coverage"]["tried"], record["coverage"]["untried"]) == (names[:3], names[3:])
    assert set(record["sweep"]["not_tested"]) == set(names)
