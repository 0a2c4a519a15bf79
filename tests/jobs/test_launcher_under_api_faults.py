"""A trial through an API server that answers 429, 500 and 503, resets, truncates streams and loses responses."""

import contextlib
import random
import time

import pytest

from jobs.cluster.client.errors import ClusterError
from jobs.cluster.client.kube import Kube
from jobs.run.cleanup import Ledger
from jobs.run.creation import JobError
from jobs.run.launcher import Launcher
from tests.onsim import PROBE, Sim, left_over, spec
from tests.waiting import HANG_S


class ApiFaults:
    """Forwards to the real server; some responses get lost."""

    def __init__(self, api, kube, seed, drop, *, writes):
        self.rng, self.kube, self.drop, self.writes = random.Random(seed), kube, drop, writes
        self.bad = True
        self.faults = 0
        api.answer = self.answer

    def answer(self, asked):
        reading = asked.verb == "GET"
        dice = self.rng.random() if self.bad and (reading or self.writes) else 1.0
        if dice < 0.4:
            self.faults += 1
        if dice < 0.1:
            return 429, {"Retry-After": "0"}, {"kind": "Status", "reason": "TooManyRequests", "code": 429}
        if dice < 0.2:
            return self.rng.choice([500, 503]), {}, {"kind": "Status", "reason": "InternalError", "code": 500}
        if dice < 0.25:
            return 0, {}, self.drop
        stack = contextlib.ExitStack()
        end = time.monotonic() + HANG_S
        raw = stack.enter_context(
            self.kube.open(
                asked.verb,
                asked.path,
                asked.query,
                body=asked.body,
                end=end,
                silence_s=HANG_S,
                content_type=asked.headers.get("content-type", ""),
                accept=asked.headers["accept"],
            )
        )
        if dice < 0.3:
            stack.close()
            return 0, {}, self.drop  # executed, but the response is lost
        return raw.status, {}, self.pieces(raw, stack, cut=self.rng.randrange(2000) if dice < 0.4 else None)

    def pieces(self, raw, stack, cut):
        with stack:
            sent = 0
            while True:
                try:
                    data = raw.read1(4096)
                except Exception:  # noqa: BLE001  (the other side went away)
                    return
                if not data:
                    return
                if cut is not None and sent + len(data) > cut:
                    yield data[: max(1, cut - sent)]
                    yield self.drop
                    return
                sent += len(data)
                yield data


@pytest.fixture(scope="module")
def healthy(root, tmp_path_factory):
    sim = Sim(root, tmp_path_factory.mktemp("api_faults"), "healthy")
    yield sim
    sim.close()


@pytest.mark.parametrize("seed", range(2))
def test_reads_under_api_faults_change_nothing(api, drop, healthy, tmp_path, kubeconfig, seed):
    """With broken lists, watches and logs the result is the same, the evidence is complete, and nothing is left."""
    real = Kube.connect(str(healthy.config))
    api_faults = ApiFaults(api, real, seed, drop, writes=False)
    kube = Kube.connect(str(kubeconfig(tmp_path / "k", api.url)), namespace="default")
    ledger = Ledger()
    result = Launcher(kube, ledger=ledger, logs=tmp_path / "logs").run(
        spec(kube, env={"NAP": "1"}), {"__main__.py": PROBE}
    )
    assert api_faults.faults > 0
    assert (result.state, result.analysis) == ("Complete", None)
    assert all(evidence.complete for evidence in result.evidence.values()) and len(result.evidence) == 2
    assert all(file.read_text().count('"stage": "end"') == 1 for file in result.logs.values())
    api_faults.bad = False
    assert ledger.unwind() == [] and left_over(real) == []


@pytest.mark.parametrize("seed", range(5))
def test_writes_whose_answer_is_lost_leave_nothing_behind(api, drop, healthy, tmp_path, kubeconfig, seed):
    """Whether the object was created or not, the ledger removes it."""
    real = Kube.connect(str(healthy.config))
    api_faults = ApiFaults(api, real, seed + 100, drop, writes=True)
    kube = Kube.connect(str(kubeconfig(tmp_path / "k", api.url)), namespace="default")
    ledger = Ledger()
    with contextlib.suppress(ClusterError, JobError):
        result = Launcher(kube, ledger=ledger).run(spec(kube), {"__main__.py": PROBE})
        assert result.state == "Complete"
    api_faults.bad = False
    assert ledger.unwind() == [] and left_over(real) == []
