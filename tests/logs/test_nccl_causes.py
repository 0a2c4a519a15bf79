"""Causes in a single line, each with a near miss that differs in the decisive part."""

from __future__ import annotations

import re
from itertools import product

import pytest

from seatrial.faults.catalogue import fault_catalogue
from seatrial.logs import conclude, read
from seatrial.logs.bandwidth.judgement import SIGNS
from seatrial.logs.diagnosis.conclusion import call_slow
from seatrial.logs.diagnosis.ranking import CIRCUMSTANCES
from tests.logs.logmaker import Maker, sequential, table_of
from tests.table import table

A = "gpu-node-0:1000:1000 [0] "
INFO, WARN = "NCCL INFO ", "misc/x.cc:10 NCCL WARN "
STARTED = sequential(Maker(stop="init").processes()).decode()
SOCKETS = sequential(Maker(net="Socket").processes()).decode()
HEALTHY = sequential(Maker().processes()).decode()
RETRY = "NET/IB: Got completion from peer 10.0.0.2<4> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=0 len=0 vendor err 129 (Recv)"


def judged(text: str):
    (job,) = conclude(read([("log", [text.encode()])]))
    return job


def fault_reasons(text: str):
    return [(fault["fault"], fault["why"]) for fault in judged(text)["faults"]]


def failing(text: str, code: int = 6) -> str:
    return STARTED + f"\n{A}{WARN}{text}\n{A}{INFO}init.cc:903 -> {code}\n"


@table(
    "ends, why",
    [
        ("localGid ::ffff:10.99.92.59 remoteGids::ffff:10.99.91.63 hca mlx5_1", "nccl.gid-subnets"),
        ("localGid ::ffff:10.99.91.59 remoteGids::ffff:10.99.91.63 hca mlx5_1", None),
        ("localGid ::ffff:10.99.91.5 remoteGids::ffff:10.99.91.205 hca mlx5_1", None),  # one /24 is one rail
        ("localGid 2001:db8:1::5 remoteGids2001:db8:2::5 hca mlx5_1", "nccl.gid-subnets"),
        ("localGid 2001:db8:1::5 remoteGids2001:db8:1::6 hca mlx5_1", None),
        (
            "localGid fe80::4ebb:47ff:fe2e:5fa6 remoteGids fe80::32c5:99ff:febe:6b46 hca roceP2p1s0f0",
            "nccl.gid-link-local",
        ),
        ("localGid ::ffff:169.254.3.1 remoteGids::ffff:169.254.3.2 hca rdma0", "nccl.gid-link-local"),
        ("", None),  # InfiniBand prints none
        ("localGid ::ffff:999.1.1.1 remoteGids:: hca x", None),
        ("localGid ::::: remoteGids::ffff: hca x", None),
    ],
)
def test_the_ends_of_a_failed_connection(ends, why):
    """The faults are nccl.gid-subnets and nccl.gid-link-local."""
    job = judged(failing(f"{RETRY} {ends}"))
    assert [(fault["fault"], fault["why"]) for fault in job["faults"]] == [("nccl.ib-retry", why)]
    if why:
        assert ends.split()[1].removeprefix("::ffff:") in job["faults"][0]["cause"]


def test_the_ends_of_a_queue_pair_that_cannot_be_changed():
    said = "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state RTR, local GID index 3, local GID ::ffff:10.1.1.2, remote GID ::ffff:10.1.2.3"
    assert fault_reasons(failing(said, 2)) == [("nccl.ib-unreachable", "nccl.gid-subnets")]
    assert fault_reasons(failing(said.replace("10.1.2.3", "10.1.1.3"), 2)) == [("nccl.ib-unreachable", None)]


def test_a_line_that_was_wrapped_is_read_whole_and_a_stranger_far_away_is_not_joined():
    wrapped = f"{RETRY}\n  localGid fe80::1:2  remoteGids fe80::3:4  hca roceP2p1s0f0"
    assert fault_reasons(failing(wrapped)) == [("nccl.ib-retry", "nccl.gid-link-local")]
    far = f"{RETRY}\n" + "step 1\n" * 5 + "  localGid fe80::1:2  remoteGids fe80::3:4  hca roceP2p1s0f0"
    assert fault_reasons(failing(far)) == [("nccl.ib-retry", None)]


@pytest.mark.parametrize(("address", "why"), [("169.254.170.23", "nccl.bootstrap-link-local"), ("10.1.2.3", None)])
def test_a_peer_at_a_link_local_address(address, why):
    """The fault is nccl.bootstrap-link-local, with NCCL's prefix and without it."""
    line = f"socketPollConnect: connect to {address}<41234> returned Connection refused, exceeded error retry count after 35 attempts"
    assert fault_reasons(failing(line, 2)) == [("nccl.connect-refused", why)]
    bare = f"NET/Socket : Using [0]eth0:10.1.1.1<0>\n{line}\nRuntimeError: NCCL error: remote process exited or there was a network error\n"
    assert ("nccl.connect-refused", why) in fault_reasons(bare)


def test_a_refused_connection_names_the_address_that_is_gone():
    """The suspect is the address, not the reporting host."""
    job = judged(failing("socketPollConnect: connect to 10.99.91.49<36141> returned Connection refused", 2))
    assert "10.99.91.49" in job["sentence"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Error : too many XML nodes (max 256)", ("nccl.topology-too-large", None)),
        (
            "Error while attaching to shared memory segment /dev/shm/nccl- (size 0), error: No such file or directory (2)",
            ("nccl.shm-attach", "nccl.shm-name"),
        ),
        (
            "Error while attaching to shared memory segment /dev/shm/nccl-x7Y2kq (size 9637888), error: No such file or directory (2)",
            ("nccl.shm-attach", None),
        ),
        ("Cuda failure 802 'system not yet initialized'", ("nccl.cuda-failure", "nccl.fabric-manager")),
        ("Cuda failure 700 'an illegal memory access was encountered'", ("nccl.cuda-failure", "nccl.kernel-fault")),
        ("Cuda failure 719 'unspecified launch failure'", ("nccl.cuda-failure", None)),
        ("Cuda failure 'an illegal memory access was encountered'", ("nccl.cuda-failure", "nccl.kernel-fault")),
        ("Cuda failure 7000", ("nccl.cuda-failure", None)),
    ],
)
def test_what_a_warning_holds(line, expected):
    """A warning's text determines the cause, for example nccl.topology-too-large or nccl.fabric-manager."""
    assert fault_reasons(failing(line, 2)) == [expected]


def test_a_provider_that_is_missing_is_no_missing_device():
    """nccl.verbs-provider: libibverbs prints it on standard error, without a prefix."""
    said = "libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs0\n"
    head = next(line.split("NCCL INFO")[0] for line in SOCKETS.splitlines() if "Using network" in line)
    with_head = f"{head}{INFO}{said}" + SOCKETS
    assert fault_reasons(with_head)[0] == ("nccl.socket-fallback", "nccl.verbs-provider")
    assert fault_reasons(said + SOCKETS)[0] == ("nccl.socket-fallback", "nccl.verbs-provider")
    assert fault_reasons(SOCKETS)[0] == ("nccl.socket-fallback", "nccl.ib-no-device")
    assert fault_reasons(said + HEALTHY) == fault_reasons(HEALTHY)


def test_gdrcopy_is_a_hint_where_nothing_else_shows_and_quiet_in_a_healthy_job():
    """The fault is nccl.gdrcopy."""
    said = "NCCL WARN NET/OFI Failed to initialize GDRCopy: Failed to open gdr handle\n"
    assert fault_reasons(said + "NCCL INFO NET/OFI gin: Initializing\n") == [("nccl.no-evidence", "nccl.gdrcopy")]
    assert fault_reasons(HEALTHY + said) == fault_reasons(HEALTHY)


def test_a_timeout_of_expert_parallel_precedes_the_cuda_error_that_follows_it():
    """nccl.ep-timeout: the GPU is not at fault; with a preceding CUDA error it is."""
    said = "Warning: NCCL EP timeout for dispatch receive, rank 2, local_expert_idx 37, src_rank 0\n"
    failed = f"{A}{WARN}Cuda failure 'unspecified launch failure'\n{A}{INFO}init.cc:1 -> 1\n"
    assert fault_reasons(STARTED + said + failed)[0][0] == "nccl.ep-timeout"
    assert fault_reasons(STARTED + failed + said)[0][0] == "nccl.cuda-failure"


def test_parts_of_a_host_that_nccl_takes_for_nodes_are_not_counted_as_hosts():
    """nccl.node-count; hosts with a configured identity are accepted."""
    split = HEALTHY.replace("nNodes 2", "nNodes 4").replace("localRanks 2", "localRanks 1")
    job = judged(split)
    assert job["nodes"] == 2
    assert "nccl.node-count" in {fault["fault"] for fault in job["faults"]}
    assert judged(HEALTHY)["nodes"] == 2
    assert "nccl.node-count" not in {fault["fault"] for fault in judged(HEALTHY)["faults"]}


EFA_END = "My EFA addr: fi_addr_efa://[fe80::1]:0:1 My host id: i-00ee91ea93e985ee0. Completed length: 0"
GONE = "NET/OFI Request 0x7f completed with error. RC: 107. Error: 4126 (Unresponsive receiver (reachable by EFA device but handshake failed) "
BIND = "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error {}"


@table(
    "line, expected",
    [
        (BIND.format("2 'out of memory'"), ("nccl.nvls-failed", "nccl.nvls-slots")),
        (BIND.format("401 'the operation cannot be performed in the present state'"), ("nccl.nvls-failed", None)),
        (BIND.format("802 'system not yet initialized'"), ("nccl.nvls-failed", "nccl.fabric-manager")),
        (
            "NET/OFI Unable to register memory (type = 2) for device 4. RC: -12, Error: Cannot allocate memory",
            ("nccl.mr-register", "nccl.mr-memory"),
        ),
        (
            "NET/OFI Couldn't enable endpoint. RC: -12, ERROR: Cannot allocate memory",
            ("nccl.mr-register", "nccl.mr-memory"),
        ),
        (
            "NET/OFI Unable to register memory (type = 2) for device 4. RC: -22, Error: Invalid argument",
            ("nccl.mr-register", None),
        ),
        (GONE + EFA_END, ("nccl.efa-peer-gone", None)),
        (
            "NET/OFI Request 0x7f completed with error. RC: 5. Error: Invalid receiver queue pair number (QPN) "
            + EFA_END,
            ("nccl.efa-peer-gone", None),
        ),
        (
            "NET/OFI Request 0x7f completed with error. RC: 113. Error: 14 (Unreachable remote (never received a response) ",
            ("nccl.efa-unreachable", None),
        ),
        (
            "Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_bond_0:1, curr state INIT, next state RTR, "
            "local GID index 3, local GID ::, remote GID ::ffff:10.1.2.3",
            ("nccl.ib-unreachable", "nccl.gid-empty"),
        ),
        (
            "Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_bond_0:1, curr state INIT, next state RTR, "
            "local GID index 3, local GID ::ffff:10.1.2.2, remote GID ::ffff:10.1.2.3",
            ("nccl.ib-unreachable", None),
        ),
        ("Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_bond_0:1", ("nccl.ib-mixed-fabric", None)),
        ("Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'", ("nccl.cuda-driver", None)),
        ("Cuda failure 'unspecified launch failure'", ("nccl.cuda-failure", None)),
    ],
)
def test_what_a_warning_of_another_layer_holds(line, expected):
    """The faults are nccl.nvls-slots, nccl.mr-memory, nccl.efa-peer-gone, nccl.efa-unreachable, nccl.gid-empty,
    nccl.cuda-driver."""
    assert fault_reasons(failing(line, 2)) == [expected]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.", "nccl.gpu-xid"),
        (
            "[rank1]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
            "nccl.rendezvous",
        ),
        (
            "[c10d] The client socket has timed out after 60000ms while trying to connect to (10.0.0.1, 29500).",
            "nccl.rendezvous",
        ),
        (
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
            "nccl.fabric-manager",
        ),
        ("node: Test CUDA failure common.cu:892 'no CUDA-capable device is detected'", "nccl.no-gpu"),
        ("NVRM: Xid (PCI:0000:3b:00): 13, pid=1234, Graphics Exception", None),
        ("[c10d] The client socket has failed to connect to [h]:29500 (errno: 110 - Connection timed out).", None),
        ("epoch 12 waiting for clients", None),
    ],
)
def test_what_others_say_before_nccl_does(line, fault):
    """nccl.gpu-xid, nccl.rendezvous, nccl.no-gpu; a retry or a program's own Xid is not a cause."""
    causes = fault_reasons(line + "\n")
    assert [name for name, _ in causes if name != "nccl.no-evidence"] == ([fault] if fault else [])


def test_an_import_that_fails_on_one_node_of_an_nvlink_domain():
    """nccl.imex-import: the node is named; without an NVLink domain the same failure does not concern IMEX."""
    domain = STARTED + "".join(
        f"gpu-node-{host}:{pid}:{pid} [0] {INFO}MNNVL 1 cliqueId 1 cliqueSize 4 cliqueRank 0\n"
        for host, pid in ((0, 1000), (1, 1014))
    )
    fails = f"\n{A}transport/p2p.cc:275 NCCL WARN Cuda failure 400 'invalid resource handle'\n{A}{INFO}init.cc:9 -> 1\n"
    job = judged(domain + fails)
    assert job["faults"][0]["why"] == "nccl.imex-import"
    assert "gpu-node-0" in job["faults"][0]["cause"]
    assert "1 of 2 hosts" in job["faults"][0]["cause"]
    assert fault_reasons(STARTED + fails)[0] == ("nccl.cuda-failure", "nccl.p2p-refused")


def test_ends_of_an_edge_that_name_other_networks_are_a_mixture():
    """One host uses a plugin, the other NCCL's own verbs: neither uses sockets, but they are incompatible."""
    lines = HEALTHY.splitlines(keepends=True)
    turned = "".join(
        line.replace("NET/IB/", "NET/AWS Libfabric/") if line.startswith("gpu-node-1") else line for line in lines
    )
    job = judged(turned)
    assert (job["verdict"], job["mixed"]) == ("no-go", True)
    assert "name different networks" in job["faults"][0]["cause"]
    assert not judged(HEALTHY)["mixed"]


def test_channels_of_the_switches_are_evidence():
    """SHARP: an edge has one end, and the switch is the other; without GPUDirect, or on half the ranks, it is no-go."""
    lines = HEALTHY.splitlines(keepends=True)
    sharp = [line for line in lines if "via NET/" not in line]
    for rank, (host, pid) in enumerate(
        (("gpu-node-0", 1000), ("gpu-node-0", 1007), ("gpu-node-1", 1014), ("gpu-node-1", 1021))
    ):
        head = f"{host}:{pid}:{pid} [{rank % 2}] {INFO}"
        sharp += [f"{head}CollNet 00/0 : {rank} [{side}] via COLLNET/SHARP/0/GDRDMA\n" for side in ("send", "receive")]
    job = judged("".join(sharp))
    assert (job["verdict"], job["inter_node_transport"], job["gdr"], job["sharp"]) == ("go", "ib", True, True)
    assert [host["connected"] for host in job["hosts"]] == [[0, 1], [2, 3]]
    assert judged("".join(sharp).replace("/GDRDMA", ""))["verdict"] == "no-go"
    one = [line for line in sharp if "CollNet" not in line or "gpu-node-1" not in line]
    assert judged("".join(line for line in one if "via P2P" not in line or "gpu-node-1" not in line))["verdict"] != "go"


def test_a_card_that_does_not_open_explains_the_missing_rail_and_a_mismatch_that_was_waved_through_is_reported():
    """The faults are nccl.nic-count-ignored, and nccl.rail-missing because of nccl.ib-open."""
    lines = []
    for line in HEALTHY.splitlines(keepends=True):
        if line.startswith("gpu-node-1") and "NET/IB : Using" in line:
            lines.append(line.split("NCCL INFO")[0] + "NCCL WARN NET/IB : Unable to open device mlx5_1\n")
        fewer = line.replace(" [1]mlx5_1:1/IB", "").replace("NET/IB/1/", "NET/IB/0/")
        lines.append(fewer if line.startswith("gpu-node-1") else line)
    assert fault_reasons("".join(lines))[0] == ("nccl.rail-missing", "nccl.ib-open")
    waved = f"{A}{INFO}Detected mixed local Net device counts across ranks (min 1, max 2). Ignoring due to NCCL_IGNORE_NET_MISMATCH.\n"
    assert ("nccl.nic-count-ignored", None) in fault_reasons(HEALTHY + waved)
    assert judged(HEALTHY)["verdict"] == "go"


def test_hosts_with_unequal_numbers_of_ranks_are_reported_and_nothing_more():
    """nccl.uneven-hosts is information, not a fault."""
    job = judged(HEALTHY.replace("gpu-node-1:1014:1014", "gpu-node-0:1014:1014"))
    assert "nccl.uneven-hosts" in {fault["fault"] for fault in job["faults"]}
    assert "nccl.uneven-hosts" not in {fault["fault"] for fault in judged(HEALTHY)["faults"]}


def test_wrong_sums_of_a_chunk_size_that_was_set(judge):
    """nccl.chunk-size: the setting is checked before cables and GPUs."""
    table = "\n".join(table_of(Maker()))
    wrong = re.sub(r"Out of bounds values : 0 OK", "Out of bounds values : 7 FAILED", table)
    said = f"{A}{INFO}NCCL_CHUNK_SIZE set by environment to 1048576.\n"
    faults = {fault["fault"]: fault for fault in judge(HEALTHY + said + wrong)["faults"]}
    assert faults["nccl.wrong-results"]["why"] == "nccl.chunk-size"
    assert {fault["fault"]: fault["why"] for fault in judge(HEALTHY + wrong)["faults"]}["nccl.wrong-results"] is None
    assert "nccl.wrong-results" not in {fault["fault"] for fault in judge(HEALTHY + said + table)["faults"]}


def test_nothing_of_nccl_is_said_only_where_so():
    """Lines without their prefix still count as NCCL's."""
    assert "Nothing in this log" in judged("epoch 1 loss 3.2\n")["sentence"]
    bare = judged("NET/OFI Using transport protocol RDMA (platform set)\nNET/Socket : Using [0]eth0:10.1.1.1<0>\n")
    assert "Nothing in this log" not in bare["sentence"]


@table(
    "head, more",
    product(
        ["", INFO, A + INFO],
        ["", "NET/IB : No device found.\n", "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0\n"],
    ),
)
def test_an_interface_alone_is_read_as_its_whole_line(head, more):
    """Documentation of NCCL writes `NET/Socket : Using eth0`."""
    alone, whole = (
        judged(f"{head}NET/Socket : Using {text}\n" + (head + more if more else ""))
        for text in ("eth0", "[0]eth0:10.1.1.1<0>")
    )
    assert "Nothing in this log" not in alone["sentence"]
    kept = ("verdict", "inter_node_transport", "causes")
    assert {key: alone.get(key) for key in kept} == {key: whole.get(key) for key in kept}
    assert [each["fault"] for each in alone["faults"]] == [each["fault"] for each in whole["faults"]]


@pytest.mark.parametrize("text", ["Using 2 threads and 8 sockets per thread", "Using eth0 is what you want to see"])
def test_what_looks_like_an_interface_and_is_none_is_not_read(text):
    assert "Nothing in this log" in judged(f"NET/Socket : {text}\n")["sentence"]


RETRIED = A + WARN + RETRY + "\n" + A + INFO + "transport/net.cc:1134 -> 6\n"
MASKED = "[1.2] NVRM: Xid (PCI:0000:9b:00): {}, pid=1234, name=python, GPU 0\n"
LISTENS = "torch.distributed.DistNetworkError: The server socket has failed to {} network address. port: 29500, code: -98, name: EADDRINUSE, message: address already in use\n"


@table(
    "log, first",
    [
        (RETRIED + MASKED.format(79), "nccl.gpu-xid"),
        (RETRIED + MASKED.format(31), "nccl.ib-retry"),  # a program fault
        ("[1.2] mlx5_core 0000:3b:00.0 ens3np0: Link down\n" + RETRIED, "nccl.ib-link-flap"),
        ("[1.2] mlx5_core 0000:3b:00.0 ens3np0: Link up\n" + RETRIED, "nccl.ib-retry"),
        (failing("Cuda failure 'uncorrectable ECC error encountered'", 1), "nccl.gpu-xid"),
        (failing("Cuda failure 'unspecified launch failure'", 1), "nccl.cuda-failure"),
        (LISTENS.format("listen on any local"), "nccl.port-in-use"),
        (LISTENS.format("close its") + "RuntimeError: CUDA error: x\n", "nccl.crash"),
        (
            "RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error. It is possible that dataloader's workers"
            " are out of shared memory.\n",
            "nccl.shm-full",
        ),
        (failing("Call to pthread_create failed : pthread_create returned 11", 2), "nccl.process-limit"),
        (failing("Call to pthread_create failed : pthread_create returned 22", 2), "nccl.system-call"),
        (failing("Invalid rank requested : 8/8", 4), "nccl.invalid-usage"),
        (
            failing(
                "NET/IB : req 0/1 tag 12 peer 10.0.0.2<41> collective mismatch error, local size 4096 remote size 8192",
                5,
            ),
            "nccl.message-truncated",
        ),
        (failing("NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument", 2), "nccl.ofi-error"),
        (
            failing("NET/OFI Request 0x7f completed with error. RC: 21. Error: unknown error. Completed length: 0", 2),
            "nccl.ofi-error",
        ),
        (
            "/dvs/nvshmem/src/modules/transport/ibgda/ibgda.cpp:1234: NULL value get_device_list failed\n"
            "RuntimeError: Failed: CUDA error /DeepEP/csrc/deep_ep.cpp:100 'invalid resource handle'\n",
            "nccl.nvshmem",
        ),
        (
            failing("failed to open CUDA IPC handle : 217 peer access is not supported between these two devices", 1),
            "nccl.p2p-refused",
        ),
        (failing("hipIpcGetMemHandle failed : invalid argument", 1), "nccl.p2p-refused"),
        (failing("Cuda failure 'invalid argument'", 1), "nccl.cuda-failure"),
        (failing("nvmlInit_v2() failed: Driver/library version mismatch", 2), "nccl.driver-mismatch"),
        (failing("nvmlInit_v2() failed: Unknown Error", 2), "nccl.no-gpu"),
        (
            "[rank8]:[E ProcessGroupGloo.cpp:144] Gloo connectFullMesh failed with [../gloo/pair.cc:144] no error\n",
            "nccl.bootstrap-unroutable",
        ),
        (
            failing("Your program may be hanging, this may be caused by a collective mismatch around rank 2.", 3),
            "nccl.collective-mismatch",
        ),
        (
            STARTED + "Memory access fault by GPU node-1 (Agent handle: 0x1d4a9d0) on address 0x7f1e15600000.\n",
            "nccl.kernel-fault",
        ),
        (failing("transport/nvls.cc:244 NCCL WARN Cuda failure 2 'out of memory'", 1), "nccl.nvls-slots"),
        (failing("include/alloc.h:244 NCCL WARN Cuda failure 2 'out of memory'", 1), "nccl.cuda-memory"),
    ],
)
def test_the_first_cause_that_a_failed_job_is_said_to_have(log, first):
    """Each with a near miss that differs in the decisive part.

    nccl.p2p-refused, nccl.driver-mismatch, nccl.port-in-use, nccl.process-limit, nccl.invalid-usage, nccl.ofi-error,
    nccl.nvshmem.
    """
    assert judged(log)["causes"][0]["fault"] == first, judged(log)["sentence"]


def test_a_port_that_was_down_once_is_no_end_of_a_healthy_job():
    """The kernel's lines may be from another day."""
    job = judged(HEALTHY + "[1.2] mlx5_core 0000:3b:00.0 ens3np0: Link down\n")
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "unexplained")


def test_a_table_that_is_slow_over_sockets_keeps_sockets_as_its_diagnosis():
    """A speed that the transport explains is not also diagnosed as slow, which suggests another cause."""
    job = judged(SOCKETS + "\n".join(table_of(Maker(net="Socket"))) + "\n")
    said = job["sentence"]
    assert job["diagnosis"] == "socket"
    call_slow(job, job["tables"][0], "3 of 300 GB/s")
    assert (job["diagnosis"], job["sentence"], job["verdict"]) == ("socket", said, "no-go")


CXI = "libfabric:1234:170::cxi:fabric:cxip_nic_get_rgroup_vni():253<warn> : Failed to find valid default rgroup and vni for cxi0\n"
DOMAIN = "NET/OFI Couldn't open a fabric access domain. RC: -38, ERROR: Function not implemented"


def test_slingshots_provider_explains_what_the_plugin_cannot_open():
    """nccl.cxi-service; without the provider's message the plugin's error is not a cause."""
    assert fault_reasons(CXI + failing(DOMAIN))[0] == ("nccl.ofi-error", "nccl.cxi-service")
    assert fault_reasons(failing(DOMAIN)) == [("nccl.ofi-error", None)]


def test_files_of_shared_memory_that_are_removed():
    """NCCL's guide: systemd removes them; later versions report it as information if nothing fails."""
    said = "unlink shared memory /dev/shm/nccl-d5rTd0 failed, error: No such file or directory"
    assert "RemoveIPC" in judged(failing(said))["faults"][0]["cause"]
    assert ("nccl.shm-attach", None) not in fault_reasons(f"{STARTED}\n{A}{INFO}{said} (2)\n")


def test_an_argument_that_nothing_explains():
    said = "RuntimeError: NCCL error in: /p/NCCLUtils.hpp:82, invalid argument, NCCL version 2.4.8\n"
    assert "not below the world size" in str(judged(said))


def test_the_catalogue_asks_for_circumstances_that_are_looked_at():
    asked = {each.when for fault in fault_catalogue() for each in fault_catalogue()[fault].alternatives if each.when}
    assert asked <= {*CIRCUMSTANCES, *SIGNS}
    assert asked
