"""Several cores and one core produce the same state, to the byte, also if a process cannot start or dies."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal

import pytest

from seatrial.logs import open_sources, parallel, read
from seatrial.logs.reader import scan
from seatrial.logs.reader.scan import read as read_alone
from tests.logs.test_nccl_blocks import log_of


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Set small blocks and three workers from the first block on."""
    monkeypatch.setattr(scan, "BLOCK", 1 << 13)
    monkeypatch.setattr(parallel, "START", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr("threading.active_count", lambda: 1)


@pytest.fixture
def logs(tmp_path):
    """Return several logs, some smaller than a block."""
    for seed in range(6):
        log = log_of(seed)
        (tmp_path / f"{seed}.log").write_bytes(log if seed % 2 else log[: 3000 + seed])
    return [str(path) for path in sorted(tmp_path.iterdir())]


def same(logs: list[str]) -> bool:
    return json.dumps(read(open_sources(logs)).to_dict()) == json.dumps(read_alone(open_sources(logs)).to_dict())


def test_workers_say_what_one_process_says(logs, monkeypatch):
    hired = []
    hire = parallel._Crew.hire
    monkeypatch.setattr(parallel._Crew, "hire", lambda crew: (hire(crew), hired.append(len(crew.workers))))
    assert same(logs)
    assert hired == [3]
    assert not [child for child in multiprocessing.active_children() if child.name.startswith("ForkProcess")]


def test_where_no_process_can_be_started_one_does_all(logs, monkeypatch):
    def refused(*_):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("multiprocessing.context.ForkProcess.start", refused)
    assert same(logs)


def test_a_worker_that_dies_takes_nothing_with_it(logs, monkeypatch):
    """A dead worker's block is digested here, and the others continue."""
    hire = parallel._Crew.hire

    def one_dies(crew):
        hire(crew)
        os.kill(crew.workers[0].process.pid, signal.SIGKILL)

    monkeypatch.setattr(parallel._Crew, "hire", one_dies)
    assert same(logs)


def test_a_worker_that_is_late_is_not_waited_for(logs, monkeypatch):
    """A worker without a free core is not waited for: its block is digested here."""
    hire = parallel._Crew.hire

    def one_stops(crew):
        hire(crew)
        os.kill(crew.workers[0].process.pid, signal.SIGSTOP)

    monkeypatch.setattr(parallel._Crew, "hire", one_stops)
    assert same(logs)


def test_blocks_are_handed_over_together(logs, monkeypatch):
    """Each digest has a cost when applied; one may be larger than its span."""
    monkeypatch.setattr("seatrial.logs.sources.CHUNK", 1 << 9)
    monkeypatch.setattr(scan, "BLOCK", 1 << 10)
    monkeypatch.setattr(parallel, "_SPAN", 1 << 12)
    monkeypatch.setattr(parallel, "_ROOM", 1 << 12)
    spans = []
    share = parallel._Crew.share
    monkeypatch.setattr(parallel._Crew, "share", lambda *given: (share(*given), spans.append(list(map(len, given[2])))))
    assert same(logs)
    assert max(map(len, spans)) > 2
    assert len(spans) > 3 * len(logs)
    assert max(sum(span) for span in spans if len(span) > 1) <= 1 << 12


def test_a_small_log_starts_none(logs, monkeypatch):
    monkeypatch.setattr(parallel, "START", 1 << 30)
    monkeypatch.setattr(parallel._Crew, "hire", lambda _: pytest.fail("a worker for a small log"))
    assert same(logs)
