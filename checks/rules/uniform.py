"""Uniformity rules: kernel, system, runtime, kubelet and driver of each node, compared with the majority of its pool.

Machines of another kind (ARM beside x86, another GPU, where no profile names the pool) are compared with their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from jobs.cluster.facts.inventory import Node
from reports.record import Finding

from .alike import majority, unlike
from .api import major_minor
from .findings import compared, unknown
from .pool import product

DRIVER_LABELS = ("nvidia.com/cuda.driver-version.full", "amd.com/gpu.driver-version")
Machine = tuple[str, str, str]
ARCH, TYPE = "kubernetes.io/arch", "node.kubernetes.io/instance-type"
OLDER_NODES = 3
"""Minor versions by which a kubelet may be older than the API server, from Kubernetes 1.28 on; it must never be newer
(https://kubernetes.io/releases/version-skew-policy/#kubelet)."""


def driver(node: Node) -> str:
    """The driver that feature discovery saw on the node; '' where nothing says it."""
    full = next((node.labels[key] for key in DRIVER_LABELS if node.labels.get(key)), "")
    parts = [node.labels.get(f"nvidia.com/cuda.driver.{part}", "") for part in ("major", "minor", "rev")]
    return full or ".".join(part for part in parts if part)


FACTS: dict[str, Callable[[Node], str]] = {
    "kernel": lambda node: node.kernel,
    "os": lambda node: node.os,
    "runtime": lambda node: node.runtime,
    "kubelet": lambda node: node.kubelet,
    "driver": driver,
}


def unlike_nodes(nodes: Iterable[Node], may_differ: Iterable[str] = ()) -> Iterator[Finding]:
    """Compare each node with its kind of machine: who differs from most is named, of a tie the difference."""
    nodes, allowed = list(nodes), set(may_differ)
    kinds = machines(nodes)
    for kind in dict.fromkeys(kinds.values()):
        alike = [node for node in nodes if kinds[node.name] == kind]
        yield from unlike(
            {node.name: {fact: read(node) for fact, read in FACTS.items() if fact not in allowed} for node in alike},
            "nodes.drift",
            _line,
        )


def machines(nodes: Iterable[Node]) -> dict[str, Machine]:
    """Sort nodes by kind of machine: architecture, instance type, GPU. Two kinds have images of their own.

    A node that feature discovery has not labelled is one of those of its type.
    """
    kinds = {node.name: (node.labels.get(ARCH, ""), node.labels.get(TYPE, ""), product(node)) for node in nodes}
    for name, (arch, kind, gpu) in kinds.items():
        if not gpu:
            usual = majority(each[2] for each in kinds.values() if each[:2] == (arch, kind) and each[2])
            kinds[name] = (arch, kind, usual[0] if usual else "")
    return kinds


def _line(fact: str, value: str) -> str:
    """Return what two nodes must share: of a kubelet the minor version, of a system the release, else all of it.

    Patch releases of a kubelet may be mixed at any time (Kubernetes' version skew policy), and are during every
    roll-out of a managed node pool; what a driver is built against is the kernel.
    """
    if fact == "kubelet" and (version := major_minor(value)):
        return "{}.{}".format(*version)
    if fact == "os" and (release := re.match(r"\D*\d+(?:\.\d+)?", value)):
        return release[0]
    return value


def kubelet_skew(nodes: Iterable[Node], server: str) -> Iterator[Finding]:
    """Compare each kubelet with the API server by Kubernetes' own rule."""
    own = major_minor(server)
    for node in nodes:
        theirs = major_minor(node.kubelet)
        if own is None or theirs is None:
            observed = f"kubelet {node.kubelet or 'not told'}, API server {server}"
            yield unknown(node.name, observed, "versions that can be compared")
            continue
        ok = theirs[0] == own[0] and 0 <= own[1] - theirs[1] <= OLDER_NODES
        yield compared(
            node.name,
            ok,
            f"kubelet {node.kubelet}, API server {server}",
            f"not newer, and at most {OLDER_NODES} minor versions older (Kubernetes' skew policy)",
            "nodes.kubelet-skew",
        )
