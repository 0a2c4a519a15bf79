"""Profile section `gpu`: the accelerators that a node offers, and what a pod finds of them."""

from __future__ import annotations

from dataclasses import dataclass

from ..yaml_schema import Size, require


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSection:
    """The accelerators of a node, as the scheduler counts them."""

    resource: str = "nvidia.com/gpu"
    per_node: int | None = None
    kind: str = "nvidia"
    product: tuple[str, ...] = ()  # what the label of GPU feature discovery may say, with * for any text

    def __post_init__(self) -> None:
        require(self.kind in ("nvidia", "amd"), "kind", f"must be nvidia or amd, not {self.kind!r}")
        require(self.per_node is None or self.per_node > 0, "per_node", "must be at least 1")
        other = {"nvidia": "amd.com/", "amd": "nvidia.com/"}[self.kind]
        require(not self.resource.startswith(other), "resource", f"is {self.resource}, but the kind is {self.kind}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSection:
    """What a pod must find on the node. ``managed``: the provider owns driver and toolkit; the family is skipped."""

    managed: bool = False
    driver_min: str | None = None
    toolkit_min: str | None = None  # of the NVIDIA container toolkit
    memlock_min: Size | None = None  # 'unlimited' is -1
    intra_node: str | None = None  # how the GPUs of a node reach each other: p2p (NVLink, xGMI), shm (PCIe machines)
    nvlinks: int | None = None  # active links of each GPU
    persistence: bool | None = None  # must the driver stay loaded between jobs?

    def __post_init__(self) -> None:
        require(self.intra_node in (None, "p2p", "shm"), "intra_node", f"must be p2p or shm, not {self.intra_node!r}")
        require(self.nvlinks is None or self.nvlinks >= 0, "nvlinks", "must not be negative")
        minimum = (self.toolkit_min or "0").split(".")
        require(all(p.isdigit() for p in minimum), "toolkit_min", "must look like 1.19.0")
        parts = (self.driver_min or "0").split(".")
        require(all(p.isdigit() for p in parts), "driver_min", "must look like 580 or 580.65.06")
