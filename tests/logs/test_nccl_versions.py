"""The judgement is the same for every version of NCCL, though line forms differ."""

from __future__ import annotations

import pytest

from tests.logs.logmaker import Maker, interleaved, sequential
from tests.table import table

VERSIONS = (
    "2.3.7",
    "2.4.7",
    "2.4.8",
    "2.5.6",
    "2.6.4",
    "2.7.8",
    "2.8.4",
    "2.10.3",
    "2.12.12",
    "2.14.3",
    "2.16.2",
    "2.18.1",
    "2.18.5",
    "2.20.5",
    "2.22.3",
    "2.24.3",
    "2.26.2",
    "2.28.9",
    "2.30.7",
)


def faults(job):
    return [fault["fault"] for fault in job["faults"]]


@table("version", VERSIONS)
def test_a_healthy_job_is_go_in_every_version(judge, version):
    """RDMA with GPUDirect on every channel between two hosts: go, with its pairs."""
    job = judge(interleaved(Maker(version=version + "+cuda12.2").processes(), 1))
    assert (job["verdict"], job["diagnosis"], job["inter_node_transport"], job["gdr"]) == (
        "go",
        "healthy-rdma",
        "ib",
        True,
    )
    assert (job["ranks"], job["nodes"], job["nccl_version"], job["mixed"]) == (4, 2, version + "+cuda12.2", False)
    assert {(pair["src"], pair["dst"]) for pair in job["pairs"]} == {
        ("gpu-node-0", "gpu-node-1"),
        ("gpu-node-1", "gpu-node-0"),
    }
    assert all(pair["direction"] == "both" and pair["transports"] == {"ib": 2} for pair in job["pairs"])
    assert job["rails"]["per_host"] == {
        "gpu-node-0": {"used": 2, "offered": 2},
        "gpu-node-1": {"used": 2, "offered": 2},
    }


@table("version", VERSIONS)
def test_sockets_between_hosts_are_no_go_in_every_version(judge, version):
    """Without a device on any rank the log shows a fallback, with its cause."""
    job = judge(sequential(Maker(version=version, net="Socket").processes()))
    assert (job["verdict"], job["diagnosis"], job["socket_fallback"], job["gdr"]) == ("no-go", "socket", True, False)
    assert job["faults"][0]["fault"] == "nccl.socket-fallback"
    assert job["faults"][0]["why"] == "nccl.ib-no-device"
    assert "No device found" in job["faults"][0]["evidence"][0]["text"]


@table("version", VERSIONS)
def test_one_rank_on_sockets_is_found_among_good_ones(judge, version):
    """A socket rank among good ones makes the job mixed, and that rank is named."""
    maker = Maker(version=version, gpus=8, rails=8, channels=8, socket_ranks=(11,))
    job = judge(interleaved(maker.processes(), 3))
    assert (faults(job), job["faults"][0]["subject"]) == (["nccl.mixed-transport"], "gpu-node-1 (rank 11)")
    boundary = judge(interleaved(Maker(version=version, socket_ranks=(3,)).processes(), 2))
    assert faults(boundary) == ["nccl.mixed-transport"]
    assert boundary["faults"][0]["subject"] == "gpu-node-1 (rank 3)"
    assert boundary["mixed"] is True
    assert boundary["verdict"] == "no-go"


@table("version", VERSIONS)
def test_sockets_on_one_host_are_no_fallback(judge, version):
    """'Using network Socket' on one node carries no data, so it is not a fallback."""
    job = judge(sequential(Maker(version=version, hosts=("solo",), net="Socket").processes()))
    assert (job["verdict"], job["inter_node_transport"], job["socket_fallback"], job["faults"]) == (
        "go",
        "none",
        False,
        [],
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_gpudirect_off_and_half_off_are_distinguished(judge, version):
    """Off everywhere is one fault, off on one host another, which names the host."""
    off = judge(sequential(Maker(version=version, gdr=False).processes()))
    half = judge(sequential(Maker(version=version, no_gdr_hosts=("gpu-node-1",)).processes()))
    assert (faults(off), off["gdr"]) == (["nccl.gdr-off"], False)
    assert (faults(half), half["faults"][0]["subject"]) == (["nccl.gdr-mixed"], "gpu-node-1")


@table("version", VERSIONS)
def test_a_log_that_stops_early_proves_nothing(judge, version):
    """Ranks that never completed their start, or without a channel, are inconclusive, with the variable to set."""
    for stop in ("init", "channels"):
        job = judge(sequential(Maker(version=version, stop=stop).processes()))
        assert job["verdict"] == "inconclusive"
        assert job["faults"][0]["fault"] in ("nccl.log-truncated", "nccl.no-evidence")
        assert "NCCL_DEBUG=INFO" in job["advice"]


def test_a_rank_that_reached_its_own_proxy_is_not_yet_connected(judge):
    """With NCCL_DEBUG_SUBSYS=ALL each rank prints this before its channels: a log truncated there proves nothing."""
    processes = Maker().processes()
    cut = {key: [line for line in lines if "Connected" not in line] for key, lines in processes.items()}
    for lines in cut.values():
        head = lines[0].split("NCCL INFO")[0] + "NCCL INFO "
        lines.append(f"{head}Connected to proxy localRank 0 -> connection 0x7f6f84002de0")
    assert judge(sequential(processes))["verdict"] == "go"
    assert judge(sequential(cut))["verdict"] == "inconclusive"


def test_pxn_is_gpudirect_and_no_other_device(judge):
    """NET/IB/1(5)/GDRDMA: the number in parentheses is a rank, and the data uses GPUDirect."""
    job = judge(sequential(Maker(pxn=True).processes()))
    assert job["verdict"] == "go"
    assert all(pair["pxn"] and pair["gdr"] is True for pair in job["pairs"])


def test_the_link_layer_decides_between_infiniband_and_roce(judge):
    """NET/IB over Ethernet ports is RoCE."""
    assert judge(sequential(Maker(link="RoCE").processes()))["inter_node_transport"] == "roce"


@pytest.mark.parametrize(
    ("name", "provider", "transport"),
    [("AWS Libfabric", "efa", "efa"), ("Libfabric", "cxi", "cxi"), ("AWS Libfabric", "cxi", "cxi")],
)
def test_the_provider_decides_what_the_libfabric_plugin_is(judge, name, provider, transport):
    """'AWS Libfabric' over Slingshot is not EFA."""
    log = sequential(Maker(net=name).processes()).replace(
        b"provider is efa, fabric is efa", b"provider is " + provider.encode()
    )
    job = judge(log)
    assert (job["inter_node_transport"], job["verdict"]) == (transport, "go")


def test_the_libfabric_plugin_over_tcp_is_a_fallback(judge):
    """The plugin is loaded, but its provider is tcp: sockets (row 13)."""
    log = sequential(Maker(net="AWS Libfabric", gdr=False).processes()).replace(
        b"provider is efa, fabric is efa", b"provider is tcp"
    )
    job = judge(log)
    assert (job["socket_fallback"], job["faults"][0]["why"]) == (True, "nccl.ofi-provider")


def test_two_versions_in_one_communicator_are_a_fault(judge):
    """The ranks' versions show the mismatch before NCCL detects it."""
    old = Maker(version="2.26.2+cuda12.2").processes()
    new = Maker(version="2.28.9+cuda12.2").processes()
    mixed = {key: (old if key[0] == "gpu-node-0" else new)[key] for key in old}
    job = judge(sequential(mixed))
    assert "nccl.version-mismatch" in faults(job)
    assert (job["verdict"], job["mixed"]) == ("no-go", True)


def test_child_communicators_do_not_change_the_size_of_the_job(judge):
    """Megatron splits the world: the job has the size of its largest communicator."""
    maker = Maker(gpus=4)
    processes = maker.processes()
    for rank, lines in enumerate(processes.values()):
        head = lines[0].split("NCCL INFO")[0] + "NCCL INFO "
        lines.append(
            f"{head}ncclCommSplit comm 0x99{rank:04x} rank {rank % 2} nranks 2 cudaDev 0 nvmlDev 0 busId 1a000 parent 0x55 color {rank // 2} key 0 commId 0xaa{rank // 2:04x} - Init START"
        )
        lines.append(
            f"{head}ncclCommSplit comm 0x99{rank:04x} rank {rank % 2} nranks 2 cudaDev 0 nvmlDev 0 busId 1a000 parent 0x55 color {rank // 2} key 0 commId 0xaa{rank // 2:04x} - Init COMPLETE"
        )
    job = judge(interleaved(processes, 5))
    assert (job["ranks"], job["nodes"], job["init"]["communicators"]) == (8, 2, 5)


def test_a_child_communicators_ranks_are_mapped_to_their_hosts(judge):
    """Rank 1 of a child communicator is not rank 1 of the world, but the pair of hosts is correct."""
    maker = Maker(gpus=2, stop="channels")
    processes = maker.processes()
    for rank, lines in enumerate(processes.values()):
        if rank % 2:
            continue
        head, child = lines[0].split("NCCL INFO")[0] + "NCCL INFO ", rank // 2
        lines.append(
            f"{head}ncclCommSplit comm 0x99{rank:04x} rank {child} nranks 2 cudaDev 0 nvmlDev 0 busId 1a000 parent 0x55 color 0 key 0 commId 0xaa01 - Init START"
        )
        lines.append(
            f"{head}ncclCommSplit comm 0x99{rank:04x} rank {child} nranks 2 cudaDev 0 nvmlDev 0 busId 1a000 parent 0x55 color 0 key 0 commId 0xaa01 - Init COMPLETE"
        )
        lines.append(f"{head}Channel 00/0 : {child}[0] -> {1 - child}[0] [send] via NET/IB/0/GDRDMA")
    job = judge(sequential(processes))
    assert {(pair["src"], pair["dst"]) for pair in job["pairs"]} == {
        ("gpu-node-0", "gpu-node-1"),
        ("gpu-node-1", "gpu-node-0"),
    }


def test_parts_of_a_split_are_distinguished_by_count_and_color(judge, root):
    """NCCL 2.28.9 prints no id for them, and no space before the dash: eight ranks, each in three groups of two."""
    folder = root / "tests" / "hang" / "data" / "nccl-2.28.9" / "parallel-late"
    job = judge(*(path.read_text() for path in sorted(folder.glob("rank*.log"))))
    assert (job["ranks"], job["nodes"], job["init"]["communicators"]) == (8, 8, 13)
    assert (job["intra_node"]["net"], "nccl.net-intra-node" in faults(job)) == (0, False)


@pytest.mark.parametrize("also", [False, True])
def test_a_channel_counts_as_inside_a_host_only_where_its_communicator_is_certain(judge, also):
    """Each rank is 0 or 1 of a group on its host and of one across hosts; both were created before the first channel.

    The line has no communicator. If both ends of the host's group print the edge, it is inside the host.
    """
    maker = Maker(gpus=2, stop="channels")
    processes = maker.processes()
    for rank, lines in enumerate(processes.values()):
        head, host, local = lines[0].split("NCCL INFO")[0] + "NCCL INFO ", rank // 2, rank % 2
        pointer = next(line for line in lines if "Init COMPLETE" in line).split("comm ")[1].split()[0]
        for count, own, color in ((1, host, local), (3, local, host)):  # across hosts, then inside the host
            said = f"{head}ncclCommSplit comm 0x{count}{rank:04x} rank {own} nranks 2 cudaDev 0 nvmlDev 0 busId 1a000 "
            said += f"parent {pointer} splitCount {count + color} color {color} key 0"
            lines += [f"{said}- Init START", f"{said} - Init COMPLETE"]
        way = "send" if host == 0 else "receive"
        lines.append(f"{head}Channel 00/0 : 0[{local}] -> 1[{local}] [{way}] via NET/IB/0/GDRDMA")
        if also and host == 0:
            way = "send" if local == 0 else "receive"
            lines.append(f"{head}Channel 00/0 : 0[0] -> 1[1] [{way}] via NET/IB/1/GDRDMA")
    assert ("nccl.net-intra-node" in faults(judge(sequential(processes)))) == also


def test_a_multi_node_nvlink_domain_is_no_network(judge):
    """MNNVL: channels are P2P/MNNVL across hosts and 'Using network Socket' carries no data."""
    log = (
        sequential(Maker(net="Socket", hosts=("r1-n1", "r1-n2")).processes())
        .replace(b"NET/Socket/0", b"")
        .replace(b"nNodes 2", b"nNodes 1")
        .replace(b"MNNVL 0", b"MNNVL 1")
    )
    log = log.replace(b"[send] via ", b"via P2P/MNNVL").replace(b"[receive] via ", b"via P2P/MNNVL")
    job = judge(log)
    assert (job["inter_node_transport"], job["socket_fallback"], job["verdict"], job["nodes"]) == (
        "mnnvl",
        False,
        "go",
        2,
    )


@table(
    "line, edge",
    [
        ("Ring 00 : 1 -> 0 via NET/IB/0/GDRDMA", (0, 0, 1, 0, "", "net", "IB", 0, True, -1)),
        ("Ring 03 : 9 -> 0 [receive] via NET/IB/2", (3, 0, 9, 0, "r", "net", "IB", 2, False, -1)),
        ("Ring 00 : 0[1a000] -> 1[1b000] via direct shared memory", (0, 0, 0, 1, "", "shm", "SHM", -1, False, -1)),
        ("Channel 00 : 1[1e0] -> 0[1e0] [receive] via NET/Socket/0", (0, 0, 1, 0, "r", "net", "Socket", 0, False, -1)),
        (
            "Channel 00/0 : 0[35000] -> 1[f5000] [send] via NET/IB/0(5)/GDRDMA/Shared",
            (0, 0, 0, 1, "s", "net", "IB", 0, True, 5),
        ),
        (
            "Channel 05/1 : 5[5] -> 12[4] [send] via NET/AWS Libfabric/1/GDRDMA",
            (5, 1, 5, 12, "s", "net", "AWS Libfabric", 1, True, -1),
        ),
        (
            "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IBext_v8/3(4)/GDRDMA(PCI)/Shared",
            (0, 0, 0, 8, "s", "net", "IBext_v8", 3, True, 4),
        ),
        (
            "Channel 01/0 : 1[0] -> 0[0] [receive] via NET/Libfabric/0/GDRDMA/flush=None",
            (1, 0, 1, 0, "r", "net", "Libfabric", 0, True, -1),
        ),
        (
            "Channel 00/0 : 1[7000] -> 0[b7000] [receive] via NET/UCX/0/GDRDMA comm 0x22fcfb0 nRanks 02",
            (0, 0, 1, 0, "r", "net", "UCX", 0, True, -1),
        ),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", (0, 0, 0, 1, "", "p2p", "CUMEM", -1, False, -1)),
        (
            "Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer/read",
            (0, 0, 0, 1, "", "p2p", "direct pointer", -1, False, -1),
        ),
        (
            "Channel 02 : 0[1b000] -> 1[1c000] via P2P/indirect/2[3d000]",
            (2, 0, 0, 1, "", "p2p", "indirect", -1, False, -1),
        ),
        ("Channel 00/0 : 3[3] -> 4[0] via P2P/MNNVL", (0, 0, 3, 4, "", "mnnvl", "MNNVL", -1, False, -1)),
        ("Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct", (0, 0, 0, 1, "", "shm", "SHM", -1, False, -1)),
        ("CollNet 00/0 : 0 [receive] via COLLNET/SHARP/1/GDRDMA", (0, 0, 0, -1, "r", "collnet", "SHARP", 1, True, -1)),
        ("Channel 00/32 :    0   1   2", None),
        ("Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0/GDR", None),
        ("Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0/Sha", None),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/d]rexnode1", None),
        ("Channel 00/0 : 0[0] -> 1[1] [send] via NET/I", None),
        ("Trees [0] 1/-1/-1->0->-1", None),
    ],
)
def test_a_channel_line_is_read_in_every_grammar(line, edge):
    """Channel, connection, ranks, direction, kind, network with spaces, device, GPUDirect, proxy rank; torn lines are
    dropped."""
    from seatrial.logs.reader.state.channels import connector_of, parse_channel

    parsed = parse_channel(line.encode())
    if edge is None:
        assert parsed is None
        return
    channel, conn, src, dst, side, *carrier = edge
    ((*ranks, connector), number, _) = parsed
    assert (number, *ranks, *connector_of(connector)) == (channel, src, dst, side, conn, *carrier)


def test_plugins_that_move_gpu_memory_by_design_are_not_called_off(judge):
    """GPUDirect-TCPX prints no /GDRDMA, which does not mean that it is off."""
    job = judge(sequential(Maker(version="2.18.5", net="GPUDirectTCPX_v7", gdr=False).processes()))
    assert (job["inter_node_transport"], job["gdr"], job["faults"]) == ("tcpx", None, [])


@pytest.mark.parametrize(
    ("said", "gdr"),
    [
        ("GPU Direct RDMA Enabled for GPU 1a000 / HCA 0 (distance 4 <= 4), read 1", True),
        ("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)", False),
        ("DMA-BUF is available on GPU device 0", None),
        ("NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'", None),
    ],
)
def test_without_channel_lines_only_a_decision_is_evidence_about_gpudirect(judge, said, gdr):
    """NCCL's decision for a GPU and a NIC counts; the capability of a NIC or a GPU does not."""
    log = (
        sequential(Maker(version="2.20.5", stop="channels").processes()).decode()
        + f"gpu-node-0:1000:1000 [0] NCCL INFO {said}\n"
    )
    assert judge(log)["gdr"] is gdr


def test_a_bus_id_may_have_a_pci_domain(judge):
    """Virtual machines prepend their own domain: nine digits and more (Azure)."""
    line = "a:1:1 [0] NCCL INFO Ring 00 : 1[18100000] -> 0[435e00000] [receive] via NET/IB/0/GDRDMA\n"
    job = judge(line + "a:1:1 [0] NCCL INFO comm 0x7f rank 0 nranks 2 cudaDev 0 nvmlDev 0 - Init COMPLETE\n")
    assert (job["inter_node_transport"], job["gdr"]) == ("ib", True)


def test_verbs_errors_of_old_versions_have_no_errno(judge):
    """Before 2.8 only the call is named."""
    log = "a:1:1 [0] misc/ibvwrap.cc:268 NCCL WARN Call to ibv_create_cq failed\na:1:1 [0] NCCL INFO transport/net_ib.cc:349 -> 2\n"
    assert judge(log)["faults"][0]["fault"] == "nccl.ib-memlock"


@pytest.mark.parametrize(
    ("one", "other", "mismatch"),
    [
        ("n1:5:9 [0]", "n2:7:9 [0]", True),
        ("n1:5:9 [0]", "n1:5:9 [32750]", False),  # a damaged device: its host is unknown
    ],
    ids=["two-hosts", "no-host"],
)
def test_hosts_that_word_a_message_differently_run_two_versions(judge, one, other, mismatch):
    """The message about a missing plugin depends on the version; a line without a host is not attributed."""
    older = other + " NCCL INFO NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file\n"
    newer = one + " NCCL INFO NET/Plugin: Using internal network plugin.\n"
    died = "n1:5:9 [0] x.cc:1 NCCL WARN Cuda failure 'invalid argument'\n"
    assert ("nccl.version-mismatch" in faults(judge(older + newer + died))) is mismatch


def test_one_version_says_two_lines_of_a_missing_plugin(judge):
    """NCCL 2.21 has both lines; one host's log may have lost one of them."""
    both = "NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)\n"
    text = f"n1:5:9 [0] {both}n2:7:9 [0] NCCL INFO NET/Plugin: Using internal network plugin.\n"
    assert "nccl.version-mismatch" not in faults(judge(text + "n1:5:9 [0] x.cc:1 NCCL WARN Cuda failure 'x'\n"))
