"""What a trial spent its time on, out of what the API server and the pods said."""

from jobs.diagnosis.state import JobState, PodFacts
from jobs.run.evidence import RankEvidence
from jobs.run.result import TrialResult
from jobs.run.timeline import timeline

DAY = "2026-11-22T10:00:"


def trial(*pods, evidence=None):
    return TrialResult(job="j", state=JobState.COMPLETE, pods=pods, evidence=evidence or {})


def pod(index, created, scheduled="", began=""):
    times = {"created": created, "scheduled": scheduled, "began": began}
    return PodFacts(index=index, name=f"p-{index}", node=f"n-{index}", **{k: v and DAY + v for k, v in times.items()})


def test_phases_follow_each_other_from_the_first_pods_creation():
    """A pod that waited for its node, pulled its image and ran three stages, of which one took no time."""
    seconds = {"runtime": 2.0, "dns": 0.0, "collective.ring": 5.5, "end": 7.5}
    late = pod(1, "01Z", "11Z", "31Z")
    found = timeline(trial(pod(0, "00Z"), late, evidence={1: RankEvidence(rank=1, seconds=seconds)}))
    assert [(span["node"], span["phase"], span["start_s"], span["seconds"]) for span in found] == [
        ("n-1", "scheduling", 1, 10),
        ("n-1", "image and start", 11, 20),
        ("n-1", "runtime", 31, 2),
        ("n-1", "collective.ring", 33, 5.5),
    ]


def test_times_that_were_not_told_or_run_backwards_are_no_phases():
    """A kubelet's clock behind the API server's, a pod that never ran, a word that is no time."""
    assert timeline(trial(pod(0, "10Z", "10Z", "08Z"), pod(1, "10Z"))) == []
    assert timeline(trial(PodFacts(index=0, name="p", created="yesterday"))) == []
