"""The phases of a trial's time, from reports of the API server and the pods."""

from jobs.diagnosis.state import JobState, PodFacts
from jobs.run.evidence import RankEvidence
from jobs.run.result import TrialResult, timeline
from tests.by_hand import Stages

DAY = "2026-11-22T10:00:"


def trial(*pods, evidence=None):
    return TrialResult(job="j", state=JobState.COMPLETE, pods=pods, evidence=evidence or {})


def pod(index, created, scheduled="", began=""):
    times = {"created": created, "scheduled": scheduled, "began": began}
    return PodFacts(index=index, name=f"p-{index}", node=f"n-{index}", **{k: v and DAY + v for k, v in times.items()})


def test_phases_follow_each_other_from_the_first_pods_creation():
    """The pod waited for its node, pulled its image and ran three stages, one of them with zero duration."""
    seconds = {"runtime": 2.0, "dns": 0.0, "collective.ring": 5.5, "end": 7.5}
    late = pod(1, "01Z", "11Z", "31Z")
    spans = timeline(trial(pod(0, "00Z"), late, evidence={1: RankEvidence(rank=1, seconds=seconds)}))
    assert [(span["node"], span["phase"], span["start_s"], span["seconds"]) for span in spans] == [
        ("n-1", "scheduling", 1, 10),
        ("n-1", "image and start", 11, 20),
        ("n-1", "runtime", 31, 2),
        ("n-1", "collective.ring", 33, 5.5),
    ]


def test_times_that_were_not_reported_or_run_backwards_are_no_phases():
    """A kubelet's clock behind the API server's, a pod that never ran, and an invalid time yield no phases."""
    assert timeline(trial(pod(0, "10Z", "10Z", "08Z"), pod(1, "10Z"))) == []
    assert timeline(trial(PodFacts(index=0, name="p", created="yesterday"))) == []


def test_rounds_of_a_sweep_are_reported_for_each_node_that_was_tested():
    """The coordinator reports each start, because it waits for pods and between rounds; a round without nodes, or of
    others, does not count."""
    rows = {
        "sweep.round.1": {"number": 1, "stage": 0, "at": 30.0, "seconds": 9.0, "tests": [{"nodes": ["n-1"]}]},
        "sweep.round.2": {"number": 2, "stage": 1, "at": 50.5, "seconds": 4.0, "tests": [{"nodes": ["n-0", "n-1"]}]},
        "sweep.round.3": {"number": 3, "stage": 2, "at": 55.0, "seconds": 4.0, "tests": [{"nodes": ["n-7"]}]},
        "sweep.round.4": {"number": 4, "stage": 2, "seconds": 4.0, "tests": [{"nodes": ["n-0"]}]},
    }
    seconds = {**{name: row["seconds"] for name, row in rows.items()}, "sweep.end": 60.0, "end": 61.0}
    evidence = RankEvidence(rank=0, stages=Stages(rows), seconds=seconds)
    spans = timeline(trial(pod(0, "00Z", "", "05Z"), pod(1, "00Z"), evidence={0: evidence}))
    assert [(span["node"], span["phase"], span["start_s"], span["seconds"]) for span in spans] == [
        ("n-1", "round 1, alone", 35.0, 9.0),
        ("n-0", "round 2", 55.5, 4.0),
        ("n-1", "round 2", 55.5, 4.0),
    ]
