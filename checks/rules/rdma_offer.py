"""RDMA offer rules: the devices and networks that the pods request exist in the cluster. From API objects only.

Rule: every node of the pool must offer them, not just enough for one trial: the next job may run on the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from .findings import compared, failed, passed, unknown

if TYPE_CHECKING:
    from jobs.cluster.facts.inventory import Node, PodUse
    from jobs.cluster.unstructured import Unstructured
    from jobs.trial.spec import TrialSpec
    from reports.record import Finding

    from ..profiles.loader import Profile

MULTUS = "k8s.v1.cni.cncf.io/networks"
EFA = "vpc.amazonaws.com/efa"
GKE = "networking.gke.io/interfaces"
_SELECTION = re.compile(r"(?:([a-z0-9.-]+)/)?([a-z0-9.-]+)(?:@([\w.-]+))?")


def offer_findings(
    nodes: Iterable[Node],
    resources: Mapping[str, int],
    plugins: Mapping[str, Sequence[PodUse]],
    devices: int | None = None,
) -> Iterator[Finding]:
    """Judge for each node each resource that a pod of the trial requests in addition to its GPUs.

    ``plugins``: the device plugin's pods by node. A plugin that is not ready explains missing devices of its node.
    ``devices``: number of RDMA devices of a node by the profile; None if it does not define it.
    """
    for node in nodes:
        for resource, count in resources.items():
            yield _offer(node, resource, count, plugins, devices or 0)


def _most(resource: str, count: int, devices: int, offered: int) -> int:
    """Return the number of a resource on a node of the profile's kind; 0 if the profile does not define it.

    It is defined if a pod takes all devices of its fabric. Virtual functions and shared devices are offered a whole
    number of times each; an EFA device is given to one pod (https://github.com/aws/eks-charts,
    aws-efa-k8s-device-plugin).
    """
    if resource == EFA:
        return max(count, devices)
    return count if count == devices and offered % count else 0


def _offer(node: Node, resource: str, count: int, plugins: Mapping[str, Sequence[PodUse]], devices: int) -> Finding:
    offered, has = node.allocatable.get(resource, 0), node.capacity.get(resource, 0)
    expected = f"at least {count} {resource} (the request of a pod)"
    if 0 < (most := _most(resource, count, devices, offered)) < offered:
        expected = f"{most} {resource} (profile, fabric.devices, pod.resources)"
        return unknown(node.name, f"{offered} {resource} allocatable", expected, fault="nodes.other-kind")
    if offered >= count:
        return passed(node.name, f"{offered} {resource} allocatable", expected)
    observed = f"{offered} {resource} allocatable of {has}" if resource in node.capacity else f"no {resource} at all"
    here = plugins.get(node.name, ())
    sick = next((pod for pod in here if not pod.ready), None)
    fault = "rdma.resource-short" if offered else "rdma.resource-missing"
    if sick is not None and not any(pod.ready for pod in here):
        fault, why = "rdma.plugin-down", sick.trouble or sick.phase or "no reason given"
        observed += f"; its device plugin {sick.namespace}/{sick.name} is not ready ({why})"
    elif here:
        observed += f"; its device plugin {here[0].namespace}/{here[0].name} is ready"
    elif plugins:
        observed += "; no RDMA device plugin runs on this node, unlike on other nodes"
    return failed(node.name, observed, expected, fault)


def selections(annotations: Mapping[str, str], namespace: str) -> list[tuple[str, str, str]]:
    """Return the networks that a pod's Multus annotation names: namespace, name, interface.

    Both forms are supported: "ns/name@net1,name" and JSON. Multus names the n-th interface net<n> by default
    (https://github.com/k8snetworkplumbingwg/multus-cni/blob/master/docs/how-to-use.md).
    """
    text = annotations.get(MULTUS, "").strip()
    networks: list[tuple[str, str, str]] = []
    if text.startswith("["):
        try:
            given = [each for each in json.loads(text) if isinstance(each, dict)]
        except ValueError:
            return []
        entries = [(each.get("namespace"), each.get("name"), each.get("interface")) for each in given]
    else:
        matches = (_SELECTION.fullmatch(part.strip()) for part in text.split(",") if part.strip())
        entries = [(word[1], word[2], word[3]) for word in matches if word]
    for number, (space, name, interface) in enumerate(entries, 1):
        networks.append((str(space or namespace), str(name or ""), str(interface or f"net{number}")))
    return networks


def attached_names(annotations: Mapping[str, str], namespace: str) -> dict[str, str]:
    """Return the interfaces that a pod must have, by its annotations: interface -> network.

    GKE's annotations are supported, too.
    """
    names = {interface: f"{space}/{name}" for space, name, interface in selections(annotations, namespace)}
    return names | gke_networks(annotations)


def gke_networks(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the networks of a pod's annotation on Google's clusters, by interface, without the default network."""
    try:
        given = json.loads(annotations.get(GKE) or "[]")
    except ValueError:
        given = []
    entries = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    return {
        str(each["interfaceName"]): str(each["network"])
        for each in entries
        if each.get("interfaceName") and each.get("network") not in (None, "default")
    }


def named_networks(annotations: Mapping[str, str], namespace: str) -> set[tuple[str, str]]:
    """Return the required definitions as (namespace, name); Google's networks have no namespace."""
    own = {(space, name) for space, name, _ in selections(annotations, namespace)}
    return own | {("", name) for name in gke_networks(annotations).values()}


def definition_findings(
    spec: TrialSpec, definitions: Mapping[tuple[str, str], Unstructured | None], profile: Profile
) -> Iterator[Finding]:
    """Judge every network that the pod names: it is defined, and the MTU of its definition is large enough."""
    for name in sorted(set(gke_networks(spec.annotations).values())):
        there = definitions.get(("", name)) is not None
        yield compared(
            f"network/{name}",
            there,
            "there" if there else "no object has this name",
            "a Network (networking.gke.io)",
            "rdma.nad-missing",
        )
    least_mtu = profile.network.secondary_mtu
    for space, name, _ in dict.fromkeys(selections(spec.annotations, spec.namespace)):
        subject, item = f"{space}/{name}", definitions.get((space, name))
        expected = "a NetworkAttachmentDefinition" + (
            f" with an MTU of {least_mtu} or more (profile {profile.name}, network.secondary_mtu)" if least_mtu else ""
        )
        if item is None:
            yield failed(subject, "no object has this name", expected, "rdma.nad-missing")
            continue
        said = definition_mtu(item)
        ok = not (said and least_mtu) or said >= least_mtu
        observed = f"there, MTU {said}" if said else "there; it sets no MTU, so the device's own counts"
        yield compared(subject, ok, observed, expected, "rdma.nad-mtu")


def definition_mtu(item: Unstructured) -> int:
    """Return the MTU that a definition's chain of plugins sets, 0 if none sets it.

    The last plugin that sets it decides: tuning runs after sriov or macvlan have created the interface.
    """
    try:
        config = json.loads(str((item.get("spec") or {}).get("config") or "{}"))
    except (ValueError, RecursionError):
        return 0
    plugins = config.get("plugins") if isinstance(config, dict) else None
    chain = [each for each in plugins if isinstance(each, dict)] if isinstance(plugins, list) else [config]
    said = [each.get("mtu") for each in chain if isinstance(each, dict)]
    numbers = [mtu for mtu in said if isinstance(mtu, int) and not isinstance(mtu, bool) and mtu > 0]
    return numbers[-1] if numbers else 0
