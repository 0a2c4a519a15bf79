"""Validation of Jobs and CronJobs, on creation and on update."""

from __future__ import annotations

import zoneinfo
from typing import TYPE_CHECKING, Any

from .. import selectors
from ..errors import Cause, forbidden_field, invalid_value, required, unsupported
from ..values import clone
from . import metadata, pods, schedules

if TYPE_CHECKING:
    from ..values import Object

MODES = ("NonIndexed", "Indexed")
NOT_NEGATIVE = "must be greater than or equal to 0"
UID_LABEL = "batch.kubernetes.io/controller-uid"
ACTIONS = ("FailJob", "FailIndex", "Ignore", "Count")
MAX_INDEXED_PARALLELISM = 100_000
SCHEDULING = ("nodeSelector", "affinity", "tolerations", "schedulingGates")


def job(obj: Object) -> list[Cause]:
    """Validate a Job."""
    spec = obj.get("spec", {})
    causes = _numbers(spec, "spec")
    causes += _mode(obj, spec)
    causes += _failure_policy(spec)
    causes += _success_policy(spec)
    causes += _template(spec, "spec.template")
    return causes + _selector(obj, spec)


def _numbers(spec: Object, field: str) -> list[Cause]:
    names = (
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    )
    return [
        invalid_value(f"{field}.{name}", spec[name], NOT_NEGATIVE)
        for name in names
        if isinstance(spec.get(name), int) and spec[name] < 0
    ]


def _mode(obj: Object, spec: Object) -> list[Cause]:
    causes: list[Cause] = []
    mode = spec.get("completionMode")
    if mode not in MODES:
        causes.append(unsupported("spec.completionMode", mode, MODES))
    if mode == "Indexed":
        if spec.get("completions") is None:
            causes.append(required("spec.completions", f"when completion mode is {mode}"))
        elif spec["completions"] > 0:
            last = f"{obj['metadata'].get('name', '')}-{spec['completions'] - 1}"
            if metadata.dns_label(last):
                name = obj["metadata"].get("name", "")
                text = f"will not able to create pod with invalid DNS label: {last}"
                causes.append(invalid_value("metadata.name", name, text))
        if (spec.get("parallelism") or 0) > MAX_INDEXED_PARALLELISM:
            text = f"must be less than or equal to {MAX_INDEXED_PARALLELISM} when completion mode is Indexed"
            causes.append(invalid_value("spec.parallelism", spec["parallelism"], text))
    else:
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                causes.append(invalid_value(f"spec.{name}", spec[name], "requires indexed completion mode"))
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        causes.append(required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    replacement = spec.get("podReplacementPolicy")
    if spec.get("podFailurePolicy") is not None and replacement not in (None, "Failed"):
        causes.append(unsupported("spec.podReplacementPolicy", replacement, ["Failed"]))
    elif replacement not in (None, "Failed", "TerminatingOrFailed"):
        causes.append(unsupported("spec.podReplacementPolicy", replacement, ["Failed", "TerminatingOrFailed"]))
    return causes


def _failure_policy(spec: Object) -> list[Cause]:
    policy = spec.get("podFailurePolicy")
    if policy is None:
        return []
    causes: list[Cause] = []
    restart = spec.get("template", {}).get("spec", {}).get("restartPolicy")
    if restart != "Never":
        text = 'only "Never" is supported when podFailurePolicy is specified'
        causes.append(invalid_value("spec.template.spec.restartPolicy", restart, text))
    for index, rule in enumerate(policy.get("rules") or []):
        causes += _failure_rule(rule, f"spec.podFailurePolicy.rules[{index}]", spec)
    return causes


def _failure_rule(rule: Object, at: str, spec: Object) -> list[Cause]:
    causes: list[Cause] = []
    action = rule.get("action", "")
    if not action:
        causes.append(required(f"{at}.action", f"valid values: {_listed(ACTIONS)}"))
    elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        causes.append(invalid_value(f"{at}.action", action, "requires the backoffLimitPerIndex to be set"))
    elif action not in ACTIONS:
        causes.append(unsupported(f"{at}.action", action, sorted(ACTIONS)))
    codes = rule.get("onExitCodes")
    if codes is not None and rule.get("onPodConditions"):
        causes.append(invalid_value(at, "", "specifying both OnExitCodes and OnPodConditions is not supported"))
    if codes is None and not rule.get("onPodConditions"):
        causes.append(invalid_value(at, "", "specifying one of OnExitCodes and OnPodConditions is required"))
    if codes is not None:
        operator, values = codes.get("operator", ""), codes.get("values") or []
        if operator not in ("In", "NotIn"):
            causes.append(unsupported(f"{at}.onExitCodes.operator", operator, ["In", "NotIn"]))
        if not values:
            causes.append(invalid_value(f"{at}.onExitCodes.values", values, "at least one value is required"))
        for index, value in enumerate(values):
            if operator == "In" and value == 0:
                text = "must not be 0 for the In operator"
                causes.append(invalid_value(f"{at}.onExitCodes.values[{index}]", value, text))
        if values != sorted(values):
            causes.append(invalid_value(f"{at}.onExitCodes.values", values, "must be ordered"))
        names = [c.get("name") for c in spec.get("template", {}).get("spec", {}).get("containers") or []]
        if codes.get("containerName") and codes["containerName"] not in names:
            text = "must be one of the container or initContainer names in the pod template"
            causes.append(invalid_value(f"{at}.onExitCodes.containerName", codes["containerName"], text))
    return causes


def _success_policy(spec: Object) -> list[Cause]:
    policy = spec.get("successPolicy")
    if policy is None:
        return []
    if spec.get("completionMode") != "Indexed":
        return [invalid_value("spec.successPolicy", policy, "requires indexed completion mode")]
    if not policy.get("rules"):
        return [
            required(
                "spec.successPolicy.rules", "at least one rules must be specified when the successPolicy is specified"
            )
        ]
    return []


def _listed(actions: Any) -> str:
    return ", ".join(f'"{word}"' for word in actions)


def _template(spec: Object, field: str) -> list[Cause]:
    template = spec.get("template", {})
    causes = pods.template(template, field)
    policy = template.get("spec", {}).get("restartPolicy", "")
    if policy in ("", "Always"):
        causes.append(required(f"{field}.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    elif policy not in ("OnFailure", "Never"):
        causes = [cause for cause in causes if cause.field != f"{field}.spec.restartPolicy"]
        causes.append(unsupported(f"{field}.spec.restartPolicy", policy, ["OnFailure", "Never"]))
    return causes


def _selector(obj: Object, spec: Object) -> list[Cause]:
    selector = spec.get("selector")
    if selector is None:
        return [required("spec.selector")]
    causes = metadata.selector(selector, "spec.selector")
    labels = spec.get("template", {}).get("metadata", {}).get("labels") or {}
    if not causes and not selectors.labels(selector)(labels):
        causes.append(
            invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
        )
    uid = obj["metadata"].get("uid", "")
    if not spec.get("manualSelector") and uid and selector != {"matchLabels": {UID_LABEL: uid}}:
        causes.append(invalid_value("spec.selector", selector, "`selector` not auto-generated"))
    return causes


def job_change(old: Object, new: Object) -> list[Cause]:
    """Validate an update of a job."""
    before, after = old.get("spec", {}), new.get("spec", {})
    causes: list[Cause] = []
    causes += _completions_change(before, after)
    if before.get("selector") != after.get("selector"):
        causes.append(invalid_value("spec.selector", after.get("selector"), "field is immutable"))
    causes += _template_change(old, before, after)
    for name in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        if before.get(name) != after.get(name):
            causes.append(invalid_value(f"spec.{name}", after.get(name), "field is immutable"))
    return causes


def _completions_change(before: Object, after: Object) -> list[Cause]:
    was, now = before.get("completions"), after.get("completions")
    if was == now:
        return []
    if before.get("completionMode") != "Indexed" or was is None or now is None:
        return [invalid_value("spec.completions", now, "field is immutable")]
    if now != after.get("parallelism"):
        return [invalid_value("spec.completions", now, f"can only be modified in tandem with {'spec.parallelism'}")]
    return []


def _template_change(old: Object, before: Object, after: Object) -> list[Cause]:
    was, now = clone(before.get("template", {})), clone(after.get("template", {}))
    status = old.get("status", {})
    if before.get("suspend") and not status.get("startTime"):
        # The scheduling directives of a job that was never started are mutable.
        for part in ("labels", "annotations"):
            now.setdefault("metadata", {}).pop(part, None)
            was.setdefault("metadata", {}).pop(part, None)
        for part in SCHEDULING:
            now["spec"].pop(part, None)
            was["spec"].pop(part, None)
    if was.get("spec") != now.get("spec"):
        return [invalid_value("spec.template.spec", after["template"].get("spec"), "field is immutable")]
    if was.get("metadata") != now.get("metadata"):
        return [invalid_value("spec.template", after["template"], "field is immutable")]
    return []


def cron_job(obj: Object) -> list[Cause]:
    """Validate a CronJob."""
    spec = obj.get("spec", {})
    causes: list[Cause] = []
    name = obj["metadata"].get("name", "")
    if len(name) > 52:  # the job's name has eleven additional characters
        causes.append(invalid_value("metadata.name", name, "must be no more than 52 characters"))
    schedule = spec.get("schedule", "")
    if not schedule:
        causes.append(required("spec.schedule"))
    elif "TZ" in schedule:
        text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        causes.append(invalid_value("spec.schedule", schedule, text))
    elif wrong := schedules.error(schedule):
        causes.append(invalid_value("spec.schedule", schedule, wrong))
    zone = spec.get("timeZone")
    if zone is not None and (not zone or zone.lower() == "local" or zone not in zoneinfo.available_timezones()):
        causes.append(invalid_value("spec.timeZone", zone, f"unknown time zone {zone}"))
    if spec.get("concurrencyPolicy") not in ("Allow", "Forbid", "Replace"):
        causes.append(
            unsupported("spec.concurrencyPolicy", spec.get("concurrencyPolicy"), ["Allow", "Forbid", "Replace"])
        )
    for limit in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        if isinstance(spec.get(limit), int) and spec[limit] < 0:
            causes.append(invalid_value(f"spec.{limit}", spec[limit], NOT_NEGATIVE))
    inner = spec.get("jobTemplate", {}).get("spec", {})
    causes += _numbers(inner, "spec.jobTemplate.spec")
    if inner.get("selector") is not None and not inner.get("manualSelector"):
        causes.append(forbidden_field("spec.jobTemplate.spec.selector", "`selector` will be auto-generated"))
    return causes + _template(inner, "spec.jobTemplate.spec.template")
