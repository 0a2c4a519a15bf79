"""The inventory: correct numbers from raw objects, explicit hidden parts, fast with 5,000 nodes."""

import gc
import time
from pathlib import Path

import pytest

from jobs.cluster.client.errors import ApiError
from jobs.cluster.facts import inventory
from jobs.cluster.facts.inventory import Inventory, pod_requests, read_node, read_pod
from jobs.cluster.unstructured import name_of, quantity, whole
from tests import recordings
from tests.table import table

GPU = "nvidia.com/gpu"


def raw_node(name, *, gpus="8", capacity="8", labels=None, ready="True", taints=(), cordoned=False):
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": list(taints)} | ({"unschedulable": True} if cordoned else {}),
        "status": {
            "capacity": {"cpu": "192", "memory": "2Ti", "pods": "110"} | ({GPU: capacity} if capacity else {}),
            "allocatable": {"cpu": "191500m", "memory": "2113421Mi"} | ({GPU: gpus} if gpus else {}),
            "conditions": [
                {
                    "type": "Ready",
                    "status": ready,
                    "reason": "KubeletReady",
                    "message": "kubelet is posting ready status",
                },
                {"type": "MemoryPressure", "status": "True"},
                {"type": "DiskPressure", "status": "False"},
            ],
            "nodeInfo": {
                "kernelVersion": "6.8.0",
                "containerRuntimeVersion": "containerd://2.1",
                "kubeletVersion": "v1.36.2",
            },
        },
    }


def raw_pod(name, node="", gpus=0, *, owner=None, phase="Running", namespace="ns"):
    refs = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    resources = {"limits": {GPU: str(gpus), "cpu": "4"}} if gpus else {}
    return {
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": refs},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": resources}]},
        "status": {"phase": phase},
    }


def serve(api, nodes, pods, *, deny=()):
    def answer(asked):
        if asked.path in deny:
            return 403, {}, {"reason": "Forbidden", "message": "no, you"}
        items = nodes if asked.path.endswith("/nodes") else pods
        start = int(asked.query.get("continue", "0"))
        page = items[start : start + 500]
        more = str(start + 500) if start + 500 < len(items) else ""
        return 200, {}, {"metadata": {"continue": more}, "items": page}

    api.answer = answer


def test_free_is_allocatable_less_requested_and_holders_are_named(kube, api):
    """A Slurm NodeSet that holds all GPUs is named by its owner."""
    nodes = [raw_node("gpu-10"), raw_node("gpu-2"), raw_node("cpu", gpus="", capacity="")]
    pods = [
        raw_pod("slurm-0", "gpu-2", 8, owner=("NodeSet", "slurm")),
        raw_pod("one", "gpu-10", 3),
        raw_pod("waiting", "", 8),
    ]
    serve(api, nodes, pods)
    read_inventory = Inventory.read(kube)
    assert [node.name for node in read_inventory.gpu_nodes(GPU)] == ["gpu-2", "gpu-10"]
    assert (
        read_inventory.free("gpu-2", GPU),
        read_inventory.free(read_inventory.nodes[-1], GPU),
        read_inventory.free("cpu", GPU),
    ) == (0, 5, 0)
    assert [holder.owner for holder in read_inventory.holders("gpu-2", GPU)] == ["NodeSet/slurm"]
    assert not read_inventory.not_seen
    assert "status.phase!=Succeeded" in api.asked[-2].query["fieldSelector"]


@pytest.mark.parametrize("size", [3, 500], ids=["on the next page", "on one page"])
def test_an_object_that_a_list_holds_twice_is_counted_once(kube, api, size):
    """Pages overlap if a server continues with another view: no node is judged twice, no GPU is counted twice.

    Near miss: pods with one name in two namespaces are two pods.
    """
    nodes = [raw_node("gpu-0"), raw_node("gpu-1"), raw_node("gpu-1"), raw_node("gpu-1"), raw_node("gpu-2")]
    pods = [raw_pod("a", "gpu-1", 2), raw_pod("b", "gpu-1", 2), raw_pod("b", "gpu-1", 2)]
    pods.append(raw_pod("b", "gpu-1", 1, namespace="other"))

    def answer(asked):
        items = nodes if asked.path.endswith("/nodes") else pods
        start = int(asked.query.get("continue", "0"))
        more = str(start + size) if start + size < len(items) else ""
        return 200, {}, {"metadata": {"continue": more}, "items": items[start : start + size]}

    api.answer = answer
    read_inventory = Inventory.read(kube)
    assert [node.name for node in read_inventory.nodes] == ["gpu-0", "gpu-1", "gpu-2"]
    assert [(pod.namespace, pod.name) for pod in read_inventory.pods] == [("ns", "a"), ("ns", "b"), ("other", "b")]
    assert read_inventory.free("gpu-1", GPU) == 3
    assert [name_of(item) for item in kube.list("/api/v1/nodes")[0]] == ["gpu-0", "gpu-1", "gpu-2"]


def test_a_node_record_has_what_the_checks_need():
    """A record has readiness with its reason, pressure, taints, cordon, versions, and cpu in thousandths."""
    node = read_node(raw_node("n", cordoned=True, ready="Unknown", taints=[{"key": GPU, "effect": "NoSchedule"}]))
    assert (node.ready, node.unschedulable, node.pressures) == (False, True, ("MemoryPressure",))
    assert node.ready_reason == "KubeletReady: kubelet is posting ready status"
    assert str(node.taints[0]) == "nvidia.com/gpu:NoSchedule"
    assert (node.allocatable["cpu"], node.capacity["memory"], node.kubelet) == (191500, 2 << 40, "v1.36.2")


@pytest.mark.parametrize(
    ("labels", "gpus", "capacity", "is_gpu"),
    [
        ({}, "0", "0", True),
        ({}, "", "8", True),
        ({"nvidia.com/gpu.present": "true"}, "", "", True),
        ({"feature.node.kubernetes.io/pci-10de.present": "true"}, "", "", True),
        ({"nvidia.com/gpu.present": "false"}, "", "", False),
        ({"feature.node.kubernetes.io/pci-1002.present": "true"}, "", "", False),
        ({}, "", "", False),
    ],
)
def test_a_gpu_node_is_one_by_any_sign(kube, api, labels, gpus, capacity, is_gpu):
    """A failed device plugin leaves labels or a zero: that node must remain in the count."""
    serve(api, [raw_node("n", labels=labels, gpus=gpus, capacity=capacity)], [])
    assert bool(Inventory.read(kube).gpu_nodes(GPU)) == is_gpu


def test_what_is_hidden_is_reported_and_not_guessed(kube, api):
    """A tenant sees its own namespace: nodes and foreign pods are 'not seen'."""
    serve(api, [], [raw_pod("mine", "n", 1)], deny=("/api/v1/nodes", "/api/v1/pods"))
    read_inventory = Inventory.read(kube)
    assert set(read_inventory.not_seen) == {"nodes", "pods"} and "no, you" in read_inventory.not_seen["nodes"]
    assert [pod.name for pod in read_inventory.pods] == ["mine"]
    serve(api, [], [], deny=("/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/ns/pods"))
    assert Inventory.read(kube).pods == ()


def test_a_broken_server_is_no_empty_cluster(kube, api):
    """Only a refused permission is 'not seen'; other failures are errors."""
    api.answer = lambda _: (422, {}, {"reason": "Invalid", "message": "bad selector"})
    with pytest.raises(ApiError, match="bad selector"):
        Inventory.read(kube, selector="a=b=c")


def test_requests_of_a_pod_count_sidecars_and_the_hungriest_init_container():
    """The scheduler counts requests the same way."""

    def container(gpus, **more):
        return {"resources": {"requests": {GPU: str(gpus), "cpu": "1"}}, **more}

    assert pod_requests({"containers": [container(1), container(2)]}) == {GPU: 3}
    assert pod_requests({"containers": [container(2)], "initContainers": [container(5), container(1)]}) == {GPU: 5}
    side = container(1, restartPolicy="Always")
    assert pod_requests({"containers": [container(2)], "initContainers": [side, container(2)]}) == {GPU: 3}
    assert pod_requests({}) == {}


@pytest.mark.parametrize("item", [{}, {"metadata": None, "spec": [], "status": "x"}, {"spec": {"taints": [None, 5]}}])
def test_malformed_objects_become_empty_records(item):
    """One invalid object must not hide 5,000 others."""
    assert read_node(item).name == "" and read_pod(item).requests == {}


@table(
    "text, value",
    [
        ("8", 8),
        ("1500m", 1.5),
        ("16Gi", 16 << 30),
        ("1e3", 1000),
        ("1E3", 1000),
        ("2E", 2 * 10**18),
        (".5", 0.5),
        (5, 5),
        ("100n", 1e-7),
        ("", None),
        ("x", None),
        ("1 Gi", None),
        ("1" * 100, None),
        ("nan", None),
    ],
)
def test_quantities_are_read_as_kubernetes_writes_them(text, value):
    """Binary and decimal suffixes, exponents; any other text is not a number, instead of zero."""
    number = quantity(text)
    assert (float(number) if number is not None else None) == value


def test_whole_quantities_are_rounded_up():
    """Rounding follows Kubernetes."""
    assert (whole("1500m"), whole("1500m", milli=True), whole("100u", milli=True), whole("bad")) == (2, 1500, 1, 0)


def test_five_thousand_nodes_cost_pages_and_not_seconds(kube, api):
    """The number of requests grows with pages; the garbage collector is enabled again afterwards."""
    nodes = [raw_node(f"n-{i}", labels={f"l{k}": "v" * 20 for k in range(40)}) for i in range(5000)]
    serve(api, nodes, [])
    began = time.process_time()
    read_inventory = Inventory.read(kube)
    assert len(read_inventory.nodes) == 5000 and len(api.asked) == 12
    assert gc.isenabled()
    assert time.process_time() - began < 20  # the fake server runs in this process


RECORDINGS = Path(__file__).parents[1] / "real/recordings"


def restarted_by_offer(name):
    """Return every node state reported by a real cluster: (GPUs in capacity, offered) -> whether its kubelet had just
    started."""
    lines = recordings.read(RECORDINGS / f"{name}.jsonl.gz").lines
    nodes = [line.object for line in lines if recordings.is_change(line) and line.kind == "Node"]
    return {
        (node.capacity.get(GPU), node.allocatable.get(GPU), node.restarted)
        for node in map(read_node, nodes)
        if node.ready
    }


def test_a_kubelet_that_was_restarted_is_distinguished_from_a_device_plugin_that_stopped():
    """Real nodes: for ten seconds a new kubelet reports 0 of 0; without its plugin it reports 0 of 8."""
    assert restarted_by_offer("26b-kubelet-away-90s") == {(8, 8, False), (0, 0, True)}
    assert restarted_by_offer("28c-device-plugin-down") == {(8, 8, False), (8, 0, False)}


@pytest.mark.parametrize(("back_after", "offered"), [(3, 8), (10**6, 0)], ids=["comes back", "stays away"])
def test_a_kubelet_that_has_just_begun_is_read_again_for_seconds(kube, api, monkeypatch, back_after, offered):
    """GPUs registered within seconds were never missing; others are reported as observed."""
    clock = [0.0]
    monkeypatch.setattr(inventory.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(inventory.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    begun = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-22T13:05:57Z"}
    node = raw_node("n", gpus="0", capacity="0")
    node["status"]["conditions"] = [begun | {"lastHeartbeatTime": "2026-11-22T13:05:57Z"}]
    healthy = raw_node("n")

    def answer(asked):
        items = [] if asked.path.endswith("pods") else [node if clock[0] < back_after else healthy]
        return 200, {}, {"items": items, "metadata": {}}

    api.answer = answer
    assert Inventory.read_settled(kube).nodes[0].allocatable[GPU] == offered
    assert clock[0] <= inventory.RESTARTED_S + 3


@pytest.mark.parametrize(("count", "requests"), [(2, 2), (4, 4), (5, 2), (900, 2)])
def test_nodes_are_read_again_by_name_or_in_pages_of_all(kube, api, count, requests):
    """In a cluster of 600 the requested nodes are read, and no others; deleted nodes are omitted."""
    fleet = [raw_node(f"n{number}") for number in range(600)]

    def answer(asked):
        name = asked.query.get("fieldSelector", "").removeprefix("metadata.name=")
        start = int(asked.query.get("continue", "0"))
        chosen = [node for node in fleet if not name or node["metadata"]["name"] == name][start:]
        more = {"continue": str(start + 500)} if len(chosen) > 500 else {}
        return 200, {}, {"items": chosen[:500], "metadata": more}

    api.answer = answer
    wanted = {f"n{number}" for number in range(1, count)} | {"gone"}
    assert {node.name for node in Inventory.read_nodes(kube, wanted).nodes} == {
        f"n{number}" for number in range(1, min(count, 600))
    }
    assert len(api.asked) == requests


@pytest.mark.parametrize(
    ("reason", "gpus", "node", "is_refusal"),
    [
        ("UnexpectedAdmissionError", 8, "gpu-0", True),
        ("OutOfnvidia.com/gpu", 8, "gpu-0", True),
        ("OutOfcpu", 8, "gpu-0", False),
        ("Evicted", 8, "gpu-0", False),
        ("", 8, "gpu-0", False),  # its program failed
        ("UnexpectedAdmissionError", 0, "gpu-0", False),  # it requested no device
        ("UnexpectedAdmissionError", 8, "", False),
    ],
)
def test_pods_that_a_kubelet_had_no_devices_for_are_kept_apart(kube, api, reason, gpus, node, is_refusal):
    """Refused pods hold no devices and are in no count; the reason of their failure is reported."""
    pod = raw_pod("train-0", node, gpus, phase="Failed")
    pod["status"] |= {"reason": reason, "message": "Allocate failed", "startTime": "2026-11-28T10:00:00Z"}
    others = {"status.phase=Failed": [pod]}

    def answer(asked):
        items = others.get(asked.query.get("fieldSelector", ""), [])
        return 200, {}, {"metadata": {}, "items": items}

    api.answer = answer
    read = Inventory.read(kube)
    assert read.pods == ()
    assert [(each.name, each.trouble, each.since) for each in read.refused] == (
        [("train-0", f"{reason}: Allocate failed", "2026-11-28T10:00:00Z")] if is_refusal else []
    )
