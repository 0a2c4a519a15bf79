"""Every failure names the layer to examine first; most NCCL failures originate below NCCL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from cli.listing import declared_checks
from seatrial.faults.advice import FAULTS, explain
from seatrial.faults.catalogue import fault_catalogue
from tests.table import table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from checks.framework.selection import Declaration

COMMANDS = {
    "aws",
    "curl",
    "nvidia-imex-ctl",
    "cat",
    "grep",
    "env",
    "ibv_devinfo",
    "ibv_devices",
    "lsmod",
    "ibstat",
    "py-spy",
    "all_reduce_perf",
    "ldd",
    "ldconfig",
    "find",
    "ls",
    "fi_info",
    "nvidia-smi",
    "ib_write_bw",
    "lspci",
    "ibdiagnet",
    "show_gids",
    "ulimit",
    "dmesg",
    "ucx_info",
    "kubectl",
    "ip",
    "nc",
    "df",
    "systemctl",
    "getent",
    "mpirun",
    "pip",
    "ps",
    "rdma",
    "readlink",
    "ss",
    "NCCL_ALGO=Ring",
    "NCCL_CUMEM_HOST_ENABLE=0",
    "CUDA_LAUNCH_BLOCKING=1",
    "TORCH_DISTRIBUTED_DEBUG=DETAIL",
    "torchfrtrace",
}


@table("fault", sorted(FAULTS))
def test_every_fault_says_where_to_look_first(fault: str) -> None:
    """Each fault has a layer with number and name."""
    assert explain(fault)["look"].startswith("layer ")


# The user's map: a symptom, the faults that a trial reports for it, and the layers to examine, in order.
SYMPTOMS = {
    "pods partially running": (("gang.partial", "job.unschedulable"), ("14",)),
    "rank cannot resolve the rendezvous": (("dns.unresolved",), ("7",)),
    "NCCL says Socket": (("nccl.socket-fallback", "nccl.mixed-transport"), ("9", "11")),
    "TopologyAffinityError": (("topology.affinity",), ("10",)),
    "stalls at the checkpoint": (("storage.burst-slow", "storage.slow", "storage.hang"), ("15",)),
    "GPU utilisation in waves": (("nccl.low-bandwidth", "nccl.unstable", "storage.slow"), ("11", "12", "15")),
    "job waits while GPUs are allocated": (("queue.waiting", "job.unschedulable"), ("14", "5")),
}


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_the_symptoms_of_the_users_map_lead_where_it_says(symptom: str, root: Path) -> None:
    """The faults of a symptom start in the map's layers (waves: in any of them), and the page has the same table."""
    faults, layers = SYMPTOMS[symptom]
    looked = [explain(fault)["look"] for fault in faults]
    if symptom != "GPU utilisation in waves":
        assert {text.split()[1] for text in looked} == {layers[0]}
    assert any(all(re.search(rf"\b{layer}\b", text) for layer in layers) for text in [*looked, " ".join(looked)])
    rows = (root / "docs" / "checks.md").read_text().splitlines()
    (row,) = [row for row in rows if row.startswith(f"| {symptom} |")]
    assert row.split("|")[2].strip() == ", then ".join(layers) if len(layers) < 3 else " or ".join(layers)
    assert all(f"`{fault}`" in row for fault in faults)


def test_what_another_layer_makes_is_looked_for_there() -> None:
    """A container limit is not examined in NCCL, nor is a firewall or a different image on one node."""
    assert explain("nccl.files-limit")["look"].startswith("layer 6")
    assert explain("nccl.connect-refused")["look"].startswith("layer 8")
    assert explain("nccl.version-mismatch")["look"].startswith("layer 16")
    assert explain("nccl.collective-mismatch")["look"].startswith("layer 11")


@table("fault", sorted(fault_catalogue()))
def test_every_confirmation_of_a_log_fault_begins_with_something_to_type(fault: str) -> None:
    """'Compare the lines' is not a command."""
    assert fault_catalogue()[fault].confirm.split()[0].strip(";:") in COMMANDS


def waits_for(name: str, known: Mapping[str, Declaration]) -> set[str]:
    """Return all checks that must not fail before this one is judged."""
    own = {*known[name].requires, *known[name].unless_failed} & known.keys()  # CPU checks are not part of such a run
    return own.union(*(waits_for(each, known) for each in own))


def test_the_steps_of_the_page_are_the_order_of_blocking(root: Path) -> None:
    """Seven steps: each check depends on the steps that the page names, and on no later step."""
    known = declared_checks()
    rows = [
        row.split("|") for row in (root / "docs" / "checks.md").read_text().splitlines() if re.match(r"\| \d \|", row)
    ]
    steps = [(re.findall(r"`([\w.-]+)`", row[3]), re.findall(r"`([\w.-]+)`", row[4])) for row in rows]
    assert len(steps) == 7
    for number, (names, before) in enumerate(steps):
        later = {name for further, _ in steps[number + 1 :] for name in further}
        for name in names:
            assert not later & waits_for(name, known), name
        assert set(before) <= set().union(*(waits_for(name, known) for name in names))
    storage = waits_for("storage.checkpoint", known)
    assert not storage & {name for names, _ in steps[1:6] for name in names}
