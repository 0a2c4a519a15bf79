"""Results of sweep.dcgm for DCGM's single-node diagnostics: attributed faults and unchanged nodes."""

import pytest

from checks.rules.sweep_dcgm import findings, notes, with_diagnostics
from tests.by_hand import misfit
from tests.checks.sweeps import on, printed, swept

GPUS = 8
ALL = [f"GPU {index}" for index in range(GPUS)]


def result(status, *who, **said):
    return {
        "category": "Hardware",
        "test": "memory",
        "status": status,
        "who": list(who),
        "said": [said] if said else [],
    }


def fleet(nodes=4, *, placed=None, **told):
    """Return a sweep over nodes that pass all of its tests; `told`: results by node (_ for -), or the reason that there
    are none."""
    names, stages = printed(nodes, lambda _: 380.0)
    for number, name in enumerate(names, 1):
        said = told.get(name.replace("-", "_"), [result("pass", *ALL)])
        if said is not None:
            line = {
                "node": name,
                "level": 2,
                "found": True,
                "version": "4.4.1",
                "exit": 0,
                "results": said,
                "error": None,
            }
            line.update({"results": [], "error": said} if isinstance(said, str) else {})
            stages[f"sweep.dcgm.{number}"] = line
            assert misfit(f"sweep.dcgm.{number}", line) == ""
    return swept(names, stages, placed=placed)


def bad(sweep):
    return [(f.subject, f.ok, f.fault) for f in findings(sweep, GPUS) if f.ok is not True]


def test_nodes_that_pass_are_proven():
    """Each GPU has one finding."""
    sweep = with_diagnostics(fleet(), GPUS)
    assert (len(list(findings(sweep, GPUS))), bad(sweep), list(notes(sweep))) == (4 * GPUS, [], [])
    assert (len(sweep.proven), sweep.section["verdict"]) == (4, "go")
    assert "undiagnosed" not in sweep.section


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ({"text": "A mismatch.", "category": 10, "id": 58, "severity": 2}, "gpu.dcgm-failed"),
        ({"text": "A variable.", "category": 3, "id": 28, "severity": 5}, "runtime.dcgm-setup"),
    ],
)
def test_a_failed_test_is_a_fault_of_the_gpu_and_its_node_is_not_proven(said, fault):
    """The action follows DCGM's number; the other nodes remain proven."""
    sweep = fleet(node_2=[result("fail", "GPU 3", **said), result("pass", *ALL)])
    assert bad(sweep) == [("node-2 GPU 3", False, fault)]
    (found,) = (f for f in findings(sweep, GPUS) if f.ok is False)
    assert found.action == ("CONTACT_SUPPORT" if fault == "gpu.dcgm-failed" else "")
    judged = with_diagnostics(sweep, GPUS)
    assert set(judged.proven) == {"node-0", "node-1", "node-3"}
    (row,) = judged.section["findings"]
    assert (row["kind"], row["names"], row["fault"]) == ("node", ["node-2"], fault)
    assert (judged.section["verdict"], judged.section["undiagnosed"]) == ("no-go", ["node-2"])


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (None, "no dcgmi and nv-hostengine in their pods, or no test alone in this run"),
        ("nv-hostengine does not listen: the driver is not loaded", "does not listen"),
    ],
)
def test_a_node_on_which_they_could_not_run_is_as_before_and_named(told, why):
    sweep = fleet(node_2=told)
    assert bad(sweep) == []
    (note,) = notes(sweep)
    assert note.startswith("not diagnosed by DCGM, ") and why in note and note.endswith(": node-2")
    assert len(with_diagnostics(sweep, GPUS).proven) == 4


@pytest.mark.parametrize("results", [[result("skip", *ALL)], [result("pass", *ALL[:7])], [result("warn", *ALL)]])
def test_what_diagnoses_only_a_part_leaves_the_node_open(results):
    """As in a trial, a skipped test or a warning proves nothing and is not a fault."""
    sweep = fleet(node_2=results)
    assert {(subject.split()[0], ok) for subject, ok, _ in bad(sweep)} == {("node-2", None)}
    judged = with_diagnostics(sweep, GPUS)
    assert "node-2" not in judged.proven and judged.section["findings"] == []
    assert (judged.section["verdict"], judged.section["undiagnosed"]) == ("inconclusive", ["node-2"])


def test_a_test_that_is_skipped_with_one_that_passes_is_no_gap():
    sweep = fleet(node_2=[result("pass", *ALL), {**result("skip", *ALL, text="not on this GPU"), "test": "pcie"}])
    assert bad(sweep) == [] and len(with_diagnostics(sweep, GPUS).proven) == 4


def test_a_node_that_the_api_server_saw_elsewhere_diagnoses_no_one():
    """A pod reports only for the node on which it ran."""
    where = on(f"node-{n}" for n in range(4))
    del where["node-2"]
    sweep = fleet(placed=where, node_2=[result("fail", "GPU 3", text="A mismatch.", category=10)])
    assert "node-2" not in sweep.dcgm and bad(sweep) == []
