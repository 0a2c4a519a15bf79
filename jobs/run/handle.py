"""The handle of a user's own job: its state, its ranks, its logs, its end."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..cluster.client.errors import ApiError, ClusterError
from ..cluster.client.kube import Kube
from ..cluster.unstructured import uid_of
from ..diagnosis.state import FailureAnalysis, JobState, Replica, Seen
from .creation import JobError
from .job_lookup import JobLookup
from .logs import Follower
from .watcher import OUTAGE_S

POLL_S = 2.0


class Refused(JobError):  # noqa: N818  (named for its meaning)
    """The job was not created: it does not fit, or the cluster refuses it. The message is one line."""

    def __init__(self, analysis: FailureAnalysis) -> None:
        """Store the cause: `analysis` has class and remedy."""
        super().__init__(f"{analysis.observed}: nothing was created. {analysis.suggestion}")
        self.analysis = analysis


class JobHandle:
    """One job; each method queries the cluster."""

    def __init__(self, kube: Kube, name: str, namespace: str = "", *, uid: str = "", sees_nodes: bool = True) -> None:
        """Identify a job by name, and by uid if known, to exclude another one of the same name."""
        self.name, self.namespace = name, namespace or kube.namespace
        self._kube, self._uid = kube, uid
        self._jobs = JobLookup(kube, self.namespace, sees_nodes=sees_nodes)
        self._stuck: tuple[str, float] | None = None
        self._canceled = False

    def look(self) -> Seen:
        """Return state, ranks and cause at one moment."""
        if self._canceled:
            return Seen(JobState.CANCELED, (), None)
        return self._jobs.look(self.name, self._uid)

    def status(self) -> JobState:
        """Return Pending, Running, Complete, Error, Canceled or Unknown; it compares equal to these words."""
        return self.look().state

    def replicas(self) -> tuple[Replica, ...]:
        """Return every rank: its pod, node and phase; `readiness_issue` has reason and message if it is not ready."""
        return self.look().replicas

    def failure_analysis(self) -> FailureAnalysis | None:
        """Return the cause of a failure (`err_class`, `suggestion`, `job_failure_by_node_event`); None without one."""
        return self.look().analysis

    def logs(self, tail: int = 200) -> dict[str, list[str]]:
        """Return the last lines of every remaining pod, redacted."""
        return self._jobs.logs(self.name, tail)

    def first(self, seen: Seen) -> Replica | None:
        """Return the rank with the log of the job: mpirun's launcher, else rank 0; None before its pod runs."""
        several = self._jobs.kind_of(self.name).multiplexed
        wanted = max((replica.index for replica in seen.replicas), default=0) if several else 0
        ran = (r for r in seen.replicas if r.index == wanted and r.pod and r.phase not in ("Pending", "Gone"))
        return next(ran, None)

    def follow(self, pod: str, finished: Callable[[], bool], tell: Callable[[str], None]) -> Follower | None:
        """Pass on each line of a pod's log, redacted, in a thread, until `finished` and all is read."""
        return self._jobs.follow(self.name, pod, finished, tell)

    def wait(
        self, timeout_s: float | None = None, poll_s: float = POLL_S, tell: Callable[[Seen], object] = lambda _: None
    ) -> JobState:
        """Wait for its end, or until waiting is useless; `tell` receives each state. Raises TimeoutError.

        A job that cannot start (because of a missing image, for example) is returned as Pending. `failure_analysis()`
        then has the cause, and `cancel()` frees its resources.
        """
        began = answered = time.monotonic()
        while True:
            try:
                seen = self.look()
            except ClusterError as error:  # an upgrade of the control plane is no fault of the job
                away = not isinstance(error, ApiError) or error.status >= 500
                if not away or time.monotonic() - answered > OUTAGE_S:
                    raise
                time.sleep(poll_s)
                continue
            answered = time.monotonic()
            tell(seen)
            if seen.state.final or seen.state is JobState.UNKNOWN or self._is_stuck(seen):
                return seen.state
            if timeout_s is not None and time.monotonic() - began > timeout_s:
                raise TimeoutError(f"job {self.name} is {seen.state} after {timeout_s:.0f} s")
            time.sleep(poll_s)

    def _is_stuck(self, seen: Seen) -> bool:
        """Return whether the same permanent cause exceeded its time limit, for ranks that never ran or have failed.

        Problems of a running rank (a node that does not answer for a while) are left to the job's controller.
        """
        cause = seen.analysis
        ranks = [replica for replica in seen.replicas if cause is not None and replica.fault == cause.fault]
        idle = all(r.phase in ("Pending", "Failed") for r in ranks) if ranks else seen.state is JobState.PENDING
        if cause is None or not cause.hopeless or not idle:
            self._stuck = None
            return False
        if self._stuck is None or self._stuck[0] != cause.fault:
            self._stuck = (cause.fault, time.monotonic())
        return time.monotonic() - self._stuck[1] >= cause.grace_s

    def cancel(self) -> None:
        """Delete it with its pods and logs, and wait until all is gone; refuse a job that is not ours."""
        _, raw = self._jobs.own(self.name)
        if self._uid and uid_of(raw) != self._uid:
            raise JobError(f"job {self.name} in {self.namespace} is another one of the same name: it is left alone")
        self._jobs.cancel(self.name)
        self._canceled = True
