"""Is `go` refused wherever a log only looks whole?"""

import re

import pytest

from jobs.nccl import NcclLogError, conclude, open_sources, read
from tests.nccl.logmaker import Maker, sequential, table_of

MAKER = Maker(gpus=4, rails=4, channels=4)
LOG = sequential(MAKER.processes()).decode()
TABLE = "\n".join(table_of(MAKER)) + "\n"
WHOLE = LOG + TABLE


def test_the_whole_log_is_go(judge):
    """The near-miss of everything below."""
    assert judge(WHOLE)["verdict"] == "go"


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
    """A run whose table is fine may still have died, or hang in its next test."""
    job = judge(WHOLE + ending)
    assert (job["verdict"] != "go", job["diagnosis"]) == (True, diagnosis), job["sentence"]


@pytest.mark.parametrize("busbw", ["nan", "inf", "0.00"])
def test_numbers_that_cannot_be_true_are_named(judge, busbw):
    """The sentence speaks of the numbers, not of ranks that are all shown."""
    job = judge(LOG + TABLE.replace("153.60", busbw).replace("153.68", busbw))
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "odd-numbers")
    assert "numbers cannot be true" in job["sentence"]


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
    """A page that shows the last rank of a rack names one host of many."""
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
def test_bus_bandwidth_tells_of_ranks_that_the_list_leaves_out(judge, algbw, busbw, ranks):
    """Twice (n-1)/n is bus over algorithm bandwidth of an all-reduce: 1.75 is not two ranks'."""
    maker = Maker(hosts=("gpu-node-0",), gpus=2)
    table = "\n".join(line for line in table_of(maker) if "1048576        262144" not in line)
    job = judge(table.replace("87.77  153.60", f"{algbw} {busbw}").replace("87.82  153.68", f"{algbw} {busbw}") + "\n")
    assert (job["ranks"], job["verdict"] == "go") == (ranks, ranks == 2)


def test_two_hosts_with_different_plugins_are_mixed(judge):
    """One image holds a network plugin and the other does not: both say InfiniBand, and need not understand each other."""
    plugin = LOG.replace("Using network IB", "Using network IBext_v9")
    one = "".join(line + "\n" for line in plugin.splitlines() if line.startswith("gpu-node-0"))
    other = "".join(line + "\n" for line in LOG.splitlines() if line.startswith("gpu-node-1"))
    job = judge(one + other)
    assert (job["verdict"], job["mixed"], job["diagnosis"]) == ("no-go", True, "mixed-transport")
    assert "libnccl-net.so" in job["sentence"]


def test_sockets_of_an_unknown_job_are_not_said_to_carry_its_data(judge):
    """What was chosen is said as what was chosen."""
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
    """Of two processes that print their ends, one found wrong values; and such a line counts without its table."""
    assert judge(lines)["diagnosis"] == "wrong-results"
    assert judge(LOG + TABLE.replace("# Out of bounds values : 0 OK\n", lines))["diagnosis"] == "wrong-results"


def test_one_rank_that_sends_is_not_the_only_one(judge):
    """An all-reduce of one rank has a bus bandwidth of 0: a list of rank 0 alone was cut."""
    first = TABLE.index("#  Rank  1")
    job = judge(TABLE[:first] + TABLE[TABLE.index("#    ", first) :])
    assert (job["ranks"], job["nodes"], job["diagnosis"]) == (None, None, "table-only")


def test_a_versioned_socket_is_a_socket(judge):
    """A plugin's wrapper may say Socket_v8."""
    assert judge(LOG.replace("via NET/IB/", "via NET/Socket_v8/").replace("/GDRDMA", ""))["diagnosis"] == "socket"


def test_two_runs_in_one_log_are_told_apart(judge):
    """The first took sockets, the second did not: no rank disagrees with its own job."""
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
    """Seven of eight ranks that came up say nothing of the one that did not."""
    lines = sequential(Maker(hosts=("gpu-node-0",), gpus=8).processes()).decode().splitlines()
    assert judge("\n".join(lines) + "\n")["verdict"] == "go"
    left = [line for line in lines if not (line.endswith("Init COMPLETE") and " rank 5 " in line)]
    assert judge("\n".join(left) + "\n")["verdict"] == "inconclusive"


@pytest.mark.parametrize("ranks", [16, 1840])
def test_one_process_that_is_seen_is_not_the_whole_job(judge, ranks):
    """The end of a table and rank 0's last line: where the other ranks ran, nothing says."""
    tail = TABLE[TABLE.index("#       size") :]
    job = judge(
        tail
        + f"gpu-node-0:1211:1211 [0] NCCL INFO comm 0x5634cae893b0 rank 0 nranks {ranks} cudaDev 0 busId 100000 - Destroy COMPLETE\n"
    )
    assert (job["ranks"], job["nodes"], job["verdict"]) == (ranks, None, "inconclusive")


def test_four_ranks_of_which_one_is_seen_are_no_go(judge):
    """They fit into one host, but nothing places them there."""
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
    """Two hosts of two GPUs whose names were taken off, or are the same, in an excerpt without what crosses them."""
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
    """Two processes with the first two devices of a host, and one of them sends to a fifth rank."""
    lines = [
        (2, 0, "Channel 00 : 2[4b000] -> 3[51000] via P2P/IPC/read"),
        (3, 1, "Channel 01 : 3[51000] -> 4[cb000] [send] via NET/IB/1/GDRDMA"),
        (2, 0, "Connected all rings"),
    ]
    job = judge("".join(f"gpu-node:{rank + 70}:1 [{dev}] NCCL INFO {text}\n" for rank, dev, text in lines))
    assert (job["ranks"], job["verdict"], job["diagnosis"]) == (None, "inconclusive", "shown-in-part")


def test_a_rank_list_of_fewer_than_the_channels_name_is_cut(judge):
    """One line of four was kept, and a channel to another rank."""
    job = judge(
        "#   Rank  0 Pid 9 on gpu-node device  0 [0x87] A100-SXM4-40GB\ngpu-node:9:1 [0] NCCL INFO Channel 00 : 0[87000] -> 1[8d000] [send] via NET/IB/0/GDRDMA\n"
    )
    assert (job["ranks"], job["verdict"], job["diagnosis"]) == (None, "inconclusive", "shown-in-part")


@pytest.mark.parametrize(
    "line",
    [
        "gpu-node-1:1014:1014 [0] x.cc:1 NCCL WARN Something that nobody has seen before",
        "gpu-node-1:1014:1014 [0] NCCL INFO RAS declaring peer 10.0.0.2 as DEAD",
        "gpu-node-1:1014:1014 [0] NCCL INFO NET/IB : mlx5_3:1 Got async event : port down",
        "NVRM: Xid (PCI:0000:1b:00): 31, pid=123, Ch 00000008, MMU Fault",
        "slurmstepd: error: *** STEP 123.0 ON node3 CANCELLED AT 2026-01-01T00:00:00 ***",
        "./run.sh: line 3: 12345 Killed                  ./all_reduce_perf",
        "command terminated with exit code 137",
        "mpirun: Forwarding signal 15 to job",
        "Traceback (most recent call last):",
        "[rank3]: ValueError: the loss is nan",
        "[rank2]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 2] First PG on this rank to signal dumping.",
        "[rank1]:[F1122 10:00:00.1 ProcessGroupNCCL.cpp:1554] [PG ID 0 PG GUID 0 Rank 1] Terminating the process",
        "W1122 10:00:00.1 71 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 5 closing signal SIGTERM",
        "E1122 10:00:00.1 71 torch/distributed/elastic/agent/server/api.py:687] Error waiting on exit barrier. Elapsed: 300 s",
        "srun: Force Terminated StepId=123.0",
        "[pod/train-1/pytorch] Killed",
        "(Worker pid=123) ray.exceptions.ActorDiedError: The actor died unexpectedly.",
        "FATAL: kernel `fmha_cutlassF_f16` is for sm80-sm100, but was built for sm37",
        "panic: runtime error: invalid memory address",
        "[trainer] step 40: NCCL operation timed out, restarting",
        "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.64.77.53]:34971",
        "[2026-02-27 11:31:26] Received sigquit from a child process. It usually means the child failed.",
        "W1122 10:00:00.1 71 torch/distributed/elastic/agent/server/api.py:739] Received 15 death signal, shutting down",
        "2026-01-01 10:00:00,1 CRITICAL: rank 3 does not answer",
        "Hardware error: uncorrectable ECC error encountered",
        "ERROR: job failed",
        "2026-01-02 10:00:00 [ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py'] exits with return code = -9",
        "iteration 200/ 10000 | consumed samples: 51200 | lm loss: NAN | grad norm: 0.1",
        '{"loss": NaN, "step": 3}',
        "Found NaN in local grad norm for bucket #0 in backward pass",
        "/src/nvshmem/src/host/mem/mem_heap.cpp:501: non-zero status: 2 cuMemCreate failed",
        "WARN: init failed for remote transport: ibrc",
        "[12.3] mlx5_core 0000:1a:00.0 ens1f0np0: Link down",
        "mlx5_core 0000:1a:00.0: poll_health:1023:(pid 0): device's health compromised - reached miss count",
        "nvidia-nvswitch3: SXid (PCI:0000:06:00.0): 12028, Non-fatal, Link 23 egress non-posted PRIV error",
        "srun: error: Node failure on gpu-node-1",
        "The node was low on resource: memory. Container train was using 10Gi",
        "[rank0]: KeyboardInterrupt",
        "F0000 00:00:1762.3 123 pjrt.cc:100] Check failed",
        "(raylet) A worker died or was killed while executing a task by an unexpected system error.",
        "INFO: Shutting down due to failure",
        "./train: error while loading shared libraries: libnccl.so.2: cannot open shared object file",
        "Received SIGTERM, shutting down",
        "exit code: -11",
        "GPU 0 failed",
        "worker on host 0 crashed",
        "Error rank 0: gone",
        "Error: <class 'ValueError'>",
        "error: null pointer dereference",
        "Error: None of the nodes answered",
        "error: 0 GPUs found",
        "Checkpoint failed after 3.5 seconds",
        "Timed out: 30.0 s",
        "Retry 5/5 failed, giving up",
        "urllib3: Max retries exceeded with url: /",
        "ERROR: init failed, run with NCCL_DEBUG=INFO for details",
        "### TRAINING FAILED ###",
        "Training halted: loss is nan",
        "NaN detected in gradients",
        "grad_norm: inf",
        'level=error msg="pod gone"',
        '{"severity": "ERROR", "message": "dataset gone"}',
        "kernel: watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:123]",
        "INFO: task python:1234 blocked for more than 120 seconds.",
        "traps: python3[123] general protection fault ip:7f sp:7f in libcuda.so",
        "python3[123]: segfault at 7f ip 0 sp 0",
        "torch.save: No space left on device",
        "recv: Connection reset by peer",
        "gpu-node-1 is not responding",
        "Rank 3 is stuck",
        "Rank 3 hung in all_reduce",
        "process exited with signal 9",
        "returncode: 1",
        "ORTE daemon has lost communication with a remote daemon.",
        "An MPI communication peer process has unexpectedly disconnected.",
        "Warning  BackOff  Back-off restarting failed container",
        "node gpu-node-1 is NotReady",
        "Pod was preempted",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUBLAS_STATUS_NOT_INITIALIZED",
        "an illegal memory access was encountered",
        "WARNING: GPU 3 lost",
        "DCGM: health check FAIL",
        "status=failed",
        "The actor is dead",
        "checksum mismatch",
        "straggler detected: rank 3",
        "barrier timeout",
        "Deadlock detected",
        "INFO: an exception occurred in rank 3",
        "INFO: unhandled exception, exiting",
        "Signal 11 received",
        "caught SIGUSR1",
        "Current thread 0x00007f (most recent call first):",
        "thread 'main' panicked at src/main.rs:1",
        "goroutine 1 [running]:",
        "abnormal termination",
        "lost contact with node 3",
        "[1706] UCX  ERROR no active messages transport to <no debug data>: self/memory - no am bcopy",
    ],
)
def test_trouble_that_no_rule_knows_is_said_and_no_go(judge, line):
    """nccl.unexplained: a whole log of a healthy job, and a line that nobody can explain."""
    job = judge(LOG + TABLE + line + "\n")
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "unexplained")
    assert "nccl.unexplained" in {fault["fault"] for fault in job["faults"]}
    assert "nothing is known to be wrong, and the log says: " in job["sentence"]


@pytest.mark.parametrize(
    "line",
    [
        "Bus error (core dumped)",
        "CUDA out of memory. Tried to allocate 20.00 MiB.",
        "CUDA error: uncorrectable NVLink error detected during the execution",
        "Memory cgroup out of memory: Killed process 12345 (python) total-vm:1kB",
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        "Fatal error in PMPI_Init_thread: Other MPI error, error stack:",
        "Indexing.cu:1290: block: [1,0,0], thread: [0,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
        "malloc(): corrupted top size",
        "terminate called after throwing an instance of 'X'",
        "terminate called without an active exception",
        "[gpu-node-1:1028] *** Process received signal ***",
        "NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.",
        "mpirun has exited due to process rank 0 with PID 0 on node x exiting improperly.",
        "prterun noticed that process rank 3 with PID 123 on node gpu-node-1 exited on signal 9 (Killed).",
        "E1122 10:00:00.1 71 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 1 (pid: 5)",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "[rank1]:[E1122 10:00:00.1 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 1] Exception (either an"
        " error or timeout) detected by watchdog at work: 12, last enqueued NCCL work: 14, last completed NCCL work: 11.",
        "DeepEP dispatch RDMA sender timeout, channel: 1, RDMA: 0, nvl: 3, dst RDMA lane: 1, head: 1, tail: 9",
        "RuntimeError: DeepEP error: CPU recv timeout",
        "gpu-node-1: Collective mismatch: rank 3 called all_reduce",
        "[rank0]: RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: x",
    ],
)
def test_a_process_that_died_behind_a_good_table_is_a_crash(judge, line):
    assert judge(LOG + TABLE + line + "\n")["diagnosis"] == "crash"


@pytest.mark.parametrize(
    "line",
    [
        "[rank2]: [PG 0 Rank 2] Heartbeat monitor timed out! Process will be terminated after dumping debug info.",
        "[rank0]: Received a dump signal due to a collective timeout from rank 1 and we will try our best to dump",
    ],
)
def test_a_watchdog_behind_a_good_table_is_a_hang(judge, line):
    assert judge(LOG + TABLE + line + "\n")["diagnosis"] == "hang"


@pytest.mark.parametrize(
    "line",
    [
        "gpu-node-1:1014:1014 [0] NCCL INFO RAS client listening socket at 127.0.0.1<28028>",
        "gpu-node-1:1014:1014 [0] x.cc:1 NCCL WARN NET/IB : mlx5_0:1 Got async event : SM change",
        "# Collective test concluded: all_reduce_perf, exit code: 0",
        "[rank0]:[W1122 10:00:00.1 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not called",
        "[rank3]:[W1122 10:00:00.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=52): Broken pipe",
        "E0000 00:00:1762.3 123 cuda_dnn.cc:8310] Unable to register cuDNN factory: one has already been registered",
        "[I1122 10:00:00.1 ProcessGroupNCCL.cpp:1300] [PG ID 0 Rank 0] NCCL watchdog thread started! timeout(ms): 600000",
        "INFO trainer.py: NCCL timeout set to 1800 s, hang detection on",
        "0 errors, 0 failed, error rate: 0.12, error_file: <N/A>",
        "lm loss: 2.3E+00 | grad norm: 0.4 | number of skipped iterations:   0 | number of nan iterations:   0 |",
        "WARNING: There was an error initializing an OpenFabrics device.",
        "UserWarning: Failed to load image Python extension: x",
        "[rank0]:[W1122 10:00:00.1 x.cpp:1] Warning: Environment variable NCCL_ASYNC_ERROR_HANDLING is deprecated",
        "Attempt 1 failed, retrying in 5 s",
        "mlx5_core 0000:1a:00.0 ens1f0np0: Link up",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  550.54.15",
        "exits with return code = 0",
        "[host:1] unable to open mca_btl_openib: x.so: cannot open shared object file: No such file or directory (ignored)",
        "If a worker failed, see its log",
        "UserWarning: apex failed to load",
        "failed to import flash_attn, falling back",
        "Failed to import flash_attn, using eager attention",
        "error_rate=0.0 on_error=continue NCCL_ASYNC_ERROR_HANDLING=1",
        "Error: no TTY",
        "mesg: ttyname failed: Inappropriate ioctl for device",
        "ls: cannot access '/opt/hpcx': No such file or directory",
        "fatal: not a git repository (or any of the parent directories): .git",
        "ERROR: pip's dependency resolver does not currently take into account all the packages that are installed.",
        "libibverbs: Warning: couldn't load driver 'x.so': x.so: cannot open shared object file: No such file or directory",
        "WARNING: Killed hung task? no",
        "wandb: ERROR Error while calling W&B API: rate limit exceeded (<Response [429]>)",
        "Attempt 1/3 failed: connection timed out. Sleeping 5 s",
        "Failed to load checkpoint from /ckpt: no checkpoint found, starting from scratch",
        "Skipping corrupted sample 123",
        "rank 0 finished step 10, no process failed",
        "Node gpu-node-1 is reachable, 0 nodes failed",
        "training step 1 failed count 0",
        "Job will be aborted if idle for 30 min",
        "Error handling mode: async",
        "PowerSGD error feedback enabled",
        "word error rate (WER) 4.3, max abs error 0.00195, quantization error 1.2e-03",
        "Total errors: 0 warnings: 0",
        "RX errors 0  dropped 0  overruns 0  frame 0",
        '{"errors": [], "failed": false, "aborted": 0}',
        'eval: {"prompt": "What is the cause of death?", "answer": "He was killed in 1865", "score": 0.7}',
        " 99%|#########9| 99/100 [00:10<00:00, 9.9it/s, loss=2.3, errors=0]",
        "gpu-node-1:1014:1014 [0] NCCL INFO comm 0x55000002 rank 2 nranks 4 cudaDev 0 busId 1a000 - Abort COMPLETE",
    ],
)
def test_what_is_known_to_be_harmless_stays_a_go(judge, line):
    assert judge(LOG + TABLE + line + "\n")["verdict"] == "go"


@pytest.mark.parametrize(
    "line",
    [
        "NET/IB : Got completion from peer 10.0.0.2<4> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
        "gpu-node-1:1014:1014 [0] x.cc:1 NCCL WARN Connect to 10.0.0.2<4> failed : Connection refused",
        "Detected mixed local Net device counts across ranks (min 1, max 8)",
        "MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX channel configuration",
    ],
)
def test_a_cause_of_failures_behind_a_job_that_shows_no_end_is_no_go(judge, line):
    """Without a table or an end of its communicators, nothing says that it went on, with or without NCCL's head."""
    running = "".join(each + "\n" for each in LOG.splitlines() if "Destroy COMPLETE" not in each)
    assert judge(running)["verdict"] == "go"
    assert judge(running + line + "\n")["verdict"] != "go"


def test_hosts_that_take_no_part_in_what_is_shown_are_no_go(judge):
    """A second job in the same log: its host shows no channel, whatever those of the first show."""
    head = "gpu-node-7:9:9 [0] NCCL INFO "
    assert judge(LOG + TABLE + head + "Using network IB\n")["verdict"] == "inconclusive"
    began = head + "ncclCommInitRank comm 0x5 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1a000 commId 0x77 - Init {}\n"
    assert judge(LOG + TABLE + began.format("START") + began.format("COMPLETE"))["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("12234  87.77  353.60  0  12227  87.82  353.68  0", "factor above 2"),  # edited
        ("12.234  87.77  153.60  0  12.227  87.82  153.68  0", None),  # under 100 us the time's digits are too few
        ("12234  87770  153600  0  12227  87820  153680  0", "algbw says 87770"),  # MB/s
        ("12234  87.77  153.60  0  12227  87.82  153.68  0x3", "cannot be read"),
    ],
)
def test_rows_that_contradict_themselves_prove_nothing(judge, row, said):
    """nccl.odd-numbers: algbw is size over time, and busbw at most twice that."""
    good = next(line for line in TABLE.splitlines() if " 153.60 " in line)
    job = judge(LOG + TABLE.replace(good, " 1073741824  268435456  float  sum  -1  " + row))
    assert job["verdict"] == ("go" if said is None else "inconclusive")
    assert said is None or said in job["sentence"]


@pytest.mark.parametrize(
    ("time", "algbw", "busbw", "verdict"), [(1222700, 0.88, 1.54, "inconclusive"), (36681, 29.27, 51.22, "go")]
)
def test_two_runs_of_one_row_that_are_far_apart_prove_nothing(judge, time, algbw, busbw, verdict):
    """Out of place 153.6 GB/s and in place a hundredth: the better side of a row is no proof. A third may be noise."""
    good = next(line for line in TABLE.splitlines() if " 153.60 " in line)
    row = f" 1073741824  268435456  float  sum  -1  12234  87.77  153.60  0  {time}  {algbw}  {busbw}  0"
    job = judge(LOG + TABLE.replace(good, row))
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
    """nccl.separate-runs: what was given together may have been meant as one job; each log alone is healthy."""
    makers = [Maker(hosts=("gpu-node-0",), comm_id=7), Maker(**{"hosts": ("gpu-node-1",), "comm_id": 8, **other})]
    for index, maker in enumerate(makers):
        (tmp_path / f"{index}.log").write_text(
            sequential(maker.processes()).decode() + table * ("\n".join(table_of(maker)) + "\n")
        )
    found = conclude(read(open_sources([str(tmp_path)])))
    assert [job["verdict"] for job in found] == [verdict] * 2
    assert all(("nothing crossed between them" in job["sentence"]) == (not other) for job in found)


@pytest.mark.parametrize(("world", "verdict"), [(2, "go"), (4, "inconclusive")])
def test_a_program_that_speaks_of_more_ranks_than_its_communicators_hold_is_no_whole_job(judge, world, verdict):
    """nccl.separate-runs: each host was started alone, and only one of them shows."""
    log = sequential(Maker(hosts=("gpu-node-0",)).processes()).decode()
    assert judge(f"[trainer] WORLD_SIZE={world}\n" + log)["verdict"] == verdict


@pytest.mark.parametrize(
    ("words", "diagnosis"),
    [
        ("[rank3]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error\n", "crash"),
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n", "crash"),
        ("Traceback (most recent call last):\nValueError: x\n", "unexplained"),
        ("slurmstepd: error: *** STEP 1.0 ON gpu-node-1 CANCELLED AT 2026-01-01T00:00:00 ***\n", "unexplained"),
        ("[12.3] NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.\n", "crash"),
        ("0 errors, all is well\n", "healthy-rdma"),
    ],
)
@pytest.mark.parametrize("padding", [0, 1 << 20])
def test_a_failure_in_a_file_of_its_own_counts(tmp_path, words, diagnosis, padding):
    """Launchers keep stderr apart, and it need not name NCCL; a script that quotes such words is none of the logs."""
    (tmp_path / "host.out").write_text(LOG)
    (tmp_path / "host.err").write_text("step done\n" * (padding // 10) + words)
    (tmp_path / "run.py").write_text('"""ChildFailedError: Traceback (most recent call last): Killed"""\n')
    found = conclude(read(open_sources([str(tmp_path)])))
    assert [job["diagnosis"] for job in found] == [diagnosis]


def test_a_folder_of_errors_alone_has_no_log(tmp_path):
    (tmp_path / "app.err").write_text("Traceback (most recent call last):\nValueError: x\n")
    with pytest.raises(NcclLogError, match="a directory without NCCL logs"):
        open_sources([str(tmp_path)])


def test_the_signal_is_named_before_the_word_that_one_came(judge):
    said = "[x:1028] *** Process received signal ***\n[x:1028] Signal: Bus error (7)\n"
    assert "Signal: Bus error (7)" in judge(LOG + said)["sentence"]


def test_a_peer_that_went_away_is_no_trouble_only_after_the_end(judge):
    """A survivor's words may be all that is left of a process that was killed."""
    gone = (
        "gpu-node-1:1014:1050 [0] misc/socket.cc:57 NCCL WARN socketProgress: Connection closed by remote peer x<5>\n"
    )
    runs = "".join(line for line in LOG.splitlines(keepends=True) if "Destroy COMPLETE" not in line)
    assert judge(LOG + TABLE + gone)["verdict"] == "go"
    assert judge(runs)["verdict"] == "go"
    job = judge(runs + gone)
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "unexplained")


def test_ranks_whose_hosts_no_line_names_are_not_said_to_share_one(judge):
    """nccl.net-intra-node accuses a host: a head that is not understood leaves open which one a rank is on."""
    job = judge(re.sub(r"(\[\d\]) NCCL", r"[2026-01-01 00:00:00] \1 NCCL", LOG))
    assert "nccl.net-intra-node" not in {fault["fault"] for fault in job["faults"]}, job["sentence"]
