"""The objects of a trial.

Plain dicts, never text templates: the launching object (an Indexed Job, an MPIJob, ...), and a ConfigMap with the
probe. If needed, there are a headless Service that publishes the pods' names before they are ready, a Volcano PodGroup,
and ResourceClaimTemplates. The launching object owns all others, so that its deletion, or its TTL, removes them.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

from ..cluster.unstructured import Unstructured
from . import pod
from .job_spec import JobSpec
from .launchers import Kind, kind_of
from .launchers.queues import pod_group
from .names import SpecError
from .parts import Collective
from .payload import ARCHIVE, archive, digest
from .pod import CONTAINER, LABEL_MANAGED, LABEL_RUN, MANAGED_BY, MOUNT, labels
from .spec import TrialSpec

__all__ = [
    "CONTAINER",
    "LABEL_MANAGED",
    "LABEL_RUN",
    "MANAGED_BY",
    "MOUNT",
    "Manifests",
    "Owned",
    "build",
    "dry_pod",
    "job_of",
    "labels",
    "older",
    "to_yaml",
    "trial_json",
]

# kubernetes.io/docs/concepts/configuration/configmap: at most 1 MiB of data; the rest of the object needs some room.
_LARGEST_CONFIGMAP = 1_000_000
_HOW_TO_APPLY = """\
# For kubectl create -f - (or kubectl apply --server-side): the ConfigMap with the probe is too large for the annotation
# of a plain kubectl apply. The job is suspended until it owns the rest; seatrial resumes it then.
# {probe}: the source of each follows as a comment.
"""
_LEFT_OUT = """\
# The objects of the trial. The ConfigMap's data are left out: --with-files prints them, too, for kubectl create -f
# -, and the source as comments. {probe}.
"""
_OWN = "# The objects of the job, for kubectl create -f -: it is suspended until it owns the rest; resume it then.\n"
_PROBE = "The pods run {archive} of the ConfigMap: {files} files of Python, {size} KB, {digest}"
CLAIM_TEMPLATES = "resourceclaimtemplates"
BEGUN = "begun"  # the key of the run's state in the ConfigMap's binary data
_SCRATCH_BYTES = 256 << 20  # exceeds a disk's own cache of a few MiB, and takes at most a second


@dataclass(frozen=True, slots=True)
class Owned:
    """A dependent of the launching object, and its resource path."""

    resource: str
    group: str
    version: str
    body: Unstructured


@dataclass(frozen=True, slots=True)
class Manifests:
    """The objects of a trial, without owner references (the owner's uid is known only once it exists)."""

    kind: Kind
    job: Unstructured
    configmap: Unstructured | None = None
    service: Unstructured | None = None
    further: tuple[Owned, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # the content of the ConfigMap, for readers

    def all_owned(self) -> Iterator[Owned]:
        """Yield the launching object's dependents, in the order of creation."""
        if self.configmap is not None:
            yield Owned("configmaps", "", "v1", self.configmap)
        if self.service is not None:
            yield Owned("services", "", "v1", self.service)
        yield from self.further

    def owned_by(self, uid: str) -> Iterator[Owned]:
        """Yield the same objects, owned by the created one.

        Without blockOwnerDeletion: the API server may require a permission on the owner's finalizers for it.
        """
        name = self.job["metadata"]["name"]
        owner = {
            "apiVersion": self.job["apiVersion"],
            "kind": self.job["kind"],
            "name": name,
            "uid": uid,
            "controller": False,
        }
        for item in self.all_owned():
            meta = item.body["metadata"] | {"ownerReferences": [owner]}
            yield Owned(item.resource, item.group, item.version, item.body | {"metadata": meta})


def build(spec: TrialSpec, files: Mapping[str, str], begun: str = "") -> Manifests:
    """Build objects from a spec and the probe's files (path in the archive -> source); the launching one is suspended.

    ``begun``: the run's data for `attach` (jobs/run/begun.py); no pod sees it.
    """
    trial_text, packed = json.dumps(trial_json(spec), indent=1), archive(files)
    size = len(trial_text.encode()) + len(packed) + 3 * len(begun) // 4  # decoded size (ValidateConfigMap)
    if size > _LARGEST_CONFIGMAP:
        raise SpecError(f"the probe's files are {size} bytes, more than a ConfigMap holds ({_LARGEST_CONFIGMAP})")
    configmap: Unstructured = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _meta(spec),
        "immutable": True,
        "data": {pod.TRIAL: trial_text},
        "binaryData": {ARCHIVE: base64.b64encode(packed).decode()} | ({BEGUN: begun} if begun else {}),
    }
    return job_of(spec, configmap, files)


def job_of(spec: JobSpec, configmap: Unstructured | None = None, files: Mapping[str, str] | None = None) -> Manifests:
    """Build any job's objects: a user's own, or a trial's with the probe's files."""
    kind = kind_of(spec.launcher)
    meta = _meta(spec)
    selector = kind.service_selector(spec)
    further = list(_claim_templates(spec, meta))
    if spec.queue is not None and spec.queue.kind == "volcano":
        further.append(Owned("podgroups", "scheduling.volcano.sh", "v1beta1", pod_group(spec, meta)))
    return Manifests(
        kind=kind,
        job=kind.job(spec),
        configmap=configmap,
        service=_service(spec, meta, selector) if selector else None,
        further=tuple(further),
        files=files or {},
    )


def _meta(spec: JobSpec) -> Unstructured:
    return {"name": spec.job_name, "namespace": spec.namespace, "labels": labels(spec)}


def _service(spec: JobSpec, meta: Unstructured, selector: dict[str, str]) -> Unstructured:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {
            "clusterIP": "None",
            # Ranks must find each other before they are ready: readiness may depend on the rendezvous.
            "publishNotReadyAddresses": True,
            "selector": selector,
            "ports": [{"name": "rendezvous", "port": spec.master_port, "protocol": "TCP"}],
        },
    }


def _claim_templates(spec: JobSpec, meta: Unstructured) -> Iterator[Owned]:
    """Yield claim templates for dynamic resource allocation, one for each request.

    They use resource.k8s.io/v1 (Kubernetes 1.34).
    """
    for item in spec.claims:
        exactly = {"deviceClassName": item.device_class, "allocationMode": "ExactCount", "count": item.count}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": meta | {"name": pod.claim_template(spec, item.name)},
            "spec": {"spec": {"devices": {"requests": [{"name": item.name, "exactly": exactly}]}}},
        }
        yield Owned(CLAIM_TEMPLATES, "resource.k8s.io", "v1", body)


def older(item: Owned) -> Iterator[Owned]:
    """Yield the object in earlier versions of its API, for clusters that do not serve the newest.

    Device claims: Kubernetes 1.33 has v1beta2, of the shape of v1; 1.32 has v1beta1, where a request is not nested
    (https://kubernetes.io/docs/reference/using-api/deprecation-guide/, KEP-4381).
    """
    if item.resource != CLAIM_TEMPLATES:
        return
    for version in ("v1beta2", "v1beta1"):
        body = copy.deepcopy(item.body) | {"apiVersion": f"{item.group}/{version}"}
        devices = body["spec"]["spec"]["devices"]
        if version == "v1beta1":
            devices["requests"] = [{"name": each["name"], **each["exactly"]} for each in devices["requests"]]
        yield Owned(item.resource, item.group, version, body)


def trial_json(spec: TrialSpec) -> dict[str, object]:
    """Return the probe's input: its peers, its stages, and their time limits."""
    times = spec.deadlines
    return {
        "schema": 1,
        "run": spec.run_id,
        "job": spec.job_name,
        "nodes": spec.nodes,
        "gpus_per_node": spec.gpus_per_node,
        "peers": spec.peers,
        "gpu_kind": spec.gpu_kind,
        "master_port": spec.master_port,
        "deadline_s": times.probe_s,
        "publish_s": times.publish_s,
        "dns_timeout_s": times.dns_s,
        "port_timeout_s": times.port_s,
        "peer_wait_s": times.start_s,
        "collective_timeout_s": times.collective_s,
        "launcher": spec.launcher,
        "program": spec.program,
        "collectives": [_collective(item) for item in spec.collectives],
        "bench": asdict(spec.bench),
        "storage": _storage(spec),
        "network": asdict(spec.network) if spec.network else None,
        "endpoints": [each.parsed() for each in spec.endpoints],
        "sweep": asdict(spec.sweep) if spec.sweep else None,
        "training": asdict(spec.training) if spec.training else None,
        "checkpoint": asdict(spec.checkpoint) if spec.checkpoint else None,
        "dcgm": asdict(spec.dcgm) if spec.dcgm else None,
        "perftest": asdict(spec.perftest) | {"limit_s": spec.perftest.limit_s} if spec.perftest else None,
    }


def _collective(item: Collective) -> dict[str, object]:
    document = {"name": item.name, "op": item.op, "scope": item.scope, "env": dict(item.env), "repeats": item.repeats}
    document |= {"command": list(item.command)} if item.command else {}
    return document | ({"bench": asdict(item.bench)} if item.bench else {})


def _storage(spec: TrialSpec) -> dict[str, object] | None:
    """Return the probe's input about storage; None if the trial tests none."""
    keys = ("name", "path", "kind", "shared", "write", "bytes", "files")
    paths = [{key: getattr(item, key) for key in keys} for item in spec.storage]
    if spec.scratch:
        paths.append(
            {
                "name": "scratch",
                "path": spec.scratch,
                "kind": "scratch",
                "shared": False,
                "write": True,
                "bytes": _SCRATCH_BYTES,
            }
        )
    s3 = [{"uri": item.uri, "endpoint": item.endpoint or None, "env": list(item.names)} for item in spec.s3]
    credentials = [asdict(item) for item in spec.credentials]
    if not (paths or s3 or credentials):
        return None
    return {"paths": paths, "s3": s3, "credentials": credentials, "burst_bytes": spec.burst_bytes}


def dry_pod(spec: TrialSpec) -> Unstructured:
    """Return one pod of the trial for a server-side dry run: a Job is accepted even if its pods are not."""
    template = pod.template(spec)
    meta = template["metadata"] | {"generateName": f"{spec.job_name}-", "namespace": spec.namespace}
    # Fields that the Job controller adds to its pods: NODE_RANK refers to the index, webhooks select by the labels.
    index = {"batch.kubernetes.io/job-completion-index": "0"}
    owner = {"batch.kubernetes.io/job-name": spec.job_name, "job-name": spec.job_name} | index
    meta = meta | {
        "annotations": meta.get("annotations", {}) | index,
        "labels": meta.get("labels", {}) | (owner if spec.launcher == "indexed" else {}),
    }
    named = {"hostname": f"{spec.job_name}-0"} if spec.launcher == "indexed" else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"] | named}


def to_yaml(manifests: Manifests, *, with_files: bool = False, note: str = "") -> str:
    """Return the objects as one YAML stream in the order of creation, with the note, if any, at the top.

    Without ``with_files`` the ConfigMap has no probe; with them the probe's source, thousands of lines, follows as
    comments, because an archive is unreadable. A client-side apply repeats each object in an annotation, which holds
    256 KiB; the probe's ConfigMap is larger.
    """
    import yaml  # noqa: PLC0415  (only for --print-manifests)

    objects = [manifests.job, *(item.body for item in manifests.all_owned())]
    files = manifests.files
    size = sum(map(len, files.values())) // 1000
    probe = _PROBE.format(archive=ARCHIVE, files=len(files), size=size, digest=digest(files))
    if not with_files:
        objects = [{key: value for key, value in each.items() if key not in ("data", "binaryData")} for each in objects]
    head = (_HOW_TO_APPLY if with_files else _LEFT_OUT).format(probe=probe) if files else _OWN
    head += f"# {note}\n" if note else ""
    written = head + yaml.safe_dump_all(objects, sort_keys=False, default_flow_style=False, width=120)
    return written + (_as_comments(files) if with_files else "")


def _as_comments(files: Mapping[str, str]) -> str:
    lines = []
    for path, text in sorted(files.items()):
        lines += ["", "#" * 120, f"# {ARCHIVE}: {path}", "#" * 120]
        lines += [f"# {line}".rstrip() for line in text.splitlines()]
    return "\n".join(lines) + "\n"
