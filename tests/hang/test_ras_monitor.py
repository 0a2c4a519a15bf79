"""What the monitor of NCCL RAS prints (ncclras -m): a dead process is named, one that came back is not."""

import json

import pytest

from tests.hang.ras_printer import Comm, Job, as_json, text

WELCOME = "RAS Monitor Mode - watching for peer changes (Ctrl+C to exit)...\n" + "=" * 64 + "\n"


def event(name, pid=101, details=""):
    return f"[2026-11-23 10:00:07] {name}: Process {pid} on node 10.0.0.2 managing GPU 1 {details}\n"


def as_object(name, pid=101):
    peer = {"host": "10.0.0.2", "pid": pid, "cuda_devs": [1], "nvml_devs": [1]}
    made = {"timestamp": "2026-11-23 10:00:07", "group": "LIFECYCLE", "event": name, "peer": peer, "details": ""}
    return json.dumps(made, indent=2).replace("[\n      1\n    ]", "[1]") + "\n"


@pytest.mark.parametrize("form", [event, as_object])
@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["PEER_NEW", "PEER_DEAD"], 1),
        (["PEER_UNRESPONSIVE"], 1),
        (["PEER_UNRESPONSIVE", "PEER_KEEPALIVE_TIMEOUT", "PEER_TIMEOUT_DEAD", "PEER_DEAD"], 1),
        (["PEER_UNRESPONSIVE", "PEER_RECOVERED"], 10),
        (["PEER_DISCONNECTED", "PEER_RETRY", "PEER_CONNECTED"], 10),
        (["PEER_NEW"], 10),
        (["PEER_DEAD", "PEER_CONNECTED"], 1),  # RAS takes nobody back
    ],
)
def test_who_is_dead_at_the_end_of_the_events(explain, tmp_path, form, names, code):
    (tmp_path / "events.txt").write_text(WELCOME + "".join(form(name) for name in names))
    got, job = explain(tmp_path / "events.txt")
    assert (got, "Process 101 (GPU 1 of 10.0.0.2)" in job["sentence"]) == (code, code == 1), job["sentence"]
    assert job["diagnosis"] == ("hang-dead" if code == 1 else "hang-undecided")


def test_within_a_log_and_behind_a_prefix(explain, tmp_path):
    log = "step 12 loss 2.1\n" + "".join(f"ops-0 | {line}" for line in (event("PEER_NEW"), event("PEER_DEAD")))
    (tmp_path / "job.log").write_text(log)
    code, job = explain(tmp_path / "job.log")
    assert (code, job["diagnosis"]) == (1, "hang-dead")


def test_an_answer_of_ras_beside_it_gives_the_rank(explain, tmp_path):
    job = Job(8, [Comm(list(range(8)))], silent={5})
    place = job.place(5)
    (tmp_path / "ras.txt").write_text(text(job))
    dead = event("PEER_DEAD", place[1]).replace("10.0.0.2", place[0])
    (tmp_path / "events.txt").write_text(WELCOME + dead)
    _, document = explain(tmp_path)
    assert (document["diagnosis"], document["dead_ranks"]) == ("hang-dead", [5]), document["sentence"]


def test_words_of_others_are_no_events(explain, tmp_path):
    (tmp_path / "job.log").write_text("[2026-11-23 10:00:07] PEER_DEAD: my own cluster manager lost node 3\n")
    code, job = explain(tmp_path / "job.log")
    assert (code, job["diagnosis"]) == (10, "no-evidence")


@pytest.mark.parametrize("form", [event, as_object])
@pytest.mark.parametrize(
    ("asked", "silent", "dead"),
    [
        ("11:00:00", set(), []),  # a process of that number answers: it was started since
        ("09:00:00", set(), [5]),  # it answered before it died
        ("11:00:00", {5}, [5]),
    ],
)
def test_a_later_answer_of_that_process_takes_the_death_back(explain, tmp_path, form, asked, silent, dead):
    job = Job(8, [Comm(list(range(8)))], silent=silent)
    host, pid, *_ = job.place(5)
    (tmp_path / "events.txt").write_text(WELCOME + form("PEER_DEAD", pid).replace("10.0.0.2", host))
    (tmp_path / "ras.json").write_text(as_json(job, stamp=f"2026-11-23 {asked}"))
    _, document = explain(tmp_path)
    assert document["dead_ranks"] == dead, document["sentence"]
    assert ("started anew" in document["sentence"]) == (not dead), document["sentence"]
