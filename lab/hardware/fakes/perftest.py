"""Fake ib_write_bw of perftest and fi_pingpong of libfabric: one side listens, the other measures.

The output is that of published runs: the table and the settings before it (linux-rdma/perftest#234, #240 and #132), the
warning about clocks in between (#372), an error of a queue pair (#132), of a completion (#295, #342) and of a missing
NIC (perftest 6.06); fi_pingpong's table (ofiwg/libfabric#5689, and 1.17 over TCP). The world's `registry: perftest` is
the version. A NIC's `writes` defines its result: gbit_s and gpu_gbit_s, or says.
"""

from __future__ import annotations

import itertools
import json
import socket
import sys
from typing import Any

from . import state

LINE = "-" * 87
OF_RATE = 0.98  # share of the port's rate for a healthy NIC: 392 of 400 Gb/s
FLAGS = ("-d", "-i", "-q", "-s", "-D", "-x", "-p", "-S", "--tclass", "--pkey_index")
PINGED = """64      10      =10      1.2k        0.03s      0.05    1275.70       0.00
1k      10      =10      20k         0.00s     48.53      21.10       0.05
1m      10      =10      20m         0.01s   1910.12     548.96       0.00"""


def main() -> int:
    """Run `ib_write_bw -d DEVICE ... [HOST]`: without a host it listens."""
    words, world = sys.argv[1:], state.load()
    if "--help" in words:
        print("Usage:\n  ib_write_bw            start a server and wait for connection\n  -x, --gid-index=<index>")
        if "cuda" in str(world.get("perftest")):
            print("      --use_cuda=<cuda device id>  Use CUDA specific device for GPUDirect RDMA testing")
            print("      --use_cuda_dmabuf  Use CUDA DMA-BUF for GPUDirect RDMA testing")
        return 1
    given = dict(itertools.pairwise(words))
    host = words[-1] if len(words) > 1 and not words[-1].startswith("-") and words[-2] not in FLAGS else ""
    gpu = any(word.startswith("--use_cuda") for word in words)
    device = next((each for each in _devices(world) if each["name"] == given.get("-d")), None)
    if device is None:
        print(f" IB device {given.get('-d')} not found\n Unable to find the Infiniband/RoCE device", file=sys.stderr)
        return 1
    if not host:
        print(f"\n{'*' * 36}\n* Waiting for client to connect... *\n{'*' * 36}")
    try:
        theirs = _exchange(host, int(given.get("-p", 18515)), {"device": device, "gid": given.get("-x")})
    except OSError:
        print(f"Couldn't connect to {host}:{given.get('-p')}\n Unable to init the socket connection", file=sys.stderr)
        return 1
    print(_settings(device, given.get("-x")))
    says = device.get("writes", {}).get("says") or theirs["device"].get("writes", {}).get("says")
    if says:
        print(says, file=sys.stderr)
        return 1
    average = min(_writes(device, gpu), _writes(theirs["device"], gpu))
    unit = "Gb" if "--report_gbits" in words else "MB"
    print(f" #bytes     #iterations    BW peak[{unit}/sec]    BW average[{unit}/sec]   MsgRate[Mpps]")
    print("Conflicting CPU frequency values detected: 1000.000000 != 2301.000000. CPU Freq is not max.")
    shown = average if unit == "Gb" else average * 1e9 / 8 / (1 << 20)
    print(f" 1048576    93504            0.00               {shown:<7.2f}\t\t   {average / 8388.608:.6f}\n{LINE}")
    return 0


def pingpong_main() -> int:
    """Run `fi_pingpong -e rdm -p efa -d DOMAIN (-B PORT | -P PORT HOST)`."""
    words, world = sys.argv[1:], state.load()
    given = dict(itertools.pairwise(words))
    host = words[-1] if "-P" in words else ""
    device = next((each for each in _devices(world) if f"{each['name']}-rdm" == given.get("-d")), None)
    if device is None:
        print("fi_getinfo(): util/pingpong.c:1495, ret=-61 (No data available)", file=sys.stderr)
        return 61
    try:
        theirs = _exchange(host, int(given.get("-P") or given["-B"]), {"device": device})
    except OSError:
        print("[error] util/pingpong.c:408 : failed to connect: Connection refused", file=sys.stderr)
        return 111
    says = device.get("writes", {}).get("says") or theirs["device"].get("writes", {}).get("says")
    if says:
        print(says, file=sys.stderr)
        return 1
    print("bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n" + PINGED)
    return 0


def _exchange(host: str, port: int, mine: dict[str, Any]) -> dict[str, Any]:
    """Exchange a line with the other side over TCP, as perftest exchanges its queue pairs. OSError."""
    if host:
        with socket.create_connection((host, port), timeout=10) as line:
            return _swap(line, mine)
    with socket.create_server(("", port)) as listener:
        listener.settimeout(60)
        line, _ = listener.accept()
        with line:
            return _swap(line, mine)


def _swap(line: socket.socket, mine: dict[str, Any]) -> dict[str, Any]:
    with line.makefile("rw", encoding="utf-8") as text:
        text.write(json.dumps(mine) + "\n")
        text.flush()
        theirs: dict[str, Any] = json.loads(text.readline() or "{}")
    if not theirs:
        raise OSError("Couldn't read remote address")
    return theirs


def _devices(world: dict[str, Any]) -> list[dict[str, Any]]:
    return list((world.get("rdma") or {}).get("devices", []))


def _writes(device: dict[str, Any], gpu: bool) -> float:
    can = device.get("writes", {})
    plain = float(can.get("gbit_s", device["rate_gbps"] * OF_RATE))
    return min(plain, float(can.get("gpu_gbit_s", plain))) if gpu else plain


def _settings(device: dict[str, Any], gid: str | None) -> str:
    link = "IB" if device["link_layer"] == "InfiniBand" else "Ethernet"
    return "\n".join(
        [
            LINE,
            "                    RDMA_Write BW Test",
            f" Dual-port       : OFF\t\tDevice         : {device['name']}",
            " Number of qps   : 4\t\tTransport type : IB\n Connection type : RC\t\tUsing SRQ      : OFF",
            f" Mtu             : 4096[B]\n Link type       : {link}",
            *([f" GID index       : {gid}"] if gid is not None else []),
            f" rdma_cm QPs\t : OFF\n Data ex. method : Ethernet\n{LINE}",
            " local address: LID 0x02 QPN 0x0032 PSN 0x5f2841 RKey 0x002440 VAddr 0x007f2e5f64b000",
            LINE,
        ]
    )
