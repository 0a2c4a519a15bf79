"""The analyzer agrees with a careful reader, compared by key over labelled logs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from seatrial.logs import conclude, read

if TYPE_CHECKING:
    from pathlib import Path

KEYS = (
    "inter_node_transport",
    "gdr",
    "socket_fallback",
    "mixed",
    "ranks",
    "nodes",
    "nccl_version",
    "avg_busbw",
    "hang",
    "crash",
)

# Labels that the log itself does not show (their notes say so: issue title, thread, file name, the application's
# output), and labels that we interpret differently. Log number -> keys -> why.
NOT_IN_THE_LOG = {
    # The label is empty (meaning "no"), and the log has two things: a watchdog's timeout, and processes that died from
    # signals 6 and 15 with a core dump. Log 008 is labelled a crash for the same last lines. Here all eight ranks had
    # completed set-up before, which does not make a core dump harmless.
    "004": {
        "crash": "two processes died from signal 6 and 15 at the end, as in 008, which is labelled a crash",
        "hang": "a watchdog reports a collective that never finished, which is the diagnosis",
    },
    "008": {"hang": "a watchdog reports a collective that never finished, which is the diagnosis"},
    "040": {
        "ranks": "six of the sixteen processes are in the excerpt, and nothing says how many there were",
        "crash": "ranks that use different transports cannot connect: the fault is fatal, though no process is seen to end",
    },
    "044": {"gdr": "the question in the issue's title; no channel line is in the excerpt"},
    "046": {"hang": "the reporter says so; the log just ends"},
    "048": {"nccl_version": "issue title", "crash": "issue title"},
    "049": dict.fromkeys(("gdr", "ranks", "nodes", "nccl_version", "avg_busbw"), "issue text, as its notes say"),
    "050": {
        "inter_node_transport": "the thread says RoCE; this form of the line shows no link layer",
        "crash": "the label is silent; 040 of 2026 is labelled a crash for the same lines",
    },
    "058": dict.fromkeys(
        ("inter_node_transport", "nodes"),
        "one host shows, and nothing tells how many there are: so 014 of 2026 is labelled",
    ),
    "060": {"ranks": "title of the issue", "nccl_version": "title of the issue"},
    "064": dict.fromkeys(
        ("ranks", "nodes", "crash"), "the application's and Ray's words; the crash is not in the excerpt"
    ),
    "065": {"crash": "thread; the excerpt ends before"},
    "078": {"inter_node_transport": "issue text: one node; the excerpt shows a selection", "nodes": "issue text"},
    "079": dict.fromkeys(("ranks", "nccl_version"), "issue text"),
    "080": dict.fromkeys(("ranks", "nccl_version"), "deduced from the form and the machine"),
    "081": {"nccl_version": "deduced from the form"},
    "082": dict.fromkeys(("ranks", "nodes"), "deduced from the application's TP14"),
    "084": {"hang": "issue text"},
    "086": dict.fromkeys(("ranks", "nodes", "nccl_version"), "three of eight processes are in the excerpt"),
    "088": dict.fromkeys(("ranks", "hang"), "issue text"),
    "092": {"hang": "issue text"},
    "093": dict.fromkeys(("ranks", "hang"), "issue text; three processes are in the excerpt"),
    "mpirun-debug-file-per-rank": {"nccl_version": "its table's header names the library: nccl-library=22809"},
}
# The same for the logs of 2026, whose labels are stricter about single-host excerpts.
NOT_IN_THE_LOGS_OF_2026 = {
    "008": {"socket_fallback": "one rank: the label judges nothing, those of the older logs say no, as we do"},
    "020": dict.fromkeys(
        ("inter_node_transport", "socket_fallback", "nodes"),
        "080 of the older logs is the same one line, and is labelled as one host",
    ),
    "026": {"inter_node_transport": "its notes: read ib or roce as right; no line shows the link layer"},
    "034": {"nodes": "its channels are of one host, as in 076, which is labelled as that"},
    "044": {"nccl_version": "the library's name stands in front, as in the label of 071 of the older logs"},
}


FOLDERS = ("nccl-corpus", "nccl-corpus-2026", "nccl-recorded")
SLOW = {"nccl.socket-fallback", "nccl.mixed-transport"}
NO_GDR = {"nccl.gdr-off", "nccl.gdr-mixed"}


def unnamed(job) -> list[str]:
    """Return results of the host matrix that no fault states, since the checks read the faults only."""
    named = {fault["fault"] for fault in job["faults"]}
    if named & (SLOW | {"nccl.launch-failed"}):
        return []
    sockets = (job["socket_fallback"] and job["inter_node_transport"] != "unknown") or any(
        "socket" in pair["transports"] for pair in job["pairs"]
    )
    gdr = job["inter_node_transport"] != "fastsocket" and any(pair["gdr"] in (False, "mixed") for pair in job["pairs"])
    return ["a socket"] * bool(sockets) + ["missing GPUDirect"] * bool(gdr and not named & NO_GDR)


def excuses(path: Path) -> dict[str, str]:
    """Return a log's labels that it does not show itself, or that others contradict, with reasons."""
    known = NOT_IN_THE_LOGS_OF_2026 if path.parent.name == "nccl-corpus-2026" else NOT_IN_THE_LOG
    return known.get(path.stem.split("-")[0], known.get(path.stem, {}))


def mismatches(folder: Path) -> list[str]:
    """Return every wrong label without an excuse."""
    wrong = []
    for path in sorted(folder.glob("*.log")):
        label = json.loads(path.with_suffix(".json").read_text())
        excused = excuses(path)
        with path.open("rb") as file:
            jobs = conclude(read([(path.name, file)]))
        assert len(jobs) == 1, f"{path.name} is one job"
        json.dumps(jobs, allow_nan=False)
        for key in KEYS:
            expected = label.get(key, False if key in ("mixed", "hang", "crash") else "absent")
            unjudged = expected == "absent" or (key in ("hang", "crash", "mixed") and label.get(key, False) is None)
            if not unjudged and key not in excused and jobs[0][key] != expected:
                wrong.append(f"{path.name}: {key} is {expected!r}, concluded {jobs[0][key]!r}")
        wrong += [f"{path.name}: {text} is no fault" for text in unnamed(jobs[0])]
        if "avg_busbw_all" in label and jobs[0]["avg_busbw_all"] != label["avg_busbw_all"]:
            wrong.append(f"{path.name}: avg_busbw_all {jobs[0]['avg_busbw_all']}")
    return wrong


def test_every_label_of_our_own_recordings_is_right(data):
    """Real runs of NCCL 2.28.9, healthy and broken, get a careful reader's result."""
    assert mismatches(data / "recorded") == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_label_that_a_log_shows_is_right(shared, folder):
    """The analyzer concludes every label that real logs of many versions, launchers and clouds themselves show."""
    assert mismatches(shared / folder) == []


def test_no_excuse_is_stale(shared):
    """A correct label needs no excuse."""
    stale = []
    for path in [path for folder in FOLDERS for path in (shared / folder).glob("*.log")]:
        label = json.loads(path.with_suffix(".json").read_text())
        excused = excuses(path)
        with path.open("rb") as file:
            job = conclude(read([(path.name, file)]))[0]
        stale += [f"{path.name}: {key}" for key in excused if job[key] == label.get(key, False)]
    assert stale == []


def test_no_rule_names_a_log_or_its_hosts(shared, root):
    """The analyzer contains neither a log's name nor a host name of the corpus."""
    source = "\n".join(path.read_text() for path in (root / "seatrial" / "logs").rglob("*.py"))
    hosts = set()
    for path in (shared / "nccl-corpus").glob("*.log"):
        with path.open("rb") as file:
            for host in conclude(read([(path.name, file)]))[0]["hosts"]:
                hosts.add(str(host["name"]).split(" ")[0])
    named = {host for host in hosts if len(host) > 5 and host in source} - {"hostname", "localhost"}
    assert named == set()
