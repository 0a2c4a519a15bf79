"""Time limits after which waiting is useless, in seconds, for each kind of problem, with their sources.

A grace period is longer than a controller's retry interval: a state that is repaired by then is not a failure.
"Recordings" are those of a real Kubernetes 1.36 in tests/real/recordings.
"""

from __future__ import annotations

# Job and pods are watched separately, and controllers write one after another (up to 0.1 s apart in the recordings).
# The deletion of the Job, or its deletion of a pod, may be observed shortly after the pod's deletion.
DELETED_S = 5.0
# The Job controller retries to create a refused pod after 1, 2, 4, 8, 16 s (kubernetes pkg/controller/job,
# backoff_utils.go); this includes the attempt after 31 s. A quota that another trial releases, or a webhook that
# restarts, has recovered by then.
REFUSED_S = 35.0
# A restarted API server has not read its roles yet and refuses all clients, including controllers, for about a second
# (recordings). A refusal by RBAC counts if it is repeated after this time.
RIGHTS_S = 5.0
# Labels and device plugins of a joining node appear within seconds. An autoscaler announces a node within 60 s (10 s
# between scans; kubernetes/autoscaler, FAQ, service level objectives). A restarted kubelet counts no GPUs for up to 10
# s (recordings).
JOINING_S = 60.0
# A restarted kubelet is back within seconds; the node controller reports NotReady after 50 s
# (--node-monitor-grace-period since Kubernetes 1.32).
NODE_LOST_S = 20.0
# The kubelet retries a mount after 0.5, 1, 2, 4, 8, 16, 32 s (kubernetes pkg/util/goroutinemap/exponentialbackoff):
# this includes the attempt after 63 s. A ConfigMap created after 20 s was mounted after 32 (recordings).
MOUNT_S = 70.0
# The kubelet recreates a container or a sandbox after 11 to 14 s (recordings): this includes two or three attempts.
CONTAINER_S = 30.0
SANDBOX_S = 45.0
# The kubelet retries a pull after 10, 20, 40 s (pkg/kubelet/images; started at its next sync, up to 4 s later). A
# permanent error is observed twice, any other one three times.
FINAL_PULL_S = 20.0
OTHER_PULL_S = 60.0
# A container in a restart loop: the first back-offs are 10, 20, 40 s.
CRASH_LOOP_S = 60.0
# A controller or scheduler that lost leadership is replaced when the lease expires (client-go's default: 15 s).
CONTROLLER_S = 30.0
SCHEDULER_S = 60.0
# A running scheduler has reported on a pod within this time.
YOUNG_S = 10.0
