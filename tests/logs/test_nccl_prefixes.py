"""Is a log read whatever launchers and log shippers put around its lines?"""

from __future__ import annotations

import gzip
import json
import re
from itertools import product

import pytest

from seatrial.logs import conclude, open_sources, read
from tests.logs.logmaker import Maker, interleaved, table_of
from tests.table import table

HEAD = re.compile(rb"(\S+?):(\d+):\d+ \[\d+\]")


def tagged(wrap):
    """Return a mangler that wraps every line; it is told a number per process."""

    def mangle(log: bytes) -> bytes:
        ranks: dict[bytes, int] = {}
        out = []
        for line in log.splitlines():
            head = HEAD.search(line)
            rank = ranks.setdefault(head.group(2), len(ranks)) if head else 0
            out.append(wrap(line, rank))
        return b"\n".join(out) + b"\n"

    return mangle


MANGLERS = {
    "mpirun": tagged(lambda line, rank: b"[1,%d]<stdout>:" % rank + line),
    "open-mpi-5": tagged(lambda line, rank: b"[1,%d]<stdout>: " % rank + line),
    "mpirun-timestamp": tagged(lambda line, rank: b"Tue Jan  2 10:00:00 2024[1,%d]<stdout>:" % rank + line),
    "srun": tagged(lambda line, rank: b"%2d: " % rank + line),
    "torchrun": tagged(lambda line, rank: b"[default%d]:" % rank + line),
    "torchrun-host": tagged(lambda line, rank: b"[host0]:[default%d]:" % rank + line),
    "ray": tagged(lambda line, rank: b"\x1b[36m(RayTrainWorker pid=%d, ip=10.52.3.7)\x1b[0m " % (rank + 100) + line),
    "ray-repeated": tagged(lambda line, rank: line + b" [repeated 15x across cluster]" if b"INFO" in line else line),
    "kubectl-prefix": tagged(lambda line, rank: b"[pod/job-worker-%d/pytorch] " % rank + line),
    "stern": tagged(lambda line, rank: b"job-worker-%d pytorch " % rank + line),
    "kubectl-timestamps": tagged(lambda line, rank: b"2024-11-28T07:42:11.528123456Z " + line),
    "cri": tagged(lambda line, rank: b"2024-11-28T07:42:11.528123456Z stdout F " + line),
    "docker-json": tagged(
        lambda line, rank: json.dumps({"log": line.decode() + "\n", "stream": "stderr", "time": "t"}).encode()
    ),
    "cloud-json": tagged(lambda line, rank: json.dumps({"severity": "INFO", "message": line.decode()}).encode()),
    "platform-time-and-blank": tagged(lambda line, rank: b"[2026-04-28 14:14:49] " + line + b"\n"),
    "cat-n": tagged(lambda line, rank: b"%6d\t" % (rank + 1) + line),
    "numbered": tagged(lambda line, rank: b"[%d] " % (rank + 80000) + line),
    "lost-escape": tagged(lambda line, rank: b"[0m " + line),
    "ansi": tagged(lambda line, rank: b"\x1b[32m" + line + b"\x1b[0m"),
    "crlf": lambda log: log.replace(b"\n", b"\r\n"),
    "progress-bar": tagged(lambda line, rank: b"train:  6%|# | 3/50 [00:01<00:20,  1.3it/s]\r" + line),
    "cloudwatch": tagged(lambda line, rank: b"  | 2024-11-28T07:42:11.528Z | " + line),
    "cloudwatch-doubled": tagged(
        lambda line, rank: b"  | 2025-05-16T16:39:51.208-07:00" + line + b" | " + line if b"INFO" in line else line
    ),
    "github-actions": tagged(lambda line, rank: b"2026-01-01T00:00:00.1234567Z " + line),
    "journal": tagged(lambda line, rank: b"Nov 20 15:04:22 node slurmd[123]: " + line),
    "trailing-blanks": tagged(lambda line, rank: line + b"    "),
    "utf-8-mark": lambda log: b"\xef\xbb\xbf" + log,
}
MAKERS = {
    "healthy": Maker(),
    "old": Maker(version="2.4.8+cuda10.1"),
    "sockets": Maker(net="Socket"),
    "mixed": Maker(version="2.20.5", socket_ranks=(1,)),
    "libfabric": Maker(version="2.22.3", net="AWS Libfabric", pxn=True),
    "no-gpudirect": Maker(version="2.14.3", gdr=False),
}


def essence(job: dict) -> dict:
    """Return what must not depend on how lines are dressed."""
    compared = {
        key: job[key]
        for key in (
            "verdict",
            "diagnosis",
            "inter_node_transport",
            "gdr",
            "ranks",
            "nodes",
            "nccl_version",
            "mixed",
            "avg_busbw",
            "pairs",
        )
    }
    compared["faults"] = [(fault["fault"], fault["subject"], fault["why"]) for fault in job["faults"]]
    compared["rows"] = [table["rows"] for table in job["tables"]]
    return compared


@table("dress, case", product(MANGLERS, MAKERS))
def test_what_stands_around_a_line_changes_nothing(judge, dress, case):
    """Tags, times, colours, carriage returns and wrappers are taken off; the judgement is that of the bare log."""
    maker = MAKERS[case]
    log = interleaved(maker.processes(), 7) + "".join(line + "\n" for line in table_of(maker)).encode()
    assert essence(judge(MANGLERS[dress](log))) == essence(judge(log))


@pytest.mark.parametrize("dress", MANGLERS)
def test_real_logs_survive_being_dressed(shared, judge, dress):
    """The same over real logs, whose own dress is then under another one."""
    wrong = []
    for name in ("001", "004", "007", "016", "040", "065", "071", "075"):
        (path,) = (shared / "nccl-corpus").glob(f"{name}-*.log")
        log = path.read_bytes()
        if essence(judge(MANGLERS[dress](log))) != essence(judge(log)):
            wrong.append(path.name)
    assert wrong == []


def test_a_prefix_that_was_taken_away_is_no_obstacle(judge):
    """Reporters strip host:pid:tid [dev]; what is left still tells the selection."""
    bare = re.sub(rb"(?m)^\S+:\d+:\d+ \[\d\] ", b"", interleaved(Maker(stop="channels").processes(), 1))
    job = judge(bare)
    assert (job["inter_node_transport"], job["ranks"], job["nodes"], job["verdict"]) == ("ib", 4, 2, "inconclusive")


def test_torn_lines_are_cut_apart_and_half_a_transport_is_dropped(judge):
    """Two processes in one physical line: the second line counts, half of '/GDRDMA' never reads as 'without'."""
    log = interleaved(Maker().processes(), 1)
    first = b"gpu-node-0:1000:1000 [0] NCCL INFO Channel 01/0 : 3[1] -> 0[0] [receive] via NET/IB/1/GDR"
    second = b"gpu-node-1:1014:1014 [0] NCCL INFO cudaDriverVersion 12020\n"
    job = judge(log + first + second)
    assert (job["gdr"], job["mixed"], job["verdict"]) == (True, False, "go")


def test_a_head_that_was_torn_makes_no_new_host(judge):
    """'d]rexnode1' beside 'node1' with the same pid is the same process."""
    log = (
        interleaved(Maker().processes(), 1)
        + b"via P2P/CUMEM/d]rexgpu-node-1:1014:1014 [0] NCCL INFO cudaDriverVersion 12020\n"
    )
    assert [host["name"] for host in judge(log)["hosts"]] == ["gpu-node-0", "gpu-node-1"]


def test_two_nodes_of_one_name_are_told_apart(judge):
    """Both nodes are called 'user': their addresses differ, and so do the nodes."""
    maker = Maker(version="2.18.1", hosts=("a", "b"), stop="channels", socket_ranks=(0, 1))
    log = interleaved(maker.processes(), 4).replace(b"a:", b"user:").replace(b"b:", b"user:")
    job = judge(log)
    assert job["nodes"] == 2
    assert len({host["name"] for host in job["hosts"]}) == 2
    assert (job["mixed"], job["socket_fallback"]) == (True, True)


def test_a_line_that_a_container_runtime_cut_is_joined(judge):
    """CRI writes long lines in parts (P) up to the last one (F)."""
    line = b"gpu-node-0:1:1 [0] NCCL INFO NCCL_IB_HCA set to mlx5_0"
    stamp = b"2024-11-28T07:42:11.528123456Z stdout "
    log = stamp + b"P " + line[:30] + b"\n" + stamp + b"F " + line[30:] + b"\n"
    assert judge(log)["env"] == {"NCCL_IB_HCA": "mlx5_0"}


def test_nccl_2_2_has_no_nccl_token(judge):
    """2.2 prints 'host:pid:tid [dev] INFO ...'."""
    log = "".join(f"node{rank}:10{rank}:11{rank} [0] INFO Using internal Network Socket\n" for rank in (1, 2))
    job = judge(log)
    assert (job["nodes"], job["inter_node_transport"], job["socket_fallback"]) == (2, "socket", True)


def test_compressed_and_utf_16_files_are_read(tmp_path):
    """gz by its content, not by its name; UTF-16 as PowerShell writes it."""
    log = interleaved(Maker().processes(), 1)
    (tmp_path / "job.log").write_bytes(gzip.compress(log[: len(log) // 2]) + gzip.compress(log[len(log) // 2 :]))
    (tmp_path / "wide.txt").write_bytes(log.decode().encode("utf-16"))
    for name in ("job.log", "wide.txt"):
        (job,) = conclude(read(open_sources([str(tmp_path / name)])))
        assert job["verdict"] == "go"


def test_the_debug_files_of_ranks_are_one_job_with_their_table(tmp_path):
    """NCCL_DEBUG_FILE=ring.%h.%p.log beside the captured output: one job, by ids, pids and names."""
    maker = Maker()
    for (host, pid), lines in maker.processes().items():
        (tmp_path / f"ring.{host}.{pid}.log").write_text("\n".join(lines) + "\n")
    (tmp_path / "ring.out").write_text("\n".join(table_of(maker)) + "\n")
    (job,) = conclude(read(open_sources([str(tmp_path)])))
    assert (job["verdict"], job["ranks"], len(job["files"]), job["tables"][0]["complete"]) == ("go", 4, 5, True)


def test_one_job_seen_from_its_two_nodes_is_joined_and_two_jobs_are_not(data, tmp_path):
    """A shared communicator id joins files; strangers stay apart."""
    recorded = data / "recorded"
    joined = conclude(read(open_sources([str(recorded / "torchrun-node0.log"), str(recorded / "torchrun-node1.log")])))
    strangers = conclude(read(open_sources([str(recorded / "torchrun-node0.log"), str(recorded / "ib-disabled.log")])))
    assert [len(job["files"]) for job in joined] == [2]
    assert len(strangers) == 2
