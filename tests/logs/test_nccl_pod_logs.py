"""The logs of a job, a pod and an operator's job are found: of every container, also before a restart."""

from __future__ import annotations

import contextlib
import json

import pytest

from cli import explain
from cli.pod_logs import cluster_name, hint
from jobs.cluster.client.errors import Forbidden, Invalid, NotFound
from jobs.cluster.client.kube import Kube
from tests.logs.logmaker import Maker, sequential, table_of
from tests.table import table

LABELS = ("batch.kubernetes.io/job-name", "training.kubeflow.org/job-name", "jobset.sigs.k8s.io/jobset-name")


class Cluster:
    """A fake API: pods by name, and the logs of (pod, container, previous)."""

    server, namespace = "https://api.example", "team"

    def __init__(self) -> None:
        self.pods: dict[str, dict] = {}
        self.logs: dict[tuple[str, str, bool], bytes] = {}
        self.selectors: list[str] = []
        self.open = 0
        self.refusal: Exception | None = None

    def add(self, name: str, *containers: str, restarts: int = 0, **logs: bytes) -> None:
        states = [{"name": item, "restartCount": restarts} for item in containers]
        self.pods[name] = {
            "metadata": {"name": name, "labels": dict.fromkeys(LABELS, "train")},
            "spec": {"containers": [{"name": item} for item in containers]},
            "status": {"containerStatuses": states},
        }
        for key, text in logs.items():
            container, _, life = key.partition("_")
            self.logs[(name, container, life == "before")] = text

    def get(self, path: str) -> dict:
        name = path.rpartition("/")[2]
        if name == "train" and "services" not in path:
            return {"metadata": {"name": name, "uid": "u"}, "spec": {}, "status": {}}
        if name not in self.pods:
            raise NotFound(
                f"{self.server}: pod/{name}", status=404, reason="NotFound", message=f'pods "{name}" not found'
            )
        return self.pods[name]

    def list(self, path: str, labelSelector: str = "", **_):  # noqa: N803 -- as the API spells it
        if not path.endswith("/pods"):
            return [], {}
        self.selectors.append(labelSelector)
        return list(self.pods.values()), {}

    def require(self, *_, **__) -> None:
        """Grant every permission."""

    @contextlib.contextmanager
    def log_stream(self, _namespace, pod, *, deadline_s, container, previous=False, tailLines=None, **_):  # noqa: N803
        assert deadline_s > 0
        if self.refusal:
            raise self.refusal
        text = self.logs.get((pod, container, previous))
        if text is None:
            raise Invalid(
                "log", status=400, reason="BadRequest", message=f'container "{container}" is waiting to start'
            )
        self.open += tailLines is None  # a few lines may be requested of several at once
        assert self.open <= 1, "one stream at a time: a job has hundreds of pods"
        yield iter([text[at : at + 1000] for at in range(0, len(text), 1000)])
        self.open -= tailLines is None


@pytest.fixture
def cluster(monkeypatch):
    """Return an empty cluster."""
    made = Cluster()
    monkeypatch.setattr(Kube, "connect", lambda **_: made)
    return made


def explained(capsys, *arguments: str) -> tuple[int, list[dict]]:
    code = explain.main([*arguments, "--format", "json"])
    out = capsys.readouterr().out
    return code, json.loads(out)["jobs"] if out else []


MAKER = Maker()
HALVES = [
    sequential({key: lines for key, lines in MAKER.processes().items() if key[0] == host}) for host in MAKER.hosts
]


@pytest.mark.parametrize(
    "name",
    [
        "job/train",
        "jobs/train",
        "Job/train",
        "job.batch/train",
        "mpijob/train",
        "pytorchjobs.kubeflow.org/train",
        "trainjob/train",
    ],
)
def test_the_pods_of_a_job_are_one_job(cluster, capsys, name):
    """Pods print their own ranks."""
    for index, half in enumerate(HALVES):
        cluster.add(f"train-{index}", "main", main=half)
    code, (job,) = explained(capsys, name)
    assert (code, job["verdict"], job["ranks"], job["nodes"], job["files"]) == (0, "go", 4, 2, ["train-0", "train-1"])
    assert cluster.selectors[0].endswith("=train")


def test_every_container_is_read_and_a_silent_one_says_nothing(cluster, capsys):
    """A proxy sidecar is not a job, and does not make the result inconclusive."""
    for index, half in enumerate(HALVES):
        cluster.add(
            f"train-{index}",
            "istio-proxy",
            "main",
            **{"istio-proxy": b"2026-01-01 info Envoy proxy is ready\n"},
            main=half,
        )
    code, (job,) = explained(capsys, "job/train")
    assert (code, job["files"]) == (0, ["train-0 main", "train-1 main"])


def test_the_life_before_a_restart_is_read_too(cluster, capsys):
    """The crash is in the previous log; the new container is waiting or has just started."""
    crash = (
        sequential(Maker(stop="init").processes())
        + b"\ngpu-node-0:1000:1000 [0] x.cc:1 NCCL WARN Call to posix_fallocate failed : No space left on device\ngpu-node-0:1000:1000 [0] NCCL INFO init.cc:1 -> 2\n"
    )
    cluster.add("train-0", "main", restarts=1, main_before=crash)
    code, (job,) = explained(capsys, "pod/train-0")
    assert (code, [fault["fault"] for fault in job["faults"]], job["files"]) == (
        1,
        ["nccl.shm-full"],
        ["train-0 (before its restart)"],
    )


def test_a_container_that_waits_is_an_answer_not_a_verdict(cluster, capsys):
    """The log of a waiting container does not exist yet: one line says so, without a judgement."""
    cluster.add("train-0", "main")
    assert explain.main(["pod/train-0"]) == 10
    assert "waiting to start" in capsys.readouterr().err


def test_a_job_that_is_not_there_is_named(cluster, capsys):
    """A name without a match is a usage error that lists the searched kinds."""
    assert explain.main(["job/nope"]) == 4
    said = capsys.readouterr().err
    assert "there is no job nope in namespace team" in said
    assert explain.main(["pod/nope"]) == 4


def test_a_right_that_is_missing_is_inconclusive(cluster, capsys):
    """The API server refused the request."""
    cluster.add("train-0", "main", main=HALVES[0])
    cluster.refusal = Forbidden("log", status=403, reason="Forbidden", message="pods/log is forbidden")
    assert explain.main(["job/train"]) == 10
    assert "pods/log is forbidden" in capsys.readouterr().err


def test_a_file_of_that_name_comes_first(cluster, capsys, tmp_path, monkeypatch):
    """job/log is read as a file if that file exists."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train").write_bytes(
        HALVES[0] + HALVES[1] + "".join(line + "\n" for line in table_of(MAKER)).encode()
    )
    monkeypatch.chdir(tmp_path)
    assert explained(capsys, "job/train")[0] == 0
    assert cluster.selectors == []


@table(
    "text, expected",
    [
        ("job/x", ("job", "x")),
        ("pods/x", ("pod", "x")),
        ("po/x", ("pod", "x")),
        ("MPIJob/x", ("mpijob", "x")),
        ("job/", None),
        ("job/x/y", None),
        ("logs/x", None),
        ("x", None),
        ("/job/x", None),
    ],
)
def test_what_names_a_workload(text, expected):
    """Only kubectl's forms are accepted."""
    assert cluster_name(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jbo/x", "did you mean job/x?"),
        ("pod/", "write pod/NAME"),
        ("deployment/x", "only pod/NAME, job/NAME"),
        ("no-such.log", ""),
        ("logs/no.such", "only pod/NAME"),
    ],
)
def test_a_name_that_is_no_file_is_helped(capsys, text, said):
    """The refusal is one line with the nearest name."""
    assert explain.main([text]) == 4
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
    assert said in hint(text)


@pytest.mark.parametrize(("name", "said"), [("", "an empty name")])
def test_an_empty_name_is_said_to_be_one(capsys, name, said):
    """The shell variable was not set."""
    assert explain.main([name]) == 4
    assert said in capsys.readouterr().err


def test_the_namespace_is_given_as_to_kubectl(monkeypatch, capsys):
    """docs/explain.md and docs/hang.md use -n."""
    asked = {}

    def connect(**settings):
        asked.update(settings)
        raise NotFound("https://api.example: pod/x", status=404, reason="NotFound", message="none")

    monkeypatch.setattr(Kube, "connect", connect)
    assert explain.main(["pod/x", "-n", "team"]) == 4
    assert asked["namespace"] == "team"


def test_an_init_container_that_failed_is_read_and_one_that_ended_well_is_not(cluster, capsys):
    """The failed init container has the only output, because the other containers never started."""
    cluster.add("train-0", "main", fetch=b"ended well\n", unpack=b"RuntimeError: disk full\n", unpack_before=b"once\n")
    cluster.pods["train-0"]["status"]["initContainerStatuses"] = [
        {"name": "fetch", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}},
        {"name": "unpack", "restartCount": 1, "state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 3}}},
    ]
    code, (job,) = explained(capsys, "job/train", "--no-exec")
    assert code != 0
    assert job["files"] == ["train-0 unpack (before its restart)", "train-0 unpack"]
    assert "disk full" in job["sentence"]
