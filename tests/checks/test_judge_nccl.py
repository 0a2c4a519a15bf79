"""Results of nccl.* for job documents and for the probe's evidence of the collectives."""

from dataclasses import replace

import pytest

from checks.profiles.loader import Profile
from checks.rules import transport
from checks.rules.bandwidth import correctness_findings, floor_findings, impossible_findings, table_of
from checks.rules.collectives import analysed, by_node, completed_findings, expectation, next_steps
from seatrial.logs.job_document import Expected

RING = "collective.ring"


WHOLE = {
    "severity": "fatal",
    "title": "",
    "subject": "the job",
    "why": None,
    "evidence": [],
    "cause": "",
    "confirm": "",
    "remedy": "",
}


SOCKET = WHOLE | {
    "fault": "nccl.socket-fallback",
    "severity": "fatal",
    "subject": "all ranks",
    "cause": "no InfiniBand device",
}


def test_a_healthy_trial_raises_nothing(trial, spec, h100, jobs, bad):
    """No rule raises a finding for a healthy pair of collectives."""
    for findings in (
        completed_findings(trial, spec, jobs),
        transport.transport_findings(trial, jobs, h100),
        transport.fabric_findings(trial, jobs, "ib"),
        transport.gdr_findings(trial, jobs),
        transport.rail_findings(trial, jobs, 8),
        transport.rank_findings(jobs, spec),
        transport.other_findings(trial, jobs),
        correctness_findings(analysed(jobs)),
        floor_findings(table_of(jobs["ring"]), h100.floor("all_reduce", "ring", 2)),
        floor_findings(table_of(jobs["default"]), h100.floor("all_reduce", "default", 2)),
        impossible_findings("ring", jobs["ring"], table_of(jobs["ring"]), h100, spec),
        impossible_findings("default", jobs["default"], table_of(jobs["default"]), h100, spec),
    ):
        assert not bad(findings), findings


def test_a_hang_is_one_fault_and_what_follows_is_only_reported(trial, spec, jobs):
    """The collective that reached its deadline hangs; the next one was not attempted and raises no fault."""
    for rank in trial.evidence.values():
        rank.stages[RING].update(timed_out=True, exit=None, seconds=240.0)
        rank.stages["collective.default"] = {"skipped": "the collective before (ring) did not end within 240 s"}
    jobs["ring"].update(hang=True, tables=[])
    jobs["default"] = None
    findings = list(completed_findings(trial, spec, jobs))
    assert [(f.ok, f.fault) for f in findings] == [(False, "nccl.hang"), (None, "")]
    assert "gpu-node-0, gpu-node-1" in findings[0].observed


def test_a_program_that_never_reached_nccl_is_no_hang(trial, spec, jobs):
    """Eight ranks importing torch from a cold image may take minutes, which is not a network fault."""
    for rank in trial.evidence.values():
        rank.stages[RING].update(timed_out=True, exit=None, seconds=240.0)
    jobs["ring"].update(hang=True, tables=[], nccl_version=None, ranks=None)
    finding = next(completed_findings(trial, spec, jobs))
    assert (finding.ok, finding.fault) == (None, "nccl.program")
    assert "had not reached NCCL after 240.0 s" in finding.observed


def test_a_crash_names_its_cause(trial, spec, jobs):
    """The analyzer's first cause is quoted with the node in place of the pod's host name."""
    jobs["ring"].update(
        crash=True,
        tables=[],
        faults=[
            WHOLE
            | {
                "fault": "nccl.crash",
                "severity": "fatal",
                "subject": "rank 9 on seatrial-abc-1",
                "cause": "system error",
            }
        ],
    )
    trial.evidence[1].stages[RING].update(exit=1)
    finding = next(completed_findings(trial, spec, jobs))
    assert (finding.ok, finding.fault) == (False, "nccl.crash")
    assert "rank 9 on gpu-node-1: system error" in finding.observed


def test_the_cause_of_an_end_is_the_fault(trial, spec, jobs):
    """The cause of a termination in the log becomes the fault."""
    jobs["ring"].update(
        hang=True,
        tables=[],
        faults=[
            WHOLE
            | {"fault": "nccl.ib-retry", "severity": "fatal", "subject": "seatrial-abc-1", "cause": "retry exceeded"},
            WHOLE | {"fault": "nccl.hang", "severity": "fatal", "subject": "the job", "cause": "it followed"},
        ],
    )
    finding = next(completed_findings(trial, spec, jobs))
    assert (finding.ok, finding.fault) == (False, "nccl.ib-retry")


def test_a_bad_program_is_not_the_clusters_fault(trial, spec, jobs):
    """An exit code without an NCCL error is an error of the check, with the line that explains it, else the last line.

    Previously only the last line was quoted, which with torchrun is a line of its table.
    """
    trial.evidence[1].stages[RING].update(exit=1, output_tail="x\nModuleNotFoundError: No module named 'numpy'\n")
    trial.evidence[0].stages[RING].update(exit=None, stopped="rank 1: its command ended with exit code 1")
    jobs["ring"]["tables"] = []
    finding = next(completed_findings(trial, spec, jobs))
    assert (finding.ok, finding.fault) == (None, "nccl.program")
    assert "gpu-node-1: exit code 1; it said: ModuleNotFoundError: No module named 'numpy'" in finding.observed
    trial.evidence[1].stages[RING].update(output_tail="reading the table\nno table for this size\n")
    finding = next(completed_findings(trial, spec, jobs))
    assert "gpu-node-1: exit code 1; last line: no table for this size" in finding.observed


def test_an_image_without_torch_is_a_program_fault(trial, spec, jobs):
    """The probe's message for a missing torch is recognised."""
    for rank in trial.evidence.values():
        for name in ("ring", "default"):
            rank.stages[f"collective.{name}"] = {
                "skipped": "rank 0: neither torchrun nor a Python with torch is in this image"
            }
            jobs[name] = None
    assert {(f.ok, f.fault) for f in completed_findings(trial, spec, jobs)} == {(None, "nccl.program")}


def test_wrong_sums_end_badly_but_they_end(trial, spec, jobs, bad):
    """The bench exits with 1 for wrong sums, with a complete table; another check judges correctness."""
    jobs["ring"]["tables"][0]["rows"][3]["in_place"]["wrong"] = 2
    for rank in trial.evidence.values():
        rank.stages[RING].update(exit=1)
    assert not bad(completed_findings(trial, spec, jobs))


def test_values_out_of_bounds_end_badly_but_they_end(trial, spec, jobs, bad):
    """nccl-tests exit with 1 when only the summary counts wrong values; another check judges correctness."""
    jobs["ring"]["tables"][0]["out_of_bounds"] = 2
    for rank in trial.evidence.values():
        rank.stages[RING].update(exit=1)
    assert not bad(completed_findings(trial, spec, jobs))


@pytest.mark.parametrize("end", [{"exit": 139}, {"exit": None, "error": "the log analyzer failed: MemoryError"}])
def test_a_whole_table_does_not_excuse_a_bad_end(trial, spec, jobs, end):
    """The numbers are complete, but a rank crashed: the run did not complete."""
    trial.evidence[1].stages[RING].update(end)
    finding = next(completed_findings(trial, spec, jobs))
    assert (finding.ok, finding.fault) == (None, "nccl.program")
    assert "the table is complete, but gpu-node-1: " in finding.observed


@pytest.mark.parametrize("broken", ["missing stage", "no table", "half a table", "no rows"])
def test_what_was_not_seen_to_end_is_not_a_pass(trial, spec, jobs, broken):
    """A lost line, output without a table, or a truncated table is undetermined."""
    if broken == "missing stage":
        del trial.evidence[1].stages[RING]
    elif broken == "no table":
        jobs["ring"]["tables"] = []
    elif broken == "no rows":
        jobs["ring"]["tables"][0]["rows"] = []
    else:
        jobs["ring"]["tables"][0]["complete"] = False
    finding = next(completed_findings(trial, spec, jobs))
    assert (finding.ok, finding.fault) == (None, "")


def test_a_socket_fallback_is_reported_once(trial, jobs, h100):
    """Two collectives with one cause are one finding on the analyzer's subject, with its reason."""
    for job in jobs.values():
        job.update(socket_fallback=True, inter_node_transport="socket", gdr=False, faults=[dict(SOCKET)])
    findings = list(transport.transport_findings(trial, jobs, h100))
    assert [(f.subject, f.fault) for f in findings] == [("all ranks", "nccl.socket-fallback")]
    assert "no InfiniBand device" in findings[0].observed


def test_one_rank_of_sixteen_is_found(trial, jobs, h100, bad):
    """A mixed job is one fault on that rank, with its node in place of the pod."""
    for job in jobs.values():
        job.update(
            mixed=True,
            socket_fallback=True,
            faults=[
                WHOLE
                | {
                    "fault": "nccl.mixed-transport",
                    "subject": "rank 11 on seatrial-abc-1",
                    "cause": "Failed to open mlx5_3",
                }
            ],
        )
        job["pairs"][0]["transports"] = {"ib": 14, "socket": 2}
    findings = list(transport.transport_findings(trial, jobs, h100))
    assert bad(findings) == [("rank 11 on gpu-node-1", "nccl.mixed-transport")]
    assert "ib on 30 channels, socket on 2 channels" in findings[0].observed


def test_without_a_profile_sockets_raise_no_fault(trial, jobs):
    """The trial requested no RDMA device; ranks that differ from each other are still at fault."""
    for job in jobs.values():
        job.update(socket_fallback=True, inter_node_transport="socket", faults=[dict(SOCKET)])
    findings = list(transport.transport_findings(trial, jobs, Profile()))
    assert [(f.ok, f.fault) for f in findings] == [(None, "nccl.socket-fallback")]
    jobs["ring"]["faults"][0]["fault"] = "nccl.mixed-transport"
    assert next(transport.transport_findings(trial, jobs, Profile())).ok is False


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, "nccl.no-evidence"),
        ({"truncated": True}, "nccl.log-truncated"),
        ({"hang": True}, ""),
        ({"crash": True}, ""),
    ],
    ids=["silent", "truncated", "hung", "crashed"],
)
def test_a_log_that_shows_nothing_is_an_error(trial, jobs, h100, changes, fault):
    """A missing transport is never a pass; if the collective crashed first, the crash is the cause."""
    for job in jobs.values():
        job.update(
            inter_node_transport="unknown", pairs=[], socket_fallback=None, advice="set NCCL_DEBUG=INFO", **changes
        )
    findings = list(transport.transport_findings(trial, jobs, h100))
    assert {(f.ok, f.fault) for f in findings} == {(None, fault)}
    said = "NCCL ended before" if changes.get("crash") else "NCCL_DEBUG"  # a crash needs only a log of its cause
    assert all(said in f.observed for f in findings)


def test_a_cut_log_is_not_the_clusters_fault_and_no_pass(trial, jobs, h100):
    """A full disk truncated the log, so a missing rail in it is not missing in the node."""
    said = WHOLE | {"fault": "nccl.log-truncated", "severity": "info", "cause": "1 of 16 ranks is not seen to finish"}
    jobs["ring"].update(truncated=True, faults=[said])
    findings = [f for f in transport.transport_findings(trial, jobs, h100) if f.ok is not True]
    assert [(f.ok, f.subject, f.fault) for f in findings] == [(None, "all_reduce ring", "nccl.log-truncated")]
    assert "1 of 16 ranks" in findings[0].observed
    jobs["ring"]["tables"][0]["complete"] = False  # the table is truncated: nccl.completed reports it
    assert all(f.ok for f in transport.transport_findings(trial, jobs, h100))


@pytest.mark.parametrize(
    "half",
    [
        {"pairs": []},
        {"pairs": [{"src": "a", "dst": "b", "direction": "send", "transports": {"ib": 2}}]},
        {"hosts": [{"name": "a", "ranks": [0, 1], "connected": [0, 1], "rails": {}}]},
        {"hosts": [{"name": "a", "ranks": list(range(16)), "connected": list(range(15)), "rails": {}}]},
    ],
    ids=["banner only", "one end", "ranks missing", "a rank without channels"],
)
def test_half_of_the_evidence_is_not_a_pass(trial, jobs, h100, half):
    """A selected network without channels, a pair seen from one end, ranks without a line: undetermined."""
    jobs["ring"].update(half)
    findings = [f for f in transport.transport_findings(trial, jobs, h100) if f.ok is not True]
    assert {(f.ok, f.fault) for f in findings} == {(None, "nccl.no-evidence")}


def test_the_actual_cause_brings_its_own_remedy(jobs):
    """Confirmation and remedy belong to the cause, reported once for both collectives."""
    for job in jobs.values():
        job["faults"] = [dict(SOCKET, why="nccl.ib-no-device", confirm="ibv_devinfo", remedy="request the resource")]
    assert list(next_steps(jobs, transport.TRANSPORT)) == [
        "nccl.ib-no-device: to confirm: ibv_devinfo; remedy: request the resource"
    ]
    assert not list(next_steps(jobs, transport.GDR))


def test_one_host_proves_nothing(trial, jobs, h100):
    """A log of one node shows no traffic between nodes."""
    jobs["ring"].update(inter_node_transport="none", pairs=[], nodes=1)
    assert next(transport.transport_findings(trial, jobs, h100)).ok is None


def test_what_was_not_attempted_is_not_judged_twice(trial, jobs, h100, bad):
    """Only nccl.completed reports a collective that never ran."""
    jobs["default"] = None
    assert not bad(transport.transport_findings(trial, jobs, h100))
    assert list(transport.transport_findings(trial, {"ring": None}, h100)) == []


def test_another_fabric_is_reported(trial, jobs):
    """RDMA over the wrong network is wrong; without the analyzer's evidence it is not right either."""
    wrong = WHOLE | {"fault": "nccl.wrong-fabric", "subject": "seatrial-abc-0 - seatrial-abc-1", "cause": "roce was"}
    jobs["ring"]["faults"] = [wrong]
    findings = list(transport.fabric_findings(trial, jobs, "roce"))
    assert [(f.ok, f.subject, f.observed) for f in findings] == [
        (False, "gpu-node-0 - gpu-node-1", "roce was"),
        (None, "all_reduce default", "ib"),
    ]


@pytest.mark.parametrize(("fault", "said"), [("nccl.gdr-off", "not used"), ("nccl.gdr-mixed", "on some channels only")])
def test_missing_gpudirect_is_reported_once_for_both_collectives(trial, jobs, fault, said):
    """Disabled and mixed are different faults, on the pair that shows them."""
    for job in jobs.values():
        job["faults"] = [WHOLE | {"fault": fault, "subject": "seatrial-abc-1 - seatrial-abc-0"}]
    findings = list(transport.gdr_findings(trial, jobs))
    assert [(f.ok, f.fault, f.subject) for f in findings] == [(False, fault, "gpu-node-1 - gpu-node-0")]
    assert said in findings[0].observed


def test_gpudirect_that_is_not_shown_is_not_reported(trial, jobs):
    """A log without GPUDirect information is an error with nccl.no-evidence."""
    for job in jobs.values():
        job["gdr"] = None
        for pair in job["pairs"]:
            pair["gdr"] = None
    assert {(f.ok, f.fault) for f in transport.gdr_findings(trial, jobs)} == {(None, "nccl.no-evidence")}


def test_rails_are_counted_from_channels_over_both_collectives(trial, jobs, bad):
    """A rail that only one algorithm uses is fine; a rail that neither uses is missing."""
    for host in jobs["ring"]["hosts"]:
        host["rails"].pop("7")
    assert not bad(transport.rail_findings(trial, jobs, 8))
    jobs["default"]["hosts"][1]["rails"].pop("7")
    assert bad(transport.rail_findings(trial, jobs, 8)) == [("gpu-node-1", "nccl.rail-missing")]


def test_a_missing_rail_names_the_filter_that_may_have_left_it_out(trial, jobs):
    """NCCL_IB_HCA is the first thing to check."""
    for job in jobs.values():
        job["env"] = {"NCCL_IB_HCA": ["mlx5_0", "mlx5_1"]}
        for host in job["hosts"]:
            host["rails"].pop("7")
    finding = next(transport.rail_findings(trial, jobs, 8))
    assert finding.observed.startswith("7 of 8 rails carry channels: ")
    assert "NCCL_IB_HCA=mlx5_0, NCCL_IB_HCA=mlx5_1 is set" in finding.observed


def test_more_rails_than_expected_and_no_rails_shown(trial, jobs):
    """More rails pass; a log without rails is an error."""
    assert all(f.ok for f in transport.rail_findings(trial, jobs, 4))
    for job in jobs.values():
        for host in job["hosts"]:
            host["rails"] = {}
    assert {(f.ok, f.fault) for f in transport.rail_findings(trial, jobs, 8)} == {(None, "nccl.no-evidence")}
    assert [f.ok for f in transport.rail_findings(trial, {}, 8)] == [None]


def test_every_gpu_must_have_taken_part(jobs, spec, bad):
    """Eight ranks of sixteen are a fault; an unknown number is an error."""
    jobs["ring"].update(ranks=8)
    assert bad(transport.rank_findings(jobs, spec)) == [("all_reduce ring", "nccl.ranks-missing")]
    jobs["ring"].update(ranks=None)
    assert [f.ok for f in transport.rank_findings(jobs, spec)] == [None, True]


def test_other_faults_of_the_log_are_handed_on(trial, jobs, bad):
    """Degrading faults without a separate check fail nccl.other; information and judged faults do not."""
    jobs["ring"]["faults"] = [
        WHOLE
        | {
            "fault": "nccl.version-mismatch",
            "severity": "degraded",
            "subject": "seatrial-abc-1",
            "cause": "2.27 and 2.28",
        },
        WHOLE | {"fault": "nccl.note", "severity": "info", "subject": "x", "cause": "y"},
        dict(SOCKET),
    ]
    findings = list(transport.other_findings(trial, jobs))
    assert bad(findings) == [("gpu-node-1", "nccl.version-mismatch")]
    assert [f.observed for f in findings if f.fault] == ["2.27 and 2.28"]  # not supported by a log line


def test_hosts_are_replaced_whole(trial):
    """A name that is a prefix of another, or part of a word, is not replaced."""
    assert (
        by_node(trial, "seatrial-abc-1: seatrial-abc-10 xseatrial-abc-1")
        == "gpu-node-1: seatrial-abc-10 xseatrial-abc-1"
    )


def test_the_analyzer_is_given_what_the_profile_expects(h100):
    """Without a profile there is no expectation."""
    expected = Expected(
        fabric="ib", rails=8, gdr=True, gpus_per_node=8, device_gbit_s=400, intra_node="p2p", products=("*H100*",)
    )
    assert expectation(h100) == expected
    ports = replace(h100, fabric=replace(h100.fabric, devices=16, device_gbit_s=200))
    assert expectation(ports).device_gbit_s == 200, "a rail of two ports has half of its rate on each"
    assert expectation(Profile()) == Expected()


def test_what_every_collective_meets_is_reported_once(trial, jobs):
    """One warning in four collectives is one finding."""
    for job in jobs.values():
        job["faults"] = [
            WHOLE | {"fault": "nccl.tcpx-stall", "severity": "degraded", "subject": "seatrial-abc-1", "cause": "stalls"}
        ]
    assert len([f for f in transport.other_findings(trial, jobs) if f.ok is False]) == 1
