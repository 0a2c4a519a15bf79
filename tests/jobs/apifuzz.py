"""Mutated API objects for everything that reads API objects: exceptions and wrong greens.

Objects of the lab and recordings of a real cluster are changed as no API server would: other types, removed keys, null,
negative and huge numbers, nested lists, megabytes of text. Each goes through the client into facts and judgements, and
past the client into the readers themselves. `trouble` reports problems; there should be none.
"""

from __future__ import annotations

import copy
import json
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checks.profiles.loader import Profile, load_profile
from checks.profiles.trial import spec_of
from checks.rules import admission, nodes, quota
from checks.rules import stack as gpu_stack
from checks.rules.api import contact
from checks.rules.capacity import rooms
from checks.rules.pool import pool_of
from jobs.cluster.client.answers import resource_of
from jobs.cluster.client.errors import ClusterError, NotFound
from jobs.cluster.client.http_client import Response
from jobs.cluster.client.kube import Kube, path
from jobs.cluster.facts import claims, stack
from jobs.cluster.facts.events import read_events
from jobs.cluster.facts.inventory import Inventory, read_node, read_pod
from jobs.cluster.facts.namespace import namespace_state
from jobs.cluster.unstructured import as_map
from jobs.diagnosis.podfacts import pod_facts
from jobs.diagnosis.state import JobState
from jobs.diagnosis.verdict import diagnose
from jobs.trial.launch_stack import shares
from jobs.trial.launchers import KINDS
from jobs.trial.manifests import dry_pod
from reports.record import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

RECORDINGS = Path(__file__).parent / "data" / "recordings"
Object = dict[str, Any]

STRANGE: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    -(2**63),
    2**70,
    1.5,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "x",
    "-8",
    "8",
    "1e99",
    "9" * 70,
    "True",
    "\x00\u202e",
    "ü" * 3000,
    [],
    [None],
    [[]],
    [[[1]]],
    [{}],
    ["a", 1],
    {},
    {"a": None},
    {"": {}},
    {"name": []},
    {"type": {}},
    "2026-13-45T99:00:00Z",
    "9999-12-31T23:59:59+14:00",
    "0001-01-01T00:00:00-14:00",
)


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value below a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*above, key)
        yield from places(each, (*above, key))


def mutated(
    item: Object, rng: random.Random, *, times: int = 1, types_only: bool = False, large: bool = False
) -> Object:
    """Return a copy with this many changes; ``types_only``: each change replaces a value by one of another type."""
    copied = copy.deepcopy(item)
    for _ in range(times):
        known = [place for place in places(copied) if place not in (("kind",), ("apiVersion",))]
        if not known:
            return copied
        *way, last = rng.choice(known)
        holder: Any = copied
        for key in way:
            holder = holder[key]
        kind = rng.random()
        if types_only:
            holder[last] = rng.choice([each for each in STRANGE if each is not None and not _alike(each, holder[last])])
        elif kind < 0.2 and isinstance(holder, dict):
            del holder[last]
        elif kind < 0.25 and large:
            holder[last] = "x" * (1 << 20)
        elif kind < 0.3:
            holder[last] = [holder[last]] * rng.choice((1, 2, 50))
        elif kind < 0.35 and isinstance(holder, list):
            holder.extend(copy.deepcopy(holder))
        else:
            holder[last] = copy.deepcopy(rng.choice(STRANGE))
    return copied


def _alike(one: Any, other: Any) -> bool:
    """Say whether two values have one JSON type; a number may replace a quantity, and text any scalar."""
    scalar = (str, int, float)
    return type(one) is type(other) or (isinstance(one, scalar) and isinstance(other, scalar))


class AnsweringKube(Kube):
    """A client of a server that answers with these objects, by resource."""

    def __init__(self, objects: Mapping[str, list[Object]]) -> None:
        self.objects = objects
        self.namespace = "default"
        self.server = self.origin = "https://fuzz"
        self._greeting = None

    def request(
        self, verb: str, url_path: str, *, body: Any = None, decoder: Callable[[bytes], Any] = json.loads, **_: Any
    ) -> Response:
        """Answer a list, a get, or a review."""
        resource, one = resource_of(url_path)
        if verb == "POST":
            allowed = {"allowed": True} if body.get("kind") == "SelfSubjectAccessReview" else {}
            return Response(
                201, {**body, "status": {**allowed, "userInfo": {"username": "fuzz"}}} if allowed else self._made(body)
            )
        if not resource:
            return Response(200, {"gitVersion": "v1.36.2"})
        items = self.objects.get(resource, [])
        if one:
            if not items:
                raise NotFound("GET", status=404)
            return Response(200, items[0])
        kind = _KINDS.get(resource)
        if kind is None:
            raise NotFound("GET", status=404)
        answer = {"kind": f"{kind}List", "metadata": {"resourceVersion": "1"}, "items": items}
        return Response(200, decoder(json.dumps(answer).encode()))

    def _made(self, body: Object) -> Object:
        answers = self.objects.get("dry-run")
        return answers[0] if answers and body.get("kind") == "Pod" else body


_KINDS = {
    "nodes": "Node",
    "pods": "Pod",
    "events": "Event",
    "resourcequotas": "ResourceQuota",
    "deviceclasses": "DeviceClass",
    "resourceslices": "ResourceSlice",
    "clusterpolicies": "ClusterPolicy",
}


@dataclass
class World:
    """Objects of one cluster by resource, and its fault: (resource, index) of the object that shows it."""

    objects: dict[str, list[Object]]
    broken: tuple[str, int] | None = None


def preflight(objects: Mapping[str, list[Object]], profile: Profile) -> list[Finding]:
    """Judge like a preflight; raises ClusterError if there is no answer."""
    kube = AnsweringKube(objects)
    spec = replace(spec_of(profile, run_id="fuzz", namespace="default"), pull_secrets=())
    contact(kube)
    cluster = Inventory.read(kube)
    pool = pool_of(cluster, profile)
    findings = list(nodes.node_findings(cluster, pool, profile))
    findings += nodes.offers(pool, profile, spec.nodes)
    findings += gpu_stack.stack_findings(pool.nodes, cluster.pods)
    findings += gpu_stack.upgrade_findings(pool.nodes)
    findings += gpu_stack.label_findings(pool, "nvidia.com/gpu")
    findings += nodes.unlike_nodes(pool.nodes, profile.stack.may_differ)
    findings += nodes.kubelet_skew(pool.nodes, "v1.36.2")
    enough = rooms(cluster, pool.nodes, spec, pool.parts)
    free = sum(not room.fault for room in enough)
    findings.append(
        Finding(subject="cluster", ok=free >= spec.nodes, observed=f"{free} free", expected="", fault="gpu.taken")
    )
    for resource in ("deviceclasses", "resourceslices", "clusterpolicies"):
        listed = stack.listing(kube, resource, *stack.KINDS[resource])
        (
            stack.device_classes(listed),
            stack.mapped_class(listed, "nvidia.com/gpu"),
            stack.devices_by_node(listed, "gpu.nvidia.com", "gpu"),
        )
        findings += gpu_stack.policy_findings(stack.policies(listed)) if resource == "clusterpolicies" else []
    state = namespace_state(kube)
    findings.append(Finding(subject="default", ok=state.ok, observed=state.observed, expected="", fault=state.fault))
    admission_finding = admission.try_pods(kube, dry_pod(spec), {"kind": "Job"}, spec.nodes)
    findings.append(
        Finding(
            subject="pod",
            ok=admission_finding.ok,
            observed=admission_finding.observed,
            expected="",
            fault=admission_finding.fault,
        )
    )
    claims.read(kube, ["data"], ["fast"])
    return findings


def green(findings: list[Finding]) -> bool:
    """Say whether there was no objection."""
    return all(finding.ok for finding in findings)


@dataclass
class Tally:
    """The number of tried objects, and their results."""

    tried: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    trouble: list[str] = field(default_factory=list)

    def note(self, what: str, seed: Any, work: Callable[[], str]) -> None:
        """Run a step; a ClusterError is an answer, any other exception is trouble."""
        self.tried += 1
        try:
            self.ended[f"{what}: {work()}"] += 1
        except ClusterError:
            self.ended[f"{what}: no answer"] += 1
        except Exception as error:  # noqa: BLE001 -- that is what is looked for
            self.trouble.append(f"{what} {seed}: {type(error).__name__}: {str(error)[:200]}")


def worlds(objects: Mapping[str, list[Object]]) -> list[World]:
    """Return a healthy cluster, and clusters in which one object shows a fault."""
    base = copy.deepcopy(dict(objects))
    gpu = [i for i, node in enumerate(base["nodes"]) if "nvidia.com/gpu" in node["status"]["allocatable"]]
    fewer = copy.deepcopy(base)
    fewer["nodes"][gpu[1]]["status"]["allocatable"]["nvidia.com/gpu"] = "7"
    lost = copy.deepcopy(base)
    ready = next(c for c in lost["nodes"][gpu[0]]["status"]["conditions"] if c["type"] == "Ready")
    ready["status"] = "Unknown"
    taken = copy.deepcopy(base)
    taken["pods"].append(
        {
            "metadata": {
                "name": "greedy",
                "namespace": "other",
                "uid": "g",
                "ownerReferences": [{"kind": "Job", "name": "g", "controller": True}],
            },
            "spec": {
                "nodeName": base["nodes"][gpu[0]]["metadata"]["name"],
                "containers": [
                    {
                        "name": "c",
                        "image": "i",
                        "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}},
                    }
                ],
            },
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
    )
    short = copy.deepcopy(base)
    short["resourcequotas"] = [
        {
            "metadata": {"name": "q", "namespace": "default"},
            "spec": {"hard": {"requests.nvidia.com/gpu": "8"}},
            "status": {"hard": {"requests.nvidia.com/gpu": "8"}, "used": {"requests.nvidia.com/gpu": "0"}},
        }
    ]
    ending = copy.deepcopy(base)
    ending["namespaces"] = [{"kind": "Namespace", "metadata": {"name": "default"}, "status": {"phase": "Terminating"}}]
    return [
        World(base),
        World(fewer, ("nodes", gpu[1])),
        World(lost, ("nodes", gpu[0])),
        World(taken, ("pods", len(taken["pods"]) - 1)),
        World(short, ("resourcequotas", 0)),
        World(ending, ("namespaces", 0)),
    ]


def recorded() -> list[Object]:
    """Return recorded states of a real cluster: jobs, pods, events and nodes."""
    return [
        moment
        for file in sorted(RECORDINGS.glob("*.json"))
        for moment in json.loads(file.read_text())["moments"].values()
    ]


def through_the_client(
    world: World, profile: Profile, rng: random.Random, tally: Tally, *, large: bool = False
) -> None:
    """Change one object and judge the client's result; a fault must not become good by a value of another type."""
    types_only = world.broken is not None and rng.random() < 0.7
    resource, index = (
        world.broken
        if types_only and world.broken
        else rng.choice([(r, i) for r, items in world.objects.items() for i in range(len(items))])
    )
    item = mutated(
        world.objects[resource][index],
        rng,
        times=1 if types_only else rng.choice((1, 1, 2, 5)),
        types_only=types_only,
        large=large,
    )
    changed = {**world.objects, resource: [*world.objects[resource]]}
    changed[resource][index] = item

    def work() -> str:
        good = green(preflight(changed, profile))
        if good and types_only:
            raise AssertionError(f"a wrong green: {json.dumps(item)[:600]}")
        return "green" if good else "red"

    tally.note(f"preflight {resource}", index, work)


def past_the_client(moments: list[Object], rng: random.Random, tally: Tally, *, large: bool = False) -> None:
    """Change one object of a recorded state, and read it without the client's validation."""
    moment = copy.deepcopy(rng.choice(moments))
    kinds = [kind for kind in ("jobs", "pods", "events", "nodes") if moment.get(kind)]
    if not kinds:
        return
    kind = rng.choice(kinds)
    index = rng.randrange(len(moment[kind]))
    before = diagnose(
        next(iter(moment.get("jobs") or []), None),
        moment.get("pods") or [],
        moment.get("events") or [],
        moment.get("nodes") or [],
    )[0]
    types_only = rng.random() < 0.5
    moment[kind][index] = mutated(
        moment[kind][index], rng, times=1 if types_only else rng.choice((1, 2, 5)), types_only=types_only, large=large
    )

    def work() -> str:
        job, pods = next(iter(moment.get("jobs") or []), None), moment.get("pods") or []
        state, _, _ = diagnose(job, pods, moment.get("events") or [], moment.get("nodes") or [])
        for pod in pods:
            read_pod(pod)
            quota.demand(as_map(pod.get("spec")))
        for node in moment.get("nodes") or []:
            read_node(node)
        read_events(moment.get("events") or [])
        pod_facts(pods, moment.get("events") or [], KINDS["indexed"].index)
        shares({"spec": (job or {}).get("spec")})
        if state is JobState.COMPLETE and before is not JobState.COMPLETE and types_only:
            raise AssertionError(f"a wrong green: {json.dumps(moment[kind][index])[:600]}")
        return str(state)

    tally.note(f"diagnosis of {kind}", index, work)


def campaign(objects: Mapping[str, list[Object]], count: int, seed: int, *, large: bool = False) -> Tally:
    """Try this many mutated objects, half through the client and half past it."""
    rng, tally, profile = random.Random(seed), Tally(), load_profile("h100-ib")
    known, moments = worlds(objects), recorded()
    healthy, *broken = (green(preflight(world.objects, profile)) for world in known)
    assert healthy and not any(broken), (healthy, broken)
    while tally.tried < count and len(tally.trouble) < 50:
        through_the_client(rng.choice(known), profile, rng, tally, large=large)
        past_the_client(moments, rng, tally, large=large)
    return tally


def lab_objects() -> dict[str, list[Object]]:
    """Return the objects of the lab's healthy cluster, as its API answers."""
    from lab.background import running

    with running("healthy") as cluster, tempfile.TemporaryDirectory() as folder:
        kube = Kube.connect(str(cluster.write_kubeconfig(Path(folder) / "kubeconfig")))
        objects: dict[str, list[Object]] = {"nodes": kube.list(path("nodes"))[0], "pods": kube.list(path("pods"))[0]}
        objects["namespaces"] = [kube.get(path("namespaces", "default"))]
        kube.close()
    objects["persistentvolumeclaims"] = [
        {
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteMany"], "volumeName": "v"},
            "status": {"phase": "Pending", "capacity": {"storage": "1Ti"}},
        }
    ]
    objects["storageclasses"] = [
        {"kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "p", "volumeBindingMode": "Immediate"}
    ]
    objects["events"] = [
        {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "PersistentVolumeClaim", "name": "data"},
            "reason": "Waiting",
            "message": "m",
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }
    ]
    objects["deviceclasses"] = [
        {
            "metadata": {"name": "gpu.nvidia.com"},
            "spec": {
                "extendedResourceName": "x/y",
                "selectors": [
                    {
                        "cel": {
                            "expression": "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
                        }
                    }
                ],
            },
        }
    ]
    objects["resourceslices"] = [
        {
            "metadata": {"name": "s"},
            "spec": {
                "driver": "gpu.nvidia.com",
                "nodeName": "gpu-node-0",
                "pool": {"name": "p", "generation": 1},
                "devices": [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}],
            },
        }
    ]
    objects["clusterpolicies"] = [
        {
            "metadata": {"name": "cluster-policy"},
            "spec": {"driver": {"version": "1", "enabled": True}},
            "status": {"state": "ready", "conditions": [{"type": "Ready", "status": "True"}]},
        }
    ]
    return objects
