"""metrics.prom: a run's results for monitoring."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from reports.metrics import MOST_SERIES, exposition
from reports.schema import Record, completed


def record(**changes: Any) -> Record:
    """Return an accepted run with one collective."""
    side = {"busbw_gbps": 380.0}
    job = {
        "hosts": [{"name": "h0", "rails": {"0": ["mlx5_0:1", "mlx5_1:1"]}}, {"name": "h1", "rails": {}}],
        "tables": [
            {
                "collective": "all_reduce",
                "rows": [{"size_bytes": 8 << 30, "in_place": side}, {"size_bytes": 1 << 20, "in_place": side}],
            }
        ],
    }
    checks = [{"id": "nccl.gdr", "outcome": "passed", "seconds": 0.5, "findings": []}]
    made = {
        "verdict": "go",
        "scope": "full",
        "started": "2026-01-02T00:00:00+00:00",
        "seconds": 10.0,
        "checks": checks,
        "profile": "h100-ib",
        "simulated": False,
        "cluster": {"namespace": "ns"},
        "collectives": {"ring": job},
        "inside": {"node-1": {**job, "hosts": job["hosts"][1:]}, "node-2": None},
        "trial": {"hosts": {"h0": "node-0", "h1": "node-1"}, "dns_seconds": {"node-0": 0.2}},
        **changes,
    }
    return completed(made)


def read(text: str) -> dict[tuple[str, ...], float]:
    """Return samples by name and sorted label values."""
    return {
        (s.name, *(s.labels[k] for k in sorted(s.labels))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_units_are_base_units_and_names_are_stable() -> None:
    """Bytes, seconds, labels by node and row; alerts and dashboards use exactly these."""
    samples = read(exposition(record()))
    assert samples["seatrial_run_verdict", "go"] == 1
    assert samples["seatrial_run_verdict", "no-go"] == 0
    assert samples["seatrial_check_outcome", "nccl.gdr", "passed"] == 1
    row = ("seatrial_bus_bandwidth_bytes_per_second", "all_reduce", "node-0 - node-1", "ring", str(8 << 30))
    assert samples[row] == 380e9
    assert samples["seatrial_bus_bandwidth_bytes_per_second", "all_reduce", "node-1", "node", str(8 << 30)] == 380e9
    assert samples["seatrial_rails_used", "node-0"] == 2
    assert ("seatrial_rails_used", "node-1") not in samples  # a missing observation is not zero
    assert samples["seatrial_dns_first_answer_seconds", "node-0"] == 0.2
    assert samples["seatrial_last_success_timestamp_seconds",] == 1767312010.0


def test_only_a_full_accepted_run_is_a_success() -> None:
    """A partial or failed run keeps the time of the last success, if known, and invents none."""
    for changes in ({"verdict": "no-go"}, {"scope": "partial"}):
        assert ("seatrial_last_success_timestamp_seconds",) not in read(exposition(record(**changes)))
        samples = read(exposition(record(**changes), last_success=5.0))
        assert samples["seatrial_last_success_timestamp_seconds",] == 5.0


def test_the_number_of_series_is_bounded() -> None:
    """Thousands of nodes do not flood monitoring, and omitted series are counted."""
    samples = read(exposition(record(trial={"dns_seconds": {f"n{i}": 1.0 for i in range(5 * MOST_SERIES)}})))
    assert sum(name == "seatrial_dns_first_answer_seconds" for name, *_ in samples) == MOST_SERIES
    assert samples["seatrial_series_left_out",] == 4 * MOST_SERIES


def test_the_network_is_kept_before_what_is_inside_the_nodes() -> None:
    """In a run over thousands of nodes the limit drops single-node rows, and never those over the network."""
    job = record()["collectives"]["ring"]
    node_jobs = {f"n{i}": {**job, "hosts": [{"name": f"n{i}"}]} for i in range(2 * MOST_SERIES)}
    samples = read(exposition(record(inside=node_jobs)))
    rows = [labels for labels in samples if labels[0] == "seatrial_bus_bandwidth_bytes_per_second"]
    assert len(rows) == MOST_SERIES
    assert ("seatrial_bus_bandwidth_bytes_per_second", "all_reduce", "node-0 - node-1", "ring", str(8 << 30)) in rows


def test_a_run_that_saw_nothing_still_reports_itself() -> None:
    """A record without trial, checks or start time is rendered; label values are escaped."""
    text = exposition(completed({"verdict": "inconclusive", "scope": "full", "profile": 'a"\n\\'}))
    assert read(text)["seatrial_run_verdict", "inconclusive"] == 1


def test_training_steps_are_in_base_units_and_absent_elsewhere() -> None:
    """FLOP/s, seconds and fractions; a run without training has none of these series."""
    steps = {
        "tflops": 400.5,
        "step_ms": 52.0,
        "exposed_share": 0.04,
        "ranks": [{"node": "a", "gpu": 3, "compute_ms": 50.0}],
    }
    text = exposition(record(training=steps))
    assert "seatrial_training_flops 4.005e+014" in text or "seatrial_training_flops 4.005e+14" in text
    assert "seatrial_training_step_seconds 0.052" in text
    assert 'seatrial_training_compute_seconds{gpu="3",node="a"} 0.05' in text
    assert "seatrial_training" not in exposition(record())
