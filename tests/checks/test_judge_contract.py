"""Missing parts of a job manifest for training across nodes: each rule broken once, and near misses."""

import copy
import unicodedata
from itertools import product
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checks.profiles.loader import load_profile, profile_names
from checks.profiles.trial import job_defaults, spec_of
from checks.rules.contract import FAULTS, Around, contract_findings, summary
from checks.rules.topology import Zones
from jobs.cluster.facts.workloads import GROUPS, KINDS, ManifestError, read_manifests, sort_out
from jobs.trial.job_spec import LAUNCHERS, own_job
from jobs.trial.manifests import build, job_of
from jobs.trial.payload import files
from tests.table import table

IMAGE = "registry.example.com/train:1"


def around(name="h100-ib", **more):
    if name is None:
        return Around(**more)
    profile = load_profile(name)
    return Around(profile=profile, spec=spec_of(profile, run_id="r", namespace="n"), **more)


def objects(launcher="indexed", profile="h100-ib", command="torchrun train.py", **more):
    """Return the output of `seatrial job run --print-manifests`."""
    asked = {"image": IMAGE, "command": command, "num_nodes": 2, "name": "train", "launcher": launcher, **more}
    spec = own_job(namespace="team-a", profile=job_defaults(load_profile(profile)), **asked)
    made = job_of(spec)
    return [copy.deepcopy(each) for each in (made.job, *(item.body for item in made.all_owned()))]


def judged(manifests, known=None, **more):
    found = sort_out(manifests)
    known = known or around(services=found.services, **more)
    return [finding for each in found.workloads for finding in contract_findings(each, known)]


def faults(findings, ok=False):
    return sorted({each.fault for each in findings if each.ok is ok})


def pod_of(job):
    return job["spec"]["template"]["spec"]


def main_of(job):
    return pod_of(job)["containers"][0]


# -- correct manifests -------------------------------------------------------------------------------------------------


@table("launcher, profile", product(LAUNCHERS, profile_names()))
def test_what_job_run_makes_of_a_profile_lacks_nothing(profile, launcher):
    made = objects(launcher, profile, queue="none")
    known = around(profile, services=sort_out(made).services)
    assert [f for f in judged(made, known) if f.ok is False and f.fault != "manifest.no-queue"] == []


@table("profile", profile_names())
def test_the_trial_of_each_profile_lacks_nothing(profile):
    spec = spec_of(load_profile(profile), run_id="r", namespace="n")
    made = build(spec, files())
    every = [made.job, *(item.body for item in made.all_owned())]
    known = around(profile, services=sort_out(every).services)
    findings = [f for each in sort_out(every).workloads for f in contract_findings(each, known)]
    assert findings and [f for f in findings if f.ok is False] == []


def test_an_indexed_job_of_a_profile_is_known_in_full():
    findings = judged(objects())
    assert findings and all(f.ok for f in findings)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_job_on_cpus_is_not_at_fault(launcher):
    findings = judged(objects(launcher, gpu_count=0))
    assert [f for f in findings if f.ok is False] == []
    assert {f.fault for f in findings if f.ok is None} <= {"manifest.rendezvous"}


def test_half_of_a_nodes_gpus_need_half_of_its_nics():
    profile = next(p for p in profile_names() if any(n > 1 for n in load_profile(p).pod.resources.values()))
    (amount,) = {n for n in load_profile(profile).pod.resources.values() if n > 1}
    made = objects(profile=profile, gpu_count=4)
    assert set(load_profile(profile).pod.resources) & set(main_of(made[0])["resources"]["limits"])
    assert str(amount // 2) in main_of(made[0])["resources"]["limits"].values()
    assert faults(judged(made, around(profile, services=sort_out(made).services))) == []


# -- the fabric --------------------------------------------------------------------------------------------------------


def without_nics(job):
    for kind in ("limits", "requests"):
        main_of(job)["resources"][kind].pop("rdma/hca_shared_devices_a")


def test_a_job_without_its_nics_is_reported():
    made = objects()
    without_nics(made[0])
    (finding,) = [f for f in judged(made) if f.ok is False]
    assert (finding.fault, finding.subject) == ("manifest.no-rdma", "Job/train")
    assert "requests no RDMA device" in finding.observed and "rdma/hca_shared_devices_a" in finding.expected


@pytest.mark.parametrize(
    "change",
    [
        lambda job: main_of(job)["securityContext"].update(privileged=True),
        lambda job: pod_of(job)["volumes"].append({"name": "ib", "hostPath": {"path": "/dev/infiniband"}}),
    ],
    ids=["privileged", "host path"],
)
def test_a_pod_that_reaches_the_hosts_devices_may_have_them_all_the_same(change):
    made = objects()
    without_nics(made[0])
    change(made[0])
    findings = judged(made)
    assert faults(findings) == [] and "manifest.no-rdma" in faults(findings, ok=None)


def test_a_host_path_elsewhere_is_no_device():
    made = objects()
    without_nics(made[0])
    pod_of(made[0])["volumes"].append({"name": "data", "hostPath": {"path": "/dev/shm"}})
    assert faults(judged(made)) == ["manifest.no-rdma"]


def test_pods_that_do_not_train_together_need_no_fabric():
    """Eight independent pods of a parameter sweep do not communicate."""
    made = objects(num_nodes=8)
    job = made[0]
    without_nics(job)
    del pod_of(job)["subdomain"]
    main_of(job)["env"] = [{"name": "MASTER_ADDR", "value": "localhost"}]
    main_of(job)["command"] = ["python3", "tune.py"]
    findings = judged([job])
    assert faults(findings) == []
    assert any("whether they train together is not known" in f.observed for f in findings if f.ok is None)


def test_one_pod_needs_no_fabric():
    made = objects(num_nodes=1)
    without_nics(made[0])
    assert faults(judged(made)) == []


def test_without_a_profile_the_nodes_decide():
    made = objects()
    without_nics(made[0])
    services = sort_out(made).services
    offered = judged(made, around(None, nics=("rdma/hca",), services=services))
    assert faults(offered) == ["manifest.no-rdma"]
    assert faults(judged(made, around(None, nics=(), services=services))) == []
    unseen = judged(made, around(None, services=services))
    assert faults(unseen) == [] and faults(unseen, ok=None) == ["manifest.no-rdma"]


def test_ipc_lock_is_a_finding_only_where_the_profile_asks_for_it():
    made = objects()
    main_of(made[0])["securityContext"]["capabilities"] = {"drop": ["ALL"]}
    assert faults(judged(made)) == ["manifest.no-ipc-lock"]
    loose = judged(made, around(None, services=sort_out(made).services))
    assert faults(loose) == [] and faults(loose, ok=None) == ["manifest.no-ipc-lock"]


def test_the_network_annotation_is_needed_where_the_profile_has_one():
    profile = next(p for p in profile_names() if "k8s.v1.cni.cncf.io/networks" in load_profile(p).pod.annotations)
    made = objects(profile=profile)
    known = around(profile, services=sort_out(made).services)
    assert faults(judged(made, known)) == []
    del made[0]["spec"]["template"]["metadata"]["annotations"]
    assert "manifest.no-network" in faults(judged(made, known))
    pod_of(made[0])["hostNetwork"] = True
    assert "manifest.no-network" not in faults(judged(made, known))


def test_what_a_runtime_may_bring_is_not_known():
    (job, *_) = objects("trainjob")
    findings = judged([job])
    assert faults(findings) == [] and faults(findings, ok=None) == ["manifest.no-ipc-lock"]
    job["spec"]["trainer"]["resourcesPerNode"] = {"limits": {"nvidia.com/gpu": "8"}}
    assert faults(judged([job])) == ["manifest.no-rdma"]


@pytest.mark.parametrize(
    ("name", "value", "bad"),
    [
        ("NCCL_IB_DISABLE", "1", True),
        ("NCCL_IB_DISABLE", "0", False),
        ("NCCL_NET", "Socket", True),
        ("NCCL_NET", "IB", False),
        ("NCCL_SOCKET_IFNAME", "lo", True),
        ("NCCL_SOCKET_IFNAME", "^lo,docker0", False),
        ("NCCL_SOCKET_IFNAME", "=eth0", False),
    ],
)
@pytest.mark.parametrize("typed", [False, True])
def test_variables_that_lead_away_from_the_fabric(name, value, bad, typed):
    """Such variables are found in the manifest's env and in the command."""
    made = objects(command=f"export {name}={value}; torchrun train.py") if typed else objects(env_vars={name: value})
    assert faults(judged(made)) == (["manifest.nccl-env"] if bad else [])


def test_variables_of_the_profile():
    """A different partition is wrong; a different NIC list may be equivalent; the image may set missing ones."""
    made = objects(profile="b200-mpi-slinky", launcher="indexed")

    def said(**env):
        job = copy.deepcopy(made[0])
        main_of(job)["env"] = [e for e in main_of(job)["env"] if e["name"] not in ("NCCL_IB_PKEY", "NCCL_IB_HCA")]
        main_of(job)["env"] += [{"name": name, "value": value} for name, value in env.items()]
        return judged([job, *made[1:]], around("b200-mpi-slinky", services=sort_out(made).services))

    assert faults(said(NCCL_IB_PKEY="1", NCCL_IB_HCA="^mlx5_0"), ok=None) == []
    assert faults(said(NCCL_IB_PKEY="0", NCCL_IB_HCA="^mlx5_0")) == ["manifest.nccl-env"]
    assert faults(said(NCCL_IB_PKEY="1", NCCL_IB_HCA="mlx5")) == []
    assert faults(said(), ok=None) == ["manifest.nccl-env"] and faults(said()) == []


# -- context -----------------------------------------------------------------------------------------------------------


def test_the_queue_of_the_profile_is_needed_on_the_job(tmp_path):
    own = tmp_path / "queued.yaml"
    own.write_text("extends: h100-ib\nlaunch: {queue: {kind: kueue, name: train}}\n")
    known = around(str(own))
    made = objects(profile=str(own))
    assert faults(judged(made[:1], known)) == []
    del made[0]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    made[0]["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "train"
    assert faults(judged(made[:1], known)) == ["manifest.no-queue"]


@pytest.mark.parametrize(
    ("change", "bad"),
    [
        (lambda pod: pod["containers"][0].update(volumeMounts=[]), True),
        (lambda pod: pod["volumes"][0]["emptyDir"].update(sizeLimit="64Mi"), True),
        (lambda pod: pod["volumes"][0]["emptyDir"].update(sizeLimit="65Mi"), False),
        (lambda pod: pod["volumes"][0]["emptyDir"].pop("sizeLimit"), False),
        (lambda pod: (pod["containers"][0].update(volumeMounts=[]), pod.update(hostIPC=True)), False),
        (lambda pod: pod["containers"][0]["volumeMounts"][0].update(mountPath="/dev/shm/"), False),
    ],
    ids=["not mounted", "the default", "more than that", "no limit", "the host's", "with a slash"],
)
def test_shared_memory(change, bad):
    made = objects()
    change(pod_of(made[0]))
    assert faults(judged(made)) == (["manifest.no-shm"] if bad else [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda service: service["spec"].update(clusterIP="10.0.0.1"), "not headless"),
        (lambda service: service["spec"].pop("clusterIP"), "not headless"),
        (lambda service: service["spec"].update(selector={"app": "other"}), "does not select"),
        (lambda service: service["spec"].pop("selector"), "does not select"),
        (
            lambda service: service["spec"]["selector"].update({"batch.kubernetes.io/job-completion-index": "0"}),
            "rank 0 only",
        ),
        (lambda service: service["spec"].pop("publishNotReadyAddresses"), ""),
        (lambda service: service["spec"].update(selector={"job-name": "train"}), ""),
        (lambda service: service["spec"].update(selector={"batch.kubernetes.io/controller-uid": "abc"}), ""),
    ],
    ids=["cluster IP", "no cluster IP", "others", "no selector", "rank 0", "when ready", "old label", "uid"],
)
def test_the_service_of_the_subdomain(change, words):
    made = objects()
    change(made[1])
    found = [f.observed for f in judged(made) if f.ok is False]
    assert [words in text for text in found] == ([True] if words else [])


def test_a_service_that_names_pods_once_they_are_ready_is_late_where_readiness_is_probed():
    made = objects()
    made[1]["spec"].pop("publishNotReadyAddresses")
    main_of(made[0])["readinessProbe"] = {"exec": {"command": ["true"]}}
    assert faults(judged(made)) == ["manifest.service"]


def test_a_service_that_is_not_in_the_file_may_be_in_the_cluster():
    job = objects()[0]
    assert faults(judged([job])) == [] and faults(judged([job]), ok=None) == ["manifest.service"]
    assert faults(judged([job], around(complete=True))) == ["manifest.service"]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("train-0.train", True),
        ("train-0.train.team-a", True),
        ("train-0.train.team-a.svc.cluster.local", True),
        ("train-0.train.team-a.svc.example.org:29500", True),
        ("train-1.train", False),
        ("train-0", False),
        ("train-0.other", False),
        ("train-0.train.team-b.svc.cluster.local", False),
        ("train", False),  # the Service of all ranks
        ("localhost", False),
        ("127.0.0.1:29500", False),
        ("10.1.2.3", None),
        ("fd00::1", None),
        ("$(RENDEZVOUS)", None),
        ("etcd.infra", None),
    ],
)
@pytest.mark.parametrize("typed", [False, True])
def test_the_rendezvous_is_rank_0s_name(address, expected, typed):
    made = objects()
    job = made[0]
    env = [each for each in main_of(job)["env"] if "MASTER_ADDR" not in each["name"]]
    main_of(job)["env"] = env if typed else [*env, {"name": "MASTER_ADDR", "value": address}]
    option = f" --rdzv_endpoint={address}" if ":" in address else f" --master-addr '{address}'"
    main_of(job)["command"] = ["/bin/bash", "-c", f"torchrun{option if typed else ''} train.py"]
    found = [f for f in judged(made) if "the rendezvous endpoint is" in f.observed]
    assert [f.ok for f in found] == [expected]
    assert faults(judged(made)) == (["manifest.rendezvous"] if expected is False else [])


@pytest.mark.parametrize("change", [{"completionMode": "NonIndexed"}, {"subdomain": None}])
def test_pods_without_names_meet_nowhere(change):
    made = objects()
    if "subdomain" in change:
        del pod_of(made[0])["subdomain"]
    else:
        made[0]["spec"]["completionMode"] = change["completionMode"]
    assert faults(judged(made)) == ["manifest.rendezvous"]


def test_variables_of_the_manifest_are_filled_in():
    made = objects()
    main_of(made[0])["env"] = [{"name": "HOST", "value": "train-0.train"}, {"name": "MASTER_ADDR", "value": "$(HOST)"}]
    assert faults(judged(made)) == [] and [f for f in judged(made) if f.ok is None] == []


def test_a_service_of_rank_0_alone_is_a_rendezvous():
    made = objects()
    lead = copy.deepcopy(made[1])
    lead["metadata"]["name"] = "lead"
    lead["spec"]["selector"]["batch.kubernetes.io/job-completion-index"] = "0"
    main_of(made[0])["env"] = [{"name": "MASTER_ADDR", "value": "lead"}]
    assert faults(judged([*made, lead])) == []


@pytest.mark.parametrize(
    ("image", "command", "expected"),
    [
        ("nvcr.io/nvidia/pytorch:25.08-py3", None, False),
        ("python:3.12", None, False),
        ("mpioperator/mpi-pi:openmpi", None, None),
        ("registry.example.com/python:3.12", None, None),
        (IMAGE, ["sleep", "infinity"], False),
        (IMAGE, ["/bin/sh", "-c", "apt-get install -y openssh-server && /usr/sbin/sshd -De"], None),
        ("ubuntu:24.04", ["/bin/sh", "-c", "apt-get install -y openssh-server && /usr/sbin/sshd -De"], None),
    ],
)
def test_sshd_of_an_mpi_job(image, command, expected):
    made = objects("mpijob", image=image)
    worker = made[0]["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    if command:
        worker["command"] = command
    found = [f for f in judged(made) if f.fault == "mpi.sshd-missing"]
    assert [f.ok for f in found] == [expected]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/ckpt/run-1", True),
        ("/scratch/run-1", False),
        ("/root/out", False),
        ("/node/out", None),
        ("s3://bucket/run", True),
        ("out", None),
        ("$OUT", None),
        ("/ckpt/../root", False),
    ],
)
@pytest.mark.parametrize("typed", [False, True])
def test_what_is_kept_outlives_the_pod(path, expected, typed):
    made = objects(
        mounts={"claim": "/ckpt"},
        command=f"torchrun train.py --checkpoint-dir={path}" if typed else "torchrun train.py",
        env_vars={} if typed else {"CHECKPOINT_DIR": path},
    )
    for name, volume in (("s", {"emptyDir": {}}), ("h", {"hostPath": {"path": "/data"}})):
        pod_of(made[0])["volumes"].append({"name": name, **volume})
        place = {"s": "/scratch", "h": "/node"}[name]
        main_of(made[0])["volumeMounts"].append({"name": name, "mountPath": place})
    findings = judged(made)
    assert faults(findings) == (["checkpoint.not-durable"] if expected is False else [])
    assert any(f.ok is None for f in findings) == (expected is None)


def zones(policy, *gpus):
    return Zones("gpu-node-0", policy, tuple({"nvidia.com/gpu": count} for count in gpus))


@pytest.mark.parametrize(
    ("known", "bad"),
    [
        ((zones("single-numa-node", 4, 4),), True),
        ((zones("single-numa-node", 8),), False),
        ((zones("restricted", 4, 4),), False),
        ((zones("none", 4, 4),), False),
        ((zones("single-numa-node", 4, 4), zones("single-numa-node", 8)), False),
        ((), False),
    ],
    ids=["two of four", "one of eight", "restricted", "none", "one node admits it", "not known"],
)
def test_gpus_that_no_kubelet_would_admit(known, bad):
    made = objects()
    found = faults(judged(made, around(services=sort_out(made).services, zones=known)))
    assert found == (["topology.inadmissible"] if bad else [])


def test_ranks_that_share_a_node_are_said_and_not_at_fault():
    made = objects(gpu_count=4)
    assert faults(judged(made)) == [] and any("share a node" in f.observed for f in judged(made) if f.ok is None)
    assert all(f.ok for f in judged(objects(gpu_count=4, anti_affinity=True)))


# -- other kinds -------------------------------------------------------------------------------------------------------

TEMPLATE = """
      containers:
      - name: main
        image: registry.example.com/train:1
        command: [torchrun, --nnodes=2, --rdzv_endpoint={endpoint}, train.py]
        resources: {{limits: {{nvidia.com/gpu: 8}}}}
"""
JOB_SET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: set}}
spec:
  replicatedJobs:
  - name: workers
    replicas: 1
    template:
      spec:
        parallelism: 2
        completionMode: Indexed
        template:
          spec:
""" + TEMPLATE.replace("\n      ", "\n            ")
STATEFUL_SET = (
    """
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: set}}
spec:
  replicas: 2
  serviceName: set
  template:
    metadata: {{labels: {{app: set}}}}
    spec:
"""
    + TEMPLATE
)
RAY_JOB = """
apiVersion: ray.io/v1
kind: RayJob
metadata: {{name: set}}
spec:
  rayClusterSpec:
    headGroupSpec: {{template: {{spec: {{containers: [{{name: head}}]}}}}}}
    workerGroupSpecs:
    - groupName: gpus
      replicas: 2
      template:
        spec:
""" + TEMPLATE.replace("\n      ", "\n          ")


@pytest.mark.parametrize(
    ("text", "endpoint", "expected"),
    [
        (JOB_SET, "set-workers-0-0.set:29500", ["manifest.no-ipc-lock", "manifest.no-rdma", "manifest.no-shm"]),
        (STATEFUL_SET, "set-0.set:29500", ["manifest.no-ipc-lock", "manifest.no-rdma", "manifest.no-shm"]),
        (
            STATEFUL_SET,
            "set-1.set:29500",
            ["manifest.no-ipc-lock", "manifest.no-rdma", "manifest.no-shm", "manifest.rendezvous"],
        ),
        (RAY_JOB, "other:29500", ["manifest.no-ipc-lock", "manifest.no-rdma", "manifest.no-shm"]),
    ],
    ids=["JobSet", "StatefulSet", "StatefulSet, rank 1", "RayJob"],
)
def test_pods_of_other_kinds(text, endpoint, expected):
    found = read_manifests(text.format(endpoint=endpoint))
    assert faults(f for each in found.workloads for f in contract_findings(each, around())) == expected
    wrapped = read_manifests(
        yaml.safe_dump({"kind": "List", "items": [yaml.safe_load(text.format(endpoint=endpoint))]})
    )
    assert [each.raw for each in wrapped.workloads] == [each.raw for each in found.workloads]
    assert "2 pods with 8 nvidia.com/gpu" in summary(found.workloads[0], around())


def test_replicas_that_serve_do_not_train():
    text = (
        STATEFUL_SET.format(endpoint="x")
        .replace("StatefulSet", "Deployment")
        .replace("torchrun, --nnodes=2, ", "serve, ")
    )
    (workload,) = read_manifests(text.replace("--rdzv_endpoint=x, ", "")).workloads
    assert faults(contract_findings(workload, around())) == ["manifest.no-shm"]
    assert [f for f in contract_findings(workload, around()) if f.ok is None] == []


def test_every_rule_has_been_broken_above():
    text = Path(__file__).read_text(encoding="utf-8")
    assert not [fault for fault in FAULTS if f'"{fault}"' not in text]


# -- untrusted text ----------------------------------------------------------------------------------------------------

BOMB = "a: &a {k1: v, k2: v}\n" + "".join(
    f"{new}: &{new} {{<<: [{', '.join([f'*{old}'] * 60)}]}}\n" for old, new in zip("abcdefg", "bcdefgh", strict=True)
)


@table(
    "text",
    [
        "{{ .Values.job }}",
        "kind: Job\nmetadata: {name: [",
        "just text",
        "- 1\n- 2",
        "[" * 50_000,
        '{"a":' * 50_000,
        "kind: 7",
        "? [1, 2]\n: x",
        "!!python/object/apply:os.system ['true']",
        "x: " + "9" * 5000,
        "\x00",
        BOMB,
        "kind: Job\nspec: {template: {spec: {containers: [" + "{}, " * 300 + "]}}}",
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_manifest_is_said_in_one_line(text):
    with pytest.raises(ManifestError) as error:
        read_manifests(text)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


def test_nothing_is_nothing():
    assert read_manifests("---\n---\n").workloads == ()


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-2, 10**30), st.floats(), st.text(max_size=8))
KEYS = st.sampled_from(
    [
        "spec",
        "metadata",
        "template",
        "name",
        "namespace",
        "labels",
        "annotations",
        "containers",
        "initContainers",
        "volumes",
        "env",
        "value",
        "valueFrom",
        "resources",
        "limits",
        "requests",
        "claims",
        "nvidia.com/gpu",
        "rdma/hca",
        "command",
        "args",
        "image",
        "subdomain",
        "securityContext",
        "capabilities",
        "add",
        "privileged",
        "volumeMounts",
        "mountPath",
        "emptyDir",
        "sizeLimit",
        "hostPath",
        "path",
        "replicatedJobs",
        "replicas",
        "parallelism",
        "completions",
        "completionMode",
        "mpiReplicaSpecs",
        "pytorchReplicaSpecs",
        "Worker",
        "Launcher",
        "trainer",
        "resourcesPerNode",
        "numNodes",
        "runtimePatches",
        "podTemplateOverrides",
        "rayClusterSpec",
        "headGroupSpec",
        "workerGroupSpecs",
        "serviceName",
        "network",
        "affinity",
        "podAntiAffinity",
        "topologySpreadConstraints",
        "volumeClaimTemplates",
        "jobTemplate",
        "selector",
        "clusterIP",
    ]
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=25,
)
CALM = settings(
    max_examples=300, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def replaced(draw, tree):
    """Return a correct manifest with one part replaced by any value."""
    tree = copy.deepcopy(tree)
    at = tree
    for _ in range(draw(st.integers(1, 9))):
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            break
        key = draw(st.sampled_from(keys))
        if not isinstance(at[key], dict | list) or draw(st.integers(0, 5)) == 0:
            at[key] = draw(TREES)
            break
        at = at[key]
    return tree


@CALM
@given(st.data())
def test_no_shape_of_a_manifest_breaks_the_rules(data):
    kind = data.draw(st.sampled_from(KINDS))
    wild = {"kind": kind, **dict(data.draw(st.dictionaries(KEYS, TREES, max_size=4)))}
    near = replaced(data.draw, data.draw(st.sampled_from(RIGHT)))
    for item in (wild, {**near, "kind": near.get("kind") if isinstance(near.get("kind"), str) else "Job"}):
        try:
            found = sort_out([item, {"kind": "Service", **dict(data.draw(st.dictionaries(KEYS, TREES, max_size=3)))}])
        except ManifestError:
            continue
        for each in found.workloads:
            for known in (around(services=found.services), around(None, services=found.services, nics=("rdma/x",))):
                assert not [c for c in summary(each, known) if unicodedata.category(c) in ("Cc", "Zl", "Zp")]
                for finding in contract_findings(each, known):
                    assert len(finding.observed) < 2000 and "\n" not in finding.observed


RIGHT = [objects(launcher)[0] for launcher in LAUNCHERS] + [
    yaml.safe_load(text.format(endpoint="x:1")) for text in (JOB_SET, STATEFUL_SET, RAY_JOB)
]


# -- invalid manifests -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"command": "torchrun --nnodes=2"}, "command is not a list of strings"),
        ({"args": ["--steps", 2]}, "args is not a list of strings"),
        ({"env": [{"name": "NCCL_IB_DISABLE", "value": 1}]}, "NCCL_IB_DISABLE: 1 is not a string"),
        ({"env": [{"name": "NCCL_IB_DISABLE", "value": False}]}, "NCCL_IB_DISABLE: False is not a string"),
        ({"resources": {"limits": {"nvidia.com/gpu": "8x"}}}, "nvidia.com/gpu: '8x' is not a quantity"),
        ({"resources": {"requests": {"nvidia.com/gpu": 8}}}, "nvidia.com/gpu has a request and no limit"),
    ],
    ids=["command", "args", "variable", "truth-value", "quantity", "request-alone"],
)
def test_what_the_api_server_refuses_is_not_passed_over(change, words):
    """The intention is unknown, so the manifest never gets 'nothing is missing'."""
    made = objects()
    main_of(made[0]).update(change)
    told = [f for f in judged(made) if words in f.observed]
    assert [f.ok for f in told] == [None], told


@pytest.mark.parametrize("template", [{}, {"specs": {"containers": [{"name": "main"}]}}, {"spec": {"containers": []}}])
def test_a_template_without_containers_is_not_known(template):
    """A kustomize patch and a misspelt key have no containers."""
    (found,) = judged([{"kind": "Job", "metadata": {"name": "x"}, "spec": {"template": template}}])
    assert (found.ok, found.observed) == (None, "the pod template has no containers")


def test_quantities_variables_and_commands_of_every_form_are_taken():
    """Near misses: numbers as quantities, a variable without a value, valueFrom, an empty command."""
    made = objects()
    before = [f.observed for f in judged(made)]
    main = main_of(made[0])
    main["env"] += [{"name": "A"}, {"name": "B", "value": None}, {"name": "C", "valueFrom": {}}]
    main["resources"]["limits"]["cpu"], main["args"] = 1.5, []
    assert [f.observed for f in judged(made)] == before


@pytest.mark.parametrize("count", ["2", "two", -1, True, 1.5])
def test_a_count_of_pods_that_is_none_is_refused(count):
    """Read as one pod, the job would not need a fabric."""
    job = {"kind": "Job", "metadata": {"name": "x"}, "spec": {"parallelism": count}}
    with pytest.raises(ManifestError, match=r"Job/x: .* is not a number of pods"):
        sort_out([job])


@pytest.mark.parametrize(
    ("kind", "version"),
    [("Job", "batch.volcano.sh/v1alpha1"), ("Service", "serving.knative.dev/v1"), ("Job", "batch"), ("Job", 1)],
)
def test_a_kind_of_another_group_is_not_looked_at(kind, version):
    """Volcano's Job has its templates elsewhere; read as a Kubernetes Job it would have no fabric requirement."""
    found = sort_out([{"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": {}}])
    assert (found.workloads, found.services, found.others) == ((), (), (f"{kind}/x",))


@table("kind", KINDS)
def test_a_kind_of_its_own_group_is_read_in_any_version(kind):
    """kubeflow.org/v1, v2beta1 and others; items of a list response have no version."""
    for version in ({}, {"apiVersion": f"{GROUPS[kind]}/v9".removeprefix("/")}):
        assert len(sort_out([{**version, "kind": kind, "metadata": {"name": "x"}}]).workloads) == 1
