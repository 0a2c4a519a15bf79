"""A soak lasted as long as requested by every clock, and the GPUs were sampled during it."""

from dataclasses import replace

import pytest

from checks.framework.trial_spec import trained
from checks.rules import training, training_evidence
from jobs.cluster.json_types import filled
from jobs.diagnosis.state import PodFacts
from jobs.pod.stages.training import MOST_SAMPLES, Meanwhile
from jobs.run.stages.programs import TrainingSample

SOAK_S = 1200
BEGAN, ENOUGH, EARLY = "2026-01-01T00:00:00Z", "2026-01-01T00:21:00Z", "2026-01-01T00:00:40Z"


@pytest.fixture
def soaked(trained_trial):
    """Return a trial whose ranks, probes and kubelets agree on 20 minutes of steps."""
    for evidence in trained_trial.evidence.values():
        facts = evidence.stages["training"]
        looks = {"samples": 400, "sm_mhz": 1755.0, "temperature_c": 71.0}
        facts.update(seconds=SOAK_S + 9.0, samples=[{"index": gpu} | looks for gpu in range(8)])
        for rank in facts["ranks"]:
            rank["modes"][0]["seconds"] = SOAK_S + 0.4
    trained_trial.pods = tuple(PodFacts(index=node, name=f"pod-{node}", began=BEGAN, ended=ENOUGH) for node in (0, 1))
    return trained_trial


def steps_hold(trial, spec):
    return [each.ok for each in training.completed(trial, trained(spec, SOAK_S))]


def test_a_soak_that_all_clocks_saw_passes(soaked, spec):
    assert steps_hold(soaked, spec) == [True, True]
    soaked.pods = tuple(replace(pod, began="", ended="") for pod in soaked.pods)  # without kubelet times
    assert steps_hold(soaked, spec) == [True, True]


@pytest.mark.parametrize("lasted", [31.0, None])
def test_a_soak_that_was_cut_short_is_no_pass(soaked, spec, lasted):
    """Heat needs the requested time: forty steps in five seconds do not show it."""
    for rank in soaked.evidence[1].stages["training"]["ranks"]:
        rank["modes"][0]["seconds"] = lasted
    assert steps_hold(soaked, spec) == [True, None]


@pytest.mark.parametrize("took", [7.0, None])
def test_ranks_do_not_say_alone_how_long_they_trained(soaked, spec, took):
    soaked.evidence[1].stages["training"]["seconds"] = took
    assert steps_hold(soaked, spec) == [True, None]


def test_a_pod_that_ended_before_its_soak_could_is_no_pass(soaked, spec):
    soaked.pods = (soaked.pods[0], replace(soaked.pods[1], ended=EARLY))
    findings = list(training.completed(soaked, trained(spec, SOAK_S)))
    assert [each.ok for each in findings] == [True, None]
    assert "by the kubelet its pod ran for 40 s" in findings[1].observed


@pytest.mark.parametrize(
    ("samples", "unseen"),
    [
        (None, ()),
        ([], range(8)),
        ([{"index": 5, "samples": 400, "sm_mhz": None, "temperature_c": None}], [5]),  # [N/A] is not a sample
        ([{"index": 5, "samples": 3, "sm_mhz": 1755.0}], [5]),  # three samples in 20 minutes
        ([{"index": 5, "samples": 400, "temperature_c": 70.0}], []),
    ],
    ids=["all", "none", "not-available", "three", "heat-only"],
)
def test_a_gpu_that_was_not_checked_is_not_healthy(soaked, spec, samples, unseen):
    data = soaked.evidence[1].stages["training"]
    if samples is not None:
        data["samples"] = [*(each for each in data["samples"] if samples and each["index"] != 5), *samples]
    taken = {m.name: m.sample for m in training.members(soaked, trained(spec, SOAK_S))}
    findings = list(training_evidence.watched(taken, SOAK_S))
    assert [(each.subject, each.ok) for each in findings if not each.ok] == [
        (f"gpu-node-1 GPU {n}", None) for n in unseen
    ]


def test_a_clock_without_a_count_of_looks_is_no_look():
    """In a soak shorter than the sampling interval one sample is enough, but there must be one."""
    taken = {"counted": {"samples": 1, "sm_mhz": 1755.0}, "told": {"sm_mhz": 1755.0}}
    taken = {name: filled(TrainingSample, sample)[0] for name, sample in taken.items()}
    assert [each.ok for each in training_evidence.watched(taken, 10)] == [True, None]


def test_the_end_of_the_longest_soak_is_seen(monkeypatch):
    """A day has more samples than are kept: earlier ones are dropped, never the last."""
    watch = Meanwhile("none", {})
    watch.tool = "nvidia-smi"
    answer = type("Answer", (), {"out": b"0, GPU-0, 1755, 600, 71, 100\n"})
    monkeypatch.setattr("jobs.pod.stages.training.command.run", lambda *_: answer)
    for at in range(MOST_SAMPLES + 10):
        monkeypatch.setattr("jobs.pod.stages.training.time.time", lambda at=at: float(at))
        watch._look()
    assert len(watch._samples) <= MOST_SAMPLES
    (last,) = watch.medians((MOST_SAMPLES, MOST_SAMPLES + 10))
    assert last["samples"] >= 9
