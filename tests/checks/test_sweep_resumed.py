"""A resumed sweep: accepted earlier sweeps, and results that still count."""

import base64
import json
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from checks.framework.evidence import Blocked
from checks.framework.options import Options
from checks.framework.sweep_run import fits, resumed, run_sweep
from checks.rules.pool import Pool
from checks.rules.sweep import ran_findings
from checks.rules.sweep_texts import notes
from jobs.diagnosis.state import JobState
from jobs.run.evidence import RankEvidence
from jobs.run.result import TrialResult
from jobs.trial.parts import DcgmSpec
from jobs.trial.spec import TrialSpec
from reports.record import Run
from tests.by_hand import Stages
from tests.checks.sweeps import PROFILE, printed, swept

NEW = {"verdict": "go"}


NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def record(folder, *, nodes=6, sweep=NEW, **changes):
    """Return the record of a sweep in a folder."""
    names, stages = printed(nodes, lambda _: 380.0)
    made = {
        "schema": 1,
        "run_id": "before",
        "verdict": "go",
        "scope": "full",
        "checks": [],
        "collectives": {},
        "started": "2026-11-22T10:00:00+00:00",
        "seconds": 600.0,
        "simulated": False,
        "cluster": {"server": "https://a", "ca": "sha256:a"},
        "profile_digest": "sha256:p",
        "sweep": sweep and {**swept(names, stages).section, "gpus_per_node": 8, "image": "i", **sweep},
        **changes,
    }
    (folder / "report.json").write_text(json.dumps(made))
    return folder


def run(**changes):
    made = {"cluster": {"server": "https://a", "ca": "sha256:a"}, "profile_digest": "sha256:p"}
    return Run(**(made | changes))


SIMULATED = {"simulated": True, "cluster": {"server": "https://b", "scenario": "sweep-node", "platform": "h100-ib"}}


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({}, {}, ""),
        ({"cluster": {"server": "https://a"}}, {}, ""),
        ({"cluster": {"server": "https://b", "ca": "sha256:a"}}, {}, "server is https://b, this one's https://a"),
        ({"cluster": {"server": "https://a", "ca": "sha256:b"}}, {}, "ca is sha256:b"),
        ({"cluster": {}}, {}, "does not name its cluster"),
        (SIMULATED, {}, "it is of a simulated cluster"),
        ({}, SIMULATED, "it is of a real cluster"),
        (SIMULATED, SIMULATED | {"cluster": SIMULATED["cluster"] | {"server": "https://c", "ca": "x"}}, ""),
        (SIMULATED, SIMULATED | {"cluster": SIMULATED["cluster"] | {"scenario": "sweep-healthy"}}, "scenario"),
        (SIMULATED, SIMULATED | {"cluster": SIMULATED["cluster"] | {"platform": "h200-ib"}}, "platform"),
        ({"profile_digest": "sha256:q"}, {}, "profile (q)"),
        ({"profile_digest": ""}, {}, "profile (none)"),
        ({"started": "2026-11-21T11:49:00+00:00"}, {}, "more than 24 hours"),
        ({"started": "2026-11-21T13:49:00+02:00", "seconds": 600}, {}, "more than 24 hours"),
        ({"started": "2026-11-21T11:51:00+00:00"}, {}, ""),
        ({"started": "2026-11-22T12:05:00+00:00"}, {}, "in the future"),
        ({"started": "2026-11-22T10:00:00"}, {}, "no valid start time"),
        ({"started": "yesterday"}, {}, "no valid start time"),
        ({"started": None}, {}, "no valid start time"),
        ({"seconds": None}, {}, "no valid duration"),
        ({"seconds": 1e17}, {}, "no valid duration"),
        ({"sweep": None}, {}, "not a sweep"),
    ],
)
def test_only_a_sweep_of_this_cluster_and_day_is_resumed(tmp_path, before, now, said):
    """Differences are named; a value missing in the record is not proof."""
    made = record(tmp_path, **before)

    def resume():
        fits(resumed(made), run(**now), made, NOW)

    if not said:
        resume()
        return
    with pytest.raises(pytest.UsageError, match="--resume") as error:
        resume()
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ({"gpus_per_node": None}, "GPU count per node"),
        ({"resumed": {"ended": "2026-11-21T10:00:00+00:00"}}, "more than 24 hours"),
        ({"resumed": {}}, "no valid start time"),
        ({"resumed": {"ended": 5}}, r"damaged: sweep\.resumed\.ended is the number 5, not text"),
        ({"resumed": "x"}, r"damaged: sweep\.resumed is the text 'x', not a mapping"),
    ],
)
def test_rounds_grow_no_younger_by_being_resumed(tmp_path, sweep, said):
    """A record that resumed another one has the age of the older one."""
    with pytest.raises(pytest.UsageError, match=said):
        fits(resumed(record(tmp_path, sweep=sweep)), run(), tmp_path, NOW)


@pytest.mark.parametrize(
    "text",
    [
        '{"run_id": "r", "sweep": {"rounds": [{"number": Infinity}]}}',
        '{"run_id": "r", "sweep": {"rounds": [{"number": 1, "seconds": 1%s}]}}' % ("0" * 400),
        '{"run_id": "r", "sweep": {"rounds": [{"number": 1, "tests": [{"nodes": ["a"], "busbw": 1%s}]}]}}'
        % ("0" * 400),
        "[" * 100_000,
    ],
    ids=["infinite", "seconds", "busbw", "deep"],
)
def test_what_a_sweep_began_with_is_refused_in_one_line_where_it_is_damaged(tmp_path, text):
    """A number too large for Python, or deep nesting, gets the same line."""
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(pytest.UsageError, match="damaged") as error:
        resumed(tmp_path)
    assert "\n" not in str(error.value)


def test_nodes_with_other_gpus_are_not_resumed(tmp_path):
    """Nothing is started."""
    spec = SimpleNamespace(gpus_per_node=4, image="i")
    with pytest.raises(Blocked, match="tested 8 GPUs per node, this one tests 4"):
        run_sweep(pytest.fail, spec, None, None, PROFILE, None, {}, resumed(record(tmp_path)))
    spec = SimpleNamespace(gpus_per_node=8, image="another")
    with pytest.raises(Blocked, match="it ran i, this one runs another"):
        run_sweep(pytest.fail, spec, None, None, PROFILE, None, {}, resumed(record(tmp_path)))


def test_a_sweep_with_training_is_not_resumed_without_it(tmp_path):
    """Without --training the node's training results would be lost, and its pairs alone would prove it."""
    folder = record(tmp_path, sweep={"training": True})
    with pytest.raises(pytest.UsageError, match="give --training"):
        resumed(folder)
    assert resumed(folder, training=True).training


@pytest.mark.parametrize(("before", "now"), [("an earlier one", "boot-3"), ("", ""), ("boot-3", "")])
def test_what_a_machine_showed_before_it_started_again_does_not_count(tmp_path, inventory, node, before, now):
    """After a reboot a node may have another driver or be another machine: its tests, and its partners', run again.

    The same holds for a node without a boot id: whether it was rebooted is not known.
    """
    boots = {f"node-{n}": f"boot-{n}" for n in range(6)} | {"node-3": now}
    earlier = resumed(record(tmp_path, sweep={"boots": {**boots, "node-3": before}}))
    nodes = [replace(node(name), boot=boot) for name, boot in boots.items()]
    spec = TrialSpec(run_id="2a3b4c5d6e", namespace="n", image="i", nodes=2, gpus_per_node=8)
    asked = []

    def runs(made):
        asked.extend(json.loads(zlib.decompress(base64.b64decode(made.sweep.history))))
        stages = {"sweep.fleet.1": {"nodes": list(boots)}, "sweep.end": {"why": ""}}
        return TrialResult(job="j", state=JobState.COMPLETE, evidence={0: RankEvidence(rank=0, stages=Stages(stages))})

    sweep = run_sweep(runs, spec, inventory(nodes), Pool(tuple(nodes)), PROFILE, Options(), {}, earlier)
    tests = [test["nodes"] for row in asked for test in row["tests"]]
    assert tests and not any("node-3" in test for test in tests)
    assert sweep.blame.verdict == "inconclusive"
    assert sweep.blame.not_tested["node-3"] == "not tested"
    assert any("tested again" in text and text.endswith(": 1 node (node-3)") for text in notes(sweep))
    assert sweep.section["boots"] == boots and sweep.section["image"] == "i"


def test_nodes_that_dcgm_did_not_prove_are_tested_alone_again(tmp_path, inventory, node):
    """DCGM results are not part of a round, so the rounds alone do not prove such a node."""
    boots = {f"node-{n}": f"boot-{n}" for n in range(6)}
    earlier = resumed(record(tmp_path, sweep={"boots": boots, "undiagnosed": ["node-3"]}))
    nodes = [replace(node(name), boot=boot) for name, boot in boots.items()]
    asked = []

    def runs(made):
        asked.extend(json.loads(zlib.decompress(base64.b64decode(made.sweep.history))))
        stages = {"sweep.fleet.1": {"nodes": [each.name for each in nodes]}, "sweep.end": {"why": ""}}
        return TrialResult(job="j", state=JobState.COMPLETE, evidence={0: RankEvidence(rank=0, stages=Stages(stages))})

    spec = TrialSpec(run_id="2a3b4c5d6e", namespace="n", image="i", nodes=2, gpus_per_node=8, dcgm=DcgmSpec())
    sweep = run_sweep(runs, spec, inventory(nodes), Pool(tuple(nodes)), PROFILE, Options(), {}, earlier)
    tests = [test["nodes"] for row in asked for test in row["tests"]]
    assert ["node-2"] in tests and ["node-3"] not in tests
    assert any("node-3" in test for test in tests), "its pairs count"
    assert "node-3" not in sweep.proven
    with pytest.raises(Blocked, match="DCGM's diagnostics do not prove: resume it with them"):
        run_sweep(pytest.fail, replace(spec, dcgm=None), None, None, PROFILE, Options(), {}, earlier)


@pytest.mark.parametrize(
    ("lost", "again"), [(False, ("node-3",)), (True, tuple(f"node-{n}" for n in range(6)))], ids=["whole", "lost"]
)
def test_a_killed_sweeps_log_says_whom_dcgm_did_not_prove(tmp_path, lost, again):
    """Missing lines may concern any node."""
    _, stages = printed(6, lambda _: 380.0)
    result = {"test": "memory", "category": "Hardware", "who": [f"GPU {n}" for n in range(8)], "said": []}
    for number in (2, 3):
        status = "fail" if number == 3 else "pass"
        stages[f"sweep.dcgm.{number}"] = {"node": f"node-{number}", "results": [{**result, "status": status}]}
    began = run().to_dict() | {"started": "2026-11-22T10:00:00+00:00", "run_id": "r"}
    begun = {key: began[key] for key in ("run_id", "started", "simulated", "cluster", "profile_digest")}
    shape = {"gpus_per_node": 8, "image": "i", "training": False, "boots": {}, "rounds": [], "resumed": None}
    (tmp_path / "sweep.json").write_text(json.dumps({**begun, "sweep": shape}))
    (tmp_path / "logs").mkdir()
    head = {"seatrial": 1, "run": "r", "rank": 0, "seconds": 0}
    lines = [{**head, "n": n, "stage": stage, "data": data} for n, (stage, data) in enumerate(stages.items(), 1)]
    kept = [line for line in lines if not (lost and line["stage"] == "sweep.fleet.1")]
    (tmp_path / "logs" / "0.log").write_text("".join(json.dumps(line) + "\n" for line in kept))
    earlier = resumed(tmp_path)
    assert (earlier.undiagnosed, bool(earlier.history)) == (again, True)


def test_the_result_says_what_is_of_the_earlier_run(tmp_path):
    """Earlier rounds and nodes without results in this run count, and are named."""
    earlier = resumed(record(tmp_path))
    names, stages = printed(6, lambda _: 380.0)
    sweep = swept(names, {k: v for k, v in stages.items() if not k.startswith("sweep.round")}, earlier=earlier)
    first, *nodes = ran_findings(sweep)
    count = len(earlier.history)
    assert f"{count} of {count} rounds are of run before, 2026-11-22 10:00 UTC" in first.observed
    assert [(f.ok, "rounds of run before" in f.observed) for f in nodes] == [(True, True)] * 6
    assert any("not tested in this run" in text and "6 nodes" in text for text in notes(sweep))
    assert sweep.section["resumed"] == {
        "run_id": "before",
        "started": "2026-11-22T10:00:00+00:00",
        "ended": "2026-11-22T10:10:00+00:00",
        "rounds": count,
    }
