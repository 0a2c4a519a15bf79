"""The user's own program in the trial's pods: evidence of its exit code and its log."""

from dataclasses import replace

import pytest

from checks.profiles.trial import COMMAND
from checks.rules.collectives import completed_findings, last_words
from checks.rules.transport import rank_findings, transport_findings
from jobs.trial.parts import Collective
from seatrial.logs import Partial


@pytest.fixture
def command(trial, spec, jobs):
    """Return a trial of the program: its spec and its job document, with the evidence of a ring for each rank."""
    for evidence in trial.evidence.values():
        evidence.stages[f"collective.{COMMAND}"] = evidence.stages["collective.ring"]
    own = Collective(name=COMMAND, command=("/bin/bash", "-c", "torchrun train.py"))
    return replace(spec, collectives=(own,)), {COMMAND: {**jobs["ring"], "nccl_lines": 100}}


def told(trial, rank):
    return trial.evidence[rank].stages[f"collective.{COMMAND}"]


def ended(trial, command):
    (finding,) = completed_findings(trial, *command)
    return finding


def test_a_program_that_shows_nccl_and_ends_is_well(trial, command):
    assert ended(trial, command).ok is True and ended(trial, command).subject == "the program"


def test_it_needs_no_table(trial, command):
    command[1][COMMAND]["tables"] = []
    assert ended(trial, command).ok is True


def test_a_program_that_shows_nothing_proves_nothing(trial, command, h100):
    command[1][COMMAND].update(tables=[], nccl_lines=0)
    finding = ended(trial, command)
    assert (finding.ok, finding.fault) == (None, "nccl.nothing-shown")
    (finding,) = transport_findings(trial, command[1], h100)
    assert (finding.ok, finding.fault) == (None, "nccl.nothing-shown")
    assert ended(trial, (command[0], {COMMAND: None})).fault == "nccl.nothing-shown"


def test_a_program_that_fails_raises_no_fault(trial, command):
    told(trial, 1).update(exit=1, output_tail="Traceback (most recent call last):\nValueError: no shard 7")
    finding = ended(trial, command)
    assert (finding.ok, finding.fault) == (None, "nccl.own-program")
    assert "gpu-node-1: exit code 1" in finding.observed and "no shard 7" in finding.observed
    assert list(last_words(trial, command[0]))[-1] == "gpu-node-1: ValueError: no shard 7"


def test_its_log_may_say_whose_failure_it_was(trial, command):
    told(trial, 1).update(exit=1)
    root = {"fault": "nccl.gpu-memory", "severity": "fatal", "cause": "no memory is left on GPU 3", "evidence": []}
    command[1][COMMAND]["faults"] = [{**root, "subject": "rank 3", "why": None}]
    finding = ended(trial, command)
    assert (finding.ok, finding.fault) == (None, "nccl.gpu-memory") and "no memory is left" in finding.observed


def test_a_hang_that_its_log_shows_is_one(trial, command):
    command[1][COMMAND]["hang"] = True
    root = {"fault": "nccl.hang", "severity": "fatal", "cause": "a watchdog ended it", "evidence": []}
    command[1][COMMAND]["faults"] = [{**root, "subject": "the job", "why": None}]
    assert (ended(trial, command).ok, ended(trial, command).fault) == (False, "nccl.hang")


def test_a_program_that_goes_on_is_no_hang(trial, command):
    told(trial, 0).update(timed_out=True, exit=None, seconds=240.0)
    assert ended(trial, command).ok is None and "still running after 240.0 s" in ended(trial, command).observed


@pytest.mark.parametrize("change", ["missing", "skipped"])
def test_a_rank_that_reports_nothing_leaves_it_open(trial, command, change):
    if change == "missing":
        del trial.evidence[1].stages[f"collective.{COMMAND}"]
    else:
        trial.evidence[1].stages[f"collective.{COMMAND}"] = {"skipped": "the stage port did not end"}
    assert ended(trial, command).ok is None


def test_how_many_ranks_it_starts_is_its_own_business(command):
    command[1][COMMAND]["ranks"] = 2
    (finding,) = rank_findings(command[1], command[0])
    assert finding.ok is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nccl_lines": 0}, "a table and no line of NCCL"),
        ({"inter_node_transport": "none"}, "no traffic between nodes"),
        ({"hosts": ["old-a", "old-b"]}, "other hosts than the trial's pods (old-a, old-b)"),
        ({"hosts": ["old-a", "old-b"], "crash": True}, "other hosts"),
        ({"hosts": ["old-a", "old-b"], "faults": ["nccl.socket-fallback"]}, "other hosts"),
    ],
    ids=["a-table-alone", "one-node", "another-run", "anothers-crash", "anothers-sockets"],
)
def test_a_log_that_is_not_of_these_pods_proves_nothing_and_raises_no_fault(trial, command, h100, changes, words):
    """A table may be written by hand and a log copied; the host names in NCCL's lines must be those of the pods."""
    job = command[1][COMMAND]
    if "hosts" in changes:
        hosts = [{**host, "name": name} for host, name in zip(job["hosts"], changes["hosts"], strict=True)]
        changes = {**changes, "hosts": hosts}
    if "faults" in changes:
        root = {"severity": "fatal", "cause": "sockets", "evidence": [], "subject": "the job", "why": None}
        changes = {**changes, "faults": [{**root, "fault": fault} for fault in changes["faults"]]}
    job.update(changes)
    for finding in (ended(trial, command), *transport_findings(trial, command[1], h100)):
        assert (finding.ok, finding.fault) == (None, "nccl.nothing-shown")
        assert words in finding.observed


def test_lines_without_a_host_or_with_its_full_name_are_these_pods(trial, command, h100):
    """Near misses: a truncated prefix, and a fully qualified host name."""
    first, second = command[1][COMMAND]["hosts"]
    command[1][COMMAND]["hosts"] = [{**first, "name": None}, {**second, "name": f"{second['name']}.train.svc"}]
    assert ended(trial, command).ok is True
    assert all(finding.ok for finding in transport_findings(trial, command[1], h100))


@pytest.fixture
def printed(trial, command):
    """Add NCCL's lines to a rank's analysis: `printed("command.output", ["gpu-node-0", "gpu-node-1"])`."""

    def add(source, hosts):
        data = {"lines": 90, "bytes": 9000, "nccl_lines": 80, "cut": False, "watch": {}}
        data |= {"name": f"/tmp/place/{source}", "events": {}, "ranks": [], "tables": [], "tags": []}
        told(trial, 1)["nccl"] = {**Partial().to_dict(), "sources": [data]}
        job = command[1][COMMAND]
        job["hosts"] = [{**host, "name": name} for host, name in zip(job["hosts"], hosts, strict=True)]

    return add


def on_the_hosts_network(trial):
    for rank, evidence in trial.evidence.items():
        evidence.stages["start"] = {**evidence.stages["start"], "hostname": f"gpu-node-{rank}"}


MACHINES, NO_HOSTS = ["gpu-node-0", "gpu-node-1.cluster.local"], [None, None]


@pytest.mark.parametrize(("hosts", "words"), [(MACHINES, "the machines' (hostNetwork)"), (NO_HOSTS, "are missing")])
def test_a_printed_log_without_the_pods_names_may_be_of_another_run(trial, command, h100, printed, hosts, words):
    """With hostNetwork NCCL names the machines, in an earlier run's log, too; a head that is cut off names none."""
    if hosts is MACHINES:
        on_the_hosts_network(trial)
    printed("command.output", hosts)
    for finding in (ended(trial, command), *transport_findings(trial, command[1], h100)):
        assert (finding.ok, finding.fault) == (None, "nccl.nothing-shown")
        assert finding.observed.count("gpu-node-1 printed lines of NCCL") == 1 and words in finding.observed


def test_what_ranks_wrote_to_their_files_is_of_this_run_on_any_network(trial, command, h100, printed):
    on_the_hosts_network(trial)
    printed("command.gpu-node-1.57.log", MACHINES)
    assert ended(trial, command).ok is True
    assert all(finding.ok for finding in transport_findings(trial, command[1], h100))


def test_a_printed_log_that_names_the_pods_is_of_this_run(trial, command, printed):
    printed("command.output", ["seatrial-abc-0", "seatrial-abc-1"])
    assert ended(trial, command).ok is True


def test_pods_whose_host_names_are_not_known_refuse_no_log(trial, command):
    """Without host names of the pods a log cannot be compared with them."""
    for evidence in trial.evidence.values():
        evidence.stages["start"] = {**evidence.stages["start"], "hostname": None}
    command[1][COMMAND]["hosts"] = [{**host, "name": "elsewhere"} for host in command[1][COMMAND]["hosts"]]
    assert ended(trial, command).ok is True
