"""The pod's limits, devices and RDMA ports, read from a synthetic /proc and /sys."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from jobs.pod.stages import gpus, host, rdma
from jobs.pod.stages.deadline import Watch
from seatrial.logs.reader import redact

if TYPE_CHECKING:
    from pathlib import Path


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def port(name: str, **changes: str) -> dict[str, str]:
    """Create the sysfs files of one port of an NDR InfiniBand card."""
    base = f"sys/class/infiniband/{name}/ports/1/"
    files = {
        "state": "4: ACTIVE\n",
        "phys_state": "5: LinkUp\n",
        "rate": "400 Gb/sec (4X NDR)\n",
        "link_layer": "InfiniBand\n",
        "gids/0": "fe80:0000:0000:0000:a088:c203:0073:7dda\n",
        "gids/1": "0000:0000:0000:0000:0000:0000:0000:0000\n",
        "pkeys/0": "0xffff\n",
        "pkeys/1": "0x0000\n",
        "counters/port_rcv_data": "1000\n",
        **changes,
    }
    return {base + key: text for key, text in files.items()}


def test_rdma_ports_are_read_in_natural_order(tmp_path: Path) -> None:
    """The record has the node's devices and the pod's uverbs files, with mlx5_2 before mlx5_10."""
    put(tmp_path, {**port("mlx5_10"), **port("mlx5_2"), "dev/infiniband/uverbs0": "", "dev/infiniband/rdma_cm": ""})
    data: dict = {}
    rdma.read(data, root=str(tmp_path))
    assert [device["name"] for device in data["devices"]] == ["mlx5_2", "mlx5_10"]
    assert data["devices"][0] == {
        "name": "mlx5_2",
        "port": 1,
        "state": "ACTIVE",
        "phys_state": "LinkUp",
        "rate_gbps": 400.0,
        "link_layer": "InfiniBand",
        "gid": True,
        "gids": [{"index": 0, "gid": "fe80:0000:0000:0000:a088:c203:0073:7dda", "type": None}],
        "pkeys": ["0xffff"],
        "lid": None,
        "sm_lid": None,
        "netdev": None,
        "mtu": None,
        "fw": None,
        "board": None,
        "counters": 1,
        "errors": {},
        "usable": None,
    }
    assert data["uverbs"] == ["uverbs0"]
    assert data["error"] is None


def test_a_sick_port_is_reported_as_it_is(tmp_path: Path) -> None:
    """INIT (no subnet manager), no GID, an unreadable rate: reported as they are."""
    put(
        tmp_path,
        port("mlx5_0", state="2: INIT", rate="garbage", **{"gids/0": "0000:0000:0000:0000:0000:0000:0000:0000"}),
    )
    data: dict = {}
    rdma.read(data, root=str(tmp_path))
    (device,) = data["devices"]
    assert (device["state"], device["rate_gbps"], device["gid"]) == ("INIT", None, False)


def test_no_rdma_is_an_answer(tmp_path: Path) -> None:
    """A pod without RDMA devices has empty lists and no error."""
    data: dict = {}
    rdma.read(data, root=str(tmp_path), env={"PATH": str(tmp_path)})
    assert data == {"devices": [], "uverbs": [], "source": "sysfs", "error": None}


def test_counter_differences_show_what_moved(tmp_path: Path) -> None:
    """Only counters that grew are reported; one that was reset is omitted."""
    put(tmp_path, port("mlx5_0", **{"hw_counters/out_of_sequence": "7"}))
    before = rdma.counters(str(tmp_path))
    put(tmp_path, port("mlx5_0", **{"counters/port_rcv_data": "5000", "hw_counters/out_of_sequence": "0"}))
    assert rdma.difference(before, rdma.counters(str(tmp_path))) == {"mlx5_0/1/port_rcv_data": 4000}


@pytest.mark.parametrize(
    ("files", "memory", "cpu"),
    [
        ({"sys/fs/cgroup/memory.max": "max", "sys/fs/cgroup/cpu.max": "max 100000"}, -1, None),
        ({"sys/fs/cgroup/memory.max": "1073741824", "sys/fs/cgroup/cpu.max": "250000 100000"}, 1 << 30, 2.5),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, -1, None),
        (
            {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "4096",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            4096,
            None,
        ),
        ({}, None, None),
    ],
    ids=["v2-unlimited", "v2-limits", "v1-unlimited", "v1-limit", "unreadable"],
)
def test_limits_of_both_cgroup_versions(tmp_path: Path, files, memory, cpu) -> None:
    """-1 is "no limit", null is "unreadable"."""
    put(tmp_path, {**files, "proc/self/status": "Name:\tx\nCapEff:\t00000000a80425fb\n"})
    data: dict = {}
    host.read(data, env={}, node="n", pod_ip="", root=str(tmp_path))
    assert (data["memory_max"], data["cpu_max"], data["cap_eff"]) == (memory, cpu, "00000000a80425fb")
    assert (data["node"], data["pod_ip"], data["shm_bytes"]) == ("n", None, None)


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({"memory.max": "max", "memory.current": "4096"}, 1 << 30),
        ({"memory.max": "8192", "memory.current": "4096"}, 4096),
        ({"memory.max": str(1 << 40), "memory.current": "4096"}, 1 << 30),
        ({"memory/memory.limit_in_bytes": "8192", "memory/memory.usage_in_bytes": "9000"}, 0),
        ({}, 1 << 30),
    ],
    ids=["unlimited", "limit", "limit-above-the-node", "v1-full", "unreadable"],
)
def test_free_memory_is_that_of_the_limit_or_of_the_node(tmp_path: Path, files, free) -> None:
    """A pod without a limit is still killed when its node's memory runs out."""
    meminfo = f"MemTotal:       99999999 kB\nMemAvailable:    {(1 << 30) // 1024} kB\n"
    put(tmp_path, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    put(tmp_path, {"proc/meminfo": meminfo})
    assert host.memory_free(str(tmp_path)) == free
    assert host.memory_free(str(tmp_path / "elsewhere")) is None


def test_only_telling_variables_are_reported() -> None:
    """Conventions and fabric settings are evidence; other variables stay in the pod."""
    env = {
        "WORLD_SIZE": "2",
        "NCCL_IB_PKEY": "1",
        "NCCL_NET_AUTH_TOKEN": "abc123",
        "FI_PROVIDER": "efa",
        "UCX_TLS": "https://user:pw@host/",
        "HF_TOKEN": "hf_abcdefghijk",
        "HOME": "/root",
    }
    assert host.conventions(env) == {
        "WORLD_SIZE": "2",
        "NCCL_IB_PKEY": "1",
        "NCCL_NET_AUTH_TOKEN": "[REDACTED]",
        "FI_PROVIDER": "efa",
        "UCX_TLS": "https://[REDACTED]@host/",
    }


@pytest.mark.parametrize(
    "secret",
    [
        "nvapi-abcdefgh12345678",
        "hf_AbCdEfGhIjKlMn",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_abcdefghijklmnopqrst",
        "Bearer abcdef.12345678",
        "AWS_SECRET_ACCESS_KEY=abcdEFGH1234",
        "password: hunter2hunter2",
        "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.sig",
    ],
)
def test_credentials_in_output_are_hidden(secret: str) -> None:
    """Text that looks like a credential does not leave the pod, at any position of a line."""
    hidden = redact.redact(f"before {secret} after")
    assert re.split(r"[= ]", secret)[-1] not in hidden
    assert hidden.startswith("before ")
    assert hidden.endswith(" after")


def test_ordinary_lines_are_not_touched() -> None:
    """NCCL's own lines are unchanged."""
    line = "node0:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0> NCCL_IB_PKEY set to 1"
    assert redact.redact(line) == line


def test_device_files_depend_on_the_kind(tmp_path: Path) -> None:
    """NVIDIA's device files are listed; with the kind amd also AMD's."""
    put(tmp_path, {"nvidia10": "", "nvidia2": "", "nvidiactl": "", "kfd": "", "dri/renderD128": "", "null": ""})
    assert gpus.devices(str(tmp_path), "nvidia") == ["nvidia2", "nvidia10", "nvidiactl"]
    assert gpus.devices(str(tmp_path), "amd") == ["dri/renderD128", "kfd", "nvidia2", "nvidia10", "nvidiactl"]


def test_a_machine_without_nvidia_smi_is_an_answer(tmp_path: Path, monkeypatch) -> None:
    """On an AMD or CPU machine the tool is reported as not found, without an error of the probe."""
    monkeypatch.setattr(gpus, "PLACES", {"rocm-smi": ()})
    data = {}
    gpus.read(data, requested=8, kind="amd", env={"PATH": str(tmp_path)}, watch=Watch(10, 1), root=str(tmp_path))
    assert data["nvidia_smi"]["found"] is False
    assert "not in this pod" in data["nvidia_smi"]["error"]
    assert (data["gpus"], data["requested"]) == ([], 8)


SMI = """#!/bin/sh
case "$1" in
  -L) {listing} ;;
  --query-gpu=*) {table} ;;
  *) {whole} ;;
esac
"""
LISTING = "".join(f"echo 'GPU {n}: NVIDIA H100 80GB HBM3 (UUID: GPU-{n}-a)'; " for n in range(2))
TABLE = "".join(f"echo '{n}, GPU-{n}-a, NVIDIA H100 80GB HBM3, 580.95.05'; " for n in range(2))
FAILS = "echo 'Unknown option' >&2; exit 2"


@pytest.mark.parametrize(
    ("whole", "table", "listing", "driver", "count"),
    [
        (FAILS, TABLE, LISTING, "580.95.05", 2),
        ("echo Sat Nov 22", FAILS, LISTING, None, 2),
        (FAILS, "echo usage", FAILS, None, 0),
    ],
)
def test_where_the_whole_picture_fails_the_bare_list_is_asked_for(
    tmp_path: Path, whole: str, table: str, listing: str, driver: str | None, count: int
) -> None:
    """The number and identity of GPUs are then known, together with the error of the full query."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(SMI.format(whole=whole, table=table, listing=listing))
    tool.chmod(0o755)
    data = {}
    gpus.read(data, requested=2, kind="nvidia", env={"PATH": str(tmp_path)}, watch=Watch(30, 1), root=str(tmp_path))
    assert (len(data["gpus"]), data["driver"], data["nvidia_smi"]["listed"]) == (count, driver, count > 0)
    assert data["nvidia_smi"]["error"]
    assert [gpu["uuid"] for gpu in data["gpus"]] == [f"GPU-{n}-a" for n in range(count)]
    assert all(gpu["retired_pending"] is None for gpu in data["gpus"])
