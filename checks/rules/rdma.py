"""RDMA rules: each pod's devices and ports, judged from the probe's view of sysfs.

Rule: a pod must have as many good devices as the profile requires. A further port that is down (storage, management) is
not a fault, unless the same port is up on every other node. Each port has one fault, the first in this order: cable,
subnet manager, rate, address, partition.

NICs themselves have no check: transport and bandwidth of NCCL are judged. Notes about NICs help to find the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from jobs.pod.stages.rdma import lets_through
from jobs.run.result import TrialResult
from jobs.run.stages.hardware import RdmaPort, RdmaStage
from jobs.trial.spec import TrialSpec
from reports.record import Finding

from ..profiles.loader import Profile
from ..profiles.schema import VERBS
from .findings import failed, passed, unknown
from .network import interfaces
from .ranks import place, rdma_ports, silent, stages
from .rdma_offer import attached_names

STAGE: Final = "rdma"
SHOWN_GIDS = 8
"""Maximum number of a port's GIDs that the probe reports (jobs/pod/stages/rdma.py); a shorter list is complete."""
SPOKEN = {
    "name": "name",
    "state": "state",
    "link_layer": "link layer",
    "gid": "address",
    "gids": "GID table",
    "rate_gbps": "rate",
    "pkeys": "P_Key table",
}
FULL_MEMBER = 0x8000
"""The top bit of a P_Key: full member. Two limited members cannot communicate (InfiniBand Architecture Specification,
10.9.3)."""


class Wrong(NamedTuple):
    """The fault of one port: observation, expectation and fault id."""

    observed: str
    expected: str
    fault: str


def considered(ports: list[RdmaPort], env: Mapping[str, str]) -> list[RdmaPort]:
    """Return the ports that NCCL may use by the pods' own NCCL_IB_HCA; all if it matches none.

    In that case the filter is wrong and not the NICs: NCCL's log shows it.
    """
    spec = str(env.get("NCCL_IB_HCA") or "")
    return [p for p in ports if not spec or lets_through(spec, str(p["name"]), p["port"])] or ports


@dataclass(frozen=True, slots=True)
class _Required:
    """The requirements on each pod's devices, from the profile and the pods' environment."""

    spec: TrialSpec
    profile: Profile

    @property
    def count(self) -> int:
        """Number of devices that must work."""
        return self.profile.fabric.device_count or 1

    @property
    def layer(self) -> str | None:
        """The link layer of the fabric; None if any is allowed."""
        return VERBS.get(self.profile.fabric.kind or "")

    @property
    def expected(self) -> str:
        """The requirement as text."""
        return f"{self.count} RDMA devices with a working port (profile {self.profile.name})"

    def fits(self, port: RdmaPort) -> bool:
        """Return whether the pod may use a port, if known, and its link layer is the fabric's."""
        return port["usable"] is not False and (self.layer is None or port["link_layer"] in (self.layer, None))

    def good(self, ports: Iterable[RdmaPort]) -> list[RdmaPort]:
        """Return the ports that match the fabric and work."""
        return [p for p in ports if self.fits(p) and ailment(p, self.spec, self.profile) is None]


def device_findings(trial: TrialResult, spec: TrialSpec, profile: Profile) -> Iterator[Finding]:
    """Judge each rank's networks, then its devices, then their ports."""
    devices = {rank: _devices_in_pod(trial, rank, spec) for rank in range(spec.nodes)}
    required = _Required(spec, profile)
    for rank in range(spec.nodes):
        node, data, ports = place(trial, rank), stages(trial, rank).get(STAGE), devices[rank]
        if data is None:
            yield silent(trial, rank, STAGE)
        elif missing := list(_unattached(trial, rank, spec)):
            yield from missing
        elif absent := _absent(node, data, ports, required):
            yield absent
        else:
            elsewhere = [_good_names(theirs, required) for other, theirs in devices.items() if other != rank and theirs]
            yield from _ports(node, data, ports, required, elsewhere)


def _devices_in_pod(trial: TrialResult, rank: int, spec: TrialSpec) -> list[RdmaPort]:
    return considered(rdma_ports(trial, rank), spec.env)


def _unattached(trial: TrialResult, rank: int, spec: TrialSpec) -> Iterator[Finding]:
    """Name the networks that the pod requested and that have no interface in it."""
    networks = attached_names(spec.annotations, spec.namespace)
    if not networks or stages(trial, rank).get("network") is None:
        return
    there = {str(each["name"]) for each in interfaces(trial, rank)}
    if lost := {name: network for name, network in networks.items() if name not in there}:
        shown = ", ".join(f"{name} ({network})" for name, network in list(lost.items())[:4])
        yield failed(
            place(trial, rank),
            f"{len(lost)} of {len(networks)} interfaces are not in the pod: {shown}; there are "
            + (", ".join(sorted(there)) or "none"),
            "an interface for each network that the pod's annotation names",
            "rdma.not-attached",
        )


def _absent(node: str, data: RdmaStage, ports: Sequence[RdmaPort], required: _Required) -> Finding | None:
    """Explain why there is no port to judge: none is reported, none exists, or the pod cannot open them."""
    by_tool = data["source"] == "ibv_devinfo"
    if data["devices"] is None or (ports and data["uverbs"] is None and not by_tool):
        why = data["error"] or "devices" if data["devices"] is None else "the contents of /dev/infiniband"
        return unknown(node, f"not reported: {why}", required.expected)
    if not ports:
        why = data["error"] or "sysfs and ibv_devinfo show none"
        return failed(node, f"no RDMA device in the pod: {why}", required.expected, "rdma.no-device")
    if not data["uverbs"] and not by_tool:
        observed = f"{len(ports)} devices in sysfs, and no /dev/infiniband/uverbs* in the pod"
        expected = f"/dev/infiniband/uverbs* for {required.count} devices"
        return failed(node, observed, expected, "rdma.not-mounted")
    return None


def _ports(
    node: str, data: RdmaStage, ports: Sequence[RdmaPort], required: _Required, elsewhere: Sequence[set[str]]
) -> Iterator[Finding]:
    """Judge the ports that NCCL may use; ``elsewhere``: for each other rank, the names of its working ports."""
    count, spec, profile = required.count, required.spec, required.profile
    wrong = {_name(p): ailing for p in ports if required.fits(p) and (ailing := ailment(p, spec, profile))}
    good = [p for p in required.good(ports) if _name(p) not in wrong]
    if len(good) < count and not wrong:  # a filter that excludes good NICs is not the NICs' fault: NCCL shows it
        good = required.good(data["devices"] or [])
    blamed = [name for name in wrong if len(good) < count or (elsewhere and all(name in names for names in elsewhere))]
    if blamed:
        yield from (failed(f"{node} {name}", *wrong[name]) for name in blamed)
    elif len(good) < count:
        yield from _too_few(node, ports, len(good), required)
    else:
        yield _enough(node, data, good, required)


def _enough(node: str, data: RdmaStage, good: Sequence[RdmaPort], required: _Required) -> Finding:
    """Pass a pod with enough good ports if every value that could show a fault was read."""
    unread = [lost for p in good if (lost := _unread(p, required.spec, required.profile))]
    rates = " and ".join(sorted({f"{p['rate_gbps']:g}" for p in good if p["rate_gbps"]}))
    files, by_tool = len(data["uverbs"] or []), data["source"] == "ibv_devinfo"
    if required.count > len(good) - len(unread):
        what = " and ".join(dict.fromkeys(word for lost in unread for word in lost))
        observed = f"{len(good)} devices, but the {what} of {len(unread)} ports is not readable"
        return unknown(node, observed, required.expected)
    if files < required.count and not by_tool and any(p["usable"] is None for p in good):
        return unknown(node, f"{len(good)} devices, {files} uverbs files of unknown devices", required.expected)
    return passed(node, f"{len(good)} devices, ports ACTIVE, {rates or 'unknown'} Gb/s", required.expected)


def _too_few(node: str, ports: Sequence[RdmaPort], good: int, required: _Required) -> Iterator[Finding]:
    """Name the ports of another link layer if these would be enough, else report the number of devices."""
    usable = [p for p in ports if p["usable"] is not False]
    foreign = [p for p in usable if not required.fits(p)]
    if not foreign or len(usable) < required.count:
        yield failed(node, f"{good} RDMA devices in the pod", required.expected, "rdma.no-device")
        return
    for port in foreign[: required.count - good]:
        observed, expected = f"link layer {port['link_layer']}", f"{required.layer} (the profile's fabric)"
        yield failed(f"{node} {_name(port)}", observed, expected, "rdma.wrong-link-layer")


def _name(port: RdmaPort) -> str:
    number = port["port"]
    return str(port["name"]) + (f":{number}" if number not in (1, None) else "")


def _good_names(ports: Iterable[RdmaPort], required: _Required) -> set[str]:
    return {_name(p) for p in ports if ailment(p, required.spec, required.profile) is None}


def ailment(port: RdmaPort, spec: TrialSpec, profile: Profile) -> Wrong | None:
    """Return the first fault of a port of the right link layer; values that were not read are not faults."""
    state, rate, least = port["state"], port["rate_gbps"], profile.fabric.device_rate
    infiniband = port["link_layer"] == "InfiniBand"
    if state == "INIT" and infiniband:
        return Wrong(f"port INIT, physical state {port['phys_state']}", "port ACTIVE", "rdma.no-subnet-manager")
    if state not in ("ACTIVE", None):
        return Wrong(f"port {state}, physical state {port['phys_state']}", "port ACTIVE", "rdma.port-down")
    if least is not None and rate is not None and rate < least:
        return Wrong(f"{rate:g} Gb/s", f"{least:g} Gb/s (profile {profile.name})", "rdma.rate-low")
    return _address(port, spec) or (_partition(port, spec) if infiniband else None)


def _unread(port: RdmaPort, spec: TrialSpec, profile: Profile) -> list[str]:
    """Name missing values that could show a fault of a port."""
    fields = ["name", "state", "link_layer", "gid"]
    fields += ["rate_gbps"] if profile.fabric.device_rate is not None else []
    fields += ["pkeys"] if port["link_layer"] == "InfiniBand" else []
    index = _number(spec.env.get("NCCL_IB_GID_INDEX"))
    fields += ["gids"] if index is not None and index >= 0 else []
    return [SPOKEN[field] for field in fields if port.get(field) is None]


def _address(port: RdmaPort, spec: TrialSpec) -> Wrong | None:
    index = _number(spec.env.get("NCCL_IB_GID_INDEX"))
    gids = port["gids"] or []
    if port["gid"] is False:
        return Wrong("every entry of the port's GID table is zero", "a GID", "rdma.gid-missing")
    known = [gid["index"] for gid in gids]
    listed = known and (len(known) < SHOWN_GIDS or max(i or 0 for i in known) > (index or 0))
    if index is not None and index >= 0 and listed and None not in known and index not in known:
        return Wrong(
            f"entry {index} of the GID table is zero; set are {known}",
            f"a GID at entry {index} (NCCL_IB_GID_INDEX)",
            "rdma.gid-missing",
        )
    return None


def _partition(port: RdmaPort, spec: TrialSpec) -> Wrong | None:
    """Judge the P_Key table entry that NCCL uses: NCCL_IB_PKEY is an index, 0 if it is not set."""
    table = port["pkeys"]
    if table is None or (not table and port["counters"] == 0):  # ibv_devinfo does not report it
        return None
    index = _number(spec.env.get("NCCL_IB_PKEY")) or 0
    key = _number(table[index]) if table and index < len(table) else 0
    named = f"entry {index} of the P_Key table" + (" (NCCL_IB_PKEY)" if "NCCL_IB_PKEY" in spec.env else "")
    shown = ", ".join(f"{at}: {value}" for at, value in enumerate(table or []))
    if not key:
        return Wrong(f"{named} is empty; the table holds {shown or 'nothing'}", "a partition key", "rdma.pkey-empty")
    if not key & FULL_MEMBER:
        return Wrong(
            f"{named} is {key:#06x}, limited membership; the table holds {shown}",
            "full membership (0x8000 set)",
            "rdma.pkey-limited",
        )
    return None


def _number(value: object) -> int | None:
    try:
        return int(str(value), 0)
    except ValueError:
        return None


def firmware_note(trial: TrialResult, spec: TrialSpec) -> str:
    """Report the firmware versions of the NICs if they differ; '' if not."""
    versions: dict[str, list[str]] = {}
    for rank in range(spec.nodes):
        for port in _devices_in_pod(trial, rank, spec):
            if port["fw"]:
                versions.setdefault(f"{port['board'] or 'card'} {port['fw']}", []).append(
                    f"{place(trial, rank)} {_name(port)}"
                )
    if len(versions) < 2:
        return ""
    few = sorted(versions.items(), key=lambda pair: len(pair[1]))
    texts = "; ".join(f"{version}: {', '.join(where[:3])}{' ...' if len(where) > 3 else ''}" for version, where in few)
    return f"the NICs do not run one firmware: {texts}"


SHOWN_NICS = 8


def nic_notes(trial: TrialResult, profile: Profile) -> Iterator[str]:
    """Name each NIC with a port that is inactive or below the profile's rate: the slowest NIC limits all."""
    texts = [
        text for rank in sorted(trial.evidence) for text in _nic_notes(trial, rank, profile.fabric.device_rate or 0.0)
    ]
    yield from texts[:SHOWN_NICS]
    if len(texts) > SHOWN_NICS:
        yield f"and {len(texts) - SHOWN_NICS} more NICs like these"


def _nic_notes(trial: TrialResult, rank: int, least_gbps: float) -> Iterator[str]:
    for device in rdma_ports(trial, rank):
        name, state, rate = device["name"], device["state"], device["rate_gbps"]
        if state and state != "ACTIVE":
            yield f"{place(trial, rank)}: the port of {name} is {state}"
        elif isinstance(rate, int | float) and 0 < rate < least_gbps:
            yield f"{place(trial, rank)}: {name} runs at {rate:g} Gb/s, the profile requires {least_gbps:g}"
