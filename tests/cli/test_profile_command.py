"""`seatrial profile` as a user types it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from checks.profiles.loader import ProfileError, load_profile, profile_names
from cli.__main__ import main
from lab.scenario import platform_names
from tests.program import seatrial

if TYPE_CHECKING:
    from pathlib import Path


def test_lint_objects_to_a_blind_floor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 for a sound profile, 1 with the reason for a useless floor; invalid YAML gets one line."""
    floor = {
        "collective": "all_reduce",
        "algorithm": "ring",
        "nodes": 2,
        "size": "8G",
        "busbw_gbps": 100,
        "topology": "t",
        "source": "s",
    }
    blind = tmp_path / "blind.yaml"
    blind.write_text(yaml.safe_dump({"extends": "h100-ib", "floors": [floor]}))
    broken = tmp_path / "broken.yaml"
    broken.write_text("{")
    assert main(["profile", "lint"]) == 0
    capsys.readouterr()
    assert main(["profile", "lint", "h100-ib", str(blind), str(broken)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "h100-ib: sound"
    assert "is blind" in said[1]
    assert "broken.yaml" in said[2]
    assert len(said) == 3


WRONG = """\
extends: h100-ib
gpu:
  prodct: H100
  per_node: eight
fabric: {kind: infinband, rails: -1}
bench: {min: 8G,
  max: 1G, factor: 1}
pod:
  env:
    A.B: 1
floors:
  - {collective: all_reduce, algorithm: ring, nodes: 2, size: 8G, busbw_gbps: 300, topology: t, source: s}
  - collective: all_redus
    algorithm: ring
    nodes: 0
    size: 8Gb
    busbw_gbps: 300
    topology: t
nodess: 3
"""
TOLD = [
    "line 3: unknown key 'gpu.prodct'; did you mean product?",
    "line 4: gpu.per_node: a whole number is expected, not the text 'eight'",
    "line 5: fabric.kind unknown fabric 'infinband'",
    "line 5: fabric.rails must be above 0",
    "line 6: bench.min must be above 0 and at most max",
    "line 7: bench.factor must be at least 2",
    "line 10: pod.env.A.B: a text is expected, not the number 1 (put it in quotes)",
    "line 13: floors[1]: 'source' is missing",
    "line 16: floors[1].size: a size like 8G or 16Gi is expected, not the text '8Gb'",
    "line 19: unknown key 'nodess'; did you mean nodes?",
]


def test_lint_shows_all_that_is_wrong_at_once_and_the_file_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each objection has its line, in order; a run is refused with the first, in one line."""
    file = tmp_path / "mine.yaml"
    file.write_text(WRONG)
    assert main(["profile", "lint", str(file)]) == 1
    said = capsys.readouterr().out
    head, *told = said.splitlines()
    assert head == f"{file}: {len(TOLD)} objections"
    assert [line.strip().startswith(expected) for line, expected in zip(told, TOLD, strict=True)] == [True] * len(TOLD)
    assert said.count("mine.yaml") == 1
    with pytest.raises(ProfileError, match=r"^mine\.yaml: unknown key 'nodess'; did you mean nodes\?$"):
        load_profile(str(file))


def test_an_unknown_key_hides_no_number_that_cannot_be_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown keys and impossible numbers are reported together; with `extends`, faults are attributed to the right
    file."""
    (tmp_path / "parent.yaml").write_text("extends: h100-ib\nnodes: -3\nfabrik: {}\ngpu: {per_node: -1, prodct: x}\n")
    file = tmp_path / "mine.yaml"
    file.write_text("extends: ./parent.yaml\nnodes: five\n")
    told = []
    for ref in (tmp_path / "parent.yaml", file):
        assert main(["profile", "lint", str(ref)]) == 1
        told.append([line.strip() for line in capsys.readouterr().out.splitlines()[1:]])
    unknown = ("unknown key 'fabrik'; did you mean fabric?", "unknown key 'gpu.prodct'; did you mean product?")
    gpus = "gpu.per_node must not be negative"
    assert told[0] == [f"line 3: {unknown[0]}", f"line 4: {unknown[1]}", f"line 4: {gpus}"]
    assert told[1] == [
        "line 2: nodes: a whole number is expected, not the text 'five'",
        *(f"inherited: {text}" for text in (unknown[0], unknown[1], gpus)),
    ]
    file.write_text("extends: h100-ib\nfabrik: {}\nnodes: -3\n")
    assert main(["profile", "lint", str(file)]) == 1
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert first.startswith("  line 2: unknown key 'fabrik'")
    assert second.startswith("  line 3: nodes must be at least 2")


def test_lint_shows_grave_and_lesser_objections_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A floor that no run can meet hides neither a useless floor nor a value that Kubernetes would refuse."""
    row = (
        "  - {{collective: all_reduce, algorithm: ring, nodes: 2, size: {}, busbw_gbps: {}, topology: t, source: s}}\n"
    )
    floors = "".join(row.format(*each) for each in (("8G", 900), ("3G", 300), ("4G", 100)))
    file = tmp_path / "mine.yaml"
    file.write_text(f"extends: h100-ib\nfloors:\n{floors}pod:\n  image: 'a b'\n")
    assert main(["profile", "lint", str(file)]) == 1
    told = capsys.readouterr().out.splitlines()[1:]
    expected = ("line 3: floors[0].busbw_gbps is above", "line 4: floors[1].size 3G is not a row", "line 5: floors[2]")
    assert [line.strip().startswith(text) for line, text in zip(told, expected, strict=False)] == [True] * 3
    assert "'a b' is not an image reference" in told[-1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("extends: h100-ib\n\nnodes: 1\n", "{file}: line 3: nodes must be at least 2"),
        ("gpu: {\n", "{file}: line 2, column 1: broken YAML"),
        ("extends: ./parent.yaml\n", "{file}: parent.yaml: line 1, column 5: broken YAML"),
        ("extends: h100-bi\n", "{file}: line 1: extends: unknown profile 'h100-bi'; did you mean h100-ib?"),
        ("extends: h100-ib\nfabric:\n  rails: 0\n", "{file}: line 3: fabric.rails must be above 0"),
    ],
)
def test_one_objection_is_one_line(text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file's name appears once; an error in an extended file has that file's name."""
    (tmp_path / "parent.yaml").write_text("a: b: c\n")
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    assert main(["profile", "lint", str(file)]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(said.format(file=file))
    assert line.count("mine.yaml") == 1


def test_a_profile_that_is_not_there_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "none.yaml")
    assert main(["profile", "lint", missing, "h100-bi", "h100-ib"]) == 1
    assert capsys.readouterr().out.splitlines()[::2] == [f"profile file {missing!r} does not exist", "h100-ib: sound"]


def test_detect_proposes_a_profile_that_loads(tmp_path: Path) -> None:
    """The output of detect is a usable profile."""
    done = seatrial("profile", "detect", "--cluster", "sim:healthy")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "mine.yaml"
    file.write_text(done.stdout)
    assert load_profile(str(file)).gpu.per_node == 8


@pytest.mark.parametrize("platform", sorted({*platform_names()} & {*profile_names()}))
def test_each_platform_of_the_lab_is_reported_by_what_it_offers(platform: str, tmp_path: Path) -> None:
    """Claimed GPUs, AMD's, GKE's without feature discovery: the matching profile is proposed, and it loads."""
    world = tmp_path / "world.yaml"
    world.write_text(
        f"{{name: w, title: t, breaks: nothing, faults: [], outcome: go, world: {{platform: {platform}}}}}"
    )
    done = seatrial("profile", "detect", "--cluster", f"sim:{world}")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "mine.yaml"
    file.write_text(done.stdout)
    assert yaml.safe_load(done.stdout)["extends"] == platform
    mine, shipped = load_profile(str(file)), load_profile(platform)
    assert (mine.gpu, mine.pod.resources, mine.pod.claims) == (shipped.gpu, shipped.pod.resources, shipped.pod.claims)


def test_detect_fits_the_pod_to_small_nodes_and_takes_no_foreign_floors() -> None:
    """Floors for eight GPUs per node do not apply to two, and a pod with eight CPUs does not fit."""
    done = seatrial("profile", "detect", "--cluster", "sim:no-profile-small-nodes")
    assert done.returncode == 0, done.stderr
    document = yaml.safe_load(done.stdout)
    assert "extends" not in document
    assert document["gpu"] == {"resource": "nvidia.com/gpu", "per_node": 2}
    assert document["pod"]["cpu"] == "2900m"


def test_detect_says_why_it_cannot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Without a GPU node there is no proposal; a wrong argument is a usage error in one line."""
    done = seatrial("profile", "detect", "--cluster", "sim:cpu-only")
    assert done.returncode == 10
    assert "has a GPU" in done.stderr
    for wrong in (["--cluster", "kind"], ["--cluster", "sim:helthy"], ["--kubeconfig", str(tmp_path / "none")]):
        assert main(["profile", "detect", *wrong]) == 4
        assert len(capsys.readouterr().err.splitlines()) == 1


def record(**changes: Any) -> dict[str, Any]:
    """Return a record in the form of --out, as far as capture reads it."""
    side = {"busbw_gbps": 380.0}
    table = {"collective": "all_reduce", "rows": [{"size_bytes": 8 << 30, "out_of_place": side, "in_place": side}]}
    jobs = {"ring": {"nodes": 2, "ranks": 16, "inter_node_transport": "ib", "tables": [table]}}
    return {
        "schema": 1,
        "verdict": "go",
        "scope": "full",
        "run_id": "abc",
        "started": "2026-01-02T03:04:05+00:00",
        "checks": [],
        "profile": "h100-ib",
        "simulated": False,
        "collectives": jobs,
        **changes,
    }


def test_capture_makes_a_profile_of_an_accepted_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The baseline extends the run's profile; measured floors replace lower ones."""
    (tmp_path / "report.json").write_text(json.dumps(record()))
    assert main(["profile", "capture", str(tmp_path), "--slack", "5"]) == 0
    file = tmp_path / "baseline.yaml"
    file.write_text(capsys.readouterr().out)
    mine, shipped = load_profile(str(file)).floors, load_profile("h100-ib").floors
    rate_of = {(f.collective, f.algorithm, f.nodes, f.size): f.busbw_gbps for f in mine}
    assert rate_of.pop(("all_reduce", "ring", 2, 8 << 30)) == 361.0
    assert rate_of == {
        (f.collective, f.algorithm, f.nodes, f.size): f.busbw_gbps for f in shipped if f.busbw_gbps != 350
    }


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (json.dumps(record(simulated=True)), []),
        (json.dumps(record(verdict="no-go")), []),
        (json.dumps(record(profile=None)), []),
        (json.dumps(record(profile="a file of ours")), []),
        (json.dumps(record()), ["--slack", "100"]),
        (json.dumps(record()), ["--extends", "nobody"]),
        ("[1]", []),
        ("{}", []),
        ("[" * 100_000, []),
        ("", []),
        (None, []),
    ],
)
def test_capture_refuses_what_is_no_accepted_run(
    text: str | None, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The refusal is one line with exit code 4, because a baseline must come from an accepted run."""
    if text is not None:
        (tmp_path / "report.json").write_text(text)
    assert main(["profile", "capture", str(tmp_path / "report.json"), *arguments]) == 4
    assert len(capsys.readouterr().err.splitlines()) == 1
