"""A spec is refused with one line, or yields exactly the objects that training would use."""

import base64
import dataclasses
import io
import json
import random
import re
import zipfile

import pytest
import yaml

from jobs.trial.job_spec import RESERVED_ENV, new_run_id
from jobs.trial.manifests import build, dry_pod, to_yaml
from jobs.trial.names import SpecError
from jobs.trial.parts import BenchSizes, Collective, Credential, Deadlines
from jobs.trial.payload import digest, files
from jobs.trial.spec import TrialSpec
from tests.table import table

FILES = {"__main__.py": "print(1)\n", "nccl/lines.py": "# x: y\n", "stages/a.py": "'{{ no template }}'\n"}


def spec(**more):
    return TrialSpec(**({"run_id": "abc", "namespace": "ns", "image": "nvcr.io/nvidia/pytorch:25.08-py3"} | more))


FULL = spec(
    nodes=3,
    gpus_per_node=4,
    pull_secrets=("ngc",),
    pull_policy="Always",
    node_selector={"nvidia.com/gpu.product": "H100"},
    tolerations=({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},),
    cpu="16",
    memory="64Gi",
    shm_bytes=1 << 34,
    resources={"rdma/hca_shared_devices_a": 1},
    hugepages={"2Mi": "5120Mi"},
    annotations={"k8s.v1.cni.cncf.io/networks": "rail-0,rail-1"},
    labels={"team": "a"},
    capabilities=("IPC_LOCK",),
    runtime_class="nvidia",
    scheduler_name="volcano",
    priority_class="low",
    host_network=True,
    sidecars=({"name": "tcpx", "image": "gcr.io/tcpx:v1", "securityContext": {"privileged": True}},),
    env={"NCCL_IB_HCA": "mlx5", "NCCL_DEBUG": "WARN"},
    master_port=23456,
)


def pod_of(made):
    return made.job["spec"]["template"]["spec"]


def test_the_job_is_indexed_suspended_and_ends_by_itself():
    """A Job has one pod per node, no retry, a deadline, a TTL; it is created suspended, before the objects it owns."""
    made = build(FULL, FILES).job
    expected = {
        "suspend": True,
        "completionMode": "Indexed",
        "completions": 3,
        "parallelism": 3,
        "backoffLimit": 0,
        "activeDeadlineSeconds": 1560,
        "ttlSecondsAfterFinished": 3600,
    }
    assert {key: made["spec"][key] for key in expected} == expected
    assert made["spec"]["podFailurePolicy"]["rules"][0]["action"] == "FailJob"


def test_everything_carries_the_run_and_who_manages_it():
    """The recommended labels are set; the instance is the run id."""
    made = build(FULL, FILES)
    for item in (made.job, made.service, made.configmap, made.job["spec"]["template"]):
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "seatrial"
        assert labels["app.kubernetes.io/instance"] == "abc"
        assert labels["team"] == "a"


def test_the_pod_has_the_shape_of_training():
    """Every setting of the profile is in the Kubernetes field that it belongs to."""
    pod = pod_of(build(FULL, FILES))
    (trial,) = pod["containers"]
    assert pod["subdomain"] == "seatrial-abc" and pod["restartPolicy"] == "Never"
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "H100"}
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert pod["imagePullSecrets"] == [{"name": "ngc"}]
    assert (pod["runtimeClassName"], pod["schedulerName"], pod["priorityClassName"]) == ("nvidia", "volcano", "low")
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert pod["initContainers"][0]["restartPolicy"] == "Always" and pod["initContainers"][0]["name"] == "tcpx"
    exact = {"nvidia.com/gpu": "4", "rdma/hca_shared_devices_a": "1", "hugepages-2Mi": "5120Mi"}
    assert trial["resources"] == {"limits": exact, "requests": exact | {"cpu": "16", "memory": "64Gi"}}
    assert trial["imagePullPolicy"] == "Always"
    template = build(FULL, FILES).job["spec"]["template"]["metadata"]
    assert template["annotations"] == {"k8s.v1.cni.cncf.io/networks": "rail-0,rail-1"}
    mounts = {mount["mountPath"]: mount["name"] for mount in trial["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes[mounts["/dev/shm"]]["emptyDir"] == {"medium": "Memory", "sizeLimit": str(1 << 34)}
    assert volumes[mounts["/dev/hugepages"]]["emptyDir"] == {"medium": "HugePages"}


def test_ranks_are_kept_on_different_nodes_of_this_run_only():
    """The anti-affinity is to its own run: a concurrent run does not delay it."""
    affinity = pod_of(build(FULL, FILES))["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert affinity == [
        {
            "labelSelector": {
                "matchLabels": {"app.kubernetes.io/instance": "abc", "app.kubernetes.io/component": "trial"}
            },
            "topologyKey": "kubernetes.io/hostname",
        }
    ]
    assert "affinity" not in pod_of(build(spec(nodes=1), FILES))


def test_nodes_are_named_or_avoided_one_by_one():
    """A field term takes one name: several terms select one of several nodes, one term excludes all. Names take
    precedence."""

    def terms(**more):
        affinity = pod_of(build(spec(**more), FILES))["affinity"]["nodeAffinity"]
        node_terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        return [[(f["operator"], f["values"]) for f in term["matchFields"]] for term in node_terms]

    assert terms(avoided=("n2", "n1", "n2")) == [[("NotIn", ["n1"]), ("NotIn", ["n2"])]]
    assert terms(node_names=("n0", "n1"), avoided=("n1",)) == [[("In", ["n0"])], [("In", ["n1"])]]


def test_the_pod_is_as_restricted_as_training_allows():
    """Pods have no token, no privilege escalation and no unrequested capability; they run as root, as stock images need
    it."""
    pod = pod_of(build(FULL, FILES))
    assert pod["automountServiceAccountToken"] is False
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]},
    }
    assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert pod_of(build(spec(run_as_user=1000), FILES))["securityContext"]["runAsNonRoot"] is True


def test_both_conventions_of_the_environment_are_there():
    """TAO's table: WORLD_SIZE counts nodes; the rank is the completion index."""
    env = {item["name"]: item for item in pod_of(build(FULL, FILES))["containers"][0]["env"]}
    plain = {
        "WORLD_SIZE": "3",
        "NNODES": "3",
        "NUM_GPU_PER_NODE": "4",
        "NPROC_PER_NODE": "4",
        "MASTER_PORT": "23456",
        "MASTER_ADDR": "seatrial-abc-0.seatrial-abc",
        "SEATRIAL_RUN": "abc",
        "NCCL_IB_HCA": "mlx5",
    }
    assert {name: env[name]["value"] for name in plain} == plain
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert env["NODE_RANK"]["valueFrom"]["fieldRef"]["fieldPath"] == index
    assert env["NCCL_DEBUG"]["value"] == "WARN"  # the user's setting is kept; the probe raises it for the collectives
    assert env["NCCL_DEBUG_SUBSYS"]["value"] == "INIT,BOOTSTRAP,ENV,NET,GRAPH,TUNING"
    assert set(env) >= RESERVED_ENV - {"JOB_COMPLETION_INDEX"}


def test_the_service_is_headless_and_publishes_early():
    """Ranks must find each other before they are ready."""
    service = build(FULL, FILES).service
    assert service["metadata"]["name"] == "seatrial-abc"
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": "seatrial-abc"}


def test_the_probe_is_mounted_as_one_archive_and_run_without_a_shell():
    """Other data of the ConfigMap is not mounted."""
    made = build(FULL, FILES, "YQ==")
    pod = pod_of(made)
    assert pod["containers"][0]["command"] == ["python3", "/seatrial/probe.pyz"]
    (volume,) = [volume for volume in pod["volumes"] if "configMap" in volume]
    names = ["probe.pyz", "trial.json"]
    assert volume["configMap"]["items"] == [{"key": name, "path": name} for name in names]
    assert {*made.configmap["binaryData"], *made.configmap["data"]} == {*names, "begun"}
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(made.configmap["binaryData"]["probe.pyz"]))) as packed:
        assert {name: packed.read(name).decode() for name in packed.namelist()} == FILES


def test_the_probe_is_given_what_to_do():
    """trial.json has schema 1."""
    settings = json.loads(build(FULL, FILES).configmap["data"]["trial.json"])
    assert settings["peers"] == [f"seatrial-abc-{i}.seatrial-abc" for i in range(3)]
    assert settings["collectives"] == [
        {"name": name, "op": "all_reduce", "scope": "job", "env": env, "repeats": 1}
        for name, env in (("ring", {"NCCL_ALGO": "Ring"}), ("default", {}))
    ]
    assert settings["peer_wait_s"] == 900  # the first pods wait as long as the last may need to start
    assert (settings["deadline_s"], settings["gpus_per_node"], settings["master_port"], settings["gpu_kind"]) == (
        540,
        4,
        23456,
        "nvidia",
    )
    assert settings["bench"] == dataclasses.asdict(BenchSizes())


def test_the_jobs_uid_makes_the_owner():
    """blockOwnerDeletion would need another permission and is not set."""
    for item in build(FULL, FILES).owned_by("u-1"):
        (owner,) = item.body["metadata"]["ownerReferences"]
        assert owner["uid"] == "u-1" and owner["kind"] == "Job" and "blockOwnerDeletion" not in owner
    assert "ownerReferences" not in build(FULL, FILES).service["metadata"]


def test_a_dry_run_pod_is_the_jobs_pod():
    """The dry-run Pod has the same spec as the Job's pods."""
    pod = dry_pod(FULL)
    assert pod["kind"] == "Pod" and pod["metadata"]["generateName"] == "seatrial-abc-"
    assert pod["spec"]["containers"] == pod_of(build(FULL, FILES))["containers"]


def test_printed_manifests_are_yaml_in_the_order_of_creation():
    """The output of --print-manifests says how to create it: a client-side apply has no room for the ConfigMap."""
    text = to_yaml(build(FULL, FILES), with_files=True)
    assert [item["kind"] for item in yaml.safe_load_all(text)] == ["Job", "ConfigMap", "Service"]
    assert "kubectl create -f -" in text.splitlines()[0]


def test_the_probes_source_is_printed_only_where_it_is_asked_for():
    """Otherwise a Job of a hundred lines would be hidden among thousands. The archive is identified by its digest."""
    texts = [to_yaml(build(FULL, FILES), with_files=shown) for shown in (True, False)]
    whole, short = (list(yaml.safe_load_all(text)) for text in texts)
    assert whole[1].pop("data") and whole[1].pop("binaryData")
    assert short == whole
    assert all(digest(FILES) in text for text in texts)


def test_people_read_the_source_that_runs_among_the_manifests():
    """Every line of every shipped file is printed after a '#', below its name in the archive."""
    shipped = files()
    text = to_yaml(build(FULL, shipped), with_files=True)
    assert len(list(yaml.safe_load_all(text))) == 3
    _, *shown = re.split(r"\n#{120}\n# probe\.pyz: (.+)\n#{120}\n", text)
    read = {
        name: [line[2:] for line in lines.splitlines()] for name, lines in zip(shown[::2], shown[1::2], strict=True)
    }
    assert read == {name: [line.rstrip() for line in source.splitlines()] for name, source in shipped.items()}


def test_a_probe_that_does_not_fit_is_refused():
    """A ConfigMap holds 1 MiB, compressed."""
    noise = random.Random(1).randbytes(900_000).hex()
    with pytest.raises(SpecError, match="more than a ConfigMap holds"):
        build(FULL, {"__main__.py": noise})
    assert build(FULL, {"__main__.py": "", "a.py": noise[:1_500_000]})  # hexadecimal compresses to half


def test_two_runs_never_share_a_name():
    """A run id has ten characters without look-alikes."""
    ids = {new_run_id() for _ in range(2000)}
    assert len(ids) == 2000 and all(spec(run_id=run).job_name == f"seatrial-{run}" for run in list(ids)[:20])


def test_host_names_stay_within_dns():
    """The longest run id and the highest index still fit a DNS label."""
    longest = spec(run_id="a" * 40, nodes=5000)
    assert max(len(peer.split(".")[0]) for peer in longest.peers) <= 63
    assert len(longest.job_name) <= 63


@table(
    "wrong, match",
    [
        ({"run_id": "Abc"}, "run id 'Abc' is not usable in a DNS name"),
        ({"run_id": "a" * 41}, "at most 40 characters"),
        ({"run_id": ""}, "run id"),
        ({"run_id": "a\n"}, "run id"),
        ({"namespace": "kube/system"}, "namespace"),
        ({"image": "http://x/y"}, "not an image reference"),
        ({"image": ""}, "not an image reference"),
        ({"image": "a b"}, "not an image reference"),
        ({"image": "Upper/case"}, "not an image reference"),
        ({"nodes": 0}, "nodes must be a whole number from 1"),
        ({"nodes": True}, "nodes must be a whole number"),
        ({"gpus_per_node": -1}, "gpus per node"),
        ({"master_port": 80}, "MASTER_PORT must be a whole number from 1024"),
        ({"cpu": "many"}, "cpu 'many' is not a quantity"),
        ({"memory": "-1Gi"}, "memory '-1Gi' is not a quantity"),
        ({"resources": {"hca": 1}}, "not an extended resource"),
        ({"resources": {"nvidia.com/gpu": 1}}, "given twice"),
        ({"resources": {"rdma/hca": 0}}, "from 1 to"),
        ({"hugepages": {"2M": "1Gi"}, "memory": "1Gi"}, "not a page size"),
        ({"hugepages": {"2Mi": "1Gi"}}, "hugepages need a cpu or memory request"),
        ({"node_selector": {"a b": "c"}}, "node selector 'a b' is not a valid key"),
        ({"node_selector": {"a": True}}, "quote numbers and true/false"),
        ({"labels": {"app.kubernetes.io/instance": "x"}}, "set by seatrial itself"),
        ({"env": {"1A": "x"}}, "not a valid name"),
        ({"env": {"WORLD_SIZE": "16"}}, "WORLD_SIZE is set by seatrial"),
        ({"env": {"A": 5}}, "A must be text"),
        ({"tolerations": ({"key": "a", "operator": "Is"},)}, "operator must be Exists"),
        ({"tolerations": ({"operator": "Equal"},)}, "without a key needs the operator Exists"),
        ({"tolerations": ({"key": "a", "effekt": "x"},)}, "unknown field 'effekt'"),
        ({"capabilities": ("CAP_IPC_LOCK",)}, "as in Kubernetes, e.g. IPC_LOCK"),
        ({"runtime_class": "NVIDIA"}, "runtime class 'NVIDIA' is not a valid name"),
        ({"pull_policy": "Sometimes"}, "pull policy"),
        ({"sidecars": ({"name": "trial", "image": "a"},)}, "differ from each other and from 'trial'"),
        ({"sidecars": ({"name": "x"},)}, "no usable image"),
        ({"run_as_user": 0}, "user id"),
        ({"collectives": (Collective(name="a"), Collective(name="a"))}, "same name"),
    ],
)
def test_what_a_user_typed_wrong_is_one_clear_line(wrong, match):
    """The error comes before anything is created."""
    with pytest.raises(SpecError, match=match) as caught:
        spec(**wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "image",
    [
        "python",
        "localhost:5000/a/b:1",
        "nvcr.io/nvidia/pytorch@sha256:" + "a" * 64,
        "r.io/x:t@sha256:" + "0" * 64,
        "a.b/c_d/e-f.g:V1.0_x",
    ],
)
def test_images_by_tag_and_digest_are_accepted(image):
    """Every image is configurable; digests are accepted."""
    assert spec(image=image).image == image


def test_the_jobs_deadline_leaves_room_for_the_probe():
    """A Job that reaches its deadline deletes its pods and their logs."""
    with pytest.raises(SpecError, match="at least start_s"):
        Deadlines(start_s=300, probe_s=540, job_s=600)
    assert Deadlines(start_s=60, probe_s=100).job_s == 280
    with pytest.raises(SpecError, match="start_s must be between"):
        Deadlines(start_s=-1)


def test_a_bench_that_cannot_be_is_refused():
    """Sizes must be in order, with a growing factor."""
    for wrong in ({"min_bytes": 0}, {"min_bytes": 8, "max_bytes": 4}, {"factor": 1}, {"iters": 0}):
        with pytest.raises(SpecError):
            BenchSizes(**wrong)


GIB = {"name": "gib", "hostPath": {"path": "/home/kubernetes/bin/gib"}}


def test_a_fabrics_libraries_and_limits_can_be_given():
    """Google's A3 machines mount NCCL's network plugin from the host; some quotas require cpu and memory limits."""
    made = spec(
        volumes=(GIB,),
        mounts=({"name": "gib", "mountPath": "/usr/local/gib"},),
        cpu="8",
        memory="32Gi",
        limits={"cpu": "8", "memory": "64Gi"},
    )
    pod = pod_of(build(made, FILES))
    (trial,) = pod["containers"]
    assert GIB in pod["volumes"] and {"name": "gib", "mountPath": "/usr/local/gib"} in trial["volumeMounts"]
    assert (trial["resources"]["limits"]["cpu"], trial["resources"]["limits"]["memory"]) == ("8", "64Gi")
    assert trial["resources"]["requests"]["memory"] == "32Gi"


@table(
    "more, match",
    [
        ({"volumes": ({"name": "probe", "emptyDir": {}},)}, "'probe' is taken"),
        ({"volumes": (GIB, GIB)}, "'gib' is taken"),
        ({"volumes": ({"emptyDir": {}},)}, "volume name"),
        ({"mounts": ({"name": "gib", "mountPath": "/usr/local/gib"},)}, "is not found"),
        ({"volumes": (GIB,), "mounts": ({"name": "gib", "mountPath": "/seatrial/nccl"},)}, "used by seatrial"),
        ({"volumes": (GIB,), "mounts": ({"name": "gib", "mountPath": "usr"},)}, "not absolute"),
        ({"limits": {"cpu": "many"}}, "limits: cpu"),
        ({"limits": {"nvidia.com/gpu": "8"}}, "cpu or memory"),
        ({"cpu": "16", "limits": {"cpu": "8"}}, "not below its request"),
    ],
)
def test_volumes_and_limits_that_cannot_work_are_refused(more, match):
    """The refusal is one line, before anything is created."""
    with pytest.raises(SpecError, match=match):
        spec(**more)


def test_a_credential_comes_under_a_name_that_no_image_sets_too():
    """An image's ENV HF_TOKEN proves nothing about the Secret, so the probe reads the other name."""
    asked = (Credential(env="HF_TOKEN", secret="hub", key="token"), Credential(env="NGC", secret="ngc", key="key"))
    env = {item["name"]: item for item in pod_of(build(spec(credentials=asked), FILES))["containers"][0]["env"]}
    source = {"secretKeyRef": {"name": "ngc", "key": "key", "optional": True}}
    assert env["NGC"]["valueFrom"] == env["SEATRIAL_CREDENTIAL_1"]["valueFrom"] == source
    assert env["SEATRIAL_CREDENTIAL_0"]["valueFrom"]["secretKeyRef"]["name"] == "hub"
