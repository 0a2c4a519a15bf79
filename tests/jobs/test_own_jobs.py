"""A user's own job on a cluster whose pods are processes: created, queried, explained, canceled, or refused."""

import subprocess
import sys
import textwrap

import pytest

import jobs
from jobs.cluster.client.kube import path
from jobs.cluster.facts.inventory import Inventory, Node, PodUse
from jobs.run import guard
from jobs.run.cleanup import sweep
from jobs.trial.job_spec import job_spec
from jobs.trial.manifests import job_of
from tests.onsim import SLEEPS, Sim
from tests.table import table
from tests.waiting import HANG_S, until

IMAGE = "nvcr.io/nvidia/pytorch:25.08-py3"
CPU = {"image": IMAGE, "gpu_count": 0}


def served(scenario):
    @pytest.fixture(scope="module")
    def cluster(root, tmp_path_factory):
        sim = Sim(root, tmp_path_factory.mktemp("sim"), scenario)
        kube = jobs.Kube.connect(str(sim.config))
        yield kube
        kube.close()
        sim.close()

    return cluster


healthy = served("healthy")
kueue = served("healthy-kueue")
mpi = served("healthy-mpijob")
missing = served("image-missing")


def left(kube, handle):
    """Return the existing objects of a job."""
    return [
        f"{resource}/{item['metadata']['name']}"
        for resource, group in (("jobs", "batch"), ("services", ""), ("pods", ""))
        for item in kube.list(path(resource, namespace=kube.namespace, group=group))[0]
        if item["metadata"]["name"].startswith(handle.name)
    ]


def seen(handle, test):
    """Return the first view that satisfies the predicate."""
    looks = []

    def look():
        looks.append(handle.look())
        return test(looks[-1])

    until(look, f"{handle.name} as expected")
    return looks[-1]


def test_a_job_on_cpus_completes_and_its_ranks_know_each_other(healthy):
    """Both rendezvous conventions are set; the state uses the documented terms; the job needs no watcher."""
    command = (
        "echo $NODE_RANK/$WORLD_SIZE $PET_NODE_RANK/$PET_NNODES x$PET_NPROC_PER_NODE $MASTER_ADDR:$PET_MASTER_PORT"
    )
    handle = jobs.Launcher(healthy).create_job(**CPU, command=command, num_nodes=2, env_vars={"A": "b"})
    assert handle.wait(HANG_S) == "Complete" and handle.status() == jobs.JobState.COMPLETE
    assert handle.failure_analysis() is None
    assert sorted(line for lines in handle.logs().values() for line in lines) == [
        f"{rank}/2 {rank}/2 x1 {handle.name}-0.{handle.name}:29500" for rank in (0, 1)
    ]
    assert [(r.index, r.phase, r.exit_code, r.readiness_issue) for r in handle.replicas()] == [
        (0, "Succeeded", 0, None),
        (1, "Succeeded", 0, None),
    ]
    handle.cancel()
    assert handle.status() == "Canceled" and left(healthy, handle) == []


def test_a_list_is_taken_word_for_word_and_a_text_by_a_shell(healthy):
    """A list is executed directly, a text with bash -c."""
    words = jobs.Launcher(healthy).create_job(**CPU, command=["echo", "$HOME && x"])
    assert words.wait(HANG_S) == "Complete"
    assert list(words.logs().values()) == [["$HOME && x"]]
    words.cancel()


def test_what_is_created_is_what_the_documents_describe():
    """The objects are a headless Service that publishes unready pods and an Indexed Job without retry and deadline,
    kept for an hour."""
    spec = job_spec(run_id="r", name="train", namespace="ns", image=IMAGE, command=("true",), nodes=2, gpus_per_node=8)
    made = job_of(spec)
    assert made.configmap is None and made.service is not None
    assert made.service["spec"]["publishNotReadyAddresses"] is True and made.service["spec"]["clusterIP"] == "None"
    body = made.job["spec"]
    assert (body["completionMode"], body["backoffLimit"], body["ttlSecondsAfterFinished"]) == ("Indexed", 0, 3600)
    assert "activeDeadlineSeconds" not in body
    pod = body["template"]["spec"]
    assert (pod["restartPolicy"], pod["subdomain"]) == ("Never", "train") and "affinity" not in pod
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert "lease" not in str(made.job["metadata"])


@pytest.mark.parametrize(
    ("asked", "text", "err_class"),
    [
        ({"num_nodes": 3}, "3 x 8 nvidia.com/gpu were requested, and there is room for 2", "ERR_PROGRAM"),
        ({"gpu_count": 16}, "1 x 16 nvidia.com/gpu were requested, and there is room for 0", "ERR_PROGRAM"),
        ({"node_selector": {"pool": "x"}}, "of 2 nodes none has pool=x (no node has that label)", "ERR_PROGRAM"),
        ({"node_selector": {"kubernetes.io/arch": "x"}}, "(there is amd64)", "ERR_PROGRAM"),
        ({"rdma": {"rdma/typo": 1}}, "0 of 0 rdma/typo free", "ERR_PROGRAM"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_created(healthy, asked, text, err_class):
    """A job is never created partially."""
    with pytest.raises(jobs.Refused) as refused:
        jobs.Launcher(healthy).create_job(
            **({"image": IMAGE, "command": "true", "gpu_count": 8, "name": "big"} | asked)
        )
    assert text in str(refused.value) and refused.value.analysis.err_class == err_class
    assert not [
        item
        for item in healthy.list(path("jobs", namespace="default", group="batch"))[0]
        if item["metadata"]["name"] == "big"
    ]


def nodes(*names, **changes):
    plain = {"labels": {}, "ready": True, "ready_reason": "", "unschedulable": False, "taints": (), "pressures": ()}
    amounts = {"nvidia.com/gpu": 8}
    fields = plain | {"kernel": "", "runtime": "", "kubelet": "", "capacity": amounts, "allocatable": amounts}
    return tuple(Node(name=name, **(fields | changes)) for name in names)


def use(node, gpus):
    return PodUse("other", "p", node, {"nvidia.com/gpu": gpus}, "Job/theirs", "Running")


def asked(**changes):
    fields = {"run_id": "r", "name": "n", "namespace": "ns", "image": IMAGE, "command": ("x",), "gpus_per_node": 8}
    return job_spec(**(fields | changes))


@table(
    "cluster, spec, verdict",
    [
        (Inventory(nodes("a", "b"), ()), asked(), "fits"),
        (Inventory(nodes("a"), ()), asked(gpus_per_node=4), "fits"),  # both pods on one node
        (Inventory(nodes("a"), ()), asked(gpus_per_node=4, anti_affinity=True), "ERR_PROGRAM"),
        (Inventory(nodes("a", "b"), (use("b", 1),)), asked(), None),  # in use by others: no fault
        (Inventory(nodes("a", "b"), (use("b", 4),)), asked(gpus_per_node=4), "fits"),
        (Inventory(nodes("a") + nodes("b", ready=False), ()), asked(), "ERR_INFRA"),
        (Inventory(nodes("a") + nodes("b", unschedulable=True), ()), asked(), "ERR_INFRA"),
        (Inventory(nodes("a") + nodes("b", allocatable={"nvidia.com/gpu": 7}), ()), asked(), "ERR_INFRA"),
        (Inventory(nodes("a", "b", unschedulable=True), ()), asked(gpus_per_node=0), "ERR_INFRA"),
        (Inventory(nodes("a"), (), {"nodes": "hidden"}), asked(nodes=9), "fits"),  # hidden nodes: undetermined
        (Inventory((), ()), asked(), "ERR_PROGRAM"),
    ],
)
def test_the_guard_counts_node_by_node_and_says_whose_the_shortage_is(cluster, spec, verdict):
    """GPUs held by others, cordoned nodes, a request that no machine satisfies."""
    short = guard.shortage(cluster, spec)
    assert (short.err_class if short else "fits") == verdict


def test_a_queue_waits_for_gpus_that_others_hold(healthy):
    """The guard then counts the nodes' offers only."""
    cluster = Inventory(nodes("a", "b"), (use("b", 8),))
    assert guard.shortage(cluster, asked(queue=jobs.trial.job_spec.queue_of("volcano"))) is None
    assert guard.shortage(cluster, asked(nodes=3, queue=jobs.trial.job_spec.queue_of("volcano"))) is not None


def test_a_rank_that_crashes_is_named_with_its_traceback_while_the_other_waits(healthy):
    """The program's error: its output is quoted in the cause, redacted, and in its log."""
    command = (
        f"if [ $NODE_RANK = 0 ]; then {SLEEPS}; fi; echo HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz >&2; "
        "exec python3 -c 'raise RuntimeError(\"shard 7 is torn\")'"
    )
    handle = jobs.Launcher(healthy).create_job(image=IMAGE, command=command, gpu_count=8, num_nodes=2)
    assert handle.wait(HANG_S) == "Error"
    analysis = handle.failure_analysis()
    assert analysis.err_class == "ERR_PROGRAM" and "-1-" in analysis.subject
    assert "exit code 1" in analysis.observed and "RuntimeError: shard 7 is torn" in analysis.observed
    assert "hf_abc" not in analysis.observed
    assert handle.logs()[analysis.subject][-1] == "RuntimeError: shard 7 is torn"
    handle.cancel()


def test_a_container_that_outgrows_its_memory_is_reported(healthy):
    """The container's own limit killed it."""
    more = {"memory": "32Mi", "limits": {"memory": "32Mi"}}
    hold = "import time; x = bytearray(b'1' * (1 << 28)); time.sleep(600)"
    handle = jobs.Launcher(healthy).create_job(**CPU, command=["python3", "-c", hold], **more)
    assert handle.wait(HANG_S) == "Error"
    assert handle.failure_analysis().fault == "container.oom"
    handle.cancel()


@pytest.mark.parametrize(
    ("more", "fault", "text"),
    [
        ({"mounts": {"typo": "/data"}}, "volume.mount", 'persistentvolumeclaim "typo" not found'),
        ({"env_secrets": ("typo",)}, None, 'secret "typo" not found'),
        ({"node_selector": {"pool": "x"}, "guard": False}, "job.unschedulable", "node affinity/selector"),
    ],
    ids=["claim", "secret", "selector"],
)
def test_a_name_that_nothing_has_is_why_the_rank_waits(healthy, more, fault, text):
    """A missing name is reported for the rank with Kubernetes' message, and once as the cause."""
    handle = jobs.Launcher(healthy).create_job(**CPU, command="true", **more)
    look = seen(
        handle,
        lambda now: now.replicas and now.replicas[0].readiness_issue and text in str(now.replicas[0].readiness_issue),
    )
    assert look.state == "Pending" and (fault is None or look.analysis.fault == fault)
    handle.cancel()


@pytest.mark.slow
def test_an_image_that_no_one_has_ends_the_waiting(missing):
    """The job is returned as Pending, also with the missing pull secret; it still exists and can be canceled."""
    more = {"image": "registry.example.com/typo:1", "image_pull_secret": "typo"}
    handle = jobs.Launcher(missing).create_job(command="true", gpu_count=8, num_nodes=2, **more)
    assert handle.wait(HANG_S, poll_s=0.5) == "Pending"
    analysis = handle.failure_analysis()
    assert analysis.fault == "image.pull" and "pull secret typo" in analysis.suggestion
    assert {replica.readiness_issue.reason for replica in handle.replicas()} <= {"ImagePullBackOff", "ErrImagePull"}
    handle.cancel()


def test_a_mistyped_queue_is_named(kueue, monkeypatch):
    """The job waits, suspended, with Kueue's message; with an existing queue it runs."""
    monkeypatch.setattr("jobs.run.queueing._SETTLES_S", 0.5)
    launcher = jobs.Launcher(kueue)
    small = {"image": IMAGE, "command": "true", "gpu_count": 8, "num_nodes": 2, "cpu": "1", "memory": "1Gi"}
    typo = launcher.create_job(**small, queue="kueue:trail")
    assert typo.wait(HANG_S, poll_s=0.5) == "Pending"
    assert typo.failure_analysis().fault == "queue.missing" and "LocalQueue trail" in typo.failure_analysis().observed
    typo.cancel()
    right = launcher.create_job(**small, queue="kueue:trial")
    assert right.wait(HANG_S) == "Complete" and right.failure_analysis() is None
    right.cancel()
    large = launcher.create_job(**(small | {"memory": "2Ti"}), queue="kueue:trial")
    assert large.wait(HANG_S, poll_s=0.5) == "Pending" and large.failure_analysis().fault == "queue.quota-short"
    large.cancel()


def test_mpirun_starts_a_rank_for_each_gpu_and_an_image_without_sshd_is_named(mpi):
    """Variables that count nodes are not passed to the ranks."""
    launcher = jobs.Launcher(mpi)
    line = "echo rank $OMPI_COMM_WORLD_RANK [$WORLD_SIZE] at $MASTER_ADDR"
    asked = {"command": line, "gpu_count": 8, "num_nodes": 2, "launcher": "mpijob"}
    good = launcher.create_job(image="registry.example.com/training/pytorch-mpi:25.08", **asked)
    assert good.wait(HANG_S) == "Complete"
    said = [line for lines in good.logs().values() for line in lines if "rank" in line]
    assert len(said) == 16 and all(text.endswith(f"[] at {good.name}-worker-0.{good.name}") for text in said)
    good.cancel()
    bad = launcher.create_job(image=IMAGE, **asked)
    bad.wait(HANG_S, poll_s=0.5)
    assert bad.failure_analysis().fault == "mpi.sshd-missing"
    bad.cancel()
    assert bad.status() == "Canceled" and launcher_gone(mpi, bad)


def launcher_gone(kube, handle):
    items, _ = kube.list(path("mpijobs", namespace="default", group="kubeflow.org", version="v2beta1"))
    return handle.name not in [item["metadata"]["name"] for item in items]


def test_another_process_finds_the_job_by_its_name_and_clean_up_leaves_it(healthy):
    """Neither running nor completed jobs are leftovers; only clean-up by id, or cancel, deletes them."""
    made = jobs.Launcher(healthy).create_job(**CPU, command=SLEEPS, name="long")
    found = jobs.Launcher(healthy).job("long")
    until(lambda: found.status() == "Running", "Running")
    with pytest.raises(jobs.JobError, match="exists already"):
        jobs.Launcher(healthy).create_job(**CPU, command="true", name="long")
    swept = sweep(healthy, "default", living=True)
    assert swept.users == ("long",) and not any("long" in each for each in swept.deleted)
    assert found.status() == "Running"
    found.cancel()
    assert left(healthy, made) == []
    assert made.status() == "Canceled"  # read from its events
    with pytest.raises(jobs.JobError, match="long"):
        jobs.Launcher(healthy).job("long")


def test_an_earlier_handle_does_not_mention_a_later_job_of_the_same_name(healthy):
    """A handle neither reports nor cancels a later job with the same name."""
    first = jobs.Launcher(healthy).create_job(**CPU, command=SLEEPS, name="twice")
    jobs.Launcher(healthy).job("twice").cancel()
    second = jobs.Launcher(healthy).create_job(**CPU, command="true", name="twice")
    assert second.wait(HANG_S) == "Complete"
    assert first.status() == "Canceled" and first.replicas() == ()
    with pytest.raises(jobs.JobError, match="another one of the same name"):
        first.cancel()
    second.cancel()


def test_a_job_that_is_not_ours_is_looked_at_and_left_alone(healthy):
    """A foreign job can be queried, but not changed."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": IMAGE, "command": ["true"]}]}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "theirs"},
        "spec": {"template": {"spec": pod}},
    }
    healthy.create(path("jobs", namespace="default", group="batch"), body)
    handle = jobs.Launcher(healthy).job("theirs")
    assert handle.wait(HANG_S) == "Complete" and handle.replicas()[0].exit_code == 0
    with pytest.raises(jobs.JobError, match="was not created by seatrial"):
        handle.cancel()
    assert handle.status() == "Complete"
    healthy.delete(path("jobs", "theirs", namespace="default", group="batch"))


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"command": ()}, "needs a command"),
        ({"command": " \n"}, "needs a command"),
        ({"command": [""]}, "needs a command"),
        ({"rdma": True}, "rdma= takes a dict"),
        ({"mounts": ["scratch"]}, "mounts= takes a dict"),
        ({"env_vars": "A=1"}, "env_vars= takes a dict"),
        ({"node_selector": "gpu=h100"}, "node_selector= takes a dict"),
        ({"env_vars": {"PET_NNODES": "3"}}, "PET_NNODES is set by seatrial"),
        ({"queue": "kue:x"}, "is not kueue:NAME"),
        ({"launcher": "mpi"}, "unknown launcher"),
        ({"name": "x" * 52}, "at most 51 characters"),
        ({"tolerance": ()}, "a job has no 'tolerance'"),
        ({"num_nodes": 0}, "nodes must be"),
    ],
)
def test_what_was_asked_wrong_is_one_line(healthy, more, text):
    """The error comes before any request to the cluster."""
    with pytest.raises(jobs.SpecError, match=text) as error:
        jobs.Launcher(healthy).create_job(**(CPU | {"command": "true"} | more))
    assert "\n" not in str(error.value)


def test_the_names_of_the_package_are_found_where_they_are_asked_for():
    """Names are loaded at their first use: importing the package loads no client."""
    assert sorted(jobs._HOMES) == sorted(jobs.__all__)
    assert all(getattr(jobs, name) is not None for name in jobs.__all__)
    assert getattr(jobs, "no_such_name", None) is None
    code = textwrap.dedent("""
        import sys, jobs
        assert not [name for name in sys.modules if name.startswith("jobs.") or name == "kubernetes"]
    """)
    subprocess.run([sys.executable, "-c", code], check=True)
