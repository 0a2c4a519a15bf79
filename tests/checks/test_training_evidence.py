"""Impossible evidence of ranks about training steps and checkpoints neither passes nor attributes a fault."""

import json
import random

import pytest

from checks.framework.trial_spec import trained
from checks.profiles.schema import CheckpointSection, TrainingSection
from checks.rules import checkpoint, training, training_pace
from jobs.trial.parts import CheckpointSpec
from tests.by_hand import misfit
from tests.checks import steps, test_judge_checkpoint
from tests.checks.test_evidence_fuzz import damage

RANK, NODE = 5, 1
MIB = 2**20


@pytest.fixture
def healthy_trial(trial):
    """Return a trial of two nodes that trained and saved correctly."""
    for pod, evidence in trial.evidence.items():
        ranks = [steps.rank(pod * 8 + local, local) for local in range(8)]
        for each in ranks:
            each["bus_id"] = f"0000:{each['local'] + 16:02x}:00"
            each["modes"][0]["seconds"] = 20.0
        trains_well = {"exit": 0, "timed_out": False, "seconds": 31.0, "ranks": ranks, "samples": [], "gpus": []}
        stages = {"training": trains_well, "checkpoint": test_judge_checkpoint.checkpoint_stage(pod)}
        evidence.stages.update(json.loads(json.dumps(stages)))  # no shared references
    return trial


def trains(trial, spec):
    """Return the findings of the steps."""
    spec = trained(spec, 20)
    members = training.members(trial, spec)
    yield from training.completed(trial, spec)
    yield from (*training.products(members), *training.losses(members), *training.slow_members(members))
    pace = training_pace.pace(members)
    if pace is not None:
        yield training_pace.exposed(pace, TrainingSection(), "job")
        yield training_pace.rate(pace, TrainingSection(tflops=400, batch=4, source="us"), "job")


def saves(trial, spec):
    """Return the findings of the checkpoint, for which 64 MiB per rank were requested."""
    spec = test_judge_checkpoint.replace(spec, checkpoint=CheckpointSpec(path="/results", bytes=64 * MIB))
    for rule in (checkpoint.saved_findings, checkpoint.place_findings):
        yield from rule(trial, spec, CheckpointSection(mb_s=1, source="us"))
    yield from checkpoint.resumed_findings(trial, spec)


def outcomes(trial, findings):
    for evidence in trial.evidence.values():
        assert [misfit(name, evidence.stages[name]) for name in ("training", "checkpoint")] == ["", ""]
    return {(each.ok, each.fault) for each in findings}


def rank(trial, pod=NODE, local=RANK):
    return trial.evidence[pod].stages["training"]["ranks"][local]


def every(trial):
    return [each for evidence in trial.evidence.values() for each in evidence.stages["training"]["ranks"]]


def same_gpu(trial):
    rank(trial)["bus_id"] = rank(trial, local=4)["bus_id"]


STEPS = {
    "a rank of another node": lambda trial: rank(trial).update(rank=3),
    "a rank twice": lambda trial: rank(trial).update(rank=12, local=4),
    "one rank too many": lambda trial: trial.evidence[NODE].stages["training"]["ranks"].append(dict(rank(trial))),
    "no number": lambda trial: rank(trial).update(rank=None),
    "of a smaller job": lambda trial: [each.update(world=8) for each in every(trial)],
    "two ranks on one GPU": same_gpu,
    "one rank on a CPU": lambda trial: rank(trial).update(device="cpu"),
    "no device": lambda trial: rank(trial).update(device=None),
    "another model": lambda trial: rank(trial)["shape"].update(layers=4),
    "more operations than its model has": lambda trial: [each.update(flops=1e15) for each in every(trial)],
    "a model without sizes": lambda trial: [each.update(shape={"batch": 4}) for each in every(trial)],
    "a few times of many steps": lambda trial: rank(trial)["modes"][0].update(step_ms=[52.0]),
    "no times": lambda trial: rank(trial)["modes"][0].update(step_ms=None),
    "a time that is none": lambda trial: rank(trial)["modes"][0]["step_ms"].__setitem__(7, -1.0),
    "one time alone": lambda trial: rank(trial).update(compute_ms=[50.0]),
    "fewer steps than asked": lambda trial: rank(trial)["modes"][0].update(steps=39),
    "a shorter soak": lambda trial: rank(trial)["modes"][0].update(seconds=19.0),
    "a soak longer than its program ran": lambda trial: trial.evidence[NODE].stages["training"].update(seconds=7.0),
    "its only products left out": lambda trial: rank(trial).update(products=[]),
    "a product made once": lambda trial: rank(trial)["products"][0].update(made=1),
    "a product in no format": lambda trial: rank(trial)["products"][0].update(kind=None),
    "a product of other matrices": lambda trial: rank(trial)["products"][0].update(seed=2),
    "a product by another library": lambda trial: rank(trial).update(library="cuda 99"),
}
"""Changes to the evidence of healthy ranks."""


@pytest.mark.parametrize("change", STEPS.values(), ids=STEPS)
def test_steps_that_cannot_be_true_do_not_pass(healthy_trial, spec, change):
    change(healthy_trial)
    assert outcomes(healthy_trial, trains(healthy_trial, spec)) == {(True, ""), (None, "")}


@pytest.mark.parametrize("comm", [1e12, None, 0.0])
def test_one_rank_does_not_say_how_long_gradients_take(healthy_trial, spec, comm):
    """Exposed communication remains a finding, whatever a single rank reports."""
    assert outcomes(healthy_trial, trains(healthy_trial, spec)) == {(True, "")}
    for each in every(healthy_trial):
        each["modes"][0]["step_ms"] = [70.0] * steps.STEPS
    rank(healthy_trial)["comm_ms"] = comm
    assert (False, "training.exposed-communication") in outcomes(healthy_trial, trains(healthy_trial, spec))


def test_what_no_one_reports_of_the_gradients_is_no_pass(healthy_trial, spec):
    for each in every(healthy_trial):
        each["comm_ms"] = None
    assert outcomes(healthy_trial, trains(healthy_trial, spec)) == {(True, ""), (None, "")}


def saved(trial, pod=NODE):
    return trial.evidence[pod].stages["checkpoint"]


def of_rank(trial, **changes):
    """Change one rank's evidence of the decisive step."""
    saved(trial)["ranks"][RANK]["saves"][-1].update(changes)


STATES = {
    "a rank of another node": lambda trial: saved(trial)["ranks"][RANK].update(rank=3),
    "a rank twice": lambda trial: saved(trial)["ranks"].append(saved(trial)["ranks"][RANK]),
    "the warm-up only": lambda trial: saved(trial)["ranks"][RANK]["saves"].pop(),
    "of another step": lambda trial: of_rank(trial, step=1),
    "less than was asked": lambda trial: of_rank(trial, bytes=MIB),
    "a flush without its time": lambda trial: saved(trial).update(flush=None),
    "verified by its writer": lambda trial: saved(trial)["verified"].update(peer=NODE),
    "not all files": lambda trial: saved(trial)["verified"].update(files=7),
    "empty files": lambda trial: saved(trial)["verified"].update(bytes=0),
    "checksums unreported": lambda trial: saved(trial)["verified"].update(ok=None),
    "a state that could not be kept": lambda trial: saved(trial).update(error="rank 1: its command did not end"),
    "nobody killed": lambda trial: saved(trial)["crash"].update(exit=0),
    "an older step torn": lambda trial: saved(trial)["crash"].update(step=1),
    "a newer verified step": lambda trial: saved(trial)["resume"].update(
        passed_over=[{"step": 3, "state": "verified"}]
    ),
}


@pytest.mark.parametrize("change", STATES.values(), ids=STATES)
def test_a_checkpoint_that_cannot_be_true_does_not_pass(healthy_trial, spec, change):
    change(healthy_trial)
    ends = outcomes(healthy_trial, saves(healthy_trial, spec))
    assert {ok for ok, _ in ends} == {True, None}


@pytest.mark.parametrize("seed", range(40))
def test_damaged_words_break_no_rule(healthy_trial, spec, seed):
    """Well-formed evidence is judged without an exception."""
    dice = random.Random(seed)
    name, pod = dice.choice(("training", "checkpoint")), dice.choice((0, 1))
    data, _ = damage(dice, healthy_trial.evidence[pod].stages[name])
    if not misfit(name, data):
        healthy_trial.evidence[pod].stages[name] = data
        assert list(trains(healthy_trial, spec)) and list(saves(healthy_trial, spec))


NEAR = {
    "a file more, the index": lambda trial: saved(trial)["verified"].update(files=9, bytes=8 * 64 * MIB + 4096),
    "a state of whole rows, a little below": lambda trial: [
        save.update(bytes=64 * MIB - 32767) for each in saved(trial)["ranks"] for save in each["saves"]
    ],
    "nothing passed over is seen": lambda trial: saved(trial)["resume"].update(passed_over=[]),
    "a killed agent": lambda trial: saved(trial)["crash"].update(exit=-9),
}


@pytest.mark.parametrize("change", NEAR.values(), ids=NEAR)
def test_what_healthy_pods_tell_passes(healthy_trial, spec, change):
    change(healthy_trial)
    assert outcomes(healthy_trial, saves(healthy_trial, spec)) == {(True, "")}
    assert outcomes(healthy_trial, trains(healthy_trial, spec)) == {(True, "")}
