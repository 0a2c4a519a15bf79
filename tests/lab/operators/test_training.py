"""PyTorchJobs and TrainJobs: the names, environment and conditions that training uses; Kueue suspends both."""

import asyncio
import textwrap

import pytest

from lab.apiserver.store import ApiError
from lab.cluster import Cluster
from lab.scenario import load
from tests.lab.clusters import seen_in, told
from tests.waiting import in_no_time

TORCH = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
KEY, TRAIN, SETS = "pytorchjobs.kubeflow.org", "trainjobs.trainer.kubeflow.org", "jobsets.jobset.x-k8s.io"


def pytorchjob(workers=1, command=None, run=None, labels=None, **spec):
    container = {
        "name": "pytorch",
        "image": "torch",
        **({"command": command} if command else {}),
        "resources": {"limits": {"nvidia.com/gpu": "8"}} if command is None else {},
    }
    template = {"spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}}
    return {
        **TORCH,
        "metadata": {"name": "train", "namespace": "default", "labels": labels or {}},
        "spec": {
            "runPolicy": run or {},
            "nprocPerNode": "8",
            **spec,
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "restartPolicy": "Never", "template": template},
                "Worker": {"replicas": workers, "restartPolicy": "Never", "template": template},
            },
        },
    }


def trainjob(labels=None, **spec):
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "train", "namespace": "default", "labels": labels or {}},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            **spec,
            "trainer": {
                "numNodes": 2,
                "numProcPerNode": 8,
                "image": "torch",
                "resourcesPerNode": {"limits": {"nvidia.com/gpu": "8"}},
                **spec.get("trainer", {}),
            },
        },
    }


def env(pod, container=0):
    return {each["name"]: each.get("value", "(field)") for each in pod["spec"]["containers"][container].get("env", [])}


def said(lab, key=KEY, name="train"):
    return {kind: condition[:2] for kind, condition in lab.conditions(key, name).items()}


def test_master_and_workers_know_each_other(bench):
    """Both environment conventions, the master's Service and labels equal the Training Operator's."""

    async def run():
        async with bench("training") as lab:
            lab.apply(pytorchjob())
            await lab.until(lambda: lab.store.get("pods", "default", "train-worker-0"))
            worker, master = (lab.store.get("pods", "default", f"train-{role}-0") for role in ("worker", "master"))
            assert (
                env(worker).items()
                >= {
                    "MASTER_ADDR": "train-master-0",
                    "MASTER_PORT": "23456",
                    "WORLD_SIZE": "16",
                    "RANK": "1",
                    "PET_NODE_RANK": "1",
                    "PET_NNODES": "2",
                    "PET_NPROC_PER_NODE": "8",
                    "PET_MASTER_ADDR": "train-master-0",
                }.items()
            )
            assert env(master)["RANK"] == "0"
            assert worker["spec"]["initContainers"][0]["name"] == "init-pytorch"
            service = lab.store.get("services", "default", "train-master-0")["spec"]
            assert service["clusterIP"] == "None"
            assert service["selector"]["training.kubeflow.org/replica-type"] == "master"
            for name in ("train-master-0", "train-worker-0"):
                lab.run(name)
            await lab.until(lambda: said(lab)["Running"] == ("True", "PyTorchJobRunning"))
            lab.finish("train-worker-0")
            lab.finish("train-master-0")
            await lab.until(lambda: said(lab)["Succeeded"] == ("True", "PyTorchJobSucceeded"))
            assert said(lab)["Running"][0] == "False"

    in_no_time(run())


def test_a_worker_that_fails_fails_the_job(bench):
    """The message counts the failed replicas of a role."""

    async def run():
        async with bench("training") as lab:
            lab.apply(pytorchjob(run={"cleanPodPolicy": "All"}))
            await lab.until(lambda: lab.store.get("pods", "default", "train-worker-0"))
            lab.finish("train-worker-0", "Failed")
            await lab.until(lambda: lab.conditions(KEY, "train")["Failed"])
            assert lab.conditions(KEY, "train")["Failed"] == (
                "True",
                "PyTorchJobFailed",
                "PyTorchJob default/train is failed because 1 Worker replica(s) failed.",
            )
            await lab.until(lambda: not lab.store.list("pods", "default"))

    in_no_time(run())


def test_volcano_gang_of_a_pytorchjob(bench):
    """With gang scheduling the operator creates a PodGroup of all replicas: none starts without room for all."""

    async def run():
        async with bench("volcano", {"training": {"gang": "volcano"}}) as lab:
            lab.apply(pytorchjob(workers=2))
            group = await lab.until(lambda: lab.store.get("podgroups.scheduling.volcano.sh", "default", "train"))
            assert group["spec"]["minMember"] == 3
            await lab.until(lambda: len(lab.store.list("pods", "default")) == 3)
            await lab.quiet()
            assert not [p for p in lab.store.list("pods", "default") if p["spec"].get("nodeName")]

    in_no_time(run())


def test_a_trainjob_becomes_a_jobset(bench):
    """JobSet, Job, Service and torchrun's variables have Trainer's names."""

    async def run():
        async with bench("trainer") as lab:
            lab.apply(
                trainjob(
                    trainer={"command": ["torchrun", "x.py"], "env": [{"name": "A", "value": "1"}]},
                    podTemplateOverrides=[
                        {
                            "targetJobs": [{"name": "node"}],
                            "metadata": {"labels": {"mine": "yes"}},
                            "spec": {
                                "volumes": [{"name": "v", "emptyDir": {}}],
                                "containers": [{"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
                            },
                        }
                    ],
                )
            )
            await lab.until(lambda: len(lab.store.list("pods", "default")) == 2)
            jobset = lab.store.get(SETS, "default", "train")
            assert jobset["metadata"]["ownerReferences"][0]["kind"] == "TrainJob"
            job = lab.store.get("jobs.batch", "default", "train-node-0")["spec"]
            assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 2, 2)
            pod = lab.store.list("pods", "default")[0]
            assert pod["spec"]["subdomain"] == "train"
            assert pod["spec"]["hostname"] in ("train-node-0-0", "train-node-0-1")
            assert (
                pod["metadata"]["labels"].items()
                >= {
                    "jobset.sigs.k8s.io/jobset-name": "train",
                    "jobset.sigs.k8s.io/replicatedjob-name": "node",
                    "mine": "yes",
                }.items()
            )
            assert (
                env(pod).items()
                >= {
                    "PET_NNODES": "2",
                    "PET_NPROC_PER_NODE": "8",
                    "PET_MASTER_ADDR": "train-node-0-0.train",
                    "PET_MASTER_PORT": "29500",
                    "A": "1",
                    "PET_NODE_RANK": "(field)",
                }.items()
            )
            assert pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"] == "/v"
            assert lab.store.get("services", "default", "train")["spec"]["publishNotReadyAddresses"] is True
            for each in lab.store.list("pods", "default"):
                lab.finish(each["metadata"]["name"])
            await lab.until(
                lambda: (
                    lab.conditions(TRAIN, "train")["Complete"]
                    == ("True", "AllJobsCompleted", "jobset completed successfully")
                )
            )
            assert lab.store.get(SETS, "default", "train")["status"]["terminalState"] == "Completed"

    in_no_time(run())


def test_a_failed_trainjob_says_which_job(bench):
    """Failed with the JobSet's own reason."""

    async def run():
        async with bench("trainer") as lab:
            lab.apply(trainjob())
            await lab.until(lambda: lab.store.get("jobs.batch", "default", "train-node-0"))
            lab.store.mutate("jobs.batch", "default", "train-node-0", lambda j: j["spec"].update(backoffLimit=0))
            pods = await lab.until(lambda: lab.store.list("pods", "default"))
            lab.finish(pods[0]["metadata"]["name"], "Failed")
            await lab.until(lambda: lab.conditions(TRAIN, "train")["Failed"])
            assert lab.conditions(TRAIN, "train")["Failed"] == (
                "True",
                "FailedJobs",
                "jobset failed due to one or more job failures (first failed job: train-node-0)",
            )

    in_no_time(run())


def test_the_trainer_refuses_what_cannot_run(bench):
    """A missing runtime, and variables reserved for torchrun, are refused."""

    async def run():
        async with bench("trainer") as lab:
            with pytest.raises(
                ApiError, match='"nope" not found: specified clusterTrainingRuntime must be created before'
            ):
                lab.apply(trainjob(runtimeRef={"name": "nope"}))
            with pytest.raises(ApiError, match="must not have reserved envs"):
                lab.apply(trainjob(trainer={"env": [{"name": "PET_NNODES", "value": "2"}]}))

    in_no_time(run())


@pytest.mark.parametrize(
    ("job", "key", "operator"),
    [(pytorchjob, KEY, "training"), (trainjob, TRAIN, "trainer")],
    ids=["pytorchjob", "trainjob"],
)
def test_kueue_holds_jobs_of_operators(bench, job, key, operator):
    """Suspended at creation, no pod; admitted as a whole on the flavor's nodes, when there is quota."""

    async def run():
        async with bench("kueue", operator) as lab:
            quota = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: h100}
spec: {nodeLabels: {pool: a}}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: gpus}
spec: {namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu, memory, nvidia.com/gpu], flavors: [{name: h100, resources: [{name: cpu, nominalQuota: 10}, {name: memory, nominalQuota: 1Ti}, {name: nvidia.com/gpu, nominalQuota: 8}]}]}]}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: team, namespace: default}
spec: {clusterQueue: gpus}
"""
            lab.apply(quota)
            lab.apply(job(labels={"kueue.x-k8s.io/queue-name": "team"}))
            await lab.until(lambda: said(lab, key)["Suspended"][0] == "True")
            await lab.quiet()
            assert not lab.store.list("pods", "default")
            (workload,) = lab.store.list("workloads.kueue.x-k8s.io")
            assert [p["name"] for p in workload["spec"]["podSets"]] == (
                ["master", "worker"] if operator == "training" else ["node"]
            )
            lab.store.mutate(
                "clusterqueues.kueue.x-k8s.io",
                None,
                "gpus",
                lambda q: q["spec"]["resourceGroups"][0]["flavors"][0]["resources"][2].update(nominalQuota=16),
            )
            await lab.until(lambda: len(lab.store.list("pods", "default")) == 2, "two pods")
            assert all(p["spec"]["nodeSelector"] == {"pool": "a"} for p in lab.store.list("pods", "default"))
            assert said(lab, key)["Suspended"][0] == "False"
            (workload,) = lab.store.list("workloads.kueue.x-k8s.io")
            lab.store.mutate(
                "workloads.kueue.x-k8s.io",
                "default",
                workload["metadata"]["name"],
                lambda w: w["spec"].update(active=False),
            )
            await lab.until(
                lambda: said(lab, key)["Suspended"][0] == "True" and not lab.store.list("pods", "default"),
                "deactivation",
            )

    in_no_time(run())


MEET = """
    import os, socket, time
    place = os.environ["PET_MASTER_ADDR"], 29400
    if os.environ["PET_NODE_RANK"] == "0":
        socket.gethostbyname(place[0])
        socket.create_server(("0.0.0.0", place[1])).accept()
    else:
        while True:
            try:
                socket.create_connection(place, 5)
                break
            except OSError:
                time.sleep(0.05)
"""


@pytest.mark.usefixtures("nothing_cached")
def test_pods_of_both_find_each_other(tmp_path):
    """Real processes: a PyTorchJob's worker reaches its master by name, a TrainJob's second node its first."""

    async def run():
        path = tmp_path / "w.yaml"
        path.write_text(
            "name: w\ntitle: t\nbreaks: nothing\nfaults: []\noutcome: go\nworld: {platform: kind-cpu, operators: [training, trainer]}\n"
        )
        async with await Cluster.start(load(str(path))) as cluster:
            store = cluster.store
            meet = ["python3", "-c", textwrap.dedent(MEET)]
            store.create(KEY, pytorchjob(command=meet), "default")
            job = trainjob(trainer={"command": meet, "resourcesPerNode": {}})
            store.create(TRAIN, job | {"metadata": {"name": "other", "namespace": "default"}}, "default")

            def ended(key, name):
                conditions = store.get(key, "default", name)["status"]["conditions"]
                return {c["type"] for c in conditions if c["status"] == "True"} & {"Succeeded", "Complete", "Failed"}

            until = seen_in(cluster)
            assert await until(lambda: ended(KEY, "train"), "the PyTorchJob's end") == {"Succeeded"}, await told(
                cluster
            )
            assert await until(lambda: ended(TRAIN, "other"), "the TrainJob's end") == {"Complete"}, await told(cluster)

    asyncio.run(run())
