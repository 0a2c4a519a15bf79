"""A profile: the requirements on a cluster, and on a run of its trial."""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from jobs.trial.parts import Deadlines
from seatrial.faults.own import digest

from .schema import (
    ApiSection,
    BenchSection,
    CheckpointSection,
    FabricSection,
    Floor,
    GpuSection,
    ImagesSection,
    LaunchSection,
    NetworkSection,
    ObservabilitySection,
    PodSection,
    RuntimeSection,
    StackSection,
    StorageSection,
    TopologySection,
    TrainingSection,
)
from .yaml_schema import require

REQUIRED = (
    "rights.run",
    "gpu.allocatable",
    "runtime.gpus",
    "rendezvous.dns",
    "rendezvous.port",
    "nccl.completed",
    "nccl.transport",
    "nccl.bandwidth-ring",
)
"""The required checks of the five core families (permissions, allocatable, node runtime, rendezvous, all_reduce): none
may be skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A kind of cluster. ``Profile()`` means that no profile was given: its optional values are None or empty."""

    name: str | None = None
    title: str = ""
    nodes: int = 2  # number of nodes of the trial
    tenant: bool = False  # judge with the permissions of one namespace, as --tenant does
    least_rights: bool = False  # the trial's account must not have an administrator's permissions
    pool: dict[str, str] = field(default_factory=dict)  # labels of the nodes that this profile covers; none: all
    kubernetes_min: str = "1.28"  # since 1.28 pods of Indexed Jobs have an index label
    required: tuple[str, ...] = REQUIRED
    api: ApiSection = field(default_factory=ApiSection)
    gpu: GpuSection = field(default_factory=GpuSection)
    stack: StackSection = field(default_factory=StackSection)
    images: ImagesSection = field(default_factory=ImagesSection)
    observability: ObservabilitySection = field(default_factory=ObservabilitySection)
    runtime: RuntimeSection = field(default_factory=RuntimeSection)
    fabric: FabricSection = field(default_factory=FabricSection)
    network: NetworkSection = field(default_factory=NetworkSection)
    topology: TopologySection = field(default_factory=TopologySection)
    pod: PodSection = field(default_factory=PodSection)
    launch: LaunchSection = field(default_factory=LaunchSection)
    storage: StorageSection = field(default_factory=StorageSection)
    checkpoint: CheckpointSection = field(default_factory=CheckpointSection)
    bench: BenchSection = field(default_factory=BenchSection)
    training: TrainingSection = field(default_factory=TrainingSection)
    deadlines: Deadlines = field(default_factory=Deadlines)
    floors: tuple[Floor, ...] = ()
    unjudged: str = ""  # reason why an all_reduce without a floor is measured but not judged; none: it is inconclusive
    faults: str = ""  # a file or folder of the user's own faults (seatrial.faults.own), relative to the profile's file

    def __post_init__(self) -> None:
        require(self.nodes >= 2, "nodes", "must be at least 2: one node shows nothing of the network")
        require((self.name or "").isprintable(), "name", "must be printable: every report shows it")
        for key, value in self.pool.items():
            other = self.pod.node_selector.get(key, value)
            require(other == value, "pool", f"says {key}={value} and pod.node_selector {key}={other}: no node is both")
        parts = self.kubernetes_min.split(".")
        require(len(parts) == 2 and all(p.isdigit() for p in parts), "kubernetes_min", "must look like 1.28")

    @property
    def known(self) -> bool:
        """Whether a profile was given."""
        return self.name is not None

    @property
    def digest(self) -> str:
        """A fingerprint of all requirements, independent of name and layout; '' without a profile.

        Default values are excluded, so that a key added in a later version does not change the digest.
        """
        if not self.known:
            return ""
        asked = {key: value for key, value in _changed(self).items() if key not in ("name", "title")}
        if self.faults:
            asked["faults"] = digest(Path(self.faults))
        text = json.dumps(asked, sort_keys=True, default=str)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def floor(self, collective: str, algorithm: str, nodes: int) -> tuple[Floor, ...]:
        """Return the floors for this collective, algorithm and number of nodes, smallest size first."""
        key = (collective, algorithm, nodes)
        floors = (f for f in self.floors if (f.collective, f.algorithm, f.nodes) == key)
        return tuple(sorted(floors, key=lambda f: f.size))


def _changed(value: Any) -> Any:
    """Return the fields of a record that differ from its defaults, as plain types.

    Sources and the cloud's machine types are excluded, since they do not change a requirement.
    """
    if is_dataclass(value):
        return {
            f.name: _changed(own)
            for f in fields(value)
            if (own := getattr(value, f.name)) != _default(f) and f.name not in ("source", "machines")
        }
    if isinstance(value, tuple | list):
        return [_changed(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    return {str(key): _changed(own) for key, own in value.items()} if isinstance(value, dict) else value


def _default(of: Field[Any]) -> Any:
    return of.default if of.default_factory is MISSING else of.default_factory()
