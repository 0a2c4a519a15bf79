"""The node action of a finding is a term of a closed set, given by the catalogue."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.faults.actions import IN_WORDS, Action, heaviest, in_words, weight
from seatrial.faults.catalogue import PROGRAM, catalogue, fault_of
from seatrial.faults.codes import dcgm_action
from seatrial.faults.xid import action_in, action_of, xids
from tests.table import table

ACTED = [fault for fault in catalogue().values() if fault.action or fault.actions]
ENTRY: dict[str, Any] = {"title": "T", "meaning": "m", "confirm": "c", "remedy": "r", "source": "s"}


def test_the_actions_are_six_from_the_lightest_to_the_heaviest() -> None:
    order = ["NONE", "RESTART_APP", "UNKNOWN", "RESET_GPU", "REBOOT_NODE", "CONTACT_SUPPORT"]
    assert [str(action) for action in sorted(Action, key=weight)] == order
    assert IN_WORDS.keys() == set(Action)
    for lighter, heavier in itertools.pairwise(order):
        assert heaviest([heavier, lighter, "", "green"]) == heaviest([lighter, heavier]) == heavier


@given(st.text())
def test_any_other_word_is_no_action(word: str) -> None:
    if word not in {str(action) for action in Action}:
        assert (heaviest([word]), in_words(word), weight(word)) == (None, "", -1)


@pytest.mark.parametrize(
    ("numbers", "action"),
    [
        ((43, 44, 63), "NONE"),
        ((13, 31, 94), "RESTART_APP"),
        ((48, 54, 74, 154), "UNKNOWN"),
        ((46, 64, 95, 119, 140), "RESET_GPU"),
        ((79, 151), "REBOOT_NODE"),
    ],
)
def test_an_xid_has_the_action_of_nvidias_catalogue(numbers: tuple[int, ...], action: str) -> None:
    assert {str(action_of(number)) for number in numbers} == {action}


def test_every_xid_of_the_table_has_an_action() -> None:
    assert {action_of(number) for number in xids()} == set(Action) - {Action.CONTACT_SUPPORT}


@given(st.one_of(st.integers(), st.none(), st.text(), st.floats(), st.booleans()))
def test_a_number_that_the_table_lacks_has_no_invented_action(number: object) -> None:
    if number not in set(xids()):
        assert action_of(number) is Action.UNKNOWN


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("XidError GpuUnhealthy=True (XidError: XID 79 on GPU 3)", "REBOOT_NODE"),
        ("NVRM: Xid (PCI:0000:9d:00): 31, then Xid 119", "RESET_GPU"),
        ("Xid 999", "UNKNOWN"),
        ("xids are counted", None),
        ("a GPU has fallen off the bus", None),
    ],
)
def test_a_text_has_the_heaviest_action_of_its_xids(text: str, action: str | None) -> None:
    assert action_in(text) == action


@table("fault", ACTED, ids=lambda fault: fault.id)
def test_an_action_of_the_catalogue_is_a_nodes_and_has_a_source(fault: Any) -> None:
    """A fault of a queue, a network or a program has no node action, and a term is never invented."""
    assert fault.id.partition(".")[0] in ("gpu", "nodes", "runtime") or fault.id.startswith(
        ("nccl.gpu-", "nccl.nvlink-")
    )
    assert fault.failure != PROGRAM
    assert {fault.action, *fault.actions.values()} <= set(Action)
    assert fault.action
    assert fault.action_source.startswith(("https://docs.nvidia.com/", "github.com/NVIDIA/"))
    for observed, action in fault.actions.items():
        assert fault.action_for(f"first; {observed} (and more)") == action


def test_faults_of_gpus_that_are_no_xid_have_an_action() -> None:
    asked = {fault.id: fault.action for fault in ACTED}
    assert asked["gpu.row-remap"] == asked["gpu.ecc"] == asked["gpu.nvlink-down"] == Action.RESET_GPU
    assert asked["gpu.remap-failed"] == Action.CONTACT_SUPPORT
    assert asked["gpu.off-bus"] == Action.REBOOT_NODE
    assert asked["gpu.dcgm-failed"] == asked["gpu.missing"] == Action.UNKNOWN


@table(
    "fault, observed, action",
    [
        ("gpu.recovery-needed", "the driver recommends: Reset", "RESET_GPU"),
        ("gpu.recovery-needed", "the driver recommends: Drain and Reset", "RESET_GPU"),
        ("gpu.recovery-needed", "the driver recommends: Reboot", "REBOOT_NODE"),
        ("gpu.recovery-needed", "the driver recommends: Drain P2P", "UNKNOWN"),
        ("gpu.ecc", "2 uncorrected ECC errors", "RESET_GPU"),
        ("gpu.ecc", "2 uncorrected ECC errors; the driver recommends: Reboot", "REBOOT_NODE"),
        ("gpu.dcgm-failed", "memory failed: a mismatch (DCGM: drain it and reset it)", "RESET_GPU"),
        ("gpu.dcgm-failed", "memory failed: a mismatch (DCGM: isolate it)", "UNKNOWN"),
        ("nodes.unhealthy", "GpuXid=True (79 Recommended Action=RESTART_BM)", "REBOOT_NODE"),
        (
            "nodes.unhealthy",
            "A=True (Recommended Action=NONE); B=True (Recommended Action=COMPONENT_RESET)",
            "RESET_GPU",
        ),
        ("nodes.unhealthy", "KernelDeadlock=True", "UNKNOWN"),
        ("gpu.throttled", "hw_slowdown, hw_thermal_slowdown (...; too hot for the hardware)", "CONTACT_SUPPORT"),
        (
            "gpu.throttled",
            "hw_power_brake_slowdown (the machine's power brake is active)",
            "UNKNOWN",
        ),  # perhaps of a rack
        ("runtime.memlock", "64 KiB", ""),
        ("job.failed", "exit code 1", ""),
        ("nccl.program", "a program's error", ""),
    ],
)
def test_an_observation_may_ask_for_more_than_its_fault(fault: str, observed: str, action: str) -> None:
    assert catalogue()[fault].action_for(observed) == action


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"action": "EXPLODE"}, "action is 'EXPLODE', not one of NONE, "),
        ({"action": "RESET_GPU", "actions": {"text": "reset"}}, "action is 'reset'"),
        ({"actions": {"text": "RESET_GPU"}}, "action is ''"),
        ({"action": "RESET_GPU", "failure": "program"}, "no action for a node"),
    ],
)
def test_a_wrong_action_of_an_entry_is_refused(wrong: dict[str, Any], why: str) -> None:
    assert fault_of("gpu.x", "5", {**ENTRY, "action": "RESET_GPU"}).action == "RESET_GPU"
    with pytest.raises(ValueError, match=why):
        fault_of("gpu.x", "5", {**ENTRY, **wrong})


def test_the_errors_of_dcgm_have_actions_of_the_set() -> None:
    assert {dcgm_action(code) for code in range(300)} == {"", "RESET_GPU", "REBOOT_NODE", "CONTACT_SUPPORT"}
    assert (dcgm_action(85), dcgm_action(80), dcgm_action(29), dcgm_action("85")) == (
        "RESET_GPU",
        "CONTACT_SUPPORT",
        "",
        "",
    )
