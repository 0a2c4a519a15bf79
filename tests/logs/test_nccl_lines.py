"""Every line of the catalogue matches its own examples, and the copy for the pods is current."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from jobs.trial import payload
from seatrial.faults.catalogue import WEIGHED, fault_catalogue, having, weighed
from seatrial.faults.lines import COMPILED, NCCL, OTHERS, Line, compiled, in_order, read_lines
from seatrial.logs import Partial, conclude, read
from seatrial.logs.reader.events.symptoms import SYMPTOMS, classify
from seatrial.logs.reader.lines.patterns import Patterns, needed
from seatrial.logs.reader.state.process import Note
from tests.logs.symptom_rows import HEALTHY, INFO, STARTED, WARN, A, failing
from tests.logs.test_nccl_causes import judged
from tests.logs.test_nccl_other_software import TORCHRUN, died
from tests.table import table

LINES = in_order(read_lines())


def name_of(at: int) -> str:
    return f"{LINES[at].fault}-{LINES[at].pattern[0]}"


lines = table("at", range(len(LINES)), ids=name_of)
WORDS = {
    "stage": ("start", "store", "connect", "running"),
    "blame": ("own", "kernel", "peer", "last", "warning", "suspect"),
    "scope": ("host", "hosts"),
}
ROLES = ("cause", "why", "degraded", "consequence", "benign")


def test_what_the_pods_and_the_analyzer_get_is_what_the_catalogue_says():
    """`python -m seatrial.faults` generates the copy."""
    assert COMPILED.read_text(encoding="utf-8") == compiled()
    assert WEIGHED.read_text(encoding="utf-8") == weighed()


def test_a_fault_is_weighed_in_words_that_the_analyzer_knows():
    """A misspelt severity would be ignored."""
    for fault in fault_catalogue().values():
        for weight, words in WORDS.items():
            assert getattr(fault, weight) in ("", *words), (fault.id, weight)
    for weight, words in WORDS.items():
        assert all(having(weight, word) for word in words)


def test_a_defect_of_nccls_versions_names_them_in_order_and_gpus_and_lines_by_expressions():
    defects = [each for fault in fault_catalogue().values() for each in fault.defects]
    assert len(defects) >= 17
    for each in defects:
        since, before = (re.fullmatch(r"2\.(\d+)(?:\.(\d+))?", text) for text in (each.since, each.before or "2.99"))
        assert [int(part or 0) for part in since.groups()] < [int(part or 0) for part in before.groups()]
        assert each.cause
        assert each.confirm
        assert not [text for text in (each.says, each.gpus) if text and re.search(text, "")]


@lines
def test_a_line_fits_its_examples_and_none_before_it_does(at):
    assert LINES[at].example
    for example in LINES[at].example:
        symptom = classify(example.encode())
        assert symptom is SYMPTOMS[at], (example, symptom)


@lines
def test_every_pattern_of_a_line_has_an_example_of_its_own(at):
    """An earlier pattern must not match all of a later one's examples."""
    for pattern in LINES[at].pattern:
        assert [text for text in LINES[at].example if re.search(pattern, text)], pattern


@pytest.mark.parametrize(
    "line",
    [
        "n1:7:9 [0] transport/p2p.cc:275 NCCL WARN Cuda failure 'invalid device ordinal'",
        "n1:7:9 [0] transport/nvls.cc:12 NCCL WARN Cuda failure 2 'out of memory'",
        "n1:7:9 [0] misc/socket.cc:50 NCCL WARN Call to connect to 10.0.0.2<4000> failed : No route to host",
        "n1:7:9 [0] init.cc:12 NCCL WARN a text that no line knows",
    ],
)
def test_a_warning_is_classified_once(line, monkeypatch):
    asked = []
    matches = Patterns.matches
    monkeypatch.setattr(Patterns, "matches", lambda self, text: asked.append(text) or matches(self, text))
    read([("a.log", [line.encode() + b"\n"])])
    assert [text for text in asked if b"NCCL WARN" in text] == asked
    assert len(asked) == 1


@lines
def test_a_near_miss_is_another(at):
    for text in LINES[at].near_miss:
        assert classify(text.encode()) is not SYMPTOMS[at]
        assert any(word in text.encode() for word in SYMPTOMS[at].words), "it does not look like this line"


@lines
def test_a_line_says_what_the_reader_understands(at):
    line = LINES[at]
    assert line.role in ROLES
    assert line.who in (OTHERS, NCCL)
    assert not (line.lasting or line.last) or line.who == NCCL
    assert line.fault in fault_catalogue() or line.role in ("consequence", "benign")
    assert min(map(len, needed("|".join(line.pattern).encode()))) >= 3


def test_a_line_goes_before_another_faults_only_where_that_decides_an_example():
    listed = read_lines()
    for line in listed:
        for fault in line.before:
            without = replace(line, before=tuple(each for each in line.before if each != fault))
            order = in_order([without if each is line else each for each in listed])
            decided = [text for text in line.example if first(order, text) is not without]
            assert decided, (line.fault, fault)


def first(order: list[Line], text: str) -> Line:
    """Return the first line that matches a text."""
    return next(line for line in order if any(re.search(pattern, text) for pattern in line.pattern))


def of_role(role: str, who: str) -> pytest.MarkDecorator:
    return table("at", [at for at, line in enumerate(LINES) if (line.role, line.who) == (role, who)], ids=name_of)


@of_role("cause", OTHERS)
def test_what_ended_a_rank_is_its_first_cause_and_said_before_a_good_run_it_condemns_no_one(at):
    """A launcher such as torchrun reports only a failed process: the printed line is its cause, unless the job
    completed."""
    for example in LINES[at].example:
        ended = died(example) if example.partition(":")[0].endswith(("Error", "Exception")) else example + "\n"
        job = judged(ended + TORCHRUN)
        assert LINES[at].fault in (job["causes"][0]["fault"], job["faults"][0]["fault"]), (example, job["sentence"])
        assert judged(example + "\n" + HEALTHY)["verdict"] != "no-go", example


@of_role("cause", NCCL)
def test_a_warning_is_the_first_cause_of_its_ranks_end_and_no_job_with_it_is_proven_healthy(at):
    """Exception: a stranger's connection, which NCCL closes before it accepts the next one."""
    for example in LINES[at].example:
        job = judged(failing(example, 3))
        assert LINES[at].fault in (job["causes"][0]["fault"], job["faults"][0]["fault"]), (example, job["sentence"])
        assert job["causes"][0]["confirm"]
        healthy = judged(HEALTHY + f"\n{A}{WARN}{example}\n")["verdict"] == "go"
        assert not healthy or LINES[at].fault == "nccl.wrong-peer", example


@table("at", [at for at, line in enumerate(LINES) if line.role == "degraded"], ids=name_of)
def test_a_job_that_ended_behind_a_line_is_reported_for_its_fault(at):
    """A process prints the fault's examples; NCCL's lines come as a rank's warning, or without a prefix."""
    line = LINES[at]
    for example in line.example:
        beside = f"{STARTED}\n{example}\nTraceback (most recent call last):\nRuntimeError: NCCL error\n"
        ways = [beside, failing(example)] if line.who == NCCL else [beside]
        assert any(line.fault in told(log) for log in ways), example


CAUSES = {line.fault: line for line in LINES if line.role == "cause"}


@table("at", [at for at, line in enumerate(LINES) if line.role == "why" and line.fault in CAUSES], ids=name_of)
def test_a_line_that_explains_condemns_no_one_though_others_of_its_fault_do(at):
    """The role belongs to the line: alone, before a successful run, as a rank's warning, and with another cause."""
    cause = CAUSES[LINES[at].fault].example[0]
    for example in LINES[at].example:
        assert judged(f"{example}\n")["verdict"] == "inconclusive", example
        assert judged(f"{HEALTHY}\n{example}\n")["verdict"] == "go", example
        for log in (f"{HEALTHY}\n{A}{WARN}{example}\n", f"{STARTED}\n{example}\n", f"{STARTED}\n{A}{WARN}{example}\n"):
            assert judged(log)["verdict"] != "no-go", log
        assert judged(f"{example}\n{TORCHRUN}")["faults"][0]["fault"] == "nccl.crash", example
        for pair in ((example, cause), (cause, example)):
            warned = STARTED + "\n" + "".join(f"{A}{WARN}{each}\n" for each in pair) + f"{A}{INFO}init.cc:903 -> 2\n"
            for log in ("\n".join((*pair, TORCHRUN)), warned):
                fault = judged(log)["faults"][0]
                assert fault["fault"] == LINES[at].fault, log
                assert cause in fault["evidence"][0]["text"], log


def test_of_two_sightings_of_a_fault_the_cause_is_kept_in_whatever_order_they_come():
    """Among lines of another kind the first is kept, whatever symptoms they show."""
    why, cause = Note(0, 1, "a", shows="why nccl.a"), Note(0, 2, "b", shows="cause nccl.a")
    for one, other in ((why, cause), (cause, why)):
        joined = one.joined(other, "symptom nccl.a")
        assert (joined.text, joined.count, joined.last) == ("b", 2, 2)
        assert one.joined(other, "exception").text == "a"


def told(log: str) -> set[str | None]:
    """Return the reported faults of a log, with their explanations and likely causes."""
    (job,) = conclude(read([("log", [log.encode()])]))
    found = {name for fault in job["faults"] for name in (fault["fault"], fault["why"])}
    return found | {cause["fault"] for cause in job["causes"]}


def test_what_a_line_shows_is_reported_once_and_travels_with_it():
    """A finding has the line as it appears in the log: the host gets it shortened and redacted, and matches no pattern
    again."""
    far = "RuntimeError: " + "x" * 600 + " fork failed: Resource temporarily unavailable"
    log = f"{far}\nTraceback (most recent call last):\nworker: Waiting in store based barrier to initialize\n"
    sent = read([("log", [log.encode()])])
    (source,) = Partial.from_dict(json.loads(json.dumps(sent.to_dict()))).sources
    assert source.events["exception"].shows == "cause nccl.process-limit"
    assert "temporarily" not in source.events["exception"].text
    assert source.events["traceback"].shows == ""
    assert source.events["symptom nccl.not-all-came"].role == "why"


def test_a_circle_of_lines_is_refused():
    a, b = (Line(fault=name, pattern=(name,), example=(name,)) for name in ("nccl.a", "nccl.b"))
    assert in_order([a, replace(b, before=("nccl.a",))])[1] == a
    with pytest.raises(ValueError, match=r"nccl\.a, nccl\.b"):
        in_order([replace(a, before=("nccl.b",)), replace(b, before=("nccl.a",))])


def test_a_key_that_no_line_has_is_refused():
    with pytest.raises(TypeError, match="exmaple"):
        Line.of("nccl.a", {"pattern": "a", "exmaple": "a"})


def test_the_reader_knows_its_lines_out_of_a_zip(tmp_path):
    """Pods receive the reader as an archive."""
    (tmp_path / "reader.zip").write_bytes(payload.archive(payload.files()))
    code = f"import {payload.PACKAGE}.reader.events.symptoms as s; print(s.__file__, len(s.SYMPTOMS))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, 'reader.zip'); {code}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    file, number = done.stdout.split()
    assert "reader.zip" in file
    assert int(number) == len(LINES)
