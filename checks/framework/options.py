"""The command-line options, as pytest options and as one frozen record."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from checks.framework.named_nodes import names_in, tried
from checks.profiles.schema import parameters

LONGEST_SOAK_S = 24 * 3600
OF_SWEEP = ("--budget", "--at-once", "--resume", "--no-scale", "--take-in")
OF_ACCEPT = ("--command", "--checkpoint", "--gang")
"""Options of one command that the other refuses: it would ignore them, and could still end with a go."""
OF_TRIAL = ("--command", "--checkpoint", "--model-size", "--gang", "--soak", "--dcgm", "--detach")
"""Options of the trial that preflight ignores."""
ALL = "all"
"""The value of --nodes that selects every node of the pool. A label of that name can still be selected by `all,all`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one run, defaults applied."""

    cluster: str = "kubeconfig"
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    profile: str | None = None
    nodes: str = ""  # a label selector
    all_nodes: bool = False  # only a trial of every node of the pool is accepted
    on: tuple[str, ...] = ()
    trial_on: tuple[str, ...] = ()
    registry: str = ""
    image: str = ""
    command: str = ""
    launcher: str = ""
    queue: str = ""
    gang: bool = False
    checkpoint: bool = False
    model_size: str = ""
    print_manifests: bool = False
    with_files: bool = False  # with --print-manifests: also the manifests of the probe
    out: Path | None = None
    tenant: bool = False
    check_secrets: bool = False
    record: bool = False
    sweep: bool = False  # `seatrial sweep`: test every node and pair instead of the trial of two nodes
    budget_s: float | None = None
    at_once: int = 0
    scale: bool = True
    take_in: bool = False
    resume: Path | None = None
    training: bool = False
    soak_s: int = 0
    dcgm: int | None = None  # None: the profile's
    detach: bool = False
    attach: str = ""  # the job of a run to continue with: `seatrial job attach`

    @property
    def scenario(self) -> str | None:
        """The scenario of a simulated run, or None for a real cluster."""
        kind, _, scenario = self.cluster.partition(":")
        return (scenario or "healthy") if kind == "sim" else None

    @property
    def simulated(self) -> bool:
        """Whether the run uses the embedded cluster instead of a real one."""
        return self.scenario is not None


def add_options(option: Callable[..., object]) -> None:
    """Declare the options with ``option``, a method of pytest or argparse; ``seatrial`` passes them on unchanged."""
    option("--cluster", metavar="WHERE", default="kubeconfig", help="kubeconfig (default) or sim[:SCENARIO], embedded")
    option("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, ~/.kube/config, a pod's own")
    option("--context", metavar="NAME", help="default: $TAO_K8S_CONTEXT, then the current one")
    option("--namespace", metavar="NAME", help="default: $TAO_K8S_NAMESPACE, then the context's")
    option("--profile", metavar="NAME|FILE", help="the requirements on this cluster (docs/profiles.md)")
    option(
        "--nodes",
        metavar="SELECTOR|all",
        default="",
        help="label selector of the nodes under test; all: no go unless every node of the pool was tried",
    )
    option(
        "--on",
        metavar="NODE,NODE|DIR",
        default="",
        help="only these nodes; DIR: judge all, try those that the run in DIR tried",
    )
    option("--trial-on", metavar="NODE,NODE", default="", help=argparse.SUPPRESS)  # for `cron`: preflight judges all
    option("--registry", metavar="PREFIX", default="", help="pull every image through this mirror")
    option("--image", metavar="REF", default="", help="of the trial's pods: a tag or a digest")
    option("--command", metavar="TEXT", help="your own program on each node, by /bin/bash -c, instead of the benchmark")
    option("--launcher", metavar="KIND", default="", help="indexed (default), mpijob, pytorchjob, trainjob")
    option("--queue", metavar="KIND:NAME", default="", help="kueue:LOCALQUEUE, volcano[:QUEUE], none")
    option("--gang", action="store_true", help="also try a job that cannot fit: it must start no pod")
    option("--checkpoint", action="store_true", help="also save a sharded checkpoint, and resume it after a crash")
    option("--model-size", metavar="N", help="with --checkpoint: predict the cost for 70B parameters")
    option(
        "--check",
        metavar="ID",
        action="append",
        default=[],
        help="only this check and its prerequisites; may be repeated",
    )
    option("--tenant", action="store_true", help="judge with the permissions of one namespace")
    option("--check-secrets", action="store_true", help="check that pull secrets exist (never their content)")
    option("--print-manifests", action="store_true", help="print the objects without creating them")
    option("--with-files", action="store_true", help="with the probe's source: kubectl apply --server-side")
    option("--out", metavar="DIR", help="write report.json, .html, .md, junit.xml, logs/")
    option("--record", action="store_true", help="and record the API server's answers in recordings/")
    option("--github", action="store_true", help="step summary and annotations of a GitHub workflow")
    option("--training", action="store_true", help="and some minutes of training steps (docs/training.md)")
    option("--soak", metavar="TIME", help="with --training: minimum duration, such as 20m")
    option(
        "--dcgm",
        metavar="LEVEL",
        choices=list("01234"),
        help="DCGM's diagnostics: 1 to 4, 0 for none, not the profile's",
    )
    option("--detach", action="store_true", help="leave the trial to the cluster; seatrial job attach judges it")
    option("--attach", metavar="JOB", default="", help=argparse.SUPPRESS)  # for `seatrial job attach`
    option("--sweep", action="store_true", help=argparse.SUPPRESS)  # for `seatrial sweep`, like all options below
    option("--budget", metavar="TIME", help=argparse.SUPPRESS)
    option("--no-scale", action="store_true", help=argparse.SUPPRESS)
    option("--take-in", action="store_true", help=argparse.SUPPRESS)
    option("--at-once", metavar="K", type=int, default=0, help=argparse.SUPPRESS)
    option("--resume", metavar="DIR", help=argparse.SUPPRESS)
    option("--push", metavar="URL", help="push the metrics to this Pushgateway")


def read_options(config: pytest.Config) -> Options:
    """Collect the options of this run; environment variables documented for users supply defaults.

    Raises pytest.UsageError for options that contradict each other or are empty.
    """
    get = config.getoption
    if get("--out") == "":  # --out "$DIR" with DIR unset: a gate would wait for a report that is never written
        raise pytest.UsageError("--out needs the name of a folder")
    derived = _derived(get, config.invocation_params.dir)
    typed = [field.name for field in fields(Options) if field.name not in derived]
    options = Options(**{name: get(f"--{name.replace('_', '-')}") for name in typed}, **derived)
    is_preflight = get("markexpr").strip("()").partition(")")[0] == "preflight"
    if problem := next(_contradictions(options, get, is_preflight=is_preflight), None):
        raise pytest.UsageError(problem)
    return options


def _derived(get: Callable[[str], Any], cwd: Path) -> dict[str, Any]:
    """Return the fields of Options that are derived from the command line instead of copied."""
    of_a_run = tried(get("--on"), cwd)
    return {
        "context": get("--context") or os.environ.get("TAO_K8S_CONTEXT") or None,
        "namespace": get("--namespace") or os.environ.get("TAO_K8S_NAMESPACE") or None,
        "nodes": "" if get("--nodes") == ALL else get("--nodes"),
        "all_nodes": get("--nodes") == ALL,
        "on": () if of_a_run else names_in(get("--on")),
        "trial_on": of_a_run or names_in(get("--trial-on")),
        "command": _command(get("--command")),
        "model_size": _size(get("--model-size")),
        "out": (cwd / get("--out")).absolute() if get("--out") else None,
        "budget_s": _seconds("--budget", get("--budget")),
        "soak_s": int(_seconds("--soak", get("--soak")) or 0),
        "dcgm": int(get("--dcgm")) if get("--dcgm") else None,
        "scale": not get("--no-scale"),
        "resume": (cwd / get("--resume")).absolute() if get("--resume") else None,
    }


def _contradictions(options: Options, get: Callable[[str], Any], *, is_preflight: bool) -> Iterator[str]:
    """Describe contradictory options."""
    for name in filter(get, OF_ACCEPT if options.sweep else OF_SWEEP):
        yield f"{name} is an option of seatrial {'accept' if options.sweep else 'sweep'}"
    for name in filter(get, OF_TRIAL if is_preflight else ()):
        yield f"{name} is an option of seatrial accept: preflight starts no trial"
    if options.soak_s and not options.training:
        yield "--soak is the duration of the steps of --training: set both"
    if options.soak_s > LONGEST_SOAK_S:
        yield f"--soak is at most {LONGEST_SOAK_S // 3600}h"
    if options.model_size and not options.checkpoint:
        yield "--model-size needs --checkpoint"
    if options.detach and options.simulated:
        yield "--detach: the embedded cluster ends with this command: start one with seatrial sim"
    if options.detach and (options.sweep or options.record or options.attach):
        other = "a sweep" if options.sweep else "--record" if options.record else "seatrial job attach"
        yield f"--detach cannot be combined with {other}"
    if options.resume and options.resume == options.out:
        yield f"--out {options.out} is the folder to resume from: name another one"
    if options.sweep and options.print_manifests and not options.on:
        yield "free nodes are visible in the cluster only: --print-manifests needs --on NODE,NODE"
    if options.at_once < 0:
        yield "--at-once is at least 1"
    if options.record and options.out is None:
        yield "--record writes to the folder of --out DIR: set it"
    for name in filter(get, ("--kubeconfig", "--context") if options.simulated else ()):
        yield f"{name} contradicts --cluster {options.cluster}: leave one of them out"


def _command(text: str | None) -> str:
    if text is not None and not text.strip():
        raise pytest.UsageError("--command is empty: name the program that each node runs")
    return text or ""


def _size(text: str | None) -> str:
    if text is not None and not parameters(text):
        raise pytest.UsageError(f"--model-size {text!r}: a number of parameters, such as 70B")
    return text or ""


def _seconds(option: str, text: str | None) -> float | None:
    try:
        return seconds(text, option)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error


def seconds(text: str | None, option: str = "--budget") -> float | None:
    """Parse a duration such as 30m into seconds; None if none is given. Raises ValueError."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,6})([smh])", text)
    if match is None or not int(match[1]):
        raise ValueError(f"{option} {text!r}: a number with s, m or h, such as 30m")
    return float(int(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]])
