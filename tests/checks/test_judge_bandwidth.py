"""Collective tables: wrong elements, floors, link rates."""

from checks.profiles.loader import Profile, load_profile
from checks.rules import rdma
from checks.rules.bandwidth import correctness_findings, floor_findings, impossible_findings, notes, table_of
from checks.rules.collectives import logged
from seatrial.logs.bandwidth.hardware import Hardware
from seatrial.logs.bandwidth.physics import limit_gbps, tree_limit_gbps
from seatrial.logs.bandwidth.reference import points_of, refer


def row(jobs, name, size):
    return next(r for r in jobs[name]["tables"][0]["rows"] if r["size_bytes"] == size)


def test_wrong_elements_are_reported_with_their_size(jobs):
    """One wrong value on one side fails the collective, and the finding names its size."""
    row(jobs, "ring", 2**26)["in_place"]["wrong"] = 17
    findings = list(correctness_findings(jobs))
    assert [(f.ok, f.fault) for f in findings] == [(False, "nccl.wrong-results"), (True, "")]
    assert findings[0].observed == "wrong in 1 of 28 measurements, 17 at 64M"


def test_not_checked_is_not_right(jobs):
    """N/A and a missing table are not treated as 0 errors."""
    row(jobs, "ring", 2**26)["in_place"]["wrong"] = None
    jobs["default"]["tables"] = []
    assert [f.ok for f in correctness_findings(jobs)] == [None, None]
    row(jobs, "ring", 2**26)["out_of_place"]["wrong"] = 1
    assert next(correctness_findings(jobs)).ok is False


def test_out_of_bounds_alone_is_wrong(jobs):
    """The summary line still counts when rows were truncated."""
    jobs["ring"]["tables"][0]["out_of_bounds"] = 5
    assert next(correctness_findings(jobs)).fault == "nccl.wrong-results"


def test_the_named_row_is_judged_on_both_sides(jobs, h100):
    """In-place below the floor fails although out-of-place passes; rows without a floor do not count."""
    row(jobs, "ring", 2**33)["in_place"]["busbw_gbps"] = 349.9
    row(jobs, "ring", 2**25)["in_place"]["busbw_gbps"] = 1.0
    findings = list(floor_findings(table_of(jobs["ring"]), h100.floor("all_reduce", "ring", 2)))
    assert [(f.subject, f.fault) for f in findings if not f.ok] == [("all_reduce 8G in place", "nccl.low-bandwidth")]
    assert [f.unit for f in findings] == ["GB/s"] * 4


def test_a_missing_row_or_number_is_never_a_pass(jobs, h100):
    """A sweep that stops early, a side that was not run, and nan are never a pass."""
    rows = jobs["ring"]["tables"][0]["rows"]
    row(jobs, "ring", 2**30).update(in_place=None)
    rows.remove(row(jobs, "ring", 2**33))
    floors = h100.floor("all_reduce", "ring", 2)
    assert [f.ok for f in floor_findings(table_of(jobs["ring"]), floors)] == [True, None]
    row(jobs, "ring", 2**30)["out_of_place"]["busbw_gbps"] = float("nan")
    assert [f.ok for f in floor_findings(table_of(jobs["ring"]), floors)] == [None, None]
    assert table_of({"tables": [{"rows": []}]}) is None


def test_more_than_the_links_carry_is_a_finding(jobs, h100, spec):
    """480 GB/s under Ring over 8 x 50 is impossible; with NCCL's own choice 480 is possible and 800 is not."""
    row(jobs, "ring", 2**33)["out_of_place"]["busbw_gbps"] = 480.0
    (finding,) = impossible_findings("ring", jobs["ring"], table_of(jobs["ring"]), h100, spec)
    assert (finding.ok, finding.fault, finding.subject) == (False, "nccl.impossible-bandwidth", "all_reduce 8G")
    table = table_of(jobs["default"])
    assert not list(impossible_findings("default", jobs["default"], table, h100, spec))
    row(jobs, "default", 2**33)["in_place"]["busbw_gbps"] = 800.0
    assert len(list(impossible_findings("default", jobs["default"], table, h100, spec))) == 1
    row(jobs, "default", 2**33)["out_of_place"]["busbw_gbps"] = float("nan")  # does not hide it
    assert len(list(impossible_findings("default", jobs["default"], table, h100, spec))) == 1
    jobs["default"]["sharp"] = True
    assert not list(impossible_findings("default", jobs["default"], table, h100, spec))


def test_a_card_below_its_rate_or_down_is_named(trial, h100):
    """One slow rail limits all eight, and the pods' evidence identifies it."""
    states, rates = {"mlx5_5": "DOWN"}, {"mlx5_3": 100.0}
    trial.evidence[1].stages["rdma"] = {
        "devices": [
            {"name": n, "state": states.get(n, "ACTIVE"), "rate_gbps": rates.get(n, 400.0)}
            for n in map("mlx5_{}".format, range(8))
        ]
    }
    down = "gpu-node-1: the port of mlx5_5 is DOWN"
    assert list(rdma.nic_notes(trial, h100)) == ["gpu-node-1: mlx5_3 runs at 100 Gb/s, the profile requires 400", down]
    assert list(rdma.nic_notes(trial, Profile())) == [down]


def test_the_limits_are_those_of_the_reference():
    """8 x 400 Gb/s are 400 GB/s under Ring, and 750 for anything without SHARP on two nodes of eight."""
    assert limit_gbps("ring", 400, nodes=2, gpus_per_node=8) == 400
    assert tree_limit_gbps(400, nodes=2, gpus_per_node=8) == 750


def test_the_average_is_shown_with_its_sweep_and_the_wire_with_its_rails(jobs, h100):
    """Averages are shown with their sweep, and link rates with their rails."""
    said = list(notes("ring", jobs["ring"], table_of(jobs["ring"]), h100))
    assert said[0].startswith("average bus bandwidth 250 GB/s over 14 rows from 1M to 8G")
    assert "not judged" in said[0]
    assert "48.2 of 50 GB/s on each of 8 rails" in said[1]


def test_a_finding_quotes_the_line_that_it_rests_on():
    """The observation quotes NCCL; the probable cause comes from the catalogue."""
    line = "[2026-01-01 00:00:00] host-1:44:44 [0] misc/socket.cc:461 NCCL WARN Accept failed Too many open files"
    assert logged({"evidence": [{"text": "host NCCL INFO x"}, {"text": line}]}) == "'Accept failed Too many open files'"
    assert logged({"evidence": []}) == ""
    assert len(logged({"evidence": [{"text": "NCCL WARN " + "x" * 9999}]})) < 300


def test_cards_that_are_grouped_are_noted_by_their_own_rate(trial):
    """Near miss: a p5's EFA card has 100 Gb/s; the profile's rail is four cards."""
    trial.evidence[0].stages["rdma"] = {"devices": [{"name": "rdmap79s0", "state": "ACTIVE", "rate_gbps": 100.0}]}
    assert list(rdma.nic_notes(trial, load_profile("p5-efa"))) == []
    trial.evidence[0].stages["rdma"]["devices"][0]["rate_gbps"] = 50.0
    assert list(rdma.nic_notes(trial, load_profile("p5-efa"))) == [
        "gpu-node-0: rdmap79s0 runs at 50 Gb/s, the profile requires 100"
    ]


def test_the_notes_name_what_others_measured_whatever_the_profile_has(jobs):
    """Peak, source and ratio are noted with floors and without."""
    table = table_of(jobs["ring"])
    pair = Hardware(gpu="NVIDIA H100 80GB HBM3", gpus_per_node=8, nodes=2, fabric="ib")
    table |= {"nearest": refer(pair, points_of(table)), "peak_busbw_gbps": 384.5}
    for profile in (Profile(), load_profile("h100-ib")):
        said = next(notes("ring", jobs["ring"], table, profile))
        assert said == f"peak 384.5 GB/s; {table['nearest']['sentence']}"
        assert "published" in said
