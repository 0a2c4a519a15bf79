"""Every variant of a log fault matches its own example, as the reader shows it."""

from __future__ import annotations

from seatrial.faults.catalogue import fault_catalogue, formed
from seatrial.faults.lines import read_lines
from seatrial.faults.variants import Variant
from seatrial.logs.reader.events.symptoms import classify
from seatrial.logs.reader.lines.clean import printable
from tests.logs.test_nccl_causes import judged
from tests.table import table

ALL = [(fault, each) for fault, entry in fault_catalogue().items() for each in entry.variants if not each.who]
"""Variants of lines; those of a component's messages are in tests/jobs/test_fault_variants.py."""
LINED = {line.fault for line in read_lines()}
variants = table("fault, variant", ALL, ids=lambda row: f"{row[0]}-{(row[1].pattern or row[1].words)[0]}")


def told(fault: str, text: str) -> Variant | None:
    """Return the variant of a fault for a line, without the names that its advice took from the line."""
    own = fault_catalogue()[fault].variants
    return next((v for v in own if v.of_form(text)), None) or next((v for v in own if v.of_words(text)), None)


def test_every_variant_is_of_a_fault_of_the_catalogue():
    assert len(ALL) > 150
    assert {each.why for _, each in ALL if each.why} <= set(fault_catalogue())
    assert len({(fault, each.example) for fault, each in ALL}) == len(ALL)


@variants
def test_a_variant_fits_its_example_and_none_before_it_does(fault, variant):
    """The example is shown as by the reader: a redacted word must not be needed to recognise the line.

    A fault without lines is recognised by the job's end; channels alone do not make a job (test_nccl_undeserved_go.py).
    """
    shown = printable(variant.example)
    if fault in LINED:
        symptom = classify(variant.example.encode())
        assert symptom is not None
        assert symptom.fault == fault
    elif " via " not in variant.example:
        assert judged(variant.example + "\n")["faults"][0]["fault"] == fault
    assert told(fault, shown) is variant


@variants
def test_a_near_miss_is_another(fault, variant):
    if variant.near_miss:
        assert told(fault, printable(variant.near_miss)) is not variant


def test_what_the_line_names_is_quoted_in_the_command():
    (fault,) = judged("modprobe: FATAL: Module nvidia-uvm not found in directory /lib/modules/6.8.0\n")["faults"]
    assert fault["confirm"].startswith("modinfo nvidia-uvm; ")
    said = formed("nccl.file-access", "FileNotFoundError: [Errno 2] No such file or directory: '/a; rm -rf b'")
    assert said is not None
    assert said.variant is not None
    assert said.variant.confirm.startswith("ls -ld '/a; rm -rf b'; ")


def test_names_that_only_look_like_places_stay():
    assert "{.status.capacity}" in next(
        each.confirm for each in fault_catalogue()["nccl.no-gpu"].variants if "unhealthy devices" in each.words
    )
