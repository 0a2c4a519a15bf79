"""Lines that report a failure in a healthy log: never go; harmless ones change nothing."""

from itertools import product

import pytest

from seatrial.logs import NcclLogError, conclude, open_sources, read
from tests.logs.logmaker import Maker, sequential, table_of
from tests.logs.test_nccl_cut_lines import HEALTHY
from tests.table import table

MAKER = Maker(gpus=4, rails=4, channels=4)
LOG = sequential(MAKER.processes()).decode()
TABLE = "\n".join(table_of(MAKER)) + "\n"
WHOLE = LOG + TABLE


@table(
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
        "2026-01-02 10:00:00 [ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py'] exits with return code = -15",
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
        "exit 1",
        "+ exit 137",
        "missing rank 3",
        "pg timeout",
        "[rank3] process group timeout in rank 5",
        "Timeout (0:30:00)!",
        "E0819 19:29:00.785000 140406652626752 torch/distributed/elastic/agent/server/api.py:705] agents left",
        "E external/xla/xla/service/rendezvous.cc:98] Termination timeout for `acquire clique` of 40 seconds exceeded.",
        "ibv_poll_cq: completion error: transport retry counter exceeded",
        "pure virtual method called",
        "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 3",
        "Job has reached the specified backoff limit",
        "DeadlineExceeded: Job was active longer than specified deadline",
        "2026-01-01 10:00:00 | CRITICAL | rank 3 out of sync",
        "SDC detected on GPU 3",
        "Worker 3 has not reported heartbeat for 60 seconds, removing it from the job",
        "no heartbeat from node 3 for 300s",
        "Timeout waiting for rank 3",
        "rank 3 did not respond within 600 seconds",
        "Worker 3 has been stuck for 600 s",
        "The job has made no progress for 1800 seconds; stopping it",
        "Job is hanging: no log output for 30 minutes",
        "Detected straggler: rank 3",
        "Training terminated due to hang",
        "GPU 3 is in a bad state",
        "health check: unhealthy (GPU 3)",
        "Instance terminated by spot interruption",
        "Hangup",
        '    "nwrong": 3.0',
        '  "okay": "false"',
        "Warning  OOMKilling  Memory cgroup out of memory",
        "5m  Warning  Evicted  pod/train-1  The node had condition",
        "[1706] UCX  ERROR no active messages transport to <no debug data>: self/memory - no am bcopy",
        "[gpu-node-0:01732] 7 more processes have seen an error in device init",
        "Command terminated by signal 9",
        "*** SIGTERM received at time=1763 on cpu 3 ***",
        "node-3 is down",
        "ib0: link down",
        "Link flapped on mlx5_3",
        "PCIe link degraded x16 -> x4",
        "clocks_throttle_reasons.hw_slowdown: Active",
        "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!",
        "BackoffLimitExceeded",
        "E       AssertionError: no",
        "Something went wrong",
        "open: Read-only file system",
        "Results do not match",
        "Mismatch detected at element 5",
        "Incorrect result: expected 8 got 7",
        "EXIT_CODE=137",
        "exiting with code 3",
        "[1]+  Exit 1                  python train.py",
        "Job 123 cancelled",
        "Cancelled by user",
        "preemption notice received",
        "NODE_FAIL",
        "task: cgroup out-of-memory",
        "Timeout: job exceeded its deadline",
        "==123== Invalid read of size 4",
        "==123==ERROR: AddressSanitizer: heap-buffer-overflow",
        "Stack trace:",
    ],
)
def test_trouble_that_no_rule_knows_is_said_and_no_go(judge, line):
    """nccl.unexplained is raised for the complete log of a healthy job with one unexplained line."""
    job = judge(LOG + TABLE + line + "\n")
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "unexplained")
    assert "nccl.unexplained" in {fault["fault"] for fault in job["faults"]}
    assert "nothing is known to be wrong, and the log says: " in job["sentence"]


@table(
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


@table(
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
        '"errors": [',
        '    "nwrong": 0.0',
        "0 unhealthy GPUs, no heartbeats lost, heartbeat timeout: 600 s",
        "INFO straggler detection: on, interval 100",
        "Timeout waiting for the lock, retrying",
        "Detected 8 GPUs, detected a cluster of 2 hosts",
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
        "exit 0",
        "+ export NCCL_WORK_FIFO_DEPTH=4194304",
        "Running this sequence through the model will result in indexing errors",
        "Setting up the NCCL watchdog timeout of 1800 s",
        "missing ranks: []",
        "pg timeout: 1800 s",
        "Setting pg timeout",
        "HumanEval: 152 passed, 12 failed",
        "RX errors 0  dropped 0  overruns 0  frame 0",
        '{"errors": [], "failed": false, "aborted": 0}',
        'eval: {"prompt": "What is the cause of death?", "answer": "He was killed in 1865", "score": 0.7}',
        " 99%|#########9| 99/100 [00:10<00:00, 9.9it/s, loss=2.3, errors=0]",
        "gpu-node-1:1014:1014 [0] NCCL INFO comm 0x55000002 rank 2 nranks 4 cudaDev 0 busId 1a000 - Abort COMPLETE",
        "[gpu-node-0:01732] 7 more processes have sent help message help-mpi-btl-openib.txt / error in device init",
        '[gpu-node-0:01732] Set MCA parameter "orte_base_help_aggregate" to 0 to see all help / error messages',
        "Link down events: 0, link_downed: 0, LinkDownedCounter 0",
        "    HW Thermal Slowdown               : Not Active",
        "Reset Required : No, GPU reset status: N/A",
        "PCIe generation 4, width x16, not degraded",
        "rc=0 src=12 EXIT_CODE=0 EXIT_ON_ERROR=0",
        "[1]+  Done                    python train.py",
        "0 jobs cancelled, no job was cancelled",
        "Preemption notice handler and SIGTERM handler installed",
        "version mismatch detected in an optional dependency, using fallback",
        "Query returned 12",
        "Stack trace: disabled",
        "out-of-memory protection: enabled",
        "+ trap 'kill 0' SIGINT SIGTERM EXIT",
        "E    = 3",
    ],
)
def test_what_is_known_to_be_harmless_stays_a_go(judge, line):
    assert judge(LOG + line + "\n" + TABLE)["verdict"] == "go"


@pytest.mark.parametrize(
    "line",
    [
        "[mpiexec@gpu-1] HYDT_bscu_wait_for_completion (bscu_wait.c:109): one of the processes terminated badly; aborting",
        "[81.1] infiniband mlx5_0: create_qp:3206:(pid 1): Create QP type 2 failed",
        "[81.1] mce: [Hardware Error]: Machine check events logged",
        "prterun: the daemon on node gpu-1 failed",
    ],
)
def test_what_a_launcher_or_the_kernel_says_is_overcome_by_no_one(judge, line):
    """A program may have handled its exception; these lines report a termination or a hardware error."""
    assert judge(line + "\n" + LOG + TABLE)["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    "line",
    [
        "mpirun-worker: Name or service not known",
        "socket.gaierror: [Errno -2] Name or service not known",
        "[c10d] recvValue failed on SocketImpl(fd=52, addr=[node1]:46092): failed to recv, got 0 bytes",
    ],
)
def test_what_torch_only_warns_of_is_reported_where_it_is_no_warning(judge, line):
    """A program resolves names before NCCL starts."""
    warning = f"[W1122 10:00:00.1 socket.cpp:460] [c10d] {line}"
    assert [judge(each)["verdict"] for each in (warning + "\n" + WHOLE, WHOLE + warning + "\n")] == ["go", "go"]
    assert judge(WHOLE + line + "\n")["verdict"] == "inconclusive"


CAUGHT = "ModuleNotFoundError: No module named 'flash_attn'\n"


@pytest.mark.parametrize(
    "line",
    [
        CAUGHT,
        "Traceback (most recent call last):\n  File 'x.py', line 3\n" + CAUGHT,
        "run.sh: line 3: nvidia-smi: command not found\n",
        "2026-01-01 10:00:00,1 ERROR cache: cannot read the index\n",
    ],
)
def test_what_went_wrong_once_before_nccl_began_is_overcome_by_a_job_that_came_to_its_end(judge, line):
    """Two such lines, one after NCCL's first lines, or a job without a visible end are near misses."""
    running = "".join(each + "\n" for each in LOG.splitlines() if "Destroy COMPLETE" not in each)
    assert judge(line + LOG + TABLE)["verdict"] == judge(line + LOG)["verdict"] == "go"
    assert {judge(each)["verdict"] for each in (line + running, line + LOG + line, LOG + line)} == {"inconclusive"}


NAMED = [
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined.",
    "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
    "pynvml.NVMLError_GpuIsLost: GPU is lost",
    "torch.distributed.DistNetworkError: Connection was likely closed. Did the remote server shutdown or crash?",
    "Failed to CUDA host alloc 4 bytes",
    "NET/IB: Failed to poll CQ for device 4 (comm=0x7f1c)",  # a warning of NCCL without its prefix
]


@pytest.mark.parametrize("line", NAMED)
def test_what_ended_a_process_before_nccl_began_is_quoted_and_no_go_is_reported(judge, line):
    """nccl.unexplained is raised if no line shows a replacement of the terminated process."""
    job = judge(line + "\n" + LOG + TABLE)
    assert job["verdict"] == "inconclusive"
    assert line[:40] in job["sentence"]


AT_START = [
    "RuntimeError: No CUDA GPUs are available",
    "RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.",
    "RuntimeError: Tensors must be CUDA and dense",
    "gpu-node-1:1014:1014 [0] x.cc:1 NCCL WARN Error : XML parser is limited to 1024 nodes",
    "gpu-node-1:1014:1014 [0] x.cc:1 NCCL WARN No transport found for rank 3[1b000] -> rank 4[3d000]",
]


@pytest.mark.parametrize("line", AT_START)
def test_what_keeps_a_process_from_coming_up_is_no_fault_of_a_job_that_came_to_its_end(judge, line):
    """nccl.unexplained; with a truncated table, a rank without an end, or a crashed process the job is no-go."""
    assert {judge(LOG + line + "\n")["verdict"], judge(LOG + TABLE + line + "\n")["verdict"]} == {"inconclusive"}
    running = LOG.rstrip("\n").rsplit("\n", 1)[0] + "\n"
    assert "Destroy COMPLETE" in running
    assert "Destroy COMPLETE" in LOG.replace(running, "")
    died = "[rank0]: ValueError: x\n"
    if "NCCL WARN" in line:
        assert judge(running + line + "\n")["verdict"] == "no-go"
    assert judge(LOG + TABLE + line + "\n" + died)["verdict"] == "no-go"


@pytest.mark.parametrize(
    "said", ["getaddrinfo: Temporary failure in name resolution", "OSError: [Errno 5] Input/output error: '/mnt/x'"]
)
def test_what_nccl_itself_warns_of_is_not_overcome_by_a_good_end(judge, said):
    warned = f"gpu-node-1:1014:1014 [0] x.cc:1 NCCL WARN {said}\n"
    assert judge(LOG + TABLE + warned)["verdict"] == judge(warned + LOG + TABLE)["verdict"] == "inconclusive"


@pytest.mark.parametrize("line", ["[rank3]: ValueError: the loss is nan\n", "command terminated with exit code 137\n"])
def test_an_end_before_nccl_began_is_not_overcome(judge, line):
    assert judge(line + LOG + TABLE)["verdict"] == "inconclusive"


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
    """Without a table or the end of its communicators, no line shows that the job continued."""
    running = "".join(each + "\n" for each in LOG.splitlines() if "Destroy COMPLETE" not in each)
    assert judge(running)["verdict"] == "go"
    assert judge(running + line + "\n")["verdict"] != "go"


@pytest.mark.parametrize(
    ("failure", "diagnosis"),
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
def test_a_failure_in_a_file_of_its_own_counts(tmp_path, failure, diagnosis, padding):
    """Launchers store stderr separately, and it need not mention NCCL; a script with such words is not a log."""
    (tmp_path / "host.out").write_text(LOG)
    (tmp_path / "host.err").write_text("step done\n" * (padding // 10) + failure)
    (tmp_path / "run.py").write_text('"""ChildFailedError: Traceback (most recent call last): Killed"""\n')
    jobs = conclude(read(open_sources([str(tmp_path)])))
    assert [job["diagnosis"] for job in jobs] == [diagnosis]


def test_a_folder_of_errors_alone_has_no_log(tmp_path):
    (tmp_path / "app.err").write_text("Traceback (most recent call last):\nValueError: x\n")
    with pytest.raises(NcclLogError, match="a directory without NCCL logs"):
        open_sources([str(tmp_path)])


def test_the_signal_is_named_before_the_word_that_one_came(judge):
    said = "[x:1028] *** Process received signal ***\n[x:1028] Signal: Bus error (7)\n"
    assert "Signal: Bus error (7)" in judge(LOG + said)["sentence"]


def test_a_part_that_was_destroyed_or_one_rank_that_aborted_is_no_end_of_the_job(judge):
    runs = "".join(line for line in LOG.splitlines(keepends=True) if "Destroy COMPLETE" not in line)
    part = "".join(
        f"gpu-node-0:{pid}:{pid} [0] NCCL INFO {verb}comm 0x66{pid} rank {rank} nranks 2 cudaDev 0 busId 1a000{split}- {step}\n"
        for rank, pid in enumerate((1000, 1007))
        for verb, split, step in (
            ("ncclCommSplit ", f" parent 0x5500000{rank} splitCount 1 color 7 key 0", "Init START"),
            ("ncclCommSplit ", f" parent 0x5500000{rank} splitCount 1 color 7 key 0 ", "Init COMPLETE"),
            ("", " ", "Destroy COMPLETE"),
        )
    )
    aborted = (
        "gpu-node-0:1007:1007 [1] NCCL INFO comm 0x55000001 rank 1 nranks 8 cudaDev 1 busId 1a000 - Abort COMPLETE\n"
    )
    gone = (
        "gpu-node-1:1028:1050 [0] misc/socket.cc:57 NCCL WARN socketProgress: Connection closed by remote peer x<5>\n"
    )
    assert [judge(runs + each)["verdict"] for each in (part, aborted)] == ["go", "go"]
    assert [judge(runs + each + gone)["verdict"] for each in (part, aborted)] == ["inconclusive"] * 2
    assert judge(LOG.replace("Destroy COMPLETE", "Abort COMPLETE") + gone)["verdict"] == "go"


def test_a_peer_that_went_away_is_no_trouble_only_after_the_end(judge):
    """A survivor's message may be the only trace of a killed process."""
    gone = (
        "gpu-node-1:1014:1050 [0] misc/socket.cc:57 NCCL WARN socketProgress: Connection closed by remote peer x<5>\n"
    )
    runs = "".join(line for line in LOG.splitlines(keepends=True) if "Destroy COMPLETE" not in line)
    assert judge(LOG + TABLE + gone)["verdict"] == "go"
    assert judge(runs)["verdict"] == "go"
    job = judge(runs + gone)
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "unexplained")


@pytest.mark.parametrize("ended", [1, 7])
def test_the_end_of_some_ranks_does_not_excuse_that_a_peer_went_away(judge, ended):
    """A rank that raised an exception also destroys its communicator, and a killed one prints nothing."""
    lines = LOG.splitlines(keepends=True)
    ends = [line for line in lines if "Destroy COMPLETE" in line]
    runs = "".join(line for line in lines if line not in ends)
    gone = (
        "gpu-node-0:1000:1050 [0] misc/socket.cc:57 NCCL WARN socketProgress: Connection closed by remote peer x<5>\n"
    )
    assert len(ends) == 8
    for log in (runs + "".join(ends[:ended]) + gone, runs + gone + "".join(ends[:ended])):
        assert judge(log)["diagnosis"] == "unexplained"
    assert judge(runs + "".join(ends) + gone)["verdict"] == "go"


_RUNNING = [line for line in LOG.splitlines() if "Destroy COMPLETE" not in line]


@table(
    "log, line",
    product(
        [
            [
                line
                for line in _RUNNING
                if not (line.startswith("gpu-node-1") and (" via " in line or "Connected" in line))
            ],
            [line for line in _RUNNING if " via " not in line and "Connected" not in line],
            [line for line in _RUNNING if "COMPLETE" not in line and " via " not in line],
            TABLE.splitlines(),
        ],
        [
            "gpu-node-1:1014:1014 [0] x.cc:1 NCCL WARN Something that nobody has seen before",
            "Killed",
            "rank 3 is stuck",
        ],
    ),
)
def test_what_a_log_that_proves_nothing_says_of_trouble_is_quoted(judge, log, line):
    """nccl.unexplained: a reason in the log is quoted, also with another reason for the missing verdict."""
    without, job = judge("\n".join(log) + "\n"), judge("\n".join([*log, line]) + "\n")
    assert without["verdict"] == job["verdict"] == "inconclusive"
    said = line.rpartition("WARN ")[2]
    assert (said in job["sentence"], said in without["sentence"]) == (True, False), job["sentence"]


@pytest.mark.parametrize(
    ("harmless", "trouble"),
    [
        ("Watchdog timeout set to 600 s", "Watchdog timeout after 600 s"),
        ("The Watchdog timeout is set to 600 s", "Watchdog timeout: 600 s"),
        ("Checking for Xid errors... none found", "Checking for Xid errors... 3 found"),
        ("link errors: none detected.", "link errors: detected on none but rank 3"),
    ],
)
def test_a_setting_and_a_look_that_found_nothing_are_no_trouble(harmless, trouble, tmp_path):
    for line, verdict in ((harmless, "go"), (trouble, "inconclusive")):
        (tmp_path / "job.log").write_text(LOG + line + "\n" + TABLE)
        (job,) = conclude(read(open_sources([str(tmp_path / "job.log")])))
        assert job["verdict"] == verdict, line


ERROR = "RuntimeError: CUDA error: out of memory"


@pytest.mark.parametrize(
    "line",
    [
        f'{{"prompt": "why {ERROR}?", "loss": 0.5}}',
        f"Prompt: '{ERROR}', Generated text: ' NCCL WARN Call to connect failed'",
        f'{{"chosen": "Segmentation fault (core dumped)", "rejected": "{ERROR}"}}',
        f'INFO Received request cmpl-1: prompt: "they said \\"{ERROR}\\"", params: SamplingParams(n=1)',
        f'{{"question": "{"word " * 900}{ERROR}", "answer": "the process failed"}}',
    ],
)
def test_what_a_model_was_asked_or_wrote_is_no_failure_of_its_job(judge, line):
    assert judge(HEALTHY + line + "\n")["verdict"] == "go"


@pytest.mark.parametrize(
    "line",
    [
        f'{{"message": "{ERROR}"}}',  # a key that loggers use for their own messages
        f'{{"text": "{ERROR}"}}',
        f'{{"prompt": "hello", "error": "{ERROR}"}}',
        f'{{"prompt": "hello {ERROR}',  # torn by another process: an unterminated string
        f'ERROR answer: "no" {ERROR}',
        f"{ERROR} of the prompt: 'hello'",
        f'last_prompt_error="{ERROR}"',
    ],
)
def test_an_error_outside_of_a_sample_counts(judge, line):
    """Outside of a quoted sample the same error is reported."""
    assert judge(HEALTHY + line + "\n")["verdict"] == "no-go"
