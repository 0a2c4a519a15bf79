"""The objects of each launcher are fixed, and its state is expressed in a Job's terms."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from jobs.diagnosis.history import History
from jobs.diagnosis.state import FailureAnalysis
from jobs.diagnosis.verdict import diagnose
from jobs.run.containers import explained, is_final
from jobs.trial.launch_stack import Serving, as_served, missing_fault
from jobs.trial.launchers import KINDS
from jobs.trial.manifests import build, to_yaml
from jobs.trial.names import SpecError
from jobs.trial.parts import ClaimSpec, Deadlines, Mpi, Queue, StorageSpec
from jobs.trial.spec import TrialSpec

GOLDEN = Path(__file__).parent / "data" / "manifests"
FILES = {"__main__.py": "print(1)\n"}


def spec(**more):
    fields = {
        "run_id": "abc",
        "namespace": "ns",
        "image": "nvcr.io/nvidia/pytorch:25.08-py3",
        "cpu": "8",
        "memory": "32Gi",
        "resources": {"rdma/hca_shared_devices_a": 1},
        "capabilities": ("IPC_LOCK",),
        "shm_bytes": 1 << 34,
        "env": {"NCCL_IB_HCA": "^mlx5_0", "NCCL_IB_PKEY": "1"},
        "pull_secrets": ("ngc",),
        "tolerations": ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},),
        "deadlines": Deadlines(start_s=600, probe_s=300, queue_s=900),
    }
    return TrialSpec(**(fields | more))


CASES = {
    "indexed": spec(),
    "indexed-volcano": spec(queue=Queue(kind="volcano", name="research", priority_class="low")),
    "mpijob-kueue": spec(launcher="mpijob", queue=Queue(kind="kueue", name="team", priority_class="low")),
    "mpijob-user": spec(
        launcher="mpijob", run_as_user=1000, mpi=Mpi(sshd=("/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config"))
    ),
    "pytorchjob": spec(launcher="pytorchjob"),
    "trainjob": spec(launcher="trainjob", claims=(ClaimSpec(name="imex", device_class="compute-domain.nvidia.com"),)),
    "storage": spec(
        storage=(
            StorageSpec(name="data", path="/data", claim="dataset"),
            StorageSpec(name="out", path="/out", claim="results", write=True),
        ),
        scratch="/scratch",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_objects_of_each_launcher_are_these(name):
    """Golden manifests (delete one and run again to rewrite it); the ConfigMap's data is not compared."""
    made = list(yaml.safe_load_all(to_yaml(build(CASES[name], FILES), with_files=True)))
    for item in made:
        if item["kind"] == "ConfigMap":
            item["data"], item["binaryData"] = sorted(item["data"]), sorted(item["binaryData"])
    file = GOLDEN / f"{name}.yaml"
    if not file.exists():
        file.write_text(yaml.safe_dump_all(made, sort_keys=False, width=120))
    assert made == list(yaml.safe_load_all(file.read_text()))


@pytest.mark.parametrize(
    ("launcher", "names"),
    [
        ("indexed", ["seatrial-abc-0.seatrial-abc", "seatrial-abc-1.seatrial-abc"]),
        ("mpijob", ["seatrial-abc-worker-0.seatrial-abc", "seatrial-abc-worker-1.seatrial-abc"]),
        ("pytorchjob", ["seatrial-abc-master-0", "seatrial-abc-1.seatrial-abc"]),
        ("trainjob", ["seatrial-abc-node-0-0.seatrial-abc", "seatrial-abc-node-0-1.seatrial-abc"]),
    ],
)
def test_ranks_are_found_by_the_names_that_their_operator_gives(launcher, names):
    """Probe, manifests and checks all read spec.peers."""
    assert spec(launcher=launcher).peers == names
    assert spec(launcher=launcher, attempt=2).peers[0].startswith("seatrial-abc-2-")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"launcher": "mpi"}, "did you mean mpijob"),
        ({"launcher": "pytorchjob", "nodes": 3}, "can span 2 nodes, not 3"),
        ({"launcher": "trainjob", "queue": Queue(kind="volcano")}, "Trainer makes the PodGroup itself"),
        ({"seccomp": "None"}, "unknown seccomp"),
        ({"gpu_resource": ""}, "the pods would have no GPU"),
        ({"storage": (StorageSpec(name="a", path="/x"), StorageSpec(name="b", path="/x"))}, "the same name or path"),
    ],
)
def test_what_cannot_be_launched_is_refused_in_one_line(more, reason):
    """The refusal comes before anything is created."""
    with pytest.raises(SpecError) as error:
        spec(**more)
    assert reason in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Queue(kind="slurm", name="a"),
        lambda: Queue(kind="kueue"),
        lambda: Queue(kind="kueue", name="A b"),
        lambda: StorageSpec(name="x", path="relative"),
        lambda: StorageSpec(name="x", path="/dev/shm/x"),
        lambda: Mpi(sshd=()),
        lambda: ClaimSpec(name="x", device_class="No Class"),
    ],
    ids=["kind", "no-name", "name", "relative", "device", "no-sshd", "class"],
)
def test_a_part_that_cannot_be_is_refused(make):
    """Each part validates itself."""
    with pytest.raises(SpecError):
        make()


def test_an_ssh_session_gets_the_environment_by_name():
    """mpirun -x for every variable of the container that sshd does not pass on; none twice."""
    (launcher,) = build(CASES["mpijob-kueue"], FILES).job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"][
        "containers"
    ]
    command = launcher["command"]
    exported = [command[n + 1] for n, word in enumerate(command) if word == "-x"]
    assert {
        "PATH",
        "LD_LIBRARY_PATH",
        "NCCL_DEBUG",
        "NCCL_IB_HCA",
        "NCCL_IB_PKEY",
        "MASTER_ADDR",
        "SEATRIAL_RUN",
    } <= set(exported)
    assert len(exported) == len(set(exported)) and command[-2:] == ["python3", "/seatrial/probe.pyz"]
    assert "nvidia.com/gpu" not in str(launcher["resources"])


def test_an_older_operator_is_reported_in_its_own_words():
    """Fields unknown to the API server are omitted, or written in its version."""
    mpi = KINDS["mpijob"]
    job = mpi.job(CASES["mpijob-kueue"])
    refusal = 'MPIJob in version "v2beta1" cannot be handled: strict decoding error: unknown field "spec.launcherCreationPolicy"'
    older = mpi.for_other_version(job, refusal)
    assert "launcherCreationPolicy" not in older["spec"] and "runLauncherAsWorker" in older["spec"]
    assert mpi.for_other_version(job, 'unknown field "spec.x"') is None
    train = KINDS["trainjob"]
    job = train.job(CASES["trainjob"])
    (patch,) = job["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    older = train.for_other_version(job, 'strict decoding error: unknown field "spec.runtimePatches"')
    (override,) = older["spec"]["podTemplateOverrides"]
    assert override == {"targetJobs": [{"name": "node"}], **node["template"]["spec"]["template"]}
    assert override["spec"]["volumes"] and "runtimePatches" not in older["spec"]
    assert train.for_other_version(older, 'unknown field "spec.runtimePatches"') is None


def document(kind, *fields):
    """Return an OpenAPI document of the kind's group and version, whose spec has these fields."""
    meant = [{"group": kind.group, "version": kind.version, "kind": kind.kind}]
    spec_of_it = {"properties": {name: {"type": "object"} for name in fields}}
    schemas = {"x": {"x-kubernetes-group-version-kind": meant, "properties": {"spec": spec_of_it}}}
    return {"components": {"schemas": {"io.k8s.api.core.v1.Pod": {}, **schemas}}}


TRAINER = ("runtimeRef", "trainer", "suspend", "managedBy")


@pytest.mark.parametrize(("served", "written"), [("runtimePatches",) * 2, ("podTemplateOverrides",) * 2])
def test_an_object_is_written_as_the_api_server_takes_it(kube, api, served, written):
    """The fields come from its OpenAPI document, which every user may read."""
    kind = KINDS["trainjob"]
    job = kind.job(CASES["trainjob"])
    api.answer = lambda _: (200, {}, document(kind, *TRAINER, served))
    made, why = as_served(kube, kind, job)
    assert why == "" and set(made["spec"]) & {"runtimePatches", "podTemplateOverrides"} == {written}
    assert [asked.path for asked in api.asked] == ["/openapi/v3/apis/trainer.kubeflow.org/v1alpha1"]


def test_an_mpijob_is_written_for_the_release_that_serves_it(kube, api):
    """Before v0.5 the MPI Operator has no launcherCreationPolicy."""
    kind = KINDS["mpijob"]
    job = kind.job(CASES["mpijob-user"])
    fields = set(job["spec"]) - {"launcherCreationPolicy"}
    api.answer = lambda _: (200, {}, document(kind, *fields))
    made, why = as_served(kube, kind, job)
    assert why == "" and set(made["spec"]) == fields


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, {}, {"reason": "NotFound", "message": "the server could not find it"}), "could not find"),
        ((403, {}, {"reason": "Forbidden", "message": "no"}), "403"),
        ((200, {}, {"components": {"schemas": {"x": 3}}}), "does not describe the spec of a TrainJob"),
        ((200, {}, document(KINDS["trainjob"])), "does not describe the spec of a TrainJob"),
    ],
)
def test_what_no_server_describes_is_written_in_its_newest_form(kube, api, answer, reason):
    """The reason for the missing description is reported."""
    job = KINDS["trainjob"].job(CASES["trainjob"])
    api.answer = lambda _: answer
    made, why = as_served(kube, KINDS["trainjob"], job)
    assert made == job and reason in why


def test_a_trainjob_says_what_its_runtime_decides():
    """A TrainJob cannot carry capabilities of the profile: this is reported."""
    assert KINDS["trainjob"].left_out(CASES["trainjob"]) == ("capabilities: IPC_LOCK",)
    assert KINDS["mpijob"].left_out(CASES["mpijob-kueue"]) == ()


@pytest.mark.parametrize(
    ("versions", "launcher", "fault"),
    [
        (("v2beta1",), "mpijob", ""),
        (("v1",), "mpijob", "mpi.wrong-version"),
        ((), "mpijob", "launcher.missing"),
        (("v1", "v2beta1"), "mpijob", ""),
        ((), "pytorchjob", "launcher.missing"),
        (("v1",), "pytorchjob", ""),
    ],
)
def test_a_kind_is_there_in_the_right_version_or_not(versions, launcher, fault):
    """The Training Operator's MPIJob v1 is not the MPI Operator's."""
    assert missing_fault(KINDS[launcher], Serving(versions)) == fault


# -- state and diagnosis -----------------------------------------------------------------------------------------------


def mpijob(*conditions, workers=2):
    said = [
        {
            "type": kind,
            "status": "True",
            "reason": kind,
            "message": message,
            "lastTransitionTime": "2026-01-01T00:00:09Z",
        }
        for kind, message in conditions
    ]
    replicas = {"Launcher": {"replicas": 1}, "Worker": {"replicas": workers}}
    return {
        "metadata": {"name": "seatrial-a", "uid": "u"},
        "status": {"conditions": said},
        "spec": {"runPolicy": {"backoffLimit": 3}, "mpiReplicaSpecs": replicas},
    }


def pod(name, role, *, index=None, node="n", phase="Running", state=None, **meta):
    labels = {"training.kubeflow.org/job-name": "seatrial-a", "training.kubeflow.org/job-role": role}
    labels |= {"training.kubeflow.org/replica-index": str(index)} if index is not None else {}
    statuses = [{"name": "trial", "state": state or {"running": {}}}]
    return {
        "metadata": {"name": name, "labels": labels, **meta},
        "spec": {"nodeName": node},
        "status": {"phase": phase, "containerStatuses": statuses},
    }


def look(raw, pods, events=(), **more):
    return diagnose(raw, pods, events, name="seatrial-a", kind=KINDS["mpijob"], **more)


WORKERS = [
    pod("seatrial-a-worker-0", "worker", index=0, node="n0"),
    pod("seatrial-a-worker-1", "worker", index=1, node="n1"),
]
ENDED = {"terminated": {"exitCode": 1, "reason": "Error"}}


def test_an_mpijob_is_reported_as_ranks_and_a_launcher_behind_them():
    """Workers keep their index, and the launcher is last."""
    state, replicas, analysis = look(
        mpijob(("Created", ""), ("Running", "")), [pod("l", "launcher", node="n0"), *WORKERS]
    )
    assert (state, analysis) == ("Running", None)
    assert [(r.index, r.pod) for r in replicas] == [(0, "seatrial-a-worker-0"), (1, "seatrial-a-worker-1"), (2, "l")]
    assert look(mpijob(("Succeeded", "")), [])[0] == "Complete"
    assert look(mpijob(("Suspended", "")), [])[0] == "Pending"


@pytest.mark.parametrize(
    ("role", "command", "fault"),
    [
        ("worker", "/usr/sbin/sshd", "mpi.sshd-missing"),
        ("worker", "/opt/ssh/start.sh", "mpi.sshd-missing"),
        ("launcher", "mpirun", "mpi.mpirun-missing"),
        ("launcher", "/opt/ompi/bin/mpiexec", "mpi.mpirun-missing"),
        ("", "python3", "image.no-python"),
    ],
)
def test_an_image_without_what_a_pod_of_an_mpijob_runs(role, command, fault):
    """The profile's name for the image does not matter; messages are containerd's and runc's, of Kubernetes 1.37 with
    runc 1.1."""
    message = (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
        f'unable to start container process: exec: "{command}": stat {command}: no such file or directory'
    )
    state = {"terminated": {"exitCode": 128, "reason": "StartError", "message": message}}
    bad = pod("seatrial-a-x", role, index=0, phase="Failed", state=state)
    analysis = look(mpijob(("Created", "")), [bad, WORKERS[1]])[2]
    assert (analysis.fault, analysis.err_class, analysis.subject) == (fault, "ERR_PROGRAM", "seatrial-a-x")


def test_a_launcher_that_is_started_again_is_waited_for_unless_its_words_are_final():
    """Unpublished names fail once; refused keys fail every time."""
    failed = pod("l-1", "launcher", phase="Failed", state=ENDED)
    assert look(mpijob(("Created", "")), [failed, *WORKERS])[2] is None
    assert look(mpijob(("Created", "")), [failed, *WORKERS], given_up=frozenset({"l-1"}))[2].fault == "job.failed"
    assert look(mpijob(("Failed", "backoff")), [failed, *WORKERS])[2].fault == "job.failed"


def test_workers_that_the_operator_takes_away_were_not_deleted_by_others():
    """The operator deletes workers after its job's end, before the reason has been read."""
    gone = [item | {"metadata": item["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:19Z"}} for item in WORKERS]
    failed = pod("l-1", "launcher", phase="Failed", state=ENDED)
    assert look(mpijob(("Failed", "backoff")), [failed, *gone])[2].fault == "job.failed"
    assert look(mpijob(("Running", "")), gone)[2].disrupted


@pytest.mark.parametrize("departed", [False, True])
def test_workers_that_are_taken_away_after_success_were_not_interrupted(departed):
    """The operator deletes sshd, which never exits by itself: its pods are being deleted, or already gone."""
    ended = pod("l-1", "launcher", phase="Succeeded", state={"terminated": {"exitCode": 0, "reason": "Completed"}})
    meta = {"deletionTimestamp": "2026-01-01T00:00:19Z"}
    gone = [item | {"metadata": item["metadata"] | meta | {"uid": item["metadata"]["name"]}} for item in WORKERS]
    history = History()
    history.enter(None, [ended, *gone])
    if departed:
        history.enter(None, [ended], gone)
    state, _, analysis = look(mpijob(("Succeeded", "")), [ended] if departed else [ended, *gone], history=history)
    assert (state, analysis) == ("Complete", None)


def test_an_operator_that_never_comes_is_named():
    """If a job has no condition, no event and no pod, no controller runs."""
    analysis = look(mpijob(), [])[2]
    assert (analysis.fault, analysis.subject, analysis.hopeless) == ("operator.down", "mpi-operator", True)
    assert analysis.grace_s >= 15 and look(mpijob(("Created", "")), [])[2] is None


def test_a_quota_that_refuses_a_worker_is_named():
    """The MPI Operator reports the refused worker in an event."""
    message = (
        'worker pod created failed: pods "x" is forbidden: exceeded quota: team, requested: requests.nvidia.com/gpu=8'
    )
    event = {
        "involvedObject": {"kind": "MPIJob", "name": "seatrial-a", "uid": "u"},
        "reason": "MPIJobFailed",
        "message": message,
        "type": "Warning",
    }
    analysis = look(mpijob(("Created", "")), [], [event])[2]
    assert (analysis.fault, analysis.subject) == ("quota.exceeded", "resourcequota/team")


def test_half_a_gang_is_a_fault_of_the_queue():
    """A partly started gang is a fault only if the queue promised gang scheduling."""
    waiting = pod("seatrial-a-worker-1", "worker", index=1, node="", phase="Pending", state={"waiting": {}})
    waiting["status"]["conditions"] = [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/2 nodes are available: 2 Insufficient rdma/x.",
        }
    ]
    raw, pods = mpijob(("Created", "")), [WORKERS[0], waiting]
    assert look(raw, pods)[2].fault == "job.unschedulable"
    torn = look(raw, pods, gang=True)[2]
    assert torn.fault == "gang.partial" and "1 of 3 pods started" in torn.observed


# -- mpirun's messages -------------------------------------------------------------------------------------------------

FAILED = FailureAnalysis(fault="job.failed", subject="l", observed="", expected="", suggestion="")


@pytest.mark.parametrize(
    ("line", "blame", "final"),
    [
        ("ssh: Could not resolve hostname j-worker-0.j.ns.svc: Name or service not known", "ERR_INFRA", False),
        ("ssh: connect to host 10.0.0.1 port 22: Connection refused", "ERR_INFRA", False),
        ("ssh: connect to host j-worker-1.j.ns.svc port 22: Connection timed out", "ERR_INFRA", True),
        ("root@10.0.0.1: Permission denied (publickey).", "ERR_PROGRAM", True),
        ("bash: orted: command not found", "ERR_PROGRAM", True),
        ("Host key verification failed.", "ERR_PROGRAM", True),
    ],
)
def test_mpiruns_last_words_name_the_cause(line, blame, final):
    """Exit code 1 alone explains nothing."""
    analysis = explained(FAILED, ["noise", line])
    assert (analysis.fault, analysis.err_class) == ("mpi.ssh-failed", blame) and line.split(":")[0] in analysis.observed
    assert is_final([line]) is final


def test_other_words_stay_the_programs_own():
    """Near miss: a failing rank is not an ssh problem."""
    line = "mpirun noticed that process rank 1 exited on signal 11"
    assert explained(FAILED, [line]) is FAILED and explained(None, [line]) is None and not is_final([line])


@pytest.mark.parametrize("fault", ["node.lost", "job.deadline", "job.disrupted"])
def test_mpiruns_words_are_no_cause_where_another_is_known(fault):
    """A worker on a lost node also resets its connection, as a consequence."""
    known = replace(FAILED, fault=fault)
    assert explained(known, ["Connection reset by t-worker-1 port 22"]) is known
