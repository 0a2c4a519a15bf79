"""``seatrial job``: what a job does now, what its pods say, and how a trial that nobody waits for is ended."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tabulate import tabulate

from cli.usage import USAGE, Parser
from jobs.diagnosis.state import JobState
from reports.record import EXIT_CODES
from reports.schema import Verdict

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from jobs.run.job_lookup import JobLookup

UNSEEN = EXIT_CODES[Verdict.INCONCLUSIVE]


def parser() -> Parser:
    """The options of ``seatrial job``."""
    made = Parser(
        prog="seatrial job",
        allow_abbrev=False,
        description="Look at a job (Job, MPIJob, PyTorchJob or TrainJob), read its pods' logs, or cancel a trial.",
        epilog="Exit codes: 0 done, 4 usage error, 10 nobody could look.",
        examples=("seatrial job status -n team-a train", "seatrial job logs --lines 200 train"),
    )
    kinds = made.add_subparsers(dest="action", required=True, metavar="status|logs|cancel")
    for action, text in (
        ("status", "its state, its pods, and what is wrong with it, if anything"),
        ("logs", "the last lines of every pod, redacted"),
        ("cancel", "delete a job that seatrial created, with its pods; any other is left alone"),
    ):
        one = kinds.add_parser(action, allow_abbrev=False, help=text, description=text)
        one.add_argument("name", metavar="NAME")
        one.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, then ~/.kube/config")
        one.add_argument("--context", metavar="NAME", default=os.environ.get("TAO_K8S_CONTEXT"))
        one.add_argument("-n", "--namespace", metavar="NAME", default=os.environ.get("TAO_K8S_NAMESPACE"))
        if action == "logs":
            one.add_argument("--lines", metavar="N", type=int, default=50, help="of each pod (default: 50)")
    return made


def main(arguments: Sequence[str]) -> int:
    """Do one of the three for one job."""
    options = parser().parse_args(list(arguments))
    from jobs.cluster.client.kube import ClusterError, ConfigError, Kube  # noqa: PLC0415
    from jobs.run.creation import JobError  # noqa: PLC0415
    from jobs.run.job_lookup import JobLookup  # noqa: PLC0415 -- --help does not load the client

    try:
        kube = Kube.connect(kubeconfig=options.kubeconfig, context=options.context, namespace=options.namespace)
        return {"status": _status, "logs": _logs, "cancel": _cancel}[options.action](JobLookup(kube), options)
    except (ConfigError, JobError) as error:
        print(f"seatrial job {options.action}: {error}", file=sys.stderr)
        return USAGE
    except ClusterError as error:
        print(f"seatrial job {options.action}: {error}", file=sys.stderr)
        return UNSEEN


def _status(jobs: JobLookup, options: argparse.Namespace) -> int:
    """Print the state, a line for each pod, and the cause where something is wrong."""
    from checks.faults.catalogue import explain  # noqa: PLC0415 -- only a job with a fault needs it

    state, replicas, analysis = jobs.look(options.name)
    if state is JobState.UNKNOWN and not replicas:
        print(f"seatrial job status: there is no job {_plain(options.name)} in this namespace", file=sys.stderr)
        return USAGE
    print(f"{options.name}: {state}")
    rows = [
        (r.index, _plain(r.pod), _plain(r.node), r.phase, _plain(r.readiness_issue or "")) for r in replicas if r.pod
    ]
    if rows:
        print(tabulate(rows, headers=["rank", "pod", "node", "phase", "why it is not ready"], disable_numparse=True))
    if analysis is not None:
        entry = explain(analysis.fault, analysis.subject, options.namespace or "")
        print(f"\n{analysis.fault}: {entry['title']}")
        print(f"  {_plain(analysis.subject)}: {_plain(analysis.observed)}, expected {_plain(analysis.expected)}")
        for key in ("confirm", "remedy"):
            if entry.get(key):
                print(f"  {key}: {entry[key]}")
    return 0


def _logs(jobs: JobLookup, options: argparse.Namespace) -> int:
    """Print the last lines of every pod, each with its pod's name."""
    found = jobs.logs(options.name, max(1, options.lines))
    if not found:
        print(f"seatrial job logs: no pod of {options.name} is there", file=sys.stderr)
        return UNSEEN
    for pod, lines in found.items():
        for line in lines:
            print(f"{_plain(pod)}  {_plain(line)}")
    return 0


def _cancel(jobs: JobLookup, options: argparse.Namespace) -> int:
    """Delete a job of ours, and wait until it is gone."""
    jobs.cancel(options.name)
    print(f"deleted {options.name} and its pods")
    return 0


def _plain(text: object) -> str:
    """Return a text without control characters: what a cluster says must not steer the terminal."""
    return "".join(character if character.isprintable() else " " for character in str(text))
