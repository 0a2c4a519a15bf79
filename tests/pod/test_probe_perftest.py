"""RDMA writes between neighbouring ranks: run and parse."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.pod.stages import command, perftest, railwrites, rdmaprogram
from jobs.pod.stages.deadline import Watch
from lab.hardware import sysfs
from lab.hardware.files import script
from tests.ports import free_port
from tests.waiting import until

ASKED = {"seconds": 1, "layer": "InfiniBand", "gpu": True, "limit_s": 120.0}
GUID = "a088:c203:0000:1b40"
# ib_write_bw of perftest 6.06 without a NIC, and its queue pair's failure (linux-rdma/perftest#132).
NO_DEVICE = (
    b" Did not detect devices \n If device exists, check if driver is up\n Unable to find the Infiniband/RoCE device\n"
)
TABLE = """
************************************
* Waiting for client to connect... *
************************************
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : 3
 rdma_cm QPs\t : OFF
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0108 PSN 0x63ad7d RKey 0x17eedf VAddr 0x007f760c947000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:255:255:05
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[%(unit)s/sec]    BW average[%(unit)s/sec]   MsgRate[Mpps]
Conflicting CPU frequency values detected: 1000.000000 != 2301.000000. CPU Freq is not max.
%(rows)s
---------------------------------------------------------------------------------------
"""
# fi_pingpong of libfabric 1.17 over TCP.
PINGED = """bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      10      =10      1.2k        0.11s      0.01    5272.45       0.00
1m      10      =10      20m         0.19s    110.04    9528.85       0.00
"""


class Posts:
    """Messages between a test's ranks, and the number of waits for each."""

    def __init__(self) -> None:
        self.posts: dict[tuple[int, int, str], dict[str, Any]] = {}
        self.waits = 0
        self.changed = threading.Condition()

    def of(self, rank: int) -> Any:
        """Return the barrier of one rank."""

        def post(to: int, topic: str, body: dict[str, Any]) -> bool:
            with self.changed:
                self.posts[(rank, to, topic)] = json.loads(json.dumps(body))
                self.changed.notify_all()
            return True

        def posted(topic: str, sender: int, limit_s: float) -> dict[str, Any] | None:
            key = (sender, rank, topic)
            with self.changed:
                self.waits += 1
                self.changed.wait_for(lambda: key in self.posts, limit_s)
                return self.posts.get(key) or None  # as if the rank had left

        return SimpleNamespace(post=post, posted=posted, through=lambda topic, limit_s: True)


@pytest.fixture
def play(tmp_path: Path) -> Any:
    """Run ranks concurrently, each with its NICs; return the output of each."""

    def run(
        *nodes: dict[str, dict[str, Any]],
        release: str = "25.04",
        asked: dict[str, Any] | None = None,
        lacks: tuple[int, ...] = (),
        programs: str = "",
        env: dict[str, str] | None = None,
        paths: tuple[dict[str, Any], ...] = (),
    ) -> list[dict[str, Any]]:
        run.posts, outcomes = (posts := Posts()), [perftest.blank() for _ in nodes]  # type: ignore[attr-defined]
        ranks = [
            rank(tmp_path, number, len(nodes), posts, devices, asked or ASKED, env or {}, release, number not in lacks)
            for number, devices in enumerate(nodes)
        ]
        for each, data in zip(ranks, outcomes, strict=True):
            each.paths = paths
            data["status"] = ""
        if programs:
            for number in range(len(nodes)):
                (tmp_path / str(number) / "bin" / "ib_write_bw").write_text(programs)
        threads = [
            threading.Thread(target=lambda each=each, data=data: data.update(status=each.run(data)))
            for each, data in zip(ranks, outcomes, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return outcomes

    return run


def rank(
    folder: Path,
    number: int,
    count: int,
    posts: Posts,
    devices: dict[str, dict[str, Any]],
    asked: dict[str, Any],
    env: dict[str, str],
    release: str,
    has: bool,
) -> perftest.Perftest:
    """Run one rank, whose NICs are files and whose programs are the lab's."""
    place = folder / str(number)
    known = [
        {
            "name": name,
            "port": 1,
            "state": "ACTIVE",
            "rate_gbps": 400,
            "rail": rail,
            "link_layer": "InfiniBand",
            "guid": GUID,
            **more,
        }
        for rail, (name, more) in enumerate(devices.items())
    ]
    sysfs.write_devices(place / "sys/class/infiniband", place / "live", known)
    (place / "bin").mkdir(parents=True)
    for name, function in (("ib_write_bw", "main"), ("fi_pingpong", "pingpong_main")) if has else ():
        (place / "bin" / name).write_text(script(Path(sys.executable), " -IS", "perftest", function))
        (place / "bin" / name).chmod(stat.S_IRWXU)
    (place / "node.json").write_text(json.dumps({"rdma": {"devices": known}, "perftest": release}))
    rendezvous: Any = SimpleNamespace(
        me=SimpleNamespace(rank=number),
        trial=SimpleNamespace(nodes=count, gpu_kind="nvidia"),
        watch=Watch(600, 10),
        records={other: {"address": "127.0.0.1"} for other in range(count)},
    )
    path = f"{place}/bin:{os.environ['PATH']}" if has else str(place / "bin")
    own = {**os.environ, **env, "PATH": path, "SIM_NODE_JSON": str(place / "node.json")}
    program = rdmaprogram.Program(asked, own, rendezvous.watch, str(place))
    return perftest.Perftest(rendezvous, posts.of(number), asked, program)


def written(data: dict[str, Any]) -> dict[tuple[int, str, str], float]:
    return {(each["peer"], each["nic"], each["memory"]): each["gbit_s"] for each in data["writes"]}


def test_each_nic_is_written_from_both_ways(play: Any) -> None:
    slow = {"mlx5_0": {}, "mlx5_1": {"writes": {"gbit_s": 180}}}
    low, high = play({"mlx5_0": {}, "mlx5_1": {}}, slow)
    assert written(low) == {(1, "mlx5_0", "host"): 392.0, (1, "mlx5_1", "host"): 180.0}
    assert written(high) == {(0, "mlx5_0", "host"): 392.0, (0, "mlx5_1", "host"): 180.0}
    assert [data["status"] for data in (low, high)] == ["ok", "ok"]


def test_gpu_memory_is_written_where_the_program_can_and_a_gpu_is_with_the_nic(play: Any) -> None:
    """A GPU behind the CPU does not measure the link."""
    paths = ({"gpu": 1, "nic": "mlx5_0", "path": "PXB"}, {"gpu": 0, "nic": "mlx5_1", "path": "PHB"})
    nics = {"mlx5_0": {"writes": {"gpu_gbit_s": 90}}, "mlx5_1": {}}
    low, _ = play(nics, nics, release="25.04 cuda", paths=paths)
    assert written(low) == {(1, "mlx5_0", "host"): 392.0, (1, "mlx5_1", "host"): 392.0, (1, "mlx5_0", "gpu"): 90.0}
    assert low["gpu_memory"] is True


def test_gpu_memory_that_the_program_cannot_register_here_is_left_out(tmp_path: Path) -> None:
    """Without nvidia_peermem only a dma-buf is registered, as in NCCL: an older program proves nothing."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "ib_write_bw"
    asked, own = {**ASKED, "layer": "InfiniBand"}, {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    (old, new) = "--use_cuda=<id>", "--use_cuda=<id> --use_cuda_dmabuf"
    said = []
    for usage, module in ((old, ""), (new, ""), (old, "nvidia_peermem"), (new, "nvidia_peermem")):
        program.write_text(f"#!/bin/sh\necho '{usage}'\n")
        program.chmod(stat.S_IRWXU)
        (tmp_path / "sys/module" / module).mkdir(parents=True, exist_ok=True)
        said.append(rdmaprogram.Program(asked, own, Watch(600, 10), str(tmp_path)).gpu_memory("nvidia"))
    assert said == [[], ["--use_cuda", "--use_cuda_dmabuf"], ["--use_cuda"], ["--use_cuda"]]


def test_four_ranks_write_along_a_chain(play: Any) -> None:
    """Inner ranks have two partners, which locates the faulty NIC."""
    nics = {"mlx5_0": {}}
    every = play(nics, nics, nics, nics)
    assert [sorted(peer for peer, _, _ in written(data)) for data in every] == [[1], [0, 2], [1, 3], [2]]
    assert [perftest.edges(each, 4) for each in range(4)] == [[(0, 1)], [(0, 1), (1, 2)], [(2, 3), (1, 2)], [(2, 3)]]


def test_a_rank_does_not_begin_while_its_neighbour_is_busy_with_another(tmp_path: Path) -> None:
    """Of three ranks the last has one neighbour, whose first write takes a minute: its program would have timed out by
    then."""
    nics: dict[str, dict[str, Any]] = {"mlx5_0": {}}
    posts, data = Posts(), perftest.blank()
    last = rank(tmp_path, 2, 3, posts, nics, ASKED, {}, "25.04", True)
    busy = posts.of(1)
    busy.post(2, perftest.TOPIC, {"found": True, "nics": ["mlx5_0"], "gpu": []})
    runs = threading.Thread(target=last.run, args=(data,), daemon=True)
    runs.start()
    until(lambda: len(said_by(posts, 2)) > 1)
    assert said_by(posts, 2)[1] == perftest.MEET
    last.watch.stop("the test is over")
    busy.post(2, perftest.MEET, {"here": True})
    runs.join()


def said_by(posts: Posts, number: int) -> list[str]:
    """Return the messages of a rank in order."""
    with posts.changed:
        return [topic for sender, _, topic in posts.posts if sender == number]


def test_a_neighbour_that_is_busy_for_too_long_is_named(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    posted = Posts.of

    def deaf(self: Posts, number: int) -> Any:
        barrier = posted(self, number)
        hears = barrier.posted
        barrier.posted = lambda topic, sender, limit_s: (
            None if topic == perftest.MEET else hears(topic, sender, limit_s)
        )
        return barrier

    monkeypatch.setattr(Posts, "of", deaf)
    low, high = play({"mlx5_0": {}}, {"mlx5_0": {}})
    for data, peer in ((low, 1), (high, 0)):
        assert data["left_out"] == [{"peer": peer, "why": "it had not finished with its other neighbour in time"}]
        assert (data["writes"], data["status"]) == ([], "failed")


def test_without_the_program_nothing_is_started_and_no_one_waited_for(play: Any) -> None:
    low, high = play({"mlx5_0": {}}, {"mlx5_0": {}}, lacks=(0, 1))
    assert [(data["found"], data["status"], data["writes"]) for data in (low, high)] == [(False, "skipped", [])] * 2
    assert play.posts.waits == 0


def test_a_rank_without_it_is_named_by_the_other(play: Any) -> None:
    low, high = play({"mlx5_0": {}}, {"mlx5_0": {}}, lacks=(1,))
    assert (low["status"], low["left_out"]) == ("failed", [{"peer": 1, "why": "it has no ib_write_bw"}])
    assert (high["status"], high["left_out"]) == ("skipped", [])


@pytest.mark.parametrize(
    ("says", "shown"),
    [
        (
            "Failed to modify QP 297 to RTR\n Unable to Connect the HCA's through the link",
            "Failed to modify QP 297 to RTR",
        ),
        ("Couldn't allocate MR\nfailed to create mr TOKEN=abcdef123456", "failed to create mr TOKEN=[REDACTED]"),
    ],
)
def test_what_fails_is_reported_by_its_words_and_the_next_nic_is_tried(play: Any, says: str, shown: str) -> None:
    low, _ = play({"mlx5_0": {"writes": {"says": says}}, "mlx5_1": {}}, {"mlx5_0": {}, "mlx5_1": {}})
    first, second = low["writes"]
    assert shown in first["error"]
    assert (first["gbit_s"], second["gbit_s"], low["status"]) == (None, 392.0, "failed")


def test_a_side_that_is_stopped_since_the_other_has_failed_is_not_called_late(play: Any) -> None:
    """Over EFA a program that does not complete means lost messages."""
    serves = "import socket, time\ns = socket.create_server(('', int(a[a.index('-p') + 1])))\ntime.sleep(6000)\n"
    fails = f"#!{sys.executable} -IS\nimport sys\na = sys.argv\nif '--help' in a or a[-1][:4] == '127.':\n    sys.exit('no provider')\n"
    low, _ = play(
        {"mlx5_0": {}}, {"mlx5_0": {}}, programs=fails + serves, asked={**ASKED, "seconds": 60, "limit_s": 900.0}
    )
    (write,) = low["writes"]
    assert "no provider" in write["error"]
    assert "did not end" not in write["error"]


@pytest.mark.parametrize("gone", ["sender", "receiver", "nobody"])
def test_what_a_pod_that_is_to_end_takes_with_it_is_no_error_of_the_link(
    play: Any, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """NICs whose peer is killed report the same errors as with a bad cable."""
    send, receive = perftest.Perftest._send, perftest.Perftest._receive

    def sends(self: perftest.Perftest, *rest: Any) -> None:
        send(self, *rest)
        if gone == "sender":
            self.watch.stop("SIGTERM")
            monkeypatch.setattr(perftest, "READY_S", 0.1)  # the time that the other waits for it

    def receives(self: perftest.Perftest, *rest: Any) -> None:
        if gone == "receiver":
            self.watch.stop("SIGTERM")
        receive(self, *rest)

    monkeypatch.setattr(perftest.Perftest, "_send", sends)
    monkeypatch.setattr(perftest.Perftest, "_receive", receives)
    low, _ = play({"mlx5_0": {"writes": {"says": "Completion with error at client\nFailed status 12"}}}, {"mlx5_0": {}})
    errors = [each["error"] for each in low["writes"]]
    assert errors
    assert all("a pod was terminating" in error for error in errors) if gone != "nobody" else "status 12" in errors[0]


def test_what_hangs_is_ended_and_the_time_of_all_is_bounded(play: Any) -> None:
    """No part of a hanging command continues during the collectives."""
    hangs = f"#!{sys.executable} -IS\nimport sys, time\n'--help' in sys.argv or time.sleep(600)\n"
    low, high = play({"mlx5_0": {}}, {"mlx5_0": {}}, programs=hangs, asked={**ASKED, "limit_s": 3.0})
    assert not any(each["gbit_s"] for each in [*low["writes"], *high["writes"]])
    assert low["status"] == high["status"] == "failed"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("serve")]


def test_nics_are_paired_by_name_or_else_by_order() -> None:
    assert perftest.pairs(["mlx5_0", "mlx5_1"], ["mlx5_0", "mlx5_1"])[0] == [("mlx5_0",) * 2, ("mlx5_1",) * 2]
    assert perftest.pairs(["mlx5_0", "mlx5_1"], ["bnxt_0", "bnxt_1"]) == (
        [("mlx5_0", "bnxt_0"), ("mlx5_1", "bnxt_1")],
        [],
    )
    rails, left = perftest.pairs(["mlx5_0", "mlx5_1"], ["mlx5_1", "mlx5_2"])
    assert (rails, left) == ([("mlx5_1", "mlx5_1")], ["mlx5_0", "mlx5_2"])


def test_only_the_fabrics_ports_that_nccl_may_use_are_tested(tmp_path: Path) -> None:
    devices: list[dict[str, Any]] = [
        {
            "name": f"mlx5_{n}",
            "port": 1,
            "state": "ACTIVE",
            "rate_gbps": 400,
            "rail": n,
            "link_layer": "InfiniBand",
            "guid": GUID,
        }
        for n in range(4)
    ]
    devices[1]["state"] = "DOWN"
    devices[2]["link_layer"] = "Ethernet"
    sysfs.write_devices(tmp_path / "sys/class/infiniband", tmp_path / "live", devices)
    chosen = rdmaprogram.nics("InfiniBand", {}, str(tmp_path))
    assert [nic.label for nic in chosen] == ["mlx5_0", "mlx5_3"]
    assert [nic.label for nic in rdmaprogram.nics("InfiniBand", {"NCCL_IB_HCA": "^mlx5_3"}, str(tmp_path))] == [
        "mlx5_0"
    ]
    assert rdmaprogram.Nic("mlx5_0", 2, None).label == "mlx5_0:2"


def test_on_roce_the_gid_is_the_one_that_nccl_takes(tmp_path: Path) -> None:
    """RoCE v2 with an IPv4 address; other entries have different routes, or none."""
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    table = [("fe80::1", "IB/RoCE v1"), ("fe80::1", "RoCE v2"), ("::ffff:0a00:0005", "IB/RoCE v1")]
    table.append(("0000:0000:0000:0000:0000:ffff:0a00:0005", "RoCE v2"))
    for folder in ("gids", "gid_attrs/types"):
        (port / folder).mkdir(parents=True)
    for index, (gid, kind) in enumerate(table):
        (port / "gids" / str(index)).write_text(gid + "\n")
        (port / "gid_attrs/types" / str(index)).write_text(kind + "\n")
    known = {"name": "mlx5_0", "port": 1}
    assert rdmaprogram.gid_index(str(tmp_path), known, {}) == 3
    assert rdmaprogram.gid_index(str(tmp_path), known, {"NCCL_IB_GID_INDEX": "1"}) == 1
    (port / "gids" / "3").unlink()
    assert rdmaprogram.gid_index(str(tmp_path), known, {}) == 1


@pytest.mark.parametrize(
    ("unit", "rows", "gbit_s"),
    [
        ("Gb", " 65536      93504            0.00               391.87\t\t   0.046714", 391.87),
        ("MB", " 65536      664644           0.00               11077.12\t\t   0.177234", 92.92),
        ("MiB", " 65536      664644           0.00               11077.12\t\t   0.177234", 92.92),
        (
            "Gb",
            " 2          5000           0.042350            0.042185            2.636533\n 8388608  5000  98.1 97.30 0.0",
            97.3,
        ),
        ("Gb", " 65536      0                0.00               0.00   \t\t   0.000000", 0.0),
        ("Gb", "", None),
        ("Gb", " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81", None),
        ("furlongs", " 65536      93504            0.00               391.87\t\t   0.046714", None),
    ],
)
def test_the_average_of_the_last_row_is_read_in_its_unit(unit: str, rows: str, gbit_s: float | None) -> None:
    assert rdmaprogram.read(TABLE % {"unit": unit, "rows": rows}) == gbit_s


def test_a_failure_is_reported_without_the_frame_of_the_test() -> None:
    answer = command.Answer()
    answer.out = (TABLE % {"unit": "Gb", "rows": ""}).encode()
    assert rdmaprogram.said(answer) == ""
    answer.err = NO_DEVICE
    assert rdmaprogram.said(answer).endswith("Unable to find the Infiniband/RoCE device")
    answer.out, answer.err = b"", b"[error] util/pingpong.c:408 : failed to connect: Connection refused\n"
    assert rdmaprogram.said(answer) == "[error] util/pingpong.c:408 : failed to connect: Connection refused"


def test_with_efa_messages_pass_or_do_not(play: Any) -> None:
    """No bandwidth is read from EFA's table."""
    assert len([line for line in PINGED.splitlines() if rdmaprogram.PINGED.search(line)]) == 2
    nics: dict[str, dict[str, Any]] = {"rdmap16s27": {"link_layer": "Unknown"}, "rdmap32s27": {"link_layer": "Unknown"}}
    broken = {**nics, "rdmap32s27": {"link_layer": "Unknown", "writes": {"says": "fi_av_insert: 0 of 1"}}}
    low, high = play(nics, broken, asked={**ASKED, "layer": ""})
    assert [(each["passed"], each["gbit_s"]) for each in low["writes"]] == [(True, None), (False, None)]
    assert "fi_av_insert" in low["writes"][1]["error"]
    assert (high["writes"], high["status"]) == ([], "ok")


def test_a_program_runs_with_its_nic(tmp_path: Path) -> None:
    """The buffer's location determines the rate; a pod without a CPU near the NIC says so."""
    device = tmp_path / "sys/class/infiniband/mlx5_0/device"
    device.mkdir(parents=True)
    (device / "local_cpulist").write_text("0-1,4\n")
    assert rdmaprogram.local_cpus("mlx5_0", str(tmp_path)) == {0, 1, 4}
    assert rdmaprogram.local_cpus("mlx5_1", str(tmp_path)) == set()


def by_rail(folder: Path, number: int, devices: dict[str, dict[str, Any]], port: int) -> railwrites.ByRail:
    """Return one side of a sweep's pair."""
    program = rank(folder, number, 2, Posts(), devices, ASKED, {}, "25.04", True).program
    return railwrites.ByRail(program, list(devices), port, lambda: False)


def test_two_nodes_of_a_sweep_write_rail_by_rail_both_ways(tmp_path: Path) -> None:
    """The measuring side waits until the other side listens, since no other connection exists."""
    slow, port = {"mlx5_0": {}, "mlx5_1": {"writes": {"gbit_s": 180}}}, free_port()
    server, client = by_rail(tmp_path, 0, slow, port), by_rail(tmp_path, 1, {"mlx5_0": {}, "mlx5_1": {}}, port)
    thread = threading.Thread(target=server.serve)
    thread.start()
    assert client.measure("127.0.0.1") == {"mlx5_0": [392.0, 392.0], "mlx5_1": [180.0, 180.0]}
    thread.join()


def test_a_rail_that_fails_ends_the_writes_of_a_pair(tmp_path: Path) -> None:
    """Otherwise one side would measure a different NIC than the other serves."""
    broken, port = {"mlx5_0": {}, "mlx5_1": {"writes": {"says": "Failed to modify QP"}}, "mlx5_2": {}}, free_port()
    server, client = by_rail(tmp_path, 0, broken, port), by_rail(tmp_path, 1, {name: {} for name in broken}, port)
    thread = threading.Thread(target=server.serve)
    thread.start()
    assert client.measure("127.0.0.1") == {"mlx5_0": [392.0, 392.0]}
    thread.join()
