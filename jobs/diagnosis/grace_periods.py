"""The time limit of each kind of problem, in seconds, after which waiting is useless: one table, with its sources.

A grace period is longer than a controller's next try: a state that is repaired by then was not a failure.
"Recordings" are those of a real Kubernetes 1.36 in tests/real/recordings.
"""

from __future__ import annotations

# Job and pods are watched separately, and controllers write one after another (up to 0.1 s apart in the recordings):
# that the Job itself was deleted, or deleted a pod itself, may be heard a moment after the pod's deletion.
DELETED_S = 5.0
# The Job controller tries to create a refused pod again after 1, 2, 4, 8, 16 s (kubernetes pkg/controller/job,
# backoff_utils.go): this holds the attempt after 31 s. A quota that another trial frees, or a webhook that is being
# restarted, is over by then.
REFUSED_S = 35.0
# An API server that has just started knows no roles yet and refuses all clients, controllers too, for about a second
# (recordings): a refusal by RBAC counts once it has been repeated after this long.
RIGHTS_S = 5.0
# Labels and device plugins of a node that is just joining appear within seconds; an autoscaler says within 60 s that a
# node is coming (10 s between scans; kubernetes/autoscaler, FAQ, service level objectives). A kubelet that was
# restarted counts no GPUs for up to 10 s (recordings).
JOINING_S = 60.0
# A kubelet that was restarted is back within seconds; the node controller has waited 50 s before it says NotReady
# (--node-monitor-grace-period since Kubernetes 1.32).
NODE_LOST_S = 20.0
# The kubelet mounts again after 0.5, 1, 2, 4, 8, 16, 32 s (kubernetes pkg/util/goroutinemap/exponentialbackoff): the
# attempt after 63 s is within it; a ConfigMap created after 20 s was mounted after 32 (recordings).
MOUNT_S = 70.0
# The kubelet makes a container or a sandbox again after 11 to 14 s (recordings): this holds two attempts, or three.
CONTAINER_S = 30.0
SANDBOX_S = 45.0
# The kubelet pulls again after 10, 20, 40 s (pkg/kubelet/images; started when its next sync comes, up to 4 s later):
# an answer that another attempt will not change is heard twice, any other one three times.
FINAL_PULL_S = 20.0
OTHER_PULL_S = 60.0
# A container that is restarted again and again: the first back-offs are 10, 20, 40 s.
CRASH_LOOP_S = 60.0
# A controller or scheduler that lost its leader is replaced when the lease has run out (client-go's default: 15 s).
CONTROLLER_S = 30.0
SCHEDULER_S = 60.0
# By then a scheduler has said something of a pod, unless none is there.
YOUNG_S = 10.0
