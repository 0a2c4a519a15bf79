"""A cluster without an API server: nodes with real processes as pods."""

from lab.apiserver.store import Store
from lab.controlplane import Controllers
from lab.controlplane.scheduler.scheduler import Scheduler
from lab.node import Kubelet
from lab.node.dns import DnsServer
from lab.node.network import open_network
from tests.lab.clusters import seen_in, told


class Lab:
    """A cluster without an API server."""

    def __init__(self, store, network, kubelet):
        self.store, self.network, self.kubelet = store, network, kubelet
        self.until = seen_in(self)

    def pod(self, name, command, **spec):
        container = {"name": "c", "image": "i", "command": command, **spec.pop("container", {})}
        body = {
            "metadata": {"name": name, "labels": spec.pop("labels", {})},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container], **spec},
        }
        self.store.create("pods", body, "default")

    def get(self, name):
        return self.store.get("pods", "default", name)

    def state(self, name):
        return self.get(name)["status"]["containerStatuses"][0]["state"]

    async def ended(self, name):
        await self.until(
            lambda: self.get(name)["status"]["phase"] in ("Succeeded", "Failed") and self.state(name)["terminated"],
            f"{name} ended",
        )
        return self.state(name)["terminated"]

    async def log(self, name, **options):
        return b"".join([c async for c in self.kubelet.logs("default", name, "c", **options)]).decode()

    async def says(self, name, word):
        async for chunk in self.kubelet.logs("default", name, "c", follow=True):
            if word in chunk.decode():
                return
        raise AssertionError(f"{name} ended without printing {word}: {await told(self)}")

    def reasons(self, name):
        return [e["reason"] for e in self.store.list("events") if e["involvedObject"]["name"] == name]


async def build(mode, ends, images=None):
    network = await open_network(mode)
    ends.push_async_callback(network.close)
    store = Store()
    for number in range(2):
        store.load(
            "nodes",
            {
                "metadata": {"name": f"n{number}", "labels": {"kubernetes.io/hostname": f"n{number}"}},
                "spec": {"podCIDR": f"10.244.{number}.0/24"},
                "status": {
                    "allocatable": {"pods": "110", "cpu": "8", "memory": "64Gi"},
                    "addresses": [{"type": "InternalIP", "address": f"10.0.0.{number + 1}"}],
                },
            },
        )
    dns, kubelet = DnsServer(store), Kubelet(store, network, images)
    await dns.start(network)
    parts = Controllers(store), Scheduler(store)
    for part in (*parts, kubelet):
        part.start()
    ends.push_async_callback(kubelet.close)
    for served in (*parts, dns):
        ends.callback(served.close)
    return Lab(store, network, kubelet)
