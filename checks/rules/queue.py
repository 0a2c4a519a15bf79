"""Layer 14, queue rules: training's launcher and queue work, and admitted the whole trial.

Pure: facts and the trial's results in, findings out. A full queue proves nothing about the cluster; a queue that is
stopped, is missing, or can never hold the job does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

from jobs.cluster.facts.inventory import Node, PodUse
from jobs.cluster.unstructured import Unstructured, as_map, by_type, quantity
from jobs.run.result import TrialResult
from jobs.trial.launch_stack import FlavorTopology, LaunchStack, flavors_of, missing_fault, shares
from jobs.trial.launchers import kind_of
from jobs.trial.parts import MPI_LAUNCHER
from jobs.trial.pod import resources
from jobs.trial.rooms import selected, tolerated
from jobs.trial.spec import TrialSpec
from reports.record import Finding

from .findings import compared, failed, proven, unknown
from .pool import ACCELERATORS, product

# Patterns in image names that identify a controller's pods: from the release manifests of each project, and of the
# operators that install it. Related pods, such as Kueue's dashboard, are not controllers.
CONTROLLERS: Mapping[str, tuple[str, ...]] = {
    "mpi-operator": ("mpi-operator",),
    "training-operator": ("training-operator",),
    "kubeflow-trainer": ("trainer-controller-manager", "jobset"),
    "kueue": (r"/kueue(?:-rhel\d+)?[:@]|kueue-controller",),
    "volcano": ("vc-scheduler",),
}
KEPT_OUT = (
    "queue.missing",
    "queue.stopped",
    "queue.uncovered",
    "queue.quota-short",
    "queue.namespace",
    "queue.flavor",
    "queue.unmanaged",
    "queue.waiting",
    "gang.unschedulable",
    "gang.partial",
)
"""Faults of the launcher's analysis about the queue; all others are about pods."""
MANY = 64
"""Number of nodes above which a job with one more pod than nodes would be a large load for a scheduler."""
LOCAL, CLUSTER = "localqueue", "clusterqueue"


def present_findings(
    launch_stack: LaunchStack, spec: TrialSpec, pods: Sequence[PodUse], nodes: Sequence[Node] = ()
) -> Iterator[Finding]:
    """Judge the prerequisites of the trial's launcher and queue, causes first.

    ``nodes``: those of the pool, on which the pods are to run.
    """
    kind = kind_of(spec.launcher)
    if kind.operator:
        yield from _served(spec, launch_stack)
        yield from _controller(kind.operator, pods)
    if (
        spec.launcher == "trainjob"
        and kind.version in launch_stack.served.versions
        and "runtime" not in launch_stack.not_seen
    ):
        there = launch_stack.runtime is not None
        observed = "there" if there else "does not exist"
        expected = "a runtime that TrainJobs can name"
        yield compared(f"clustertrainingruntime/{spec.runtime}", there, observed, expected, "launcher.runtime-missing")
    if spec.queue is not None:
        yield from _queue_served(spec.queue.kind, launch_stack)
        yield from _controller(spec.queue.kind, pods)
    if spec.queue is not None and spec.queue.kind == "kueue" and launch_stack.queue_served.versions:
        yield from _kueue(launch_stack, spec)
        yield from _topologies(launch_stack, nodes, spec.nodes)
    if spec.queue is not None and spec.queue.kind == "volcano" and "v1beta1" in launch_stack.queue_served.versions:
        yield from _volcano(launch_stack, spec)


def _served(spec: TrialSpec, launch_stack: LaunchStack) -> Iterator[Finding]:
    kind = kind_of(spec.launcher)
    subject, expected = f"{kind.resource}.{kind.group}", f"{kind.version} is served ({kind.operator})"
    if launch_stack.served.not_seen:
        yield unknown(subject, launch_stack.served.not_seen, expected)
        return
    fault = missing_fault(kind, launch_stack.served)
    observed = f"served: {', '.join(launch_stack.served.versions)}" if launch_stack.served.versions else "not served"
    yield Finding(subject=subject, ok=not fault, observed=observed, expected=expected, fault=fault)


def _queue_served(kind: str, launch_stack: LaunchStack) -> Iterator[Finding]:
    what = "localqueues.kueue.x-k8s.io" if kind == "kueue" else "podgroups.scheduling.volcano.sh"
    known = ("v1beta1", "v1beta2") if kind == "kueue" else ("v1beta1",)
    there = any(version in known for version in launch_stack.queue_served.versions)
    if launch_stack.queue_served.not_seen:
        yield unknown(what, launch_stack.queue_served.not_seen, f"served ({kind})")
        return
    observed = (
        f"served: {', '.join(launch_stack.queue_served.versions)}"
        if launch_stack.queue_served.versions
        else "not served"
    )
    yield compared(what, there, observed, f"{' or '.join(known)} is served ({kind})", "launcher.missing")


def _controller(operator: str, pods: Sequence[PodUse]) -> Iterator[Finding]:
    """Judge the controller's pods: one ready pod of each program is enough; without any, the trial itself decides."""
    for part in CONTROLLERS[operator]:
        mine = [pod for pod in pods if any(re.search(part, image) for image in pod.images)]
        if not mine:
            continue
        ready = [pod for pod in mine if pod.ready]
        first = mine[0]
        why = f" ({first.trouble})" if first.trouble and not ready else ""
        subject = operator if ready else f"{first.namespace}/{first.name}"
        observed = f"{len(ready)} of {len(mine)} pods ready{why}"
        yield compared(subject, bool(ready), observed, f"a ready pod of {operator}", "operator.down")


def _kueue(launch_stack: LaunchStack, spec: TrialSpec) -> Iterator[Finding]:
    queue = spec.queue.name if spec.queue else ""
    if "local" in launch_stack.not_seen:
        yield unknown(f"{LOCAL}/{queue}", launch_stack.not_seen["local"], "Active")
        return
    if launch_stack.local is None:
        observed = f"not in namespace {spec.namespace}"
        yield failed(f"{LOCAL}/{queue}", observed, "a LocalQueue of this name (profile, or --queue)", "queue.missing")
        return
    cluster = f"{CLUSTER}/{launch_stack.cluster_name}"
    if "cluster" not in launch_stack.not_seen:
        if launch_stack.cluster is None:
            yield failed(
                cluster, f"does not exist; {LOCAL}/{queue} points to it", "a ClusterQueue of this name", "queue.missing"
            )
            return
        yield (own := _active(cluster, launch_stack.cluster))
        if not own.ok:  # the LocalQueue only repeats it
            return
    yield (active := _active(f"{LOCAL}/{queue}", launch_stack.local))
    if active.ok and launch_stack.cluster is not None:
        if as_map(launch_stack.cluster.get("spec")).get("namespaceSelector") is None:
            expected = f"a namespaceSelector that admits jobs of {spec.namespace} ({{}}: those of every namespace)"
            yield failed(cluster, "namespaceSelector is not set: no namespace may use it", expected, "queue.namespace")
            return
        yield from _quota(cluster, launch_stack.cluster, spec)


def _active(subject: str, raw: Unstructured) -> Finding:
    stop = (raw.get("spec") or {}).get("stopPolicy")
    condition = by_type(as_map(raw.get("status"))).get("Active") or {}
    halted = stop not in (None, "None")
    active = None if not condition else condition.get("status") == "True" and not halted
    observed = f"stopPolicy {stop}" if halted else ""
    if condition and condition.get("status") != "True":
        said = f"not active: {condition.get('reason')}: {condition.get('message')}"
        observed = f"{observed}; {said}" if observed else said
    observed = observed or ("Active" if active else "it has no condition Active yet")
    return compared(subject, False if halted else active, observed, "Active", "queue.stopped")


def total(spec: TrialSpec) -> dict[str, Decimal]:
    """Return the sum of the requests of all pods of the trial, as a queue counts it."""
    asked = resources(spec)
    each = {**(asked.get("limits") or {}), **(asked.get("requests") or {})}
    amounts = {name: quantity(str(text)) for name, text in each.items()}
    totals = {name: amount * spec.nodes for name, amount in amounts.items() if amount is not None}
    if spec.launcher == "mpijob":  # the launcher pod is an additional pod of the job
        for name, text in MPI_LAUNCHER.items():
            totals[name] = totals.get(name, Decimal(0)) + (quantity(text) or Decimal(0))
    return totals


def _quota(subject: str, cluster: Unstructured, spec: TrialSpec) -> Iterator[Finding]:
    """Judge whether every resource of the pods is covered, and some flavor can hold all pods at some time."""
    offered = shares(cluster)
    for name, needed in total(spec).items():
        if name not in offered:
            expected = f"{name} is covered: Kueue admits no job that requests resources outside its queue"
            yield failed(subject, f"{name} is in no resource group", expected, "queue.uncovered")
            continue
        # Pods of one set take one flavor. They may fit if any flavor could hold them, or if a cohort lends without
        # limit.
        most = [share.most for share in offered[name]]
        fits = any(amount is None or amount >= needed for amount in most)
        best = max((amount for amount in most if amount is not None), default=Decimal(0))
        observed = f"{name} fits" if fits else f"at most {best:f} {name} in one flavor"
        yield compared(subject, fits, observed, f"{needed:f} {name} for {spec.nodes} pods", "queue.quota-short")


def _topologies(launch_stack: LaunchStack, nodes: Sequence[Node], needed: int) -> Iterator[Finding]:
    """Judge the topology of each flavor that matches a node of the pool; others do not apply to this trial."""
    topologies = launch_stack.topologies
    members = {each.flavor: [n for n in nodes if each.labels.items() <= n.labels.items()] for each in topologies}
    for each in topologies:
        if members[each.flavor]:
            yield _placeable(each, members[each.flavor], needed)
    if topologies and not any(members.values()) and len(topologies) == len(flavors_of(launch_stack.cluster)):
        named = ", ".join(f"resourceflavor/{each.flavor}" for each in topologies)
        yield unknown(named, "no visible node of the pool belongs to it", "a flavor of the pool's nodes")


def _placeable(topology: FlavorTopology, members: Sequence[Node], needed: int) -> Finding:
    """Judge whether Kueue can place pods by a flavor's topology: it ignores nodes that lack the label of a level.

    https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/
    """
    subject = f"resourceflavor/{topology.flavor}"
    if topology.levels is None:
        observed = f"topology {topology.name} does not exist"
        return failed(subject, observed, "a Topology of this name", "queue.topology")
    placeable = [node for node in members if all(node.labels.get(label) for label in topology.levels)]
    lacking = [label for label in topology.levels if not any(node.labels.get(label) for node in members)]
    observed = f"{len(placeable)} of {len(members)} nodes have {', '.join(topology.levels)}"
    if lacking:
        observed += f"; none has {', '.join(lacking)}"
    enough = min(needed, len(members))  # other checks report too few nodes
    expected = f"{enough} nodes of the flavor with a label for each level of topology {topology.name}"
    return compared(subject, len(placeable) >= enough, observed, expected, "queue.topology")


def hardware_findings(launch_stack: LaunchStack, nodes: Sequence[Node], spec: TrialSpec) -> Iterator[Finding]:
    """Judge whether the GPU nodes of each flavor are of one kind.

    Kueue selects nodes by labels only; no pod of the trial is scheduled outside of its own selector. ``nodes``: all
    nodes of the cluster.
    """
    for flavor in launch_stack.flavors:
        wanted, open_to = {**flavor.labels, **spec.node_selector}, (*spec.tolerations, *flavor.tolerations)
        kinds = Counter(
            kind
            for node in nodes
            if selected(node, wanted) and all(tolerated(taint, open_to) for taint in node.taints)
            for resource in ACCELERATORS
            if resource in flavor.covers and node.capacity.get(resource, 0) > 0
            for kind in (product(node) or resource,)
        )
        if kinds:
            observed = ", ".join(
                f"{kind} ({count} {'node' if count == 1 else 'nodes'})" for kind, count in sorted(kinds.items())
            )
            labels = ", ".join(f"{key}={value}" for key, value in flavor.labels.items()) or "none"
            expected = f"one kind of GPU nodes (nodeLabels of the flavor: {labels})"
            subject = f"resourceflavor/{flavor.name}"
            yield compared(subject, len(kinds) == 1, observed, expected, "queue.unlike-hardware")


def _volcano(launch_stack: LaunchStack, spec: TrialSpec) -> Iterator[Finding]:
    name = (spec.queue.name if spec.queue else "") or "default"
    subject = f"queue/{name}"
    if "volcano" in launch_stack.not_seen:
        return
    if launch_stack.volcano is None:
        yield failed(subject, "does not exist", "a Volcano Queue of this name", "queue.missing")
        return
    state = str((launch_stack.volcano.get("status") or {}).get("state") or "Open")
    yield compared(subject, state == "Open", state, "Open", "queue.stopped")
    capability = (launch_stack.volcano.get("spec") or {}).get("capability") or {}
    for resource, needed in total(spec).items():
        limit = quantity(str(capability[resource])) if resource in capability else None
        if limit is not None and limit < needed:
            expected = f"{needed:f} {resource} for {spec.nodes} pods"
            yield failed(subject, f"capability {limit:f} {resource}", expected, "queue.quota-short")


def admitted_findings(trial: TrialResult, spec: TrialSpec) -> Iterator[Finding]:
    """Judge how the queue admitted the trial: all pods or none, and why."""
    queue, failed = trial.queue, trial.analysis
    named = f"{spec.queue.kind} {spec.queue.name or 'default'}" if spec.queue else "queue"
    out = queue is None or queue.admitted_s is None
    if failed is not None and (
        failed.fault in KEPT_OUT or (failed.disrupted and (out or "Evicted" in failed.observed))
    ):
        yield Finding(
            subject=failed.subject or named,
            ok=False if failed.err_class == "ERR_INFRA" else None,
            observed=failed.observed,
            expected=failed.expected,
            fault=failed.fault,
        )
        return
    if queue is None or queue.admitted_s is None:
        why = queue.not_seen if queue and queue.not_seen else f"the job ended as {trial.state} before it was admitted"
        yield unknown(named, why, "the queue admits the job")
        return
    placed = sum(1 for replica in trial.replicas if replica.node and replica.index < spec.nodes)
    through = f" through {queue.cluster_queue}" if queue.cluster_queue else ""
    observed = f"admitted after {queue.admitted_s:.0f} s{through}, {placed} of {spec.nodes} pods placed"
    # If all pods of an admitted job lack a node, the fault is the pods' own and more specific (job.started).
    kept_whole = placed == spec.nodes or (not placed and failed is not None and bool(failed.fault))
    yield proven(queue.subject or named, kept_whole, observed, "admitted as a whole: all pods or none")


def gang_refusal(
    launch_stack: LaunchStack, spec: TrialSpec, nodes: Iterable[Node], pods: Iterable[PodUse], *, on_demand: bool
) -> str:
    """Explain why a job that cannot fit must not be submitted here; '' if it does no harm."""
    if spec.queue is None:
        return "pods without a queue are not gang-scheduled: each starts when it finds a node"
    if on_demand:
        return "nodes come on demand here (launch.nodes_on_demand): an autoscaler could add some for it"
    if scaler := next((pod for pod in pods if pod.name.startswith(("cluster-autoscaler", "karpenter"))), None):
        return f"an autoscaler runs ({scaler}): it could add nodes for a job that does not fit"
    pools = ("karpenter.sh/", "cloud.google.com/gke-nodepool", "eks.amazonaws.com/", "kubernetes.azure.com/agentpool")
    for node in nodes:
        if label := next((key for key in node.labels if key.startswith(pools)), None):
            return f"node {node.name} belongs to a managed pool ({label}), which may grow for a job that does not fit"
    return _kueue_refusal(launch_stack) if spec.queue.kind == "kueue" else ""


def _kueue_refusal(launch_stack: LaunchStack) -> str:
    if launch_stack.cluster is None:
        return "the ClusterQueue cannot be read: such a job might block or preempt other workloads"
    spec = launch_stack.cluster.get("spec") or {}
    name = launch_stack.cluster_name
    if spec.get("queueingStrategy") == "StrictFIFO":
        return f"clusterqueue/{name} is StrictFIFO: a job that does not fit would block all behind it"
    preemption = spec.get("preemption") or {}
    policies = {key: value.get("policy") if isinstance(value, dict) else value for key, value in preemption.items()}
    if armed := [f"{key}: {value}" for key, value in policies.items() if value not in (None, "Never")]:
        return f"clusterqueue/{name} preempts ({', '.join(armed)}): such a job could preempt other workloads"
    if spec.get("cohort") or spec.get("cohortName"):
        return f"clusterqueue/{name} belongs to a cohort: such a job could borrow quota from other queues"
    if checks := spec.get("admissionChecks") or (spec.get("admissionChecksStrategy") or {}).get("admissionChecks"):
        return f"clusterqueue/{name} has admission checks ({len(checks)}): one of them may provision nodes"
    return ""


def too_many(launch_stack: LaunchStack, spec: TrialSpec, nodes: Iterable[Node]) -> int:
    """Return a number of pods that can never fit: one more than the nodes; with many nodes, one more than the quota.

    Pods without GPUs are small: if the queue's quota holds more of them than there are nodes, it is one more than the
    quota.
    """
    count = sum(1 for _ in nodes)
    if (
        (count > MANY or not spec.gpus_per_node)
        and spec.queue is not None
        and spec.queue.kind == "kueue"
        and launch_stack.cluster is not None
    ):
        each = {name: amount / spec.nodes for name, amount in total(spec).items()}
        offered = shares(launch_stack.cluster)
        rooms = [
            sum((share.nominal for share in offered[name]), Decimal(0)) // amount
            for name, amount in each.items()
            if amount > 0 and name in offered
        ]
        held = int(min(rooms, default=Decimal(0)))
        return (held if spec.gpus_per_node else max(held, count)) + 1
    return count + 1


def gang_findings(trial: TrialResult, spec: TrialSpec) -> Iterator[Finding]:
    """Judge the job that cannot fit: none of its pods may have been scheduled."""
    placed = [pod for pod in trial.pods if pod.node]
    subject = f"job of {spec.nodes} pods"
    if placed:
        observed = f"{len(placed)} of {spec.nodes} pods were placed: " + ", ".join(pod.name for pod in placed[:3])
        yield failed(subject, observed, "no pod of a job that does not fit starts", "gang.started")
        return
    kept_out = trial.analysis is not None and trial.analysis.fault in KEPT_OUT
    ended = trial.analysis.observed if trial.analysis else f"the job ended as {trial.state}"
    yield proven(subject, kept_out, f"no pod was placed; {ended}", "no pod of a job that does not fit starts")
