"""A run that is left to the cluster, and taken up by another process: what it leaves, and how it goes on.

What preflight found stays as it was found; the checks that are left judge the trial as the run would have.
"""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING, Any

import pytest

from checks.framework import selection
from checks.framework.version import version
from checks.profiles.loader import profile_names
from jobs.run.begun import differences, packed, read
from jobs.run.creation import JobError
from reports.record import CheckResult, Finding
from reports.schema import RecordError, completed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from checks.framework.session import Session
    from jobs.run.begun import Begun
    from jobs.trial.spec import TrialSpec

NAMED = ("nodes", "registry", "image", "launcher", "queue", "model_size")
SWITCHES = ("gang", "checkpoint", "tenant", "check_secrets", "training")
"""The options that shape a trial or choose what is judged: who attaches need not repeat them."""


def left_behind(session: Session) -> str:
    """Return what another process needs to go on with this run, packed; '' where that is too much."""
    options, done = session.options, {result.id for result in session.run.results}
    options_given: dict[str, Any] = {name: getattr(options, name) for name in (*NAMED, *SWITCHES)}
    options_given |= {"on": list(options.on), "trial_on": list(options.trial_on), "all_nodes": options.all_nodes}
    options_given |= {"soak_s": options.soak_s, "profile": options.profile}
    return packed(
        {
            "seatrial": version(),
            "options": options_given,
            "remaining": [check_id for check_id in session.selected if check_id not in done],
            "nodes": sorted(session.nodes),
            "record": session.run.to_dict(),
        }
    )


def arguments(begun: Begun, profile: str | None) -> list[str]:
    """Return the options of the run that began a trial, as words of a command line. Raises JobError.

    They are foreign: only those known here, each with its value in one word, none of which names a file.
    """
    options = begun.document.get("options")
    if not isinstance(options, dict) or begun.document.get("seatrial") != version():
        other = str(begun.document.get("seatrial") or "another version")[:40]
        raise JobError(f"it was begun by seatrial {other}; this is {version()}: attach with the same one")
    return list(_words(options, profile))


def _words(options: Mapping[str, Any], profile: str | None) -> Iterator[str]:
    known = options.get("profile")
    if profile is None and known is not None and known not in profile_names():
        raise JobError(f"it was begun with a profile of its own, {str(known)[:100]}: name it, --profile FILE")
    if profile or known:
        yield f"--profile={profile or known}"
    for name in NAMED:
        if isinstance(options.get(name), str) and options[name]:
            yield f"--{name.replace('_', '-')}={options[name]}"
    for name in SWITCHES:
        if options.get(name) is True:
            yield f"--{name.replace('_', '-')}"
    for name in ("on", "trial_on"):
        if isinstance(options.get(name), list) and options[name]:
            yield f"--{name.replace('_', '-')}={','.join(map(str, options[name]))}"
    if options.get("all_nodes") is True:
        yield "--nodes=all"
    if type(options.get("soak_s")) is int and options["soak_s"] > 0:
        yield f"--soak={options['soak_s']}s"


def take_up(session: Session, items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Go on with the run of the job that --attach names; return the checks that are left. Raises pytest.UsageError."""
    try:
        session.begun = begun = read(session.kube, session.options.attach)
        record = completed(begun.document.get("record") or {})
    except (JobError, RecordError) as error:
        raise pytest.UsageError(f"{session.options.attach}: {error}") from error
    run = session.run
    if record["profile_digest"] != run.profile_digest:
        raise pytest.UsageError(
            f"{session.options.attach} was begun with profile {record['profile']} "
            f"({record['profile_digest'][7:19]}), and this is {run.profile} ({run.profile_digest[7:19]}): they do not "
            "ask the same"
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
    session.nodes |= {str(name) for name in begun.document.get("nodes") or ()}
    session.began = time.monotonic() - _age(run.started)
    by_id = {declared.id: item for item in items if (declared := selection.declaration(item))}
    remaining = [str(check_id) for check_id in begun.document.get("remaining") or ()]
    if unknown := [check_id for check_id in remaining if check_id not in by_id]:
        raise pytest.UsageError(f"{session.options.attach} has a check of its own, {unknown[0][:100]}: name its file")
    return [by_id[check_id] for check_id in remaining]


def same_trial(session: Session, spec: TrialSpec) -> str:
    """Say why the trial under way is not the one that this run would start; '' where it is."""
    differing = differences(session.begun, spec) if session.begun else ""
    return f"{spec.job_name} is not the trial that these options ask for ({differing})" if differing else ""


def _result(check: Mapping[str, Any]) -> CheckResult:
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in check.items()}
    known: dict[str, Any] = {name: values[name] for name in CheckResult.__dataclass_fields__}
    known["findings"] = tuple(
        Finding(**{name: finding[name] for name in Finding.__dataclass_fields__}) for finding in check["findings"]
    )
    return CheckResult(**known)


def _age(started: str) -> float:
    """Seconds since then; 0 of what is no time, or is yet to come."""
    try:
        then = datetime.datetime.fromisoformat(started)
        return max(0.0, (datetime.datetime.now(datetime.UTC) - then).total_seconds())
    except (ValueError, TypeError):
        return 0.0
