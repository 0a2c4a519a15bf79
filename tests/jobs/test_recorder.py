"""A recording by `--record`: everything that the trial's watcher received, no secrets, and no effect on the trial."""

import errno
import json
import threading

import pytest
import yaml

from jobs.cluster.client.informer import Informer
from jobs.cluster.client.kube import Kube
from jobs.run import recorder
from jobs.run import recorder as module
from jobs.run.launcher import Launcher
from jobs.run.recorder import RecordedKube, Recorder
from tests import recordings
from tests.onsim import PROBE, Sim, spec
from tests.real import playing
from tests.waiting import HANG_S

PODS = "/api/v1/namespaces/team-a/pods"


def pod(name, version, **more):
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "uid": name, "resourceVersion": version},
        "spec": {},
        "status": {},
        **more,
    }


def events(*pairs):
    return iter([json.dumps({"type": kind, "object": item}).encode() + b"\n" for kind, item in pairs])


def written(recorder, folder):
    return recordings.read(recorder.write(folder, server="v1.36.2")).lines


def changes(recorder, folder):
    return [
        (line.kind, line.type, line.object["metadata"]["name"] if recordings.is_change(line) else line.object)
        for line in written(recorder, folder)
    ]


@pytest.mark.slow
def test_a_recording_of_a_trial_can_be_played(root, tmp_path):
    """A recording has the Job from its creation, its pods, their events, and the conclusion, which a replay repeats."""
    sim = Sim(root, tmp_path, "healthy")
    try:
        kube, recorders = Kube.connect(str(sim.config)), []
        result = Launcher(kube, recorders=recorders).run(spec(kube, env={"NAP": "1"}), {"__main__.py": PROBE})
    finally:
        sim.close()
    assert (result.state, len(recorders)) == ("Complete", 1)
    path = recorders[0].write(tmp_path / "recordings", server="v1.36.2")
    lines = recordings.read(path).lines
    assert (lines[0].kind, lines[0].type, lines[0].object["spec"]["suspend"]) == ("Job", "ADDED", True)
    assert {line.kind for line in lines} >= {"Job", "Pod", "Event", "ConfigMap", "Service", "Mark"}
    assert not [line for line in lines if line.type == recorder.WATCH_ENDED], "our own end is not a broken watch"
    assert next(line.object["keys"] for line in lines if line.kind == "ConfigMap")
    said = yaml.safe_load(path.with_name(f"{result.job}.yaml").read_text())
    assert (said["job"], said["expect"]["ends"], said["expect"]["cause"]) == (result.job, "completed", None)
    case = playing.load(path)
    assert playing.wrong(case, playing.play(case)) == ""


def test_lists_and_watches_are_reported_once_and_in_order(kube, api, tmp_path):
    """A known version is not recorded again; after a broken watch the next list records everything again, as a watcher
    receives it."""

    def answer(asked):
        number = len(api.asked)
        if "watch" in asked.query:
            gone = ("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
            more = (
                [("MODIFIED", pod("a", "6")), ("DELETED", pod("b", "7")), gone]
                if number == 2
                else [("MODIFIED", pod("a", "9"))]
            )
            return 200, {}, events(*more)
        return (
            200,
            {},
            {
                "metadata": {"resourceVersion": "5"},
                "items": [pod("a", "1" if number == 1 else "8"), pod("b", "2")][: 2 if number == 1 else 1],
            },
        )

    api.answer = answer
    recorder = Recorder("seatrial-x", "team-a")
    changed = threading.Condition()
    with Informer(RecordedKube(kube, recorder), PODS, changed) as informer, changed:
        assert changed.wait_for(
            lambda: [p["metadata"]["resourceVersion"] for p in informer._objects.values()] == ["9"], HANG_S
        )
    assert changes(recorder, tmp_path)[:7] == [
        ("Pod", "ADDED", "a"),
        ("Pod", "ADDED", "b"),
        ("Pod", "MODIFIED", "a"),
        ("Pod", "DELETED", "b"),
        ("Pod", "WATCH-ENDED", "Gone: 410 Expired: too old"),
        ("Pod", "ADDED", "a"),
        ("Pod", "MODIFIED", "a"),
    ]


def test_a_version_is_reported_once_and_its_end_once_more(tmp_path):
    """A write's response and the watch report the same version; an object is deleted with its last version."""
    recorder = Recorder("seatrial-x", "team-a")
    for type_, version in (("ADDED", "1"), ("MODIFIED", "1"), ("MODIFIED", "2"), ("MODIFIED", "2"), ("DELETED", "2")):
        recorder.change(PODS, type_, pod("a", version))
    assert changes(recorder, tmp_path) == [("Pod", type_, "a") for type_ in ("ADDED", "MODIFIED", "DELETED")]


def test_no_request_is_added_and_other_kinds_are_left_out(kube, api, tmp_path):
    api.answer = lambda asked: (200, {}, {"metadata": {"name": "x", "uid": "x", "resourceVersion": "1"}, "items": []})
    recorder = Recorder("seatrial-x", "team-a")
    recorded = RecordedKube(kube, recorder)
    recorded.create("/apis/batch/v1/namespaces/team-a/jobs", {}, dry_run=True)
    recorded.create("/apis/batch/v1/namespaces/team-a/jobs", {})
    recorded.create("/api/v1/namespaces/team-a/secrets", {})
    recorded.list("/api/v1/namespaces/team-a/resourcequotas")
    assert len(api.asked) == 4
    assert ("Job", "ADDED", "x") in changes(recorder, tmp_path)
    assert {line.kind for line in written(recorder, tmp_path)} == {"Job", "Mark"}


def test_credentials_are_masked(tmp_path):
    """Credentials are masked by a variable's name, by their form, and in copies by other tools; the object is not
    changed."""
    container = {
        "name": "c",
        "env": [{"name": "NGC_API_KEY", "value": "plain-words"}, {"name": "NCCL_DEBUG", "value": "INFO"}],
    }
    item = pod("a", "1", spec={"containers": [container], "initContainers": [dict(container)]})
    item["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "plain-words"}
    item["status"] = {
        "message": "pull https://me:plain-words@registry.example failed, token hf_abcdefghijklmnopqrstuvwxyz"
    }
    recorder = Recorder("seatrial-x", "team-a")
    recorder.change(PODS, "ADDED", item)
    job = {"metadata": {"name": "j"}, "spec": {"template": {"spec": {"containers": [container]}}}}
    recorder.change("/apis/batch/v1/namespaces/team-a/jobs", "ADDED", job)
    text = json.dumps([line.object for line in written(recorder, tmp_path)])
    assert "plain-words" not in text and "hf_abc" not in text
    assert text.count("[REDACTED]") >= 5 and text.count('"INFO"') == 3
    assert container["env"][0]["value"] == "plain-words"


def test_it_ends_at_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 2000)
    recorder = Recorder("seatrial-x", "team-a")
    for number in range(100):
        recorder.change(PODS, "MODIFIED", pod("a", str(number), x="y" * 100))
    lines = written(recorder, tmp_path)
    assert len(lines) < 20 and lines[-1].object.startswith("the recording ends here")


class Odd(dict):
    """An object that breaks only when it is read."""

    def items(self):
        raise RuntimeError("odd")


def test_a_recorder_that_fails_leaves_the_trial_alone(kube, api):
    """The watcher receives everything; the incomplete recording is reported."""
    recorder = Recorder("seatrial-x", "team-a")
    recorder._add = lambda *_: Odd().items()
    api.answer = lambda _: (200, {}, {"metadata": {"resourceVersion": "5"}, "items": [pod("a", "1")]})
    assert RecordedKube(kube, recorder).list(PODS)[0] == [pod("a", "1")]
    assert recorder.problem == "RuntimeError: odd"


def test_a_full_disk_leaves_no_half_a_recording(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    recorder = Recorder("seatrial-x", "team-a")
    recorder.change(PODS, "ADDED", pod("a", "1"))
    monkeypatch.setattr(module.RecordingWriter, "write", full)
    with pytest.raises(OSError, match="No space"):
        recorder.write(tmp_path, server="v1")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_run_says_that_it_does_not_know(tmp_path):
    """An interrupted run's yaml claims no end; a replay asks for one instead of accepting an empty value."""
    recorder = Recorder("seatrial-x", "team-a")
    recorder.change("/apis/batch/v1/namespaces/team-a/jobs", "ADDED", pod("seatrial-x", "1"))
    path = recorder.write(tmp_path, server="v1")
    assert yaml.safe_load((tmp_path / "seatrial-x.yaml").read_text())["expect"]["ends"] == ""
    with pytest.raises(recordings.RecordingError, match="ends '' is none of"):
        playing.load(path)
