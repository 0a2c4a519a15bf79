"""Invariants for any input: arbitrary bytes, cuts anywhere, ranks in any order."""

from __future__ import annotations

import io
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reports import explain_forms
from reports.explain_forms import to_markdown
from seatrial.logs import Partial, conclude, merge, read
from tests.logs.logmaker import Maker, table_of

CALM = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck), derandomize=True)
MAKERS = (
    Maker(),
    Maker(version="2.7.8"),
    Maker(version="2.18.3", channels=3),
    Maker(socket_ranks=(1,)),
    Maker(net="Socket"),
    Maker(no_gdr_hosts=("gpu-node-1",)),
    Maker(stop="init"),
    Maker(gpus=1, pxn=True),
)
WORDS = (
    b"NCCL INFO ",
    b"NCCL WARN ",
    b"gpu-node-0:1000:1000 [0] ",
    b" -> ",
    b" via NET/IB/0/GDRDMA",
    b"Channel 00/0 : 0[0]",
    b"\n",
    b"\r",
    b"\r\n",
    b"\x1b[31m",
    b"\x00",
    b"# ",
    b" float ",
    b"  ",
    b"1e999",
    b"nan",
    b"-1",
    b"9" * 30,
    b"#wrong",
    b"algbw busbw time",
    b"Avg bus bandwidth : ",
    b"Out of bounds values : ",
    b"comm 0x1 rank 0 nranks 2",
    b" - Init START",
    b" - Init COMPLETE",
    b"{",
    b'"log":"',
    b"[1,0]<stdout>:",
    b"Last error:",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4",
)
TEXT = st.lists(st.one_of(st.sampled_from(WORDS), st.binary(max_size=12)), max_size=80).map(b"".join)


def of(*logs: bytes, chunk: int = 1 << 20) -> Partial:
    """Read logs, each in chunks of some size."""
    return read(
        [(f"log{n}", iter([log[at : at + chunk] for at in range(0, len(log), chunk)])) for n, log in enumerate(logs)]
    )


def text_of(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def said(job: dict) -> dict:
    """Return a job document without file names and lines."""
    faults = [(fault["fault"], fault["subject"], fault["why"]) for fault in job["faults"]]
    return {**{key: value for key, value in job.items() if key not in ("files", "faults")}, "faults": faults}


@given(TEXT)
@CALM
def test_any_bytes_end_in_documents(log):
    """Every form of the answer can be written for any input, without NaN and control characters."""
    jobs = conclude(Partial.from_dict(json.loads(json.dumps(of(log).to_dict(), allow_nan=False))))
    text = explain_forms.to_text(jobs, color=False) + to_markdown(jobs) + explain_forms.to_json(jobs)
    assert "\x1b" not in text
    assert "\x00" not in text


@given(TEXT, st.integers(1, 50))
@CALM
def test_chunks_do_not_matter(log, size):
    """Equal bytes in pieces of any size have the same result."""
    if log[:2] not in (b"{", b"[") and b"{" not in log:  # the first piece determines the format
        assert conclude(of(log)) == conclude(of(log, chunk=size))


@given(st.sampled_from(MAKERS), st.randoms(use_true_random=False), st.booleans())
@CALM
def test_interleaving_does_not_change_the_verdict(maker, random, table):
    """Lines in one stream, in any order that keeps each rank's own order, yield the same document."""
    queues = [list(lines) for lines in maker.processes().values()]
    tail = table_of(maker) if table and not maker.stop else []
    plain = [line for lines in queues for line in lines]
    mixed = []
    while queues := [queue for queue in queues if queue]:
        mixed.append(random.choice(queues).pop(0))
    (one,), (other,) = conclude(of(text_of(plain + tail))), conclude(of(text_of(mixed + tail)))
    assert said(one) == said(other)


@given(st.sampled_from(MAKERS), st.randoms(use_true_random=False))
@CALM
def test_parts_conclude_what_the_whole_concludes(maker, random):
    """Any split of the ranks over pods, merged in any order, equals the analysis of the whole."""
    ranks = list(maker.processes().values())
    pods: list[list[str]] = [[], [], []]
    for lines in ranks:
        random.choice(pods).extend(lines)
    logs = [text_of(pod) for pod in pods if pod]
    whole = conclude(of(*logs), one_job=True)[0]
    parts = [Partial.from_dict(json.loads(json.dumps(of(log).to_dict()))) for log in logs]
    random.shuffle(parts)
    assert said(conclude(merge(parts), one_job=True)[0]) == said(whole)


@given(st.sampled_from(MAKERS), st.floats(0, 1))
@CALM
def test_a_cut_never_makes_a_log_better(maker, where):
    """A truncated log is go only if the whole one is, and never shows a transport that the whole one does not."""
    log = text_of([line for lines in maker.processes().values() for line in lines] + table_of(maker))
    (whole,) = conclude(of(log))
    for job in conclude(of(log[: int(len(log) * where)])):
        assert job["verdict"] != "go" or whole["verdict"] == "go"
        assert job["inter_node_transport"] in (whole["inter_node_transport"], "unknown", "none", "ib")


@given(st.binary(min_size=1, max_size=300).filter(lambda raw: b"\n" not in raw), st.integers(1, 4))
@CALM
def test_what_is_in_front_of_lines_does_not_matter(front, times):
    """An unknown prefix on every line changes neither ranks nor transport."""
    prefix = b"".join(bytes((byte,)) for byte in front if chr(byte) in "abcdefXYZ0123456789.-T ")[:40] + b" " * times
    maker = Maker()
    log = text_of([line for lines in maker.processes().values() for line in lines])
    (job,) = conclude(read([("x", io.BytesIO(b"".join(prefix + line for line in log.splitlines(keepends=True))))]))
    assert (job["ranks"], job["nodes"], job["inter_node_transport"], job["gdr"]) == (4, 2, "ib", True)
