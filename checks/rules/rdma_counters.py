"""RDMA counter rules: their growth during the collectives replaces the switches' counters.

Rule: earlier values are not judged. A counter that does not grow while gigabytes pass through the port is not a current
fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from jobs.run.result import TrialResult
from jobs.run.stages import COLLECTIVE
from jobs.run.stages.hardware import RdmaPort
from jobs.trial.spec import TrialSpec
from reports.record import Finding

from .findings import failed, proven
from .ranks import every_stage, place, ran, rdma_ports
from .rdma import considered

LIMITS: dict[str, tuple[int, str]] = {
    "link_downed": (0, "the link went down and came back"),
    "link_error_recovery": (0, "the link retrained"),
    "local_link_integrity_errors": (0, "physical errors exceeded the port's threshold"),
    "excessive_buffer_overrun_errors": (0, "a buffer overran, which flow control forbids"),
    "port_rcv_errors": (10, "packets arrived broken"),
    "symbol_error": (10, "symbol errors exceeded the error correction"),
    "port_xmit_discards": (100, "packets were discarded: the other end was congested or down"),
    "local_ack_timeout_err": (0, "packets were lost: no acknowledgement came in time"),
    "req_transport_retries_exceeded": (0, "a connection gave up"),
    "rnr_nak_retry_err": (0, "the receiver was never ready"),
    "rx_icrc_encapsulated": (0, "RoCE packets arrived corrupt"),
    "roce_slow_restart": (100, "RoCE connections started slowly again after losses"),
}
"""Counter -> its maximum growth during the run, and its meaning.

Zero if one increment is a failure: the link, buffer and retry counters (NVIDIA NVSentinel, NIC health monitor, fatal
counters); an unacknowledged packet costs a connection up to four seconds (NCCL_IB_TIMEOUT). Ten for symbol errors as in
the error_thresholds file of infiniband-diags (SymbolErrorCounter=10), ten for packets that arrive corrupt, and a
hundred for effects of congestion alone. Counters that grow normally under load are not listed: CNPs, adaptive
retransmission, arrival out of order under adaptive routing (docs.nvidia.com, "RDMA counters").
"""
TRAFFIC = ("port_xmit_data", "port_rcv_data", "tx_bytes", "rx_bytes", "rdma_read_bytes", "rdma_write_bytes")
MUCH = 1_000_000
"""Words or bytes; a NIC with less traffic carried no collective."""


def growth(trial: TrialResult, rank: int) -> dict[str, dict[str, int]]:
    """Sum up the growth of each port's counters in collectives and training steps: "mlx5_0:1" -> counter -> growth."""
    total: dict[str, dict[str, int]] = {}
    evidence = trial.evidence.get(rank)
    for name in evidence.stages if evidence else ():
        if name.startswith(COLLECTIVE):
            result = ran(trial, rank, name.removeprefix(COLLECTIVE))
            moved = (result and result["rdma_counters"]) or {}
        elif name == "training":
            moved = every_stage(trial, rank)["training"]["rdma_counters"]
        else:
            continue
        for key, value in moved.items():
            device, _, rest = key.partition("/")
            port, _, counter = rest.partition("/")
            if counter:
                each = total.setdefault(f"{device}:{port}", {})
                each[counter] = each.get(counter, 0) + value
    return total


def error_findings(trial: TrialResult, spec: TrialSpec) -> Iterator[Finding]:
    """Judge every port that NCCL may use and whose counters changed, on every rank."""
    for rank in range(spec.nodes):
        node, moved = place(trial, rank), growth(trial, rank)
        ports = rdma_ports(trial, rank)
        usable = considered(ports, spec.env)
        left = {f"{p['name']}:{p['port']}" for p in ports if p not in usable}
        wrong = [
            finding for key, each in moved.items() if key not in left for finding in _errors(_named(node, key), each)
        ]
        yield from wrong
        if wrong:
            continue
        busy = sum(1 for each in moved.values() if _carried(each) > MUCH)
        observed = f"{busy} ports carried data without an error" if busy else "no port carried data"
        lost = _uncounted(trial, rank, usable)
        yield proven(
            node, bool(busy) and not lost, f"{observed}; {lost}" if lost else observed, "no errors while data flows"
        )


def _named(node: str, key: str) -> str:
    device, _, port = key.partition(":")
    return f"{node} {device}" + (f":{port}" if port not in ("", "1") else "")


def _uncounted(trial: TrialResult, rank: int, ports: list[RdmaPort]) -> str:
    """Name the ports and collectives without known counters; '' if there are none."""
    silent = [str(p["name"]) for p in ports if not p["counters"] and p["usable"] is not False]
    if silent or not ports:
        return f"no counters of {', '.join(silent[:8])}" if silent else "the pod's NICs are unknown"
    evidence = trial.evidence.get(rank)
    names = [name.removeprefix(COLLECTIVE) for name in (evidence.stages if evidence else ()) if COLLECTIVE in name]
    ended = {name: result for name in names if (result := ran(trial, rank, name)) and result["exit"] == 0}
    lost = [n for n, result in ended.items() if not result["rdma_counters"] and result["scope"] != "node"]
    lost += [n for n, result in ended.items() if result["rdma_counters"] is None and n not in lost]
    return f"the NICs' counters during {', '.join(lost)} are unknown" if lost else ""


def _errors(subject: str, moved: dict[str, int]) -> Iterator[Finding]:
    wrong = [
        (name, moved[name], limit, meaning) for name, (limit, meaning) in LIMITS.items() if moved.get(name, 0) > limit
    ]
    if wrong:
        grown = "; ".join(f"{counter} grew by {value}: {meaning}" for counter, value, _, meaning in wrong)
        allowed = ", ".join(f"{counter} by at most {limit}" for counter, _, limit, _ in wrong) + " (seatrial's limits)"
        yield failed(subject, grown, allowed, "rdma.errors")


def _carried(moved: dict[str, int]) -> int:
    return max((moved.get(counter, 0) for counter in TRAFFIC), default=0)


def idle_note(trial: TrialResult, spec: TrialSpec) -> str:
    """Name the ACTIVE ports without traffic while other ports of their node had some; '' if there are none."""
    idle: list[str] = []
    for rank in range(spec.nodes):
        moved = growth(trial, rank)
        if not any(_carried(each) > MUCH for each in moved.values()):
            continue
        ports = rdma_ports(trial, rank)
        idle += [
            f"{place(trial, rank)} {p['name']}"
            for p in considered(ports, spec.env)
            if p["counters"]
            and p["state"] == "ACTIVE"
            and p["usable"] is not False
            and _carried(moved.get(f"{p['name']}:{p['port']}", {})) == 0
        ]
    return f"active ports without traffic: {', '.join(idle[:8])}" if idle else ""
