"""Table cells of Jobs, Deployments and the other workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cells import NONE, age, age_of, containers, duration, name_of, pairs, selector, template
from .schema.values import epoch

if TYPE_CHECKING:
    from .schema.values import Object


def job(obj: Object, now: float) -> list[Any]:
    """Format a table row of jobs."""
    spec, status = obj["spec"], obj.get("status", {})
    conditions = {c["type"] for c in status.get("conditions") or [] if c.get("status") == "True"}
    order = (
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    )
    state = next((word for condition, word in order if condition in conditions), "Running")
    if obj["metadata"].get("deletionTimestamp") and state == "Running":
        state = "Terminating"
    succeeded = status.get("succeeded", 0)
    if spec.get("completions") is not None:
        done = f"{succeeded}/{spec['completions']}"
    else:
        width = spec.get("parallelism", 1)
        done = f"{succeeded}/1 of {width}" if width > 1 else f"{succeeded}/1"
    took = ""
    if status.get("startTime"):
        end = epoch(status["completionTime"]) if status.get("completionTime") else now
        took = duration(end - epoch(status["startTime"]))
    names, images = containers(template(obj))
    return [name_of(obj), state, done, took, age_of(obj, now), names, images, selector(spec.get("selector"))]


def cron_job(obj: Object, now: float) -> list[Any]:
    """Format a table row of cron jobs."""
    spec, status = obj["spec"], obj.get("status", {})
    names, images = containers(spec["jobTemplate"]["spec"]["template"]["spec"])
    last = age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else NONE
    zone = spec.get("timeZone") or NONE
    active = len(status.get("active") or [])
    return [
        name_of(obj),
        spec["schedule"],
        zone,
        "True" if spec.get("suspend") else "False",
        active,
        last,
        age_of(obj, now),
        names,
        images,
        NONE,
    ]


def deployment(obj: Object, now: float) -> list[Any]:
    """Format a table row of deployments."""
    spec, status = obj["spec"], obj.get("status", {})
    names, images = containers(template(obj))
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    return [name_of(obj), ready, *counts, age_of(obj, now), names, images, selector(spec.get("selector"))]


def replica_set(obj: Object, now: float) -> list[Any]:
    """Format a table row of replica sets."""
    spec, status = obj["spec"], obj.get("status", {})
    names, images = containers(template(obj))
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [name_of(obj), *counts, age_of(obj, now), names, images, selector(spec.get("selector"))]


def daemon_set(obj: Object, now: float) -> list[Any]:
    """Format a table row of daemon sets."""
    spec, status = obj["spec"], obj.get("status", {})
    names, images = containers(template(obj))
    keys = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    counts = [status.get(key, 0) for key in keys]
    node = pairs(template(obj).get("nodeSelector"))
    return [name_of(obj), *counts, node, age_of(obj, now), names, images, selector(spec.get("selector"))]
