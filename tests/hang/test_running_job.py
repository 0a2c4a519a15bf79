"""`explain job/NAME` for a running job: in the lab, with stand-ins for RAS in the pods; and without permissions, on a
fake."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from cli import running_job
from cli.explain import main
from jobs.cluster.client.errors import ClusterError, Forbidden
from jobs.cluster.client.kube import Kube, path
from jobs.cluster.client.pod_exec import Executed, execute
from seatrial.logs.hang.join import Process, last_words
from seatrial.logs.hang.model import Evidence
from tests.waiting import HANG_S, until

HERE = Path(__file__).parent
STANDIN = (HERE / "ras_standin.py").read_text()


@pytest.fixture(scope="module")
def lab(root, tmp_path_factory):
    """Return a client of one `sim healthy`, and its kubeconfig."""
    kubeconfig = tmp_path_factory.mktemp("lab") / "kubeconfig"
    command = [sys.executable, "-m", "lab", "healthy", "--json", "--until-stdin-closes", "--write-kubeconfig"]
    with subprocess.Popen(
        [*command, str(kubeconfig)], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert '"ready": true' in process.stdout.readline()
        yield Kube.connect(kubeconfig=str(kubeconfig), namespace="default"), str(kubeconfig)
        process.stdin.close()
        process.wait(HANG_S)


def start(kube, job, manner, *, version="2.28.9", port=28099, dump=None):
    """Run a job of two pods; the first one's stand-in answers for it."""
    script = STANDIN.replace('"__main__"', "__name__")
    before = ""
    if dump is not None:
        before = (
            f"open('/tmp/nccl_trace_rank_' + __import__('os').environ['JOB_COMPLETION_INDEX'], 'wb').write({dump!r})\n"
        )
    program = before + script.replace("int(sys.argv[3])", str(port)).replace("sys.argv[1]", repr(version)).replace(
        "sys.argv[2]", repr(manner)
    )
    index = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}},
    }
    address = {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    env = [{"name": "RANKS", "value": "2"}, {"name": "NCCL_RAS_ADDR", "value": f"localhost:{port}"}, index, address]
    container = {"name": "main", "image": "i", "command": ["python3", "-c", program], "env": env}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": {"spec": pod}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job}, "spec": spec}
    kube.create(path("jobs", group="batch", namespace="default"), body)

    def running():
        pods, _ = kube.list(path("pods", namespace="default"), labelSelector=f"job-name={job}")
        return pods if len(pods) == 2 and all(_spoke(kube, pod) for pod in pods) else None

    return until(running, "two pods with output", lambda: told(kube, job))


def told(kube, job):
    """Return the states of the job's pods, and their output."""
    pods, _ = kube.list(path("pods", namespace="default"), labelSelector=f"job-name={job}")
    return [(pod["status"], list(running_job.tail(kube, pod["metadata"]["name"], "main"))) for pod in pods]


def _spoke(kube, pod):
    if pod["status"].get("phase") != "Running":
        return False
    try:
        return any(line == "ready" for line in running_job.tail(kube, pod["metadata"]["name"], "main"))
    except ClusterError:
        return False


@pytest.fixture
def explain(lab, capsys, monkeypatch):
    """Return a function: arguments to (exit code, first job)."""
    monkeypatch.setattr(running_job, "PAUSE_S", 0.2)

    def run(*arguments):
        code = main([*arguments, "--kubeconfig", lab[1], "--namespace", "default", "--format", "json"])
        out = capsys.readouterr()
        assert out.out, out.err
        return code, json.loads(out.out)["jobs"][0]

    return run


def test_a_late_rank_is_named_with_its_pod_node_and_last_words(lab, explain):
    """One exec, three answers: rank 1 is and remains behind."""
    kube, _ = lab
    pods = start(kube, "late", "late", version="2.26.2")
    code, job = explain("job/late")
    assert (code, job["diagnosis"], job["late_ranks"], job["waiting_ranks"]) == (1, "hang-late", [1], [0, 2, 3])
    place = job["places"]["1"]
    assert place["pod"] in {pod["metadata"]["name"] for pod in pods}
    assert place["node"].startswith("gpu-node")
    assert place["gpu"] == "1"
    assert place["last_words"].endswith("the last words of rank 1")
    commands = " ".join(cause["confirm"] for cause in job["causes"])
    assert f"kubectl exec -n default {place['pod']} -- py-spy dump --pid {place['pid']}" in commands
    assert f"kubectl describe node {place['node']}" in commands
    assert job["files"][0].startswith("late-")  # the logs precede the RAS answers


def test_answers_that_are_cut_are_said_once_and_what_was_missing_is_advised(lab, explain):
    """Three truncated answers of two pods yield one message per pod, with the missing information."""
    kube, _ = lab
    start(kube, "half", "half", port=28096)
    code, job = explain("job/half")
    assert (code, job["verdict"]) == (10, "inconclusive")
    assert [note.partition(":")[0].rsplit("-", 1)[0] for note in job["not_seen"]] == [
        "RAS in pod half-0",
        "RAS in pod half-1",
    ]
    assert "TORCH_FR_BUFFER_SIZE" in job["advice"]


def test_last_words_are_what_the_program_said():
    """torch's messages about its dump and settings are used only if there are no others."""
    spoke = Process("rank1.log", "vm", 566, alone=True)
    asides = [
        "[rank1]:[E1122 ProcessGroupNCCL.cpp:1849] [PG ID 0 Rank 1] Observed flight recorder dump signal from another rank",
        "[rank1]:[E1122 ProcessGroupNCCL.cpp:1628] ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1",
        "[rank1]:[E1123 ProcessGroupNCCL.cpp:1389] Future for Flight recorder dump in heartbeatMonitor timed out after 15 ms",
        "[rank1]:[W1122 Utils.hpp:112] Warning: Environment variable A is deprecated; use B instead",
        "train.py:3: FutureWarning: torch.load with weights_only=False",
    ]
    assert last_words(["loading shard 7", *asides], spoke, 1) == "loading shard 7"
    assert last_words(asides, spoke, 1) == asides[-1]
    error = "[rank1]:[E1122 ProcessGroupNCCL.cpp:1895] watchdog thread terminated with exception: CUDA error"
    assert last_words(["loading shard 7", error, *asides], spoke, 1) == error


def test_a_job_that_goes_on_is_alive_and_dumps_are_found(lab, explain):
    """The counts advance; the dumps of both pods are also read through exec."""
    kube, _ = lab
    content = {"version": "2.9", "entries": [], "pg_config": {}, "pg_status": {}}
    start(kube, "alive", "alive", port=28098, dump=pickle.dumps(content, protocol=2))
    code, job = explain("job/alive")
    assert (code, job["diagnosis"]) == (10, "alive")
    assert sum("nccl_trace_rank_" in name for name in job["files"]) == 2


def test_exec_carries_input_output_errors_and_the_exit_code(lab):
    """Input and output pass in pieces; a program that cannot run yields the runtime's message."""
    kube, _ = lab
    pod = start(kube, "exec", "late", port=28097)[0]["metadata"]["name"]
    text = b"0123456789abcde\n" * 10_000
    done = execute(kube, pod, "main", ["sh", "-c", f"head -c {len(text)}; echo wrong >&2; exit 3"], stdin=text)
    assert (bytes(done.out), bytes(done.errors), done.code) == (text, b"wrong\n", 3)
    assert "executable file not found" in execute(kube, pod, "main", ["nosuch"]).message
    cut = execute(kube, pod, "main", ["sh", "-c", "yes"], most_bytes=10_000)
    assert cut.cut
    slow = execute(kube, pod, "main", ["sleep", "6000"], deadline_s=1.0)
    assert (slow.cut, slow.code) == (True, None)


class NoExec:
    """A cluster whose user may only list pods."""

    server, namespace = "https://api.example", "team"

    def whoami(self):
        return "system:serviceaccount:team:me"

    def get(self, url, **_):
        raise Forbidden(f"{self.server}: GET {url}", status=403, reason="Forbidden", message="no")

    list = get

    def require(self, verb, resource, **_):
        raise Forbidden(f"{self.server}: {verb} {resource}", status=403, message=f"no permission to {verb} {resource}")


def pod(name, **status):
    containers = [{"name": "proxy"}, {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]
    states = [{"name": entry["name"], "state": {"running": {}}} for entry in containers]
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": "n", "containers": containers},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": states, **status},
    }


def test_a_right_that_is_missing_is_named_ready_for_kubectl_and_the_rest_goes_on(monkeypatch):
    """Three permissions are missing, and each is reported once."""

    def refuse(_kube, name, *_, **__):
        url = path("pods", name, namespace="team", sub="exec")
        raise Forbidden(f"https://api.example: GET {url}", status=403, reason="Forbidden", message="no")

    monkeypatch.setattr(running_job, "execute", refuse)
    evidence = Evidence()
    running_job.look(NoExec(), [pod("a"), pod("b")], evidence, execs=True)
    assert [each.name for each in evidence.pods] == ["a", "b"]
    events, nodes, execs = evidence.not_seen
    assert "list events" in events
    assert "get nodes" in nodes
    assert "--verb=get,create --resource=pods/exec" in execs
    assert "--serviceaccount=team:me" in execs


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (Executed(code=0), []),
        (
            Executed(errors=bytearray(b"neither python3 nor ncclras is in this container\n"), code=127),
            ["neither python3"],
        ),
        (Executed(message='exec: "sh": executable file not found in $PATH'), ['"sh": executable file not found']),
        (
            Executed(out=bytearray(b'{"sample": "{\\"x\\""}\n{"dump": [], "data": 7}\nhello\n{"broken\n[1]\n'), code=0),
            ["cut"],
        ),
        (Executed(out=bytearray(b'{"note": "nothing listens on localhost:28028"}\n'), code=0), ["nothing listens"]),
    ],
)
def test_what_a_pod_answers_is_never_trusted(monkeypatch, output, expected):
    """Foreign lines, truncated JSON and missing programs yield a message each, and no sample."""
    monkeypatch.setattr(running_job, "execute", lambda *_, **__: output)
    monkeypatch.setattr(NoExec, "list", lambda *_, **__: ([], ""))
    monkeypatch.setattr(NoExec, "require", lambda *_, **__: None)
    monkeypatch.setattr(NoExec, "get", lambda *_, **__: {})
    evidence = Evidence()
    running_job.look(NoExec(), [pod("a")], evidence, execs=True)
    assert not evidence.samples
    assert len(evidence.not_seen) == len(expected)
    assert all(word in note for word, note in zip(expected, evidence.not_seen, strict=True))


def test_the_container_with_the_gpus_is_asked_and_a_node_that_is_not_ready_is_said(monkeypatch):
    asked = []

    def run(_kube, name, container, *_, **__):
        asked.append((name, container))
        return Executed(code=0)

    node = {
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [
                {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"},
                {"type": "XidError", "status": "True"},
            ]
        },
    }
    monkeypatch.setattr(running_job, "execute", run)
    monkeypatch.setattr(NoExec, "list", lambda *_, **__: ([], ""))
    monkeypatch.setattr(NoExec, "require", lambda *_, **__: None)
    monkeypatch.setattr(NoExec, "get", lambda *_, **__: node)
    evidence = Evidence()
    running_job.look(NoExec(), [pod("a")], evidence, execs=True)
    assert asked == [("a", "main")]
    assert evidence.pods[0].node_trouble == "Ready=Unknown (NodeStatusUnknown), XidError=True, cordoned"
    running_job.look(NoExec(), [pod("a")], Evidence(), execs=False)
    assert len(asked) == 1


def test_a_job_that_failed_is_tied_to_what_happened_around_it(lab, capsys):
    """The job's log, an event of its node and the first failure are on one axis, in every form."""
    kube, config = lab
    program = "echo training; sleep 1; echo 'OSError: [Errno 5] Input/output error'; sleep 1; exit 3"
    container = {"name": "main", "image": "i", "command": ["sh", "-c", program]}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "torn"}}
    kube.create(
        path("jobs", group="batch", namespace="default"),
        body | {"spec": {"backoffLimit": 0, "template": {"spec": pod}}},
    )

    def failed():
        pods, _ = kube.list(path("pods", namespace="default"), labelSelector="job-name=torn")
        return pods[0] if pods[0]["status"]["phase"] == "Failed" else None

    pod = until(failed, "its failure", lambda: told(kube, "torn"))
    node = pod["spec"]["nodeName"]
    moment = pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"]
    event = {
        "metadata": {"name": "xid.1", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": node, "apiVersion": "v1"},
        "reason": "XidError",
        "message": "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus | <b>",
        "type": "Warning",
        "firstTimestamp": moment,
        "lastTimestamp": moment,
    }
    kube.create(path("events", namespace="default"), event)
    said = {}
    for form in ("json", "text", "markdown", "html"):
        main(["job/torn", "--kubeconfig", config, "--namespace", "default", "--format", form])
        said[form] = capsys.readouterr().out
    around = json.loads(said["json"])["jobs"][0]["around"]
    assert [(each["kind"], each["role"]) for each in sorted(around, key=lambda each: each["kind"])] == [
        ("failure", "failure"),
        ("gpu", "likely"),
        ("storage", "possible"),
    ]
    assert "LIKELY THE CAUSE: 0 s before torn-" in said["text"] and "Events around it (UTC)" in said["html"]
    assert "**" not in said["markdown"].partition("Events around it")[2].partition("\n\n")[0]
    assert "<b>" not in said["html"].partition("What happened")[2]
