"""`go` is refused for a log that only seems complete."""

import re

import pytest

from seatrial.logs import conclude, open_sources, read
from seatrial.logs.diagnosis import numbers
from tests.logs.logmaker import Maker, averaged, sequential, table_of
from tests.table import table

MAKER = Maker(gpus=4, rails=4, channels=4)
LOG = sequential(MAKER.processes()).decode()
TABLE = "\n".join(table_of(MAKER)) + "\n"
WHOLE = LOG + TABLE


def test_the_whole_log_is_go(judge):
    """The unchanged log is the near miss of all tests below."""
    assert judge(WHOLE)["verdict"] == "go"


@pytest.mark.parametrize(
    "carrier",
    [
        "FOO/3",
        "Socket/3",
        "net/socket/3",
        "TCP",
        "P2P/FABRIC",
        "CXL/0/GDRDMA",
        "NET/Fabric (EFA)/3/GDRDMA",
        "NET/A&B/3(5)",
    ],
)
def test_a_channel_whose_transport_is_not_known_is_not_shown(judge, carrier):
    """A later NCCL may have others: the channels that are known do not represent it, however many they are."""
    job = judge(WHOLE.replace("via NET/IB/3/GDRDMA", f"via {carrier}"))
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "unexplained")
    assert "a transport that is unknown here" in job["sentence"] and "release notes" in job["faults"][0]["remedy"]
    assert job["faults"][0]["evidence"][0]["text"].endswith(carrier)


@pytest.mark.parametrize(
    "torn",
    [
        "NET/IB/3/GDRgpu-node-0:1000:10",
        "NET/gpu-node-0:1000:1000 [0]/3",
        "NET/IB/gpu#1/3",
        "P2P/CUgpu",
        "S",
        "SHM/dir",
        "P",
    ],
)
def test_a_torn_line_is_no_unknown_transport(judge, torn):
    """Two processes wrote at once, so one of many lines is truncated."""
    text = WHOLE.replace(" via P2P/CUMEM/read", f" via {torn}", 1)
    assert text != WHOLE
    assert "not known" not in judge(text)["sentence"]


@pytest.mark.parametrize(
    ("ending", "diagnosis"),
    [
        (TABLE.split("#       size")[0].rsplit("\n", 2)[0] + "\n", "truncated"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered\n", "crash"),
        ("torch.AcceleratorError: CUDA error: unspecified launch failure\n", "crash"),
        ("RuntimeError: NCCL communicator was aborted on rank 3.\n", "crash"),
        ("[E ProcessGroupNCCL.cpp:1] Some NCCL operations have failed or timed out.\n", "crash"),
        ("NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n", "crash"),
    ],
    ids=["second-test-without-rows", "cuda-error", "accelerator-error", "aborted", "operations-failed", "gpu-lost"],
)
def test_what_comes_behind_a_good_table_counts(judge, ending, diagnosis):
    """A run with a good table may still have crashed, or hang in its next test."""
    job = judge(WHOLE + ending)
    assert (job["verdict"] != "go", job["diagnosis"]) == (True, diagnosis), job["sentence"]


@pytest.mark.parametrize("busbw", ["nan", "inf", "0.00"])
def test_numbers_that_cannot_be_true_are_named(judge, busbw):
    """The sentence mentions the numbers, and not the ranks, which are all visible."""
    job = judge(LOG + TABLE.replace("153.60", busbw).replace("153.68", busbw))
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "odd-numbers")
    assert "numbers prove nothing" in job["sentence"]


@pytest.mark.parametrize(
    ("was", "then", "said"),
    [
        ("# Avg bus bandwidth    :", "# Avg bus bandwidth    : -4.1 #", "the average bus bandwidth is -4.1"),
        ("# Out of bounds values : 0", "# Out of bounds values : -1", "-1 values are out of bounds"),
        ("  87.77  153.60", "  187.77  153.60", "algbw"),
    ],
)
def test_ends_and_rows_that_contradict_each_other_are_named(judge, was, then, said):
    assert was in WHOLE
    job = judge(WHOLE.replace(was, then))
    assert (job["verdict"], job["diagnosis"], said in job["sentence"]) == ("inconclusive", "odd-numbers", True)


def test_numbers_that_took_no_time_and_an_average_of_no_row_are_named(judge):
    rows = [line for line in TABLE.splitlines() if line.split()[-1:] == ["0"] and " float " in line]
    timeless = WHOLE.replace(rows[-1], " ".join("0.00" if n in (5, 9) else x for n, x in enumerate(rows[-1].split())))
    assert "bytes took no time" in judge(timeless)["sentence"]
    without = "".join(line + "\n" for line in WHOLE.splitlines() if line not in rows)
    job = judge(without)
    assert (job["verdict"], "is the average of no row" in job["sentence"]) == ("inconclusive", True)


def test_the_end_of_a_rank_list_is_no_single_host(judge):
    """A page with the last rank of a rack shows one host of many."""
    last = "#  Rank 71 Group  0 Pid   9000 on gpu-node-17 device  3 [0x01] NVIDIA GB200\n"
    job = judge(last + "#\n" + TABLE[TABLE.index("#   ") :].split("NVIDIA H100\n")[-1])
    assert (job["ranks"], job["nodes"], job["verdict"]) == (72, None, "inconclusive")


def test_a_cut_list_is_counted_where_its_devices_make_up_all_ranks(judge):
    """Ranks 0, 7, 8 and 15 on two hosts whose last device is 7: two hosts of eight."""
    ranks = [(0, "a", 0), (7, "a", 7), (8, "b", 0), (15, "b", 7)]
    job = judge(
        "".join(
            f"#  Rank {rank:2d} Group  0 Pid {rank + 10:6d} on node-{host} device {device:2d} [0x1a] NVIDIA H100\n"
            for rank, host, device in ranks
        )
    )
    assert (job["ranks"], job["nodes"]) == (16, 2)
    assert "a benchmark began" in job["sentence"]


@pytest.mark.parametrize(
    ("algbw", "busbw", "ranks"), [("87.77", "153.60", None), ("87.77", "87.77", 2)], ids=["8-ranks", "2-ranks"]
)
def test_bus_bandwidth_reports_ranks_that_the_list_leaves_out(judge, algbw, busbw, ranks):
    """2(n-1)/n is bus over algorithm bandwidth of an all-reduce: 1.75 does not fit two ranks."""
    maker = Maker(hosts=("gpu-node-0",), gpus=2)
    table = "\n".join(line for line in table_of(maker) if "1048576        262144" not in line)
    table = table.replace("87.77  153.60", f"{algbw} {busbw}").replace("87.82  153.68", f"{algbw} {busbw}")
    job = judge(averaged(table + "\n"))
    assert (job["ranks"], job["verdict"] == "go") == (ranks, ranks == 2)


def test_two_hosts_with_different_plugins_are_mixed(judge):
    """One image has a network plugin, the other does not: both print InfiniBand, but may be incompatible."""
    plugin = LOG.replace("Using network IB", "Using network IBext_v9")
    one = "".join(line + "\n" for line in plugin.splitlines() if line.startswith("gpu-node-0"))
    other = "".join(line + "\n" for line in LOG.splitlines() if line.startswith("gpu-node-1"))
    job = judge(one + other)
    assert (job["verdict"], job["mixed"], job["diagnosis"]) == ("no-go", True, "mixed-transport")
    assert "libnccl-net.so" in job["sentence"]


def test_sockets_of_an_unknown_job_are_not_said_to_carry_its_data(judge):
    """The sentence says which network was chosen, not that it carried data."""
    sentence = judge(
        "gpu-node-0:1:1 [3] NCCL INFO NET/IB : No device found.\ngpu-node-0:1:1 [3] NCCL INFO Using network Socket\n"
    )["sentence"]
    assert "chose plain TCP sockets" in sentence
    assert "talk over" not in sentence


@pytest.mark.parametrize(
    "lines",
    ["# Out of bounds values : 2 FAILED\n# Out of bounds values : 0 OK\n", "# Out of bounds values : 2 FAILED\n"],
    ids=["then-none", "alone"],
)
def test_wrong_values_are_not_undone_by_a_later_line(judge, lines):
    """Of two processes that print their ends, one found wrong values; such a line also counts without its table."""
    assert judge(lines)["diagnosis"] == "wrong-results"
    assert judge(LOG + TABLE.replace("# Out of bounds values : 0 OK\n", lines))["diagnosis"] == "wrong-results"


def test_one_rank_that_sends_is_not_the_only_one(judge):
    """A single-rank all-reduce has a bus bandwidth of 0, so a list with only rank 0 was truncated."""
    first = TABLE.index("#  Rank  1")
    job = judge(TABLE[:first] + TABLE[TABLE.index("#    ", first) :])
    assert (job["ranks"], job["nodes"], job["diagnosis"]) == (None, None, "table-only")


def test_a_versioned_socket_is_a_socket(judge):
    """A plugin's wrapper may print Socket_v8."""
    assert judge(LOG.replace("via NET/IB/", "via NET/Socket_v8/").replace("/GDRDMA", ""))["diagnosis"] == "socket"


def test_two_runs_in_one_log_are_distinguished(judge):
    """The first used sockets, the second did not: no rank contradicts its own job."""
    first = sequential(
        Maker(gpus=4, channels=4, net="Socket", hosts=("old-0", "old-1"), comm_id=0x5A5A).processes()
    ).decode()
    job = judge(first + WHOLE)
    assert (job["verdict"], "several runs" in job["sentence"]) == ("no-go", True)
    assert (
        "several runs"
        not in judge(sequential(Maker(gpus=4, channels=4, socket_ranks=(4, 5, 6, 7)).processes()))["sentence"]
    )


def test_a_host_is_go_when_all_its_ranks_are_seen_to_complete(judge):
    """Seven complete ranks of eight prove nothing for the eighth."""
    lines = sequential(Maker(hosts=("gpu-node-0",), gpus=8).processes()).decode().splitlines()
    assert judge("\n".join(lines) + "\n")["verdict"] == "go"
    left = [line for line in lines if not (line.endswith("Init COMPLETE") and " rank 5 " in line)]
    assert judge("\n".join(left) + "\n")["verdict"] == "inconclusive"


@pytest.mark.parametrize("ranks", [16, 1840])
def test_one_process_that_is_seen_is_not_the_whole_job(judge, ranks):
    """The end of a table and rank 0's last line do not show where the other ranks ran."""
    tail = TABLE[TABLE.index("#       size") :]
    job = judge(
        tail
        + f"gpu-node-0:1211:1211 [0] NCCL INFO comm 0x5634cae893b0 rank 0 nranks {ranks} cudaDev 0 busId 100000 - Destroy COMPLETE\n"
    )
    assert (job["ranks"], job["nodes"], job["verdict"]) == (ranks, None, "inconclusive")


def test_four_ranks_of_which_one_is_seen_are_no_go(judge):
    """Four ranks fit one host, but no line places them there."""
    tail = TABLE[TABLE.index("#       size") :]
    assert (
        judge(
            tail
            + "gpu-node-0:1211:1211 [0] NCCL INFO comm 0x5634cae893b0 rank 0 nranks 4 cudaDev 0 busId 100000 - Destroy COMPLETE\n"
        )["verdict"]
        == "inconclusive"
    )


@pytest.mark.parametrize("head", ["NCCL INFO ", "gpu-node:{pid}:1 [{dev}] NCCL INFO "], ids=["no-head", "one-name"])
def test_ranks_that_no_channel_joins_are_not_one_host(judge, head):
    """Two hosts of two GPUs with removed or identical names, in an excerpt without traffic between hosts."""
    lines = [
        (rank, f"comm 0x{rank + 1} rank {rank} nranks 4 cudaDev {rank % 2} busId {rank % 2 + 1}000 - Init COMPLETE")
        for rank in range(4)
    ]
    lines += [
        (0, "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"),
        (2, "Channel 00/0 : 2[0] -> 3[1] via P2P/IPC"),
        (2, "Connected all rings"),
    ]
    job = judge("".join(f"{head.format(pid=rank + 10, dev=rank % 2)}{text}\n" for rank, text in lines))
    assert (job["ranks"], job["verdict"]) == (4, "inconclusive")
    whole = [*lines, (1, "Channel 00/0 : 1[1] -> 2[0] via P2P/IPC")]
    assert (
        judge("".join(f"{head.format(pid=rank + 10, dev=rank % 2)}{text}\n" for rank, text in whole))["verdict"] == "go"
    )


def test_devices_do_not_count_the_ranks_of_a_job_whose_channels_name_more(judge):
    """Two processes have the first two devices of a host, and one of them sends to a fifth rank."""
    lines = [
        (2, 0, "Channel 00 : 2[4b000] -> 3[51000] via P2P/IPC/read"),
        (3, 1, "Channel 01 : 3[51000] -> 4[cb000] [send] via NET/IB/1/GDRDMA"),
        (2, 0, "Connected all rings"),
    ]
    job = judge("".join(f"gpu-node:{rank + 70}:1 [{dev}] NCCL INFO {text}\n" for rank, dev, text in lines))
    assert (job["ranks"], job["verdict"], job["diagnosis"]) == (None, "inconclusive", "shown-in-part")


def test_a_rank_list_of_fewer_than_the_channels_name_is_cut(judge):
    """One line of the list of four remains, and a channel to another rank."""
    job = judge(
        "#   Rank  0 Pid 9 on gpu-node device  0 [0x87] A100-SXM4-40GB\ngpu-node:9:1 [0] NCCL INFO Channel 00 : 0[87000] -> 1[8d000] [send] via NET/IB/0/GDRDMA\n"
    )
    assert (job["ranks"], job["verdict"], job["diagnosis"]) == (None, "inconclusive", "shown-in-part")


def test_hosts_that_take_no_part_in_what_is_shown_are_no_go(judge):
    """The log has a second job whose host shows no channel, whatever the first job's hosts show."""
    head = "gpu-node-7:9:9 [0] NCCL INFO "
    assert judge(LOG + TABLE + head + "Using network IB\n")["verdict"] == "inconclusive"
    began = head + "ncclCommInitRank comm 0x5 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1a000 commId 0x77 - Init {}\n"
    assert judge(LOG + TABLE + began.format("START") + began.format("COMPLETE"))["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("12234  87.77  353.60  0  12227  87.82  353.68  0", "factor above 2"),  # edited
        ("12.234  87.77  153.60  0  12.227  87.82  153.68  0", None),  # below 100 us the time has too few digits
        ("12234  87.77  0.00  0  12227  87.82  153.68  0", "busbw at 1073741824 bytes is 0"),
        ("12234  87.77  153.60  0  12227  0.00  153.68  0", "algbw says 0"),
        ("12234  87770  153600  0  12227  87820  153680  0", "algbw says 87770"),  # MB/s
        ("12234  87.77  153.60  0  12227  87.82  153.68  0x3", "cannot be read"),
    ],
)
def test_rows_that_contradict_themselves_prove_nothing(judge, row, said):
    """nccl.odd-numbers: algbw is size over time, and busbw at most twice algbw."""
    good = next(line for line in TABLE.splitlines() if " 153.60 " in line)
    job = judge(LOG + TABLE.replace(good, " 1073741824  268435456  float  sum  -1  " + row))
    assert job["verdict"] == ("go" if said is None else "inconclusive")
    assert said is None or said in job["sentence"]


@pytest.mark.parametrize(
    ("time", "algbw", "busbw", "verdict"), [(1222700, 0.88, 1.54, "inconclusive"), (36681, 29.27, 51.22, "go")]
)
def test_two_runs_of_one_row_that_are_far_apart_prove_nothing(judge, time, algbw, busbw, verdict):
    """153.6 GB/s out-of-place and a hundredth in-place: the faster side of a row does not prove it. A third may be
    noise."""
    good = next(line for line in TABLE.splitlines() if " 153.60 " in line)
    row = f" 1073741824  268435456  float  sum  -1  12234  87.77  153.60  0  {time}  {algbw}  {busbw}  0"
    job = judge(LOG + averaged(TABLE.replace(good, row)))
    assert (job["verdict"], "1.54 in place" in job["sentence"]) == (verdict, verdict != "go")


def test_hosts_that_never_spoke_to_each_other_are_no_job(judge):
    """nccl.separate-runs: torchrun on each host without --nnodes; each copy is healthy."""
    alone = [Maker(hosts=(f"gpu-node-{index}",), comm_id=7 + index) for index in range(2)]
    logs = [sequential(each.processes()).decode() for each in alone]
    assert [judge(log)["verdict"] for log in logs] == ["go", "go"]
    job = judge("".join(logs))
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "separate-runs")
    assert "gpu-node-0, gpu-node-1" in job["sentence"]


@pytest.mark.parametrize(
    ("other", "table", "verdict"),
    [
        ({}, False, "inconclusive"),
        ({}, True, "go"),
        ({"gpus": 4}, False, "go"),
        ({"hosts": ("gpu-node-0",)}, False, "go"),
    ],
    ids=["alike", "benchmarks", "of-another-size", "same-host-again"],
)
def test_hosts_that_were_started_alone_in_logs_of_their_own(tmp_path, other, table, verdict):
    """nccl.separate-runs: logs given together may be intended as one job; each log alone is healthy."""
    makers = [Maker(hosts=("gpu-node-0",), comm_id=7), Maker(**{"hosts": ("gpu-node-1",), "comm_id": 8, **other})]
    for index, maker in enumerate(makers):
        (tmp_path / f"{index}.log").write_text(
            sequential(maker.processes()).decode() + table * ("\n".join(table_of(maker)) + "\n")
        )
    jobs = conclude(read(open_sources([str(tmp_path)])))
    assert [job["verdict"] for job in jobs] == [verdict] * 2
    assert all(("nothing crossed between them" in job["sentence"]) == (not other) for job in jobs)


@pytest.mark.parametrize(("world", "verdict"), [(2, "go"), (4, "inconclusive")])
def test_a_program_that_mentions_more_ranks_than_its_communicators_hold_is_no_whole_job(judge, world, verdict):
    """nccl.separate-runs: each host ran a separate job, and only one is visible."""
    log = sequential(Maker(hosts=("gpu-node-0",)).processes()).decode()
    assert judge(f"[trainer] WORLD_SIZE={world}\n" + log)["verdict"] == verdict


def test_ranks_whose_hosts_no_line_names_are_not_said_to_share_one(judge):
    """nccl.net-intra-node reports a host: with an unreadable prefix a rank's host is unknown."""
    job = judge(re.sub(r"(\[\d\]) NCCL", r"[2026-01-01 00:00:00] \1 NCCL", LOG))
    assert "nccl.net-intra-node" not in {fault["fault"] for fault in job["faults"]}, job["sentence"]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("maker", [MAKER, Maker(hosts=("gpu-node-0",), gpus=8)], ids=["two-hosts", "one-host"])
def test_a_benchmark_on_other_hosts_whose_channels_do_not_show_is_no_go(judge, maker, first):
    """Of two jobs in one log the second one's transport is unknown. On the same hosts it is the next test."""
    whole = sequential(maker.processes()).decode() + "\n".join(table_of(maker)) + "\n"
    for hosts, verdict in ((("other-0", "other-1"), "inconclusive"), (maker.hosts, "go")):
        table = "\n".join(table_of(Maker(hosts=hosts, gpus=8 // len(hosts)))) + "\n"
        job = judge(table + whole if first else whole + table)
        assert (job["verdict"], "other-0, other-1" in job["sentence"]) == (verdict, verdict != "go"), job["sentence"]


def test_a_larger_jobs_rank_list_makes_no_single_host_of_it(judge):
    """Four hosts in the list and a communicator on one of them: 32 ranks on 1 host were once go."""
    large = Maker(hosts=("a", "b", "c", "d"), gpus=8)
    one = Maker(hosts=("a",), gpus=8)
    job = judge(sequential(one.processes()).decode() + "\n".join(table_of(large)) + "\n")
    assert (job["verdict"], job["ranks"], job["nodes"]) == ("inconclusive", 32, 4)


@table(
    "said",
    [
        "Speicherzugriffsfehler (Speicherabzug geschrieben)",
        "Erreur de segmentation",
        "\u5df2\u6740\u6b7b",
        "train.sh: Zeile 12: 2817 Get\u00f6tet   python train.py",
        "[1]+  Get\u00f6tet                 python train.py",
        "[1]+  Stopped                 ./all_reduce_perf",
        "fish: Job 1, './run' terminated by signal SIGKILL (Forced quit)",
        "User defined signal 1",
        "^C",
        "rc=137",
        "$? = 139",
        "returned -9",
        "container exited (137)",
        "restarting container in 10s",
        "Restart count: 3",
        "worker 3 will be restarted",
        "make: *** [Makefile:3: run] Fehler 1",
        "a program's last line that no list has",
        "rank 3 stopped by signal 9",
        "I1120 10:00:00.000000 17 agent.py:80] instance stopped: preempted",
        '{"level": "info", "msg": "instance stopped: preempted"}',
        "container stopped (exit 137)",
        "rank 3 ended with code 9",
        "trial not yet finished",
        "session closed by peer",
        "job ended prematurely",
        "time limit reached",
        "time out",
        "3 of 16 tests passed",
        "writing core dump",
        "stopping all workers: lost node gpu-001",
        '{"msg": "worker exited", "code": 9}',
    ],
)
def test_a_log_that_does_not_end_with_its_benchmark_is_no_go(judge, said):
    """A process's last message may be localised by the shell or the program."""
    job = judge(WHOLE + said + "\n")
    assert (job["verdict"], job["diagnosis"]) in (("inconclusive", "unexplained"), ("no-go", "crash")), job["sentence"]
    assert said.split()[-1].rstrip('"}') in job["sentence"]


@table(
    "said",
    [
        "#",
        "[1,0]<stdout>:#",
        "```",
        "All tests done.",
        "real\t1m12.418s",
        "exit code 0",
        "root@gpu-node-0:/workspace# ",
        "[1]+  Done                    ./all_reduce_perf",
        "Results were written to /results/all_reduce.txt",
        "Thu Nov 20 10:11:12 UTC 2026",
        "Thu 20 Nov 2026 10:11:12 AM CET",
        "16 of 16 tests passed",
        "Uploading results to s3://bucket ...",
        "Connection to gpu-001 closed.",
        "finished by rank 0, 0 timeouts",
        '{"msg": "worker exited", "code": 0}',
    ],
)
def test_a_log_that_ends_with_a_completion_stays_a_go(judge, said):
    """Near misses are the benchmark's own last lines after a launcher's tag, a fence, a prompt or a shell's times."""
    assert judge(WHOLE + said + "\n")["verdict"] == "go"


@pytest.mark.parametrize("said", ["Get\u00f6tet", "train.sh: line 12:  2817 Killed   python train.py", "Quit"])
def test_a_job_without_a_benchmark_may_write_what_it_likes_but_for_a_shells_word(judge, said):
    """A program's last step is neither a known end nor a failure."""
    assert judge(LOG + "step 300 of 300\n")["verdict"] == "go"
    assert judge(LOG + said + "\n")["verdict"] != "go"


@pytest.mark.parametrize(
    "said",
    ["loss inf", "step 300 | loss inf | lr 1e-4", '{"step": 300, "loss": Infinity}', "loss=-inf", "grad_norm inf"],
)
def test_a_loss_that_is_no_number_is_no_go_and_its_near_misses_are(judge, said):
    """The job continued with meaningless values."""
    assert judge(LOG + said + "\n" + TABLE)["verdict"] != "go"
    for quiet in ("loss information: cross entropy", "loss 0.5 inference off", "loss: infiniband"):
        assert judge(LOG + quiet + "\n" + TABLE)["verdict"] == "go"


@pytest.mark.parametrize(
    ("time", "algbw", "busbw", "verdict"),
    [
        ("5.41", "0.00", "0.00", "go"),  # nccl-tests print a row without data like this
        ("0.00", "0.00", "0.00", "go"),
        ("0.00", "15.08", "26.38", "inconclusive"),
        ("5.41", "15.08", "26.38", "inconclusive"),
    ],
)
def test_a_row_without_data_has_no_bandwidth(judge, time, algbw, busbw, verdict):
    """A transfer of zero bytes has no rate, whatever its time."""
    side = f"{time} {algbw} {busbw} 0"
    rows = [line for line in TABLE.splitlines() if line.split()[-1:] == ["0"] and " float " in line]
    log = averaged(WHOLE.replace(rows[0], f"{rows[0]}\n  0  0  float  sum  -1  {side}  {side}"))
    job = judge(log)
    assert job["verdict"] == verdict, job["sentence"]
    assert verdict == "go" or " 0 bytes" in job["sentence"]


@table(
    "ranks, algbw, busbw, said",
    [
        (8, 100.0, 175.0, ""),
        (8, 100.0, 0.0, "is 0 and algbw 100 GB/s"),
        (2, 100.0, 0.0, "is 0 and algbw 100 GB/s"),
        (1, 100.0, 0.0, ""),  # one rank has no peer
        (None, 100.0, 0.0, ""),  # no sign of more ranks
        (2, 100.0, 100.0, ""),
        (2, 100.0, 90.0, ""),  # three digits, 10 % difference
        (2, 100.0, 89.0, "the factor is 1 at least"),
        (2, 10.0, 8.9, "the factor is 1 at least"),
        (2, 9.9, 8.8, ""),  # too few digits
        (1, 100.0, 89.0, ""),
        (None, 100.0, 89.0, ""),
        (8, 100.0, 220.0, ""),
        (8, 100.0, 221.0, "no collective has a factor above 2"),
        (8, None, 175.0, ""),
        (8, 100.0, None, ""),
    ],
)
def test_the_two_bandwidths_of_a_row_have_a_factor_that_a_collective_can_have(ranks, algbw, busbw, said):
    """nccl-tests, doc/PERFORMANCE.md: from 1 (two ranks) to 2 for all_reduce; a missing number contradicts nothing."""
    side = {"time_us": None, "algbw_gbps": algbw, "busbw_gbps": busbw, "wrong": 0}
    told = numbers._contradicting(1 << 30, side, "all_reduce", ranks)
    assert [said in text for text in told] == ([True] if said else [])
    other = numbers._contradicting(1 << 30, side, "broadcast", ranks)
    assert not [text for text in other if "the factor is 1 at least" in text]


@pytest.mark.parametrize(
    ("time", "algbw", "said"),
    [
        (10737.4, 100.0, False),
        (10737.4, 110.9, False),
        (10737.4, 112.0, True),
        (10737.4, 89.0, True),
        (10.7374, 100.0, False),  # milliseconds, as nccl-tests 1.0 printed
        (0.5, 100.0, False),
        (None, 100.0, False),
    ],
)
def test_the_time_of_a_row_gives_its_algorithm_bandwidth(time, algbw, said):
    side = {"time_us": time, "algbw_gbps": algbw, "busbw_gbps": algbw * 1.5, "wrong": 0}
    told = numbers._contradicting(1 << 30, side, "all_reduce", 4)
    assert bool([text for text in told if "and algbw says" in text]) is said


@pytest.mark.parametrize("name", ["time_us", "algbw_gbps", "busbw_gbps"])
def test_a_row_without_one_of_its_numbers_proves_nothing(judge, name):
    """A pager removed the number, or it was never printed."""
    at = {"time_us": (5, 9), "algbw_gbps": (6, 10), "busbw_gbps": (7, 11)}[name]
    rows = [line for line in TABLE.splitlines() if line.split()[-1:] == ["0"] and " float " in line]
    torn = " ".join("N/A" if place in at else word for place, word in enumerate(rows[-1].split()))
    job = judge(WHOLE.replace(rows[-1], torn))
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "odd-numbers"), job["sentence"]
