"""How fast is the whole verdict of an NCCL log, beside grep on the same file, and in how much memory?

    python benchmarks/nccl_scan.py [MEGABYTES]

Makes logs of our own shapes, judges each in a process of its own, in turns with grep, and prints the median of the
ratios, which depends less on the machine. ``grep -cE 'via NET/'`` only counts lines; the verdict reads transports,
faults and tables. The goal is 4 for ``repeated`` and 6 for ``tagged``. Lines that were read before cost a look into a
set; where every line is new (``timed``, ``distinct``) Python's own price per line keeps the verdict far from grep,
which looks at one literal and needs no line at all where that is rare (``operations``).

Measured on two shared cores, 200 MB: repeated 3.7, tagged 3.4, training 7.4, timed 27, operations 96, distinct 106
(thousands of processes, 24 MB/s and 164 MB; the others stay below 30 MB).
"""

from __future__ import annotations

import json
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
began = time.perf_counter()
(job,) = conclude(read(open_sources([sys.argv[2]])))
peak = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
print(json.dumps({"seconds": time.perf_counter() - began, "rss_mb": int(peak) / 1024,
                  "verdict": job["verdict"], "ranks": job["ranks"]}))
"""
TURNS = 5
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
    """Return the time of one run of grep."""
    began = time.perf_counter()
    subprocess.run(["grep", "-cE", "via NET/", str(path)], stdout=subprocess.PIPE, check=False)
    return time.perf_counter() - began


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
    print(f"{'log':<12} {'MB':>5} {'grep s':>7} {'verdict s':>9} {'x grep':>7} {'MB/s':>6} {'RSS MB':>7}  result")
    table = "".join(line + "\n" for line in table_of(BASE)).encode()
    for kind in (repeated, tagged, timed, distinct, operations, training):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{kind.__name__}.log"
            path.write_bytes(kind(size) + table)
            megabytes = path.stat().st_size / 1e6
            grep(path)
            turns = [(grep(path), judge(path)) for _ in range(TURNS)]
            floor = statistics.median(seconds for seconds, _ in turns)
            spent = statistics.median(found["seconds"] for _, found in turns)
            ratio = statistics.median(found["seconds"] / seconds for seconds, found in turns)
            found = turns[0][1]
            print(
                f"{kind.__name__:<12} {megabytes:>5.0f} {floor:>7.3f} {spent:>9.2f} {ratio:>7.1f}"
                f" {megabytes / spent:>6.0f} {found['rss_mb']:>7.0f}  {found['verdict']}, {found['ranks']} ranks"
            )


if __name__ == "__main__":
    main()
