"""Pods without namespaces: the paths and names of the pod for its commands.

Paths of mounts are replaced in command and environment, and Python programs get the network's shim, which redirects the
rest at run time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import network
from .network.client import visible_folders
from .network.interface import RULES
from .pod_context import PodContext

Object = dict[str, Any]
SHIM = Path(network.__file__).parent / "shim"


def rewrite(
    worker: PodContext, folder: Path, argv: list[str], env: dict[str, str], mounts: list[Object]
) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of a container that is a plain process."""
    kubelet = worker.kubelet
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    mounted: dict[str, str] = {"/tmp": str(temporary)}  # noqa: S108 - the pod's
    mounted |= {m["target"].rstrip("/"): str(m["source"]) for m in mounts if "source" in m}
    places = sorted(mounted.items(), key=lambda place: -len(place[0]))

    # These may be below a mount such as /dev/shm or /tmp: paths in them stay unchanged.
    own = [f"{place}/" for place in (kubelet.network.root, *visible_folders())]

    def moved(text: str) -> str:
        for target, source in places:
            if f"{text}/".startswith(f"{target}/") and not f"{text}/".startswith(tuple(own)):
                return source + text[len(target) :]
        return text

    resolver = kubelet.resolver(worker.pod)
    dns = kubelet.network.services.get(f"{resolver['nameserver']}:53", [resolver["nameserver"], 53])
    description = {
        "paths": places,
        "own": own,
        "ip": worker.pod_ip,
        "hostname": worker.hostname,
        "fqdn": worker.fqdn,
        "dns": dns,
        "search": resolver["search"],
        "services": kubelet.network.services,
        "rules": str(Path(kubelet.network.root, RULES)),
    }
    file = folder / "plain.json"
    file.write_text(json.dumps(description))
    changed = {key: ":".join(map(moved, value.split(":"))) for key, value in env.items()}
    changed |= {
        "SIM_PLAIN": str(file),
        "TMPDIR": changed.get("TMPDIR") or mounted["/tmp"],  # noqa: S108 - for shells, which do not see the pod's
        "PYTHONPATH": ":".join(filter(None, [str(SHIM), changed.get("PYTHONPATH", "")])),
    }
    return [moved(part) for part in argv], changed
