"""``seatrial job run``: creates a user's own job, follows it to its end, and reports its outcome."""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from tabulate import tabulate

from cli.usage import INCONCLUSIVE, Parser, connect, refuse
from jobs.diagnosis.state import ERR_INFRA, ERR_PROGRAM, FailureAnalysis, JobState, Seen
from jobs.trial.job_spec import LAUNCHERS
from reports.plain import plain

if TYPE_CHECKING:
    from jobs.run.handle import JobHandle
    from jobs.run.logs import Follower

INFRASTRUCTURE, PROGRAM, INTERRUPTED = 1, 11, 2
_OF_CLASS = {ERR_INFRA: INFRASTRUCTURE, ERR_PROGRAM: PROGRAM}
_LAST_WORDS = 20
_EXITED = ("job.failed", "container.oom")  # the cause also shows for a container that restarts repeatedly
_DRAIN_S = 15.0  # for the last lines of a log, as in a trial (jobs/run/watcher.py)


def add_options(one: Parser) -> None:
    """Add the options of ``seatrial job run``; its command follows ``--``."""
    one.add_argument("--image", metavar="IMAGE", default="", help="with a tag or a digest")
    one.add_argument("--profile", metavar="NAME|FILE", help="defaults of options: image, NICs, networks, queue, ...")
    one.add_argument("--gpus", metavar="N", type=int, help="of each node (default: the profile's, or 1; 0: CPUs only)")
    one.add_argument("--nodes", metavar="N", type=int, default=1, help="pods, each a separate rank (default: 1)")
    one.add_argument("--name", metavar="NAME", default="", help="of the job (default: job- and ten characters)")
    one.add_argument("--launcher", choices=LAUNCHERS, default="", help="the kind of job (default: indexed)")
    one.add_argument("--queue", metavar="KIND:NAME", default="", help="kueue:LOCALQUEUE, volcano[:QUEUE]")
    for option, form, what in (
        ("--env", "NAME=VALUE", "a variable of the container"),
        ("--rdma", "RESOURCE=N", "a device resource and how many each pod gets"),
        ("--mount", "CLAIM=PATH", "a PersistentVolumeClaim and where it is mounted"),
        ("--node-selector", "LABEL=VALUE", "only nodes with this label"),
    ):
        one.add_argument(option, metavar=form, action="append", default=[], help=f"{what}; may be repeated")
    one.add_argument("--pull-secret", metavar="NAME", default="", help="of the registry")
    one.add_argument("--cpu", metavar="N", help="resource requests of each pod, in Kubernetes' notation")
    one.add_argument("--memory", metavar="SIZE", help="the same of memory: 64Gi")
    one.add_argument("--time-limit", metavar="SECONDS", type=int, default=0, help="when Kubernetes ends it")
    one.add_argument("--no-guard", action="store_true", help="create it even if it does not fit the nodes")
    one.add_argument("--print-manifests", action="store_true", help="print the objects, and create nothing")
    one.add_argument("--detach", action="store_true", help="create it and leave it to the cluster")
    one.add_argument("--json", action="store_true", help="print one JSON document")


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options, and the text after the first ``--``."""
    words = list(arguments)
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def asked(options: argparse.Namespace, command: Sequence[str]) -> dict[str, Any]:
    """Return the job in the terms of create_job. Raises SpecError and ProfileError for invalid options."""
    from jobs.trial.names import SpecError  # noqa: PLC0415 -- as below

    if not command:
        raise SpecError("the command is missing: put -- PROGRAM ARGUMENT... after all options")
    if not options.image and not options.profile:
        raise SpecError("--image is missing, or a --profile with an image")
    more: dict[str, Any] = {key: value for key, value in (("cpu", options.cpu), ("memory", options.memory)) if value}
    if options.profile:
        from checks.profiles.loader import load_profile  # noqa: PLC0415 -- most jobs have none
        from checks.profiles.trial import job_defaults  # noqa: PLC0415 -- as above

        more["profile"] = job_defaults(load_profile(options.profile))
    rdma = {name: _number(name, amount) for name, amount in pairs("--rdma", options.rdma).items()}
    return {
        "image": options.image,
        # A single word with a space is a line for the shell, as for sh -c.
        "command": command[0] if len(command) == 1 and re.search(r"\s", command[0]) else command,
        "gpu_count": options.gpus,
        "num_nodes": options.nodes,
        "name": options.name,
        "env_vars": pairs("--env", options.env),
        "image_pull_secret": options.pull_secret,
        "node_selector": pairs("--node-selector", options.node_selector),
        "launcher": options.launcher,
        "queue": options.queue,
        "mounts": pairs("--mount", options.mount),
        "rdma": rdma or None,
        "time_limit_s": options.time_limit,
        **more,
    }


def print_manifests(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Print the objects of the job as YAML, without a request to a cluster. Raises SpecError and ProfileError."""
    from jobs.trial.job_spec import own_job  # noqa: PLC0415 -- as below
    from jobs.trial.manifests import job_of, to_yaml  # noqa: PLC0415 -- as below

    spec = own_job(namespace=options.namespace or "default", **asked(options, command))
    print(to_yaml(job_of(spec)), end="")
    return 0


def run(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Create the job and follow it. Raises the errors of `asked`, JobError, ConfigError and ClusterError."""
    from jobs.run.handle import Refused  # noqa: PLC0415
    from jobs.run.launcher import Launcher  # noqa: PLC0415 -- --help does not load the client

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        job = asked(options, command)
        kube = connect(options)
        handle = Launcher(kube, _tell).create_job(**job, guard=not options.no_guard)
    except Refused as error:
        if options.json:
            print(json.dumps({"job": None, "namespace": kube.namespace, "failure_analysis": asdict(error.analysis)}))
        return refuse("job run", plain(error), _code(error.analysis))
    if options.detach:
        print(
            json.dumps({"job": handle.name, "namespace": handle.namespace})
            if options.json
            else f"{handle.name} continues in {handle.namespace}: seatrial job status|logs|cancel {handle.name}"
        )
        return 0
    return _follow(handle, options)


def _follow(handle: JobHandle, options: argparse.Namespace) -> int:
    """Wait for the end, print it, and delete a job that cannot start or was interrupted."""
    seen: list[Seen] = []
    first = _FirstRank(handle, sys.stderr if options.json else sys.stdout)
    tell = _teller(handle.name, seen)

    def look(now: Seen) -> None:
        tell(now)
        first.follow(now)

    try:
        handle.wait(tell=look)
        first.end()
        words = {pod: lines for pod, lines in _last_words(handle, seen[-1]).items() if options.json or pod != first.pod}
    except KeyboardInterrupt:
        _tell(f"interrupted: {handle.name} is canceled")
        handle.cancel()
        return INTERRUPTED
    last = seen[-1]
    if options.json:
        print(json.dumps(document(handle.name, handle.namespace, last) | {"last_words": words}))
    else:
        show(handle.name, last)
        for pod, lines in words.items():
            print(f"\nlast lines of {plain(pod)}:")
            for line in lines:
                print(f"  {plain(line)}")
    if not last.state.final and last.analysis is not None:
        handle.cancel()
        _tell(f"{handle.name} cannot start, and waiting does not help: it is canceled")
    return 0 if last.state is JobState.COMPLETE else _code(last.analysis)


class _FirstRank:
    """Prints the log of the first rank, or of the launcher, as it is written."""

    def __init__(self, handle: JobHandle, out: TextIO) -> None:
        self.pod = ""
        self._handle, self._out, self._over = handle, out, False
        self._follower: Follower | None = None

    def follow(self, now: Seen) -> None:
        """Start once the pod runs or has run; record its end."""
        if self._follower is None and (rank := self._handle.first(now)) is not None:
            self.pod = rank.pod
            self._follower = self._handle.follow(self.pod, lambda: self._over, self._print)
        mine = [replica for replica in now.replicas if replica.pod == self.pod]
        self._over = now.state.final or any(replica.phase in ("Succeeded", "Failed") for replica in mine)

    def _print(self, line: str) -> None:
        print(plain(line), file=self._out, flush=True)

    def end(self) -> None:
        """Wait for the last lines."""
        self._over = True
        if self._follower is not None and not self._follower.join(_DRAIN_S):
            self._follower.stop()


def _code(analysis: FailureAnalysis | None) -> int:
    return _OF_CLASS.get(str(analysis.err_class), INCONCLUSIVE) if analysis is not None else INCONCLUSIVE


def status_code(seen: Seen) -> int:
    """Return the exit code for a state: for a job in Error it distinguishes infrastructure and program."""
    return _code(seen.analysis) if seen.state is JobState.ERROR else 0


def _teller(name: str, seen: list[Seen]) -> Callable[[Seen], None]:
    """Return a callback that keeps each observation in ``seen``, and prints the differences from the previous one."""
    told = [""]

    def tell(now: Seen) -> None:
        seen.append(now)
        del seen[:-1]
        phases = [replica.phase for replica in now.replicas]
        counts = ", ".join(f"{phases.count(phase)} {phase}" for phase in dict.fromkeys(phases))
        issue = next((f"rank {r.index}: {r.readiness_issue}" for r in now.replicas if r.readiness_issue), "")
        if not issue and now.analysis is not None and not now.state.final:
            issue = now.analysis.observed
        text = f"{name}: {now.state}" + (f" ({counts})" if counts else "") + (f"; {issue[:300]}" if issue else "")
        if text != told[0]:
            told[0] = text
            _tell(text)

    return tell


def _last_words(handle: JobHandle, seen: Seen) -> dict[str, list[str]]:
    """Return the last lines of the pod that the cause is about; without one, of all remaining pods."""
    logs = {pod: lines for pod, lines in handle.logs(_LAST_WORDS).items() if lines}
    pod = seen.analysis.pod if seen.analysis is not None else ""
    return {pod: logs[pod]} if pod in logs else logs


def last_words(logs: Callable[[], Mapping[str, list[str]]], seen: Seen) -> dict[str, list[str]]:
    """Return the last output of the first failed rank's program; `logs` are requested only if a rank failed."""
    failed = sorted((r for r in seen.replicas if r.phase == "Failed" and r.pod), key=lambda each: each.since)
    pods = ([seen.analysis.pod] if seen.analysis is not None else []) + [each.pod for each in failed]
    exited = seen.analysis is not None and seen.analysis.fault in _EXITED
    if seen.state is not JobState.ERROR and not failed and not exited:
        return {}
    from cli.job_answer import words_of  # noqa: PLC0415 -- it brings the analyzer of logs

    told = logs()
    for pod in pods:
        if words := words_of(pod, told.get(pod, [])):
            return {pod: words}
    return {}


def show_words(words: Mapping[str, list[str]]) -> None:
    """Print the program's output under the pod's name."""
    for pod, lines in words.items():
        print(f"\n{plain(pod)} said:")
        for line in lines:
            print(f"  {plain(line)}")


def document(name: str, namespace: str, seen: Seen) -> dict[str, Any]:
    """Return the --json document of one observation of a job."""
    return {
        "job": name,
        "namespace": namespace,
        "state": seen.state,
        "replicas": [asdict(replica) for replica in seen.replicas],
        "standing": seen.standing,
        "failure_analysis": asdict(seen.analysis) if seen.analysis else None,
        "not_seen": seen.not_seen,
    }


def show(name: str, seen: Seen, note: str = "") -> None:
    """Print the state, a line for each pod, the state of the ranks, and the cause of a failure."""
    print(f"{name}: {seen.state}{note}")
    rows = [(r.index, plain(r.pod), plain(r.node), r.phase, plain(r.readiness_issue or "")) for r in seen.replicas]
    if rows := [row for row in rows if row[1] or row[4]]:
        print(tabulate(rows, headers=["rank", "pod", "node", "phase", "why it is not ready"], disable_numparse=True))
    for line in told(seen):
        print(plain(line))


def told(seen: Seen) -> Iterator[str]:
    """Yield the state of the ranks, the one cause with its confirmation and remedy, and unreadable parts."""
    if seen.standing:
        yield ""
        yield from seen.standing
    if (analysis := seen.analysis) is not None:
        blame = f" ({analysis.err_class})" if analysis.err_class else ""
        yield ""
        yield f"{analysis.fault}: {analysis.title}{blame}"
        yield f"  {analysis.subject}: {analysis.observed} (expected {analysis.expected})"
        if analysis.suggestion and analysis.suggestion != analysis.remedy:
            yield f"  {analysis.suggestion}"
        yield from (f"  {key}: {text}" for key in ("confirm", "remedy") if (text := getattr(analysis, key)))
    yield from (f"not seen: {text}" for text in seen.not_seen)


def pairs(option: str, given: Sequence[str]) -> Mapping[str, str]:
    """Read KEY=VALUE of a repeatable option. Raises SpecError."""
    from jobs.trial.names import SpecError  # noqa: PLC0415 -- as above

    found: dict[str, str] = {}
    for text in given:
        key, sign, value = text.partition("=")
        if not key or not sign:
            raise SpecError(f"{option} {plain(text, 100)!r} is not of the form KEY=VALUE")
        if key in found:
            raise SpecError(f"{option} {plain(key, 100)!r} is given twice")
        found[key] = value
    return found


def _number(name: str, text: str) -> int:
    from jobs.trial.names import SpecError  # noqa: PLC0415 -- as above

    if not text.isascii() or not text.isdigit():
        raise SpecError(f"--rdma {plain(name, 100)}={plain(text, 40)!r} is not a whole number")
    return int(text)


def _tell(text: str) -> None:
    print(plain(text), file=sys.stderr, flush=True)
