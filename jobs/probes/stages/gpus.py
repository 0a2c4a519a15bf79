"""Does the node's GPU runtime work inside this pod? Asks nvidia-smi and looks at the device files.

No nvidia-smi (an AMD or CPU machine, a pod without GPUs, no driver) is an answer, not an error of the probe.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional

from . import command, redact, smi

if TYPE_CHECKING:
    from .watch import Watch

__all__ = ["read"]

# Where the driver's tools lie when they are not on PATH: GKE mounts them at the last one.
PLACES = ("/usr/bin/nvidia-smi", "/usr/local/bin/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi")
QUERY_TIMEOUT_S = 60  # eight GPUs without persistence mode take over 20 s: the driver initialises each in turn
LINK_TIMEOUT_S = 20


def read(
    data: Dict[str, Any], *, requested: int, kind: str, env: Mapping[str, str], watch: Watch, dev: str = "/dev"
) -> None:
    """Fill the `runtime` stage's data."""
    data["requested"] = requested
    data["devices"] = devices(dev, kind)
    tool = find(env)
    data["nvidia_smi"]["found"] = tool is not None
    if tool is None:
        data["nvidia_smi"]["error"] = "nvidia-smi is not in this pod (not on PATH, nor at %s)" % ", ".join(PLACES)
        return
    answer = command.run([tool, "-q", "-x"], min(QUERY_TIMEOUT_S, max(1.0, watch.left())), smi.MAX_BYTES)
    data["nvidia_smi"]["exit"] = answer.exit
    found, problem = smi.read(answer.out)
    problems = [answer.error, problem]
    if answer.exit:
        problems.append(" ".join(answer.err[:2048].decode("utf-8", "replace").split())[:300])
    data["nvidia_smi"]["error"] = redact.text("; ".join(text for text in problems if text))
    for key in ("driver", "cuda", "gpus"):
        data[key] = found[key]
    if data["gpus"] and not watch.stopped():
        _add_links(tool, data["gpus"], watch)


def find(env: Mapping[str, str]) -> Optional[str]:
    """Return the nvidia-smi to ask, or None."""
    on_path = shutil.which("nvidia-smi", path=env.get("PATH"))
    if on_path:
        return on_path
    return next((place for place in PLACES if os.access(place, os.X_OK)), None)


def devices(dev: str, kind: str) -> List[str]:
    """Return the GPU device files that the container was given."""
    try:
        names = os.listdir(dev)
    except OSError:
        return []
    pattern = r"nvidia" if kind == "nvidia" else r"nvidia|kfd$"
    found = [name for name in names if re.match(pattern, name)]
    if kind != "nvidia":
        try:
            found += ["dri/" + name for name in os.listdir(os.path.join(dev, "dri")) if name.startswith("renderD")]
        except OSError:
            pass
    return sorted(found, key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)])


def _add_links(tool: str, gpus: List[Dict[str, Any]], watch: Watch) -> None:
    """Add the number of active NVLinks; GPUs without NVLink print nothing and keep null."""
    answer = command.run([tool, "nvlink", "-s"], min(LINK_TIMEOUT_S, max(1.0, watch.left())), 1 << 20)
    if answer.exit != 0:
        return
    counts = smi.links(answer.out.decode("utf-8", "replace"))
    for gpu in gpus:
        gpu["nvlinks_active"] = counts.get(str(gpu["uuid"]), counts.get(str(gpu["index"])))
