"""``seatrial explain``: judges NCCL logs from files, folders, standard input or the cluster."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checks.profiles.errors import ProfileError
from cli.job_answer import tell
from cli.pod_logs import cluster_name, hint, open_containers, telling
from cli.trial_logs import TrialLogs
from cli.usage import INCONCLUSIVE, Parser, connect, refuse
from jobs.cluster.client.errors import ClusterError, ConfigError, NotFound
from jobs.cluster.unstructured import Unstructured, name_of
from reports import explain_forms as forms
from reports import step_summary
from reports.record import EXIT_CODES, worst
from seatrial import logs as nccl
from seatrial.faults.catalogue import INFRASTRUCTURE, OwnFaultsError
from seatrial.logs.bandwidth.hardware import NOTHING_SAID, UnknownHardwareError, said
from seatrial.logs.hang.model import Evidence as HangEvidence
from seatrial.logs.job_document import NOTHING

if TYPE_CHECKING:
    from checks.profiles.loader import Profile
    from jobs.cluster.client.kube import Kube
    from jobs.diagnosis.state import Seen
    from seatrial.logs.job_document import Expected, JobDocument

DESCRIPTION = "Judge NCCL logs from anywhere. Exit codes: 0 go, 1 no-go, 10 inconclusive, 4 usage error."

EXAMPLES = (
    "seatrial explain train.log",
    "seatrial explain --format html logs/ > job.html",
    "seatrial explain -n team-a job/train",
    "kubectl logs train-0 | seatrial explain -",
    "seatrial explain --gpu 2x8xH100 --nics 8x400 --full logs/",
)


def parser() -> Parser:
    """Return the parser of ``seatrial explain``."""
    made = Parser(prog="seatrial explain", description=DESCRIPTION, examples=EXAMPLES)
    made.add_argument(
        "logs", nargs="+", metavar="LOG", help="file, folder, '-' for stdin, job/NAME, pod/NAME, mpijob/NAME"
    )
    made.add_argument("--format", choices=tuple(forms.RENDERERS), default="text")
    made.add_argument("--full", action="store_true", help="print every job in full")
    made.add_argument("--github", action="store_true", help="step summary and annotations of a GitHub workflow")
    made.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    made.add_argument("--profile", metavar="NAME|FILE", help="the platform's requirements and floors")
    made.add_argument(
        "--gpu", metavar="[[HOSTSx]GPUSx]MODEL", default="", help="the GPUs, if no line names them: 8xH100, 2x8xH100"
    )
    made.add_argument("--nics", metavar="NUMBERxGBIT", default="", help="a host's NICs and their rate: 8x400")
    made.add_argument("--dumps", metavar="PREFIX", default="", help="path of Flight Recorder dumps in the job's pods")
    made.add_argument("--faults", metavar="FILE|DIR", help="your own faults for judging logs, added to the built-in")
    made.add_argument("--no-exec", action="store_true", help="do not query NCCL RAS or search the pods for dumps")
    made.add_cluster_options("for job/NAME and pod/NAME")
    return made


def main(arguments: Sequence[str], *, of_jobs: bool = False) -> int:
    """Print the diagnosis of the logs; return the exit code of the worst job. `of_jobs`: the names are jobs."""
    options = parser().parse_args(list(arguments))
    if of_jobs:
        options.logs = [name if "/" in name else f"job/{name}" for name in options.logs]
    try:
        profile = _profile(options.profile) if options.profile else None
        if own := [Path(place) for place in (options.faults, profile and profile.faults) if place]:
            from seatrial.faults.own import use  # noqa: PLC0415 -- few have some

            use(*own)
        jobs = _judged(options, profile)
    except (OwnFaultsError, nccl.NcclLogError, ConfigError, NotFound, ProfileError, UnknownHardwareError) as error:
        return refuse("explain", error)
    except ClusterError as error:
        return refuse("explain", error, INCONCLUSIVE)
    coloured = options.color == "always" or (
        options.color == "auto" and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    )
    if options.format == "text" and len(jobs) > forms.FEW and not options.full:
        print(forms.summary(jobs), end="")
    else:
        print(forms.RENDERERS[options.format](jobs, color=coloured), end="")
    if options.github:
        _tell_github(jobs)
    return EXIT_CODES[worst(job["verdict"] for job in jobs)]


def _judged(options: argparse.Namespace, profile: Profile | None) -> list[JobDocument]:
    """Return the diagnosis of the logs for each job. Raises the errors that main handles."""
    trials = TrialLogs()
    known = said(options.gpu, options.nics) if options.gpu or options.nics else NOTHING_SAID
    expect = _expected(profile) if profile is not None else NOTHING
    from seatrial.logs.unread_files import unread_below  # noqa: PLC0415 -- it brings the reader: faults of one's own first

    unread = [path for log in options.logs if os.path.isdir(log) for path in unread_below(log)]  # noqa: PTH112
    hangs, options.logs = nccl.collect_hang(options.logs)
    evidence = hangs[0]
    # Objects to read from the cluster, by kind and name; a file of that name has precedence.
    named = {log: which for log in options.logs if not os.path.exists(log) and (which := cluster_name(log))}  # noqa: PTH110
    workload = _Workload(options, evidence, named)
    alone = len(named) == 1 == len(options.logs)
    partial = nccl.read(trials.other_sources(_sources(options.logs, workload)))
    if named:
        workload.look()
    # RAS or the dumps of a workload describe all of its pods, which may share no line that joins their logs.
    logs = nccl.conclude(
        partial,
        expect,
        one_job=alone and bool(evidence.samples or evidence.ranks),
        next_to_dumps=[each.logs for each in hangs if each.files],
    )
    reported = trials.jobs(expect) if trials.readers else []
    if named:
        logs = telling(logs, or_all=not reported and not evidence.samples and not evidence.ranks)
    if alone and workload.seen is not None and len(logs) != 1 and not reported:
        logs = nccl.conclude(partial, expect, one_job={name for job in logs for name in job["files"]})
        logs = logs or nccl.conclude(nccl.read([(options.logs[0], [])]), expect, one_job=True)
    jobs = logs + reported
    if hangs != [HangEvidence()]:
        jobs = nccl.conclude_hang(hangs, jobs, partial, workload.tail)
    if profile is not None:
        from checks.rules.reference import judge_by  # noqa: PLC0415 -- most logs are read without a profile

        judge_by(jobs, profile)
    elif any(job["tables"] or job["intra_node"]["shm"] for job in jobs):
        nccl.judge_bandwidth(jobs, known)
    if unread:
        nccl.withhold_unread(jobs, unread)
    if alone and jobs:
        workload.print_events(jobs[0])
        workload.print_manifest(jobs[0])
    for job in jobs:
        job["failure_class"] = _failure_class(job) if job["faults"] or "around" in job else None
    if alone and jobs and workload.seen is not None:
        tell(jobs[0], named[options.logs[0]][1], workload.namespace, workload.seen)
    for job in jobs:
        if (job["nccl_version"] or "").startswith("RCCL"):
            nccl.report_amd(job)
    return jobs


def _profile(name: str) -> Profile:
    from checks.profiles.loader import load_profile  # noqa: PLC0415 -- most logs are read without a profile

    return load_profile(name)


def _expected(profile: Profile) -> Expected:
    """Return a profile's requirements on a job's log."""
    from checks.rules.collectives import expectation  # noqa: PLC0415 -- most logs are read without a profile

    return expectation(profile)


def _failure_class(job: JobDocument) -> str | None:
    """Attribute the failure: cluster events take precedence over the log; an eviction has no class."""
    kinds = {moment["kind"] for moment in job.get("around", ()) if moment["role"] == "likely"}
    if kinds:
        return None if "eviction" in kinds else INFRASTRUCTURE
    return nccl.failure_class_of(job) if job["faults"] else None


def _tell_github(jobs: list[JobDocument]) -> None:
    """Append to the step's summary and print the annotations (docs.github.com, workflow commands)."""
    if problem := step_summary.append(forms.step_summary(jobs)):
        _tell(problem)
    for command in forms.workflow_commands(jobs):
        print(command)


@dataclass(slots=True)
class _Workload:
    """The workload that the user named, if any: its logs and its objects."""

    options: argparse.Namespace
    evidence: HangEvidence
    named: dict[str, tuple[str, str]]
    kube: Kube | None = None
    pods: list[Unstructured] = field(default_factory=list)
    seen: Seen | None = None

    def open(self, kind: str, name: str) -> Iterator[Any]:
        """Yield the logs of a workload's containers."""
        from jobs.cluster.client.kube import path  # noqa: PLC0415 -- most logs are files
        from jobs.run.job_lookup import JobLookup  # noqa: PLC0415 -- as above

        self.kube = connect(self.options)
        if kind == "pod":
            self.pods = [self.kube.get(path("pods", name, namespace=self.kube.namespace))]
        else:
            jobs = JobLookup(self.kube)
            self.seen, self.pods = jobs.whole(name, kind)
        for shown, chunks in open_containers(self.kube, self.pods, must=self.seen is None):
            yield shown, nccl.watched(self.evidence, shown, chunks)

    @property
    def namespace(self) -> str:
        """The namespace of the workload."""
        return self.kube.namespace if self.kube is not None else ""

    def watched(self, name: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield a stream's chunks; its evidence of a hang, including RAS answers, is added at its end."""
        return nccl.watched(self.evidence, name, chunks, answers=True)

    def look(self) -> None:
        """Add the evidence of the workload's pods if exactly one is named: evidence of a hang belongs to one job."""
        from cli.running_job import look  # noqa: PLC0415 -- most logs are files

        assert self.kube is not None
        if len(self.named) > 1:
            self.evidence.not_seen.append("NCCL RAS is queried for one workload at a time")
            return
        said = self.options
        look(self.kube, self.pods, self.evidence, execs=not said.no_exec, dumps=said.dumps)

    def print_events(self, job: JobDocument) -> None:
        """Add the events around the workload to its first document."""
        from cli.running_job import look_around  # noqa: PLC0415 -- most logs are files

        assert self.kube is not None
        not_seen: list[str] = []
        if moments := look_around(self.kube, self.pods, not_seen):
            job["around"] = moments
            if not_seen:
                job["not_seen"] = [*job.get("not_seen", ()), *not_seen]

    def print_manifest(self, job: JobDocument) -> None:
        """Add missing parts of the workload's pod template, unless its log is of a healthy job."""
        from cli.lint import lacking  # noqa: PLC0415 -- most logs are files

        assert self.kube is not None
        ((kind, name),) = self.named.values()
        if job["verdict"] != "go" and (found := lacking(self.kube, kind, name, self.options.profile)):
            job["manifest"] = found

    def tail(self, name: str) -> list[str]:
        """Return the last lines of a log that was read."""
        pod, _, container = name.partition(" ")
        if self.kube is None or all(pod != name_of(known) for known in self.pods):
            return nccl.tail_of(name)
        from cli.running_job import tail  # noqa: PLC0415 -- most logs are files

        return tail(self.kube, pod, container.partition(" (")[0] if not container.startswith("(") else "")


def _sources(names: list[str], workload: _Workload) -> Iterator[Any]:
    """Open the user's inputs in the order of the command line; logs of the cluster come through the API."""
    for name in names:
        if not name:
            raise nccl.NcclLogError("an empty name was given: name a file, a folder, '-', job/NAME or pod/NAME")
        if name in workload.named:
            yield from workload.open(*workload.named[name])
            continue
        try:
            for shown, chunks in nccl.open_sources([name], tell=_tell, progress=sys.stderr.isatty()):
                yield shown, workload.watched(shown, chunks) if name == "-" else chunks

        except nccl.NcclLogError as error:
            if os.path.exists(name):  # noqa: PTH110
                raise
            raise nccl.NcclLogError(f"{error}{hint(name)}") from error


def _tell(text: str) -> None:
    """Report facts on standard error that do not change the verdict."""
    print(f"seatrial explain: {text}", file=sys.stderr, flush=True)
