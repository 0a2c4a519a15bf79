"""Names in a verdict's sentence and causes: the right hosts, each cause once, and no text of another fault."""

from types import SimpleNamespace
from typing import NamedTuple

import pytest

from seatrial.logs.job.sizes import most_on_one_host
from tests.logs.logmaker import Maker, sequential, table_of
from tests.logs.symptom_rows import INFO, STARTED, WARN, A

MAKER = Maker()


def log_of(maker):
    return sequential(maker.processes()).decode() + "\n".join(table_of(maker)) + "\n"


@pytest.mark.parametrize("host", MAKER.hosts)
def test_hosts_without_gpudirect_are_reported_with_those_that_have_it(judge, host):
    """nccl.gdr-mixed: with the usual missing part, unless a line gives the reason."""
    other = next(each for each in MAKER.hosts if each != host)
    job = judge(log_of(Maker(no_gdr_hosts=(host,))))
    (fault,) = [each for each in job["faults"] if each["fault"] == "nccl.gdr-mixed"]
    assert fault["subject"] == host
    told = f"no channel of {host} has GPUDirect, those of {other} have it: nvidia-peermem, or DMA-BUF, is missing on the former"
    assert fault["cause"] == told
    assert told in job["sentence"]


@pytest.mark.parametrize("host", MAKER.hosts)
def test_two_versions_are_one_fault_whoever_shows_it(judge, host):
    """nccl.version-mismatch is reported by NCCL's warning, by the ranks' versions, or by both, on the minority of
    ranks."""
    lines = sequential(MAKER.processes()).decode().splitlines(keepends=True)
    two = "".join(line.replace("2.28.9", "2.27.5") if line.startswith(host) else line for line in lines)
    warned = f"{A}{WARN}Mismatched NCCL version detected : rank 0 version 22809 rank 2 version 22705\n"
    for log in (two, two + warned):
        faults = [each for each in judge(log)["faults"] if each["fault"] == "nccl.version-mismatch"]
        assert len(faults) == 1
        assert "2.27.5 on" in faults[0]["cause"]
        assert "2.28.9 on" in faults[0]["cause"]
    assert not [each for each in judge("".join(lines))["faults"] if each["fault"] == "nccl.version-mismatch"]


@pytest.mark.parametrize(
    "said",
    [
        "misc/ibvwrap.cc:190 NCCL WARN Call to ibv_create_qp failed",
        "misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-abc to 33030532 bytes",
    ],
)
def test_only_a_fall_back_to_sockets_is_reported_as_one(judge, said):
    """A log without a channel between hosts may have other faults, with their own sentences."""
    job = judge(f"{STARTED}\n{A}{said}\n{A}{INFO}init.cc:903 -> 2\n")
    assert job["verdict"] == "no-go"
    assert "TCP" not in job["sentence"]


class Seen(NamedTuple):
    """A process, as far as its devices are read."""

    number: int
    devs: frozenset[int]


@pytest.mark.parametrize(
    ("devices", "ranks", "one"),
    [
        ([range(5)], 8, True),
        ([range(4)], 8, False),  # half of them: another host may have as many
        ([range(8)], 8, True),
        ([range(5), range(5)], 8, False),
        ([range(5), range(3)], 8, False),
        ([range(5)], 0, False),
        ([[-1, 0]], 1, True),  # a process without a device
        ([], 8, False),
    ],
)
def test_a_host_holds_a_whole_job_where_it_has_more_than_half_of_it_and_no_other_is_seen(devices, ranks, one):
    """Hosts have equal numbers of devices, so a second one would hold as many ranks. Two visible hosts are two."""
    procs = [Seen(number, frozenset(each)) for number, each in enumerate(devices)]
    job = SimpleNamespace(procs=procs, node_of={proc: f"host-{proc.number}" for proc in procs})
    assert most_on_one_host(job, ranks) is one
