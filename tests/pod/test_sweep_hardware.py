"""A node's NICs and GPUs, and its GPU clocks: read by the pod of a sweep."""

import contextlib
import os
import socket
import threading
from types import SimpleNamespace

import pytest

from jobs.pod.stages import hardware
from jobs.pod.stages.coordinator import LONGEST_RESULT
from jobs.pod.stages.fleettest import MOST_ROWS
from jobs.pod.stages.hardware import MOST_GPUS, MOST_NICS
from jobs.pod.stages.messages import NoAnswerError, Peer
from tests.waiting import HANG_S, until

XML = """<?xml version="1.0" ?>
<nvidia_smi_log><driver_version>580.95.05</driver_version><attached_gpus>1</attached_gpus>
<gpu id="00000000:1B:00.0"><uuid>GPU-aa</uuid><serial>165000</serial>
<clocks><sm_clock>{mhz} MHz</sm_clock></clocks>
<clocks_event_reasons><clocks_event_reason_hw_thermal_slowdown>{slow}</clocks_event_reason_hw_thermal_slowdown>
</clocks_event_reasons></gpu></nvidia_smi_log>"""


def vpd(*fields, tag=0x90):
    """Return a card's vital product data: a name, then fields such as its serial number."""
    body = b"".join(name + bytes([len(value)]) + value for name, value in fields)
    name = b"ConnectX-7"
    return b"\x82%c\x00%s" % (len(name), name) + bytes([tag, len(body), 0]) + body + b"\x78"


@pytest.mark.parametrize(
    ("data", "serial"),
    [
        (vpd((b"PN", b"MCX75310AAS"), (b"SN", b"MT2231X00001   ")), "MT2231X00001"),
        (vpd((b"PN", b"MCX75310AAS")), ""),
        (vpd((b"SN", b"two words")), ""),
        (vpd((b"SN", b"\xff\xfe")), ""),
        (vpd((b"SN", b"MT1"), tag=0x91), ""),
        (vpd((b"SN", b"MT2231X00001"))[:20], ""),
        (b"\x82\xff\xff", ""),
        (b"\x00" * 4096, ""),
        (b"", ""),
    ],
)
def test_a_cards_serial_number_is_read_from_its_own_data(tmp_path, data, serial):
    """An invalid serial number is not read from any bytes."""
    pci = tmp_path / "sys/devices/pci0000:9a/0000:9a:00.0"
    device = tmp_path / "sys/class/infiniband/mlx5_3"
    pci.mkdir(parents=True)
    device.mkdir(parents=True)
    (device / "device").symlink_to(os.path.relpath(pci, device))
    (device / "node_guid").write_text("c3f7:1b2c:d4bf:e596\n")
    (pci / "vpd").write_bytes(data)
    known = {"serial": serial} if serial else {"guid": "c3f7:1b2c:d4bf:e596"}
    assert hardware.nics(str(tmp_path)) == {"mlx5_3": {"pci": "0000:9a:00.0", **known}}


def test_a_machine_without_cards_has_none(tmp_path):
    assert hardware.nics(str(tmp_path)) == {}


@pytest.fixture
def clocks(tmp_path, monkeypatch):
    """Return clocks of a simulated nvidia-smi; its script reads the number of calls from `asked`."""
    monkeypatch.setattr(hardware, "PERIOD_S", 0.05)
    monkeypatch.setattr(hardware, "QUERY_S", HANG_S)
    monkeypatch.setattr(hardware, "LAST_S", HANG_S)

    def made(script):
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\ncd {tmp_path}\necho x >> asked\n{script}")
        tool.chmod(0o755)
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        return hardware.Clocks(env, SimpleNamespace(stopped=threading.Event().is_set))

    return made


def test_the_clocks_are_those_before_during_and_after(clocks, tmp_path):
    """A short throttling is reported even if it is over at the end."""
    for name, mhz, slow in (("1", 345, "Not Active"), ("2", 1185, "Active"), ("3", 1980, "Not Active")):
        (tmp_path / name).write_text(XML.format(mhz=mhz, slow=slow))
    watch = clocks("n=$(wc -l < asked); [ $n -gt 3 ] && n=3; cat $n\n")
    watch.start()
    asked = tmp_path / "asked"
    until(lambda: asked.exists() and len(asked.read_text().split()) >= 3, "three answers")
    (gpu,) = watch.end()
    assert gpu == {
        "uuid": "GPU-aa",
        "serial": "165000",
        "index": 0,
        "throttle": ["hw_thermal_slowdown"],
        "mhz": [345, 1185, 1980],
    }


@pytest.mark.parametrize("script", ["sleep 6000\n", "exit 9\n", "echo garbage\n"])
def test_a_tool_that_hangs_or_says_nothing_costs_a_moment(clocks, script, monkeypatch):
    """The clocks are then unknown, and the test continues."""
    monkeypatch.setattr(hardware, "QUERY_S", 1.0)
    monkeypatch.setattr(hardware, "LAST_S", 1.0)
    watch = clocks(script)
    watch.start()
    assert watch.end() == []


def test_without_the_tool_nothing_is_asked(tmp_path):
    watch = hardware.Clocks({"PATH": str(tmp_path)}, SimpleNamespace(stopped=lambda: False))
    watch._tool = None
    watch.start()
    assert watch.end() == []


def test_all_that_can_be_said_of_a_nodes_hardware_fits_into_a_message():
    """Sixteen GPUs throttled for every reason, and as many NICs; an unknown sender is limited."""
    reasons = [f"a_reason_that_is_quite_long_{n}" for n in range(10)]
    gpu = {"index": 15, "uuid": "GPU-" + "a" * 36, "serial": "1" * 20, "throttle": reasons, "mhz": [1980.5] * 3}
    card = {"pci": "00000000:ff:00.0", "serial": "M" * 40}
    said = {
        "seatrial": 1,
        "kind": "result",
        "id": 2,
        "rows": [[1 << 34, 480.123, 0]] * MOST_ROWS,
        "rails": [46.123] * 64,
    }
    said["hardware"] = {"gpus": [gpu] * MOST_GPUS, "cards": {"m" * 38 + str(n): card for n in range(MOST_NICS)}}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        threading.Thread(target=Peer(theirs).say, args=(said,), daemon=True).start()
        peer = Peer(ours)
        peer.most = LONGEST_RESULT
        assert peer.next(5) == said
    ours, theirs = socket.socketpair()
    with ours, theirs:
        threading.Thread(target=suppressed, args=(theirs, said), daemon=True).start()
        with pytest.raises(NoAnswerError):
            Peer(ours).next(5)


def suppressed(line, said):
    with contextlib.suppress(OSError):
        Peer(line).say(said)
