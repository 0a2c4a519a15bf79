"""The reason that a user's own job does not run, queried on real clusters by a tenant with the printed Role: one answer
for each job."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.real_cluster import image
from tests.real_cluster.test_operators import Queues
from tests.waiting import until

needs_pods = pytest.mark.usefixtures("pods")
QUEUE = {"kueue.x-k8s.io/queue-name": "trial"}


def job(bench, name, *, pods=2, gpus=8, command="sleep 600", labels=None, spec=None, **pod):
    """Submit a user's Job with a headless Service, as an administrator."""
    amounts = {"cpu": "10m", "memory": "64Mi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    main = {
        "name": "main",
        "image": image.TRIAL,
        "command": ["sh", "-c", command],
        "resources": {"limits": amounts},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **pod.pop("container", {}),
    }
    body = {
        "restartPolicy": "Never",
        "subdomain": name,
        "containers": [main],
        "terminationGracePeriodSeconds": 0,
        **pod,
    }
    shape = {"completionMode": "Indexed", "completions": pods, "parallelism": pods, "backoffLimit": 0, **(spec or {})}
    meta = {"name": name, "labels": labels or {}}
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"job-name": name}}
    for each in (
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": service},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {**shape, "template": {"spec": body}}},
    ):
        bench.kubectl("apply", "-f", "-", given=yaml.safe_dump(each))


def asked(bench, name, condition, *rights):
    """Query the job's status as the tenant until it has the expected answer; return it, and the text."""
    if not bench.kubeconfig.exists():
        bench.grant("--tenant", *rights)
    common = [name, "--kubeconfig", str(bench.kubeconfig), "--namespace", bench.namespace]
    answers = []

    def look():
        done = bench.command(["job", "status", *common, "--json"])
        answers.append((done.returncode, json.loads(done.stdout) if done.stdout else {"stderr": done.stderr}))
        return condition(answers[-1][1])

    until(look, f"{name} as expected, instead of {answers[-1:]}")
    text = bench.command(["job", "status", *common])
    explained = bench.command(["explain", f"job/{name}", *common[1:], "--no-exec", "--format", "json"])
    (document,) = json.loads(explained.stdout)["jobs"]
    print(text.stdout, explained.stdout[:3000])
    for words in ("NAMESPACE", "the trial", "of a trial", "report's", " POD", "=IMAGE"):
        assert words not in text.stdout, text.stdout
    assert bench.refused() == []
    return *answers[-1], document


def cause(fault):
    return lambda answer: (answer.get("failure_analysis") or {}).get("fault") == fault


@pytest.fixture
def queues(operators, bench):
    operators.install("kueue")
    made = Queues(bench)
    yield made
    made.remove()


KUEUE = ("--queue", "kueue:trial")


def test_a_job_that_no_quota_ever_holds(bench, queues):
    queues.make(gpus="8")
    job(bench, "big", labels=QUEUE, spec={"suspend": True})
    code, answer, document = asked(bench, "big", cause("queue.quota-short"), *KUEUE)
    assert (code, answer["state"], answer["failure_analysis"]["err_class"]) == (0, "Pending", "ERR_PROGRAM")
    assert "nvidia.com/gpu" in answer["failure_analysis"]["observed"] and "8" in answer["failure_analysis"]["observed"]
    assert document["verdict"] == "no-go" and "Workload" not in document["sentence"]


def test_a_local_queue_that_is_missing_or_mistyped(bench, queues):
    queues.make(local="research")
    job(bench, "typo", labels=QUEUE, spec={"suspend": True})
    _, answer, _ = asked(bench, "typo", cause("queue.missing"), *KUEUE)
    assert "LocalQueue trial" in answer["failure_analysis"]["observed"]


@needs_pods
def test_half_a_gang_without_a_queue(bench):
    nodes = len(bench.cluster.nodes)
    job(bench, "half", pods=nodes + 1)
    _, answer, document = asked(
        bench, "half", lambda now: any("held by" in line for line in now["standing"]) and now["failure_analysis"]
    )
    assert answer["failure_analysis"]["err_class"] is None  # a tenant sees no nodes
    assert f"its own ranks hold {8 * nodes} GPUs" in answer["failure_analysis"]["suggestion"]
    assert any(f"{8 * nodes} GPUs are held by ranks" in line for line in answer["standing"])
    assert document["verdict"] == "inconclusive"


def test_a_selector_that_no_node_has(bench):
    job(bench, "picky", nodeSelector={"pool": "gold"})
    _, answer, _ = asked(bench, "picky", cause("job.unschedulable"))
    assert "affinity/selector" in answer["failure_analysis"]["observed"]


def test_a_claim_that_is_missing(bench):
    volume = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "typo"}}]}
    job(bench, "data", **volume, container={"volumeMounts": [{"name": "data", "mountPath": "/data"}]})
    _, answer, _ = asked(bench, "data", cause("volume.mount"))
    assert 'persistentvolumeclaim "typo" not found' in answer["failure_analysis"]["observed"]


@needs_pods
def test_a_secret_that_is_missing(bench):
    job(bench, "keys", container={"envFrom": [{"secretRef": {"name": "typo"}}]})
    _, answer, _ = asked(bench, "keys", cause("container.config"))
    assert 'secret "typo" not found' in answer["failure_analysis"]["observed"]
    assert bench.namespace in answer["failure_analysis"]["confirm"]


@needs_pods
def test_a_drained_node(bench):
    job(bench, "long")
    rank = {"status": {}}

    def runs(now):
        rank.update(next((each for each in now["replicas"] if each["phase"] == "Running"), rank))
        return all(each["phase"] == "Running" for each in now["replicas"]) and now["replicas"]

    asked(bench, "long", runs)
    bench.cluster.kubectl("drain", rank["node"], "--ignore-daemonsets", "--delete-emptydir-data", "--force")
    code, answer, document = asked(bench, "long", lambda now: now["state"] == "Error")
    print(code, answer, document["sentence"])
    assert answer["failure_analysis"]["fault"] == "job.disrupted" and code == 10
    assert rank["node"] in json.dumps(answer["failure_analysis"]) or rank["node"] in json.dumps(answer["replicas"])


@needs_pods
def test_a_service_that_was_deleted(bench):
    job(bench, "lone")
    bench.kubectl("delete", "service", "lone")
    _, answer, _ = asked(bench, "lone", cause("dns.service-missing"))
    assert any("the Service lone" in line for line in answer["standing"])


@needs_pods
def test_a_crash_of_rank_1(bench):
    code = 'import os, time; time.sleep(600 if os.environ["JOB_COMPLETION_INDEX"] == "0" else 0); raise RuntimeError("torn")'
    job(bench, "crash", container={"command": ["python3", "-c", code]})
    code, answer, document = asked(bench, "crash", lambda now: now["state"] == "Error")
    assert code == 11 and answer["last_words"] and "RuntimeError: torn" in str(answer["last_words"])
    assert "RuntimeError: torn" in document["sentence"] and document["failure_class"] == "program"


@needs_pods
def test_an_mpijob_whose_image_has_no_sshd(bench, operators):
    operators.install("mpi-operator")
    main = {"image": image.TRIAL, "resources": {"limits": {"cpu": "10m", "memory": "64Mi"}}}
    replicas = {
        "Launcher": {
            "replicas": 1,
            "template": {"spec": {"containers": [{**main, "name": "l", "command": ["sleep", "1"]}]}},
        },
        "Worker": {
            "replicas": 2,
            "template": {"spec": {"containers": [{**main, "name": "w", "command": ["/opt/none/sshd", "-De"]}]}},
        },
    }
    spec = {"slotsPerWorker": 1, "runPolicy": {"cleanPodPolicy": "Running"}, "mpiReplicaSpecs": replicas}
    body = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "mpi"}, "spec": spec}
    bench.kubectl("apply", "-f", "-", given=yaml.safe_dump(body))
    _, answer, document = asked(bench, "mpi", cause("mpi.sshd-missing"), "--launcher", "mpijob")
    assert answer["failure_analysis"]["err_class"] == "ERR_PROGRAM"
    assert image.TRIAL in answer["failure_analysis"]["confirm"] and document["verdict"] == "no-go"
