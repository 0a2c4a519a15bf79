"""No log content breaks the analyzer, fills its memory, or gets control characters or secrets into its output."""

from __future__ import annotations

import gc
import io
import json
import random
import re
import tracemalloc
from types import FunctionType, ModuleType

import pytest

from reports import explain_forms
from reports.explain_forms import to_markdown
from seatrial.logs import Partial, conclude, merge, parallel, read
from seatrial.logs.job import devices
from seatrial.logs.reader import digest, scan
from seatrial.logs.reader.events import heads, processes
from seatrial.logs.reader.lines import patterns
from seatrial.logs.reader.scan import Reader
from seatrial.logs.reader.state import process as state
from seatrial.logs.reader.tables import opened
from tests.logs.logmaker import Maker, interleaved, table_of
from tests.table import table

LOG = (
    interleaved(Maker(gpus=1, channels=1).processes(), 1)
    + "".join(line + "\n" for line in table_of(Maker(gpus=1))).encode()
)
SECRETS = {
    "HF_TOKEN=hf_AbCdEfGhIjKlMnOpQrStUvWx": "hf_AbCdEfGhIjKlMnOpQrStUvWx",
    "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": "wJalrXUtnFEMI",
    "export NGC_API_KEY='nvapi-0123456789abcdefghij'": "nvapi-0123456789",
    "WANDB_API_KEY: 0123456789abcdef0123456789abcdef01234567": "0123456789abcdef0123",
    "Authorization: Bearer abcdefghijklmnop": "abcdefghijklmnop",
    "git clone https://user:hunter2secret@example.com/x.git": "hunter2secret",
    "--token s3cr3tvalue": "s3cr3tvalue",
    "AKIAIOSFODNN7EXAMPLE": "AKIAIOSFODNN7EXAMPLE",
}


def everything(log: bytes) -> str:
    """Read, merge, conclude and render in every form; return all output."""
    partial = Partial.from_dict(json.loads(json.dumps(read([("log", io.BytesIO(log))]).to_dict())))
    jobs = conclude(partial)
    return explain_forms.to_text(jobs, color=False) + to_markdown(jobs) + explain_forms.to_json(jobs)


@table("seed", range(40))
def test_random_bytes_are_no_exception(seed):
    """The analyzer returns a document for any bytes."""
    rng = random.Random(seed)
    everything(bytes(rng.randrange(256) for _ in range(4000)))


@table("seed", range(60))
def test_damaged_logs_are_no_exception(seed):
    """Bytes of a real log are changed, dropped, doubled and swapped at random."""
    rng = random.Random(seed)
    log = bytearray(LOG)
    for _ in range(rng.randrange(1, 60)):
        at = rng.randrange(len(log))
        what = rng.randrange(4)
        if what == 0:
            log[at] = rng.randrange(256)
        elif what == 1:
            del log[at : at + rng.randrange(40)]
        elif what == 2:
            log[at:at] = log[at : at + rng.randrange(80)]
        else:
            log[at:at] = rng.choice(
                [b"\n", b"\r", b"\x1b[", b"99999999999999999999", b"NCCL INFO ", b" -> ", b"\x00", b"nan", b"1e999"]
            )
    everything(bytes(log))


def test_a_log_cut_at_any_byte_is_never_more_than_the_whole(judge):
    """A log cut anywhere raises no exception, no fault that the whole log lacks, and no spurious sockets or half
    GPUDirect."""
    for at in range(0, len(LOG), 3):
        job = judge(LOG[:at])
        fault_ids = {fault["fault"] for fault in job["faults"]}
        assert fault_ids <= {"nccl.log-truncated", "nccl.no-evidence"}, (at, fault_ids)
        assert job["gdr"] in (True, None)
        assert job["socket_fallback"] in (False, None)


def test_numbers_beyond_reason_are_no_exception(judge):
    """The log contains integers of thousands of digits, impossible ranks, and huge channels."""
    many = "9" * 6000
    judge(f"a:1:1 [0] NCCL INFO comm 0x1 rank {many} nranks {many} cudaDev 0 - Init COMPLETE\n")
    judge(f"#  Rank {many} Group  0 Pid {many} on a device {many} [0x1] x\n")
    judge(f" {many} {many} float sum -1 {many} {many} {many} 0 1 1 1 0\n")
    judge(f"# nccl-tests version 2 nccl-headers=1 nccl-library={many}\n# Avg bus bandwidth : {many}\n")
    judge(f"a:1:1 [0] NCCL INFO Channel {many}/0 : 0[0] -> 1[1] [send] via NET/IB/{many}\n")
    judge(
        "     1048576        262144     float     sum      --1    69.55   15.08   26.38       0    68.58   15.29   26.76       0\n"
    )
    judge(f"[Rank {many}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={many}, OpType=X\n")
    judge(f'{{"nccl_version": {many}, "results": [{{"size": {many}, "out_of_place": {{"bus_bw": {many}}}}}]}}')


def test_the_interfaces_of_a_job_are_looked_at_once(monkeypatch):
    """If no process names its provider, the fabric is determined once from all interfaces, not once per process."""
    asked = []
    monkeypatch.setattr(devices, "_on_slingshot", asked.append)
    log = interleaved(Maker(net="AWS Libfabric").processes(), 1)
    named = b"".join(line for line in log.splitlines(True) if b"Selected provider" not in line)
    (job,) = conclude(read([("x", [named])]))
    assert job["inter_node_transport"] == "efa"
    assert len(asked) == Maker().ranks


@pytest.mark.slow
def test_memory_does_not_grow_with_the_length_of_a_log(monkeypatch):
    """Ten times the log uses the same memory, and a line without an end is not kept."""

    def peak(chunks) -> int:
        tracemalloc.start()
        read([("x", chunks)])
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    monkeypatch.setattr(scan, "BLOCK", 1 << 16)
    monkeypatch.setattr(scan, "HELD", 1 << 17)
    monkeypatch.setattr(parallel, "START", 1 << 40)  # a worker's blocks are allocated once, for any log length
    monkeypatch.setattr(patterns, "_MANY", 0)  # the pattern of all words is compiled once, by the first reader
    block = interleaved(Maker().processes(), 1) * 50
    read([("x", [block])])
    few, many = peak(block for _ in range(2)), peak(block for _ in range(20))
    assert many < few * 1.5 + 1_000_000
    assert peak(b"x" * 100_000 for _ in range(200)) < 3_000_000

    def unique(lines: int):
        return (
            b"".join(b"app step %d loss %d\n" % (number, number * 7) for number in range(at, at + 2000))
            for at in range(0, lines, 2000)
        )

    few, many = peak(unique(50_000)), peak(unique(250_000))
    assert many < few + 1_000_000


def test_a_limit_is_marked_and_nothing_is_guessed():
    """Unread data is not judged as if it had been read."""
    partial = read([("x", io.BytesIO(LOG))], limit=len(LOG) // 4)
    assert partial.limited is True
    assert conclude(partial)[0]["verdict"] == "inconclusive"


def test_a_secret_that_a_torn_line_is_glued_to_never_leaves():
    """Two processes write at once, so any text may precede a token."""
    log = LOG + b"gpu-node-0:1000:1000 [0] init.cc:1 NCCL WARN bad thing x9hf_AbCdEfGhIjKlMnOpQrStUvWx in the way\n"
    assert "AbCdEfGhIjKl" not in everything(log)


@pytest.mark.parametrize("shown", SECRETS)
def test_secrets_never_leave(shown):
    """Keys and tokens in dumped environments, URLs and warnings are redacted wherever a line is shown."""
    log = LOG + f"gpu-node-0:1000:1000 [0] init.cc:1 NCCL WARN bad thing {shown} in the way\n".encode()
    log += f"gpu-node-0:1000:1000 [0] NCCL INFO NCCL_CONF set by environment to {shown}\n".encode()
    log += f"gpu-node-0:1000:1000 [0] NCCL INFO init.cc:1 -> 3\nnode: Test NCCL failure x.cu:1 '{shown}'\n".encode()
    said = everything(log)
    assert "bad thing" in said
    assert SECRETS[shown] not in said


def test_the_environment_block_of_a_json_report_is_never_kept(data):
    """The -J report of nccl-tests contains the whole environment, here with a secret."""
    said = everything((data / "recorded" / "mpirun-four-hosts-ring.nccl-tests.json.txt").read_bytes())
    assert "all_reduce" in said
    assert "planted-secret" not in said
    assert "OMPI_COMM_WORLD_SIZE" not in said


def test_no_control_character_reaches_the_terminal():
    """Escape sequences, bells, bidirectional marks and NULs are removed from hosts, devices, settings and warnings."""
    evil = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x07\x00\u202ecba\u200b\x9b31m"
    log = f"ho{evil}st:1:1 [0] NCCL INFO NCCL_IB_HCA set to {evil}\nhost:1:1 [0] x.cc:1 NCCL WARN Duplicate GPU detected {evil}\n"
    log += f"#  Rank  0 Group  0 Pid 1 on ho{evil}st device 0 [0000:1b:00] {evil}\n"
    said = everything(log.encode("utf-8", "surrogatepass"))
    assert "Duplicate GPU" in said
    assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e]", said) is None


def test_benign_alarms_stay_quiet(judge):
    """Advice, version probing, missing optional plugins and GDRCopy are not faults."""
    head = "gpu-node-0:1000:1000 [0] NCCL INFO "
    warn = "\ngpu-node-0:1000:1000 [0] /data/hipify/src/init.cc:115 NCCL WARN "
    lines = [
        head + "NET/Plugin: Failed to find ncclNetPlugin_v9 symbol.",
        head + "NET/OFI Failed to initialize GDRCopy: Failed to open gdr handle",
        head + "TUNER/Plugin: Could not find: libnccl-tuner.so",
        head + "GIN/Plugin: Could not find: libnccl-gin.so",
        warn + "NUMA auto balancing enabled which can lead to variability in the RCCL performance!",
        warn + 'Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!',
        head + "NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'",
        head + "comm 0x55 rank 0 nranks 4 cudaDev 0 busId 1a000 - Abort COMPLETE",
    ]
    job = judge(LOG + "\n".join(lines).encode() + b"\n")
    assert (job["verdict"], job["faults"]) == ("go", [])


def test_tables_beyond_the_bound_cost_nothing(judge):
    """Thousands of pasted runs with torn last rows: later ones are skipped, and no state remains open."""
    torn = (
        "     2097152        524288     float     sum      -1gpu-node-0:1000:1000 [0] NCCL INFO Connected all rings\n"
    )
    one = "".join(line + "\n" for line in table_of(Maker(gpus=1))[:-4]) + torn + "# Avg bus bandwidth    : 90.1\n"
    reader = Reader(Partial(), "x")
    for _ in range(600):
        data = one.encode()
        reader.block(data)
    assert reader.tables.full
    assert not reader.tables.is_open()
    assert reader.tables.open_left is None
    assert len(reader.source.tables) == 512


def test_tables_beyond_the_bound_change_no_verdict(judge, monkeypatch):
    """A table beyond the limit is not counted as truncated."""
    monkeypatch.setattr(opened, "MAX_TABLES", 4)
    assert (judge(LOG)["verdict"], judge(LOG * 9)["verdict"]) == ("go", "go")


def many_ranks(ranks: int, socket: tuple[int, ...] = ()) -> list[list[str]]:
    """Return the output of each rank of one large job."""
    maker = Maker(
        hosts=tuple(f"node-{index:04d}" for index in range(ranks // 8)),
        gpus=8,
        channels=1,
        rails=1,
        socket_ranks=socket,
    )
    return [[line for line in maker.lines(rank) if "/01 :" not in line] for rank in range(ranks)]


def said(job: dict) -> dict:
    """Return the parts that must not depend on line order."""
    keys = (
        "verdict",
        "diagnosis",
        "ranks",
        "nodes",
        "inter_node_transport",
        "mixed",
        "gdr",
        "init",
        "env",
        "socket_fallback",
    )
    return {key: job[key] for key in keys} | {
        "pairs": sorted(map(str, job["pairs"])),
        "faults": {fault["fault"] for fault in job["faults"]},
    }


def text_of(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def test_thousands_of_processes_are_kept_by_host_and_lose_nothing_that_is_judged(monkeypatch):
    """Beyond a limit the processes of a host are merged: the same document for any line order, whole or merged."""
    ranks = many_ranks(256)
    (exact,) = conclude(read([("x", [text_of([line for lines in ranks for line in lines])])]))
    monkeypatch.setattr(processes, "MAX_ALONE", 20)
    monkeypatch.setattr(processes, "_FOLLOWED", 40)
    mixed = interleaved(dict(enumerate(ranks)), 3)
    partial = read([("x", [mixed[at : at + 5000] for at in range(0, len(mixed), 5000)])])
    assert len(partial.procs) <= 20 + 32
    assert partial.limited is False
    assert said(conclude(partial)[0]) == said(exact)
    parts = [
        read([("x", [text_of([line for lines in ranks[at : at + 64] for line in lines])])]) for at in range(0, 256, 64)
    ]
    sent = [Partial.from_dict(json.loads(json.dumps(part.to_dict()))) for part in parts]
    assert said(conclude(merge(sent), one_job=True)[0]) == said(exact)


def test_one_rank_on_sockets_among_thousands_is_seen(monkeypatch):
    """The bad rank prints last, long after the limit on processes."""
    monkeypatch.setattr(processes, "MAX_ALONE", 10)
    (job,) = conclude(read([("x", [text_of([line for lines in many_ranks(128, (127,)) for line in lines])])]))
    assert (job["verdict"], job["mixed"], job["ranks"], job["nodes"]) == ("no-go", True, 128, 16)
    assert "node-0015" in {fault["fault"]: fault["subject"] for fault in job["faults"]}["nccl.mixed-transport"]


def test_what_exceeds_the_last_bound_is_marked(monkeypatch):
    """With more hosts or edges than are kept, the analysis says so, and is never go."""
    monkeypatch.setattr(processes, "MAX_ALONE", 4)
    monkeypatch.setattr(processes, "MAX_HOSTS", 2)
    partial = read([("x", [text_of([line for lines in many_ranks(64) for line in lines])])])
    (job,) = conclude(partial)
    assert (partial.limited, job["verdict"]) == (True, "inconclusive")
    assert "more than is read or kept" in job["sentence"]
    monkeypatch.undo()
    monkeypatch.setattr(state, "_MAX_ALL_EDGES", 5)
    assert read([("x", [text_of([line for lines in many_ranks(64) for line in lines])])]).limited


def test_a_stranger_on_every_line_does_not_fill_the_memory(monkeypatch):
    """Each line is from another process on another host, with a new edge: memory is bounded."""
    monkeypatch.setattr(processes, "MAX_ALONE", 100)
    monkeypatch.setattr(processes, "MAX_HOSTS", 100)
    monkeypatch.setattr(processes, "_FOLLOWED", 200)
    monkeypatch.setattr(heads, "_KEPT", 200)
    monkeypatch.setattr(digest, "_HEADS", 200)
    monkeypatch.setattr(digest, "_KNOWN", 200)

    def strangers(lines: int):
        head = "h{0}:{0}:{0} [0] NCCL INFO "
        start = head + "comm 0x{0:x} rank {0} nranks 900000 commId 0x{0:x} - Init START\n"
        channel = head + "Channel 00/0 : {0}[0] -> 1[0] [send] via NET/IB/{0}\n"
        return (
            b"".join((start + channel).format(number).encode() for number in range(at, at + 100))
            for at in range(0, lines, 100)
        )

    def held(lines: int) -> int:
        """Count the objects that a reader holds after some lines."""
        partial = Partial()
        reader = scan.Reader(partial, "x")
        for chunk in strangers(lines):
            reader.block(chunk)
        ids, referents = set(), [reader]
        while referents:
            each = referents.pop()
            if id(each) not in ids and not isinstance(each, (type, FunctionType, ModuleType)):
                ids.add(id(each))
                referents += gc.get_referents(each)
        reader.finish()
        assert partial.limited
        return len(ids)

    assert held(8000) < 1.1 * held(4000)


def test_the_same_channels_of_another_communicator_are_its_own():
    """A log repeats a set-up under another id: earlier lines are not skipped, and the edges belong to the new one."""
    block = interleaved(Maker(channels=16).processes(), 1)
    again = block.replace(b"0xfc119181e70bb2ba", b"0x1111111111111111")
    for log in (block * 40 + again, (block + again) * 20, block * 40 + again * 40):
        (proc,) = [proc for proc in read([("x", io.BytesIO(log))]).procs.values() if proc.pid == 1000]
        first, second = (
            channels for ident in ("0xfc", "0x11") for comm, channels in proc.edges.items() if comm.startswith(ident)
        )
        assert first
        assert first == second


def test_a_log_that_repeats_itself_says_what_it_says_once():
    """The result does not depend on skipped pieces, lines and forms of a repeated log, and all lines are counted."""
    for maker in (
        Maker(channels=16),
        Maker(version="2.7.8", channels=8),
        Maker(socket_ranks=(1,)),
        Maker(no_gdr_hosts=("gpu-node-1",)),
    ):
        block = interleaved(maker.processes(), 1)
        for dress in (b"", b"2024-11-28T07:42:11.528123456Z ", b"[1,0]<stdout>:"):
            once = b"".join(dress + line for line in block.splitlines(keepends=True))
            often = read([("x", io.BytesIO(once * 60))])
            assert often.sources[0].lines == 60 * once.count(b"\n")
            one, many = conclude(read([("x", io.BytesIO(once))]))[0], conclude(often)[0]
            one["init"]["communicators"] = many["init"]["communicators"]  # before 2.16.2 a repeated set-up is a new one
            assert said(one) == said(many)


def test_a_programs_output_is_distinguished_in_bulk(judge):
    """One relevant line anywhere among hundreds of thousands of a trainer's lines is found."""
    steps = [b"step %d loss %d.%d |%s| ok\n" % (n, n % 7, n % 10, b"#" * (n % 9)) for n in range(60_000)]
    steps.insert(
        50_001,
        b"[rank3]:[E419 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, Op\n",
    )
    job = judge(LOG + b"".join(steps))
    assert job["hang"] is True
    line = next(item["line"] for fault in job["faults"] for item in fault["evidence"] if "Watchdog" in item["text"])
    assert line == LOG.count(b"\n") + 50_002
