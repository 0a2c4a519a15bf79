"""The reason that a job does not run, for any creator, on a cluster whose pods are processes: one answer for the whole
job."""

import contextlib
import json

import pytest

import jobs
from cli import explain, job
from jobs.cluster.client.errors import NotFound
from jobs.cluster.client.kube import path
from tests.jobs.test_own_jobs import CPU, IMAGE, served
from tests.onsim import SLEEPS
from tests.waiting import until

healthy = served("healthy")
kueue = served("healthy-kueue")
mpi = served("healthy-mpijob")
volcano = served("healthy-volcano")
LABEL = "kueue.x-k8s.io/queue-name"


def theirs(kube, name, *, pods=2, gpus=8, command="sleep 600", labels=None, shape=None, service=True, **more):
    """Return another user's Job, with a headless Service of the same name."""
    main = {"name": "main", "image": IMAGE, "command": ["bash", "-c", command]}
    main["terminationMessagePolicy"] = "FallbackToLogsOnError"
    main["resources"] = {"limits": {"cpu": "100m", "memory": "64Mi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    body = {"restartPolicy": "Never", "subdomain": name, "terminationGracePeriodSeconds": 0}
    body |= {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}], "containers": [main], **more}
    spec = {"completionMode": "Indexed", "completions": pods, "parallelism": pods, "backoffLimit": 0}
    spec |= {"template": {"spec": body}, **(shape or {})}
    if service:
        headless = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"job-name": name}}
        made = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": headless}
        kube.create(path("services", namespace="default"), made)
    meta = {"name": name, "labels": labels or {}}
    kube.create(
        path("jobs", namespace="default", group="batch"),
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec},
    )


def gone(kube, name):
    """Delete the Job and its Service, and wait until its pods are gone."""
    kube.delete(path("jobs", name, namespace="default", group="batch"), propagation="Background")
    with contextlib.suppress(NotFound):
        kube.delete(path("services", name, namespace="default"))
    pods = path("pods", namespace="default")
    until(lambda: not [p for p in kube.list(pods)[0] if p["metadata"]["name"].startswith(f"{name}-")], f"{name} gone")


@pytest.fixture
def ask(request, monkeypatch, capsys):
    """Run `job status` and `explain` for one job as soon as it has the expected status."""

    def run(kube, name, condition):
        monkeypatch.setattr("cli.job.connect", lambda _: kube)
        monkeypatch.setattr("cli.explain.connect", lambda _: kube)
        answers, texts = [], []

        def status():
            code = job.main(["status", name, "--json"])
            return code, json.loads(capsys.readouterr().out)

        def look():
            """Query the job; return whether its status was the same before and after, since the job continues
            meanwhile."""
            answers.append(status())
            if not condition(answers[-1][1]):
                return False
            code, text = job.main(["status", name]), capsys.readouterr().out
            explained = explain.main([f"job/{name}", "--no-exec", "--format", "json"])
            (document,) = json.loads(capsys.readouterr().out)["jobs"]
            texts.append((text, explained, document))
            after, answer = status()
            return (code, after, answer["state"]) == (*(answers[-1][:1] * 2), answers[-1][1]["state"])

        until(look, f"{name} as expected", lambda: f"instead of {answers[-1:]}")
        text, explained, document = texts[-1]
        for word in ("NAMESPACE", "the trial", "of a trial", "report's", " POD", "IMAGE", "deleted by others"):
            assert word not in text + json.dumps(document), word
        return *answers[-1], text, explained, document

    return run


def cause(fault):
    return lambda answer: (answer["failure_analysis"] or {}).get("fault") == fault


def test_half_a_gang_says_which_rank_waits_and_which_gpus_are_held_for_it(healthy, ask):
    """Three times eight GPUs of sixteen yield one answer instead of three, and not a cluster fault."""
    theirs(healthy, "half", pods=3)
    code, answer, text, explained, document = ask(
        healthy, "half", lambda now: "unused, waiting for it" in str(now["standing"]) and now["state"] == "Running"
    )
    analysis = answer["failure_analysis"]
    assert (code, answer["state"], analysis["fault"]) == (0, "Running", "job.unschedulable")
    assert analysis["err_class"] == "ERR_PROGRAM" and "3 x 8 nvidia.com/gpu" in analysis["suggestion"]
    waiting = next(each for each in answer["replicas"] if each["phase"] == "Pending")
    assert any(f"1 of 3 ranks ({waiting['index']}) waits" in line for line in answer["standing"])
    assert "16 GPUs are held by ranks" in text and "no gang scheduling" in text
    assert (explained, document["verdict"], document["failure_class"]) == (1, "no-go", "program")
    assert document["standing"]["ranks"][-2:] == answer["standing"][-2:]
    gone(healthy, "half")


def test_a_job_that_waits_for_others_raises_no_fault(healthy, ask):
    """The scheduler's message is the same; the job would fit after they have left."""
    theirs(healthy, "first")
    ask(healthy, "first", lambda now: [each["phase"] for each in now["replicas"]] == ["Running"] * 2)
    theirs(healthy, "second", pods=1)
    _, answer, text, explained, _ = ask(healthy, "second", cause("job.unschedulable"))
    assert answer["failure_analysis"]["err_class"] is None and explained == 10
    assert "other workloads" in text and "held by" not in text
    gone(healthy, "second")
    gone(healthy, "first")


def test_a_job_that_runs_whole_is_reported(healthy, ask):
    """Nothing waits, nothing is held, and there is no fault."""
    theirs(healthy, "whole")
    _, answer, text, _, document = ask(
        healthy, "whole", lambda now: now["state"] == "Running" and "run" in str(now["standing"])
    )
    assert answer["failure_analysis"] is None and "held by" not in text
    assert document["verdict"] != "no-go"
    gone(healthy, "whole")


@pytest.mark.parametrize(
    ("more", "fault", "text", "blame"),
    [
        ({"nodeSelector": {"pool": "gold"}}, "job.unschedulable", "pool=gold (no node has that label)", "ERR_PROGRAM"),
        (
            {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "typo"}}]},
            "volume.mount",
            'persistentvolumeclaim "typo" not found',
            "ERR_PROGRAM",
        ),
    ],
    ids=["selector", "claim"],
)
def test_a_name_that_nothing_has_is_the_cause(healthy, ask, more, fault, text, blame):
    """The scheduler's message and our text name the missing object."""
    theirs(healthy, "names", gpus=0, **more)
    _, answer, printed, explained, _ = ask(healthy, "names", cause(fault))
    assert text in printed and answer["failure_analysis"]["err_class"] == blame
    assert "2 of 2 ranks wait" in printed and explained == 1
    gone(healthy, "names")


def test_a_secret_that_is_missing_is_named_with_the_command_for_it(healthy, ask):
    """Namespace and name are filled in."""
    handle = jobs.Launcher(healthy).create_job(**CPU, command="true", env_secrets=("typo",), name="keys")
    _, answer, text, _, document = ask(healthy, "keys", cause("container.config"))
    assert (answer["failure_analysis"]["err_class"], document["failure_class"]) == ("ERR_PROGRAM", "program")
    assert 'secret "typo" not found' in text and "kubectl -n default get secret typo" in text
    handle.cancel()


def test_a_crash_of_rank_1_is_reported_with_its_traceback(healthy, ask):
    """The first failing rank's own output, redacted, and the exit code of the job's own failure."""
    program = (
        "if [ $JOB_COMPLETION_INDEX = 0 ]; then sleep 600; fi; echo HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz; "
        "exec python3 -c 'raise RuntimeError(\"shard 7 is torn\")'"
    )
    theirs(healthy, "crash", gpus=0, command=program)
    code, answer, text, explained, document = ask(healthy, "crash", lambda now: now["state"] == "Error")
    ((pod, words),) = answer["last_words"].items()
    assert code == 11 and pod.startswith("crash-1-") and words == ["RuntimeError: shard 7 is torn"]
    assert "RuntimeError: shard 7 is torn" in text and "hf_abc" not in text + json.dumps(document)
    assert explained == 1 and "RuntimeError: shard 7 is torn" in document["sentence"]
    assert document["failure_class"] == "program"
    gone(healthy, "crash")


def test_a_container_killed_for_memory_is_the_cause(healthy, ask):
    """An OOM kill is the whole job's cause, with the limit as remedy and without a mention of a profile."""
    handle = jobs.Launcher(healthy).create_job(
        **CPU,
        command=["python3", "-c", "x = bytearray(b'1' * (1 << 28)); import time; time.sleep(600)"],
        memory="32Mi",
        limits={"memory": "32Mi"},
        name="fat",
    )
    code, _, text, _, document = ask(healthy, "fat", lambda now: now["state"] == "Error")
    assert code == 11 and "container.oom" in text and "profile" not in text
    assert document["faults"][0]["fault"] == "container.oom"
    handle.cancel()


def test_a_service_that_was_deleted_is_reported(healthy, ask):
    """The Service was deleted, so running ranks can no longer find each other."""
    theirs(healthy, "lone", gpus=0)
    healthy.delete(path("services", "lone", namespace="default"))
    _, answer, text, _, _ = ask(healthy, "lone", cause("dns.service-missing"))
    assert "kubectl -n default get services lone" in text and answer["failure_analysis"]["err_class"] is None
    gone(healthy, "lone")


def test_a_crash_is_not_put_down_to_a_service_that_is_missing(healthy, ask):
    """The program's own error remains the cause; only failing names make the Service the cause."""
    theirs(healthy, "own", gpus=0, pods=1, command="echo no such shard >&2; exit 3", service=False)
    # A young job may still get its Service and is not reported.
    code, answer, _, _, _ = ask(
        healthy, "own", lambda now: "Service own" in str(now["standing"]) and now["state"] == "Error"
    )
    assert (code, answer["failure_analysis"]["fault"]) == (11, "job.failed")
    healthy.delete(path("jobs", "own", namespace="default", group="batch"), propagation="Background")
    theirs(healthy, "far", gpus=0, pods=1, command="echo far-0: Name or service not known >&2; exit 3", service=False)
    code, answer, _, _, _ = ask(healthy, "far", cause("dns.service-missing"))
    assert (code, answer["state"]) == (10, "Error")
    healthy.delete(path("jobs", "far", namespace="default", group="batch"), propagation="Background")


def test_a_drained_node_is_reported_and_no_one_is_at_fault(healthy, ask):
    """The rank, the node and the reason of the drain are reported."""
    theirs(
        healthy,
        "long",
        gpus=0,
        shape={
            "podFailurePolicy": {
                "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            }
        },
    )
    _, answer, _, _, _ = ask(healthy, "long", lambda now: [r["phase"] for r in now["replicas"]] == ["Running"] * 2)
    rank = answer["replicas"][0]
    healthy.patch(path("nodes", rank["node"]), {"spec": {"unschedulable": True}})
    place = path("pods", rank["pod"], namespace="default")
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": rank["pod"], "namespace": "default"},
    }
    healthy.request("POST", f"{place}/eviction", body=eviction)
    # Until the Job has failed, only the pod's deletion is known.
    code, answer, text, explained, _ = ask(
        healthy, "long", lambda now: now["state"] == "Error" and "deleted by others" not in json.dumps(now)
    )
    healthy.patch(path("nodes", rank["node"]), {"spec": {"unschedulable": False}})
    assert (code, explained, answer["failure_analysis"]["fault"]) == (10, 10, "job.disrupted")
    assert "interrupted by preemption or drain" in text and rank["pod"] in text
    gone(healthy, "long")


def test_a_canceled_job_is_canceled_and_by_whom_as_long_as_that_is_known(healthy, ask):
    """After the deletion the text refers to the audit log; a cancellation is never attributed to others."""
    jobs.Launcher(healthy).create_job(**CPU, command=SLEEPS, name="over")
    jobs.Launcher(healthy).job("over").cancel()
    seen = jobs.run.job_lookup.JobLookup(healthy).look("over")
    assert seen.state == "Canceled" and seen.analysis.fault == "job.canceled"
    assert "others" not in seen.analysis.observed and "audit log" in seen.analysis.observed
    raw = {"metadata": {"name": "o", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}
    raw["metadata"]["annotations"] = {"seatrial/canceled-by": "ann with seatrial"}
    state, _, analysis = jobs.diagnosis.verdict.diagnose(raw, [], [], name="o", outside=True)
    assert state == "Canceled" and "canceled by ann with seatrial" in analysis.observed
    assert "deleted by others" in jobs.diagnosis.verdict.diagnose(raw, [], [], name="o")[2].observed


QUEUED = {"suspend": True}


def test_a_job_larger_than_its_queue_says_so_in_the_queues_words(kueue, ask):
    """The quota by flavor is quoted, whatever else the message contains."""
    theirs(kueue, "big", pods=3, labels={LABEL: "trial"}, shape=QUEUED)
    code, answer, text, explained, document = ask(kueue, "big", cause("queue.quota-short"))
    assert (code, answer["state"], explained) == (0, "Pending", 1)
    assert "insufficient quota for nvidia.com/gpu in flavor" in text and "(24)" in text and "(16)" in text
    assert document["failure_class"] == "program" and "insufficient quota" in document["sentence"]
    gone(kueue, "big")


@pytest.mark.parametrize("queue", ["trail", "no-such-team"])
def test_a_queue_that_is_not_there_is_named(kueue, ask, queue):
    """Mistyped or missing: the command lists the existing queues."""
    theirs(kueue, "typo", labels={LABEL: queue}, shape=QUEUED)
    _, _, text, explained, _ = ask(kueue, "typo", cause("queue.missing"))
    assert f"LocalQueue {queue} doesn't exist" in text and "kubectl -n default get localqueues" in text
    assert explained == 1
    gone(kueue, "typo")


def test_a_suspended_job_without_a_queues_label_is_reported(kueue, ask):
    """The label must be on the job itself: a label of its pod template does not count."""
    theirs(kueue, "lost", shape=QUEUED)
    _, answer, text, _, _ = ask(kueue, "lost", cause("queue.unnamed"))
    assert answer["failure_analysis"]["err_class"] == "ERR_PROGRAM"
    assert "kubectl -n default label jobs.batch/lost" in text
    gone(kueue, "lost")


def test_a_job_of_a_queue_without_a_workload_is_reported_at_once(healthy, ask, monkeypatch):
    """The job's age counts, not the duration of the observation."""
    monkeypatch.setattr("jobs.run.job_lookup.age", lambda _: 31.0)
    theirs(healthy, "none", labels={LABEL: "trial"}, shape=QUEUED)
    _, _, text, _, _ = ask(healthy, "none", cause("launcher.missing"))
    assert "no Workload of this job" in text and "Kueue is not installed" in text
    assert "Install the operator" in text and "kueue-controller-manager" not in text
    gone(healthy, "none")


def test_an_mpijob_whose_image_has_no_sshd_is_one_answer(mpi, ask):
    """The confirming command contains the image."""
    handle = jobs.Launcher(mpi).create_job(
        image=IMAGE, command="hostname", gpu_count=8, num_nodes=2, launcher="mpijob", name="bare"
    )
    _, answer, text, explained, document = ask(mpi, "bare", cause("mpi.sshd-missing"))
    assert answer["failure_analysis"]["err_class"] == "ERR_PROGRAM" and explained == 1
    assert f"--image={IMAGE}" in text and "kubectl -n default run sshd" in text
    assert document["failure_class"] == "program"
    handle.cancel()


def test_a_gang_of_volcano_that_never_fits_is_the_jobs_own_fault(volcano, ask):
    """The PodGroup's message is quoted; no rank runs or holds a GPU."""
    handle = jobs.Launcher(volcano).create_job(
        image=IMAGE, command="true", gpu_count=8, num_nodes=3, queue="volcano", guard=False, name="gang"
    )
    _, answer, text, explained, _ = ask(volcano, "gang", cause("gang.unschedulable"))
    assert answer["failure_analysis"]["err_class"] == "ERR_PROGRAM" and "3 x 8 nvidia.com/gpu" in text
    assert "3/3 tasks in gang unschedulable" in text and "held by" not in text and explained == 1
    handle.cancel()


def test_a_job_on_cpus_is_not_asked_for_nccls_log(healthy, ask):
    """A CPU job has no NCCL output; a job with GPUs gets the advice."""
    theirs(healthy, "plain", gpus=0, pods=1, command="true")
    _, _, _, explained, document = ask(healthy, "plain", lambda now: now["state"] == "Complete")
    assert (explained, document["faults"], document["advice"]) == (10, [], None)
    gone(healthy, "plain")
    theirs(healthy, "quiet", gpus=1, pods=1, command="true")
    _, _, _, explained, document = ask(healthy, "quiet", lambda now: now["state"] == "Complete")
    assert (explained, [each["fault"] for each in document["faults"]]) == (10, ["nccl.no-evidence"])
    gone(healthy, "quiet")
