"""GPU evidence: nvidia-smi or rocm-smi and the device files inside this pod.

A missing tool (a CPU machine, a pod without GPUs, no driver) is a result, not an error of the probe.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import Any, Dict, List, Mapping, Optional, Tuple

from seatrial.logs.reader import redact

from . import command, rocm, smi
from .deadline import Watch
from .files import names_in

# Directories of the driver's tools outside PATH: GKE mounts NVIDIA's at the last one.
PLACES = {
    "nvidia-smi": ("/usr/bin/nvidia-smi", "/usr/local/bin/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi"),
    "rocm-smi": ("/opt/rocm/bin/rocm-smi", "/usr/bin/rocm-smi"),
}
QUERY_TIMEOUT_S = 60  # eight GPUs without persistence mode take over 20 s: the driver initialises each in turn
LINK_TIMEOUT_S = 20
SHORT_TIMEOUT_S = 5
KMSG_BYTES = 1 << 20
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d{1,4})\b")  # docs.nvidia.com/deploy/xid-errors
_TOOLKIT = re.compile(r"\b(?:version:?|CLI version)\s+v?(\d+\.\d+(?:\.\d+)?)", re.IGNORECASE)


def read(
    data: Dict[str, Any], *, requested: int, kind: str, env: Mapping[str, str], watch: Watch, root: str = "/"
) -> None:
    """Fill the `runtime` stage's data. `nvidia_smi` is the tool that was called, whatever its vendor."""
    name = "rocm-smi" if kind == "amd" else "nvidia-smi"
    data.update(requested=requested, kind=kind, assigned=assigned(env) if kind == "nvidia" else None)
    data.update(driver=None, gpus=[])
    data["devices"] = devices(os.path.join(root, "dev"), kind)
    data["xid"] = xids(os.path.join(root, "dev/kmsg")) if kind == "nvidia" else None
    tool = find(env, name)
    asked = data["nvidia_smi"] = {"name": name, "found": tool is not None}
    if tool is None:
        asked["error"] = "%s is not in this pod (not on PATH, nor at %s)" % (name, ", ".join(PLACES[name]))
        return
    limit = min(QUERY_TIMEOUT_S, max(1.0, watch.left()))
    question, size = (["-q", "-x"], smi.MAX_BYTES) if name == "nvidia-smi" else (rocm.QUESTION, rocm.MAX_BYTES)
    answer = command.run([tool, *question], limit, size)
    asked["exit"] = answer.exit
    answered, problem = smi.read(answer.out) if name == "nvidia-smi" else rocm.read(answer.out)
    problems = [answer.error, problem]
    if answer.exit:
        problems.append(" ".join(answer.err[:2048].decode("utf-8", "replace").split())[:300])
    asked["error"] = redact.redact("; ".join(text for text in problems if text))
    if name == "nvidia-smi" and not answered["gpus"] and answer.exit is not None:
        _list(tool, answered, watch)
        asked["listed"] = bool(answered["gpus"])
    for key in ("driver", "cuda", "gpus"):
        data[key] = answered[key]
    if name == "rocm-smi":
        rocm.add_errors(data["gpus"], root)
    data["extra_gpus"] = max(0, len(data["gpus"]) - requested)
    data["mig_devices"] = [
        "GPU %s: %d" % (gpu["index"], gpu["mig_devices"]) for gpu in data["gpus"] if gpu["mig_devices"]
    ]
    if name == "nvidia-smi":
        if data["gpus"] and not watch.stopped():
            _add_links(tool, data["gpus"], watch)
        data["toolkit"] = toolkit(env)


def _list(tool: str, gpu: Dict[str, Any], watch: Watch) -> None:
    """Query only the list of GPUs if the full query fails: their health is then unknown."""
    for question, reader in ((smi.TABLE, smi.table), (["-L"], smi.lines)):
        limit = min(QUERY_TIMEOUT_S, watch.left())
        if limit < 1 or watch.stopped():
            return
        answer = command.run([tool, *question], limit, smi.MAX_BYTES)
        gpu["gpus"] = reader(answer.out.decode("utf-8", "replace"), gpu) if answer.exit == 0 else []
        if gpu["gpus"]:
            return


def find(env: Mapping[str, str], name: str = "nvidia-smi") -> Optional[str]:
    """Return the available tool, or None."""
    on_path = shutil.which(name, path=env.get("PATH"))
    if on_path:
        return on_path
    return next((place for place in PLACES[name] if os.access(place, os.X_OK)), None)


def assigned(env: Mapping[str, str]) -> Optional[List[str]]:
    """Return the GPUs that the device plugin gave this container, if the environment shows them.

    With CDI or volume mounts instead of NVIDIA_VISIBLE_DEVICES (device plugin, DEVICE_LIST_STRATEGY) the variable is
    "void", missing, or a path: the GPUs are then unknown. "all" is set by an image, and never by a plugin.
    """
    names = [name.strip() for name in env.get("NVIDIA_VISIBLE_DEVICES", "").split(",")]
    uuids = [name for name in names if re.match(r"(?:GPU|MIG)-[\w/-]+$", name)]
    return uuids[:256] if uuids and len(uuids) == len(names) else None


def toolkit(env: Mapping[str, str]) -> Optional[str]:
    """Return the NVIDIA container toolkit's version if its tools are visible in the pod, which is rare."""
    for name in ("nvidia-ctk", "nvidia-container-cli"):
        tool = shutil.which(name, path=env.get("PATH"))
        if tool:
            answer = command.run([tool, "--version"], SHORT_TIMEOUT_S, 4096)
            match = _TOOLKIT.search(answer.out.decode("utf-8", "replace"))
            if answer.exit == 0 and match:
                return match.group(1)
    return None


def xids(path: str) -> Optional[List[Dict[str, Any]]]:
    """Return the driver's error reports in the kernel's log; None if the pod may not read it, which is usual."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    counts: Dict[Tuple[str, int], int] = {}
    read_bytes = 0
    try:
        while read_bytes < KMSG_BYTES:
            try:
                record = os.read(descriptor, 8192)  # one record of the ring at a time, an error at its end
            except OSError:
                break
            if not record:
                break
            read_bytes += len(record)
            for bus, number in _XID.findall(record.decode("utf-8", "replace")):
                counts[bus, int(number)] = counts.get((bus, int(number)), 0) + 1
    finally:
        os.close(descriptor)
    return [{"bus_id": bus, "xid": number, "count": count} for (bus, number), count in sorted(counts.items())][:64]


def devices(dev: str, kind: str) -> List[str]:
    """Return the GPU device files that the container was given."""
    pattern = r"nvidia" if kind == "nvidia" else r"nvidia|kfd$"
    present = [name for name in names_in(dev) if re.match(pattern, name)]
    if kind != "nvidia":
        present += ["dri/" + name for name in names_in(os.path.join(dev, "dri")) if name.startswith("renderD")]
    return sorted(
        present, key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
    )


def _add_links(tool: str, gpus: List[Dict[str, Any]], watch: Watch) -> None:
    """Add the number of active NVLinks; GPUs without NVLink print nothing and keep null."""
    answer = command.run([tool, "nvlink", "-s"], min(LINK_TIMEOUT_S, max(1.0, watch.left())), 1 << 20)
    if answer.exit != 0:
        return
    counts = smi.links(answer.out.decode("utf-8", "replace"))
    for gpu in gpus:
        gpu["nvlinks_active"] = counts.get(str(gpu["uuid"]), counts.get(str(gpu["index"])))
