"""`seatrial compare`: regressions of an upgrade on the right subject, and lost proofs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

from tests.reports.records import HEALTHY, NODES, PAIR, changes, compare, record
from tests.table import table


def lose_a_rail(after: dict[str, Any]) -> None:
    """Remove the traffic of one NIC of the second node."""
    for job in after["collectives"].values():
        del job["hosts"][1]["rails"]["11"]


def lose_gpudirect(after: dict[str, Any]) -> None:
    """Remove GPUDirect on the first node, as with a new driver."""
    for job in after["collectives"].values():
        job["hosts"][0]["gdr"] = False
    after["bom"]["nodes"]["driver"] = ["590.10"]


def new_nccl(after: dict[str, Any]) -> None:
    """Set a new NCCL version; record() already scaled the rates by ten percent."""
    for job in after["collectives"].values():
        job["nccl_versions"] = ["2.29.1"]


def test_rails_are_held_against_the_same_collective() -> None:
    """A rail that only the ring lost is not compensated by the default algorithm, which still uses it."""
    after = record(2)
    del after["collectives"]["ring"]["hosts"][1]["rails"]["11"]
    comparison = compare([record(1)], [after])
    assert changes(comparison) == {("rails", "gpu-node-1")}
    assert [c.note for c in comparison.changes] == ["ring: no longer used: mlx5_3:1"]


def test_a_bad_moment_before_does_not_excuse_what_came_to_stay() -> None:
    """With a rail missing in one of three runs before and in all after, it is worse; the reverse is better."""

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
    """A log that stopped showing GPUDirect, rails or transport does not prove them."""
    after = record(2)
    for job in after["collectives"].values():
        job["pairs"] = []
        for host in job["hosts"]:
            host |= {"gdr": None, "rails": {}}
    comparison = compare([record(1)], [after])
    assert comparison.exit_code == 10
    assert changes(comparison, "unclear") == {(area, node) for area in ("gdr", "rails", "transport") for node in NODES}


def test_a_fault_on_a_pod_is_the_same_fault_in_the_next_run() -> None:
    """Pods and jobs contain the run's id: a fault in both runs is neither new nor gone."""

    def failed(seed: int) -> dict[str, Any]:
        made = record(seed, verdict="no-go")
        finding = {"subject": f"run{seed}-1 GPU 3", "ok": False, "observed": "ECC", "fault": "gpu.ecc"}
        made["checks"][1] |= {"outcome": "failed", "findings": [finding]}
        made["checks"][2] |= {"outcome": "failed", "fault": "job.failed", "findings": []}
        return made

    assert compare([failed(1)], [failed(2)]).verdict == "same"
    assert ("fault", "gpu-node-1 GPU 3") in changes(compare([record(1)], [failed(2)]))


def test_an_image_that_moved_under_its_tag_is_a_cause() -> None:
    """The digest is next to the name in the bill of materials."""
    before, after = (record(n, bom={"images": {"r/pytorch:25.08": f"sha256:{n}{n}"}}) for n in (1, 2))
    versions = [(c.before, c.after) for c in compare([before], [after]).versions]
    assert versions == [("r/pytorch:25.08 (sha256:11)", "r/pytorch:25.08 (sha256:22)")]


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
    """A regression is reported in at least 99 of 100 trials, together with the changed version."""
    called = 0
    for seed in range(300):
        after = record(seed + 5000, scale=scale)
        breaks(after)
        comparison = compare([record(seed)], [after])
        called += subject in changes(comparison) and comparison.exit_code == 1
        assert [c.subject for c in comparison.versions] == ([version] if version else [])
    assert called >= 297


def outcome(name: str, to: str, **finding: Any) -> dict[str, Any]:
    """Return a record in which one check has another outcome."""
    made = record(noise=0.0)
    check = next(c for c in made["checks"] if c["id"] == name)
    check["outcome"] = to
    check["findings"] = [finding] if finding else []
    made["verdict"] = {"failed": "no-go", "error": "inconclusive", "blocked": "inconclusive"}.get(to, "go")
    return made


LOST = {"subject": "gpu-node-1", "ok": False, "observed": "7 rails", "fault": "nccl.rail-missing"}


@table(
    "before, after, verdict, code",
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
    """Worse needs a good result before and a bad one after; a missing result is unclear, never fine."""
    comparison = compare([before], [after])
    assert (comparison.verdict, comparison.exit_code) == (verdict, code)


def test_versions_that_are_counted_are_reported_as_versions() -> None:
    """A bill of materials counts nodes by version: the reported change is the version, not the count."""
    before, after = record(noise=0.0), record(noise=0.0)
    before["bom"] = {"nodes": {"kernel": {"6.8.0-85": 2}}, "software": {"driver": {"nvcr.io/driver:580": "580"}}}
    after["bom"] = {
        "nodes": {"kernel": {"6.8.0-85": 1, "6.8.0-90": 1}},
        "software": {"driver": {"nvcr.io/driver:590": "590"}},
    }
    versions = {c.subject: (c.before, c.after) for c in compare([before], [after]).versions}
    assert versions == {
        "nodes.kernel": ("6.8.0-85", "6.8.0-85, 6.8.0-90"),
        "software.driver": ("nvcr.io/driver:580", "nvcr.io/driver:590"),
    }


def test_a_transport_that_became_sockets_is_worse() -> None:
    """Sockets between nodes are reported on both nodes."""
    after = copy.deepcopy(record(noise=0.0))
    for job in after["collectives"].values():
        job["pairs"][0]["transports"] = {"socket": 16}
    assert changes(compare([record(noise=0.0)], [after])) == {("transport", node) for node in NODES}


PROVEN = [*HEALTHY, "runtime.gpus", "nodes.gpu"]


def proofs(ends: dict[str, str] | None = None, subjects: int = 2, **changes: Any) -> dict[str, Any]:
    """Return a record with findings in each check; ``ends``: outcomes of some checks, '' for a missing one."""
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
    """Passed checks that are now skipped or missing are named and unclear; the reverse is fine."""
    before = proofs()
    comparison = compare([before], [proofs(ends)])
    assert comparison.exit_code == 10
    assert set(comparison.no_longer_proven) == set(ends)
    assert {c.subject for c in comparison.changes if c.kind == "unclear"} == set(ends)
    passed = any(end == "passed" for end in {**dict.fromkeys(PROVEN, "passed"), **ends}.values())
    assert compare([proofs(ends)], [before]).exit_code == (0 if passed else 10)


@pytest.mark.parametrize("before", [["passed", "skipped"], ["passed", "failed"], ["passed", ""]])
def test_a_run_that_skipped_before_hides_no_lost_proof(before: list[str]) -> None:
    """One of several runs before proved it, and none after does."""
    side = [proofs({"runtime.gpus": end}, run_id=f"b{n}") for n, end in enumerate(before)]
    assert "runtime.gpus" in compare(side, [proofs({"runtime.gpus": "skipped"})]).no_longer_proven


def test_a_check_that_failed_and_is_gone_is_not_repaired() -> None:
    """A missing check was not evaluated, so neither it nor its fault counts as fixed."""
    before = outcome("nccl.rails", "failed", **LOST)
    skipped = outcome("nccl.rails", "skipped")
    gone = record(noise=0.0, checks=[c for c in record()["checks"] if c["id"] != "nccl.rails"])
    for after in (skipped, gone):
        comparison = compare([before], [after])
        assert comparison.exit_code == 10
        assert {c.kind for c in comparison.changes if c.area in ("fault", "check")} == {"unclear"}


def test_a_renamed_check_is_no_proof_of_the_old_one() -> None:
    """A new name is reported as such: one check appeared, one is gone."""
    after = proofs(seatrial="0.2.0")
    after["checks"][-1]["id"] = "nodes.gpus"
    comparison = compare([proofs(seatrial="0.1.0")], [after])
    assert (comparison.exit_code, comparison.no_longer_proven) == (10, ["nodes.gpu"])
    assert any("different versions of seatrial: 0.1.0 before, 0.2.0 after" in note for note in comparison.notes)


def test_fewer_subjects_of_a_check_are_unclear() -> None:
    """A check that passed on 16 nodes and then on 15 is unclear; names that change in every run do not count."""
    comparison = compare([proofs(subjects=16)], [proofs(subjects=15)])
    assert comparison.exit_code == 10
    assert {(c.subject, c.before, c.after) for c in comparison.changes} == {
        (n, "16 subjects", "15 subjects") for n in PROVEN
    }
    assert "gpu-node-15" in comparison.changes[0].note
    before, after = proofs(), proofs()
    for side, name in ((before, "plugin-x7f2k"), (after, "plugin-9qzzt")):
        side["checks"][-1]["findings"].append({"subject": name, "ok": True, "observed": "ready"})
    assert compare([before], [after]).verdict == "same"


def test_fewer_nodes_and_fewer_gpus_are_unclear() -> None:
    """One of two nodes was not tried again; half of the ranks took part."""
    after = record(noise=0.0)
    after["trial"]["hosts"] = {"run0-0": "gpu-node-0", "run0-1": "gpu-node-0"}
    comparison = compare([record(noise=0.0)], [after])
    assert ("nodes", "gpu-node-1") in changes(comparison, "unclear")
    after = record(noise=0.0)
    for job in after["collectives"].values():
        job["ranks"] = 8
    assert {area for area, _ in changes(compare([record(noise=0.0)], [after]), "unclear")} == {"ranks"}
    assert compare([after], [record(noise=0.0)]).verdict == "same"


def at(server: str, ca: str = "", **more: Any) -> dict[str, Any]:
    """Return the cluster and the profile of a record."""
    return {"cluster": {"server": server, "ca": ca, "namespace": "default", **more}}


@table(
    "before, after, code",
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
    """The server's CA identifies the cluster and the digest the profile. Old records have neither."""
    comparison = compare([record(noise=0.0, **before)], [record(noise=0.0, **after)])
    assert comparison.exit_code == code
    assert bool(comparison.unclear) == bool(code)


def test_several_clusters_on_one_side_are_reported() -> None:
    """A folder with runs of two clusters is not a valid side."""
    runs = [record(noise=0.0, run_id=n, **at("https://10.0.0.1", f"sha256:{n}")) for n in "ab"]
    assert "more than one cluster" in compare(runs, runs[:1]).unclear[0]


@pytest.mark.parametrize(
    "edit", [{"verdict": "go"}, {"verdict": "inconclusive"}, {"verdict": "go", "checks": [], "collectives": {}}]
)
def test_a_record_whose_verdict_is_not_its_checks_is_reported(edit: dict[str, Any]) -> None:
    """An edited verdict and removed checks are detected."""
    comparison = compare([record(noise=0.0)], [outcome("nccl.rails", "failed", **LOST) | edit])
    assert any("it was edited or damaged" in text for text in comparison.unclear)
    assert comparison.exit_code in (1, 10)


def test_what_distinguishes_two_clusters_or_profiles_is_printed() -> None:
    """The first twelve digits of each digest are shown; a missing digest is not invented."""
    one, other = ("0123456789abcdef" * 4, "fedcba9876543210" * 4)
    clusters = compare(
        [record(noise=0.0, **at("https://10.96.0.1:443", f"sha256:{one}"))],
        [record(noise=0.0, **at("https://10.96.0.1:443", f"sha256:{other}"))],
    )
    (said,) = clusters.unclear
    assert "https://10.96.0.1:443 (CA 0123456789ab) and https://10.96.0.1:443 (CA fedcba987654)" in said

    bare = compare([record(noise=0.0, **at("https://a:443"))], [record(noise=0.0, **at("https://b:443"))])
    assert [text for text in bare.unclear if text.endswith(": https://a:443 and https://b:443")] == bare.unclear != []

    digests = [{"profile_digest": f"sha256:{digest}"} for digest in (one, other)]
    (said,) = compare(*([record(noise=0.0, **each)] for each in digests)).unclear
    assert "h100-ib" in said
    assert "(0123456789ab before, fedcba987654 after)" in said


def red(observed: str, expected: str = "8 allocatable", unit: str = "") -> dict[str, Any]:
    """Return the record of a run with one finding on a node."""
    finding = {"subject": "gpu-node-0", "ok": False, "fault": "gpu.missing"}
    finding |= {"observed": observed, "expected": expected, "unit": unit}
    check = {"id": "gpu.allocatable", "outcome": "failed", "findings": [finding]}
    return record(verdict="no-go", checks=[*record()["checks"], check])


@table(
    "before, after, kind",
    [
        (red("7 allocatable"), red("2 allocatable"), "worse"),
        (red("2 allocatable of 8 in capacity"), red("7 allocatable of 8 in capacity"), "better"),
        (red("7 allocatable"), red("7 allocatable"), ""),
        (red("71 allocatable", "72 allocatable"), red("70 allocatable", "72 allocatable"), "worse"),
        (red("12 CRC errors", "at most 3"), red("500 CRC errors", "at most 3"), "worse"),
        (red("7 allocatable"), red("no nvidia.com/gpu at all"), "unclear"),
        (red("mlx5_1 is down"), red("mlx5_1 and mlx5_2 are down"), "unclear"),
        (red("7 allocatable"), red("2 allocatable", "4 allocatable"), "unclear"),  # another profile requires less
        (red("3.91 of it", "at least 8"), red("3.85 of it", "at least 8"), ""),  # noise
        (red("120.5", "at least 350", "GB/s"), red("100.2", "at least 350", "GB/s"), ""),  # judged as bandwidth
        (red("120.5", "at least 350", "GB/s"), red("34.7", "at least 350", "GB/s"), "worse"),
        (red("no answer after 20.1 s"), red("no answer after 31 s"), ""),
        (red("pod run0-1: exit 7"), red("pod run0-1: exit 7"), ""),
    ],
)
def test_what_is_red_on_both_sides_may_be_worse(before: dict[str, Any], after: dict[str, Any], kind: str) -> None:
    """Two no-go runs are not the same if one GPU was missing before and six are after."""
    compared = compare([before], [{**after, "run_id": "other"}])
    assert [(c.kind, c.subject) for c in compared.changes if c.area == "fault"] == (
        [(kind, "gpu-node-0")] if kind else []
    )


def with_small_rows(scale: float, seed: int, rate: float = 20.0) -> dict[str, Any]:
    """Return a record whose ring also has rows of 1 to 16 MiB."""
    made = record(seed)
    sides = [{"busbw_gbps": rate * scale * (1 + seed / 100)}, {"busbw_gbps": rate * scale * (1 - seed / 100)}]
    rows = [{"size_bytes": 2**power, "out_of_place": sides[0], "in_place": sides[1]} for power in range(20, 25)]
    made["collectives"]["ring"]["tables"][0]["rows"] += rows
    return made


@pytest.mark.parametrize(
    ("scale", "rate", "kind"), [(0.3, 20.0, "worse"), (0.7, 20.0, ""), (3.0, 20.0, "better"), (0.3, 0.03, "")]
)
def test_small_rows_that_collapsed_are_worse(scale: float, rate: float, kind: str) -> None:
    """A third at 1 to 16 MiB is worse; less than a halving is noise of the latency, and 0.03 GB/s is rounded to a third
    of itself."""
    compared = compare([with_small_rows(1, 1, rate)], [with_small_rows(scale, 2, rate)])
    told = [(c.kind, c.subject) for c in compared.changes]
    assert told == ([(kind, f"{PAIR}: all_reduce ring, 1M to 16M")] if kind else [])
    assert "bandwidth was compared at 1M to 8G, in 4 runs of collectives" in compared.notes
