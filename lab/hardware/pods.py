"""The hardware of a node as seen by its pods: devices, files and programs.

A pod with GPUs or RDMA devices gets the additions of device plugins and the container toolkit: device files, sysfs
entries, and on its PATH the fakes, which read `/run/sim/node.json`.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..controlplane.scheduler import devices
from ..format import node_names
from ..node import attachments
from ..node.images import Images
from ..node.volumes import behaviour
from ..scenario import merge
from . import sysfs
from .files import MOUNTED, PLACES, REPLAY, SYSTEM_PATH, HardwareFiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..apiserver.store import Store
    from ..node.attachments import Attached

Object = dict[str, Any]
ENDED = ("Succeeded", "Failed")


class Hardware:
    """The devices of all nodes, and their allocation to pods."""

    def __init__(
        self, store: Store, world: Mapping[str, Any], platform: str, root: Path, *, contained: bool = True
    ) -> None:
        """`root`: a folder that containers can see; it is removed together with the cluster.

        `contained`: pods have their own mounts and network. Otherwise Python programs get these through a module in
        their environment, which fakes must then not ignore.
        """
        self._store, self._world, self._platform, self._root = store, world, platform, root
        self._held: dict[tuple[str, str], dict[str, list[int]]] = {}
        self._images = Images(world.get("registry", {}))
        self._attached: dict[str, list[Attached]] = {}
        self._files = HardwareFiles(root, world["gpu"], contained=contained)
        self.own_network = True
        """Whether pods have their own interfaces; otherwise sysfs shows the interfaces that they would have."""

    def env(self, pod: Object, node: str) -> dict[str, str]:
        """Return additional variables: the path of the fakes, and the GPUs requested from the container toolkit."""
        env = {"PATH": f"{MOUNTED}/bin:{SYSTEM_PATH}", "SIM_NODE_JSON": f"{MOUNTED}/node.json"}
        gpus = self._gpus(pod, node)
        if gpus:
            every = self._changes(node).get("gpu", {}).get("visible_all")
            env["NVIDIA_VISIBLE_DEVICES"] = "all" if every else ",".join(gpu["uuid"] for gpu in gpus)
        slow = self._slow(pod)
        if slow:
            env |= {"PYTHONPATH": f"{MOUNTED}/slow", "SIM_STORAGE": json.dumps(slow)}
        return env

    def _slow(self, pod: Object) -> Object:
        """Return the folders of a pod with slow or late storage, see fakes/slow."""
        namespace, by_path = pod["metadata"]["namespace"], {}
        claims = {
            v["name"]: v["persistentVolumeClaim"]["claimName"]
            for v in pod["spec"].get("volumes") or []
            if "persistentVolumeClaim" in v
        }
        for container in pod["spec"].get("containers", []):
            for mount in container.get("volumeMounts") or []:
                claim = self._store.get("persistentvolumeclaims", namespace, claims.get(mount["name"], ""))
                like = behaviour(claim)
                if like.keys() & {
                    "write_mb_s",
                    "rename_delay_s",
                    "rename_gap_s",
                    "corrupts",
                    "hang_s",
                    "quota_bytes",
                    "locks",
                }:
                    by_path[mount["mountPath"]] = like
        return by_path

    def host_folder(self, path: str, node: str) -> Path | None:
        """Return the copy of a folder of the world's nodes that pods may mount, with its content; else None."""
        known = [str(each).rstrip("/") for each in self._world.get("host_paths", [])]
        if not any(path.rstrip("/") == each or path.startswith(f"{each}/") for each in known):
            return None
        folder = self._root / "hosts" / node / path.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def mounts(self, pod: Object, node: str) -> list[Object]:
        """Return additional mounts: fakes and state, device files, sysfs."""
        gpus, rdma, uid = self._gpus(pod, node), self._rdma(pod, node), pod["metadata"]["uid"]
        lacks = self._images.lacks_any(pod)
        state = self._root / f"{uid}.json"
        if not state.exists():
            self._root.mkdir(parents=True, exist_ok=True)
            state.write_text(json.dumps(self._state(pod, node, gpus, rdma)), encoding="utf-8")
        tests = any("nccl-tests" in each["image"] for each in pod["spec"].get("containers", []))
        has = {"tests": tests, "dcgm": self._images.dcgm, "perftest": self._images.perftest}
        more = frozenset(name for name, there in has.items() if there)
        programs = self._files.programs(lacks, gpus=bool(gpus), more=more)
        files = [(programs, f"{MOUNTED}/bin"), (state, f"{MOUNTED}/node.json")]
        files += [(programs / name, f"{place}/{name}") for name, place in PLACES.items() if name not in lacks]
        if gpus and self._changes(node).get("gpu", {}).get("kernel_log"):
            files.append((self._files.kernel_log(node, self._changes(node)["gpu"]["kernel_log"]), "/dev/kmsg"))
        if self._slow(pod):
            files.append((Path(__file__).parent / "fakes" / "slow", f"{MOUNTED}/slow"))
        if self._world.get("collective", {}).get("replay"):
            files.append((self._files.replay(self._world["collective"]["replay"]), f"{MOUNTED}/{REPLAY}"))
        if not self._world["fabric"].get("verbs", True):
            pass  # NICs without RDMA verbs: only NCCL's plugin can use them
        elif self._world["fabric"].get("networks"):  # with its own network, a pod sees the devices moved into it
            if rdma and rdma["devices"]:
                files += self._sysfs(uid, node, rdma["devices"])
        elif self._has_gpus(node) and self._devices(node):  # otherwise all devices of the node, usable or not
            files += self._sysfs(node, node, self._devices(node))
        mounts: list[Object] = [
            {"source": str(source), "target": target, "readonly": target != sysfs.LIVE} for source, target in files
        ]
        if not self.own_network:
            mounts.append({"source": str(self._net(uid, node)), "target": "/sys/class/net", "readonly": True})
        names = [f"nvidia{gpu['physical']}" for gpu in gpus]
        for name in (*names, "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools") if gpus else ():
            mounts.append({"source": str(self._files.device()), "target": f"/dev/{name}"})
        if rdma and self._world["fabric"].get("verbs", True):
            mounts.append(
                {"source": str(self._files.verbs(node, len(self._devices(node)))), "target": "/dev/infiniband"}
            )
        return mounts

    # -- allocation of devices

    def attach(self, pod: Object, node: str, ip: str) -> dict[str, str]:
        """Attach the networks that a pod requests; return the annotations about them. AttachmentError."""
        networks = self._world["fabric"].get("networks")
        if not networks or not self._changes(node).get("rdma", {}).get("attached", True):
            return {}
        if networks.get("dialect") == "gke":
            attached = attachments.attach_gke(pod, self._devices(node), networks, ip, self._store)
            self._attached[pod["metadata"]["uid"]] = attached
            return {}
        asked = attachments.asked(pod)
        devices = self._allotted(pod, node)
        attached = attachments.attach(pod, asked, devices, networks, ip, self._store)
        self._attached[pod["metadata"]["uid"]] = attached
        return {attachments.STATUS: attachments.status(attached, ip)}

    def wires(self, pod: Object, node: str) -> Object:
        """Return the properties of the pod's veth pair, and its further interfaces."""
        attached = self._attached.get(pod["metadata"]["uid"], [])
        more = [{"name": each.name, "address": each.address, "mtu": each.mtu} for each in attached]
        return {**self._changes(node).get("network", {}), "more": more}

    def refuse(self, pod: Object, node: str) -> tuple[str, str] | None:
        """Return why the kubelet rejects a pod: under its topology policy the GPUs must be of one NUMA node."""
        gpu = self._world["gpu"]
        count = requested(pod, gpu["resource"])
        most = max(Counter(gpu.get("numa", [])).values(), default=0)
        if self._changes(node).get("topology_policy") == "single-numa-node" and count > most:
            return "TopologyAffinityError", "Resources cannot be allocated with Topology locality"
        return None

    def gpus_of_node(self, node: str) -> list[Object]:
        """Return all GPUs of a node; empty if it has none."""
        return [self._gpu(node, index) for index in range(self._world["gpu"]["count"])]

    def _claimed(self, pod: Object, node: str) -> list[int]:
        """Return the GPUs that are allocated to a pod's resource claims."""
        if not pod["spec"].get("resourceClaims"):
            return []
        names = devices.held(self._store, pod, "gpu.nvidia.com", node)
        return [int(name.removeprefix("gpu-")) for name in names if name.removeprefix("gpu-").isdigit()]

    def _gpus(self, pod: Object, node: str) -> list[Object]:
        """Return the GPUs of a pod."""
        gpu = self._world["gpu"]
        mine = [*self._allot(pod, node, gpu["resource"], gpu["count"]), *self._claimed(pod, node)]
        if mine and self._changes(node).get("gpu", {}).get("visible_all"):  # the toolkit follows an image with "all"
            mine = list(range(gpu["count"]))
        gpus = [self._gpu(node, index) for index in mine]
        return [gpu for gpu in gpus if not gpu.get("lost")]  # no program sees a GPU that the driver has lost

    def _allot(self, pod: Object, node: str, resource: str, count: int) -> list[int]:
        """Return the indexes of a pod's devices on its node: it keeps its first allocation."""
        uid, amount = pod["metadata"]["uid"], requested(pod, resource)
        held = self._held.setdefault((node, resource), {})
        if amount and uid not in held:
            for other in list(held):
                if not self._runs(other, node):
                    del held[other]
            taken = {index for indexes in held.values() for index in indexes}
            free = [index for index in range(count) if index not in taken]
            held[uid] = free[:amount]
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
        device = {
            "physical": index,
            "uuid": f"GPU-{_hex(node, bus)[:8]}-{_hex(node, bus)[8:12]}-4000-8000-{_hex(bus, node)[:12]}",
            "bus_id": f"00000000:{bus}:00.0",
            "numa": numa,
            "cpus": gpu["cpus"][numa],
            "place": sysfs.gpu_places(gpu, len(self._world["fabric"].get("devices", [])))[index],
        }
        changes = self._changes(node).get("gpus", {})
        return {**device, **changes.get(str(index), changes.get(index, {}))}

    def _rdma(self, pod: Object, node: str) -> Object | None:
        fabric, changes = self._world["fabric"], self._changes(node).get("rdma", {})
        resource = fabric.get("resource")
        moving = not resource and bool(fabric.get("networks"))  # the network itself moves its NIC into the pod
        if not (moving or (resource and requested(pod, resource))) or not changes.get("mounted", True):
            return None
        if moving and not self._attached.get(pod["metadata"]["uid"]):
            return None
        devices = self._devices(node) if moving else self._allotted(pod, node)
        if self._world["fabric"].get("networks"):
            moved = {each.device: each for each in self._attached.get(pod["metadata"]["uid"], [])}
            devices = [
                {
                    **each,
                    "address": moved[each["name"]].address,
                    "interface": moved[each["name"]].name,
                    "mtu": moved[each["name"]].mtu,
                }
                for each in devices
                if each["name"] in moved
            ]
        return {"devices": devices, "gdr": changes.get("gdr", True)}

    def _allotted(self, pod: Object, node: str) -> list[Object]:
        """Return the devices of the pod's resource: all of the node, or the requested number."""
        fabric, devices = self._world["fabric"], self._devices(node)
        if not fabric.get("exclusive"):
            return devices
        return [devices[index] for index in self._allot(pod, node, fabric["resource"], len(devices))]

    def _devices(self, node: str) -> list[Object]:
        fabric = self._world["fabric"]
        changes = self._changes(node).get("rdma", {}).get("devices", {})
        devices = [
            {
                "name": name,
                "port": 1,
                "state": "ACTIVE",
                "rate_gbps": fabric["rate_gbps"],
                "rail": rail,
                "link_layer": fabric["link_layer"],
                "guid": ":".join(_hex(node, name)[i : i + 4] for i in range(0, 16, 4)),
                **changes.get(name, {}),
            }
            for rail, name in enumerate(fabric.get("devices", []))
        ]
        places = sysfs.nic_places(self._world["gpu"], devices, function=2 if fabric.get("networks") else 0)
        return [{"numa": numa, **each, "place": place} for each, (place, numa) in zip(devices, places, strict=True)]

    def _changes(self, node: str) -> dict[str, Any]:
        hardware = self._world.get("hardware", {})
        return dict(merge(hardware.get("*", {}), hardware.get(node, {})))

    def _has_gpus(self, node: str) -> bool:
        status = (self._store.get("nodes", None, node) or {}).get("status", {})
        claimable = any(
            (entry if isinstance(entry, str) else next(iter(entry))) == "dra"
            for entry in self._world.get("operators") or []
        )
        return self._world["gpu"]["resource"] in status.get("capacity", {}) or (
            claimable and node in node_names(self._world)[0]
        )

    # -- files behind mounts

    def _net(self, uid: str, node: str) -> Path:
        """Return /sys/class/net of a pod without its own network."""
        mtu = self._changes(node).get("network", {}).get("mtu", 1500)
        more = [{"name": each.name, "mtu": each.mtu} for each in self._attached.get(uid, [])]
        return self._files.net(uid, [{"name": "eth0", "mtu": mtu}, *more])

    def _sysfs(self, whose: str, node: str, devices: Sequence[Object]) -> list[tuple[Path, str]]:
        """Return the sysfs folders for the NICs of a node or a pod, and for the node's PCI tree."""
        return self._files.sysfs(whose, self.gpus_of_node(node), devices, self._changes(node).get("pci", {}))

    def _state(self, pod: Object, node: str, gpus: list[Object], rdma: Object | None) -> Object:
        """Return the state that the fakes read."""
        gpu, plugin = self._world["gpu"], self._world["fabric"].get("plugin")
        kind = {key: gpu[key] for key in gpu if key not in ("count", "resource", "bus_ids", "numa", "cpus")}
        if plugin and not self._has_plugin(pod, plugin):
            plugin = None
        elif plugin and not self._has_daemon(pod, plugin):
            plugin = {**plugin, "orphan": True}
        interfaces = [each._asdict() for each in self._attached.get(pod["metadata"]["uid"], [])]
        collective = dict(self._world.get("collective", {}))
        if collective.get("replay"):
            collective["replay"] = REPLAY  # next to node.json
        return {
            "schema": 1,
            "node": node,
            "platform": self._platform,
            "gpus": gpus,
            "rdma": rdma,
            "collective": collective,
            "lacks": sorted(self._images.lacks_any(pod)),
            "dcgm": self._images.dcgm,
            "perftest": self._images.perftest,
            "plugin": plugin,
            "interfaces": interfaces,
            "gpu": {**kind, **self._changes(node).get("gpu", {})},
            "mnnvl": {**self._world["fabric"]["mnnvl"], "channel": self._imex(pod, node)}
            if self._world["fabric"].get("mnnvl")
            else None,
        }

    def _has_plugin(self, pod: Object, plugin: Object) -> bool:
        """Return whether the pod sees the library: in its image, or in a folder of the node."""
        place = plugin.get("host_path")
        if not place:
            return plugin["file"] not in self._images.lacks_any(pod)
        paths = [str((each.get("hostPath") or {}).get("path", "")) for each in pod["spec"].get("volumes") or []]
        return any(path and f"{place}/".startswith(f"{path.rstrip('/')}/") for path in paths)

    def _has_daemon(self, pod: Object, plugin: Object) -> bool:
        spec = pod["spec"]
        images = [each["image"] for each in (*spec.get("containers", []), *(spec.get("initContainers") or []))]
        return not plugin.get("daemon") or any(fnmatch.fnmatchcase(image, plugin["daemon"]) for image in images)

    def _imex(self, pod: Object, node: str) -> bool:
        """Return whether the pod has an IMEX channel, through which GPUs of several nodes share memory."""
        mnnvl = self._world["fabric"].get("mnnvl")
        if not mnnvl or not self._changes(node).get("imex", True):
            return False
        device_class = mnnvl.get("device_class")
        return not device_class or device_class in claimed_classes(self._store, pod)


def requested(pod: Object, resource: str) -> int:
    """Return the amount of an extended resource that the containers of a pod request."""
    total = 0
    for container in pod["spec"].get("containers", []):
        resources = container.get("resources") or {}
        total += int((resources.get("limits") or {}).get(resource, (resources.get("requests") or {}).get(resource, 0)))
    return total


def claimed_classes(store: Store, pod: Object) -> set[str]:
    """Return the device classes of a pod's resource claims, from their templates or from the claims themselves."""
    classes = set()
    namespace = pod["metadata"].get("namespace", "default")
    for claim in pod["spec"].get("resourceClaims") or []:
        for key, name in (
            ("resourceclaimtemplates.resource.k8s.io", claim.get("resourceClaimTemplateName")),
            ("resourceclaims.resource.k8s.io", claim.get("resourceClaimName")),
        ):
            if not name or store.kinds.by_key.get(key) is None:
                continue
            spec = (store.get(key, namespace, name) or {}).get("spec") or {}
            for request in ((spec.get("spec") or spec).get("devices") or {}).get("requests") or []:
                classes.add((request.get("exactly") or request).get("deviceClassName", ""))
    return classes


def _hex(*parts: str) -> str:
    """Return sixteen hexadecimal digits derived from a name."""
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:16]
