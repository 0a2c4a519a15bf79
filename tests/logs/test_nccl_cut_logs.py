"""A truncated log hides later lines, so it is never go."""

import pytest

from tests.logs.logmaker import Maker, before_the_end, sequential, table_of
from tests.logs.test_nccl_cut_lines import HEALTHY
from tests.table import table


def whole(maker):
    """Return one text per process, and the benchmark's table."""
    return {key: "".join(line + "\n" for line in lines) for key, lines in maker.processes().items()}


def judged(judge, maker, texts):
    return judge(*texts.values(), "\n".join(table_of(maker)) + "\n")


MAKER = Maker(gpus=8, channels=16, rails=8)


def test_the_whole_log_is_go(judge):
    """Near miss: nothing is missing."""
    assert judged(judge, MAKER, whole(MAKER))["verdict"] == "go"


@pytest.mark.parametrize("share", [0.55, 0.7, 0.85, 0.95])
def test_every_rank_cut_at_the_same_place_is_truncated(judge, share):
    """A full disk truncates all files at the same point: no rank reports all of its channels connected."""
    texts = {key: text[: int(len(text) * share)] for key, text in whole(MAKER).items()}
    job = judged(judge, MAKER, texts)
    assert job["verdict"] == "inconclusive", job["sentence"]


def test_one_rank_cut_in_its_channels_is_truncated(judge):
    """Other ranks show channels whose other end is missing in this rank's log."""
    texts = whole(MAKER)
    key = ("gpu-node-1", MAKER.pid(8))
    texts[key] = texts[key][: int(len(texts[key]) * 0.6)]
    job = judged(judge, MAKER, texts)
    assert (job["verdict"], job["truncated"]) == ("inconclusive", True)


def test_two_ranks_of_sixteen_say_nothing_of_the_others(judge):
    """The log is a launcher's with only one rank per node."""
    texts = {key: text for key, text in whole(MAKER).items() if key[1] in (MAKER.pid(0), MAKER.pid(8))}
    assert judged(judge, MAKER, texts)["verdict"] == "inconclusive"


def test_one_torn_line_is_no_cut(judge):
    """Two processes that share a pipe occasionally tear a line; every rank confirms its rings."""
    texts = whole(MAKER)
    key = ("gpu-node-1", MAKER.pid(8))
    lines = texts[key].splitlines(keepends=True)
    lines.remove(next(line for line in lines if "Channel 03/0" in line and "[receive]" in line))
    texts[key] = "".join(lines)
    assert judged(judge, MAKER, texts)["verdict"] == "go"


@pytest.mark.parametrize("busbw", ["nan", "inf", "0.00", "-1"])
def test_numbers_that_are_none_are_no_go(judge, busbw):
    """The largest row must hold a measurement."""
    table = "\n".join(table_of(MAKER)).replace("153.60", busbw).replace("153.68", busbw)
    assert judge(*whole(MAKER).values(), table + "\n")["verdict"] != "go"


TOLD = "node-dc4f1:10:10 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\nnode-dc4f1:10:10 [0] NCCL INFO comm 1 rank 0 nranks 2\n"


@pytest.mark.parametrize(
    ("line", "hosts"),
    [
        ("node-ae683:84:206", 2),
        ("worker-1 | node-ae683:84:206 [", 2),
        ("done at Mon 12:30:45", 1),  # a time of day, and a source position
        ("train.py:97:221", 1),
    ],
)
@pytest.mark.parametrize("behind", ["", "\n", "\nstep 7 loss 0.5\n", "\n\nstep 7"])
def test_a_head_that_was_cut_names_a_host_only_where_it_is_named_like_one(judge, line, hosts, behind):
    """A truncated prefix is a host only if it looks like one, also with a following line."""
    assert len(judge(TOLD + line + behind)["hosts"]) == hosts


@table(
    "said",
    [
        "...",
        "[...]",
        "<snip>",
        "[output truncated]",
        "... [5000 lines truncated] ...",
        "[10 similar lines suppressed]",
        "Job's log exceeded limit of 4194304 bytes.",
        "Output exceeds the size limit. Open the full output data in a text editor",
        "rsyslogd: imuxsock lost 500 messages from pid 12 due to rate-limiting",
        "systemd-journald[7]: Suppressed 1234 messages from train.service",
        "--More--(5%)",
        "…",
        "[…]",
        "[... truncated 12 KiB ...]",
        "dropped 512 log lines",
        "logs were truncated because the limit was reached",
        "The logs were truncated because they exceeded the 10MB limit.",
        "WARNING: 1523 messages lost",
        "container log rotated while it was streamed",
        "showing last 500 lines",
        "lines 20 to 480 elided",
        "<< 2.1 MB removed >>",
        "[3 more lines]",
        "(continued in previous log)",
        "unable to retrieve container logs for containerd://abc",
        "imuxsock begins to drop messages from pid 2812 due to rate-limiting",
        "Dropped messages: 14",
        "stdout truncated at 64 KB",
        "... (1 204 weitere Zeilen ausgeblendet) ...",
        "(... 2311 lignes masqu\u00e9es ...)",
        "(\u7701\u7565 300 \u884c)",
        "### LOG CUT ###",
        "=== 3120 LINES OMITTED ===",
        "--- 140 rows not displayed ---",
        "-- 55 earlier events purged --",
        "[rate limit hit, 871 entries thrown away]",
        "[fluent-bit] input tail.0: 512 records lost",
        "vector: dropping events, the buffer is full",
        "77 log lines were not delivered",
        "<output too large: only first and last 500 lines kept>",
        ">>> [excerpt] >>>",
        "[etc. for the other 15 ranks]",
        "(same for the remaining hosts)",
        "logrotate: truncated trial.log",
        "The log was too long and has been abridged.",
    ],
)
def test_a_log_that_says_that_lines_were_left_out_is_never_go(judge, said):
    """A notice of a manual edit, a collector's limit or a pager is nccl.log-truncated."""
    lines = HEALTHY.splitlines(keepends=True)
    for place in (3, len(lines) // 2, len(lines)):
        job = judge("".join(lines[:place]) + said + "\n" + "".join(lines[place:]))
        assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "truncated"), job["sentence"]
        assert said[:40].strip() in job["sentence"]


@table(
    "said",
    [
        "Loading checkpoint shards...",
        "......",
        "0 lines skipped, 0 messages lost, output truncated: no",
        "sequence was truncated to 4096 tokens, 3 samples skipped",
        "Truncation: longest_first",
        "snippet of code",
        "Dropped 12 rows with missing labels",
        "Only the last 2 checkpoints were kept, 3 deleted",
        "Deleted 3.2 GB of old checkpoints",
        "hidden output of layer 3",
        "logs are rotated every 100 MB",
        "gradient clipped to 1.0",
        "[skipped]",
        "*** Dropping privileges ***",
        "Logging only on rank 0, other ranks suppressed",
        "lost 3 packets",
        "... loading 12 shards",
        "CUDA graph CUT at layer 3",
        "dropped 12 events of the trace, 3 records filtered",
        "[12 rows loaded]",
        "GPUs not displayed here are idle",
        "same for rank 3",
        "NVLink urged thrown bridged",
    ],
)
def test_what_only_sounds_like_lines_left_out_stays_a_go(judge, said):
    """These near misses use the same words for data, not for log lines."""
    assert judge(before_the_end(HEALTHY, said))["verdict"] == "go"


def without(maker, gone):
    """Return the job's log and table without the lines of one process for which `gone` is true."""
    lines = [
        f"{line}\n" for (host, pid), each in maker.processes().items() for line in each if not gone(host, pid, line)
    ]
    return "".join(lines) + "\n".join(table_of(maker)) + "\n"


@pytest.mark.parametrize("end", ["[receive]", "[send]"])
@pytest.mark.parametrize("version", ["2.4.8", "2.7.8", "2.12.12", "2.19.3", "2.28.9+cuda13.0"])
@pytest.mark.parametrize("hosts", [("a-0", "a-1"), ("a-0", "a-1", "a-2", "a-3")], ids=["two-hosts", "four-hosts"])
def test_a_log_with_one_end_of_its_network_edges_is_truncated(judge, hosts, version, end):
    """Either end may use a socket, whether all hosts, one host or one rank lack it.

    The table is complete and every rank connected all its rings: only the edges show the truncation.
    """
    maker = Maker(version=version, hosts=hosts, gpus=2, channels=4)
    assert judge(without(maker, lambda *_: False))["verdict"] == "go"
    crossing = next(
        pid for (_, pid), lines in list(maker.processes().items())[2:] if any(end in line for line in lines)
    )
    for gone in (
        lambda _host, _pid, line: end in line,
        lambda host, _pid, line: end in line and host == "a-1",
        lambda _host, pid, line: end in line and pid == crossing,
    ):
        job = judge(without(maker, gone))
        assert (job["verdict"], job["diagnosis"], job["truncated"]) == ("inconclusive", "truncated", True)
        assert "network edges show channels at one end only" in job["sentence"]


@pytest.mark.parametrize(("torn", "verdict"), [(2, "go"), (4, "inconclusive")])
def test_more_torn_edges_than_processes_tear_are_a_cut(judge, torn, verdict):
    """Of 64 ends, 2 may have been torn by processes that share a pipe (5 %), 4 may not."""
    edges = [line for line in sequential(MAKER.processes()).decode().splitlines() if "[send]" in line]
    assert len(edges) == 32
    left_out = edges[:: len(edges) // torn]
    assert judge(without(MAKER, lambda _host, _pid, line: line in left_out))["verdict"] == verdict


@pytest.mark.parametrize("version", ["2.10.3", "2.19.3", "2.28.9+cuda13.0"])
def test_ranks_of_one_host_that_came_up_and_connected_nothing_are_no_go(judge, version):
    """Initialisation of every rank proves no channel; a closing line, a channel or a complete table does."""
    maker = Maker(version=version, hosts=("gpu-node-0",), gpus=8)
    lines = sequential(maker.processes()).decode().splitlines(keepends=True)
    connected = [line for line in lines if "Connected all rings" in line]
    channels = [line for line in lines if " via P2P/" in line]
    bare = [line for line in lines if line not in {*connected, *channels}]
    assert sum("Init COMPLETE" in line for line in bare) == 8
    job = judge("".join(bare))
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "no-evidence")
    for proof in (connected, channels, [f"{line}\n" for line in table_of(maker)]):
        assert judge("".join([*bare, *proof]))["verdict"] == "go"


def test_a_table_that_lost_its_head_and_its_end_is_cut_unless_its_job_came_to_its_end(judge):
    """Name and rows remain. If no rank is seen to end, the missing rows may be the wrong ones."""
    table = table_of(MAKER)
    name, rows = table[0], [line for line in table if " float " in line]
    log = "".join(whole(MAKER).values())
    running = "".join(line for line in log.splitlines(keepends=True) if "Destroy COMPLETE" not in line)
    left = "\n".join([name, *rows]) + "\n"
    job = judge(running + left)
    assert (job["verdict"], job["truncated"]) == ("inconclusive", True)
    assert "the table ends after 2 rows, without its last lines" in job["sentence"]
    assert judge(log + left)["verdict"] == "go"
    whole_table = judge(running + "\n".join(table) + "\n")
    assert (whole_table["verdict"], whole_table["truncated"]) == ("go", False)
