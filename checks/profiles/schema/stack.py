"""Profile section `stack`: the software of every GPU node, and what may differ between the nodes of one pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.listing import nearest

from ..yaml_schema import require

FACTS = ("kernel", "os", "runtime", "kubelet", "driver")


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSection:
    """The software of the GPU nodes, as the API shows it."""

    operator: bool = False  # the GPU operator must be there, with a ClusterPolicy that is ready
    device_plugin: bool = False  # a device plugin must be seen as pods; some platforms run it where no pod shows it
    may_differ: tuple[str, ...] = ()  # facts that need not be the same on all nodes of the pool

    baseline: Mapping[str, str] = field(default_factory=dict)  # what nothing here can see: repeated, and not verified

    def __post_init__(self) -> None:
        for name in self.may_differ:
            require(name in FACTS, "may_differ", f"unknown fact {name!r}{nearest(name, FACTS)}")
