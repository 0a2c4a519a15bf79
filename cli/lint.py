"""``seatrial lint``: compares a job's manifest, or a job of the cluster, with the needs of training across nodes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checks.profiles.errors import ProfileError
from cli.usage import INCONCLUSIVE, Parser, connect, refuse
from jobs.cluster.client.errors import ApiError, ClusterError, ConfigError, NotFound
from jobs.cluster.unstructured import Unstructured, as_map
from reports.markdown import workflow_command
from reports.plain import plain
from reports.record import EXIT_CODES, Finding
from reports.schema import Verdict

if TYPE_CHECKING:
    from checks.rules.contract import Around
    from checks.rules.topology import Zones
    from jobs.cluster.client.kube import Kube
    from jobs.cluster.facts.workloads import Manifests
    from seatrial.logs.job_document import Lacking

DESCRIPTION = """\
Compare a job's pod templates with the needs of training across nodes: RDMA devices, networks, IPC_LOCK, /dev/shm, the
queue, the Service, the rendezvous, NCCL's variables, a durable path. A manifest is read without a cluster."""
EXIT = "Exit codes: 0 nothing is missing, 1 findings, 10 no findings, but some unknown, 4 usage error or not readable."
EXAMPLES = (
    "seatrial lint --profile h100-ib train.yaml",
    "helm template chart | seatrial lint --profile h100-ib -",
    "seatrial lint -n team-a job/train",
)
KINDS = {
    "job": ("batch", "v1", "jobs"),
    "jobset": ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
    "mpijob": ("kubeflow.org", "v2beta1", "mpijobs"),
    "pytorchjob": ("kubeflow.org", "v1", "pytorchjobs"),
    "trainjob": ("trainer.kubeflow.org", "v1alpha1", "trainjobs"),
    "rayjob": ("ray.io", "v1", "rayjobs"),
    "statefulset": ("apps", "v1", "statefulsets"),
    "pod": ("", "v1", "pods"),
}
"""Objects that are read from the cluster by KIND/NAME: group, version and resource."""
_MOST_ANNOTATIONS = 10
"""Maximum number of annotations of one kind that GitHub shows for a step (docs.github.com, workflow commands)."""
_TITLES = {True: "has", False: "FAILED", None: "not known"}


@dataclass(slots=True)
class Judged:
    """One workload: its origin, its kind, and the findings about it."""

    source: str
    workload: str
    findings: list[Finding] = field(default_factory=list)
    namespace: str = ""
    by_profile: bool = False

    def advice(self, fault: str) -> dict[str, str]:
        """Return the fault's texts; they refer to the profile only where one was given."""
        from seatrial.faults.advice import explain  # noqa: PLC0415 -- only findings need the catalogue

        return explain(fault, "", self.namespace, trial=self.by_profile)

    def said(self, ok: bool | None) -> list[Finding]:
        """Return the findings of one outcome."""
        return [each for each in self.findings if each.ok is ok]


def parser() -> Parser:
    """Return the parser of ``seatrial lint``."""
    made = Parser(prog="seatrial lint", description=DESCRIPTION, epilog=EXIT, examples=EXAMPLES)
    made.add_argument(
        "manifests", nargs="+", metavar="FILE", help=f"YAML or JSON, '-' for stdin, {'/NAME, '.join(KINDS)}/NAME"
    )
    made.add_argument("--profile", metavar="NAME|FILE", help="the requirements of this platform")
    made.add_argument("--format", choices=("text", "json", "github"), default="text")
    made.add_cluster_options("for job/NAME")
    return made


def main(arguments: Sequence[str]) -> int:
    """Print the missing parts; the epilog lists the exit codes."""
    options = parser().parse_args(list(arguments))
    from jobs.cluster.facts.workloads import ManifestError  # noqa: PLC0415 -- --help loads no YAML
    from jobs.trial.names import SpecError  # noqa: PLC0415 -- as above

    judged: list[Judged] = []
    others: list[str] = []
    try:
        around = of_profile(options.profile)
        for name in options.manifests:
            judged += _judged(name, options, around, others)
    except (ManifestError, ProfileError, SpecError, ConfigError, OSError, NotFound) as error:
        return refuse("lint", error)
    except ClusterError as error:
        return refuse("lint", error, INCONCLUSIVE)
    verdict = verdict_of(judged)
    if options.format == "json":
        print(json.dumps({"verdict": verdict, "workloads": [document(each) for each in judged], "others": others}))
    else:
        for line in _github(judged) if options.format == "github" else _text(judged, others, verdict, options.profile):
            print(line)
    return EXIT_CODES[verdict]


def of_profile(name: str | None) -> Around:
    """Return a profile's requirements on the pods; none without a profile. Raises ProfileError and SpecError."""
    from checks.rules.contract import Around  # noqa: PLC0415 -- loads the profiles

    if not name:
        return Around()
    from checks.profiles.loader import load_profile  # noqa: PLC0415 -- as above
    from checks.profiles.trial import spec_of  # noqa: PLC0415 -- as above

    profile = load_profile(name)
    return Around(profile=profile, spec=spec_of(profile, run_id="lint", namespace="lint"))


def verdict_of(judged: Sequence[Judged]) -> Verdict:
    """Return no-go if any part is missing, and go if at least one workload was read and all of it is known."""
    told = [each.ok for one in judged for each in one.findings]
    if False in told:
        return Verdict.NO_GO
    return Verdict.INCONCLUSIVE if None in told or not judged else Verdict.GO


def _judged(name: str, options: argparse.Namespace, around: Around, others: list[str]) -> Iterator[Judged]:
    kind, slash, rest = name.partition("/")
    kind = kind.lower().removesuffix("s")
    if slash and kind in KINDS and "/" not in rest and not Path(name).exists():
        yield from of_cluster(connect(options), kind, rest, around)
        return
    from jobs.cluster.facts.workloads import MAX_BYTES, ManifestError, read_manifests  # noqa: PLC0415

    with sys.stdin.buffer if name == "-" else Path(name).open("rb") as stream:
        raw = stream.read(MAX_BYTES + 1)
    try:
        found = read_manifests(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ManifestError(f"{plain(name, 300)}: not UTF-8 text (byte {error.start})") from error
    except ManifestError as error:
        raise ManifestError(f"{plain(name, 300)}: {error}") from error
    others += found.others
    yield from _of(name, found, around)


def _of(
    source: str, found: Manifests, around: Around, services: Sequence[Unstructured] | None = None
) -> Iterator[Judged]:
    """Judge each workload; ``services``: those of its namespace, if they could be listed."""
    from dataclasses import replace  # noqa: PLC0415 -- as above

    from checks.rules.contract import contract_findings, summary  # noqa: PLC0415 -- loads the profiles

    around = replace(around, services=found.services if services is None else services, complete=services is not None)
    for workload in found.workloads:
        made = Judged(plain(source, 300), summary(workload, around), namespace=workload.namespace)
        made.by_profile = around.profile is not None
        made.findings += contract_findings(workload, around)
        yield made


def of_cluster(kube: Kube, kind: str, name: str, around: Around) -> list[Judged]:
    """Judge a workload of the cluster, with its Services and the GPU nodes' resources. Raises ClusterError.

    The parts that a TrainJob leaves open are in the JobSet that its runtime creates.
    """
    from dataclasses import replace  # noqa: PLC0415 -- as above

    from checks.profiles.proposal import FABRIC  # noqa: PLC0415 -- as above
    from jobs.cluster.facts.workloads import sort_out  # noqa: PLC0415 -- as above

    raw = None
    if kind == "trainjob":
        raw = _optional(kube, "jobset", name)
    if raw is None:
        raw = _get(kube, kind, name)
    nodes = _gpu_nodes(kube, around)
    if nodes and around.profile is None:
        nics = set.intersection(*(offer for _, offer in nodes))
        around = replace(around, nics=tuple(sorted(name for name in nics if name.startswith(FABRIC))))
    around = replace(around, zones=_zones(kube, [name for name, _ in nodes]))
    return list(_of(f"{kind}/{name}", sort_out([raw]), around, _services(kube)))


def lacking(kube: Kube, kind: str, name: str, profile: str | None) -> list[Lacking]:
    """Return the parts that a workload's manifest certainly lacks; none if it cannot be read."""
    from jobs.cluster.facts.workloads import ManifestError  # noqa: PLC0415 -- as above

    try:
        judged = of_cluster(kube, kind, name, of_profile(profile)) if kind in KINDS else []
    except (ClusterError, ManifestError):
        return []
    return [
        {
            "fault": each.fault,
            "subject": each.subject,
            "observed": each.observed,
            "expected": each.expected,
            "remedy": one.advice(each.fault)["remedy"],
        }
        for one in judged
        for each in one.said(ok=False)
    ]


def _get(kube: Kube, kind: str, name: str) -> Unstructured:
    from jobs.cluster.client.kube import path  # noqa: PLC0415 -- as above

    group, version, resource = KINDS[kind]
    kube.require("get", resource, group=group, namespace=kube.namespace)
    word = next(spoken for spoken in _SPOKEN if spoken.lower() == kind)
    raw = as_map(kube.get(path(resource, name, namespace=kube.namespace, group=group, version=version)))
    return {"kind": word, **raw}


_SPOKEN = ("Job", "JobSet", "MPIJob", "PyTorchJob", "TrainJob", "RayJob", "StatefulSet", "Pod")


def _optional(kube: Kube, kind: str, name: str) -> Unstructured | None:
    try:
        return _get(kube, kind, name)
    except ApiError:
        return None


def _services(kube: Kube) -> list[Unstructured] | None:
    """Return the namespace's Services; None if they may not be listed."""
    from jobs.cluster.client.kube import path  # noqa: PLC0415 -- as above

    try:
        kube.require("list", "services", namespace=kube.namespace)
        return [as_map(each) for each in kube.list(path("services", namespace=kube.namespace))[0]]
    except ApiError:
        return None


def _gpu_nodes(kube: Kube, around: Around) -> list[tuple[str, set[str]]]:
    """Return the nodes with GPUs and the resources of each; none if nodes cannot be listed."""
    from jobs.cluster.client.kube import path  # noqa: PLC0415 -- as above
    from jobs.cluster.unstructured import name_of, whole  # noqa: PLC0415 -- as above

    try:
        kube.require("list", "nodes", namespace="")
        nodes = [as_map(each) for each in kube.list(path("nodes"))[0]]
    except ApiError:
        return []
    offers = ((name_of(node), as_map(as_map(node.get("status")).get("allocatable"))) for node in nodes)
    found = ((name, {str(key) for key, amount in offer.items() if whole(amount)}) for name, offer in offers)
    return [(name, offer) for name, offer in found if offer & {*around.gpu_names}]


def _zones(kube: Kube, nodes: Sequence[str]) -> tuple[Zones, ...]:
    """Return the NUMA zones of these nodes; none unless all are known."""
    from checks.rules.topology import read_zones  # noqa: PLC0415 -- as above
    from jobs.cluster.facts.stack import KINDS as STACK  # noqa: PLC0415 -- as above
    from jobs.cluster.facts.stack import listing  # noqa: PLC0415 -- as above

    resource = "noderesourcetopologies"
    try:
        kube.require("list", resource, group=STACK[resource][0], namespace="")
        known = read_zones(listing(kube, resource, *STACK[resource]).items)
    except ApiError:
        return ()
    return tuple(known[name] for name in nodes) if nodes and all(name in known for name in nodes) else ()


# -- output formats
# ------------------------------------------------------------------------------------------------------


def document(judged: Judged) -> dict[str, Any]:
    """Return one workload as JSON."""
    findings = []
    for each in judged.findings:
        entry = judged.advice(each.fault) if each.fault else {}
        advice = {key: entry.get(key, "") for key in ("title", "confirm", "remedy")} if each.ok is False else {}
        findings.append(
            {
                "subject": each.subject,
                "ok": each.ok,
                "fault": each.fault,
                "observed": each.observed,
                "expected": each.expected,
                **advice,
            }
        )
    return {"source": judged.source, "workload": judged.workload, "findings": findings}


def _text(judged: Sequence[Judged], others: Sequence[str], verdict: Verdict, profile: str | None) -> Iterator[str]:
    for one in judged:
        yield from lines(one)
    if others:
        yield f"not read: {', '.join(plain(each) for each in others[:8])}" + (", ..." if len(others) > 8 else "")
    if not judged:
        yield "it contains no object that creates pods"
    findings, unknown = (sum(len(one.said(ok)) for one in judged) for ok in (False, None))
    counted = f"{findings} finding{'s' if findings != 1 else ''}, {unknown} not known"
    yield f"{verdict}: {counted}" + ("" if profile else "; without --profile the fabric's needs are not known")


def lines(judged: Judged) -> Iterator[str]:
    """Write one workload's findings for a terminal."""
    yield f"{judged.source}: {plain(judged.workload)}"
    for ok in (False, None):
        for each in judged.said(ok):
            fault = f" {each.fault}" if each.fault else ""
            expected = f" (expected {plain(each.expected)})" if each.expected else ""
            yield f"  {_TITLES[ok]}{fault}: {plain(each.subject)}: {plain(each.observed)}{expected}"
            if ok is False:
                entry = judged.advice(each.fault)
                yield f"    confirm  {entry['confirm'].replace(' -n NAMESPACE', '')}"
                yield f"    remedy   {entry['remedy']}"
    if held := judged.said(True):
        yield f"  {len(held)} as needed: {plain('; '.join(dict.fromkeys(e.observed for e in held)), 400)}"


def _github(judged: Sequence[Judged]) -> Iterator[str]:
    """Write the findings as annotations of a GitHub workflow (docs.github.com, workflow commands)."""
    for one in judged:
        for ok, level in ((False, "error"), (None, "notice")):
            for each in one.said(ok)[:_MOST_ANNOTATIONS]:
                remedy = f". {one.advice(each.fault)['remedy']}" if ok is False else ""
                text = plain(f"{each.subject}: {each.observed}{remedy}", 1000)
                yield workflow_command(level, f"seatrial {each.fault or 'lint'}", text)
