"""A dead run is distinguished from a live one by watching its lease, independent of any clock."""

import copy
import json
import threading
import types

import pytest

from jobs.cluster import renewal
from jobs.cluster.client.errors import NotFound, Unreachable
from jobs.cluster.renewal import ANNOTATION, SECONDS, Renewal, Watched, held, record, run_out, taken
from jobs.run.cleanup import Ledger
from jobs.run.creation import Creation
from jobs.trial.manifests import Owned
from tests.table import table
from tests.waiting import HANG_S, until

URL = "/apis/batch/v1/namespaces/ns/jobs/seatrial-r1"


def lease(number=0, seconds=40, when="2026-01-01T00:00:00Z"):
    return json.dumps({"holderIdentity": "laptop_7", "leaseDurationSeconds": seconds, "renewTime": when, "n": number})


def carrying(text):
    return {"metadata": {"annotations": {ANNOTATION: text}}}


class World:
    """An observer's reads, with its own clock."""

    def __init__(self, monkeypatch, read):
        self.now, self.read, self.asked = 0.0, read, 0
        monkeypatch.setattr(renewal, "time", types.SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep))

    def sleep(self, seconds):
        self.now += seconds

    def get(self, url, *, deadline_s):
        self.asked += 1
        return self.read(self)


def watched(monkeypatch, read, text=None):
    """Return whether an observer with these reads considers it dead, and when."""
    world = World(monkeypatch, read)
    dead = run_out(world, {URL: held(carrying(text or lease()))})
    return bool(dead), world.now


@pytest.mark.parametrize("when", ["2026-01-01T00:00:00Z", "1999-01-01T00:00:00Z", "2099-01-01T00:00:00Z", "yesterday"])
def test_a_lease_that_does_not_change_has_run_out_whatever_the_clocks_say(monkeypatch, when):
    """The run's clock may be years off: only the observer's own counts."""
    text = lease(when=when)
    dead, after = watched(monkeypatch, lambda world: carrying(text), text)
    assert dead
    assert 40 <= after < 46


def test_a_lease_that_changes_is_held(monkeypatch):
    """One renewal shows that the run is live, and ends the wait."""
    dead, after = watched(monkeypatch, lambda world: carrying(lease(number=int(world.now > 12))))
    assert not dead
    assert after < 20


def test_time_in_which_the_api_does_not_answer_does_not_count(monkeypatch):
    """After an outage of minutes the run gets its time to renew."""

    def read(world):
        if 10 < world.now < 200:
            world.now += 30
            raise Unreachable("http://x: GET: connection refused")
        return carrying(lease(number=int(world.now > 230)))

    assert watched(monkeypatch, read)[0] is False


def test_answers_that_take_long_do_not_count(monkeypatch):
    """With a server that responds after 20 s, no run can renew in that time."""

    def read(world):
        world.now += 20 if world.now < 200 else 0
        return carrying(lease(number=int(world.now > 220)))

    assert watched(monkeypatch, read)[0] is False


def test_an_api_server_that_stays_away_is_an_error(monkeypatch):
    """An unreadable lease does not prove that its run is dead."""

    def read(world):
        raise Unreachable("http://x: GET: connection refused")

    with pytest.raises(Unreachable):
        watched(monkeypatch, read)


def test_what_is_gone_meanwhile_is_not_dead(monkeypatch):
    """The object's own run deleted it."""

    def read(world):
        raise NotFound(f"GET {URL}", status=404, reason="NotFound")

    assert watched(monkeypatch, read)[0] is False


@table(
    "text",
    [
        "",
        "}{",
        "[]",
        "null",
        lease(seconds=0),
        lease(seconds=-1),
        lease(seconds=True),
        lease(seconds=10**9),
        lease(seconds="40"),
        "[" * 100_000,
    ],
)
def test_a_lease_that_cannot_be_read_holds_for_the_usual_time(text):
    """An unreadable lease is untrusted: the wait is not years, and the deletion is not immediate."""
    read = held(carrying(text))
    assert (read.text, read.seconds) == (text, SECONDS)


@pytest.mark.parametrize(
    "item", [{}, {"metadata": None}, {"metadata": {"annotations": []}}, carrying(7), carrying(None)]
)
def test_what_was_applied_by_hand_has_no_lease(item):
    """--print-manifests: no process renews it."""
    assert held(item) is None


def renewing(before):
    """Return the threads that renew a lease and did not run before."""
    return [each for each in set(threading.enumerate()) - before if each.name == "renewal"]


def test_a_runner_renews_until_it_stops(kube, api):
    """Each renewal differs; only the annotation is written."""
    api.answer = lambda asked: (200, {}, {})
    before = set(threading.enumerate())
    runner = Renewal(kube, URL, 0.4)
    threads = renewing(before)
    until(lambda: len(api.asked) >= 4, "four renewals")
    runner.stop()
    for thread in threads:
        thread.join(HANG_S)
        assert not thread.is_alive()
    assert {asked.verb for asked in api.asked} == {"PATCH"}
    texts = [asked.body["metadata"]["annotations"][ANNOTATION] for asked in api.asked]
    assert len(set(texts)) == len(api.asked) >= 4
    assert all(
        each.body == {"metadata": {"annotations": {ANNOTATION: text}}}
        for each, text in zip(api.asked, texts, strict=True)
    )


@pytest.mark.parametrize(("status", "reason"), [(503, "ServiceUnavailable"), (404, "NotFound"), (403, "Forbidden")])
def test_an_outage_does_not_end_the_renewals(kube, api, status, reason):
    """Requests are repeated; a restarted server does not know custom resources or permissions at first."""
    api.answer = lambda asked: (status, {}, {"reason": reason}) if len(api.asked) < 3 else (200, {}, {})
    renewing = Renewal(kube, URL, 0.4)
    until(lambda: len(api.asked) >= 5, "renewals after the outage")
    renewing.stop()


class Leased:
    """One object whose lease is read and written; `meanwhile` happens once, before the next write."""

    def __init__(self, api, text, meanwhile=None):
        meta = {"name": "seatrial-r1", "resourceVersion": "1", "annotations": {ANNOTATION: text}}
        self.item = {"metadata": meta}
        self.meanwhile = meanwhile
        api.answer = self.answer

    def answer(self, asked):
        meta = self.item["metadata"]
        if asked.verb == "PATCH":
            happens, self.meanwhile = self.meanwhile, None
            if happens:
                happens(meta)
            metadata = asked.body["metadata"]
            if metadata.get("resourceVersion", meta["resourceVersion"]) != meta["resourceVersion"]:
                return 409, {}, {"reason": "Conflict"}
            meta["annotations"] |= metadata["annotations"]
            meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)
        return 200, {}, copy.deepcopy(self.item)

    @property
    def lease(self):
        return held(self.item)


def released(seconds=1):
    return record(seconds, released=True)[ANNOTATION]


def test_a_lease_that_was_released_is_taken_at_once_and_given_back(kube, api):
    """The holder left on purpose, so there is no wait; the next one need not wait either."""
    there = Leased(api, released())
    assert there.lease.released
    with taken(kube, URL):
        assert there.lease.holder and not there.lease.released
    assert there.lease.released


def test_a_lease_that_is_renewed_is_not_taken(kube, api):
    """A live run keeps its lease."""
    there = Leased(api, lease(seconds=1))
    runner = Renewal(kube, URL, 1.0)
    try:
        with pytest.raises(Watched, match="it is being watched"), taken(kube, URL):
            pytest.fail("taken from a live runner")
    finally:
        runner.stop()
    assert not there.lease.released


def test_a_lease_that_is_released_meanwhile_is_taken(kube, api):
    """The holder has just left on purpose."""
    there = Leased(api, lease(seconds=2))
    leaving = threading.Timer(0.3, lambda: there.item["metadata"]["annotations"].update(record(2, released=True)))
    leaving.start()
    with taken(kube, URL):
        assert not there.lease.released
    leaving.join()


def test_a_lease_that_ran_out_is_taken(kube, api):
    """A killed run's lease expires."""
    there = Leased(api, lease(seconds=1))
    with taken(kube, URL):
        assert there.lease.holder == json.loads(record(1)[ANNOTATION])["holderIdentity"]


def test_of_two_who_take_it_at_the_same_moment_one_is_refused(kube, api):
    """The object and its lease have changed. A change of its status alone is not a conflict."""
    foreign = json.dumps({"holderIdentity": "other_1", "leaseDurationSeconds": 1, "renewTime": "now"})

    def other(meta):
        meta["annotations"][ANNOTATION], meta["resourceVersion"] = foreign, "7"

    there = Leased(api, released(), other)
    with pytest.raises(Watched, match="another process has just taken it: held by other_1"), taken(kube, URL):
        pytest.fail("taken twice")
    assert there.lease.holder == "other_1"
    there = Leased(api, released(), lambda meta: meta.update(resourceVersion="9"))
    with taken(kube, URL):
        assert not there.lease.released


# ------------------------------------------------------------------------------------------------------------- creating


def test_a_request_that_an_interrupt_cut_off_is_still_taken_back(kube, api):
    """The API server executes the create although the response is not read: a moment later the job exists."""
    made, looked = {}, []
    body = {"apiVersion": "batch/v1", "kind": "Job", "spec": {}, "metadata": {"name": "seatrial-r1", "namespace": "ns"}}

    def answer(asked):
        if asked.verb == "DELETE":
            made.clear()
            return 200, {}, {}
        looked.append(asked.verb)
        if len(looked) == 3:
            labels = {"app.kubernetes.io/managed-by": "seatrial", "app.kubernetes.io/instance": "r1"}
            made[URL] = body | {"metadata": body["metadata"] | {"uid": "u", "labels": labels}}
        return (200, {}, made[asked.path]) if asked.path in made else (404, {}, {"reason": "NotFound"})

    class Cut:
        def create(self, *_, **__):
            raise KeyboardInterrupt("received SIGINT")

        def __getattr__(self, name):
            return getattr(kube, name)

    api.answer = answer
    ledger = Ledger()
    creation = Creation(Cut(), ledger, "r1", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        creation._post(Owned("jobs", "batch", "v1", body))
    assert ledger.unwind() == []
    assert len(looked) >= 3
    assert made == {}


def test_the_lease_is_renewed_until_the_job_itself_is_gone(kube, api, monkeypatch):
    """Service and ConfigMap are deleted one by one: without a lease, another run could delete the Job meanwhile."""
    stopped = []

    class Renewing:
        def __init__(self, _kube, place, _lease_s):
            self.place = place

        def stop(self):
            stopped.append(self.place)

    def item(resource, kind):
        meta = {"name": "seatrial-r1", "namespace": "ns"}
        return Owned(resource, "batch" if kind == "Job" else "", "v1", {"kind": kind, "metadata": meta})

    def answer(asked):
        if asked.verb == "POST":
            return 201, {}, {"metadata": {"name": "seatrial-r1", "namespace": "ns", "uid": asked.path}}
        return 404, {}, {"reason": "NotFound"}

    monkeypatch.setattr("jobs.run.creation.Renewal", Renewing)
    api.answer = answer
    creation = Creation(kube, Ledger(), "r1", lambda _: None)
    creation._post(item("jobs", "Job"), held=True)
    creation._post(item("services", "Service"))
    creation._post(item("configmaps", "ConfigMap"))
    of_job, *others = creation._entries
    for entry in others:
        gone = entry.undo()
        assert gone is None or gone() is None
    assert stopped == []
    gone = of_job.undo()
    assert stopped == []
    gone()
    assert stopped == [URL]
