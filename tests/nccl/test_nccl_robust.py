"""Does anything a log may hold break the analyzer, fill its memory, or leave it with control characters or secrets?"""

from __future__ import annotations

import io
import json
import random
import re
import tracemalloc

import pytest

from jobs.nccl import Partial, conclude, read
from jobs.nccl.scan import Reader
from reports import explain
from tests.nccl.logmaker import Maker, interleaved, table_of

LOG = interleaved(Maker(gpus=1, channels=1).processes(), 1) + "".join(line + "\n" for line in table_of(Maker(gpus=1))).encode()
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
    """Read, merge, conclude and render in every form; return all that was said."""
    partial = Partial.from_dict(json.loads(json.dumps(read([("log", io.BytesIO(log))]).to_dict())))
    jobs = conclude(partial)
    return explain.to_text(jobs, color=False) + explain.to_markdown(jobs) + explain.to_json(jobs)


@pytest.mark.parametrize("seed", range(40))
def test_random_bytes_are_no_exception(seed):
    """Whatever the bytes are, the analyzer ends with a document."""
    rng = random.Random(seed)
    everything(bytes(rng.randrange(256) for _ in range(4000)))


@pytest.mark.parametrize("seed", range(60))
def test_damaged_logs_are_no_exception(seed):
    """Bytes of a real log changed, dropped, doubled and swapped at random."""
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
            log[at:at] = rng.choice([b"\n", b"\r", b"\x1b[", b"99999999999999999999", b"NCCL INFO ", b" -> ", b"\x00", b"nan", b"1e999"])
    everything(bytes(log))


def test_a_log_cut_at_any_byte_is_never_more_than_the_whole(judge):
    """Cut anywhere: no exception, no fault that the whole does not have, and never sockets or half GPUDirect out of nothing."""
    for at in range(0, len(LOG), 3):
        job = judge(LOG[:at])
        found = {fault["fault"] for fault in job["faults"]}
        assert found <= {"nccl.log-truncated", "nccl.no-evidence"}, (at, found)
        assert job["gdr"] in (True, None)
        assert job["socket_fallback"] in (False, None)


def test_numbers_beyond_reason_are_no_exception(judge):
    """Integers of thousands of digits, ranks beyond any job, huge channels."""
    many = "9" * 6000
    judge(f"a:1:1 [0] NCCL INFO comm 0x1 rank {many} nranks {many} cudaDev 0 - Init COMPLETE\n")
    judge(f"#  Rank {many} Group  0 Pid {many} on a device {many} [0x1] x\n")
    judge(f" {many} {many} float sum -1 {many} {many} {many} 0 1 1 1 0\n")
    judge(f"# nccl-tests version 2 nccl-headers=1 nccl-library={many}\n# Avg bus bandwidth : {many}\n")
    judge(f"a:1:1 [0] NCCL INFO Channel {many}/0 : 0[0] -> 1[1] [send] via NET/IB/{many}\n")
    judge(f"[Rank {many}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={many}, OpType=X\n")
    judge(f'{{"nccl_version": {many}, "results": [{{"size": {many}, "out_of_place": {{"bus_bw": {many}}}}}]}}')


def test_memory_does_not_grow_with_the_length_of_a_log():
    """Ten times the log, the same memory; and a line without an end is not kept."""

    def peak(chunks) -> int:
        tracemalloc.start()
        read([("x", chunks)])
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    block = interleaved(Maker().processes(), 1) * 50
    few, many = peak(block for _ in range(2)), peak(block for _ in range(20))
    assert many < few * 1.5 + 1_000_000
    assert peak(b"x" * 100_000 for _ in range(200)) < 3_000_000
    unique = (b"".join(b"app step %d loss %d\n" % (number, number * 7) for number in range(at, at + 2000)) for at in range(0, 100_000, 2000))
    assert peak(unique) < 3_000_000


def test_a_limit_is_marked_and_nothing_is_guessed():
    """What was not read is not judged as if it had been."""
    partial = read([("x", io.BytesIO(LOG))], limit=len(LOG) // 4)
    assert partial.limited is True
    assert conclude(partial)[0]["verdict"] == "inconclusive"


@pytest.mark.parametrize("shown", SECRETS)
def test_secrets_never_leave(shown):
    """Keys and tokens in dumped environments, URLs and warnings are redacted, wherever a line is shown."""
    log = LOG + f"gpu-node-0:1000:1000 [0] init.cc:1 NCCL WARN bad thing {shown} in the way\n".encode()
    log += f"gpu-node-0:1000:1000 [0] NCCL INFO NCCL_CONF set by environment to {shown}\n".encode()
    log += f"gpu-node-0:1000:1000 [0] NCCL INFO init.cc:1 -> 3\nnode: Test NCCL failure x.cu:1 '{shown}'\n".encode()
    said = everything(log)
    assert "bad thing" in said
    assert SECRETS[shown] not in said


def test_the_environment_block_of_a_json_report_is_never_kept(data):
    """nccl-tests' -J writes the whole environment: a secret was planted there."""
    said = everything((data / "recorded" / "mpirun-four-hosts-ring.nccl-tests.json.txt").read_bytes())
    assert "all_reduce" in said
    assert "planted-secret" not in said
    assert "OMPI_COMM_WORLD_SIZE" not in said


def test_no_control_character_reaches_the_terminal():
    """Escape sequences, bells, bidirectional marks and NULs in hosts, devices, settings and warnings are taken out."""
    evil = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x07\x00\u202ecba\u200b\x9b31m"
    log = f"ho{evil}st:1:1 [0] NCCL INFO NCCL_IB_HCA set to {evil}\nhost:1:1 [0] x.cc:1 NCCL WARN Duplicate GPU detected {evil}\n"
    log += f"#  Rank  0 Group  0 Pid 1 on ho{evil}st device 0 [0000:1b:00] {evil}\n"
    said = everything(log.encode("utf-8", "surrogatepass"))
    assert "Duplicate GPU" in said
    assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e]", said) is None


def test_benign_alarms_stay_quiet(judge):
    """Advice, version probing, missing optional plugins and GDRCopy frighten people, and are no faults."""
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
    """Thousands of pasted runs, the last rows torn: what is beyond the bound is passed over, and nothing stays open."""
    torn = "     2097152        524288     float     sum      -1gpu-node-0:1000:1000 [0] NCCL INFO Connected all rings\n"
    one = "".join(line + "\n" for line in table_of(Maker(gpus=1))[:-4]) + torn + "# Avg bus bandwidth    : 90.1\n"
    reader = Reader(Partial(), "x")
    for _ in range(600):
        reader.feed(one.encode())
    assert reader.tables.full
    assert not reader.tables.is_open()
    assert reader.tables.open_left is None
    assert len(reader.source.tables) == 512
