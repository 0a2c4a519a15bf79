"""The state is the same, to the byte, for any split of a log into blocks and any process that digests them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from seatrial.logs import Partial, read
from seatrial.logs.reader import scan
from seatrial.logs.reader.digest import Digester
from tests.logs.logmaker import Maker, interleaved, table_of

HERE = Path(__file__).parent
GIVEN = HERE.parents[2].parent / "shared"
LOGS = sorted(path for path in (HERE / "data").rglob("*") if path.suffix in (".log", ".txt") and path.is_file())
LOGS += sorted(
    path for folder in ("nccl-corpus", "nccl-corpus-2026", "nccl-recorded") for path in (GIVEN / folder).glob("*.log")
)
MAKERS = (
    Maker(),
    Maker(version="2.7.8", channels=4),
    Maker(socket_ranks=(1,), channels=8),
    Maker(no_gdr_hosts=("gpu-node-1",)),
    Maker(stop="init"),
    Maker(gpus=1, pxn=True, env={"NCCL_IB_HCA": "mlx5"}),
)
STAMPS = (b"", b"2024-11-28T07:42:%02d.%06dZ ", b"[2024-11-28 07:42:%02d] [%d] ", b"%d: [%d] ")
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
    b"",
)


def chatter(rng: random.Random, maker: Maker, number: int) -> bytes:
    """Return an irrelevant line with unique numbers: a program's, or one of NCCL's long traces."""
    rank = rng.randrange(maker.ranks)
    head = f"{maker.host(rank)}:{maker.pid(rank)}:{maker.pid(rank)} [{rank % maker.gpus}] NCCL ".encode()
    pointer = rng.getrandbits(36)
    forms = (
        b"step %d loss %.4f request %x took 0x%x" % (number, rng.random(), pointer, pointer),
        head
        + b"INFO AllReduce: opCount %x sendbuff 0x7f%x count 131072 comm 0x4cfb4b0 [nranks=16]" % (number, pointer),
        head + b"INFO proxyProgressAsync opId=0x%x op.type=%d done" % (pointer, number % 9),
        head + b"CALL ncclAllReduce(0x%x,0x%x,%d)" % (pointer, pointer + 7, number),
        b"%d 262144 float sum -1 69.55 15.08 26.38 0 68.58 15.29 26.76 0" % number,  # a row only after a header
    )
    return rng.choice(forms)


def log_of(seed: int) -> bytes:
    """Make a log of set-ups, tables, irrelevant stretches, and a few relevant lines."""
    rng = random.Random(seed)
    stamp, lines = STAMPS[seed % len(STAMPS)], []
    for part in range(rng.randrange(2, 6)):
        maker = rng.choice(MAKERS)
        lines += interleaved(maker.processes(), part).splitlines()
        lines += [chatter(rng, maker, number) for number in range(rng.randrange(400))]
        lines += [line.encode() for line in table_of(maker)] * rng.choice((0, 1, 3))
    for _ in range(rng.randrange(30)):
        lines.insert(rng.randrange(len(lines)), rng.choice(RARE))
    stamped = [(stamp % (n % 60, n) if stamp else b"") + line for n, line in enumerate(lines)]
    return b"\n".join(stamped) + b"\n" * rng.randrange(2)


def in_blocks(log: bytes, rng: random.Random) -> str:
    """Read a log in blocks cut at random, each digested independently; return the state."""
    partial = Partial()
    reader = scan.Reader(partial, "x")
    reader.source.bytes = len(log)
    *lines, tail = log.split(b"\n")
    at = 0
    while at < len(lines):
        size = rng.choice((1, 2, 7, 60, 900, 20_000))
        block = b"".join(line + b"\n" for line in lines[at : at + size])
        reader.see(block)
        reader.take(Digester().digest(block), block)
        at += size
    reader.parts = [tail]
    reader.finish()
    return json.dumps(partial.to_dict())


def held(log: bytes, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> str:
    """Read a log in chunks of any size, in blocks of which some are applied together; return the state."""
    monkeypatch.setattr(scan, "BLOCK", rng.choice((1, 300, 5000, 40_000)))
    monkeypatch.setattr(scan, "HELD", rng.choice((1, 2000, 100_000, 1 << 30)))
    cuts = sorted(rng.randrange(len(log) + 1) for _ in range(len(log) // 3000))
    chunks = [log[at:end] for at, end in zip([0, *cuts], [*cuts, len(log)], strict=True)]
    return json.dumps(scan.read([("x", chunks)]).to_dict())


def at_once(log: bytes) -> str:
    partial = Partial()
    reader = scan.Reader(partial, "x")
    reader.source.bytes = len(log)
    reader.parts = [log]
    reader.finish()
    return json.dumps(partial.to_dict())


@pytest.mark.parametrize("seed", range(16))
def test_blocks_do_not_matter_in_made_logs(seed, monkeypatch):
    """Set-ups, tables, torn lines, stamps and traces, cut anywhere."""
    monkeypatch.setattr("seatrial.logs.reader.events.foreign.ForeignLines.TAGGED", seed % 3 * 100)
    log = log_of(seed)
    assert in_blocks(log, random.Random(seed)) == at_once(log) == held(log, random.Random(seed), monkeypatch)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: "/".join(path.parts[-2:]))
def test_blocks_do_not_matter_in_real_logs(path, monkeypatch):
    """The given logs are cut anywhere with the same result."""
    log = path.read_bytes()
    assert in_blocks(log, random.Random(path.name)) == at_once(log)
    assert held(log, random.Random(path.name), monkeypatch) == json.dumps(scan.read([("x", [log])]).to_dict())


def test_every_line_of_nccl_is_counted_once():
    """INFO lines of any content and frequency are counted, and so are warnings."""
    log = interleaved(Maker().processes(), 1)
    marked = log.count(b"NCCL INFO ")
    (source,) = read([("x", [log * 40 + b"h:1:1 [0] x.cc:1 NCCL WARN odd\n"])]).sources
    assert source.nccl_lines == 40 * marked + 1
    assert source.lines == 40 * log.count(b"\n") + 1
