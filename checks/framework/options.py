"""The command-line options, as pytest options and as one frozen record."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from reports.record import RecordError, read_json

if TYPE_CHECKING:
    from pathlib import Path


ALL = "all"
"""What --nodes says for every node of the pool. A label of that name is still selected by `all,all`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one run, defaults applied."""

    cluster: str = "kubeconfig"
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    profile: str | None = None
    nodes: str = ""  # a selector
    all_nodes: bool = False  # only a trial of every node of the pool is enough
    on: tuple[str, ...] = ()
    trial_on: tuple[str, ...] = ()
    registry: str = ""
    image: str = ""
    launcher: str = ""
    queue: str = ""
    gang: bool = False
    print_manifests: bool = False
    with_files: bool = False  # of the probe, among the manifests
    out: Path | None = None
    tenant: bool = False
    check_secrets: bool = False
    record: bool = False
    sweep: bool = False  # `seatrial sweep`: test every node and pair instead of the trial of two nodes
    budget_s: float | None = None
    at_once: int = 0
    resume: Path | None = None

    @property
    def scenario(self) -> str | None:
        """The scenario of a simulated run, or None for a real cluster."""
        kind, _, scenario = self.cluster.partition(":")
        return (scenario or "healthy") if kind == "sim" else None

    @property
    def simulated(self) -> bool:
        """Whether the run meets the embedded cluster instead of a real one."""
        return self.scenario is not None


def add_options(parser: pytest.Parser) -> None:
    """Register the options with pytest; ``seatrial`` passes them through unchanged."""
    group = parser.getgroup("seatrial", "acceptance of a GPU Kubernetes cluster")
    option = group.addoption
    option(
        "--cluster",
        metavar="WHERE",
        default="kubeconfig",
        help="kubeconfig (default; in a pod its service account) or sim[:SCENARIO], the embedded cluster",
    )
    option("--kubeconfig", metavar="FILE", help="kubeconfig to use (default: $KUBECONFIG, then ~/.kube/config)")
    option("--context", metavar="NAME", help="kubeconfig context (default: $TAO_K8S_CONTEXT, then the current one)")
    option(
        "--namespace",
        metavar="NAME",
        help="namespace of the trial (default: $TAO_K8S_NAMESPACE, then the context's, then default)",
    )
    option("--profile", metavar="NAME|FILE", help="what this cluster must offer: a shipped profile or a YAML file")
    option(
        "--nodes",
        metavar="SELECTOR|all",
        default="",
        help="label selector of the nodes under test; all: of the whole pool, and every one must be tried",
    )
    option(
        "--on",
        metavar="NODE,NODE|DIR",
        default="",
        help="judge and try these nodes only; DIR: judge all, and try those that the run in DIR tried",
    )
    option("--trial-on", metavar="NODE,NODE", default="", help=argparse.SUPPRESS)  # of `cron`: preflight judges all
    option("--registry", metavar="PREFIX", default="", help="pull every image through this mirror")
    option("--image", metavar="REF", default="", help="image of the trial's pods (a tag or a digest)")
    option(
        "--launcher",
        metavar="KIND",
        default="",
        help="what launches the trial: indexed (default), mpijob, pytorchjob, trainjob",
    )
    option(
        "--queue",
        metavar="KIND:NAME",
        default="",
        help="through which queue: kueue:LOCALQUEUE, volcano[:QUEUE], none (default: the profile's)",
    )
    option("--gang", action="store_true", help="also try a job that cannot fit: it must start no pod")
    option(
        "--check",
        metavar="ID",
        action="append",
        default=[],
        help="run this check and what it requires (may be repeated)",
    )
    option(
        "--tenant",
        action="store_true",
        help="judge with the rights of one namespace: ask for nothing outside of it, and say what is not seen",
    )
    option(
        "--check-secrets",
        action="store_true",
        help="get the pull secrets that the profile names, to see that they exist (their content is not looked at)",
    )
    option("--print-manifests", action="store_true", help="print what the trial would create, and create nothing")
    option(
        "--with-files",
        action="store_true",
        help="with --print-manifests: the probe's source, too, to create it by hand",
    )
    option("--out", metavar="DIR", help="write report.json, report.html, report.md, junit.xml and logs/ there")
    option(
        "--record",
        action="store_true",
        help="leave in --out what the API server told of the trial's objects, to be sent to us (docs/recordings.md)",
    )
    option(
        "--github",
        action="store_true",
        help="write the report to the summary of a GitHub workflow's step, and an annotation for each finding",
    )
    option("--sweep", action="store_true", help=argparse.SUPPRESS)  # of `seatrial sweep`, as all below
    option("--budget", metavar="TIME", help=argparse.SUPPRESS)
    option("--at-once", metavar="K", type=int, default=0, help=argparse.SUPPRESS)
    option("--resume", metavar="DIR", help=argparse.SUPPRESS)
    option("--push", metavar="URL", help="push the metrics of the run to this Pushgateway")


def read_options(config: pytest.Config) -> Options:
    """Collect the options of this run; the environment of the user's documents supplies defaults.

    Raises pytest.UsageError for options that contradict each other or say nothing.
    """
    get = config.getoption
    if get("--out") == "":  # --out "$DIR" with DIR unset: a gate would wait for a report in vain
        raise pytest.UsageError("--out needs the name of a folder")
    out = (config.invocation_params.dir / get("--out")).absolute() if get("--out") else None
    tried = _tried(get("--on"), config.invocation_params.dir)
    found = Options(
        cluster=get("--cluster"),
        kubeconfig=get("--kubeconfig"),
        context=get("--context") or os.environ.get("TAO_K8S_CONTEXT") or None,
        namespace=get("--namespace") or os.environ.get("TAO_K8S_NAMESPACE") or None,
        profile=get("--profile"),
        nodes="" if get("--nodes") == ALL else get("--nodes"),
        all_nodes=get("--nodes") == ALL,
        on=() if tried else _names(get("--on")),
        trial_on=tried or _names(get("--trial-on")),
        registry=get("--registry"),
        image=get("--image"),
        launcher=get("--launcher"),
        queue=get("--queue"),
        gang=get("--gang"),
        print_manifests=get("--print-manifests"),
        with_files=get("--with-files"),
        out=out,
        tenant=get("--tenant"),
        check_secrets=get("--check-secrets"),
        record=get("--record"),
        sweep=get("--sweep"),
        budget_s=_budget(get("--budget")),
        at_once=get("--at-once"),
        resume=(config.invocation_params.dir / get("--resume")).absolute() if get("--resume") else None,
    )
    for name in ("--budget", "--at-once", "--resume"):
        if get(name) and not found.sweep:
            raise pytest.UsageError(f"{name} is an option of seatrial sweep")
    if found.sweep and found.print_manifests and not found.on:
        raise pytest.UsageError("which nodes are free only the cluster tells: --print-manifests needs --on NODE,NODE")
    if found.at_once < 0:
        raise pytest.UsageError("--at-once is at least 1")
    if found.record and out is None:
        raise pytest.UsageError("--record leaves its recording in --out DIR: name one")
    for option in ("--kubeconfig", "--context"):
        if found.simulated and get(option):
            raise pytest.UsageError(f"{option} contradicts --cluster {found.cluster}: leave one of them out")
    return found


def _budget(text: str | None) -> float | None:
    try:
        return seconds(text)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error


def seconds(text: str | None) -> float | None:
    """Return a time such as 30m in seconds; None for none. Raises ValueError."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,6})([smh])", text)
    if found is None or not int(found[1]):
        raise ValueError(f"--budget {text!r}: a number with s, m or h, such as 30m")
    return float(int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]])


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def _tried(text: str, cwd: Path) -> tuple[str, ...]:
    """Return the nodes of the run whose folder --on names; () where it names nodes. Raises pytest.UsageError."""
    folder = cwd / text
    places = [] if not text or "," in text else [folder / "report.json", *sorted(folder.glob("*/report.json"))]
    place = next((place for place in places if place.exists()), None)
    if place is None:
        return ()
    try:
        hosts = (read_json(place).get("trial") or {}).get("hosts") or {}
    except RecordError as error:
        raise pytest.UsageError(f"--on {text}: {error}") from error
    if not hosts:
        raise pytest.UsageError(f"--on {text}: that run tried no nodes")
    return tuple(sorted(set(hosts.values())))
