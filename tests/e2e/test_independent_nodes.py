"""Faults of different nodes are all reported in one run, and none of them leads to go."""

import json

import pytest

from cli.__main__ import main

NOT_READY = "{status: {conditions: [{type: Ready, status: 'False', reason: KubeletNotReady, message: x}]}}"
BROKEN = (
    ("nodes.not-ready", NOT_READY),
    ("gpu.missing", "{status: {allocatable: {nvidia.com/gpu: '7'}}}"),
    (
        "rdma.resource-missing",
        "{status: {capacity: {rdma/hca_shared_devices_a: null}, allocatable: {rdma/hca_shared_devices_a: null}}}",
    ),
    ("nodes.drift", "{status: {nodeInfo: {kernelVersion: 6.8.0-52-generic}}}"),
    ("gpu.labels-disagree", "{metadata: {labels: {nvidia.com/gpu.count: '4'}}}"),
)


@pytest.fixture
def fleet(tmp_path, capsys):
    """Run the trial on a cluster whose first nodes have these faults; return the record, and its faults by node."""

    def run(command, nodes, faults):
        changes = "".join(f"    gpu-node-{number}: {change}\n" for number, (_, change) in enumerate(faults))
        text = f"name: fleet\ntitle: Fleet\nbreaks: nodes\nfaults: []\noutcome: no-go\nworld:\n  nodes: {nodes}\n  node:\n{changes}"
        (tmp_path / "fleet.yaml").write_text(text)
        code = main([command, "--cluster", f"sim:{tmp_path}/fleet.yaml", "--out", str(tmp_path / "out")])
        capsys.readouterr()
        record = json.loads((tmp_path / "out" / "report.json").read_text())
        named = {(f["subject"], f["fault"]) for c in record["checks"] for f in c["findings"] if f["fault"]}
        return code, record, named

    return run


def test_every_broken_node_is_reported_in_one_run(fleet):
    """Five nodes of eight have a fault each; previously the first one hid the others."""
    code, record, named = fleet("preflight", 8, BROKEN)
    assert named == {(f"gpu-node-{number}", fault) for number, (fault, _) in enumerate(BROKEN)}
    assert (code, record["verdict"]) == (1, "no-go")
    passed = [
        f
        for c in record["checks"]
        if c["id"] == "gpu.allocatable"
        for f in c["findings"]
        if f["subject"] == "gpu-node-0"
    ]
    assert [f["ok"] for f in passed] == [None]


def test_the_trial_runs_on_the_nodes_that_are_fit(fleet):
    """Three of five are fit: the trial avoids the others, reports them, and the verdict remains no-go."""
    code, record, _ = fleet("accept", 5, BROKEN[:2])
    outcomes = {c["id"]: c for c in record["checks"]}
    assert (code, record["verdict"]) == (1, "no-go")
    assert outcomes["nccl.transport"]["outcome"] == "passed"
    assert not {"gpu-node-0", "gpu-node-1"} & set(record["trial"]["hosts"].values())
    assert "the trial excludes gpu-node-0 (nodes.gpu); gpu-node-1 (gpu.allocatable)" in " ".join(
        outcomes["job.started"]["notes"]
    )


def test_too_few_fit_nodes_start_no_trial(fleet):
    """One of two is fit: no object is created, and the trial that could not start is not a cluster fault."""
    code, record, named = fleet("accept", 2, BROKEN[1:2])
    outcomes = {c["id"]: c["outcome"] for c in record["checks"]}
    assert (code, record["verdict"], named) == (1, "no-go", {("gpu-node-0", "gpu.missing")})
    assert (outcomes["job.started"], outcomes["gpu.free"], record["trial"]) == ("blocked", "blocked", {})
