"""The hardware of this pod and its behaviour, as the node wrote it.

The node writes it for every pod that is started, and every fake reads it; `SIM_NODE_JSON` names another file. A pod
sees only its allocated devices: `gpus` has its own, `rdma` is null without the RDMA resource.
"""

from __future__ import annotations

import json
import os
from typing import Any

PATH = "/run/sim/node.json"

# One H100 of an HGX board: default values of the fakes. Names and sizes: `nvidia-smi -q -x` of such a board; 18 NVLinks
# of 26.562 GB/s: `nvidia-smi nvlink -s`.
GPU: dict[str, Any] = {
    "name": "NVIDIA H100 80GB HBM3",
    "architecture": "Hopper",
    "memory_mib": 81559,
    "driver": "580.95.05",
    "cuda": "13.0",
    "compute": "9.0",
    "vbios": "96.00.99.00.01",
    "board_part": "692-2G520-0200-000",
    "gpu_part": "2330-885-A1",
    "device_id": "233010DE",
    "subsystem_id": "16C110DE",
    "nvlinks": 18,
    "nvlink_gbps": 26.562,
    "power_limit_w": 700,
    "fabric_state": "Completed",
    "fabric_status": "Success",
}


def path() -> str:
    """Return the path of the state; its further files are next to it."""
    return os.environ.get("SIM_NODE_JSON", PATH)


def load() -> dict[str, Any]:
    """Read this pod's hardware state.

    Without a file, the pod has no GPUs, no RDMA devices and no special behaviour.
    """
    try:
        with open(path(), encoding="utf-8") as file:
            state: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        state = {}
    state["gpu"] = dict(GPU, **state.get("gpu", {}))
    state.setdefault("gpus", [])
    state.setdefault("rdma", None)
    state.setdefault("collective", {})
    return state
