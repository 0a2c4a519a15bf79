"""GPU health rules: errors, throttling and clocks of each GPU; the driver's messages by NVIDIA's tables.

Corrected errors, aggregate counters and normal states under load are history or noise, and no reason to reject a GPU.
'N/A' is never a fault: the card does not have the feature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from jobs.run.result import TrialResult
from jobs.run.stages.hardware import GpuFacts, RuntimeStage
from jobs.run.stages.programs import TrainingRun
from jobs.trial.spec import TrialSpec
from reports.record import Finding
from seatrial.faults.xid import Xid, action_of, xids

from .findings import failed, proven, unknown
from .ranks import every_stage, place, silent, stages

Ailments = Callable[[GpuFacts], Iterable[tuple[str, str, str]]]
When = Literal["runtime", "training"]

FABRIC = ("fabric_state", "fabric_status", "fabric_health", "name")
MEMORY = ("ecc_uncorrected_volatile", "retired_pending", "remap_pending", "remap_failure", "recovery_action")
ABSENT = ("None", "N/A", "[N/A]", "")
SLOWED = {
    "hw_slowdown": "the hardware slows the clocks",
    "hw_thermal_slowdown": "too hot for the hardware",
    "hw_power_brake_slowdown": "the machine's power brake is active",
}
"""Clock event reasons with which the hardware protects itself (docs.nvidia.com, nvidia-smi, "Clocks Event Reasons").
sw_thermal_slowdown is normal for a warm GPU under load: it is noted."""


def memory_ailments(gpu: GpuFacts) -> Iterator[tuple[str, str, str]]:
    """Yield (fault, observed, expected) for the memory of one GPU, and for the recovery that the driver requests.

    Pending or failed remaps and uncorrected errors since the last reset count (NVIDIA, GPU memory error management).
    """
    ecc = gpu["ecc_uncorrected_volatile"] or 0
    action = str(gpu["recovery_action"] or "None")
    asks = "" if action in ABSENT else f"; the driver recommends: {action}"
    if ecc > 0:
        yield "gpu.ecc", f"{ecc} uncorrected ECC errors since the driver was loaded{asks}", "0"
    if gpu["remap_failure"]:
        yield "gpu.remap-failed", "a row remap failed: no spare row is left", "no failed remap"
    elif gpu["remap_pending"] or gpu["retired_pending"]:
        yield "gpu.row-remap", f"a row remap or page retirement is pending{asks}", "none pending"
    if asks and not ecc and not gpu["remap_pending"] and not gpu["remap_failure"]:
        yield "gpu.recovery-needed", f"the driver recommends: {action}", "no recovery action"


def clock_ailments(gpu: GpuFacts) -> Iterator[tuple[str, str, str]]:
    """Yield the throttle reasons of one GPU."""
    slowed = [str(reason) for reason in gpu["throttle"] or [] if str(reason) in SLOWED]
    if slowed:
        why = "; ".join(SLOWED[reason] for reason in slowed)
        yield "gpu.throttled", f"{', '.join(slowed)} ({why})", "no hardware slowdown"


def fabric_ailments(gpu: GpuFacts) -> Iterator[tuple[str, str, str]]:
    """Yield a fault if one GPU is not in the NVLink fabric, with the reason."""
    state, status = str(gpu["fabric_state"] or "N/A"), str(gpu["fabric_status"] or "N/A")
    summary = str((gpu["fabric_health"] or {}).get("summary") or "Healthy")
    state_text = f"fabric state {state}, status {status}"
    if state not in ("Completed", *ABSENT) or status not in ("Success", *ABSENT):
        yield "gpu.fabric", state_text, "Completed, Success"
    elif summary not in ("Healthy", *ABSENT):
        parts = ", ".join(f"{name} {value}" for name, value in sorted((gpu["fabric_health"] or {}).items()))
        yield "gpu.fabric", f"{state_text}, but {parts}", "Completed, Success, Healthy"


def persistence_ailments(gpu: GpuFacts) -> Iterator[tuple[str, str, str]]:
    """Yield a fault if the driver does not stay loaded."""
    if gpu["persistence"] is False:
        yield "runtime.persistence-off", "persistence mode is off", "on (runtime.persistence)"


def link_ailments(expected_links: int) -> Ailments:
    """Return the finding about the active NVLinks of one GPU, compared with ``expected_links``."""

    def ailments(gpu: GpuFacts) -> Iterator[tuple[str, str, str]]:
        active = gpu["nvlinks_active"]
        if active is not None and active < expected_links:
            yield "gpu.nvlink-down", f"{active} active NVLinks", f"{expected_links} (runtime.nvlinks)"

    return ailments


def each_gpu(
    trial: TrialResult,
    spec: TrialSpec,
    ailments: Ailments,
    required_values: Iterable[str],
    expected: str,
    when: When = "runtime",
) -> Iterator[Finding]:
    """Judge every GPU of every rank: one finding for a healthy GPU, else one for each fault.

    ``required_values``: the values that show its health. A GPU that reports none of them, or lacks values that most
    GPUs report, is undetermined. ``when``: before all work, or during and after training steps.
    """
    keys = tuple(required_values)
    usual = [key for key in keys if _usual(trial, key, when) and key != "recovery_action"]  # null: no recovery needed
    for rank in range(spec.nodes):
        node = place(trial, rank)
        data = stages(trial, rank).get("runtime") if when == "runtime" else stages(trial, rank).get("training")
        if data is None:
            yield silent(trial, rank, when)
            continue
        gpus = data["gpus"] or []
        if not gpus:
            yield unknown(node, "no GPU was read")
        indices = {gpu["index"] for gpu in gpus}
        for gone in [gpu for gpu in _data(trial, rank, "runtime")["gpus"] or [] if gpu["index"] not in indices]:
            observed = "it was read before the steps, and is not read after them"
            yield unknown(f"{node} GPU {gone['index']}", observed, expected)
        for gpu in gpus:
            subject, wrong = f"{node} GPU {gpu['index']}", list(ailments(gpu))
            for fault, observed, healthy in wrong:
                yield failed(subject, observed, healthy, fault)
            if not wrong:
                yield _healthy(subject, gpu, (keys, usual), expected)


def _healthy(subject: str, gpu: GpuFacts, keys: tuple[Iterable[str], Iterable[str]], expected: str) -> Finding:
    values = [(key, value) for key in keys[0] if (value := gpu.get(key)) is not None]
    readings = [key if isinstance(value, bool | list | dict) else f"{key} {value}" for key, value in values]
    observed = f"{gpu['name'] or 'GPU'}: no fault in {', '.join(readings)}" if readings else "nothing reported"
    lost = [key for key in keys[1] if gpu.get(key) is None]
    observed += f"; not reported, unlike on most GPUs: {', '.join(lost)}" if readings and lost else ""
    return proven(subject, not (lost or not readings), observed, expected)


def _all(trial: TrialResult, when: When = "runtime") -> list[GpuFacts]:
    return [gpu for rank in trial.evidence for gpu in _data(trial, rank, when)["gpus"] or []]


def _data(trial: TrialResult, rank: int, when: When) -> RuntimeStage | TrainingRun:
    told = every_stage(trial, rank)
    return told["runtime"] if when == "runtime" else told["training"]


def tell(trial: TrialResult, keys: Iterable[str]) -> bool:
    """Return whether any GPU of any rank reports one of these values."""
    return any(gpu.get(key) is not None for gpu in _all(trial) for key in keys)


def _usual(trial: TrialResult, key: str, when: When = "runtime") -> bool:
    """Return whether at least half of all GPUs report a value: the others then lack it."""
    given = [gpu.get(key) is not None for gpu in _all(trial, when)]
    return any(given) and 2 * sum(given) >= len(given)


def left_out(trial: TrialResult, rank: int, keys: Iterable[str]) -> str:
    """Name values that a rank, or its GPU, lacks although other ranks report them; '' if there are none.

    ``keys``: fields of a GPU or of the stage. Values that no GPU of the trial reports do not exist for this kind of
    GPU.
    """
    data = every_stage(trial, rank)["runtime"]
    lost = []
    for key in keys:
        silent = [str(gpu["index"]) for gpu in data["gpus"] or [] if gpu.get(key) is None]
        if key in GpuFacts.__annotations__:
            lost += [f"{key} of GPU {', '.join(silent)}"] if silent and _usual(trial, key) else []
        elif not data.get(key) and any(every_stage(trial, other)["runtime"].get(key) for other in trial.evidence):
            lost.append(key)
    return f"not reported, unlike on other nodes: {'; '.join(lost)}" if lost else ""


def xid_findings(trial: TrialResult, spec: TrialSpec, when: When = "runtime") -> Iterator[Finding]:
    """Judge the driver's Xids for the ranks that may read the kernel's log; empty if none may.

    A reset or a reboot that NVIDIA's catalogue requests is a fault. An Xid with its own flow in the catalogue, or not
    in the table, is undetermined. One that a program can cause is attributed to another program if none of our steps
    has run. Each has the table's action.
    """
    for rank in range(spec.nodes):
        for entry in _data(trial, rank, when)["xid"]:
            number = entry["xid"]
            text, fault = _of_xid(number, when)
            if not text:
                continue
            subject, expected = f"{place(trial, rank)} GPU {entry['bus_id']}", "no such report in the kernel's log"
            observed = f"Xid {'?' if number is None else number}, {entry['count']} times: {text}"
            action = action_of(number)
            if fault:
                yield failed(subject, observed, expected, fault, action=action)
            else:
                yield unknown(subject, observed, action=action)


def _of_xid(number: object, when: When) -> tuple[str, str]:
    """Return an Xid's description and fault, '' if undetermined; None for an irrelevant Xid."""
    known = _known(number)
    if known is None:
        return "its number is unknown" if number is None else "not in the table of NVIDIA's catalogue; look it up", ""
    if known.check:
        asks = "" if known.action == "workflow" else f" (NVIDIA's catalogue prescribes: {known.action})"
        return known.meaning + asks, known.check
    if known.program:
        return (known.meaning if when == "training" else ""), ""
    flow = "; follow the flow of NVIDIA's catalogue to find whether the GPU is at fault"
    return (known.meaning + flow if known.action == "workflow" else ""), ""


def _known(number: object) -> Xid | None:
    """Return the catalogue's entry of an Xid; the number is untrusted input from a pod."""
    return xids().get(number) if isinstance(number, int) else None


def notes(trial: TrialResult, spec: TrialSpec) -> Iterator[str]:
    """Describe facts that are not judged: persistence mode off, warm GPUs, further Xids, no ECC."""
    if _all(trial) and not tell(trial, ["ecc_uncorrected_volatile"]):
        yield "no GPU reports a count of memory errors: ECC is off, or not supported by these GPUs"
    for rank in range(spec.nodes):
        node, data = place(trial, rank), every_stage(trial, rank)["runtime"]
        gpus = data["gpus"] or []
        off = [str(gpu["index"]) for gpu in gpus if gpu["persistence"] is False]
        if off:
            yield (
                f"{node}: persistence mode is off on GPU {', '.join(off)}: the driver unloads between jobs, and the "
                "first process of each waits for it"
            )
        warm = [str(gpu["index"]) for gpu in gpus if "sw_thermal_slowdown" in (gpu["throttle"] or [])]
        if warm:
            yield f"{node}: GPU {', '.join(warm)} near the limit of its temperature (sw_thermal_slowdown)"
        other_xids = {xid for entry in data["xid"] if (xid := _known(entry["xid"])) and not xid.check}
        if other_xids:
            said = (f"{xid.code} ({xid.meaning}: {xid.action})" for xid in sorted(other_xids))
            yield f"{node}: other Xids in the kernel's log: {'; '.join(said)}"
