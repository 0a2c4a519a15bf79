"""``seatrial lint`` as a user runs it: for a file, standard input, a job of the cluster; and within explain."""

import io
import json
import re
from pathlib import Path

import pytest

from checks.rules.contract import FAULTS
from cli.__main__ import main
from jobs.cluster.client.kube import Kube
from jobs.run.launcher import Launcher
from seatrial.faults.advice import explain
from tests.onsim import Sim

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "nvcr.io/nvidia/pytorch:25.08-py3"
RUN = ["job", "run", "--image", IMAGE, "--gpus", "8", "--nodes", "2", "--name", "train", "--print-manifests"]


@pytest.fixture
def manifest(capsys, tmp_path):
    def made(*options):
        assert main([*RUN, *options, "--", "torchrun", "train.py"]) == 0
        file = tmp_path / "train.yaml"
        file.write_text(capsys.readouterr().out)
        return str(file)

    return made


def test_what_job_run_prints_of_a_profile_is_go(manifest, capsys):
    assert main(["lint", "--profile", "h100-ib", manifest("--profile", "h100-ib")]) == 0
    assert capsys.readouterr().out.endswith("go: 0 findings, 0 not known\n")


def test_what_is_missing_is_reported_with_its_remedy(manifest, capsys):
    assert main(["lint", "--profile", "h100-ib", manifest()]) == 1
    said = capsys.readouterr().out
    assert "FAILED manifest.no-rdma: Job/train: the pod requests no RDMA device" in said
    assert "remedy   Request the resource in the limits" in said and "no-go: 2 findings" in said


def test_without_a_profile_the_fabric_is_not_known(manifest, capsys):
    assert main(["lint", manifest()]) == 10
    assert "without --profile the fabric's needs are not known" in capsys.readouterr().out


WANTING = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  completionMode: Indexed
  completions: 2
  parallelism: 2
  template:
    spec:
      subdomain: gone
      containers:
        - name: main
          image: x
          command: [torchrun, --rdzv-endpoint=elsewhere:29500, train.py]
          env: [{name: NCCL_IB_DISABLE, value: "1"}, {name: NCCL_SOCKET_IFNAME, value: lo}]
          resources: {limits: {nvidia.com/gpu: 8, rdma/hca_shared_devices_a: 1}}
"""


@pytest.mark.parametrize("form", ["text", "json", "github"])
@pytest.mark.parametrize("profile", [False, True])
def test_a_remedy_refers_to_the_profile_only_where_one_was_given(form, profile, tmp_path, capsys):
    (tmp_path / "job.yaml").write_text(WANTING)
    given = ["--profile", "h100-ib"] if profile else []
    assert main(["lint", *given, "--format", form, str(tmp_path / "job.yaml")]) == 1
    said = capsys.readouterr().out
    assert "manifest.nccl-env" in said and "[[" not in said and "||" not in said
    assert ("as the profile does" in said) is profile
    assert ("so that NCCL chooses the network itself" in " ".join(said.split())) is not profile


def test_no_text_of_lint_without_a_profile_refers_to_one():
    """The whole set of faults that it can find."""
    for fault in FAULTS:
        entry = explain(fault, trial=False)
        assert not re.search(r"\bprofile\b|\btrial\b|--print-manifests", entry["remedy"] + entry["confirm"]), fault


def test_json_and_annotations(manifest, capsys):
    file = manifest()
    assert main(["lint", "--profile", "h100-ib", "--format", "json", file]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "no-go"
    (workload,) = document["workloads"]
    bad = {each["fault"]: each for each in workload["findings"] if each["ok"] is False}
    assert set(bad) == {"manifest.no-rdma", "manifest.no-ipc-lock"} and all(each["remedy"] for each in bad.values())
    assert main(["lint", "--profile", "h100-ib", "--format", "github", file]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("::error title=seatrial manifest.no-rdma::")]) == 1


def test_standard_input_and_what_brings_no_pods(monkeypatch, capsys):
    class Bytes:
        buffer = io.BytesIO(b"kind: ConfigMap\nmetadata: {name: x}\n")

    monkeypatch.setattr("sys.stdin", Bytes)
    assert main(["lint", "-"]) == 10
    assert "not read: ConfigMap/x\nit contains no object that creates pods" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"{{ .Values }}", "broken YAML"), (b"\xff\xfe", "not UTF-8"), (None, "No such file"), (b"a: 1", "has no kind")],
)
def test_what_cannot_be_read_is_one_line(content, words, tmp_path, capsys):
    file = tmp_path / "x.yaml"
    if content is not None:
        file.write_bytes(content)
    assert main(["lint", str(file)]) == 4
    said = capsys.readouterr()
    assert said.out == "" and words in said.err and said.err.count("\n") == 1


def test_an_unknown_profile_is_a_usage_error(manifest, capsys):
    assert main(["lint", "--profile", "nope", manifest()]) == 4
    assert capsys.readouterr().err.count("\n") == 1


# -- jobs of the cluster -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    sim = Sim(ROOT, tmp_path_factory.mktemp("served"), "healthy")
    yield str(sim.config)
    sim.close()


@pytest.fixture
def job(config):
    """Return a function that starts a job on the cluster; the job is canceled afterwards."""
    kube = Kube.connect(config)
    started = []

    def start(**asked):
        shape = {"image": IMAGE, "gpu_count": 8, "num_nodes": 2, **asked}
        started.append(Launcher(kube).create_job(**shape))
        return started[-1]

    yield start
    for each in started:
        each.cancel()
    kube.close()


TRAIN = (
    "torchrun --nnodes=$NNODES --nproc-per-node=$NPROC_PER_NODE --node-rank=$NODE_RANK --master-addr=$MASTER_ADDR "
    "--master-port=$MASTER_PORT bench.py measure --max-bytes=8388608"
)


def test_a_job_of_the_cluster_is_held_against_its_nodes_and_explain_says_so(config, job, capsys):
    """The log shows sockets, and the pod did not request the RDMA device that every node offers."""
    loud = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NET,GRAPH,TUNING"}
    handle = job(name="bare", command=TRAIN, env_vars=loud)
    assert handle.wait() == "Complete", handle.logs()
    assert main(["lint", "--kubeconfig", config, "job/bare"]) == 1
    said = capsys.readouterr().out
    assert "manifest.no-rdma" in said and "every GPU node offers rdma/hca_shared_devices_a" in said
    assert main(["explain", "--kubeconfig", config, "job/bare"]) == 1
    said = capsys.readouterr().out
    assert "Missing in the pod template" in said
    assert "manifest.no-rdma: the log shows sockets; the pod requests no RDMA device" in said


def test_a_job_with_its_nics_lacks_nothing(config, job, capsys):
    job(name="whole", command="true", rdma={"rdma/hca_shared_devices_a": 1})
    assert main(["lint", "--kubeconfig", config, "job/whole"]) == 0
    assert main(["lint", "--kubeconfig", config, "jobset/whole"]) == 4
    assert main(["lint", "--kubeconfig", config, "job/none"]) == 4
    assert "none" in capsys.readouterr().err
