"""``seatrial profile``: lints a profile, proposes one for this cluster, or captures one from an accepted run."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from checks.profiles.baseline import NotABaselineError, baseline
from checks.profiles.errors import Problem
from checks.profiles.loader import ProfileError, load_profile, problems, profile_names
from cli.usage import INCONCLUSIVE, Parser, refuse
from jobs.cluster.redact import safe
from jobs.cluster.unstructured import name_of
from reports.record import read_json
from reports.schema import RecordError

if TYPE_CHECKING:
    from checks.profiles.proposal import Proposal
    from jobs.cluster.client.kube import Kube


MOST_SHOWN = 50
"""Maximum number of errors of one profile that lint prints."""


DETECT = ("seatrial profile detect --cluster sim:healthy", "seatrial profile detect --nodes pool=h100 > my.yaml")
CAPTURE = ("seatrial profile capture report --slack 5 --extends my.yaml > baseline.yaml",)


def parser() -> Parser:
    """Return the parser of ``seatrial profile``."""
    made = Parser(
        prog="seatrial profile",
        description="Lint a profile, propose one, or capture one from a run.",
        epilog="Exit codes: 0 done, 1 lint found errors, 4 usage error, 10 the cluster could not be read.",
        examples=(
            "seatrial profile detect > my.yaml",
            "seatrial profile lint my.yaml",
            "seatrial profile capture report > baseline.yaml",
        ),
    )
    kinds = made.add_subparsers(dest="action", required=True, metavar="lint|detect|capture")
    lint = kinds.add_parser("lint", help="is it sound, possible, and would it notice anything?")
    lint.add_argument("profiles", nargs="*", metavar="NAME|FILE", help="default: all shipped ones")
    detect = kinds.add_parser("detect", help="propose a profile from the cluster", examples=DETECT)
    detect.add_argument("--cluster", metavar="WHERE", default="kubeconfig", help="kubeconfig or sim[:SCENARIO]")
    detect.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, then ~/.kube/config")
    detect.add_argument("--context", metavar="NAME", default=os.environ.get("TAO_K8S_CONTEXT"))
    detect.add_argument("--nodes", metavar="SELECTOR", default="", help="label selector of the nodes to read")
    capture = kinds.add_parser("capture", help="turn an accepted run into a baseline", examples=CAPTURE)
    capture.add_argument("record", metavar="DIR|report.json", type=Path, help="the --out folder of an accepted run")
    capture.add_argument(
        "--slack", metavar="PERCENT", type=float, default=10.0, help="how much worse later runs may be (default: 10)"
    )
    capture.add_argument("--extends", metavar="NAME|FILE", help="default: the profile of the run")
    capture.add_argument("--simulated", action="store_true", help="take a simulated run, too")
    return made


def main(arguments: Sequence[str]) -> int:
    """Run one of the three actions."""
    options = parser().parse_args(list(arguments))
    try:
        return {"lint": lint, "detect": detect, "capture": capture}[options.action](options)
    except (ProfileError, RecordError, NotABaselineError) as error:
        return refuse(f"profile {options.action}", error)


def lint(options: argparse.Namespace) -> int:
    """Print all errors of each profile; return 0 if there are none."""
    bad = 0
    for ref in options.profiles or profile_names():
        texts = [_told(problem) for problem in problems(ref)]
        more = [f"and {len(texts) - MOST_SHOWN} more"] if len(texts) > MOST_SHOWN else []
        if len(texts) > 1:
            print("\n  ".join([f"{ref}: {len(texts)} objections", *texts[:MOST_SHOWN], *more]))
        else:
            text = "".join(texts) or "sound"
            print(text if repr(ref) in text else f"{ref}: {text}")
        bad += bool(texts)
    return 1 if bad else 0


def _told(problem: Problem) -> str:
    """Describe an error and, if known, its place."""
    file = f"{problem.file}: " if problem.file else ""
    line = f"line {problem.line}: " if problem.line else ""
    return f"{file}{line}{problem.text}"


def detect(options: argparse.Namespace) -> int:
    """Print a profile that fits the cluster's GPU nodes; a comment names the source of every part."""
    from checks.framework.simulation import simulated  # noqa: PLC0415
    from checks.profiles.proposal import propose  # noqa: PLC0415 -- lint needs no cluster
    from jobs.cluster.client.errors import ClusterError, ConfigError  # noqa: PLC0415
    from jobs.cluster.client.kube import Kube  # noqa: PLC0415
    from jobs.cluster.facts.inventory import Inventory  # noqa: PLC0415
    from jobs.cluster.facts.stack import KINDS, listing  # noqa: PLC0415

    kind, _, scenario = options.cluster.partition(":")
    if kind not in ("kubeconfig", "sim"):
        return refuse("profile detect", f"--cluster {options.cluster!r} is neither kubeconfig nor sim")
    try:
        with simulated(scenario) if kind == "sim" else contextlib.nullcontext() as simulation:
            path = simulation.kubeconfig if simulation else options.kubeconfig
            kube = Kube.connect(kubeconfig=path, context=None if simulation else options.context, namespace=None)
            cluster = Inventory.read(kube, selector=options.nodes)
            networks, unseen = _networks(kube)
            listed = {kind: listing(kube, kind, *KINDS[kind]) for kind in ("deviceclasses", "resourceslices")}
    except ConfigError as error:
        return refuse("profile detect", error)
    except ClusterError as error:
        return refuse("profile detect", error, INCONCLUSIVE)
    proposal = propose(cluster, {name: load_profile(name) for name in profile_names()}, networks, listed.__getitem__)
    if proposal is None:
        why = cluster.not_seen.get("nodes") or f"none of {len(cluster.nodes)} nodes has a GPU"
        return refuse("profile detect", why, INCONCLUSIVE)
    for what, why in [("secondary networks", unseen), *((kind, each.hidden) for kind, each in listed.items())]:
        if why:
            proposal.open.append(f"{what} could not be read: {why}")
    head = f"Proposed from the answers of {kube.server}. Compare every line with the order."
    print(_written(proposal, head), end="")
    return 0


def _networks(kube: Kube) -> tuple[list[str], str]:
    """Return the secondary networks that Multus could attach (none without Multus), and why they cannot be listed."""
    from jobs.cluster.client.errors import ApiError, NotFound  # noqa: PLC0415

    try:
        definitions, _ = kube.list("/apis/k8s.cni.cncf.io/v1/network-attachment-definitions")
    except NotFound:
        return [], ""
    except ApiError as error:
        return [], safe(error.message or error.reason, 300)
    return [name_of(item) for item in definitions if isinstance(item, dict)], ""


def capture(options: argparse.Namespace) -> int:
    """Print the baseline of an accepted run."""
    if not 0 <= options.slack < 100:
        raise NotABaselineError(f"--slack must be from 0 to below 100 percent, not {options.slack:g}")
    record = read_json(options.record)
    if record["simulated"] and not options.simulated:
        raise NotABaselineError("the run was simulated: its numbers are not from a cluster (--simulated accepts them)")
    parent = options.extends or record["profile"]
    if not parent and record["verdict"] == "go":
        raise NotABaselineError("the run had no profile: name the profile of the floors with --extends")
    if not options.extends and parent and parent not in profile_names():
        raise NotABaselineError(f"the run's profile {parent!r} is not a shipped one: name its file with --extends")
    floors = load_profile(str(parent)).floors if parent else ()
    document = baseline(record, slack=options.slack / 100, floors=floors)
    print(yaml.safe_dump({"extends": str(parent), **document}, sort_keys=False, allow_unicode=True, width=110), end="")
    return 0


def _written(proposal: Proposal, head: str) -> str:
    """Write a proposal as YAML, with a comment that names each part's source."""
    lines = [f"# {head}", *(f"# - {text}" for text in proposal.open)]
    for key, value in proposal.document.items():
        if key in proposal.because:
            lines.append(f"# {proposal.because[key]}")
        lines.append(yaml.safe_dump({key: value}, sort_keys=False, allow_unicode=True, width=110).rstrip())
    return "\n".join(lines) + "\n"
