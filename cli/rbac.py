"""``seatrial rbac``: writes the least-privilege permissions of a selection of checks as YAML.

One table (NEEDS in checks/rules/rights.py) decides these, the permissions that a run verifies first, and the checks
that a tenant skips.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout

import yaml

from checks.framework.options import Options
from checks.framework.selection import Declaration
from checks.framework.trial_spec import build_spec
from checks.profiles.loader import Profile, ProfileError, load_profile, without_gpus
from checks.rules.rights import (
    CONDITIONING,
    CRON,
    HANG,
    LABELLING,
    OWN,
    Right,
    beyond_namespace,
    new_node_rights,
    unused,
    wanted_by,
)
from cli.listing import declared_checks
from cli.usage import Parser, refuse
from jobs.cluster.unstructured import Unstructured
from jobs.trial.names import SpecError
from jobs.trial.spec import TrialSpec

RBAC = "rbac.authorization.k8s.io"
VERBS = ("create", "get", "list", "watch", "patch", "delete")
LABELS = {"app.kubernetes.io/name": "seatrial"}

EXAMPLES = (
    "seatrial rbac --tenant --namespace team-a | kubectl apply -f -",
    "seatrial rbac --cluster --cron --profile h100-ib",
    "seatrial rbac --tenant --namespace team-a --queue kueue:trials --hang",
)


class SelectionError(ValueError):
    """The error if no check was selected."""


def parser() -> Parser:
    """Return the parser of ``seatrial rbac``."""
    said = "Print the least-privilege permissions for the selected checks, as YAML for kubectl apply -f -."
    made = Parser(prog="seatrial rbac", description=said, examples=EXAMPLES)
    scope = made.add_mutually_exclusive_group()
    scope.add_argument("--cluster", action="store_true", help="with cluster-wide permissions (default)")
    scope.add_argument("--tenant", action="store_true", help="one Role in one namespace, for runs with --tenant")
    made.add_argument("-k", metavar="EXPR", default="", help="choose checks as a run would")
    made.add_argument("-m", metavar="EXPR", default="", help="preflight or acceptance")
    made.add_argument("--check", metavar="ID", action="append", default=[], help="this check and its prerequisites")
    made.add_argument("--namespace", metavar="NAME", default="default")
    made.add_argument("--name", metavar="NAME", default="seatrial", help="of the service account and its roles")
    made.add_argument("--profile", metavar="NAME|FILE")
    made.add_argument("--launcher", metavar="KIND", default="", help="indexed, mpijob, pytorchjob, trainjob")
    made.add_argument("--queue", metavar="KIND:NAME", default="", help="kueue:LOCALQUEUE, volcano[:QUEUE]")
    made.add_argument("--cron", action="store_true", help="with the permissions of scheduled runs (seatrial cron)")
    made.add_argument("--label-nodes", action="store_true", help="with the permission of seatrial cron --label-nodes")
    made.add_argument("--node-condition", action="store_true", help="with that of seatrial cron --node-condition")
    made.add_argument(
        "--new-nodes", metavar="KEY", nargs="?", const="", help="with those of seatrial cron --new-nodes [KEY]"
    )
    made.add_argument(
        "--hang", action="store_true", help="with the permissions of explain job/NAME on a hung job (pods/exec)"
    )
    made.add_argument(
        "--check-secrets", action="store_true", help="with the permission to get the profile's pull secrets"
    )
    made.add_argument("--training", action="store_true", help="with the permissions of --training (drains)")
    return made


def main(arguments: Sequence[str]) -> int:
    """Print the objects."""
    options = parser().parse_args(list(arguments))
    try:
        profile = load_profile(options.profile) if options.profile else Profile()
        asked = Options(launcher=options.launcher, queue=options.queue, check_secrets=options.check_secrets)
        spec = build_spec(profile, asked, run_id="rbac", namespace=options.namespace)
        tenant = options.tenant or (profile.tenant and not options.cluster)
        rights = least(selected(options), spec, profile, tenant=tenant, check_secrets=options.check_secrets)
        rights += (CRON if options.cron else ()) + ((LABELLING,) if options.label_nodes else ())
        rights += ((CONDITIONING,) if options.node_condition else ()) + new_node_rights(options.new_nodes)
        rights += tuple(right for right in HANG if not tenant or right.scope == "namespace") if options.hang else ()
    except (ProfileError, SpecError, SelectionError) as error:
        return refuse("rbac", error)
    print(yaml.safe_dump_all(objects(rights, options.name, options.namespace), sort_keys=False, width=110), end="")
    return 0


def selected(options: argparse.Namespace) -> list[Declaration]:
    """Return the checks of a run with this selection, prerequisites included."""
    more = [f"-k={options.k}"] * bool(options.k) + [f"-m={options.m}"] * bool(options.m)
    more += [f"--check={check_id}" for check_id in options.check] + ["--training"] * options.training
    more += [f"--profile={options.profile}"] * without_gpus(options.profile)
    said = io.StringIO()
    try:
        with redirect_stderr(said), redirect_stdout(said):
            return list(declared_checks(more).values())
    except RuntimeError as error:
        lines = said.getvalue().strip().splitlines() or ["no check matches; seatrial checks lists them"]
        raise SelectionError(f"nothing was selected: {lines[-1].removeprefix('ERROR: ')}") from error


def least(
    checks: Iterable[Declaration], spec: TrialSpec, profile: Profile, *, tenant: bool, check_secrets: bool = False
) -> tuple[Right, ...]:
    """Return the distinct permissions of these checks; for a tenant's run without those of skipped checks."""
    run = [check for check in checks if not tenant or check.tenant or not beyond_namespace(check.needs)]
    run = [check for check in run if not (check.of_gpus and profile.gpu.none)]
    needs = {need for check in run for need in check.needs} - unused(spec, profile)
    rights = wanted_by(needs, spec=spec, tenant=tenant)
    if (check_secrets or profile.images.check_secrets) and any(check.id == "images.secrets" for check in run):
        rights += tuple(Right("get", "secrets", name=name) for name in spec.pull_secrets)
    return rights


def objects(rights: Iterable[Right], name: str, namespace: str) -> Iterator[Unstructured]:
    """Yield a service account and the roles and bindings that grant it these permissions."""
    rights = list(rights)
    yield _object("v1", "ServiceAccount", name, namespace)
    for scope, kind, place in (("namespace", "Role", namespace), ("cluster", "ClusterRole", "")):
        rules = list(grouped(r for r in rights if r.scope == scope))
        if not rules:
            continue
        own = name if place else f"{name}:{namespace}"  # a cluster-scoped name; another namespace's account has its own
        yield {**_object(f"{RBAC}/v1", kind, own, place), "rules": rules}
        yield {
            **_object(f"{RBAC}/v1", f"{kind}Binding", own, place),
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": own},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }


def _object(api_version: str, kind: str, name: str, namespace: str) -> Unstructured:
    meta = {"name": name, **({"namespace": namespace} if namespace else {}), "labels": dict(LABELS)}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}


def grouped(rights: Iterable[Right]) -> Iterator[Unstructured]:
    """Write permissions as rules: resources of one group with the same verbs share a rule."""
    verbs: dict[tuple[str, str, str], list[str]] = {}
    for right in rights:
        resource = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
        verbs.setdefault((right.group, resource, right.name), []).append(right.verb)
    rules: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for (group, resource, name), granted in verbs.items():
        rules.setdefault((group, tuple(v for v in VERBS if v in granted), name), []).append(resource)
    for (group, together, name), resources in rules.items():
        # A Role's `namespaces` is its own namespace: a get of a namespace is a request in it (apiserver,
        # requestinfo.go).
        named = {"resourceNames": [name]} if name not in ("", OWN) else {}
        yield {"apiGroups": [group], "resources": sorted(resources), **named, "verbs": list(together)}
