"""Reports of a run over many nodes: their cost grows with the findings, and not with findings times nodes."""

import pytest

from reports.html import page
from reports.markdown import markdown
from reports.matrix import matrix
from reports.metrics import exposition
from reports.record import CheckResult, Finding, Run
from reports.schema import Outcome
from tests.growth import LINEAR, growth

SUBJECTS = {
    "nodes": "n-{}",
    "pairs": "n-{} -> n-0",
    "no node": "image {}",  # of all nodes together
}


def run(size, subject, tried):
    """Return a run in which every finding is bad, each with a unique text."""
    nodes = tuple(f"n-{i}" for i in range(size))
    findings = tuple(
        Finding(subject=subject.format(i), ok=False, observed=f"{i} of 8", fault="gpu.missing") for i in range(size)
    )
    failed = CheckResult(id="gpu.allocatable", title="", outcome=Outcome.FAILED, findings=findings)
    trial = {"pods": dict(enumerate(nodes))} if tried else {}
    return Run(results=[failed, failed], pool=nodes, trial=trial)


@pytest.mark.parametrize("tried", [False, True], ids=["preflight", "every node tried"])
@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize(
    "form",
    [matrix, page, lambda r: markdown(r.to_dict()), lambda r: exposition(r.to_dict())],
    ids=["matrix", "page", "ticket", "metrics"],
)
def test_a_report_takes_twice_the_steps_for_twice_the_nodes(form, subject, tried):
    """Findings without a node concern all: they are stored once, not for each node."""

    def make(size):
        made = run(size, SUBJECTS[subject], tried)
        return lambda: form(made)

    assert growth(make, 60) <= LINEAR
