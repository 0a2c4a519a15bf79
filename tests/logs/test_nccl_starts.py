"""Failures before the program starts: Slurm's errors, container runtimes, modules, library versions, and ends by
signal."""

from __future__ import annotations

import pytest

from seatrial.faults.catalogue import formed
from seatrial.faults.variants import last_words
from tests.logs.test_nccl_causes import HEALTHY, judged
from tests.logs.test_nccl_other_software import TORCHRUN, died, first
from tests.table import table

SAID = [
    # Slurm, by its table of errors (slurm_errno.c, auth/munge)
    (
        'srun: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory',
        "nccl.launch-failed",
        "munged does not run",
    ),
    (
        "srun: error: Task launch for 3.0 failed on node gpu-1: Job credential expired",
        "nccl.launch-failed",
        "clocks of the nodes differ",
    ),
    ("srun: error: Invalid job credential from 5@10.0.0.1", "nccl.launch-failed", "another key"),
    ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", "nccl.launch-failed", "slurmctld"),
    ("sbatch: error: Invalid generic resource (gres) specification", "nccl.launch-failed", "does not exist"),
    # the container runtime: the last message of the chain, and its errno
    (
        "slurmstepd: error: pyxis:     enroot-mount: failed to mount: /home/u/data at /tmp/enroot-data/data: Permission denied",
        "nccl.container",
        "root_squash",
    ),
    (
        "error: pyxis:     mkdir: cannot create directory '/scratch/enroot/data': No space left on device",
        "nccl.container",
        "disk is full",
    ),
    ("FATAL:   container creation failed: mount /x->/x error: Stale file handle", "nccl.container", "went stale"),
    (
        "nvidia-container-cli: container error: file lookup failed: /proc/4/root/etc/debian_version: permission denied",
        "nccl.no-gpu",
        "(container error: file lookup failed",
    ),
    (
        "nvidia-container-cli: initialization error: change root failed: no such file or directory: unknown.",
        "nccl.no-gpu",
        "/run/nvidia/driver",
    ),
    (
        "nvidia-container-cli: initialization error: driver rpc error: timed out: unknown",
        "nccl.no-gpu",
        "nvidia-persistenced",
    ),
    (
        "nvidia-container-cli: detection error: nvml error: unknown error: unknown",
        "nccl.driver-state",
        "(detection error: nvml error: unknown error)",
    ),
    # kernel modules, versions of libraries
    (
        "modprobe: FATAL: Module nvidia-uvm not found in directory /lib/modules/6.8.0",
        "nccl.driver-state",
        "the module nvidia-uvm",
    ),
    (
        "ImportError: /lib64/libc.so.6: version `GLIBC_2.32' not found (required by /x/y/flash_attn_2_cuda.so)",
        "nccl.library",
        "flash_attn_2_cuda.so is built for a newer C library",
    ),
    ("ImportError: libstdc++.so.6: version `GLIBCXX_3.4.29' not found", "nccl.library", "conda's against the system's"),
    # MPI's components, oneCCL, UCX
    ("Framework: psec", "nccl.mpi", "munge"),
    ("[n1:5] Framework: pml", "nccl.mpi", "of its framework pml"),
    (
        "2026:02:17-17:20:51:( 9) |CCL_ERROR| internal_kvs.cpp:289 fill_local_host_ip: can't find interface to get host IP",
        "nccl.bootstrap-interface",
        "no interface but loopback",
    ),
    (
        "ib_device.c:1171 UCX  ERROR   ibv_create_ah(dlid=49152 sl=0 port=1 dgid=::ffff:10.0.0.40 sgid_index=3) for RC QP "
        "connect on mlx5_bond_0 failed: Connection timed out",
        "nccl.ib-unreachable",
        "no route to ::ffff:10.0.0.40: that address is in no subnet that mlx5_bond_0",
    ),
    (
        "  what():  a work item failed: status 12 (Ib failure: Cannot allocate memory)",
        "nccl.ib-memlock",
        "locked-memory",
    ),
    # the sender of a signal, by signal(7) and the status of wait(2)
    ("W1122 a.py:719] Received 1 death signal, shutting down workers", "nccl.ended-outside", "nohup does not suffice"),
    ("WARNING: Sending process 5 closing signal SIGHUP", "nccl.ended-outside", "SIGHUP"),
    ("WARNING: Sending process 5 closing signal SIGINT", "nccl.ended-outside", "Ctrl-C"),
    ("SignalException: Process 7 got signal: 1", "nccl.ended-outside", "SIGHUP"),
    ("[12-16 14:27:10] Exit code: -9", "nccl.process-killed", "memory ran out"),
    ("Child process unexpectedly failed with exitcode=9. pid=211", "nccl.process-killed", "memory ran out"),
    # the driver's library and the toolkit, for code compiled at the start
    ("AssertionError: libcuda.so cannot found!", "nccl.cuda-symbols", "finds no libcuda.so to link with"),
    ("/usr/bin/ld: cannot find -lcuda: No such file or directory", "nccl.cuda-symbols", "finds no libcuda.so"),
    (
        "torch._dynamo.exc.BackendCompilerFailed: _compile_fn raised RuntimeError: `ptxas` was searched in PATH",
        "nccl.library",
        "TRITON_PTXAS_PATH",
    ),
    # Open MPI's own connections
    (
        "[n4][[9281,1],1][btl_tcp_endpoint.c:796:mca_btl_tcp_endpoint_complete_connect] connect() to 192.168.118.0 failed: "
        "No route to host (113)",
        "nccl.mpi",
        "(connect() to 192.168.118.0 failed: No route to host (113))",
    ),
    (
        "[1d26:10032] [[43400,0],2] tcp_peer_send_blocking: send() to socket 9 failed: Broken pipe (32)",
        "nccl.mpi",
        "oob_tcp_if_include",
    ),
    ("RuntimeError: storage has wrong size: expected -4669 got 512", "nccl.file-broken", "was cut"),
    (
        "ValueError: The hostname of the rendezvous endpoint '127.0.0.1':10764'",
        "nccl.rendezvous",
        "is invalid (127.0.0.1':10764)",
    ),
    # resources that a scheduler lacks
    (
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: 0/1 nodes are available: 1 No preemption victims",
        "nccl.launch-failed",
        "(1 Insufficient nvidia.com/gpu)",
    ),
    ("0/0 tasks in gang unschedulable: pod group is not ready, 1 minAvailable", "nccl.launch-failed", "quota"),
    ("couldn't assign flavors to pod set main: insufficient unused quota", "nccl.launch-failed", "quota"),
    (
        "(autoscaler +13s) Error: No available node types can fulfill resource request {'node:10.6.1.2': 0.001, 'GPU': 1.0}.",
        "nccl.no-gpu",
        "no node of the address 10.6.1.2",
    ),
    (
        "ValueError: The number of required GPUs exceeds the total number of available GPUs in the cluster.",
        "nccl.no-gpu",
        "more ranks than the host or the cluster has GPUs",
    ),
    (
        "ValueError: Ray does not allocate any GPUs on the driver node. Consider adjusting the Ray placement group",
        "nccl.no-gpu",
        "Ray's placement",
    ),
    (
        "RuntimeError: please ensure that world_size (2) is less than than max local gpu count (1)",
        "nccl.no-gpu",
        "more ranks than the host",
    ),
    (
        "/n/nvshmem/include/nvshmemx_api.h:63: non-zero status: 7: Connection timed out, exiting...",
        "nccl.nvshmem",
        "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME",
    ),
    # sizes and numbers of the program
    (
        "AssertionError: num_layers should be divisible by pipeline_model_parallel_size",
        "nccl.program-failed",
        "said AssertionError: num_layers should be divisible by pipeline_model_parallel_size",
    ),
    ("AssertionError: Rank 3: found NaN in local grad norm in backwards pass", "nccl.not-a-number", "learning rate"),
    ("FloatingPointError: Minimum loss scale reached (0.0001).", "nccl.not-a-number", "learning rate"),
]


@table("said, fault, words", SAID)
def test_what_kept_a_job_from_starting_or_ended_it_is_named(said, fault, words):
    line = died(said) if said.partition(":")[0].endswith(("Error", "Exception")) else said + "\n"
    for log in (line, line + TORCHRUN):
        (cause, *_) = judged(log)["causes"]
        assert (cause["fault"], words in cause["cause"]) == (fault, True), cause["cause"]


@pytest.mark.parametrize("said", [said for said, *_ in SAID])
def test_said_before_a_run_that_came_to_its_end_it_condemns_no_one(said):
    assert judged(said + "\n" + HEALTHY)["verdict"] != "no-go"


@table(
    "said",
    [
        "munge: munged is running",
        "RuntimeError: enroot-mount: mounted /home/u/data",
        "RuntimeError: the module nvidia-uvm is loaded",
        "ValueError: 9 is divisible by 3",
        "RuntimeError: a multiple of two",
        "RuntimeError: the framework: pml was chosen",
        "RuntimeError: version `GLIBC_2.32' is here",
        "RuntimeError: Exit code: -15",
        "RuntimeError: the loss is 3.2, and the grad norm 1.0",
        "RuntimeError: libcuda.so was found",
        "RuntimeError: btl_tcp_endpoint.c:796: connect() to 10.0.0.1 completed",
        "RuntimeError: the gang is schedulable",
    ],
)
def test_what_is_like_it_is_only_quoted(said):
    assert first(died(said) + TORCHRUN) == "nccl.crash"


def test_the_signal_of_a_launcher_that_cleans_up_behind_another_failure_is_no_cause():
    """torchrun terminates the other processes by SIGTERM (elastic/multiprocessing/api.py)."""
    text = died("RuntimeError: odd") + "W1122 a.py:900] Sending process 85005 closing signal SIGTERM\n" + TORCHRUN
    assert first(text) == "nccl.crash"


@pytest.mark.parametrize(
    ("below", "fault"),
    [
        ("slurmstepd: error: pyxis:     enroot-mount: failed to mount: /a at /b: Permission denied", "nccl.container"),
        ("slurmstepd: error: pyxis:   nvidia-container-cli: mount error: /x: operation not permitted", "nccl.no-gpu"),
        (
            "slurmstepd: error: pyxis:   nvidia-container-cli: detection error: nvml error: unknown error",
            "nccl.driver-state",
        ),
        ("slurmstepd: error: pyxis:     all is well", None),
    ],
)
def test_the_reason_below_a_launchers_line_comes_first(below, fault):
    """pyxis reports that the container did not start, and enroot's log after it the reason."""
    text = f"slurmstepd: error: pyxis: container start failed with error code: 1\n{below}\nsrun: error: n1: task 0: Exited with exit code 1\n"
    job = judged(text)
    assert (job["faults"][0]["fault"], job["faults"][0]["why"]) == ("nccl.launch-failed", fault)


def test_a_plugin_of_a_newer_libfabric_is_reported_and_one_that_is_not_there_is_not():
    wanted = "h:7:7 [0] NCCL INFO NET/Plugin : dlerror=/opt/libfabric.so.1: version `FABRIC_1.7' not found (required by /x/libnccl-net.so) No plugin found (libnccl-net.so), using internal implementation\n"
    (cause, *_) = judged(wanted)["causes"]
    assert "newer libfabric" in cause["cause"]
    missing = "h:7:7 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation\n"
    assert "libfabric" not in str(judged(missing)["causes"])


def test_a_module_that_was_not_built_for_the_kernel_is_named_where_gpudirect_is_missed():
    line = "modprobe: FATAL: Module nvidia-peermem not found in directory /lib/modules/6.8.0-1059-azure\n"
    assert "the module nvidia-peermem could not be loaded" in judged(line)["causes"][0]["cause"]
    assert judged(line + HEALTHY)["verdict"] != "no-go"


def test_who_had_come_to_torchs_first_barrier_is_reported_and_a_wait_that_ended_is_none():
    line = "INFO:root:Waiting in store based barrier to initialize process group for rank: 0, key: store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)\n"
    job = judged(line)
    (cause, *_) = job["causes"]
    assert (job["verdict"], cause["fault"]) == ("inconclusive", "nccl.not-all-came")
    assert "7 of 8 processes" in cause["cause"]
    assert judged(line + HEALTHY)["verdict"] == judged(HEALTHY)["verdict"]


def test_who_had_come_hides_no_exception():
    line = "INFO:root:Waiting in store based barrier to initialize process group for rank: 0, key: k:1 (world_size=8, worker_count=7, timeout=0:30:00)\n"
    assert "KeyError: 'x'" in judged(line + died("KeyError: 'x'") + TORCHRUN)["causes"][0]["cause"]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("PermissionError: [Errno 13] Permission denied: '/.cache'", "may not read or write /.cache"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/a.json'", "/data/a.json is missing"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/c/a.tmp' -> '/c/a'", "/c/a.tmp was removed"),
    ],
)
def test_a_file_is_named_by_its_errno_and_raises_no_fault(said, words):
    """The exception may have been caught; in a failed job it is quoted."""
    job = judged(died(said))
    assert (job["verdict"], job["causes"][0]["fault"]) == ("inconclusive", "nccl.file-access")
    assert words in job["causes"][0]["cause"]
    assert said in judged(died(said) + TORCHRUN)["causes"][0]["cause"]


@pytest.mark.parametrize(
    "said",
    [
        "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32",
        "TypeError: 'NoneType' object is not callable",
    ],
)
def test_what_no_line_knows_of_a_program_is_quoted_and_raises_no_fault(said):
    """The exception may have been caught; in a failed job it is quoted, without attribution."""
    assert judged(died(said))["verdict"] == "inconclusive"
    job = judged(died(said) + TORCHRUN)
    assert [fault["fault"] for fault in job["faults"]] == ["nccl.crash"]
    assert said in job["sentence"]


def test_a_peer_that_went_away_is_reported_to_have_ended_first():
    said = "RuntimeError: [gloo/transport/tcp/pair.cc:589] Read error [192.168.70.92]:25266: Connection reset by peer"
    assert "read that one's log" in judged(died(said))["causes"][0]["cause"]
    assert "that one's log" not in judged(died("KeyError: 'x'"))["causes"][0]["cause"]


def test_a_device_of_rdma_that_a_node_lacks_is_reported():
    line = 'error creating new device: "missing RDMA device spec for device 0000:c4:00.0, RDMA device \\"issm\\" not found"\n'
    assert "no issm of the NIC 0000:c4:00.0" in judged(line)["causes"][0]["cause"]


def test_a_line_that_is_quoted_as_unexplained_is_named_where_a_rule_knows_it():
    abort = (
        "h:5:6 [0] include/alloc.h:38 NCCL WARN Cuda failure 'misaligned address'\n"
        "h:5:6 [0] NCCL INFO comm 0x7fac8026db10 rank 0 nranks 4 cudaDev 0 busId 80 - Abort COMPLETE\n"
    )
    job = judged(abort)
    assert (job["verdict"], job["causes"][0]["fault"]) == ("inconclusive", "nccl.kernel-fault")


def test_of_a_cpp_exception_its_own_words_are_quoted():
    text = "terminate called after throwing an instance of 'x::Error'\n  what():  the queue is broken\n"
    assert "the queue is broken" in judged(text)["causes"][0]["cause"]
    far = text.replace("\n  what", "\n" + "x\n" * 9 + "  what")
    assert "instance of" in judged(far)["causes"][0]["cause"]


def test_the_last_words_of_a_chain_of_errors():
    assert last_words("a: error: b: c: no such file: unknown.") == "b: c: no such file"
    assert last_words("x" * 400) == "x" * 200
    assert formed("nccl.container", "enroot: failed to mount: /a: Odd")[1].endswith(
        "(enroot: failed to mount: /a: Odd)"
    )  # type: ignore[index, union-attr]
    assert formed("nccl.library", "nothing of it") is None
    assert formed("nccl.program-failed", "ValueError: {0} {x} should be divisible by 8")[1].endswith(
        "{0} {x} should be divisible by 8"
    )  # type: ignore[index]
