"""Ranks whose watchdogs show another operation, or another size, under one number."""

from __future__ import annotations

import pytest

from seatrial.logs.hang import watchdog
from seatrial.logs.hang.decide import decide
from seatrial.logs.hang.model import Evidence
from tests.table import table


def line(rank: int, operation: str, size: int, number: int = 7, group: str = "", own: int | None = None) -> str:
    where = f"PG ID 1 PG GUID 0({group}) " if group else ""
    return (
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:607] [{where}Rank {rank if own is None else own}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum={number}, OpType={operation}, NumelIn={size}, NumelOut={size}, "
        "Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
    )


def decided(*lines: str):
    evidence = Evidence()
    watchdog.read(evidence, "log", enumerate(lines, 1))
    return decide(evidence)


def test_the_one_rank_in_another_operation_is_named():
    made = decided(line(0, "ALLREDUCE", 64), line(1, "ALLGATHER", 1), line(2, "ALLREDUCE", 64))
    assert (made.kind, made.late, made.waiting) == ("mismatch", {1}, {0, 2})
    assert "1 rank called ALLGATHER (NumelIn=1, NumelOut=1), 2 ranks called ALLREDUCE" in made.called


def test_of_two_sides_none_is_at_fault():
    made = decided(line(0, "BROADCAST", 64), line(1, "BROADCAST", 32))
    assert (made.kind, made.proven, made.late) == ("mismatch", True, set())


@table(
    "lines",
    [
        (line(0, "ALLREDUCE", 64), line(1, "ALLREDUCE", 64)),
        (line(0, "ALLREDUCE", 64), line(1, "ALLGATHER", 1, number=8)),  # another place
        (line(0, "ALLREDUCE", 64), line(2, "ALLGATHER", 1, own=1)),  # a separate group
        (line(0, "ALLREDUCE", 64), line(1, "ALLGATHER", 1), line(2, "ALLGATHER", 1, number=9)),  # several groups
        (line(0, "ALLTOALL_BASE", 64), line(1, "ALLTOALL_BASE", 32)),  # uneven splits are allowed
        (line(0, "SEND", 64), line(1, "RECV", 32)),
        (line(0, "ALLREDUCE", 64, group="tp"), line(1, "ALLGATHER", 1, group="dp")),
        (line(0, "ALLREDUCE", 64, group="tp"), line(1, "ALLGATHER", 1, group="tp")),  # several groups share this name
        (line(0, "ALLREDUCE", 64), line(0, "ALLGATHER", 1)),  # one rank, twice
    ],
)
def test_what_may_be_right_is_no_mismatch(lines):
    assert decided(*lines).kind == "undecided"


def test_in_the_group_of_all_ranks_numbers_are_one():
    made = decided(line(0, "ALLREDUCE", 64, group="default_pg"), line(1, "REDUCE", 64, group="default_pg"))
    assert made.kind == "mismatch"


def gave_up(rank, number, group="0(default_pg)"):
    """Return the time-out message of torch 2.8 and later: only the second line has the group."""
    front = f"[rank{rank}]:[E1122 17:10:58.084077512 ProcessGroupNCCL.cpp"
    work = f"WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000)"
    return (
        f"{front}:689] [Rank {rank}] Watchdog caught collective operation timeout: {work} ran for 600071 milliseconds\n"
        f"{front}:2303] [PG ID 0 PG GUID {group} Rank {rank}]  failure detected by watchdog at work sequence id: {number} "
        f"PG status: last enqueued work: {number}, last completed work: {number - 1}\n"
    )


@pytest.mark.parametrize(("group", "late"), [("3(tp)", []), ("0(default_pg)", [0])])
def test_numbers_of_different_groups_are_not_compared(explain, tmp_path, group, late):
    """Each group counts its own operations; near miss: one group, in which rank 0 is behind the others."""
    text = gave_up(0, 5, group) + "".join(gave_up(rank, 9) for rank in (4, 5, 6))
    (tmp_path / "job.log").write_text(text)
    _, job = explain(tmp_path / "job.log")
    assert job["late_ranks"] == late, job["sentence"]
    assert "those at the lower number" not in job["sentence"]
