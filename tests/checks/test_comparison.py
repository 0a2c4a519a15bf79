"""`seatrial compare`: quiet on noise, loud on what an upgrade really broke, with the right subject.

The records are synthetic: rows of 1 to 8 GiB as the bench prints them, the noise of each sample drawn uniformly within
3 %, which is the spread that published repeats on one fabric show and twice that of the H200 recordings in tests/nccl.
"""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Any

import pytest

from reports.compare import comparison
from reports.schema import completed

if TYPE_CHECKING:
    from collections.abc import Callable

    from reports.compare.comparison import Comparison

NODES = ("gpu-node-0", "gpu-node-1")
RATES = {"ring": (366.0, 375.0, 383.0, 386.0), "default": (445.0, 456.0, 462.0, 467.0)}
INSIDE = (452.0, 468.0, 475.0, 479.0)
HEALTHY = ("rights.run", "nccl.completed", "nccl.transport", "nccl.gdr", "nccl.rails", "nccl.bandwidth-ring")


def record(
    seed: int = 0,
    noise: float = 0.03,
    scale: float = 1.0,
    sides: tuple[str, ...] = ("out_of_place", "in_place"),
    **changes: Any,
) -> dict[str, Any]:
    """A full run that was accepted, with noise on every sample."""
    chance = random.Random(seed)

    def side(rate: float) -> dict[str, float]:
        return {"busbw_gbps": round(rate * scale * (1 + chance.uniform(-noise, noise)), 2)}

    def job(rates: tuple[float, ...], *numbers: int) -> dict[str, Any]:
        rows = [
            {"size_bytes": size << 30, **{s: side(rate) for s in sides}}
            for size, rate in zip((1, 2, 4, 8), rates, strict=True)
        ]
        hosts = [
            {
                "name": f"run{seed}-{n}",
                "gdr": True,
                "version": "2.28.9",
                "rails": {str(8 * n + g): [f"mlx5_{g}:1"] for g in range(8)},
            }
            for n in numbers
        ]
        pair = {"src": f"run{seed}-0", "dst": f"run{seed}-1", "transports": {"ib": 16}}
        return {
            "nodes": len(hosts),
            "ranks": 8 * len(hosts),
            "nccl_versions": ["2.28.9"],
            "hosts": hosts,
            "pairs": [pair] if len(hosts) > 1 else [],
            "tables": [{"collective": "all_reduce", "rows": rows}],
        }

    return {
        "schema": 1,
        "run_id": f"run{seed}",
        "verdict": "go",
        "scope": "full",
        "profile": "h100-ib",
        "simulated": False,
        "interrupted": "",
        "checks": [{"id": name, "outcome": "passed", "findings": []} for name in HEALTHY],
        "collectives": {name: job(rates, 0, 1) for name, rates in RATES.items()},
        "inside": {node: job(INSIDE, n) for n, node in enumerate(NODES)},
        "trial": {"hosts": {f"run{seed}-{n}": NODES[n] for n in range(2)}},
        "bom": {"nodes": {"driver": ["580.95.05"]}},
        **changes,
    }


def compare(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> Comparison:
    """Compare records as they are once they were read."""
    return comparison.compare([completed(each) for each in before], [completed(each) for each in after])


def changes(found: Comparison, kind: str = "worse") -> set[tuple[str, str]]:
    """What changed, as (area, subject)."""
    return {(c.area, c.subject) for c in found.changes if c.kind == kind}


@pytest.mark.parametrize("sides", [("out_of_place", "in_place"), ("in_place",)])
def test_healthy_against_healthy_is_quiet_in_a_thousand_trials(sides: tuple[str, ...]) -> None:
    """Only the noise differs: nothing is called, in 1,000 of 1,000."""
    called = [
        seed
        for seed in range(1000)
        if compare([record(seed, sides=sides)], [record(seed + 5000, sides=sides)]).verdict != "same"
    ]
    assert called == []


def lose_a_rail(after: dict[str, Any]) -> None:
    """One card of the second node no longer carries data."""
    for job in after["collectives"].values():
        del job["hosts"][1]["rails"]["11"]


def lose_gpudirect(after: dict[str, Any]) -> None:
    """The new driver has no GPUDirect on the first node."""
    for job in after["collectives"].values():
        job["hosts"][0]["gdr"] = False
    after["bom"]["nodes"]["driver"] = ["590.10"]


def new_nccl(after: dict[str, Any]) -> None:
    """The new NCCL is ten percent slower; record() already scaled the rates."""
    for job in after["collectives"].values():
        job["nccl_versions"] = ["2.29.1"]


def shaped(seed: int, draw: Callable[[random.Random], float], level: str, scale: float = 1.0) -> dict[str, Any]:
    """A run with three samples a row, as the bench leaves them, whose noise is drawn for each sample, row or run."""
    chance = random.Random(seed)
    made = record(0, noise=0.0, scale=scale, run_id=f"run{seed}")
    run = 1 + draw(chance) * (level == "run")
    for job in (*made["collectives"].values(), *made["inside"].values()):
        rows = job["tables"][0]["rows"]
        noise = {row["size_bytes"]: run * (1 + draw(chance) * (level == "row")) for row in rows}
        job["tables"][0]["rows"] = [
            {
                "size_bytes": row["size_bytes"],
                "out_of_place": None,
                "in_place": {
                    "busbw_gbps": row["in_place"]["busbw_gbps"]
                    * noise[row["size_bytes"]]
                    * (1 + draw(chance) * (level == "sample"))
                },
            }
            for row in rows
            for _ in range(3)
        ]
    return made


def within_three_percent(chance: random.Random) -> float:
    """What published repeats show."""
    return chance.uniform(-0.03, 0.03)


def bell(chance: random.Random) -> float:
    """Three percent as two standard deviations."""
    return chance.gauss(0, 0.015)


def heavy_tails(chance: random.Random) -> float:
    """One percent, Student's t with three degrees of freedom: now and then a sample far off."""
    return max(-0.5, 0.01 * chance.gauss(0, 1) / (sum(chance.gauss(0, 1) ** 2 for _ in range(3)) / 3) ** 0.5)


@pytest.mark.parametrize(
    ("draw", "level"),
    [
        (within_three_percent, "sample"),
        (within_three_percent, "row"),
        (within_three_percent, "run"),
        (bell, "sample"),
        (bell, "row"),
        (heavy_tails, "sample"),
    ],
)
def test_no_shape_of_noise_is_called(draw: Callable[[random.Random], float], level: str) -> None:
    """Noise of each sample, of each row of a run, of whole runs; bell-shaped or with heavy tails: quiet in 300 of 300."""
    found = [compare([shaped(seed, draw, level)], [shaped(seed + 5000, draw, level)]).verdict for seed in range(300)]
    assert set(found) == {"same"}


@pytest.mark.parametrize(("draw", "level"), [(within_three_percent, "sample"), (bell, "row"), (heavy_tails, "sample")])
def test_ten_percent_is_called_under_each_shape_of_noise(draw: Callable[[random.Random], float], level: str) -> None:
    """Both collectives are named in at least 99 of 100 trials."""
    wanted = {("bandwidth", f"{PAIR}: all_reduce {run}") for run in RATES}
    called = [
        wanted <= changes(compare([shaped(s, draw, level)], [shaped(s + 5000, draw, level, 0.9)])) for s in range(300)
    ]
    assert sum(called) >= 297


def test_repeats_make_it_sharper() -> None:
    """Whole runs that are 3 % off hide 10 % now and then; of three runs a side they do not, and nothing is called without."""

    def side(first: int, scale: float = 1.0) -> list[dict[str, Any]]:
        return [shaped(first + n, within_three_percent, "run", scale) for n in range(3)]

    seeds = range(0, 900, 3)
    assert {compare(side(s), side(s + 5000)).verdict for s in seeds} == {"same"}
    assert sum(compare(side(s), side(s + 5000, 0.9)).exit_code == 1 for s in seeds) >= 297


def test_every_pair_of_many_is_named() -> None:
    """One run over 28 pairs with one sample a row: ten percent less on one of them names that pair alone."""

    def sweep(seed: int, slow: str = "") -> dict[str, Any]:
        made = record(seed, sides=("in_place",))
        ring = made["collectives"]["ring"]
        jobs, hosts = {}, {}
        for n in range(28):
            pair = [f"n{2 * n:02}", f"n{2 * n + 1:02}"]
            job = copy.deepcopy(record(seed + 100 * n, sides=("in_place",))["collectives"]["ring"])
            for row in job["tables"][0]["rows"] if pair[0] == slow else []:
                row["in_place"]["busbw_gbps"] *= 0.9
            job["hosts"] = [
                {**host, "name": f"run{seed}-{name}"} for host, name in zip(ring["hosts"], pair, strict=True)
            ]
            job["pairs"] = [{"src": f"run{seed}-{pair[0]}", "dst": f"run{seed}-{pair[1]}", "transports": {"ib": 16}}]
            jobs[f"ring-{n}"] = job
            hosts |= {f"run{seed}-{name}": name for name in pair}
        return {**made, "collectives": jobs, "inside": {}, "trial": {"hosts": hosts}}

    for seed in range(20):
        assert compare([sweep(seed)], [sweep(seed + 5000)]).verdict == "same"
        assert changes(compare([sweep(seed)], [sweep(seed + 5000, "n20")])) == {
            ("bandwidth", "n20 - n21: all_reduce ring-10")
        }


PAIR = "gpu-node-0 - gpu-node-1"


def change_rows(made: dict[str, Any], factor: dict[int, float]) -> dict[str, Any]:
    """The same record with rows of some sizes (GiB) faster or slower; 0 takes a row away."""
    for job in made["collectives"].values():
        rows = [row for row in job["tables"][0]["rows"] if factor.get(row["size_bytes"] >> 30, 1.0)]
        for row in rows:
            for side in ("in_place", "out_of_place"):
                if row[side]:
                    row[side]["busbw_gbps"] *= factor.get(row["size_bytes"] >> 30, 1.0)
        job["tables"][0]["rows"] = rows
    return made


@pytest.mark.parametrize(
    ("factor", "verdict", "said"),
    [
        ({8: 0.8}, "worse", "the rows of 8G alone: -2"),
        ({8: 0.8, 1: 1.2}, "worse", "the rows of 8G alone"),
        ({8: 0.97, 4: 0.97}, "same", ""),
        ({8: 0}, "unclear", "not measured after: 8G"),
    ],
)
def test_one_slow_size_does_not_hide_in_the_mean(factor: dict[int, float], verdict: str, said: str) -> None:
    """Each row is judged alone, too; one that is measured no longer is unclear."""
    found = compare([shaped(1, bell, "sample")], [change_rows(shaped(2, bell, "sample"), factor)])
    assert found.verdict == verdict
    assert all(said in c.note for c in found.changes)


def test_medium_sizes_and_short_sweeps_are_judged() -> None:
    """Half the bandwidth at 128 MiB is told as such; a sweep that ends at 512 MiB is judged by its largest rows."""

    def sweep(sizes: dict[int, float]) -> dict[str, Any]:
        made = record(noise=0.0)
        for job in made["collectives"].values():
            job["tables"][0]["rows"] = [
                {"size_bytes": mib << 20, "in_place": {"busbw_gbps": rate}} for mib, rate in sizes.items()
            ] * 3
        return made

    whole = {64: 100.0, 128: 150.0, 256: 200.0, 512: 250.0, 1024: 300.0, 2048: 350.0}
    found = compare([sweep(whole)], [sweep(whole | {128: 75.0})])
    assert changes(found) == {("bandwidth", f"{PAIR}: all_reduce {run}, 64M to 256M") for run in RATES}
    assert compare([sweep(whole)], [sweep(whole | {128: 140.0})]).verdict == "same"
    short = {128: 150.0, 256: 200.0, 512: 250.0}
    found = compare([sweep(short)], [sweep({mib: 0.9 * rate for mib, rate in short.items()})])
    assert changes(found) == {("bandwidth", f"{PAIR}: all_reduce {run}") for run in RATES}


def test_rails_are_held_against_the_same_collective() -> None:
    """A rail that only the ring lost is not made up for by the default algorithm, which still uses it."""
    after = record(2)
    del after["collectives"]["ring"]["hosts"][1]["rails"]["11"]
    found = compare([record(1)], [after])
    assert changes(found) == {("rails", "gpu-node-1")}
    assert [c.note for c in found.changes] == ["ring: no longer used: mlx5_3:1"]


def test_a_bad_moment_before_does_not_excuse_what_came_to_stay() -> None:
    """One of three runs before lacked a rail; after, all do: worse. The other way round, too, and the same is the same."""

    def side(seed: int, *lacking: bool) -> list[dict[str, Any]]:
        made = [record(seed + n) for n in range(len(lacking))]
        for run, lost in zip(made, lacking, strict=True):
            if lost:
                lose_a_rail(run)
        return made

    assert compare(side(1, True, False, False), side(11, True, True, True)).verdict == "worse"
    assert compare(side(1, False, False, False), side(11, True, False, False)).verdict == "worse"
    assert compare(side(1, True, True, True), side(11, True, True, True)).verdict == "same"
    assert compare(side(1, True, True, True), side(11, False, False, False)).verdict == "better"


def test_what_is_shown_no_longer_is_unclear() -> None:
    """A log that stopped showing GPUDirect, rails or transport is no proof that they are still there."""
    after = record(2)
    for job in after["collectives"].values():
        job["pairs"] = []
        for host in job["hosts"]:
            host |= {"gdr": None, "rails": {}}
    found = compare([record(1)], [after])
    assert found.exit_code == 10
    assert changes(found, "unclear") == {(area, node) for area in ("gdr", "rails", "transport") for node in NODES}


def test_a_fault_on_a_pod_is_the_same_fault_in_the_next_run() -> None:
    """Pods and jobs carry the run's id: a fault that both runs show is neither new nor gone."""

    def failed(seed: int) -> dict[str, Any]:
        made = record(seed, verdict="no-go")
        finding = {"subject": f"run{seed}-1 GPU 3", "ok": False, "observed": "ECC", "fault": "gpu.ecc"}
        made["checks"][1] |= {"outcome": "failed", "findings": [finding]}
        made["checks"][2] |= {"outcome": "failed", "fault": "job.failed", "findings": []}
        return made

    assert compare([failed(1)], [failed(2)]).verdict == "same"
    assert ("fault", "gpu-node-1 GPU 3") in changes(compare([record(1)], [failed(2)]))


def test_an_image_that_moved_under_its_tag_is_a_cause() -> None:
    """The digest stands beside the name in the bill of materials."""
    before, after = (record(n, bom={"images": {"r/pytorch:25.08": f"sha256:{n}{n}"}}) for n in (1, 2))
    told = [(c.before, c.after) for c in compare([before], [after]).versions]
    assert told == [("r/pytorch:25.08 (sha256:11)", "r/pytorch:25.08 (sha256:22)")]


def halve_inside(after: dict[str, Any], node: str) -> None:
    """An NVSwitch of this node has trained its links down: half the rate at every size, and nothing between the nodes."""
    for row in after["inside"][node]["tables"][0]["rows"]:
        for side in filter(None, (row["in_place"], row["out_of_place"])):
            side["busbw_gbps"] /= 2


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("repeats", [1, 3])
def test_half_the_nvlinks_of_one_node_are_called_on_that_node(node: str, repeats: int) -> None:
    """In at least 99 of 100 trials, and nothing else is: with one sample of each buffer a row, and with three repeats."""

    def run(seed: int) -> dict[str, Any]:
        return record(seed) if repeats == 1 else shaped(seed, within_three_percent, "sample")

    called = 0
    for seed in range(300):
        after = run(seed + 5000)
        halve_inside(after, node)
        called += changes(compare([run(seed)], [after])) == {("bandwidth", f"{node}: all_reduce node")}
    assert called >= 297


def test_records_of_before_know_nothing_inside_nodes() -> None:
    """A record of an earlier version lacks the rows inside nodes: they appear; that they went away again is unclear."""
    old = record(1)
    del old["inside"]
    found = compare([old], [record(2)])
    assert (found.verdict, {row.kind for row in found.rows if row.group.alone}) == ("same", {"appeared"})
    assert changes(compare([record(2)], [old]), "unclear") == {
        ("bandwidth", f"{node}: all_reduce node") for node in NODES
    }


def test_nodes_alone_are_no_network() -> None:
    """Two runs that never came to a collective over all nodes are not the same, though each node was measured."""
    runs = [record(n, collectives={}) for n in range(2)]
    found = compare(runs[:1], runs[1:])
    assert found.exit_code == 10
    assert {row.kind for row in found.rows} == {"same"}


@pytest.mark.parametrize(
    ("breaks", "scale", "subject", "version"),
    [
        (lose_a_rail, 1.0, ("rails", "gpu-node-1"), None),
        (lose_gpudirect, 0.3, ("gdr", "gpu-node-0"), "nodes.driver"),
        (new_nccl, 0.9, ("bandwidth", f"{PAIR}: all_reduce ring"), "nccl"),
        (new_nccl, 0.9, ("bandwidth", f"{PAIR}: all_reduce default"), "nccl"),
    ],
)
def test_what_an_upgrade_broke_is_called_on_the_right_subject(
    breaks: Callable[[dict[str, Any]], None], scale: float, subject: tuple[str, str], version: str | None
) -> None:
    """Called in at least 99 of 100 trials, and the version that changed stands beside it."""
    called = 0
    for seed in range(300):
        after = record(seed + 5000, scale=scale)
        breaks(after)
        found = compare([record(seed)], [after])
        called += subject in changes(found) and found.exit_code == 1
        assert [c.subject for c in found.versions] == ([version] if version else [])
    assert called >= 297


def test_a_single_noisy_sample_decides_nothing() -> None:
    """One row, one side: a number that is 20 % lower is not enough; repeats are asked for."""

    def one(rate: float) -> dict[str, Any]:
        made = record(noise=0.0, sides=("in_place",), scale=rate, inside={})
        for job in made["collectives"].values():
            del job["tables"][0]["rows"][:3]
        return made

    found = compare([one(1.0)], [one(0.8)])
    assert found.verdict == "unclear"
    assert all("samples on one side" in c.note for c in found.changes)
    before, after = ([one(rate) | {"run_id": str(n)} for n in range(3)] for rate in (1.0, 0.8))
    assert compare(before, after).verdict == "worse"
    copies = compare([one(1.0)] * 3, [one(0.8)] * 3)
    assert copies.verdict == "unclear"  # a copy is no repeat
    assert "2 of 3 records are copies" in copies.notes[0]


def test_samples_that_scatter_widely_decide_nothing() -> None:
    """Ten percent less among samples that are thirty percent apart is no finding."""
    assert compare([record(1, noise=0.3)], [record(2, noise=0.3, scale=0.93)]).exit_code in (0, 10)


def outcome(name: str, to: str, **finding: Any) -> dict[str, Any]:
    """A record in which one check ended otherwise."""
    made = record(noise=0.0)
    check = next(c for c in made["checks"] if c["id"] == name)
    check["outcome"] = to
    check["findings"] = [finding] if finding else []
    made["verdict"] = {"failed": "no-go", "error": "inconclusive", "blocked": "inconclusive"}.get(to, "go")
    return made


LOST = {"subject": "gpu-node-1", "ok": False, "observed": "7 rails", "fault": "nccl.rail-missing"}


@pytest.mark.parametrize(
    ("before", "after", "verdict", "code"),
    [
        (record(noise=0.0), record(noise=0.0), "same", 0),
        (record(noise=0.0), outcome("nccl.rails", "failed", **LOST), "worse", 1),
        (outcome("nccl.rails", "failed", **LOST), record(noise=0.0), "better", 0),
        (outcome("nccl.rails", "failed", **LOST), outcome("nccl.rails", "failed", **LOST), "same", 0),
        (
            outcome("nccl.rails", "failed", **LOST),
            outcome("nccl.rails", "failed", **LOST | {"subject": "gpu-node-0"}),
            "worse",
            1,
        ),
        (record(noise=0.0), outcome("nccl.rails", "error"), "unclear", 10),
        (record(noise=0.0), outcome("nccl.rails", "blocked"), "unclear", 10),
        (record(noise=0.0, verdict="inconclusive"), record(noise=0.0, verdict="inconclusive"), "unclear", 10),
        (outcome("nccl.rails", "blocked"), outcome("nccl.rails", "failed", **LOST), "unclear", 10),
        (outcome("nccl.rails", "failed", **LOST), outcome("nccl.rails", "blocked"), "unclear", 10),
        (record(noise=0.0), record(noise=0.0, scope="partial", selection="-k rails"), "unclear", 10),
        (record(noise=0.0), record(noise=0.0, interrupted="received SIGTERM"), "unclear", 10),
        (record(noise=0.0), record(noise=0.0, profile="h200-ib"), "unclear", 10),
        (record(noise=0.0), record(noise=0.0, simulated=True), "unclear", 10),
        (record(noise=0.0), record(noise=0.0, collectives={}), "unclear", 10),
        (record(noise=0.0), record(noise=0.0, checks=record()["checks"][:-1]), "unclear", 10),
        (record(noise=0.0, checks=record()["checks"][:-1]), record(noise=0.0), "same", 0),
        (
            record(noise=0.0),
            record(noise=0.0, trial={"hosts": {"run0-0": "other-1", "run0-1": "other-2"}}),
            "unclear",
            10,
        ),
        (record(noise=0.0), record(noise=0.0, scale=1.2), "better", 0),
    ],
)
def test_the_verdict_and_its_exit_code(before: dict[str, Any], after: dict[str, Any], verdict: str, code: int) -> None:
    """Worse only where something that was seen well is seen broken; what nobody looked at is unclear, never fine."""
    found = compare([before], [after])
    assert (found.verdict, found.exit_code) == (verdict, code)


def test_versions_that_are_counted_are_told_as_versions() -> None:
    """A bill of materials counts nodes by version: the version is what changed, and not the count."""
    before, after = record(noise=0.0), record(noise=0.0)
    before["bom"] = {"nodes": {"kernel": {"6.8.0-85": 2}}, "software": {"driver": {"nvcr.io/driver:580": "580"}}}
    after["bom"] = {
        "nodes": {"kernel": {"6.8.0-85": 1, "6.8.0-90": 1}},
        "software": {"driver": {"nvcr.io/driver:590": "590"}},
    }
    told = {c.subject: (c.before, c.after) for c in compare([before], [after]).versions}
    assert told == {
        "nodes.kernel": ("6.8.0-85", "6.8.0-85, 6.8.0-90"),
        "software.driver": ("nvcr.io/driver:580", "nvcr.io/driver:590"),
    }


def test_a_transport_that_became_sockets_is_worse() -> None:
    """Sockets between nodes are named on both nodes."""
    after = copy.deepcopy(record(noise=0.0))
    for job in after["collectives"].values():
        job["pairs"][0]["transports"] = {"socket": 16}
    assert changes(compare([record(noise=0.0)], [after])) == {("transport", node) for node in NODES}


PROVEN = [*HEALTHY, "runtime.gpus", "nodes.gpu"]


def proofs(ends: dict[str, str] | None = None, subjects: int = 2, **changes: Any) -> dict[str, Any]:
    """A record with findings in each check; ``ends``: how some of them ended, '' for not at all."""
    ends = ends or {}
    made = record(noise=0.0, **changes)
    made["checks"] = [
        {
            "id": name,
            "outcome": ends.get(name, "passed"),
            "reason": "",
            "findings": [{"subject": f"gpu-node-{n}", "ok": True, "observed": "8"} for n in range(subjects)],
        }
        for name in PROVEN
        if ends.get(name) != ""
    ]
    return made


@pytest.mark.parametrize(
    "ends",
    [
        {"runtime.gpus": "skipped"},
        {"runtime.gpus": ""},
        dict.fromkeys(PROVEN, "skipped"),
        {"runtime.gpus": "skipped", "nodes.gpu": ""},
    ],
)
def test_what_is_proven_no_longer_is_never_the_same(ends: dict[str, str]) -> None:
    """Checks that passed and are skipped or gone are named, and nobody can tell; the other way round is fine."""
    before = proofs()
    found = compare([before], [proofs(ends)])
    assert found.exit_code == 10
    assert set(found.no_longer_proven) == set(ends)
    assert {c.subject for c in found.changes if c.kind == "unclear"} == set(ends)
    passed = any(end == "passed" for end in {**dict.fromkeys(PROVEN, "passed"), **ends}.values())
    assert compare([proofs(ends)], [before]).exit_code == (0 if passed else 10)


@pytest.mark.parametrize("before", [["passed", "skipped"], ["passed", "failed"], ["passed", ""]])
def test_a_run_that_skipped_before_hides_no_lost_proof(before: list[str]) -> None:
    """One of several runs before proved it and none after does."""
    side = [proofs({"runtime.gpus": end}, run_id=f"b{n}") for n, end in enumerate(before)]
    assert "runtime.gpus" in compare(side, [proofs({"runtime.gpus": "skipped"})]).no_longer_proven


def test_a_check_that_failed_and_is_gone_is_not_mended() -> None:
    """Neither the check nor its fault: nobody looked."""
    before = outcome("nccl.rails", "failed", **LOST)
    skipped = outcome("nccl.rails", "skipped")
    gone = record(noise=0.0, checks=[c for c in record()["checks"] if c["id"] != "nccl.rails"])
    for after in (skipped, gone):
        found = compare([before], [after])
        assert found.exit_code == 10
        assert {c.kind for c in found.changes if c.area in ("fault", "check")} == {"unclear"}


def test_a_renamed_check_is_no_proof_of_the_old_one() -> None:
    """A version that calls it otherwise is told as that: one appeared, one is gone."""
    after = proofs(seatrial="0.2.0")
    after["checks"][-1]["id"] = "nodes.gpus"
    found = compare([proofs(seatrial="0.1.0")], [after])
    assert (found.exit_code, found.no_longer_proven) == (10, ["nodes.gpu"])
    assert any("different versions of seatrial: 0.1.0 before, 0.2.0 after" in note for note in found.notes)


def test_fewer_subjects_of_a_check_are_unclear() -> None:
    """It passed on 16 nodes and then on 15; names that change in every run (pods) are no loss."""
    found = compare([proofs(subjects=16)], [proofs(subjects=15)])
    assert found.exit_code == 10
    assert {(c.subject, c.before, c.after) for c in found.changes} == {
        (n, "16 subjects", "15 subjects") for n in PROVEN
    }
    assert "gpu-node-15" in found.changes[0].note
    before, after = proofs(), proofs()
    for side, name in ((before, "plugin-x7f2k"), (after, "plugin-9qzzt")):
        side["checks"][-1]["findings"].append({"subject": name, "ok": True, "observed": "ready"})
    assert compare([before], [after]).verdict == "same"


def test_fewer_nodes_and_fewer_gpus_are_unclear() -> None:
    """One of two nodes was not tried again; half of the ranks took part."""
    after = record(noise=0.0)
    after["trial"]["hosts"] = {"run0-0": "gpu-node-0", "run0-1": "gpu-node-0"}
    found = compare([record(noise=0.0)], [after])
    assert ("nodes", "gpu-node-1") in changes(found, "unclear")
    after = record(noise=0.0)
    for job in after["collectives"].values():
        job["ranks"] = 8
    assert {area for area, _ in changes(compare([record(noise=0.0)], [after]), "unclear")} == {"ranks"}
    assert compare([after], [record(noise=0.0)]).verdict == "same"


def test_medium_sizes_that_are_measured_no_longer_are_unclear() -> None:
    """A sweep that was shortened from below compares less."""

    def sweep(*sizes: int) -> dict[str, Any]:
        made = record(noise=0.0)
        for job in made["collectives"].values():
            job["tables"][0]["rows"] = [
                {"size_bytes": mib << 20, "in_place": {"busbw_gbps": 300.0}} for mib in sizes
            ] * 3
        return made

    whole = (64, 128, 256, 512, 1024, 2048, 4096)
    found = compare([sweep(*whole)], [sweep(*whole[2:])])
    assert found.exit_code == 10
    assert changes(found, "unclear") == {("bandwidth", f"{PAIR}: all_reduce {run}, 64M to 128M") for run in RATES}
    assert compare([sweep(*whole[2:])], [sweep(*whole)]).verdict == "same"


def at(server: str, ca: str = "", **more: Any) -> dict[str, Any]:
    """Where a record is of."""
    return {"cluster": {"server": server, "ca": ca, "namespace": "default", **more}}


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (at("https://10.0.0.1:6443", "sha256:a"), at("https://10.0.0.1:6443", "sha256:a"), 0),
        (at("https://10.0.0.1:6443", "sha256:a"), at("https://k8s.example:6443", "sha256:a"), 0),
        (at("https://10.96.0.1:443", "sha256:a"), at("https://10.96.0.1:443", "sha256:b"), 10),
        (at("https://10.0.0.1:6443"), at("https://10.0.0.2:6443"), 10),
        (at("https://10.0.0.1:6443"), at("https://10.0.0.1:6443", "sha256:a"), 0),
        (
            at("https://r.example/k8s/clusters/c-1", "sha256:a"),
            at("https://r.example/k8s/clusters/c-2", "sha256:a"),
            10,
        ),
        ({}, at("https://10.0.0.1:6443", "sha256:a"), 0),
        (
            at("https://127.0.0.1:1", "sha256:a", platform="h100-ib") | {"simulated": True},
            at("https://127.0.0.1:2", "sha256:b", platform="h100-ib") | {"simulated": True},
            0,
        ),
        (
            at("https://127.0.0.1:1", "sha256:a", platform="h100-ib") | {"simulated": True},
            at("https://127.0.0.1:2", "sha256:b", platform="h200-ib") | {"simulated": True},
            10,
        ),
        ({"profile_digest": "sha256:a"}, {"profile_digest": "sha256:b"}, 10),
        ({}, {"profile_digest": "sha256:b"}, 0),
    ],
)
def test_another_cluster_or_another_profile_of_that_name_cannot_be_compared(
    before: dict[str, Any], after: dict[str, Any], code: int
) -> None:
    """The authority behind a server tells clusters apart; the digest tells profiles apart. Old records say neither."""
    found = compare([record(noise=0.0, **before)], [record(noise=0.0, **after)])
    assert found.exit_code == code
    assert bool(found.unclear) == bool(code)


def test_several_clusters_on_one_side_are_told() -> None:
    """A folder that holds runs of two clusters is no side."""
    runs = [record(noise=0.0, run_id=n, **at("https://10.0.0.1", f"sha256:{n}")) for n in "ab"]
    assert "more than one cluster" in compare(runs, runs[:1]).unclear[0]


@pytest.mark.parametrize(
    "edit", [{"verdict": "go"}, {"verdict": "inconclusive"}, {"verdict": "go", "checks": [], "collectives": {}}]
)
def test_a_record_whose_verdict_is_not_its_checks_is_told(edit: dict[str, Any]) -> None:
    """A verdict that was edited, or checks that were taken away."""
    found = compare([record(noise=0.0)], [outcome("nccl.rails", "failed", **LOST) | edit])
    assert any("it was edited or damaged" in text for text in found.unclear)
    assert found.exit_code in (1, 10)


def sweep_record(run_id: str, speed: Callable[[str, str], float], *, seed: int = 0, **states: str) -> dict[str, Any]:
    """A sweep over six nodes, each in five pairs; `states` of the nodes that are not proven."""
    chance = random.Random(seed)
    names = [f"n{number}" for number in range(6)]
    tests = [
        {"round": 1, "nodes": [name], "outcome": "measured", "busbw_gbps": 470.0 + chance.uniform(-9, 9)}
        for name in names
    ]
    for a in names:
        tests += [
            {"round": 2, "nodes": [a, b], "outcome": "measured", "busbw_gbps": speed(a, b) * chance.uniform(0.98, 1.02)}
            for b in names
            if a < b
        ]
    rows = [{"name": name, "leaf": "", "state": states.get(name, "proven")} for name in names]
    bad = [name for name, state in states.items() if state == "at fault"]
    sweep = {
        "sizes": {"alone": 8 << 30, "pair": 8 << 30},
        "tests": [test for test in tests if not any(states.get(n) == "not tested" for n in test["nodes"])],
        "findings": [{"kind": "node", "names": [name], "rails": [], "why": "3 of 3 pairs at 0.60"} for name in bad],
        "elements": {"nodes": rows, "uplinks": [], "pairs": []},
    }
    finding = [{"subject": name, "ok": False, "observed": "slow", "fault": "sweep.node"} for name in bad]
    checks = [{"id": "sweep.nodes", "outcome": "failed" if bad else "passed", "findings": finding}]
    verdict = "no-go" if bad else "go"
    return record(run_id=run_id, verdict=verdict, checks=checks, collectives={}, inside={}, sweep=sweep)


def fast(_a: str, _b: str) -> float:
    return 380.0


def slow_of(*bad: str) -> Callable[[str, str], float]:
    return lambda a, b: 230.0 if {a, b} & set(bad) else 380.0


def test_two_healthy_sweeps_are_the_same() -> None:
    """With noise of 2 % on every test, in a hundred draws."""
    before = sweep_record("a", fast)
    for seed in range(1, 101):
        found = compare([before], [sweep_record("b", fast, seed=seed)])
        assert (found.verdict, found.changes) == ("same", []), seed


def test_a_node_that_became_slow_is_named_and_its_partners_are_not() -> None:
    """By the sweep, and by its own bandwidth: its partners' pairs with it are its own."""
    found = compare([sweep_record("a", fast)], [sweep_record("b", slow_of("n2"), seed=7, n2="at fault")])
    assert found.verdict == "worse"
    told = {(change.area, change.subject) for change in found.changes if change.kind == "worse"}
    assert ("sweep", "n2") in told
    assert ("bandwidth", "n2: all_reduce pairs of this node") in told
    assert not [subject for _, subject in told if subject.startswith(("n0:", "n1:", "n3:", "n4:", "n5:"))]


def test_a_node_that_was_mended_is_better() -> None:
    """It was at fault, and is proven."""
    found = compare([sweep_record("a", slow_of("n2"), n2="at fault")], [sweep_record("b", fast, seed=7)])
    assert ("better", "sweep", "n2", "at fault", "proven") in {
        (c.kind, c.area, c.subject, c.before, c.after) for c in found.changes
    }
    assert "worse" not in {change.kind for change in found.changes}


@pytest.mark.parametrize("state", ["not tested", "suspect"])
def test_a_node_that_was_at_fault_and_is_not_proven_is_not_mended(state: str) -> None:
    """Cordoned, or in doubt: the check of the others passes, and says nothing of it."""
    before = sweep_record("a", slow_of("n2"), n2="at fault")
    found = compare([before], [sweep_record("b", fast, seed=7, n2=state)])
    assert found.verdict == "unclear"
    assert not [c for c in found.changes if (c.kind, c.area, c.subject) == ("better", "sweep", "n2")]
    assert ("unclear", "at fault", state) in {(c.kind, c.before, c.after) for c in found.changes}


def test_a_slower_node_that_still_passes_is_called_by_its_bandwidth() -> None:
    """Twelve percent less with all of its partners, above the floor: the sweep passes, the comparison does not."""
    after = sweep_record("b", lambda a, b: 334.0 if "n2" in (a, b) else 380.0, seed=7)
    found = compare([sweep_record("a", fast)], [after])
    assert found.verdict == "worse"
    assert "n2: all_reduce pairs of this node" in {c.subject for c in found.changes if c.kind == "worse"}
