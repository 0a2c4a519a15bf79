"""The CronJob controller: starts Jobs by their schedule and clears old ones away."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from ..apiserver.schema.errors import ApiError
from ..apiserver.schema.values import clone, epoch, rfc3339
from .job_sync import JOBS, true_condition
from .owned import WorkloadController, is_of, reference
from .timetable import Timetable

if TYPE_CHECKING:
    from .queue import Key

Object = dict[str, Any]
SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
TOO_MANY = 100
"""Missed starts after which the controller warns (pkg/controller/cronjob)."""


class CronJobController(WorkloadController):
    """Keeps all CronJobs."""

    key, kind, component = "cronjobs.batch", "CronJob", "cronjob-controller"
    owns = (JOBS,)

    def sync(self, key: Key) -> float | None:
        """Look after the Jobs that were started, then start the one that is due."""
        found = self.living(key)
        if found is None:
            return None
        jobs = [j for j in self.store.list(JOBS, key[0]) if is_of(found, j)]
        status: Object = clone(found.get("status") or {})
        self._settle(found, status, jobs)
        self._clear(found, jobs)
        again = None if found["spec"].get("suspend") else self._start(found, status, jobs)
        if not status.get("active"):
            status.pop("active", None)
        self.write(found, status)
        return again

    def _settle(self, found: Object, status: Object, jobs: list[Object]) -> None:
        """Take the Jobs that have ended or are gone off the list of active ones."""
        by_uid = {j["metadata"]["uid"]: j for j in jobs}
        for held in list(status.get("active") or []):
            job = by_uid.get(held["uid"])
            ended = _ended(job) if job is not None else None
            if job is not None and ended is None:
                continue
            status["active"].remove(held)
            if job is None:
                self.event(found, "Normal", "MissingJob", f"Active job went missing: {held['name']}")
                continue
            self.event(
                found,
                "Normal",
                "SawCompletedJob",
                f"Saw completed job: {held['name']}, condition: {ended['type'] if ended else ''}",
            )
            finished = job["status"].get("completionTime")
            if finished and finished > status.get("lastSuccessfulTime", ""):
                status["lastSuccessfulTime"] = finished

    def _clear(self, found: Object, jobs: list[Object]) -> None:
        for kind, field in ("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit"):
            limit = found["spec"].get(field)
            ended = [j for j in jobs if (_ended(j) or {}).get("type") == kind]
            ended.sort(key=lambda j: (j["status"].get("startTime", ""), j["metadata"]["name"]))
            for job in ended[: max(0, len(ended) - limit)] if limit is not None else ():
                self._delete(found, job)

    def _delete(self, found: Object, job: Object) -> None:
        meta = job["metadata"]
        with contextlib.suppress(ApiError):
            self.store.delete(JOBS, meta["namespace"], meta["name"], propagation="Background", uid=meta["uid"])
            self.event(found, "Normal", "SuccessfulDelete", f"Deleted job {meta['name']}")

    def _start(self, found: Object, status: Object, jobs: list[Object]) -> float | None:
        spec, now = found["spec"], self.store.clock()
        timetable = Timetable(spec["schedule"], spec.get("timeZone"))
        due, missed = self._due(found, status, timetable)
        following = timetable.after(now)
        again = None if following is None else following - now + 0.1
        if due is None:
            return again
        if missed > TOO_MANY:
            self.event(
                found,
                "Warning",
                "TooManyMissedTimes",
                f"too many missed start times: {missed}. Set or "
                "decrease .spec.startingDeadlineSeconds or check clock skew",
            )
        limit = spec.get("startingDeadlineSeconds")
        if limit is not None and due + limit < now:
            when = datetime.fromtimestamp(due, UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
            self.event(found, "Warning", "MissSchedule", f"Missed scheduled time to start a job: {when}")
            return again
        active, policy = status.get("active") or [], spec.get("concurrencyPolicy", "Allow")
        if active and policy == "Forbid":
            self.event(
                found,
                "Normal",
                "JobAlreadyActive",
                "Not starting job because prior execution is running and concurrency policy is Forbid",
            )
            return again
        if policy == "Replace":
            for job in [j for j in jobs if any(a["uid"] == j["metadata"]["uid"] for a in active)]:
                self._delete(found, job)
            status["active"] = []
        self._create(found, status, due)
        return again

    def _due(self, found: Object, status: Object, timetable: Timetable) -> tuple[float | None, int]:
        """The latest time that has come since the last start, and how many have come."""
        now = self.store.clock()
        since = epoch(status.get("lastScheduleTime") or found["metadata"]["creationTimestamp"])
        limit = found["spec"].get("startingDeadlineSeconds")
        if limit is not None:
            since = max(since, now - limit)
        due, count, at = None, 0, timetable.after(since)
        while at is not None and at <= now:
            due, count = at, count + 1
            if count > 100 * TOO_MANY:  # a clock that jumped by years
                since = now - 3600
            at = timetable.after(max(at, since))
        return due, count

    def _create(self, found: Object, status: Object, due: float) -> None:
        meta, template = found["metadata"], clone(found["spec"]["jobTemplate"])
        zone = found["spec"].get("timeZone")
        stamp = datetime.fromtimestamp(due, ZoneInfo(zone) if zone else UTC).isoformat().replace("+00:00", "Z")
        held = template.get("metadata") or {}
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": f"{meta['name']}-{int(due // 60)}",
                "labels": held.get("labels") or {},
                "annotations": {**(held.get("annotations") or {}), SCHEDULED: stamp},
                "ownerReferences": [reference(found)],
            },
            "spec": template.get("spec") or {},
        }
        try:
            job = self.store.create(JOBS, body, meta["namespace"])
        except ApiError as error:
            if error.reason != "AlreadyExists":
                self.event(found, "Warning", "FailedCreate", f"Error creating job: {error.message}")
            return
        made = job["metadata"]
        self.event(found, "Normal", "SuccessfulCreate", f"Created job {made['name']}")
        status["active"] = [
            *(status.get("active") or []),
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": made["name"],
                "namespace": made["namespace"],
                "resourceVersion": made["resourceVersion"],
                "uid": made["uid"],
            },
        ]
        status["lastScheduleTime"] = rfc3339(due)


def _ended(job: Object) -> Object | None:
    return true_condition(job.get("status") or {}, "Complete", "Failed")
