"""A kind cluster for these tests (`make test-real CLUSTER=.real/kind.yaml`): its nodes offer the devices that the lab
has files for.

    python -m tests.real_cluster.kind [FOLDER]

Every node is a container with FOLDER at the same path, so that files and programs are available as in our own cluster.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import image, programs
from .hardware import labels, plugin_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "seatrial"
NODES = (f"{NAME}-worker", *(f"{NAME}-worker{number}" for number in range(2, 5)))  # kind's own names


def config(folder: Path) -> dict[str, Any]:
    """Return kind's configuration (kind.sigs.k8s.io/docs/user/configuration)."""
    shared = [{"hostPath": str(folder), "containerPath": str(folder)}]
    worker = {"role": "worker", "extraMounts": shared}
    nodes = [{"role": "control-plane"}, *(worker for _ in NODES)]
    return {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "name": NAME, "nodes": nodes}


def main(arguments: Sequence[str]) -> int:
    """Create the cluster, import the images, start a device plugin on each node."""
    folder = Path(arguments[0] if arguments else ".real").resolve()
    kind = programs.build("kind", folder / "programs") / "kind"
    plugin = programs.build("deviceplugin", folder / "programs") / "deviceplugin"
    programs.build("helm", folder / "programs")
    archive = image.build(folder)
    offered = {name: plugin_arguments(_home(folder, name), name) for name in NODES}
    kubeconfig = folder / "kind.yaml"
    create: list[str | Path] = [kind, "create", "cluster", "--config", "-", "--kubeconfig", kubeconfig, "--wait", "5m"]
    subprocess.run(create, input=json.dumps(config(folder)), text=True, check=True)
    subprocess.run([kind, "load", "image-archive", archive, "--name", NAME], check=True)
    for name, options in offered.items():
        given = (f"{key}={value}" for key, value in labels().items())
        subprocess.run(["kubectl", "--kubeconfig", kubeconfig, "label", "node", name, *given], check=True)
        subprocess.run(["docker", "exec", "--detach", name, plugin, *options], check=True)
    print(f"the cluster is at {kubeconfig}; {kind} delete cluster --name {NAME} takes it away")
    return 0


def _home(folder: Path, name: str) -> Path:
    home = folder / "run" / "nodes" / name
    home.mkdir(parents=True, exist_ok=True)
    return home


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
