"""RDMA writes between neighbouring nodes: each NIC compared with its port's rate, before NCCL.

Rule: a link between two NICs is good if both directions reach the floor. A NIC with a good link is not at fault: a bad
link is attributed to its other end if only one end has a good link, and to the pair if neither has (always on two
nodes). If all NICs of a node or pair are slow, the cause is not a cable. Slow host memory is not a fault of the link if
GPU memory is fast, or if a pod had no CPU on its NIC's NUMA node. A program that failed for other reasons has measured
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from jobs.run.result import TrialResult
from jobs.run.stages.hardware import RdmaPort, RdmaWrite
from jobs.trial.spec import TrialSpec
from reports.record import Finding
from seatrial.faults.catalogue import read_text

from ..profiles.loader import Profile
from .findings import failed, passed, unknown
from .ranks import every_stage, place, rdma_ports, silent, stages

STAGE: Final = "perftest"
PART = "perftest"
"""The component (`who`) in the catalogue's variants with perftest's messages and the sentence below."""
SHARE = 0.9
"""The least share of the slower port's rate. Azure's health checks require 380 of 400 Gb/s
(github.com/Azure/azurehpc-health-checks, check_ib_bw_gdr of ND H100 v5); RoCE v2 at an MTU of 1024 bytes carries 93
% at most: 1024 of each 1106 bytes on the link (IEEE 802.3 framing, IPv4, UDP, and the headers of the InfiniBand
Architecture Specification, annex A17)."""
HOST_MOST = 400.0
"""Maximum rate in Gb/s that is required of host memory, for any port rate. Hosts have PCIe 5.0 x16: 32 GT/s on 16
lanes, which are 504 Gb/s after its 128b/130b code (PCI Express Base Specification 5.0), and less after its packets'
headers. GPU memory behind the NIC's own switch shows higher rates."""
MOST = 2.0
"""Maximum plausible multiple of the port's rate. A bond of two ports may carry twice the rate that one of them shows.
"""
HOST, GPU = "host", "gpu"
SLOW, ALL_SLOW, SLOW_GPU, FAILS = (
    "rdma.low-bandwidth",
    "rdma.low-bandwidth-all",
    "rdma.low-bandwidth-gpu",
    "rdma.write-failed",
)
PACKAGES = {"ib_write_bw": "perftest", "fi_pingpong": "libfabric's utilities (part of the EFA installer)"}
SHOWN = 8
End = tuple[int, str]
"""One end of a link: a rank and one of its NICs."""


@dataclass(slots=True)
class Link:
    """Two NICs of neighbours, with one kind of memory, and the rates measured in both directions."""

    ends: tuple[End, End]
    memory: str
    rate: float | None  # rate of the slower port in Gb/s, at most the profile's
    port: float | None = None  # rate of the slower port
    values: dict[End, float] = field(default_factory=dict)  # measured Gb/s by sender
    far: bool = False  # the written host memory is on another NUMA node than its NIC, since a pod had no CPU there
    messages: bool = False  # fi_pingpong's messages passed both ways; it measures no bandwidth
    errors: list[str] = field(default_factory=list)

    @property
    def rail(self) -> str:
        """The rail's name in findings: both NICs if their names differ."""
        return "/".join(dict.fromkeys(nic for _, nic in self.ends))

    @property
    def floor(self) -> float:
        """The least rate for both directions."""
        return SHARE * (self.rate or 0.0)

    @property
    def asked(self) -> float:
        """The required rate; less than SHARE of it is a fault."""
        return min(self.rate or 0.0, HOST_MOST if self.memory == HOST else math.inf)

    @property
    def told(self) -> str:
        """The recognised error that makes the link a failure; '' without one."""
        return next((text for text in self.errors if read_text(PART, text) is not None), "")

    @property
    def slow(self) -> bool:
        """Whether a measured direction is below the floor, or below the rate that any host memory reaches."""
        return self.rate is not None and any(value < SHARE * self.asked for value in self.values.values())

    @property
    def good(self) -> bool:
        """Whether both directions were measured and reach the floor, or messages passed."""
        whole = self.messages or (self.rate is not None and len(self.values) == len(self.ends))
        return whole and not self.slow and not self.errors and all(v >= self.floor for v in self.values.values())

    @property
    def bad(self) -> bool:
        """Whether it is a fault: a recognised error, or a slow direction that only the link explains."""
        return bool(self.told) or (self.slow and not self.far)

    def outdoes(self, other: Link) -> bool:
        """Return whether both directions are faster than with the other memory, so that the link is not its limit."""
        return (self.good or self.capped) and min(self.values.values()) > min(other.values.values(), default=math.inf)

    @property
    def capped(self) -> bool:
        """Whether the host may be the limit instead of the link."""
        whole = self.rate is not None and len(self.values) == len(self.ends)
        return whole and not self.slow and not self.errors and not self.good


def missing(trial: TrialResult, spec: TrialSpec) -> str:
    """Return the program that every pod lacks; '' if some pod has it, or none reports it."""
    told = [data for rank in trial.evidence if (data := stages(trial, rank).get(STAGE))]
    if not told or spec.perftest is None or any(data["found"] is not False for data in told):
        return ""
    return spec.perftest.tool


def findings(trial: TrialResult, spec: TrialSpec, profile: Profile) -> Iterator[Finding]:
    """Judge each pair of neighbours: its bad links by the node or pair at fault, then its other links."""
    links = _judged(trial, profile)
    bad = [link for link in links if link.bad]
    for memory in (HOST, GPU):
        yield from _accusations(trial, links, [link for link in bad if link.memory == memory], memory)
    for low in range(spec.nodes - 1):
        yield from _of_pair(trial, (low, low + 1), [link for link in links if link.ends[0][0] == low])


def _judged(trial: TrialResult, profile: Profile) -> list[Link]:
    """Return the links, except host memory results for links that GPU memory proves to be good."""
    links = list(_links(trial, profile))
    proven = {link.ends for link in links if link.memory == GPU and link.good}
    return [link for link in links if link.memory != HOST or link.ends not in proven or link.good or link.told]


def unjudged(trial: TrialResult, profile: Profile) -> str:
    """Describe the links that host memory cannot judge; '' if there are none."""
    links = [link for link in _judged(trial, profile) if link.capped]
    if not links:
        return ""
    values = [value for link in links for value in link.values.values()]
    return (
        f"{len(links)} links at {min(values):g} to {max(values):g} Gb/s are measured, not judged: host memory shows no "
        f"more than about {HOST_MOST:g} of {links[0].rate:g} Gb/s; install a perftest that is built with CUDA"
    )


def advice(trial: TrialResult, profile: Profile) -> tuple[str, str] | None:
    """Return confirm and remedy for the links' errors, if the catalogue has the same for all."""
    said = [read_text(PART, link.told) for link in _judged(trial, profile) if link.told]
    variants = {known.variant for known in said if known is not None}
    only = variants.pop() if len(variants) == 1 else None
    return (only.confirm, only.remedy) if only else None


def sentence(operation: str, trial: TrialResult, spec: TrialSpec, profile: Profile) -> str:
    """Explain for a slow collective that RDMA writes reach their rate on all links; '' if this is not proven."""
    links = [link for link in _judged(trial, profile) if link.values]
    whole = {(link.ends[0][0], link.ends[1][0]) for link in links} == {(low, low + 1) for low in range(spec.nodes - 1)}
    if not whole or not all(link.good for link in links) or any(not f.ok for f in findings(trial, spec, profile)):
        return ""
    least, rate = min((min(link.values.values()), link.rate or 0.0) for link in links)
    return f"{operation}: RDMA writes reach {least:g} of {rate:g} Gb/s on every NIC, one at a time"


def notes(trial: TrialResult) -> Iterator[str]:
    """Name the floor's source, and the tests that did not run."""
    if any(every_stage(trial, rank)[STAGE]["tool"] == "fi_pingpong" for rank in trial.evidence):
        return
    yield (
        f"floor: {SHARE:.0%} of the slower port's rate (or of the profile's, where that is less); Azure's health "
        "checks require 380 of 400 Gb/s (check_ib_bw_gdr), and RoCE at an MTU of 1024 carries 93 %"
    )
    if not any(every_stage(trial, rank)[STAGE]["gpu_memory"] for rank in trial.evidence):
        why = "this ib_write_bw, the node (nvidia_peermem) or the profile allows no other"
        yield f"host memory alone: {why}; nccl.gdr judges GPUDirect"


def _links(trial: TrialResult, profile: Profile) -> Iterator[Link]:
    """Yield every link that some rank has tried, except links of ports that only rdma.devices judges."""
    known: dict[tuple[object, ...], Link] = {}
    rates = {rank: _rates(rdma_ports(trial, rank)) for rank in trial.evidence}
    least = profile.fabric.device_rate
    for rank in sorted(trial.evidence):
        for write in every_stage(trial, rank)[STAGE]["writes"]:
            peer, sender = write["peer"], (rank, str(write["nic"]))
            if peer not in (rank - 1, rank + 1):
                continue
            receiver = (peer, str(write["peer_nic"]))
            ends = (min(sender, receiver), max(sender, receiver))
            found = [rates.get(each, {}).get(nic) for each, nic in ends]
            rate = min((value for value in found if value is not None), default=None) if None not in found else None
            if rate is not None and least is not None and rate < least:
                continue
            asked = rate if rate is None or least is None else min(rate, least)
            memory = str(write["memory"] or HOST)
            _note(known.setdefault((*ends, memory), Link(ends, memory, asked, rate)), sender, write)
    yield from known.values()


def _note(link: Link, sender: End, write: RdmaWrite) -> None:
    value = write["gbit_s"]
    link.messages = link.messages or write["passed"] is True
    link.far = link.far or (link.memory == HOST and write["far"] is True)
    if value is not None and 0 <= value <= MOST * (link.port or math.inf):
        link.values[sender] = value
    elif write["error"] or write["passed"] is not True:
        text = str(write["error"] or ("no result" if value is None else f"{value:g} Gb/s is no result"))
        link.errors.append(f"{text} (GPU memory)" if link.memory == GPU else text)


def _rates(ports: Iterable[RdmaPort]) -> Mapping[str, float]:
    return {
        f"{port['name']}" + (f":{port['port']}" if port["port"] not in (1, None) else ""): rate
        for port in ports
        if (rate := port["rate_gbps"] or 0.0) > 0
    }


def _accusations(trial: TrialResult, links: list[Link], bad: list[Link], memory: str) -> Iterator[Finding]:
    """Yield one finding for each fault and each node or pair at fault, with all of its rails."""
    cleared = {end for link in links if link.memory == memory and link.good for end in link.ends}
    hosts = {link.ends: link for link in links if link.memory == HOST}
    groups: dict[tuple[str, bool], list[Link]] = {}
    alone = [(link, guilty) for link in bad if len(guilty := [end for end in link.ends if end not in cleared]) == 1]
    named = {guilty[0] for _, guilty in alone}
    for link in bad:
        if memory == GPU and link.ends in hosts and hosts[link.ends].bad:
            continue  # the host memory result explains it
        guilty = [end for end in link.ends if end not in cleared]
        accused = [end for end in guilty if end in named] or (guilty if len(guilty) == 1 else [])
        ranks = [accused[0][0]] if len(accused) == 1 else [rank for rank, _ in link.ends]
        who = _named(trial, ranks)
        groups.setdefault((who, bool(link.told)), []).append(link)
    for (who, fails), group in groups.items():
        rails = list(dict.fromkeys(link.rail for link in group))
        of_place = [link for link in links if link.memory == memory and _is_of(trial, link, who)]
        whole = len(rails) > 1 and all(link in group for link in of_place)
        faster_host = memory == GPU and all(link.ends in hosts and hosts[link.ends].outdoes(link) for link in group)
        fault = FAILS if fails else SLOW_GPU if faster_host else ALL_SLOW if whole else SLOW
        texts = list(dict.fromkeys(link.told if fails else _measured(trial, link, len(rails) > 1) for link in group))
        observed = "; ".join([*texts[:SHOWN], *([f"and {len(texts) - SHOWN} more"] if len(texts) > SHOWN else [])])
        expected = "RDMA writes succeed" if fails else _expected(group)
        yield failed(f"{who} rail {', '.join(rails)}", observed, expected, fault)


def _named(trial: TrialResult, ranks: Iterable[int]) -> str:
    """Name a node, or a pair in alphabetical order, since ranks run on other nodes in each run."""
    return " - ".join(sorted(place(trial, rank) for rank in ranks))


def _is_of(trial: TrialResult, link: Link, who: str) -> bool:
    ranks = [rank for rank, _ in link.ends]
    return who in (_named(trial, ranks), *(place(trial, rank) for rank in ranks))


def _measured(trial: TrialResult, link: Link, labelled: bool = False) -> str:
    ways = [f"{value:g} Gb/s from {place(trial, rank)}" for (rank, _), value in sorted(link.values.items())]
    shown = ", ".join(ways) + (" (GPU memory)" if link.memory == GPU else "")
    return (f"{link.rail}: " if labelled else "") + ", ".join([*([shown] if ways else []), *link.errors])


def _of_pair(trial: TrialResult, ranks: tuple[int, int], links: list[Link]) -> Iterator[Finding]:
    """Yield the results of a pair's good links, and the reasons for unknown results."""
    subject = _named(trial, ranks)
    told = [stages(trial, rank).get(STAGE) for rank in ranks]
    for rank, data in zip(ranks, told, strict=True):
        if data is None:
            yield silent(trial, rank, STAGE)
        elif data["error"]:
            yield unknown(place(trial, rank), str(data["error"]))
        elif data["found"] is not True:
            yield unknown(subject, f"no {data['tool'] or 'program'} in the pod of {place(trial, rank)}")
        else:
            other = sum(ranks) - rank
            left = [str(each["why"]) for each in data["left_out"] if each["peer"] == other]
            untried = sorted(set(data["nics"]) - _tried(trial, rank, other))
            listed = [f"not tested: {', '.join(untried)}"] if untried else []
            parts = [*(listed if data["nics"] else ["it lists no active NIC of this fabric"]), *left]
            if parts:
                yield unknown(subject, f"of {place(trial, rank)}: {'; '.join(parts)}")
    for link in links:
        if not link.good and not link.told and not link.capped and (link.far or not link.slow):
            yield unknown(f"{subject} rail {link.rail}", _unknown(trial, link), "both ways measured")
    good = [link for link in links if link.good]
    if good:
        yield passed(subject, _passed(good), _expected(good))
    elif not links:
        yield unknown(subject, "no NIC of this fabric was tested")


def _tried(trial: TrialResult, rank: int, other: int) -> set[str]:
    """Return the NICs with which a rank wrote to the other one, or was written to."""
    own, theirs = (every_stage(trial, each)[STAGE]["writes"] for each in (rank, other))
    wrote = {str(write["nic"]) for write in own if write["peer"] == other}
    return wrote | {str(write["peer_nic"]) for write in theirs if write["peer"] == rank}


def _unknown(trial: TrialResult, link: Link) -> str:
    if link.slow:
        return f"{_measured(trial, link)}; a pod had no CPU on its NIC's NUMA node, so that its memory may be the limit"
    if link.rate is None and not link.errors:
        return f"{_measured(trial, link)}; the rate of a port is not known"
    return _measured(trial, link) if link.errors else f"{_measured(trial, link)}; the other way was not measured"


def _expected(links: list[Link]) -> str:
    if any(link.messages for link in links):
        return "messages pass"
    rates = {link.rate or 0.0 if link.good else link.asked for link in links}
    shown = " and ".join(f"{rate:g}" for rate in sorted(rates))
    return f"at least {SHARE * min(rates):g} Gb/s each way ({SHARE:.0%} of {shown})"


def _passed(good: list[Link]) -> str:
    if any(link.messages for link in good):
        return f"messages pass on {len(good)} NICs"
    texts = []
    for memory, words in ((HOST, "host memory"), (GPU, "GPU memory")):
        values = [value for link in good if link.memory == memory for value in link.values.values()]
        if values:
            texts.append(f"{len(values) // 2} NICs, {min(values):g} to {max(values):g} Gb/s each way, {words}")
    return "; ".join(texts)
