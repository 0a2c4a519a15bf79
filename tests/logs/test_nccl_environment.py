"""Causes reported by NCCL's environment: the machine, CUDA, torch, launchers; each with a near miss."""

from __future__ import annotations

import pytest

from tests.logs.logmaker import Maker, sequential
from tests.logs.test_nccl_causes import HEALTHY, INFO, RETRY, STARTED, A, failing, fault_reasons, judged
from tests.table import table

TRACE = f"{A}{INFO}init.cc:903 -> 1\n"
WATCHDOG = (
    "[rank1]:[E1122 10:00:00.1 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL("
    "SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600011 milliseconds before timing out.\n"
)


def cuda(said: str, place: str = "enqueue.cc:51") -> str:
    return STARTED + f"\n{A}{place} NCCL WARN Cuda failure {said}\n{TRACE}"


@table(
    "line, expected",
    [
        # graph/xml.cc, xml.h, topo.cc
        ("XML Import Channel : dev 3 not found.", ("nccl.graph-file", None)),
        (
            "NET/IB : collective mismatch error local size 32768 remote 1048576 addr 7f21 rkey 1ef seq 4d/4d",
            ("nccl.message-truncated", None),
        ),
        (
            "Could not find real path of /sys/class/pci_bus/0000:7a/../../0000:7a:00.0",
            ("nccl.topology-unreadable", None),
        ),
        ("Attribute class of node pci not found", ("nccl.topology-unreadable", None)),
        ("XML Parse error : expecting '<', got 'x'", ("nccl.topology-unreadable", None)),
        ("Could not find NET with id 0", ("nccl.topology-search", None)),
        ("Failed to find reverse path from remNode 0/5f000 nlinks 4 to node 0/cb000", ("nccl.topology-search", None)),
        ("NET/IB: read failed in ncclIbRoceGetVersionNum: Invalid argument", ("nccl.roce-version", None)),
        ("Cuda failure 711 'peer mapping resources exhausted'", ("nccl.peer-limit", None)),
        ("Cuda failure 217 'peer access is not supported between these two devices'", ("nccl.p2p-refused", None)),
        ("Error : no algorithm/protocol available", ("nccl.no-algorithm", None)),
        ("Attribute busid of node nic not found", ("nccl.topology-nic", None)),
        (
            "P2P is disabled between NVLINK connected GPUs 3 and 2. This should not be the case given their connectivity, and is "
            "probably due to a hardware issue.",
            ("nccl.nvlink-broken", None),
        ),
        ("Error : too many XML subnodes (max 128)", ("nccl.topology-too-large", None)),
        # net_ib, ibvwrap.cc
        ("NET/IB : mlx5_2:1 Got async fatal event: local catastrophic error", ("nccl.ib-card", None)),
        ("NET/IB : mlx5_2:1 Got async fatal event: port error", ("nccl.ib-link-flap", None)),
        ("NET/IB : mlx5_2:1 Got async event : local access violation work queue error", ("nccl.ib-protection", None)),
        ("NET/IB : mlx5_2:1 Got async event : port error", ("nccl.ib-link-flap", None)),
        (
            "Call to ibv_modify_qp failed with 19 No such device, on dev mlx5_3:1, curr state INIT, next state RTR",
            ("nccl.ib-netdev", None),
        ),
        ("Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_3:1", ("nccl.ib-unreachable", None)),
        ("Call to ibv_create_qp failed with error Operation not permitted", ("nccl.ib-create", None)),
        ("Call to ibv_create_qp failed with error Cannot allocate memory", ("nccl.ib-memlock", None)),
        ("Call to ibv_create_qp failed", ("nccl.ib-memlock", None)),
        ("Invalid config blocking attribute value -2147483648", ("nccl.library", None)),
        ("Call to ibv_query_gid failed with error Invalid argument errno 22", ("nccl.gid-empty", None)),
        (
            "NET/IB: Got completion from peer 10.0.0.2<4> with status=IBV_WC_LOC_LEN_ERR(1) opcode=128 len=0 vendor err 105",
            ("nccl.message-truncated", "nccl.ib-length"),
        ),
        # transport.cc, enqueue.cc, misc/socket.cc
        ("No transport found for rank 3[1b000] -> rank 4[3d000]", ("nccl.no-transport", None)),
        (
            "Error : no algorithm/protocol available for function AllReduce with datatype ncclFloat32. NCCL_ALGO was set to NVLS.",
            ("nccl.no-algorithm", None),
        ),
        ("Call to bind failed: Address already in use", ("nccl.ports-used-up", None)),
        (
            "Call to socket failed: Address family not supported by protocol",
            ("nccl.socket-address", "nccl.bootstrap-interface"),
        ),
        ("NET/OFI Unable to insert remote address into address vector for device 3. RC: -22", ("nccl.ofi-error", None)),
    ],
)
def test_warnings_of_nccl_that_name_the_machine(line, expected):
    """The faults are nccl.topology-unreadable, nccl.topology-nic, nccl.ib-card, nccl.no-transport, nccl.no-algorithm,
    nccl.ports-used-up."""
    assert fault_reasons(failing(line, 3)) == [expected]


FAILED = "nccl.cuda-failure"


@table(
    "said, place, expected",
    [
        ("500 'named symbol not found'", "enqueue.cc:51", ("nccl.cuda-arch", None)),
        ("'the provided PTX was compiled with an unsupported toolchain.'", "enqueue.cc:51", ("nccl.cuda-driver", None)),
        ("3 'initialization error'", "init.cc:402", (FAILED, "nccl.cuda-init")),
        ("205 'mapping of buffer object failed'", "allocator.cc:80", (FAILED, "nccl.gpu-mapping")),
        ("101 'invalid device ordinal'", "transport/p2p.cc:275", (FAILED, "nccl.p2p-refused")),
        ("101 'invalid device ordinal'", "init.cc:402", (FAILED, "nccl.no-gpu")),
        ("400 'invalid resource handle'", "init.cc:402", (FAILED, None)),
        ("1 'invalid argument'", "transport/shm.cc:590", (FAILED, "nccl.cumem-host")),
        ("1 'invalid argument'", "transport/p2p.cc:275", (FAILED, None)),
        ("900 'operation not permitted when stream is capturing'", "enqueue.cc:51", ("nccl.invalid-usage", None)),
        ("999 'unknown error'", "enqueue.cc:51", (FAILED, "nccl.driver-state")),
        ("801 'operation not supported'", "init.cc:402", (FAILED, "nccl.cuda-unsupported")),
        ("800 'operation not permitted'", "init.cc:402", (FAILED, "nccl.cuda-unsupported")),
    ],
)
def test_what_cuda_says_of_a_call_and_what_the_call_was_for(said, place, expected):
    """cudaGetErrorString and the source position in NCCL decide between nccl.cuda-init, nccl.gpu-mapping and
    nccl.cumem-host."""
    assert fault_reasons(cuda(said, place))[0] == expected


def test_peers_memory_that_is_refused_in_shared_memory_is_another_matter():
    """The fault is nccl.cumem-host."""
    said = "217 'peer access is not supported between these two devices'"
    assert fault_reasons(cuda(said, "transport/shm.cc:590"))[0] == ("nccl.p2p-refused", "nccl.cumem-host")
    assert fault_reasons(cuda(said, "transport/p2p.cc:275"))[0] == ("nccl.p2p-refused", None)


def test_the_text_behind_last_error_shows_what_the_wrapper_does_not():
    said = "torch.distributed.DistBackendError: NCCL error in: a.cpp:1, unhandled cuda error\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n%s\n"
    assert fault_reasons(said % "Cuda failure 3 'initialization error'") == [("nccl.cuda-failure", "nccl.cuda-init")]
    assert fault_reasons(said % "Cuda failure 1 'invalid argument'") == [("nccl.cuda-failure", None)]


@table(
    "line, fault",
    [
        ("ImportError: /usr/lib/libtorch_cuda.so: undefined symbol: ncclGroupSimulateEnd", "nccl.library"),
        (
            "./all_reduce_perf: error while loading shared libraries: libnccl.so.2: cannot open shared object file",
            "nccl.library",
        ),
        ("RuntimeError: Distributed package doesn't have NCCL built in", "nccl.library"),
        ("ImportError: /usr/lib/libfoo.so: undefined symbol: foo_bar", None),
        (
            "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use spawn",
            "nccl.cuda-init",
        ),
        ("RuntimeError: CUDA error: invalid device ordinal", "nccl.no-gpu"),
        ("ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!", "nccl.no-gpu"),
        ("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable", "nccl.gpu-busy"),
        ("node7: Test CUDA failure common.cu:941 'system not yet initialized'", "nccl.fabric-manager"),
        ("ValueError: host not found: Name or service not known", "nccl.name-resolution"),
        (
            "RuntimeError: [2] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by "
            "key '0', but store->get('0') got error: Timeout waiting for key: default_pg/0/0 after 1800000 ms",
            "nccl.no-unique-id",
        ),
        (
            "RuntimeError: [2] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by "
            "key '0', but store->get('0') got error: Connection reset by peer",
            "nccl.store-gone",
        ),
        ("RuntimeError: [Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 60000 ms", "nccl.hang-late"),
        (
            "torch.distributed.elastic.multiprocessing.api.SignalException: Process 81 got signal: 15",
            "nccl.ended-outside",
        ),
        (
            "E1122 10:00:00.1 71 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 1 (pid: 5)",
            "nccl.process-killed",
        ),
        (
            "E1122 10:00:00.1 71 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 1 (pid: 5)",
            None,
        ),
        ("RuntimeError: DataLoader worker (pid 99) is killed by signal: Killed.", "nccl.oom-killed"),
        ("RuntimeError: DataLoader worker (pid 99) is killed by signal: Bus error.", "nccl.bus-error"),
        ("XlaRuntimeError: INTERNAL: CUDA_ERROR_OUT_OF_MEMORY", None),
        ("Unable to determine the device handle for GPU0000:3b:00.0: Unknown Error", "nccl.gpu-lost"),
        (
            "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: "
            "store_based_barrier_key:1 (world_size=8, worker_count=1, timeout=0:30:00)",
            "nccl.rendezvous",
        ),
        (
            "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set",
            "nccl.no-launcher",
        ),
        (
            "ValueError: Free memory on device (20.1/79.1 GiB) on startup is less than desired GPU memory utilization",
            "nccl.cuda-memory",
        ),
        (
            "Abort(1090575) on node 3 (rank 3 in comm 0): Fatal error in PMPI_Init_thread: Other MPI error, error stack:",
            "nccl.mpi",
        ),
        ("Abort(1) on node 3 (rank 3 in comm 0): Fatal error in PMPI_Wait: Other MPI error, error stack:", None),
        ("Permission denied (publickey,password).", "nccl.launch-failed"),
        (
            "ncclGetUniqueId(&id) failed: Unable to load NCCL library. Multi-GPU collectives will not work.",
            "nccl.library",
        ),
        ("mlx5: node7: got completion with error:", "nccl.ib-error"),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=4.0. Some of the step tasks have been OOM Killed.",
            "nccl.oom-killed",
        ),
    ],
)
def test_what_the_program_and_its_launcher_say(line, fault):
    """nccl.library, nccl.name-resolution, nccl.no-unique-id, nccl.process-killed, nccl.bus-error and the like."""
    fault_ids = [name for name, _ in fault_reasons(line + "\n") if name not in ("nccl.no-evidence", "nccl.crash")]
    assert fault_ids == ([fault] if fault else [])


@pytest.mark.parametrize(("came", "why"), [(4, "nccl.too-many-processes"), (1, None)])
@pytest.mark.parametrize("word", ["worker_count", "num_workers_joined"])
def test_how_many_processes_came_to_the_rendezvous(came, why, word):
    """nccl.too-many-processes: torch's store counts the processes."""
    said = f"RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=2, {word}={came}, timeout=0:30:00)\n"
    job = judged(said)
    assert [(fault["fault"], fault["why"]) for fault in job["faults"]] == [("nccl.rendezvous", why)]
    assert f"WORLD_SIZE is 2, and {came} joined" in job["sentence"]


def test_loopback_between_hosts_is_no_way():
    """nccl.bootstrap-unroutable: NCCL_SOCKET_IFNAME=lo, or an exclusion that keeps it."""
    refused = (
        STARTED.replace("eth0:", "lo:") + f"\n{A}x.cc:1 NCCL WARN Call to connect failed : Connection refused\n{TRACE}"
    )
    assert fault_reasons(refused)[0] == ("nccl.connect-refused", "nccl.bootstrap-unroutable")
    assert fault_reasons(refused.replace("lo:", "eth0:"))[0] == ("nccl.connect-refused", None)


@pytest.mark.parametrize(
    ("peer", "said", "why"),
    [
        ("172.17.0.2", "Software caused connection abort", "nccl.bootstrap-unroutable"),
        ("172.17.0.3", "No route to host", "nccl.bootstrap-unroutable"),
        ("172.17.16.64", "No route to host", None),  # a cloud's network
        ("172.17.0.2", "Connection refused", None),  # the address is reachable and responds
    ],
)
def test_an_address_of_dockers_own_bridge_is_reached_by_no_other_machine(peer, said, why):
    """nccl.bootstrap-unroutable is raised for the message of misc/socket.cc (socketStartConnect)."""
    line = f"\n{A}misc/socket.cc:480 NCCL WARN socketStartConnect: Connect to {peer}<38847> failed : {said}\n{TRACE}"
    assert fault_reasons(STARTED + line)[0][1] == why


def test_the_first_cause_is_what_the_line_says_beyond_its_kind():
    """nccl.ofi-error follows aws-ofi-nccl (nccl_ofi_rdma.cpp) and Amazon's EFA guide on security groups."""
    cut = judged(
        "ncclInternalError: Internal check failed.\nLast error:\nNET/OFI Unable to insert remote address into address vector for device 1.\n"
    )
    assert "security group" in cut["causes"][0]["cause"]
    other = judged(STARTED + f"\n{A}NCCL WARN NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument\n")
    assert "security group" not in other["causes"][0]["cause"]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("Duplicate GPU detected : rank 9 and rank 1 both on CUDA device 34000\n", "nccl.duplicate-gpu"),
        ("RuntimeError: Address already in use\n", "nccl.port-in-use"),
    ],
)
def test_what_answers_for_itself_needs_no_head(line, fault):
    assert judged(line)["causes"][0]["fault"] == fault


def test_a_provider_of_another_kernel_is_why_there_is_no_rdma():
    """nccl.verbs-provider is raised for the message of rdma-core, libibverbs/init.c."""
    said = "libibverbs: Warning: Driver bnxt_re does not support the kernel ABI of 6 (supports 1 to 1) for device /sys/class/infiniband/bnxt_re0\n"
    sockets = f"{A}{INFO}NET/IB : No device found.\n{A}{INFO}Using network Socket\n"
    assert judged(said + sockets)["causes"][0]["fault"] == "nccl.verbs-provider"
    assert judged(sockets)["causes"][0]["fault"] != "nccl.verbs-provider"


def test_a_port_of_something_else_that_is_taken_is_nothing_to_nccl():
    """Another program's port in use is not nccl.port-in-use."""
    other = judged("OSError: [Errno 98] Address already in use: ('0.0.0.0', 6006)\n" + HEALTHY)
    assert "nccl.port-in-use" not in [cause["fault"] for cause in other["causes"]]


def test_late_ranks_of_a_barrier_are_named():
    job = judged("RuntimeError: [Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 60000 ms\n")
    assert "ranks 2, 3 did not reach" in job["sentence"]


GAI = "[W1008 23:40:22.7 socket.cpp:767] [c10d] The IPv6 network addresses of (head-0, 29500) cannot be retrieved (gai error: -2 - Name or service not known).\n"
STORE = '[rank1]:[W1229 22:06:38.4 ProcessGroupNCCL.cpp:1662] [PG ID 0 PG GUID 0 Rank 1] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe\n'


LOOPBACK = "[rank0]:[W427 03:10:15.6 ProcessGroupGloo.cpp:715] Warning: Unable to resolve hostname to a (local) address. Using the loopback address as fallback. Manually set the network interface to bind to with GLOO_SOCKET_IFNAME. (function operator())\n"
STALLED = "[1,0]<stderr>:One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n"


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (GAI, "nccl.name-resolution"),
        (STORE, "nccl.store-gone"),
        (LOOPBACK, "nccl.loopback-name"),
        (STALLED, "nccl.stalled-ranks"),
    ],
)
def test_what_torch_warns_of_is_a_lead_where_nothing_else_shows_and_no_fault(line, fault):
    """nccl.name-resolution, nccl.store-gone: a healthy job prints them, too."""
    alone = judged(line)
    assert (alone["verdict"], [cause["fault"] for cause in alone["causes"]]) == ("inconclusive", [fault])
    for log in (line + HEALTHY, HEALTHY + line):
        assert judged(log)["verdict"] == "go"
        assert judged(log)["faults"] == judged(HEALTHY)["faults"]


@pytest.mark.parametrize("line", [GAI, STORE])
def test_what_torch_warns_of_comes_behind_what_ended_the_job(line):
    failed = judged(line + cuda("700 'an illegal memory access was encountered'"))
    assert failed["faults"][0]["why"] == "nccl.kernel-fault"
    waited = judged(GAI + HEALTHY + WATCHDOG)
    assert [fault["fault"] for fault in waited["faults"]] == ["nccl.hang"]


def test_gloo_that_announced_its_loopback_is_distinguished_from_a_bridge():
    """The cause is nccl.loopback-name only if Gloo announced its loopback address."""
    mesh = "[rank8]:[E ProcessGroupGloo.cpp:144] Gloo connectFullMesh failed with [../third_party/gloo/pair.cc:144] no error\n"
    assert fault_reasons(LOOPBACK + mesh)[0] == ("nccl.bootstrap-unroutable", "nccl.loopback-name")
    assert fault_reasons(mesh)[0] == ("nccl.bootstrap-unroutable", None)
    refused = "RuntimeError: Gloo connectFullMesh failed: timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:4\n"
    assert fault_reasons(LOOPBACK + refused)[0][1] == "nccl.loopback-name"
    assert fault_reasons(refused)[0][1] is None


def test_nvlink_errors_of_the_kernel_come_before_what_cuda_says_and_alone_are_no_fault():
    """The fault is nccl.nvlink-error."""
    said = "kernel: NVRM: Xid (PCI:0000:66:00): 145, pid=77, RLW_CTRL Nonfatal XC0 i0 Link -1 (0x4 0x8)\n"
    assert fault_reasons(said + cuda("719 'unspecified launch failure'"))[0][0] == "nccl.nvlink-error"
    alone = judged(said + HEALTHY)
    assert (alone["verdict"], alone["diagnosis"]) == ("inconclusive", "unexplained")


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (
            "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned from "
            "status @ kernel_channel.c:2874",
            "nccl.gpu-reset",
        ),
        (
            "NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=python3, Ch 00000001 caused by previous Xid 149",
            "nccl.nvlink-error",
        ),
        ("NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=python3, Ch 00000001", None),
    ],
)
def test_what_the_driver_says_of_a_gpu_comes_before_what_cuda_says(said, fault):
    """nccl.gpu-reset, nccl.nvlink-error: Xid 45 alone means that a process was terminated."""
    named = judged("kernel: " + said + "\n" + cuda("46 'CUDA-capable device(s) is/are busy or unavailable'"))
    assert (named["causes"][0]["fault"] == fault) is (fault is not None)
    assert fault is not None or named["causes"][0]["fault"] == "nccl.gpu-busy"


def test_a_size_that_was_never_received_is_no_lack_of_memory():
    """A program allocates by a number that a collective did not deliver."""
    real = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    assert [
        fault for fault, _ in fault_reasons(HEALTHY + WATCHDOG + real.replace("2.00 GiB", "more than 1EB memory"))
    ] == ["nccl.hang"]
    assert fault_reasons(HEALTHY + real + WATCHDOG)[0][0] == "nccl.cuda-memory"


def test_a_killed_process_comes_before_what_its_peers_say_and_behind_a_cause_of_its_own():
    """nccl.process-killed: the launcher reports it last."""
    killed = "E1122 10:00:00.1 71 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 1 (pid: 5)\n"
    peers = HEALTHY + f"\n{A}x.cc:1 NCCL WARN {RETRY}\n{A}{INFO}transport/net.cc:1 -> 6\n"
    assert fault_reasons(peers)[0][0] == "nccl.ib-retry"
    assert fault_reasons(peers + killed)[0][0] == "nccl.process-killed"
    assert (
        fault_reasons(failing("Call to posix_fallocate failed : No space left on device") + killed)[0][0]
        == "nccl.shm-full"
    )


def test_a_port_that_was_taken_first_and_then_another_found_is_overcome():
    taken = "[W1122 10:00:00.1 socket.cpp:401] [c10d] The server socket has failed to listen on [::]:29500 (errno: 98 - Address already in use).\n"
    assert fault_reasons(taken)[0][0] == "nccl.port-in-use"
    assert "nccl.port-in-use" not in {fault for fault, _ in fault_reasons(taken + HEALTHY)}


def test_a_rank_that_tries_again_is_a_lead_until_it_is_through():
    """socketPollConnect (misc/socket.cc) reports each retry."""
    tries = (
        f"{A}{INFO}socketPollConnect: connect returned No route to host, retrying (%d/34) after sleep for 200 msec\n"
    )
    waits = judged(f"{A}{INFO}Bootstrap : Using eth0:10.0.0.1<0>\n" + tries % 2 + tries % 34)
    assert (waits["verdict"], [cause["fault"] for cause in waits["causes"]]) == ("inconclusive", ["nccl.no-route"])
    assert judged(tries % 2 + HEALTHY)["verdict"] == "go"


def test_the_plugins_own_lines_without_a_head_are_a_lead():
    said = "NET/OFI No eligible providers were found\nNET/OFI aws-ofi-nccl initialization failed\n"
    assert judged(said)["causes"][0]["fault"] == "nccl.ofi-no-provider"
    assert judged("NET/OFI Using transport protocol RDMA (platform set)\n")["causes"] == []


def test_a_benchmark_that_fails_within_its_row_says_why():
    rows = (
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
        "           8             2     float     sumnode-7: Test CUDA failure common.cu:253 'no kernel image is available for execution on the device'\n"
    )
    assert fault_reasons(rows)[0][0] == "nccl.cuda-arch"
    assert "nccl.cuda-arch" not in {
        fault for fault, _ in fault_reasons(rows.replace("node-7: Test CUDA failure common.cu:253", ""))
    }


def test_which_interface_was_named_decides_what_comes_first():
    """The fault is nccl.socket-address."""
    said = "ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)"
    named = failing(said, 3).replace(
        f"{A}{INFO}", f"{A}{INFO}NCCL_SOCKET_IFNAME set by environment to eth2\n{A}{INFO}", 1
    )
    assert judged(named)["causes"][0]["cause"].startswith("NCCL_SOCKET_IFNAME matches no interface")
    assert judged(failing(said, 3))["causes"][0]["cause"].startswith("ranks do not post")


def test_one_host_of_a_healthy_pair_keeps_its_verdict():
    """A go that the log supports is kept."""
    log = sequential(Maker().processes()).decode()
    for line in (
        "Driver/library versions: NVML 550.54",
        "libcudart.so.12 => /usr/local/cuda/lib64/libcudart.so.12",
        "NVML initialised",
    ):
        assert judged(line + "\n" + log)["verdict"] == "go", line


@pytest.mark.parametrize(
    "line",
    [
        "Attribute busid of node nic not found",
        "XML Parse error : expecting '<', got 'x'",
        "XML Import Channel : dev 3 not found.",
        "Could not find real path of /sys/class/pci_bus/0000:7a/../../0000:7a:00.0",
        "Call to ibv_query_gid failed with error Invalid argument errno 22",
        "Call to bind failed: Address already in use",
        "Call to socket failed: Address family not supported by protocol",
    ],
)
def test_a_warning_that_names_a_cause_keeps_a_job_with_a_good_end_from_go(line):
    """nccl.unexplained: the job completed, but the log does not show that NCCL's warning was overcome."""
    job = judged(HEALTHY + f"{A}misc/x.cc:10 NCCL WARN {line}\n")
    assert (job["verdict"], [fault["fault"] for fault in job["faults"]]) == ("inconclusive", ["nccl.unexplained"])
    assert judged(HEALTHY)["verdict"] == "go"


@pytest.mark.parametrize(
    "event", ["fatal event: local catastrophic error", "event : local access violation work queue error"]
)
def test_an_event_of_a_card_in_an_information_keeps_from_go(event):
    """nccl.unexplained: NCCL has also printed a card's events as information."""
    assert judged(HEALTHY + f"{A}{INFO}NET/IB : mlx5_2:1 Got async {event}\n")["verdict"] == "inconclusive"


NO_P2P = (
    "P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case given their connectivity, and is "
    "probably due to a hardware issue.\n"
)


@pytest.mark.parametrize("level", [INFO, "graph/paths.cc:336 NCCL WARN "])
def test_a_broken_nvlink_that_a_job_went_around_is_no_go(level):
    """nccl.p2p-off where the job completed (NCCL_IGNORE_DISABLED_P2P), nccl.nvlink-broken where it did not."""
    job = judged(HEALTHY + A + level + NO_P2P)
    assert (job["verdict"], [fault["fault"] for fault in job["faults"]]) == ("no-go", ["nccl.p2p-off"])
    assert fault_reasons(failing(NO_P2P.strip(), 3)) == [("nccl.nvlink-broken", None)]


DETECTED = "[rank1]:[E1122 10:00:00.1 ProcessGroupNCCL.cpp:683] [PG ID 0 PG GUID 0 Rank 1] failure detected by watchdog at work sequence id: 7 PG status: last enqueued work: 9, last completed work: 6\n"


@pytest.mark.parametrize("before", ["RuntimeError: Address already in use\n", GAI], ids=["port", "name"])
def test_ranks_that_waited_in_a_collective_had_found_each_other(before):
    """nccl.port-in-use, nccl.name-resolution: a collective had begun, so the earlier problem was overcome.

    A group failure reported by its watchdog, without a waiting rank, may mean that nothing started.
    """
    for log in (before + WATCHDOG, WATCHDOG + before, before + DETECTED + WATCHDOG):
        assert {cause["fault"] for cause in judged(log)["causes"]} == {"nccl.hang"}
    fault = "nccl.name-resolution" if before == GAI else "nccl.port-in-use"
    assert fault in {cause["fault"] for cause in judged(before + DETECTED)["causes"]}


@pytest.mark.parametrize("line", [GAI, STORE, LOOPBACK, STALLED])
def test_what_torch_warns_of_is_no_trouble_of_a_log_that_was_cut(line):
    """Only the truncation prevents the proof; the warning is neither listed as unexplained nor shown instead."""
    cut = "".join(each for each in HEALTHY.splitlines(keepends=True) if "[receive]" not in each)
    alone = judged(cut)
    assert (alone["verdict"], alone["diagnosis"]) == ("inconclusive", "truncated")
    for log in (line + cut, cut + line):
        assert (judged(log)["diagnosis"], judged(log)["faults"]) == ("truncated", alone["faults"])
