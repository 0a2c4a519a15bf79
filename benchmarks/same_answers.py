"""Requests that a real API server and the embedded cluster must answer equally.

    python benchmarks/same_answers.py KUBECONFIG [KIND...]

Sends request bodies to the API server of the kubeconfig and to a lab. Each body differs in one field from an object
that seatrial creates: a value removed, emptied, too long, of another type, a list item doubled, an odd key. Prints
where the two answers differ: in acceptance, or in the fields that the causes name. All are dry runs (dryRun=All):
neither server stores anything. Needs permission to create these kinds in the namespace `default`.

Against kube-apiserver v1.20.2: 7,129 bodies in 40 s on two shared cores, 258 answered differently. 172 of them are
about fields of a Job that v1.20 does not know (completionMode, suspend, podFailurePolicy). Others are about names of
environment variables and Services and the path of a label selector's cause, which Kubernetes has changed since. The
rest: a negative terminationGracePeriodSeconds, LimitRanges without a name, an empty string instead of a default, and
quantities beyond 64 bits.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from checks.profiles.loader import load_profile  # noqa: E402 -- after the path is set
from checks.profiles.trial import spec_of  # noqa: E402
from jobs.cluster.client.errors import ApiError  # noqa: E402
from jobs.cluster.client.kube import Kube, path  # noqa: E402
from jobs.trial import manifests  # noqa: E402
from lab.background import running  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

Body = dict[str, Any]
NAMESPACE = "default"
ODD = (
    None,
    "",
    -1,
    0,
    70000,
    True,
    [],
    {},
    "UPPER",
    "a b",
    "-x",
    "x-",
    "a.b",
    "a/b",
    "a/b/c",
    "1e3",
    "0.5",
    "-5",
    "€",
    "x" * 300,
    "9" * 20,
)
KEYS = ("UPPER", "a b", "x" * 70, "a/b/c", "-x", "example.com/x", "nvidia.com/gpu", "kubernetes.io/x")
MAPS = frozenset({"labels", "matchLabels", "selector", "limits", "requests", "hard", "max", "min", "default", "data"})
TIME = "2026-01-01T00:00:00"


def bodies() -> dict[str, tuple[str, Body]]:
    """Return the path and an accepted body of each kind that we create, or that administrators limit us by."""
    spec = spec_of(load_profile("h100-ib"), run_id="abcdefghij", namespace=NAMESPACE)
    made = manifests.build(spec, {"__main__.py": "x\n", "nccl/a.py": "y\n"})
    pod, job = manifests.dry_pod(spec), made.job
    pod["metadata"] = {**pod["metadata"], "generateName": None, "name": "p-0"}
    for part in (pod["spec"], job["spec"]["template"]["spec"]):
        part["containers"][0]["env"] = [e for e in part["containers"][0]["env"] if "valueFrom" in e][:2]
    about = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "namespace": NAMESPACE}
    event = {
        "involvedObject": about,
        "type": "Warning",
        "reason": "R",
        "message": "m",
        "source": {"component": "c"},
        "firstTimestamp": f"{TIME}Z",
        "lastTimestamp": f"{TIME}Z",
        "count": 1,
    }
    lease = {"holderIdentity": "x", "leaseDurationSeconds": 60, "renewTime": f"{TIME}.000000Z", "leaseTransitions": 1}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["x"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    account = {"kind": "ServiceAccount", "name": "s", "namespace": NAMESPACE}
    limit = {"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}, "default": {"cpu": "2"}}
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "x"}
    rbac = "rbac.authorization.k8s.io"
    table: dict[str, tuple[str, Body]] = {
        "pods": ("", pod),
        "jobs": ("batch", job),
        "configmaps": ("", made.configmap),
        "services": ("", made.service or {}),
        "events": ("", event),
        "leases": ("coordination.k8s.io", {"spec": lease}),
        "roles": (rbac, {"rules": [rule]}),
        "rolebindings": (rbac, {"roleRef": role, "subjects": [account]}),
        "resourcequotas": ("", {"spec": {"hard": {"requests.nvidia.com/gpu": "4"}, "scopes": ["NotTerminating"]}}),
        "limitranges": ("", {"spec": {"limits": [limit]}}),
        "persistentvolumeclaims": ("", {"spec": claim}),
    }
    named = {"metadata": {"name": "x"}}
    placed = {kind: path(kind, namespace=NAMESPACE, group=group) for kind, (group, _) in table.items()}
    return {kind: (placed[kind], {**named, **body}) for kind, (_, body) in table.items()}


def places(value: Any, trail: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to every field, and to the first items of every list."""
    items: list[tuple[Any, Any]] = list(enumerate(value[:3])) if isinstance(value, list) else []
    items += value.items() if isinstance(value, dict) else []
    for key, inner in items:
        yield (*trail, key)
        yield from places(inner, (*trail, key))


def changed(body: Body) -> Iterator[tuple[str, str, Body]]:
    """Yield (field, mutation, body)."""
    for trail in places(body):
        if trail[0] in ("kind", "apiVersion"):
            continue
        values: list[tuple[str, Any]] = [(repr(odd)[:12], odd) for odd in ODD]
        current = _at(body, trail)
        if isinstance(current, list) and current:
            values.append(("doubled", [*current, copy.deepcopy(current[0])]))
        if isinstance(current, dict) and trail[-1] in MAPS:
            values += [(f"key {key[:12]}", {**current, key: "1"}) for key in KEYS]
        for what, value in values:
            made = copy.deepcopy(body)
            _at(made, trail[:-1])[trail[-1]] = value
            yield ".".join(map(str, trail)), what, made


def _at(value: Any, trail: tuple[Any, ...]) -> Any:
    for step in trail:
        value = value[step]
    return value


def answer(kube: Kube, url_path: str, body: Body) -> tuple[int, tuple[str, ...], str]:
    """Return the status, the fields of its causes, and the message."""
    try:
        kube.create(url_path, body, dry_run=True)
    except ApiError as error:
        fields = {str(cause.get("field")) for cause in error.details.get("causes") or [] if isinstance(cause, dict)}
        return error.status, tuple(sorted(fields)) if error.status == 422 else (), error.message
    return 201, (), "accepted"


def main(kubeconfig: str, *wanted: str) -> int:
    """Compare and print; return 1 if the two differ."""
    sent, found = 0, 0
    with tempfile.TemporaryDirectory() as folder, running("healthy") as lab:
        lab.write_kubeconfig(Path(folder) / "lab")
        real, ours = Kube.connect(kubeconfig), Kube.connect(str(Path(folder) / "lab"))
        for kind, (url_path, body) in bodies().items():
            for field, what, made in changed(body) if not wanted or kind in wanted else ():
                sent += 1
                theirs, mine = answer(real, url_path, made), answer(ours, url_path, made)
                if theirs[:2] != mine[:2]:
                    found += 1
                    print(f"{kind} {field} {what}\n    real {theirs}\n    lab  {mine}")
    print(f"{sent} bodies, {found} answered otherwise")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if sys.argv[1:] else __doc__)
