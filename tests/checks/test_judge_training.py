"""Results of training.* for the pace of steps and ranks, on synthetic numbers."""

import re
from dataclasses import replace

import pytest

from checks.framework.trial_spec import trained
from checks.profiles.schema import TrainingSection
from checks.rules import training as rules
from checks.rules import training_pace
from checks.rules.gpu_health import clock_ailments, each_gpu, memory_ailments, xid_findings
from checks.rules.rdma_counters import growth
from cli.listing import declared_checks
from jobs.pod.bench import stragglers
from tests.by_hand import misfit
from tests.checks.steps import COMPUTE_MS, FLOPS, STEPS, around, faults, steps_of, undecided


def test_healthy_steps_are_quiet(trained_trial, training_spec):
    members = rules.members(trained_trial, training_spec)
    pace = training_pace.pace(members)
    every = [
        *rules.completed(trained_trial, training_spec),
        *rules.products(members),
        *rules.losses(members),
        *rules.slow_members(members),
        training_pace.exposed(pace, TrainingSection(), "job"),
        training_pace.waves(members, pace, "job"),
        training_pace.rate(pace, TrainingSection(tflops=400, batch=4, source="us"), "job"),
    ]
    assert [f for f in every if f.ok is not True] == []
    assert pace.tflops == pytest.approx(FLOPS / 0.052 / 1e12, rel=0.01)
    assert misfit("training", trained_trial.evidence[0].stages["training"]) == ""


def test_without_the_option_a_trial_has_no_steps_and_takes_no_longer(whole_spec):
    assert whole_spec.training is None
    later = trained(whole_spec, 1200)
    assert later.training.limit_s == 1440
    assert later.deadlines.probe_s == whole_spec.deadlines.probe_s + 1470
    assert replace(later, training=None, deadlines=whole_spec.deadlines) == whole_spec


def test_without_the_option_no_check_and_no_right_is_added():
    """The steps need nothing of the API server; drain policies are read if permitted."""
    without, asked = declared_checks(), declared_checks(["--training"])
    assert not [name for name in without if name.startswith(("training.", "drains."))]
    added = [each for name, each in asked.items() if name not in without]
    assert {each.id.partition(".")[0] for each in added} == {"training", "drains"}
    assert [each.id for each in added if each.needs] == ["drains.safe"]


def test_a_gpu_that_computes_a_tenth_slower_is_named(trained_trial, training_spec):
    steps_of(trained_trial)["compute_ms"] = around(COMPUTE_MS * 1.1, 5)
    findings = list(rules.slow_members(rules.members(trained_trial, training_spec)))
    assert faults(findings) == {("training.slow-gpu", "gpu-node-1 GPU 5")}


def test_a_gpu_that_computes_a_fiftieth_slower_is_not_named(trained_trial, training_spec):
    steps_of(trained_trial)["compute_ms"] = around(COMPUTE_MS * 1.02, 5)
    assert faults(rules.slow_members(rules.members(trained_trial, training_spec))) == set()


def test_a_node_is_named_once_and_none_of_its_gpus(trained_trial, training_spec):
    for local in range(8):
        steps_of(trained_trial, 0, local)["compute_ms"] = around(COMPUTE_MS * 1.1, local)
    findings = list(rules.slow_members(rules.members(trained_trial, training_spec)))
    assert faults(findings) == {("training.slow-node", "gpu-node-0")}


def test_a_gpu_without_a_number_is_not_gpu_0(trained_trial, training_spec):
    """It is then called by the rank's own number on its node."""
    stages = trained_trial.evidence[1].stages
    steps_of(trained_trial)["bus_id"] = "00000000:1b:00.0"
    stages["runtime"]["gpus"][5] |= {"bus_id": "00000000:1B:00.0", "index": None}
    names = [member.name for member in rules.members(trained_trial, training_spec)]
    assert names.count("gpu-node-1 GPU 0") == names.count("gpu-node-1 GPU 5") == 1


def test_what_slows_all_at_once_raises_no_fault(trained_trial, training_spec):
    for node in (0, 1):
        for local in range(8):
            own = steps_of(trained_trial, node, local)
            own["compute_ms"] = [ms * (1.6 if place > 25 else 1.0) for place, ms in enumerate(own["compute_ms"])]
    assert faults(rules.slow_members(rules.members(trained_trial, training_spec))) == set()


def test_gpus_of_another_kind_are_not_compared(trained_trial, training_spec):
    for local in range(8):
        steps_of(trained_trial, 1, local).update(name="NVIDIA A100", compute_ms=around(COMPUTE_MS * 3, local))
    assert faults(rules.slow_members(rules.members(trained_trial, training_spec))) == set()


@pytest.mark.parametrize("times", [[0.0] * STEPS, [-1.0] * STEPS, []])
def test_a_clock_that_is_stuck_raises_no_fault_and_passes_no_one(trained_trial, training_spec, times):
    steps_of(trained_trial)["compute_ms"] = times
    findings = list(rules.slow_members(rules.members(trained_trial, training_spec)))
    assert (faults(findings), undecided(findings)) == (set(), ["gpu-node-1 GPU 5"])


@pytest.mark.parametrize("change", [{"flops": -2.4e13}, {"flops": 0.0}, {"flops": None}, {"compute_ms": [0.0] * STEPS}])
def test_figures_that_no_steps_can_have_are_no_pace(trained_trial, training_spec, change):
    for node in (0, 1):
        for local in range(8):
            steps_of(trained_trial, node, local).update(change)
    assert training_pace.pace(rules.members(trained_trial, training_spec)) is None


def test_times_that_waver_too_much_tell_nothing(trained_trial, training_spec):
    """With too much noise a rank that is 10 % slower would not be detected, so the result is not a pass."""
    for node in (0, 1):
        for local in range(8):
            steps_of(trained_trial, node, local)["compute_ms"] = around(COMPUTE_MS, node * 8 + local, spread=0.6)
    findings = list(rules.slow_members(rules.members(trained_trial, training_spec)))
    assert faults(findings) == set()
    assert undecided(findings)


def test_noise_that_leaves_room_for_a_tenth_is_no_pass_of_that_rank(trained_trial, training_spec):
    """A rank just below its limit is undetermined; more steps reduce the noise, and ranks add them where possible."""
    own = steps_of(trained_trial)
    own["compute_ms"] = around(COMPUTE_MS * 1.07, 5, spread=0.12)
    members = rules.members(trained_trial, training_spec)
    assert faults(rules.slow_members(members)) == set()
    assert undecided(rules.slow_members(members)) == ["gpu-node-1 GPU 5"]
    assert not stragglers.settled({m.name: m.compute for m in members})
    own["compute_ms"] = around(COMPUTE_MS, 5)
    assert stragglers.settled({m.name: m.compute for m in members if m.reported is not own})


def test_clocks_of_a_slow_gpu_are_said(trained_trial, training_spec):
    steps_of(trained_trial)["compute_ms"] = around(COMPUTE_MS * 1.2, 5)
    for node in (0, 1):
        trained_trial.evidence[node].stages["training"]["samples"] = [
            {"index": local, "uuid": "u", "sm_mhz": 1110.0 if (node, local) == (1, 5) else 1740.0, "power_w": 600.0}
            for local in range(8)
        ]
    findings = [f for f in rules.slow_members(rules.members(trained_trial, training_spec)) if f.fault]
    assert "1110 MHz, others 1740; 600 W, others 600" in findings[0].observed
    for sample in trained_trial.evidence[1].stages["training"]["samples"]:
        sample["power_w"] = None  # [N/A] on this board only
    findings = [f for f in rules.slow_members(rules.members(trained_trial, training_spec)) if f.fault]
    assert findings[0].observed.endswith("1110 MHz, others 1740")


@pytest.mark.parametrize(("late", "named"), [(1.12, True), (1.02, False)])
def test_a_gpu_that_becomes_slow_in_the_heat_of_a_soak_is_named(trained_trial, training_spec, late, named):
    """The median of all steps reflects the time before it; the last third is compared with the other GPUs, too."""
    for node in (0, 1):
        for local in range(8):
            steps_of(trained_trial, node, local)["compute_ms"] = around(COMPUTE_MS, node * 8 + local, count=180)
    own = steps_of(trained_trial)
    own["compute_ms"] = [ms * (late if place > 110 else 1) for place, ms in enumerate(own["compute_ms"])]
    findings = [f for f in rules.slow_members(rules.members(trained_trial, training_spec)) if f.ok is not True]
    assert [f.subject for f in findings] == (["gpu-node-1 GPU 5"] if named else [])
    assert all("in the last third of the steps" in f.observed for f in findings)


def test_exposed_communication_is_held_against_what_it_takes_alone(trained_trial, training_spec):
    """Waiting for a straggler is not communication, so a step is compared with the slowest rank's compute time."""
    for node in (0, 1):
        for local in range(8):
            steps_of(trained_trial, node, local)["modes"][0]["step_ms"] = around(66.0, local, spread=0.002)
    pace = training_pace.pace(rules.members(trained_trial, training_spec))
    assert training_pace.exposed(pace, TrainingSection(), "job").fault == "training.exposed-communication"
    steps_of(trained_trial)["compute_ms"] = around(64.0, 5)
    pace = training_pace.pace(rules.members(trained_trial, training_spec))
    assert training_pace.exposed(pace, TrainingSection(), "job").fault == ""


def test_the_profile_may_ask_for_less_exposed_communication(trained_trial, training_spec):
    pace = replace(training_pace.pace(rules.members(trained_trial, training_spec)), step=60.0, compute=53.0)
    assert training_pace.exposed(pace, TrainingSection(), "job").ok is True
    asked = TrainingSection(exposed_max=0.05, source="us")
    assert training_pace.exposed(pace, asked, "job").fault == "training.exposed-communication"


def test_steps_in_waves_are_reported_with_their_period_and_whose_they_are(trained_trial, training_spec):
    for node in (0, 1):
        for local in range(8):
            mode = steps_of(trained_trial, node, local)["modes"][0]
            mode["step_ms"] = [ms * (1.9 if place % 8 == 3 else 1) for place, ms in enumerate(mode["step_ms"])]
    samples = [{"index": 0, "utilisation": 97.0}, {"index": 1, "utilisation": 62.0}, {"index": 2, "utilisation": None}]
    trained_trial.evidence[0].stages["training"]["samples"] = samples
    members = rules.members(trained_trial, training_spec)
    finding = training_pace.waves(members, training_pace.pace(members), "job")
    assert finding.fault == "training.step-waves"
    assert "about every 8 steps" in finding.observed
    assert finding.observed.endswith("the network; GPUs 62 to 97 % used")
    own = steps_of(trained_trial)
    own["compute_ms"] = [ms * (1.9 if place % 8 == 3 else 1) for place, ms in enumerate(own["compute_ms"])]
    members = rules.members(trained_trial, training_spec)
    assert (
        "own compute of gpu-node-1 GPU 5" in training_pace.waves(members, training_pace.pace(members), "job").observed
    )


def test_two_slow_steps_are_no_waves(trained_trial, training_spec):
    for node in (0, 1):
        for local in range(8):
            mode = steps_of(trained_trial, node, local)["modes"][0]
            mode["step_ms"][7] = mode["step_ms"][20] = 200.0
    members = rules.members(trained_trial, training_spec)
    assert training_pace.waves(members, training_pace.pace(members), "job").ok is True


def test_below_the_floor_and_at_another_batch(trained_trial, training_spec):
    pace = training_pace.pace(rules.members(trained_trial, training_spec))
    assert (
        training_pace.rate(pace, TrainingSection(tflops=600, batch=4, source="us"), "job").fault
        == "training.low-tflops"
    )
    assert training_pace.rate(pace, TrainingSection(tflops=600, batch=8, source="us"), "job").ok is None


def test_a_floor_of_other_gpus_raises_no_fault(trained_trial, training_spec):
    pace = training_pace.pace(rules.members(trained_trial, training_spec))
    finding = training_pace.rate(pace, TrainingSection(tflops=600, source="us"), "job", ["NVIDIA A100-SXM4-80GB"])
    assert (finding.ok, finding.fault) == (None, "") and "the GPUs are NVIDIA A100-SXM4-80GB" in finding.observed


@pytest.mark.parametrize(
    ("change", "fault", "ok"),
    [
        ({"timed_out": True}, "training.no-end", False),
        ({"exit": 1, "output_tail": "RuntimeError: no kernel image"}, "training.failed", False),
        ({"stopped": "rank 0: its pod is gone"}, "", None),
        ({"skipped": "stopped: SIGTERM"}, "", None),
        ({"ranks": []}, "", None),
    ],
)
def test_steps_that_did_not_complete(trained_trial, training_spec, change, fault, ok):
    trained_trial.evidence[1].stages["training"].update(change)
    by_node = {f.subject: f for f in rules.completed(trained_trial, training_spec)}
    assert by_node["gpu-node-0"].ok is True
    assert (by_node["gpu-node-1"].fault, by_node["gpu-node-1"].ok) == (fault, ok)


def test_a_gpu_that_fails_or_is_slowed_while_it_trains(trained_trial, training_spec):
    data = trained_trial.evidence[1].stages["training"]
    data["gpus"][5].update(throttle=["hw_thermal_slowdown"], ecc_uncorrected_volatile=2)
    data["xid"] = [{"bus_id": "0000:41:00", "xid": 79, "count": 1}]
    slow = each_gpu(trained_trial, training_spec, clock_ailments, ("throttle",), "fast", "training")
    sick = each_gpu(trained_trial, training_spec, memory_ailments, ("remap_failure",), "well", "training")
    reports = xid_findings(trained_trial, training_spec, "training")
    assert faults([*slow, *sick, *reports]) == {
        ("gpu.throttled", "gpu-node-1 GPU 5"),
        ("gpu.ecc", "gpu-node-1 GPU 5"),
        ("gpu.xid", "gpu-node-1 GPU 0000:41:00"),
    }


def test_a_gpu_that_is_no_longer_read_after_the_steps_does_not_pass(trained_trial, training_spec):
    """Seven healthy GPUs do not show that the eighth is."""
    evidence = trained_trial.evidence[1].stages
    evidence["runtime"] |= {"gpus": list(evidence["training"]["gpus"])}
    del evidence["training"]["gpus"][5]
    findings = list(each_gpu(trained_trial, training_spec, clock_ailments, ("throttle",), "fast", "training"))
    assert [(f.subject, f.ok) for f in findings if not f.ok] == [("gpu-node-1 GPU 5", None)]


def test_links_are_watched_while_the_steps_run(trained_trial):
    assert growth(trained_trial, 0)["mlx5_0:1"]["port_xmit_data"] >= 10**9


def test_a_torch_without_this_fsdp2_is_reported_and_no_fault(trained_trial, training_spec):
    for node in (0, 1):
        for local in range(8):
            steps_of(trained_trial, node, local)["modes"][1] = {
                "mode": "fsdp2",
                "steps": 0,
                "why": "TypeError: no mesh",
            }
    members = rules.members(trained_trial, training_spec)
    assert "fsdp2 was not run: TypeError: no mesh" in list(training_pace.notes(members, training_pace.pace(members)))
    assert faults([*rules.completed(trained_trial, training_spec), *rules.losses(members)]) == set()


def test_one_rank_alone_is_compared_with_no_one(trained_trial, training_spec):
    trained_trial.evidence[0].stages["training"]["ranks"] = [steps_of(trained_trial, 0, 0)]
    trained_trial.evidence[1].stages["training"]["ranks"] = []
    assert undecided(rules.slow_members(rules.members(trained_trial, training_spec))) == ["gpu-node-0 GPU 0"]


def test_leaving_one_out_is_the_median_of_the_others():
    values = sorted([3.0, 1.0, 4.0, 1.5, 9.0, 2.0])
    for value in values:
        remaining = list(values)
        remaining.remove(value)
        assert stragglers.without(values, value) == sorted(remaining)[2]
    assert stragglers.without([1.0, 5.0, 7.0], 5.0) == 4.0


def test_a_profile_says_where_its_floor_comes_from():
    with pytest.raises(ValueError, match="source"):
        TrainingSection(tflops=400)


def test_a_slow_node_is_reported_with_how_many_others_and_by_how_much(trained_trial, training_spec):
    """training.slow-node shows its time, the others' time, and the number of nodes and GPUs in the comparison."""
    for local in range(8):
        steps_of(trained_trial, 1, local)["compute_ms"] = around(COMPUTE_MS * 1.2, 8 + local)
    members = rules.members(trained_trial, training_spec)
    more = [
        replace(member, node=node)
        for node in ("gpu-node-2", "gpu-node-3")
        for member in members
        if member.node == "gpu-node-0"
    ]
    (finding,) = [each for each in rules.slow_members([*members, *more]) if each.fault == "training.slow-node"]
    assert finding.subject == "gpu-node-1"
    told = re.fullmatch(
        r"own compute ([\d.]+) ms a step, ([\d.]+)% above the GPUs of 3 other nodes \(([\d.]+) ms\)", finding.observed
    )
    own, share, others = map(float, told.groups())
    assert (own, share, others) == (pytest.approx(60, abs=1), pytest.approx(20, abs=2), pytest.approx(50, abs=1))
    assert re.fullmatch(r"less than [\d.]+% above", finding.expected)

    steps_of(trained_trial)["compute_ms"] = around(COMPUTE_MS * 1.2, 5)
    for local in (0, 1, 2, 3, 4, 6, 7):
        steps_of(trained_trial, 1, local)["compute_ms"] = around(COMPUTE_MS, 8 + local)
    findings = list(rules.slow_members(rules.members(trained_trial, training_spec)))
    (finding,) = [each for each in findings if each.fault]
    assert (finding.fault, finding.subject) == ("training.slow-gpu", "gpu-node-1 GPU 5")
    assert "% above 15 others (" in finding.observed
    assert all("% below 15 others (" in each.observed or "% above 15 others (" in each.observed for each in findings)
