"""The trial that a profile requests, in the pods that training would use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from jobs.trial.job_spec import JobSpec
from jobs.trial.names import SpecError
from jobs.trial.needs import NETWORKS
from jobs.trial.parts import DCGM_S, BenchSizes, CheckpointSpec, Collective, DcgmSpec, NetworkSpec, PerftestSpec, Queue
from jobs.trial.spec import TrialSpec
from reports.schema import RecordedPod

from .profile import Profile
from .schema import VERBS

NODE, RING, DEFAULT, SENDRECV, ALLTOALL, GLOO = "node", "ring", "default", "sendrecv", "alltoall", "gloo"
COMMAND = "command"
"""The name of the run of --command, the user's own program, which replaces all these."""
OPERATIONS = {
    NODE: "all_reduce",
    RING: "all_reduce",
    DEFAULT: "all_reduce",
    SENDRECV: "sendrecv",
    ALLTOALL: "all_to_all",
    GLOO: "all_reduce",
    COMMAND: "all_reduce",
}
"""The operation of each collective of the trial, in the order of the runs. Each node runs alone first: a node whose
GPUs cannot communicate would slow all others. Then Ring tests the network: on two nodes NCCL's own choice may exceed
the link rate of one node. NCCL's default is what users get. send/recv and all_to_all are the patterns of pipeline
and expert parallelism. Without GPUs there is one all_reduce, by gloo."""
SCRATCH = "scratch"
SHORT_FROM = 64 * 2**20
"""The least size in bytes of all sweeps but Ring and default: below it latency dominates, which those two have
measured."""


def spec_of(profile: Profile, *, run_id: str, namespace: str, gpus_per_node: int = 1, **changes: Any) -> TrialSpec:
    """Return the trial that a profile requests; ``gpus_per_node`` is used if the profile does not define it."""
    pod, bench = profile.pod, profile.bench
    launch = profile.launch
    asked = {f.name: getattr(pod, f.name) for f in fields(pod) if f.name != "shm"}
    gpus = gpus_per_node if profile.gpu.per_node is None else profile.gpu.per_node
    launched = {"launcher": launch.launcher, "queue": launch.queue, "runtime": launch.runtime}
    level = 0 if profile.gpu.none or profile.gpu.kind != "nvidia" else profile.runtime.dcgm
    dcgm = DcgmSpec(level=level, limit_s=DCGM_S[level]) if level else None
    writes = perftest_of(profile)
    extra_s = (dcgm.extra_s if dcgm else 0.0) + (writes.extra_s if writes else 0.0)
    return TrialSpec(
        run_id=run_id,
        namespace=namespace,
        nodes=profile.nodes,
        gpus_per_node=gpus,
        gpu_resource="" if profile.gpu.none else profile.gpu.resource,
        shm_bytes=pod.shm,
        collectives=tuple(collectives_of(profile, gpus)),
        bench=BenchSizes(
            min_bytes=bench.min, max_bytes=bench.max, factor=bench.factor, iters=bench.iters, warmup=bench.warmup
        ),
        deadlines=profile.deadlines.longer(extra_s),
        dcgm=dcgm,
        perftest=writes,
        endpoints=profile.network.endpoints.all,
        network=NetworkSpec(enough_gbit_s=profile.network.tcp_gbit_s or 0.0),
        mpi=launch.mpi,
        **{**asked, **launched, **stored(profile), **changes},
    )


def perftest_of(profile: Profile) -> PerftestSpec | None:
    """Return the RDMA writes between neighbours; None for a fabric without RDMA devices."""
    fabric = profile.fabric
    if profile.gpu.none or not fabric.verbs or not fabric.perftest_s:
        return None
    return PerftestSpec(
        seconds=fabric.perftest_s,
        layer=VERBS[fabric.kind or ""] or "",
        gpu=fabric.gdr is not False,
        nics=fabric.device_count or PerftestSpec().nics,
        nodes=profile.nodes,
    )


_OF_ONE_JOB = ("run_id", "namespace", "name", "command", "nodes", "anti_affinity", "time_limit_s", "ttl_s")


def job_defaults(profile: Profile) -> dict[str, Any]:
    """Return a user's JobSpec fields from a profile, for create_job(profile=...)."""
    spec = spec_of(profile, run_id="job", namespace="job")
    return {each.name: getattr(spec, each.name) for each in fields(JobSpec) if each.name not in _OF_ONE_JOB}


def recorded_pod(spec: TrialSpec) -> RecordedPod:
    """Return a record's section about the trial's pods, without their environment variables."""
    return {
        "gpu_resource": spec.gpu_resource,
        "gpus": spec.gpus_per_node,
        "resources": dict(spec.resources),
        "networks": [key for key in NETWORKS if key in spec.annotations],
        "capabilities": list(spec.capabilities),
        "queue": f"{spec.queue.kind}:{spec.queue.name}" if spec.queue else "",
    }


def spec_of_record(pod: RecordedPod, *, image: str, namespace: str) -> TrialSpec:
    """Return a trial with a record's pod requests. Raises SpecError: the record is untrusted."""
    kind, _, name = pod["queue"].partition(":")
    return TrialSpec(
        run_id="recorded",
        namespace=namespace,
        image=image,
        gpus_per_node=pod["gpus"] if pod["gpu_resource"] else 0,
        gpu_resource=pod["gpu_resource"],
        resources=pod["resources"],
        annotations=dict.fromkeys(pod["networks"], "recorded"),
        capabilities=tuple(pod["capabilities"]),
        queue=Queue(kind=kind, name=name) if kind else None,
    )


def stored(profile: Profile) -> dict[str, Any]:
    """Return the trial's tests of the profile's storage."""
    asked = profile.storage
    return {
        "storage": asked.paths,
        "s3": asked.s3,
        "scratch": asked.scratch,
        "burst_bytes": int(asked.burst),
        "env_secrets": asked.env_secrets,
        "credentials": asked.credentials,
    }


def collectives_of(profile: Profile, gpus: int) -> Iterator[Collective]:
    """Yield the trial's runs, in order: each node alone if it has several GPUs, then all of them.

    all_to_all runs only if the profile has a floor for it: without one it is not judged.
    """
    repeats = profile.bench.repeats
    if profile.gpu.none:
        yield Collective(name=GLOO, repeats=repeats)
        return
    for name, op in OPERATIONS.items():
        scope = "node" if name == NODE else "job"
        floors = [f for f in profile.floors if f.collective == op and (f.nodes == 1) == (scope == "node")]
        if name in (GLOO, COMMAND) or (name == NODE and gpus < 2) or (name == ALLTOALL and not floors):
            continue
        env = {"NCCL_ALGO": "Ring"} if name == RING else {}
        own = None if name in (RING, DEFAULT) else _short(profile, max((f.size for f in floors), default=0))
        yield Collective(name=name, op=op, scope=scope, env=env, bench=own, repeats=repeats)


def _short(profile: Profile, largest: int) -> BenchSizes:
    """Return the message sizes from 64 MiB to 1 GiB, or to the largest row with a floor."""
    bench = profile.bench
    top = max(largest, min(2**30, bench.max))
    return BenchSizes(min_bytes=max(4, min(SHORT_FROM, top)), max_bytes=top, iters=bench.iters, warmup=bench.warmup)


def _in_empty_dir(profile: Profile, path: str) -> bool:
    """Return whether a path is on an emptyDir of the profile's pod: the longest mount that contains it decides."""
    empty = {str(volume.get("name")) for volume in profile.pod.volumes if "emptyDir" in volume}
    mounts = [(f"{str(m.get('mountPath')).rstrip('/')}/", str(m.get("name"))) for m in profile.pod.mounts]
    holding = [each for each in mounts if f"{path.rstrip('/')}/".startswith(each[0])]
    return max(holding, key=lambda each: len(each[0]), default=("", ""))[1] in empty


def checkpoint_of(profile: Profile) -> CheckpointSpec | None:
    """Return the checkpoint that the profile requests; None if it names no writable path.

    Raises SpecError for a path that is not one of `storage`.
    """
    asked, paths = profile.checkpoint, {path.name: path for path in profile.storage.paths if path.write}
    first = next((p.name for p in paths.values() if p.shared), next(iter(paths), ""))
    target = asked.path or first
    if not target:
        return None
    for key, name in (("path", target), ("local", asked.local)):
        if name and name not in paths and not (key == "local" and name == SCRATCH and profile.storage.scratch):
            raise SpecError(f"checkpoint.{key} {name!r} is not a path of storage.paths with write: true")
    durable = paths[target]
    kinds = {"path": "claim" if durable.claim else SCRATCH if _in_empty_dir(profile, durable.path) else "path"}
    local = ""
    if asked.local:
        local = profile.storage.scratch if asked.local == SCRATCH else paths[asked.local].path
        kinds["local"] = SCRATCH if asked.local == SCRATCH else "claim" if paths[asked.local].claim else "path"
    return CheckpointSpec(path=durable.path, local=local, shared=durable.shared, kinds=kinds, bytes=int(asked.bytes))
