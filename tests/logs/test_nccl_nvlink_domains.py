"""Hosts of one NVLink domain are one node to NCCL (line forms: NVIDIA/nccl init.cc, p2p.cc, mnnvl.cc)."""

import pytest

HEAD = "tray-{host}:{pid}:{pid} [{gpu}] NCCL INFO "


def job_of(hosts=2, gpus=2, network="Socket", channels=True, end="Init COMPLETE"):
    """Return the log of a job on the trays of a rack."""
    ranks, out = hosts * gpus, []
    for rank in range(ranks):
        head = HEAD.format(host=rank // gpus, pid=100 + rank, gpu=rank % gpus)
        texts = [
            "NCCL version 2.28.9+cuda13.0",
            f"Using network {network}",
            "MNNVL busId 0x801000 fabric UUID 1122334455667788.99aabbccddeeff00 cliqueId 0x5 state 3 healthMask 0xaa",
            f"MNNVL 1 cliqueId 5 cliqueSize {ranks} cliqueRank {rank}",
            f"comm 0x55{rank:04x} rank {rank} nRanks {ranks} nNodes 1 localRanks {ranks} localRank {rank} MNNVL 1",
            f"ncclCommInitRank comm 0x55{rank:04x} rank {rank} nranks {ranks} cudaDev {rank % gpus} nvmlDev {rank % gpus} busId 801000 commId 0x1234 - {end}",
        ]
        if channels:  # only the sender prints a peer-to-peer channel
            following = (rank + 1) % ranks
            texts += [
                f"Channel {number:02d}/0 : {rank}[{rank % gpus}] -> {following}[{following % gpus}] via P2P/MNNVL"
                for number in range(2)
            ]
            texts.append("Connected all rings, use ring PXN 0 GDR 1")
        out += [head + text for text in texts]
    return "\n".join(out) + "\n"


def test_a_sender_answers_for_both_ends(judge):
    """Receivers print no line, so only one side is visible."""
    job = judge(job_of())
    assert (job["verdict"], job["diagnosis"], job["ranks"], job["nodes"]) == ("go", "healthy-nvlink-fabric", 4, 2)
    assert {(pair["direction"], pair["gdr"]) for pair in job["pairs"]} == {("both", None)}


def test_the_network_with_it_is_no_fallback(judge):
    """A rank names a network that carries no data."""
    job = judge(job_of(network="Socket", channels=False))
    assert (job["inter_node_transport"], job["socket_fallback"], job["verdict"]) == ("mnnvl", False, "inconclusive")


def test_one_tray_of_several_is_not_the_whole_job(judge):
    """nNodes 1 counts the domain, so one host's log does not show the number of hosts."""
    job = judge("".join(line + "\n" for line in job_of().splitlines() if line.startswith("tray-0")))
    assert (job["nodes"], job["verdict"]) == (None, "inconclusive")


def test_one_tray_alone_is_one_host(judge):
    """NCCL_MNNVL_ENABLE=1 prints MNNVL inside a host, too."""
    job = judge(job_of(hosts=1, gpus=4))
    assert (job["nodes"], job["inter_node_transport"]) == (1, "none")


def test_a_few_ranks_of_one_host_without_mnnvl_are_no_nvlink_domain(judge):
    """NCCL counts one node and prints no MNNVL: it is one host without a known fabric."""
    lines = [line + "\n" for line in job_of(hosts=1, gpus=8, channels=False).splitlines() if "clique" not in line]
    job = judge("".join(line.replace("MNNVL 1", "MNNVL 0") for line in lines if ":100:" in line or ":101:" in line))
    assert (job["nodes"], job["ranks"], job["inter_node_transport"]) == (1, 8, "none")
    assert job["verdict"] == "inconclusive"


def test_more_than_half_of_the_ranks_on_a_tray_leave_none_for_another(judge):
    """Trays have equal numbers of ranks; the missing rank still prevents a proof."""
    lines = [line + "\n" for line in job_of(hosts=1, gpus=4).splitlines()]
    job = judge("".join(line for line in lines if ":103:" not in line))
    assert (job["nodes"], job["inter_node_transport"], job["verdict"]) == (1, "none", "inconclusive")
    job = judge("".join(line for line in lines if ":103:" not in line and ":102:" not in line))
    assert (job["nodes"], job["inter_node_transport"]) == (None, "mnnvl")


@pytest.mark.parametrize(
    "text", ["Cuda failure 801 'operation not supported'", "Cuda failure 'operation not supported'"]
)
def test_memory_of_another_tray_that_cannot_be_mapped_is_an_imex_fault(judge, text):
    """The channel exists, but the container's GPUs are in no IMEX domain: p2p.cc fails, and the GPU is not at fault."""
    warn = f"\n[2026-01-01 00:00:00] tray-0:100:100 [0] transport/p2p.cc:281 NCCL WARN {text}\ntray-0:100:100 [0] NCCL INFO transport/p2p.cc:340 -> 1\n"
    job = judge(job_of() + warn)
    assert [fault["fault"] for fault in job["faults"]] == ["nccl.mnnvl-failed"]


def test_the_same_failure_without_a_domain_is_a_cuda_failure(judge):
    """Near miss: inside one host, peer-to-peer failed for another reason."""
    warn = "gpu-node-0:1:1 [0] transport/p2p.cc:281 NCCL WARN Cuda failure 801 'operation not supported'\n"
    assert judge(warn)["faults"][0]["fault"] == "nccl.cuda-failure"
