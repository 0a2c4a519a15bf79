"""Layer 14, launching and queueing: training's launcher and queue work, and start all pods or none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checks.framework.evidence import Evidence
from checks.framework.session import Session
from checks.profiles.loader import Profile
from checks.rules.fit import fits
from checks.rules.job import UNFIT
from checks.rules.pool import Pool
from checks.rules.queue import (
    KEPT_OUT,
    admitted_findings,
    gang_findings,
    gang_refusal,
    hardware_findings,
    present_findings,
    too_many,
)
from checks.rules.visibility import require_seen
from jobs.cluster.facts.inventory import Inventory
from jobs.run.result import TrialResult
from jobs.trial.job_spec import MOST_NODES
from jobs.trial.launch_stack import LaunchStack
from jobs.trial.spec import TrialSpec

NO_QUEUE = "the trial uses no queue: neither the profile (launch.queue) nor --queue names one"


@pytest.mark.preflight
@pytest.mark.check(
    "queue.present",
    "Training launchers and queues are installed and active",
    requires=["namespace.ready"],
    faults=[
        "launcher.missing",
        "launcher.runtime-missing",
        "mpi.wrong-version",
        "operator.down",
        "queue.missing",
        "queue.stopped",
        "queue.uncovered",
        "queue.quota-short",
        "queue.namespace",
        "queue.topology",
        "nodes.other-kind",
    ],
    needs=["nodes", "pods", "clusterqueues", "volcano-queues", "runtimes"],
)
def test_launcher_and_queue_are_there(
    launch_stack: LaunchStack, spec: TrialSpec, cluster: Inventory, pool: Pool, profile: Profile, evidence: Evidence
) -> None:
    """The launcher's kind is served, its operator runs, and its queue is active and can hold the whole job.

    The kind must be served in the operator's version. The queue must exist, cover every resource that the pods
    request (RDMA devices, too), and have quota for all pods at once. If a flavor names a topology, enough of its
    nodes must have a label for each level. A job larger than its queue waits silently; a missing operator leaves no
    event.
    """
    if spec.launcher == "indexed" and spec.queue is None:
        evidence.skip("the trial is an Indexed Job without a queue: Kubernetes itself launches it")
    fits(evidence, pool, profile)
    for what, why in launch_stack.not_seen.items():
        evidence.note(f"not seen: {what}: {why}")
    evidence.judge(present_findings(launch_stack, spec, cluster.pods, pool.nodes))


@pytest.mark.preflight
@pytest.mark.check(
    "queue.hardware",
    "Each queue flavor covers one GPU model",
    requires=["namespace.ready"],
    unless_failed=["queue.present"],
    faults=["queue.unlike-hardware"],
    needs=["nodes", "clusterqueues"],
)
def test_a_flavor_is_of_one_kind_of_nodes(
    launch_stack: LaunchStack, spec: TrialSpec, cluster: Inventory, evidence: Evidence
) -> None:
    """The nodes selected by a flavor's labels (and the pod's selector) have GPUs of one product and vendor.

    A job over two kinds runs at the pace of the slower, or fails, and the quota counts both as equal. A flavor for each
    product, with the node label that distinguishes them, keeps a job on one.
    """
    if spec.queue is None or spec.queue.kind != "kueue":
        evidence.skip("the trial uses no queue of Kueue")
    require_seen(evidence, cluster, "nodes")
    if why := launch_stack.not_seen.get("cluster") or launch_stack.not_seen.get("flavors"):
        evidence.skip(f"the queue's flavors are not seen: {why}")
    findings = list(hardware_findings(launch_stack, cluster.nodes, spec))
    if not findings:
        evidence.skip("no flavor of the queue selects nodes that offer GPUs")
    evidence.judge(findings)


@pytest.mark.acceptance
@pytest.mark.check(
    "queue.admitted",
    "The queue admits the whole job",
    requires=["rights.run", "namespace.ready"],
    unless_failed=[*UNFIT],
    faults=[*KEPT_OUT, "job.disrupted"],
    needs=["run"],
)
def test_the_queue_admits_the_trial_whole(request: pytest.FixtureRequest, spec: TrialSpec, evidence: Evidence) -> None:
    """The queue admits a job that fits, with all its pods at once.

    A partly started job holds its GPUs and waits for ever. The queue's state is read from its objects: Kueue's
    Workload, Volcano's PodGroup. A queue that is full at the moment is not judged.
    """
    if spec.queue is None:
        evidence.skip(NO_QUEUE)
    trial: TrialResult = request.getfixturevalue("trial")
    evidence.put(admitted_findings(trial, spec))
    if trial.analysis:
        evidence.advise(trial.analysis.fault, confirm=trial.analysis.confirm, remedy=trial.analysis.remedy)
        evidence.note(*filter(None, [trial.analysis.suggestion]))
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "queue.gang",
    "An oversized job starts no pods",
    requires=["queue.present", "queue.admitted"],
    faults=["gang.started"],
    needs=["run", "nodes", "pods", "clusterqueues"],
)
def test_a_gang_that_does_not_fit_starts_nothing(
    seatrial: Session,
    profile: Profile,
    spec: TrialSpec,
    cluster: Inventory,
    launch_stack: LaunchStack,
    run_trial: Callable[[TrialSpec], TrialResult],
    evidence: Evidence,
) -> None:
    """A job with more pods than the queue's quota starts none of them.

    Off by default: it could block a queue, preempt other jobs or make an autoscaler add nodes, and is refused in these
    cases. It uses the profile's own priority, for seconds only.
    """
    if not (seatrial.options.gang or profile.launch.gang_test):
        evidence.skip("off by default: enable it with --gang, or launch.gang_test in the profile")
    gpu_nodes = cluster.nodes if profile.gpu.none else cluster.gpu_nodes(profile.gpu.resource)
    refused = gang_refusal(launch_stack, spec, gpu_nodes, cluster.pods, on_demand=profile.launch.nodes_on_demand)
    if refused:
        evidence.skip(f"not tried: {refused}")
    pods = too_many(launch_stack, spec, gpu_nodes)
    if pods > MOST_NODES:
        evidence.skip(f"not tried: the queue's quota covers {pods - 1} such pods, and a job has at most {MOST_NODES}")
    too_large = seatrial.gang_spec(spec, pods)
    evidence.judge(gang_findings(run_trial(too_large), too_large))
