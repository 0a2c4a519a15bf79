"""Results of sweep.trains and sweep.pace for single-node training steps: slow or wrong nodes, and near misses."""

import pytest

from checks.framework.trial_spec import trained
from checks.profiles.schema import TrainingSection
from checks.rules import sweep_texts
from checks.rules.sweep_training import notes, pace_findings, trained_findings, with_training
from cli.schedule.node_history import learn
from cli.schedule.remembered import NodeHistory
from jobs.trial.spec import TrialSpec
from reports.sweep.text import lines
from tests.by_hand import misfit
from tests.checks.steps import COMPUTE_MS, FLOPS, STEP_MS, around, rank
from tests.checks.sweeps import on, printed, swept
from tests.table import table

SPEC = trained(TrialSpec(run_id="2a3b4c5d6e", namespace="n", image="i", nodes=2, gpus_per_node=8), 0)
NO_FLOOR = TrainingSection()
GPUS = 8


def node_steps(name, gpus=GPUS, **changes):
    """Return one node's line as its agent prints it, with a few step times."""
    ranks = [
        rank(local, local, world=gpus, compute_ms=around(COMPUTE_MS, f"{name} {local}", 40)) for local in range(gpus)
    ]
    steps = around(STEP_MS, f"steps {name}", 20, 0.005)
    for each in ranks:
        each["modes"] = [{**each["modes"][0], "step_ms": steps}]
    return {"node": name, "exit": 0, "timed_out": False, "seconds": 40.0, "ranks": ranks, "samples": []} | changes


def fleet(nodes=6, *, without=(), placed=None, speed=lambda _: 380.0, release=False, **changed):
    """Return a sweep over healthy nodes that trained; `changed`: changed fields of a node's line, by node (_ for -)."""
    names, stages = printed(nodes, speed, release=release)
    for number, name in enumerate(names):
        if name not in without:
            line = node_steps(name)
            changed.get(name.replace("-", "_"), lambda _: None)(line)
            stages[f"sweep.training.{number + 1}"] = line
            assert misfit(f"sweep.training.{number + 1}", line) == ""
    return swept(names, stages, placed=placed)


def slower(share, gpus=range(GPUS)):
    """Slow down some of a node's GPUs, and all of its steps by the same time."""

    def change(line):
        for local, each in enumerate(line["ranks"]):
            if local in gpus:
                each["compute_ms"] = [ms * share for ms in each["compute_ms"]]
            each["modes"][0]["step_ms"] = [ms * share for ms in each["modes"][0]["step_ms"]]

    return change


def bad(findings):
    return [(f.subject, f.ok, f.fault) for f in findings if f.ok is not True]


def judged(sweep, asked=NO_FLOOR):
    return bad(trained_findings(sweep, SPEC)), bad(pace_findings(sweep, asked))


@pytest.mark.parametrize("nodes", [2, 6, 17])
def test_nodes_that_train_well_pass(nodes):
    """Each node has one line with its rate."""
    sweep = fleet(nodes)
    assert judged(sweep) == ([], [])
    assert [f.subject for f in pace_findings(sweep, NO_FLOOR)] == list(sweep.tested)
    assert next(iter(notes(sweep, NO_FLOOR))).startswith(f"{nodes} nodes alone: ")


def test_a_slow_gpu_is_named_and_nothing_that_follows_from_it():
    """training.slow-gpu: its node, the GPUs whose steps wait for it, and the missed floor are not reported."""
    sweep = fleet(node_3=slower(1.12, [5]))
    rate = 1e-12 * FLOPS / (STEP_MS / 1000)
    for asked in (NO_FLOOR, TrainingSection(tflops=0.95 * rate, source="ours")):
        assert judged(sweep, asked) == ([], [("node-3 GPU 5", False, "training.slow-gpu")])


def test_a_slow_node_is_named_as_a_whole():
    """training.slow-node: all of its GPUs are slow by their compute times."""
    assert judged(fleet(node_3=slower(1.12))) == ([], [("node-3", False, "training.slow-node")])


def test_a_node_of_which_one_gpu_shows_no_times_does_not_pass():
    """A GPU without times may be slow, so its node does not pass."""
    assert judged(fleet(node_3=untimed))[1] == [("node-3 GPU 2", None, "")]


def test_products_of_hipblas_raise_no_fault():
    """hipBLAS does not guarantee bitwise identical results, so a difference on one GPU is not corruption."""
    nodes = {f"node_{n}": by_hipblas for n in range(6)}
    assert judged(fleet(**nodes | {"node_3": lambda line: (by_hipblas(line), wrong_product(line))})) == ([], [])


def test_a_node_whose_own_gpus_wait_for_each_other_is_slow():
    """training.slow-node: its GPUs compute at the normal rate, but its joint steps take longer."""
    ((subject, ok, fault),) = judged(fleet(node_3=slower(1.2, [])))[1]
    assert (subject, ok, fault) == ("node-3", False, "training.slow-node")


@pytest.mark.parametrize("share", [1.02, 1.035])
def test_a_node_that_is_a_little_slower_is_not_named(share):
    """GPUs of one kind differ by a few percent, which is not reported."""
    assert judged(fleet(node_3=slower(share))) == ([], [])


def test_where_most_nodes_are_slow_no_one_is_at_fault_and_none_of_them_passes():
    """Five of six are slow, so the sixth is the outlier in any comparison; only a floor decides."""
    sweep = fleet(**{f"node_{n}": slower(1.3) for n in range(5)})
    assert judged(sweep)[1] == [(f"node-{n}", None, "") for n in range(5)]
    rate = 1e-12 * FLOPS / (STEP_MS / 1000)
    assert judged(sweep, TrainingSection(tflops=0.7 * rate, source="ours")) == ([], [])
    below = judged(sweep, TrainingSection(tflops=0.9 * rate, source="ours"))[1]
    assert below == [(f"node-{n}", False, "training.low-tflops") for n in range(5)]


def test_all_below_the_floor_are_reported():
    """training.low-tflops: no comparison would detect it."""
    floor = TrainingSection(tflops=600.0, source="ours")
    findings = judged(fleet(3), floor)[1]
    assert findings == [(f"node-{n}", False, "training.low-tflops") for n in range(3)]
    assert judged(fleet(3), TrainingSection(tflops=400.0, source="ours"))[1] == []


def wrong_product(line):
    line["ranks"][2]["products"][0]["digest"] = "bb"


def by_hipblas(line):
    for each in line["ranks"]:
        each["library"] = "hipBLASLt 0.12"


def untimed(line):
    line["ranks"][2]["compute_ms"] = []


def not_finite(line):
    line["ranks"][2]["modes"][0].update(bad_step=3, losses=[9.7, 9.6, 9.5])


def stays(line):
    for each in line["ranks"]:
        each["modes"][0]["losses"] = [9.7] * 6


@table(
    "change, subject, ok, fault",
    [
        (wrong_product, "node-3 GPU 2", False, "training.product-differs"),
        (not_finite, "node-3 GPU 2", False, "training.loss-not-finite"),
        (stays, "node-3", False, "training.loss-not-falling"),
        (lambda line: line.update(exit=1, output_tail="CUDA error", ranks=[]), "node-3", False, "training.failed"),
        (lambda line: line.update(exit=None, timed_out=True), "node-3", False, "training.no-end"),
        (lambda line: line.update(exit=None, stopped="SIGTERM"), "node-3", None, ""),
        (lambda line: line.update(exit=None, skipped="no torch"), "node-3", None, ""),
        (lambda line: line.update(ranks=line["ranks"][:7]), "node-3", None, ""),
        (lambda line: line.update(ranks=[]), "node-3", None, ""),
        (lambda line: line["ranks"][7].update(local=6), "node-3", None, ""),
        (lambda line: line["ranks"][2]["products"][0].pop("differs"), "node-3 GPU 2", None, ""),
    ],
)
def test_what_a_node_computes_wrongly_or_not_at_all_is_reported(change, subject, ok, fault):
    """The fault is reported for that node only; an incomplete result is not a pass."""
    findings = judged(fleet(node_3=change))[0]
    assert findings and findings[0] == (subject, ok, fault)
    assert {name.partition(" ")[0] for name, *_ in findings} == {"node-3"}


def test_a_node_that_reports_nothing_of_its_steps_is_no_pass():
    """Correctness and rate are unknown, so neither check passes."""
    steps, pace = judged(fleet(without=["node-2"]))
    assert (steps, pace) == ([("node-2", None, "")], [("node-2", None, "")])


def test_the_steps_of_a_node_on_which_no_pod_ran_do_not_count():
    """sweep.misplaced: slowness reported under its name does not count either."""
    sweep = fleet(
        node_3=slower(1.5),
        placed={name: there for name, there in on(f"node-{n}" for n in range(6)).items() if name != "node-3"},
    )
    assert judged(sweep) == ([], [])
    assert "node-3" in sweep.misplaced and "node-3" not in sweep.training


def states(sweep):
    return {row["name"]: row["state"] for row in sweep.section["elements"]["nodes"]}


@pytest.mark.parametrize(
    ("change", "fault"),
    [(slower(1.12, [5]), "training.slow-gpu"), (wrong_product, "training.product-differs")],
    ids=["pace", "trains"],
)
def test_a_node_that_training_finds_at_fault_is_proven_nowhere(change, fault):
    """Text, notes and record all show it as at fault and recommend a cordon."""
    sweep = with_training(fleet(node_3=change), SPEC, NO_FLOOR)
    assert sweep.proven == tuple(sweep.section["proven"]) == ("node-0", "node-1", "node-2", "node-4", "node-5")
    assert states(sweep) == {**dict.fromkeys(sweep.proven, "proven"), "node-3": "at fault"}
    (row,) = sweep.section["findings"]
    assert (row["kind"], row["names"], row["fault"], sweep.section["verdict"]) == ("node", ["node-3"], fault, "no-go")
    text = [*lines(sweep.section)]
    assert text[0].startswith("node-3: GPU ") and "kubectl cordon node-3" in text
    assert any(line.startswith("5 of 6 nodes proven") for line in text)
    noted = [*sweep_texts.notes(sweep)]
    assert noted[0].startswith("proven: 5 nodes") and "kubectl cordon node-3" in noted[-1]


def test_a_slow_node_that_is_released_early_is_tested_as_planned_and_named():
    """--no-scale releases passed nodes: their training steps ran before, with the single-node tests."""

    _, stages = printed(40, lambda _: 380.0)
    slow = next(tuple(test["nodes"]) for test in stages["sweep.round.2"]["tests"] if "node-0" in test["nodes"])

    def speed(pair):
        return 200.0 if pair == slow else 380.0  # still undecided when others are released

    _, stages = printed(40, speed, release=True)
    assert "node-39" in stages["sweep.fleet.2"]["gone"]
    late, early = (
        with_training(fleet(40, speed=speed, release=release, node_39=slower(1.12, [5])), SPEC, NO_FLOOR)
        for release in (False, True)
    )
    assert states(early) == states(late) and early.proven == late.proven
    row = next(row for row in early.section["elements"]["nodes"] if row["name"] == "node-39")
    assert (row["state"], row["passed"]) == ("at fault", 4), "it has met as many partners as all the others"
    assert [row["names"] for row in early.section["findings"]] == [[*slow], ["node-39"]]
    assert early.section["findings"] == late.section["findings"]
    assert [*lines(early.section)][1].startswith("node-39: GPU 5: ")


def test_scheduled_runs_count_what_training_finds_against_the_node():
    """The fault is that of training, not of a pair; the other nodes pass."""
    sweep = with_training(fleet(node_3=slower(1.12, [5])), SPEC, NO_FLOOR)
    record = {
        "run_id": "r",
        "verdict": "no-go",
        "checks": [],
        "trial": {},
        "coverage": {"pool": None},
        "actions": {},
        "collectives": {},
        "inside": {},
        "sweep": sweep.section,
    }
    after = learn(NodeHistory({}, (), 0.0), record, now=1e9).nodes
    assert (after["node-3"].strikes, after["node-3"].faults) == (1, ("training.slow-gpu",))
    assert all(after[name].good for name in sweep.proven)


def test_a_node_of_whose_training_nothing_is_known_is_not_proven():
    """The node is reported as not tested, with the reason, and not at fault."""
    sweep = with_training(fleet(without=["node-2"]), SPEC, NO_FLOOR)
    assert "node-2" not in sweep.proven and states(sweep)["node-2"] == "not tested"
    assert "it reported no training steps" in sweep.section["not_tested"]["node-2"]
    assert (sweep.section["findings"], sweep.section["verdict"]) == ([], "inconclusive")


def test_training_takes_nothing_from_nodes_that_train_well():
    """The section keeps the results of the pairs."""
    sweep = fleet()
    assert with_training(sweep, SPEC, NO_FLOOR).section == sweep.section


def test_each_nodes_losses_are_its_own():
    """Nodes share no gradients in single-node steps, so wrong results on two nodes are two faults."""

    def alone(line):
        line["ranks"][2].update(bad_step=3)

    def shared(line):
        line["ranks"][4]["modes"][0].update(bad_step=7)

    findings = judged(fleet(node_1=alone, node_3=shared))[0]
    assert findings == [(f"node-{n} GPU {gpu}", False, "training.loss-not-finite") for n, gpu in ((1, 2), (3, 4))]


@pytest.mark.parametrize("nodes", [("node_3",), tuple(f"node_{n}" for n in range(6))], ids=["one", "all"])
def test_gradients_that_a_node_shares_wrongly_are_its_fault(nodes):
    """All ranks of the node have the fault at once, so the node is named, even if every node is affected."""

    def everywhere(line):
        for each in line["ranks"]:
            each["modes"][0].update(bad_step=7)

    findings = judged(fleet(**dict.fromkeys(nodes, everywhere)))[0]
    assert findings == [(name.replace("_", "-"), False, "training.loss-not-finite") for name in nodes]
