"""What did earlier runs leave behind? ``seatrial cleanup`` deletes what carries this tool's label, and nothing else."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE = int(pytest.ExitCode.USAGE_ERROR)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(USAGE, f"{self.prog}: {message}\n")


def parser() -> argparse.ArgumentParser:
    """The options of ``seatrial cleanup``."""
    made = _Parser(prog="seatrial cleanup", description=__doc__, allow_abbrev=False)
    made.add_argument("--kubeconfig", metavar="FILE")
    made.add_argument("--context", metavar="NAME", default=os.environ.get("TAO_K8S_CONTEXT"))
    made.add_argument("--namespace", metavar="NAME", default=os.environ.get("TAO_K8S_NAMESPACE"))
    made.add_argument("--run", metavar="ID", help="only what this run created")
    made.add_argument("--dry-run", action="store_true", help="name what would be deleted, delete nothing")
    return made


def main(arguments: Sequence[str]) -> int:
    """Sweep one namespace; 0 when nothing is left, 1 when something could not be deleted."""
    options = parser().parse_args(list(arguments))
    from jobs.cleanup import sweep  # noqa: PLC0415 -- --help does not load the client
    from jobs.kube import ClusterError, ConfigError, Kube  # noqa: PLC0415

    try:
        kube = Kube.connect(kubeconfig=options.kubeconfig, context=options.context, namespace=options.namespace)
        swept = sweep(kube, kube.namespace, run_id=options.run, dry_run=options.dry_run)
    except ConfigError as error:
        print(f"seatrial cleanup: {error}", file=sys.stderr)
        return USAGE
    except ClusterError as error:
        print(f"seatrial cleanup: {error}", file=sys.stderr)
        return 10
    verb = "would delete" if options.dry_run else "deleted"
    for name in swept.deleted:
        print(f"{verb} {name}")
    for name in swept.left:
        print(f"could not delete {name}", file=sys.stderr)
    if not swept.deleted and not swept.left:
        print(f"nothing of seatrial in namespace {kube.namespace}")
    return 1 if swept.left else 0
