"""What do pods find of the hardware of their node?

A pod that was given GPUs or RDMA devices gets what device plugins and the container toolkit would give it: device
files, sysfs entries, and on its PATH the stand-ins, which read what they say from `/run/sim/node.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import attachments
from .images import Images
from .scenario import merge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .attachments import Attached
    from .store import Store

Object = dict[str, Any]
MOUNTED = "/run/sim"
REPLAY = "replay.log"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: program -> (module, function): from the image, from the driver, from the RDMA libraries of the image
IMAGE_PROGRAMS = {
    "torchrun": ("torchrun", "main"),
    "ibv_devinfo": ("ibv_devinfo", "main"),
    "ibv_devices": ("ibv_devinfo", "devices_main"),
    "ibstat": ("ibv_devinfo", "ibstat_main"),
}
DRIVER_PROGRAMS = {"nvidia-smi": ("nvidia_smi", "main")}
#: A stand-in: the interpreter of the cluster's own process.
PROGRAM = """#!{python}{flags}
import sys
sys.path.append({folder!r})
from standins.{module} import {function} as main
sys.exit(main())
"""
PORT_STATES = {"DOWN": "1: DOWN", "INIT": "2: INIT", "ARMED": "3: ARMED", "ACTIVE": "4: ACTIVE"}
#: Lanes and signalling of a rate, as sysfs names them (drivers/infiniband/core/sysfs.c).
RATES = {100: "100 Gb/sec (4X EDR)", 200: "200 Gb/sec (4X HDR)", 400: "400 Gb/sec (4X NDR)", 800: "800 Gb/sec (4X XDR)"}
ENDED = ("Succeeded", "Failed")
#: Programs of an image that nobody has asked for yet are laid ready for this one.
USUAL_IMAGE = "nvcr.io/nvidia/pytorch"


class Hardware:
    """The devices of all nodes, and which pod has which of them."""

    def __init__(
        self, store: Store, world: Mapping[str, Any], platform: str, root: Path, *, contained: bool = True
    ) -> None:
        """`root`: a folder that containers can see and that goes with the cluster.

        `contained`: pods have mounts and a network of their own; where they have not, Python programs get them from
        what their environment brings in, which stand-ins must then not shut out.
        """
        self._flags = " -IS" if contained else ""
        self._store, self._world, self._platform, self._root = store, world, platform, root
        self._held: dict[tuple[str, str], dict[str, list[int]]] = {}
        self._images = Images(world.get("registry", {}))
        self._attached: dict[str, list[Attached]] = {}
        self._lock = threading.RLock()

    def prepare(self, nodes: Sequence[str]) -> None:
        """Write the files that all pods share; meant for a thread, because hundreds of small files take their time."""
        usual = frozenset(self._images.lacks(USUAL_IMAGE))
        for node in nodes:
            self._programs(usual, gpus=True)
            if not self._world["fabric"].get("networks"):
                self._sysfs(node, self._devices(node))
            self._verbs(node)

    def nodes(self) -> list[str]:
        """Return the nodes that have GPUs."""
        names = [node["metadata"]["name"] for node in self._store.list("nodes")]
        return [name for name in names if self._has_gpus(name)]

    def env(self, pod: Object, node: str) -> dict[str, str]:
        """More environment: where the stand-ins are, and which GPUs the container toolkit was asked for."""
        env = {"PATH": f"{MOUNTED}/bin:{SYSTEM_PATH}", "SIM_NODE_JSON": f"{MOUNTED}/node.json"}
        gpus = self._gpus(pod, node)
        if gpus:
            env["NVIDIA_VISIBLE_DEVICES"] = ",".join(gpu["uuid"] for gpu in gpus)
        return env

    def mounts(self, pod: Object, node: str) -> list[Object]:
        """More mounts: stand-ins and state, device files, sysfs."""
        gpus, rdma, uid = self._gpus(pod, node), self._rdma(pod, node), pod["metadata"]["uid"]
        lacks = self._images.lacks_any(pod)
        state = self._root / f"{uid}.json"
        if not state.exists():
            self._root.mkdir(parents=True, exist_ok=True)
            state.write_text(json.dumps(self._state(pod, node, gpus, rdma)), encoding="utf-8")
        found = [(self._programs(lacks, gpus=bool(gpus)), f"{MOUNTED}/bin"), (state, f"{MOUNTED}/node.json")]
        if self._world.get("collective", {}).get("replay"):
            found.append((self._replay(), f"{MOUNTED}/{REPLAY}"))
        if self._world["fabric"].get("networks"):  # with a network of its own, a pod sees the devices moved into it
            if rdma and rdma["devices"]:
                found.append((self._sysfs(uid, rdma["devices"]), "/sys/class/infiniband"))
        elif self._has_gpus(node) and self._devices(node):  # else all of the node, usable or not
            found.append((self._sysfs(node, self._devices(node)), "/sys/class/infiniband"))
        mounts: list[Object] = [{"source": str(source), "target": target, "readonly": True} for source, target in found]
        names = [f"nvidia{gpu['physical']}" for gpu in gpus]
        for name in (*names, "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools") if gpus else ():
            mounts.append({"source": str(self._device()), "target": f"/dev/{name}"})
        if rdma:
            mounts.append({"source": str(self._verbs(node)), "target": "/dev/infiniband"})
        return mounts

    # -- which pod has what

    def attach(self, pod: Object, node: str, ip: str) -> dict[str, str]:
        """Attach the networks that a pod asks for; returns the annotations that say so. AttachmentError."""
        networks = self._world["fabric"].get("networks")
        if not networks or not self._changes(node).get("rdma", {}).get("attached", True):
            return {}
        asked = attachments.asked(pod)
        devices = self._allotted(pod, node)
        found = attachments.attach(pod, asked, devices, networks, ip, self._store)
        self._attached[pod["metadata"]["uid"]] = found
        return {attachments.STATUS: attachments.status(found, ip)}

    def _gpus(self, pod: Object, node: str) -> list[Object]:
        """The GPUs of a pod."""
        gpu = self._world["gpu"]
        return [self._gpu(node, index) for index in self._allot(pod, node, gpu["resource"], gpu["count"])]

    def _allot(self, pod: Object, node: str, resource: str, count: int) -> list[int]:
        """Which of a node's devices a pod has: it keeps those that it was given first."""
        uid, wanted = pod["metadata"]["uid"], requested(pod, resource)
        held = self._held.setdefault((node, resource), {})
        if wanted and uid not in held:
            for other in list(held):
                if not self._runs(other, node):
                    del held[other]
            taken = {index for indexes in held.values() for index in indexes}
            free = [index for index in range(count) if index not in taken]
            held[uid] = free[:wanted]
        return held.get(uid, [])

    def _runs(self, uid: str, node: str) -> bool:
        return any(
            pod["metadata"]["uid"] == uid
            for pod in self._store.list("pods")
            if pod["spec"].get("nodeName") == node and pod.get("status", {}).get("phase") not in ENDED
        )

    def _gpu(self, node: str, index: int) -> Object:
        gpu = self._world["gpu"]
        numa = gpu["numa"][index]
        bus = gpu["bus_ids"][index]
        found = {
            "physical": index,
            "uuid": f"GPU-{_hex(node, bus)[:8]}-{_hex(node, bus)[8:12]}-4000-8000-{_hex(bus, node)[:12]}",
            "bus_id": f"00000000:{bus}:00.0",
            "numa": numa,
            "cpus": gpu["cpus"][numa],
        }
        changes = self._changes(node).get("gpus", {})
        return {**found, **changes.get(str(index), changes.get(index, {}))}

    def _rdma(self, pod: Object, node: str) -> Object | None:
        resource = self._world["fabric"].get("resource")
        changes = self._changes(node).get("rdma", {})
        if not resource or not requested(pod, resource) or not changes.get("mounted", True):
            return None
        devices = self._allotted(pod, node)
        if self._world["fabric"].get("networks"):
            moved = {each.device: each.address for each in self._attached.get(pod["metadata"]["uid"], [])}
            devices = [{**each, "address": moved[each["name"]]} for each in devices if each["name"] in moved]
        return {"devices": devices, "gdr": changes.get("gdr", True)}

    def _allotted(self, pod: Object, node: str) -> list[Object]:
        """The devices that the pod's resource stands for: all of the node, or as many as it asked for."""
        fabric, devices = self._world["fabric"], self._devices(node)
        if not fabric.get("exclusive"):
            return devices
        return [devices[index] for index in self._allot(pod, node, fabric["resource"], len(devices))]

    def _devices(self, node: str) -> list[Object]:
        fabric = self._world["fabric"]
        changes = self._changes(node).get("rdma", {}).get("devices", {})
        numa = self._world["gpu"]["numa"]
        return [
            {
                "name": name, "port": 1, "state": "ACTIVE", "rate_gbps": fabric["rate_gbps"], "rail": rail,
                "link_layer": fabric["link_layer"],
                "numa": numa[rail * len(numa) // len(fabric["devices"])],
                "guid": ":".join(_hex(node, name)[i : i + 4] for i in range(0, 16, 4)), **changes.get(name, {}),
            }
            for rail, name in enumerate(fabric.get("devices", []))
        ]  # fmt: skip

    def _changes(self, node: str) -> dict[str, Any]:
        hardware = self._world.get("hardware", {})
        return dict(merge(hardware.get("*", {}), hardware.get(node, {})))

    def _has_gpus(self, node: str) -> bool:
        status = (self._store.get("nodes", None, node) or {}).get("status", {})
        return self._world["gpu"]["resource"] in status.get("capacity", {})

    # -- what stands behind a mount

    def _state(self, pod: Object, node: str, gpus: list[Object], rdma: Object | None) -> Object:
        """What the stand-ins read."""
        gpu, plugin = self._world["gpu"], self._world["fabric"].get("plugin")
        kind = {key: gpu[key] for key in ("name", "driver", "cuda", "compute", "memory_mib") if key in gpu}
        if plugin and plugin["file"] in self._images.lacks_any(pod):
            plugin = None
        interfaces = [each._asdict() for each in self._attached.get(pod["metadata"]["uid"], [])]
        collective = dict(self._world.get("collective", {}))
        if collective.get("replay"):
            collective["replay"] = REPLAY  # beside node.json
        return {
            "schema": 1, "node": node, "platform": self._platform, "gpus": gpus, "rdma": rdma, "collective": collective,
            "gpu": {**kind, **self._changes(node).get("gpu", {})}, "plugin": plugin, "interfaces": interfaces,
        }  # fmt: skip

    def _replay(self) -> Path:
        copy = self._root / REPLAY
        if not copy.exists():
            shutil.copyfile(self._world["collective"]["replay"], copy)
        return copy

    def _programs(self, lacks: frozenset[str], *, gpus: bool) -> Path:
        """The folder of stand-ins: what an image brings, and what the container toolkit adds to pods with GPUs."""
        brings = {name: program for name, program in IMAGE_PROGRAMS.items() if name not in lacks}
        without = "".join(f"-{name}" for name in sorted(IMAGE_PROGRAMS.keys() - brings))
        folder = self._root / (("bin-gpu" if gpus else "bin") + without)
        with self._lock:
            if folder.exists():
                return folder
            folder.mkdir(parents=True)
            python, here = os.path.realpath(sys.executable), str(Path(__file__).resolve().parent)
            for name in ("python3", "python"):
                (folder / name).symlink_to(python)
            for name, (module, function) in (brings | (DRIVER_PROGRAMS if gpus else {})).items():
                text = PROGRAM.format(python=python, flags=self._flags, folder=here, module=module, function=function)
                (folder / name).write_text(text, encoding="utf-8")
                (folder / name).chmod(0o755)
        return folder

    def _device(self) -> Path:
        """An empty file that stands for any device file."""
        path = self._root / "device"
        path.touch()
        return path

    def _verbs(self, node: str) -> Path:
        folder = self._root / "verbs" / node
        with self._lock:
            if not folder.exists():
                folder.mkdir(parents=True)
                for name in (*(f"uverbs{number}" for number in range(len(self._devices(node)))), "rdma_cm"):
                    (folder / name).touch()
        return folder

    def _sysfs(self, whose: str, devices: Sequence[Object]) -> Path:
        """/sys/class/infiniband of a node or a pod."""
        folder = self._root / "sysfs" / whose
        with self._lock:
            if not folder.exists():
                for device in devices:
                    _port(folder / device["name"], device)
        return folder


def requested(pod: Object, resource: str) -> int:
    """How many of an extended resource the containers of a pod ask for."""
    total = 0
    for container in pod["spec"].get("containers", []):
        resources = container.get("resources") or {}
        total += int((resources.get("limits") or {}).get(resource, (resources.get("requests") or {}).get(resource, 0)))
    return total


def _port(folder: Path, device: Object) -> None:
    """The files of a device that has one port."""
    infiniband = device["link_layer"] == "InfiniBand"
    guid, up = device["guid"], device["state"]
    files = {
        "node_guid": guid, "ports/1/state": PORT_STATES[up],
        "ports/1/phys_state": "5: LinkUp" if up != "DOWN" else "3: Disabled",
        "ports/1/rate": RATES.get(device["rate_gbps"], f"{device['rate_gbps']:g} Gb/sec"),
        "ports/1/link_layer": device["link_layer"], "ports/1/lid": hex(device["rail"] + 12) if infiniband else "0x0",
        "ports/1/pkeys/0": "0xffff", "ports/1/gids/0": f"fe80:0000:0000:0000:{guid}",
        "ports/1/counters/port_rcv_errors": "0", "ports/1/counters/link_downed": "0",
    }  # fmt: skip
    if device.get("address"):  # RoCE v2 has a GID for each address, the IPv4 one behind the link-local ones
        files["ports/1/gids/3"] = "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(
            *map(int, device["address"].split(".")))  # fmt: skip
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="ascii")


def _hex(*parts: str) -> str:
    """Sixteen hexadecimal digits that belong to a name."""
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:16]
