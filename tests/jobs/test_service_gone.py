"""Ranks that did not find each other: was the Service that names them deleted, or made anew, while they ran?"""

import pytest

from jobs.cluster.client.errors import Forbidden, NotFound
from jobs.diagnosis.state import JobState, PodFacts
from jobs.run.result import TrialResult
from jobs.run.service_gone import _without

PODS = tuple(PodFacts(index=i, name=f"p-{i}", began=f"2026-11-22T10:00:0{i}Z") for i in range(2))


class Kube:
    """Answers one read of one Service."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def get(self, path):
        self.asked.append(path)
        if isinstance(self.answer, Exception):
            raise self.answer
        return {"kind": "Service", "metadata": {"name": "x", "creationTimestamp": self.answer}}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (NotFound("x", status=404), "deleted by others while"),
        ("2026-11-22T10:00:40Z", "made anew at 2026-11-22T10:00:40Z while"),
        ("2026-11-22T09:59:58Z", ""),
        ("2026-11-22T10:00:03Z", ""),  # the Training Operator makes it after the pods
        (Forbidden("x", status=403), ""),
    ],
    ids=["gone", "made anew", "as it was", "just after the pods", "not ours to see"],
)
def test_a_service_that_is_not_the_one_of_the_beginning_is_the_cause(answer, said):
    """Nobody but who deleted it is to blame, and the trial is tried again."""
    kube = Kube(answer)
    found = _without(kube, "x", "team", TrialResult(job="x", state=JobState.COMPLETE, pods=PODS))
    assert kube.asked == ["/api/v1/namespaces/team/services/x"]
    if not said:
        assert found is None
        return
    assert said in found.analysis.observed
    assert (found.analysis.fault, found.analysis.subject, found.analysis.disrupted) == (
        "job.disrupted",
        "service/x",
        True,
    )
