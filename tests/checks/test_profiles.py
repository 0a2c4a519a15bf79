"""The profile loader: strict, with one-line errors that have the path and the nearest name; and the content of the
shipped profiles."""

import typing
from dataclasses import is_dataclass, replace

import pytest
import yaml

from checks.framework.options import Options
from checks.framework.trial_spec import build_spec, equalities, mirrored
from checks.profiles.loader import Profile, load_profile, profile_names
from checks.profiles.yaml_schema import ProfileError, build, parse_size
from jobs.trial.names import SpecError
from reports.plain import format_size
from seatrial.logs.bandwidth.physics import limit_gbps
from tests.profiles import WITH_GPUS
from tests.table import table


@pytest.fixture
def write(tmp_path):
    """Write a profile file and return its path as the user would type it."""

    def make(text, name="mine.yaml"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return make


def test_the_shipped_profiles_are_readable_and_named_after_their_files():
    """Every shipped profile loads, and the simulated platform's is among them."""
    assert {"h100-ib", "h200-ib", "h200-roce", "a100-ib", "p5-efa"} <= set(profile_names())
    assert [load_profile(name).name for name in profile_names()] == list(profile_names())


@table("name", WITH_GPUS)
def test_floors_are_below_physics_and_not_blind(name):
    """A floor that no cluster meets, or that half of the rails meet, is useless."""
    profile = load_profile(name)
    node = profile.fabric.node_gbps
    assert profile.known
    if not profile.floors:
        assert profile.unjudged == "no floor published"
        assert profile.title.endswith("; no floor published: measured, not judged")
        return
    assert not profile.unjudged
    assert profile.floor("all_reduce", "ring", profile.nodes)
    assert profile.floor("all_reduce", "default", profile.nodes)
    for floor in profile.floors:
        if floor.nodes == 1 or floor.collective != "all_reduce" or profile.fabric.kind == "mnnvl":
            continue  # the lint checks them by their formulas
        limit = limit_gbps(floor.algorithm, node, nodes=floor.nodes, gpus_per_node=profile.gpu.per_node)
        assert floor.busbw_gbps < limit, floor
        assert floor.busbw_gbps > 0.7 * node, floor
        assert floor.size <= profile.bench.max, floor
        assert floor.size >= 2**30, floor


# If no bus bandwidth is published, the stated link rate: seven xGMI links of 48 GB/s (ROCm blogs).
LINKS = {("mi300x", 1): 7 * 48}


@pytest.mark.parametrize("name", profile_names())
def test_floors_stay_below_what_was_published_for_them(shared, name):
    """No floor exceeds the number in the reference that its source names."""
    reference = yaml.safe_load((shared / "reference-busbw.yaml").read_text())
    for floor in load_profile(name).floors:
        quoted = [v for e in reference for v in e["busbw_gbps"].values() if str(v) in floor.source]
        if (name, floor.nodes) in LINKS:
            assert floor.busbw_gbps < LINKS[name, floor.nodes], floor
            continue
        if not quoted and floor.collective != "all_reduce":
            assert "PERFORMANCE.md" in floor.source, floor  # unpublished: derived from the link rate and its formula
            continue
        assert quoted, floor
        assert floor.busbw_gbps < max(quoted), floor


def test_no_profile_knows_nothing():
    """Profile-only values are empty; the trial still has a pod to run."""
    nothing = Profile()
    assert not nothing.known
    assert (nothing.name, nothing.gpu.per_node, nothing.fabric.kind, nothing.floors) == (None, None, None, ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpus: {per_node: 8}", "unknown key 'gpus'; did you mean gpu?"),
        ("gpu: {pernode: 8}", "unknown key 'gpu.pernode'; did you mean per_node?"),
        ("gpu: {per_node: eight}", "gpu.per_node: a whole number is expected, not the text 'eight'"),
        ("gpu: {per_node: true}", "gpu.per_node: a whole number is expected, not the truth value True"),
        ("gpu: {per_node: 8.5}", "gpu.per_node: a whole number is expected"),
        ("gpu: {per_node: -1}", "gpu.per_node must not be negative"),
        ("gpu: [8]", "gpu: a mapping (key: value) is expected, not a list"),
        ("fabric: {kind: infiniband}", "fabric.kind unknown fabric 'infiniband'"),
        ("fabric: {rail_gbit_s: .nan}", "fabric.rail_gbit_s: a finite number is expected"),
        ("pod: {env: {A: 1}}", "pod.env.A: a text is expected, not the number 1 (put it in quotes)"),
        ("pod: {env: {1: a}}", "pod.env: the key 1 must be a text"),
        ("pod: {shm: 8Q}", "pod.shm: a size like 8G or 16Gi is expected"),
        ("pod: {image: 'a b'}", "is not an image reference"),
        ("pod: {tolerations: [{key: a, opperator: Exists}]}", "unknown field 'opperator'"),
        ("nodes: 1", "nodes must be at least 2"),
        ("runtime: {driver_min: r580}", "runtime.driver_min must look like 580"),
        ("runtime: {driver_min: 580}", "a text is expected, not the number 580 (put it in quotes)"),
        ("floors: [{collective: all_reduce}]", "floors[0]: 'algorithm' is missing"),
        ("floors: {}", "floors: a list is expected"),
        ("bench: {min: 8G, max: 1G}", "bench.min must be above 0 and at most max"),
        ("name: a\nname: b", "line 2"),
        ("a: [1, 2", "line 1"),
        ("a: b: c", "line 1, column 5: broken YAML"),
        ("- a", "a mapping (key: value) is expected, not a list"),
        ("", "the file is empty"),
        ("extends: h100-ip", "extends: unknown profile 'h100-ip'; did you mean h100-ib?"),
        ("extends: [a]", "extends must be the name of a profile"),
        ("pod: {env: &a {A: *a}}", "pod.env.A: a text is expected, not a mapping"),
        ("when: 2024-13-45", "broken YAML"),
        ("[" * 3000, "nested too deeply"),
    ],
)
def test_bad_profiles_are_refused_in_one_line(write, text, said):
    """Each refusal names the file, the path and the valid value, without a traceback."""
    with pytest.raises(ProfileError) as refused:
        load_profile(write(text))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("mine.yaml:")


def test_a_ring_floor_above_the_links_is_refused(write):
    """An impossible floor fails every cluster; usually the unit or the link count is wrong."""
    text = """
fabric: {kind: ib, rails: 8, rail_gbit_s: 400}
floors: [{collective: all_reduce, algorithm: ring, nodes: 2, size: 8G, busbw_gbps: 480, topology: t, source: s}]
"""
    with pytest.raises(ProfileError, match=r"floors\[0\].busbw_gbps is above the link rate of a node \(400 GB/s\)"):
        load_profile(write(text))


def test_unknown_names_and_paths_are_one_line(tmp_path):
    """A misspelt name gets the nearest name; a path that is not a file is reported."""
    with pytest.raises(ProfileError, match="unknown profile 'h100ib'; did you mean h100-ib"):
        load_profile("h100ib")
    with pytest.raises(ProfileError, match="is a directory"):
        load_profile(str(tmp_path) + "/")
    with pytest.raises(ProfileError, match="does not exist"):
        load_profile("./no-such.yaml")
    with pytest.raises(ProfileError, match="unknown profile '_base'"):
        load_profile("_base")


def test_floors_measured_with_another_number_of_gpus_are_not_inherited(write):
    """Four of a node's eight GPUs have no NVLink SHARP and half of the NICs, so floors for eight would fail them."""
    assert load_profile(write("extends: h100-ib\ngpu: {per_node: 4}\n")).floors == ()
    eight = load_profile("h100-ib")
    assert load_profile(write("extends: h100-ib\ngpu: {per_node: 8}\n")).floors == eight.floors
    own = "floors: [{collective: all_reduce, algorithm: default, nodes: 1, size: 8G, busbw_gbps: 300, topology: t, source: s}]"
    assert [f.busbw_gbps for f in load_profile(write(f"extends: h100-ib\ngpu: {{per_node: 4}}\n{own}\n")).floors] == [
        300
    ]


def test_extends_merges_mappings_and_replaces_lists(write):
    """A site's profile contains only the differences; a cycle is refused."""
    mine = load_profile(write("extends: h100-ib\npod: {env: {NCCL_IB_HCA: mlx5}}\nfloors: []\n"))
    assert (mine.name, mine.gpu.per_node, mine.pod.env, mine.floors) == ("mine", 8, {"NCCL_IB_HCA": "mlx5"}, ())
    assert mine.pod.resources == {"rdma/hca_shared_devices_a": 1}
    write("extends: ./b.yaml\n", "a.yaml")
    with pytest.raises(ProfileError, match="circular extends"):
        load_profile(write("extends: ./a.yaml\n", "b.yaml"))


@pytest.mark.parametrize(
    ("text", "size"),
    [("8G", 2**33), ("16Gi", 2**34), ("1M", 2**20), ("64K", 65536), (4096, 4096), ("1T", 2**40), ("unlimited", -1)],
)
def test_sizes_are_read_as_nccl_tests_does(text, size):
    """Units are powers of 1024, with or without an i."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["8.5G", "-2", -1, True, None, "G", "8 GB/s", [8]])
def test_what_is_no_size_is_refused(text):
    """An unreadable size is never zero."""
    with pytest.raises(ProfileError):
        parse_size(text)


def test_sizes_are_written_as_nccl_tests_takes_them():
    """The label of a row is the size that the user types."""
    assert [format_size(n) for n in (2**33, 2**29, 2**16, 1000, 0, -1)] == [
        "8G",
        "512M",
        "64K",
        "1000",
        "0",
        "unlimited",
    ]


def test_the_trial_asks_for_what_training_would(h100):
    """The trial requests whole nodes with their RDMA resource, both collectives, shared memory, and the command's
    options."""
    spec = build_spec(
        h100, Options(image="my/img:1", registry="mirror:5000", nodes="pool=a"), run_id="r", namespace="n"
    )
    assert (spec.nodes, spec.gpus_per_node, spec.shm_bytes) == (2, 8, 2**34)
    assert spec.image == "mirror:5000/my/img:1"
    assert spec.node_selector == {"pool": "a"}
    assert spec.resources == {"rdma/hca_shared_devices_a": 1}
    assert [c.name for c in spec.collectives] == ["node", "ring", "default", "sendrecv", "alltoall"]
    assert {c.name: dict(c.env) for c in spec.collectives if c.env} == {"ring": {"NCCL_ALGO": "Ring"}}
    assert {c.name: c.scope for c in spec.collectives if c.scope != "job"} == {"node": "node"}
    assert {c.name: (c.bench.min_bytes, c.bench.max_bytes) for c in spec.collectives if c.bench} == {
        "node": (2**26, 2**33),
        "sendrecv": (2**26, 2**30),
        "alltoall": (2**26, 2**30),
    }
    assert {c.repeats for c in spec.collectives} == {3}


def test_only_what_can_be_judged_is_run(h100):
    """One GPU per node has no local peer; all_to_all runs only if a floor judges it."""
    one = replace(h100, gpu=replace(h100.gpu, per_node=1), floors=())
    names = [c.name for c in build_spec(one, Options(), run_id="r", namespace="n").collectives]
    assert names == ["ring", "default", "sendrecv"]


def test_without_a_profile_the_nodes_say_how_many_gpus(inventory, node):
    """The number is the smallest capacity of all GPU nodes, or a single GPU without visible nodes."""
    cluster = inventory([node("a", 8), node("b", 4), node("c", 0)])
    assert build_spec(Profile(), Options(), run_id="r", namespace="n", cluster=cluster).gpus_per_node == 4
    assert build_spec(Profile(), Options(), run_id="r", namespace="n").gpus_per_node == 1


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("nvcr.io/nvidia/pytorch:1", "m/nvidia/pytorch:1"),
        ("pytorch/pytorch:2", "m/pytorch/pytorch:2"),
        ("ubuntu", "m/ubuntu"),
        ("localhost/x@sha256:" + "a" * 64, "m/x@sha256:" + "a" * 64),
    ],
)
def test_a_mirror_keeps_the_path(image, expected):
    """Only the registry's host is replaced."""
    assert mirrored(image, "m/") == expected
    assert mirrored(image, "") == image


def test_a_selector_that_no_pod_can_select_by_is_refused():
    """nodeSelector supports equality only; anything else would place the trial on nodes that are not judged."""
    assert equalities("a=b, c.d/e==f") == {"a": "b", "c.d/e": "f"}
    for text in ("a in (b,c)", "!a", "a!=b", "a"):
        with pytest.raises(SpecError, match="--nodes"):
            equalities(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bench: {max: 8Gb}", "bench.max: a size like 8G or 16Gi is expected"),  # bits in general use
        ("gpu: {kind: amd}", "gpu.resource is nvidia.com/gpu, but the kind is amd"),
        ("gpu: {resource: amd.com/gpu}", "gpu.resource is amd.com/gpu, but the kind is nvidia"),
        ("pool: {pool: a}\npod: {node_selector: {pool: b}}", "pool says pool=a and pod.node_selector pool=b"),
        ('name: "red\\e[31m"', "name must be printable"),
        ('name: "turned \\u202e"', "name must be printable"),
    ],
)
def test_what_contradicts_itself_or_the_terminal_is_refused(write, text, said):
    """Two contradictory values, a wrong unit, and control characters are refused."""
    with pytest.raises(ProfileError, match=r"^mine\.yaml:") as refused:
        load_profile(write(f"extends: h100-ib\n{text}\n"))
    assert said in str(refused.value)


def test_the_same_label_twice_is_no_contradiction(write):
    """The pool and the pod's selector may have the same label."""
    text = "extends: h100-ib\npool: {pool: a}\npod: {node_selector: {pool: a}}\n"
    assert load_profile(write(text)).pool == {"pool": "a"}


def test_null_takes_away_what_is_inherited(tmp_path):
    """The NICs have a different resource here, so the inherited one must be removed, without other changes."""
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "extends: h100-ib\npod: {resources: {rdma/hca_shared_devices_a: null, rdma/ib: 1}}\ngpu: {product: null}\n"
    )
    profile, parent = load_profile(str(mine)), load_profile("h100-ib")
    assert profile.pod.resources == {"rdma/ib": 1}
    assert (profile.gpu.product, profile.gpu.per_node) == ((), 8)
    assert profile.pod.capabilities == parent.pod.capabilities
    mine.write_text("pod: {resources: {rdma/ib: null}}\n")
    with pytest.raises(ProfileError, match="a whole number is expected"):
        load_profile(str(mine))


def hints_of(cls):
    """Return every type of a key that a profile may have, with its path."""
    for name, hint in typing.get_type_hints(cls).items():
        yield f"{cls.__name__}.{name}", hint
        for part in (hint, *typing.get_args(hint)):
            if is_dataclass(part):
                yield from hints_of(part)


@pytest.mark.parametrize("value", [{}, {"a": "b"}, [], "x", 1, 1.5, True, None], ids=repr)
def test_no_key_is_of_a_type_that_the_loader_does_not_know(value):
    """Any value of any key is accepted or refused in one line."""
    for path, hint in hints_of(Profile):
        try:
            build(hint, value, path)
        except ProfileError as error:
            assert str(error).startswith((path, "unknown key")), path


def test_what_nothing_here_can_see_is_taken_from_the_profile(write):
    text = "extends: h100-ib\nstack: {baseline: {leaf switches: NVOS 25.02.3000}}"
    assert load_profile(write(text)).stack.baseline == {"leaf switches": "NVOS 25.02.3000"}
    with pytest.raises(ProfileError, match=r"stack\.baseline\.leaf switches: a text is expected"):
        load_profile(write(text.replace("NVOS 25.02.3000", "25.02")))
