"""Synthetic inputs of the judgements: a trial, an inventory and a job document, all healthy."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest

from checks.framework.evidence import Evidence
from checks.framework.options import Options
from checks.framework.trial_spec import build_spec, trained
from checks.profiles.loader import load_profile
from jobs.cluster.facts.inventory import Inventory, Node, PodUse, Taint
from jobs.diagnosis.state import JobState, Replica
from jobs.run.evidence import RankEvidence
from tests.by_hand import Stages
from tests.checks.fabric import peer, port
from tests.checks.steps import rank as training_rank

GPU = "nvidia.com/gpu"


@pytest.fixture
def h100():
    """The profile of the simulated platform."""
    return load_profile("h100-ib")


@pytest.fixture
def whole_spec(h100):
    """Two nodes of eight GPUs, and all collectives of the acceptance."""
    return build_spec(h100, Options(), run_id="abc", namespace="team")


@pytest.fixture
def spec(whole_spec):
    """The same with only the two all_reduce runs over both nodes."""
    return replace(whole_spec, collectives=tuple(c for c in whole_spec.collectives if c.name in ("ring", "default")))


@pytest.fixture
def evidence():
    """Return empty check evidence."""
    return Evidence()


@pytest.fixture
def node():
    """Make a node: `node("a", allocatable=7)`."""

    def make(name, capacity=8, allocatable=8, *, ready=True, labels=None, taints=(), unschedulable=False, pressures=()):
        have = {} if capacity is None else {GPU: capacity}
        offer = {} if allocatable is None else {GPU: allocatable}
        return Node(
            name=name,
            labels=labels or {},
            ready=ready,
            ready_reason="KubeletNotReady: no cni",
            unschedulable=unschedulable,
            taints=tuple(Taint(*t) for t in taints),
            pressures=pressures,
            capacity=have,
            allocatable=offer,
            kernel="6.8",
            runtime="containerd://2",
            kubelet="v1.36.2",
        )

    return make


@pytest.fixture
def inventory():
    """Make an inventory: `inventory([nodes], [(namespace, pod, node, gpus, owner)])`."""

    def make(nodes, pods=(), not_seen=None):
        uses = tuple(
            PodUse(namespace=ns, name=pod, node=at, requests={GPU: n}, owner=owner, phase="Running")
            for ns, pod, at, n, owner in pods
        )
        return Inventory(nodes=tuple(nodes), pods=uses, not_seen=not_seen or {})

    return make


def gpu(index):
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "NVIDIA H100 80GB HBM3",
        "ecc_uncorrected_volatile": 0,
        "ecc_uncorrected_aggregate": 0,
        "retired_pending": None,
        "remap_pending": False,
        "remap_failure": False,
        "throttle": [],
        "fabric_state": "Completed",
        "fabric_status": "Success",
    }


def stages(rank, nodes=2):
    ip = f"10.0.{rank}.5"
    other = [r for r in range(nodes) if r != rank]
    bench = {
        "name": "ring",
        "exit": 0,
        "timed_out": False,
        "stopped": None,
        "seconds": 3.2,
        "error": None,
        "output_tail": "# Avg bus bandwidth : 1",
        "nccl": {},
    }
    return {
        "start": {
            "hostname": f"seatrial-abc-{rank}",
            "pod_ip": ip,
            "shm_bytes": 16 * 2**30,
            "memlock_bytes": 65536,
            "cap_eff": "00000000a80425fb",
        },
        "runtime": {
            "nvidia_smi": {"found": True, "exit": 0, "error": ""},
            "driver": "580.95.05",
            "requested": 8,
            "gpus": [gpu(i) for i in range(8)],
        },
        "dns": {
            "peers": [
                {
                    "index": p,
                    "addresses": [f"10.0.{p}.5"],
                    "seconds_to_first_answer": 0.2,
                    "attempts": 1,
                    "first_error": None,
                    "error": None,
                    "pod_ip_matches": True,
                }
                for p in range(nodes)
            ]
        },
        "port": {
            "port": 29500,
            "listening": True,
            "error": None,
            "peers": [
                {
                    "index": p,
                    "address": f"10.0.{p}.5",
                    "outbound": True,
                    "outbound_seconds": 0.001,
                    "outbound_error": None,
                    "inbound": True,
                    "clock_skew_s": 0.01,
                }
                for p in other
            ],
        },
        "collective.ring": dict(bench),
        "collective.default": dict(bench, name="default"),
        "collective.sendrecv": dict(bench, name="sendrecv", op="sendrecv"),
        "collective.alltoall": dict(bench, name="alltoall", op="all_to_all"),
        "collective.node": dict(bench, name="node", scope="node"),
        "end": {"seconds": 9.0},
    }


@pytest.fixture
def trial():
    """Two healthy ranks on gpu-node-0 and gpu-node-1."""
    replicas = tuple(
        Replica(index=i, pod=f"seatrial-abc-{i}-x", node=f"gpu-node-{i}", phase="Succeeded", exit_code=0)
        for i in range(2)
    )
    ranks = {i: RankEvidence(rank=i, stages=Stages(stages(i)), complete=True, lines=12) for i in range(2)}
    return SimpleNamespace(
        job="seatrial-abc",
        state=JobState.COMPLETE,
        replicas=replicas,
        analysis=None,
        evidence=ranks,
        logs={},
        pods=(),
        seconds=12.0,
        attempts=1,
        interrupted=(),
    )


def table(ring, op="all_reduce", top=None):
    top = top or (386.0 if ring else 467.0)
    rows = []
    for power in range(20, 34):
        busbw = top * (1 - 0.5 ** (power - 19))
        side = {"time_us": 1.0, "algbw_gbps": busbw / 1.875, "busbw_gbps": busbw, "wrong": 0}
        rows.append({"size_bytes": 2**power, "out_of_place": dict(side), "in_place": dict(side)})
    return {
        "collective": op,
        "algorithm": None,
        "rows": rows,
        "complete": True,
        "out_of_bounds": 0,
        "avg_busbw": 250.0,
        "checked": True,
    }


def document(ring):
    hosts = ("seatrial-abc-0", "seatrial-abc-1")
    devices = [f"mlx5_{i}" for i in range(8)]
    return {
        "inter_node_transport": "ib",
        "gdr": True,
        "socket_fallback": False,
        "mixed": False,
        "ranks": 16,
        "nodes": 2,
        "hang": False,
        "crash": False,
        "truncated": False,
        "evidence_shown": True,
        "sharp": None,
        "faults": [],
        "sentence": "16 ranks on 2 nodes over InfiniBand with GPUDirect RDMA.",
        "advice": "",
        "tables": [table(ring)],
        "avg_busbw": 250.0,
        "nccl_version": "2.27.7+cuda12.8",
        "env": {},
        "intra_node": {"p2p": 128, "shm": 0, "mnnvl": 0, "net": 0, "nvls": None},
        "pairs": [
            {
                "src": a,
                "dst": b,
                "direction": "both",
                "transports": {"ib": 16},
                "devices": devices,
                "gdr": True,
                "pxn": False,
            }
            for a, b in (hosts, hosts[::-1])
        ],
        "hosts": [
            {
                "name": h,
                "ranks": list(range(8)),
                "connected": list(range(8)),
                "rails": {str(i): [d] for i, d in enumerate(devices)},
            }
            for h in hosts
        ],
    }


@pytest.fixture
def jobs():
    """The job documents of a healthy trial, by collective."""
    return copy.deepcopy({"ring": document(ring=True), "default": document(ring=False)})


@pytest.fixture
def all_jobs(jobs):
    """The job documents of all collectives over both nodes."""
    documents = dict(jobs)
    for name, op, top in (("sendrecv", "sendrecv", 47.0), ("alltoall", "all_to_all", 80.0)):
        documents[name] = dict(document(ring=True), tables=[table(ring=True, op=op, top=top)])
    return copy.deepcopy(documents)


@pytest.fixture
def node_jobs():
    """The single-node measurements of each node, by rank."""
    transports = {"p2p": 128, "shm": 0, "mnnvl": 0, "net": 0, "nvls": True}
    job = dict(document(ring=False), ranks=8, nodes=1, pairs=[], intra_node=transports, env={})
    job["tables"] = [table(ring=False, top=479.0)]
    return {rank: copy.deepcopy(job) for rank in (0, 1)}


@pytest.fixture
def bad():
    """Reduce findings to those that are not ok: [(subject, fault)]."""
    return lambda findings: [(f.subject, f.fault) for f in findings if f.ok is not True]


@pytest.fixture
def world(trial):
    """The healthy trial with the results of the probe's fabric stages."""
    for rank, rank_evidence in trial.evidence.items():
        address = f"10.0.{rank}.5"
        rank_evidence.stages["network"] = {
            "interfaces": [{"name": "eth0", "mtu": 1500, "addresses": [address], "up": True}],
            "port_range": [32768, 60999],
            "peers": [peer(1 - rank)],
            "error": None,
        }
        rank_evidence.stages["rdma"] = {
            "devices": [port(rail, rank) for rail in range(8)],
            "source": "sysfs",
            "error": None,
            "uverbs": [f"uverbs{n}" for n in range(8)],
        }
        paths = [
            {"gpu": g, "nic": f"mlx5_{n}", "path": "PIX" if g == n else "NODE"} for g in range(8) for n in range(8)
        ]
        rank_evidence.stages["topology"] = {
            "paths": paths,
            "rows": [f"GPU{g} NUMA 0 | | PIX" for g in range(8)],
            "acs": None,
        }
        moved = {f"mlx5_{n}/1/port_xmit_data": 10**9 for n in range(8)}
        for name in ("ring", "default", "sendrecv", "alltoall", "node"):
            some = {} if name == "node" else {"mlx5_0/1/port_xmit_data": 10**9}
            rank_evidence.stages["collective." + name]["rdma_counters"] = moved if name == "ring" else some
    return trial


@pytest.fixture
def trained_trial(trial):
    """A trial with sixteen ranks that trained correctly."""
    for node, evidence in trial.evidence.items():
        evidence.stages["training"] = {
            "skipped": None,
            "exit": 0,
            "timed_out": False,
            "stopped": None,
            "error": None,
            "output_tail": "",
            "ranks": [training_rank(node * 8 + local, local) for local in range(8)],
            "samples": [],
            "gpus": [{"index": local, "name": "H100", "throttle": [], "remap_failure": False} for local in range(8)],
            "xid": [],
            "rdma_counters": {"mlx5_0/1/port_xmit_data": 10**9},
        }
    return trial


@pytest.fixture
def training_spec(spec):
    return trained(spec, 0)
