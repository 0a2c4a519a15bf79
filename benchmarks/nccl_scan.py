"""The speed and memory of the whole verdict of an NCCL log on one core, compared with grep on the same file.

    python benchmarks/nccl_scan.py [MEGABYTES] [KIND...]
    AGAINST=../before python benchmarks/nccl_scan.py

Makes large logs from recorded ones; as in a real job's log, nearly every line is unique. Judges each log in a separate
process, alternating with grep, with a plain read of the file's lines in Python, and with another version if AGAINST
names its folder. Prints medians of processor time, in MB/s and as multiples of ``grep -cE 'via NET/'``, which only
counts lines; the verdict reads transports, faults and tables.

Real logs of two hosts, multiplied to jobs of 4,096 to 6,400 ranks, on one core, alternating, at a load average of 5 to
12 (the best of five, MB/s). Before: an event for each head, a pattern for each line of a communicator, a pattern of all
words that symptoms need:

    EFA, 16 channels for each edge     75 MB    86.5    before 76.2
    InfiniBand with PXN                19       40.2           35.7
    Slingshot                          18       39.9           35.0
    sockets, four threads a process    21       33.9           28.8
    NCCL_DEBUG_SUBSYS=ALL              19       64.2           63.9

Later, three turns on an idle machine: EFA 94 -> 106, InfiniBand 46 -> 49, sockets 37 -> 40, Slingshot 43 -> 42. Costs:
a line without a known word 0.35 us (split; process and message looked up), 65 ms for 184,000 lines; an edge 0.6 us each
time and 1 us more the first time; a communicator's line 1.2 us, and 1.6 us to apply it; a new head 2 us. Each touches
several objects that no cache holds. Tried without a gain: lines grouped by process first (holding them costs more than
it saves); the same for channels alone, split and counted process by process; ranks of channels and their parts looked
up instead of matched (as slow if a rank is in three or four lines); a separate look-up of the writing process, so that
lines without content touch none. Lines sorted by process take a tenth less.

Then: blocks of 1 MB instead of 4, one shared object for each rank, set-ups counted once for a job, heads of torn lines
read once. Alternating with the version before, the best of seven at a load average of 3 to 10 (ms): Slingshot 518 ->
473, sockets 574 -> 547; InfiniBand and EFA within the noise. The cost is memory that no cache holds, so these brought
no gain: all lines of a process about its only communicator applied at once, by its steps (as many objects are read);
the lines of processes in flat lists; a cache of the transports of device lists. These were slower: one dict of facts
for all processes with the same facts (finding it costs more than making it); 8 or 16 MB held before they are applied,
instead of 32.

The program's own output, in unique lines, is searched in stretches (20 MB, alternating, MB/s); before: line by line.

    programs    26.6    before  9.4
    fronted     23.0            8.8

Half of that is the search for significant words: 15 ns a byte for 19 letters, one after the other.

Later the search dropped words that contain another one (405 of 1,272), and words that occur in every traceback or
address (20 MB, alone on a core, seconds; before: with them): training 0.215 -> 0.194, programs 1.31 -> 1.02.
"""

from __future__ import annotations

import itertools
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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.logs.logmaker import Maker, interleaved, table_of  # noqa: E402 -- after the path is set

JUDGE = """
import json, os, sys, time
sys.path.insert(0, sys.argv[1])
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from seatrial.logs import conclude, open_sources, read
began = time.process_time()
(job, *_) = conclude(read(open_sources([sys.argv[2]])))
peak = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
print(json.dumps({"seconds": time.process_time() - began, "rss_mb": int(peak) / 1024,
                  "verdict": job["verdict"], "ranks": job["ranks"]}))
"""
TURNS = int(os.environ.get("TURNS", "5"))
AGAINST = os.environ.get("AGAINST", "")  # folder of another version, judged in the same turns
BASE = Maker(hosts=("gpu-node-0", "gpu-node-1"), gpus=8, rails=8, channels=16)


RECORDED = ROOT / "tests" / "logs" / "data" / "recorded"
HEAD = re.compile(r"(\S+):\d+:\d+ \[\d+\] NCCL ")
ORDER = re.compile(r"Channel \d+/\d+ :\s+\d+ ")  # the ring order of all ranks, printed by rank 0 alone


def larger(name: str, size: int) -> list[bytes]:
    """Return the lines of a recording as one job of many copies of its hosts, so that each line is unique.

    Hosts, processes, threads, ranks, pointers and addresses are those of the copy; sizes are those of the whole job.
    Lines of the copies are interleaved in the order of printing. Text that is not NCCL's (tables) appears once, at the
    end.
    """
    lines = (RECORDED / name).read_text().splitlines()
    heads = [HEAD.match(line) for line in lines]
    own = [line for line, head in zip(lines, heads, strict=True) if head]
    hosts = sorted({re.escape(head[1]) for head in heads if head}, key=len, reverse=True)
    ranks = max(int(number) for line in own for number in re.findall(r"n[rR]anks (\d+)", line))
    count = max(2, size // sum(len(line) + 1 for line in own))
    parts = re.compile(
        rf"(?P<host>(?<![\w-])(?:{'|'.join(hosts)})(?![\w-]))"
        r"|(?P<process>(?<=:)\d+(?=:\d+ \[)|(?<=:)\d+(?= \[\d+\] NCCL))"
        r"|(?P<rank>(?<=\brank )\d+|(?<![\w.])\d+(?=\[\w+\]))|(?P<size>(?<=nranks |nRanks |nNodes )\d+)"
        r"|(?P<pointer>\b0x[0-9a-f]{6,12}\b)|(?P<address>\b(?:\d+\.){3}\d+(?=<))"
    )

    def of_copy(line: str, copy: int) -> str:
        def changed(found: re.Match[str]) -> str:
            text = found.group()
            made = {
                "host": lambda: f"{text}-{copy:05d}",
                "process": lambda: str(int(text) + 17 * copy),
                "rank": lambda: str(int(text) + ranks * copy),
                "size": lambda: str(int(text) * count),
                "pointer": lambda: hex(int(text, 16) + 4096 * copy),
                "address": lambda: f"10.{copy // 256 % 256}.{copy % 256}.{text.rpartition('.')[2]}",
            }
            return made[str(found.lastgroup)]()

        return parts.sub(changed, line)

    rng, mixed = random.Random(3), []
    for copy in range(count):
        late = rng.random() / 5
        mixed += [
            (at / len(own) + late, copy, at) for at, line in enumerate(own) if copy == 0 or not ORDER.search(line)
        ]
    mixed.sort()
    rest = [line for line, head in zip(lines, heads, strict=True) if not head and not re.match(r"#\s+Rank", line)]
    return [line.encode() for line in [*(of_copy(own[at], copy) for _, copy, at in mixed), *rest]]


def hosts(size: int) -> bytes:
    """Yield sixteen recorded hosts over sockets."""
    return b"\n".join(larger("sixteen-hosts.log", size)) + b"\n"


def subsystems(size: int) -> bytes:
    """Yield two recorded hosts under NCCL_DEBUG_SUBSYS=ALL: proxies, operations, memory, all with pointers."""
    return b"\n".join(larger("two-hosts-tree-all-subsys.log", size)) + b"\n"


def stuck(size: int) -> bytes:
    """Yield a recorded job with a rank that hangs."""
    return b"\n".join(larger("rank-hangs.log", size)) + b"\n"


def tagged(size: int) -> bytes:
    """Yield the sixteen hosts under mpirun --tag-output."""
    ranks: dict[bytes, int] = {}
    out = []
    for line in larger("sixteen-hosts.log", size):
        head = re.match(rb"(\S+?:\d+):", line)
        out.append(b"[1,%d]<stdout>:%s\n" % (ranks.setdefault(head.group(1), len(ranks)) if head else 0, line))
    return b"".join(out)


def stamped(size: int) -> bytes:
    """Yield the sixteen hosts, each line with a time stamp as kubectl logs --timestamps writes it."""
    return b"".join(
        b"2026-01-02T03:%02d:%02d.%09dZ %s\n" % (number // 6000 % 60, number // 100 % 60, number, line)
        for number, line in enumerate(larger("sixteen-hosts.log", size))
    )


def rdma(size: int) -> bytes:
    """Yield a synthetic job over InfiniBand with GPUDirect, sixteen channels; each rank prints its own."""
    rng = random.Random(3)
    hosts = tuple(f"gpu-node-{index:05d}" for index in range(max(2, size // 22_000)))
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


def tests(size: int) -> bytes:
    """Yield nccl-tests in a loop: tables with numbers that never repeat."""
    out, total, rng = [interleaved(BASE.processes(), 1)], 0, random.Random(5)
    lines = [line.encode() for line in table_of(BASE)]
    while total < size:
        for line in lines:
            words = line.split()
            if words and words[0].isdigit():
                for _ in range(12):
                    speed, other = rng.random() * 100, rng.random() * 100
                    values = (10 + other, speed, speed * 1.8, 0, 11 + speed, other + 1, other * 1.7, 0)
                    out.append(b"%12s  %12s     float     sum      -1  " % tuple(words[:2]))
                    out.append(b"%7.2f  %6.2f  %6.2f  %6d  %7.2f  %6.2f  %6.2f  %6d\n" % values)
                    total += 115
            else:
                out.append(line + b"\n")
                total += len(line) + 1
    return b"".join(out)


def training(size: int) -> bytes:
    """Yield a training log: one set-up, then the program's own lines."""
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


SYLLABLES = [first + second for first in "bcdfghjklmnpqrstvwxyz" for second in ("a", "e", "il", "o", "ur")]
WORDS = re.findall(
    r"\w+",
    "the of and to in is for it was with be by on not at have from which there would when more time some could first"
    " then now over such even loading tokenizer weights checkpoint shard dataset batch optimizer gradient attention"
    " layer cache prefill decode throughput memory kernel compile worker pipeline tensor",
)


def prose(rng: random.Random, count: int) -> str:
    """Return words, every fourth one random, so that no two lines have the same."""
    made = ("".join(rng.choices(SYLLABLES, k=3)) if rng.random() < 0.25 else rng.choice(WORDS) for _ in range(count))
    return " ".join(made)


def named(rng: random.Random, between: str) -> str:
    """Return a dotted or slashed name, as of a module or a path."""
    return between.join("".join(rng.choices(SYLLABLES, k=2)) for _ in range(rng.randint(2, 5)))


def said(rng: random.Random, number: int) -> str:
    """Return one line of a program in a framework's format, with unique numbers, names and words."""
    loss, rate, part, size = rng.random() * 9, rng.random() / 1000, rng.random() * 100, rng.randint(1, 99999)
    time, tag = f"2026-01-{number // 86400 % 28 + 1:02d} {number // 3600 % 24:02d}:{number // 60 % 60:02d}", number % 60
    bar = "\u2588" * (number % 10)
    forms = (
        lambda: (
            f" [{time}:{tag:02d}.{size:06d}] iteration {number:8d}/ 1000000 | consumed samples: {number * 1024:12d} |"
            f" elapsed time per iteration (ms): {part * 99:.1f} | throughput per GPU (TFLOP/s/GPU): {part * 7:.1f} |"
            f" learning rate: {rate:.6E} | global batch size:  1024 | lm loss: {loss:.6E} | loss scale: 1.0 |"
            f" grad norm: {part:.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |"
        ),
        lambda: f"{{'loss': {loss:.4f}, 'grad_norm': {part:.6f}, 'learning_rate': {rate!r}, 'epoch': {part / 50:.2f}}}",
        lambda: (
            f"[titan] {time}:{tag:02d},{size % 1000:03d} - root - INFO - step: {number}  loss: {loss:7.4f}  memory:"
            f" {part:.2f}GiB({part:.2f}%)  tps: {size:,}  tflops: {part * 5:.2f}  mfu: {part / 2:.2f}%"
        ),
        lambda: (
            f"[{time}:{tag:02d},{size % 1000:03d}] [INFO] [logging.py:96:log_dist] [Rank {number % 64}] step={number},"
            f" skipped=0, lr=[{rate!r}, {rate / 2!r}], mom=[(0.9, 0.95), (0.9, 0.95)]"
        ),
        lambda: "".join(
            f"\r{named(rng, ' ')}: {at:3d}%|{bar:10s}| {size + at}/{size * 9} [{tag:02d}:{at:02d}<{part:.0f}:{tag:02d},"
            f" {part / 7:5.2f}it/s, loss={loss - at / 100:.4f}]"
            for at in range(number % 7)
        ),
        lambda: (
            f"/usr/local/lib/python3.11/site-packages/{named(rng, '/')}.py:{size % 3000}: UserWarning:"
            f" {prose(rng, 12)} (Triggered internally at ../aten/src/{named(rng, '/')}.cpp:{size % 999}.)\n"
            "  warnings.warn("
        ),
        lambda: (
            f"{time}:{tag:02d},{size % 1000:03d} - {named(rng, '.')} - INFO - {prose(rng, 9)}, {size:,} samples in"
            f" {part:.2f}s from /data/{named(rng, '/')}/part-{size:05d}-of-99999.tar"
        ),
        lambda: json.dumps({"ts": number + part, "level": "info", "logger": named(rng, "."), "msg": prose(rng, 8)}),
        lambda: (
            f"{named(rng, '.')}.linear_qkv.weight: torch.Size([{size}, {size % 512}, 32]), dtype: torch.bfloat16,"
            f" device: cuda:{number % 8}, mean {loss:.4e}, std {rate:.4e}"
        ),
        lambda: (
            f"INFO 01-02 03:{tag:02d}:{size % 60:02d} [metrics.py:455] Avg prompt throughput:"
            f" {part * 99:.1f} tokens/s, Avg generation throughput: {part * 9:.1f} tokens/s, Running:"
            f" {size % 256} reqs, Swapped: 0 reqs, Pending: {size % 31} reqs,"
            f" GPU KV cache usage: {part:.1f}%, CPU KV cache usage: 0.0%."
        ),
        lambda: f'  File "/opt/{named(rng, "/")}.py", line {size % 2000}, in {named(rng, "_")}',
        lambda: (
            f"saved checkpoint /ckpt/{named(rng, '/')}/iter_{number:07d}/mp_rank_{size % 64:02d}/model_{size:x}.pt"
            f" ({part:.1f} GB in {loss:.1f} s), {prose(rng, 6)}"
        ),
        lambda: prose(rng, 22).capitalize() + ".",
        lambda: (
            f"[{part * 9999:12.6f}] {named(rng, '-')} 0000:{size % 256:02x}:00.0: {prose(rng, 7)} 0x{size * 7919:012x}"
        ),
    )
    return rng.choice(forms)()


def programs(size: int, front: Callable[[random.Random, int], str] = lambda *_: "") -> bytes:
    """Yield a realistic job log: unique lines of the program and its libraries, and 1 % of NCCL lines."""
    rng, out, total = random.Random(7), interleaved(BASE.processes(), 1).decode().splitlines(), 0
    nccl = [line for line in out if " NCCL INFO " in line]
    out = [f"{front(rng, 0)}{line}" for line in out]
    for number in itertools.count(1):
        text = rng.choice(nccl) if rng.random() < 0.01 else said(rng, number)
        out.append("\n".join(front(rng, number) + line for line in text.split("\n")))
        total += len(out[-1]) + 1
        if total > size:
            return "\n".join(out).encode() + b"\n"
    return b""


def fronted(size: int) -> bytes:
    """Yield the same with the prefixes of kubectl logs --prefix and --timestamps, torchrun, srun -l and Ray."""
    fronts = (
        lambda rng, _: f"[pod/train-worker-{rng.randint(0, 63)}/pytorch] ",
        lambda _, number: f"2026-01-02T03:{number // 6000 % 60:02d}:{number // 100 % 60:02d}.{number:09d}Z ",
        lambda rng, _: f"[default{rng.randint(0, 7)}]:",
        lambda rng, _: f"{rng.randint(0, 63):2d}: ",
        lambda rng, _: f"(RayTrainWorker pid={rng.randint(1, 99999)}, ip=10.0.{rng.randint(0, 255)}.7) ",
    )
    return programs(size, lambda rng, number: fronts[number * len(fronts) // (size // 100) % len(fronts)](rng, number))


def grep(path: Path) -> float:
    """Return the cost of one run of grep."""
    with subprocess.Popen(["grep", "-cE", "via NET/", str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    return used.ru_utime + used.ru_stime


def lines(path: Path) -> float:
    """Return the cost of reading a file and splitting it into lines."""
    began = time.process_time()
    with path.open("rb") as file:
        while data := file.read(1 << 22):
            data.split(b"\n")
    return time.process_time() - began


def judge(path: Path, root: Path = ROOT) -> dict[str, Any]:
    """Return cost and result of one verdict by the version in a folder, in a separate process on one core."""
    run = subprocess.run(
        [sys.executable, "-c", JUDGE, str(root), str(path)], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def main() -> None:
    """Print one line per kind of log."""
    size = int(sys.argv[1] if len(sys.argv) > 1 else "20") * 1_000_000
    kinds = [kind for kind in KINDS if not sys.argv[2:] or kind.__name__ in sys.argv[2:]]
    roots = [ROOT, *([Path(AGAINST)] if AGAINST else [])]
    heads = ("log", "MB", "unlike", "grep s", "verdict s", "x grep", "x read", "MB/s", "before" if AGAINST else "")
    print("{:<11} {:>4} {:>6} {:>7} {:>9} {:>7} {:>7} {:>6} {:>7} {:>7}  result".format(*heads, "RSS MB"))
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{kind.__name__}.log"
            path.write_bytes(kind(size))
            megabytes = path.stat().st_size / 1e6
            text = path.read_bytes().splitlines()
            unlike = len(set(text)) / len(text)
            grep(path)
            turns = [(grep(path), lines(path), *(judge(path, root) for root in roots)) for _ in range(TURNS)]
            floor, plain = (statistics.median(turn[at] for turn in turns) for at in (0, 1))
            spent = [statistics.median(turn[2 + at]["seconds"] for turn in turns) for at in range(len(roots))]
            found = turns[0][2]
            times = [spent[0] / max(least, 0.001) for least in (floor, plain)]
            speeds = [megabytes / each for each in spent]
            before = f"{speeds[1]:.1f}" if AGAINST else ""
            print(
                f"{kind.__name__:<11} {megabytes:>4.0f} {unlike:>5.0%} {floor:>7.3f} {spent[0]:>9.2f}"
                f" {times[0]:>7.0f} {times[1]:>7.1f} {speeds[0]:>6.1f} {before:>7} {found['rss_mb']:>7.0f}"
                f"  {found['verdict']}, {found['ranks']} ranks",
                flush=True,
            )


KINDS = (hosts, subsystems, stuck, tagged, stamped, rdma, tests, training, programs, fronted)

if __name__ == "__main__":
    main()
