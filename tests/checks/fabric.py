"""A healthy fabric as the probe of two pods reports it, and findings in short form."""

from __future__ import annotations

RDMA = "rdma/hca_shared_devices_a"


MULTUS = "k8s.v1.cni.cncf.io/networks"


def peer(index):
    return {
        "index": index,
        "address": f"10.0.{index}.5",
        "first_mtu": 1500,
        "path_mtu": 1500,
        "learned_mtu": 1500,
        "df_ok": True,
        "mtu_error": None,
        "throughput_gbit_s": 8.1,
        "peak_gbit_s": 9.4,
        "bytes": 10**9,
        "ports": [{"port": 40001, "ok": True, "error": None}, {"port": 50001, "ok": True, "error": None}],
        "error": None,
    }


def port(rail, node=0):
    return {
        "name": f"mlx5_{rail}",
        "port": 1,
        "state": "ACTIVE",
        "phys_state": "LinkUp",
        "rate_gbps": 400.0,
        "link_layer": "InfiniBand",
        "gid": True,
        "gids": [{"index": 0, "gid": f"fe80::{node}{rail}", "type": None}],
        "pkeys": ["0xffff"],
        "lid": rail,
        "sm_lid": 1,
        "fw": "28.43.2026",
        "board": "MT_0000000838",
        "counters": 20,
        "errors": {"link_downed": 3},
        "usable": True,
    }


def stage(world, rank, name):
    return world.evidence[rank].stages[name]


def faults(findings):
    return [(f.subject, f.fault) for f in findings if f.ok is False]


def unclear(findings):
    return [f.subject for f in findings if f.ok is None]
