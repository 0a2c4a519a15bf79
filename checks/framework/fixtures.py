"""The fixtures that a check requests: facts of a run, each read once, on first use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from checks.framework import attaching
from checks.framework.attaching import LEFT
from checks.framework.evidence import CannotTell, Evidence
from checks.framework.session import SESSION, Session
from checks.framework.sweep_spec import BegunSweep
from checks.profiles.loader import Profile
from checks.rules.admission import Admission
from checks.rules.pool import Pool
from checks.rules.rights import Answers
from checks.rules.swept import Swept
from checks.rules.topology import AskKubelets
from checks.rules.training import Member
from jobs.cluster.client.kube import Kube
from jobs.cluster.facts.claims import Claim, Class, Definitions
from jobs.cluster.facts.conditions import Report
from jobs.cluster.facts.inventory import Inventory
from jobs.cluster.facts.stack import Listing
from jobs.run.launcher import Launcher
from jobs.run.result import TrialResult
from jobs.trial.launch_stack import LaunchStack
from jobs.trial.parts import BETWEEN_NODES_S
from jobs.trial.spec import TrialSpec
from reports.record import Finding
from reports.schema import RecordedSweep
from seatrial.logs.job_document import JobDocument


@pytest.fixture(scope="session")
def seatrial(request: pytest.FixtureRequest) -> Session:
    """Return the session of this run; checks use the more specific fixtures."""
    return request.config.stash[SESSION]


@pytest.fixture(scope="session")
def kube(seatrial: Session) -> Kube:
    """Return the connection to the cluster."""
    return seatrial.kube


@pytest.fixture(scope="session")
def profile(seatrial: Session) -> Profile:
    """Return the profile: the requirements on this cluster."""
    return seatrial.profile


@pytest.fixture(scope="session")
def cluster(seatrial: Session) -> Inventory:
    """Return one snapshot of nodes and pods."""
    from jobs.cluster.facts.inventory import Inventory  # noqa: PLC0415 -- collection stays light

    if seatrial.tenant:
        return Inventory.of_tenant()
    seatrial.clear()
    from jobs.run.job_lookup import with_runners  # noqa: PLC0415

    with seatrial.progress.doing("reading nodes and pods"):
        inventory = Inventory.read_settled(seatrial.kube, selector=seatrial.options.nodes)
        inventory = with_runners(seatrial.kube, inventory, watched=seatrial.leases_watched)
    seatrial.run.not_seen += inventory.not_seen.values()
    seatrial.nodes |= {node.name for node in inventory.nodes}
    return inventory


@pytest.fixture(scope="session")
def gpu_pool(cluster: Inventory, profile: Profile, seatrial: Session) -> Pool:
    """Return the GPU nodes that the profile selects, and the reasons why the other nodes are excluded."""
    from checks.rules.pool import pool_of  # noqa: PLC0415 -- collection stays light

    if "nodes" not in cluster.not_seen:  # nodes that --on leaves out belong to the pool, and are not tried
        seatrial.run.pool = tuple(node.name for node in pool_of(cluster, profile).nodes)
    return pool_of(cluster, profile, seatrial.options.on)


@pytest.fixture
def pool(gpu_pool: Pool, evidence: Evidence) -> Pool:
    """Return the nodes of the pool on which the prerequisites of this check hold."""
    return gpu_pool.without(evidence.withheld)


@pytest.fixture(scope="session")
def managed(profile: Profile) -> str:
    """Return the setting that makes driver and toolkit the provider's responsibility; '' without one."""
    from checks.rules.runtime import managed  # noqa: PLC0415 -- collection stays light

    return managed(profile, os.environ)


@pytest.fixture
def skip_managed_nodes(profile: Profile, evidence: Evidence) -> None:
    """Skip checks of driver and toolkit if these are the provider's responsibility."""
    from checks.rules.runtime import skip_if_managed  # noqa: PLC0415 -- collection stays light

    skip_if_managed(profile, os.environ, evidence)


@pytest.fixture
def skip_unseen_gpus(managed: str, trial: TrialResult, evidence: Evidence) -> None:
    """Skip checks that need the driver's tool if the provider's driver puts none into the pods."""
    from checks.rules.runtime import skip_if_unseen  # noqa: PLC0415 -- collection stays light

    skip_if_unseen(managed, trial, evidence)


@pytest.fixture(scope="session")
def answers(kube: Kube) -> Answers:
    """Return the access reviews of this run; each permission is reviewed once."""
    from checks.rules.rights import Answers  # noqa: PLC0415 -- collection stays light

    return Answers(kube)


@pytest.fixture(scope="session")
def kubelets(kube: Kube, answers: Answers) -> AskKubelets:
    """Return a reader of kubelet configurations, which returns None if the account lacks the permission."""
    from checks.rules.rights import CONFIGZ  # noqa: PLC0415 -- collection stays light
    from jobs.cluster.facts.kubelets import topology_managers  # noqa: PLC0415

    return lambda nodes: topology_managers(kube, nodes) if answers.ask([CONFIGZ])[0][1].allowed else None


@pytest.fixture(scope="session")
def admission(seatrial: Session, kube: Kube, spec: TrialSpec) -> Admission:
    """Return the server's response to a dry run of the trial's pod."""
    from checks.rules.admission import try_pods  # noqa: PLC0415 -- collection stays light
    from jobs.trial.manifests import build, dry_pod  # noqa: PLC0415
    from jobs.trial.payload import files  # noqa: PLC0415

    seatrial.clear()
    return try_pods(kube, dry_pod(spec), build(spec, files()).job, pods=spec.nodes)


@pytest.fixture(scope="session")
def listed(seatrial: Session) -> Callable[[str], Listing]:
    """Return a function that lists a custom resource of the GPU stack by its plural, each once."""
    from jobs.cluster.facts.stack import KINDS, Listing, listing  # noqa: PLC0415 -- collection stays light

    known: dict[str, Listing] = {}

    def read(resource: str) -> Listing:
        if resource not in known:
            hidden = Listing(hidden="not readable by a tenant")
            known[resource] = hidden if seatrial.tenant else listing(seatrial.kube, resource, *KINDS[resource])
        return known[resource]

    return read


@pytest.fixture(scope="session")
def warned_nodes(seatrial: Session) -> tuple[list[Report], str]:
    """Return the newest Warning events about nodes, and the reason if they cannot be listed."""
    from jobs.cluster.facts.conditions import warned  # noqa: PLC0415 -- collection stays light

    return ([], "not readable by a tenant") if seatrial.tenant else warned(seatrial.kube)


@pytest.fixture(scope="session")
def networks(seatrial: Session, spec: TrialSpec) -> tuple[Definitions, str]:
    """Return the network definitions that the pods name, and the reason if they cannot be listed."""
    from checks.rules.rdma_offer import named_networks  # noqa: PLC0415 -- collection stays light
    from jobs.cluster.facts.claims import definitions  # noqa: PLC0415

    asked = named_networks(spec.annotations, spec.namespace)
    return definitions(seatrial.kube, asked, tenant=seatrial.tenant)


@pytest.fixture(scope="session")
def resources_here(cluster: Inventory, spec: TrialSpec, request: pytest.FixtureRequest) -> frozenset[str]:
    """Return the resources of this cluster that a tenant can see; empty if nodes can be listed."""
    from checks.rules.fit import known_here  # noqa: PLC0415 -- collection stays light

    if "nodes" not in cluster.not_seen:
        return frozenset()
    admission, (networks_defined, _) = request.getfixturevalue("admission"), request.getfixturevalue("networks")
    return known_here(cluster, admission.granted, networks_defined, spec)


@pytest.fixture(scope="session")
def volumes(seatrial: Session, profile: Profile) -> tuple[dict[str, Claim], dict[str, Class]]:
    """Return the PVCs and StorageClasses that the profile names; a tenant cannot read StorageClasses."""
    from jobs.cluster.facts.claims import read  # noqa: PLC0415 -- collection stays light

    asked = profile.storage
    claims = [path.claim for path in asked.paths if path.claim]
    return read(seatrial.kube, claims, asked.classes, tenant=seatrial.tenant)


@pytest.fixture(scope="session")
def spec(seatrial: Session, request: pytest.FixtureRequest) -> TrialSpec:
    """Return the trial that the acceptance runs; without a profile it is sized from the nodes."""
    if seatrial.profile.gpu.per_node is not None:
        return seatrial.trial_spec()
    return seatrial.trial_spec(request.getfixturevalue("cluster"), request.getfixturevalue("listed"))


@pytest.fixture(scope="session")
def launch_stack(seatrial: Session, spec: TrialSpec) -> LaunchStack:
    """Return the launch stack of the trial: its kind, its runtime, its queue."""
    from jobs.trial.launch_stack import read_launch_stack  # noqa: PLC0415 -- collection stays light

    return read_launch_stack(seatrial.kube, spec)


@pytest.fixture(scope="session")
def run_trial(seatrial: Session) -> Callable[[TrialSpec], TrialResult]:
    """Return a launcher for an additional job, for the few checks that the trial cannot decide."""
    from jobs.run.launcher import Launcher  # noqa: PLC0415 -- collection stays light

    return Launcher(
        seatrial.kube, progress=seatrial.progress, ledger=seatrial.ledger, sees_nodes=not seatrial.tenant
    ).run


def _launcher(seatrial: Session, room: Callable[[TrialSpec, TrialResult], str] | None = None) -> Launcher:
    """Return a launcher that keeps the logs of its jobs, and records them if requested.

    ``room`` returns, after an interruption, whether there is room for another attempt.
    """
    from checks.framework.outfolder import LOGS  # noqa: PLC0415
    from jobs.run.launcher import Launcher  # noqa: PLC0415 -- collection stays light

    out = seatrial.options.out
    return Launcher(
        seatrial.kube,
        progress=seatrial.progress,
        ledger=seatrial.ledger,
        logs=out / LOGS if out else None,
        sees_nodes=not seatrial.tenant,
        recorders=seatrial.recorders if seatrial.options.record else None,
        room=room,
    )


def _room_again(seatrial: Session, before: Inventory, pool: Pool, spec: TrialSpec, trial: TrialResult) -> str:
    """List the nodes again; explain why they have no room for another attempt."""
    from checks.rules.capacity import no_room, rooms  # noqa: PLC0415 -- collection stays light
    from checks.rules.pool import pool_of  # noqa: PLC0415
    from jobs.cluster.client.errors import ClusterError  # noqa: PLC0415
    from jobs.cluster.facts.inventory import Inventory  # noqa: PLC0415

    if seatrial.tenant or seatrial.profile.launch.nodes_on_demand:
        return ""  # only the scheduler, or the autoscaler, knows which nodes have room
    try:
        now = Inventory.read_settled(seatrial.kube, selector=seatrial.options.nodes)
    except ClusterError:
        return ""
    then = rooms(before, pool.nodes, spec, pool.parts)
    return no_room(then, now, pool_of(now, seatrial.profile, seatrial.options.on), spec, trial)


def _detach(seatrial: Session, spec: TrialSpec, begun: str) -> TrialResult:
    """Leave the trial and all remaining checks to `job attach`. Return the reason if the cluster refused the trial."""
    if not begun:
        raise CannotTell("the preflight's results are too large for a ConfigMap: run it without --detach")
    refused = _launcher(seatrial).detach(spec, begun)
    if refused is not None:
        return refused
    own = attaching.own_profile(seatrial.options.profile)
    seatrial.run.trial = {
        "job": spec.job_name,
        "image": spec.image,
        "attach": f"seatrial job attach -n {spec.namespace} {spec.job_name}" + (f" --profile {own}" if own else ""),
        "kept_s": spec.deadlines.ttl_s,
    }
    pytest.skip(LEFT)


def _expect(seatrial: Session, spec: TrialSpec) -> None:
    """Pass the collectives that will run, and their floors, to the progress display."""
    from checks.profiles.trial import DEFAULT  # noqa: PLC0415 -- collection stays light
    from checks.rules.bandwidth import COLLECTIVE, floors_of  # noqa: PLC0415

    profile = seatrial.profile
    floors: dict[str, dict[int, float]] = {}
    for each in spec.collectives:
        alone = each.scope == "node"
        known = profile.floor(COLLECTIVE, DEFAULT, 1) if alone else floors_of(profile, each.name, spec.nodes)
        floors[each.name] = {int(floor.size): floor.busbw_gbps for floor in known}
    seatrial.progress.expect([each.name for each in spec.collectives], floors)
    if spec.dcgm and spec.dcgm.cost:
        seatrial.progress.note(spec.dcgm.cost)
    shared = [path.path for path in spec.storage if path.shared and path.write]
    if shared and spec.nodes > 1:
        seatrial.progress.note(
            f"Locks, renames and small files are tried between the nodes on {', '.join(shared)}: a second or two each, "
            f"at most {BETWEEN_NODES_S:.0f} s"
        )
    if spec.perftest and spec.perftest.cost:
        seatrial.progress.note(spec.perftest.cost)


@pytest.fixture(scope="session")
def trial_run(seatrial: Session, spec: TrialSpec, cluster: Inventory, gpu_pool: Pool) -> TrialResult:
    """Run the trial job on first use, on nodes that no check has found unfit."""
    from checks.framework.failures import failure_of  # noqa: PLC0415
    from checks.profiles.trial import recorded_pod  # noqa: PLC0415
    from checks.rules.capacity import placed  # noqa: PLC0415 -- collection stays light
    from checks.rules.checkpoint import section  # noqa: PLC0415
    from checks.rules.ranks import dns_seconds, hosts, node_of, pods  # noqa: PLC0415
    from jobs.run.result import timeline  # noqa: PLC0415

    seatrial.clear()
    _expect(seatrial, spec)
    if seatrial.begun:
        if why := attaching.same_trial(seatrial, spec):
            raise CannotTell(why)
        result = _launcher(seatrial).attach(spec)
    else:
        asked, begun = placed(cluster, gpu_pool, spec, seatrial.unfit), attaching.left_behind(seatrial)
        launcher = _launcher(seatrial, partial(_room_again, seatrial, cluster, gpu_pool))
        result = _detach(seatrial, asked, begun) if seatrial.options.detach else launcher.run(asked, begun=begun)
    seatrial.trial_nodes |= {node for rank in range(spec.nodes) if (node := node_of(result, rank))}
    seatrial.nodes |= seatrial.trial_nodes
    seatrial.run.trial = {
        "job": result.job,
        "image": spec.image,
        "nodes": spec.nodes,
        "pod": recorded_pod(spec),
        "pods": pods(result),
        "hosts": hosts(result),
        "dns_seconds": dns_seconds(result),
        "timeline": timeline(result),
    }
    if result.interrupted:
        seatrial.run.trial["interrupted"] = list(result.interrupted)
    seatrial.run.checkpoint = section(result, spec) if spec.checkpoint else None
    if result.analysis:  # the class depends on its exit code or reason, which the catalogue does not know
        seatrial.run.trial["failure"] = {"fault": result.analysis.fault, "failure": failure_of(result.analysis)}
    return result


@pytest.fixture(scope="session")
def swept(
    seatrial: Session,
    spec: TrialSpec,
    cluster: Inventory,
    gpu_pool: Pool,
    kept: Callable[[Collection[str]], tuple[Finding, ...]],
) -> Swept:
    """Run the sweep on first use, over all free nodes of the pool that no check has found unfit."""
    from checks.framework.sweep_run import run_sweep  # noqa: PLC0415
    from checks.framework.sweep_spec import begin, end  # noqa: PLC0415 -- collection stays light
    from checks.profiles.trial import recorded_pod  # noqa: PLC0415
    from checks.rules.swept import with_findings  # noqa: PLC0415
    from jobs.run.result import timeline  # noqa: PLC0415

    seatrial.clear()
    out, earlier = seatrial.options.out, seatrial.earlier

    def remember(sweep: BegunSweep) -> None:
        if out:
            try:
                begin(out, seatrial.run, sweep)
            except OSError as error:  # the sweep is judged anyway
                seatrial.progress(f"--resume cannot continue from {out}, which cannot be written: {error.strerror}")

    ran: list[TrialResult] = []
    if spec.dcgm and spec.dcgm.cost:
        seatrial.progress.note(spec.dcgm.cost)

    def run(made: TrialSpec) -> TrialResult:
        ran.append(_launcher(seatrial).run(made))
        return ran[-1]

    result = run_sweep(
        run, spec, cluster, gpu_pool, seatrial.profile, seatrial.options, seatrial.unfit, earlier, remember
    )
    # A node with interrupted tests is not proven, whatever its state now: sweep.ran names it.
    after = kept(set(result.tested) - result.blame.not_tested.keys())
    wrong = {finding.subject: [finding] for finding in after if finding.ok is not True}
    result = with_findings(replace(result, kept=after), wrong)
    if out:
        with contextlib.suppress(OSError):  # write errors are reported at the end
            end(out)
    seatrial.trial_nodes |= set(result.tested)
    seatrial.nodes |= set(result.asked)
    # As in a trial, the nodes on which pods ran count as tried; the sweep reports which of them were tested.
    hosts = {node: node for node in (*result.tested, *sorted(ran[-1].ran))}
    seatrial.run.trial = {
        "job": result.job,
        "image": spec.image,
        "pod": recorded_pod(spec),
        "hosts": hosts,
        "timeline": timeline(ran[-1]),
    }
    seatrial.run.sweep = cast("RecordedSweep", result.section)
    return result


@pytest.fixture(scope="session")
def kept(
    seatrial: Session, spec: TrialSpec, profile: Profile, cluster: Inventory
) -> Callable[[Collection[str]], tuple[Finding, ...]]:
    """Read this run's nodes again, and compare their devices with those before."""
    from checks.rules.findings import unknown  # noqa: PLC0415 -- collection stays light
    from checks.rules.nodes import kept, offered_before  # noqa: PLC0415
    from jobs.cluster.client.errors import ClusterError  # noqa: PLC0415
    from jobs.cluster.facts.inventory import Inventory  # noqa: PLC0415

    def compare(tried: Collection[str]) -> tuple[Finding, ...]:
        if "nodes" in cluster.not_seen:
            return ()
        before = offered_before(cluster, profile, spec, begun=seatrial.begun is not None)
        try:
            now = Inventory.read_nodes(seatrial.kube, tried)
        except ClusterError as error:
            return tuple(unknown(node, f"it could not be read after the trial: {error}") for node in sorted(tried))
        return tuple(kept(tried, now, spec.gpu_resource, before))

    return compare


@pytest.fixture
def trial(trial_run: TrialResult, evidence: Evidence) -> TrialResult:
    """Return the trial: its state, its pods, and the evidence of ranks on nodes where the prerequisites hold."""
    from checks.rules.ranks import place  # noqa: PLC0415 -- collection stays light

    if not evidence.withheld:
        return trial_run
    evidence_left = {
        rank: e for rank, e in trial_run.evidence.items() if place(trial_run, rank) not in evidence.withheld
    }
    return replace(trial_run, evidence=evidence_left)


@pytest.fixture(scope="session")
def node_jobs(seatrial: Session, trial_run: TrialResult, profile: Profile) -> dict[int, Any]:
    """Return the analyzer's job document of each node alone, by rank."""
    from checks.rules.collectives import conclude_nodes  # noqa: PLC0415 -- collection stays light
    from checks.rules.ranks import place  # noqa: PLC0415

    jobs = conclude_nodes(trial_run, profile)
    seatrial.run.intra_node = {place(trial_run, rank): job for rank, job in jobs.items()}
    return jobs


@pytest.fixture(scope="session")
def training_ranks(seatrial: Session, trial_run: TrialResult, spec: TrialSpec, profile: Profile) -> list[Member]:
    """Return the ranks of the training steps, with their measurements; the record keeps their medians."""
    from checks.rules.training import members  # noqa: PLC0415 -- collection stays light
    from checks.rules.training_pace import pace, section  # noqa: PLC0415

    ranks = members(trial_run, spec)
    seatrial.run.training = section(ranks, pace(ranks), profile.training) if ranks else None
    return ranks


@pytest.fixture(scope="session")
def nccl_jobs(
    seatrial: Session, trial_run: TrialResult, spec: TrialSpec, profile: Profile
) -> dict[str, JobDocument | None]:
    """Return the analyzer's job document of each collective over all nodes; None where a rank sent no analysis."""
    from checks.rules.bandwidth import floors_of  # noqa: PLC0415 -- collection stays light
    from checks.rules.collectives import conclude_collectives  # noqa: PLC0415

    jobs = conclude_collectives(trial_run, profile)
    seatrial.run.collectives = jobs
    seatrial.run.floors = {
        name: [{"size_bytes": f.size, "busbw_gbps": f.busbw_gbps, "source": f.source} for f in floors]
        for name in jobs
        if (floors := floors_of(profile, name, spec.nodes))
    }
    return jobs
