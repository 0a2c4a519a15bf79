"""The pods of a sweep: agents and coordinator as real processes, each on its loopback address, with a simulated
torchrun."""

import contextlib
import json
import re
import signal
import socket
import threading
from types import SimpleNamespace

import pytest

from jobs.pod.stages import agent, dcgm, fleettest
from jobs.pod.stages.coordinator import Coordinator, Member
from jobs.pod.stages.deadline import Watch
from jobs.pod.stages.messages import NoAnswerError, Peer
from jobs.pod.stages.planner import Planner, printed
from jobs.pod.stages.proof import code
from jobs.pod.sweep.model import Result
from tests.by_hand import misfit
from tests.ports import free_port
from tests.waiting import HANG_S, until

PLAY = r'''
"""Plays torchrun for a sweep: writes a log and a table; FAKE_BAD names the hosts of a slow pair, FAKE_MODE what happens."""
import glob, json, os, signal, sys, time

options = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:] if word.startswith("--"))
rank, nodes = int(options["node-rank"]), int(options["nnodes"])
mode, node = os.environ.get("FAKE_MODE", ""), os.environ["SEATRIAL_NODE_NAME"]
if "train" in sys.argv:
    print("# seatrial training: bf16")
    steps = {"mode": "ddp", "steps": int(options["steps"]), "step_ms": [52.0] * 300, "losses": [9.0 - 0.1 * n for n in range(20)]}
    told = {"rank": 0, "local": 0, "world": nodes, "compute_ms": [50.0] * 300, "modes": [steps], "window": [0, 1]}
    with open(os.environ["SEATRIAL_BENCH_FACTS"] + ".0", "w") as facts:
        json.dump(told, facts)
    sys.exit("CUDA error: an illegal memory access" if mode == "crash-training " + node else 0)
if mode.startswith("once " + node) and nodes == 1 and not os.path.exists(mode.split()[2]):
    open(mode.split()[2], "w").close()
    sys.exit("its image was not there yet")
if mode == "hang " + node and nodes > 1:
    time.sleep(600)
net = "Socket/0" if mode == "sockets " + node else "IB/0/GDRDMA"
path = os.environ["NCCL_DEBUG_FILE"].replace("%h", node).replace("%p", "77")
if mode != "silent " + node:
    with open(path, "w") as log:
        head = "%s:77:77 [0] NCCL INFO " % node
        log.write(head + "NCCL version 2.28.9+cuda13.0\n")
        log.write(head + "ncclCommInitRankConfig comm 0x1 rank %d nranks %d cudaDev 0 nvmlDev 0 busId 1b000 commId 0x2 - Init START\n" % (rank, nodes))
        log.write(head + "Channel 00/0 : 0[0] -> 1[0] [send] via NET/%s\n" % net)
if mode.startswith("drain ") and nodes == 2:  # that node's pod is told to end, and its partner's program loses it
    met = os.path.join(mode.split()[2], options["master-port"])
    drained = node == mode.split()[1]
    open(met + "." + node, "w").close()
    while not glob.glob(met + ".*[!%s]" % node[-1]):
        time.sleep(0.01)
    if drained:
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(600)
    if glob.glob(met + "." + mode.split()[1]):
        sys.exit("torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited")
if mode == "crash " + node:
    sys.exit("torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error")
if rank == 0:
    wrong = 3 if mode == "wrong" else 0
    print("# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 1 iters: 1 agg iters: 1 validation: 1 graph: 0")
    print("#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong")
    print("     1048576        262144     float     sum      -1      N/A     N/A     N/A    N/A    10.00  100.00  100.00 %6s" % ("N/A" if mode == "unchecked" else wrong))
    print("# Out of bounds values : %d OK\n# Avg bus bandwidth    : 100" % wrong)
    with open(os.environ["SEATRIAL_BENCH_FACTS"], "w") as facts:
        made = 0 if mode == "idle " + node else 20
        alone = {"copies_gbps": [50.0], "products": made, "differs": 3 if mode == "differs " + node else 0}
        json.dump(alone if "alone" in options else {"rails": [50.0]}, facts)
'''


@pytest.fixture
def fleet(pods, trial):
    """Return a sweep over four nodes of one GPU."""
    nodes = [f"gpu-node-{n}" for n in range(4)]
    bench = {"min_bytes": 1048576, "max_bytes": 1048576, "factor": 2, "iters": 1, "warmup": 1}
    trial.update(nodes=4, gpus_per_node=1, peers=[f"127.0.0.{n + 1}" for n in range(4)], collectives=[])
    trial["sweep"] = {
        "token": "a-token",
        "nodes": nodes,
        "rules": {"alone": False, "matchings": 2},
        "pair": bench,
        "alone": bench,
        "fabric": "ib",
        "gdr": True,
        "budget_s": HANG_S,
        "settle_s": HANG_S,
        "test_s": HANG_S,
    }
    pods.tool("torchrun", PLAY)
    return pods


def rounds(stages):
    """Return all tests of all rounds, in order."""
    numbered = sorted((int(name.rpartition(".")[2]), data) for name, data in stages.items() if "sweep.round." in name)
    return [test for _, data in numbered for test in data["tests"]]


def test_a_sweep_runs_its_rounds_and_ends_everywhere(fleet):
    """Every pair of the plan is measured, one job over all follows, and all pods end with 0 without a signal."""
    of_ranks = fleet.run()
    leader = of_ranks[0]
    assert [test["outcome"] for test in rounds(leader)] == ["measured"] * 4
    assert {test["busbw"] for test in rounds(leader)} == {100.0}
    assert all(test["rails"] == [50.0] for test in rounds(leader))
    assert leader["sweep.fleet.1"]["gone"] == {}
    assert leader["sweep.job"]["outcome"] == "measured"
    assert len(leader["sweep.job"]["nodes"]) == 4
    assert leader["sweep.end"] == {"why": ""}
    assert all(of_ranks[rank]["end"]["stopped"] is None for rank in range(4))
    assert set(of_ranks[1]) == {"start", "end"}  # an agent that only runs tests has no other output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "outcome", "why"),
    [
        ("sockets gpu-node-2", "wrong transport", "1 channels through Socket"),
        ("crash gpu-node-2", "failed", "exit code 1"),
        ("silent gpu-node-2", "nothing", "does not show the transport"),
        ("wrong", "wrong sums", ""),
    ],
)
def test_what_a_node_shows_of_a_test_is_reported(fleet, mode, outcome, why):
    """A node's own log is quoted; an undetermined node is not a failure of its partner."""
    stages = fleet.run(FAKE_MODE=mode)[0]
    tests = rounds(stages)
    hit = [test for test in tests if "gpu-node-2" in test["nodes"]] if "gpu" in mode else tests
    assert hit
    assert {test["outcome"] for test in hit} == {outcome}
    assert {test["outcome"] for test in tests if test not in hit} <= {"measured"}
    if why:
        assert why in hit[0]["why"]["gpu-node-2"]
    if outcome == "nothing":
        assert "gpu-node-2" not in hit[0]["reported"]
    if outcome == "wrong transport":
        assert hit[0]["at"] == ["gpu-node-2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "outcome", "why"),
    [
        ("", "measured", None),
        ("differs", "wrong sums", "3 of 20 products of the same matrices differ"),
        ("idle", "nothing", None),
    ],
)
def test_a_node_of_one_gpu_is_tested_alone_by_its_products(fleet, trial, mode, outcome, why):
    """A single GPU has no bus to judge; a product that differs, or is missing, is not a pass."""
    trial["sweep"]["rules"].update(alone=True, bus=False)
    stages = fleet.run(FAKE_MODE=f"{mode} gpu-node-2")[0]
    alone = {test["nodes"][0]: test for test in stages["sweep.round.1"]["tests"]}
    assert all(test["busbw"] is None for test in alone.values())
    assert {node: test["outcome"] for node, test in alone.items()} == {
        **dict.fromkeys(trial["sweep"]["nodes"], "measured"),
        "gpu-node-2": outcome,
    }
    assert alone["gpu-node-2"]["why"] == ({"gpu-node-2": why} if why else {})
    assert alone["gpu-node-1"]["copies"] == [50.0]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["", "crash-training gpu-node-2", "differs gpu-node-2"])
def test_nodes_train_alone_where_that_is_asked(fleet, trial, mode):
    """Each node has a separate line; a node that failed before does not train, and one whose steps fail is reported."""
    trial["sweep"]["rules"].update(alone=True, bus=False)
    trial["training"] = {"steps": 40, "seed": 1, "soak_s": 0, "limit_s": HANG_S}
    stages = fleet.run(FAKE_MODE=mode)[0]
    lines = [data for name, data in stages.items() if name.startswith("sweep.training.")]
    trained = {data["node"]: data for data in lines}
    assert set(trained) == set(trial["sweep"]["nodes"])
    assert [misfit("sweep.training.1", data) for data in lines] == [""] * len(lines)
    well = trained["gpu-node-1"]
    assert (well["exit"], well["skipped"], well["timed_out"]) == (0, None, False)
    (rank,) = well["ranks"]
    assert (len(rank["compute_ms"]), len(rank["modes"][0]["step_ms"]), len(rank["modes"][0]["losses"])) == (38, 38, 20)
    other = trained["gpu-node-2"]
    if "crash" in mode:
        assert other["exit"] == 1 and "illegal memory access" in other["output_tail"]
        assert {test["outcome"] for test in rounds(stages)} == {"measured"}, "its other tests passed"
    if "differs" in mode:
        assert other["exit"] == 0, "its products show the fault; its steps show a second one"


def test_a_node_whose_first_test_alone_came_to_nothing_trains_in_the_next(fleet, trial, tmp_path):
    """A failed single-node test is repeated with its steps, and the last result counts."""
    trial["sweep"]["rules"].update(alone=True, bus=False)
    trial["training"] = {"steps": 40, "seed": 1, "soak_s": 0, "limit_s": HANG_S}
    stages = fleet.run(FAKE_MODE=f"once gpu-node-2 {tmp_path / 'ran'}")[0]
    lines = [data for name, data in stages.items() if name.startswith("sweep.training.")]
    assert [data["skipped"] for data in lines if data["node"] == "gpu-node-2"] == [
        "its other tests alone: nothing",
        None,
    ]
    assert len(lines) == 5, "the others train once"


@pytest.mark.parametrize(("stopped", "state"), [(None, "measured"), ("SIGTERM", "stopped")])
def test_a_node_that_is_stopped_while_it_trains_has_no_whole_test_alone(monkeypatch, stopped, state):
    """A stopped node is tested again when it returns, and trains then; the earlier measurement was incomplete."""
    clocks = SimpleNamespace(start=lambda: None, end=list)
    monkeypatch.setattr(fleettest.hardware, "Clocks", lambda *_: clocks)
    monkeypatch.setattr(fleettest.hardware, "nics", dict)
    monkeypatch.setattr(fleettest, "_alone", lambda *_: {"state": "measured", "why": "", "wrong": 0, "transport": ""})
    monkeypatch.setattr(fleettest.nodetraining, "train", lambda *_: {"stopped": stopped, "skipped": None})
    trial = SimpleNamespace(sweep={}, training={"steps": 40}, gpus_per_node=8)
    me = SimpleNamespace(pod_ip="127.0.0.1", node="a", pod="p")
    order = {"address": "127.0.0.1", "count": 1, "port": 1, "limit_s": 1, "what": "alone", "train": True}
    report = fleettest.run(trial, me, None, "", "", order, fleettest.Link())
    assert report["state"] == state
    assert (Planner().result(("a",), {"a": {**report, "busbw": 480.0}}).outcome == "measured") == (not stopped)


def test_nodes_do_not_train_where_no_one_asks(fleet, trial):
    """A sweep without --training takes no longer than before."""
    trial["sweep"]["rules"].update(alone=True, bus=False)
    stages = fleet.run()[0]
    assert not [name for name in stages if name.startswith("sweep.training.")]


ENGINE = """
import os, signal, socket, sys
if os.environ["FAKE_MODE"] == "no engine " + os.environ["SEATRIAL_NODE_NAME"]:
    sys.exit("Unable to start: the driver is not loaded")
listener = socket.socket(socket.AF_UNIX)
listener.bind("dcgm.sock")
signal.pause()
"""
DCGMI = """
import json, os
bad = os.environ["FAKE_MODE"] == "bad " + os.environ["SEATRIAL_NODE_NAME"]
result = {"entity_group": "GPU", "entity_id": 0, "status": "Fail" if bad else "Pass"}
tests = [{"name": "software", "results": [result]}]
print(json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": tests}]}}))
"""


@pytest.mark.parametrize("mode", ["no programs", "bad gpu-node-2", "no engine gpu-node-2"])
def test_nodes_are_diagnosed_alone_where_their_image_has_dcgm(fleet, trial, mode):
    """Each node has a separate line; DCGM's result, or the reason that it does not run, affects no other test."""
    trial["sweep"]["rules"].update(alone=True, bus=False)
    trial["dcgm"] = {"level": 1, "limit_s": HANG_S}
    if mode != "no programs":
        fleet.tool("nv-hostengine", ENGINE)
        fleet.tool("dcgmi", DCGMI)
    stages = fleet.run(FAKE_MODE=mode)[0]
    lines = {data["node"]: data for name, data in stages.items() if name.startswith("sweep.dcgm.")}
    assert {test["outcome"] for test in rounds(stages)} == {"measured"}
    if mode == "no programs":
        assert lines == {}
        return
    assert set(lines) == set(trial["sweep"]["nodes"])
    assert {misfit("sweep.dcgm.1", data) for data in lines.values()} == {""}
    statuses = {node: "".join(each["status"] for each in data["results"]) for node, data in lines.items()}
    other = {"bad gpu-node-2": "fail", "no engine gpu-node-2": ""}[mode]
    assert statuses == {**dict.fromkeys(lines, "pass"), "gpu-node-2": other}
    assert ("the driver is not loaded" in (lines["gpu-node-2"]["error"] or "")) == (not other)


def test_a_node_that_is_drained_while_it_is_diagnosed_has_measured_nothing(monkeypatch):
    """An incomplete diagnosis does not count: it and its single-node tests run when its pod returns."""
    watch = Watch(HANG_S, 0)
    monkeypatch.setattr(dcgm, "run", lambda *_: watch.stop("SIGTERM"))
    monkeypatch.setattr(fleettest, "_alone", pytest.fail)
    trial = SimpleNamespace(sweep={}, training=None, dcgm={"level": 1, "limit_s": 1.0}, gpus_per_node=8)
    me = SimpleNamespace(pod_ip="127.0.0.1", node="a", pod="p")
    order = {"address": "127.0.0.1", "count": 1, "port": 1, "limit_s": 1, "what": "alone", "diagnose": True}
    report = fleettest.run(trial, me, watch, "", "", order, fleettest.Link())
    assert (report["state"], report["why"], "dcgm" in report) == ("stopped", "its diagnostics: SIGTERM", False)
    result = Planner().result(("a",), {"a": {**report, "interrupted": True}})
    assert (result.outcome, result.reported) == ("nothing", ())


def test_a_node_is_diagnosed_once_and_its_time_is_waited_for():
    """Diagnostics run only if the image has the programs; a sweep without them does not wait."""
    lead = object.__new__(Coordinator)
    lead.trial = SimpleNamespace(perftest=None, training=None, dcgm={"limit_s": 600.0}, master_port=1, sweep=None)
    lead.planner, lead.changed, lead.results, lead._number = Planner(), threading.Condition(), {}, 0
    lead._trained, lead._diagnosed, orders, limits = set(), {"c"}, {}, []
    lead.members = {}
    for rank, name in enumerate("abc"):
        line = SimpleNamespace(open=True, send=lambda message, name=name: orders.update({name: message}))
        lead.members[name] = Member(line, rank, name, "", [], diagnoses=name != "a")
    lead._await = lambda ids, limit: limits.append(limit)
    lead._tests([("a",), ("c",)], "alone", 1.0)
    lead._tests([("b",)], "alone", 1.0)
    assert {name: "diagnose" in order for name, order in orders.items()} == {"a": False, "b": True, "c": False}
    assert 600 < limits[1] - limits[0] < 700


@pytest.mark.slow
def test_sums_that_no_one_counted_are_no_measurement(fleet):
    """A table with N/A in its wrong column shows a bandwidth, but not that the data is correct."""
    tests = rounds(fleet.run(FAKE_MODE="unchecked")[0])
    assert {test["outcome"] for test in tests} == {"nothing"}
    assert all("whether the sums were right" in " ".join(test["why"].values()) for test in tests)


@pytest.mark.slow
def test_a_test_that_hangs_is_killed_and_reported(fleet, trial):
    """A hanging test ends within its time limit, without leftover processes, and the sweep continues."""
    trial["sweep"]["test_s"] = 2
    stages = fleet.run(FAKE_MODE="hang gpu-node-1")[0]
    tests = rounds(stages)
    assert {test["outcome"] for test in tests if "gpu-node-1" in test["nodes"]} == {"nothing"}
    assert "it had not reached NCCL" in next(test for test in tests if test["why"])["why"]["gpu-node-1"]
    assert stages["sweep.end"] == {"why": ""}


@pytest.mark.slow
def test_a_pod_that_never_comes_is_named_and_not_waited_for_long(fleet, trial):
    """The others begin after a short time; the missing pod is reported with the reason."""
    trial["sweep"]["settle_s"] = 5
    for rank in (1, 2):
        fleet.start(rank)
        heard(fleet, rank, '"stage":"start"')
    fleet.start(0)
    stages = fleet.stages(0)
    assert stages["sweep.fleet.1"]["gone"] == {"gpu-node-3": "its agent did not connect"}
    assert all("gpu-node-3" not in test["nodes"] for test in rounds(stages))
    assert stages["sweep.end"] == {"why": ""}


@pytest.mark.slow
def test_who_was_busy_is_not_waited_for_and_taken_in_when_it_comes(fleet, trial):
    """The sweep begins when all idle nodes are present; a fourth agent joins later."""
    trial["sweep"].update(nodes=trial["sweep"]["nodes"][:3], settle_s=HANG_S)
    for rank in range(3):
        fleet.start(rank)
    lines = heard(fleet, 0, "3 of 3 nodes are connected")
    fleet.start(3)
    rest, _ = fleet.processes[0].communicate(timeout=HANG_S)
    stages = fleet.evidence(b"".join(lines) + rest, 0)
    assert any("gpu-node-3" in test["nodes"] for test in rounds(stages))
    assert {test["outcome"] for test in rounds(stages)} == {"measured"}
    assert stages["sweep.end"] == {"why": ""}


def heard(fleet, rank, phrase):
    """Read a pod's output until a line contains these words."""
    lines = []
    for line in fleet.processes[rank].stdout:
        lines.append(line)
        if phrase.encode() in line:
            return lines
    raise AssertionError(b"".join(lines)[-2000:])


def test_a_pod_that_dies_is_left_out_and_the_rest_goes_on(fleet):
    """After kill -9 of one agent during a test its partner is not at fault."""
    for rank in range(4):
        fleet.start(rank)
    lines = heard(fleet, 0, "nodes are connected")
    fleet.processes[3].send_signal(signal.SIGKILL)
    rest, _ = fleet.processes[0].communicate(timeout=HANG_S)
    stages = fleet.evidence(b"".join(lines) + rest, 0)
    last = stages[max((name for name in stages if name.startswith("sweep.fleet.")), key=lambda name: int(name[12:]))]
    assert last["gone"] == {"gpu-node-3": "its pod is gone"}
    assert {test["outcome"] for test in rounds(stages) if "gpu-node-3" not in test["nodes"]} == {"measured"}
    assert {test["outcome"] for test in rounds(stages)} <= {"measured", "nothing"}
    assert stages["sweep.end"] == {"why": ""}


def test_a_pod_that_is_asked_to_end_takes_its_test_with_it(fleet, tmp_path):
    """SIGTERM during a test, as in a drain: its partner's program fails, and neither node has failed."""
    for rank in range(4):
        fleet.start(rank, FAKE_MODE=f"drain gpu-node-3 {tmp_path}")
    tests = rounds(fleet.stages(0))
    cut = [test for test in tests if "gpu-node-3" in test["nodes"]]
    assert cut and {test["outcome"] for test in cut} <= {"nothing", "failed"}, cut
    for test in cut:  # another may follow before the connection closes; half a result does not count (judgement.py)
        assert "gpu-node-3" not in test.get("reported", ["gpu-node-3"])
    assert {test["outcome"] for test in tests if test not in cut} == {"measured"}


@pytest.mark.slow
def test_agents_end_when_the_coordinator_is_killed(fleet):
    """kill -9 of rank 0: no pod receives a release, and none holds its GPUs for longer than a minute; here a quarter of
    that."""
    assert agent.LOST_S <= 60
    file = fleet.here / "stages" / "agent.py"
    file.write_text(file.read_text().replace(f"LOST_S = {agent.LOST_S}", "LOST_S = 15.0"))
    for rank in range(4):
        fleet.start(rank)
    heard(fleet, 0, "nodes are connected")
    fleet.processes[0].send_signal(signal.SIGKILL)
    for rank in range(1, 4):
        fleet.processes[rank].communicate(timeout=HANG_S)
        assert fleet.processes[rank].returncode == 0


def test_agents_end_when_the_coordinator_is_asked_to(fleet):
    """SIGTERM to rank 0: it prints its results, ends with 143, and the others end without a signal."""
    for rank in range(4):
        fleet.start(rank)
    lines = heard(fleet, 0, "nodes are connected")
    fleet.processes[0].send_signal(signal.SIGTERM)
    rest, _ = fleet.processes[0].communicate(timeout=HANG_S)
    assert fleet.processes[0].returncode == 143
    stages = fleet.evidence(b"".join(lines) + rest, 0)
    assert stages["end"]["stopped"] == "SIGTERM"
    assert "SIGTERM" in stages["sweep.end"]["why"]
    for rank in range(1, 4):
        fleet.processes[rank].communicate(timeout=HANG_S)
        assert fleet.processes[rank].returncode == 0


@pytest.mark.slow
def test_a_stranger_is_not_let_in(fleet, trial):
    """A client without the token gets no task and disturbs no agent, and neither does a silent or verbose one."""
    fleet.start(0)

    def connected():
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", trial["master_port"]), timeout=HANG_S)

    line = until(connected, "the listener there")
    stream = line.makefile("rwb")
    challenge = json.loads(stream.readline())
    assert re.fullmatch(r"[0-9a-f]{32}", challenge["nonce"])
    hello = {"seatrial": 1, "kind": "hello", "rank": 1, "node": "gpu-node-1", "pod_ip": "127.0.0.2", "nonce": "x"}
    stream.write(json.dumps({**hello, "proof": "0" * 64}).encode() + b"\n")
    stream.flush()
    assert stream.readline() == b""
    stream.close()
    line.close()
    other = socket.create_connection(("127.0.0.1", trial["master_port"]), timeout=HANG_S)
    other.sendall(b"GET / HTTP/1.1\r\n" + b"x" * 9000)
    for rank in range(1, 4):
        fleet.start(rank)
    rest, _ = fleet.processes[0].communicate(timeout=HANG_S)
    other.close()
    stages = fleet.evidence(rest, 0)
    assert stages["sweep.fleet.1"]["gone"] == {}
    assert {test["outcome"] for test in rounds(stages)} == {"measured"}


def test_a_budget_that_is_over_ends_the_rounds(fleet, trial):
    """Tests that did not run are not reported as run, and the reason is given."""
    trial["sweep"]["budget_s"] = 0.01
    stages = fleet.run()[0]
    assert rounds(stages) == []
    assert "budget" in stages["sweep.end"]["why"]


@pytest.mark.parametrize(
    ("reached", "left_out"),
    [
        ([[True], [False], [True]], []),
        ([[False], [True], [True]], []),
        ([[True, False]], []),
        ([[False], [False], [False]], [2]),
        ([[False], [False], [False], [False]], [2, 3]),
        ([[False, False], [True, True]], []),
        ([[False, False]], [0, 1]),
        ([[True, True, False], [False]], []),
    ],
)
def test_own_nics_are_left_out_only_where_most_nodes_cannot_reach_them(reached, left_out):
    """Most of at least three nodes tested so far, or both of two; not most of a round, which may be one."""
    lead = object.__new__(Coordinator)
    lead._reached_nics, lead.members = {}, {f"n{n}": None for n in range(sum(map(len, reached)))}
    names, answers = iter(lead.members), []
    for reached_now in reached:
        played = {(name,): {name: _alone(good)} for good, name in zip(reached_now, names, strict=False)}
        answers += [answer for each in played.values() for answer in each.values()]
        lead._without_nics(played)
    assert [n for n, answer in enumerate(answers) if answer["cards"] == "nothing"] == left_out


def _alone(good):
    return {"cards": "measured" if good else "failed", "rails": [50.0 if good else None]}


class Heard:
    """A connection that records its messages."""

    def __init__(self):
        self.open, self.said = True, []

    def send(self, message):
        self.said.append(message["kind"])


def played(nodes, leaves, *, end):
    """Lead a sweep in which the first pair of gpu-node-5 is slow; return the coordinator and the final attribution."""
    lead = object.__new__(Coordinator)
    lead.planner, lead.sweep, lead._released = Planner(), {"end": end, "nodes": nodes, "leaves": leaves}, set()
    lead.members = {name: Member(Heard(), rank, name, "", []) for rank, name in enumerate(nodes)}
    lead.changed = threading.Condition()
    rules, history, bad = lead.planner.rules({"alone": False, "pair_floor": 50.0, "node_floor": 50.0}), [], None
    while True:
        fleet = lead._fleet()
        each = lead.planner.next_round(fleet, rules, history, None)
        if each is None:
            return lead, lead.planner.decode(fleet, rules, history)
        lead._release(each, fleet, rules, history)
        assert not lead._released.intersection(name for test in each.tests for name in test)
        bad = bad or next(test for test in each.tests if "gpu-node-5" in test)
        speed = {test: 60.0 if test == bad else 100.0 for test in each.tests}
        results = {test: Result("measured", speed[test], (), test) for test in each.tests}
        history.append(lead.planner.done(each, results, 1.0))


def test_only_pairs_in_doubt_whose_images_both_have_the_program_write_over_rdma():
    """Passed nodes write nothing and are not delayed."""
    lead = object.__new__(Coordinator)
    lead.trial = SimpleNamespace(perftest={"limit_s": 188.0}, training=None, master_port=1, sweep=None)
    lead.planner, lead.changed, lead.results, lead._number = Planner(), threading.Condition(), {}, 0
    orders = {}
    for rank, (name, nics) in enumerate({"a": ["mlx5_0", "mlx5_1"], "b": ["mlx5_1"], "c": ["mlx5_1"], "d": []}.items()):
        line = SimpleNamespace(open=True, send=lambda message, name=name: orders.update({name: message}))
        lead.members = {**getattr(lead, "members", {}), name: Member(line, rank, name, "", [], nics)}
    limits = []
    lead._await = lambda ids, limit: limits.append(limit)
    lead._trained = set()
    lead._tests([("a", "b"), ("c", "d")], "pair", 1.0, {"a", "d"})
    assert (orders["a"]["writes"], orders["b"]["writes"]) == (["mlx5_1"], ["mlx5_1"])
    assert "writes" not in orders["c"]
    lead._tests([("a", "b")], "pair", 1.0, {"c"})
    assert "writes" not in orders["a"]
    assert limits[0] - limits[1] > 180


def test_what_a_pair_wrote_is_printed_and_bounded():
    """Numbers by NIC, whatever an agent sends."""
    answers = {"a": {"writes": {}}, "b": {"writes": {"mlx5_0": [392.0, "x", 7], "\x1b" * 90: [None]}}}
    row = printed(("a", "b"), Result("measured", 300.0, (), ("a", "b")), answers)
    assert row["writes"] == {"mlx5_0": [392.0, None], " " * 40: [None]}
    many = {"b": {"writes": {str(n): [1.0] for n in range(500)}}}
    assert len(printed(("a", "b"), Result("measured", 300.0, (), ("a", "b")), many)["writes"]) == 32


@pytest.mark.parametrize("leaves", [0, 8], ids=["no leaves", "leaves"])
def test_nodes_that_have_passed_are_released_where_no_job_over_all_is_to_come(leaves):
    """Nodes that are not needed as partners are released; the verdict equals that of a sweep that keeps all nodes."""
    nodes = [f"gpu-node-{n}" for n in range(72)]
    known = {name: f"leaf-{n // leaves}" for n, name in enumerate(nodes)} if leaves else {}
    lead, blame = played(nodes, known, end=False)
    held, usual = played(nodes, known, end=True)
    assert not held._released
    assert [finding.kind for finding in blame.findings] == ["pair"] and blame.findings == usual.findings
    assert (blame.proven, blame.suspects, blame.not_tested) == (usual.proven, {}, {})
    assert len(lead._released) >= 30
    assert {nodes[0], "gpu-node-5"}.isdisjoint(lead._released)
    said = {name: member.channel.said for name, member in lead.members.items() if member.channel.said}
    assert said == {name: ["bye"] for name in lead._released}


@pytest.mark.parametrize(
    ("key", "value"),
    [("wrong", value) for value in (None, "0", -1, True, 0.0, [])]
    + [("transport", value) for value in (None, 0, [])]
    + [("busbw", value) for value in (None, "380", float("nan"), -1.0, True)],
)
def test_who_says_nothing_of_sums_or_transport_has_measured_nothing(key, value):
    """A missing or unreadable part of an answer is neither a pass nor a report about that node."""
    planner, whole = Planner(), {"state": "measured", "busbw": 380.0, "rails": [47.0], "wrong": 0, "transport": ""}
    assert planner.result(("a", "b"), {"a": whole, "b": whole}).outcome == "measured"
    result = planner.result(("a", "b"), {"a": {**whole, key: value}, "b": whole})
    assert (result.outcome, result.reported) == ("nothing", ("b",))
    missing = {name: item for name, item in whole.items() if name != key}
    assert planner.result(("a", "b"), {"a": missing, "b": whole}).outcome == "nothing"


NO_LISTS, NO_TEXTS = (5, True, "x", {"a": 1}), (5, True, [], {}, ["x"])


@pytest.mark.parametrize(
    ("key", "value"),
    [(key, value) for key in ("state", "transport", "why") for value in NO_TEXTS]
    + [(key, value) for key in ("rails", "rows", "copies") for value in NO_LISTS]
    + [("rows", [5]), ("rows", [["x"]]), ("rows", [[[]]]), ("copies", [{}])]
    + [("errors", value) for value in (5, "x", [1], {"mlx5_0/link_downed": "x"}, {"a": -1}, {"a": {}})]
    + [("writes", value) for value in (5, "x", [1], {"mlx5_0": 5}, {"mlx5_0": None}, {"mlx5_0": "xy"})]
    + [("hardware", value) for value in (5, "x", [1], {"gpus": 5}, {"gpus": [5]}, {"cards": [1]}, {"cards": {"a": 1}})]
    + [("", value) for value in (None, 5, "x", [])],
)
@pytest.mark.parametrize("nodes", [("a",), ("a", "b")], ids=["alone", "pair"])
def test_a_malformed_answer_is_no_report_and_finds_no_fault(nodes, key, value):
    """Whatever an agent sends: it is refused with its reason, its partner's answer counts, and the round can be read."""
    whole = {"state": "measured", "busbw": 380.0, "rails": [47.0], "wrong": 0, "transport": "", "products": 20}
    answers = dict.fromkeys(nodes, whole) | {"a": {**whole, key: value} if key else value}
    result = Planner().result(nodes, answers)
    assert (result.outcome, result.reported, result.at) == ("nothing", nodes[1:], ())
    row = printed(nodes, result, answers)
    assert row["why"]["a"].startswith("its answer is malformed: ") and set(row["why"]) == {"a"}
    assert misfit("sweep.round.1", {"number": 1, "tests": [row]}) == ""


def test_a_whole_answer_is_not_malformed():
    """Agents may send sizes beyond a billion, and results that are missing or null."""
    whole = {"state": "measured", "busbw": 380.0, "rails": [47.0, None], "wrong": 0, "transport": "", "why": ""}
    whole |= {"rows": [[8589934592, 380.0, 0], [1048576, 9.5, None]], "copies": [50.0, None], "errors": {"a/b": 2}}
    whole |= {"writes": {"mlx5_0": [392.0, None]}, "hardware": {"gpus": [{"index": 0}], "cards": {"mlx5_0": {}}}}
    for answer in (whole, {**whole, "hardware": None, "rows": None, "errors": {}}):
        assert Planner().result(("a", "b"), {"a": answer, "b": whole}).outcome == "measured"


@pytest.mark.parametrize("value", [None, 5, "mlx5_0", {"mlx5_0": 1}, [5, None, "mlx5_0", ["x"]]])
def test_a_member_has_the_names_that_it_sent_as_a_list_of_texts(value):
    """Any other value yields no name, and no error in the thread that admitted the member."""
    lead = object.__new__(Coordinator)
    lead.trial, lead.sweep = SimpleNamespace(run="r", nodes=2), {"token": "t"}
    told = []

    def answer(_):
        challenge = told[0]["nonce"]
        hello = {"kind": "hello", "rank": 1, "node": "b", "pod_ip": "", "rails": value, "writes": value}
        return {**hello, "proof": code("t", "agent", challenge, "1 b "), "nonce": "n"}

    member = lead._meet(SimpleNamespace(say=told.append, next=answer, known=lambda _: None))
    names = ["mlx5_0"] if isinstance(value, list) else []
    assert (member.rails, member.writes) == (names, names)


@pytest.mark.parametrize(
    ("own", "partner", "outcome"),
    [
        ("stopped", "failed", "nothing"),
        ("failed", "failed", "nothing"),
        ("no end", "measured", "nothing"),
        ("measured", "failed", "nothing"),
        ("measured", "measured", "measured"),
    ],
)
def test_a_test_of_a_pod_that_is_to_end_raises_no_fault(own, partner, outcome):
    """A stopped pod's partner may report anything; a complete result counts, and so do wrong sums."""
    whole = {"busbw": 380.0, "rails": [47.0], "wrong": 0, "transport": ""}
    answers = {
        "a": {**whole, "state": own, "interrupted": True},
        "b": {**whole, "state": partner, "interrupted": False},
    }
    assert Planner().result(("a", "b"), answers).outcome == outcome
    assert Planner().result(("a", "b"), {**answers, "b": {**answers["b"], "wrong": 3}}).outcome == "wrong sums"
    calm = {node: {**answer, "interrupted": "yes"} for node, answer in answers.items()}
    assert Planner().result(("a", "b"), calm).outcome == (
        own if own in ("no end", "measured") and partner == "measured" else "failed"
    )


@pytest.mark.parametrize(
    "line", [b"[" * 4000, b'{"seatrial": 1, "rails": ' + b'{"a":' * 700, b"1" * 4000, b"\xff", b"[]"]
)
def test_what_is_no_message_is_refused_as_such(line):
    """Nested as deep as a line is long, too: no error of the reader ends its thread."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(line + b"\n")
        with pytest.raises(NoAnswerError, match="something else answers"):
            Peer(ours).next(HANG_S)


@contextlib.contextmanager
def answering(port, line):
    """Open a port that sends one line to each client."""
    with socket.create_server(("127.0.0.1", port)) as listener:

        def serve():
            with contextlib.suppress(OSError):  # the listener is shut down
                while True:
                    accepted, _ = listener.accept()
                    with accepted:
                        accepted.sendall(line)

        server = threading.Thread(target=serve)
        server.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            server.join()


@pytest.mark.parametrize(
    ("found", "answer", "where", "error"),
    [
        ([], None, "t-0.t:{port}", "its name does not resolve (timeout)"),
        (["127.0.0.1"], None, "t-0.t:{port} (127.0.0.1)", "connection refused"),
        (["::1", "127.0.0.1"], None, "t-0.t:{port} (127.0.0.1)", "connection refused"),
        (["127.0.0.1"], b"HTTP/1.1 400 Bad Request\n", "t-0.t:{port} (127.0.0.1)", "something else answers on this"),
    ],
)
def test_an_agent_says_why_it_does_not_reach_the_coordinator(monkeypatch, found, answer, where, error):
    """The coordinator's log does not show it: each reason is printed once, with the address tried."""
    told = []

    def addresses(_):
        if not found:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return found

    monkeypatch.setattr(agent, "TELL_S", 0.0)
    monkeypatch.setattr(agent.dns, "addresses", addresses)
    monkeypatch.setattr(agent.dns, "reason", lambda *_: "timeout")
    port = free_port()
    trial = SimpleNamespace(sweep={"token": "x"}, peers=["t-0.t"], master_port=port, run="r1", peer_wait_s=HANG_S)
    me = SimpleNamespace(rank=1, node="n1", pod_ip="127.0.0.2")
    tries = []
    watch = SimpleNamespace(stopped=lambda: tries.append(1) or len(tries) > 6)
    with answering(port, answer) if answer else contextlib.nullcontext():
        agent.Agent(trial, me, watch, "", "", lambda *why: told.append(why)).run()
    ((number, address, said),) = told
    assert (number, address) == (1, where.format(port=port))
    assert said.startswith(error)


def test_an_agent_that_waits_for_a_moment_says_nothing(monkeypatch):
    """The coordinator's pod may have started later."""
    monkeypatch.setattr(agent, "TELL_S", HANG_S)
    trial = SimpleNamespace(
        sweep={"token": "x"}, peers=["127.0.0.1"], master_port=free_port(), run="r1", peer_wait_s=HANG_S
    )
    tries, told = [], []
    watch = SimpleNamespace(stopped=lambda: tries.append(1) or len(tries) > 4)
    me = SimpleNamespace(rank=1, node="n1", pod_ip="127.0.0.2")
    agent.Agent(trial, me, watch, "", "", lambda *why: told.append(why)).run()
    assert told == []
