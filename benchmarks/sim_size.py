"""The cost of the simulated cluster: ratios measured in the same run; exits 1 if a target is missed.

    python benchmarks/sim_size.py [--nodes 5000] [--pods 20000]

Targets: a list of 5,000 nodes (16 KB each) costs the server less than 1.5 times as much as writing the same bytes from
memory to a TLS socket; 50 watches of 1,000 changes a second keep up; `sim healthy` answers within 1 s and its idle CPU
time is near zero.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lab.apiserver import serve  # noqa: E402 - the repository is not installed
from lab.apiserver.store import Store  # noqa: E402

if TYPE_CHECKING:
    import ssl

PIECE = 1 << 18
LISTS, CLIENTS, RATE, SECONDS = 10, 50, 1000, 5


def furnish(store: Store, nodes: int, pods: int) -> None:
    """Return nodes as large as GPU Feature Discovery and image lists make them, and pods on them."""
    images = [{"names": [f"registry.example/team/image-{i}@sha256:{'0' * 64}"], "sizeBytes": 10**9} for i in range(90)]
    for number in range(nodes):
        labels = {f"feature.node.kubernetes.io/cpu-cpuid.FLAG{i}": "true" for i in range(60)}
        labels["kubernetes.io/hostname"] = f"node-{number:05}"
        status = {
            "capacity": {"cpu": "96", "nvidia.com/gpu": "8", "pods": "110"},
            "images": images,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
        }
        store.load("nodes", {"metadata": {"name": f"node-{number:05}", "labels": labels}, "spec": {}, "status": status})
    for number in range(pods):
        spec = {"nodeName": f"node-{number % nodes:05}", "containers": [{"name": "c", "image": "a"}]}
        meta = {"name": f"pod-{number:05}", "labels": {"app": "a"}}
        store.load("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Running"}}, "default")


class Client:
    """A client that reads at full speed, in threads of a separate process: it must not use our CPU time."""

    CODE = """
import json, os, socket, ssl, sys, time
task = json.loads(sys.stdin.readline())
context = ssl.create_default_context(cafile=task["ca"])
def connect(path):
    raw = socket.create_connection(("127.0.0.1", task["port"]))
    tls = context.wrap_socket(raw, server_hostname="127.0.0.1")
    tls.sendall(f"GET {path} HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer {task['token']}\\r\\n\\r\\n".encode())
    return tls
if task["what"] == "read":
    for _ in range(task["times"]):
        tls, total = connect(task["path"]), 0
        head = b""
        while b"\\r\\n\\r\\n" not in head:
            head += tls.recv(65536)
        head, _, body = head.partition(b"\\r\\n\\r\\n")
        length = int([l for l in head.split(b"\\r\\n") if l.lower().startswith(b"content-length")][0].split(b":")[1])
        total = len(body)
        while total < length:
            total += len(tls.recv(1 << 20))
        tls.close()
    print(json.dumps({"bytes": total}), flush=True)
else:
    import selectors
    chosen, seen, late = selectors.DefaultSelector(), 0, []
    for _ in range(task["clients"]):
        tls = connect(task["path"]); tls.setblocking(False)
        chosen.register(tls, selectors.EVENT_READ)
    print("watching", flush=True)
    end = time.time() + task["seconds"]
    wanted = task["clients"] * task["changes"]
    while seen < wanted and time.time() < end:
        for key, _ in chosen.select(0.5):
            try:
                while data := key.fileobj.recv(1 << 18):
                    seen += data.count(b'"MODIFIED"')
                    at = data.rfind(b'"stamp":"')
                    if at >= 0 and len(late) < 10**6:
                        late.append(time.time() - float(data[at + 9 : at + 26].split(b'"')[0]))
            except (ssl.SSLWantReadError, BlockingIOError):
                pass
    late.sort()
    p99 = late[int(len(late) * 0.99)] if late else None
    print(json.dumps({"seen": seen, "wanted": wanted, "p99_s": p99}), flush=True)
"""

    def __init__(self, **task: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


class Loop:
    """The server's event loop in a thread; `cpu()` is the CPU time of this process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def baseline(body: bytes, context: ssl.SSLContext) -> asyncio.Server:
    """Write the same bytes from memory: the minimum for any server."""
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        for start in range(0, len(body), PIECE):  # in one piece asyncio's TLS takes eight times as long
            writer.write(body[start : start + PIECE])
            await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)


def measure_lists(loop: Loop, store: Store, server, ca: str, token: str, nodes: int) -> float:
    """Return CPU seconds for a list over CPU seconds for the same bytes."""
    path = "/api/v1/nodes"
    body = b",".join(stored.raw for stored in store.scan("nodes"))
    plain = loop.run(baseline(body, store.authority.server_context(["127.0.0.1"])))
    ports = {"list": int(server.url.rpartition(":")[2]), "bytes": plain.sockets[0].getsockname()[1]}
    costs: dict[str, list[float]] = {"list": [], "bytes": []}
    for _ in range(3):  # alternating, so that both run under the same conditions
        for name, port in ports.items():
            before = cpu()
            json.loads(Client(what="read", port=port, ca=ca, token=token, path=path, times=LISTS).line())
            costs[name].append((cpu() - before) / LISTS)
    each = {name: min(found) for name, found in costs.items()}
    ratio = each["list"] / each["bytes"]
    print(
        f"list {nodes} nodes ({len(body) / 1e6:.0f} MB): {each['list'] * 1e3:.0f} ms of CPU, the bytes alone "
        f"{each['bytes'] * 1e3:.0f} ms: ratio {ratio:.2f} (target < 1.5)"
    )
    return ratio


def measure_pages(server, ca: str, token: str, pods: int) -> None:
    for path, times in ((f"/api/v1/pods?limit={pods}", 2), ("/api/v1/nodes?limit=500", 5), ("/api/v1/pods", 2)):
        before = cpu()
        port = int(server.url.rpartition(":")[2])
        client = Client(what="read", port=port, ca=ca, token=token, path=path, times=times)
        found = json.loads(client.line())
        print(f"  {path}: {(cpu() - before) / times * 1e3:.0f} ms of CPU, {found['bytes'] / 1e6:.1f} MB")


def measure_fanout(loop: Loop, store: Store, server, ca: str, token: str) -> float:
    """Return the share of the changes that 50 clients saw in time."""
    for number in range(100):
        store.load("configmaps", {"metadata": {"name": f"c-{number}"}, "data": {"stamp": "0"}}, "default")
    client = Client(
        what="watch",
        port=int(server.url.rpartition(":")[2]),
        ca=ca,
        token=token,
        clients=CLIENTS,
        path=f"/api/v1/configmaps?watch=true&resourceVersion={store.revision}",
        changes=RATE * SECONDS,
        seconds=SECONDS + 10,
    )
    assert client.line().strip() == "watching"
    time.sleep(1)

    async def change() -> float:
        start = time.monotonic()
        for number in range(RATE * SECONDS):
            stamp = f"{time.time():.6f}"
            store.mutate("configmaps", "default", f"c-{number % 100}", lambda c, s=stamp: c.update(data={"stamp": s}))
            due = start + (number + 1) / RATE
            if number % 10 == 9:
                await asyncio.sleep(max(0, due - time.monotonic()))
        return time.monotonic() - start

    before = cpu()
    took = loop.run(change())
    found = json.loads(client.line())
    share = found["seen"] / found["wanted"]
    print(
        f"watch fan-out: {CLIENTS} clients saw {share:.1%} of {RATE}/s for {SECONDS} s, writing took {took:.1f} s, "
        f"99 % within {found['p99_s'] * 1e3:.0f} ms, {(cpu() - before) / took:.0%} of one CPU"
    )
    return share if took < SECONDS * 1.1 else 0.0


def measure_start() -> tuple[float, float]:
    """Return the seconds until `sim healthy` answers (process start included), and its CPU share when idle."""
    times = []
    idle = 0.0
    for attempt in range(3):
        with tempfile.TemporaryDirectory() as folder:
            begin = time.monotonic()
            command = [sys.executable, "-m", "lab", "healthy", "--json", "--until-stdin-closes"]
            with subprocess.Popen(
                [*command, "--write-kubeconfig", f"{folder}/k"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ) as process:
                assert process.stdout is not None
                assert process.stdin is not None
                process.stdout.readline()
                times.append(time.monotonic() - begin)
                if attempt == 0:
                    time.sleep(2)
                    before = ticks(process.pid)
                    time.sleep(10)
                    idle = (ticks(process.pid) - before) / os.sysconf("SC_CLK_TCK") / 10
                process.stdin.close()
    print(f"start of sim:healthy: {min(times):.2f} s (target < 1), idle {idle:.2%} of one CPU")
    return min(times), idle


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20_000)
    options = parser.parse_args()
    start, idle = measure_start()
    store, begin = Store(), time.monotonic()
    furnish(store, options.nodes, options.pods)
    size = sum(len(stored.raw) for stored in store.scan("nodes")) / options.nodes
    print(
        f"{options.nodes} nodes of {size / 1e3:.1f} KB and {options.pods} pods: {time.monotonic() - begin:.1f} s, "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"
    )
    loop = Loop()
    server = loop.run(serve(store))
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as ca:
        ca.write(server.authority.ca_pem)
        ca.flush()
        token = yaml.safe_load(server.kubeconfig)["users"][0]["user"]["token"]
        ratio = measure_lists(loop, store, server, ca.name, token, options.nodes)
        measure_pages(server, ca.name, token, options.pods)
        share = measure_fanout(loop, store, server, ca.name, token)
    good = ratio < 1.5 and share == 1.0 and start < 1.0 and idle < 0.02
    print("all targets are met" if good else "a target is MISSED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
