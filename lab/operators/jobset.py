"""JobSet: replicated Jobs, one headless Service for all their pods, and a common end.

Names, labels, conditions and messages are those of kubernetes-sigs/jobset v0.8 (pkg/controllers/jobset_controller.go).
failurePolicy only restarts the whole set; rules, coordinator and startup order are not simulated.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.values import clone, epoch
from .conditions import find, holds, put
from .parts import OwnerController, headless

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..apiserver.schema.kinds import Kind
    from ..apiserver.store import Store
    from ..controlplane import Controller

Object = dict[str, Any]
KEY, JOBS, LABEL = "jobsets.jobset.x-k8s.io", "jobs.batch", "jobset.sigs.k8s.io/"


def start(store: Store, world: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Controller, ...]:
    """Return the controller, and register the webhook for defaults."""
    del world, given
    store.webhooks.append(default)
    return (JobSetController(store),)


def default(kind: Kind, new: Object, old: Object | None) -> None:
    """The webhook: Jobs are indexed, pods restart on failure, names are published before pods are ready."""
    if kind.key != KEY or old is not None:
        return
    spec = new["spec"]
    for each in spec.get("replicatedJobs") or []:
        job = each["template"].setdefault("spec", {})
        job.setdefault("completionMode", "Indexed")
        job.setdefault("template", {}).setdefault("spec", {}).setdefault("restartPolicy", "OnFailure")
    spec.setdefault("successPolicy", {"operator": "All"})
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)


class JobSetController(OwnerController):
    """The controller of JobSets."""

    key, component, owns = KEY, "jobset-controller", ("jobs.batch",)

    def reconcile(self, obj: Object) -> float | None:
        """Reconcile one JobSet."""
        status, now = obj.setdefault("status", {}), self.store.now()
        jobs = {job["metadata"]["name"]: job for job in self.owned(obj, JOBS)}
        self._count(obj, jobs)
        if holds(obj, "Completed", "Failed"):
            return self._after(obj, jobs)
        attempt = str(status.get("restarts", 0))
        stale = [j for j in jobs.values() if j["metadata"]["labels"].get(LABEL + "restart-attempt") != attempt]
        for job in stale:
            self.remove(JOBS, job)
        failed = next((j for j in jobs.values() if j not in stale and holds(j, "Failed")), None)
        if failed is not None:
            self._failed(obj, failed)
        elif self._finished(obj, jobs):
            put(obj, "Completed", True, "AllJobsCompleted", "jobset completed successfully", now)
            status["terminalState"] = "Completed"
            self.event(obj, "Normal", "AllJobsCompleted", "jobset completed successfully")
        elif not stale:
            self._parts(obj, jobs)
        self.write(obj)
        return None

    def _parts(self, obj: Object, jobs: Mapping[str, Object]) -> None:
        """Create Service and Jobs; they are suspended and resumed together."""
        meta, spec, now = obj["metadata"], obj["spec"], self.store.now()
        network, suspended = spec.get("network") or {}, bool(spec.get("suspend"))
        if network.get("enableDNSHostnames", True):
            subdomain = network.get("subdomain") or meta["name"]
            self.ensure(
                obj,
                "services",
                headless(
                    subdomain,
                    {LABEL + "jobset-name": meta["name"]},
                    publishNotReadyAddresses=network.get("publishNotReadyAddresses", True),
                ),
            )
        for replicated in spec.get("replicatedJobs") or []:
            for index in range(int(replicated.get("replicas", 1))):
                desired = self._job(obj, replicated, index)
                held = jobs.get(desired["metadata"]["name"]) or self.ensure(obj, JOBS, desired)
                if held is not None and bool(held["spec"].get("suspend")) != suspended:
                    self.change(JOBS, held, lambda job, w=desired: _align(job, w))  # type: ignore[misc]
        if suspended:
            if put(obj, "Suspended", True, "SuspendedJobs", "jobset is suspended", now):
                self.event(obj, "Normal", "SuspendedJobs", "jobset is suspended")
        elif find(obj, "Suspended") and put(obj, "Suspended", False, "ResumeJobs", "jobset is resumed", now):
            self.event(obj, "Normal", "ResumeJobs", "jobset is resumed")

    def _job(self, obj: Object, replicated: Object, index: int) -> Object:
        meta, template = obj["metadata"], clone(replicated["template"])
        name = f"{meta['name']}-{replicated['name']}-{index}"
        marks = {
            "jobset-name": meta["name"],
            "jobset-uid": meta["uid"],
            "replicatedjob-name": replicated["name"],
            "replicatedjob-replicas": str(replicated.get("replicas", 1)),
            "job-index": str(index),
            "job-global-index": str(self._before(obj, replicated) + index),
            "global-replicas": str(sum(int(r.get("replicas", 1)) for r in obj["spec"]["replicatedJobs"])),
            "job-key": hashlib.sha1(f"{meta['namespace']}/{name}".encode(), usedforsecurity=False).hexdigest(),
            "restart-attempt": str(obj["status"].get("restarts", 0)),
            "group-name": replicated.get("groupName", "default"),
        }
        marks = {LABEL + key: value for key, value in marks.items()}
        spec = template.setdefault("spec", {})
        pods = spec.setdefault("template", {})
        for place in (template.setdefault("metadata", {}), pods.setdefault("metadata", {})):
            place["labels"] = {**(place.get("labels") or {}), **marks}
            place["annotations"] = {**(place.get("annotations") or {}), **marks}
        network = obj["spec"].get("network") or {}
        if network.get("enableDNSHostnames", True):
            pods["spec"].setdefault("subdomain", network.get("subdomain") or meta["name"])
        spec["suspend"] = bool(obj["spec"].get("suspend"))
        return {"metadata": {**template["metadata"], "name": name}, "spec": spec}

    @staticmethod
    def _before(obj: Object, replicated: Object) -> int:
        """Return the number of Jobs before those of a replicated Job."""
        names = [each["name"] for each in obj["spec"]["replicatedJobs"]]
        earlier = obj["spec"]["replicatedJobs"][: names.index(replicated["name"])]
        return sum(int(each.get("replicas", 1)) for each in earlier)

    def _finished(self, obj: Object, jobs: Mapping[str, Object]) -> bool:
        policy = obj["spec"].get("successPolicy") or {}
        targets = policy.get("targetReplicatedJobs") or [r["name"] for r in obj["spec"].get("replicatedJobs") or []]
        total = sum(int(r.get("replicas", 1)) for r in obj["spec"].get("replicatedJobs") or [] if r["name"] in targets)
        done = sum(
            holds(job, "Complete")
            for job in jobs.values()
            if job["metadata"]["labels"].get(LABEL + "replicatedjob-name") in targets
        )
        return bool(done) and (policy.get("operator") == "Any" or done >= total)

    def _failed(self, obj: Object, job: Object) -> None:
        """Restart all Jobs, as often as the policy allows; then the set has failed."""
        status, most = obj["status"], int((obj["spec"].get("failurePolicy") or {}).get("maxRestarts", 0))
        first = f"(first failed job: {job['metadata']['name']})"
        if status.get("restarts", 0) < most:
            status["restarts"] = status["restartsCountTowardsMax"] = status.get("restarts", 0) + 1
            self.event(
                obj,
                "Warning",
                "RestartJobSetFailurePolicyAction",
                f"restarting jobset, attempt {status['restarts']} of {most}",
            )
            return
        reason, message = (
            ("ReachedMaxRestarts", f"jobset failed due to reaching max number of restarts {first}")
            if (most)
            else ("FailedJobs", f"jobset failed due to one or more job failures {first}")
        )
        put(obj, "Failed", True, reason, message, self.store.now())
        status["terminalState"] = "Failed"
        self.event(obj, "Warning", reason, message)

    def _after(self, obj: Object, jobs: Mapping[str, Object]) -> float | None:
        """Clean up after an ended set: delete running Jobs, and the set itself after its TTL."""
        for job in jobs.values():
            if not holds(job, "Complete", "Failed"):
                self.remove(JOBS, job, "Foreground")
        self.write(obj)
        seconds = obj["spec"].get("ttlSecondsAfterFinished")
        if seconds is None:
            return None
        ended = find(obj, "Completed") or find(obj, "Failed") or {}
        left = epoch(ended["lastTransitionTime"]) + float(seconds) - self.store.clock()
        if left <= 0:
            self.remove(KEY, obj, "Foreground")
            return None
        return left

    def _count(self, obj: Object, jobs: Mapping[str, Object]) -> None:
        statuses = []
        for replicated in obj["spec"].get("replicatedJobs") or []:
            mine = [
                j
                for j in jobs.values()
                if j["metadata"]["labels"].get(LABEL + "replicatedjob-name") == replicated["name"]
            ]
            statuses.append(
                {
                    "name": replicated["name"],
                    "succeeded": sum(holds(j, "Complete") for j in mine),
                    "failed": sum(holds(j, "Failed") for j in mine),
                    "ready": sum(map(_ready, mine)),
                    "active": sum(bool((j.get("status") or {}).get("active")) for j in mine),
                    "suspended": sum(bool(j["spec"].get("suspend")) for j in mine),
                }
            )
        obj["status"]["replicatedJobsStatus"] = statuses
        obj["status"].setdefault("restarts", 0)


def _ready(job: Object) -> bool:
    status = job.get("status") or {}
    parallelism = job["spec"].get("parallelism", 1)
    return not holds(job, "Complete", "Failed") and status.get("ready", 0) + status.get("succeeded", 0) >= parallelism


def _align(job: Object, desired: Object) -> None:
    """Suspend or resume a Job; its node selection may have changed in the meantime."""
    job["spec"]["suspend"] = desired["spec"]["suspend"]
    held, new = job["spec"]["template"], desired["spec"]["template"]
    for part in ("nodeSelector", "tolerations", "schedulingGates", "affinity"):
        if new["spec"].get(part):
            held["spec"][part] = new["spec"][part]
        else:
            held["spec"].pop(part, None)
    for part in ("labels", "annotations"):
        held.setdefault("metadata", {}).setdefault(part, {}).update(new["metadata"].get(part) or {})
