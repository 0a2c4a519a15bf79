"""The volumes of a pod.

Every volume becomes a folder below the pod's own; a container gets them as bind mounts. A missing source is a
`MountError` with the kubelet's message, and the pod waits in ContainerCreating.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.quantity import value as parse
from .environment import config_data, expand, field, resource

if TYPE_CHECKING:
    from collections.abc import Callable

Object = dict[str, Any]
SHM_BYTES = 64 << 20
"""Size of containerd's /dev/shm in bytes."""


class MountError(Exception):
    """An error while a volume is set up; str() is the text of the FailedMount event."""

    def __init__(self, volume: str, why: str) -> None:
        super().__init__(f'MountVolume.SetUp failed for volume "{volume}" : {why}')


def _write(folder: Path, path: str, data: bytes, mode: int) -> None:
    relative = PurePosixPath(path)
    if relative.is_absolute() or ".." in relative.parts:
        return  # the API server rejects such paths; nothing may ever be outside the folder
    target = folder.joinpath(*relative.parts)
    with contextlib.suppress(FileNotFoundError):
        if target.read_bytes() == data:
            return  # like the kubelet's AtomicWriter: unchanged files are not rewritten
        target.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    target.chmod(mode)


def behaviour(claim: Object | None) -> Object:
    """Return the properties of a PVC's storage, from its annotation `sim/volume` in JSON.

    `scope` node, `readonly`, `bytes` of space, existing `files`, and the properties that hardware/fakes/slow reads.
    """
    text = ((claim or {}).get("metadata", {}).get("annotations") or {}).get("sim/volume", "")
    declared = json.loads(text) if text else {}
    return declared if isinstance(declared, dict) else {}


class Volumes:
    """The volumes of one pod below `folder`."""

    def __init__(
        self,
        pod: Object,
        folder: Path,
        lookup: Callable[[str, str], Object | None],
        allocatable: Object,
        claims: Path,
        token: Callable[[str, int], str],
        host: Callable[[str], Path | None] = lambda _: None,
    ) -> None:
        self._pod, self.folder, self._lookup, self._allocatable = pod, folder, lookup, allocatable
        self._claims, self._token, self._host = claims, token, host
        self.tmpfs: dict[str, int] = {}
        """Return folders in memory and their sizes in bytes."""
        self._places: dict[str, Path] = {}

    def set_up(self) -> None:
        """Create every volume; MountError if a source is missing. May be called again."""
        self._places.clear()
        shm = self.folder / "shm"
        shm.mkdir(parents=True, exist_ok=True)
        self.tmpfs[str(shm)] = SHM_BYTES
        for volume in self._pod["spec"].get("volumes") or []:
            self._places[volume["name"]] = self._one(volume)

    def _one(self, volume: Object) -> Path:
        name = volume["name"]
        place: Path = self.folder / "volumes" / name
        if "persistentVolumeClaim" in volume:
            place = self._claimed(volume["persistentVolumeClaim"]["claimName"])
        place.mkdir(parents=True, exist_ok=True)
        if "emptyDir" in volume:
            place.chmod(0o777)
            empty = volume["emptyDir"] or {}
            if empty.get("medium") == "Memory":
                size = parse(empty.get("sizeLimit") or self._allocatable.get("memory", "1Gi"))
                self.tmpfs[str(place)] = int(min(size, self._memory_limit() or size))
        elif "hostPath" in volume:
            return self._of_node(name, volume["hostPath"])
        elif "projected" in volume:
            self._projected(name, place, volume["projected"])
        else:
            self._source(name, place, volume)
        return place

    def _memory_limit(self) -> int | None:
        """Return the sum of the containers' memory limits, if all have one: it limits a volume in memory (kubelet)."""
        containers = self._pod["spec"].get("containers") or []
        limits = [((each.get("resources") or {}).get("limits") or {}).get("memory") for each in containers]
        return sum(int(parse(limit)) for limit in limits) if limits and all(limits) else None

    def _of_node(self, name: str, source: Object) -> Path:
        """Return a folder of the node, if the world names it; a missing one fails if its `type` requires it."""
        path, kind = source.get("path", ""), source.get("type") or ""
        folder = self._host(path)
        if folder is not None:
            return folder
        if kind in ("Directory", "File", "Socket", "CharDevice", "BlockDevice"):
            what = {"CharDevice": "character device", "BlockDevice": "block device"}.get(kind, kind.lower())
            raise MountError(name, f"hostPath type check failed: {path} is not a {what}")
        raise MountError(name, f"hostPath {path} is refused: this simulated node has no such folder")

    def _claimed(self, claim: str) -> Path:
        """Return the folder of a PVC: one for all nodes, unless the PVC is for each node's own disk."""
        like = behaviour(self._lookup("persistentvolumeclaims", claim))
        whose = f"{claim}@{self._pod['spec'].get('nodeName', '')}" if like.get("scope") == "node" else claim
        place: Path = self._claims / self._pod["metadata"]["namespace"] / whose
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o777)
        for name, size in like.get("files", {}).items():
            target = place.joinpath(*PurePosixPath(name).parts)
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(b"\0" * size)
        if like.get("bytes"):
            self.tmpfs[str(place)] = int(like["bytes"])
        return place

    def _projected(self, name: str, place: Path, projected: Object) -> None:
        mode = projected.get("defaultMode", 0o644)
        for source in projected.get("sources") or []:
            if "serviceAccountToken" in source:
                projection = source["serviceAccountToken"]
                token = self._token(projection.get("audience", ""), projection.get("expirationSeconds", 3600))
                _write(place, projection["path"], token.encode(), mode)
            else:
                self._source(name, place, {k: {"defaultMode": mode, **v} for k, v in source.items()})

    def _source(self, name: str, place: Path, volume: Object) -> None:
        if "downwardAPI" in volume:
            self._downward(place, volume["downwardAPI"])
            return
        for kind, key, field_name in (("configMap", "configmaps", "name"), ("secret", "secrets", "secretName")):
            if kind in volume:
                source = volume[kind]
                self._data(name, place, key, source, source.get(field_name) or source.get("name", ""))
                return

    def _data(self, volume: str, place: Path, key: str, source: Object, name: str) -> None:
        obj = self._lookup(key, name)
        if obj is None:
            if source.get("optional"):
                return
            raise MountError(volume, f'{key[:-1]} "{name}" not found')
        data, mode = config_data(obj), source.get("defaultMode", 0o644)
        items = source.get("items") or [{"key": k, "path": k} for k in data]
        for item in items:
            if item["key"] not in data:
                if source.get("optional"):
                    continue
                raise MountError(volume, f"references non-existent {key[:-1]} key: {item['key']}")
            _write(place, item["path"], data[item["key"]], item.get("mode", mode))

    def _downward(self, place: Path, source: Object) -> None:
        for item in source.get("items") or []:
            if "fieldRef" in item:
                value = field(self._pod, item["fieldRef"]["fieldPath"])
            else:
                value = resource(self._pod, {}, item["resourceFieldRef"], self._allocatable)
            _write(place, item["path"], value.encode(), item.get("mode", source.get("defaultMode", 0o644)))

    def mounts(self, container: Object, env: dict[str, str]) -> list[Object]:
        """Return the bind mounts of a container: its volumeMounts over the pod's /dev/shm."""
        mounts: list[Object] = [{"source": str(self.folder / "shm"), "target": "/dev/shm"}]  # noqa: S108 - in the pod
        for mount in container.get("volumeMounts") or []:
            sub = mount.get("subPath") or expand(mount.get("subPathExpr") or "", env)
            source = self._places[mount["name"]]
            volume = next(v for v in self._pod["spec"]["volumes"] if v["name"] == mount["name"])
            if sub:
                source = source.joinpath(*PurePosixPath(sub).parts)
                if not source.exists():
                    source.mkdir(parents=True)
            readonly = mount.get("readOnly") or any(
                k in volume for k in ("configMap", "secret", "downwardAPI", "projected")
            )
            claim = volume.get("persistentVolumeClaim") or {}
            readonly = (
                readonly
                or claim.get("readOnly")
                or behaviour(self._lookup("persistentvolumeclaims", claim.get("claimName", ""))).get("readonly")
            )
            mounts = [m for m in mounts if m["target"] != mount["mountPath"].rstrip("/")]
            mounts.append({"source": str(source), "target": mount["mountPath"], "readonly": bool(readonly)})
        return mounts

    def refresh(self) -> None:
        """Rewrite ConfigMaps, Secrets and labels, as the kubelet does periodically."""
        with contextlib.suppress(MountError):
            self.set_up()


def pod_files(
    folder: Path,
    *,
    hostname: str,
    fqdn: str,
    ip: str,
    nameserver: str,
    search: list[str],
    options: list[str],
    aliases: list[Object],
) -> list[Object]:
    """Return the kubelet's files for every pod as mounts; nsswitch.conf keeps glibc off the host's resolver."""
    folder.mkdir(parents=True, exist_ok=True)
    names = f"{fqdn}\t{hostname}" if fqdn != hostname else hostname
    hosts = (
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
        f"{ip}\t{names}\n"
    )
    if aliases:
        hosts += "\n# Entries added by HostAliases.\n"
        hosts += "".join(f"{a['ip']}\t{chr(9).join(a.get('hostnames') or [])}\n" for a in aliases)
    resolv = (f"search {' '.join(search)}\n" if search else "") + f"nameserver {nameserver}\n"
    resolv += f"options {' '.join(options)}\n" if options else ""
    texts = {
        "/etc/hostname": hostname + "\n",
        "/etc/hosts": hosts,
        "/etc/resolv.conf": resolv,
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
    mounts = []
    for target, text in texts.items():
        source = folder / Path(target).name
        source.write_text(text)
        mounts.append({"source": str(source), "target": target})
    return mounts
