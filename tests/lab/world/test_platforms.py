"""Platforms as files: a pod's view on RoCE with Multus, on EFA, and without GPUs; and NCCL's log there."""

import asyncio
import functools
import json
import re

import pytest

from lab import Cluster, load, scenario
from lab.node import attachments
from lab.scenario import ScenarioError
from tests.lab.clusters import seen_in

GOOD = "name: mine\ntitle: Mine\nbreaks: nothing\nfaults: []\noutcome: go\n"
ASK = "default/rdma-0,default/rdma-1"


def pod(name="one", annotations=None, **limits):
    resources = {key.replace("__", "/"): value for key, value in limits.items()}
    return {
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": "nvcr.io/nvidia/pytorch:25.08-py3",
                    "resources": {"limits": resources},
                    "command": [
                        "sh",
                        "-c",
                        "ls /sys/class/infiniband; ls /dev/infiniband; command -v ibv_devinfo || echo no tools",
                    ],
                }
            ],
        },
    }


def meet(name, judge):
    """Start a world; `judge` gets the cluster and a function that runs a pod to its end."""

    async def within():
        async with await Cluster.start(load(name)) as cluster:

            async def run(given, until=("Succeeded", "Failed")):
                cluster.store.create("pods", given, "default")
                name = given["metadata"]["name"]
                stored = functools.partial(cluster.store.get, "pods", "default", name)
                await seen_in(cluster)(lambda: stored()["status"]["phase"] in until, "its end")
                parts = [part async for part in cluster.kubelet.logs("default", name, "main")]
                return stored(), b"".join(parts).decode()

            await judge(cluster, run)

    asyncio.run(within())


@pytest.mark.parametrize("name", scenario.platform_names())
def test_every_platform_furnishes_a_world(name, tmp_path):
    """The API server accepts each shipped platform's world; its GPU nodes offer GPUs and the fabric's resource.

    GPUs may be claimed devices, and NICs may come with a network instead.
    """
    (tmp_path / "plain.yaml").write_text(GOOD + f"world: {{platform: {name}}}\n")

    async def judge(cluster, _):
        fabric, gpu = cluster.scenario.world["fabric"], cluster.scenario.world["gpu"]
        nodes = [node["status"]["allocatable"] for node in cluster.store.list("nodes")]
        assert len(nodes) == 2
        if gpu["count"]:
            slices = cluster.store.list("resourceslices.resource.k8s.io")
            assert all(offered.get(gpu["resource"]) == str(gpu["count"]) for offered in nodes) or slices
            assert fabric.get("resource") or fabric["networks"]
            assert all(
                offered[name] == str(fabric["shares"])
                for offered in nodes
                for name in filter(None, [fabric.get("resource")])
            )

    meet(str(tmp_path / "plain.yaml"), judge)


def test_a_world_of_five_hundred_nodes_has_every_pod_and_every_address_once(tmp_path):
    """Names of pods and addresses of nodes do not collide, for any number of nodes."""
    (tmp_path / "many.yaml").write_text(GOOD + "world: {nodes: 500, crowd: {pods: 3000}}\n")

    async def judge(cluster, _):
        pods = cluster.store.list("pods")
        workloads = cluster.scenario.world["workloads"].values()
        each = [w.get("replicas", 1) if w.get("kind") == "Deployment" else 500 for w in workloads]
        assert len(pods) == sum(each) + 3000
        addresses = [pod["status"]["podIP"] for pod in pods if pod["status"].get("podIP")]
        assert len(set(addresses)) == len(addresses)
        fresh = {cluster.kubelet.address(f"gpu-node-{number}") for number in range(500)}
        assert len(fresh) == 500 or cluster.kubelet.network.mode == "plain"

    meet(str(tmp_path / "many.yaml"), judge)


def test_a_platform_is_a_file_that_extends_another(tmp_path):
    """A user's own platform is a file next to the scenario with the differences; `null` removes."""
    (tmp_path / "ours.yaml").write_text(
        "name: ours\nextends: h100-ib\ngpu: {count: 4}\nworkloads: {kube-proxy: null}\n"
    )
    (tmp_path / "mine.yaml").write_text(GOOD + "world: {platform: ours.yaml}\n")
    platform = load(str(tmp_path / "mine.yaml"))
    assert (platform.platform, platform.world["gpu"]["count"], platform.world["gpu"]["driver"]) == (
        "ours",
        4,
        "580.95.05",
    )
    assert "kube-proxy" not in platform.world["workloads"] and "coredns" in platform.world["workloads"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nextends: b.yaml\n", "extend each other"),
        ("name: a\nextends: h100-xx\n", "did you mean 'h100-ib'"),
        ("name: a\n", "'version' is missing"),
        ("name: a\nextends: h100-ib\nfabric: {plugin: {fil: x}}\n", "did you mean 'file'"),
        ("name: a\nextends: h100-ib\nfabric: {networks: {mtus: 1}}\n", "did you mean 'mtu'"),
        ("name: a\nextends: h100-ib\nfabric: {rate_gbps: fast}\n", "rate_gbps must be"),
        ("title: a\nextends: h100-ib\n", "'name' is missing"),
    ],
)
def test_a_wrong_platform_says_what_is_wrong(tmp_path, text, message):
    """The validation is as strict as for scenarios."""
    (tmp_path / "b.yaml").write_text("name: b\nextends: b.yaml\n" if "b.yaml" in text else "name: b\n")
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "mine.yaml").write_text(GOOD + "world: {platform: a.yaml}\n")
    with pytest.raises(ScenarioError, match=message):
        load(str(tmp_path / "mine.yaml"))


def test_a_pod_on_roce_gets_its_functions_its_networks_and_nothing_of_its_neighbours():
    """Two requested networks yield two functions in sysfs, and Multus' annotation, with MTU and device."""

    async def judge(cluster, run):
        ended, log = await run(pod("one", {attachments.ASKED: ASK}, **{"nvidia.com__sriov-rdma-vf": "2"}))
        noted = json.loads(ended["metadata"]["annotations"][attachments.STATUS])
        assert [(each["interface"], each["name"]) for each in noted] == [
            ("eth0", "cbr0"),
            ("net1", "default/rdma-0"),
            ("net2", "default/rdma-1"),
        ]
        assert noted[0]["default"] is True and noted[0]["ips"] == [ended["status"]["podIP"]]
        assert {each["mtu"] for each in noted[1:]} == {9000}
        devices = [each["device-info"]["pci"]["rdma-device"] for each in noted[1:]]
        assert devices == ["mlx5_8", "mlx5_9"]
        assert log.split()[:2] == ["mlx5_8", "mlx5_9"]
        definition = cluster.store.get(attachments.KEY, "default", "rdma-0")
        assert '"mtu": 9000' in definition["spec"]["config"]

    meet("healthy-roce", judge)


def test_a_pod_that_asks_for_no_network_gets_no_annotation_of_devices():
    """Without the annotation the pod has eth0 only and no RDMA device, although the function was allocated."""

    async def judge(_, run):
        ended, log = await run(pod("plain", None, **{"nvidia.com__sriov-rdma-vf": "1"}))
        assert [each["interface"] for each in json.loads(ended["metadata"]["annotations"][attachments.STATUS])] == [
            "eth0"
        ]
        assert "mlx5" not in log

    meet("healthy-roce", judge)


def test_a_network_that_does_not_exist_keeps_the_pod_from_starting():
    """Multus refuses: FailedCreatePodSandBox names the definition, and the pod waits."""

    async def judge(cluster, _):
        given = pod("one", {attachments.ASKED: "rdma-9"}, **{"nvidia.com__sriov-rdma-vf": "1"})
        cluster.store.create("pods", given, "default")
        event = await seen_in(cluster)(
            lambda: next(e for e in cluster.store.list("events", "default") if e["reason"] == "FailedCreatePodSandBox"),
            "the refusal",
        )
        assert "cannot find a network-attachment-definition (rdma-9) in namespace (default)" in event["message"]
        assert cluster.store.get("pods", "default", "one")["status"]["phase"] == "Pending"

    meet("healthy-roce", judge)


def test_networks_are_asked_for_by_name_or_as_a_list():
    """The annotation has two forms, with namespace and interface."""

    def asking(text):
        return attachments.asked({"metadata": {"namespace": "ns", "annotations": {attachments.ASKED: text}}})

    assert asking("a, other/b@x0") == [("ns", "a", ""), ("other", "b", "x0")]
    assert asking('[{"name":"a","namespace":"n","interface":"net7"}]') == [("n", "a", "net7")]
    assert asking("") == []
    for wrong in ("a b", "[nonsense"):
        with pytest.raises(attachments.AttachmentError):
            asking(wrong)


def test_a_pod_on_efa_gets_its_cards_and_no_infiniband_tools():
    """The requested number of cards; an empty link layer in sysfs; ib tools are missing in that image."""

    async def judge(_, run):
        ended, log = await run(pod("one", None, **{"vpc.amazonaws.com__efa": "2"}))
        assert ended["status"]["phase"] == "Succeeded"
        assert log.count("rdmap") == 32  # sysfs shows all of the node
        assert "uverbs0" in log and "no tools" in log

    meet("healthy-efa", judge)


def plugged(pair, **changes):
    """Return the state of a pod on EFA, for the stand-ins."""
    world = load("healthy-efa").world
    fabric = world["fabric"]
    nics = [
        {"name": name, "port": 1, "state": "ACTIVE", "rate_gbps": 100, "link_layer": "Unknown", "rail": rail}
        for rail, name in enumerate(fabric["devices"])
    ]
    whole = {"rdma": {"devices": nics}, "plugin": fabric["plugin"], **changes}
    original = pair.state

    def state(node):
        path = original(node)
        path.write_text(json.dumps(json.loads(path.read_text()) | whole))
        return path

    pair.state = state
    return pair


def test_nccl_reaches_efa_through_its_plugin(pair):
    """Four cards per GPU are one device; every hop between nodes uses the plugin and GPUDirect over eight devices."""
    answer = plugged(pair).run(NCCL_ALGO="Ring")
    assert answer.codes == [0, 0]
    assert answer.log.count("Using network Libfabric") == 16
    assert answer.log.count("NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)") == 16
    hops = re.findall(r"\[(?:send|receive)\] via (\S+)", answer.log)
    assert set(hops) == {f"NET/Libfabric/{device}/GDRDMA" for device in range(8)}
    assert "NET/IB" not in answer.log


@pytest.mark.parametrize(
    ("changes", "env", "line"),
    [
        ({"plugin": None}, {}, "NET/Plugin: Could not find: libnccl-net.so"),
        ({"rdma": None}, {}, "Failed to initialize NET plugin Libfabric"),
        ({}, {"NCCL_NET_PLUGIN": "none"}, "NCCL_NET_PLUGIN set by environment to none"),
        ({}, {"NCCL_NET": "Socket"}, "NET/Socket : Using"),
    ],
)
def test_without_plugin_or_cards_nccl_uses_sockets(pair, changes, env, line):
    """NCCL has no built-in EFA support: its verbs code finds no port of a known kind."""
    answer = plugged(pair, **changes).run(**env)
    assert answer.codes == [0, 0]
    assert line in answer.log
    assert answer.log.count("Using network Socket") == 16


def test_kind_has_no_accelerator():
    """Workers have kind's names, and no sign of a GPU."""

    async def judge(cluster, run):
        nodes = cluster.store.list("nodes")
        assert [node["metadata"]["name"] for node in nodes] == ["kind-worker", "kind-worker2"]
        assert not any(
            "nvidia" in key for node in nodes for key in (*node["metadata"]["labels"], *node["status"]["capacity"])
        )
        ended, _ = await run(pod())
        assert ended["status"]["phase"] in ("Succeeded", "Failed")

    meet("cpu-only", judge)
