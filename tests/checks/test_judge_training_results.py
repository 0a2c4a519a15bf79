"""Results of training.* for computed values: different products, and losses that stall or are not finite."""

import pytest

from checks.rules import training as rules
from tests.checks.steps import faults, steps_of, undecided


def test_products_that_differ_are_silent_corruption(trained_trial, training_spec):
    steps_of(trained_trial)["products"][0]["differs"] = 3
    findings = list(rules.products(rules.members(trained_trial, training_spec)))
    assert faults(findings) == {("training.product-differs", "gpu-node-1 GPU 5")}


def test_a_gpu_that_is_always_wrong_is_reported_by_the_others(trained_trial, training_spec):
    steps_of(trained_trial)["products"][0]["digest"] = "bb"
    findings = list(rules.products(rules.members(trained_trial, training_spec)))
    assert faults(findings) == {("training.product-differs", "gpu-node-1 GPU 5")}


def test_a_gpu_is_named_by_its_index_where_the_ranks_are_ordered_otherwise(trained_trial, training_spec):
    """CUDA_VISIBLE_DEVICES reverses the order: the first rank has the last GPU, the last one GPU 0."""
    stages = trained_trial.evidence[1].stages
    listed = [{"index": index, "bus_id": f"00000000:{index + 1:02X}:00.0"} for index in range(8)]
    stages["runtime"]["gpus"] = listed
    for local in range(8):
        steps_of(trained_trial, 1, local)["bus_id"] = f"0000:{8 - local:02x}:00"
    steps_of(trained_trial, 1, 7)["products"][0]["differs"] = 3
    steps_of(trained_trial, 1, 0)["products"][0]["differs"] = 3
    findings = list(rules.products(rules.members(trained_trial, training_spec)))
    assert {subject for _, subject in faults(findings)} == {"gpu-node-1 GPU 0", "gpu-node-1 GPU 7"}
    first, *_, last = rules.members(trained_trial, training_spec)[8:]
    assert (first.name, last.name) == ("gpu-node-1 GPU 7", "gpu-node-1 GPU 0")


def test_bits_of_another_kind_of_gpu_or_library_are_no_corruption(trained_trial, training_spec):
    for local in range(8):
        steps_of(trained_trial, 1, local).update(multiprocessors=114)
        steps_of(trained_trial, 1, local)["products"][0]["digest"] = "bb"
    assert faults(rules.products(rules.members(trained_trial, training_spec))) == set()


def test_a_product_that_the_gpu_does_not_have_is_no_pass_alone(trained_trial, training_spec):
    steps_of(trained_trial)["products"] = [
        {"kind": "fp8", "made": 0, "why": "RuntimeError: needs compute capability 8.9"}
    ]
    findings = list(rules.products(rules.members(trained_trial, training_spec)))
    assert undecided(findings) == ["gpu-node-1 GPU 5"]


def test_a_product_without_a_digest_is_no_pass(trained_trial, training_spec):
    """A product that was identical each time cannot be compared with others without its digest."""
    steps_of(trained_trial)["products"][0]["digest"] = None
    findings = list(rules.products(rules.members(trained_trial, training_spec)))
    assert (faults(findings), undecided(findings)) == (set(), ["gpu-node-1 GPU 5"])


def test_a_gpu_without_a_peer_to_compare_with_passes_by_its_own_products(trained_trial, training_spec):
    (alone,) = rules.members(trained_trial, training_spec)[:1]
    assert [finding.ok for finding in rules.products([alone])] == [True]


def test_gpus_that_disagree_without_a_majority_do_not_pass(trained_trial, training_spec):
    """With eight against eight, or one against one, some GPU computes wrongly, but it is unknown which."""
    for local in range(8):
        steps_of(trained_trial, 1, local)["products"][0]["digest"] = "bb"
    findings = list(rules.products(rules.members(trained_trial, training_spec)))
    assert faults(findings) == set()
    assert len(undecided(findings)) == 16
    for node in (0, 1):
        del trained_trial.evidence[node].stages["training"]["ranks"][1:]
    assert len(undecided(rules.products(rules.members(trained_trial, training_spec)))) == 2


def test_a_gpu_that_lacks_a_product_which_others_of_its_kind_have_does_not_pass(trained_trial, training_spec):
    for node in (0, 1):
        for local in range(8):
            ranks = steps_of(trained_trial, node, local)
            ranks["products"] = [ranks["products"][0], {**ranks["products"][0], "kind": "fp8"}]
    steps_of(trained_trial)["products"][1].update(
        made=0, digest=None, why="RuntimeError: CUBLAS_STATUS_EXECUTION_FAILED"
    )
    findings = list(rules.products(rules.members(trained_trial, training_spec)))
    assert (faults(findings), undecided(findings)) == (set(), ["gpu-node-1 GPU 5"])


def test_who_computes_nan_first_is_named(trained_trial, training_spec):
    for node in (0, 1):
        for local in range(8):
            steps_of(trained_trial, node, local)["modes"][0]["bad_step"] = 18
    steps_of(trained_trial)["modes"][0]["bad_step"] = 17
    findings = list(rules.losses(rules.members(trained_trial, training_spec)))
    assert faults(findings) == {("training.loss-not-finite", "gpu-node-1 GPU 5")}


def test_nan_of_a_gpu_without_the_others_names_it_alone(trained_trial, training_spec):
    """The gradient of one GPU reached all: the shared steps show sixteen, the single-GPU steps show one."""
    for node in (0, 1):
        for local in range(8):
            steps_of(trained_trial, node, local)["modes"][0]["bad_step"] = 18
    everybody = list(rules.losses(rules.members(trained_trial, training_spec)))
    assert faults(everybody) == {("training.loss-not-finite", rules.JOB)}
    steps_of(trained_trial)["bad_step"] = 30
    findings = list(rules.losses(rules.members(trained_trial, training_spec)))
    assert faults(findings) == {("training.loss-not-finite", "gpu-node-1 GPU 5")}
    assert len(undecided(findings)) == 15


@pytest.mark.parametrize(("alone", "fault"), [([9.7] * 20, "training.loss-not-falling"), ([9.7, 9.6], "")])
def test_the_loss_of_steps_alone_is_looked_at(trained_trial, training_spec, alone, fault):
    steps_of(trained_trial)["losses"] = alone
    bad = [f for f in rules.losses(rules.members(trained_trial, training_spec)) if f.ok is not True]
    assert [(f.subject, f.fault) for f in bad] == [("gpu-node-1 GPU 5", fault)]


def test_a_loss_that_stays_on_all_ranks_and_falls_on_each_alone_is_no_fault_of_a_gpu(trained_trial, training_spec):
    for node in (0, 1):
        for local in range(8):
            steps_of(trained_trial, node, local)["modes"][0]["losses"] = [9.7] * 20
    findings = list(rules.losses(rules.members(trained_trial, training_spec)))
    assert [(f.subject, f.fault) for f in findings] == [(rules.JOB, "training.loss-not-falling")]


def test_a_loss_that_falls_nowhere_with_all_ranks_names_the_gpu_on_which_it_stays_alone_too(
    trained_trial, training_spec
):
    for node in (0, 1):
        for local in range(8):
            steps_of(trained_trial, node, local)["modes"][0]["losses"] = [9.7] * 20
    steps_of(trained_trial)["losses"] = [9.7] * 20
    faults_raised = faults(rules.losses(rules.members(trained_trial, training_spec)))
    assert ("training.loss-not-falling", "gpu-node-1 GPU 5") in faults_raised
    assert ("training.loss-not-falling", rules.JOB) not in faults_raised


def test_a_loss_that_stays_is_named(trained_trial, training_spec):
    steps_of(trained_trial)["modes"][0]["losses"] = [9.7] * 20
    findings = list(rules.losses(rules.members(trained_trial, training_spec)))
    assert faults(findings) == {("training.loss-not-falling", "gpu-node-1 GPU 5")}
