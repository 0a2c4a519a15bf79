"""GPUs of the trial's pods: number, identity, health, and drift between nodes."""

from dataclasses import replace

import pytest

from checks.profiles.loader import Profile
from checks.profiles.schema import RuntimeSection
from checks.rules import gpu_health
from checks.rules.runtime import (
    drift_findings,
    gpu_findings,
    gpu_notes,
    managed,
    skip_if_managed,
    skip_if_unseen,
    toolkit_findings,
)
from seatrial.faults.advice import FAULTS
from tests.checks.gpus import every_ailment, runtime


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"nvidia_smi": {"found": False, "exit": None, "error": "not in this pod"}}, "runtime.nvidia-smi"),
        ({"nvidia_smi": {"found": True, "exit": 9, "error": "driver mismatch"}}, "runtime.nvidia-smi"),
        (
            {
                "nvidia_smi": {
                    "found": True,
                    "exit": 15,
                    "error": "Unable to determine the device handle for GPU 0000:9D:00.0: GPU is lost.",
                }
            },
            "gpu.off-bus",
        ),
        ({"assigned": ["GPU-0", "GPU-1"]}, "runtime.extra-gpus"),
        ({"gpus": []}, "runtime.gpu-count"),
        ({"driver": "570.86.15"}, "runtime.driver-old"),
    ],
)
def test_a_broken_runtime_is_one_fault_on_its_node(trial, spec, h100, bad, changes, fault):
    """Only the first fault of the node is reported."""
    runtime(trial, **changes)
    assert bad(gpu_findings(trial, spec, h100)) == [("gpu-node-1", fault)]


def test_one_gpu_too_many_is_reported_too(trial, spec, h100, bad):
    """A pod that sees a GPU of another pod is not isolated."""
    gpus = trial.evidence[1].stages["runtime"]["gpus"]
    gpus.append(dict(gpus[0], index=8))
    assert bad(gpu_findings(trial, spec, h100)) == [("gpu-node-1", "runtime.extra-gpus")]


def test_the_gpus_that_were_assigned_are_its_own(trial, spec, h100, bad):
    """The device plugin's list equals the pod's GPUs; without a list there is no finding."""
    runtime(trial, assigned=[f"GPU-{i}" for i in range(8)])
    assert not bad(gpu_findings(trial, spec, h100))
    runtime(trial, assigned=None)
    assert not bad(gpu_findings(trial, spec, h100))


def test_parts_are_never_compared_with_whole_gpus(trial, spec, h100, bad):
    """MIG has a separate fault, reported before any count."""
    trial.evidence[1].stages["runtime"]["gpus"][2].update(mig="Enabled", mig_devices=7)
    findings = list(gpu_findings(trial, spec, h100))
    assert bad(findings) == [("gpu-node-1", "gpu.mig-enabled")]
    assert "GPU 2" in findings[1].observed


def test_an_unreadable_driver_version_is_not_judged(trial, spec, h100):
    """A missing version is undetermined, and not requested without a minimum."""
    runtime(trial, driver=None)
    assert [f.ok for f in gpu_findings(trial, spec, h100)] == [True, None]
    assert [f.ok for f in gpu_findings(trial, spec, Profile())] == [True, True]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"ecc_uncorrected_volatile": 1}, "gpu.ecc"),
        ({"remap_pending": True}, "gpu.row-remap"),
        ({"remap_failure": True, "remap_pending": True}, "gpu.remap-failed"),
        ({"retired_pending": True}, "gpu.row-remap"),
        ({"remap_pending": True, "recovery_action": "Reset"}, "gpu.row-remap"),
        ({"remap_failure": True, "recovery_action": "Drain and Reset"}, "gpu.remap-failed"),
        ({"ecc_uncorrected_volatile": 2, "recovery_action": "Reset"}, "gpu.ecc"),
        ({"fabric_state": "In Progress"}, "gpu.fabric"),
        ({"fabric_status": "Unknown Error"}, "gpu.fabric"),
        ({"recovery_action": "Reset"}, "gpu.recovery-needed"),
        ({"nvlinks_active": 17}, "gpu.nvlink-down"),
        ({"fabric_health": {"summary": "Unhealthy", "bandwidth": "Degraded"}}, "gpu.fabric"),
        ({"throttle": ["hw_thermal_slowdown"]}, "gpu.throttled"),
    ],
)
def test_a_sick_gpu_is_named(trial, spec, bad, changes, fault):
    """A defect is one fault on that GPU of that node."""
    trial.evidence[0].stages["runtime"]["gpus"][3].update(changes)
    assert bad(every_ailment(trial, spec)) == [("gpu-node-0 GPU 3", fault)]


@pytest.mark.parametrize(
    "changes",
    [
        {"ecc_uncorrected_aggregate": 4},
        {"fabric_state": "N/A", "fabric_status": "N/A"},
        {"fabric_state": None, "fabric_status": None},
        {"throttle": ["sw_thermal_slowdown"]},
        {"ecc_uncorrected_volatile": None},
    ],
)
def test_history_and_absence_are_no_ailments(trial, spec, bad, changes):
    """Aggregate counters, a board without NVSwitch, a warm GPU and cards without ECC are healthy."""
    for evidence in trial.evidence.values():
        for gpu in evidence.stages["runtime"]["gpus"]:
            gpu.update(changes)
    assert not bad(every_ailment(trial, spec))


def test_a_gpu_that_leaves_out_what_most_tell_is_not_healthy(trial, spec, bad):
    """A GPU without ECC counters among others with them may hide its errors."""
    trial.evidence[0].stages["runtime"]["gpus"][3].update(ecc_uncorrected_volatile=None)
    assert set(bad(every_ailment(trial, spec))) == {("gpu-node-0 GPU 3", "")}
    findings = gpu_health.each_gpu(trial, spec, gpu_health.memory_ailments, gpu_health.MEMORY, "no memory fault")
    assert [f.subject for f in findings if "not reported, unlike on most GPUs: " in f.observed] == ["gpu-node-0 GPU 3"]


def test_a_gpu_that_alone_reports_its_memory_is_healthy_by_that(trial, spec):
    """Values that most GPUs lack are not required, but count where present."""
    for rank, evidence in trial.evidence.items():
        for gpu in evidence.stages["runtime"]["gpus"]:
            gpu.update(dict.fromkeys(gpu_health.MEMORY, 0 if (rank, gpu["index"]) == (0, 3) else None))
    findings = gpu_health.each_gpu(trial, spec, gpu_health.memory_ailments, gpu_health.MEMORY, "no memory fault")
    assert [f.subject for f in findings if f.ok] == ["gpu-node-0 GPU 3"]


def test_a_gpu_that_reports_nothing_is_not_healthy(trial, spec):
    """An empty observation is never a pass."""
    nothing = dict.fromkeys(trial.evidence[0].stages["runtime"]["gpus"][3], None)
    trial.evidence[0].stages["runtime"]["gpus"][3] = {**nothing, "index": 3, "throttle": []}
    assert [f.ok for f in every_ailment(trial, spec)] == [None] * 4


def test_driver_and_toolkit_of_managed_nodes_are_skipped_with_a_reason(evidence, h100):
    """The variable in the user's document and the profile's setting skip these checks and transfer responsibility."""
    with pytest.raises(pytest.skip.Exception, match="TAO_K8S_SKIP_NODE_RUNTIME_CHECK"):
        skip_if_managed(h100, {"TAO_K8S_SKIP_NODE_RUNTIME_CHECK": "1"}, evidence)
    assert evidence.waived
    with pytest.raises(pytest.skip.Exception, match=r"runtime\.managed"):
        skip_if_managed(replace(h100, runtime=RuntimeSection(managed=True)), {}, evidence)
    skip_if_managed(h100, {"TAO_K8S_SKIP_NODE_RUNTIME_CHECK": "0"}, evidence)


def test_gpus_of_managed_nodes_are_judged_unless_no_pod_has_the_tool(trial, evidence, h100):
    """A tool that no pod has is not a fault on managed nodes; its output in any pod is judged."""
    why = managed(h100, {"TAO_K8S_SKIP_NODE_RUNTIME_CHECK": "1"})
    tools = [each.stages["runtime"]["nvidia_smi"] for each in trial.evidence.values()]
    skip_if_unseen(why, trial, evidence)
    tools[0]["found"] = False
    skip_if_unseen(why, trial, evidence)
    for tool in tools:
        tool["found"] = False
    skip_if_unseen("", trial, evidence)
    with pytest.raises(pytest.skip.Exception, match="no pod has nvidia-smi"):
        skip_if_unseen(why, trial, evidence)
    assert evidence.waived


def test_another_driver_is_no_drift_where_it_is_the_providers(trial, spec):
    trial.evidence[1].stages["runtime"].update(driver="570.1", cuda="12.8")
    assert [f.ok for f in drift_findings(trial, spec)] != [True, True]
    assert [f.ok for f in drift_findings(trial, spec, driver=False)] == [True, True]
    trial.evidence[1].stages["runtime"]["gpus"][0]["name"] = "NVIDIA H200"
    assert [f.ok for f in drift_findings(trial, spec, driver=False)] != [True, True]


@pytest.mark.parametrize(
    ("installed", "toolkit", "fault"),
    [
        ("v1.17.8", None, "runtime.toolkit-old"),
        ("", "1.16.2", "runtime.toolkit-old"),
        ("v1.19.0", None, ""),
        ("1.20", None, ""),
        ("", "1.19.1", ""),
    ],
)
def test_the_toolkit_is_judged_by_whichever_evidence_exists(trial, spec, bad, installed, toolkit, fault):
    """The version comes from the operator's image or from inside the pod; a missing one is neither old nor new."""
    for rank in trial.evidence.values():
        rank.stages["runtime"]["toolkit"] = toolkit
    assert {f for _, f in bad(toolkit_findings(trial, spec, installed, "1.19.0"))} == ({fault} if fault else set())
    runtime(trial, toolkit=None)
    trial.evidence[0].stages["runtime"]["toolkit"] = None
    assert {f.ok for f in toolkit_findings(trial, spec, "", "1.19.0")} == {None}


@pytest.mark.parametrize("changes", [{"driver": "580.65.06"}, {"cuda": "12.9"}])
def test_two_nodes_that_differ_are_both_named_and_none_at_fault(trial, spec, bad, changes):
    """The finding names both values and their nodes, since neither node is known to be right."""
    runtime(trial, **changes)
    trial.evidence[0].stages["runtime"]["cuda"] = "13.0"
    findings = list(drift_findings(trial, spec))
    (name,) = changes
    (finding,) = [f for f in findings if f.ok is False]
    assert (finding.subject.lower(), finding.fault) == (name, "runtime.drift")
    assert f"{changes[name]} on gpu-node-1" in finding.observed
    assert "on gpu-node-0" in finding.observed


def test_a_board_with_another_vbios_is_drift_and_equal_nodes_are_not(trial, spec, bad):
    """A replaced board shows in no label; a missing value is not a difference."""
    assert not bad(drift_findings(trial, spec))
    for rank, version in ((0, "96.00.99"), (1, "96.00.89")):
        for gpu in trial.evidence[rank].stages["runtime"]["gpus"]:
            gpu["vbios"] = version
    findings = list(drift_findings(trial, spec))
    assert bad(findings) == [("VBIOS", "runtime.drift")]
    assert "VBIOS differs: 96.00.99 on gpu-node-0; 96.00.89 on gpu-node-1" in findings[0].observed


def test_serious_xids_are_faults_and_the_programs_own_are_notes(trial, spec, bad):
    """Xid 79 is a hardware fault, 31 a program fault; an unreadable kernel log proves neither."""
    assert not bad(gpu_health.xid_findings(trial, spec))
    runtime(
        trial, xid=[{"bus_id": "0000:1b:00", "xid": 79, "count": 1}, {"bus_id": "0000:1b:00", "xid": 31, "count": 4}]
    )
    assert bad(gpu_health.xid_findings(trial, spec)) == [("gpu-node-1 GPU 0000:1b:00", "gpu.xid")]
    (note,) = (each for each in gpu_health.notes(trial, spec) if "Xids" in each)
    assert note.startswith("gpu-node-1: other Xids in the kernel's log: 31 (an MMU fault: ")


@pytest.mark.parametrize(
    ("ok", "numbers"),
    [
        (False, (46, 48, 74, 109, 143, 151, 158)),
        (None, (54, 144, 154, 199, 1000)),
        (True, (8, 13, 31, 39, 43, 45, 63, 92, 94)),
    ],
)
def test_an_xid_is_judged_by_what_nvidias_catalogue_asks_for(trial, spec, ok, numbers):
    """A required reset or reboot is a fault; numbers with a separate workflow and unknown numbers are undetermined."""
    for number in numbers:
        runtime(trial, xid=[{"bus_id": "0000:1b:00", "xid": number, "count": 2}])
        findings = [(f.ok, f.fault) for f in gpu_health.xid_findings(trial, spec)]
        assert findings == {False: [(False, "gpu.xid")], None: [(None, "")], True: []}[ok], number
        noted = [note for note in gpu_health.notes(trial, spec) if f"log: {number} (" in note]
        assert len(noted) == (ok is not False and number not in (199, 1000)), number


def test_an_xid_brings_its_own_action(trial, spec):
    """The heaviest action stays on its GPU; a number missing in the table refers to NVIDIA's catalogue."""
    numbers = {"0000:1b:00": 79, "0000:43:00": 119, "0000:9d:00": 999, "0000:aa:00": 13}
    runtime(trial, xid=[{"bus_id": bus, "xid": number, "count": 1} for bus, number in numbers.items()])
    findings = list(gpu_health.xid_findings(trial, spec))
    assert [(f.ok, f.action) for f in findings] == [(False, "REBOOT_NODE"), (False, "RESET_GPU"), (None, "UNKNOWN")]
    assert "look it up" in findings[-1].observed


@pytest.mark.parametrize(("number", "action"), [(13, "RESTART_APP"), (43, "NONE")])
def test_an_xid_of_the_trials_own_program_asks_for_nothing_of_the_node(trained_trial, training_spec, number, action):
    trained_trial.evidence[1].stages["training"]["xid"] = [{"bus_id": "0000:41:00", "xid": number, "count": 1}]
    (found,) = gpu_health.xid_findings(trained_trial, training_spec, "training")
    assert (found.ok, found.action) == (None, action)


def test_what_the_driver_recommends_is_reported_with_the_memory_fault_that_hides_it(trial, spec):
    """A reboot that the driver recommends outranks the reset for the memory error."""
    gpu = trial.evidence[0].stages["runtime"]["gpus"][3]
    gpu.update(ecc_uncorrected_volatile=2, recovery_action="Reboot")
    (found,) = every_ailment(trial, spec)
    assert (found.fault, FAULTS[found.fault].action_for(found.observed)) == ("gpu.ecc", "REBOOT_NODE")
    gpu.update(recovery_action="None")
    (found,) = every_ailment(trial, spec)
    assert (found.observed, FAULTS[found.fault].action_for(found.observed)) == (
        "2 uncorrected ECC errors since the driver was loaded",
        "RESET_GPU",
    )


@pytest.mark.parametrize("number", [13, 31, 43, 45])
def test_an_xid_that_programs_bring_about_is_open_while_the_trial_itself_trains(trained_trial, training_spec, number):
    """In the log of earlier days an Xid may be from any program, during the trial only from ours."""
    trained_trial.evidence[1].stages["training"]["xid"] = [{"bus_id": "0000:41:00", "xid": number, "count": 1}]
    (found,) = gpu_health.xid_findings(trained_trial, training_spec, "training")
    assert (found.ok, found.subject) == (None, "gpu-node-1 GPU 0000:41:00")
    assert f"Xid {number}, 1 times: " in found.observed


def test_persistence_is_a_note_and_a_fault_only_where_asked_for(trial, spec, bad):
    """Disabled persistence mode is slow but works; a profile may require it."""
    trial.evidence[1].stages["runtime"]["gpus"][4]["persistence"] = False
    assert any("persistence mode is off on GPU 4" in text for text in gpu_health.notes(trial, spec))
    findings = gpu_health.each_gpu(trial, spec, gpu_health.persistence_ailments, ("name",), "")
    assert bad(findings) == [("gpu-node-1 GPU 4", "runtime.persistence-off")]


def test_what_nvidia_smi_garbled_is_not_a_missing_gpu(trial, spec, h100):
    """nvidia-smi exited with 0 but its XML is unreadable, so the number of GPUs is unknown."""
    trial.evidence[1].stages["runtime"].update(
        gpus=[], nvidia_smi={"found": True, "exit": 0, "error": "broken XML: line 5"}
    )
    findings = [f for f in gpu_findings(trial, spec, h100) if f.ok is not True]
    assert [(f.ok, f.subject, f.fault) for f in findings] == [(None, "gpu-node-1", "")]
    assert "broken XML: line 5" in findings[0].observed


def test_a_gpu_that_is_listed_twice_is_one_gpu(trial, spec, h100, bad):
    """Eight lines of nvidia-smi with a repeated UUID are fewer than eight GPUs."""
    trial.evidence[1].stages["runtime"]["gpus"][1]["uuid"] = "GPU-0"
    assert bad(gpu_findings(trial, spec, h100)) == [("gpu-node-1", "runtime.gpu-count")]
    (finding,) = (f for f in gpu_findings(trial, spec, h100) if not f.ok)
    assert "only 7 are different (GPU-0 appears twice)" in finding.observed


def test_gpus_that_do_not_say_who_they_are_are_counted(trial, spec, h100, bad):
    """A driver without UUIDs is not a fault."""
    for gpu in trial.evidence[1].stages["runtime"]["gpus"]:
        gpu["uuid"] = None
    assert not bad(gpu_findings(trial, spec, h100))


def test_pods_that_show_the_same_gpus_are_named(trial, spec):
    """Nodes that share one machine (kind) are not two nodes, which is reported without a fault."""
    (said,) = gpu_notes(trial, spec)
    assert said.startswith("8 GPUs of rank 1 on gpu-node-1 have the UUIDs of rank 0 on gpu-node-0's")
    for gpu in trial.evidence[1].stages["runtime"]["gpus"]:
        gpu["uuid"] += "-other"
    assert not list(gpu_notes(trial, spec))


def test_gpus_of_another_kind_are_not_held_against_this_profile(trial, spec, h100):
    """Without labels, as for a tenant, the driver's product name identifies a profile of other machines."""
    for gpu in trial.evidence[1].stages["runtime"]["gpus"]:
        gpu["name"] = "NVIDIA H200"
    odd = [f for f in gpu_findings(trial, spec, h100) if f.ok is not True]
    assert [(f.subject, f.ok, f.fault) for f in odd] == [("gpu-node-1", None, "nodes.other-kind")]
    assert (odd[0].observed, odd[0].expected) == ("the GPUs are NVIDIA H200", "*H100* (profile h100-ib, gpu.product)")
