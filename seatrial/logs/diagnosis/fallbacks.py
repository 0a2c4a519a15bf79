"""The causes of sockets and of missing GPUDirect: a list tried in order; the first match is the answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..reader.events.signals import NAMES_GPU

if TYPE_CHECKING:
    from ..job_document import EvidenceLine
    from ..reader.state.process import Proc
    from .judge import Judgement

_WHY = (
    "nccl.plugin-broken",
    "nccl.plugin-too-old",
    "nccl.ofi-no-provider",
    "nccl.ib-disabled",
    "nccl.libibverbs-missing",
    "nccl.verbs-provider",
    "nccl.ib-open",
    "nccl.ib-filter",
    "nccl.ib-no-device",
    "nccl.plugin-missing",
    "nccl.plugin-init-failed",
)
# Fabrics that NCCL reaches through a plugin only: its built-in transport supports InfiniBand and RoCE verbs
# (net_ib/init.cc skips ports of any other link layer).
_PLUGGED = frozenset(("efa", "cxi", "gib", "tcpx", "fastrak"))


def why_sockets(judgement: Judgement, procs: list[Proc]) -> tuple[str | None, list[EvidenceLine], str | None]:  # noqa: PLR0911, PLR0912 -- one return per form
    """Return why these processes use sockets: the fault that explains it, its evidence, and a cause in words."""
    job = judgement.job
    for variable in ("NCCL_NET", "NCCL_NET_PLUGIN"):
        values = {proc.env[variable] for proc in procs if variable in proc.env} if variable in job.env else set()
        if variable == "NCCL_NET" and any(value.lower() == "socket" for value in values):
            return "nccl.net-env", judgement.line(job.first_note("env NCCL_NET", procs)), "NCCL_NET=Socket is set"
        if variable == "NCCL_NET_PLUGIN" and values & {"none", "None"}:
            line = judgement.line(job.first_note("env NCCL_NET_PLUGIN", procs))
            return "nccl.net-env", line, "NCCL_NET_PLUGIN=none is set"
    providers = {value for proc in procs for value in proc.facts.get("provider", ())}
    if any(value.startswith(("tcp", "sockets", "udp")) for value in providers):
        line = judgement.line(job.first_note("line provider", procs))
        return "nccl.ofi-provider", line, "the libfabric plugin selected the provider %s" % min(providers)
    for why in _WHY:
        if why == "nccl.ib-disabled":
            off = [proc for proc in procs if proc.env.get("NCCL_IB_DISABLE") not in (None, "0")]
            if off:
                line = judgement.line(job.first_note("env NCCL_IB_DISABLE", off))
                return why, line, "NCCL_IB_DISABLE=%s is set" % off[0].env["NCCL_IB_DISABLE"]
            continue
        note = job.first_note("nccl.ib-no-device" if why == "nccl.ib-filter" else why, procs)
        if why == "nccl.verbs-provider":  # libibverbs prints it on standard error, without NCCL's head
            note = note or judgement.event("symptom " + why)
        if note is None:
            continue
        if why == "nccl.ib-filter":
            filters = sorted({proc.env["NCCL_IB_HCA"] for proc in procs if "NCCL_IB_HCA" in proc.env})
            if not filters:
                continue
            cause = (
                "NCCL_IB_HCA=%s is set and no usable device is left: the filter matches none, or the host has none"
                % filters[0]
            )
            return why, judgement.line(job.first_note("env NCCL_IB_HCA", procs)) + judgement.line(note), cause
        if why == "nccl.plugin-missing" and not _needs_plugin(judgement, procs):
            continue
        if (
            why == "nccl.ib-no-device"
            and _needs_plugin(judgement, procs)
            and job.first_note("nccl.plugin-missing", procs) is not None
        ):
            return (
                "nccl.plugin-missing",
                judgement.line(note) + judgement.line(job.first_note("nccl.plugin-missing", procs)),
                None,
            )
        return why, judgement.line(note), None
    refused = judgement.event("symptom nccl.dmabuf-topology") if _needs_plugin(judgement, procs) else None
    return ("nccl.dmabuf-topology" if refused else None), judgement.line(refused), None


def _needs_plugin(judgement: Judgement, procs: list[Proc]) -> bool:
    """Return whether the fabric needs a plugin, from the profile or its interfaces (Slingshot's are hsn0, ...)."""
    if judgement.expect.fabric in _PLUGGED:
        return True
    names = {
        text.split(" ")[0] for proc in procs for fact in ("boot", "oob", "socket") for text in proc.facts.get(fact, ())
    }
    return any(name.startswith("hsn") for name in names)


# GPUs without GPUDirect RDMA: their pattern in logs, their name, and the reason. Professional and data centre boards
# (RTX A6000, RTX PRO 6000, L40S) have it, so no row contains them.
WITHOUT_GPUDIRECT = (
    (
        # DGX Spark Porting Guide, "CUDA" (docs.nvidia.com/dgx/dgx-spark-porting-guide): neither nvidia-peermem nor
        # DMA-BUF works, since PCIe devices do not reach memory of cudaMalloc coherently; compute capability 12.1 is
        # that of GB10 alone (developer.nvidia.com/cuda-gpus). Read 2026-11-28.
        re.compile(r'\bGB10\b|^sm="121"$'),
        "GB10 (DGX Spark)",
        "its memory is one with the processor's, and NICs do not reach it directly",
    ),
    (
        # docs.nvidia.com/cuda/gpudirect-rdma, Overview: Tesla and Quadro GPUs; GPUDirect RDMA manual 1.8, System
        # Requirements. Read 2026-11-28.
        re.compile(r"\bGeForce\b"),
        "GeForce",
        "NVIDIA offers it on data centre and professional boards only",
    ),
)


def gpus_named(judgement: Judgement) -> set[str]:
    """Return the GPUs that a benchmark lists; without a list, the kinds that any line names."""
    listed = {str(line[4]) for line in judgement.job.rank_lines.values() if len(line) > 4 and line[4]}
    return listed or {name[len(NAMES_GPU) :] for name in judgement.job.events if name.startswith(NAMES_GPU)}


def without_gpudirect(judgement: Judgement) -> tuple[str, str] | None:
    """Return the job's GPU model and the reason why it has no GPUDirect RDMA; None if any may have it."""
    known = [
        next(((kind, why) for pattern, kind, why in WITHOUT_GPUDIRECT if pattern.search(name)), None)
        for name in sorted(gpus_named(judgement))
    ]
    return known[0] if known and all(known) else None


def why_no_gdr(judgement: Judgement) -> tuple[str | None, list[EvidenceLine], str | None]:
    """Return why GPUDirect is off, as far as the log shows it."""
    for proc in judgement.job.procs:
        level = proc.env.get("NCCL_NET_GDR_LEVEL", "")
        if level in ("LOC", "0") or proc.env.get("NCCL_IB_CUDA_SUPPORT") == "0":
            setting = "env NCCL_NET_GDR_LEVEL" if level in ("LOC", "0") else "env NCCL_IB_CUDA_SUPPORT"
            return (
                "nccl.gdr-env",
                judgement.line(judgement.job.first_note(setting, [proc])),
                "NCCL_NET_GDR_LEVEL=%s is set" % level if level in ("LOC", "0") else "NCCL_IB_CUDA_SUPPORT=0 is set",
            )
    for name in ("nccl.gdr-no-module", "nccl.gdr-distance", "nccl.topology-virtual"):
        note, _ = judgement.earliest(name)
        if note is not None:
            return name, judgement.line(note), None
    refused = judgement.event("symptom nccl.dmabuf-topology")  # the kernel's own line belongs to no process
    return ("nccl.dmabuf-topology" if refused else None), judgement.line(refused), None


def disabled_unused(judgement: Judgement) -> str | None:
    """Return a note if NCCL_IB_DISABLE is set, but the verbs plugin has its own switch (nccl-rdma-sharp-plugins)."""
    plugins = sorted(net for net in judgement.view.networks if net.startswith("IBext"))
    values = sorted(judgement.job.env["NCCL_IB_DISABLE"] - {"0"})
    if not plugins or not values:
        return None
    said = (
        "NCCL_IB_DISABLE=%s is set, and the plugin in use (%s) does not obey it: NCCL_IBEXT_DISABLE=1 switches it off"
    )
    return said % (values[0], plugins[0])
