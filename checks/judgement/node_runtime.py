"""Does the GPU runtime work inside a scheduled pod, and are its GPUs healthy? Judged from the probe's evidence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from reports.record import Finding

from ..strict import format_size
from .ranks import missing_stage, place, stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jobs.launcher import TrialResult
    from jobs.trial import TrialSpec

    from ..evidence import Evidence
    from ..profile import Profile

SKIP_VARIABLE = "TAO_K8S_SKIP_NODE_RUNTIME_CHECK"
"""NVIDIA's TAO on Kubernetes page: set to 1 where the provider or the operator's policy owns driver and toolkit."""
CAP_IPC_LOCK = 14  # linux/capability.h: may lock memory beyond RLIMIT_MEMLOCK
GPU_HEALTH = (
    "ecc_uncorrected_volatile", "retired_pending", "remap_pending", "remap_failure", "throttle", "fabric_state"
)  # fmt: skip


def skip_if_managed(profile: Profile, env: Mapping[str, str], evidence: Evidence) -> None:
    """Skip the check where the user or the profile says that the provider answers for the node's runtime."""
    if env.get(SKIP_VARIABLE) == "1":
        evidence.skip(f"{SKIP_VARIABLE}=1: driver and toolkit are the provider's", waived=True)
    if profile.runtime.managed:
        evidence.skip(f"profile {profile.name}: runtime.managed, driver and toolkit are the provider's", waived=True)
    if profile.gpu.kind != "nvidia":
        evidence.skip(f"the profile's GPUs are {profile.gpu.kind}; nvidia-smi does not apply")


def gpu_findings(trial: TrialResult, spec: TrialSpec, profile: Profile) -> Iterator[Finding]:
    """Judge nvidia-smi, the number of GPUs and the driver of each rank; the first that is wrong ends a rank."""
    for rank in range(spec.nodes):
        subject, data = place(trial, rank), stage(trial, rank, "runtime")
        if data is None:
            yield Finding(subject=subject, ok=None, observed=missing_stage(trial, rank, "runtime"))
            continue
        yield _gpus(subject, data, spec.gpus_per_node, profile.runtime.driver_min)


def _gpus(subject: str, data: dict[str, Any], requested: int, driver_min: str | None) -> Finding:
    smi, gpus, driver = data.get("nvidia_smi") or {}, data.get("gpus") or [], str(data.get("driver") or "")
    expected = f"nvidia-smi works, {requested} GPUs" + (f", driver {driver_min} or later" if driver_min else "")
    fault, observed = "", f"{len(gpus)} GPUs, driver {driver or 'not told'}"
    ok: bool | None = True
    if not smi.get("found") or smi.get("exit") != 0:
        why = smi.get("error") or f"exit code {smi.get('exit')}"
        fault, ok, observed = "runtime.nvidia-smi", False, f"nvidia-smi: {why}"
    elif not gpus and smi.get("error"):
        ok, observed = None, f"the output of nvidia-smi could not be read: {smi['error']}"
    elif len(gpus) != requested:
        fault, ok, observed = "runtime.gpu-count", False, f"{len(gpus)} GPUs in the pod"
    elif driver_min:
        newer = version_at_least(driver, driver_min)
        fault, ok = ("" if newer else "runtime.driver-old"), newer
    return Finding(subject=subject, ok=ok, observed=observed, expected=expected, fault=fault if ok is False else "")


def version_at_least(version: str, minimum: str) -> bool | None:
    """Compare '580.95.05' with '580'; None where the version is not readable."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    if found is None:
        return None
    return tuple(map(int, found[0].split("."))) >= tuple(map(int, minimum.split(".")))


def health_findings(trial: TrialResult, spec: TrialSpec) -> Iterator[Finding]:
    """Judge every GPU of every rank; a healthy one is one finding, a sick one is one for each thing that is wrong."""
    for rank in range(spec.nodes):
        node, data = place(trial, rank), stage(trial, rank, "runtime")
        gpus = (data or {}).get("gpus") or []
        if not gpus:
            yield Finding(subject=node, ok=None, observed="no GPU was read")
        for gpu in gpus:
            subject = f"{node} GPU {gpu.get('index')}"
            wrong = list(ailments(gpu))
            for fault, observed, expected in wrong:
                yield Finding(subject=subject, ok=False, observed=observed, expected=expected, fault=fault)
            if not wrong:
                yield _healthy(subject, gpu)


def _healthy(subject: str, gpu: dict[str, Any]) -> Finding:
    """Say what was read of a GPU without a fault: if nothing could be read, that is not a pass."""
    seen = [key for key in GPU_HEALTH if gpu.get(key) is not None]
    told = [k for k in seen if not (k == "throttle" and not gpu["throttle"] and len(seen) == 1)]
    observed = f"{gpu.get('name') or 'GPU'}: nothing wrong in {', '.join(told)}" if told else "no health value is told"
    return Finding(subject=subject, ok=bool(told) or None, observed=observed, expected="no fault")


def ailments(gpu: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (fault, observed, expected) for what nvidia-smi says is wrong with one GPU; 'N/A' is not wrong.

    Corrected errors and aggregate counters are history, not a reason to refuse a GPU (NVIDIA, GPU memory error
    management: pending or failed remaps and uncorrected errors since the last reset are).
    """
    if (ecc := gpu.get("ecc_uncorrected_volatile") or 0) > 0:
        yield "gpu.ecc", f"{ecc} uncorrected ECC errors since the driver was loaded", "0"
    if gpu.get("remap_failure"):
        yield "gpu.row-remap", "a row remap failed", "no failed remap"
    elif gpu.get("remap_pending") or gpu.get("retired_pending"):
        yield "gpu.row-remap", "a row remap or page retirement is pending", "none pending"
    state, status = str(gpu.get("fabric_state") or "N/A"), str(gpu.get("fabric_status") or "N/A")
    if state not in ("Completed", "N/A", "[N/A]") or status not in ("Success", "N/A", "[N/A]"):
        yield "gpu.fabric", f"fabric state {state}, status {status}", "Completed, Success"
    # sw_thermal_slowdown is listed too, but is how a hot GPU under load behaves; the hardware's own is a fault.
    if slowed := [t for t in gpu.get("throttle") or [] if str(t).startswith("hw_")]:
        yield "gpu.throttled", ", ".join(map(str, slowed)), "no hardware slowdown"


def limit_findings(trial: TrialResult, spec: TrialSpec, profile: Profile) -> Iterator[Finding]:
    """Judge shared memory against what the pod asked for, and lockable memory against the profile."""
    for rank in range(spec.nodes):
        subject, data = place(trial, rank), stage(trial, rank, "start")
        if data is None:
            yield Finding(subject=subject, ok=None, observed=missing_stage(trial, rank, "start"))
            continue
        yield _shm(subject, data.get("shm_bytes"), spec.shm_bytes)
        if profile.runtime.memlock_min is not None:
            yield _memlock(subject, data, profile.runtime.memlock_min)


def _shm(subject: str, found: int | None, asked: int) -> Finding:
    if found is None:
        observed = "the size of /dev/shm was not read"
        return Finding(subject=subject, ok=None, observed=observed, expected=format_size(asked))
    # A tmpfs rounds down to pages, and a memory limit below its size is legal: 1 % is no fault.
    ok = found >= asked * 0.99
    return Finding(
        subject=subject, ok=ok, observed=f"{found / 2**30:.2f} GiB of /dev/shm", expected=f"{asked / 2**30:.2f} GiB",
        fault="" if ok else "runtime.shm-small",
    )  # fmt: skip


def _memlock(subject: str, data: dict[str, Any], wanted: int) -> Finding:
    found = data.get("memlock_bytes")
    expected = f"{format_size(wanted)} lockable, or IPC_LOCK"
    if can_lock(data.get("cap_eff")):
        return Finding(subject=subject, ok=True, observed="IPC_LOCK", expected=expected)
    if found is None:
        return Finding(subject=subject, ok=None, observed="RLIMIT_MEMLOCK could not be read", expected=expected)
    ok = found == -1 or (wanted != -1 and found >= wanted)
    observed = f"{format_size(found)} lockable, no IPC_LOCK"
    return Finding(
        subject=subject, ok=ok, observed=observed, expected=expected, fault="" if ok else "runtime.memlock"
    )  # fmt: skip


def can_lock(cap_eff: object) -> bool:
    """Say whether the effective capabilities (hex, as in /proc/self/status) hold IPC_LOCK."""
    text = str(cap_eff or "")
    return bool(re.fullmatch(r"[0-9a-fA-F]+", text)) and bool(int(text, 16) >> CAP_IPC_LOCK & 1)
