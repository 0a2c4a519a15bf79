"""Effects of each shipped world on an Indexed Job that trains on two nodes."""

import asyncio

import pytest

from lab import Cluster, load
from tests.lab.clusters import seen_in
from tests.waiting import HANG_S

pytestmark = pytest.mark.usefixtures("nothing_cached")

IMAGE = "pytorch/pytorch:2.11.0-cuda13.0-cudnn9-runtime"
WAIT = (
    "import os,socket,time\n"
    "names=['t-0.t','t-1.t']\n"
    "end=time.time()+%s\n"
    "while names and time.time()<end:\n"
    "    try: socket.gethostbyname(names[0]); names.pop(0)\n"
    "    except OSError: time.sleep(0.1)\n"
    "print('resolved' if not names else 'unresolved',flush=True)\n"
)
PORTS = (
    "other='t-%d.t'%(1-int(os.environ['JOB_COMPLETION_INDEX']))\n"
    "open_=[socket.create_server(('',port)) for port in (29500,29501)]\n"
    "for port in (29500,29501):\n"
    "    while True:\n"
    "        try: socket.create_connection((other,port),timeout=1.0).close(); print(port,'open',flush=True); break\n"
    "        except ConnectionRefusedError: time.sleep(0.05)\n"
    "        except TimeoutError: print(port,'closed',flush=True); break\n"
    "open_[1].accept()\n"  # both requests of the other one have arrived
    "for each in open_: each.close()\n"
)
RUN = (
    "os.environ['NCCL_DEBUG']='INFO'; os.environ['NCCL_ALGO']='Ring'\n"
    "os.execvp('torchrun',['torchrun','--nnodes=2','--nproc-per-node=8','--node-rank='+os.environ['JOB_COMPLETION_INDEX'],"
    "'--master-addr=t-0.t','--master-port=29500','bench.py'])\n"
)


def job(script: str) -> dict:
    return {
        "metadata": {"name": "t"},
        "spec": {
            "completions": 2,
            "parallelism": 2,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "subdomain": "t",
                    "restartPolicy": "Never",
                    "containers": [
                        {
                            "name": "main",
                            "image": IMAGE,
                            "command": ["python3", "-c", script],
                            "resources": {"limits": {"nvidia.com/gpu": "8", "rdma/hca_shared_devices_a": "1"}},
                        }
                    ],
                }
            },
        },
    }


SERVICE = {
    "metadata": {"name": "t"},
    "spec": {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"job-name": "t"},
        "ports": [{"port": 29500}],
    },
}


class Run:
    """A job in a world, until it ends or a condition is met."""

    def __init__(self, cluster: Cluster):
        self.cluster, self.store, self.until = cluster, cluster.store, seen_in(cluster)

    def pods(self) -> list[dict]:
        listed = self.store.list("pods", "default")
        return sorted(listed, key=lambda pod: pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])

    async def ended(self) -> list[str]:
        await self.until(lambda: [p["status"]["phase"] for p in self.pods()] == ["Succeeded"] * 2)
        return [await self.log(pod) for pod in self.pods()]

    async def log(self, pod: dict) -> str:
        kubelet = self.cluster.kubelet
        parts = [part async for part in kubelet.logs("default", pod["metadata"]["name"], "main")]
        return b"".join(parts).decode()


def play(scenario: str, script: str, judge, network: str = "auto"):
    """Start a world, start the job, and call `judge`."""

    async def within():
        async with await Cluster.start(load(scenario), network=network) as cluster:
            if cluster.network != "namespaces" and network == "auto":
                pytest.skip(f"needs pods with separate networks: {cluster.lost}")
            cluster.store.create("services", SERVICE, "default")
            cluster.store.create("jobs.batch", job(script), "default")
            await judge(Run(cluster))

    asyncio.run(within())


def test_healthy_trains():
    """healthy: names resolve, the port is open both ways, sixteen ranks run at full speed."""

    async def judge(run):
        logs = await run.ended()
        assert all("resolved\n29500 open\n29501 open\n" in log for log in logs)
        assert "".join(logs).count("Using network IB") == 16
        assert "# Out of bounds values : 0 OK" in logs[0]
        nodes = {pod["spec"]["nodeName"] for pod in run.pods()}
        assert nodes == {"gpu-node-0", "gpu-node-1"}

    play("healthy", WAIT % HANG_S + PORTS + RUN, judge)


def test_healthy_trains_where_the_kernel_grants_no_namespaces():
    """healthy as plain processes: names, ports and devices exist for Python programs, and limitations are reported."""

    async def judge(run):
        assert run.cluster.network == "plain"
        assert run.cluster.lost
        logs = await run.ended()
        assert all("resolved\n29500 open\n29501 open\n" in log for log in logs)
        assert "".join(logs).count("Using network IB") == 16

    play("healthy", WAIT % HANG_S + PORTS + RUN, judge, network="plain")


def test_dns_slow_resolves_late():
    """dns-slow: NXDOMAIN for some seconds, then the names resolve."""

    async def judge(run):
        logs = await run.ended()
        assert logs == ["late\nresolved\n29500 open\n29501 open\n"] * 2

    first = (
        "import socket\ntry: socket.gethostbyname('t-1.t'); print('at once',flush=True)\n"
        "except socket.gaierror as e: print('late' if e.errno==-2 else e,flush=True)\n"
    )
    play("dns-slow", first + WAIT % HANG_S + PORTS, judge)


def test_dns_broken_never_resolves():
    """dns-broken: every query for the names is denied."""

    async def judge(run):
        assert [log.strip() for log in await run.ended()] == ["unresolved"] * 2

    play("dns-broken", WAIT % 2, judge)


def test_port_blocked_drops_the_rendezvous_port_only():
    """port-blocked: MASTER_PORT times out, everything else is open."""

    async def judge(run):
        logs = await run.ended()
        assert all(log == "resolved\n29500 closed\n29501 open\n" for log in logs), logs

    play("port-blocked", WAIT % HANG_S + PORTS, judge)


@pytest.mark.parametrize(
    ("scenario", "checks"),
    [
        ("socket-fallback", [("Using network Socket", 16), ("NET/IB : No device found.", 16), ("Using network IB", 0)]),
        ("mixed-transport", [("Using network Socket", 1), ("Using network IB", 15)]),
        ("low-bandwidth", [("Using network IB", 16), ("# Out of bounds values : 0 OK", 1)]),
        ("wrong-results", [("Using network IB", 16), (" FAILED", 1)]),
    ],
)
def test_collectives_break_as_the_scenario_says(scenario, checks):
    """The collective's faults show in the ranks' logs and the table, and nowhere else."""

    async def judge(run):
        text = "".join(await run.ended())
        for phrase, times in checks:
            assert text.count(phrase) == times, phrase

    play(scenario, WAIT % HANG_S + RUN, judge)


def test_image_missing_waits_for_the_image():
    """image-missing shows ErrImagePull and ImagePullBackOff with containerd's text."""

    async def judge(run):
        def image_refused():
            waiting = [pod["status"]["containerStatuses"][0]["state"]["waiting"] for pod in run.pods()]
            return waiting if all(each["reason"] == "ImagePullBackOff" for each in waiting) else None

        waiting = await run.until(image_refused)
        assert f"docker.io/{IMAGE}: not found" in waiting[0]["message"]

    play("image-missing", "", judge)


def test_a_missing_resource_is_named():
    """rdma-resource-missing: one pod runs, the other does not fit because the RDMA resource is missing."""

    async def judge(run):
        def refusal():
            conditions = [
                c for pod in run.pods() for c in pod["status"].get("conditions", []) if c["type"] == "PodScheduled"
            ]
            return next(c["message"] for c in conditions if c["status"] == "False")

        message = await run.until(refusal)
        assert message.startswith("0/2 nodes are available: ")
        assert "1 Insufficient rdma/hca_shared_devices_a" in message

    play("rdma-resource-missing", "import time; time.sleep(6000)", judge)


def test_gpus_taken_leaves_no_gpu():
    """gpus-taken: both pods wait, and the GPUs belong to another team's pods."""

    async def judge(run):
        def refusals():
            pods = run.store.list("pods", "default")
            messages = [c["message"] for p in pods for c in p["status"].get("conditions", []) if c["status"] == "False"]
            return messages if len(messages) == 2 else None

        assert all("2 Insufficient nvidia.com/gpu" in message for message in await run.until(refusals))
        owners = {pod["metadata"]["ownerReferences"][0]["kind"] for pod in run.store.list("pods", "team-b")}
        assert owners == {"ReplicaSet"}
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "was"}
        run.store.create("configmaps", {"metadata": {"name": "after", "ownerReferences": [owner]}}, "team-b")
        await run.until(lambda: run.store.get("configmaps", "team-b", "after") is None, "the garbage collector's turn")
        assert len(run.store.list("pods", "team-b")) == 2  # they came first and are unaffected

    play("gpus-taken", "", judge)


def test_a_pod_sees_only_the_devices_that_it_asked_for():
    """Without requests there is no nvidia-smi, no /dev/nvidia0 and no /dev/infiniband."""

    async def judge(run):
        pod = {
            "metadata": {"name": "plain"},
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "main",
                        "image": "busybox",
                        "command": ["sh", "-c", "command -v nvidia-smi; ls -d /dev/infiniband; ibv_devinfo"],
                    }
                ],
            },
        }
        run.store.create("pods", pod, "default")
        finished = await run.until(
            lambda: next(
                p
                for p in run.store.list("pods", "default")
                if p["metadata"]["name"] == "plain" and p["status"]["phase"] in ("Failed", "Succeeded")
            )
        )
        text = await run.log(finished)
        assert "nvidia-smi" not in text
        assert "No IB devices found" in text
        assert "cannot access" in text or "No such file" in text

    play("healthy", "", judge)


@pytest.mark.parametrize(
    ("scenario", "nodes", "gpus"),
    [
        ("healthy", 2, ["8", "8"]),
        ("empty-cluster", 0, []),
        ("no-gpu-nodes", 2, [None, None]),
        ("gpu-missing", 2, ["8", "7"]),
        ("allocatable-zero", 2, ["0", "0"]),
    ],
)
def test_nodes_offer_what_the_scenario_says(scenario, nodes, gpus):
    """Node objects: capacity is the hardware's, allocatable the remaining part."""

    async def within():
        async with await Cluster.start(load(scenario)) as cluster:
            listed = cluster.store.list("nodes")
            assert len(listed) == nodes
            assert [node["status"]["allocatable"].get("nvidia.com/gpu") for node in listed] == gpus
            for node in listed:
                assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"
                has_gpu = "nvidia.com/gpu" in node["status"]["capacity"]
                assert has_gpu == (node["metadata"]["labels"].get("nvidia.com/gpu.present") == "true")
                assert "taints" not in node["spec"]

    asyncio.run(within())
