"""What does an NCCL log say? ``seatrial explain``: logs from files, folders, standard input or the cluster, judged."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from jobs import nccl
from reports import explain as render
from reports.record import EXIT_CODES, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

USAGE = 4
DESCRIPTION = "Judge NCCL logs from anywhere. Exit codes: 0 go, 1 no-go, 10 inconclusive, 4 usage error."
WORST_FIRST = (Verdict.NO_GO, Verdict.INCONCLUSIVE, Verdict.GO)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(USAGE, f"{self.prog}: {message}\n")


def parser() -> argparse.ArgumentParser:
    """The options of ``seatrial explain``."""
    made = _Parser(prog="seatrial explain", description=DESCRIPTION, allow_abbrev=False)
    made.add_argument("logs", nargs="+", metavar="LOG", help="file, folder, '-' for stdin, job/NAME or pod/NAME")
    made.add_argument("--format", choices=("text", "json", "markdown"), default="text")
    made.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    made.add_argument("--kubeconfig", metavar="FILE", help="for job/NAME and pod/NAME, like the next two")
    made.add_argument("--context", metavar="NAME", default=os.environ.get("TAO_K8S_CONTEXT"))
    made.add_argument("--namespace", metavar="NAME", default=os.environ.get("TAO_K8S_NAMESPACE"))
    return made


def main(arguments: Sequence[str]) -> int:
    """Print what the logs say; the exit code is that of the worst job."""
    options = parser().parse_args(list(arguments))
    try:
        jobs = nccl.conclude(nccl.read(_sources(options)))
    except nccl.NcclLogError as error:
        print(f"seatrial explain: {error}", file=sys.stderr)
        return USAGE
    coloured = options.color == "always" or (
        options.color == "auto" and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    )
    print(render.RENDERERS[options.format](jobs, color=coloured), end="")
    verdicts = {Verdict(job["verdict"]) for job in jobs} or {Verdict.INCONCLUSIVE}
    return EXIT_CODES[next(v for v in WORST_FIRST if v in verdicts)]


def _sources(options: argparse.Namespace) -> Iterator[Any]:
    """Open what the user named, in the order of the command line; logs of the cluster come through the API."""
    for name in options.logs:
        kind, _, rest = name.partition("/")
        if kind in ("job", "pod") and rest and not os.path.exists(name):  # noqa: PTH110
            with contextlib.ExitStack() as stack:
                yield from _from_cluster(kind, rest, options, stack)
        else:
            yield from nccl.open_sources([name])


def _from_cluster(kind: str, name: str, options: argparse.Namespace, stack: contextlib.ExitStack) -> Iterator[Any]:
    from jobs.kube import ClusterError, Kube  # noqa: PLC0415 -- most logs are files
    from jobs.logs import open_logs  # noqa: PLC0415

    try:
        kube = Kube.connect(kubeconfig=options.kubeconfig, context=options.context, namespace=options.namespace)
        yield from open_logs(kube, kind, name, stack)
    except ClusterError as error:
        raise nccl.NcclLogError(str(error)) from error
