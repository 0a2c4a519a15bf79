"""The cost of `seatrial preflight` on a large cluster, as ratios; exits 1 if a target is missed.

    python benchmarks/scale.py --kubeconfig FILE [--nodes 5000] [--pods 20000] [--rounds 3] [--keep]

Fills the API server of the kubeconfig, which must have no other node: an API server without kubelets (etcd and
kube-apiserver are enough). Deletes its objects at the end, unless --keep retains them for the next time. Each round
reads all nodes and pods page by page, as bytes and with `json.loads`, runs the preflight on the healthy cluster, then
breaks it (BAD) and runs the preflight again.

Targets: the healthy one takes at most 2.1 times as long as reading the bytes (6 s if those take 2.9 s); the bad one
takes at most 1.3 times as long as the healthy one, without an additional request.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jobs.cluster.client.errors import Conflict  # noqa: E402 - the repository is not installed
from jobs.cluster.client.kube import PAGE, Kube, path  # noqa: E402
from jobs.cluster.unstructured import as_list, as_map, labels_of, name_of  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Object = dict[str, Any]

MARK = {"seatrial-benchmark": "scale"}
SELECTOR = "seatrial-benchmark=scale"
PROFILE = "h100-ib"
THREADS = 16
HEALTHY, BAD = "healthy", "bad"
NOT_READY, ONE_GPU_LESS, OTHER_DRIVER = 295 / 5000, 1500 / 5000, 218 / 5000
"""Shares of broken nodes: a rack without power, lost GPUs, a driver roll-out that stopped half-way. Some nodes have two
of these."""
MOST_OF_BYTES, MOST_OF_HEALTHY = 2.1, 1.3

STACK = (  # pods of every node: namespace, name, image, mounts of the containers
    ("gpu-operator", "nvidia-device-plugin-daemonset", "nvcr.io/nvidia/k8s-device-plugin:v0.18.0", 4),
    ("gpu-operator", "nvidia-dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4.4.1-4.6.0-distroless", 3),
    ("nvidia-network-operator", "rdma-shared-dp-ds", "nvcr.io/nvidia/mellanox/k8s-rdma-shared-dev-plugin:v1.5.3", 3),
)
TEAM = "team-a"
NAMESPACES = (*sorted({namespace for namespace, *_ in STACK}), TEAM)
BORN = "2026-09-01T08:00:00Z"
CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("NetworkUnavailable", "False", "CalicoIsUp", "Calico is running on this node"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
CPU_FLAGS = [f"FEATURE{number:02}" for number in range(30)]  # as many flags, of the same length, as a server CPU has


# ------------------------------------------------------------------------------------------------ objects


def node_name(number: int) -> str:
    return f"gpu-node-{number:05}"


def node(number: int) -> Object:
    """Return a node as a kubelet, GPU and Node Feature Discovery and the device plugins make it: about 12 KB."""
    name = node_name(number)
    amounts = {
        "cpu": "192",
        "ephemeral-storage": "1843269236Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": "2113405760Ki",
        "nvidia.com/gpu": "8",
        "pods": "110",
        "rdma/hca_shared_devices_a": "63",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": MARK | _labels(name),
            "annotations": {
                "csi.volume.kubernetes.io/nodeid": json.dumps({"csi.example.com": name, "nfs.csi.k8s.io": name}),
                "nfd.node.kubernetes.io/feature-labels": ",".join(f"cpu-cpuid.{flag}" for flag in CPU_FLAGS),
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": {"podCIDR": f"10.{number // 256}.{number % 256}.0/24", "providerID": f"metal://rack/{name}"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts | {"cpu": "191500m", "memory": "2111201088Ki"},
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": message,
                    "lastHeartbeatTime": "2026-09-02T08:00:00Z",
                    "lastTransitionTime": BORN,
                }
                for kind, status, reason, message in CONDITIONS
            ],
            "addresses": [
                {"type": "InternalIP", "address": f"172.16.{number // 256}.{number % 256}"},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": f"00000000-0000-4000-8000-{number:012x}",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kernelVersion": "6.8.0-85-generic",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.36.2",
                "machineID": f"{number:032x}",
                "operatingSystem": "linux",
                "osImage": "Ubuntu 24.04.3 LTS",
                "systemUUID": f"00000000-0000-4000-9000-{number:012x}",
            },
            "images": [_image(number % 40 + each) for each in range(12)],
        },
    }


def _labels(name: str) -> dict[str, str]:
    return (
        {f"feature.node.kubernetes.io/cpu-cpuid.{flag}": "true" for flag in CPU_FLAGS}
        | {
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "feature.node.kubernetes.io/cpu-model.family": "6",
            "feature.node.kubernetes.io/cpu-model.id": "143",
            "feature.node.kubernetes.io/cpu-model.vendor_id": "Intel",
            "feature.node.kubernetes.io/kernel-version.full": "6.8.0-85-generic",
            "feature.node.kubernetes.io/pci-10de.present": "true",
            "feature.node.kubernetes.io/pci-15b3.present": "true",
            "feature.node.kubernetes.io/rdma.capable": "true",
            "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
            "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "hgx-h100-8",
            "nvidia.com/gpu.compute.major": "9",
            "nvidia.com/gpu.compute.minor": "0",
            "nvidia.com/gpu.count": "8",
            "nvidia.com/gpu.family": "hopper",
            "nvidia.com/gpu.machine": "HGX-H100-8",
            "nvidia.com/gpu.memory": "81559",
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gpu.replicas": "1",
            "nvidia.com/gpu.sharing-strategy": "none",
            "nvidia.com/mig.capable": "true",
            "nvidia.com/mig.strategy": "single",
            "topology.kubernetes.io/region": "region-1",
            "topology.kubernetes.io/zone": "zone-a",
        }
        | {f"nvidia.com/gpu.deploy.{part}": "true" for part in ("dcgm", "dcgm-exporter", "device-plugin", "driver")}
        | _driver("580.95.05")
    )


def _driver(version: str) -> dict[str, str]:
    """Return the labels by which GPU Feature Discovery names the driver."""
    parts = dict(zip(("major", "minor", "revision"), version.split("."), strict=True))
    return {f"nvidia.com/cuda.driver-version.{part}": number for part, number in parts.items()} | {
        "nvidia.com/cuda.driver-version.full": version
    }


def _image(number: int) -> Object:
    name = f"registry.example.com/platform/image-{number:03}"
    return {"names": [f"{name}@sha256:{number:064x}", f"{name}:v1.{number}.0"], "sizeBytes": 40_000_000 + number}


def pod(number: int, nodes: int) -> tuple[Object, Object]:
    """Return a pod with status, about 6 KB of JSON: the stack's on each node, then training that holds all its GPUs."""
    turn, place = divmod(number, nodes)
    on = node_name(place)
    if turn < len(STACK):
        namespace, owner, image, mounts = STACK[turn]
        name, kind, asks = f"{owner}-{place:05}", "DaemonSet", {"cpu": "100m", "memory": "200Mi"}
    else:
        namespace, owner, image, mounts = TEAM, f"train-{place // 64}", "registry.example.com/team-a/train:2026.09", 4
        name, kind, asks = f"{owner}-{place % 64}-{turn}", "Job", {"cpu": "4", "memory": "64Gi"}
        if turn == len(STACK) and place % 2:
            asks |= {"nvidia.com/gpu": "8", "rdma/hca_shared_devices_a": "1"}
    container = {
        "name": "main",
        "image": image,
        "command": ["/bin/main", "--config", "/etc/main/config.yaml"],
        "env": [{"name": f"MAIN_SETTING_{each:02}", "value": f"value-{each}-of-{owner}"} for each in range(4)],
        "resources": {"limits": asks, "requests": asks},
        "volumeMounts": [{"name": f"host-{each}", "mountPath": f"/host/{each}"} for each in range(mounts)],
    }
    meta = {
        "name": name,
        "namespace": namespace,
        "labels": MARK | {"app": owner, "controller-revision-hash": "6c8f9d7b5d", "pod-template-generation": "3"},
        "annotations": {"cni.projectcalico.org/podIP": f"10.{place // 256}.{place % 256}.{turn + 2}/32"},
        "ownerReferences": [
            {
                "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
                "kind": kind,
                "name": owner,
                "uid": "00000000-0000-4000-8000-000000000000",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    tolerated = ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    spec = {
        "nodeName": on,
        "restartPolicy": "Never" if kind == "Job" else "Always",
        "containers": [container],
        "tolerations": [{"key": f"node.kubernetes.io/{each}", "operator": "Exists"} for each in tolerated],
        "volumes": [{"name": f"host-{each}", "hostPath": {"path": f"/host/{each}"}} for each in range(mounts)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, _running(number, image, place, turn)


def _running(number: int, image: str, place: int, turn: int) -> Object:
    met = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "hostIP": f"172.16.{place // 256}.{place % 256}",
        "podIP": f"10.{place // 256}.{place % 256}.{turn + 2}",
        "podIPs": [{"ip": f"10.{place // 256}.{place % 256}.{turn + 2}"}],
        "startTime": BORN,
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": BORN} for kind in met],
        "containerStatuses": [
            {
                "name": "main",
                "image": image,
                "imageID": f"{image.partition(':')[0]}@sha256:{number % 7:064x}",
                "containerID": f"containerd://{number:064x}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": BORN}},
            }
        ],
    }


def broken(number: int, nodes: int) -> set[str]:
    """Return a node's defects in the bad cluster; prime steps spread them, so that some nodes have two."""
    shares = {"not ready": (NOT_READY, 7919), "gpu": (ONE_GPU_LESS, 104_729), "driver": (OTHER_DRIVER, 1_299_709)}
    return {what for what, (share, step) in shares.items() if number * step % nodes < round(share * nodes)}


def change(number: int, nodes: int, state: str) -> tuple[Object, Object]:
    """Return the patches of a node and of its status that put it into this state."""
    wrong = broken(number, nodes) if state == BAD else set()
    labels = _driver("570.172.08" if "driver" in wrong else "580.95.05")
    down = {"status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    ready = {"status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    condition = {"type": "Ready", **(down if "not ready" in wrong else ready)}
    gpus = {"nvidia.com/gpu": "7" if "gpu" in wrong else "8"}
    return {"metadata": {"labels": labels}}, {"status": {"allocatable": gpus, "conditions": [condition]}}


# ---------------------------------------------------------------------------------------------- creating the objects


class Filled:
    """An API server with our nodes and pods; ``close`` deletes them."""

    def __init__(self, kubeconfig: str, nodes: int, pods: int) -> None:
        self.kube = Kube.connect(kubeconfig)
        self.nodes, self.pods = nodes, pods

    def refuse_foreign(self) -> None:
        """Raise SystemExit if the cluster has nodes that are not ours."""
        labels = {name_of(item): labels_of(item) for item in self._all(path("nodes"))}
        if foreign := [name for name, each in labels.items() if not MARK.items() <= each.items()]:
            raise SystemExit(f"{self.kube.server} has {len(foreign)} nodes of its own ({foreign[0]}): not filled")

    def fill(self) -> None:
        """Create missing objects."""
        present = {name_of(item) for item in self._all(path("nodes"))}
        for name in NAMESPACES:
            self._ensure(path("namespaces"), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        for name in (self.kube.namespace, *NAMESPACES):  # if no controller creates it
            self._ensure(path("serviceaccounts", namespace=name), account)
        self._each(self._node, (number for number in range(self.nodes) if node_name(number) not in present), "nodes")
        pods = {(item["metadata"]["namespace"], name_of(item)) for item in self._all(path("pods"))}
        self._each(lambda number: self._pod(number, pods), range(self.pods), "pods")

    def become(self, state: str) -> None:
        """Break the nodes of the bad cluster, or repair them."""
        changed = [number for number in range(self.nodes) if broken(number, self.nodes)]
        self._each(lambda number: self._change(number, state), changed, f"changes ({state})")

    def close(self) -> None:
        """Delete nodes and pods. Namespaces stay: without a controller that empties them they never terminate."""
        now = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        for name in NAMESPACES:
            self.kube.request("DELETE", path("pods", namespace=name), params={"labelSelector": SELECTOR}, body=now)
        self.kube.request("DELETE", path("nodes"), params={"labelSelector": SELECTOR}, body=now)

    def _all(self, url_path: str) -> list[Object]:
        return self.kube.list(url_path, deadline_s=600.0)[0]

    def _ensure(self, url_path: str, body: Object) -> None:
        with contextlib.suppress(Conflict):
            self.kube.create(url_path, body)

    def _node(self, number: int) -> None:
        """Create a node; the server taints a new one, and may omit its status."""
        wanted = node(number)
        made = self.kube.create(path("nodes"), wanted).body
        if as_list(as_map(made.get("spec")).get("taints")):
            self.kube.patch(path("nodes", name_of(made)), {"spec": {"taints": None}})
        if not as_map(made.get("status")).get("images"):
            self.kube.patch(path("nodes", name_of(made), sub="status"), {"status": wanted["status"]})

    def _pod(self, number: int, present: set[tuple[str, str]]) -> None:
        wanted, status = pod(number, self.nodes)
        namespace, name = wanted["metadata"]["namespace"], wanted["metadata"]["name"]
        if (namespace, name) not in present:
            self.kube.create(path("pods", namespace=namespace), wanted)
            self.kube.patch(path("pods", name, namespace=namespace, sub="status"), {"status": status})

    def _change(self, number: int, state: str) -> None:
        meta, status = change(number, self.nodes, state)
        self.kube.patch(path("nodes", node_name(number)), meta)
        self.kube.patch(path("nodes", node_name(number), sub="status"), status, strategic=True)

    def _each(self, make: Callable[[int], None], numbers: Iterable[int], what: str) -> None:
        begin, done = time.monotonic(), 0
        with ThreadPoolExecutor(THREADS) as threads:
            for done, _ in enumerate(threads.map(make, numbers), 1):
                if not done % 1000:
                    print(f"  {done} {what}, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
        print(f"{done} {what} in {time.monotonic() - begin:.0f} s", flush=True)


# -------------------------------------------------------------------------------------------------- measuring


class Cost:
    """The costs of all runs of one command."""

    def __init__(self) -> None:
        self.wall_s: list[float] = []
        self.cpu_s: list[float] = []
        self.most_mib = 0.0

    def __str__(self) -> str:
        wall, cpu = statistics.median(self.wall_s), statistics.median(self.cpu_s)
        return f"{wall:6.1f} s wall, {cpu:6.1f} s of CPU, {self.most_mib:5.0f} MiB"


def read(kubeconfig: str, *, decoded: bool) -> None:
    """Read all nodes and pods page by page, sequentially, and print their size in bytes."""
    kube, total = Kube.connect(kubeconfig), 0
    for url_path in (path("nodes"), path("pods")):
        token = ""
        while True:
            params = {"limit": PAGE, "continue": token}
            with kube.open("GET", url_path, params, end=time.monotonic() + 600) as raw:
                data = raw.read()
            total += len(data)
            if decoded:
                token = str(as_map(json.loads(data).get("metadata")).get("continue") or "")
            else:  # it is in the list's own metadata, which comes first
                head = data[:2000].partition(b'"items"')[0]
                token = json.loads(head.rpartition(b",")[0] + b"}")["metadata"].get("continue", "")
            if not token:
                break
    print(total)


def commands(kubeconfig: str, out: str) -> dict[str, list[str]]:
    """Return the commands of each round; the last one runs twice, on the healthy and on the bad cluster."""
    reader = [sys.executable, __file__, "--kubeconfig", kubeconfig, "--read"]
    trial = [sys.executable, "-m", "cli", "preflight", "--kubeconfig", kubeconfig, "--profile", PROFILE, "-q"]
    return {"bytes": [*reader, "bytes"], "json": [*reader, "json"], "preflight": [*trial, "--out", out]}


def run(command: list[str], cost: Cost) -> str:
    """Run a command once and record its cost; return its output."""
    begin = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1, 10):
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {printed[-2000:]}")
    cost.wall_s.append(time.monotonic() - begin)
    cost.cpu_s.append(used.ru_utime + used.ru_stime)
    cost.most_mib = max(cost.most_mib, used.ru_maxrss / 1024)
    return printed


def measure(filled: Filled, kubeconfig: str, rounds: int) -> dict[str, Cost]:
    """Run all commands alternately, so that each runs under the same conditions."""
    costs: dict[str, Cost] = defaultdict(Cost)
    with tempfile.TemporaryDirectory() as out:
        all_commands = commands(kubeconfig, out)
        for _ in range(rounds):
            filled.become(HEALTHY)
            size = int(run(all_commands["bytes"], costs["bytes"]))
            run(all_commands["json"], costs["json"])
            for state in (HEALTHY, BAD):
                filled.become(state)
                said = run(all_commands["preflight"], costs[state])
                written = (Path(out) / "report.json").stat().st_size
                print(
                    f"  {state}: report.json {written / 1e6:.1f} MB, {said.strip().splitlines()[-1][:200]}", flush=True
                )
    print(f"{filled.nodes} nodes and {filled.pods} pods, {size / 1e6:.0f} MB; medians of {rounds}:")
    return costs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", required=True, help="of an API server that may be filled")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="leave nodes and pods there, for the next time")
    parser.add_argument("--read", choices=("bytes", "json"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(options.kubeconfig, decoded=options.read == "json")
        return 0
    filled = Filled(options.kubeconfig, options.nodes, options.pods)
    filled.refuse_foreign()
    try:
        filled.fill()
        costs = measure(filled, options.kubeconfig, options.rounds)
    finally:
        if not options.keep:
            filled.close()
    for name, cost in costs.items():
        print(f"  {name:<8} {cost}")
    wall = {name: statistics.median(cost.wall_s) for name, cost in costs.items()}
    ratios = {(HEALTHY, "bytes"): MOST_OF_BYTES, (BAD, HEALTHY): MOST_OF_HEALTHY}
    for (one, other), most in ratios.items():
        print(f"{one} / {other}: {wall[one] / wall[other]:.2f} (target at most {most})")
    good = all(wall[one] / wall[other] <= most for (one, other), most in ratios.items())
    print("all targets are met" if good else "a target is MISSED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
