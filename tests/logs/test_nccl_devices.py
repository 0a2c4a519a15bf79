"""NCCL's reports about network devices, paths inside a host, and the stated job size."""

import itertools
import re

import pytest

from seatrial.logs.job_document import Expected
from tests.logs.logmaker import Maker, sequential

DEVICE = (
    "NET/IB: [%d] %s:uverbs%d:1/%s provider=Mlx5 speed=%d context=0x7f2f80001010 pciPath=/sys/devices/pci0000:15 ar=1"
)


def job_log(maker, *, speeds=None, disabled=(), link=None):
    """Return a job in which each process also prints a line per device; `speeds` and `disabled` are keyed by (host,
    device)."""
    lines = []
    for (host, pid), printed in maker.processes().items():
        head = f"{host}:{pid}:{pid} [0] NCCL INFO "
        for device in range(maker.rails):
            speed = (speeds or {}).get((host, device), 400000)
            lines.append(head + DEVICE % (device, f"mlx5_{device}", device, link or maker.link, speed))
        lines += printed
        for device in range(maker.rails):
            state = "Disabled" if (host, device) in disabled else "Enabled"
            lines.append(f"{head}NET/IB : GPU Direct RDMA {state} for HCA {device} 'mlx5_{device}'")
    return "\n".join(lines) + "\n"


MAKER = Maker(gpus=4, rails=4, channels=4)
FIRST, SECOND = MAKER.hosts


def test_devices_at_one_rate_with_gpudirect_are_go(judge):
    assert judge(job_log(MAKER))["verdict"] == "go"


def faults(job):
    return [(fault["fault"], fault["subject"]) for fault in job["faults"]]


def test_a_port_below_its_neighbours_is_named_with_both_rates(judge):
    job = judge(job_log(MAKER, speeds={(SECOND, 0): 100000}))
    assert (job["verdict"], faults(job)) == ("no-go", [("nccl.port-rate", SECOND)])
    assert "mlx5_0:1 at 100 Gb/s (expected 400 Gb/s" in job["sentence"]


@pytest.mark.parametrize(("slow", "verdict"), [(1, "no-go"), (3, "no-go"), (4, "inconclusive"), (7, "inconclusive")])
def test_where_half_of_the_ports_are_slower_no_host_is_at_fault(judge, slow, verdict):
    """Two hosts of two generations, or one of eight cables left: only a profile knows the intended rate."""
    ports = [(host, device) for host in reversed(MAKER.hosts) for device in range(4)][:slow]
    job = judge(job_log(MAKER, speeds=dict.fromkeys(ports, 200000)))
    assert (job["verdict"], {name for name, _ in faults(job)}) == (verdict, {"nccl.port-rate"})
    assert "at 200 Gb/s (expected 400 Gb/s" in job["sentence"]


def test_a_slow_port_that_carries_no_channel_is_not_at_fault(judge):
    """A storage NIC is listed with the rails."""
    maker = Maker(gpus=4, rails=5, channels=4)
    used = {device for host in judge(job_log(maker))["hosts"] for rail in host["rails"].values() for device in rail}
    idle = next(device for device in range(5) if f"mlx5_{device}:1" not in used)
    assert judge(job_log(maker, speeds={(host, idle): 25000 for host in maker.hosts}))["verdict"] == "go"


def test_ports_below_the_rate_of_the_profile_are_named_on_every_host(judge):
    slow = {(host, device): 200000 for host in MAKER.hosts for device in range(4)}
    job = judge(job_log(MAKER, speeds=slow), expect=Expected(device_gbit_s=400))
    assert (job["verdict"], {name for name, _ in faults(job)}) == ("no-go", {"nccl.port-rate"})
    assert {subject for _, subject in faults(job)} == set(MAKER.hosts)
    assert judge(job_log(MAKER, speeds=slow), expect=Expected(device_gbit_s=200))["verdict"] == "go"


def test_gpudirect_that_is_disabled_for_one_device_is_no_go_ahead(judge):
    """The visible ranks' channels may avoid it."""
    job = judge(job_log(MAKER, disabled={(FIRST, 3)}))
    assert (job["verdict"], faults(job)) == ("inconclusive", [("nccl.gdr-hca-off", FIRST)])
    assert "disabled for mlx5_3 and as enabled for mlx5_0" in job["sentence"]


def test_a_device_of_another_link_type_needs_no_gpudirect(judge):
    bond = f"{FIRST}:1000:1000 [0] NCCL INFO "
    extra = bond + DEVICE % (4, "mlx5_bond_0", 4, "RoCE", 25000) + "\n"
    extra += bond + "NET/IB : GPU Direct RDMA Disabled for HCA 4 'mlx5_bond_0'\n"
    assert judge(job_log(MAKER) + extra)["verdict"] == "go"


def test_the_link_type_of_a_device_line_is_used_where_no_list_is(judge):
    listed = "\n".join(line for line in job_log(MAKER, link="RoCE").splitlines() if "NET/IB : Using" not in line)
    assert judge(listed + "\n")["inter_node_transport"] == "roce"


@pytest.mark.parametrize("gpus", [1, 4])
def test_channels_alone_do_not_state_the_size_of_a_job(judge, gpus):
    """The rest of a larger job's log may close a ring like a small job."""
    maker = Maker(gpus=gpus, rails=gpus, channels=4)
    whole = sequential(maker.processes()).decode()
    kept = [line for line in whole.splitlines() if "nranks" not in line.lower() and " : " in line and "->" in line]
    devices = [line for line in whole.splitlines() if "NET/IB" in line or "Using network" in line]
    job = judge("\n".join([*devices, *kept]) + "\n")
    assert (judge(whole)["verdict"], job["verdict"]) == ("go", "inconclusive")
    assert "no line shows how many ranks the job has" in job["sentence"]


def through_memory(log, few):
    """Return the log with some or all of the channels inside hosts through shared memory."""
    ways = itertools.chain(itertools.repeat(None, few), itertools.repeat("via SHM/direct/direct"))
    return re.sub("via P2P.*", lambda match: next(ways) or match[0], log)


@pytest.mark.parametrize("direct", [0, 1, -1])
def test_a_profile_that_expects_p2p_takes_no_channel_through_shared_memory(judge, direct):
    """One such channel is enough, as in accept's single-node jobs."""
    log = job_log(MAKER)
    all_direct = log.count("via P2P")
    some = through_memory(log, direct % all_direct)
    job = judge(some, expect=Expected(intra_node="p2p"))
    assert (job["verdict"], [name for name, _ in faults(job)]) == ("no-go", ["nccl.p2p-off"])
    assert judge(log, expect=Expected(intra_node="p2p"))["verdict"] == "go"
    assert judge(some, expect=Expected(intra_node="shm"))["verdict"] == "go"
