"""GPUs by claim: created per pod, allocated with the node or not at all, released at the end, visible in the pod."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from lab.controlplane.scheduler import devices
from tests.lab.clusters import cluster, seen_in
from tests.table import table
from tests.waiting import HANG_S

TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "gpus", "namespace": "default"},
}
GPU = devices.Device(
    "gpu.nvidia.com",
    "n",
    "gpu-0",
    {
        "type": {"string": "gpu"},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "driverVersion": {"version": "580.95.5"},
        "mig": {"bool": False},
        "x.example/y": {"int": 3},
    },
    {"memory": "81559Mi"},
)


def template(count=8, kind="gpu.nvidia.com", **wish):
    exactly = {"deviceClassName": kind, "allocationMode": "ExactCount", "count": count, **wish}
    return {**TEMPLATE, "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}}


def pod(name, claim="gpus", command=None):
    container = {
        "name": "c",
        "image": "i",
        "resources": {"claims": [{"name": "gpu"}]},
        **({"command": command} if command else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": claim}],
        },
    }


@table(
    "expression, expected",
    [
        ("device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'", True),
        ('device.attributes["gpu.nvidia.com"].productName.contains("H100")', True),
        ('device.attributes["gpu.nvidia.com"].productName.startsWith("AMD")', False),
        ("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0", True),
        ("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('100Gi')) >= 0", False),
        ("!device.attributes['gpu.nvidia.com'].mig", True),
        ("has(device.attributes['gpu.nvidia.com'].none)", False),
        ("device.attributes['x.example'].y > 2", True),
        ("device.attributes['gpu.nvidia.com'].driverVersion.compareTo(semver('570.0.0')) >= 0", True),
        ("device.driver == 'a' || device.driver == 'gpu.nvidia.com'", True),
    ],
)
def test_cel_selects(expression, expected):
    """Selectors compare driver, attributes and capacities, as in claims."""
    assert devices.matches(expression, GPU) is expected


def test_cel_that_is_not_understood_is_refused():
    """The scheduler reports unknown CEL instead of assuming a value."""
    with pytest.raises(devices.Unreadable):
        devices.matches("device.attributes['a'].map(x, x > 1).all(y, y)", GPU)


def test_a_pod_gets_the_gpus_of_its_claim(tmp_path):
    """Template, claim, allocation and reservation; nvidia-smi in the pod shows exactly these GPUs; nodes offer none."""

    async def run():
        async with cluster(tmp_path, "dra", platform="h100-ib") as box:
            until = seen_in(box)
            store = box.store
            assert "nvidia.com/gpu" not in store.get("nodes", None, "gpu-node-0")["status"]["allocatable"]
            store.create("resourceclaimtemplates.resource.k8s.io", template(3), "default")
            store.create(
                "pods", pod("a", command=["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]), "default"
            )
            await until(lambda: store.get("pods", "default", "a")["status"]["phase"] == "Succeeded", "the end")
            text = b"".join([piece async for piece in box.kubelet.logs("default", "a", "c")]).decode()
            node = store.get("pods", "default", "a")["spec"]["nodeName"]
            slices = [s for s in store.list(devices.SLICES) if s["spec"]["nodeName"] == node]
            published = [d["attributes"]["uuid"]["string"] for d in slices[0]["spec"]["devices"]]
            assert len(published) == 8
            assert text.split() == published[:3]
            await until(lambda: not store.list(devices.CLAIMS), "the claim's end")

    asyncio.run(run())


def test_claims_that_cannot_be_met_say_so(tmp_path):
    """Of three pods of eight on two nodes the third waits with the scheduler's message until one has ended."""

    async def run():
        async with cluster(tmp_path, "dra", platform="h100-ib") as box:
            until = seen_in(box)
            store = box.store
            store.create("resourceclaimtemplates.resource.k8s.io", template(8), "default")
            for name in ("a", "b"):
                store.create("pods", pod(name, command=["sleep", "6000"]), "default")
            await until(
                lambda: all(store.get("pods", "default", n)["spec"].get("nodeName") for n in ("a", "b")), "two placed"
            )
            claim = next(c for c in store.list(devices.CLAIMS) if c["metadata"]["name"].startswith("a-gpu-"))
            assert claim["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"] == "gpu"
            assert claim["status"]["reservedFor"][0]["name"] == "a"
            assert len(claim["status"]["allocation"]["devices"]["results"]) == 8
            store.create("pods", pod("c", command=["sleep", "6000"]), "default")
            said = await until(
                lambda: next(
                    c for c in store.get("pods", "default", "c")["status"]["conditions"] if c["type"] == "PodScheduled"
                ),
                "a condition",
            )
            assert said["message"] == (
                "0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, preemption: "
                "0/2 nodes are available: 2 Preemption is not helpful for scheduling."
            )
            store.delete("pods", "default", "a")
            await until(lambda: store.get("pods", "default", "c")["spec"].get("nodeName"), "the third placed")

    asyncio.run(run())


def test_a_class_or_template_that_is_missing(tmp_path):
    """The scheduler names the class; a missing template is an event, without a scheduling attempt."""

    async def run():
        async with cluster(tmp_path, "dra", platform="h100-ib") as box:
            until = seen_in(box)
            store = box.store
            store.create("resourceclaimtemplates.resource.k8s.io", template(1, "nope.example"), "default")
            store.create("pods", pod("a"), "default")
            store.create("pods", pod("b", claim="none"), "default")
            said = await until(
                lambda: next(
                    c for c in store.get("pods", "default", "a")["status"]["conditions"] if c["type"] == "PodScheduled"
                ),
                "a condition",
            )
            assert "request gpu: device class nope.example does not exist" in said["message"]
            await until(
                lambda: any(e["reason"] == "FailedResourceClaimCreation" for e in store.list("events", "default")),
                "an event",
            )
            assert not store.get("pods", "default", "b")["status"].get("conditions")

    asyncio.run(run())


def test_kubectl_reads_slices_and_claims(tmp_path):
    """The unmodified kubectl lists the objects of dynamic allocation."""
    if not Path("/usr/bin/kubectl").exists():
        pytest.skip("kubectl is not installed")

    async def run():
        async with cluster(tmp_path, "dra", "compute-domains", platform="h100-ib") as box:
            config = tmp_path / "kubeconfig"
            config.write_text(box.kubeconfig)

            def kubectl(*arguments):
                return subprocess.run(
                    ["/usr/bin/kubectl", "--kubeconfig", str(config), *arguments],
                    capture_output=True,
                    text=True,
                    timeout=HANG_S,
                    check=True,
                ).stdout

            slices = json.loads(await asyncio.to_thread(kubectl, "get", "resourceslices", "-o", "json"))["items"]
            assert sorted((s["spec"]["driver"], s["spec"]["nodeName"]) for s in slices) == sorted(
                (driver, f"gpu-node-{n}") for driver in ("gpu.nvidia.com", "compute-domain.nvidia.com") for n in (0, 1)
            )
            assert "gpu.nvidia.com" in await asyncio.to_thread(kubectl, "get", "deviceclasses")

    asyncio.run(run())
