"""The trial on every scenario of the embedded cluster: the right fault on the right subject, and nothing else."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GREEN = {"healthy", "healthy-efa", "healthy-roce", "dns-slow"}
EXIT = {"go": 0, "no-go": 1, "inconclusive": 10}


def seatrial(*arguments, timeout=180):
    return subprocess.run([sys.executable, "-m", "checks", *arguments], cwd=ROOT, capture_output=True, text=True,
                          timeout=timeout, check=False)


def listed():
    done = subprocess.run([sys.executable, "-m", "sim", "--list", "--json"], cwd=ROOT, capture_output=True, text=True,
                          check=True)
    return {s["name"]: s for s in json.loads(done.stdout)}


SCENARIOS = listed()


def accept(scenario, out):
    done = seatrial("accept", "--cluster", f"sim:{scenario}", "--out", str(out))
    path = out / "report.json"
    assert path.exists(), done.stdout + done.stderr
    return done, json.loads(path.read_text())


def found(record):
    return {fault for check in record["checks"] for finding in check["findings"] if finding["ok"] is not True
            for fault in [finding["fault"]] if fault} | {c["fault"] for c in record["checks"] if c["fault"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(SCENARIOS) - {"healthy"}))
def test_a_scenario_is_recognised_for_the_right_reason(name, tmp_path):
    """Exactly the faults that the scenario states, the outcome it states, and green only where nothing is broken."""
    done, record = accept(name, tmp_path / "out")
    scenario = SCENARIOS[name]
    said = "\n".join(f"{c['id']}: {c['outcome']} {c['reason']}" for c in record["checks"])
    assert found(record) == set(scenario["faults"]), said
    outcome = scenario["outcomes"]
    assert record["verdict"] in ([outcome] if isinstance(outcome, str) else outcome), said
    assert done.returncode == record["exit_code"] == EXIT[record["verdict"]]
    assert (done.returncode == 0) == (name in GREEN)
    assert record["leftovers"] == []
    for fault in scenario["faults"]:
        entry = record["faults"][fault]
        assert entry["meaning"], fault
        assert entry["confirm"], fault
        assert entry["remedy"], fault


def test_the_healthy_cluster_is_go_in_seconds_and_marked_simulated(tmp_path):
    """go, every check passed, SIMULATED in every report; the trial itself stays far below its budget of 15 s."""
    began = time.monotonic()
    done, record = accept("healthy", tmp_path / "out")
    took = time.monotonic() - began
    assert {c["outcome"] for c in record["checks"]} <= {"passed", "skipped"}, done.stdout
    assert (record["verdict"], done.returncode, record["simulated"]) == ("go", 0, True)
    assert "SIMULATED" in done.stdout
    assert "SIMULATED" in (tmp_path / "out" / "report.html").read_text()
    assert {"report.json", "report.html", "junit.xml", "logs"} <= {p.name for p in (tmp_path / "out").iterdir()}
    assert took < 60  # a hang, not a budget: benchmarks/ measures
