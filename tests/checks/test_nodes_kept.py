"""After the trial, its nodes must still offer their earlier resources."""

from dataclasses import replace

import pytest

from checks.profiles.loader import load_profile
from checks.profiles.trial import spec_of
from checks.rules.nodes import kept, offered_before
from jobs.cluster.facts.inventory import Inventory
from jobs.trial.parts import ClaimSpec

GPU = "nvidia.com/gpu"
BEFORE = (8, "as before the trial")


@pytest.mark.parametrize(
    ("offered", "ok", "fault"),
    [(8, True, ""), (9, True, ""), (6, False, "gpu.missing"), (0, False, "gpu.none-allocatable")],
)
def test_gpus_that_went_meanwhile_are_reported(node, offered, ok, fault):
    now = Inventory((node("n1", allocatable=offered), node("n2", allocatable=8)), ())
    first, second = kept(["n2", "n1"], now, GPU, {"n1": BEFORE, "n2": BEFORE})
    assert (first.subject, first.ok, first.fault, second.ok) == ("n1", ok, fault, True)


def test_a_node_that_is_not_ready_afterwards_fails(node):
    now = Inventory((node("n1", ready=False),), ())
    (found,) = kept(["n1"], now, GPU, {"n1": BEFORE})
    assert (found.ok, found.fault) == (False, "nodes.not-ready")


def test_a_node_that_was_taken_away_leaves_it_open():
    """An autoscaler may have removed the node."""
    (found,) = kept(["n1"], Inventory((), ()), GPU, {"n1": BEFORE})
    assert (found.ok, found.fault) == (None, "job.disrupted")


def test_other_nodes_and_claimed_gpus_are_not_judged(node):
    now = Inventory((node("n1", allocatable=None), node("n2", ready=False)), ())
    (found,) = kept(["n1"], now, "", {"n1": (0, "")})
    assert found.ok


@pytest.mark.parametrize(
    ("asked", "offered", "begun", "resource", "count"),
    [
        (8, 8, False, GPU, 8),
        (8, 7, False, GPU, 7),  # the fault was waived: preflight's number applies
        (None, 8, False, GPU, 8),  # no profile
        (4, 8, False, GPU, 4),
        (8, 6, True, GPU, 8),  # read after a trial of another process
        (8, None, True, GPU, 8),  # its device plugin has stopped completely by then
        (None, 8, True, GPU, 0),  # its earlier number is unknown
        (8, None, True, "", 0),  # claimed GPUs: no node counts them
    ],
)
def test_what_a_node_offered_is_the_profiles_number_or_preflights(node, asked, offered, begun, resource, count):
    base = load_profile("h100-ib")
    asking = replace(base, gpu=replace(base.gpu, per_node=asked))
    claims = () if resource else (ClaimSpec(name="gpus", device_class="gpu.nvidia.com", count=8),)
    spec = spec_of(asking, run_id="r", namespace="n", gpus_per_node=8)
    spec = replace(spec, gpu_resource=resource, claims=claims)
    seen = Inventory((node("n1", capacity=None if offered is None else 8, allocatable=offered),), ())
    assert offered_before(seen, asking, spec, begun=begun)["n1"][0] == count
