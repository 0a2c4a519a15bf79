"""Results of checkpoint.*: the saved data, its location, and the resumed step."""

from dataclasses import replace

import pytest

from checks.framework.options import Options
from checks.framework.trial_spec import build_spec
from checks.profiles.schema import CheckpointSection, StoragePath, StorageSection, parameters
from checks.profiles.trial import checkpoint_of
from checks.rules.checkpoint import (
    measured,
    model_findings,
    place_findings,
    resumed_findings,
    saved_findings,
    section,
    warnings,
)
from cli.schedule.node_history import faults_naming
from jobs.trial.names import SpecError

NODES = ["gpu-node-0", "gpu-node-1"]
PATHS = [f"{node} /results" for node in NODES]
PAIRS = ["gpu-node-0 -> gpu-node-1", "gpu-node-1 -> gpu-node-0"]
ASKED = CheckpointSection()
MIB = 2**20


def checkpoint_stage(rank):
    """The evidence of a pod of two nodes with eight ranks each, everything as it should be."""
    saves = [{"step": step, "bytes": 64 * MIB, "at": 1.0, "pause_s": 1.0, "write_s": 0.5} for step in (1, 2)]
    states = ("writing", "local", "flushing", "durable", "verified")
    return {
        "where": "/results",
        "error": None,
        "memory_free": 2**36,
        "places": [
            {"role": "path", "path": "/results", "kind": "claim", "fs": "nfs4", "mounted": True, "mode": 0o770},
            {"role": "local", "path": "/scratch", "kind": "scratch", "fs": "ext4", "mounted": True, "mode": 0o777},
        ],
        "ranks": [{"rank": rank * 8 + local, "saves": saves} for local in range(8)],
        "states": [{"step": 2, "state": state, "at": 1.0} for state in states],
        "flush": {"seconds": 2.0, "mb_s": 100.0, "bytes": 512 * MIB},
        "verified": {"peer": 1 - rank, "elsewhere": True, "seen": True, "ok": True, "files": 8, "bad": [], "mb_s": 9.0}
        | {"bytes": 8 * 64 * MIB},
        "crash": {"step": 3, "rank": 15, "exit": 1, "torn": True},
        "resume": {"step": 2, "wrong": 0, "seconds": 3.0, "passed_over": [{"step": 3, "state": "writing"}]},
    }


@pytest.fixture
def saved(trial):
    """Return a trial whose pods saved, verified and resumed."""
    for rank, evidence in trial.evidence.items():
        evidence.stages["checkpoint"] = checkpoint_stage(rank)
    return trial


def change(trial, **changes):
    """Change a part of every pod's evidence."""
    for evidence in trial.evidence.values():
        for name, value in changes.items():
            part = evidence.stages["checkpoint"][name]
            evidence.stages["checkpoint"][name] = part | value if isinstance(value, dict) and part else value
    return trial


def faults(bad, findings):
    return [each for each in bad(findings) if each[1]]


def test_a_checkpoint_that_works_raises_nothing(saved, spec, bad):
    for findings in (
        saved_findings(saved, spec, ASKED),
        place_findings(saved, spec, CheckpointSection(private=True)),
        resumed_findings(saved, spec),
    ):
        raised = list(findings)
        assert len(raised) == 2
        assert not bad(raised)


def test_a_crash_that_did_not_happen_proves_nothing(saved, spec):
    """The step in which a rank should crash is complete."""
    findings = list(resumed_findings(change(saved, crash={"torn": False, "exit": 0}), spec))
    assert [(f.ok, f.fault) for f in findings] == [(None, "")] * 2
    assert all("and was not" in f.observed for f in findings)


def test_a_rank_that_reports_nothing_of_what_it_saved_is_no_pass(saved, spec):
    """Without its figures there is no rate to compare with the profile's."""
    saved.evidence[1].stages["checkpoint"]["ranks"].pop()
    asked = CheckpointSection(mb_s=1, source="us")
    undecided = [(f.subject, f.ok) for f in saved_findings(saved, spec, asked) if f.ok is not True]
    assert undecided == [("gpu-node-0", None), ("all ranks", None)]  # the first node read the second node's files


def test_a_rank_without_a_number_is_not_rank_0(saved, spec):
    """Its report would otherwise count as the missing one."""
    saved.evidence[0].stages["checkpoint"]["ranks"][0]["rank"] = None
    undecided = [(f.subject, f.ok) for f in saved_findings(saved, spec, ASKED) if f.ok is not True]
    assert ("gpu-node-1", None) in undecided


def test_what_was_not_tried_is_not_reported(saved, spec):
    for evidence in saved.evidence.values():
        evidence.stages["checkpoint"] = {"skipped": "/results: no room", "places": []}
    for findings in (
        saved_findings(saved, spec, ASKED),
        place_findings(saved, spec, ASKED),
        resumed_findings(saved, spec),
    ):
        assert {(f.ok, f.fault) for f in findings} == {(None, "")}


@pytest.mark.parametrize(
    ("error", "ok", "fault"),
    [
        ("exit code 1: rank 3 failed: OSError: [Errno 5] Input/output error", False, "checkpoint.failed"),
        ("/results: No space left on device (ENOSPC)", False, "storage.full"),
        ("neither torchrun nor a Python with torch is in this image", None, "checkpoint.failed"),
        ("rank 1: its command did not end in time", None, "checkpoint.failed"),
    ],
)
def test_only_a_file_system_that_refused_is_at_fault(saved, spec, error, ok, fault):
    """An image without torch and a lost peer are not storage faults."""
    change(saved, error=error)
    for evidence in saved.evidence.values():
        evidence.stages["checkpoint"] |= {"verified": None, "states": [{"step": 2, "state": "writing"}]}
    assert {(f.ok, f.fault) for f in saved_findings(saved, spec, ASKED)} == {(ok, fault)}


def test_another_checksum_elsewhere_is_corrupt(saved, spec, bad):
    saved.evidence[1].stages["checkpoint"]["verified"] |= {"bad": ["__0_0.distcp"], "ok": False}
    assert bad(saved_findings(saved, spec, ASKED)) == [("gpu-node-1 -> gpu-node-0", "checkpoint.corrupt")]


@pytest.mark.parametrize(
    "states",
    [("writing", "verified", "durable"), ("writing", "local", "verified"), ("verified",)],
    ids=["verified before durable", "never durable", "nothing before"],
)
def test_states_out_of_their_order_verify_nothing(saved, spec, states):
    change(saved, states=[{"step": 2, "state": state, "at": 1.0} for state in states])
    assert {f.ok for f in saved_findings(saved, spec, ASKED)} == {None}


def test_no_file_read_back_is_no_pass(saved, spec):
    change(saved, verified={"files": 0})
    assert {f.ok for f in saved_findings(saved, spec, ASKED)} == {None}


def test_one_node_verifies_nothing_elsewhere(saved, spec, bad):
    """A read on the writing node does not prove that another node can read."""
    change(saved, verified={"elsewhere": False})
    assert {f.ok for f in saved_findings(saved, spec, ASKED)} == {None}
    assert not faults(bad, place_findings(saved, spec, ASKED))


@pytest.mark.parametrize(("floor", "fault"), [(1100.0, "checkpoint.slow"), (1000.0, "")])
def test_the_rate_of_all_ranks_is_judged_where_the_profile_says_one(saved, spec, bad, floor, fault):
    """Sixteen ranks save 64 MiB each in a second, which is 1074 MB/s."""
    asked = CheckpointSection(mb_s=floor, source="us")
    assert bad(saved_findings(saved, spec, asked)) == ([("all ranks", fault)] if fault else [])


@pytest.mark.parametrize(
    ("changes", "asked", "fault"),
    [
        ({"mounted": False, "kind": "path", "fs": "overlay"}, ASKED, "checkpoint.not-durable"),
        ({"kind": "path", "fs": "tmpfs"}, ASKED, "checkpoint.not-durable"),
        ({"kind": "scratch"}, ASKED, "checkpoint.not-durable"),
        ({"fs": "tmpfs"}, ASKED, ""),  # behind a PVC, the provisioner decides
        ({"mode": 0o777}, ASKED, ""),
        ({"mode": 0o777}, CheckpointSection(private=True), "checkpoint.exposed"),
        ({"mode": 0o775}, CheckpointSection(private=True), "checkpoint.exposed"),
        ({"mode": 0o750}, CheckpointSection(private=True), ""),
    ],
)
def test_where_it_lies_decides_whether_it_outlives_the_job(saved, spec, bad, changes, asked, fault):
    for evidence in saved.evidence.values():
        evidence.stages["checkpoint"]["places"][0] |= changes
    assert bad(place_findings(saved, spec, asked)) == ([(path, fault) for path in PATHS] if fault else [])


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"mounted": False, "kind": "path", "fs": "overlay"}, "in the container's own file system"),
        ({"kind": "path", "fs": "tmpfs"}, "in memory"),
        ({"kind": "scratch"}, "in an emptyDir"),
    ],
)
def test_what_is_gone_with_the_pod_says_where_it_lay(saved, spec, changes, where):
    saved.evidence[0].stages["checkpoint"]["places"][0] |= changes
    (first, _) = place_findings(saved, spec, ASKED)
    assert f"it is {where}, and is deleted with the pod" in first.observed


@pytest.mark.parametrize("lost", ["fs", "mounted", "mode"])
def test_a_place_that_is_not_reported_is_no_pass(saved, spec, lost):
    """If /proc/mounts is unreadable, the file system is unknown; the mode matters only if the profile requires it."""
    for evidence in saved.evidence.values():
        evidence.stages["checkpoint"]["places"][0][lost] = None
    assert {f.ok for f in place_findings(saved, spec, CheckpointSection(private=True))} == {None}
    assert {f.ok for f in place_findings(saved, spec, ASKED)} == {True if lost == "mode" else None}


def test_what_another_node_does_not_see_stays_on_its_node(saved, spec, bad):
    """Which of the two mounts is wrong, it does not show: the pair is named, and neither of its nodes."""
    change(saved, verified={"seen": False, "files": 0, "ok": False})
    assert bad(place_findings(saved, spec, ASKED)) == [(f"{pair} /results", "checkpoint.node-local") for pair in PAIRS]
    assert not faults(bad, saved_findings(saved, spec, ASKED))


@pytest.mark.parametrize("verified", [{"seen": False, "files": 0, "ok": False}, {"bad": ["model.1"], "ok": False}])
def test_what_one_node_does_not_read_of_the_other_is_no_strike_of_either(saved, spec, verified):
    """The writer may be wrong as well as the reader: `seatrial cron` and `mark` name neither."""
    change(saved, verified=verified)
    findings = [*place_findings(saved, spec, ASKED), *saved_findings(saved, spec, ASKED)]
    wrong = [(finding.fault, finding.subject) for finding in findings if finding.ok is False]
    assert len(wrong) == 2
    assert not any(faults_naming(node, wrong) for node in NODES)


def test_a_folder_open_to_all_and_a_bucket_for_strangers_are_warned_of(saved, spec):
    """Scratch belongs to the pod, whatever its mode."""
    for evidence in saved.evidence.values():
        evidence.stages["checkpoint"]["places"][0] |= {"mode": 0o777}
        evidence.stages["storage"] = {
            "s3": [{"uri": "s3://open/x", "status": 200}, {"uri": "s3://ours", "status": 403}]
        }
    said = list(warnings(saved, spec))
    assert [text.split()[1] for text in said] == ["/results", "s3://open/x"]
    assert "read and replace" in said[0]


@pytest.mark.parametrize(
    ("changes", "ok"),
    [
        ({"wrong": 7}, False),
        ({"wrong": None, "error": "OSError: [Errno 2] No such file or directory"}, False),
        ({"wrong": None, "error": "rank 1: its command did not end in time"}, None),
        ({"step": None, "wrong": None, "error": "no step is verified"}, None),
        ({"step": 3, "wrong": 0}, None),
    ],
)
def test_a_verified_step_must_load(saved, spec, bad, changes, ok):
    """An unverified step is not resumed from; this is reported and is not a fault."""
    change(saved, resume=changes)
    findings = list(resumed_findings(saved, spec))
    assert {f.ok for f in findings} == {ok}
    named = [(node, "checkpoint.not-resumed") for node in NODES]
    assert faults(bad, findings) == (named if ok is False or "did not end" in str(changes) else [])


def test_the_state_that_was_resumed_is_said(saved, spec):
    (first, _) = resumed_findings(saved, spec)
    assert "rank 15 was killed while it wrote step 3; resumed from step 2 (verified)" in first.observed
    assert "passed over step 3 (writing)" in first.observed


# predictions


def test_a_model_is_predicted_from_the_measured_rate(saved, spec, bad):
    """70e9 parameters of 14 bytes at 1074 MB/s take 912 s of every 2712, as calculated by hand."""
    rates = measured(saved, spec)
    assert (rates.ranks, rates.size) == (16, 1024 * MIB)
    (said,) = model_findings(saved, ASKED, rates, "70B")
    assert "912.7 GiB (14 bytes a parameter)" in said.observed
    assert "pause 913 s, 33.6 % of the GPUs' time" in said.observed
    assert not bad([said])


def test_a_pause_beyond_the_profiles_is_slow(saved, spec, bad):
    asked = CheckpointSection(model="70B", pause_max_s=60.0, source="us")
    assert bad(model_findings(saved, asked, measured(saved, spec), "70B")) == [("model 70B", "checkpoint.slow")]
    assert not bad(model_findings(saved, asked, measured(saved, spec), "1B"))


def test_rank_0_that_would_gather_needs_room(saved, spec, bad):
    """64 GiB are free: 70B does not fit, 1B does; an unknown amount is not a pass."""
    asked, rates = CheckpointSection(gather=True), measured(saved, spec)
    assert bad(model_findings(saved, asked, rates, "70B")) == [("gpu-node-0 rank 0", "checkpoint.gather-memory")]
    assert not bad(model_findings(saved, asked, rates, "1B"))
    for free, fits in ((14 * 10**9, True), (14 * 10**9 - 1, False)):
        saved.evidence[0].stages["checkpoint"]["memory_free"] = free
        assert [f.ok for f in model_findings(saved, asked, rates, "1B")] == [True, fits]
    saved.evidence[0].stages["checkpoint"]["memory_free"] = None
    assert [f.ok for f in model_findings(saved, asked, rates, "70B")] == [True, None]


@pytest.mark.parametrize("lost", ["rank", "bytes", "pause_s"])
def test_ranks_that_did_not_tell_predict_nothing(saved, spec, lost):
    """A missing rank may be the slowest."""
    ranks = saved.evidence[1].stages["checkpoint"]["ranks"]
    ranks[3] = {"rank": 11, "saves": [] if lost == "rank" else [ranks[3]["saves"][1] | {lost: None}]}
    assert measured(saved, spec) is None


@pytest.mark.parametrize(("text", "count"), [("70B", 70 * 10**9), ("1.5t", 15 * 10**11), ("8", 8), ("B", 0), ("x", 0)])
def test_sizes_of_models(text, count):
    assert parameters(text) == count


# parameters of the trial


def test_the_profile_names_where_checkpoints_go(h100):
    """The default is the first writable shared path; an emptyDir of the pod is recognised."""
    own = StoragePath(name="own", path="/own", write=True)
    shared = StoragePath(name="shared", path="/shared", claim="c", write=True, shared=True)
    there = replace(h100, storage=StorageSection(paths=(own, shared), scratch="/scratch"))
    assert checkpoint_of(h100) is None
    assert checkpoint_of(there).path == "/shared"
    chosen = checkpoint_of(replace(there, checkpoint=CheckpointSection(path="own", local="scratch")))
    assert (chosen.path, chosen.local, chosen.kinds) == ("/own", "/scratch", {"path": "path", "local": "scratch"})
    volumes, mounts = ({"name": "v", "emptyDir": {}},), ({"name": "v", "mountPath": "/own"},)
    pod = replace(there.pod, volumes=volumes, mounts=mounts)
    assert checkpoint_of(replace(there, pod=pod, checkpoint=CheckpointSection(path="own"))).kinds["path"] == "scratch"
    with pytest.raises(SpecError, match="is not a path of"):
        checkpoint_of(replace(there, checkpoint=CheckpointSection(path="other")))


def test_without_the_option_nothing_is_saved_and_no_time_is_added(h100):
    """With the option, the trial's time limit grows by the checkpoint's."""
    shared = StoragePath(name="shared", path="/shared", claim="c", write=True, shared=True)
    profile = replace(h100, storage=StorageSection(paths=(shared,)))
    plain = build_spec(profile, Options(), run_id="abc", namespace="team")
    asked = build_spec(profile, Options(checkpoint=True), run_id="abc", namespace="team")
    with pytest.raises(SpecError, match="names no path that training writes"):
        build_spec(replace(profile, storage=StorageSection()), Options(checkpoint=True), run_id="abc", namespace="team")
    assert plain.checkpoint is None
    assert asked.deadlines.probe_s - plain.deadlines.probe_s == asked.checkpoint.limit_s == 600


@pytest.mark.parametrize(("least", "ok"), [(1073.0, True), (1073.741824, True), (1073.75, False), (None, None)])
def test_the_rate_of_all_ranks_passes_from_the_floor_on(saved, spec, least, ok):
    """checkpoint.slow is raised below the floor only: sixteen ranks saved 64 MiB each in one second."""
    asked = CheckpointSection(mb_s=least, source="us") if least else CheckpointSection()
    found = [each for each in saved_findings(saved, spec, asked) if each.subject == "all ranks"]
    assert [(each.ok, each.observed) for each in found] == (
        [] if ok is None else [(ok, "1074 MB/s: 16 ranks saved 1.0 GiB in 1.00 s")]
    )


def test_what_was_measured_is_in_the_record_as_it_was(saved, spec):
    """The slowest pause counts for all, the slowest rank has its own rate, and states are timed from the first."""
    saves = saved.evidence[1].stages["checkpoint"]["ranks"][3]["saves"]
    saves[1].update(pause_s=2.00049, write_s=1.60049)
    saved.evidence[1].stages["checkpoint"]["flush"]["seconds"] = 3.14159
    for evidence in saved.evidence.values():
        for place, state in enumerate(evidence.stages["checkpoint"]["states"]):
            state["at"] = 10.0 + place / 3
    made = section(saved, spec)
    assert (made["ranks"], made["bytes"]) == (16, 16 * 64 * MIB)
    assert (made["pause_s"], made["flush_s"]) == (2.0, 3.142)
    assert (made["mb_s"], made["slowest_mb_s"]) == (536.7, 41.9)
    assert [each["seconds"] for each in made["nodes"][0]["states"]] == [0.0, 0.333, 0.667, 1.0, 1.333]
    assert [each["node"] for each in made["nodes"]] == NODES
    del saved.evidence[0].stages["checkpoint"]["ranks"][0]
    assert "mb_s" not in section(saved, spec)


def test_the_step_that_is_verified_is_the_first_that_was_begun(saved, spec, bad):
    """A resume from a different step is not a pass, even if both steps are complete."""
    for evidence in saved.evidence.values():
        evidence.stages["checkpoint"]["states"] += [{"step": 4, "state": "writing", "at": 9.0}]
    assert faults(bad, resumed_findings(saved, spec)) == []
    assert [each.ok for each in resumed_findings(saved, spec)] == [True, True]
    found = list(resumed_findings(change(saved, resume={"step": 4}), spec))
    assert [each.ok for each in found] == [None, None]
    assert all("resumed from step 4, and step 2 was to be verified" in each.observed for each in found)
