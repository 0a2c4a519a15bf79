"""Every variant of the catalogue matches its example and has advice: for logs and for the cluster's components."""

from __future__ import annotations

import re
from typing import Any

import pytest

from seatrial.faults.catalogue import INFRASTRUCTURE, PROGRAM, UNKNOWN, catalogue, formed, read_text, worded
from seatrial.faults.variants import Variant, fill, told_of
from tests.table import table

ALL = [(fault, each) for fault, entry in catalogue().items() for each in entry.variants]
SPOKEN = [(fault, each) for fault, each in ALL if each.who]
LIKE = [(fault, each) for fault, each in ALL if each.like]


def named(rows: list[tuple[str, Variant]]) -> Any:
    """Parametrize over these variants, named by fault and pattern."""
    return table("fault, variant", rows, ids=lambda row: f"{row[0]}-{(row[1].pattern or row[1].words)[0]}")


def test_the_cluster_s_parts_and_the_logs_have_variants() -> None:
    assert len(SPOKEN) > 80
    assert len(ALL) > 250
    assert {name for _, each in ALL for name in (*each.like, each.why, each.before) if name} <= set(catalogue())


@named(ALL)
def test_a_variant_has_its_own_advice_or_another_faults(fault: str, variant: Variant) -> None:
    """A component's message about a fault with one cause has the fault's advice."""
    own = (variant.cause, variant.confirm, variant.remedy, variant.failure)
    assert all(own) or ((variant.why or variant.like or variant.who) and not any(own[1:3]))
    assert not variant.failure or variant.remedy or variant.like
    assert variant.failure in (INFRASTRUCTURE, PROGRAM, UNKNOWN, "")
    assert bool(variant.pattern) != bool(variant.words)
    assert variant.remedy != catalogue()[fault].remedy or not variant.remedy
    assert variant.who or not (variant.before or variant.subject or variant.final)


@named(ALL)
def test_advice_is_a_command_and_what_to_do(fault: str, variant: Variant) -> None:
    """Advice never refers back to the message; a text continues after "remedy:" without a final full stop."""
    for text in (variant.confirm, variant.remedy, variant.cause or ""):
        assert not re.search(r"(?i)\bread the (?:message|error)|\s{2}|\.$", text), fault
    assert not re.match(r"[A-Z][a-z]+ (?!HTTPS)", variant.remedy)
    assert len(variant.remedy) < 320


@named(ALL)
def test_a_name_is_outside_quotes_where_it_may_need_its_own(fault: str, variant: Variant) -> None:
    """A quoted name inside quotes would end them."""
    inside = re.search(r"""["'][^"']*\{\d\}[^"']*["']""", variant.confirm)
    assert not inside or all(re.search(r"\(\[?\\w-?\]?\{", pattern) for pattern in variant.pattern), fault


@named(SPOKEN)
def test_what_a_part_says_is_known_by_its_own_variant_and_none_before(fault: str, variant: Variant) -> None:
    said = read_text(variant.who, variant.example)
    assert said is not None
    assert said.variant is not None
    assert said.variant.failure == (variant.failure or catalogue()[fault].failure)
    assert (said.why, said.variant.example) == (fault, variant.example)
    assert not re.search(r"\{\w+\}(?<!\{namespace\})", f"{said.cause} {said.variant.subject} {said.variant.remedy}")


@named(ALL)
def test_a_text_names_no_group_that_an_expression_lacks(fault: str, variant: Variant) -> None:
    named = [int(number) for number in re.findall(r"\{(\d)\}", f"{variant.cause} {variant.confirm} {variant.remedy}")]
    bare = (variant.cause or "").count("{}")
    for pattern in variant.pattern:
        assert re.compile(pattern).groups > max([*named, bare - 1], default=-1), fault
    assert variant.pattern or not named


@named(SPOKEN)
def test_a_near_miss_is_another(fault: str, variant: Variant) -> None:
    if variant.near_miss:
        said = read_text(variant.who, variant.near_miss)
        assert said is None or said.variant is None or said.variant.example != variant.example, fault


@named(LIKE)
def test_what_two_catalogues_know_has_one_text(fault: str, variant: Variant) -> None:
    """A log line has the texts of the entry that it resembles: cause, confirm, remedy and class."""
    said = formed(fault, variant.example) or worded(fault, variant.example)
    name, known = next((name, told) for name in variant.like if (told := formed(name, variant.example)))
    assert said is not None
    assert said.variant is not None
    assert known.variant is not None
    entry = catalogue()[name]
    assert said.cause == (known.cause or told_of(entry.meaning, trial=False).rstrip("."))
    assert said.variant.failure == (variant.failure or known.variant.failure or entry.failure)
    assert said.variant.remedy == fill(known.variant.remedy or entry.remedy, trial=False)
    assert said.variant.confirm == fill(known.variant.confirm or entry.confirm, trial=False)


def test_what_a_message_names_is_quoted_in_the_command() -> None:
    said = read_text("kubelet", 'secret "a; rm -rf b" not found')
    assert said is not None
    assert said.variant is not None
    assert said.variant.confirm.endswith("get secret 'a; rm -rf b'")


@pytest.mark.parametrize(
    ("where", "subject"),
    [
        ('"batch" in the namespace "ns"', "create jobs.batch in ns"),
        ('"" in the namespace "ns"', "create jobs in ns"),
        ('"batch" at the cluster scope', "create jobs.batch"),
    ],
)
def test_a_part_of_the_subject_that_is_not_said_is_left_out(where: str, subject: str) -> None:
    said = read_text("api", f'jobs is forbidden: User "u" cannot create resource "jobs" in API group {where}')
    assert said is not None
    assert said.variant is not None
    assert said.variant.subject == subject
