"""A full-size fuzz test: logs that crash the analyzer, slow it down or fill its memory.

    python benchmarks/nccl_fuzz.py [MILLIONS_OF_LINES] [SEED]

First damaged logs, by default ten million lines of every shape that the tests create: cut, doubled, concatenated, with
bytes and numbers changed. After every million a document is rendered in all its forms. Then inputs that are not logs,
one gigabyte each: a single line, zeros, blanks, carriage returns, endless heads, new processes on every line, a gzip
bomb. Prints seconds, the peak memory of the process so far, and the answer; any exception but NcclLogError ends it.

Seed 7, two shared cores under load, Python 3.11: no exception in every gigabyte but the last ("strangers") and in six
million damaged lines. The peak memory was 76 MB after the former and 172 MB after the latter, 162 MB of it after the
first million.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from reports import explain_forms  # noqa: E402
from reports.explain_forms import to_markdown  # noqa: E402
from reports.record import EXIT_CODES, worst  # noqa: E402
from seatrial.logs import NcclLogError, conclude, open_sources, read  # noqa: E402 -- after the path is set
from tests.logs.logmaker import Maker, interleaved, table_of  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAKERS = (
    Maker(gpus=4),
    Maker(version="2.7.8"),
    Maker(version="2.2.13"),
    Maker(socket_ranks=(1,)),
    Maker(net="Libfabric"),
    Maker(gpus=1, pxn=True),
    Maker(no_gdr_hosts=("gpu-node-1",), env={"NCCL_IB_HCA": "mlx5", "HF_TOKEN": "hf_AbCdEfGhIjKlMnOpQrStUvWx"}),
)
PIECES = (
    *(b"NCCL INFO ", b"NCCL WARN ", b"gpu-node-0:1000:1000 [0] ", b" -> 3", b" via NET/IB/0/GDRDMA"),
    *(b"Channel 00/0 : 0[0] -> ", b"\n", b"\n\n", b"\r", b"\r\n", b"\x1b[31m", b"\x1b]0;", b"\x00", b"# ", b" float "),
    *(b"      ", b"1e999", b"nan", b"inf", b"-1", b"9" * 40, b"#wrong", b"algbw busbw time", b"Avg bus bandwidth : "),
    *(
        b"Out of bounds values : ",
        b"comm 0x1 rank 0 nranks 2",
        b" - Init START",
        b" - Init COMPLETE",
        b"{",
        b'{"log":"',
    ),
    *(b"[1,0]<stdout>:", b"Last error:", b"\xff\xfe", b"\xef\xbb\xbf", b"NET/IB : Using [0]mlx5_0:1/IB", b"x" * 9000),
    b"[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4",
    b"1048576 262144 float sum -1 69.55 15.08 26.38 0 68.58 15.29 26.76 0",
)
GIGABYTE = 1_000_000_000


def damaged(lines: int, rng: random.Random) -> Iterator[bytes]:
    """Yield so many lines, in blocks, with about two changes in three of them."""
    logs = [
        interleaved(maker.processes(), 1) + "".join(line + "\n" for line in table_of(maker)).encode()
        for maker in MAKERS
    ]
    made = 0
    while made < lines:
        block = bytearray(b"".join(rng.choice(logs) for _ in range(4)))
        for _ in range(block.count(b"\n")):
            at, what = rng.randrange(len(block)), rng.randrange(6)
            if what == 0:
                block[at] = rng.randrange(256)
            elif what == 1:
                del block[at : at + rng.randrange(60)]
            elif what == 2:
                other = rng.randrange(len(block))
                block[at:at] = block[other : other + rng.randrange(200)]
            elif what == 3:
                block[at : at + 3] = b"%d" % rng.randrange(10 ** rng.randrange(1, 12))
            else:
                block[at:at] = rng.choice(PIECES) if rng.random() < 0.98 else rng.randbytes(300)
        made += block.count(b"\n")
        yield bytes(block)


def repeated(piece: bytes) -> Callable[[], Iterator[bytes]]:
    """Return a generator of a gigabyte that repeats one piece."""
    block = piece * max(1, (1 << 17) // len(piece))
    return lambda: (block for _ in range(GIGABYTE // len(block)))


def strangers() -> Iterator[bytes]:
    """Yield a gigabyte with a new process and host on every line, each with different settings and edges."""
    made = number = 0
    while made < GIGABYTE:
        out = []
        for _ in range(1000):
            number += 1
            head = b"h%d:%d:%d [0] NCCL INFO " % (number, number % 4_000_000, number)
            out.append(head + b"NCCL_X%d set by environment to %d.\n" % (number % 1000, number))
            out.append(
                head
                + b"comm 0x%x rank %d nranks 900000 commId 0x%x - Init START\n" % (number, number % 900_000, number % 7)
            )
            out.append(
                head
                + b"Channel %02d/0 : %d[0] -> %d[0] [send] via NET/IB/%d\n"
                % (number % 64, number % 900_000, number % 77_777, number % 99)
            )
        block = b"".join(out)
        made += len(block)
        yield block


def bomb(folder: str) -> str:
    """Write a gzip file of a megabyte that unpacks to a gigabyte of lines."""
    path = Path(folder) / "bomb.gz"
    packer = zlib.compressobj(9, wbits=31)
    line = (b"a" * 4095 + b"\n") * 256
    path.write_bytes(b"".join(packer.compress(line) for _ in range(GIGABYTE // len(line))) + packer.flush())
    return str(path)


def peak_mb() -> int:
    """Return the peak memory of this process."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) // 1024


def answer(name: str, sources: Callable[[], object]) -> None:
    """Read, conclude and render; print the cost and the answer."""
    began = time.perf_counter()
    try:
        jobs = conclude(read(sources()))  # type: ignore[arg-type]
        text = explain_forms.to_text(jobs, color=False) + to_markdown(jobs) + explain_forms.to_json(jobs)
        said = f"{len(jobs)} jobs, {EXIT_CODES[worst(job['verdict'] for job in jobs)]}, {len(text) // 1000} kB of text"
        assert "hf_AbCdEfGhIjKlMnOpQrStUvWx" not in text
    except NcclLogError as error:
        said = str(error)
    print(f"{name:<24} {time.perf_counter() - began:>7.1f} s {peak_mb():>5} MB  {said[:150]}", flush=True)


def main() -> None:
    """Read everything; the process's peak memory only ever grows, so the small ones come first."""
    millions, seed = (int(sys.argv[n]) if len(sys.argv) > n else default for n, default in ((1, 10), (2, 1)))
    for name, piece in (
        ("one line", b"x"),
        ("one line of heads", b"gpu-node-0:1000:1000 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] "),
        ("zeros", b"\x00"),
        ("blanks", b" "),
        ("empty lines", b"\n"),
        ("carriage returns", b"step 7  \r"),
        ("colons", b"a:1:"),
    ):
        answer(name, lambda piece=piece: [("x", repeated(piece)())])
    with tempfile.TemporaryDirectory() as folder:
        path = bomb(folder)
        answer("gzip bomb", lambda: open_sources([path]))
    rng = random.Random(seed)
    for million in range(millions):
        answer(f"damaged lines, {million + 1} M", lambda: [("x", damaged(1_000_000, rng))])
    answer("strangers", lambda: [("x", strangers())])


if __name__ == "__main__":
    main()
