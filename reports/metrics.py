"""Prometheus metrics of a record: stable names, base units, bounded labels.

Rendered into ``metrics.prom`` (for node_exporter's textfile collector), pushed, or served. Names follow
prometheus.io/docs/practices/naming: a prefix, base units (seconds, bytes), no unit that changes.

A Pushgateway holds them in one group for each namespace. A scheduled run has the history and replaces the group. A
manual run replaces only its own metrics: the time of the last success and the bad nodes remain those of the scheduled
runs until the next one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from itertools import islice
from typing import Any
from urllib.error import HTTPError, URLError

from prometheus_client import CollectorRegistry, Gauge, generate_latest, push_to_gateway, pushadd_to_gateway

from seatrial.faults.actions import Action, weight

from .record import coverage_of, ended, measured, samples_of, succeeded
from .schema import Record, RecordedJob, Verdict, elements

SWEEP_STATES = ("proven", "flaky", "suspect", "not tested", "at fault")
MOST_SERIES = 1000
"""Maximum number of series of one metric, so as not to overload a monitoring system; omitted series are counted."""
LEAST_SIZE = 1 << 30
"""Bytes; smaller rows show latency, and are only in the report."""


def exposition(
    record: Record,
    *,
    last_success: float | None = None,
    bad: Mapping[str, bool] | None = None,
    history: Mapping[str, tuple[float, int, int]] | None = None,
    actions: Mapping[str, str] | None = None,
) -> str:
    """Return the metrics of a run in Prometheus' text format.

    ``last_success``: when the last accepted run ended (seconds since 1970), if an earlier one is known. ``bad``: by
    node, the result of scheduled runs over time: bad, or known to be good. ``history``: by node, the time of the last
    trial on it (seconds since 1970), its trials and failures of eight weeks. ``actions``: by node, the action for one
    that failed in an earlier run.
    """
    known = registry(record, last_success=last_success, bad=bad, history=history, actions=actions)
    return generate_latest(known).decode()


def registry(
    record: Record,
    *,
    last_success: float | None = None,
    bad: Mapping[str, bool] | None = None,
    history: Mapping[str, tuple[float, int, int]] | None = None,
    actions: Mapping[str, str] | None = None,
) -> CollectorRegistry:
    """Return the metrics of a run as a registry, to push or serve."""
    made = _Metrics()
    if bad is not None:
        judged = made.gauge(
            "seatrial_node_bad", "1 for a node that failed repeatedly, 0 for one that passed.", ("node",)
        )
        made.fill(judged, {(name,): float(bad[name]) for name in sorted(bad, key=lambda name: not bad[name])})
    if history is not None:
        _of_history(made, history)
    _of_run(made, record, last_success)
    _of_nodes(made, record)
    _of_actions(made, record, actions or {})
    _of_checks(made, record)
    _of_trial(made, record)
    _of_sweep(made, record)
    _of_training(made, record)
    made.gauge("seatrial_series_left_out", "Series that the bound on cardinality left out.").set(made.left_out)
    return made.registry


class _Metrics:
    """A registry that counts series beyond its bound."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.left_out = 0

    def gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        """Register a gauge."""
        return Gauge(name, text, labels, registry=self.registry)

    def fill(self, gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
        """Set a value for each set of labels, up to the bound."""
        for labels, value in islice(values.items(), MOST_SERIES):
            gauge.labels(*labels).set(value)
        self.left_out += max(0, len(values) - MOST_SERIES)


def _of_run(made: _Metrics, record: Record, last_success: float | None) -> None:
    about = made.gauge(
        "seatrial_run_info", "Subject of the run, as labels; always 1.", ("profile", "scope", "namespace", "simulated")
    )
    namespace = record["cluster"].get("namespace", "")
    about.labels(record["profile"] or "", record["scope"], namespace, str(record["simulated"]).lower()).set(1)
    verdict = made.gauge(
        "seatrial_run_verdict", "1 for the verdict of the run, 0 for the other verdicts.", ("verdict",)
    )
    made.fill(verdict, {(name,): float(record["verdict"] == name) for name in Verdict})
    made.gauge("seatrial_run_duration_seconds", "Duration of the run.").set(record["seconds"])
    made.gauge("seatrial_run_timestamp_seconds", "When the run ended, since 1970.").set(ended(record))
    success = succeeded(record) or last_success
    if success is not None:
        made.gauge(
            "seatrial_last_success_timestamp_seconds", "When the last full run that was accepted ended, since 1970."
        ).set(success)


def _of_history(made: _Metrics, history: Mapping[str, tuple[float, int, int]]) -> None:
    """Add the nodes not tested for longest first: the bound on series must not drop them."""
    tested = made.gauge(
        "seatrial_node_tested_timestamp_seconds",
        "When a trial last ran on a node, or when the node was first seen, since 1970.",
        ("node",),
    )
    made.fill(tested, {(name,): since for name, (since, _, _) in history.items()})
    worst = sorted(history.items(), key=lambda item: -item[1][2])
    trials = made.gauge("seatrial_node_trials", "Trials of a node in the last eight weeks.", ("node",))
    made.fill(trials, {(name,): float(count) for name, (_, count, _) in worst})
    failed = made.gauge(
        "seatrial_node_failed_trials", "Trials of the last eight weeks that failed the node.", ("node",)
    )
    made.fill(failed, {(name,): float(count) for name, (_, _, count) in worst})


def _of_nodes(made: _Metrics, record: Record) -> None:
    """Add the tried share of the pool; NaN for an invisible pool, which no alert treats as 0."""
    coverage = coverage_of(record)
    made.gauge("seatrial_nodes_tried", "Nodes on which the trial of this run ran.").set(len(coverage.tried))
    made.gauge("seatrial_pool_nodes", "Nodes of the pool that this run is about; NaN if they are not visible.").set(
        math.nan if coverage.pool is None else len(coverage.pool)
    )
    each = made.gauge(
        "seatrial_node_tried",
        "1 for a node that the trial of this run ran on, 0 for another one of the pool.",
        ("node",),
    )
    tried = frozenset(coverage.tried)
    made.fill(each, {(node,): float(node in tried) for node in (*coverage.untried, *coverage.tried)})


def _of_actions(made: _Metrics, record: Record, earlier: Mapping[str, str]) -> None:
    """Add one series for each node with an action; the label has one of six words."""
    action = made.gauge(
        "seatrial_node_action",
        "1 for the heaviest action that the findings of a node require: the words of docs/record.md.",
        ("node", "action"),
    )
    found = {node: each["action"] for node, each in record["actions"].items()}
    asked = {**found, **{node: each for node, each in earlier.items() if node not in found}}
    heaviest = sorted(asked.items(), key=lambda item: -weight(item[1]))
    samples: dict[tuple[str, ...], float] = {(node, word): 1.0 for node, word in heaviest if weight(word) >= 0}
    made.fill(action, samples or {("none", str(Action.NONE)): 0.0})  # a push replaces only metrics with a sample


def _of_checks(made: _Metrics, record: Record) -> None:
    checks = record["checks"]
    outcome = made.gauge("seatrial_check_outcome", "1 for the outcome of the check.", ("check", "outcome"))
    made.fill(outcome, {(c["id"], str(c["outcome"])): 1.0 for c in checks})
    seconds = made.gauge("seatrial_check_duration_seconds", "Duration of the check.", ("check",))
    made.fill(seconds, {(c["id"],): c["seconds"] for c in checks})
    samples: dict[tuple[str, ...], float] = {}
    for check in checks:
        for finding in check["findings"]:
            if finding["fault"] and finding["ok"] is not True:
                samples[finding["fault"],] = samples.get((finding["fault"],), 0.0) + 1
    faults = made.gauge("seatrial_fault_subjects", "Number of subjects with the fault.", ("fault",))
    made.fill(
        faults, samples or {("none",): 0.0}
    )  # a push replaces only metrics with a sample: the last run's must not remain


def _of_trial(made: _Metrics, record: Record) -> None:
    nodes = record["trial"].get("hosts", {})
    samples: dict[tuple[str, ...], list[float]] = {}
    rails: dict[tuple[str, ...], set[str]] = {}
    for run, job in measured(record):
        for labels, value in _rows(run, job, nodes):
            samples.setdefault(labels, []).append(value)
        for host in job["hosts"]:
            node = nodes.get(str(host["name"]), str(host["name"]))
            for rail in host["rails"].values():
                rails.setdefault((node,), set()).update(rail)
    bandwidth = made.gauge(
        "seatrial_bus_bandwidth_bytes_per_second",
        "Bus bandwidth as nccl-tests defines it, median of the samples of a row.",
        ("nodes", "collective", "run", "size_bytes"),
    )
    made.fill(bandwidth, {labels: statistics.median(values) * 1e9 for labels, values in samples.items()})
    used = made.gauge("seatrial_rails_used", "Network devices that carried data, by node.", ("node",))
    made.fill(used, {labels: float(len(devices)) for labels, devices in rails.items() if devices})
    dns = made.gauge("seatrial_dns_first_answer_seconds", "Until a rank resolved all of its peers.", ("node",))
    made.fill(dns, {(node,): s for node, s in record["trial"].get("dns_seconds", {}).items()})


def _of_training(made: _Metrics, record: Record) -> None:
    """Add the metrics of training steps; none for a run without them."""
    steps = record["training"]
    if not steps or "tflops" not in steps:
        return
    made.gauge(
        "seatrial_training_flops", "Floating-point operations a second of each GPU, in steps with all ranks."
    ).set(steps["tflops"] * 1e12)
    made.gauge("seatrial_training_step_seconds", "Median step with all ranks.").set(steps["step_ms"] / 1000)
    made.gauge("seatrial_training_exposed_ratio", "Share of a step that is communication without compute.").set(
        steps["exposed_share"]
    )
    own = made.gauge(
        "seatrial_training_compute_seconds", "Median step of a GPU without any other rank.", ("node", "gpu")
    )
    ranks = [rank for rank in steps.get("ranks", []) if rank.get("compute_ms") is not None]
    ranks.sort(key=lambda rank: -(rank.get("compute_ms") or 0.0))
    made.fill(own, {(r.get("node", ""), str(r.get("gpu"))): (r.get("compute_ms") or 0.0) / 1000 for r in ranks})


def _of_sweep(made: _Metrics, record: Record) -> None:
    """Add the metrics of a sweep; none for other runs, so that an alert on their absence is possible."""
    sweep = record["sweep"]
    if not sweep:
        return
    nodes = [node["state"] for node in elements(sweep)["nodes"]]
    states = made.gauge("seatrial_sweep_nodes", "Nodes of the last sweep, by result.", ("state",))
    made.fill(states, {(state,): float(nodes.count(state)) for state in SWEEP_STATES})
    rounds = sweep.get("rounds", [])
    made.gauge("seatrial_sweep_rounds", "Rounds of the last sweep.").set(len(rounds))
    made.gauge("seatrial_sweep_tests", "Tests of the last sweep.").set(sum(each.get("tests", 0) for each in rounds))
    bad = made.gauge(
        "seatrial_sweep_fault",
        "1 for an element that the last sweep found at fault: kind is node, rail, uplink or pair.",
        ("kind", "subject", "rail"),
    )
    samples: dict[tuple[str, ...], float] = {}
    for finding in sweep.get("findings", []):
        subject = " - ".join(finding.get("names", []))
        for rail in [str(number) for number in finding.get("rails", [])] or [""]:
            samples[str(finding.get("kind")), subject, rail] = 1.0
    made.fill(bad, samples or {("none", "", ""): 0.0})


def _rows(run: str, job: RecordedJob, nodes: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], float]]:
    names = sorted({nodes.get(str(h["name"]), str(h["name"])) for h in job["hosts"]})
    pair = " - ".join(names) if len(names) <= 2 else f"{len(names)} nodes"
    for table in job["tables"]:
        for row in table["rows"]:
            for value in samples_of(row):
                if row["size_bytes"] >= LEAST_SIZE:
                    yield (pair, table["collective"] or "all_reduce", run, str(row["size_bytes"])), value


JOB = "seatrial"


class PushError(Exception):
    """The metrics could not be delivered; one line, without the address, which may hold a password."""


def push(url: str, record: Record, **known: Any) -> None:
    """Push a record's metrics; ``known``: the history of scheduled runs, see metrics.exposition.

    Raises PushError.
    """
    namespace = record["cluster"].get("namespace") or "default"
    send = push_to_gateway if known else pushadd_to_gateway
    try:
        send(url, job=JOB, grouping_key={"namespace": namespace}, registry=registry(record, **known))
    except HTTPError as error:
        raise PushError(f"the Pushgateway answered {error.code} {error.reason}") from error
    except URLError as error:
        raise PushError(f"the Pushgateway was not reached: {error.reason}") from error
    except (OSError, ValueError, HTTPException) as error:
        raise PushError(f"this is not an address, or no HTTP server answers ({type(error).__name__})") from error
