"""Shared resources of ranks when one leaves early: no rank removes or closes a resource that another may still use."""

from __future__ import annotations

import errno
import os
import signal
import threading
from pathlib import Path

import pytest

from jobs.pod.stages import barrier, checkpoint, network, storage
from jobs.pod.stages.barrier import Barrier
from tests.waiting import HANG_S, until

from .conftest import connected, together
from .test_probe_checkpoint import STANDIN, asks, left
from .test_probe_storage import section, wants


class Order:
    """Holds one rank at a point of its work until another has completed its own, or waits for the held one."""

    def __init__(self, monkeypatch) -> None:
        self._leaves, self._held = threading.Event(), threading.local()
        asked = Barrier.through

        def through(barrier: Barrier, topic: str, limit_s: float) -> bool:
            if not self.here:
                self._leaves.set()
            return asked(barrier, topic, limit_s)

        monkeypatch.setattr(Barrier, "through", through)

    def early(self, job):
        """Create a job's rank that may leave."""

        def run():
            try:
                return job()
            finally:
                self._leaves.set()

        return run

    def late(self, job):
        """Create a job's rank that is held."""

        def run():
            self._held.here = True
            return job()

        return run

    @property
    def here(self) -> bool:
        """Say whether this is the late rank."""
        return getattr(self._held, "here", False)

    def hold(self) -> None:
        """Hold the late rank at this point."""
        if self.here:
            assert self._leaves.wait(HANG_S)


@pytest.fixture
def order(monkeypatch) -> Order:
    return Order(monkeypatch)


def patched(path: Path, *changes: tuple[str, str]) -> None:
    """Replace texts of a shipped file, each exactly once."""
    text = path.read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path.write_text(text)


# -- the checkpoint's folder -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_without_room_ends_while_another_still_looks(pods, tmp_path: Path, late: int) -> None:
    """The reason is reported by all ranks; a later rank finds the path unchanged, without any file."""
    place, gate = tmp_path / "shared", tmp_path / "gate"
    place.mkdir()
    pods.tool("torchrun", STANDIN)
    pods.trial.update(checkpoint=asks(place), collectives=[])
    wait = f'while os.environ["JOB_COMPLETION_INDEX"] == "{late}" and not os.path.exists({str(gate)!r}):'
    patched(
        pods.here / "stages" / "checkpoint.py",
        ("    gone = []\n", f"    gone = []\n    {wait}\n        time.sleep(0.01)\n"),
        ('needed = self.asked["bytes"]', f'needed = (self.me.rank == {1 - late}) << 60 or self.asked["bytes"]'),
    )
    for rank in range(2):
        pods.start(rank)
    stages_of = {1 - late: pods.stages(1 - late)}
    assert left(place) == []
    gate.touch()
    stages_of[late] = pods.stages(late)
    for stages in stages_of.values():
        assert "of the free space" in stages["checkpoint"]["skipped"]
        assert stages["checkpoint"]["error"] is None
    assert left(place) == []


@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_that_cannot_write_leaves_the_folder_to_one_that_still_prepares(
    sides, order: Order, tmp_path: Path, late: int
) -> None:
    made = connected(sides(2, checkpoint=asks(tmp_path)))
    stages = [checkpoint.Checkpoint(s.trial, s.barrier.rendezvous.me, s.watch, s.barrier, "", "") for s in made]
    prepare, there = checkpoint.Checkpoint._prepare, []

    def refused(data: dict, role: str, place: str) -> str:
        prepare(stages[1 - late], data, role, place)
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    def held(data: dict, role: str, place: str) -> str:
        prepare(stages[late], data, role, place)
        order.hold()
        there.append(Path(place, checkpoint.MARK).exists())
        return ""

    stages[late]._prepare, stages[1 - late]._prepare = held, refused  # type: ignore[method-assign]
    data = [checkpoint.blank(), checkpoint.blank()]
    jobs = [lambda rank=rank: stages[rank].work(data[rank], "") for rank in range(2)]
    jobs[late], jobs[1 - late] = order.late(jobs[late]), order.early(jobs[1 - late])
    assert together(*jobs) == ["skipped", "skipped"]
    assert there == [True]
    assert all("Disk quota exceeded (EDQUOT)" in each["skipped"] for each in data)
    assert [each["error"] for each in data][late] is None
    assert left(tmp_path) == []


def test_a_pod_that_is_drained_leaves_the_folder_to_the_others(pods, tmp_path: Path) -> None:
    """Only that pod is asked to stop, while another flushes: the other one reports the stopped pod, and removes the
    folder."""
    place, gate = tmp_path / "shared", tmp_path / "gate"
    place.mkdir()
    pods.tool("torchrun", STANDIN)
    pods.trial.update(checkpoint=asks(place), collectives=[])
    flush = "        sums: Dict[str, str] = {}\n        began"
    begun = f'        open({str(gate)!r} + str(self.me.rank), "w").close()\n'
    wait = f"        while not (self.watch.stopped() if self.me.rank else os.path.exists({str(gate)!r})):\n"
    patched(pods.here / "stages" / "checkpoint.py", (flush, begun + wait + "            time.sleep(0.01)\n" + flush))
    for rank in range(2):
        pods.start(rank)
    until(lambda: all(Path(f"{gate}{rank}").exists() for rank in range(2)), "both flush")
    pods.processes[1].send_signal(signal.SIGTERM)
    pods.stages(1, code=143)
    gate.touch()
    assert pods.stages(0)["checkpoint"]["error"] == "rank 1: it was stopped: SIGTERM"
    assert left(place) == []


# -- storage and network -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [0, 1])
def test_files_stay_while_a_slower_peer_reads_them(sides, order: Order, monkeypatch, tmp_path: Path, late: int) -> None:
    """A rank that stops waiting continues, and keeps its files until the probe's end."""
    made = connected(sides(2, storage=section(wants(tmp_path))))
    stages = [storage.Storage(s.trial, s.barrier.rendezvous.me, s.watch, s.barrier, set()) for s in made]
    awaited = storage.awaited

    def held(*asked):
        order.hold()
        if late == 0 and order.here:  # rank 1 withdrew its yes, and the message has arrived
            heard = stages[0].barrier._messages
            until(lambda: any(word["objection"] for word in [*heard.values()]), "rank 1's last message")
        return awaited(*asked)

    monkeypatch.setattr(storage, "awaited", held)
    monkeypatch.setattr(barrier, "PARTING_S", 0.0)
    stages[1 - late]._patience = lambda: 0.0 if order.written else HANG_S  # type: ignore[attr-defined,method-assign]
    written = stages[1 - late].barrier.agree

    def agree(topic: str, objection: str, limit_s: float) -> tuple[bool, str]:
        answer = written(topic, objection, limit_s)
        order.written = True  # type: ignore[attr-defined]
        return answer

    order.written = False  # type: ignore[attr-defined]
    monkeypatch.setattr(stages[1 - late].barrier, "agree", agree)
    data = [{}, {}]
    jobs = [lambda rank=rank: stages[rank].run(data[rank]) for rank in range(2)]
    jobs[late], jobs[1 - late] = order.late(jobs[late]), order.early(jobs[1 - late])
    together(*jobs)
    (read,) = data[late]["paths"]
    assert (read["peer_file_ok"], read["error"]) == (True, None)
    assert stages[1 - late].places == {str(tmp_path / f".seatrial-r-test-{1 - late}")}


def test_a_rank_answers_a_slower_peer_though_a_third_is_gone(sides, order: Order, monkeypatch) -> None:
    """A lost pod says nothing about the network between the two others: full-size packets pass."""
    made = connected(sides(3))
    attempt = network._try

    def held(record: dict, *asked) -> None:
        if record["index"] == 0:
            order.hold()
        attempt(record, *asked)

    monkeypatch.setattr(network, "_try", held)
    data = [{}, {}]

    def lost() -> None:
        made[2].barrier.posted(network.TOPIC, 0, HANG_S)
        made[2].rendezvous.leave()

    def job(rank: int):
        return lambda: network.run(data[rank], made[rank].rendezvous, made[rank].barrier, {"seconds": 0})

    monkeypatch.setattr(network, "OFFER_S", HANG_S)
    together(order.early(job(0)), order.late(job(1)), lost)
    assert data[1]["peers"][0]["df_ok"] is True, data[1]["peers"][0]


# -- the barrier -------------------------------------------------------------------------------------------------------


def test_a_yes_that_waited_too_long_is_taken_back(sides) -> None:
    """Otherwise the others would continue and look for files that the departed rank has removed."""
    one, other = connected(sides(2))
    assert other.barrier.agree("ring", "", 0) == (False, "rank 0 did not decide in time")
    until(lambda: one.barrier.decided("ring"), "the no of rank 1")
    assert one.barrier.agree("ring", "", HANG_S) == (False, "rank 1: it did not wait for rank 0 any longer")


def test_all_are_through_when_each_has_said_so_or_is_gone(sides, monkeypatch) -> None:
    made = connected(sides(3))
    made[2].rendezvous.leave()
    gone, looks = made[0].barrier._gone, []
    monkeypatch.setattr(made[0].barrier, "_gone", lambda: looks.append(gone()) or looks[-1])
    said = []

    def last() -> bool:
        until(lambda: looks.count([2]) > 2, "rank 0 has seen that rank 2 is gone")
        said.append(1)
        return made[1].barrier.through("end", HANG_S)

    def first() -> tuple[bool, list[int]]:
        return made[0].barrier.through("end", HANG_S), list(said)

    assert together(first, last) == [(True, [1]), True]


@pytest.mark.parametrize("ranks", [2, 3])
def test_of_more_than_two_ranks_no_one_is_through_without_rank_0(sides, ranks: int) -> None:
    """The remaining one of two knows its own state; of three none does."""
    made = connected(sides(ranks))
    made[0].rendezvous.leave()
    assert made[1].barrier.through("end", HANG_S) is (ranks == 2)


def test_a_rank_that_is_to_stop_does_not_wait_for_the_others(sides, monkeypatch) -> None:
    monkeypatch.setattr(barrier, "PARTING_S", 0.0)
    one, other = connected(sides(2))
    other.watch.stop("SIGTERM")
    assert other.barrier.through("end", HANG_S) is False
    assert one.barrier.through("end", HANG_S) is True


def test_a_last_word_is_heard_before_the_end_of_who_said_it(sides, monkeypatch) -> None:
    """An objection that arrives while a rank checks for peers is the reason, instead of the missing pod."""
    one, other = connected(sides(2))
    channels = one.rendezvous.channels

    said: list[bool] = []

    def closes(rank: int) -> list:
        if not said:
            said.append(
                other.barrier._send(0, {"seatrial": 1, "kind": "ready", "topic": "ring", "objection": "no torchrun"})
            )
            other.rendezvous.leave()
            until(lambda: not channels(rank), "the end of rank 1")
        return channels(rank)

    monkeypatch.setattr(one.rendezvous, "channels", closes)
    assert one.barrier.agree("ring", "", HANG_S) == (False, "rank 1: no torchrun")
