"""Two concurrent runs: a cluster or a quota in use by the first is not at fault; its lease shows that it is live."""

import json

import pytest

from jobs.cluster.client.kube import Kube, path
from jobs.cluster.renewal import Renewal, held
from jobs.run.launcher import Launcher
from tests import program
from tests.onsim import PROBE, Sim, left_over, spec
from tests.waiting import HANG_S, until


@pytest.fixture
def first(root, tmp_path):
    """Return a cluster of two GPU nodes whose GPUs a detached trial uses: (kubeconfig, client, the trial's job)."""
    sim = Sim(root, tmp_path, "healthy")
    kube = Kube.connect(kubeconfig=str(sim.config))
    holder = spec(kube, env={"NAP": str(HANG_S)}, nodes=2, gpus_per_node=8, namespace="default")
    assert Launcher(kube).detach(holder, "", {"__main__.py": PROBE}) is None
    bound = path("pods", namespace="default")
    until(lambda: sum(bool(pod["spec"].get("nodeName")) for pod in kube.list(bound)[0]) == 2, "both pods are bound")
    yield str(sim.config), kube, holder.job_name
    sim.close()


def second(config, tmp_path, *options):
    """Return the results of the second run: its exit code, its record, the findings that are not ok."""
    arguments = ("--kubeconfig", config, "--profile", "h100-ib", "--out", str(tmp_path / "out"), *options)
    done = program.seatrial("accept", *arguments)
    record = json.loads((tmp_path / "out" / "report.json").read_text())
    findings = [finding for check in record["checks"] for finding in check["findings"] if finding["ok"] is not True]
    return done.returncode, record, findings


def quota(kube, gpus):
    """Give the namespace a quota of this many GPUs, and wait until it is counted."""
    place = path("resourcequotas", namespace="default")
    kube.create(place, {"metadata": {"name": "team"}, "spec": {"hard": {"requests.nvidia.com/gpu": str(gpus)}}})
    used = path("resourcequotas", "team", namespace="default")
    until(lambda: (kube.get(used).get("status") or {}).get("used"), "the quota is counted")
    return used


def test_gpus_of_a_trial_that_goes_on_are_in_use(first, tmp_path):
    """With a detached trial and a live runner each run is inconclusive, and the lease distinguishes the cases."""
    config, kube, job = first
    code, record, findings = second(config, tmp_path)
    assert (code, record["verdict"], record["failure_class"]) == (10, "inconclusive", None)
    assert {finding["fault"] for finding in findings} == {"gpu.taken"}
    assert all(f"a trial of seatrial that was detached (seatrial job attach {job})" in f["observed"] for f in findings)
    lease = path("jobs", job, namespace="default", group="batch")
    renewal = Renewal(kube, lease, 8.0)
    try:
        until(lambda: not held(kube.get(lease)).released, "the lease is taken")
        code, record, findings = second(config, tmp_path)
    finally:
        renewal.stop()
    assert (code, record["cleaned"], record["leftovers"]) == (10, [], [])
    assert all("a trial of seatrial that is in progress, held by" in finding["observed"] for finding in findings)
    assert left_over(kube)


def test_a_gang_that_waits_for_gpus_in_use_is_not_at_fault(root, tmp_path):
    """A tenant sees no nodes, but Volcano reports the missing resource of its pods."""
    sim = Sim(root, tmp_path, "healthy-volcano")
    try:
        kube = Kube.connect(kubeconfig=str(sim.config))
        holder = spec(kube, env={"NAP": str(HANG_S)}, nodes=2, gpus_per_node=8, namespace="default")
        assert Launcher(kube).detach(holder, "", {"__main__.py": PROBE}) is None
        short = {"extends": "h100-ib", "deadlines": {"queue_s": 10, "start_s": 10}}
        (tmp_path / "short.yaml").write_text(json.dumps(short))
        options = ("--tenant", "--queue", "volcano", "--profile", str(tmp_path / "short.yaml"))
        code, record, findings = second(str(sim.config), tmp_path, *options)
    finally:
        sim.close()
    assert (code, record["failure_class"]) == (10, None)
    assert "gang.unschedulable" in {finding["fault"] for finding in findings}


@pytest.mark.parametrize("options", [(), ("--tenant",)], ids=["cluster", "tenant"])
@pytest.mark.parametrize(
    ("gpus", "code", "fault", "whose"),
    [(16, 10, "quota.in-use", None), (8, 1, "quota.exceeded", "infrastructure")],
    ids=["large enough", "too small"],
)
def test_a_quota_that_the_first_trial_uses_up_is_not_at_fault(first, tmp_path, options, gpus, code, fault, whose):
    """With a quota for one trial the second waits for the first. A quota too small for any trial fails."""
    config, kube, _ = first
    quota(kube, gpus)
    ended, record, findings = second(config, tmp_path, *options)
    assert (ended, record["failure_class"]) == (code, whose)
    (found,) = (finding for finding in findings if finding["subject"] == "resourcequota/team")
    assert (found["fault"], found["expected"]) == (fault, "16 for 2 pods")
