"""A real node's GPUs and NICs as its pods see them: the lab's files of a healthy platform, mounted by a real device
plugin."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from lab import scenario
from lab.hardware.pods import Hardware

PLATFORM = "h100-ib"


class _One:
    """A store that knows one pod and its node, which is sufficient for the lab's hardware."""

    def __init__(self, pod: dict[str, Any], node: dict[str, Any]) -> None:
        self._pod, self._node = pod, node

    def list(self, kind: str, *_: object) -> list[dict[str, Any]]:
        """Return every object of a kind."""
        return [self._pod] if kind == "pods" else []

    def get(self, kind: str, *_: object) -> dict[str, Any] | None:
        """Return the node, whatever its name."""
        return self._node if kind == "nodes" else None


def world() -> dict[str, Any]:
    """Return the platform with the devices that the nodes offer."""
    return dict(scenario.load("healthy").world)


def labels() -> dict[str, str]:
    """Return the labels that the platform's operators write onto a node."""
    return dict(world()["node"]["metadata"]["labels"])


def offers() -> dict[str, int]:
    """Return a node's resources: name to count."""
    gpu, fabric = world()["gpu"], world()["fabric"]
    return {gpu["resource"]: gpu["count"], fabric["resource"]: fabric["shares"]}


def plugin_arguments(home: Path, node: str) -> list[str]:
    """Write the devices of a node below `home`; return the options of the device plugin that assigns them to
    containers."""
    amounts = {name: "1" if name.startswith("rdma") else str(count) for name, count in offers().items()}
    container = {"name": "trial", "image": "trial", "resources": {"limits": amounts}}
    spec = {"nodeName": node, "containers": [container]}
    pod = {"metadata": {"uid": "node", "namespace": "default", "name": "pod"}, "spec": spec, "status": {}}
    store = _One(pod, {"status": {"capacity": amounts}})
    laid = Hardware(store, world(), PLATFORM, home / "hardware")  # type: ignore[arg-type]
    mounts = [each for each in laid.mounts(pod, node) if each["target"] not in {"/run/sim/bin", "/usr/sbin/sshd"}]
    system = home / "sys"
    shutil.rmtree(system, ignore_errors=True)
    for place in ("fs/cgroup", "class/net/lo", "class/net/eth0", "devices/system", "kernel", "module"):
        (system / place).mkdir(parents=True)
    for name, mtu in (("lo", "65536"), ("eth0", "1500")):
        (system / "class/net" / name / "mtu").write_text(mtu + "\n", encoding="ascii")
        (system / "class/net" / name / "operstate").write_text("up\n", encoding="ascii")
    options = [f"--unhealthy={home / 'unhealthy'}", f"--mount={system}:/sys:ro"]
    for each in mounts:
        if each["target"].startswith("/sys/"):  # a mount point that must exist, since /sys is not writable
            (system / each["target"].removeprefix("/sys/")).mkdir(parents=True, exist_ok=True)
        options.append(f"--mount={each['source']}:{each['target']}:{'ro' if each.get('readonly') else 'rw'}")
    return [*options, *(f"{name}={count}" for name, count in offers().items())]
