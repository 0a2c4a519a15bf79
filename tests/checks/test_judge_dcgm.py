"""Results of runtime.dcgm: attributed faults and undetermined results."""

import pytest

from checks.framework.options import Options
from checks.framework.sweep_spec import sweep_spec
from checks.framework.trial_spec import build_spec
from checks.profiles.loader import Profile, load_profile
from checks.profiles.schema import RuntimeSection
from checks.profiles.trial import spec_of
from checks.rules import dcgm
from jobs.trial.names import SpecError
from jobs.trial.parts import DCGM_S, Deadlines

ALL = [f"GPU {index}" for index in range(8)]


def result(test="memory", status="fail", who=("GPU 3",), of="Hardware", **said):
    """Return one result of a test of that category; ``said``: its only warning."""
    return {"test": test, "status": status, "who": list(who), "category": of, "said": [said] if said else []}


def software(status="pass", **said):
    """The deployment test of DCGM 4, of all GPUs."""
    return result("software", status, ALL, "Deployment", **said)


def told(trial, *results, **changes):
    """Return evidence with a healthy rank 0 and this rank 1."""
    stage = {"level": 2, "found": True, "version": "4.4.1", "exit": 0, "error": None}
    trial.evidence[0].stages["dcgm"] = {**stage, "results": [software()]}
    trial.evidence[1].stages["dcgm"] = {**stage, "results": list(results), **changes}
    return trial


def test_gpus_whose_tests_pass_are_healthy(trial, spec):
    findings = list(dcgm.findings(told(trial, software()), spec))
    assert [f.ok for f in findings] == [True] * 16
    assert findings[0].observed == "DCGM 4.4.1, passed: software"


@pytest.mark.parametrize(
    ("failure", "fault"),
    [
        (result(text="a mismatch", category=10, severity=2, id=58), "gpu.dcgm-failed"),
        (result(text="aborted by a row remap", category=10, severity=5), "gpu.dcgm-failed"),
        (result("pcie", text="below the floor", category=1, severity=1), "gpu.dcgm-failed"),
        (result(text="an Xid was seen", category=5, severity=4), "gpu.dcgm-failed"),
        (result("GPU Memory", text="a mismatch"), "gpu.dcgm-failed"),
        (result("GPU Memory"), "gpu.dcgm-failed"),
        (result("Page Retirement/Row Remap", of="Deployment", text="pending"), "gpu.dcgm-failed"),
        (result("software", of="Deployment", text="a variable", category=3, severity=5), "runtime.dcgm-setup"),
        (result("software", of="Deployment", text="bad library", category=4, severity=2), "runtime.dcgm-setup"),
        (result("NVML Library", of="Deployment", text="not found"), "runtime.dcgm-setup"),
        (result("memory", text="other software", category=8, severity=5), "runtime.dcgm-setup"),
        (result("memory", text="other software", category=8, severity=6), "gpu.dcgm-failed"),
    ],
)
def test_a_failure_is_a_fault_of_the_gpu_or_the_setup(trial, spec, bad, failure, fault):
    """The attribution follows DCGM's category, then its severity, then the test's subject."""
    assert bad(dcgm.findings(told(trial, failure, software()), spec)) == [("gpu-node-1 GPU 3", fault)]


@pytest.mark.parametrize(
    ("failure", "action"),
    [
        (result(text="a mismatch", category=10, severity=2, id=58), "CONTACT_SUPPORT"),
        (result(text="a remap is pending", category=10, severity=2, id=85), "RESET_GPU"),
        (result(text="a mismatch", category=10, severity=2), ""),
        (result(text="an Xid was seen", category=5, severity=4, id=101), ""),
        (result("software", of="Deployment", text="a variable", category=3, severity=5, id=80), ""),
    ],
)
def test_an_error_of_a_gpu_asks_for_what_its_number_says(trial, spec, failure, action):
    """Without a known number the fault's entry decides; a setting requires no node action."""
    (found,) = (f for f in dcgm.findings(told(trial, failure, software()), spec) if f.ok is False)
    assert found.action == action


def test_what_several_gpus_fail_together_is_their_nodes(trial, spec, bad):
    failure = result("NVML Library", who=ALL, of="Deployment", text="not found")
    assert bad(dcgm.findings(told(trial, failure), spec)) == [("gpu-node-1", "runtime.dcgm-setup")]


@pytest.mark.parametrize(
    "other",
    [
        result(status="warn", text="warm"),
        result(status="error"),
        result(text="the test was aborted early", id=7, severity=5),
        result("Permissions and OS Blocks", of="Deployment"),
        result("software", of="Deployment", text="no permission to create a folder", severity=5),
    ],
)
def test_what_measured_nothing_raises_no_fault_and_passes_no_one(trial, spec, bad, other):
    findings = list(dcgm.findings(told(trial, other, software()), spec))
    assert bad(findings) == [("gpu-node-1 GPU 3", "")]
    assert [f.ok for f in findings if f.subject == "gpu-node-1 GPU 3"] == [None]


def test_persistence_mode_is_anothers_matter_and_nothing_else_with_it(trial, spec, bad):
    """In DCGM 4 disabled persistence mode fails the whole deployment test, which then proves no GPU; DCGM 3 has a
    separate test."""
    off = {"text": "Persistence mode is off.", "id": 29, "severity": 5, "category": 8}
    findings = list(dcgm.findings(told(trial, software("fail", **off)), spec))
    assert [f.ok for f in findings] == [True] * 8 + [None] * 8
    assert {f.fault for f in findings} == {""}
    assert "Persistence mode is off" in findings[-1].observed
    alone = result("Persistence Mode", who=ALL, of="Deployment")
    assert bad(dcgm.findings(told(trial, alone, result("PCIe", "pass", ALL)), spec)) == []
    both = software("fail", **off)
    both["said"].append({"text": "A pending page.", "category": 10, "severity": 6})
    assert bad(dcgm.findings(told(trial, both), spec)) == [("gpu-node-1", "gpu.dcgm-failed")]


def test_a_gpu_whose_tests_are_all_skipped_does_not_pass(trial, spec):
    """A GPU without a passed test does not pass; a skipped test next to a passed one is reported."""
    skipped = result(status="skip", who=ALL, text="not supported")
    findings = [f for f in dcgm.findings(told(trial, skipped), spec) if f.subject.startswith("gpu-node-1")]
    assert {f.ok for f in findings} == {None}
    assert "memory skipped: not supported" in findings[0].observed
    findings = list(dcgm.findings(told(trial, skipped, result("software", "pass", ALL[:7])), spec))
    assert [f.ok for f in findings] == [True] * 15 + [None]
    assert "memory skipped" in findings[8].observed


@pytest.mark.parametrize("changes", [{"error": "dcgmi did not end within 90 s"}, {"found": False}, {"found": None}])
def test_a_node_that_does_not_tell_is_unknown(trial, spec, changes):
    findings = [f for f in dcgm.findings(told(trial, **changes), spec) if f.subject == "gpu-node-1"]
    assert [f.ok for f in findings] == [None]
    del trial.evidence[1].stages["dcgm"]
    assert [f.ok for f in dcgm.findings(trial, spec)][-1] is None


def test_only_a_trial_where_no_pod_has_it_is_skipped(trial):
    """Pods without a report do not cause a skip."""
    assert dcgm.missing(trial) == []
    for rank in (0, 1):
        trial.evidence[rank].stages["dcgm"] = {"found": False, "missing": ["nv-hostengine"]}
    assert dcgm.missing(trial) == ["nv-hostengine"]
    trial.evidence[0].stages["dcgm"] = {"found": True}
    assert dcgm.missing(trial) == []


def test_the_command_line_sets_the_level():
    """The option overrides the profile's level and sets its time limit; GPUs of other vendors have no levels."""

    def made(profile, level, **more):
        return build_spec(profile, Options(dcgm=level, **more), run_id="2a3b4c5d6e", namespace="n")

    third = Profile(runtime=RuntimeSection(dcgm=3))
    assert [getattr(made(third, level).dcgm, "level", None) for level in (None, 0, 2)] == [3, None, 2]
    assert made(third, 2) == made(Profile(runtime=RuntimeSection(dcgm=2)), None)
    amd = load_profile("mi300x")
    assert made(amd, 0).dcgm is None
    with pytest.raises(SpecError, match="--dcgm: DCGM diagnoses NVIDIA GPUs only"):
        made(amd, 1)


def test_a_sweep_has_the_time_that_its_level_takes():
    """Level 1 adds nothing to the budget of a sweep without diagnostics."""

    def budget(level):
        spec = spec_of(Profile(runtime=RuntimeSection(dcgm=level)), run_id="2a3b4c5d6e", namespace="n")
        made = sweep_spec(spec, ("a", "b"), {}, Profile(), Options())
        assert made.deadlines.probe_s > made.sweep.budget_s
        return made.sweep.budget_s

    assert budget(0) == budget(1)
    assert budget(3) > budget(1) + DCGM_S[3]


def test_deeper_levels_have_the_time_that_they_take():
    """Level 1 adds no time; without NVIDIA GPUs, or if the profile disables it, nothing runs."""
    made = {
        level: spec_of(Profile(runtime=RuntimeSection(dcgm=level)), run_id="a", namespace="n") for level in range(5)
    }
    assert made[0].dcgm is None
    assert made[1].deadlines == Deadlines()
    for level in (2, 3, 4):
        assert made[level].dcgm.limit_s == DCGM_S[level]
        assert made[level].deadlines.probe_s > Deadlines().probe_s + DCGM_S[level]
