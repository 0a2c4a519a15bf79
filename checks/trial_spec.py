"""Which trial would training's own pod spec be here? Profile, options and cluster, put into one record."""

from __future__ import annotations

import re
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from jobs.trial import Bench, Collective, Deadlines, SpecError, TrialSpec

if TYPE_CHECKING:
    from jobs.inventory import Inventory

    from .options import Options
    from .profile import Profile

RING, DEFAULT = "ring", "default"
COLLECTIVES: tuple[tuple[str, dict[str, str]], ...] = ((RING, {"NCCL_ALGO": "Ring"}), (DEFAULT, {}))
"""Ring judges the network: on two nodes NCCL's own choice may exceed what one node's wires carry. The default is what
users get."""


def build_spec(
    profile: Profile, options: Options, *, run_id: str, namespace: str, cluster: Inventory | None = None
) -> TrialSpec:
    """Return the trial that the acceptance runs.

    Without a profile the number of GPUs of a pod is what every GPU node has, as far as ``cluster`` shows; else one.
    Raises SpecError (a ValueError, one line) for what the user typed wrong.
    """
    return spec_of(
        profile,
        run_id=run_id,
        namespace=namespace,
        gpus_per_node=_common_gpus(profile.gpu.resource, cluster),
        image=mirrored(options.image or profile.pod.image, options.registry),
        node_selector={**profile.pod.node_selector, **equalities(options.nodes)},
    )


def spec_of(profile: Profile, *, run_id: str, namespace: str, gpus_per_node: int = 1, **changes: Any) -> TrialSpec:
    """Return the trial that a profile asks for; ``gpus_per_node`` is used where the profile does not know it."""
    pod, bench = profile.pod, profile.bench
    asked = {f.name: getattr(pod, f.name) for f in fields(pod) if f.name != "shm"}
    deadlines = {k: v for k, v in asdict(profile.deadlines).items() if v is not None}
    return TrialSpec(
        run_id=run_id,
        namespace=namespace,
        nodes=profile.nodes,
        gpus_per_node=profile.gpu.per_node or gpus_per_node,
        gpu_resource=profile.gpu.resource,
        shm_bytes=pod.shm,
        collectives=tuple(Collective(name=name, env=env) for name, env in COLLECTIVES),
        bench=Bench(
            min_bytes=bench.min, max_bytes=bench.max, factor=bench.factor, iters=bench.iters, warmup=bench.warmup
        ),
        deadlines=Deadlines(**deadlines),
        **{**asked, **changes},
    )


def _common_gpus(resource: str, cluster: Inventory | None) -> int:
    """Return the number of GPUs that every GPU node has by its capacity, at least one."""
    counts = [n.capacity.get(resource, 0) for n in cluster.gpu_nodes(resource)] if cluster else []
    return min((c for c in counts if c > 0), default=1)


def mirrored(image: str, registry: str) -> str:
    """Put an image behind one registry prefix: 'nvcr.io/nvidia/pytorch:1' at 'mirror:5000/x' keeps its path."""
    if not registry:
        return image
    first, _, rest = image.partition("/")
    named = rest and ("." in first or ":" in first or first == "localhost")
    return f"{registry.rstrip('/')}/{rest if named else image}"


def equalities(selector: str) -> dict[str, str]:
    """Return a label selector as a pod's nodeSelector. Raises SpecError for what that cannot express (in, !, !=)."""
    found: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in selector.split(","))):
        match = re.fullmatch(r"([\w./-]+)\s*==?\s*([\w.-]*)", part)
        if match is None:
            raise SpecError(f"--nodes {selector!r}: {part!r} is not key=value, which is all that a pod can select by")
        found[match[1]] = match[2]
    return found
