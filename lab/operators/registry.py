"""The table of operators: custom kinds, running workloads, options, and the start of their controllers."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..format import ScenarioError, check, merge, nearest
from .definitions import definitions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..apiserver.store import Store
    from ..controlplane import Controller

Object = dict[str, Any]
CRD = "CustomResourceDefinition"


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator."""

    kinds: tuple[str, ...] = ()  # files of crds/
    workloads: Mapping[str, Object] = field(default_factory=dict)  # in the format of a world
    starts: str = ""  # the module with a `start` that returns the controllers
    known: Mapping[str, Any] = field(default_factory=dict)  # options and their types
    needs: tuple[str, ...] = ()  # other operators that are installed with it


def _deployment(namespace: str, image: str, **more: Any) -> Object:
    return {"kind": "Deployment", "namespace": namespace, "image": image, **more}


DRA_IMAGE = "nvcr.io/nvidia/k8s-dra-driver-gpu:v25.8.0"
DRA_DRIVER = {
    "nvidia-dra-driver-gpu-controller": _deployment("nvidia-dra-driver-gpu", DRA_IMAGE),
    "nvidia-dra-driver-gpu-kubelet-plugin": {
        "kind": "DaemonSet",
        "namespace": "nvidia-dra-driver-gpu",
        "image": DRA_IMAGE,
        "where": "gpu",
    },
}
OPERATORS: dict[str, Operator] = {
    "kueue": Operator(
        ("kueue",),
        {
            "kueue-controller-manager": _deployment(
                "kueue-system", "registry.k8s.io/kueue/kueue:v0.14.4", labels={"control-plane": "controller-manager"}
            )
        },
        "kueue",
        {"wait_for_pods_ready_s": (int, float), "without": list},
    ),  # kinds that are missing in integrations.frameworks
    "volcano": Operator(
        ("volcano",),
        {
            "volcano-scheduler": _deployment("volcano-system", "docker.io/volcanosh/vc-scheduler:v1.12.2"),
            "volcano-controllers": _deployment("volcano-system", "docker.io/volcanosh/vc-controller-manager:v1.12.2"),
            "volcano-admission": _deployment("volcano-system", "docker.io/volcanosh/vc-webhook-manager:v1.12.2"),
        },
        "volcano",
    ),
    "mpi": Operator(
        ("mpi",), {"mpi-operator": _deployment("mpi-operator", "mpioperator/mpi-operator:0.6.0")}, "mpi", {"gang": str}
    ),
    # The Training Operator's definition of MPIJob, applied after the MPI Operator's: v2beta1 is no longer served.
    "mpijob-v1": Operator(("mpijob-v1",)),
    "training": Operator(
        ("training",),
        {"training-operator": _deployment("kubeflow", "docker.io/kubeflow/training-operator:v1-8f2b1b4")},
        "training",
        {"gang": str},
    ),
    # NVIDIA's DRA driver for GPUs: `device_plugin`: extended resources as well; `missing`: nodes without slices;
    # `classes: false`: no device classes.
    "dra": Operator((), DRA_DRIVER, "dra", {"device_plugin": bool, "missing": list, "classes": bool}),
    "compute-domains": Operator(("computedomain",), DRA_DRIVER, "computedomains", {"missing": list}),
    "jobset": Operator(
        ("jobset",),
        {"jobset-controller": _deployment("jobset-system", "registry.k8s.io/jobset/jobset:v0.8.1")},
        "jobset",
    ),
    "trainer": Operator(
        ("trainer",),
        {
            "kubeflow-trainer-controller-manager": _deployment(
                "kubeflow-system", "ghcr.io/kubeflow/trainer/trainer-controller-manager:v2.2.0"
            )
        },
        "trainer",
        {"runtimes": bool},
        needs=("jobset",),
    ),
    # The definition of an older Trainer: podTemplateOverrides instead of runtimePatches.
    "trainer-2.1": Operator(("trainer-2.1",)),
    # Kinds only; a platform's workloads run their pods, and the world defines their objects.
    "gpu-operator": Operator(("gpu-operator",)),
    "network-operator": Operator(("network-operator",)),
    "multus": Operator(("multus",)),
    "prometheus": Operator(("prometheus",)),
    "slinky": Operator(("slinky",)),
    # In addition: a NodeResourceTopology for every node with GPUs.
    "topology-updater": Operator(("topology-updater",), {}, "topology", {"policy": str, "scope": str}),
}


def options(world: Mapping[str, Any], where: str = "operators") -> dict[str, Object]:
    """Return a world's operators with their options, including required operators; ScenarioError."""
    by_name: dict[str, Object] = {}
    for entry in world.get("operators") or []:
        given = {entry: {}} if isinstance(entry, str) else entry
        if not isinstance(given, dict) or len(given) != 1:
            raise ScenarioError(f"{where}: {entry!r} is neither a name nor one name with options")
        for name, chosen in given.items():
            if name not in OPERATORS:
                raise ScenarioError(f"{where}: unknown operator {name!r}{nearest(str(name), OPERATORS)}")
            check(chosen or {}, OPERATORS[name].known, f"{where}: {name}")
            for needed in OPERATORS[name].needs:
                by_name.setdefault(needed, {})
            by_name[name] = dict(chosen or {})
    return by_name


def furnished(world: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the world with the additions of its operators; the world's own entries take precedence."""
    chosen = options(world)
    if not chosen:
        return world
    kinds: dict[str, Object] = {}
    workloads: Object = {}
    objects: list[Object] = []
    for name, given in chosen.items():
        operator = OPERATORS[name]
        for file in operator.kinds:
            kinds.update((each["metadata"]["name"], each) for each in definitions(file))  # the last one applied wins
        workloads = merge(workloads, dict(operator.workloads))
        brings = getattr(_module(operator), "objects", None) if operator.starts else None
        objects += brings(world, given) if brings else []
    own = {each.get("metadata", {}).get("name") for each in world.get("objects", []) if each.get("kind") == CRD}
    if (world.get("fabric") or {}).get("networks"):
        own.add("network-attachment-definitions.k8s.cni.cncf.io")  # created with the networks
    kinds = {name: each for name, each in kinds.items() if name not in own}
    return {
        **world,
        "workloads": merge(workloads, world.get("workloads", {})),
        "objects": [*kinds.values(), *objects, *world.get("objects", [])],
    }


def start(store: Store, world: Mapping[str, Any]) -> tuple[Controller, ...]:
    """Return the controllers of a world's operators, and register their webhooks."""
    controllers: list[Controller] = []
    for name, given in options(world).items():
        if OPERATORS[name].starts:
            begin: Callable[..., tuple[Controller, ...]] = _module(OPERATORS[name]).start
            controllers += begin(store, world, given)
    return tuple(controllers)


def _module(operator: Operator) -> Any:
    return importlib.import_module(f".{operator.starts}", __package__)
