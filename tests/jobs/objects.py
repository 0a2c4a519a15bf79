"""Jobs, pods, nodes and events as an API server reports them, for the diagnosis."""

from typing import Any

UID = "11111111-0000-4000-8000-000000000000"


def job(nodes=2, conditions=(), **status):
    return {
        "metadata": {"name": "t", "namespace": "ns", "uid": UID},
        "spec": {"completionMode": "Indexed", "completions": nodes, "parallelism": nodes, "backoffLimit": 0},
        "status": {"conditions": list(conditions), **status},
    }


def failed(
    reason="BackoffLimitExceeded", message="Job has reached the specified backoff limit", at="2026-01-01T00:01:00Z"
):
    return [
        {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": at}
        for kind in ("FailureTarget", "Failed")
    ]


def pod(
    index,
    phase="Running",
    *,
    node="n0",
    deleted="",
    reason="",
    message="",
    conditions=(),
    main=None,
    init=(),
    sidecars=(),
):
    spec = {
        "nodeName": node,
        "containers": [{"name": "trial", "image": "img:1", "resources": {"requests": {"nvidia.com/gpu": "8"}}}],
        "initContainers": [{"name": s["name"], "image": "side:1", "restartPolicy": "Always"} for s in sidecars]
        + [{"name": s["name"], "image": "init:1"} for s in init],
    }
    meta: dict[str, Any] = {
        "name": f"t-{index}-abcde",
        "uid": f"{index}",
        "labels": {"batch.kubernetes.io/job-name": "t", "batch.kubernetes.io/job-completion-index": str(index)},
        "ownerReferences": [{"kind": "Job", "name": "t", "uid": UID, "controller": True}],
    }
    if deleted:
        meta |= {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": 10}
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": list(conditions),
        "initContainerStatuses": [*init, *sidecars],
    }
    status["containerStatuses"] = [{"name": "trial", **main}] if main else []
    status |= {key: value for key, value in (("reason", reason), ("message", message)) if value}
    return {"metadata": meta, "spec": spec, "status": status}


def ended(code, reason="Error", message="", at="2026-01-01T00:00:30Z"):
    state = {"exitCode": code, "reason": reason, "finishedAt": at} | ({"message": message} if message else {})
    return {"state": {"terminated": state}}


def waits(reason, message=""):
    return {"state": {"waiting": {"reason": reason, "message": message}}}


RUNS = {"state": {"running": {"startedAt": "2026-01-01T00:00:10Z"}}, "ready": True}


def event(kind, name, reason, message, *, warning=True, at="2026-01-01T00:00:20Z", count=1, **more):
    target = {"kind": kind, "name": name} | ({"uid": UID} if kind == "Job" else {})
    return {
        "metadata": {"name": f"{name}.{reason}.{at}"},
        "involvedObject": target,
        "reason": reason,
        "message": message,
        "type": "Warning" if warning else "Normal",
        "lastTimestamp": at,
        "count": count,
        **more,
    }


def condition(kind, status="True", **more):
    return {"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:40Z", **more}


def node(name, gpus=8, rdma=8, taints=(), ready="True"):
    amounts = {"nvidia.com/gpu": str(gpus), "rdma/hca": str(rdma)}
    return {
        "metadata": {"name": name},
        "spec": {"taints": list(taints)},
        "status": {
            "allocatable": amounts,
            "capacity": amounts | {"nvidia.com/gpu": "8"},
            "conditions": [condition("Ready", ready)],
        },
    }
