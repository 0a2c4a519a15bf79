"""Every row of the catalogue's symptom table is covered, or omitted with a reason."""

from __future__ import annotations

import io

from seatrial.faults.catalogue import fault_catalogue
from seatrial.logs import DIAGNOSES, conclude, read
from seatrial.logs.reader.events.symptoms import SYMPTOMS
from tests.logs.logmaker import Maker, sequential
from tests.logs.symptom_rows import INFO, ROWS, WARN, B, failing
from tests.table import table

LEFT = {
    33: "a management bond among data NICs looks like any other device; rails are judged from channel lines against the profile",
    69: "nccl-tests reduces the largest size by itself: informational, the sweep is shown with the average",
    72: "no line: a property of the table (test_nccl_tables: bandwidth that collapses with size)",
    73: "no line: N/A is null (test_nccl_tables: unchecked results)",
    74: "no line: one rank is never go (test_one_rank_proves_nothing)",
}


@table("row", ROWS)
def test_a_row_of_the_symptom_table_is_concluded(row):
    """Symptom -> fault and why, as in the catalogue; quiet rows have no fault."""
    log, fault, why = ROWS[row]
    (job,) = conclude(read([("log", io.BytesIO(log.encode()))]))
    concluded = [(item["fault"], item["why"]) for item in job["faults"]]
    if fault is None:
        assert (concluded, job["verdict"]) == ([], "go")
    else:
        assert (fault, why) in concluded, concluded
        assert job["verdict"] == "no-go"


def test_every_row_is_covered_or_left_with_a_reason():
    """The table has 75 rows."""
    assert sorted([*ROWS, *LEFT]) == list(range(1, 76))


@table("row", [row for row, (_, fault, _) in ROWS.items() if fault])
def test_one_broken_thing_is_one_fault(row):
    """Consequences are not reported as separate causes."""
    log, _, _ = ROWS[row]
    (job,) = conclude(read([("log", io.BytesIO(log.encode()))]))
    serious = [item["fault"] for item in job["faults"] if item["severity"] != "info"]
    allowed = {52: 2}  # an unused NVLink fabric and sockets are two faults
    assert len(serious) <= allowed.get(row, 1), serious


def test_one_rank_proves_nothing():
    """busbw is 0 by definition with one rank, and no data was sent: neither go nor a fault."""
    (job,) = conclude(read([("log", io.BytesIO(sequential(Maker(hosts=("a",), gpus=1, channels=0).processes())))]))
    assert (job["verdict"], job["diagnosis"], job["inter_node_transport"], job["socket_fallback"]) == (
        "inconclusive",
        "single-rank",
        "none",
        False,
    )


def test_a_fault_says_what_confirms_it_and_what_fixes_it():
    """Every entry has title, severity, meaning, confirmation, remedy and source; ids are stable."""
    for ident, entry in fault_catalogue().items():
        assert ident.startswith("nccl.")
        assert all((entry.title, entry.meaning, entry.confirm, entry.remedy, entry.source)), ident
        assert entry.severity in ("fatal", "degraded", "info")


def test_every_symptom_mentions_a_fault_of_the_catalogue():
    """Every pattern's fault is in the catalogue; consequences are never reported."""
    unknown = {item.fault for item in SYMPTOMS if item.role not in ("benign", "consequence")} - set(fault_catalogue())
    assert unknown == set()


def test_the_names_that_others_rely_on_exist():
    """Checks and scenarios use the names of faults."""
    assert {
        "nccl.socket-fallback",
        "nccl.mixed-transport",
        "nccl.gdr-off",
        "nccl.gdr-mixed",
        "nccl.rail-missing",
        "nccl.hang",
        "nccl.crash",
        "nccl.log-truncated",
        "nccl.wrong-results",
        "nccl.version-mismatch",
        "nccl.no-evidence",
        "nccl.low-bandwidth",
        "nccl.wrong-fabric",
    } <= set(fault_catalogue())
    assert len(set(DIAGNOSES)) == len(DIAGNOSES)


def test_the_evidence_of_a_fault_is_a_line_that_can_be_found():
    """Evidence has file, line number and text of the log."""
    log = ROWS[45][0]
    (job,) = conclude(read([("job.log", io.BytesIO(log.encode()))]))
    (item,) = job["faults"][0]["evidence"]
    assert item["file"] == "job.log"
    assert log.splitlines()[item["line"] - 1] == item["text"]


def test_the_first_cause_wins_over_later_ones():
    """The first warning before the first error trace is the cause; later messages of other ranks are not."""
    log = (
        failing("Call to posix_fallocate failed : No space left on device")
        + f"\n{B}{WARN}Call to ibv_modify_qp failed with error Connection timed out\n{B}{INFO}init.cc:1 -> 2\n"
    )
    (job,) = conclude(read([("log", io.BytesIO(log.encode()))]))
    assert [item["fault"] for item in job["faults"]] == ["nccl.shm-full"]
