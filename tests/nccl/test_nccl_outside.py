"""Causes that no line of NCCL's shows: what torch, CUDA, launchers, schedulers, engines and the kernel say."""

from __future__ import annotations

import pytest

from tests.nccl.test_nccl_causes import HEALTHY, INFO, RETRY, STARTED, judged

PEER = "gpu-node-1:2000:2000 [1] "
REFUSED = f"\n{PEER}misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.2<41234> failed : Connection refused\n{PEER}{INFO}misc/socket.cc:58 -> 2\n"
STALE = f"\n{PEER}transport/net_ib.cc:1 NCCL WARN {RETRY}\n{PEER}{INFO}transport/net.cc:1 -> 6\n"
TORCHRUN = (
    "E1122 10:00:01.0 71 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 1 (pid: 5) of binary: python3\n"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
)
STORE = '[rank3]:[W1122 10:00:02.0 ProcessGroupNCCL.cpp:1662] [PG ID 0 PG GUID 0 Rank 3] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe\n'
WATCHDOG = (
    "[rank3]:[E1122 10:00:00.1 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL("
    "SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600011 milliseconds before timing out.\n"
)


def died(text: str) -> str:
    return "[rank1]: Traceback (most recent call last):\n[rank1]: " + text + "\n"


def first(log: str) -> str:
    return judged(log)["causes"][0]["fault"]


SAID = [
    # torch: socket.cpp, TCPStore.cpp, TCPStoreLibUvBackend.cpp
    ("torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (head, 29500). "
     "The client socket has failed to connect to 10.0.0.1:29500 (errno: 113 - No route to host).", "nccl.no-route"),
    ("torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (head, 29500). "
     "The client socket has failed to connect to 10.0.0.1:29500 (errno: 111 - Connection refused).", "nccl.connect-refused"),
    ("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, "
     "useIpv6: false, code: -99, name: EADDRNOTAVAIL, message: address not available", "nccl.rendezvous"),
    ("torch.distributed.DistNetworkError: failed to recv, got 0 bytes", "nccl.store-gone"),
    ("RuntimeError: Connection reset by peer", "nccl.store-gone"),
    ("RuntimeError: connect() timed out. Original timeout was 1800000 ms.", "nccl.rendezvous"),
    ("RuntimeError: Stop_waiting response is expected", "nccl.wrong-store"),
    ("[W1122 10:00:00.0 TCPStoreLibUvBackend.cpp:308] [c10d] Validate magic number failed. Received: 1195725856, expected: 1015231344",
     "nccl.wrong-store"),
    ("KeyError: 'LOCAL_RANK'", "nccl.no-launcher"),
    ("RuntimeError: Rank 0 timed out in monitoredBarrier after 60000 ms.", "nccl.hang-late"),
    # gloo: device.cc, pair.cc
    ("RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:83] ifa != nullptr. Unable to find address for: ibp12s0",
     "nccl.gloo-interface"),
    ("RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:212] ifa != nullptr. Unable to find interface for: [0.0.0.7]",
     "nccl.gloo-interface"),
    ("RuntimeError: cuda runtime error (101) : invalid device ordinal at torch/csrc/cuda/Module.cpp:59", "nccl.no-gpu"),
    ("RuntimeError: [gloo/gloo/transport/tcp/pair.cc:144] timed out connecting: SO_ERROR: Connection timed out, remote=[10.0.0.3]:4321",
     "nccl.connect-timeout"),
    # CUDA and the driver
    ("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).", "nccl.cuda-driver"),
    ("RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted on non supported HW",
     "nccl.cuda-driver"),
    ("RuntimeError: CUDA error: initialization error", "nccl.cuda-init"),
    ("torch.AcceleratorError: CUDA error: operation not supported on global/shared address space", "nccl.kernel-fault"),
    ("RuntimeError: CUDA error: operation not supported", "nccl.cuda-unsupported"),
    ("RuntimeError: CUDA error: mapping of buffer object failed", "nccl.gpu-mapping"),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "nccl.cuda-memory"),
    ("Indexing.cu:1422: indexSelect: block: [2,0,0], thread: [64,0,0] Assertion `srcIndex < size` failed.", "nccl.kernel-fault"),
    ("nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown", "nccl.no-gpu"),
    ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your driver", "nccl.cuda-driver"),
    ("NVRM: API mismatch: the client has the version 535.104.05, but this kernel module has the version 535.129.03.", "nccl.driver-mismatch"),
    # what the program asks for
    ("ValueError: Tensor parallel size (8) cannot be larger than the number of available GPUs (4)", "nccl.no-gpu"),
    ("RuntimeError: world_size (8) is not divisible by 3", "nccl.parallel-sizes"),
    ("RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.", "nccl.ddp-unused"),
    ("RuntimeError: Unconvertible NCCL type Short", "nccl.invalid-usage"),
    ("ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory", "nccl.library"),
    ("./all_reduce_perf: /lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by ./all_reduce_perf)", "nccl.library"),
    # limits and files
    ("OSError: [Errno 28] No space left on device: '/scratch/step_100'", "nccl.storage"),
    ("OSError: [Errno 116] Stale file handle: '/data'", "nccl.storage"),
    ("RuntimeError: unable to write to file </torch_91_2373_2>: No space left on device (28)", "nccl.shm-full"),
    ("RuntimeError: received 0 items of ancdata", "nccl.files-limit"),
    ("BlockingIOError: [Errno 11] Resource temporarily unavailable", "nccl.process-limit"),
    ("mpirun noticed that process rank 3 with PID 0 on node gpu-3 exited on signal 9 (Killed).", "nccl.process-killed"),
    ("srun: error: gpu-3: task 12: Out Of Memory", "nccl.oom-killed"),
    # launchers and schedulers
    ("slurmstepd: error: *** JOB 77 ON gpu-3 CANCELLED AT 2026-11-22T10:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***", "nccl.node-lost"),
    ("(raylet) The node with node id: 1a2b has been marked dead because the detector has missed too many heartbeats", "nccl.node-lost"),
    ("bash: line 1: orted: command not found", "nccl.launch-failed"),
    ("kex_exchange_identification: Connection closed by remote host", "nccl.launch-failed"),
    ("srun: error: Unable to create step for job 77: More processors requested than permitted", "nccl.launch-failed"),
    ("At least one pair of MPI processes are unable to reach each other for MPI communications.", "nccl.mpi"),
    # the kernel
    ("[81.1] mlx5_core 0000:18:00.0: Port module event[error]: module 0, Cable error, Cable is unplugged", "nccl.ib-link-flap"),
    ("[81.1] mlx5_core 0000:18:00.0: poll_health:845:(pid 0): Fatal error 1 detected", "nccl.ib-card"),
    ("[81.1] pcieport 0000:15:01.0: AER: Uncorrected (Fatal) error received: 0000:16:00.0", "nccl.pcie-error"),
    ("[81.1] NVRM: Xid (PCI:0000:3b:00): 62, pid=1234, 2026a 1", "nccl.gpu-reset"),
    ("pynvml.NVMLError_GpuIsLost: GPU is lost", "nccl.gpu-lost"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "fault"), SAID)
def test_what_ended_a_rank_is_named(said, fault):
    """nccl.storage, nccl.node-lost, nccl.parallel-sizes, nccl.ddp-unused, nccl.pcie-error, nccl.wrong-store and others."""
    line = died(said) if "Error: " in said and not said.startswith(("[", "pynvml")) else said + "\n"
    assert first(line + TORCHRUN) == fault


@pytest.mark.parametrize(("said", "fault"), SAID)
def test_what_was_said_before_a_run_that_came_to_its_end_condemns_nobody(said, fault):
    """Only an event that by itself ends a process does: a CUDA error, a signal, a launcher's last word."""
    before = judged(said + "\n" + HEALTHY)
    ended = ("CUDA error: ", "Assertion `", "exited on signal", "Out Of Memory")
    assert before["verdict"] != "no-go" or any(word in said for word in ended), fault


@pytest.mark.parametrize(
    "said",
    [
        "[W1122 10:00:00.0 socket.cpp:663] [c10d] The client socket has failed to connect to [head]:29500 (errno: 111 - Connection refused).",
        "ImportError: /usr/lib/libfoo.so: undefined symbol: foo_bar",
        "OSError: [Errno 2] No such file or directory: 'config.yaml'",
        "slurmstepd: error: *** STEP 77.0 ON gpu-3 CANCELLED AT 2026-11-22T10:00:00 ***",
        "srun: error: gpu-3: task 12: Killed",
        "NVRM: Xid (PCI:0000:3b:00): 43, pid=1234, Ch 00000010",
        "pcieport 0000:15:01.0: AER: Corrected error received: 0000:16:00.0",
        "mlx5_core 0000:18:00.0: Port module event: module 0, Cable plugged",
        "KeyError: 'learning_rate'",
        "RuntimeError: world_size (8) is fine",
        "bash: line 1: nvtop: command not found",
        "KeyError: 'MODEL_RANK'",
    ],
)
def test_what_is_like_it_names_no_cause(said):
    """A retry, a launcher's own clean-up, another file, a corrected error."""
    assert first(died(said) + TORCHRUN) == "nccl.crash"


@pytest.mark.parametrize("peers", [REFUSED, STALE])
@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "nccl.cuda-memory"),
        ("OSError: [Errno 28] No space left on device: '/scratch/step_100'", "nccl.storage"),
        ("RuntimeError: CUDA error: device-side assert triggered", "nccl.kernel-fault"),
        ("RuntimeError: world_size (8) is not divisible by 3", "nccl.parallel-sizes"),
    ],
)
def test_the_rank_that_died_comes_before_what_its_peers_saw(said, fault, peers):
    assert first(HEALTHY + died(said) + peers + TORCHRUN) == fault
    assert first(HEALTHY + peers + TORCHRUN) in ("nccl.connect-refused", "nccl.ib-retry")


def test_the_rank_that_died_comes_first_also_where_its_peers_were_quicker():
    late = HEALTHY + REFUSED + died("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB") + TORCHRUN
    assert first(late) == "nccl.cuda-memory"


def test_a_store_that_is_missed_after_a_timeout_or_an_unknown_end_is_no_cause():
    """nccl.store-gone follows: rank 0, which holds the store, has ended."""
    assert first(HEALTHY + WATCHDOG + STORE + TORCHRUN) == "nccl.hang"
    ended = judged(HEALTHY + died("ValueError: the batch is odd") + STORE + TORCHRUN)
    assert ended["causes"][0]["fault"] == "nccl.crash"
    assert "the batch is odd" in ended["sentence"]
    assert first(HEALTHY + STORE + died("ValueError: the batch is odd") + TORCHRUN) == "nccl.store-gone"


def test_a_probe_of_another_process_behind_a_run_that_came_up_condemns_nobody():
    """What keeps a process from starting, where no program died: not proven healthy, and nobody is accused."""
    probe = "Failed to initialize NVML: Driver/library version mismatch\n"
    assert judged(HEALTHY + probe)["verdict"] == "inconclusive"
    assert judged(probe + HEALTHY)["verdict"] != "no-go"
    assert judged(STARTED + "\n" + probe)["verdict"] == "no-go"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Permission denied (publickey).", "authorized_keys"),
        ("ssh: connect to host worker-1 port 22: Connection refused", "no sshd answers"),
        ("bash: line 1: orted: command not found", "not installed"),
        ("srun: error: Unable to create step for job 77: More processors requested than permitted", "allocation"),
    ],
)
def test_a_launcher_that_fails_is_told_by_what_it_lacks(said, words):
    """nccl.launch-failed."""
    assert words in judged(said + "\nsrun: error: gpu-3: task 1: Exited with exit code 1\n")["causes"][0]["cause"]
