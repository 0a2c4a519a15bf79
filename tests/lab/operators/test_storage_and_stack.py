"""Node-bound volumes, reported evictions, and other kinds of GPU clusters."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from tests.lab.clusters import cluster, seen_in
from tests.waiting import HANG_S, in_no_time

CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "disk"},
    "volumeBindingMode": "WaitForFirstConsumer",
}


def claim(name="data", kind="disk", mode="ReadWriteOnce"):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"storageClassName": kind, "accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
    }


def pod(name, node=None, claim="data"):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {}},
        "spec": {
            "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
            **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}),
        },
    }


def said(bench, name):
    return bench.conditions("pods", name)["PodScheduled"][2]


def test_a_local_disk_keeps_its_pods_on_its_node(bench):
    """The volume of a local provisioner is on its first consumer's node; a pod on another node cannot use it."""

    async def run():
        async with bench(gpus=0) as lab:
            lab.apply({**CLASS, "provisioner": "rancher.io/local-path"})
            lab.apply(claim())
            lab.apply(pod("a", "gpu-node-1"))
            await lab.until(
                lambda: lab.store.get("persistentvolumeclaims", "default", "data")["status"]["phase"] == "Bound"
            )
            lab.apply(pod("b", "gpu-node-0"))
            await lab.until(lambda: "had volume node affinity conflict" in said(lab, "b"))
            assert said(lab, "b").startswith(
                "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had volume node affinity conflict."
            )
            lab.apply(pod("c"))
            assert (
                await lab.until(lambda: lab.store.get("pods", "default", "c")["spec"].get("nodeName")) == "gpu-node-1"
            )

    in_no_time(run())


def test_without_a_provisioner_a_volume_must_be_there(bench):
    """A class with no-provisioner: the pod waits until an administrator has created a volume, on a node that can access
    it."""

    async def run():
        async with bench(gpus=0) as lab:
            lab.apply({**CLASS, "provisioner": "kubernetes.io/no-provisioner"})
            lab.apply(claim())
            lab.apply(pod("a"))
            await lab.until(lambda: "2 node(s) didn't find available persistent volumes to bind" in said(lab, "a"))
            terms = [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["gpu-node-1"]}]}
            ]
            lab.apply(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": "pv"},
                    "spec": {
                        "capacity": {"storage": "2Gi"},
                        "accessModes": ["ReadWriteOnce"],
                        "storageClassName": "disk",
                        "local": {"path": "/mnt"},
                        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
                    },
                }
            )
            assert (
                await lab.until(lambda: lab.store.get("pods", "default", "a")["spec"].get("nodeName")) == "gpu-node-1"
            )
            await lab.until(
                lambda: lab.store.get("persistentvolumeclaims", "default", "data")["spec"].get("volumeName") == "pv"
            )

    in_no_time(run())


def test_a_volume_of_one_node_is_not_attached_to_a_second(tmp_path):
    """ReadWriteOnce on network storage: the pod on the other node waits with the attach error, until the first is
    deleted."""

    async def run():
        async with cluster(tmp_path, platform="kind-cpu") as box:
            until = seen_in(box)
            store = box.store
            store.create("storageclasses.storage.k8s.io", {**CLASS, "provisioner": "ebs.csi.aws.com"})
            store.create("persistentvolumeclaims", claim(), "default")
            nodes = [n["metadata"]["name"] for n in store.list("nodes")][:2]
            for name, node in zip("ab", nodes, strict=True):
                body = pod(name, node)
                body["spec"]["tolerations"] = [{"operator": "Exists"}]
                body["spec"]["terminationGracePeriodSeconds"] = 0
                store.create("pods", body, "default")
                if name == "a":
                    await until(
                        lambda: store.get("pods", "default", "a")["status"]["phase"] == "Running", "the first runs"
                    )
            event = await until(
                lambda: next(e for e in store.list("events", "default") if e["reason"] == "FailedAttachVolume"),
                "the event",
            )
            assert event["message"].startswith('Multi-Attach error for volume "pvc-')
            assert event["message"].endswith("Volume is already used by pod(s) a")
            store.delete("pods", "default", "a")
            await until(lambda: store.get("pods", "default", "b")["status"]["phase"] == "Running", "the second runs")

    asyncio.run(run())


def kubectl(tmp_path, box):
    if not Path("/usr/bin/kubectl").exists():
        pytest.skip("kubectl is not installed")
    config = tmp_path / "kubeconfig"
    config.write_text(box.kubeconfig)

    async def call(*arguments):
        done = await asyncio.to_thread(
            subprocess.run,
            ["/usr/bin/kubectl", "--kubeconfig", str(config), *arguments],
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def test_drain_says_that_it_was_an_eviction(tmp_path):
    """kubectl drain: the pod ends with the condition DisruptionTarget, reason EvictionByEvictionAPI."""

    async def run():
        async with cluster(tmp_path, platform="kind-cpu") as box:
            until = seen_in(box)
            store, call, reasons = box.store, kubectl(tmp_path, box), []
            store.create(
                "pods",
                {
                    "metadata": {"name": "a", "labels": {}},
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{"name": "c", "image": "i", "command": ["sleep", "6000"]}],
                    },
                },
                "default",
            )
            await until(lambda: store.get("pods", "default", "a")["status"]["phase"] == "Running", "the pod runs")
            store.subscribe(
                "pods",
                lambda _, p, __: reasons.extend(
                    c["reason"] for c in p["status"].get("conditions") or [] if c["type"] == "DisruptionTarget"
                ),
            )
            await call(
                "drain",
                store.get("pods", "default", "a")["spec"]["nodeName"],
                "--force",
                "--ignore-daemonsets",
                "--delete-emptydir-data",
            )
            assert "EvictionByEvictionAPI" in reasons

    asyncio.run(run())


def test_kubectl_knows_the_kinds_of_a_gpu_cluster(tmp_path):
    """Every operator's kinds are served: short names, columns, a schema that refuses unknown fields."""

    async def run():
        names = [
            "kueue",
            "volcano",
            "mpi",
            "training",
            "trainer",
            "dra",
            "compute-domains",
            "gpu-operator",
            "network-operator",
            "multus",
            "prometheus",
            "slinky",
            {"topology-updater": {"policy": "single-numa-node"}},
        ]
        async with cluster(tmp_path, *names, platform="h100-ib") as box:
            call = kubectl(tmp_path, box)
            listed = await call("api-resources", "--no-headers", "-o", "name")
            for kind in (
                "workloads.kueue.x-k8s.io",
                "podgroups.scheduling.volcano.sh",
                "mpijobs.kubeflow.org",
                "pytorchjobs.kubeflow.org",
                "trainjobs.trainer.kubeflow.org",
                "jobsets.jobset.x-k8s.io",
                "clusterpolicies.nvidia.com",
                "nicclusterpolicies.mellanox.com",
                "servicemonitors.monitoring.coreos.com",
                "nodesets.slinky.slurm.net",
                "network-attachment-definitions.k8s.cni.cncf.io",
                "noderesourcetopologies.topology.node.k8s.io",
                "computedomains.resource.nvidia.com",
            ):
                assert kind in listed.split()
            topology = json.loads(await call("get", "node-res-topo", "gpu-node-0", "-o", "json"))
            assert topology["attributes"][0] == {"name": "topologyManagerPolicy", "value": "single-numa-node"}
            assert [z["name"] for z in topology["zones"]] == ["node-0", "node-1"]
            assert "torch-distributed" in await call("get", "clustertrainingruntimes")
            assert "default" in await call("get", "queues.scheduling.volcano.sh")
            pods = await call("get", "pods", "-A")
            for name in (
                "kueue-controller-manager",
                "volcano-scheduler",
                "mpi-operator",
                "training-operator",
                "jobset-controller",
            ):
                assert name in pods

    asyncio.run(run())
