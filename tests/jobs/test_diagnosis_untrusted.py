"""The diagnosis of arbitrary objects is bounded and sanitised, and never raises an exception."""

import copy
import json
import random
from dataclasses import asdict
from itertools import product
from pathlib import Path

from jobs.diagnosis.verdict import diagnose
from tests.jobs.objects import ended, event, failed, job, pod, waits
from tests.table import table

RECORDINGS = sorted((Path(__file__).parent / "data" / "recordings").glob("*.json"))


def test_untrusted_texts_are_bounded_and_cleaned():
    """Messages come from registries, webhooks and programs: no control characters, no secrets, a limited length."""
    nasty = "\x1b[31mevil\x1b[0m\u202e NGC_KEY=abcdef " + "x" * 100_000
    pods = [pod(0, "Pending", main=waits("ImagePullBackOff", nasty))]
    _, replicas, analysis = diagnose(job(1), pods, [event("Pod", "t-0-abcde", "Failed", nasty)])
    printed = json.dumps([asdict(analysis), asdict(replicas[0])])
    assert "abcdef" not in printed and "\\u001b" not in printed and "\\u202e" not in printed
    assert len(printed) < 20_000


def _spoil(value, rng):
    """Change a random part of a JSON value."""
    if isinstance(value, dict) and value and rng.random() < 0.95:
        key = rng.choice(sorted(value))
        if rng.random() < 0.3:
            value[key] = rng.choice([None, "", 0, -1, [], {}, "x", [None], {"a": 1}, True, 1e9])
        elif rng.random() < 0.2:
            del value[key]
        else:
            _spoil(value[key], rng)
    elif isinstance(value, list) and value:
        _spoil(rng.choice(value), rng)


@table("file", RECORDINGS, ids=lambda file: file.stem)
def test_objects_of_any_shape_are_survived(file):
    """Missing fields, null and other types never raise an exception."""
    rng = random.Random(file.stem)
    for moment in json.loads(file.read_text())["moments"].values():
        for _ in range(40):
            broken = copy.deepcopy(moment)
            for _ in range(rng.randint(1, 12)):
                _spoil(broken, rng)
            lists = {key: value if isinstance(value, list) else [] for key, value in broken.items()}
            jobs = [item for item in lists.get("jobs", []) if isinstance(item, dict)]
            diagnose(jobs[0] if jobs else None, lists.get("pods", []), lists.get("events", []), lists.get("nodes", []))


@table(
    "name, phase",
    product([[], {}, [["a"]], None, 1, float("nan")], ["Failed", "Running", "Succeeded", "Pending", [], {}]),
)
def test_a_container_whose_name_is_no_text_is_read_like_any_other(name, phase):
    """No API server would send such a name: exit code and reason are kept, and no exception is raised."""
    failed_pod = pod(0, "Failed", sidecars=[{"name": name} | ended(0, "Completed")], main=ended(3) | {"name": name})
    failed_pod["spec"]["initContainers"] = [{"name": name, "restartPolicy": "Always"}, {"name": "proxy"}]
    failed_pod["spec"]["restartPolicy"], failed_pod["status"]["phase"] = "Never", phase
    for meta in ({}, {"deletionTimestamp": "2026-01-01T00:00:10Z"}, {"name": name}):
        state, _, _ = diagnose(job(1), [failed_pod | {"metadata": failed_pod["metadata"] | meta}], [])
        assert state != "Complete"
    other = failed_pod | {
        "spec": {**failed_pod["spec"], "initContainers": []},
        "status": failed_pod["status"] | {"phase": "Failed"},
    }
    assert "exit code 3" in diagnose(job(1, failed()), [other], [])[2].observed
