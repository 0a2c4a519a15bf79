"""Jobs with split communicators, as in Megatron: tensor groups inside hosts, the others across hosts."""

from __future__ import annotations

import pytest

from tests.logs.logmaker import interleaved, sequential

HOSTS = ("gpu-7", "gpu-9")
GPUS = 8
BAD = 11  # a rank of the second host


def groups_of(rank, tensor):
    """Return the groups of a rank (ncclCommSplit's count, and the members): one inside its host, two across hosts."""
    first = rank // tensor * tensor
    return [
        (1 + first // tensor, list(range(first, first + tensor))),
        (20 + rank % GPUS, [rank % GPUS, rank % GPUS + GPUS]),  # data parallel
        (40 + min(rank, rank ^ 12), sorted((rank, rank ^ 12))),  # pipeline
    ]


def edges(rank, members, fault):
    """Return a rank's channel lines in a group's ring of two channels, as NCCL 2.28.9 prints them."""
    own, size, device = members.index(rank), len(members), rank % GPUS
    lines = []
    for channel in range(2):
        for src, dst in (((own - 1) % size, own), (own, (own + 1) % size)):
            one, other = members[src], members[dst]
            text = f"Channel {channel:02d}/0 : {src}[{one % GPUS}] -> {dst}[{other % GPUS}] "
            if one // GPUS != other // GPUS:
                way = f"NET/IB/{device}" + ("" if (fault, rank) == ("gdr", BAD) else "/GDRDMA")
                way = "NET/Socket/0" if (fault, rank) == ("socket", BAD) else way
                lines.append(f"{text}[{'receive' if dst == own else 'send'}] via {way}")
            elif src == own:  # only the sender prints a channel inside a host
                off = fault == "shm" or (fault in ("p2p", "p2p-env") and rank >= GPUS)
                lines.append(text + ("via SHM/direct/direct" if off else "via P2P/CUMEM/read"))
    return [*lines, "Connected all rings, use ring PXN 0 GDR 1"]


def network(rank, fault):
    if (fault, rank) == ("socket", BAD):
        return ["NET/IB : No device found.", "NET/Socket : Using [0]eth0:10.0.0.2<0>", "Using network Socket"]
    devices = " ".join(f"[{index}]mlx5_{index}:1/IB" for index in range(GPUS))
    return [f"NET/IB : Using {devices} [RO]; OOB eth0:10.0.0.{rank // GPUS + 1}<0>", "Using network IB"]


def megatron(fault="", tensor=4, world=False):
    """Return the logs of sixteen ranks; ``world``: their common communicator is also used."""
    made = {}
    for rank in range(len(HOSTS) * GPUS):
        host, device = HOSTS[rank // GPUS], rank % GPUS
        said = ["NCCL_P2P_DISABLE set by environment to 1."] if fault == "p2p-env" and rank >= GPUS else []
        said += ["NCCL version 2.28.9+cuda13.0", *network(rank, fault)]
        start = f"comm 0x55{rank:05x} rank {rank} nranks 16 cudaDev {device} nvmlDev {device} busId 60"
        said.append(f"ncclCommInitRankConfig {start} commId 0xfc119181e70bb2ba - Init START")
        said.append(f"ncclCommInitRankConfig {start} commId 0xfc119181e70bb2ba - Init COMPLETE")
        said += edges(rank, list(range(16)), fault) if world else []
        for number, (count, members) in enumerate(groups_of(rank, tensor)):
            part = f"ncclCommSplit comm 0x{number + 6}5{rank:05x} rank {members.index(rank)} nranks {len(members)} "
            part += f"cudaDev {device} nvmlDev {device} busId 60 parent 0x55{rank:05x} splitCount {count} color 7{count} key 0"
            said += [*network(rank, fault), f"{part}- Init START", f"{part} - Init COMPLETE"]
        for _, members in groups_of(rank, tensor):
            said += edges(rank, members, fault)
        made[host, 2000 + rank] = [f"{host}:{2000 + rank}:{2000 + rank} [{device}] NCCL INFO {text}" for text in said]
    return made


@pytest.mark.parametrize("world", [True, False])
@pytest.mark.parametrize("tensor", [2, 8])
def test_a_healthy_job_of_split_groups_is_go(judge, tensor, world):
    for log in (sequential(megatron("", tensor, world)), interleaved(megatron("", tensor, world), 7)):
        job = judge(log)
        assert (job["verdict"], job["ranks"], job["nodes"], job["gdr"], job["faults"]) == ("go", 16, 2, True, [])


@pytest.mark.parametrize("world", [True, False])
@pytest.mark.parametrize(
    ("fault", "expected", "subject"),
    [
        ("socket", "nccl.mixed-transport", "gpu-9 (rank 11)"),
        ("gdr", "nccl.gdr-mixed", "gpu-9"),
        ("p2p", "nccl.p2p-off", "gpu-9"),
        ("p2p-env", "nccl.p2p-off", "gpu-9"),
    ],
)
def test_one_fault_in_split_groups_is_named_on_its_host(judge, fault, expected, subject, world):
    for log in (sequential(megatron(fault, 4, world)), interleaved(megatron(fault, 4, world), 7)):
        job = judge(log)
        assert [(each["fault"], each["subject"]) for each in job["faults"]] == [(expected, subject)]
        assert ("NCCL_P2P_DISABLE=1 is set here" in job["sentence"]) == (fault == "p2p-env")


def test_a_rank_that_shows_only_its_own_host_leaves_the_job_unproven(judge):
    """Sixteen ranks show channels, but four of them, in groups not yet connected, show none to the other host."""
    made = megatron()
    for host, pid in (("gpu-7", 2003), ("gpu-7", 2007), ("gpu-9", 2011), ("gpu-9", 2015)):
        made[host, pid] = [line for line in made[host, pid] if " via NET/" not in line]
    job = judge(sequential(made))
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "shown-in-part")
    assert "not every rank shows how it reaches the other hosts" in job["sentence"]


def test_hosts_of_other_sizes_or_cut_logs_are_not_compared(judge):
    """Shared memory between the only two visible ranks may connect two CPUs."""
    made = megatron("p2p")
    for rank in range(10, 16):
        made["gpu-9", 2000 + rank] = [line for line in made["gpu-9", 2000 + rank] if " via " not in line]
    assert "nccl.p2p-off" not in {fault["fault"] for fault in judge(sequential(made))["faults"]}


@pytest.mark.parametrize(
    ("link", "setting", "named"),
    [
        (
            "                                            + NVL[240.0] - NVS/0",
            "NCCL_P2P_DISABLE set by environment to 1.",
            True,
        ),
        ("NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)", "", True),
        # PCIe only, with any setting; a virtual machine without a link
        (
            "NVLS multicast support is not available on dev 0 (NVLS_NCHANNELS 0)",
            "NCCL_P2P_DISABLE set by environment to 1.",
            False,
        ),
        ("              + PCI[24.0] - GPU/7000 (0)", "", False),
    ],
)
def test_shared_memory_on_all_hosts_is_a_fault_where_nvlink_connects_the_gpus(judge, link, setting, named):
    made = megatron("shm", 2)
    for (host, pid), lines in made.items():
        lines[:0] = [f"{host}:{pid}:{pid} [0] NCCL INFO {text}" for text in (link, setting) if text]
    job = judge(sequential(made))
    faults = [(fault["fault"], fault["subject"]) for fault in job["faults"]]
    assert faults == ([("nccl.p2p-off", "gpu-7"), ("nccl.p2p-off", "gpu-9")] if named else [])
    assert job["verdict"] == ("no-go" if named else "go")
    assert ("NCCL_P2P_DISABLE=1 is set here" in job["sentence"]) == (named and bool(setting))
