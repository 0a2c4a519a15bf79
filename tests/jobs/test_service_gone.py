"""The ranks' Service deleted or recreated during their run, as the cause of a failed rendezvous."""

import pytest

from jobs.cluster.client.errors import Forbidden, NotFound
from jobs.diagnosis.state import FailureAnalysis, JobState, PodFacts
from jobs.run.conclusion import _without, with_service_gone
from jobs.run.evidence import RankEvidence
from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec
from tests.by_hand import Stages
from tests.table import table

PODS = tuple(PodFacts(index=i, name=f"p-{i}", began=f"2026-11-22T10:00:0{i}Z") for i in range(2))


class Kube:
    """A server that answers one read of one Service."""

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
        ("2026-11-22T10:00:40Z", "recreated by others at 2026-11-22T10:00:40Z while"),
        ("2026-11-22T09:59:58Z", ""),
        ("2026-11-22T10:00:03Z", ""),  # the Training Operator creates it after the pods
        (Forbidden("x", status=403), ""),
    ],
    ids=["gone", "made anew", "as it was", "just after the pods", "not ours to see"],
)
def test_a_service_that_is_not_the_one_of_the_beginning_is_the_cause(answer, said):
    """The deletion is the cause, and the trial is retried."""
    kube = Kube(answer)
    result = _without(kube, "x", "team", TrialResult(job="x", state=JobState.COMPLETE, pods=PODS))
    assert kube.asked == ["/api/v1/namespaces/team/services/x"]
    if not said:
        assert result is None
        return
    assert said in result.analysis.observed
    assert (result.analysis.fault, result.analysis.subject, result.analysis.disrupted) == (
        "job.disrupted",
        "service/x",
        True,
    )


RESOLVED = {"dns": {"peers": [{"name": "p-1.x", "addresses": ["10.0.0.1"]}]}, "collective.1": {"exit": 0}}
LOST = {"dns": {"peers": [{"name": "p-1.x", "addresses": ["10.0.0.1"]}, {"name": "p-0.x", "addresses": []}]}}


@table(
    "stages, fault, cause",
    [
        (LOST, None, "job.disrupted"),
        (LOST, "job.failed", "job.disrupted"),
        ({"collective.1": {"exit": 1}}, "job.failed", "job.disrupted"),
        ({"collective.1": {"exit": None}}, None, "job.disrupted"),
        (LOST, "node.lost", "node.lost"),  # a node event explains it
        (RESOLVED, None, None),
        (RESOLVED, "job.failed", "job.failed"),
        ({"storage": {"exit": 1}}, "job.failed", "job.failed"),
        ({}, "job.failed", "job.failed"),
    ],
)
def test_a_deleted_service_explains_only_ranks_that_did_not_find_each_other(stages, fault, cause):
    """A deletion after a pass, or with another failure, changes nothing."""
    spec = TrialSpec(run_id="2a3b4c5d6e", namespace="team", image="i", nodes=2, gpus_per_node=8)
    analysis = FailureAnalysis(fault=fault, subject="s", observed="o", expected="e", suggestion="s") if fault else None
    state = JobState.ERROR if fault else JobState.COMPLETE
    result = TrialResult(
        job="x", state=state, analysis=analysis, evidence={0: RankEvidence(rank=0, stages=Stages(stages))}
    )
    outcome = with_service_gone(Kube(NotFound("x", status=404)), spec, result)
    assert (outcome.analysis and outcome.analysis.fault) == cause
