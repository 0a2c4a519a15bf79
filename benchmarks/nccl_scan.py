"""The speed and memory of the whole verdict of an NCCL log, beside grep on the same file.

    python benchmarks/nccl_scan.py [MEGABYTES] [KIND...]

Makes logs in which every line is new, as a real job's are, judges each in a process of its own, in turns with grep and
with a plain read of the file's lines in Python, and prints the medians of the ratios of processor time, which depend
least on the machine. ``grep -cE 'via NET/'`` only counts lines; the verdict reads transports, faults and tables. Only a
log of 16 MiB on four cores or more is digested by several processes; the time here is that of the judging one.

Real logs of which every line was made unlike all others (hosts, pids, ranks, pointers and addresses renumbered copy by
copy; 13 to 43 MB, 2,048 to 8,192 ranks), best of two, on two shared cores under a load of 20 to 30, where a loop that
only splits the lines and puts them into a dict reads 200 to 280 MB/s. Reader and verdict together, in MB/s of processor
time, and how often grep's time that is; before: what the reader took alone, in turns with the one of today:

    job, 2,048 ranks, IB or EFA with 16 channels       39    41 x
    job, 8,192 ranks, IB with GPUDirect                13   141 x (reader alone 18; before 14 to 17)
    the same behind kubectl logs --prefix --timestamps 14   129 x (reader alone 18; before 3.5)
    the same with Windows line ends                    15   175 x
    job, 8,192 ranks, sockets                          11   168 x
    Python training, some lines of NCCL                45    44 x (before 15)
    nccl-tests in a loop, tables                       14   369 x (before 6)
    traces of a plugin at TRACE, a crash                4   376 x (before 3.5)

A verdict of 8,192 ranks takes 0.5 to 0.8 s by itself. On two cores a second process changed nothing (0.92 s of the
judging one beside 0.95 and 0.18): workers are started on four cores or more. The state is the same to the byte.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.nccl.logmaker import Maker, interleaved, table_of  # noqa: E402 -- after the path is set

JUDGE = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
from jobs.nccl import conclude, open_sources, read
began = time.process_time()
(job, *_) = conclude(read(open_sources([sys.argv[2]])))
peak = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
print(json.dumps({"seconds": time.process_time() - began, "rss_mb": int(peak) / 1024,
                  "verdict": job["verdict"], "ranks": job["ranks"]}))
"""
TURNS = int(os.environ.get("TURNS", "5"))
BASE = Maker(hosts=("gpu-node-0", "gpu-node-1"), gpus=8, rails=8, channels=16)


def job(size: int) -> bytes:
    """One job of many hosts: every rank prints its own set-up and channels once, the ranks' lines stand mixed."""
    rng = random.Random(3)
    hosts = tuple(f"gpu-node-{index:05d}" for index in range(max(2, size // 100_000)))
    maker = replace(BASE, hosts=hosts, channels=16, env={"NCCL_IB_HCA": "mlx5", "NCCL_SOCKET_IFNAME": "eth0"})
    out = []
    for first in range(0, maker.ranks, 512):
        queues = [maker.lines(rank) for rank in range(first, min(maker.ranks, first + 512))]
        queues = [[line for line in lines if "/16 :" not in line] for lines in queues]  # the ring order of all ranks
        while queues:
            index = rng.randrange(len(queues))
            out.append(queues[index].pop(0) + "\n")
            if not queues[index]:
                queues[index] = queues[-1]
                queues.pop()
    return "".join(out).encode()


def tagged(size: int) -> bytes:
    """The same job under mpirun --tag-output."""
    ranks: dict[bytes, int] = {}
    out = []
    for line in job(size).splitlines():
        head = re.match(rb"(\S+?:\d+):", line)
        out.append(b"[1,%d]<stdout>:%s\n" % (ranks.setdefault(head.group(1), len(ranks)) if head else 0, line))
    return b"".join(out)


def stamped(size: int) -> bytes:
    """The same job, each line behind its own time, as kubectl logs --timestamps writes it."""
    out = []
    for number, line in enumerate(job(size).splitlines()):
        out.append(b"2026-01-02T03:%02d:%02d.%09dZ %s\n" % (number // 6000 % 60, number // 100 % 60, number, line))
    return b"".join(out)


def operations(size: int) -> bytes:
    """NCCL_DEBUG_SUBSYS=ALL: millions of operations behind one set-up."""
    out = [interleaved(BASE.processes(), 1)]
    total, number = len(out[0]), 0
    while total < size:
        number += 1
        rank = number % 16
        out.append(
            b"%s:%d:%d [%d] NCCL INFO AllReduce: opCount %x sendbuff 0x7f%08x recvbuff 0x7f%08x count 131072 datatype 7"
            b" op 0 root 0 comm 0x4cfb4b0 [nranks=16] stream 0x5555860eca90\n"
            % (
                BASE.host(rank).encode(),
                BASE.pid(rank),
                BASE.pid(rank),
                rank % 8,
                number,
                number * 977 % 2**31,
                number * 433 % 2**31,
            )
        )
        total += len(out[-1])
    return b"".join(out)


def traces(size: int) -> bytes:
    """NCCL_DEBUG_SUBSYS=ALL beside a service's log: proxies, calls, requests, with pointers and ids of their own."""
    out, rng = [interleaved(BASE.processes(), 1)], random.Random(4)
    total, number = len(out[0]), 0
    while total < size:
        number += 1
        rank, pointer = number % 16, rng.getrandbits(44)
        head = b"%s:%d:%d [%d] NCCL " % (BASE.host(rank).encode(), BASE.pid(rank), BASE.pid(rank), rank % 8)
        out.append(
            (
                head + b"INFO proxyProgressAsync opId=0x%x op.type=%d respSize=%d done" % (pointer, number % 9, rank),
                head + b"INFO New proxy recv connection %d from local rank %d, transport 2" % (number % 999, rank % 8),
                head + b"CALL ncclAllReduce(0x%x,0x%x,%d,7,0,0x%x)" % (pointer, pointer + 512, number, pointer // 3),
                b"07:42:%02d worker DEBUG request %011x took %.2f ms" % (number % 60, pointer, number % 999 / 7),
            )[number % 4]
            + b"\n"
        )
        total += len(out[-1])
    return b"".join(out)


def tests(size: int) -> bytes:
    """nccl-tests in a loop: tables whose numbers never come again."""
    out, total, rng = [interleaved(BASE.processes(), 1)], 0, random.Random(5)
    lines = [line.encode() for line in table_of(BASE)]
    while total < size:
        for line in lines:
            words = line.split()
            if words and words[0].isdigit():
                for _ in range(12):
                    speed = rng.random() * 100
                    values = (10 + speed, speed, speed * 1.8, 0, 11 + speed, speed + 1, speed * 1.7, 0)
                    out.append(b"%12s  %12s     float     sum      -1  " % tuple(words[:2]))
                    out.append(b"%7.2f  %6.2f  %6.2f  %6d  %7.2f  %6.2f  %6.2f  %6d\n" % values)
                    total += 115
            else:
                out.append(line + b"\n")
                total += len(line) + 1
    return b"".join(out)


def training(size: int) -> bytes:
    """A training log: one set-up, then the program's own lines."""
    out = [interleaved(BASE.processes(), 1)]
    total, number = len(out[0]), 0
    while total < size:
        number += 1
        out.append(
            b"2024-11-28 07:42:%02d INFO trainer step %d loss %.4f lr 0.0001 tokens/s %d grad_norm 1.2\n"
            % (number % 60, number, number % 7 / 3, number % 1000)
        )
        total += len(out[-1])
    return b"".join(out)


def grep(path: Path) -> float:
    """Return what one run of grep costs."""
    with subprocess.Popen(["grep", "-cE", "via NET/", str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    return used.ru_utime + used.ru_stime


def lines(path: Path) -> float:
    """Return what it costs to read a file and to cut it into lines, and no more."""
    began = time.process_time()
    with path.open("rb") as file:
        while data := file.read(1 << 22):
            data.split(b"\n")
    return time.process_time() - began


def judge(path: Path) -> dict[str, Any]:
    """Return what one verdict, in a process of its own, cost and found."""
    run = subprocess.run(
        [sys.executable, "-c", JUDGE, str(ROOT), str(path)], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def main() -> None:
    """Print one line per kind of log."""
    size = int(sys.argv[1] if len(sys.argv) > 1 else "100") * 1_000_000
    kinds = [kind for kind in KINDS if not sys.argv[2:] or kind.__name__ in sys.argv[2:]]
    heads = ("log", "MB", "grep s", "verdict s", "x grep", "x read", "MB/s", "RSS MB")
    print("{:<12} {:>5} {:>7} {:>9} {:>7} {:>7} {:>6} {:>7}  result".format(*heads))
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{kind.__name__}.log"
            path.write_bytes(kind(size))
            megabytes = path.stat().st_size / 1e6
            grep(path)
            turns = [(grep(path), lines(path), judge(path)) for _ in range(TURNS)]
            floor = statistics.median(turn[0] for turn in turns)
            spent = statistics.median(found["seconds"] for _, _, found in turns)
            ratio, plain = (
                statistics.median(turn[2]["seconds"] / max(turn[which], 0.001) for turn in turns) for which in (0, 1)
            )
            found = turns[0][2]
            print(
                f"{kind.__name__:<12} {megabytes:>5.0f} {floor:>7.3f} {spent:>9.2f} {ratio:>7.1f} {plain:>7.1f}"
                f" {megabytes / spent:>6.0f} {found['rss_mb']:>7.0f}  {found['verdict']}, {found['ranks']} ranks",
                flush=True,
            )


KINDS = (job, tagged, stamped, operations, traces, tests, training)

if __name__ == "__main__":
    main()
