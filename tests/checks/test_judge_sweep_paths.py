"""The paths of a sweep: passed pairs, and pairs explained by a named fault."""

from dataclasses import replace

import pytest

from checks.rules.sweep import link_findings
from checks.rules.sweep_texts import rest_of
from jobs.pod.sweep.judgement import FAIL, PASS, UNCLEAR
from jobs.pod.sweep.model import Finding as Accusation
from tests.checks.sweeps import printed, swept


@pytest.mark.parametrize(
    ("speed", "ok", "said"),
    [
        (lambda _: 380.0, True, "15 of 15 pairs passed"),
        (lambda _: 100.0, None, "0 of 15 pairs passed; 15 failed without a decision"),
        (lambda _: "no end", None, "failed without a decision"),
        (lambda _: None, None, "measured nothing"),
        (lambda pair: 200.0 if "node-3" in pair else 380.0, True, "because of a named fault"),
        (lambda pair: 200.0 if pair == ("node-2", "node-5") else 380.0, True, "14 of 15 pairs passed; 1 failed or"),
        (
            lambda pair: None if pair == ("node-2", "node-5") else 380.0,
            None,
            "14 of 15 pairs passed; 1 measured nothing",
        ),
        (
            lambda pair: 350.0 if pair == ("node-2", "node-5") else 380.0,
            True,
            "14 of 15 pairs passed; 1 between the limits",
        ),
    ],
    ids=["healthy", "all slow", "all hang", "silence", "a bad node", "a bad pair", "a silent pair", "between"],
)
def test_a_pair_passes_by_a_pass_of_its_own(speed, ok, said):
    """A faulty node or path may also explain it; an undecided failure is not a pass."""
    (paths,) = (f for f in link_findings(swept(*printed(6, speed))) if f.subject == "paths")
    assert paths.ok is ok
    assert said in paths.observed


@pytest.mark.parametrize(("grades", "ok"), [((UNCLEAR,), None), ((), None), ((UNCLEAR, PASS), True)])
def test_pairs_of_which_none_has_passed_are_no_pass(grades, ok):
    """All pairs are too slow to clear and too fast to fail, so the check does not pass."""
    healthy = swept(*printed(6, lambda _: 380.0))
    sweep = replace(healthy, paths=dict.fromkeys(healthy.paths, frozenset(grades)))
    (paths,) = (f for f in link_findings(sweep) if f.subject == "paths")
    assert paths.ok is ok


def test_pairs_behind_a_bad_uplink_are_explained():
    """Pairs across a bad uplink fail, and the uplink is reported."""
    leaves = {f"node-{n}": f"leaf-{n // 4}" for n in range(16)}

    def speed(pair):
        ways = {leaves[node] for node in pair}
        return 200.0 if len(ways) > 1 and "leaf-1" in ways else 380.0

    (paths,) = (
        f for f in link_findings(swept(*printed(16, speed, leaves=leaves), leaves=leaves)) if f.subject == "paths"
    )
    assert paths.ok is True
    assert "because of a named fault" in paths.observed


@pytest.mark.parametrize(
    ("kind", "names", "failed"),
    [
        ("uplink", ("leaf-0",), ("node-0", "node-1")),  # both are in leaf-0: the uplink is not on their path
        ("uplink", ("leaf-0",), ("node-2", "node-3")),
        ("pair", ("node-0", "node-2"), ("node-0", "node-3")),
        ("node", ("node-0",), ("node-1", "node-2")),
        ("rail", ("node-0",), ("node-1", "node-2")),
    ],
)
def test_what_is_at_fault_explains_no_pair_that_it_does_not_touch(kind, names, failed):
    """A pair that failed elsewhere is undecided and not a pass."""
    leaves = {f"node-{n}": f"leaf-{n // 2}" for n in range(4)}
    healthy = swept(*printed(4, lambda _: 380.0, leaves=leaves), leaves=leaves)
    blame = replace(healthy.blame, findings=(Accusation(kind, names, (), "slow"),))
    sweep = replace(healthy, blame=blame, paths={**healthy.paths, failed: frozenset({FAIL})})
    (paths,) = (f for f in link_findings(sweep) if f.subject == "paths")
    assert paths.ok is None
    assert "1 failed without a decision" in paths.observed


def test_the_rest_is_what_a_bad_uplink_does_not_carry():
    """The other pairs are inside the leaf and between other leaves."""
    leaves = {"a": "leaf-0", "b": "leaf-0", "c": "leaf-1", "d": "leaf-1"}
    shares = {("a", "b"): 1.0, ("c", "d"): 0.9, ("a", "c"): 0.5, ("b", "d"): 0.5}
    section = {"tests": [{"nodes": nodes, "share": share} for nodes, share in shares.items()]}
    assert rest_of(section, ("leaf-0",), leaves) == 0.95
    assert rest_of(section, ("a",), leaves) == 0.7
    assert rest_of(section, ("a", "b", "c", "d"), leaves) is None
