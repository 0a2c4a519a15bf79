"""Several ranks in one stream, as mpirun's launcher prints them, are separated wherever mpirun splits them."""

import itertools
import json
import random
from types import SimpleNamespace

import pytest

from jobs.diagnosis.state import Replica
from jobs.run.conclusion import _evidence
from jobs.run.evidence import EvidenceReader, MultiplexedReader, Streams
from jobs.run.waiting import WatchOutcome
from jobs.trial.launchers import KINDS

RUN = "r1"


def lines_of(rank, size=600):
    def line(n, stage, **data):
        return json.dumps(
            {"seatrial": 1, "run": RUN, "rank": rank, "n": n, "stage": stage, "seconds": 0.1, "data": data}
        )

    return [line(1, "start", text="x" * size), f"seatrial rank {rank}: working", line(2, "end", seconds=1)]


def tagged(pieces, tag="[1,{}]<stdout>:"):
    """Return mpirun's output for (rank, bytes) pieces: the tag before each piece, and after each newline within one."""
    out = ""
    for rank, text in pieces:
        mark = tag.format(rank)
        body, end = (text[:-1], "\n") if text.endswith("\n") else (text, "")
        out += mark + body.replace("\n", "\n" + mark) + end
    return out.splitlines()


def read(lines, ranks=2):
    streams_reader = MultiplexedReader(RUN, ranks)
    for line in lines:
        streams_reader.feed(line)
    return streams_reader


@pytest.mark.parametrize("tag", ["[1,{}]<stdout>:", "[1,{}]<stdout>: ", "[prterun-host-12@1,{}]<stdout>:"])
@pytest.mark.parametrize("seed", range(8))
def test_ranks_are_distinguished_wherever_their_output_is_cut(tag, seed):
    """mpirun forwards each read, also partial lines; no piece of any rank is lost or swapped."""
    chance = random.Random(seed)
    queues = []
    for rank in range(2):
        text = "\n".join(lines_of(rank)) + "\n"
        cuts = sorted(chance.sample(range(1, len(text)), 6))
        queues.append([(rank, text[a:b]) for a, b in itertools.pairwise([0, *cuts, len(text)])])
    pieces = []
    while any(queues):
        pieces.append(chance.choice([queue for queue in queues if queue]).pop(0))
    streams_reader = read(tagged(pieces, tag))
    by_rank = streams_reader.results()
    assert sorted(by_rank) == [0, 1] and streams_reader.ended
    assert all(e.complete and e.rank == rank for rank, e in by_rank.items())
    assert all(e.stages["start"]["text"] == "x" * 600 for e in by_rank.values())


def test_without_tags_whole_lines_are_enough():
    """Every line of evidence contains the rank."""
    mixed = [line for pair in zip(lines_of(0), lines_of(1), strict=True) for line in pair]
    assert all(e.complete for e in read(mixed).results().values())


def test_a_rank_that_is_missing_is_missed():
    """Data of one rank is never attributed to another, and the stream ends only after all ranks."""
    streams_reader = read(tagged([(0, "\n".join(lines_of(0)) + "\n")]))
    assert list(streams_reader.results()) == [0] and not streams_reader.ended
    assert read(lines_of(7)).results() == {}


def test_a_torn_line_without_tags_is_known_as_lost():
    """Two ranks that write into each other's lines cause gaps, never a wrong value."""
    first, second = lines_of(0)[0], lines_of(1)[0]
    streams_reader = read([first[:300] + second, first[300:], lines_of(0)[2]])
    assert streams_reader.results()[0].missing == (1,)


def test_other_words_pass_through():
    """ssh's warnings appear before, between and without tags."""
    streams = Streams()
    assert list(streams.lines("Warning: Permanently added 'w0'")) == ["Warning: Permanently added 'w0'"]
    assert list(streams.lines("oops [1,0]<stderr>:half")) == ["oops ", "half"]


def test_what_a_pod_reported_that_is_gone_is_evidence_of_its_rank():
    """An eviction removes the pod's object, not its output; a pod without output has no rank."""
    spoken, silent = EvidenceReader(RUN), EvidenceReader(RUN)
    spoken.feed(json.dumps({"seatrial": 1, "run": RUN, "rank": 1, "n": 1, "stage": "start", "seconds": 0, "data": {}}))
    followers = {"t-0": SimpleNamespace(reader=silent), "t-1": SimpleNamespace(reader=spoken)}
    by_rank = _evidence(RUN, SimpleNamespace(followers=followers), WatchOutcome(), KINDS["indexed"])
    assert list(by_rank) == [1] and "start" in by_rank[1].stages


def test_a_worker_whose_output_the_launcher_prints_does_not_take_its_ranks_evidence():
    """One pod of an MPI job prints all ranks; a worker's log is sshd's, and its end has no rank."""
    followers = {"l": SimpleNamespace(reader=read([*lines_of(0), *lines_of(1)]))}
    replicas = tuple(Replica(index=number, pod=pod) for number, pod in enumerate(("w-0", "w-1", "l")))
    outcome = WatchOutcome(replicas=replicas)
    for heard in (followers, followers | {"w-0": SimpleNamespace(reader=EvidenceReader(RUN))}):
        by_rank = _evidence(RUN, SimpleNamespace(followers=heard), outcome, KINDS["mpijob"])
        assert {rank: sorted(each.stages) for rank, each in by_rank.items()} == {
            0: ["end", "start"],
            1: ["end", "start"],
        }


def test_a_rank_that_was_not_heard_has_no_evidence_of_others():
    """In other kinds each pod prints its own rank, which counts, else its index; a missing pod is not a rank."""
    named = EvidenceReader(RUN)
    for line in lines_of(1):
        named.feed(line)
    followers = {"t-0": SimpleNamespace(reader=named)}
    replicas = (Replica(index=0, pod="t-0"), Replica(index=2, pod="t-2"), Replica(index=3))
    outcome = WatchOutcome(replicas=replicas)
    by_rank = _evidence(RUN, SimpleNamespace(followers=followers), outcome, KINDS["indexed"])
    assert {rank: sorted(each.stages) for rank, each in by_rank.items()} == {1: ["end", "start"], 2: []}
