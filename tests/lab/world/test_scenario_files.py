"""Scenario files: the shipped ones, and refusals of invalid ones."""

from pathlib import Path

import pytest

from lab import scenario
from lab.format import read_yaml
from lab.scenario import ScenarioError
from tests.table import table

ASKED_FOR = {
    "healthy",
    "empty-cluster",
    "no-gpu-nodes",
    "gpu-missing",
    "allocatable-zero",
    "gpus-taken",
    "rbac-denied",
    "image-missing",
    "unschedulable",
    "dns-broken",
    "dns-slow",
    "port-blocked",
    "socket-fallback",
    "mixed-transport",
    "low-bandwidth",
    "wrong-results",
    "log-truncated",
    "nccl-hang",
    "api-down",
}
GOOD = "name: mine\ntitle: Mine\nbreaks: nothing\nfaults: []\noutcome: go\n"


def written(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


def test_every_scenario_that_was_asked_for_is_shipped():
    """All original scenarios exist, and every shipped file loads."""
    assert set(scenario.names()) >= ASKED_FOR
    for name in scenario.names():
        assert scenario.load(name).name == name


def test_only_unbroken_worlds_pass():
    """Only worlds without a fault may end with go; there are enough of both kinds."""
    every = {name: scenario.load(name) for name in scenario.names()}
    passing = {name for name, each in every.items() if "go" in each.outcomes}
    assert not [name for name in passing if every[name].faults]
    assert {"healthy", "healthy-efa", "healthy-roce", "dns-slow"} <= passing
    assert len(passing) >= 20
    assert len(every) - len(passing) >= 80
    assert [name for name, each in every.items() if set(each.faults) - set(each.subjects)] == []


@table("name", sorted(ASKED_FOR))
def test_a_scenario_changes_one_part_of_the_world(name):
    """At most one real thing is broken: the changes of a file touch one part (and its symptoms)."""
    changed = set(read_yaml(scenario.SHIPPED / f"{name}.yaml").get("world", {}))
    together = [{"nodes", "cpu_nodes"}, {"node", "workloads"}, {"workloads", "objects"}]
    assert len(changed) <= 1 or changed in together


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("heathy", "did you mean 'healthy'"),
        ("gpu-mising", "did you mean 'gpu-missing'"),
        ("replay=/no/such/log", "no such file"),
        ("replay=/", "is a directory"),
        ("/no/such/file.yaml", "no scenario file"),
    ],
)
def test_a_scenario_that_does_not_exist_is_refused_in_one_line(ref, message):
    """An unknown scenario gets one line with the nearest name."""
    with pytest.raises(ScenarioError, match=message) as caught:
        scenario.load(ref)
    assert "\n" not in str(caught.value)


def test_an_empty_log_is_no_recording(tmp_path):
    """replay= needs a log."""
    (tmp_path / "empty.log").touch()
    with pytest.raises(ScenarioError, match="empty"):
        scenario.load(f"replay={tmp_path}/empty.log")


def test_a_path_works_as_a_scenario(tmp_path):
    """Users start their own scenarios by path."""
    loaded = scenario.load(written(tmp_path, GOOD + "world:\n  collective: {wrong: 3}\n"))
    assert loaded.world["collective"] == {"wrong": 3}
    assert loaded.world["gpu"]["count"] == 8  # the rest of the world is the platform's
    assert loaded.platform == "h100-ib"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "wrld: {}\n", "unknown key 'wrld' .did you mean 'world'"),
        (GOOD + "world: {colective: {}}\n", "did you mean 'collective'"),
        (GOOD + "world: {collective: {hangs: true}}\n", "did you mean 'hang'"),
        (GOOD + "world: {collective: {hang: 1}}\n", "hang must be true or false"),
        (GOOD + "world: {nodes: two}\n", "nodes must be a whole number"),
        (GOOD + "world: {nodes: true}\n", "nodes must be a whole number"),
        (GOOD + "world: {dns: {mode: nxdomian}}\n", "did you mean 'nxdomain'"),
        (GOOD + "world: {hardware: {gpu-node-0: {rmda: {}}}}\n", "did you mean 'rdma'"),
        (GOOD + "world: {hardware: {gpu-node-2: {}}}\n", "did you mean 'gpu-node-[01]'"),
        (GOOD + "world: {node: {gpu-nod-1: {}}}\n", "did you mean 'gpu-node-1'"),
        (GOOD + "world: {hardware: {gpu-node-0: {gpus: {3: {ecc_volatil: 4}}}}}\n", "did you mean 'ecc_volatile'"),
        (GOOD + "world: {hardware: {gpu-node-0: {gpus: {8: {}}}}}\n", "gpus: unknown '8'"),
        (GOOD + "world: {hardware: {gpu-node-0: {gpu: {drivr: '535'}}}}\n", "did you mean 'driver'"),
        (GOOD + "world: {hardware: {'*': {rdma: {devices: {mlx5_8: {}}}}}}\n", "did you mean 'mlx5_"),
        (GOOD + "world: {hardware: {'*': {rdma: {devices: {mlx5_1: {stat: DOWN}}}}}}\n", "did you mean 'state'"),
        (GOOD + "world: {workloads: {x: {knd: DaemonSet}}}\n", "did you mean 'kind'"),
        (GOOD + "world: {platform: h100-ibb}\n", "did you mean 'h100-ib'"),
        (GOOD.replace("outcome: go", "outcome: no_go"), "did you mean 'no-go'"),
        (GOOD.replace("title: Mine\n", ""), "'title' is missing"),
        (GOOD.replace("name: mine", "name: Mine!"), "not lower-case"),
        (GOOD.replace("faults: []", "faults: [1]"), "list of fault ids"),
        ("name: [mine\n", "no valid YAML in line"),
        ("- a\n- b\n", "a map is needed"),
        ("", "a map is needed"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path, text, message):
    """The format is strict: the message names file, key, and the nearest name."""
    with pytest.raises(ScenarioError, match=message) as caught:
        scenario.load(written(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_merge_patches_as_rfc_7386():
    """null removes, maps are merged, everything else replaces, and no object is shared."""
    base = {"a": {"b": 1, "c": [1]}, "d": 2}
    patched = scenario.merge(base, {"a": {"b": None, "c": [2]}, "e": {"f": None}})
    assert patched == {"a": {"c": [2]}, "d": 2, "e": {}}
    assert base == {"a": {"b": 1, "c": [1]}, "d": 2}


BASE = (
    GOOD.replace("mine", "base")
    + """
api_faults: storm:7
run: {profile: {extends: h100-ib, nodes: 2}, options: [--tenant]}
world:
  nodes: 3
  dns: {delay_s: 1}
  node: {gpu-node-0: {labels: {a: b}}}
  objects:
    - {apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: default}, data: {a: "1", b: "2"}}
    - {apiVersion: v1, kind: ConfigMap, metadata: {name: two, namespace: default}}
"""
)


def test_a_scenario_changes_the_one_that_it_extends(tmp_path):
    """World, API faults and run are inherited; null removes, objects are changed by kind and name."""
    (tmp_path / "base.yaml").write_text(BASE)
    changes = """
extends: base.yaml
run: {profile: {nodes: null, pod: null}, options: null}
world:
  dns: {delay_s: null}
  node: {gpu-node-0: {labels: {a: null}}}
  objects:
    - {apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: default}, data: {a: null, c: "3"}}
    - {apiVersion: v1, kind: ConfigMap, metadata: {name: two, namespace: default}, absent: true}
"""
    changed = scenario.load(written(tmp_path, GOOD + changes))
    assert (changed.name, changed.title, str(changed.api_faults)) == ("mine", "Mine", "storm:7")
    assert changed.run == {"profile": {"extends": "h100-ib", "pod": None}}
    assert changed.world["nodes"] == 3
    assert changed.world["dns"] == {}
    assert changed.world["node_changes"] == {"gpu-node-0": {"labels": {"a": None}}}
    maps = [each for each in changed.world["objects"] if each["kind"] == "ConfigMap"]
    assert [(each["metadata"]["name"], each["data"]) for each in maps] == [("one", {"b": "2", "c": "3"})]
    assert scenario.load(written(tmp_path, GOOD + "extends: base.yaml\napi_faults: storm:8\n")).api_faults.seed == 8


def test_what_a_scenario_extends_must_be_there_and_end(tmp_path):
    """An unknown name, a missing file, and a cycle are refused in one line each."""
    for text, message in (
        ("healthy-storag", "did you mean 'healthy-storage'"),
        ("no.yaml", "unknown scenario 'no.yaml'"),
        ("mine.yaml", "scenarios extend each other"),
    ):
        with pytest.raises(ScenarioError, match=message):
            scenario.load(written(tmp_path, GOOD + f"extends: {text}\n"))
