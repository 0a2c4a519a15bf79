"""Does it matter that most lines are passed over unread? The reading without any shortcut is the reference."""

from __future__ import annotations

import random
from typing import Any

import pytest

from jobs.nccl import conclude, read, scan
from jobs.nccl.events import shapes
from jobs.nccl.lines import repeats
from tests.nccl.logmaker import Maker, interleaved, table_of

MAKERS = (
    Maker(),
    Maker(version="2.7.8", channels=4),
    Maker(socket_ranks=(1,), channels=8),
    Maker(no_gdr_hosts=("gpu-node-1",)),
    Maker(stop="init"),
    Maker(gpus=1, pxn=True, env={"NCCL_IB_HCA": "mlx5"}),
)
STAMPS = (b"", b"2024-11-28T07:42:%02d.%06dZ ", b"[2024-11-28 07:42:%02d] [%d] ")
RARE = (
    b"#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong",
    b" 1048576 262144 float sum -1 69.55 15.08 26.38 0 68.58 15.29 26.76 0",
    b"     1048576        262144     float     sum      -1",
    b"    69.55   15.08   26.38       0    68.58   15.29   26.76       0",
    b"# Avg bus bandwidth    : 90.1",
    b"Last error:",
    b"NET/IB: Got completion from peer 10.0.0.1<1> with status=12 opcode=1 len=0 vendor err 129",
    b"gpu-node-0:1000:1000 [0] transport/net_ib.cc:1 NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0",
    b"gpu-node-0:1000:1000 [0] NCCL INFO transport/net.cc:34 -> 2",
    b"gpu-node-7:77:77 [0] NCCL INFO AllReduce: opCount 1 sendbuff 0x7f00 count 7 comm 0x1 [nranks=4] stream 0x5",
    b"gpu-node-0:1000:1000 [0] NCCL INFO AllReduce: opgpu-node-1:1014:1014 [0] NCCL INFO NCCL_ALGO set by environment to Ring.",
    b"gpu-node-0:1000:1000 [0] NCCL INFO comm 0x55000000 rank 0 nranks 4 cudaDev 0 busId 1a000 - Abort COMPLETE",
    b"step 1\rstep 2\r# Out of bounds values : 1 FAILED",
    b"[rank3]:[E419 x.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=X",
    b"rank 3 of WORLD_SIZE=16 with 0xbadbadbadbad",
    b"task 3 exceeded time limit",
)  # fmt: skip


def chatter(rng: random.Random, maker: Maker, number: int) -> bytes:
    """Return a line that says nothing, with numbers of its own: a program's, or one of NCCL's long traces."""
    rank = rng.randrange(maker.ranks)
    head = f"{maker.host(rank)}:{maker.pid(rank)}:{maker.pid(rank)} [{rank % maker.gpus}] NCCL ".encode()
    pointer = rng.getrandbits(36)
    forms = (
        b"step %d loss %.4f request %x took 0x%x" % (number, rng.random(), pointer, pointer),
        b" iteration %8d/  500000 | lm loss: %.6E | skipped:   0 |" % (number, rng.random()),
        head
        + b"INFO AllReduce: opCount %x sendbuff 0x7f%x count 131072 comm 0x4cfb4b0 [nranks=16]" % (number, pointer),
        head + b"INFO proxyProgressAsync opId=0x%x op.type=%d done" % (pointer, number % 9),
        head + b"INFO Tree %d : -1 -> %d -> 3/-1/-1" % (number % 8, number),
        head + b"CALL ncclAllReduce(0x%x,0x%x,%d)" % (pointer, pointer + 7, number),
        b"%d 262144 float sum -1 69.55 15.08 26.38 0 68.58 15.29 26.76 0" % number,  # a row, behind a header only
    )
    return forms[rng.randrange(len(forms)) if rng.random() < 0.2 else number // 500 % len(forms)]


def log_of(seed: int) -> bytes:
    """Make a log: set-ups and tables, long stretches that say nothing, and here and there a line that does."""
    rng = random.Random(seed)
    maker, stamp, lines = MAKERS[seed % len(MAKERS)], STAMPS[seed // 2 % len(STAMPS)], []
    for part in range(rng.randrange(2, 6)):
        if part == 0 or rng.random() < 0.3:
            lines += interleaved(maker.processes(), part).splitlines() * rng.choice((1, 1, 30))
        lines += [chatter(rng, maker, number) for number in range(rng.randrange(4000))]
        lines += [line.encode() for line in table_of(maker)] * rng.choice((0, 1, 3))
    for _ in range(rng.randrange(8)):
        lines.insert(rng.randrange(len(lines)), rng.choice(RARE))
    numbered = enumerate(lines)
    return b"".join((stamp % (n % 60, n) if stamp else b"") + line + b"\n" for n, line in numbered)


def of(log: bytes, size: int = 1 << 15) -> dict[str, Any]:
    """Read a log and conclude; how often a kind of line was seen is a lower bound, and left out."""
    partial = read([("x", (log[at : at + size] for at in range(0, len(log), size)))])
    for source in partial.sources:
        source.nccl_lines = min(source.nccl_lines, 1)
    for notes in [source.events for source in partial.sources] + [proc.notes for proc in partial.procs.values()]:
        for note in notes.values():
            note.count = 1
    return {"documents": conclude(partial), **partial.to_dict()}


def same_unread(log: bytes, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Say whether a log reads the same with all shortcuts, taken as early as they can be, as without any."""
    monkeypatch.setattr(scan, "_SHAPELY", 1)
    monkeypatch.setattr(repeats, "SIZE", 512)
    quick = of(log)
    monkeypatch.setattr(scan, "_SHAPELY", 1 << 30)
    monkeypatch.setattr(repeats.Pieces, "find", lambda *_: None)
    monkeypatch.setattr(repeats.Lines, "learns", lambda _: False)
    monkeypatch.setattr(shapes.Shapes, "add", lambda *_: None)
    monkeypatch.setattr(shapes.Shapes, "learn", lambda *_: False)
    return quick == of(log)


@pytest.mark.parametrize("seed", range(16))
def test_what_is_passed_over_says_nothing(seed, monkeypatch):
    """Pieces, lines and shapes that are known are not read again: all that is kept is the same as if they were."""
    assert same_unread(log_of(seed), monkeypatch)


def test_a_table_may_begin_among_lines_that_said_nothing(monkeypatch):
    """Numbers are no rows until a header comes, in the middle of a block; then the lines behind it are read."""
    rows = [b"%d 262144 float sum -1 69.55 15.08 26.38 0 68.58 15.29 26.76 0" % number for number in range(6000)]
    rows.insert(5000, RARE[0])
    assert same_unread(log_of(0) + b"\n".join(rows) + b"\n# Avg bus bandwidth    : 90.1\n", monkeypatch)
