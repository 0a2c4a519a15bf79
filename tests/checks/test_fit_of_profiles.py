"""Every shipped profile on every platform of the lab, before a trial starts.

A profile of other machines never reports a cluster fault and says that it does not fit; the platform's own profile
passes.
"""

import functools
import inspect
from collections import Counter
from types import SimpleNamespace

import pytest

from checks import test_nodes as nodes
from checks import test_rdma as rdma
from checks import test_stack as stack
from checks.framework.evidence import CannotTell, CheckFailed, Evidence
from checks.framework.options import Options
from checks.framework.trial_spec import build_spec
from checks.profiles.loader import load_profile, profile_names, without_gpus
from checks.rules.fit import known_here, undefined, unstarted
from checks.rules.pool import pool_of
from checks.rules.rdma_offer import named_networks
from jobs.cluster.facts.inventory import Inventory, read_node
from jobs.cluster.facts.stack import Listing, names
from lab import operators
from lab.apiserver.store import ApiError, Store
from lab.scenario import load, platform_names
from lab.world import World

NO_PROFILE = {"kind-cpu", "small-unknown", "dra-unknown"}
PLATFORMS = sorted(set(platform_names()) - NO_PROFILE)
HEALTHY = {"h100-ib": "healthy", "p5-efa": "healthy-efa", "h200-roce": "healthy-roce"}
GKE, MULTUS = "networks.networking.gke.io", "network-attachment-definitions.k8s.cni.cncf.io"
KINDS = {"deviceclasses": "deviceclasses.resource.k8s.io", "resourceslices": "resourceslices.resource.k8s.io"}
ORDER = {
    "nodes.gpu": nodes.test_gpu_nodes_are_ready,
    "stack.dra": stack.test_dra_knows_every_gpu,
    "gpu.allocatable": nodes.test_every_gpu_node_offers_all_its_gpus,
    "rdma.allocatable": rdma.test_every_node_offers_the_rdma_devices,
    "rdma.networks": rdma.test_the_networks_are_defined,
}
"""Each check except the last runs only if its prerequisites passed (``requires``, ``unless_failed``)."""


@functools.cache
def world(platform):
    """Return a platform's objects as a store."""
    store = Store()
    scenario = load(HEALTHY.get(platform, f"healthy-{platform}"))
    World(store, scenario.world, lambda node, pod: f"10.{node}.0.{pod}").furnish()
    operators.start(store, scenario.world)
    return store


def given(platform, profile):
    """Return the facts of a platform, read from its objects."""
    store = world(platform)
    spec = build_spec(profile, Options(), run_id="abc", namespace="default")
    cluster = Inventory(tuple(read_node(item) for item in store.list("nodes")), ())

    def listed(plural):
        return Listing(tuple(store.list(KINDS[plural])))

    def defined(space, name):
        try:
            return store.get(MULTUS if space else GKE, space or None, name)
        except ApiError:
            return None  # the kind is not served

    definitions = {key: defined(*key) for key in named_networks(spec.annotations, spec.namespace)}
    return {
        "cluster": cluster,
        "pool": pool_of(cluster, profile),
        "profile": profile,
        "spec": spec,
        "listed": listed,
        "networks": (definitions, ""),
        "seatrial": SimpleNamespace(options=Options()),
    }


def judged(facts):
    """Return each check's outcome: passed, skipped, blocked, failed, or the fault of an undetermined one."""
    ends = {}
    for name, check in ORDER.items():
        if name != "rdma.networks" and any(end not in ("passed", "skipped") for end in ends.values()):
            ends[name] = "blocked"
            continue
        evidence = Evidence()
        try:
            check(**{key: facts[key] for key in inspect.signature(check).parameters if key in facts}, evidence=evidence)
            ends[name] = "passed"
        except pytest.skip.Exception:
            ends[name] = "skipped"
        except CannotTell as end:
            ends[name] = end.fault or "unknown"
        except CheckFailed as end:
            ends[name] = f"failed: {end}"
    return ends


SAME = {"gb200-net": "gb200-mnnvl"}
"""A profile for another fabric of the same machines."""


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("name", [name for name in profile_names() if not without_gpus(name)])
def test_a_profile_of_other_machines_raises_no_fault(name, platform):
    ends = judged(given(platform, load_profile(name)))
    if SAME.get(name, name) == platform:
        assert set(ends.values()) <= {"passed", "skipped"}
    else:
        assert not [end for end in ends.values() if end.startswith("failed")]
        uncounted = "nvidia.com/gpu.count" not in given(platform, load_profile(name))["cluster"].nodes[0].labels
        unclear = {"nodes.other-kind", "gpu.oversubscribed"} if uncounted else {"nodes.other-kind"}  # or GPU partitions
        assert unclear & {*ends.values()}


def refusal(nodes, spec, classes):
    """Return the scheduler's message if no pod of the trial can be placed, else ''."""
    reasons = []
    requests = {**spec.resources, **({spec.gpu_resource: spec.gpus_per_node} if spec.gpu_resource else {})}
    tolerated = {each.get("key") for each in spec.tolerations}
    for node in nodes:
        own = [f"Insufficient {name}" for name, count in requests.items() if count > node.allocatable.get(name, 0)]
        own += [f"device class {c.device_class} does not exist" for c in spec.claims if c.device_class not in classes][
            :1
        ]
        if any(taint.key not in tolerated for taint in node.taints):
            own = ["node(s) had untolerated taint(s)"]
        elif any(node.labels.get(key) != value for key, value in spec.node_selector.items()):
            own = ["node(s) didn't match Pod's node affinity/selector"]
        if not own:
            return ""
        reasons += own
    counted = ", ".join(sorted(f"{count} {reason}" for reason, count in Counter(reasons).items()))
    return f"0/{len(nodes)} nodes are available: {counted}."


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("name", profile_names())
def test_a_tenants_profile_of_other_machines_raises_no_fault(name, platform):
    """Without visible nodes, the evidence is network definitions and the scheduler's message.

    A message about GPUs or taints alone would apply to any job, whatever its profile.
    """
    facts = given(platform, load_profile(name))
    spec, profile, (networks, _) = facts["spec"], facts["profile"], facts["networks"]
    hidden = Inventory((), (), {"nodes": "not readable by a tenant"})
    own = {key: item for key, item in networks.items() if key[0]}  # Google's networks have no namespace
    text = refusal(facts["cluster"].nodes, spec, names(facts["listed"]("deviceclasses")))
    failed = SimpleNamespace(observed=text, events=(), disrupted=False)
    trial = SimpleNamespace(analysis=failed if text else None, replicas=())
    reason = (own and undefined(own, hidden, profile)) or unstarted(
        trial, spec, hidden, profile, known_here(hidden, (), own, spec)
    )
    if name == platform:
        assert (text, reason) == ("", "")
    else:
        common = {f"Insufficient {spec.gpu_resource}", "node(s) had untolerated taint(s)"}
        reasons = {each.partition(" ")[2] for each in text.partition(": ")[2].rstrip(".").split(", ")}
        assert reason or reasons - {""} <= common, text
