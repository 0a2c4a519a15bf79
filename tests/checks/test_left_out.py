"""Evidence with missing values: a field that is null where a healthy run has a value is never a pass, or the exception
has a reason.

Every field that a check reads in a healthy trial is removed. It is removed from all ranks (an older probe), and from
the last entry on one rank (the value that would be bad). The check must then neither pass nor report a fault for the
missing value.
"""

import functools
import json
from dataclasses import replace
from fnmatch import fnmatchcase
from types import SimpleNamespace

import pytest
import yaml

from checks.profiles.loader import load_profile
from tests.checks.test_evidence_fuzz import PLACE, arrived, checks, ended, judged, real

BUCKET = {"uri": "s3://bucket", "endpoint": "e", "region": "r", "error": None, "reachable": True, "can_sign": True}
BUCKET |= {"status": 200, "seconds": 0.1, "missing": []}
MAPS = {"env", "nccl_conf", "rdma_counters", "errors", "first_us", "fabric_health"}
SHOWN = "it is context, or identifies the judged subject"
ABSENT = "no GPU of the trial reports it: the model lacks it (a single GPU without it is detected)"
NO_OTHER = "no node reports it: there is nothing to compare (a single node without it is detected)"
OPTIONAL = {
    "collective.*.facts": ("nccl.bandwidth-*", SHOWN),
    "collective.*.facts.first_us": ("nccl.bandwidth-*", SHOWN),
    "collective.*.seconds": ("nccl.completed*", SHOWN),
    "collective.*.timed_out": ("nccl.completed*", "the exit code shows that the program ended"),
    "collective.*.exit": ("rdma.counters", "nccl.completed needs it"),
    "dns.peers.#.pod_ip_matches": ("rendezvous.dns", "the peer itself reports its address"),
    "dns.peers.#.seconds_to_first_answer": ("rendezvous.dns", SHOWN),
    "dcgm.exit": ("runtime.dcgm", "its JSON is judged"),
    "dcgm.level": ("runtime.dcgm", SHOWN),
    "dcgm.version": ("runtime.dcgm", SHOWN),
    "dcgm.results.#.category": ("runtime.dcgm", SHOWN),
    "dcgm.results.#.test": ("runtime.dcgm", SHOWN),
    "dcgm.results.#.said": ("runtime.dcgm", "a passed test has no message"),
    "endpoints.tried.#.by": ("network.endpoints", SHOWN),
    "network.interfaces*": ("network.mtu", "the path to the peers also shows the interface's MTU"),
    "network.interfaces.#.addresses": ("network.secondary", "eth0 is the pod's own"),
    "network.peers.#.learned_mtu": ("network.mtu", "full-size packets passed"),
    "network.peers.#.path_mtu": (
        "network.mtu",
        "TCP carried full packets, and the finding says that sizes are unknown",
    ),
    "network.peers.#.peak_gbit_s": ("network.throughput", "the mean is reported"),
    "network.peers.#.throughput_gbit_s": ("network.throughput", "the peak is reported"),
    "network.peers.#.ports.#.port": ("network.ports", SHOWN),
    "network.port_range": ("network.ports", SHOWN),
    "port.listening": ("rendezvous.port", "the others connected to it"),
    "port.peers": ("rendezvous.port", "the other side received it"),
    "port.peers.#.index": ("rendezvous.port", "the other side received it"),
    "port.peers.#.address": ("rendezvous.port", SHOWN),
    "port.peers.#.clock_skew_s": ("rendezvous.port", SHOWN),
    "port.peers.#.outbound_seconds": ("rendezvous.port", SHOWN),
    "rdma.devices": ("nccl.* topology.affinity", SHOWN + "; rdma.devices does not pass"),
    "rdma.devices.#.link_layer": ("topology.affinity", "then every NIC counts; rdma.devices does not pass"),
    "perftest.gpu_memory": ("rdma.bandwidth", "it is a note"),
    "perftest.left_out": ("rdma.bandwidth", "every NIC of the pods has a write each way"),
    "perftest.tool": ("rdma.bandwidth", SHOWN),
    "perftest.writes.#.far": ("rdma.bandwidth", "a rate above the floor was reached from either socket"),
    "perftest.writes.#.memory": ("rdma.bandwidth", "the default is host memory"),
    "rdma.devices.#.board": ("rdma.devices", SHOWN),
    "rdma.devices.#.fw": ("rdma.devices", SHOWN),
    "rdma.devices.#.gids*": ("rdma.devices", "no NCCL_IB_GID_INDEX: NCCL chooses, and the GIDs are reported"),
    "rdma.devices.#.name": ("nccl.* rdma.counters topology.affinity", SHOWN + "; rdma.devices does not pass"),
    "rdma.devices.#.port": ("rdma.*", "every changed counter is judged, and its name contains the port"),
    "rdma.devices.#.rate_gbps": ("nccl.*", SHOWN),
    "rdma.devices.#.state": ("nccl.* rdma.counters", SHOWN),
    "rdma.devices.#.usable": ("rdma.*", "the number of uverbs files equals the required devices"),
    "rdma.source": ("rdma.devices", "the default is sysfs"),
    "runtime.assigned": ("runtime.gpus", "a device plugin need not report it (CDI): then the count is judged"),
    "runtime.cuda": ("runtime.uniform", NO_OTHER),
    "runtime.driver": ("runtime.uniform", NO_OTHER),
    "runtime.gpus.#.memory_mib": ("runtime.uniform", NO_OTHER),
    "runtime.gpus.#.name": ("runtime.*", SHOWN),
    "runtime.gpus.#.vbios": ("runtime.uniform", NO_OTHER),
    "runtime.gpus.#.ecc_uncorrected_volatile": ("runtime.health", ABSENT + "; a note says so"),
    "runtime.gpus.#.fabric_health": ("runtime.fabric", ABSENT),
    "runtime.gpus.#.fabric_state": ("runtime.fabric", "its status is reported"),
    "runtime.gpus.#.fabric_status": ("runtime.fabric", "its state is reported"),
    "runtime.gpus.#.index": ("runtime.*", SHOWN),
    "runtime.gpus.#.mig": ("runtime.gpus", ABSENT),
    "runtime.gpus.#.mig_devices": ("runtime.gpus", "the mode is reported"),
    "runtime.gpus.#.persistence": ("runtime.health", SHOWN),
    "runtime.gpus.#.recovery_action": ("runtime.health", "nvidia-smi prints None if no action is needed"),
    "runtime.gpus.#.remap_failure": ("runtime.health", ABSENT),
    "runtime.gpus.#.remap_pending": ("runtime.health", ABSENT),
    "runtime.gpus.#.retired_pending": ("runtime.health", ABSENT),
    "runtime.gpus.#.throttle": ("runtime.health", SHOWN),
    "runtime.gpus.#.uuid": ("runtime.gpus", "the count is judged"),
    "runtime.kind": ("runtime.gpus", "the default is nvidia"),
    "runtime.nvidia_smi.error": ("runtime.gpus", "the exit code is reported"),
    "runtime.nvidia_smi.listed": ("runtime.gpus", "the exit code is reported"),
    "runtime.nvidia_smi.name": ("runtime.gpus", SHOWN),
    "runtime.xid": ("runtime.health", "most pods may not read the kernel's log"),
    "start.env": ("rendezvous.port", SHOWN),
    "start.hostname": ("nccl.*", SHOWN),
    "start.memory_max": ("runtime.limits", SHOWN),
    "start.pod_ip": (
        "network.* rendezvous.dns",
        "the probe of the peer compared it, and eth0 is the pod's own interface",
    ),
    "storage.burst.*": ("storage.checkpoint", SHOWN),
    "storage.paths.#.entries": ("storage.paths", "it may be a file, and data was read"),
    "storage.paths.#.fs": ("storage.paths storage.locks", SHOWN),
    "storage.paths.#.options": ("storage.locks", SHOWN),
    "storage.paths.#.*.freed_s": ("storage.locks", SHOWN),
    "storage.paths.#.read_mb_s": ("storage.*", SHOWN + "; the profile has no rate for the last path"),
    "storage.paths.#.write_mb_s": ("storage.*", SHOWN + "; the profile has no rate for the last path"),
    "storage.paths.#.name": ("storage.shared storage.rate", "the last path is not shared and has no rate"),
    "storage.paths.#.peer_seconds": ("storage.shared", SHOWN),
    "storage.paths.#.readonly": ("storage.paths", "it was written and read back"),
    "storage.s3.#.endpoint": ("storage.s3", SHOWN),
}
"""Field -> checks that may pass without it, with the reason; fnmatch patterns."""


class Spy(dict):
    """A part of the evidence that records which of its fields are read."""

    reads = None

    def __init__(self, fields, where):
        super().__init__({key: spied(value, (*where, key)) for key, value in fields.items()})
        self.where = where

    def get(self, key, default=None):
        """Record the read."""
        self.reads.add((*self.where, key))
        return super().get(key, default)

    def __getitem__(self, key):
        self.reads.add((*self.where, key))
        return super().__getitem__(key)

    def __contains__(self, key):
        self.reads.add((*self.where, key))
        return super().__contains__(key)


def spied(value, where):
    """Return a copy that records its reads."""
    if isinstance(value, list):
        return [spied(each, (*where, "#")) for each in value]
    return Spy(value, where) if isinstance(value, dict) and where[-1] != "nccl" else value


@functools.cache
def full():
    """Return the stages of both ranks of a healthy trial with Xids, buckets, a second interface and bridges."""
    of_ranks = json.loads(json.dumps(real()))
    of_ranks = {int(rank): stages for rank, stages in of_ranks.items()}
    for stages in of_ranks.values():
        stages["runtime"]["xid"] = [{"bus_id": "0000:1b:00", "xid": 13, "count": 1}]
        for gpu in stages["runtime"]["gpus"]:
            gpu.update(retired_pending=False, recovery_action="None", fabric_health={"summary": "Healthy"})
        second = {"name": "net1", "mtu": 9000, "addresses": ["192.168.0.1"], "up": True, "speed_mbit": 400000}
        stages["network"]["interfaces"].append(second)
        stages["storage"]["s3"] = [dict(BUCKET)]
        stages["storage"]["credentials"] = [{"env": "TOKEN", "secret": "hub", "key": "token", "present": True}]
        stages["storage"]["paths"][0] |= {"files_tried": 1, "files_bad": 0, "files_bad_named": [], "files_empty": 0}
        tried = {"endpoint": "mirror:443", "forbidden": False, "reached": True, "by": "direct", "error": None}
        stages["endpoints"] = {"tried": [tried], "error": None}
        stages["topology"]["acs"] = [{"bus_id": f"0000:00:0{n}.0", "enabled": False, "control": 0} for n in (1, 2)]
    return of_ranks


@pytest.fixture(scope="module")
def asking(tmp_path_factory):
    """Return that trial's profile, with every optional check of evidence enabled."""
    text = yaml.safe_load((PLACE / "profile.yaml").read_text())
    text["storage"] |= {"s3": [{"uri": "s3://bucket"}], "source": "a test"}
    text["storage"]["credentials"] = [{"env": "TOKEN", "secret": "hub", "key": "token"}]
    text["storage"]["paths"][0]["files"] = ["a"]
    text["storage"]["paths"][1] |= {"write_mb_s": 1, "read_mb_s": 1, "files_s": 1, "locks": True}
    text |= {"runtime": {"persistence": True}, "network": {"secondary_mtu": 9000, "source": "a test"}}
    text["network"]["endpoints"] = {"reachable": ["mirror:443"]}
    text["topology"] = {"acs_off": True, "source": "a test"}
    place = tmp_path_factory.mktemp("profile") / "all.yaml"
    place.write_text(yaml.safe_dump(text))
    return load_profile(str(place))


@pytest.fixture(scope="module")
def read(asking):
    """Return check -> fields that it reads, the results of the log reader's parts, and the whole evidence."""
    evidence = {rank: arrived(rank, stages) for rank, stages in full().items()}
    jobs = judged(asking, SimpleNamespace(evidence=evidence))
    watched = {
        rank: replace(each, stages={name: spied(data, (name,)) for name, data in each.stages.items()})
        for rank, each in evidence.items()
    }
    reads, Spy.reads = {}, set()
    for check, how in ended(watched, asking, jobs):
        assert how == "passed" or check == "images.pulled", (check, how)
        reads[check], Spy.reads = Spy.reads, set()
    return reads, jobs, evidence


@functools.cache
def needed():
    """Return check -> the checks without which it is not judged."""
    own = {}
    for check, function in checks():
        mark = next(mark for mark in function.pytestmark if mark.name == "check")
        own[check] = {*mark.kwargs.get("requires", ())}
    for _ in own:
        own = {check: above.union(*(own.get(each, ()) for each in above)) for check, above in own.items()}
    return own


def fields(value, where):
    """Yield every field below a path, and whether it is a list."""
    if isinstance(value, dict) and where[-1] not in MAPS:
        for key, each in value.items():
            yield (*where, key), isinstance(each, list)
            yield from fields(each, (*where, key)) if key != "nccl" else ()
    elif isinstance(value, list):
        for each in value:
            yield from fields(each, (*where, "#"))


def without(stages, field, empty, *, last):
    """Return a rank's stages without a field (null, or an empty list); with ``last`` only in the last entry."""

    def take(at, way):
        if way[0] == "#":
            for each in at[-1:] if last else at:
                take(each, way[1:])
        elif way[1:] and at.get(way[0]) is not None:
            take(at[way[0]], way[1:])
        elif not way[1:] and at.get(way[0]) is not None:
            at[way[0]] = [] if empty else None

    data = json.loads(json.dumps(stages[field[0]]))
    take(data, field[1:])
    return {**stages, field[0]: data}


def may_pass(field, check):
    """Say whether a check may pass without a field."""
    named = [checks.split() for where, (checks, _) in OPTIONAL.items() if fnmatchcase(field, where)]
    return any(fnmatchcase(check, each) for patterns in named for each in patterns)


STAGES = ["start", "runtime", "rdma", "topology", "dns", "port", "network", "perftest", "storage", "dcgm"]


@pytest.mark.parametrize("stage", [*STAGES, "collective.default", "collective.node"])
@pytest.mark.parametrize("ranks", [(0, 1), (0,)], ids=["of all ranks", "of one rank"])
def test_what_is_left_out_is_no_pass(asking, read, stage, ranks):
    """A null raises no fault, either; an empty list may be the correct value."""
    by_check, jobs, whole = read
    known = sorted(set(fields(full()[0][stage], (stage,))))
    silent, accused = [], []
    for field, listed in known:
        readers = {check for check, each in by_check.items() if field in each}
        for empty in (False, True) if listed else (False,):
            if not readers:
                continue
            stages = {rank: full()[rank] for rank in (0, 1)}
            for rank in ranks:
                stages[rank] = without(stages[rank], field, empty, last=len(ranks) == 1)
            heard = {rank: arrived(rank, {stage: each[stage]}) for rank, each in stages.items()}
            assert not any(each.problem for each in heard.values())
            if all(heard[rank].stages[stage] == each.stages[stage] for rank, each in whole.items()):
                continue  # nothing of it is known in a healthy trial
            evidence = {
                rank: replace(each, stages={**each.stages, **heard[rank].stages}) for rank, each in whole.items()
            }
            outcome_of = dict(ended(evidence, asking, jobs))
            blocked = {
                check
                for check in outcome_of
                if any(outcome_of.get(above, "passed") != "passed" for above in needed()[check])
            }
            where = ".".join(field)
            silent += [
                (where, check)
                for check in readers - blocked
                if outcome_of[check] == "passed" and by_check[check] and not may_pass(where, check)
            ]
            accused += [(where, check) for check in outcome_of if outcome_of[check] == "failed" and not empty]
    assert (sorted(set(silent)), accused) == ([], [])


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", ["ring", "default", "sendrecv", "alltoall", "node"])
def test_a_log_that_is_left_out_is_no_pass(asking, read, name, rank):
    """Without NCCL's log of a rank, the check that needs it does not pass."""
    stages = {each: full()[each] for each in (0, 1)}
    stages[rank] = without(stages[rank], ("collective." + name, "nccl"), False, last=False)
    heard = arrived(rank, {"collective." + name: stages[rank]["collective." + name]})
    evidence = {**read[2], rank: replace(read[2][rank], stages={**read[2][rank].stages, **heard.stages})}
    outcome_of = dict(ended(evidence, asking, None))
    need = ("nccl.completed-node", "nccl.intra-node") if name == "node" else ("nccl.completed", "nccl.transport")
    assert "failed" not in outcome_of.values()
    assert "unknown" in [outcome_of[check] for check in need]
