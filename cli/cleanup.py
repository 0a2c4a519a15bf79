"""``seatrial cleanup``: deletes leftovers of earlier runs with this tool's label, and no other objects."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.usage import INCONCLUSIVE, Parser, connect, refuse

if TYPE_CHECKING:
    from jobs.cluster.client.kube import Kube

DESCRIPTION = "Delete the leftovers of earlier runs in one namespace: only objects with this tool's label."

EXAMPLES = ("seatrial cleanup --namespace team-a", "seatrial cleanup -n team-a --run k3v9x2m7pq --all")


def parser() -> Parser:
    """Return the parser of ``seatrial cleanup``."""
    made = Parser(prog="seatrial cleanup", description=DESCRIPTION, examples=EXAMPLES)
    made.add_cluster_options()
    made.add_argument("--run", metavar="ID", help="only objects of this run")
    made.add_argument("--all", action="store_true", help="also objects of runs in progress, possibly of other users")
    made.add_argument("--dry-run", action="store_true", help="list the objects without deleting them")
    return made


def main(arguments: Sequence[str]) -> int:
    """Clean up one namespace; return 0 if nothing is left, 1 if a deletion failed, 10 if objects could not be read."""
    options = parser().parse_args(list(arguments))
    from jobs.cluster.client.errors import ClusterError, ConfigError  # noqa: PLC0415
    from jobs.run.cleanup import sweep  # noqa: PLC0415 -- --help does not load the client

    try:
        kube = connect(options)
        if not _namespace_exists(kube):
            return refuse("cleanup", f"namespace {kube.namespace!r} does not exist")
        swept = sweep(
            kube,
            kube.namespace,
            run_id=options.run,
            dry_run=options.dry_run,
            living=bool(options.all or options.run),
            tell=_tell,
        )
    except ConfigError as error:
        return refuse("cleanup", error)
    except ClusterError as error:
        return refuse("cleanup", error, INCONCLUSIVE)
    verb = "would delete" if options.dry_run else "deleted"
    for name in swept.deleted:
        print(f"{verb} {name}")
    for name in swept.kept:
        print(f"kept {name} (--all deletes it too, --run ID only that run's)")
    for name in swept.users:
        print(f"kept job {name}, not a trial: seatrial job cancel {name} deletes it")
    for name in swept.left:
        print(f"could not delete {name}", file=sys.stderr)
    if not swept.deleted and not (swept.left or swept.kept or swept.users):
        print(f"nothing of seatrial in namespace {kube.namespace}")
    if swept.unseen:
        print(f"not looked for, since this account may not list them: {', '.join(swept.unseen)}", file=sys.stderr)
    return 1 if swept.left else 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _namespace_exists(kube: Kube) -> bool:
    """Return whether the namespace exists; True if the account may not read namespaces."""
    from jobs.cluster.client.errors import Forbidden, NotFound  # noqa: PLC0415
    from jobs.cluster.client.kube import path  # noqa: PLC0415

    try:
        kube.get(path("namespaces", kube.namespace))
    except NotFound:
        return False
    except Forbidden:
        pass
    return True
