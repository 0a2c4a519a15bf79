"""How fast is the whole verdict of an NCCL log, beside grep on the same file, and in how much memory?

    python benchmarks/nccl_scan.py [MEGABYTES] [KIND...]

Makes logs, judges each in a process of its own, in turns with grep, and prints the median of the ratios of processor
time, which depends least on the machine. ``grep -cE 'via NET/'`` only counts lines; the verdict reads transports,
faults and tables. The goal is 4 without a launcher's tags and 6 with them.

What repeats itself, by pieces of some KiB or by lines, costs a look; so do a program's output, NCCL's traces and what
stands beyond the kept tables, whose shapes repeat. Where every line says something new, Python's own price per line is
the floor: only splitting a block into lines costs 1.5 times grep where its literal stands in one line of seven, and 8
times where it never stands (``operations``, ``traces``: grep then runs at 5 to 16 GB/s and needs no lines at all).

Measured on two shared cores under load, Python 3.11, times grep. 1,000 MB: repeated 1.2 to 1.7, tagged 1.4 to 1.7, real
2.8 to 3.6, corpus 4.7 to 5.1, 15 to 26 MB of memory. 100 MB (in brackets MB/s, before shapes by hexadecimal digits and
now): training 7 (250, 350), timed 9 (290, 220 to 290), job 35 to 51 (31, 26 to 35), distinct 47 to 56 (30, 26),
operations 20 to 38 (130, 170), traces 33 (2, 78), tests 47 (9, 63), each below 55 MB; ranks (50,000 of one job, every
line new) 180 to 220 (8, 8) and 101 MB.
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
CORPUS = ROOT.parent / "shared" / "nccl-corpus"
BASE = Maker(hosts=("gpu-node-0", "gpu-node-1"), gpus=8, rails=8, channels=16)


def repeated(size: int) -> bytes:
    """Set up the same communicators over and over, as a test suite or a pasted log does."""
    block = interleaved(BASE.processes(), 1)
    return block * (size // len(block))


def tagged(size: int) -> bytes:
    """The same under mpirun --tag-output."""
    ranks: dict[bytes, int] = {}
    lines = []
    for line in repeated(1 << 20).splitlines():
        head = re.match(rb"(\S+?:\d+):", line)
        lines.append(b"[1,%d]<stdout>:%s\n" % (ranks.setdefault(head.group(1), len(ranks)) if head else 0, line))
    block = b"".join(lines)
    return block * (size // len(block))


def timed(size: int) -> bytes:
    """Every line carries its own time, so that none is ever repeated."""
    out, total, number = [], 0, 0
    block = interleaved(BASE.processes(), 1).splitlines()
    while total < size:
        for line in block:
            number += 1
            out.append(
                b"2026-01-02T03:%02d:%02d.%09dZ %s\n" % (number // 60000000 % 60, number // 1000000 % 60, number, line)
            )
            total += len(out[-1])
    return b"".join(out)


def distinct(size: int) -> bytes:
    """Sixteen new processes for every set-up, as in the log of a large cluster."""
    out, total, number = [], 0, 0
    while total < size:
        number += 1
        hosts = (f"node-{number:05d}-a", f"node-{number:05d}-b")
        maker = replace(BASE, hosts=hosts, channels=64, comm_id=BASE.comm_id + number)
        out.append(interleaved(maker.processes(), 1))
        total += len(out[-1])
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


def job(size: int) -> bytes:
    """One job of many hosts, read once: every rank prints channels of its own, in ten rounds of communicators."""
    out, total, number = [], 0, 0
    while total < size:
        maker = replace(BASE, hosts=tuple(f"gpu-node-{index}" for index in range(32)), channels=32, comm_id=number)
        number += 1
        out.append(interleaved(maker.processes(), number))
        total += len(out[-1])
    return b"".join(out)


def ranks(size: int) -> bytes:
    """One job of 50,000 ranks, whatever the size: all that is said of a rank is said once."""
    del size
    rng = random.Random(3)
    hosts = tuple(f"gpu-node-{index:05d}" for index in range(6250))
    maker = replace(BASE, hosts=hosts, channels=8, env={"NCCL_IB_HCA": "mlx5", "NCCL_SOCKET_IFNAME": "eth0"})
    out = []
    for first in range(0, maker.ranks, 512):
        queues = [maker.lines(rank) for rank in range(first, min(maker.ranks, first + 512))]
        queues = [[line for line in lines if "/08 :" not in line] for lines in queues]  # the ring order of all ranks
        while queues:
            index = rng.randrange(len(queues))
            out.append(queues[index].pop(0) + "\n")
            if not queues[index]:
                queues[index] = queues[-1]
                queues.pop()
    return "".join(out).encode()


def corpus(size: int) -> bytes:
    """The longest real logs, one after the other, again and again."""
    logs = sorted(CORPUS.glob("*.log"), key=lambda path: -path.stat().st_size)[:8]
    block = b"".join(path.read_bytes().rstrip(b"\n") + b"\n" for path in logs)
    return block * (size // len(block))


def real(size: int) -> bytes:
    """The longest real log, without a launcher's tags, again and again."""
    (path,) = CORPUS.glob("003-*.log")
    block = re.sub(rb"(?m)^\[\d+,\d+\]<std(?:out|err)>: ?", b"", path.read_bytes()).rstrip(b"\n") + b"\n"
    return block * (size // len(block))


def grep(path: Path) -> float:
    """Return what one run of grep costs."""
    with subprocess.Popen(["grep", "-cE", "via NET/", str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    return used.ru_utime + used.ru_stime


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
    print(f"{'log':<12} {'MB':>5} {'grep s':>7} {'verdict s':>9} {'x grep':>7} {'MB/s':>6} {'RSS MB':>7}  result")
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{kind.__name__}.log"
            path.write_bytes(kind(size) + (b"" if kind in (corpus, real, ranks, job) else TABLE))
            megabytes = path.stat().st_size / 1e6
            grep(path)
            turns = [(grep(path), judge(path)) for _ in range(TURNS)]
            floor = statistics.median(seconds for seconds, _ in turns)
            spent = statistics.median(found["seconds"] for _, found in turns)
            ratio = statistics.median(found["seconds"] / max(seconds, 0.001) for seconds, found in turns)
            found = turns[0][1]
            print(
                f"{kind.__name__:<12} {megabytes:>5.0f} {floor:>7.3f} {spent:>9.2f} {ratio:>7.1f}"
                f" {megabytes / spent:>6.0f} {found['rss_mb']:>7.0f}  {found['verdict']}, {found['ranks']} ranks",
                flush=True,
            )


TABLE = "".join(line + "\n" for line in table_of(BASE)).encode()
KINDS = [repeated, tagged, training, timed, job, distinct, operations, traces, tests, ranks]
if CORPUS.is_dir():
    KINDS += [real, corpus]

if __name__ == "__main__":
    main()
