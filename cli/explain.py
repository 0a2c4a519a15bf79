"""``seatrial explain``: NCCL logs from files, folders, standard input or the cluster, judged."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from checks.framework.signals import interruptible
from checks.profiles.loader import ProfileError, load_profile
from checks.rules.collectives import expectation
from checks.rules.reference import compare
from checks.rules.unjudged import withhold_go
from cli.pod_logs import cluster_name, hint, open_containers, telling
from cli.trial_logs import TrialLogs
from cli.usage import USAGE, Parser
from jobs import nccl
from jobs.cluster.client.errors import ClusterError, ConfigError, NotFound
from reports import explain as render
from reports.record import EXIT_CODES, Verdict

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from checks.profiles.loader import Profile

DESCRIPTION = "Judge NCCL logs from anywhere. Exit codes: 0 go, 1 no-go, 10 inconclusive, 4 usage error."


def parser() -> Parser:
    """The options of ``seatrial explain``."""
    made = Parser(prog="seatrial explain", description=DESCRIPTION, allow_abbrev=False)
    made.add_argument(
        "logs", nargs="+", metavar="LOG", help="file, folder, '-' for stdin, job/NAME, pod/NAME, mpijob/NAME"
    )
    made.add_argument("--format", choices=("text", "json", "markdown"), default="text")
    made.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    made.add_argument("--profile", metavar="NAME|FILE", help="what this platform must show, and gives")
    made.add_argument("--kubeconfig", metavar="FILE", help="for job/NAME and pod/NAME, like the next two")
    made.add_argument("--context", metavar="NAME", default=os.environ.get("TAO_K8S_CONTEXT"))
    made.add_argument("--namespace", metavar="NAME", default=os.environ.get("TAO_K8S_NAMESPACE"))
    return made


def main(arguments: Sequence[str]) -> int:
    """Print what the logs say; the exit code is that of the worst job."""
    options = parser().parse_args(list(arguments))
    trials = TrialLogs()
    try:
        profile = load_profile(options.profile) if options.profile else None
        expect = _expected(profile)
        evidence, options.logs = nccl.collect_hang(options.logs)
        with interruptible():  # a timeout's SIGTERM ends a stream that has no end as Ctrl-C does
            partial = nccl.read(trials.others(_sources(options)))
        logs = nccl.conclude(partial, expect)
        reported = trials.jobs(expect)
        if any(_of_cluster(name) for name in options.logs):
            logs = telling(logs, or_all=not reported)
        jobs = nccl.conclude_hang(evidence, logs + reported)
        compare(jobs, profile)
        withhold_go(jobs, profile)
    except (nccl.NcclLogError, ConfigError, NotFound, ProfileError) as error:
        print(f"seatrial explain: {error}", file=sys.stderr)
        return USAGE
    except ClusterError as error:
        print(f"seatrial explain: {error}", file=sys.stderr)
        return EXIT_CODES[Verdict.INCONCLUSIVE]
    coloured = options.color == "always" or (
        options.color == "auto" and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    )
    print(render.RENDERERS[options.format](jobs, color=coloured), end="")
    return render.exit_code(jobs)


def _expected(profile: Profile | None) -> dict[str, Any] | None:
    """What any job on this platform must show; how many ranks and nodes it has is the job's own business."""
    wanted = expectation(profile) if profile is not None else None
    if profile is None or wanted is None:
        return None
    per_node = {"gpus_per_node": profile.gpu.per_node} if profile.gpu.per_node else {}
    return {key: wanted[key] for key in ("fabric", "rails", "gdr") if key in wanted} | per_node


def _of_cluster(name: str) -> tuple[str, str] | None:
    """Return kind and name of what is to be read from the cluster; a file of that name comes first."""
    return None if os.path.exists(name) else cluster_name(name)  # noqa: PTH110


def _sources(options: argparse.Namespace) -> Iterator[Any]:
    """Open what the user named, in the order of the command line; logs of the cluster come through the API."""
    for name in options.logs:
        if not name:
            raise nccl.NcclLogError("an empty name was given: name a file, a folder, '-', job/NAME or pod/NAME")
        if workload := _of_cluster(name):
            yield from _from_cluster(*workload, options)
            continue
        try:
            yield from nccl.open_sources([name], tell=_tell, progress=sys.stderr.isatty())

        except nccl.NcclLogError as error:
            if os.path.exists(name):  # noqa: PTH110
                raise
            raise nccl.NcclLogError(f"{error}{hint(name)}") from error


def _tell(text: str) -> None:
    """Say what happens to a stream that has no end."""
    print(f"seatrial explain: {text}", file=sys.stderr, flush=True)


def _from_cluster(kind: str, name: str, options: argparse.Namespace) -> Iterator[Any]:
    from jobs.cluster.client.kube import Kube  # noqa: PLC0415 -- most logs are files

    kube = Kube.connect(kubeconfig=options.kubeconfig, context=options.context, namespace=options.namespace)
    yield from open_containers(kube, kind, name)
