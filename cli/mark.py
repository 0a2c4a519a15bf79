"""``seatrial mark``: writes a record's results to the nodes, as a condition, a label, or a taint that a pass removes.

Controllers and workloads wait for these: a node-readiness-controller rule for the condition, a workload's selector for
the label, a pipeline for the taint. Only nodes that a complete, recent run of this cluster has tried are marked, and
only a pass opens a node.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

from cli.listing import declared_checks
from cli.schedule.node_history import faults_naming
from cli.usage import INCONCLUSIVE, Parser, connect, refuse
from jobs.cluster import node_labels as marking
from jobs.cluster.client.kube import Kube
from jobs.cluster.unstructured import Unstructured, as_list, as_map
from reports.record import EXIT_CODES, Coverage, coverage_of, read_json, run_of
from reports.schema import Record, RecordError, Verdict
from seatrial.faults.actions import in_words

OLDEST_S = 24 * 3600
"""A day later a node may be another machine, or have another driver."""


def parser() -> Parser:
    """Return the parser of ``seatrial mark``."""
    made = Parser(
        prog="seatrial mark",
        description="Mark the nodes that a run tried, as its record says: passed, failed, or not known.",
        epilog="Exit codes: the record's own (0, 1, 10), 0 with --forget, 4 usage error, 10 if a node was not marked.",
        examples=(
            "seatrial mark before --forget --node-condition --label-nodes",
            "seatrial mark report --node-condition",
            "seatrial mark report --label-nodes --untaint seatrial/canary",
        ),
    )
    made.add_argument("record", metavar="DIR", type=Path, help="report.json, or the folder that --out wrote")
    made.add_argument("--node-condition", action="store_true", help=f"set the node condition {marking.CONDITION}")
    made.add_argument(
        "--label-nodes",
        action="store_true",
        help=f"set the label {marking.LABEL}=passed or failed, and of a failed node {marking.ACTION}=WORD",
    )
    made.add_argument("--untaint", metavar="KEY", help="remove this taint, or label, from nodes that passed only")
    made.add_argument(
        "--forget", action="store_true", help="before a change: reset the nodes that the run tried to unknown"
    )
    made.add_argument("--after", metavar="DIR", type=Path, help="only if the run began after the one in this folder")
    made.add_cluster_options()
    return made


def main(arguments: Sequence[str]) -> int:
    """Mark the nodes; return the record's exit code, so that a pipeline may end with this command."""
    options = parser().parse_args(list(arguments))
    if why := _unfit(options):
        return refuse("mark", why)
    from jobs.cluster.client.errors import ClusterError, ConfigError  # noqa: PLC0415 -- --help needs no client

    try:
        record = read_json(options.record)
        earlier = read_json(options.after) if options.after else None
        kube = connect(options)
    except (RecordError, ConfigError) as error:
        return refuse("mark", error)
    if why := refused(record, kube, earlier, forget=options.forget):
        return refuse("mark", f"no node is marked: {why}", INCONCLUSIVE)
    troubled = False
    is_bad = dict.fromkeys(judged(record)) if options.forget else judged(record)
    for node, bad in is_bad.items():
        try:
            gone = bad is not None and not was_tried(marking.read(kube, node), record)
            failed = None if gone else bad
            faults, action = (faults_of(record, node), action_of(record, node)) if failed else ((), "")
            failed = _mark(kube, node, failed, faults, action, record, options)
        except ClusterError as error:
            troubled = True
            print(f"seatrial mark: {node} could not be marked: {error}", file=sys.stderr)
        else:
            withheld = bad is not None and failed is None
            troubled |= withheld
            why = GONE if gone else NOT_THE_SAME if withheld else ""
            print(f"{node}: {OUTCOMES[failed]}{f'; {in_words(action)}' if in_words(action) else ''}{why}")
    if troubled:
        return INCONCLUSIVE
    return 0 if options.forget else EXIT_CODES[Verdict(record["verdict"])]


def _unfit(options: argparse.Namespace) -> str:
    """Explain why options are invalid; '' if they are valid."""
    if not (options.node_condition or options.label_nodes or options.untaint):
        return "choose --node-condition, --label-nodes or --untaint KEY"
    if options.forget and options.untaint:
        return "--untaint needs a pass; --forget is not one"
    why = marking.forbidden(options.untaint) if options.untaint else ""
    return f"--untaint: {why}" if why else ""


OUTCOMES = {False: "passed", True: "failed", None: "not known"}
GONE = " (it joined or came back after the run had ended, or does not exist)"
NOT_THE_SAME = " (its kubelet reports no boot id, or it changed meanwhile)"


def refused(record: Record, kube: Kube, earlier: Record | None = None, *, forget: bool = False) -> str:
    """Explain why a record must mark nothing; '' if it may. With --forget it may be old, or of a partial run."""
    cluster = record.get("cluster") or {}
    ca = str(cluster.get("ca") or "")
    same = ca == kube.authority if ca and kube.authority else cluster.get("server") == kube.server
    if not same:
        return f"the record is of {cluster.get('server')}, this is {kube.server}"
    if not judged(record):
        return "the run tried no node"
    return "" if forget else _untimely(record, earlier) or _cut(record)


def _untimely(record: Record, earlier: Record | None) -> str:
    """Explain why a record does not describe its nodes in their present state."""
    if record.get("scope") != "full":
        return "the run was a partial one"
    if record["verdict"] == Verdict.GO != run_of(record).verdict:
        return "its verdict is go, but its checks are not"
    try:
        age = (datetime.datetime.now(datetime.UTC) - _ended(record)).total_seconds()
        before = earlier is not None and _began(record) <= _began(earlier)
    except (ValueError, TypeError, OverflowError):
        return "the record does not state when it was created"
    if before:
        return "the run began before the one that it must come after (--after)"
    if not -300 < age < OLDEST_S:
        return f"the run ended {age / 3600:.0f} hours ago; it may be {OLDEST_S // 3600} hours"
    return ""


def _cut(record: Record) -> str:
    """Name the checks of a full run that a record lacks: a missing one may have failed the node."""
    there = {check["id"] for check in record["checks"]}
    cut = [name for name in declared_checks(["--sweep"] if record["sweep"] else []) if name not in there]
    few = ", ".join(cut[:3])
    return f"{len(cut)} checks of a full run are not in it ({few}, ...): cut, or another version's" if cut else ""


def _began(record: Record) -> datetime.datetime:
    return datetime.datetime.fromisoformat(str(record.get("started")))


def _ended(record: Record) -> datetime.datetime:
    """Return the end of a run. Raises ValueError, TypeError or OverflowError for invalid times."""
    return _began(record) + datetime.timedelta(seconds=record.get("seconds") or 0.0)


def was_tried(node: Unstructured, record: Record) -> bool:
    """Return whether a node can be the unchanged machine of the run.

    A node that joined later under the same name is a different machine; a node with a newer Ready transition was lost,
    or has rebooted.
    """
    ready = next((c for c in as_list(as_map(node.get("status")).get("conditions")) if c.get("type") == "Ready"), {})
    since = (as_map(node.get("metadata")).get("creationTimestamp"), ready.get("lastTransitionTime"))
    try:
        return all(datetime.datetime.fromisoformat(str(each)) <= _ended(record) for each in since)
    except (ValueError, TypeError, OverflowError):
        return False


def judged(record: Record) -> dict[str, bool | None]:
    """Return whether each tried node is bad: False passed, True failed, None not known.

    A node has passed if the whole run did, or if a sweep has proven it and the failures are of other nodes or links. It
    has failed if a finding of a failed check is about it. A partner of a bad node has not passed; neither have the two
    nodes of a bad pair, since the faulty one is unknown.
    """
    tried = coverage_of(record).tried
    go = record.get("verdict") == Verdict.GO
    sweep = record.get("sweep") or {}
    proven = set(sweep.get("proven") or ()) if _of_elements(record, coverage_of(record)) else set()
    is_bad: dict[str, bool | None] = {}
    for node in tried:
        blamed = bool(faults_of(record, node))
        is_bad[node] = True if blamed else False if go or (node in proven and not _is_open(record, node)) else None
    return is_bad


def _is_open(record: Record, node: str) -> bool:
    """Return whether a check could not decide about a node: a sweep's pairs do not prove every check."""
    undecided = [(f["subject"], f["subject"]) for c in record["checks"] for f in c["findings"] if f["ok"] is None]
    return bool(faults_naming(node, undecided))


def _of_elements(record: Record, coverage: Coverage) -> bool:
    """Return whether all failures are of single nodes, or of a sweep's single links: the rest remains proven."""
    nodes = (*coverage.tried, *coverage.untried)
    for check in record["checks"]:
        bad = [finding for finding in check["findings"] if finding["ok"] is False]
        if check["outcome"] != "failed":
            continue
        if any(finding["fault"] == "sweep.fleet" for finding in bad):
            return False
        blamed = [(finding["fault"], finding["subject"]) for finding in bad]
        if not check["id"].startswith("sweep.") and not all(
            any(faults_naming(node, [each]) for node in nodes) for each in blamed
        ):
            return False
    return True


def faults_of(record: Record, node: str) -> tuple[str, ...]:
    """Return the distinct faults of a node in failed checks; those of a pair belong to neither of its nodes."""
    named = [
        (finding["fault"], finding["subject"])
        for check in record["checks"]
        if check["outcome"] == "failed"
        for finding in check["findings"]
        if finding["ok"] is False and finding["fault"]
    ]
    return faults_naming(node, named)


def action_of(record: Record, node: str) -> str:
    """Return the action word for a node; '' if no finding names it, or the record is of an earlier version."""
    found = record["actions"].get(node)
    return found["action"] if found else ""


def _mark(
    kube: Kube,
    node: str,
    bad: bool | None,
    faults: Sequence[str],
    action: str,
    record: Record,
    options: argparse.Namespace,
) -> bool | None:
    """Write the marks and return their verdict; ``faults`` and ``action`` apply to a failed node."""

    def unchanged(raw: Unstructured) -> bool:
        return was_tried(raw, record)

    if options.node_condition:
        bad = marking.condition(kube, node, bad, faults=faults, action=action, unchanged=unchanged)
    if options.label_nodes:
        marking.label(kube, node, bad, action=action)
    if options.untaint and bad is False:  # last: whoever waits for the taint finds the other marks in place
        marking.untaint(kube, node, options.untaint, unchanged)
    return bad
