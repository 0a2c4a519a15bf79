"""Logs inside the answer of a log store: one JSON document, the newest line first, each pod's lines by themselves."""

from __future__ import annotations

import json

import pytest

from jobs.nccl import conclude, log_store_answers, open_sources, read
from jobs.pod.nccl_reader.errors import NcclLogError
from tests.nccl.logmaker import Maker, interleaved
from tests.nccl.test_nccl_causes import HEALTHY, INFO, A

FAILED = f"{HEALTHY}{A}misc/ibvwrap.cc:190 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out\n{A}{INFO}x.cc:1 -> 2\n"
LOGS = {
    "healthy": HEALTHY,
    "failed": FAILED,
    "set-up": interleaved(Maker(hosts=("a-0", "a-1"), gpus=4).processes(), 1).decode(),
}


def judged(data: bytes, size: int = 1 << 17) -> dict:
    (job,) = conclude(
        read([("log", log_store_answers.opened(data[at : at + size] for at in range(0, len(data), size)))])
    )
    return {
        key: job[key]
        for key in ("verdict", "sentence", "ranks", "nodes", "faults", "causes", "inter_node_transport", "nccl_lines")
    }


def timed(lines: list[str]) -> list[tuple[str, str]]:
    """Return lines with times, every third one with that of the one before."""
    return [(f"2026-01-02T03:04:{at // 60 % 60:02d}.{at - (at % 3 == 2):06d}Z", line) for at, line in enumerate(lines)]


def loki(lines: list[str]) -> object:
    """As query_range answers: two streams, the newest lines first."""
    stamped = [[str(1_700_000_000_000_000_000 + at), line] for at, line in enumerate(lines)]
    streams = [{"stream": {"pod": f"worker-{pod}"}, "values": stamped[pod::2][::-1]} for pod in (1, 0)]
    return {"status": "success", "data": {"resultType": "streams", "result": streams, "stats": {"summary": {}}}}


def loki_pushed(lines: list[str]) -> object:
    return {
        "streams": [{"stream": {"pod": "w"}, "values": [[str(10**18 + at), line, {}] for at, line in enumerate(lines)]}]
    }


def elasticsearch(lines: list[str]) -> object:
    """As _search answers, sorted by time, the newest first."""
    hits = [{"_id": "x", "_source": {"@timestamp": time, "message": line, "pod": "w"}} for time, line in timed(lines)]
    return {
        "took": 3,
        "timed_out": False,
        "hits": {"total": {"value": len(hits)}, "max_score": None, "hits": hits[::-1]},
    }


def texts_of(document: object) -> list[str]:
    return [text.rstrip("\n") for _, text in log_store_answers.records_of(document)]


def opensearch_fields(lines: list[str]) -> object:
    return {"hits": {"hits": [{"fields": {"time": [time], "log": [line + "\n"]}} for time, line in timed(lines)]}}


def cloudwatch(lines: list[str]) -> object:
    return {"events": [{"timestamp": 1_700_000_000_000 + at // 5, "message": line} for at, line in enumerate(lines)]}


def gcloud(lines: list[str]) -> object:
    return [{"insertId": "x", "jsonPayload": {"message": line}, "timestamp": time} for time, line in timed(lines)][::-1]


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("store", [loki, loki_pushed, elasticsearch, opensearch_fields, cloudwatch, gcloud])
def test_the_answer_of_a_log_store_is_judged_as_the_log_in_it(store, log):
    plain, answer = LOGS[log].encode(), store(LOGS[log].splitlines())
    for document in (json.dumps(answer), json.dumps(answer, indent=2), json.dumps(answer, separators=(",", ":"))):
        assert texts_of(json.loads(document)) == plain.decode().splitlines()
        assert judged(document.encode()) == judged(plain)
        assert judged(document.encode(), 100_000) == judged(plain)


def test_an_answer_in_a_file_is_judged(tmp_path):
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(loki(FAILED.splitlines())))
    for name in (path, tmp_path):
        (job,) = conclude(read(open_sources([str(name)])))
        assert (job["verdict"], job["ranks"]) == ("no-go", 4)


def test_json_for_each_line_is_no_answer(monkeypatch):
    monkeypatch.setattr(log_store_answers, "MAX_ANSWER", 100)
    lines = [json.dumps({"log": line + "\n", "hits": [1], "events": []}) for line in FAILED.splitlines()]
    assert judged("\n".join(lines).encode()) == judged(FAILED.encode())


def test_what_is_wrapped_in_an_answer_is_taken_apart():
    wrapped = [f"2026-01-02T03:04:05.{at:09d}Z stderr F {line}" for at, line in enumerate(FAILED.splitlines())]
    assert judged(json.dumps(loki(wrapped)).encode()) == judged(FAILED.encode())
    wrapped = [json.dumps({"log": line + "\n", "stream": "stderr"}) for line in FAILED.splitlines()]
    assert judged(json.dumps(elasticsearch(wrapped)).encode()) == judged(FAILED.encode())


@pytest.mark.parametrize(
    "document",
    [
        {"data": {"resultType": "streams", "result": []}},
        {"data": {"resultType": "streams", "result": [7, {"values": [[], [1], ["1", 2], "x", None]}, {"values": 3}]}},
        {"hits": {"hits": [None, 1, {"_source": None}, {"_source": {"message": 3}}, {"fields": {"log": []}}]}},
        {"hits": [{"message": "NCCL INFO x"}]},
        {"streams": {"a": 1}, "hits": [], "events": [1, None, {"message": None}]},
        [{"message": 3}, {}, 7],
        [{"a": [[[[[]]]]]}],
    ],
)
def test_a_document_that_holds_no_lines_proves_nothing(document):
    assert texts_of(document) == []
    assert judged(json.dumps(document).encode())["verdict"] == "inconclusive"


@pytest.mark.parametrize("cut", [0.3, 0.7, 0.999])
def test_an_answer_that_was_cut_is_no_proof(cut):
    document = json.dumps(loki(HEALTHY.splitlines())).encode()
    assert judged(document[: int(len(document) * cut)])["verdict"] == "inconclusive"


def test_unlike_times_leave_the_order():
    entries = [["b", 2.0], ["a", "1"], ["c", float("nan")], ["d", None]]
    document = {"events": [{"message": text, "timestamp": time} for text, time in entries]}
    assert texts_of(document) == ["b", "a", "c", "d"]


def test_an_answer_is_bounded(monkeypatch):
    document = json.dumps(loki(HEALTHY.splitlines())).encode()
    monkeypatch.setattr(log_store_answers, "MAX_ANSWER", len(document) - 1)
    with pytest.raises(NcclLogError, match="ask it for fewer lines"):
        judged(document, 1000)


@pytest.mark.parametrize("document", [b'{"hits":[' * 100_000, b'[{"events":[' * 100_000, b'{"resultType":"streams"'])
def test_a_document_nested_without_end_is_no_answer(document):
    assert judged(document)["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    ("total", "refused"), [({"value": 4, "relation": "eq"}, True), (4, True), ({"value": 3}, False), (None, False)]
)
def test_a_part_of_the_lines_that_a_store_found_is_refused(total, refused):
    """Elasticsearch answers with ten lines unless it is asked for more: no verdict stands on those."""
    hits = [{"_source": {"@timestamp": time, "message": line}} for time, line in timed(["a", "b", "c"])]
    answer = json.dumps({"hits": {"total": total, "hits": hits}}).encode()
    if refused:
        with pytest.raises(NcclLogError, match="found 4 lines and this answer holds 3"):
            texts_of(json.loads(answer))
    else:
        assert texts_of(json.loads(answer)) == ["a", "b", "c"]
