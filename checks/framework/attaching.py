"""A detached run that another process continues: its stored state, and the continuation.

Preflight results are kept unchanged; the remaining checks judge the trial as the original run would have.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypedDict, cast

import pytest

from checks.framework import selection
from checks.framework.session import Session
from checks.framework.version import version
from checks.profiles.loader import profile_names
from jobs.cluster.json_types import Count, checker
from jobs.cluster.redact import safe
from jobs.cluster.unstructured import as_map
from jobs.run.begun import Begun, differences, packed, read
from jobs.run.creation import JobError
from jobs.trial.spec import TrialSpec
from reports.record import CheckResult, Finding
from reports.schema import RecordError, completed

LEFT = "left to seatrial job attach"
"""The reason recorded for a check that a detached run leaves to `job attach`."""


class GivenOptions(TypedDict, total=False):
    """The options that shape a trial or select checks: `job attach` need not repeat them."""

    profile: str | None
    nodes: str
    registry: str
    image: str
    command: str
    launcher: str
    queue: str
    model_size: str
    gang: bool
    checkpoint: bool
    tenant: bool
    check_secrets: bool
    training: bool
    on: list[str]
    trial_on: list[str]
    all_nodes: bool
    soak_s: Count
    dcgm: Count | None


class LeftDocument(TypedDict, total=False):
    """The stored state of a run: remaining checks, nodes that a finding may name, its record."""

    seatrial: str
    options: GivenOptions
    remaining: list[str]
    nodes: list[str]
    record: object  # read by reports.schema


_check = cache(lambda: checker(LeftDocument))


def left_behind(session: Session) -> str:
    """Return the packed state with which another process can continue this run; '' if it is too large."""
    done = {result.id for result in session.run.results}
    given = {name: getattr(session.options, name) for name in GivenOptions.__annotations__}
    document: LeftDocument = {
        "seatrial": version(),
        "options": cast("GivenOptions", given),
        "remaining": [check_id for check_id in session.selected if check_id not in done],
        "nodes": sorted(session.nodes),
        "record": session.run.to_dict(),
    }
    return packed(document)


def _document(begun: Begun) -> LeftDocument:
    """Parse the stored state of a run, which is untrusted. Raises JobError."""
    if begun.document.get("seatrial") != version():
        other = safe(begun.document.get("seatrial") or "another version", 40)
        raise JobError(f"it was started by seatrial {other}; this is {version()}: attach with the same version")
    if problem := _check()(begun.document):
        raise JobError(f"the run's state in its ConfigMap is damaged: {problem}")
    return cast("LeftDocument", begun.document)


def arguments(begun: Begun, profile: str | None) -> list[str]:
    """Return the options of the run that started a trial, as command-line words. Raises JobError.

    They are untrusted: only options known here are accepted, each with a one-word value that does not name a file.
    """
    return list(_arguments(_document(begun).get("options", {}), profile))


def own_profile(ref: str | None) -> str:
    """Return the path of the custom profile that `job attach` must name; '' for a shipped profile."""
    return ref if ref is not None and ref not in profile_names() else ""


def _arguments(options: GivenOptions, profile: str | None) -> Iterator[str]:
    known = options.get("profile")
    if profile is None and (own := own_profile(known)):
        raise JobError(f"it was started with a custom profile, {own[:100]}: pass it, --profile FILE")
    if profile or known:
        yield f"--profile={profile or known}"
    for name in GivenOptions.__annotations__:
        option, value = f"--{name.replace('_', '-')}", options.get(name)
        if isinstance(value, str) and value and name != "profile":
            yield f"{option}={value}"
        elif isinstance(value, list | tuple) and value:
            yield f"{option}={','.join(value)}"
        elif value is True:
            yield "--nodes=all" if name == "all_nodes" else option
    if soak_s := options.get("soak_s"):
        yield f"--soak={soak_s}s"
    if (level := options.get("dcgm")) is not None:
        yield f"--dcgm={level}"


def take_up(session: Session, items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Continue the run of the job given by --attach; return the remaining checks. Raises pytest.UsageError."""
    try:
        session.begun = begun = read(session.kube, session.options.attach)
        document = _document(begun)
        record = completed(as_map(document.get("record")))
    except (JobError, RecordError) as error:
        raise pytest.UsageError(f"{session.options.attach}: {error}") from error
    run = session.run
    if record["profile_digest"] != run.profile_digest:
        raise pytest.UsageError(
            f"{session.options.attach} was started with profile {record['profile']} "
            f"({record['profile_digest'][7:19]}), and this is {run.profile} ({run.profile_digest[7:19]}): their "
            "requirements differ"
        )
    run.run_id, run.started = begun.run_id, record["started"]
    run.scope, run.selection, run.required = record["scope"], record["selection"], tuple(record["required"])
    run.results = [_result(check) for check in record["checks"]]
    run.faults, run.bom, run.not_seen, run.cleaned = (
        record["faults"],
        record["bom"],
        record["not_seen"],
        record["cleaned"],
    )
    session.nodes |= set(document.get("nodes", []))
    session.began = time.monotonic() - _age(run.started)
    by_id = {declared.id: item for item in items if (declared := selection.declaration(item))}
    remaining = document.get("remaining", [])
    if unknown := [check_id for check_id in remaining if check_id not in by_id]:
        raise pytest.UsageError(f"{session.options.attach} has a custom check, {unknown[0][:100]}: pass its file")
    return [by_id[check_id] for check_id in remaining]


def same_trial(session: Session, spec: TrialSpec) -> str:
    """Explain how the running trial differs from the one that this run would start; '' if it does not."""
    differing = differences(session.begun, spec) if session.begun else ""
    return f"{spec.job_name} differs from the trial of these options ({differing})" if differing else ""


def _result(check: Mapping[str, Any]) -> CheckResult:
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in check.items()}
    known: dict[str, Any] = {name: values[name] for name in CheckResult.__dataclass_fields__}
    known["findings"] = tuple(
        Finding(**{name: finding[name] for name in Finding.__dataclass_fields__}) for finding in check["findings"]
    )
    return CheckResult(**known)


def _age(started: str) -> float:
    """Return the seconds since a time; 0 for an invalid or future time."""
    try:
        then = datetime.datetime.fromisoformat(started)
        return max(0.0, (datetime.datetime.now(datetime.UTC) - then).total_seconds())
    except (ValueError, TypeError):
        return 0.0
