"""NVIDIA's Xids are in one table, used by the log reader, the checks and quoted lines."""

from __future__ import annotations

from jobs.diagnosis.around import only_of_programs
from seatrial.faults.catalogue import catalogue
from seatrial.faults.xid import xids
from seatrial.logs.diagnosis.quotes import meant
from seatrial.logs.reader.events.symptoms import classify
from tests.table import table

ACTIONS = {"none", "restart app", "reset GPU", "reboot", "workflow"}
LINE = "NVRM: Xid (PCI:0000:3b:00): {}, pid=1, name=python, GPU Reset Required"


def test_every_row_has_a_meaning_and_an_action_of_nvidias_catalogue() -> None:
    assert len(xids()) > 35
    assert {row.action for row in xids().values()} == ACTIONS
    assert all(row.meaning for row in xids().values())
    assert {name for row in xids().values() for name in (row.check, row.log) if name} <= set(catalogue())


@table("number", range(1, 200))
def test_the_reader_of_the_pods_knows_the_xids_of_the_table_and_no_others(number: int) -> None:
    """The pods cannot read the table, so the reader's numbers are compared with it."""
    symptom = classify(LINE.format(number).encode())
    fault = symptom.fault if symptom is not None and symptom.role == "cause" else ""
    assert fault == (xids()[number].log if number in xids() else "")


@table("number", sorted(xids()))
def test_a_quoted_line_says_what_the_number_means(number: int) -> None:
    assert xids()[number].meaning in meant(LINE.format(number))
    assert not meant(LINE.format(200 + number))


def test_no_xid_that_a_program_brings_about_is_a_broken_gpu() -> None:
    rows = xids().values()
    assert {row.code for row in rows if row.program} == {13, 31, 43, 45}
    assert not [row.code for row in rows if row.program and (row.check or row.log)]
    assert {row.code for row in rows if row.check} == {
        *(row.code for row in rows if row.action in ("reset GPU", "reboot")),
        48,
        74,
    }
    assert only_of_programs("Xid 13, then Xid 31")
    assert not only_of_programs("Xid 13, then Xid 79")
    assert not only_of_programs("no number")
