"""Profile section `pod`: the pod that training would use here."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobs.cluster.unstructured import Unstructured
from jobs.trial.parts import ClaimSpec

from ..yaml_schema import Size

SIXTEEN_GI = Size(2**34)
GPU_TAINTS: tuple[Unstructured, ...] = (
    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
)
"""How providers keep GPU nodes for GPU work: by the resource's own name (GKE, OKE, and the admission plugin
ExtendedResourceToleration of Kubernetes), and as Azure documents it ("Use GPUs on AKS": sku=gpu:NoSchedule)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSection:
    """The pod that training would use here; the trial runs in the same one."""

    # The raw-torchrun example of the TAO Kubernetes page (NVIDIA TAO skill bank, tao-run-on-kubernetes) names this tag.
    image: str = "nvcr.io/nvidia/pytorch:25.08-py3"
    pull_policy: str = ""
    pull_secrets: tuple[str, ...] = ()
    cpu: str = "8"
    memory: str = "32Gi"
    # The same page mounts 16 GiB: NCCL's SHM transport hangs or fails on the 64 MiB default of container runtimes.
    shm: Size = SIXTEEN_GI
    resources: dict[str, int] = field(default_factory=dict)
    hugepages: dict[str, str] = field(default_factory=dict)  # by page size: {2Mi: 5120Mi}
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[Unstructured, ...] = GPU_TAINTS
    annotations: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    runtime_class: str | None = None
    scheduler_name: str | None = None
    priority_class: str | None = None
    service_account: str | None = None
    run_as_user: int | None = None
    host_network: bool = False
    sidecars: tuple[Unstructured, ...] = ()
    volumes: tuple[Unstructured, ...] = ()  # beside the probe's own: a fabric's libraries on the host, for one
    mounts: tuple[Unstructured, ...] = ()
    limits: dict[str, str] = field(default_factory=dict)  # of cpu and memory, where a quota asks for them
    env: dict[str, str] = field(default_factory=dict)
    claims: tuple[ClaimSpec, ...] = ()  # devices by dynamic resource allocation, beside or instead of resources
    env_secrets: tuple[str, ...] = ()  # Secrets whose keys become variables; named here, never read
    seccomp: str = "RuntimeDefault"  # or Unconfined, as most training pods run; nothing: the node's default
    master_port: int = 29500  # torchrun's default, and TAO's
