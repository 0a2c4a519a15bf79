"""Rules of drains: a node can be drained, and no drain interrupts a training job.

Rule: a node is judged by the first rule that applies. A budget that allows no disruption blocks a drain for ever only
if its pods never end; on the pods of a job it works as intended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jobs.cluster.facts.drains import Budget, Drains, Rebooter
from jobs.cluster.facts.inventory import Inventory, Node, PodUse
from jobs.cluster.facts.stack import Listing
from jobs.cluster.unstructured import as_map
from jobs.listing import first_of
from reports.record import Finding

from .findings import failed, passed, unknown

LASTING = ("ReplicaSet/", "StatefulSet/", "ReplicationController/")
"""Owners of pods that do not end by themselves; a drain skips pods of a DaemonSet (kubectl drain)."""
OF_NODES = ("DaemonSet/", "Node/")
"""Owners of pods that belong to a node, and to no job."""
MAINTENANCE, SCHEDULED = "cloud.google.com/active-node-maintenance", "cloud.google.com/scheduled-maintenance-time"
"""Labels of GKE's nodes with GPUs: the host is in maintenance, or will be at a time (seconds since 1970;
https://cloud.google.com/kubernetes-engine/docs/concepts/handle-disruption-gpu-tpu)."""
SHOWN = 3


def drain_findings(nodes: Iterable[Node], cluster: Inventory, drains: Drains, resource: str) -> Iterator[Finding]:
    """Judge each node: it is being drained, can never be drained, or would be drained despite running jobs."""
    for node in nodes:
        here = [pod for pod in cluster.on(node.name) if pod.phase not in ("Succeeded", "Failed")]
        yield _now(node, drains) or _stuck(node, here, drains) or _exposed(node, here, drains, resource)


def _now(node: Node, drains: Drains) -> Finding | None:
    by = [
        f"{each.name} (kured) holds its lock for this node" for each in drains.rebooters if node.name in each.draining
    ]
    by += [f"label {MAINTENANCE}=ONGOING"] if node.labels.get(MAINTENANCE) == "ONGOING" else []
    if not by:
        return None
    return unknown(node.name, "; ".join(by), "no drain in progress", fault="drains.under-way")


def _stuck(node: Node, pods: Sequence[PodUse], drains: Drains) -> Finding | None:
    """Report a pod that never ends under a budget that allows no disruption."""
    held = [
        f"{pod} under budget {budget}"
        for pod in pods
        if pod.owner.startswith(LASTING)
        for budget in drains.budgets
        if budget.never and _covers(budget, pod)
    ]
    if not held:
        return None
    observed = f"a drain would never end: {first_of(held, SHOWN)}"
    return failed(node.name, observed, "no long-running pod under a budget that allows no disruption", "drains.blocked")


def _exposed(node: Node, pods: Sequence[PodUse], drains: Drains, resource: str) -> Finding:
    """Report the jobs on the node's GPUs, and whether an unannounced drain would evict them."""
    jobs = [pod for pod in pods if pod.requests.get(resource) and not pod.owner.startswith((*LASTING, *OF_NODES))]
    holds = [budget for budget in drains.budgets if budget.never or budget.uncounted]
    bare = [pod for pod in jobs if not any(_covers(budget, pod) for budget in holds)]
    here = {(pod.namespace, pod.name) for pod in pods}
    careless = [each for each in drains.rebooters if not here & each.holding]
    observed = (
        f"{len(jobs)} pods of jobs hold GPUs, {len(jobs) - len(bare)} of them under a budget that allows no disruption"
    )
    if bare and careless:
        exposed = f"{first_of(map(str, bare), SHOWN)} without a budget that holds it; {_drains(careless[0])}"
        expected = "a budget that blocks evictions of the job's pods, or a reboot daemon that waits for them"
        return unknown(node.name, exposed, expected, fault="drains.unannounced")
    when = node.labels.get(SCHEDULED)
    observed += f"; maintenance of the host is scheduled ({SCHEDULED}={when})" if when else ""
    return passed(node.name, observed, "no unannounced drain of a job")


def _drains(rebooter: Rebooter) -> str:
    return (
        f"{rebooter.name} (kured) drains and reboots nodes that need it, {rebooter.window}, and waits for no pod here"
    )


def _covers(budget: Budget, pod: PodUse) -> bool:
    return budget.namespace == pod.namespace and pod.name in budget.pods


def drain_notes(drains: Drains, policies: Listing) -> Iterator[str]:
    """Describe kured's reboot window and blockers, and the effect of a GPU operator's driver upgrade on jobs."""
    for each in drains.rebooters:
        waits = f"waits for {', '.join(each.waits_for)}" if each.waits_for else "waits for no pod"
        yield f"{each.name} (kured) may drain and reboot nodes {each.window}; it {waits}"
    for item in policies.items:
        driver = as_map(as_map(item.get("spec")).get("driver"))
        upgrade = as_map(driver.get("upgradePolicy"))
        if driver.get("enabled") is False or upgrade.get("autoUpgrade") is not True:
            continue
        first = as_map(upgrade.get("waitForCompletion")).get("podSelector")
        drain = (
            "drains the node" if as_map(upgrade.get("drain")).get("enable") is True else "deletes the pods with GPUs"
        )
        then = f"waits for pods with {first}, then {drain}" if first else f"{drain} and waits for no job"
        yield f"the GPU operator upgrades drivers automatically: it {then} (driver.upgradePolicy)"
