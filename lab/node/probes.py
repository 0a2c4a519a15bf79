"""Liveness, readiness and startup probes.

Probes run from the node: commands inside the container, TCP and HTTP to the pod's address.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Coroutine
from typing import Any

from .pod_context import ContainerContext

Object = dict[str, Any]
KINDS = (("startupProbe", "Startup"), ("livenessProbe", "Liveness"), ("readinessProbe", "Readiness"))
MAX_BODY = 10 * 1024


def jobs(container: ContainerContext) -> list[Coroutine[Any, Any, None]]:
    """One loop for each probe of a container."""
    return [_loop(container, key, title) for key, title in KINDS if container.spec.get(key)]


async def _loop(container: ContainerContext, key: str, title: str) -> None:
    probe: Object = container.spec[key]
    good = bad = 0
    await asyncio.sleep(probe.get("initialDelaySeconds") or 0)
    while container.process is not None:
        if key == "startupProbe" or container.state.started:
            passed, why = await check(container, probe)
            good, bad = (good + 1, 0) if passed else (0, bad + 1)
            if not passed:
                container.event("Warning", "Unhealthy", f"{title} probe failed: {why}")
            if passed and good >= (probe.get("successThreshold") or 1):
                _pass(container, key)
                if key == "startupProbe":
                    return
            elif bad >= (probe.get("failureThreshold") or 3):
                if key == "readinessProbe":
                    _unready(container)
                else:
                    await _kill(container, probe, title)
                    return
        await asyncio.sleep(probe.get("periodSeconds") or 10)


def _pass(container: ContainerContext, key: str) -> None:
    state = container.state
    if key == "startupProbe":
        state.started = True
        state.ready = not container.spec.get("readinessProbe")
    elif key == "readinessProbe":
        if state.ready:
            return
        state.ready = True
    else:
        return
    container.worker.publish()


def _unready(container: ContainerContext) -> None:
    if container.state.ready:
        container.state.ready = False
        container.worker.publish()


async def _kill(container: ContainerContext, probe: Object, title: str) -> None:
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is None:
        grace = container.worker.pod["spec"].get("terminationGracePeriodSeconds", 30)
    await container.stop(grace, f"Container {container.name} failed {title.lower()} probe, will be restarted")


async def check(container: ContainerContext, probe: Object) -> tuple[bool, str]:
    """Run a probe once; return (passed, its output)."""
    limit = probe.get("timeoutSeconds") or 1
    if "exec" in probe:
        code, output = await container.execute(probe["exec"].get("command") or [], limit)
        return (code == 0, output) if code is not None else (False, f"command timed out after {limit}s")
    if "tcpSocket" in probe:
        return await _connect(container, probe["tcpSocket"], limit, None)
    if "httpGet" in probe:
        return await _connect(container, probe["httpGet"], limit, probe["httpGet"])
    return True, ""  # gRPC: no fake here supports it


def _port(container: ContainerContext, port: int | str) -> int:
    if isinstance(port, int):
        return port
    named = {p.get("name"): p["containerPort"] for p in container.spec.get("ports") or []}
    return int(named.get(port) or (port if port.isdigit() else 0))


async def _connect(container: ContainerContext, target: Object, limit: float, http: Object | None) -> tuple[bool, str]:
    host = target.get("host") or container.worker.pod_ip
    port = _port(container, target["port"])
    where = f"dial tcp {host}:{port}: "
    sock = await container.worker.kubelet.network.socket("tcp")
    try:
        async with asyncio.timeout(limit):
            await asyncio.get_running_loop().sock_connect(sock, (host, port))
            return await _get(sock, host, port, http) if http else (True, "")
    except TimeoutError:
        why = f"{where}i/o timeout"
    except OSError as error:
        why = f"{where}connect: {os.strerror(error.errno or 0).lower()}"
    finally:
        with contextlib.suppress(OSError):
            sock.close()
    path = (http or {}).get("path") or "/"
    return False, f'Get "http://{host}:{port}{path}": {why}' if http else why


async def _get(sock: socket.socket, host: str, port: int, http: Object) -> tuple[bool, str]:
    loop = asyncio.get_running_loop()
    headers = "".join(f"{h['name']}: {h['value']}\r\n" for h in http.get("httpHeaders") or [])
    request = (
        f"GET {http.get('path') or '/'} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: kube-probe/1.36\r\n"
        f"{headers}Connection: close\r\n\r\n"
    )
    await loop.sock_sendall(sock, request.encode())
    answer = await loop.sock_recv(sock, MAX_BODY)
    fields = answer.split(b"\r\n", 1)[0].split()
    code = int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0
    return (True, "") if 200 <= code < 400 else (False, f"HTTP probe failed with statuscode: {code}")
