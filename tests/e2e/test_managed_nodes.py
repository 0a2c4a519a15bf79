"""With a provider's driver and toolkit, all other GPU facts are still judged."""

from __future__ import annotations

import json

import pytest

from tests.program import seatrial


@pytest.mark.parametrize(
    ("scenario", "faults"),
    [
        ("driver-old", set()),
        pytest.param("toolkit-old", set(), marks=pytest.mark.slow),
        pytest.param("ecc-uncorrected", {"gpu.ecc"}, marks=pytest.mark.slow),
        ("gpu-count-pod", {"runtime.gpu-count"}),
        pytest.param("gpu-throttled", {"gpu.throttled"}, marks=pytest.mark.slow),
        pytest.param("nvlink-down", {"gpu.nvlink-down"}, marks=pytest.mark.slow),
        ("driver-mismatch", {"runtime.nvidia-smi"}),  # whatever its origin: no pod can use these GPUs
    ],
)
def test_the_variable_leaves_out_driver_and_toolkit_alone(scenario, faults, tmp_path, monkeypatch):
    monkeypatch.setenv("TAO_K8S_SKIP_NODE_RUNTIME_CHECK", "1")
    done = seatrial("accept", "--cluster", f"sim:{scenario}", "--out", str(tmp_path))
    record = json.loads((tmp_path / "report.json").read_text())
    assert set(record["faults"]) == faults, done.stdout
    assert done.returncode == (1 if faults else 0), done.stdout
    ended = {check["id"]: check for check in record["checks"]}
    assert "TAO_K8S_SKIP_NODE_RUNTIME_CHECK=1" in ended["runtime.toolkit"]["reason"]
    assert faults or "TAO_K8S_SKIP_NODE_RUNTIME_CHECK=1" in ended["runtime.gpus"]["notes"][-1]
