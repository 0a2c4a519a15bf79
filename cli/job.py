"""``seatrial job``: runs a job, shows its state and its pods' output, and judges or cancels a detached trial."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from checks.profiles.errors import ProfileError
from cli.job_run import add_options, document, last_words, print_manifests, run, show, show_words, split, status_code
from cli.usage import INCONCLUSIVE, Parser, connect, refuse
from jobs.diagnosis.state import JobState
from reports.plain import plain

if TYPE_CHECKING:
    from jobs.cluster.client.kube import Kube
    from jobs.run.job_lookup import JobLookup


NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""RFC 1123: a name that the API server accepts."""


OF_ACTION = {
    "status": ("seatrial job status -n team-a --json train",),
    "explain": ("seatrial job explain -n team-a train",),
    "logs": ("seatrial job logs -n team-a --lines 200 train",),
    "attach": ("seatrial job attach --profile my.yaml --out report seatrial-k3v9x2m7pq",),
    "cancel": ("seatrial job cancel -n team-a seatrial-k3v9x2m7pq",),
}
"""Examples of the rarer options of each action."""


def parser() -> Parser:
    """Return the parser of ``seatrial job``."""
    made = Parser(
        prog="seatrial job",
        description="Run your own job, inspect any (Job, MPIJob, PyTorchJob, TrainJob); judge or cancel a trial.",
        epilog="Exit codes: 0 done, 4 usage error, 10 not readable; of attach those of accept; of run 0 Complete, "
        "of run and status 1 Error by the infrastructure, 11 by the program, 10 unknown.",
        examples=(
            "seatrial job run --image IMAGE --gpus 8 --nodes 2 -- torchrun train.py",
            "seatrial job status -n team-a train",
            "seatrial job attach seatrial-k3v9x2m7pq --out report",
        ),
    )
    kinds = made.add_subparsers(dest="action", required=True, metavar="run|status|explain|logs|attach|cancel")
    text = "create a job, follow it to its end, report its result; Ctrl-C cancels it"
    usage = "seatrial job run --image IMAGE [options] -- PROGRAM ARGUMENT..."
    one = kinds.add_parser("run", help=text, description=text, usage=usage)
    one.add_cluster_options()
    add_options(one)
    for action, text in (
        ("status", "its state, its pods, and the cause of a failure"),
        ("explain", "explain its logs, with the options of seatrial explain job/NAME"),
        ("logs", "the last lines of every pod, redacted"),
        ("attach", "wait for a detached trial, or one with a dead runner, and judge it as accept would"),
        ("cancel", "delete a job that seatrial created, with its pods; any other is left alone"),
    ):
        one = kinds.add_parser(action, help=text, description=text, examples=OF_ACTION[action])
        one.add_argument("name", metavar="NAME")
        one.add_cluster_options()
        if action in ("status", "logs"):
            one.add_argument("--json", action="store_true", help="print one JSON document")
        if action == "logs":
            one.add_argument("--lines", metavar="N", type=int, default=50, help="of each pod (default: 50)")
        if action == "attach":
            one.add_argument("--profile", metavar="FILE", help="the profile of the trial, if it is your own")
            one.add_argument("--out", metavar="DIR", help="write report.json, .html, .md, junit.xml, logs/")
            one.add_argument("checks", metavar="FILE", nargs="*", help="your own checks, if the run had some")
            one.add_argument("-v", "--verbose", action="store_true", help="a line for each check")
    return made


def main(arguments: Sequence[str]) -> int:
    """Carry out one of the six actions for one job; the epilog lists the exit codes."""
    if arguments[:1] == ["explain"]:
        from cli.explain import main as explain  # noqa: PLC0415 -- it brings the analyzer of logs

        return explain(arguments[1:], of_jobs=True)
    return _main(arguments)


def _main(arguments: Sequence[str]) -> int:
    words, command = split(arguments)
    options = parser().parse_args(words if words[:1] == ["run"] else list(arguments))
    if options.action != "run" and not NAME.fullmatch(options.name):
        return refuse(f"job {options.action}", f"{plain(options.name)!r} is not the name of a job")
    from jobs.cluster.client.errors import ClusterError, ConfigError  # noqa: PLC0415
    from jobs.run.creation import JobError  # noqa: PLC0415
    from jobs.run.job_lookup import JobLookup  # noqa: PLC0415 -- --help does not load the client
    from jobs.trial.names import SpecError  # noqa: PLC0415

    try:
        if options.action == "run":
            return print_manifests(options, command) if options.print_manifests else run(options, command)
        kube = connect(options)
        if options.action == "attach":
            return _attach(kube, options)
        return {"status": _status, "logs": _logs, "cancel": _cancel}[options.action](JobLookup(kube), options)
    except (ConfigError, JobError, ProfileError, SpecError) as error:
        return refuse(f"job {options.action}", error)
    except ClusterError as error:
        return refuse(f"job {options.action}", error, INCONCLUSIVE)


def _status(jobs: JobLookup, options: argparse.Namespace) -> int:
    """Print the state, a line for each pod, and the cause of any failure."""
    seen = jobs.look(options.name)
    words = last_words(lambda: jobs.logs(options.name), seen)
    there = bool(seen.replicas) or jobs.find(options.name)[1] is not None
    if options.json:
        print(json.dumps(document(options.name, jobs.namespace, seen) | {"last_words": words}))
    elif there or seen.state is not JobState.UNKNOWN:
        show(options.name, seen, "" if there else ", as its events show")
        show_words(words)
    return status_code(seen) if there else refuse("job status", jobs.absent(options.name))


def _logs(jobs: JobLookup, options: argparse.Namespace) -> int:
    """Print the last lines of every pod, each with its pod's name."""
    logs = jobs.logs(options.name, max(1, options.lines))
    if not logs and jobs.find(options.name)[1] is None:
        return refuse("job logs", jobs.absent(options.name))
    if not logs:
        return refuse("job logs", f"no pod of {options.name} is there", INCONCLUSIVE)
    if options.json:
        print(json.dumps({"job": options.name, "namespace": jobs.namespace, "logs": logs}))
        return 0
    for pod, lines in logs.items():
        for line in lines:
            print(f"{plain(pod)}  {plain(line)}")
    return 0


def _cancel(jobs: JobLookup, options: argparse.Namespace) -> int:
    """Delete a job of ours, and wait until it is gone."""
    jobs.cancel(options.name)
    print(f"deleted {options.name} and its pods")
    return 0


def _attach(kube: Kube, options: argparse.Namespace) -> int:
    """Take the trial's lease, then run the checks of its run; a trial whose lease is held is left alone."""
    from checks.framework.attaching import arguments  # noqa: PLC0415
    from checks.framework.signals import INTERRUPTED  # noqa: PLC0415
    from cli.__main__ import run_checks  # noqa: PLC0415 -- the other three do not load pytest
    from jobs.cluster.client.errors import NotFound  # noqa: PLC0415
    from jobs.cluster.renewal import Watched, taken  # noqa: PLC0415
    from jobs.run.begun import read  # noqa: PLC0415
    from jobs.run.job_lookup import JobLookup  # noqa: PLC0415

    command = arguments(read(kube, options.name), options.profile)
    given = {name: getattr(options, name) for name in ("kubeconfig", "context", "out")}
    given |= {"namespace": kube.namespace, "attach": options.name}
    command += [f"--{name}={value}" for name, value in given.items() if value]
    command += (["-v"] if options.verbose else []) + options.checks
    try:
        with taken(kube, JobLookup(kube).place(options.name), _tell):
            code = run_checks(command)
    except Watched as error:
        return refuse("job attach", f"{options.name}: {error}", INCONCLUSIVE)
    except NotFound:  # another user judged or canceled it while its lease was watched
        return refuse("job attach", JobLookup(kube).absent(options.name))
    if code == INTERRUPTED:
        print(
            f"{options.name} continues in the cluster: attach again, or seatrial job cancel {options.name}",
            file=sys.stderr,
        )
    return code


def _tell(text: str) -> None:
    print(plain(text), file=sys.stderr, flush=True)
