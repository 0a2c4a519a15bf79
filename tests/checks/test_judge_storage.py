"""Results of storage.* for PVCs and for the paths in the pods."""

import copy
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from checks.framework.fixtures import _expect
from checks.profiles.loader import load_profile
from checks.profiles.schema import S3, Credential, StoragePath, StorageSection
from checks.profiles.trial import stored
from checks.profiles.yaml_schema import Size
from checks.rules.semantics import lock_advice, lock_findings
from checks.rules.storage import (
    bucket_findings,
    burst_findings,
    claim_findings,
    credential_findings,
    format_gib,
    path_findings,
    rate_findings,
    shared_findings,
)
from cli.schedule.node_history import faults_naming
from jobs.cluster.facts.claims import Claim, Class
from jobs.trial.names import SpecError

RESULTS = StoragePath(
    name="results", path="/results", claim="results", shared=True, write=True, bytes=Size(2**20), write_mb_s=100.0
)
DATA = StoragePath(name="data", path="/data", claim="data", not_empty=True)
BUCKET = S3(uri="s3://bucket/x", endpoint="http://e")
ASKED = StorageSection(paths=(DATA, RESULTS), s3=(BUCKET,), burst=Size(2**20), burst_mb_s=500.0, source="us")
NODES = ["gpu-node-0", "gpu-node-1"]
BETWEEN = {
    "options": ["local_lock=none"],
    "flock": {"held": True, "refused": True, "apart": None, "freed": True, "freed_s": 0.01, "error": None},
    "posix": {"held": True, "refused": True, "apart": True, "freed": True, "freed_s": 0.01, "error": None},
    "attributes_ok": True,
    "small_files": 128,
    "small_made_s": 0.5,
    "small_missing": 0,
    "small_bad": 0,
    "small_read": 128,
    "small_read_s": 0.1,
    "small_removed": 128,
    "small_removed_s": 0.2,
    "swap_versions": 20,
    "swap_missing": 0,
    "swap_torn": 0,
}
"""One node's view of another node's locks and changes."""


def path_record(name, *, write, **changes):
    path = {
        "name": name,
        "path": f"/{name}",
        "kind": "claim",
        "shared": write,
        "write": write,
        "exists": True,
        "entries": 3,
        "readonly": False,
        "fs": "nfs4",
        "free_bytes": 2**40,
        "error": None,
        "errno": None,
        "writable": write or None,
        "rename_ok": write or None,
        "read_back_ok": write or None,
        "peer_file_ok": write or None,
        "peer_rename_ok": write or None,
        "peer_seconds": 0.1,
        "write_mb_s": 900.0 if write else None,
        "read_mb_s": 1200.0,
    }
    return path | (copy.deepcopy(BETWEEN) if write else {}) | changes


@pytest.fixture
def stored_trial(trial):
    """Return a trial with healthy storage in all pods."""
    for rank in trial.evidence.values():
        rank.stages["storage"] = {
            "paths": [path_record("data", write=False), path_record("results", write=True)],
            "error": None,
            "burst": {
                "path": "/results",
                "bytes": 2**23,
                "writers": 8,
                "seconds": 0.01,
                "mb_s": 800.0,
                "slowest_rank_s": 0.01,
                "error": None,
            },
            "s3": [
                {
                    "uri": "s3://bucket/x",
                    "endpoint": "http://e",
                    "reachable": True,
                    "status": 403,
                    "can_sign": True,
                    "missing": [],
                    "error": None,
                }
            ],
        }
    return trial


@pytest.fixture
def claims():
    """Return two bound PVCs of a shared class."""
    return {
        name: Claim(name=name, exists=True, phase="Bound", storage_class="nfs", access_modes=("ReadWriteMany",))
        for name in ("data", "results")
    }


CLASSES = {"nfs": Class(name="nfs", exists=True, provisioner="nfs.csi.k8s.io", binding="Immediate")}


def test_healthy_storage_raises_nothing(stored_trial, spec, claims, bad):
    """No rule raises a finding for storage that meets the profile."""
    for findings in (
        claim_findings(ASKED, 2, claims, CLASSES),
        path_findings(stored_trial, spec, ASKED),
        shared_findings(stored_trial, spec, ASKED),
        rate_findings(stored_trial, spec, ASKED),
        burst_findings(stored_trial, spec, ASKED),
        bucket_findings(stored_trial, spec, ASKED),
    ):
        raised = list(findings)
        assert raised
        assert not bad(raised)


# ----------------------------------------------------------------------------------------------------------------- PVCs


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"exists": False, "phase": ""}, "storage.claim-missing"),
        ({"phase": "Pending"}, "storage.claim-pending"),
        ({"phase": "Lost"}, "storage.claim-pending"),
        ({"access_modes": ("ReadWriteOnce",)}, "storage.access-mode"),
        ({"access_modes": ("ReadOnlyMany",)}, "storage.access-mode"),
        ({"access_modes": ("ReadWriteOncePod",), "phase": "Pending"}, "storage.access-mode"),
        ({"phase": "Pending", "storage_class": "gone"}, "storage.class-missing"),
    ],
)
def test_a_claim_that_pods_cannot_use_is_one_fault(claims, bad, changes, fault):
    """Missing, unbound, single-node, of a missing class: each is a fault of that PVC."""
    claims["results"] = replace(claims["results"], **changes)
    classes = CLASSES | {"gone": Class(name="gone")}
    assert bad(claim_findings(ASKED, 2, claims, classes)) == [("persistentvolumeclaim/results", fault)]


def test_what_only_looks_wrong_is_quiet(claims, bad):
    """PVCs that wait for a consumer, of one node with a local disk, read-only, or of a deleted class are no fault."""
    later = {"nfs": replace(CLASSES["nfs"], binding="WaitForFirstConsumer")}
    waiting = {name: replace(claim, phase="Pending") for name, claim in claims.items()}
    assert not bad(claim_findings(ASKED, 2, waiting, later))
    disk = {name: replace(claim, access_modes=("ReadWriteOnce",)) for name, claim in claims.items()}
    assert not bad(claim_findings(ASKED, 1, disk, CLASSES))
    reading = claims | {"data": replace(claims["data"], access_modes=("ReadOnlyMany",))}
    assert not bad(claim_findings(ASKED, 2, reading, CLASSES))
    assert not bad(claim_findings(ASKED, 2, claims, {"nfs": Class(name="nfs")}))


@pytest.mark.parametrize(("count", "text"), [(2**30 - 2**20, "1023.0 MiB"), (2**30, "1.0 GiB"), (3 * 2**29, "1.5 GiB")])
def test_bytes_are_spelled_in_the_unit_that_fits(count, text):
    assert format_gib(count) == text


def test_what_is_hidden_is_not_reported(claims):
    """A missing permission shows neither a missing PVC nor a bound one."""
    hidden = {name: Claim(name=name, hidden="forbidden") for name in claims}
    assert {f.ok for f in claim_findings(ASKED, 2, hidden, {})} == {None}
    named = replace(ASKED, classes=("local",))
    assert next(claim_findings(named, 2, claims, CLASSES | {"local": Class(name="local", hidden="no")})).ok is None
    assert (
        next(claim_findings(named, 2, claims, CLASSES | {"local": Class(name="local")})).fault
        == "storage.class-missing"
    )


# ---------------------------------------------------------------------------------------------------------------- paths


@pytest.mark.parametrize(
    ("name", "changes", "fault"),
    [
        ("data", {"exists": False, "error": "No such file or directory (ENOENT)"}, "storage.not-visible"),
        ("data", {"entries": 0}, "storage.not-visible"),
        ("data", {"error": "Permission denied (EACCES)", "errno": "EACCES"}, "storage.not-visible"),
        (
            "results",
            {
                "writable": False,
                "readonly": True,
                "error": "Read-only file system (EROFS)",
                "errno": "EROFS",
                "read_back_ok": None,
            },
            "storage.read-only",
        ),
        (
            "results",
            {"writable": False, "error": "Permission denied (EACCES)", "errno": "EACCES", "read_back_ok": None},
            "storage.read-only",
        ),
        ("results", {"free_bytes": 1000, "write_bytes": 25}, "storage.full"),
        (
            "results",
            {"error": "No space left on device (ENOSPC)", "errno": "ENOSPC", "read_back_ok": None},
            "storage.full",
        ),
        ("results", {"read_back_ok": False}, "storage.corrupt"),
    ],
)
def test_a_path_that_training_cannot_use_is_named_on_its_node(stored_trial, spec, bad, name, changes, fault):
    """A bad path on one node is one fault, and the same path of the other node passes."""
    paths = stored_trial.evidence[1].stages["storage"]["paths"]
    paths[["data", "results"].index(name)].update(changes)
    assert bad(path_findings(stored_trial, spec, ASKED)) == [(f"gpu-node-1 /{name}", fault)]


def test_the_path_that_hangs_is_named_and_those_after_it_are_not_reported(stored_trial, spec, bad):
    """The stage did not complete: the first path without an answer is the cause, and later ones are undetermined."""
    data = stored_trial.evidence[0].stages["storage"]
    data["error"] = "not finished after 30 s"
    data["paths"][0].update(free_bytes=None, entries=None, fs=None)  # the path exists but does not respond
    data["paths"][1].update(exists=None)
    findings = list(path_findings(stored_trial, spec, ASKED))
    assert bad(findings) == [("gpu-node-0 /data", "storage.hang"), ("gpu-node-0 /results", "")]
    assert findings[1].ok is None


def test_an_empty_folder_for_results_is_normal(stored_trial, spec, bad):
    """Only data sets must contain files."""
    stored_trial.evidence[0].stages["storage"]["paths"][1].update(entries=0)
    assert not bad(path_findings(stored_trial, spec, ASKED))
    del stored_trial.evidence[1].stages["storage"]
    assert bad(path_findings(stored_trial, spec, ASKED)) == [("gpu-node-1", "")]


@pytest.mark.parametrize(
    ("changes", "ok", "fault"),
    [
        ({"peer_file_ok": False, "peer_rename_ok": None, "peer_seconds": None}, False, "storage.not-shared"),
        ({"peer_file_ok": False, "peer_rename_ok": None, "peer_seconds": 0.1}, False, "storage.corrupt"),
        ({"peer_rename_ok": False}, False, "storage.stale-rename"),
        ({"peer_file_ok": None}, None, ""),
        ({"peer_rename_ok": None}, None, ""),
        ({"swap_missing": 1}, False, "storage.rename-torn"),
        ({"swap_torn": 2}, False, "storage.rename-torn"),
        ({"swap_versions": 1}, None, ""),
        ({"swap_versions": None}, None, ""),
        ({"attributes_ok": False, "attributes_seen": "size 100, mtime 0"}, False, "storage.stale-metadata"),
        ({"attributes_ok": None, "semantics_error": "ENOTSUP"}, None, ""),
        ({"small_missing": 3}, False, "storage.stale-metadata"),
        ({"small_bad": 1, "small_read": 127}, False, "storage.stale-metadata"),
        ({"small_missing": None}, None, ""),
        ({"small_files": 0, "small_missing": None, "small_bad": None, "small_read": None}, None, ""),
    ],
)
def test_what_the_next_node_does_not_see_is_a_fault(stored_trial, spec, changes, ok, fault):
    """Missing, torn, or stale for too long; an untested path is undetermined."""
    stored_trial.evidence[0].stages["storage"]["paths"][1].update(changes)
    findings = list(shared_findings(stored_trial, spec, ASKED))
    assert [(f.subject, f.ok, f.fault) for f in findings] == [
        ("gpu-node-0 -> gpu-node-1 /results", ok, fault),
        ("gpu-node-1 -> gpu-node-0 /results", True, ""),
    ]


def test_what_one_node_does_not_see_of_another_is_a_fault_of_neither(stored_trial, spec):
    """One of the two mounts is wrong, and a proven partner must not fail for a new node's mount."""
    for rank in (0, 1):
        path = stored_trial.evidence[rank].stages["storage"]["paths"][1]
        path.update(peer_file_ok=False, peer_rename_ok=None, peer_seconds=None)
        path["flock"]["refused"] = False
    asked = replace(ASKED, paths=(replace(RESULTS, locks=True),))
    locks, _ = lock_findings(stored_trial, spec, asked)
    bad = [(f.fault, f.subject) for f in [*shared_findings(stored_trial, spec, asked), *locks] if f.ok is False]
    assert {fault for fault, _ in bad} == {"storage.not-shared", "storage.locks-local"}
    assert [faults_naming(node, bad) for node in ("gpu-node-0", "gpu-node-1")] == [(), ()]


def of_locks(trial, spec, **required):
    """Return lock findings as (subject, ok, fault), and the notes, for a profile with or without required locks."""
    path = replace(RESULTS, **({"locks": True} | required))
    findings, notes = lock_findings(trial, spec, replace(ASKED, paths=(DATA, path)))
    return [(f.subject, f.ok, f.fault) for f in findings], notes


@pytest.mark.parametrize(
    ("changes", "ok", "fault"),
    [
        ({"refused": False}, False, "storage.locks-local"),
        ({"freed": False, "freed_s": 8.0}, False, "storage.locks-stuck"),
        ({"held": None, "refused": None, "error": "ENOLCK"}, False, "storage.locks-failed"),
        ({"held": None, "refused": None, "error": "ENOSYS"}, False, "storage.locks-failed"),
        ({"held": None, "refused": None, "error": "no answer in 10 s"}, False, "storage.locks-failed"),
        ({"apart": False}, False, "storage.locks-failed"),
        ({"refused": None, "freed": None, "error": "EACCES"}, None, ""),  # an error of the file, not of the lock
        ({"refused": None, "freed": None, "error": "EIO"}, None, ""),
        ({"refused": None, "freed": None}, None, ""),  # the partner has ended
        ({"freed": None}, None, ""),
    ],
)
def test_locks_that_do_not_exclude_are_a_fault_where_the_profile_requires_them(stored_trial, spec, changes, ok, fault):
    """If locks are not required, the result is a note, and the path gets no pass for locks."""
    stored_trial.evidence[0].stages["storage"]["paths"][1]["posix"].update(changes)
    findings, notes = of_locks(stored_trial, spec)
    subject = "gpu-node-0 /results" if changes.get("error") else "gpu-node-0 -> gpu-node-1 /results"
    assert findings[1] == (subject, ok, fault)
    assert [each[1] for each in findings[::2]] == [True, True]  # flock
    assert notes == []
    for said in (None, False):
        findings, notes = of_locks(stored_trial, spec, locks=said)
        assert findings == []
        assert all("fcntl byte-range lock" in note for note in notes)
        assert notes


def test_healthy_locks_pass_also_where_none_are_required(stored_trial, spec):
    for required in (True, None, False):
        findings, notes = of_locks(stored_trial, spec, locks=required)
        assert [each[1:] for each in findings] == [(True, "")] * 4
        assert notes == []


def test_a_lock_that_the_peer_never_held_proves_nothing(stored_trial, spec):
    """Without the peer's lock, a refused or granted one proves nothing, and only the peer is at fault."""
    stored_trial.evidence[1].stages["storage"]["paths"][1]["flock"] = {"held": None, "error": "ENOLCK"}
    for refused in (True, False):
        stored_trial.evidence[0].stages["storage"]["paths"][1]["flock"]["refused"] = refused
        findings, _ = of_locks(stored_trial, spec)
        assert findings[0] == ("gpu-node-0 -> gpu-node-1 /results", None, "")
        assert findings[2] == ("gpu-node-1 /results", False, "storage.locks-failed")


def test_without_a_second_node_s_evidence_no_lock_passes(stored_trial, spec):
    del stored_trial.evidence[1].stages["storage"]
    assert {each[1] for each in of_locks(stored_trial, spec)[0]} == {None}


@pytest.mark.parametrize(
    ("fs", "options", "remedy"),
    [
        ("lustre", ["localflock"], "flock on all nodes"),
        ("nfs", ["vers=3", "nolock", "local_lock=all"], "remove nolock"),
        ("nfs4", ["local_lock=none"], None),  # the reason is unknown
        ("fuse.gcsfuse", [], "another|scratch"),
        ("beegfs", [], "tuneUseGlobalFileLocks"),
        ("ceph", [], None),
    ],
)
def test_the_remedy_for_locks_fits_the_file_system(stored_trial, spec, fs, options, remedy):
    """The mount names the file system; for two file systems the entry's general remedy is shown."""
    for rank in (0, 1):
        path = stored_trial.evidence[rank].stages["storage"]["paths"][1]
        path.update(fs=fs, options=options)
        path["flock"]["refused"] = False
    asked = replace(ASKED, paths=(replace(RESULTS, locks=True),))
    findings, _ = lock_findings(stored_trial, spec, asked)
    advised = dict(lock_advice(findings))
    assert list(advised) == (["storage.locks-local"] if remedy else [])
    assert not remedy or re.search(remedy, advised["storage.locks-local"].remedy)
    stored_trial.evidence[1].stages["storage"]["paths"][1].update(fs="gpfs", options=[])
    assert dict(lock_advice(lock_findings(stored_trial, spec, asked)[0])) == {}


def test_small_files_are_compared_with_the_profile_s_number(stored_trial, spec, bad):
    """The slowest of create, read and remove counts; without a number there is no judgement, and a missing measurement
    is not a pass."""
    asked = replace(ASKED, paths=(replace(RESULTS, files_s=200.0, write_mb_s=None),))
    assert [f.ok for f in rate_findings(stored_trial, spec, asked)] == [True, True]
    path = stored_trial.evidence[0].stages["storage"]["paths"][1]
    path["small_made_s"] = 1.0
    assert bad(rate_findings(stored_trial, spec, asked)) == [("gpu-node-0 /results", "storage.small-files-slow")]
    path.update(small_made_s=0.5, small_removed_s=4.0)
    assert bad(rate_findings(stored_trial, spec, asked)) == [("gpu-node-0 /results", "storage.small-files-slow")]
    path.update(small_read_s=None)
    assert [f.ok for f in rate_findings(stored_trial, spec, asked)] == [None, True]
    assert [f.ok for f in rate_findings(stored_trial, replace(spec, nodes=1), asked)] == []


@pytest.mark.parametrize("key", [{"locks": True}, {"files_s": 10.0}])
def test_what_two_nodes_must_show_needs_a_shared_path(key):
    with pytest.raises(ValueError, match="shared: true"):
        StoragePath(name="a", path="/a", write=True, **key)


def test_slow_paths_and_bursts_are_named_with_the_profiles_number(stored_trial, spec, bad):
    """A single writer's rate and the aggregate rate are two faults; a burst without room is undetermined."""
    stored_trial.evidence[1].stages["storage"]["paths"][1].update(write_mb_s=12.0)
    assert bad(rate_findings(stored_trial, spec, ASKED)) == [("gpu-node-1 /results", "storage.slow")]
    stored_trial.evidence[0].stages["storage"]["burst"].update(mb_s=40.0)
    assert bad(burst_findings(stored_trial, spec, ASKED)) == [("gpu-node-0", "storage.burst-slow")]
    stored_trial.evidence[0].stages["storage"]["burst"] = {"path": "/results", "bytes": 0, "error": None}
    assert [f.ok for f in burst_findings(stored_trial, spec, ASKED)] == [None, True]


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("ENOSPC", "storage.full"),
        ("EDQUOT", "storage.full"),
        ("EROFS", "storage.read-only"),
        ("EACCES", "storage.read-only"),
        ("EIO", "storage.read-only"),
        (None, None),
    ],
)
def test_a_checkpoint_that_cannot_be_written_is_a_fault(stored_trial, spec, bad, code, fault):
    """A refusal by the file system is no-go; an expired time limit is not a storage fault."""
    burst = {"path": "/results", "bytes": 2**20, "writers": 8, "error": f"refused ({code})", "errno": code}
    stored_trial.evidence[0].stages["storage"]["burst"] = burst
    assert bad(burst_findings(stored_trial, spec, ASKED)) == [("gpu-node-0", fault or "")]
    assert [f.ok for f in burst_findings(stored_trial, spec, ASKED)] == [False if fault else None, True]
    stored_trial.evidence[1].stages["storage"]["paths"][1].update(write_mb_s=None)
    assert [f.ok for f in rate_findings(stored_trial, spec, ASKED)] == [True, None]


@pytest.mark.parametrize("changes", [{"error": "timed out"}, {"bytes": None}, {"mb_s": None}], ids=str)
def test_a_burst_that_does_not_tell_its_rate_is_no_pass(stored_trial, spec, changes):
    stored_trial.evidence[0].stages["storage"]["burst"].update(changes)
    for asked in (ASKED, replace(ASKED, burst_mb_s=None)):
        assert [f.ok for f in burst_findings(stored_trial, spec, asked)] == [None, True]


@pytest.mark.parametrize("silent", ["reachable", "status", "can_sign"])
def test_half_an_answer_of_a_bucket_is_no_pass_and_no_fault(stored_trial, spec, silent):
    stored_trial.evidence[1].stages["storage"]["s3"][0][silent] = None
    assert [f.ok for f in bucket_findings(stored_trial, spec, ASKED)] == [True, None]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"reachable": False, "status": None, "error": "timed out"}, "storage.s3-unreachable"),
        ({"status": 404}, "storage.s3-bucket-missing"),
        ({"can_sign": False, "missing": ["K"]}, "storage.s3-no-credentials"),
        ({"status": 200}, ""),
        ({"status": 301}, ""),
    ],
)
def test_a_bucket_is_judged_by_any_answer(stored_trial, spec, bad, changes, fault):
    """A refused anonymous request shows that the bucket exists; keys are checked for presence."""
    stored_trial.evidence[1].stages["storage"]["s3"][0].update(changes)
    expected = [("gpu-node-1 s3://bucket/x", fault)] if fault else []
    assert bad(bucket_findings(stored_trial, spec, ASKED)) == expected


@pytest.mark.parametrize(
    ("changes", "ok"),
    [
        ({"can_sign": True, "missing": []}, True),
        ({"can_sign": False, "missing": ["SECRET_KEY"]}, False),
        ({"can_sign": None}, None),
    ],
)
def test_variables_of_taos_are_judged_by_their_presence(stored_trial, spec, changes, ok):
    for each in stored_trial.evidence.values():
        each.stages["storage"]["s3"] = [{"uri": "", "reachable": None, "can_sign": True, "missing": []}]
    stored_trial.evidence[1].stages["storage"]["s3"][0].update(changes)
    first, second = bucket_findings(stored_trial, spec, StorageSection(s3=(S3(preset="tao"),)))
    assert (first.ok, second.ok) == (True, ok)
    assert second.subject == "gpu-node-1 S3 variables"
    assert second.fault == ("storage.s3-no-credentials" if ok is False else "")
    assert second.expected == "set: ACCESS_KEY, SECRET_KEY, S3_BUCKET_NAME, S3_ENDPOINT_URL"


def test_a_preset_names_the_variables_of_a_bucket():
    assert S3(uri="s3://bucket", preset="tao").names[:2] == ("ACCESS_KEY", "SECRET_KEY")
    assert S3(uri="s3://bucket").names == ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    for wrong in ({}, {"preset": "toa"}, {"preset": "tao", "endpoint": "http://e"}):
        with pytest.raises(SpecError):
            S3(**wrong)


def test_the_trial_tries_what_the_profile_names(h100):
    """The trial takes paths, buckets, burst and Secrets from the profile; without any it tests nothing."""
    made = stored(replace(h100, storage=ASKED))
    assert [(s.name, s.claim, s.write, s.shared) for s in made["storage"]] == [
        ("data", "data", False, False),
        ("results", "results", True, True),
    ]
    assert (made["burst_bytes"], made["s3"][0].uri) == (2**20, "s3://bucket/x")
    assert not any(stored(h100).values())


# ------------------------------------------------------------------------------------------------------- files and keys

SHARDS = replace(DATA, files=("train/shard-0.tar", "train/shard-1.tar"))
TOKEN = Credential(env="HF_TOKEN", secret="hf", key="token")


@pytest.mark.parametrize(
    ("facts", "ok"),
    [
        ({"files_tried": 2, "files_bad": 0, "files_empty": 0}, True),
        ({"files_tried": 1, "files_bad": 0, "files_empty": 0}, None),
        ({"files_tried": 2, "files_bad": 0, "files_empty": 1, "files_empty_named": ["train/shard-1.tar"]}, None),
        ({"files_tried": 2, "files_bad": 0}, None),
        ({"files_tried": 2, "files_bad": 1, "files_bad_named": ["train/shard-1.tar: Permission denied"]}, False),
    ],
)
def test_files_that_the_profile_names_are_opened(stored_trial, spec, bad, facts, ok):
    """A file that cannot be opened is reported by name; files beyond the time limit are undetermined."""
    asked = replace(ASKED, paths=(SHARDS,), burst=0)
    for rank in stored_trial.evidence.values():
        rank.stages["storage"]["paths"] = [path_record("data", write=False, **facts)]
    findings = list(path_findings(stored_trial, spec, asked))
    assert {f.ok for f in findings} == {ok}
    expected = [(f"{node} /data", "storage.files-missing") for node in NODES] if ok is False else []
    assert [each for each in bad(findings) if each[1]] == expected
    if ok is False:
        assert "shard-1.tar: Permission denied" in findings[0].observed


def test_a_path_without_named_files_is_not_asked_for_any(stored_trial, spec, bad):
    assert not bad(path_findings(stored_trial, spec, ASKED))


@pytest.mark.parametrize(("present", "ok"), [(True, True), (None, None), (False, False)])
def test_a_credential_is_judged_by_its_presence(stored_trial, spec, bad, present, ok):
    """A process started by ssh lacks the container's environment, so the result is undetermined."""
    asked = replace(ASKED, credentials=(TOKEN,))
    for rank in stored_trial.evidence.values():
        rank.stages["storage"]["credentials"] = [
            {"env": "HF_TOKEN", "secret": "hf", "key": "token", "present": present}
        ]
    findings = list(credential_findings(stored_trial, spec, asked))
    assert {f.ok for f in findings} == {ok}
    expected = [(f"{node} HF_TOKEN", "storage.credential-missing") for node in NODES] if ok is False else []
    assert [each for each in bad(findings) if each[1]] == expected


@pytest.mark.parametrize(
    ("changes", "nodes", "said"),
    [({}, 2, True), ({"shared": False}, 2, False), ({"write": False, "write_mb_s": None}, 2, False), ({}, 1, False)],
)
def test_what_is_tried_between_nodes_is_said_beforehand(spec, changes, nodes, said):
    """A trial without such a path takes no longer, and prints no notice."""
    told = []
    progress = SimpleNamespace(expect=lambda *_: None, note=told.append)
    session = SimpleNamespace(progress=progress, profile=load_profile("h100-ib"))
    _expect(
        session,
        replace(
            spec, nodes=nodes, collectives=(), dcgm=None, perftest=None, storage=(DATA, replace(RESULTS, **changes))
        ),
    )
    assert [("/results" in text, "100 s" in text) for text in told] == [(True, True)] * said
