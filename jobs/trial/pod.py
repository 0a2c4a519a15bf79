"""The manifest of one pod: a user's own job's, and a trial's, in which the probe only replaces the training program.

Plain dicts, never text templates. A launcher changes only three things: the container's name, the source of its rank,
and its command.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..cluster.unstructured import Unstructured, labels_of
from ..pod.stages.job_inputs import OWN_NAME
from .job_spec import PET, JobSpec
from .payload import ARCHIVE

CONTAINER = "trial"
MANAGED_BY = "seatrial"
MOUNT = "/seatrial"
TRIAL = "trial.json"
LABEL_MANAGED = "app.kubernetes.io/managed-by"
LABEL_RUN = "app.kubernetes.io/instance"
APP = "app.kubernetes.io/name"
OF_TRIAL = "seatrial"
"""The value of that label; objects of a user's own job have another one."""
COMPONENT = "app.kubernetes.io/component"
# Mount path of the pod's own annotations, which have Multus's entries once its networks are attached.
POD_INFO = "/seatrial-pod"
_NETWORKS = ("k8s.v1.cni.cncf.io/networks", "networking.gke.io/interfaces", "k8s.ovn.org/pod-networks")
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
# Seconds that a deleted, drained or preempted pod may still log: more than the probe needs (stages/run.py).
GRACE_S = 10
PROBE = ("python3", f"{MOUNT}/{ARCHIVE}")
FILES = (ARCHIVE, TRIAL)
"""The mounted keys of the ConfigMap, without the state for `job attach`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """A launcher's requirements on its pods; the default is the Indexed Job's.

    `rank` is the rank itself or its field path; empty if another program provides it.
    """

    container: str = ""  # empty: the job's component
    command: tuple[str, ...] = ()  # empty: the job's command
    rank: str = INDEX
    subdomain: bool = True  # pods are found through our own Service
    hostname: str = ""
    port_name: str = "rendezvous"
    root_services: bool = False  # the program changes its user itself, like sshd: keep the default capabilities
    annotations: Mapping[str, str] = field(default_factory=dict)
    scheduler: str | None = None


def labels(spec: JobSpec) -> dict[str, str]:
    """Return the labels of a job's objects.

    `instance` is the run; `managed-by` and `name` limit the deletions of a sweep.
    """
    return dict(spec.labels) | {
        APP: spec.app,
        COMPONENT: spec.component,
        LABEL_MANAGED: MANAGED_BY,
        LABEL_RUN: spec.run_id,
    }


def fixed_environment(spec: JobSpec) -> dict[str, str]:
    """Return the variables of all pods: both rendezvous conventions, the run, NCCL's evidence, then the user's own.

    WORLD_SIZE is the number of *nodes*, as NVIDIA TAO's containers read it; the probe removes it before torchrun.
    """
    fixed = {
        "WORLD_SIZE": str(spec.nodes),
        "NNODES": str(spec.nodes),
        "NUM_GPU_PER_NODE": str(spec.gpus_per_node),
        "NPROC_PER_NODE": str(spec.processes),
        "MASTER_ADDR": spec.peers[0],
        "MASTER_PORT": str(spec.master_port),
    }
    fixed |= spec.fixed | ({f"PET_{name}": fixed[name] for name in PET if name in fixed} if spec.pet else {})
    return fixed | dict(sorted((spec.defaults | dict(spec.env)).items()))


def environment(spec: JobSpec, rank: str = INDEX) -> list[Unstructured]:
    """Return the container's environment: the variables of all pods, and those of each pod."""
    everywhere = fixed_environment(spec)
    user = {key: everywhere.pop(key) for key in [key for key in everywhere if key in spec.defaults | dict(spec.env)]}
    fields = dict(spec.fields)
    entries: list[Unstructured] = [{"name": key, "value": value} for key, value in everywhere.items()]
    if rank.isdigit():
        entries.append({"name": "NODE_RANK", "value": rank})
    elif rank:
        fields = dict.fromkeys(("NODE_RANK", *(("PET_NODE_RANK",) if spec.pet else ())), rank) | fields
    entries += [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()]
    for number, item in enumerate(spec.credentials):
        # Optional: the probe reports a missing part, which must not keep the pod from starting. The second name is set
        # by no image: without the key, the first one may be an image's own ENV HF_TOKEN.
        source = {"secretKeyRef": {"name": item.secret, "key": item.key, "optional": True}}
        entries += [{"name": name, "valueFrom": source} for name in (item.env, OWN_NAME % number)]
    return entries + [{"name": key, "value": value} for key, value in user.items()]


def template(spec: JobSpec, shape: PodShape | None = None) -> Unstructured:
    """Return the pod, with the job's command or the probe as its program."""
    shape = shape or PodShape()
    pod: Unstructured = {"restartPolicy": "Never"}
    if shape.subdomain:
        pod["subdomain"] = spec.job_name
    if shape.hostname:
        pod["hostname"] = shape.hostname
    pod |= {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": pod_security(spec),
        "containers": [container(spec, shape)],
        "volumes": volumes(spec),
    }
    pod = {key: value for key, value in pod.items() if value or isinstance(value, bool)}
    if apart := (anti_affinity(spec) if spec.anti_affinity and spec.nodes > 1 else {}) | _only_on(spec):
        pod["affinity"] = apart
    if spec.host_network:
        # Without this policy a pod on the host's network queries the host's resolver, which lacks Services.
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    optional = {
        "nodeSelector": dict(spec.node_selector),
        "tolerations": [dict(item) for item in spec.tolerations],
        "imagePullSecrets": [{"name": name} for name in spec.pull_secrets],
        "runtimeClassName": spec.runtime_class,
        "schedulerName": shape.scheduler or spec.scheduler_name,
        "priorityClassName": spec.priority_class,
        "serviceAccountName": spec.service_account,
        # An init container that always restarts is a native sidecar: it ends with the pod's main container.
        "initContainers": [dict(item) | {"restartPolicy": "Always"} for item in spec.sidecars],
        "resourceClaims": [
            {"name": item.name, "resourceClaimTemplateName": claim_template(spec, item.name)} for item in spec.claims
        ],
    }
    pod |= {key: value for key, value in optional.items() if value}
    meta: Unstructured = {"labels": labels(spec)}
    if own := dict(spec.annotations) | dict(shape.annotations):
        meta["annotations"] = own
    return {"metadata": meta, "spec": pod}


def claim_template(spec: JobSpec, name: str) -> str:
    """Return the name of the ResourceClaimTemplate for one of the pod's claims."""
    return f"{spec.job_name}-{name}"


def _only_on(spec: JobSpec) -> Unstructured:
    """Restrict the pods to the named nodes, or exclude the avoided ones; the scheduler still decides.

    A field term takes one name: terms are alternatives, the fields of one term all apply.
    """
    if not spec.node_names and not spec.avoided:
        return {}
    terms = [{"matchFields": [_name("In", name)]} for name in sorted(set(spec.node_names))]
    terms = terms or [{"matchFields": [_name("NotIn", name) for name in sorted(set(spec.avoided))]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _name(operator: str, name: str) -> Unstructured:
    return {"key": "metadata.name", "operator": operator, "values": [name]}


def anti_affinity(spec: JobSpec) -> Unstructured:
    """Keep the ranks of this run on different nodes; other runs do not affect it."""
    # Excludes a pod that only starts the ranks (an MPIJob's launcher): it may share a node with one.
    selector = {"matchLabels": {LABEL_RUN: spec.run_id, COMPONENT: spec.component}}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def container(spec: JobSpec, shape: PodShape) -> Unstructured:
    """Return the container of a rank."""
    made: Unstructured = {
        "name": shape.container or spec.component,
        "image": spec.image,
        "command": list(shape.command or spec.command or PROBE),
        "env": environment(spec, shape.rank),
        "ports": [{"name": shape.port_name, "containerPort": spec.master_port, "protocol": "TCP"}],
        "resources": resources(spec),
        "securityContext": _container_security(spec, shape),
        "volumeMounts": mounts(spec),
    }
    if spec.command:  # its last output outlives its log; the probe writes its own message
        made["terminationMessagePolicy"] = "FallbackToLogsOnError"
    if spec.env_secrets:
        made["envFrom"] = [{"secretRef": {"name": name}} for name in spec.env_secrets]
    if spec.pull_policy:
        made["imagePullPolicy"] = spec.pull_policy
    return made


def mounts(spec: JobSpec) -> list[Unstructured]:
    """Return the mounts of a rank's container."""
    made: list[Unstructured] = []
    if not spec.command:
        made.append({"name": "probe", "mountPath": MOUNT, "readOnly": True})
    if spec.shm_bytes:
        made.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108  (a path in the pod)
    for size in sorted(spec.hugepages):
        path = "/dev/hugepages" if len(spec.hugepages) == 1 else f"/dev/hugepages-{size}"
        made.append({"name": f"hugepages-{size.lower()}", "mountPath": path})
    made += [{"name": f"storage-{item.name}", "mountPath": item.path} for item in spec.storage if item.claim]
    if spec.scratch:
        made.append({"name": "scratch", "mountPath": spec.scratch})
    if _asks_for_networks(spec):
        made.append({"name": "pod-info", "mountPath": POD_INFO, "readOnly": True})
    return made + [dict(item) for item in spec.mounts]


def volumes(spec: JobSpec) -> list[Unstructured]:
    """Return the pod's volumes."""
    made: list[Unstructured] = []
    if not spec.command:
        items = [{"key": name, "path": name} for name in FILES]
        made.append({"name": "probe", "configMap": {"name": spec.job_name, "items": items}})
    if spec.shm_bytes:
        made.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(int(spec.shm_bytes))}})
    for size in sorted(spec.hugepages):
        medium = "HugePages" if len(spec.hugepages) == 1 else f"HugePages-{size}"
        made.append({"name": f"hugepages-{size.lower()}", "emptyDir": {"medium": medium}})
    for item in spec.storage:
        if item.claim:
            claim = {"claimName": item.claim} | ({} if item.write else {"readOnly": True})
            made.append({"name": f"storage-{item.name}", "persistentVolumeClaim": claim})
    if spec.scratch:
        made.append({"name": "scratch", "emptyDir": {}})
    if _asks_for_networks(spec):
        downward = [{"path": "annotations", "fieldRef": {"fieldPath": "metadata.annotations"}}]
        made.append({"name": "pod-info", "downwardAPI": {"items": downward}})
    return made + [dict(item) for item in spec.volumes]


def _asks_for_networks(spec: JobSpec) -> bool:
    return any(key in spec.annotations for key in _NETWORKS)


def resources(spec: JobSpec) -> Unstructured:
    """Return requests and limits of one pod."""
    # Extended resources and hugepages cannot be overcommitted: request and limit must be equal.
    exact = {name: str(amount) for name, amount in sorted(spec.extended.items())}
    exact |= {f"hugepages-{size}": amount for size, amount in sorted(spec.hugepages.items())}
    requests = exact | {key: value for key, value in (("cpu", spec.cpu), ("memory", spec.memory)) if value}
    limits = exact | dict(spec.limits)
    made: Unstructured = {key: value for key, value in (("limits", limits), ("requests", requests)) if value}
    return made | ({"claims": [{"name": item.name} for item in spec.claims]} if spec.claims else {})


def pod_security(spec: JobSpec) -> Unstructured:
    """Return the settings of the restricted Pod Security Standard, except for the user: stock images run as root."""
    security: Unstructured = {"seccompProfile": {"type": spec.seccomp}} if spec.seccomp else {}
    if spec.run_as_user is not None:
        security |= {"runAsNonRoot": True, "runAsUser": spec.run_as_user}
    return security


def _container_security(spec: JobSpec, shape: PodShape) -> Unstructured:
    """Return only the requested capabilities; a root sshd keeps the runtime's default capabilities, which it needs.

    It changes root and user for every session (SYS_CHROOT, SETUID, SETGID: sshd(8), privilege separation).
    """
    capabilities: Unstructured = {} if shape.root_services and spec.run_as_user is None else {"drop": ["ALL"]}
    if spec.capabilities:
        capabilities["add"] = list(spec.capabilities)
    return {"allowPrivilegeEscalation": False} | ({"capabilities": capabilities} if capabilities else {})


def is_trial(job: Unstructured | None) -> bool:
    """Return whether a job is one of seatrial's own trials."""
    return bool(labels_of(job or {}).get(APP) == OF_TRIAL)
