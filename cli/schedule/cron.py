"""``seatrial cron``: one scheduled run, always with a preflight, and a trial only on idle and due GPUs.

A Lease allows one scheduled run at a time in a namespace. One ConfigMap holds the history; another one, Events on the
run's own Job, and metrics report the results. The trial itself is ``seatrial accept`` in a separate process, which any
end of this one ends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checks.framework import signals
from checks.framework.options import ALL
from checks.profiles.loader import Profile, ProfileError, load_profile
from checks.profiles.trial import spec_of
from checks.rules.capacity import rooms
from checks.rules.pool import pool_of
from checks.rules.rights import LEASE, RESULTS, STATE, ask, new_node_rights
from cli.canary import hosts_of, only_these
from cli.mark import OUTCOMES, judged, refused, was_tried
from cli.schedule import new_nodes, node_history
from cli.schedule.node_history import LEAST, STARVED_S, next_nodes, overdue
from cli.schedule.remembered import NodeHistory, Watched, bounded
from cli.usage import INCONCLUSIVE, USAGE, Parser, connect, own_program, refuse
from jobs.cluster import node_labels as marking
from jobs.cluster.client.errors import ClusterError, ConfigError, Forbidden
from jobs.cluster.client.kube import Kube, path
from jobs.cluster.client.lease import HeldError, Lease
from jobs.cluster.facts.inventory import Inventory
from jobs.cluster.state_store import StateStoreError, event, load, parsed, save
from jobs.cluster.unstructured import Unstructured, name_of
from jobs.listing import first_of
from jobs.run.cleanup import sweep_dead
from jobs.trial.job_spec import new_run_id
from jobs.trial.spec import TrialSpec
from reports.record import coverage_of, read_json, write_atomically
from reports.schema import Record, RecordError, Verdict
from seatrial.faults.actions import in_words

NOT_FOR_CRON = ("--cluster", "--on", "--trial-on", "--partner")
_FEW = 3
RUN = re.compile(r"[2-9a-hjkmnp-z]{10}")
"""The form of jobs.trial.job_spec.new_run_id, which a user's folder names do not match."""
DESCRIPTION = """\
One scheduled run, as a CronJob starts it: preflight always; a trial on nodes that are idle now and were not tested for
a while, or with --sweep N a sweep of up to N of them; one scheduled run at a time in a namespace. The history
is in the ConfigMap seatrial-state, the results in seatrial-results and in DIR. All further options are those of
seatrial accept."""
EPILOG = """\
Exit codes: 0 go, 1 no-go, 4 usage error, 10 inconclusive: also if another scheduled run is in progress, or if
a check failed for the first time, which counts only when it fails again."""

EXAMPLES = (
    "seatrial cron --profile h100-ib --every 168 --out /results",
    "seatrial cron --profile h100-ib --sweep 16 --keep 50 --label-nodes",
    "seatrial cron --profile new-nodes.yaml --new-nodes seatrial/new",
)


def parser() -> Parser:
    """Return the parser of ``seatrial cron``; other options are passed to accept."""
    made = Parser(
        prog="seatrial cron", description=DESCRIPTION, epilog=EPILOG, examples=EXAMPLES, fromfile_prefix_chars="@"
    )  # @FILE: one option a line
    made.add_argument("--out", metavar="DIR", type=Path, default=Path("/results"), help="default: /results")
    made.add_argument("--profile", metavar="NAME|FILE", required=True, help="the requirements on this cluster")
    made.add_argument("--nodes", metavar="SELECTOR", default="", help="label selector of the nodes under test")
    made.add_argument(
        "--every", metavar="HOURS", type=float, default=168.0, help="test a node again after (default: 168)"
    )
    made.add_argument(
        "--sweep", metavar="N", type=int, default=0, help="sweep up to N idle nodes in each run, oldest first"
    )
    made.add_argument(
        "--new-nodes",
        metavar="KEY",
        nargs="?",
        const="",
        help="try unproven nodes only; a pass sets the condition SeatrialFailed and removes the taint or label KEY",
    )
    made.add_argument("--keep", metavar="N", type=int, default=20, help="how many runs to keep in DIR (default: 20)")
    made.add_argument("--push", metavar="URL", help="push the metrics to this Pushgateway, too")
    made.add_argument(
        "--label-nodes",
        action="store_true",
        help="label nodes seatrial/trial=passed or failed, failed ones seatrial/action; needs permission on nodes",
    )
    made.add_argument(
        "--node-condition",
        action="store_true",
        help="set the node condition SeatrialFailed; needs permission on nodes/status",
    )
    made.add_argument("--kubeconfig", metavar="FILE", help="default: the pod's service account")
    made.add_argument("--context", metavar="NAME")
    made.add_argument("--namespace", metavar="NAME", default=os.environ.get("TAO_K8S_NAMESPACE"))
    return made


def main(arguments: Sequence[str]) -> int:
    """Take the Lease, run, and release it."""
    options, further = parser().parse_known_args(list(arguments))
    try:
        _fit(options, further)
        profile = load_profile(options.profile)
        kube = connect(options)
    except (ProfileError, ConfigError, ValueError) as error:
        return refuse("cron", error)
    run_id = new_run_id()
    try:
        with Lease(kube, LEASE, run_id) as lease:
            return ScheduledRun(kube, lease, options, profile, run_id, further).run()
    except HeldError as error:
        print(f"seatrial cron: {error}")
        return INCONCLUSIVE
    except (ClusterError, StateStoreError) as error:
        return refuse("cron", error, INCONCLUSIVE)


def _fit(options: argparse.Namespace, further: Sequence[str]) -> None:
    """Raise ValueError, one line, for invalid options before a trial starts."""
    if not 0 <= options.every < math.inf:
        raise ValueError(f"--every {options.every}: hours, from 0")
    if options.nodes == ALL:
        raise ValueError("--nodes all is not for scheduled runs: each tries the nodes that are idle and due")
    if options.sweep and options.sweep < LEAST:
        raise ValueError(f"--sweep {options.sweep}: at least {LEAST} nodes, since one alone proves no link")
    if options.keep < 1:
        raise ValueError(f"--keep {options.keep}: at least the run itself is kept")
    if options.new_nodes is not None and options.push:
        raise ValueError("--push is not for --new-nodes: the metrics are those of the runs that try the other nodes")
    if options.new_nodes and (why := marking.forbidden(options.new_nodes)):
        raise ValueError(f"--new-nodes: {why}")
    if wrong := [word for word in further if word.partition("=")[0] in NOT_FOR_CRON]:
        raise ValueError(f"{wrong[0]} is not for scheduled runs: they choose idle nodes of the cluster they run in")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=options.out):
            pass
    except OSError as error:
        raise ValueError(f"--out {options.out}: cannot be written: {error.strerror}") from error


@dataclass(slots=True)
class ScheduledRun:
    """One scheduled run."""

    kube: Kube
    lease: Lease
    options: argparse.Namespace
    profile: Profile
    run_id: str
    further: Sequence[str]
    messages: list[str] = field(default_factory=list)
    covered: str = ""  # text with the number of tried nodes of the pool
    machines: dict[str, Unstructured] = field(default_factory=dict)  # the raw nodes before the trial
    judges: str = ""  # the selector of the nodes that are judged, if it is not --nodes
    waits: bool = False  # whether an unproven node is left for a later run

    def run(self) -> int:
        """Run; return the exit code of the verdict, softened if a failure occurred for the first time."""
        self._clear_up()
        if lacking := self._lacking():
            return refuse("cron", f"{lacking}: seatrial rbac --cron --new-nodes prints what it needs", INCONCLUSIVE)
        stored, version = load(self.kube, STATE)
        before = self._remembered(stored)
        choice, before = self._choose(before)
        if self.only_new and not choice.nodes:
            self._say(choice.why)
            if self.waits:
                self._tell("inconclusive", failed=True)
            return INCONCLUSIVE if self.waits else 0
        self._say(f"trial on {', '.join(choice.nodes)}: {choice.why}" if choice.nodes else f"no trial: {choice.why}")
        code = self._child(choice)
        self.lease.check()
        if self.lease.lost.is_set():
            self._say("the lease was lost: this run ends, since another one may be in progress")
            self._tell("inconclusive", failed=True)
            return INCONCLUSIVE  # another run may be in progress and owns the history now
        try:
            record = read_json(self._folder)
        except RecordError as error:
            self._say(f"the run ended with exit code {code} and left no record: {error}")
            self._tell("inconclusive", failed=True)
            return code if code in (2, 3, USAGE) else INCONCLUSIVE
        self.covered = str(coverage_of(record))
        after = node_history.learn(before, record, now=time.time())
        trends = node_history.trend(before, record)
        verdict, final = node_history.conclude(before, after, record)
        if verdict == "go" != record["verdict"]:
            shown = ", ".join(node_history.shown_before(before, record))
            others = "the only failure is that all GPUs are in use: it does not count"
            self._say(f"{shown}: not visible to a tenant; shown by the last trial, which passed" if shown else others)
        self.messages += [f"found: {text}" for text in _accused(record)]
        self.messages += [f"slower than usual: {text}" for text in trends]
        late = () if self.only_new else overdue(after, now=time.time(), limit_s=STARVED_S)
        if late:
            days, named = STARVED_S / 86400, first_of(late, _FEW)
            self._say(f"not tested for {days:.0f} days, since never idle when a run came: {named}")
        self.messages += [_called_bad(name, after) for name in after.bad]
        saved = self._saved(STATE, {"state.json": bounded(after)}, version=version, was=stored)
        if self.only_new:  # the results are those of the runs that try the others: a pass here must not end their alert
            self._forget()
        else:
            self._leave(record, after, verdict)
        if not self._mark(before, after, record, choice.nodes) and verdict == "go":
            verdict, final = "inconclusive", INCONCLUSIVE
        self._tell(verdict, failed=verdict != "go" or bool(trends) or bool(late) or not saved)
        print(f"VERDICT of the scheduled run: {verdict} · {self.covered} · exit code {final}", flush=True)
        return final

    @property
    def only_new(self) -> bool:
        """Whether the run tries only nodes that joined or came back."""
        return self.options.new_nodes is not None

    # ------------------------------------------------------------------------------------------------- the run

    def _lacking(self) -> str:
        """Name the missing permissions without which a pass would open no node, before a trial starts."""
        needed = new_node_rights(self.options.new_nodes)
        denied = [right.subject("") for right, answer in ask(self.kube, needed) if not answer.allowed]
        return f"not granted: {', '.join(denied)}" if denied else ""

    def _clear_up(self) -> None:
        """Delete leftovers of killed runs: they hold GPUs, so that their nodes would not be chosen."""
        swept = sweep_dead(self.kube, spec_of(self.profile, run_id=self.run_id, namespace=self.kube.namespace).launcher)
        self.messages += [f"deleted {name}, left by a killed run" for name in swept.deleted]
        self.messages += [f"could not delete {name}" for name in swept.left]

    def _remembered(self, stored: Mapping[str, str]) -> NodeHistory:
        """Return the history; a damaged one is replaced by an empty one."""
        try:
            data = parsed(stored, STATE, "state.json")
        except StateStoreError as error:
            self._say(f"{error}; it is replaced by an empty history")
            return NodeHistory()
        if data.get("schema", 1) != 1:
            raise StateStoreError(f"configmap {STATE} was written by another version (schema {data['schema']!r:.20})")
        return NodeHistory.read(data)

    def _choose(self, state: NodeHistory) -> tuple[node_history.Choice, NodeHistory]:
        """Choose idle nodes; a tenant, who cannot list nodes, chooses by time alone.

        Deleted nodes are removed from the history, so that they do not remain bad forever.
        """
        spec = spec_of(self.profile, run_id=self.run_id, namespace=self.kube.namespace)
        tenant = self.profile.tenant or "--tenant" in self.further
        cluster = Inventory.of_tenant() if tenant else Inventory.read(self.kube, selector=self.options.nodes)
        due_s = self.options.every * 3600
        if "nodes" in cluster.not_seen:
            self.waits = True
            if self.options.sweep or self.only_new:
                why = "the nodes cannot be listed: idle and due nodes are unknown"
                return node_history.Choice((), why), state
            return node_history.choose_unseen(state, now=time.time(), every_s=due_s), state
        idle = [r.node for r in rooms(cluster, cluster.gpu_nodes(spec.gpu_resource), spec) if not r.fault]
        ready = {node.name for node in cluster.nodes if node.ready}
        state = state.of({node.name for node in cluster.nodes})
        state = state.watching({node.name for node in cluster.gpu_nodes(spec.gpu_resource)}, time.time())
        idle = [name for name in idle if name in ready]
        trials = (pod for pod in cluster.pods if pod.app == "seatrial" and pod.requests.get(spec.gpu_resource))
        if waits := next((pod.namespace for pod in trials if not pod.node), ""):
            self.waits = True
            return node_history.Choice((), f"a trial of namespace {waits} waits for GPUs"), state
        if self.only_new:
            return self._choose_new(cluster, spec, state)
        if self.options.node_condition:
            self.machines = self._read_nodes()
        if self.options.sweep:
            return next_nodes(state, idle, most=self.options.sweep, now=time.time(), every_s=due_s), state
        return node_history.choose(state, idle, need=spec.nodes, now=time.time(), every_s=due_s), state

    def _choose_new(
        self, cluster: Inventory, spec: TrialSpec, state: NodeHistory
    ) -> tuple[node_history.Choice, NodeHistory]:
        """Choose unproven nodes and proven partners; only the unproven nodes are judged."""
        pool, nodes = pool_of(cluster, self.profile), self._read_nodes()
        self.machines = {node.name: nodes[node.name] for node in pool.nodes if node.name in nodes}
        key, most, now = self.options.new_nodes, self.options.sweep, time.time()
        state = new_nodes.assumed(state, self.machines, key, now)
        seen = new_nodes.outlook(cluster, pool, spec, nodes, state, key=key, most=most, now=now)
        for note in (*self._withdrawn(), *seen.notes):
            self._say(note)
        self.waits, self.judges = seen.waits, only_these(hosts_of(seen.choice.nodes, cluster))
        return seen.choice, state

    def _withdrawn(self) -> Iterator[str]:
        """Remove our condition from machines that rebooted after it was set, since a controller may rely on it."""
        for name, raw in self.machines.items():
            if marking.outlived(raw):
                try:
                    marking.condition(self.kube, name, None)
                    when = "before its last boot" if marking.booted(raw) else "and reports no boot id"
                    yield f"{name} passed {when}: it is unproven now"
                except ClusterError as error:
                    yield f"node {name} could not be marked: {error}"

    def _read_nodes(self) -> dict[str, Unstructured]:
        nodes, _ = self.kube.list(path("nodes"), labelSelector=self.options.nodes)
        return {name_of(node): node for node in nodes}

    def _child(self, choice: node_history.Choice) -> int:
        """Run preflight or the whole trial in a separate process; it ends with this one, or with the Lease."""
        names = ("profile", "nodes", "kubeconfig", "context", "namespace")
        given = {f"--{name}": getattr(self.options, name) for name in names}
        given["--nodes"] = self.judges or given["--nodes"]
        if choice.nodes and choice.nodes != (node_history.ANY,):
            given["--trial-on"] = ",".join(choice.nodes)
        program, environment = own_program()
        command_line = [word for key, value in given.items() if value for word in (key, str(value))]
        trial = "sweep" if self.options.sweep else "accept"
        command = [*program, trial if choice.nodes else "preflight", *command_line, "--out", str(self._folder)]
        command += self.further
        with signals.child(command, environment | {"SEATRIAL_RUN_ID": self.run_id}) as child:
            while child.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=1)
                if self.lease.lost.is_set():
                    child.terminate()
                    child.wait()
            return child.returncode

    @property
    def _folder(self) -> Path:
        folder: Path = self.options.out / self.run_id
        return folder

    # ---------------------------------------------------------------------------------------------- results

    def _saved(self, name: str, data: dict[str, str], **known: Any) -> bool:
        """Write a ConfigMap; if that fails, the verdict is still reported."""
        try:
            save(self.kube, name, data, **known)
        except (ClusterError, StateStoreError) as error:
            self._say(f"configmap {name} could not be written: {error}")
            return False
        return True

    def _leave(self, record: Record, state: NodeHistory, verdict: str) -> None:
        """Write results and metrics, delete the oldest runs, and push the metrics if requested."""
        from reports.metrics import exposition  # noqa: PLC0415 -- a run that found the Lease held needs none

        summary = record.copy()
        summary["verdict"] = Verdict(
            verdict
        )  # an alert must not fire for a first failure, which counts only when it is repeated
        history = state.series(time.time())
        metrics = exposition(
            summary, last_success=state.last_success or None, bad=state.judged, history=history, actions=state.actions
        )
        try:
            write_atomically(self._folder / "metrics.prom", metrics)
            write_atomically(self.options.out / "metrics.prom", metrics)
        except OSError as error:
            self._say(f"the metrics could not be written to {self.options.out}: {error.strerror}")
        short = {key: record.get(key) for key in ("run_id", "started", "seconds", "scope", "profile")}
        exit_codes = {
            "verdict": verdict,
            "run_verdict": record["verdict"],
            **short,
            "nodes": self.covered,
            "said": self.messages,
            "bad": state.bad,
            "actions": state.actions,
            "checks": {check["id"]: check["outcome"] for check in record["checks"]},
            "faults": list(record["faults"]),
        }
        latest = {"latest.json": json.dumps(exit_codes, indent=1)}
        if not self._saved(RESULTS, latest | {"metrics.prom": metrics}):
            self._saved(RESULTS, latest | {"metrics.prom": ""})  # the metrics may be too large; the verdict is not
        self._forget()
        if self.options.push:
            self._push(summary, state)

    def _push(self, record: Record, state: NodeHistory) -> None:
        from reports.metrics import PushError, push  # noqa: PLC0415 -- only where it is asked for

        try:
            known = {"bad": state.judged, "history": state.series(time.time()), "actions": state.actions}
            push(self.options.push, record, last_success=state.last_success or None, **known)
        except PushError as error:
            self._say(f"the metrics could not be pushed: {error}")

    def _forget(self) -> None:
        """Delete the oldest runs beyond those to keep: folders named by a run id, including runs that were killed."""
        try:
            runs = [
                folder
                for folder in self.options.out.iterdir()
                if RUN.fullmatch(folder.name) and folder.is_dir() and not folder.is_symlink()
            ]
            runs.sort(key=lambda run: run.stat().st_mtime)
        except OSError as error:
            self._say(f"no older run was deleted from {self.options.out}: {error.strerror}")
            return
        for folder in runs[: -self.options.keep]:
            shutil.rmtree(folder, ignore_errors=True)

    def _mark(self, before: NodeHistory, after: NodeHistory, record: Record, chosen: Sequence[str]) -> bool:
        """Mark the nodes of this run, and those with a changed judgement, in the requested ways.

        As with ``seatrial mark``, only a complete run's pass of that machine opens a new node. Returns whether all
        nodes to open were opened.
        """
        key, conditions = self.options.new_nodes, self.options.node_condition or self.only_new
        if not (conditions or self.options.label_nodes):
            return True
        why = refused(record, self.kube) if self.only_new else ""
        passed = {} if why else judged(record)
        known = {name: new_nodes.standing(self.machines[name], key) for name in chosen} if self.only_new else {}
        unproven = {name for name, bad in known.items() if bad is None}
        taken = {*coverage_of(record).tried, *unproven}
        opened = True
        for name in sorted({*taken, *after.nodes}):
            now, was = after.nodes.get(name, Watched()), before.nodes.get(name, Watched())
            bad = after.judged.get(name)
            turned = bad != before.judged.get(name)
            if name not in taken and not turned:
                continue
            if bad is not None and not turned and now.passed == was.passed and now.strikes == was.strikes:
                continue  # this run changes nothing: an earlier one's marks are of the machine that it tried
            if bad is False and self.only_new and passed.get(name) is not False:
                if name not in unproven:
                    continue
                bad = None
            faults, action = (now.faults, now.action if bad else "") if now.strikes else ((), "")
            try:
                if conditions:
                    unchanged = self._unchanged(name, record)
                    bad = marking.condition(self.kube, name, bad, faults=faults, action=action, unchanged=unchanged)
                if self.options.label_nodes:
                    marking.label(self.kube, name, bad, action=action)
                # Last: whoever waits for the taint finds the other marks in place.
                if key and name in unproven and bad is False:
                    bad = False if marking.untaint(self.kube, name, key, self._unchanged(name, record)) else None
            except ClusterError as error:
                self._say(f"node {name} could not be marked: {error}")
                bad = None
            if name in unproven:
                opened &= bad is False
                repeated = "; a first failure is repeated by the next run" if faults and bad is None else ""
                reason = why or ", ".join(faults) + repeated
                self._say(f"{name}: {OUTCOMES[bad]}{f' ({reason})' if reason else ''}")
        return opened

    def _unchanged(self, name: str, record: Record) -> Callable[[Unstructured], bool]:
        """Return a function that tests whether a node is the chosen machine: the same object, boot and driver."""
        chosen = self.machines.get(name)

        def same(raw: Unstructured) -> bool:
            if chosen is None:  # nodes that were not visible before the trial
                return was_tried(raw, record)
            return marking.is_same_machine(raw, chosen) and was_tried(raw, record)

        return same

    def _tell(self, verdict: str, *, failed: bool) -> None:
        """Record an Event on this run's Job, if the pod names it."""
        name, uid = os.environ.get("SEATRIAL_JOB_NAME"), os.environ.get("SEATRIAL_JOB_UID", "")
        if not name:
            return
        about = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
        covered = f" · {self.covered}" if self.covered else ""
        message = f"run {self.run_id}: {verdict}{covered}. " + "; ".join(self.messages)
        try:
            event(self.kube, about, reason=f"Trial{verdict.title().replace('-', '')}", message=message, warning=failed)
        except Forbidden:
            print("seatrial cron: no permission to create events: the verdict is printed here only", file=sys.stderr)
        except ClusterError as error:
            print(f"seatrial cron: the event could not be recorded: {error}", file=sys.stderr)

    def _say(self, text: str) -> None:
        self.messages.append(text)
        print(f"seatrial cron: {text}", flush=True)


def _called_bad(name: str, state: NodeHistory) -> str:
    """Name a bad node with its faults and, if known, its action."""
    node = state.nodes[name]
    asked = f"; {in_words(node.action)}" if node.action else ""
    return f"bad node: {name} ({', '.join(node.faults)}{asked})"


def _accused(record: Record) -> list[str]:
    """Summarise faults and subjects in a few words, for an Event."""
    findings = (f for check in record["checks"] for f in check["findings"] if f["ok"] is not True and f["fault"])
    texts = {f"{f['fault']} ({f['subject']})": None for f in findings}
    return list(texts)[:_FEW]
