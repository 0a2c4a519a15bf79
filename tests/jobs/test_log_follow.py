"""Every line of a log is read exactly once, despite breaks, rotation, torn lines and waiting containers; files are
redacted."""

import json
import random
import threading
import time
from pathlib import Path

import pytest

from jobs.run.evidence import EvidenceReader
from jobs.run.logs import Follower, Resume, tail
from tests.waiting import HANG_S

RUN = "r1"


class Log:
    """A container's log as the kubelet serves it: timestamps, sinceTime in whole seconds, follow."""

    def __init__(self, lines):
        self.lines = lines  # (seconds, text)
        self.requests = 0

    def serve(self, since):
        start = int(since[17:19]) if since else -1
        return [b"%s %s\n" % (stamp(at).encode(), text) for at, text in self.lines if int(at) >= start]


def stamp(at):
    return f"2026-01-01T00:00:{int(at):02d}.{round((at % 1) * 1e9):09d}Z"


def evidence(n, stage, rank=0):
    return json.dumps(
        {"seatrial": 1, "run": RUN, "rank": rank, "n": n, "stage": stage, "seconds": 1, "data": {"k": n}}
    ).encode()


def follow(kube, tmp_path, finished=lambda: True, **more):
    follower = Follower(
        kube,
        "p",
        namespace="ns",
        container="trial",
        reader=EvidenceReader(RUN),
        finished=finished,
        file=tmp_path / "logs" / "p.log",
        **more,
    )
    follower.start()
    return follower


def test_a_log_is_followed_to_its_end(kube, api, tmp_path):
    """The file has no timestamps; evidence is read during the run; rank 0's stages are reported at their start, not at
    their end."""
    told = [b"[1,0]<stdout>:seatrial rank 0: dns starts", b"seatrial rank 1: port starts", b"rank 0: x starts"]
    lines = [b"hello", b"seatrial rank 0: start starts", evidence(1, "start"), *told, evidence(2, "end")]
    log = Log([(1.0 + number / 2, line) for number, line in enumerate(lines)])
    api.answer = lambda asked: (200, {}, iter(log.serve(asked.query.get("sinceTime"))))
    stages = []
    follower = follow(kube, tmp_path, on_stage=stages.append)
    assert follower.join(HANG_S)
    assert follower.file.read_text().splitlines()[0] == "hello"
    assert follower.reader.result().complete and stages == ["start", "dns"]
    assert api.asked[0].query["timestamps"] == "true" and api.asked[0].query["container"] == "trial"


def test_what_rank_0_measured_is_reported_as_it_is_printed(kube, api, tmp_path):
    """Measurements are reported also after mpirun's tag; output of other ranks and similar lines are ignored."""
    told = [
        b"seatrial rank 0: collective.ring: 8 GiB 383.4 GB/s",
        b"[1,0]<stdout>:seatrial rank 0: collective.sendrecv: 1 GiB 47.3 GB/s",
        b"seatrial rank 1: collective.node: 8 GiB 480.1 GB/s",
        b"seatrial rank 0: collective.ring: 8 GiB 383.4 GB/s and more",
    ]
    log = Log([(1.0 + number / 2, line) for number, line in enumerate([*told, evidence(1, "end")])])
    api.answer = lambda asked: (200, {}, iter(log.serve(asked.query.get("sinceTime"))))
    heard = []
    assert follow(kube, tmp_path, waits=heard.append).join(HANG_S)
    assert heard == ["rank 0: collective.ring: 8 GiB 383.4 GB/s", "rank 0: collective.sendrecv: 1 GiB 47.3 GB/s"]


def test_breaks_lose_and_double_nothing(kube, api, tmp_path, drop):
    """The connection breaks anywhere, also within a line; many lines share a second, some even a timestamp."""
    rng = random.Random(3)
    lines, at = [], 1.0
    for i in range(300):
        at += rng.choice([0, 0, 0.0001, 0.2])
        lines.append((at, b"line %d%s" % (i, b"" if rng.random() < 0.9 else b" same")))
    lines += [(at, b"twin"), (at, b"twin"), (at + 1, evidence(1, "end"))]
    log = Log(lines)
    breaks = iter([rng.randrange(50, 3000) for _ in range(10)])

    def answer(asked):
        data = b"".join(log.serve(asked.query.get("sinceTime")))
        cut = next(breaks, None)
        pieces = [data[i : i + 97] for i in range(0, len(data if cut is None else data[:cut]), 97)]
        return 200, {}, iter(pieces if cut is None else [*pieces, drop])

    api.answer = answer
    done = []
    follower = follow(kube, tmp_path, finished=lambda: len(api.asked) > 11 or bool(done))
    assert follower.join(HANG_S)
    written = follower.file.read_text().splitlines()
    assert written == [text.decode() for _, text in lines]
    assert not follower.gap


def test_a_rotation_between_connections_is_known(kube, api, tmp_path, drop):
    """The kubelet serves only the newest file: new lines are kept, and the gap is reported."""
    first, second = Log([(1.0, b"a"), (1.1, b"b")]), Log([(1.4, b"x"), (1.5, b"y"), (2.0, evidence(3, "end"))])

    def answer(asked):
        if len(api.asked) == 1:
            return 200, {}, iter([*first.serve(None), drop])
        return 200, {}, iter(second.serve(asked.query.get("sinceTime")))

    api.answer = answer
    follower = follow(kube, tmp_path, finished=lambda: len(api.asked) > 2)
    assert follower.join(HANG_S)
    assert follower.file.read_text().splitlines()[:4] == ["a", "b", "x", "y"]
    assert follower.gap and follower.reader.result().missing == (1, 2)


def test_a_container_that_is_not_started_is_waited_for(kube, api, tmp_path):
    """400 'is waiting to start: ContainerCreating' is not an error yet."""
    waiting = {
        "kind": "Status",
        "code": 400,
        "reason": "BadRequest",
        "message": 'container "trial" in pod "p" is waiting to start: ContainerCreating',
    }
    log = Log([(1.0, evidence(1, "end"))])
    api.answer = lambda _: (400, {}, waiting) if len(api.asked) < 4 else (200, {}, iter(log.serve("")))
    follower = follow(kube, tmp_path, finished=lambda: len(api.asked) >= 4)
    assert follower.join(HANG_S) and follower.reader.ended and not follower.problem


def test_a_pod_that_ended_without_a_log_ends_the_waiting(kube, api, tmp_path):
    """The pod was evicted before its container ran, or was deleted."""
    for code in (400, 404):
        api.answer = lambda _, code=code: (code, {}, {"reason": "x", "message": "no log"})
        follower = follow(kube, tmp_path)
        assert follower.join(HANG_S) and "no log" in follower.problem


@pytest.mark.parametrize("code", [401, 403, 404, 500, 503])
def test_a_restarted_api_server_refuses_for_a_moment_and_costs_nothing(kube, api, tmp_path, code):
    """In mid-stream the server returns 403 (roles not read yet), 401, 404 or 5xx; then the log continues."""
    log = Log([(1.0, b"before"), (2.0, evidence(1, "start")), (3.0, evidence(2, "end"))])
    done = threading.Event()

    def answer(asked):
        number = len(api.asked)
        if number == 1:
            return 200, {}, iter(log.serve("")[:2])
        if number < 4:
            return code, {}, {"reason": "x", "message": "not now"}
        done.set()
        return 200, {}, iter(log.serve(asked.query.get("sinceTime")))

    api.answer = answer
    follower = follow(kube, tmp_path, finished=done.is_set)
    assert follower.join(HANG_S) and follower.reader.result().complete and not follower.problem
    assert follower.file.read_text().count("before") == 1


def test_what_the_probe_waits_for_is_reported(kube, api, tmp_path):
    """A silent minute looks like a hang; other lines of the probe stay in the log."""
    said = b"seatrial rank 1: dns: waits for t-0.t, NXDOMAIN for 6 s: its pod has not started"
    log = Log([(1.0, b"seatrial rank 1: dns: 1 of 2 names resolve"), (1.1, said), (2.0, evidence(1, "end"))])
    api.answer = lambda asked: (200, {}, iter(log.serve(asked.query.get("sinceTime"))))
    waits = []
    follower = follow(kube, tmp_path, waits=waits.append)
    assert follower.join(HANG_S)
    assert waits == [said.decode().removeprefix("seatrial ")]


def test_a_refusal_that_lasts_names_the_right_that_is_missing(kube, api, tmp_path, monkeypatch):
    """While the container runs the request is retried; after its end only as long as a server restart takes."""
    monkeypatch.setattr("jobs.run.logs._REFUSED_S", 0.3)
    api.answer = lambda _: (403, {}, {"reason": "Forbidden", "message": "pods/log is forbidden"})
    follower = follow(kube, tmp_path, finished=lambda: len(api.asked) > 2)
    assert follower.join(HANG_S)
    assert "pods/log is forbidden" in follower.problem and "no permission to get pods/log" in follower.problem
    assert 3 <= len(api.asked) < 10


def test_a_follower_that_was_ended_too_early_goes_on(kube, api, tmp_path):
    """A list without the pod ended it; later lines are read, none twice."""
    log = Log([(1.0, b"one")])
    api.answer = lambda asked: (200, {}, iter(log.serve(asked.query.get("sinceTime"))))
    follower = follow(kube, tmp_path)
    assert follower.join(HANG_S) and not follower.reader.ended
    log.lines += [(1.5, b"two"), (2.0, evidence(1, "end"))]
    follower.start()
    assert follower.join(HANG_S) and follower.reader.ended
    assert follower.file.read_text().splitlines()[:2] == ["one", "two"]
    asked = len(api.asked)
    follower.start()  # it has read everything
    assert follower.join(HANG_S) and len(api.asked) == asked


def test_an_unterminated_last_line_is_kept_once(kube, api, tmp_path):
    """The program ends without a newline."""
    data = b"".join(Log([(1.0, b"one")]).serve("")) + b"%s last words" % stamp(1.5).encode()
    api.answer = lambda _: (200, {}, iter([data]))
    finished = []
    follower = follow(kube, tmp_path, finished=lambda: len(api.asked) >= 2 or bool(finished))
    assert follower.join(HANG_S)
    assert follower.file.read_text() == "one\nlast words\n"


def test_secrets_escapes_and_broken_bytes_do_not_reach_the_file(kube, api, tmp_path):
    """The file contains only what a report may show."""
    log = Log(
        [
            (1.0, b"\x1b[31mNGC_KEY=abcdefgh\x1b[0m \xff"),
            (1.1, b"-----BEGIN PRIVATE KEY-----"),
            (1.2, b"c2VjcmV0"),
            (1.3, b"-----END PRIVATE KEY-----"),
        ]
    )
    api.answer = lambda _: (200, {}, iter(log.serve("")))
    follower = follow(kube, tmp_path)
    assert follower.join(HANG_S)
    text = follower.file.read_text()
    assert "abcdefgh" not in text and "c2VjcmV0" not in text and "\x1b" not in text and "NGC_KEY=[REDACTED]" in text


def test_a_file_stays_within_its_bound_and_evidence_is_still_read(kube, api, tmp_path, monkeypatch):
    """A program with endless output must neither fill the disk nor hide later evidence."""
    monkeypatch.setattr("jobs.run.logs.LARGEST_FILE", 10_000)
    log = Log([(1.0, b"x" * 500)] * 100 + [(2.0, evidence(1, "end"))])
    api.answer = lambda _: (200, {}, iter(log.serve("")))
    follower = follow(kube, tmp_path)
    assert follower.join(HANG_S) and follower.reader.ended
    assert follower.file.stat().st_size < 12_000 and "cut here by seatrial" in follower.file.read_text()


def test_a_line_without_end_is_cut(kube, api, tmp_path):
    """Memory is bounded by the line limit, not by the program."""
    api.answer = lambda _: (200, {}, iter([stamp(1).encode() + b" "] + [b"y" * 500_000] * 6))
    follower = follow(kube, tmp_path)
    assert follower.join(HANG_S)
    assert max(len(line) for line in follower.file.read_text().splitlines()) <= 16_384


def test_a_follower_can_be_stopped_at_once(kube, api, tmp_path):
    """A follower stops while the server is silent, and while the container never starts."""

    reading, end = threading.Event(), threading.Event()

    def silent():
        yield b""
        reading.set()
        end.wait(HANG_S)

    api.answer = lambda _: (200, {}, silent())
    follower = follow(kube, tmp_path, finished=lambda: False)
    assert reading.wait(HANG_S)
    began = time.monotonic()
    follower.stop()
    assert time.monotonic() - began < HANG_S / 2
    end.set()


def test_a_folder_that_cannot_be_written_is_no_crash(kube, api, tmp_path):
    """The evidence is more important than the file: it is still read, and the problem is reported as local."""
    (tmp_path / "logs").write_text("a file where the folder should be")
    log = Log([(1.0, b"hello"), (1.5, evidence(1, "start")), (2.0, evidence(2, "end"))])
    api.answer = lambda asked: (200, {}, iter(log.serve(asked.query.get("sinceTime"))))
    follower = follow(kube, tmp_path)
    assert follower.join(HANG_S) and follower.reader.ended
    assert (follower.problem, "not kept whole" in follower.unkept) == ("", True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full, which simulates a full disk, is missing")
def test_our_own_full_disk_costs_the_file_and_no_evidence(kube, api, tmp_path):
    """ENOSPC while a log was saved once ended the reading, and that rank's node was reported as sending no evidence."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "p.log").symlink_to("/dev/full")
    log = Log([(1.0, b"hello"), (1.5, evidence(1, "start")), (2.0, evidence(2, "end"))])
    api.answer = lambda asked: (200, {}, iter(log.serve(asked.query.get("sinceTime"))))
    follower = follow(kube, tmp_path)
    assert follower.join(HANG_S) and follower.reader.ended
    assert "No space left on device" in follower.unkept
    assert follower.problem == ""


def test_resuming_drops_exactly_what_was_seen():
    """No line is lost or repeated, even with a server that ignores sinceTime and repeats everything."""
    resume = Resume()
    sent = [("00:01", b"a"), ("00:02", b"b"), ("00:02", b"b"), ("00:02", b"c")]
    resume.again()
    assert all(resume.new(*line) for line in sent)
    resume.again()
    assert [resume.new(*line) for line in [*sent, ("00:02", b"c"), ("00:03", b"d")]] == [False] * 4 + [True, True]
    assert resume.second == "00:03"


def test_the_tail_of_a_container_without_a_log_is_empty(kube, api):
    """The container has not started, or was deleted."""
    api.answer = lambda _: (400, {}, {"message": "is waiting to start"})
    assert tail(kube, "ns", "p", "c", 10) == []
    api.answer = lambda _: (200, {}, b"a TOKEN=abc\nb")
    assert tail(kube, "ns", "p", "c", 10) == ["a TOKEN=[REDACTED]", "b"]


@pytest.mark.parametrize("cut", [10, 60, 150, 200])
def test_an_end_that_only_looks_like_one_is_not_believed(kube, api, tmp_path, cut):
    """A kubelet's broken connection looks like a clean end, also within a line; no line is lost or doubled."""
    log = Log([(1.0, b"hello"), (1.5, evidence(1, "start")), (2.0, b"world"), (2.2, evidence(2, "end"))])

    def answer(asked):
        log.requests += 1
        text = b"".join(log.serve(asked.query.get("sinceTime")))
        return 200, {}, iter([text[:cut] if log.requests <= 2 else text])

    api.answer = answer
    follower = follow(kube, tmp_path)
    assert follower.join(HANG_S)
    assert follower.reader.result().complete
    lines = follower.file.read_text().splitlines()
    assert lines == ["hello", evidence(1, "start").decode(), "world", evidence(2, "end").decode()]


def test_a_log_that_really_ends_early_is_given_up(kube, api, tmp_path):
    """A killed container's log has no end line, and may stop within a line; a few reads prove it."""
    log = Log([(1.0, b"hello"), (1.5, evidence(1, "start"))])

    def answer(asked):
        log.requests += 1
        return 200, {}, iter([*log.serve(asked.query.get("sinceTime")), stamp(1.6).encode() + b" torn"])

    api.answer = answer
    follower = follow(kube, tmp_path)
    assert follower.join(HANG_S)
    assert not follower.reader.result().complete
    assert follower.file.read_text().splitlines() == ["hello", evidence(1, "start").decode(), "torn"]
    assert log.requests <= 5


@pytest.mark.parametrize("hours", [9, -8])
def test_a_node_in_another_time_zone_loses_nothing(kube, api, tmp_path, drop, hours):
    """The runtime's local time, read as UTC, would request future lines after a break and get none."""
    log = Log([(at, b"line %d" % at) for at in range(1, 20)] + [(20, evidence(1, "end"))])
    zone = b"%s%02d:00" % (b"+" if hours > 0 else b"-", abs(hours))
    asked_for = []

    def served(since):
        asked_for.append(since)
        for line in log.serve(since):
            moment, _, text = line.partition(b"Z ")
            hour = (int(moment[11:13]) + hours) % 24
            day = b"2025-12-31" if hours < 0 else b"2026-01-01"
            yield b"%sT%02d%s%s %s" % (day, hour, moment[13:], zone, text)
            if len(asked_for) == 1 and b"line 7\n" in line:
                yield drop
                return

    api.answer = lambda asked: (200, {}, served(asked.query.get("sinceTime")))
    follower = follow(kube, tmp_path)
    assert follower.join(HANG_S)
    assert asked_for[1] == "2026-01-01T00:00:07Z"
    assert follower.file.read_text().splitlines()[:19] == [f"line {at}" for at in range(1, 20)]
