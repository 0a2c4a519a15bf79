"""The Lease that serialises scheduled runs, and their saved state, with the embedded API server and its clock."""

from __future__ import annotations

import datetime
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.cluster.client.errors import ClusterError, Unreachable
from jobs.cluster.client.kube import Kube
from jobs.cluster.client.lease import HeldError, Lease
from jobs.cluster.state_store import StateStoreError, load, parsed, save
from tests.onsim import Sim
from tests.waiting import HANG_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "a-lease"
PATH = f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{NAME}"


@pytest.fixture(scope="module")
def cluster(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the kubeconfig of a served cluster."""
    served = Sim(root, tmp_path_factory.mktemp("cluster"), "healthy")
    yield str(served.config)
    served.close()


@pytest.fixture
def kube(cluster: str) -> Iterator[Kube]:
    """Return a client, after deleting an earlier test's lease."""
    made = Kube.connect(kubeconfig=cluster)
    for place in (PATH, "/api/v1/namespaces/default/configmaps/kept"):
        try:
            made.delete(place)
        except ClusterError:
            continue
    yield made


def held(kube: Kube) -> dict[str, Any]:
    """Return the lease's spec."""
    lease_spec: dict[str, Any] = kube.get(PATH)["spec"]
    return lease_spec


def moment(seconds: float) -> str:
    """Return a time relative to now, in a Lease's format."""
    when = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def test_one_at_a_time_and_given_back(kube: Kube) -> None:
    """The second run gets the holder's name; after the first one the lease is free, and the next finds no dead run."""
    with Lease(kube, NAME, "one"):
        with pytest.raises(HeldError, match=f"{NAME} is held by one since"), Lease(kube, NAME, "two"):
            pass
        assert held(kube)["holderIdentity"] == "one"
    with Lease(kube, NAME, "two"):
        assert held(kube)["leaseTransitions"] == 1


def test_the_lease_of_a_dead_run_is_taken(kube: Kube) -> None:
    """A dead run's lease expires by itself."""
    with Lease(kube, NAME, "dead"):
        kube.patch(PATH, {"spec": {"renewTime": moment(-61)}})
        with Lease(kube, NAME, "next"):
            assert held(kube)["holderIdentity"] == "next"
    assert held(kube).get("holderIdentity") is None  # the dead run released only what was still its own


@pytest.mark.parametrize("skew", [-600.0, 600.0])
def test_a_wrong_clock_here_neither_steals_nor_waits(kube: Kube, skew: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are the server's: with a clock ten minutes off, a live lease stays with its holder, and a dead one is
    taken."""
    with Lease(kube, NAME, "one"):
        pass
    real = time.time
    monkeypatch.setattr("jobs.cluster.client.lease.time.time", lambda: real() + skew)
    monkeypatch.setattr(kube, "server_time_skew", lambda: -skew)
    kube.patch(PATH, {"spec": {"holderIdentity": "live", "renewTime": moment(-30)}})
    with pytest.raises(HeldError, match=r"expires in (29|30) s"), Lease(kube, NAME, "two"):
        pass
    kube.patch(PATH, {"spec": {"renewTime": moment(-70)}})
    with Lease(kube, NAME, "two"):
        renewed = datetime.datetime.fromisoformat(held(kube)["renewTime"]).timestamp()
        assert abs(renewed - real()) < 10


@pytest.mark.parametrize(
    "spec",
    [
        {"renewTime": moment(10 * 365 * 86400)},
        {"renewTime": None},
        {"leaseDurationSeconds": 10**9, "renewTime": moment(-4000)},
    ],
)
def test_a_lease_that_cannot_be_stops_no_one_for_years(kube: Kube, spec: dict[str, Any]) -> None:
    """Renewed in ten years, never, or valid for thirty years: it has expired."""
    with Lease(kube, NAME, "one"):
        kube.patch(PATH, {"spec": spec})
        with Lease(kube, NAME, "two"):
            assert held(kube)["holderIdentity"] == "two"


def test_who_lost_it_knows_soon_and_leaves_it_alone(kube: Kube) -> None:
    """After another run took the lease, `lost` is set within one renewal, and the new holder keeps it."""
    with Lease(kube, NAME, "one", seconds=1) as lease:
        kube.patch(PATH, {"spec": {"holderIdentity": "thief", "renewTime": moment(0)}})
        assert lease.lost.wait(HANG_S)
    assert held(kube)["holderIdentity"] == "thief"


def test_who_asks_knows_at_once(kube: Kube) -> None:
    """A Lease that another run took, or that was deleted, is lost, also between two renewals; an own one is not."""
    with Lease(kube, NAME, "one") as lease:
        lease.check()
        assert not lease.lost.is_set()
        kube.patch(PATH, {"spec": {"holderIdentity": "thief", "renewTime": moment(0)}})
        lease.check()
        assert lease.lost.is_set()
    kube.delete(PATH)
    with Lease(kube, NAME, "two") as lease:
        kube.delete(PATH)
        lease.check()
        assert lease.lost.is_set()


def test_ones_own_change_is_no_thief(kube: Kube) -> None:
    """After a lost response the client sends the change twice, and the second conflicts with the first."""
    with Lease(kube, NAME, "one", seconds=1) as lease:
        before = kube.patch(PATH, {"metadata": {"labels": {"touched": "yes"}}})["spec"]["renewTime"]
        until(lambda: lease.lost.is_set() or held(kube)["renewTime"] != before, "a renewal")
        assert not lease.lost.is_set()
    assert held(kube).get("holderIdentity") is None


def test_an_outage_longer_than_the_lease_is_a_loss(kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease remains valid during a shorter outage."""
    down, passed, tries = threading.Event(), [0.0], []
    real = kube.patch

    def patch(*arguments: Any, **more: Any) -> Any:
        tries.append(down.is_set())
        if down.is_set():
            raise Unreachable("no answer")
        return real(*arguments, **more)

    monkeypatch.setattr(kube, "patch", patch)
    clock = SimpleNamespace(time=time.time, monotonic=lambda: passed[0])
    monkeypatch.setattr("jobs.cluster.client.lease.time", clock)
    with Lease(kube, NAME, "one", seconds=1) as lease:
        for _ in range(2):  # the first outage's time is not part of the second
            down.set()
            passed[0] += 0.9
            begun = tries.count(True)
            until(lambda: tries.count(True) > begun + 1 or lease.lost.is_set(), "two failed renewals")  # noqa: B023
            assert not lease.lost.is_set()
            down.clear()
            until(lambda: tries[-2:] == [False, False], "two successful renewals")
        down.set()
        until(lambda: tries[-1], "the last timely renewal has expired")
        passed[0] += 1.1
        assert lease.lost.wait(HANG_S)


def test_what_is_kept_is_written_by_one(kube: Kube) -> None:
    """A second writer with an old version is refused; writing the same twice is not; damage and size have clear
    messages."""
    save(kube, "kept", {"state.json": "{}"})
    _, version = load(kube, "kept")
    save(kube, "kept", {"state.json": '{"a": 1}'}, version=version)
    save(kube, "kept", {"state.json": '{"a": 1}'}, version=version)
    with pytest.raises(ClusterError):
        save(kube, "kept", {"state.json": '{"a": 2}'}, version=version)
    assert parsed(load(kube, "kept")[0], "kept", "state.json") == {"a": 1}
    was, version = load(kube, "kept")
    kube.patch("/api/v1/namespaces/default/configmaps/kept", {"metadata": {"labels": {"touched": "yes"}}})
    save(kube, "kept", {"state.json": '{"a": 3}'}, version=version, was=was)  # a label is not a conflicting change
    with pytest.raises(ClusterError):
        save(kube, "kept", {"state.json": '{"a": 4}'}, version=version, was=was)
    save(kube, "kept", {"state.json": "{"})
    with pytest.raises(StateStoreError, match="damaged"):
        parsed(load(kube, "kept")[0], "kept", "state.json")
    with pytest.raises(StateStoreError, match="more than it holds"):
        save(kube, "kept", {"state.json": "x" * 1_000_000})
