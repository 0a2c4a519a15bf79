"""Causes that no NCCL line shows: messages of torch, CUDA, launchers, schedulers, engines and the kernel."""

from __future__ import annotations

import pytest

from tests.logs.logmaker import Maker, sequential
from tests.logs.test_nccl_causes import HEALTHY, INFO, RETRY, judged
from tests.table import table

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
    # gloo: device.cc, pair.cc
    (
        "RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:212] ifa != nullptr. Unable to find interface for: [0.0.0.7]",
        "nccl.gloo-interface",
    ),
    ("RuntimeError: cuda runtime error (101) : invalid device ordinal at torch/csrc/cuda/Module.cpp:59", "nccl.no-gpu"),
    ("RuntimeError: cuda runtime error (10) : invalid device ordinal at /torch/csrc/cuda/Module.cpp:33", "nccl.no-gpu"),
    ("THCudaCheck FAIL file=torch/csrc/cuda/Module.cpp line=33 error=10 : invalid device ordinal", "nccl.no-gpu"),
    ("RuntimeError: cuda runtime error (30) : unknown error at THCGeneral.cpp:70", "nccl.driver-state"),
    ("RuntimeError: cuda runtime error (3) : initialization error at THCGeneral.cpp:70", "nccl.cuda-init"),
    # AMD's runtime, as torch and the runtime itself (hip_fatbin.cpp, hip_platform.cpp) print its errors
    ("RuntimeError: CUDA driver error: CUDA_ERROR_NOT_SUPPORTED operation not supported", "nccl.cuda-unsupported"),
    ("OSError: [Errno 98] Address already in use", "nccl.port-in-use"),
    ("ImportError: libnvidia-ml.so.1: cannot open shared object file: No such file or directory", "nccl.no-gpu"),
    ("nvidia-container-cli: ldcache error: process /sbin/ldconfig failed with error code: 1", "nccl.no-gpu"),
    ("nvidia-container-cli.real: error parsing IMEX info: unsupported IMEX channel value: all", "nccl.no-gpu"),
    ("RuntimeError: HIP error: operation not supported", "nccl.cuda-unsupported"),
    (
        "RuntimeError: [gloo/gloo/transport/tcp/pair.cc:144] timed out connecting: SO_ERROR: Connection timed out, remote=[10.0.0.3]:4321",
        "nccl.connect-timeout",
    ),
    # CUDA and the driver
    ("RuntimeError: CUDA error: initialization error", "nccl.cuda-init"),
    ("torch.AcceleratorError: CUDA error: operation not supported on global/shared address space", "nccl.kernel-fault"),
    ("RuntimeError: CUDA error: operation not supported", "nccl.cuda-unsupported"),
    ("RuntimeError: CUDA error: mapping of buffer object failed", "nccl.gpu-mapping"),
    (
        "RuntimeError: CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server",
        "nccl.cuda-mps",
    ),
    ("RuntimeError: CUDA error: the launch timed out and was terminated", "nccl.cuda-failure"),
    (
        "Indexing.cu:1422: indexSelect: block: [2,0,0], thread: [64,0,0] Assertion `srcIndex < size` failed.",
        "nccl.kernel-fault",
    ),
    ("nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown", "nccl.no-gpu"),
    # requests of the program
    (
        "./all_reduce_perf: /lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by ./all_reduce_perf)",
        "nccl.library",
    ),
    # limits and files
    ("OSError: [Errno 28] No space left on device: '/scratch/step_100'", "nccl.storage"),
    ("OSError: [Errno 116] Stale file handle: '/data'", "nccl.storage"),
    (
        "node08:1:2 [0] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: Permission denied (13)",
        "nccl.shm-permission",
    ),
    # launchers and schedulers
    ("bash: line 1: orted: command not found", "nccl.launch-failed"),
    (
        "socketPollConnect: connect to 10.0.0.1<41234> returned Connection refused, exceeded error retry count after 35 attempts",
        "nccl.connect-refused",
    ),
    ("srun: error: Unable to create step for job 77: More processors requested than permitted", "nccl.launch-failed"),
    # the kernel
    ("[81.1] mlx5_core 0000:18:00.0: mlx5_health_try_recover:336: health recovery flow aborted", "nccl.ib-card"),
    # names of CUDA's errors, as JAX, TensorFlow and others print them
    ("[TensorRT-LLM][ERROR] CUDA runtime error in cudaSetDevice(8): invalid device ordinal (a.cpp:3)", "nccl.no-gpu"),
    ("Couldn't init CUDA: Error (gpu_burn-drv.cpp:304): system not yet initialized", "nccl.fabric-manager"),
    ("CUDA failure 3: initialization error ; GPU=0 ; hostname=x", "nccl.cuda-init"),
    # messages of kubelets, schedulers and shells before a program runs
    ('exec: "torchrun": executable file not found in $PATH: unknown', "nccl.launch-failed"),
    ("0/8 nodes are available: 8 Insufficient nvidia.com/gpu.", "nccl.launch-failed"),
    ("sbatch: error: Invalid account or account/partition combination specified", "nccl.launch-failed"),
    # engines: vLLM, SGLang, TensorRT-LLM, Ray
    ("No CUDA GPUs are available", "nccl.no-gpu"),
    # libfabric, and the daemon of Google's plugins
    (
        "libfabric:1234:1701636928::cxi:fabric:cxip_nic_get_rgroup_vni():253<warn> : Failed to find valid default rgroup and vni for cxi0",
        "nccl.cxi-service",
    ),
]


@table("said, fault", SAID)
def test_what_ended_a_rank_is_named(said, fault):
    """The faults are nccl.cuda-mps, nccl.storage, nccl.node-lost, nccl.pcie-error, nccl.wrong-store and others."""
    line = died(said) if "Error: " in said and not said.startswith(("[", "pynvml")) else said + "\n"
    assert first(line + TORCHRUN) == fault


def test_a_time_limit_is_reported_as_one_and_a_watchdog_before_it_as_a_hang():
    limit = "slurmstepd: error: *** STEP 4711.0 ON gpu01 CANCELLED AT 2026-11-02T10:11:12 DUE TO TIME LIMIT ***\n"
    ended, waited = judged(limit)["faults"][0], judged(WATCHDOG + limit)["faults"][0]
    assert (ended["fault"], ended["failure"], "sbatch --time" in ended["remedy"]) == ("nccl.hang", "unknown", True)
    assert (waited["fault"], "sbatch" in waited["remedy"]) == ("nccl.hang", False)
    assert "operation 7" in waited["cause"]


@pytest.mark.parametrize(("said", "fault"), SAID)
def test_what_was_said_before_a_run_that_came_to_its_end_condemns_no_one(said, fault):
    """Only an event that ends a process counts: a CUDA error, a signal, a launcher's final message."""
    before = judged(said + "\n" + HEALTHY)
    ended = ("CUDA error: ", "Assertion `", "exited on signal", "Out Of Memory")
    assert before["verdict"] != "no-go" or any(word in said for word in ended), fault


@table(
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
        "[81.1] nfs: server 10.0.0.9 OK",
        "8 nodes are available for the job",
        "bash: line 1: nvtop: command not found",
        "bash: line 1: /etc/ssh/sshd_config: No such file or directory",
        "PermissionError: [Errno 13] Permission denied: '/data/shm/lock'",
        "subprocess.CalledProcessError: Command 'ssh-keygen -A' returned non-zero exit status 1.",
        "KeyError: 'MODEL_RANK'",
        "the address is free, and nothing of ours was bound to it before",
        "nvidia-container-cli: info: 8 devices",
        "Created a completion queue (CQ) of 4096 entries",
        "INFO custom_all_reduce.py:137 Custom allreduce is disabled because your platform lacks GPU P2P capability",
        "libfabric:9:1::efa:core:rxr_info_to_rxr():506<warn> FI_HMEM capability requires RDMA",
    ],
)
def test_what_is_like_it_names_no_cause(said):
    """A retry, a launcher's own clean-up, another file or a corrected error is not a cause."""
    assert first(died(said) + TORCHRUN) == "nccl.crash"


@pytest.mark.parametrize("peers", [REFUSED, STALE])
@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "nccl.cuda-memory"),
        ("OSError: [Errno 28] No space left on device: '/scratch/step_100'", "nccl.storage"),
        ("RuntimeError: CUDA error: device-side assert triggered", "nccl.kernel-fault"),
        ("RuntimeError: world_size (8) is not divisible by 3", "nccl.program-failed"),
    ],
)
def test_the_rank_that_died_comes_before_what_its_peers_saw(said, fault, peers):
    assert first(HEALTHY + died(said) + peers + TORCHRUN) == fault
    assert first(HEALTHY + peers + TORCHRUN) in ("nccl.connect-refused", "nccl.ib-retry")


def test_the_rank_that_died_comes_first_also_where_its_peers_were_quicker():
    late = HEALTHY + REFUSED + died("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB") + TORCHRUN
    assert first(late) == "nccl.cuda-memory"


def test_an_address_of_an_earlier_attempt_is_a_cause_where_torchrun_started_the_ranks_again():
    """pytorch/pytorch#135712: the store shared by torchrun's agents may hold the NCCL id of the previous attempt."""
    again = "[default] Worker group FAILED. 2/2 attempts left; will restart worker group\n"
    first_of_all, *others = judged(again + REFUSED + TORCHRUN)["causes"]
    assert first_of_all["fault"] == "nccl.connect-refused"
    assert "the address of an earlier attempt" in others[0]["cause"]
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in others[0]["cause"]
    without = judged(again.replace("will restart", "stopping") + REFUSED + TORCHRUN)["causes"]
    assert "peer's process ended first" in without[1]["cause"]
    assert judged(again + HEALTHY)["verdict"] != "no-go"


def test_an_engine_that_waited_without_result_hangs():
    """vLLM's executor and SGLang's watchdog give up on a worker, like torch's watchdog."""
    for said in ("TimeoutError: RPC call to execute_model timed out.", "Watchdog timeout (self.watchdog_timeout=300)"):
        job = judged(HEALTHY + said + "\n" + TORCHRUN)
        assert (job["verdict"], job["diagnosis"]) == ("no-go", "hang")


@pytest.mark.parametrize(("number", "first_word"), [(1, "GPU memory access over PCIe"), (900, "a rank is late")])
def test_a_host_that_waits_in_its_first_operation_over_pcie(number, first_word):
    """ACS or the IOMMU breaks P2P at the very first operation; a later hang is a late rank. The network is not at
    fault."""
    one = sequential(Maker(hosts=("gpu-node-0",)).processes()).decode()
    causes = judged(one + WATCHDOG.replace("SeqNum=7", f"SeqNum={number}"))["causes"]
    assert causes[0]["cause"].startswith(first_word)
    assert not [cause for cause in causes if "network" in cause["cause"]]
    assert [cause for cause in judged(HEALTHY + WATCHDOG)["causes"] if "network" in cause["cause"]]


def test_the_very_first_collective_of_a_log_without_nccls_lines():
    """Either the ranks never connected, or one is late in a later step."""
    first, later = (judged(WATCHDOG.replace("SeqNum=7", f"SeqNum={number}"))["causes"] for number in (1, 7))
    assert first[0]["cause"].startswith("the first collective")
    assert later[0]["cause"].startswith("a rank is late")
    assert not [cause for cause in later if "first collective" in cause["cause"]]
