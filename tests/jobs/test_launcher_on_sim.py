"""The launcher with a cluster whose pods are processes: objects created, waited for, followed, stopped and removed."""

import os
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from cli import job
from jobs.cluster.client.kube import Kube, path
from jobs.run import watcher
from jobs.run.cleanup import Ledger, sweep
from jobs.run.creation import JobError
from jobs.run.job_lookup import JobLookup, NotOurs
from jobs.run.launcher import Launcher
from jobs.trial import pod
from jobs.trial.parts import Deadlines
from tests.onsim import HERE, PROBE, SLEEPS, Sim, left_over, spec
from tests.waiting import HANG_S, until


@pytest.fixture(scope="module")
def healthy(root, tmp_path_factory):
    sim = Sim(root, tmp_path_factory.mktemp("sim"), "healthy")
    yield sim
    sim.close()


@pytest.fixture
def cluster(healthy):
    kube = Kube.connect(str(healthy.config))
    yield kube
    # A launcher without the test's ledger leaves its job to this process, which renews its lease.
    swept = sweep(kube, kube.namespace, living=True)
    assert (swept.left, swept.kept) == ((), ())
    kube.close()


def test_a_trial_runs_and_its_evidence_and_logs_come_back(cluster, tmp_path):
    """The evidence is complete, both logs are on disk and redacted, progress is reported, and the ledger removes
    everything."""
    lines, ledger = [], Ledger()
    launcher = Launcher(cluster, progress=lines.append, ledger=ledger, logs=tmp_path / "logs")
    result = launcher.run(spec(cluster), {"__main__.py": PROBE})
    assert (result.state, result.analysis) == ("Complete", None)
    assert sorted(result.evidence) == [0, 1] and all(e.complete for e in result.evidence.values())
    assert len({replica.node for replica in result.replicas}) == 2
    env = result.evidence[1].stages["start"]["env"]
    assert (env["NODE_RANK"], env["WORLD_SIZE"], env["JOB_COMPLETION_INDEX"]) == ("1", "2", "1")
    assert env["SEATRIAL_NODE_NAME"] == result.replicas[1].node and env["SEATRIAL_POD_NAME"] == result.replicas[1].pod
    assert len(result.logs) == 2
    for file in result.logs.values():
        assert "hf_abc" not in file.read_text() and "HF_TOKEN=[REDACTED]" in file.read_text()
    assert any("creating job" in line for line in lines) and any("rank 0: start" in line for line in lines)
    assert not [line for line in lines if "PodCompleted" in line]
    assert any(re.search(r": (?:1 ended .*|2 ended) \(", line) for line in lines), lines
    assert len(ledger.open) == 3
    assert ledger.unwind() == [] and left_over(cluster) == []


def test_a_probe_that_fails_is_the_programs_error(cluster):
    """The result has the exit code, ERR_PROGRAM, and the evidence printed before."""
    result = Launcher(cluster).run(spec(cluster, env={"EXIT": "3"}), {"__main__.py": PROBE})
    assert result.state == "Error"
    assert (result.analysis.fault, result.analysis.err_class) == ("job.failed", "ERR_PROGRAM")
    assert "exit code 3" in result.analysis.observed
    assert 3 in {replica.exit_code for replica in result.replicas}


def test_two_runs_at_once_do_not_disturb_each_other(cluster):
    """The runs are in one namespace on the same nodes."""
    results = {}

    def one(name):
        ledger = Ledger()
        launcher = Launcher(cluster, ledger=ledger)
        results[name] = launcher.run(spec(cluster, gpus_per_node=4, env={"NAP": "0.3"}), {"__main__.py": PROBE})
        results[name + " left"] = ledger.unwind()

    threads = [threading.Thread(target=one, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert results["a"].state == results["b"].state == "Complete"
    assert results["a"].job != results["b"].job
    assert all(e.complete for name in "ab" for e in results[name].evidence.values())
    assert results["a left"] == results["b left"] == [] and left_over(cluster) == []


def test_a_job_that_a_user_deletes_is_canceled(cluster):
    """A deletion is not a cluster error: the job is disrupted, and the wait ends at once."""
    launcher, jobs = Launcher(cluster), JobLookup(cluster)
    asked = spec(cluster, env={"NAP": str(2 * HANG_S)})
    place = path("jobs", asked.job_name, namespace=cluster.namespace, group="batch")

    def meddle():
        until(lambda: jobs.look(asked.job_name)[0] == "Running", "Running")
        cluster.delete(place, propagation="Background")
        return time.monotonic()

    with ThreadPoolExecutor() as pool:
        meddling = pool.submit(meddle)
        result = launcher.run(asked, {"__main__.py": PROBE})
        ended = time.monotonic()
    assert result.state == "Canceled" and result.analysis.disrupted and result.analysis.err_class is None
    assert ended - meddling.result() < HANG_S


def test_a_job_is_attached_to_and_canceled_by_name(cluster, monkeypatch, capsys):
    """Another process can attach to the job; cancelling waits until its pods are gone; foreign jobs are not changed."""
    asked = spec(cluster, env={"NAP": "1.5"})
    first = threading.Thread(target=Launcher(cluster).run, args=(asked, {"__main__.py": PROBE}))
    first.start()
    jobs = JobLookup(cluster)
    until(lambda: jobs.look(asked.job_name)[0] in ("Running", "Complete"), "Running")
    attached = Launcher(cluster).attach(asked)
    first.join(HANG_S)
    assert attached.state == "Complete" and all(e.complete for e in attached.evidence.values())
    logs = jobs.logs(asked.job_name)
    assert len(logs) == 2 and all(any('"stage": "end"' in line for line in lines) for lines in logs.values())
    seen = jobs.look(asked.job_name)
    replicas, analysis = seen.replicas, seen.analysis
    assert [r.phase for r in replicas] == ["Succeeded", "Succeeded"] and analysis is None
    monkeypatch.setattr(Kube, "connect", lambda **_: cluster)
    assert job.main(["status", asked.job_name]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{asked.job_name}: Complete\n") and said.count(" Succeeded") == 2
    assert job.main(["logs", asked.job_name, "--lines", "5"]) == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == set(logs)
    assert job.main(["cancel", asked.job_name]) == 0
    assert [job.main([action, "no-such-job"]) for action in ("cancel", "status", "logs")] == [4, 4, 4]
    assert jobs.look(asked.job_name)[0] in {"Unknown", "Complete"} and left_over(cluster) == []
    with pytest.raises(JobError, match="there is no job"):
        jobs.cancel(asked.job_name)
    training = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "training"},
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}},
        },
    }
    place = path("jobs", namespace=cluster.namespace, group="batch")
    cluster.create(place, training)
    with pytest.raises(NotOurs, match="left alone"):
        jobs.cancel("training")
    assert cluster.get(f"{place}/training")["metadata"]["name"] == "training"
    cluster.delete(f"{place}/training")


def test_an_interrupt_leaves_nothing_that_the_ledger_does_not_know(cluster):
    """After Ctrl-C every existing object is in the ledger, and unwinding removes it."""
    ledger = Ledger()

    launcher = Launcher(cluster, ledger=ledger)
    asked, jobs = spec(cluster, env={"NAP": str(HANG_S)}), JobLookup(cluster)

    def interrupt():
        until(lambda: jobs.look(asked.job_name)[0] == "Running", "Running")
        os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor() as pool, pytest.raises(KeyboardInterrupt):
        pool.submit(interrupt)
        launcher.run(asked, {"__main__.py": PROBE})
    assert len(ledger.open) == 3
    assert ledger.unwind() == [] and left_over(cluster) == []


def test_the_same_run_id_twice_is_refused_without_touching_the_first(cluster):
    """A collision must not adopt, and later delete, another user's job."""
    ledger, asked = Ledger(), spec(cluster)
    launcher = Launcher(cluster, ledger=ledger)
    launcher.run(asked, {"__main__.py": PROBE})
    second = Ledger()
    with pytest.raises(JobError, match="exists already"):
        Launcher(cluster, ledger=second).run(asked, {"__main__.py": PROBE})
    assert second.unwind() == [] and JobLookup(cluster).look(asked.job_name)[0] == "Complete"
    assert ledger.unwind() == []


def test_a_pod_that_cannot_be_scheduled_is_given_up_and_removed(cluster, monkeypatch):
    """An unmatched selector ends the wait after a short grace period, with the scheduler's message; the GPUs are free
    again."""
    monkeypatch.setattr("jobs.diagnosis.not_started.JOINING_S", 1.0)
    ledger = Ledger()
    began = time.monotonic()
    result = Launcher(cluster, ledger=ledger).run(spec(cluster, node_selector={"no": "such"}), {"__main__.py": PROBE})
    assert result.analysis.fault == "job.unschedulable" and result.analysis.err_class == "ERR_INFRA"
    assert "0/2 nodes are available" in result.analysis.observed and "waiting cannot help" in result.analysis.observed
    assert 1 <= time.monotonic() - began < HERE.start_s  # stopped early, without the full wait
    assert ledger.open == () and left_over(cluster) == []


def test_a_start_that_takes_too_long_says_how_long_and_what_was_last(cluster, monkeypatch):
    """More GPUs than are free, held by others: that may change, so the wait lasts until the deadline."""
    passed = [0.0]
    clock = SimpleNamespace(**vars(time) | {"monotonic": lambda: time.monotonic() + passed[0]})
    monkeypatch.setattr(watcher, "time", clock)

    def heard(line):
        if re.search(r": 1 pending \(no node yet\), 1 running", line):
            passed[0] = HERE.start_s + 1

    blocker = spec(cluster, nodes=1, gpus_per_node=4, env={"NAP": str(HANG_S)})
    busy = threading.Thread(target=Launcher(cluster).run, args=(blocker, {"__main__.py": PROBE}))
    busy.start()
    looking = JobLookup(cluster)
    until(lambda: looking.look(blocker.job_name)[0] == "Running", "Running")
    result = Launcher(cluster, progress=heard).run(spec(cluster, env={"NAP": str(HANG_S)}), {"__main__.py": PROBE})
    looking.cancel(blocker.job_name)
    busy.join(HANG_S)
    assert result.analysis.fault == "job.unschedulable"
    assert re.search(r"1 of 2 pods have not started after \d+ s", result.analysis.observed)
    assert "Insufficient nvidia.com/gpu" in result.analysis.observed


@pytest.mark.parametrize(
    ("scenario", "fault", "state"),
    [("image-missing", "image.pull", "Pending"), ("rbac-denied", "rights.missing", "Error")],
)
def test_a_broken_cluster_is_named(root, tmp_path, monkeypatch, scenario, fault, state):
    """The launcher diagnoses the broken cluster before any check."""
    monkeypatch.setattr("jobs.diagnosis.symptoms.FINAL_PULL_S", 0.5)
    sim = Sim(root, tmp_path, scenario)
    try:
        kube = Kube.connect(str(sim.config))
        ledger = Ledger()
        result = Launcher(kube, ledger=ledger).run(spec(kube), {"__main__.py": PROBE})
        assert (result.analysis.fault, result.analysis.err_class, result.state) == (fault, "ERR_INFRA", state)
        assert ledger.unwind() == []
        kube.close()
    finally:
        sim.close()


def test_a_job_of_a_queue_is_left_to_its_queue(cluster):
    """Kueue resumes its jobs when there is room; resuming one earlier would bypass the queue and be reverted."""
    asked = spec(cluster, labels={"kueue.x-k8s.io/queue-name": "team"})
    url_path, suspended = path("jobs", asked.job_name, namespace=cluster.namespace, group="batch"), []

    def admit():
        until(lambda: any("waits until its queue" in line for line in lines), "waiting")
        suspended.append(cluster.get(url_path)["spec"]["suspend"])
        cluster.patch(url_path, {"spec": {"suspend": False}})

    lines: list[str] = []
    thread, ledger = threading.Thread(target=admit), Ledger()
    thread.start()
    result = Launcher(cluster, progress=lines.append, ledger=ledger).run(asked, {"__main__.py": PROBE})
    thread.join()
    assert suspended == [True]
    assert (result.state, result.analysis) == ("Complete", None)
    assert any("waits until its queue team" in line for line in lines)
    assert ledger.unwind() == []


def test_an_injected_sidecar_that_never_ends_does_not_cost_the_verdict(cluster, monkeypatch):
    """A service mesh adds a container that outlives the trial: the evidence counts, the job is deleted, and the sidecar
    is reported."""
    real = pod.template

    def injected(*arguments):
        template = real(*arguments)
        proxy = {"name": "mesh-proxy", "image": "nvcr.io/nvidia/pytorch:25.08-py3", "command": ["sh", "-c", SLEEPS]}
        template["spec"]["containers"].append(proxy)
        return template

    monkeypatch.setattr(pod, "template", injected)
    monkeypatch.setattr(watcher, "_LINGER_S", 1.0)
    result = Launcher(cluster).run(spec(cluster), {"__main__.py": PROBE})
    assert result.analysis is None and all(e.complete for e in result.evidence.values())
    (warning,) = result.warnings
    assert "mesh-proxy" in warning and "never completes" in warning
    assert left_over(cluster) == []


@pytest.mark.slow
def test_a_rank_that_starts_late_is_no_dns_fault(cluster):
    """One node's pod starts long after dns_s, for example after an image pull: the first rank waits, and the trial
    passes."""
    late, tell = (
        Deadlines(start_s=HANG_S, dns_s=7, port_s=HANG_S, collective_s=HANG_S, probe_s=2 * HANG_S),
        {"spec": {"unschedulable": True}},
    )
    node, opened = path("nodes", "gpu-node-1"), {"spec": {"unschedulable": None}}
    timer = threading.Timer(late.dns_s + 2, lambda: cluster.patch(node, opened))
    started = threading.Event()

    def heard(line):
        if "rank" in line and not started.is_set():  # the present rank has started to look for its peer
            started.set()
            timer.start()

    cluster.patch(node, tell)
    try:
        result = Launcher(cluster, progress=heard).run(spec(cluster, deadlines=late))
    finally:
        timer.cancel()
        cluster.patch(node, opened)
    assert (result.state, result.analysis) == ("Complete", None)
    early = next(e for e in result.evidence.values() if e.stages["dns"]["peers"][1 - e.rank]["first_error"])
    (peer,) = (p for p in early.stages["dns"]["peers"] if p["index"] != early.rank)
    assert peer["first_error"] == "NXDOMAIN" and peer["seconds_to_first_answer"] > late.dns_s
    assert early.stages["collective.ring"]["exit"] == 0


def test_a_queue_that_stays_full_is_no_fault_of_the_cluster(cluster):
    """The job was never admitted: that is reported without a fault, and the job is deleted."""
    asked = spec(
        cluster, labels={"kueue.x-k8s.io/queue-name": "team"}, deadlines=Deadlines(start_s=1.5, probe_s=HANG_S)
    )
    result = Launcher(cluster).run(asked, {"__main__.py": PROBE})
    assert (result.analysis.fault, result.analysis.err_class) == ("job.start-timeout", None)
    assert "its queue has not admitted it" in result.analysis.suggestion
    assert left_over(cluster) == []
