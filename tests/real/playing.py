"""Plays a recording through the launcher, its client, watcher and diagnosis, and compares the result with its yaml."""

import datetime
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from jobs.cluster.client import reading
from jobs.cluster.client.kube import Kube
from jobs.cluster.client.kubeconfig import ClusterSource
from jobs.diagnosis.state import JobState
from jobs.run.launcher import Launcher
from jobs.run.recorder import SUFFIX
from jobs.trial.spec import PREFIX, TrialSpec
from tests import recordings
from tests.real.server import Server, play_of
from tests.real.virtual import World

ENDS = ("completed", "failed", "given-up", "deleted", "interrupted")


@dataclass(frozen=True)
class Expected:
    """The expectations of a recording's yaml."""

    job: str
    ends: str
    cause: str | None
    subject: str
    also: tuple[str, ...] = ()

    @property
    def faults(self):
        return {self.cause, *self.also}


@dataclass(frozen=True)
class Case:
    """A recording and its expected result."""

    name: str
    recording: recordings.Recording
    expected: Expected
    play: object = field(compare=False)


@dataclass(frozen=True)
class Outcome:
    """The product's result: outcome, number of Jobs created, position in the recording, node of each rank."""

    ends: str
    fault: str | None
    subject: str
    observed: str
    attempts: int
    after_s: float
    until: float
    nodes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __str__(self):
        subject = f" {self.subject}" if self.subject else ""
        again = f" ({self.attempts} attempts)" if self.attempts > 1 else ""
        return f"{self.ends} {self.fault or '-'}{subject} after {self.after_s:.1f} s{again}"


def load(path):
    """Read NAME.jsonl.gz and NAME.yaml next to it."""
    path = Path(path)
    name = path.name.removesuffix(SUFFIX)
    said = yaml.safe_load(path.with_name(f"{name}.yaml").read_text(encoding="utf-8"))
    right = said["expect"]
    if right["ends"] not in ENDS:
        raise recordings.RecordingError(f"{name}.yaml: ends {right['ends']!r} is none of {', '.join(ENDS)}")
    expected = Expected(
        said["job"], right["ends"], right.get("cause"), str(right.get("subject") or ""), tuple(right.get("also") or ())
    )
    recording = recordings.read(path)
    return Case(name, recording, expected, play_of(recording, expected.job))


def play(case, change=None, progress=lambda _: None, logs=None, then=None, ahead_s=0.0):
    """Run the trial with the recording (as `change` has altered it) in virtual time; return the result.

    `logs` has the pods' output, by index; `then` is the case of a second attempt, the same if None; `ahead_s` is the
    lead of the runner's clock over the API server's.
    """
    altered = change(case.play) if change else case.play
    first = next(c for c in altered.changes if c.kind == "Job" and c.name == case.expected.job)
    # The world begins at the recording's time, so that its timestamps match the world's clock.
    wall = datetime.datetime.fromisoformat(case.recording.wall).timestamp() + altered.start
    world = World(wall + ahead_s)
    following = then and (change(then.play) if change else then.play, then.recording, then.expected.job)
    server = Server(world, altered, case.recording, case.expected.job, logs, following)
    kube = Kube(_Client(server), ClusterSource(namespace=case.recording.namespace, server="http://127.0.0.1:1"))
    reading.JITTER.seed(0)
    with world.patch():
        try:
            result = Launcher(kube, progress).run(_spec(case, first.object), {"__main__.py": ""})
        finally:
            world.close()
    return _outcome(result, server)


class _Client:
    """The parts of the official client that the client's core uses: a connection pool and credentials."""

    def __init__(self, server):
        self.rest_client = type("Rest", (), {"pool_manager": server})

    def update_params_for_auth(self, *_):
        pass

    def close(self):
        pass


def _spec(case, job):
    """Return the recorded trial, as the product would request it."""
    spec = job["spec"]
    container = spec["template"]["spec"]["containers"][0]
    limits = (container.get("resources") or {}).get("limits") or {}
    extended = {name: int(amount) for name, amount in limits.items() if "/" in name}
    gpus = next((name for name in extended if name.endswith("/gpu")), "nvidia.com/gpu")
    run = case.expected.job.removeprefix(PREFIX)
    return TrialSpec(
        run_id=run if re.fullmatch(r"[a-z0-9]{1,40}", run) else "recorded",
        namespace=case.recording.namespace,
        image=container["image"],
        nodes=spec.get("completions") or spec.get("parallelism") or 1,
        gpus_per_node=extended.pop(gpus, 0),
        gpu_resource=gpus,
        resources=extended,
    )


def _outcome(result, server):
    analysis = result.analysis
    taken = analysis is not None and (analysis.disrupted or result.state is JobState.COMPLETE)
    if taken and result.state is not JobState.CANCELED:
        ends = "interrupted"
    elif result.state is JobState.COMPLETE:
        ends = "completed"
    elif result.state is JobState.CANCELED:
        ends = "deleted"
    elif result.state is JobState.ERROR:
        ends = "failed"
    else:
        ends = "given-up"
    lingering = "" if analysis or ends != "given-up" else f"job/{result.job}"
    return Outcome(
        ends=ends,
        fault=analysis.fault if analysis else None,
        subject=analysis.subject if analysis else lingering,
        observed=analysis.observed if analysis else "; ".join(result.warnings),
        attempts=len(server.created),
        after_s=result.seconds,
        until=server.until(),
        nodes=tuple(replica.node for replica in result.replicas),
        warnings=result.warnings,
    )


def wrong(case, outcome):
    """Return the differences from the expectation; empty if there are none."""
    right = case.expected
    if outcome.fault not in right.faults:
        return f"fault {outcome.fault}, expected {' or '.join(str(f) for f in sorted(right.faults, key=str))}: {outcome.observed}"
    if outcome.fault != right.cause:
        return ""  # a right fault other than the cause: no further expectations
    if right.ends != outcome.ends:
        return f"{outcome.ends}, expected {right.ends}: {outcome.observed}"
    if outcome.attempts > 1 and right.ends != "interrupted":
        return f"tried {outcome.attempts} times, expected once"
    if right.subject and not _is_about(outcome, right.subject):
        return f"subject {outcome.subject}, expected {right.subject}: {outcome.observed}"
    return ""


def _is_about(outcome, subject):
    """Say whether it names the pod, node or Job, as the subject or as the object that the subject refused."""
    kind, _, name = subject.rpartition("/")
    own = outcome.subject in {subject, name} or outcome.subject.removeprefix("node/") == name
    # A fault of several pods at once: which was first is random if all are received together.
    several = kind == "" and bool(re.match(r"pod \S+( on \S+)? \(and \d+ more\)", outcome.observed))
    return own or several or bool(re.match(rf"{kind or 'pod'} {re.escape(name)}\b", outcome.observed))


def main(folders):
    """Play all recordings of the folders; print one line each and a total; return the number of wrong ones."""
    paths = sorted(path for folder in folders for path in _paths(Path(folder)))
    bad = 0
    for path in paths:
        name = path.name.removesuffix(SUFFIX)
        try:
            case = load(path)
            problems = _problems(case)
        except (
            OSError,
            KeyError,
            StopIteration,
            TypeError,
            ValueError,
            yaml.YAMLError,
            recordings.RecordingError,
        ) as error:
            problems, case = [f"cannot be played: {type(error).__name__}: {error}"], None
        bad += bool(problems)
        print(f"{'WRONG' if problems else 'ok   '} {name}" + "".join(f"\n      {p}" for p in problems), flush=True)
    print(f"{len(paths) - bad} of {len(paths)} right, {bad} wrong" if paths else "no recording found")
    return bad if paths else 1


def _paths(place):
    if place.is_file():
        return [place] if place.name.endswith(SUFFIX) else []
    return sorted(place.rglob(f"*{SUFFIX}"))


def _problems(case):
    from tests.real.variants import VARIANTS

    by_problem: dict[Any, Any] = {}
    for name, change in VARIANTS.items():
        outcome = play(case, change)
        if problem := wrong(case, outcome):
            by_problem.setdefault(problem.split(":")[0], []).append((name, f"{outcome}; {problem}"))
    return [
        f"{', '.join(name for name, _ in same[:6])}{f' and {len(same) - 6} more' if len(same) > 6 else ''}: {same[0][1]}"
        for same in by_problem.values()
    ]


def brief(argv=None):
    """`python -m tests.real DIR...`: exit code 1 if any recording is explained wrongly."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0].startswith("-"):
        print("usage: python -m tests.real FOLDER_OR_RECORDING...")
        return 2
    return 1 if main(argv) else 0
