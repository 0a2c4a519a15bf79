"""The probe's facts about RDMA devices, PCI topology and the pod network."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import stat
import struct
from typing import TYPE_CHECKING

import pytest

from jobs.pod.stages import network, pathmtu, rdma, topology, transfer
from jobs.pod.stages.deadline import Watch
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_bond_0
"""


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


# -- RDMA


def card(root: Path, name: str, place: str) -> None:
    """Create a NIC with one port, its verbs file and its place in the PCI tree."""
    base = f"sys/class/infiniband/{name}"
    put(
        root,
        {
            f"{base}/ports/1/state": "4: ACTIVE",
            f"{base}/ports/1/rate": "400 Gb/sec (4X NDR)",
            f"{base}/ports/1/link_layer": "Ethernet",
            f"{base}/ports/1/lid": "0x0",
            f"{base}/ports/1/sm_lid": "0x1",
            f"{base}/ports/1/gids/0": "fe80:0000:0000:0000:0000:0000:0000:0001",
            f"{base}/ports/1/gids/3": "0000:0000:0000:0000:0000:ffff:c0a8:0105",
            f"{base}/ports/1/gid_attrs/types/3": "RoCE v2",
            f"{base}/ports/1/gid_attrs/ndevs/3": "net1",
            f"{base}/ports/1/pkeys/0": "0x7fff",
            f"{base}/ports/1/pkeys/1": "0x8012",
            f"{base}/ports/1/counters/link_downed": "2",
            f"{base}/ports/1/counters/port_rcv_data": "5",
            f"{base}/fw_ver": "28.43.2026",
            f"{base}/board_id": "MT_0000000838",
            f"sys/devices/{place}/net/net1/mtu": "9000",
            f"sys/devices/{place}/numa_node": "1",
        },
    )
    (root / base / "device").symlink_to(root / "sys/devices" / place)


def test_a_port_shows_its_addresses_partition_firmware_and_history(tmp_path: Path) -> None:
    """A port's record has GIDs with type and interface, P_Keys by index, LIDs, firmware, the interface's MTU, and
    errors since boot."""
    card(tmp_path, "mlx5_0", "pci0000:15/0000:15:01.0/0000:1a:00.0")
    put(tmp_path, {"sys/class/infiniband_verbs/uverbs4/ibdev": "mlx5_0", "dev/infiniband/uverbs4": ""})
    data = {}
    rdma.read(data, root=str(tmp_path))
    (port,) = data["devices"]
    assert port["gids"][1] == {"index": 3, "gid": "0000:0000:0000:0000:0000:ffff:c0a8:0105", "type": "RoCE v2"}
    assert (port["pkeys"], port["lid"], port["sm_lid"]) == (["0x7fff", "0x8012"], 0, 1)
    assert (port["fw"], port["board"], port["netdev"], port["mtu"]) == ("28.43.2026", "MT_0000000838", "net1", 9000)
    assert (port["counters"], port["errors"], port["usable"]) == (2, {"link_downed": 2}, True)


def test_a_device_without_its_verbs_file_is_not_usable(tmp_path: Path) -> None:
    """sysfs shows every device of the node; the uverbs files belong to the pod."""
    card(tmp_path, "mlx5_0", "pci0000:15/0000:1a:00.0")
    card(tmp_path, "mlx5_1", "pci0000:3d/0000:42:00.0")
    put(
        tmp_path,
        {
            "sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0",
            "sys/class/infiniband_verbs/uverbs1/ibdev": "mlx5_1",
            "dev/infiniband/uverbs1": "",
        },
    )
    data = {}
    rdma.read(data, root=str(tmp_path))
    assert [(port["name"], port["usable"]) for port in data["devices"]] == [("mlx5_0", False), ("mlx5_1", True)]


IBV = """hca_id:\tmlx5_0
\ttransport:\t\t\tInfiniBand (0)
\tfw_ver:\t\t\t\t28.43.2026
\tboard_id:\t\t\tMT_0000000838
\tphys_port_cnt:\t\t\t1
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_INIT (2)
\t\t\tsm_lid:\t\t\t0
\t\t\tport_lid:\t\t65535
\t\t\tlink_layer:\t\tInfiniBand
\t\t\tactive_width:\t\t4X (2)
\t\t\tactive_speed:\t\t100.0 Gbps (128)
\t\t\tGID[  0]:\t\tfe80:0000:0000:0000:a088:c203:0073:7dda
"""


def test_ibv_devinfo_is_read_where_sysfs_is_silent(tmp_path: Path) -> None:
    """ibv_devinfo's text yields the same record: state, rate from lanes and speed, link layer, address."""
    tool = tmp_path / "ibv_devinfo"
    tool.write_text("#!/bin/sh\ncat <<'END'\n" + IBV + "END\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    data = {}
    rdma.read(data, root=str(tmp_path / "nothing"), env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    (port,) = data["devices"]
    assert data["source"] == "ibv_devinfo"
    assert (port["name"], port["port"], port["state"], port["rate_gbps"]) == ("mlx5_0", 1, "INIT", 400.0)
    assert (port["link_layer"], port["gid"], port["fw"]) == ("InfiniBand", True, "28.43.2026")


def test_ibv_devinfo_may_say_anything() -> None:
    """Text without a device list yields no device."""
    assert rdma.devinfo_ports("No IB devices found\n\x00:::\nport:\n") in ([], rdma.devinfo_ports("port:"))


# -- topology


def test_the_matrix_names_cards_by_their_legend() -> None:
    """NIC0 is mlx5_0; escape sequences, the affinity columns and empty cells are ignored."""
    text = "\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    text += "GPU0\t X \tNV18\tPIX\tSYS\t0-47,96-143\t0\t\tN/A\nGPU1\tNV18\t X \tNODE\tSYS\t0-47\t0\t\tN/A\n"
    text += "NIC0\tPIX\tNODE\t X \tSYS\t\t\t\t\n" + LEGEND
    links = topology.parse(text)
    assert links["GPU0", "mlx5_0"] == "PIX"
    assert links["GPU1", "mlx5_bond_0"] == "SYS"
    assert links["GPU0", "GPU1"] == "NV18"
    assert ("GPU0", "GPU0") not in links


def test_a_matrix_of_an_old_driver_has_device_names() -> None:
    """An old driver calls columns mlx5_0, and copied text has spaces instead of tabs."""
    text = "        GPU0    GPU1    mlx5_0  mlx5_1  CPU Affinity\nGPU0     X      NV6     PIX     PXB     0-23\n"
    text += "GPU1    NV6      X      PXB     PIX     0-23\nmlx5_0  PIX     PXB      X      PHB\n"
    links = topology.parse(text)
    assert (links["GPU0", "mlx5_1"], links["GPU1", "mlx5_1"], links["mlx5_0", "mlx5_1"]) == ("PXB", "PIX", "PHB")


@pytest.mark.parametrize("text", ["", "No devices were found", "GPU0\t X\n", "\x00\t\t\n" * 9])
def test_what_is_no_matrix_has_no_links(text: str) -> None:
    """Neither an error message nor arbitrary text is a topology."""
    assert topology.parse(text) == {}


def test_a_recorded_matrix_is_read(shared: Path) -> None:
    """One H200 in a pod has a matrix of one GPU without a NIC."""
    assert topology.parse((shared / "nvidia-smi/h200-topo-m.txt").read_text()) == {}


SWITCH = ["pci0000:15", "0000:15:01.0", "0000:16:00.0"]


@pytest.mark.parametrize(
    ("one", "two", "numa", "word"),
    [
        ([*SWITCH, "0000:17:00.0", "0000:1b:00.0"], [*SWITCH, "0000:17:01.0", "0000:1a:00.0"], (0, 0), "PIX"),
        (
            [*SWITCH, "0000:17:00.0", "0000:1b:00.0"],
            [*SWITCH, "0000:17:02.0", "0000:20:00.0", "0000:21:00.0", "0000:22:00.0"],
            (0, 0),
            "PXB",
        ),
        (["pci0000:15", "0000:15:01.0", "0000:1b:00.0"], ["pci0000:15", "0000:15:02.0", "0000:20:00.0"], (0, 0), "PHB"),
        (["pci0000:15", "0000:1b:00.0"], ["pci0000:3d", "0000:42:00.0"], (0, 0), "NODE"),
        (["pci0000:15", "0000:1b:00.0"], ["pci0000:9d", "0000:a2:00.0"], (0, 1), "SYS"),
        (["pci0000:15", "0000:1b:00.0"], ["pci0000:9d", "0000:a2:00.0"], (None, 1), None),
        ([], ["pci0000:9d", "0000:a2:00.0"], (0, 1), None),
    ],
)
def test_sysfs_gives_the_same_words(one, two, numa, word) -> None:
    """If nvidia-smi shows no NIC, the PCI tree gives its distance; a hidden one remains unknown."""
    assert topology.distance(one, two, *numa) == word


def test_acs_is_read_where_the_whole_configuration_is_shown(tmp_path: Path) -> None:
    """The capability is in the extended list; 64 bytes, no list or a cycle mean unknown."""
    config = bytes(0x100) + struct.pack("<I", 0x0001 | 0x148 << 20)
    config = config.ljust(0x148, b"\0") + struct.pack("<IHH", 0x000D | 1 << 16, 0x5D, 0x001D)
    (tmp_path / "on").write_bytes(config.ljust(4096, b"\0"))
    (tmp_path / "short").write_bytes(config[:64])
    (tmp_path / "circle").write_bytes((bytes(0x100) + struct.pack("<I", 0x0001 | 0x100 << 20)).ljust(4096, b"\0"))
    assert topology.acs_control(str(tmp_path / "on")) == 0x1D
    assert topology.acs_control(str(tmp_path / "short")) is None
    assert topology.acs_control(str(tmp_path / "circle")) is None
    assert topology.acs_control(str(tmp_path / "none")) is None


def test_the_stage_works_without_any_tool(tmp_path: Path) -> None:
    """Without nvidia-smi, one GPU and one NIC in sysfs yield their distance, their NUMA nodes, and one row, without an
    error."""
    card(tmp_path, "mlx5_0", "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:1a:00.0")
    place = "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:1b:00.0"
    put(tmp_path, {f"{place}/numa_node": "0"})
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices/0000:1b:00.0").symlink_to(tmp_path / place)
    data = {}
    gpus = [{"index": 0, "bus_id": "00000000:1B:00.0"}]
    topology.read(data, runtime_gpus=gpus, env={"PATH": str(tmp_path)}, watch=Watch(60, 1), root=str(tmp_path))
    assert data["paths"] == [{"gpu": 0, "nic": "mlx5_0", "path": "PIX"}]
    assert data["gpus"] == [{"index": 0, "bus_id": "0000:1b:00.0", "numa": 0}]
    assert data["rows"] == ["GPU0 NUMA 0 |  | PIX"]
    assert (data["source"], data["acs"], data.get("error")) == ("sysfs", None, None)


# -- network

TOKEN = pathmtu.token_of("run")


def record() -> dict:
    return network._blank(1, "127.0.0.1")


def test_a_whole_packet_is_echoed() -> None:
    """On the loopback the largest packet fits, and the measurement equals the kernel's value."""
    echo, result = pathmtu.Echo("127.0.0.1", TOKEN), record()
    pathmtu.measure(result, "127.0.0.1", echo.port, TOKEN, lambda: False)
    echo.close()
    assert result["df_ok"] is True
    assert result["path_mtu"] == result["first_mtu"] == result["learned_mtu"] > 1500


def test_an_echo_answers_its_own_run_only() -> None:
    """Packets of other senders get no answer, so the echo cannot be abused."""
    echo, result = pathmtu.Echo("127.0.0.1", TOKEN), record()
    pathmtu.measure(result, "127.0.0.1", echo.port, pathmtu.token_of("another"), lambda: False)
    echo.close()
    assert result["path_mtu"] is None
    assert "no answer to UDP" in result["mtu_error"]


def test_bytes_are_counted_by_the_side_that_gets_them() -> None:
    """A tenth of a second over the loopback yields bytes, seconds and a rate, in the requested time."""
    listeners = transfer.Listeners("127.0.0.1", TOKEN, ())
    assert len(listeners.ports) == 4
    first, last = transfer.local_range()
    assert all(first <= port <= last for port in listeners.ports)
    line, error = transfer.dial("127.0.0.1", listeners.ports[0], TOKEN)
    assert error is None
    with line:
        counted = transfer.send(line, 0.15)
    listeners.close()
    assert counted["bytes"] > 1 << 20
    assert counted["peak_gbit_s"] > 0.1
    assert counted["seconds"] < 5


def test_what_lay_there_before_is_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader without CPU time finds its buffer full: these bytes did not arrive in the slice of the read."""
    monkeypatch.setattr(transfer, "SLICE_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sender:
        line, _ = server.accept()
        with line:
            sender.sendall(bytes(100_000))
            sender.shutdown(socket.SHUT_WR)
            until(lambda: transfer._unread(line) == 100_000, "all of it")
            counted = transfer._count(line)
    assert counted["bytes"] == 100_000
    assert counted["peak_gbit_s"] == 0


def test_the_kernel_shows_how_long_a_cpu_was_waited_for(tmp_path: Path) -> None:
    """The second figure, in nanoseconds; without it the wait is unknown."""
    put(tmp_path, {"schedstat": "1200 2500000000 7", "short": "1"})
    assert transfer.cpu_wait_s(str(tmp_path / "schedstat")) == 2.5
    assert transfer.cpu_wait_s(str(tmp_path / "short")) is transfer.cpu_wait_s(str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    ("mean", "waits", "sendings", "peak"),
    [
        pytest.param([0.9, 0.8, 1.1], [0.2, 0.2, 0.2], 3, 1.15, id="until it is enough"),
        pytest.param([0.9, 0.7, 1.1], [0.2, 0.001, 0.2], 2, 0.95, id="until no CPU was in the way"),
        pytest.param([0.1, 1.1], [0.1, 0.2], 2, 1.15, id="the first was too short"),
        pytest.param([0.1, 0.1, 1.1], [0.1, 0.1, 0.2], 2, 0.15, id="no wait explains so little"),
        pytest.param([0.9, 0.9, 1.1], [None, None, 0.2], 2, 0.95, id="the kernel does not tell"),
        pytest.param([1.1], [0.0], 1, 1.15, id="enough at once"),
        pytest.param([0.8, 0.9, 0.8, 0.7, 0.6], [0.25] * 5, 5, 0.95, id="not for ever"),
    ],
)
def test_tcp_is_tried_again_while_a_cpu_is_in_the_way(
    monkeypatch: pytest.MonkeyPatch, mean: list, waits: list, sendings: int, peak: float
) -> None:
    """The fastest slice of all transfers is kept, and the last transfer's share of missing CPU time.

    One transfer is not enough to report a slow link; later ones last four times as long.
    """
    lasted: list[float] = []
    measured = [
        {"bytes": int(rate * 0.25e9 / 8), "seconds": 0.25, "peak_gbit_s": rate + 0.05, "cpu_wait_s": wait}
        for rate, wait in zip(mean, waits, strict=True)
    ]
    monkeypatch.setattr(transfer, "dial", lambda *_: (contextlib.closing(io.BytesIO()), None))
    monkeypatch.setattr(transfer, "send", lambda _, seconds: lasted.append(seconds) or measured.pop(0))
    result = record()
    network._throughput(result, "127.0.0.1", 1, TOKEN, 0.25, 1.0)
    assert lasted == [0.25, 1.0, 1.0, 1.0, 1.0][:sendings]
    assert result["peak_gbit_s"] == pytest.approx(peak)
    wait = waits[sendings - 1]
    assert result["cpu_wait"] == (None if wait is None else wait / 0.25)


def test_a_stranger_on_the_port_is_distinguished_from_a_peer() -> None:
    """Another program that listens there does not greet like a peer."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        line, error = transfer.dial("127.0.0.1", other.getsockname()[1], TOKEN)
    assert line is None
    assert error == "connected, but no answer"


def test_a_closed_port_is_an_answer() -> None:
    """A refused connection is reported as refused."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    assert transfer.dial("127.0.0.1", port, TOKEN) == (None, "connection refused")


def test_interfaces_are_read_from_sysfs(tmp_path: Path) -> None:
    """Name, MTU, state and speed; the loopback and other files are omitted."""
    put(
        tmp_path,
        {
            "sys/class/net/eth0/mtu": "1450",
            "sys/class/net/eth0/flags": "0x1003",
            "sys/class/net/eth0/operstate": "up",
            "sys/class/net/eth0/speed": "-1",
            "sys/class/net/lo/mtu": "65536",
            "sys/class/net/bonding_masters": "bond0",
        },
    )
    (interface,) = network.interfaces(str(tmp_path))
    assert (interface["name"], interface["mtu"], interface["up"], interface["speed_mbit"]) == ("eth0", 1450, True, None)
