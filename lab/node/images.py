"""The registry: existing images, and the programs that they lack."""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]


class ImageMissing(Exception):  # noqa: N818 - the kubelet knows it by this name
    """An image that is not in the registry; str() is the runtime's message."""


_LACK: Mapping[str, list[str]] = {"*nvidia/pytorch:*": ["sshd"]}
"""Programs that images lack in any world: NVIDIA's PyTorch images have mpirun and no sshd (NVIDIA/cloudai#720)."""


class Images:
    """The registries of a world."""

    def __init__(self, registry: Mapping[str, Any]) -> None:
        self._missing = registry.get("missing", [])
        self._lacks: Mapping[str, list[str]] = registry.get("lacks", {})
        self._programs: Mapping[str, list[str]] = registry.get("programs", {})
        self.dcgm = str(registry.get("dcgm") or "")
        self.perftest = str(registry.get("perftest") or "")
        self._slow: Mapping[str, float] = registry.get("slow", {})

    async def pull(self, image: str) -> None:
        """Return when the image is pulled; raise ImageMissing with containerd's message otherwise."""
        if slow := [seconds for pattern, seconds in self._slow.items() if fnmatch.fnmatchcase(image, pattern)]:
            await asyncio.sleep(max(slow))
        if any(fnmatch.fnmatchcase(image, pattern) for pattern in self._missing):
            name = full_name(image)
            raise ImageMissing(
                f'rpc error: code = NotFound desc = failed to pull and unpack image "{name}": '
                f'failed to resolve reference "{name}": {name}: not found'
            )

    def lacks(self, image: str) -> list[str]:
        """Return the commands and libraries that an image lacks."""
        known = (*_LACK.items(), *self._lacks.items())
        return [name for pattern, names in known if fnmatch.fnmatchcase(image, pattern) for name in names]

    def programs(self, image: str) -> frozenset[str]:
        """Return the daemons that an image contains and this machine lacks."""
        matching = [names for pattern, names in self._programs.items() if fnmatch.fnmatchcase(image, pattern)]
        return frozenset(name for names in matching for name in names)

    def lacks_any(self, pod: Object) -> frozenset[str]:
        """Return the programs that some image of a pod lacks."""
        return frozenset(name for each in pod["spec"].get("containers", []) for name in self.lacks(each["image"]))


def full_name(image: str) -> str:
    """Return an image's name with registry and tag, in containerd's format."""
    host, slash, rest = image.partition("/")
    if not slash:
        image = f"docker.io/library/{image}"
    elif "." not in host and ":" not in host and host != "localhost":
        image = f"docker.io/{host}/{rest}"
    return image if ":" in image.rpartition("/")[2] or "@" in image else f"{image}:latest"
