"""Evidence is complete or known to be incomplete, whatever else is in a log."""

import itertools
import json
import random

import pytest

from jobs.run.evidence import EvidenceReader, parse, taken

RUN = "r1"


def line(n, stage, data=None, *, rank=0, run=RUN, **more):
    return json.dumps(
        {
            "seatrial": 1,
            "run": run,
            "rank": rank,
            "n": n,
            "stage": stage,
            "seconds": 0.5,
            **({"data": data} if data is not None else {}),
            **more,
        }
    )


WHOLE = [line(1, "start", {"node": "a"}), line(2, "dns", {"peers": []}), line(3, "end", {"seconds": 2})]


def test_stages_and_times_are_read():
    """Stage to data, stage to seconds, the rank; complete with 'end' and without a missing number."""
    evidence = parse(WHOLE, RUN)
    assert evidence.complete and evidence.rank == 0 and not evidence.missing
    given = {"start": {"node": "a"}, "dns": {"peers": []}, "end": {"seconds": 2}}
    assert evidence.stages == {name: taken(name, data)[0] for name, data in given.items()}
    assert evidence.seconds["dns"] == 0.5


def test_bytes_and_text_and_ordinary_output_between():
    """Progress lines, broken bytes and other programs' JSON are skipped."""
    noise = [b"\xff\xfe progress 50%", '{"other": 1}', "", "  " + WHOLE[1], '{"seatrial": broken', b"\x00" * 50]
    mixed = [WHOLE[0].encode(), *noise, WHOLE[2] + "\r\n"]
    assert parse(mixed, RUN).complete


def test_a_gap_is_known():
    """A lost line is identified by its number; the others still count."""
    evidence = parse([WHOLE[0], WHOLE[2]], RUN)
    assert evidence.missing == (2,) and not evidence.complete and "start" in evidence.stages


def test_a_log_without_its_end_is_incomplete():
    """An empty observation is never a pass."""
    assert not parse(WHOLE[:2], RUN).complete
    assert not parse([], RUN).complete


def test_lines_of_another_run_or_rank_are_ignored():
    """Two concurrent runs must not corrupt each other."""
    evidence = parse([line(1, "start", {"x": 1}, run="other"), *WHOLE, line(4, "dns", {"evil": 1}, rank=1)], RUN)
    assert evidence.complete and evidence.stages["dns"] == taken("dns", {})[0]


@pytest.mark.parametrize("odd", [-1, True, "0", 0.0])
def test_a_line_that_names_no_rank_is_the_pods_and_one_of_an_odd_rank_is_nobodys(odd):
    assert parse([line(1, "start", {}, rank=None), *WHOLE[1:]], RUN).complete
    assert parse([line(1, "start", {}, rank=odd), *WHOLE[1:]], RUN).missing == (1,)


def test_large_data_comes_in_parts_in_any_order():
    """Parts are joined by number, also when a reconnect repeats some."""
    data = {"text": "x" * 20_000, "list": list(range(500))}
    text = json.dumps(data)
    pieces = [text[i : i + 7000] for i in range(0, len(text), 7000)]
    parts = [line(n, "collective.ring", part=n, parts=len(pieces), chunk=piece) for n, piece in enumerate(pieces, 1)]
    last = line(len(parts) + 1, "end", {})
    for order in itertools.permutations(parts):
        evidence = parse([*order, order[0], last], RUN)
        assert evidence.stages["collective.ring"] == taken("collective.ring", data)[0] and evidence.complete


def test_a_missing_part_is_a_gap_and_no_half_truth():
    """The stage is absent instead of truncated."""
    evidence = parse([line(1, "c", part=1, parts=2, chunk="{"), line(3, "end", {})], RUN)
    assert evidence.missing == (2,) and "c" not in evidence.stages


def test_parts_that_do_not_fit_are_a_problem():
    """Contradictory numbers, or text that is not JSON."""
    assert parse([line(1, "c", part=1, parts=1, chunk="nonsense"), line(2, "end", {})], RUN).problem
    wrong = [line(1, "c", part=1, parts=2, chunk="{"), line(2, "c", part=2, parts=3, chunk="}"), line(3, "end", {})]
    assert not parse(wrong, RUN).complete


def test_the_termination_message_reports_lost_lines():
    """The log was rotated: the number of lines and each stage's result are still in the pod's status."""
    reader = EvidenceReader(RUN)
    for item in WHOLE[:1]:
        reader.feed(item)
    reader.summarize(json.dumps({"seatrial": 1, "run": RUN, "rank": 0, "lines": 3, "stages": {"dns": "failed"}}))
    evidence = reader.result()
    assert evidence.missing == (2, 3) and evidence.summary == {"dns": "failed"} and not evidence.complete


@pytest.mark.parametrize(
    "message", [{"run": "other"}, {"rank": 1}, {"lines": "9"}, {"lines": -1}, {"lines": 50_001}, {"lines": None}]
)
def test_a_termination_message_of_another_pod_or_without_a_count_announces_nothing(message):
    """More lines than any probe prints are not a valid count, since each missing one would be listed."""
    reader = EvidenceReader(RUN)
    for item in WHOLE:
        reader.feed(item)
    reader.summarize(json.dumps({"seatrial": 1, "run": RUN, "rank": 0, "lines": 9} | message))
    assert reader.result().complete


def test_secrets_in_evidence_are_masked():
    """The probe redacts, but the launcher does not rely on it."""
    env = {"NGC_KEY": "abc", "NCCL_IB_HCA": "mlx5", "OTHER": "https://u:p@h/x", "HF_TOKEN": "hf_" + "a" * 30}
    evidence = parse([line(1, "start", {"env": env, "MY_SECRET": "s3cr3t"}), line(2, "end", {})], RUN)
    printed = json.dumps(evidence.stages)
    assert (
        "abc" not in printed
        and "u:p@" not in printed
        and "hf_a" not in printed
        and "s3cr3t" not in printed
        and "mlx5" in printed
    )


def test_hostile_evidence_is_bounded():
    """Numbers, sizes and structures that a probe never prints."""
    hostile = [
        line(10**9, "x", {}),
        line(-1, "x", {}),
        line(True, "x", {}),
        line("1", "x", {}),
        line(1, 5, {}),
        line(2, "x", [1]),
        line(3, "c", part=1, parts=10**9, chunk="x"),
        line(4, "c", part=0, parts=1, chunk="x"),
        line(5, "c", part=2, parts=1, chunk="x"),
        '{"seatrial": 1, "run": "r1", "rank": -5, "n": 1, "stage": "x"}',
        '{"seatrial"' + "[" * 10_000,
        '{"seatrial": ' + "9" * 100_000,
        '{"seatrial":1,"run":"r1","rank":0,"lines":1e99,"stages":[]}',
    ]
    evidence = parse([*hostile, *WHOLE], RUN)
    assert max(evidence.missing, default=0) < 100 and evidence.rank == 0


def test_any_bytes_anywhere_are_survived():
    """Torn and damaged lines never raise an exception, and never add a stage that was not sent."""
    rng = random.Random(7)
    log = "\n".join(WHOLE).encode()
    for _ in range(500):
        spoiled = bytearray(log)
        for _ in range(rng.randint(1, 5)):
            spoiled[rng.randrange(len(spoiled))] = rng.randrange(256)
        evidence = parse(bytes(spoiled[: rng.randrange(len(spoiled) + 1)]).split(b"\n"), RUN)
        assert len(evidence.stages) <= 3


def test_evidence_that_contradicts_itself_is_not_complete():
    """A line repeated with other content, or a stage reported twice, shows that another program wrote to the log."""
    other = parse([WHOLE[0], line(2, "dns", {"peers": [{"name": "forged"}]}), *WHOLE[1:]], RUN)
    assert not other.complete
    assert "line 2" in other.problem
    twice = parse([*WHOLE, line(4, "dns", {"peers": ["forged"]})], RUN)
    assert (twice.complete, twice.stages["dns"]) == (False, taken("dns", {})[0])
    assert "dns" in twice.problem
    assert parse([*WHOLE, *WHOLE], RUN).complete, "a log that was read again does not contradict itself"
