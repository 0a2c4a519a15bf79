"""The spec of the trial, in training's own pod spec: profile, options and cluster in one record."""

from __future__ import annotations

import re
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from jobs.trial.spec import S3, Bench, Collective, Deadlines, Mpi, Network, Queue, SpecError, Storage, TrialSpec

from ..profiles.cluster_defaults import pod_defaults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobs.cluster.facts.inventory import Inventory

    from ..profiles.cluster_defaults import Listed
    from ..profiles.loader import Profile
    from .options import Options

NODE, RING, DEFAULT, SENDRECV, ALLTOALL = "node", "ring", "default", "sendrecv", "alltoall"
OPERATIONS = {
    NODE: "all_reduce",
    RING: "all_reduce",
    DEFAULT: "all_reduce",
    SENDRECV: "sendrecv",
    ALLTOALL: "all_to_all",
}
"""What each collective of the trial does, in the order of the runs. First every node on its own: whose GPUs do not
reach each other slows all others. Then Ring judges the network: on two nodes NCCL's own choice may exceed what the
wires of one carry. The default is what users get. send/recv and all_to_all are patterns of pipelines and experts."""
SHORT_FROM = 64 * 2**20
"""Bytes. The sweeps beside Ring and default start here: below, latency decides, which those two have shown."""


def build_spec(
    profile: Profile,
    options: Options,
    *,
    run_id: str,
    namespace: str,
    cluster: Inventory | None = None,
    listed: Listed | None = None,
) -> TrialSpec:
    """Return the trial that the acceptance runs.

    What no profile says of its pod is what ``cluster`` and ``listed`` (lists DeviceClasses, ...) show: pod_defaults.
    Raises SpecError (a ValueError, one line) for what the user typed wrong.
    """
    told, named = pod_defaults(profile, cluster, listed), options.on or options.trial_on
    made = spec_of(
        profile,
        run_id=run_id,
        namespace=namespace,
        gpus_per_node=told.pop("gpus_per_node"),
        node_names=named,
        image=mirrored(options.image or profile.pod.image, options.registry),
        # Nodes that are named need no selector besides: --nodes says whom to judge, in any form that the API takes.
        node_selector={**profile.pool, **profile.pod.node_selector, **equalities("" if named else options.nodes)},
        launcher=options.launcher or profile.launch.launcher,
        queue=queue_of(options.queue) if options.queue else queue_of_profile(profile),
    )
    return replace(made, **told)


def spec_of(profile: Profile, *, run_id: str, namespace: str, gpus_per_node: int = 1, **changes: Any) -> TrialSpec:
    """Return the trial that a profile asks for; ``gpus_per_node`` is used where the profile does not know it."""
    pod, bench = profile.pod, profile.bench
    launch = profile.launch
    asked = {f.name: getattr(pod, f.name) for f in fields(pod) if f.name != "shm"}
    launched = {"launcher": launch.launcher, "queue": queue_of_profile(profile), "runtime": launch.runtime}
    deadlines = {k: v for k, v in asdict(profile.deadlines).items() if v is not None}
    return TrialSpec(
        run_id=run_id,
        namespace=namespace,
        nodes=profile.nodes,
        gpus_per_node=profile.gpu.per_node or gpus_per_node,
        gpu_resource=profile.gpu.resource,
        shm_bytes=pod.shm,
        collectives=tuple(collectives_of(profile, profile.gpu.per_node or gpus_per_node)),
        bench=Bench(
            min_bytes=bench.min, max_bytes=bench.max, factor=bench.factor, iters=bench.iters, warmup=bench.warmup
        ),
        deadlines=Deadlines(**deadlines),
        network=Network(enough_gbit_s=profile.network.tcp_gbit_s or 0.0),
        mpi=Mpi(**{f.name: getattr(launch.mpi, f.name) for f in fields(launch.mpi)}),
        **{**asked, **launched, **stored(profile), **changes},
    )


def queue_of_profile(profile: Profile) -> Queue | None:
    """Return the queue that the profile names."""
    queue = profile.launch.queue
    return Queue(kind=queue.kind, name=queue.name, priority_class=queue.priority_class) if queue.kind else None


def queue_of(text: str) -> Queue | None:
    """Read --queue: 'kueue:NAME', 'volcano:NAME', 'volcano', or 'none' against the profile's."""
    if text == "none":
        return None
    kind, colon, name = text.partition(":")
    if kind not in ("kueue", "volcano") or (colon and not name) or (kind == "kueue" and not name):
        raise SpecError(f"--queue {text!r} is not kueue:NAME, volcano[:NAME] or none")
    return Queue(kind=kind, name=name)


def stored(profile: Profile) -> dict[str, Any]:
    """Return what the trial shall try of the storage that the profile names."""
    asked = profile.storage
    return {
        "storage": tuple(
            Storage(name=p.name, path=p.path, claim=p.claim, shared=p.shared, write=p.write, bytes=p.bytes)
            for p in asked.paths
        ),
        "s3": tuple(S3(uri=b.uri, endpoint=b.endpoint, env=b.env) for b in asked.s3),
        "scratch": asked.scratch,
        "burst_bytes": int(asked.burst),
        "env_secrets": asked.env_secrets,
    }


def collectives_of(profile: Profile, gpus: int) -> Iterator[Collective]:
    """Yield what the trial runs, in order: each node alone where it has GPUs to talk to, then all of them.

    all_to_all only where the profile has a floor for it: nothing else would judge it.
    """
    repeats = profile.bench.repeats
    for name, op in OPERATIONS.items():
        scope = "node" if name == NODE else "job"
        floors = [f for f in profile.floors if f.collective == op and (f.nodes == 1) == (scope == "node")]
        if (name == NODE and gpus < 2) or (name == ALLTOALL and not floors):
            continue
        env = {"NCCL_ALGO": "Ring"} if name == RING else {}
        own = None if name in (RING, DEFAULT) else _short(profile, max((f.size for f in floors), default=0))
        yield Collective(name=name, op=op, scope=scope, env=env, bench=own, repeats=repeats)


def _short(profile: Profile, largest: int) -> Bench:
    """Return the sweep from 64 MiB to 1 GiB, or to the largest row that a floor names."""
    bench = profile.bench
    top = max(largest, min(2**30, bench.max))
    return Bench(min_bytes=max(4, min(SHORT_FROM, top)), max_bytes=top, iters=bench.iters, warmup=bench.warmup)


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
