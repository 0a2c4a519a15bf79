"""A real API server for each test module: two GPU nodes, the controllers, and a kubelet that only serves logs."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from dataclasses import dataclass, field
from http.client import HTTPSConnection
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab.apiserver import Server, serve
from lab.apiserver.schema.errors import bad_request
from lab.apiserver.store import Store
from lab.controlplane import Controllers
from tests.waiting import HANG_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

INFO = (
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
)
CAPACITY = {"cpu": "96", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}


def node(name: str) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    status = {
        "capacity": CAPACITY,
        "allocatable": CAPACITY,
        "conditions": [ready],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "nodeInfo": dict.fromkeys(INFO, "v1.36.2"),
    }
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}


class LogOnly:
    """A kubelet with containers that printed three lines each."""

    async def logs(self, ns: str, pod: str, container: str, **options: Any) -> AsyncIterator[bytes]:
        if options["previous"]:
            raise bad_request(f'previous terminated container "{container}" in pod "{pod}" not found')
        lines = [f"{container} line {index}\n".encode() for index in range(3)]
        for line in lines if options["tail_lines"] is None else lines[-options["tail_lines"] :]:
            yield line


@dataclass
class Answer:
    """A response."""

    code: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def text(self) -> str:
        return self.raw.decode()


@dataclass
class Cluster:
    """A served cluster and its clients."""

    store: Store
    server: Server
    loop: asyncio.AbstractEventLoop
    context: ssl.SSLContext
    tokens: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for who, text in (("admin", self.server.kubeconfig), ("nobody", self.server.nobody_kubeconfig)):
            self.tokens[who] = yaml.safe_load(text)["users"][0]["user"]["token"]

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str = "application/json",
        who: str = "admin",
        **headers: str,
    ) -> Answer:
        connection = self.connect()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if who:
            sent["Authorization"] = f"Bearer {self.tokens.get(who, who)}"
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if raw is not None:
            sent["Content-Type"] = media
        connection.request(method, path, raw, sent)
        response = connection.getresponse()
        answer = Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        connection.close()
        return answer

    def connect(self) -> HTTPSConnection:
        """Return a separate connection."""
        return HTTPSConnection(self.server.url.removeprefix("https://"), context=self.context, timeout=HANG_S)

    def on_loop(self, call: Any) -> Any:
        """Run a function in the store's event loop."""

        async def run() -> Any:
            return call()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(HANG_S)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Start a cluster whose event loop runs in a separate thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    store = Store()
    for name in ("gpu-node-0", "gpu-node-1"):
        store.load("nodes", node(name))
    controllers = Controllers(store)

    async def start() -> Server:
        controllers.start()
        return await serve(store, kubelet=LogOnly())

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(HANG_S)
    context = ssl.create_default_context(cadata=server.authority.ca_pem)
    try:
        yield Cluster(store, server, loop, context)
    finally:

        async def stop() -> None:
            controllers.close()
            await server.stop()

        asyncio.run_coroutine_threadsafe(stop(), loop).result(HANG_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(HANG_S)
        loop.close()


@pytest.fixture
def space(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Create a namespace for the test, with its service account."""
    name = f"t-{abs(hash(request.node.name)) % 10**8}"
    cluster("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    until(lambda: cluster("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default").code == 200, "its account")
    yield name
    cluster("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def kubeconfig(cluster: Cluster, tmp_path: Any) -> str:
    """Write the administrator's kubeconfig."""
    path = tmp_path / "config"
    path.write_text(cluster.server.kubeconfig)
    return str(path)
