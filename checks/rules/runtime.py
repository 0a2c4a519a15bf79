"""Runtime rules: inside a scheduled pod, exactly the allocated GPUs, and the memory that NCCL needs.

Judged from the probe's evidence; gpu_health judges single GPUs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from jobs.run.result import TrialResult
from jobs.run.stages.hardware import RuntimeStage, StartStage
from jobs.trial.spec import TrialSpec
from reports.plain import format_size
from reports.record import Finding
from seatrial.logs.bandwidth.hardware import of_other_kind

from ..framework.evidence import Evidence
from ..profiles.loader import Profile
from .findings import compared, first_match, passed, unknown, unlike
from .gpu_health import left_out, tell
from .ranks import Rank, each_rank, every_stage, place

SKIP_VARIABLE = "TAO_K8S_SKIP_NODE_RUNTIME_CHECK"
"""Defined on NVIDIA's TAO on Kubernetes page: 1 if the provider or the operator's policy owns driver and toolkit."""
COMPARED = ("driver", "cuda", "name", "memory_mib", "vbios")
CAP_IPC_LOCK = 14  # linux/capability.h: a process may lock memory beyond RLIMIT_MEMLOCK
OFF_THE_BUS = re.compile(r"GPU is lost|Unable to determine the device handle|fallen off the bus", re.IGNORECASE)
"""nvidia-smi's output for a GPU that no longer responds (docs.nvidia.com/deploy/xid-errors, Xid 79)."""


def managed(profile: Profile, env: Mapping[str, str]) -> str:
    """Name the setting of user or profile that makes the provider responsible for driver and toolkit; '' if none."""
    said = f"profile {profile.name}: runtime.managed" if profile.runtime.managed else ""
    said = f"{SKIP_VARIABLE}=1" if env.get(SKIP_VARIABLE) == "1" else said
    return f"{said}, driver and toolkit are the provider's" if said else ""


def skip_if_managed(profile: Profile, env: Mapping[str, str], evidence: Evidence) -> None:
    """Skip a check of driver or toolkit if the provider is responsible for them."""
    if why := managed(profile, env):
        evidence.skip(why, waived=True)


def skip_if_unseen(why: str, trial: TrialResult, evidence: Evidence) -> None:
    """Skip a check of the GPUs if the provider's driver (``why``) put no tool into any pod."""
    tools = [every_stage(trial, rank)["runtime"]["nvidia_smi"] for rank in trial.evidence]
    if why and tools and all(tool["found"] is False for tool in tools):
        evidence.skip(f"{why}, and no pod has {tools[0]['name'] or 'nvidia-smi'}", waived=True)


def without_driver(profile: Profile) -> Profile:
    """Return the profile without its requirements on the driver."""
    return replace(profile, runtime=replace(profile.runtime, driver_min=None))


@each_rank(RuntimeStage)
def gpu_findings(rank: Rank[RuntimeStage], profile: Profile) -> Iterator[Finding]:
    """Judge the tool, the GPUs and the driver of each rank; the first fault is its only one."""
    finding = _gpus(rank.node, rank.data, rank.spec.gpus_per_node, profile.runtime.driver_min)
    names = {str(gpu["name"]) for gpu in rank.data["gpus"] or [] if gpu["name"]}
    other = of_other_kind(names, profile.gpu.product) if finding.ok else ()
    if other:  # labels may be missing or not visible to a tenant: the driver knows the GPU model
        kind = f"{', '.join(profile.gpu.product)} (profile {profile.name}, gpu.product)"
        finding = unknown(rank.node, f"the GPUs are {', '.join(other)}", kind, fault="nodes.other-kind")
    elif finding.ok and rank.data["kind"] != "amd" and (lost := _unsaid(rank.trial, rank.number, profile)):
        finding = replace(finding, ok=None, observed=f"{finding.observed}; {lost}")
    yield finding


def _unsaid(trial: TrialResult, rank: int, profile: Profile) -> str:
    """Name the judged values that nvidia-smi always reports and this rank lacks."""
    if profile.gpu.product and not tell(trial, ["name"]):
        return "the GPUs' model is unknown"
    return left_out(trial, rank, ("name", "mig") if profile.gpu.product else ("mig",))


def gpu_notes(trial: TrialResult, spec: TrialSpec) -> Iterator[str]:
    """Name the pods with the same GPUs: nodes that share one machine (kind, nested VMs) are not two nodes."""
    first: dict[str, str] = {}
    for rank in range(spec.nodes):
        uuids, where = _uuids(every_stage(trial, rank)["runtime"]), f"rank {rank} on {place(trial, rank)}"
        if shared := [uuid for uuid in uuids if uuid in first]:
            yield f"{len(shared)} GPUs of {where} have the UUIDs of {first[shared[0]]}'s: are they the same ones?"
        first.update((uuid, where) for uuid in uuids if uuid not in first)


def _uuids(data: RuntimeStage) -> list[str]:
    """Return the identities of a pod's GPUs; GPUs without one are left out."""
    return [str(gpu["uuid"]) for gpu in data["gpus"] or [] if gpu["uuid"]]


def _gpus(subject: str, data: RuntimeStage, requested: int, driver_min: str | None) -> Finding:
    smi, gpus, driver = data["nvidia_smi"], data["gpus"] or [], str(data["driver"] or "")
    tool = smi["name"] or "nvidia-smi"
    why = smi["error"] or f"exit code {smi['exit']}"
    lost = bool(OFF_THE_BUS.search(str(why)))
    listed = bool(gpus and smi["listed"]) and not lost
    untold = smi["found"] is None or (smi["exit"] is None and smi["found"] and not smi["error"])
    sliced = ", ".join(str(g["index"]) for g in gpus if g["mig"] == "Enabled" or g["mig_devices"])
    foreign = max(len(gpus) - requested, 0) or _foreign(data)
    in_pod, uuids = f"{len(gpus)} GPUs in the pod", _uuids(data)
    twice = "".join([uuid for uuid, count in Counter(uuids).items() if count > 1][:1])
    only = f"only {len(gpus) - len(uuids) + len(set(uuids))} are different ({twice} appears twice)"
    newer = version_at_least(driver, driver_min) if driver_min else True
    broken = not smi["found"] or (smi["exit"] != 0 and not listed)
    finding = first_match(
        subject,
        f"{tool} works, {requested} GPUs" + (f", driver {driver_min} or later" if driver_min else ""),
        (untold, None, f"the result of {tool} is unknown"),
        (data["gpus"] is None, None, "the GPUs of the pod are unknown"),
        (broken, False, f"{tool}: {why}", "gpu.off-bus" if lost else "runtime.nvidia-smi"),
        (not gpus and smi["error"], None, f"the output of {tool} could not be read: {why}"),
        (sliced, False, f"MIG is on for GPU {sliced}: parts, not whole GPUs", "gpu.mig-enabled"),
        (foreign, False, f"{in_pod}, {foreign} of them not its own", "runtime.extra-gpus"),
        (len(gpus) != requested, False, in_pod, "runtime.gpu-count"),
        (twice, False, f"{len(gpus)} GPUs are listed, and {only}", "runtime.gpu-count"),
        (
            True,
            newer,
            f"{len(gpus)} GPUs, driver {driver or 'unknown'}",
            "runtime.driver-old" if newer is False else "",
        ),
    )
    if listed:  # the objects are known, but an unreadable full list is a bad sign
        observed = f"{finding.observed} (from the bare list: {tool} -q -x: {why})"
        return replace(finding, ok=None if finding.ok and smi["exit"] != 0 else finding.ok, observed=observed)
    return finding


def _foreign(data: RuntimeStage) -> int:
    """Count the GPUs that the pod sees but was not allocated, if the device plugin's list is known."""
    given = data["assigned"]
    return len([g for g in data["gpus"] or [] if given and g["uuid"] and g["uuid"] not in given])


def version_at_least(version: str, minimum: str) -> bool | None:
    """Return whether a version such as '580.95.05' is at least '580'; None if it cannot be parsed."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    if match is None:
        return None
    return tuple(map(int, match[1].split("."))) >= tuple(map(int, minimum.split(".")))


def toolkit_findings(trial: TrialResult, spec: TrialSpec, installed: str, minimum: str) -> Iterator[Finding]:
    """Judge the container toolkit: the pod's version, else the operator's; without either it is not visible."""
    for rank in range(spec.nodes):
        toolkit = str(every_stage(trial, rank)["runtime"]["toolkit"] or "")
        if toolkit or not installed:
            yield _toolkit(place(trial, rank), toolkit, "in the pod", minimum)
    if installed:
        yield _toolkit("the operator's container toolkit", installed, "ClusterPolicy or DaemonSet", minimum)


def _toolkit(subject: str, version: str, source: str, minimum: str) -> Finding:
    newer = version_at_least(version, minimum) if version else None
    observed = (
        f"container toolkit {version} ({source})"
        if version
        else "not visible: no operator or pod shows the host's package"
    )
    return compared(subject, newer, observed, f"{minimum} or later (runtime.toolkit_min)", "runtime.toolkit-old")


def drift_findings(trial: TrialResult, spec: TrialSpec, *, driver: bool = True) -> Iterator[Finding]:
    """Compare the GPUs' model, memory and VBIOS over all nodes; ``driver``: also the driver and its CUDA version."""
    compared_facts = COMPARED if driver else COMPARED[2:]
    ranks = {place(trial, rank): rank for rank in sorted(range(spec.nodes), key=lambda rank: place(trial, rank))}
    for finding in unlike(
        {node: _facts(every_stage(trial, rank)["runtime"], driver=driver) for node, rank in ranks.items()},
        "runtime.drift",
    ):
        lost = left_out(trial, ranks[finding.subject], compared_facts) if finding.ok else ""
        yield replace(finding, ok=None, observed=f"{finding.observed}; {lost}") if lost else finding


def _facts(data: RuntimeStage, *, driver: bool) -> dict[str, str]:
    """Return the values that must be uniform; several values of one node's GPUs are joined."""
    facts = {"driver": data["driver"], "CUDA": data["cuda"]} if driver else {}
    gpus = data["gpus"] or []
    for name, values in (
        ("model", [gpu["name"] for gpu in gpus]),
        ("memory", [gpu["memory_mib"] for gpu in gpus]),
        ("VBIOS", [gpu["vbios"] for gpu in gpus]),
    ):
        facts[name] = "/".join(sorted({str(value) for value in values if value is not None}))
    return {name: value for name, value in facts.items() if value}


@each_rank(StartStage)
def limit_findings(rank: Rank[StartStage], profile: Profile) -> Iterator[Finding]:
    """Compare shared memory with the pod's request, and the memlock limit with the profile."""
    yield _shm(rank.node, rank.data, rank.spec.shm_bytes)
    if profile.runtime.memlock_min is not None:
        yield _memlock(rank.node, rank.data, profile.runtime.memlock_min)


def limit_notes(trial: TrialResult, spec: TrialSpec) -> Iterator[str]:
    """Describe the pod's cgroup limits: they are not judged, but explain many faults."""
    for rank in range(spec.nodes):
        data = every_stage(trial, rank)["start"]
        cpu, memory = data["cpu_max"], data["memory_max"]
        limits = [f"{cpu:g} CPUs" if cpu is not None else "CPUs without limit"]
        limits.append(f"{memory / 2**30:.3g} GiB" if memory and memory > 0 else "memory without limit")
        yield f"{place(trial, rank)}: the container may use {', '.join(limits)}"


def _shm(subject: str, data: StartStage, asked: int) -> Finding:
    size, most = data["shm_bytes"], data["memory_max"]
    if size is None:
        return unknown(subject, "the size of /dev/shm was not read", format_size(asked))
    # A tmpfs rounds down to pages, and a memory limit below its size is legal: 1 % is not a fault.
    ok = size >= asked * 0.99
    observed = f"{size / 2**30:.2f} GiB of /dev/shm"
    if not ok and most is not None and 0 < most <= size * 1.01:
        observed += ", as much as the container's memory limit allows (the profile's, or a LimitRange's)"
    return compared(
        subject, ok, observed, f"{asked / 2**30:.2f} GiB, the pod's request (profile, pod.shm)", "runtime.shm-small"
    )


def _memlock(subject: str, data: StartStage, least: int) -> Finding:
    limit = data["memlock_bytes"]
    expected = f"{format_size(least)} lockable, or IPC_LOCK"
    if can_lock(data["cap_eff"]):
        return passed(subject, "IPC_LOCK", expected)
    if limit is None:
        return unknown(subject, "RLIMIT_MEMLOCK could not be read", expected)
    ok = limit == -1 or (least != -1 and limit >= least)
    return compared(subject, ok, f"{format_size(limit)} lockable, no IPC_LOCK", expected, "runtime.memlock")


def can_lock(cap_eff: object) -> bool:
    """Return whether the effective capabilities (hex, as in /proc/self/status) hold IPC_LOCK."""
    text = str(cap_eff or "")
    return bool(re.fullmatch(r"[0-9a-fA-F]+", text)) and bool(int(text, 16) >> CAP_IPC_LOCK & 1)
