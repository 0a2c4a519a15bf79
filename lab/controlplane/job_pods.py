"""Pods of a Job: their templates, indexes and pod failure policy.

Pure functions: the pod of a template and an index, ranges of indexes, the pod failure policy, the success policy.
"""

from __future__ import annotations

from typing import Any

from ..apiserver.schema.values import clone

Object = dict[str, Any]
TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
ENDED = ("Succeeded", "Failed")


def is_indexed(job: Object) -> bool:
    """Return whether the Job counts indexes instead of pods."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def index_of(pod: Object) -> int:
    """Return the completion index of a pod; -1 without one."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdigit() else -1


def owner_reference(job: Object) -> Object:
    """Return the ownerReference from a pod to its Job."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def new_pod(job: Object, index: int | None, failures: int = 0) -> Object:
    """Return the pod that the Job controller creates (for an Indexed Job: with that index)."""
    meta, template = job["metadata"], clone(job["spec"]["template"])
    held = template.get("metadata") or {}
    name, uid = meta["name"], meta["uid"]
    labels = {
        **(held.get("labels") or {}),
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    annotations = dict(held.get("annotations") or {})
    spec, generate = template["spec"], f"{name}-"
    if index is not None:
        annotations[INDEX] = labels[INDEX] = str(index)
        if job["spec"].get("backoffLimitPerIndex") is not None:
            annotations[FAILURES] = str(failures)
        spec.setdefault("hostname", f"{name}-{index}"[:63])
        generate = f"{name[: 58 - len(str(index)) - 2]}-{index}-"
        variable = {
            "name": "JOB_COMPLETION_INDEX",
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}},
        }
        for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
            if all(v["name"] != variable["name"] for v in container.get("env") or []):
                container.setdefault("env", []).append(clone(variable))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": generate,
            "namespace": meta["namespace"],
            "labels": labels,
            **({"annotations": annotations} if annotations else {}),
            "finalizers": [*(held.get("finalizers") or []), TRACKING],
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }


def format_indexes(indexes: set[int]) -> str:
    """Format ranges as in the status: three or more in a row as a-b, two as a,b."""
    parts: list[str] = []
    run: list[int] = []
    for index in [*sorted(indexes), None]:
        if run and index == run[-1] + 1:
            run.append(index)
            continue
        if len(run) > 2:
            parts.append(f"{run[0]}-{run[-1]}")
        else:
            parts += [str(i) for i in run]
        run = [index] if index is not None else []
    return ",".join(parts)


def parse_indexes(text: str) -> set[int]:
    """Parse the indexes of such a text."""
    indexes: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        indexes.update(range(int(first), int(last or first) + 1))
    return indexes


def _rule_matches(pod: Object, rule: Object) -> str:
    """Return the reason why a rule of the failure policy matches; '' if it does not."""
    where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    status = pod.get("status") or {}
    codes = rule.get("onExitCodes")
    if codes:
        statuses = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
        for container in statuses:
            code = (container["state"].get("terminated") or {}).get("exitCode", 0)
            named = codes.get("containerName") in (None, container["name"])
            listed = code in codes["values"]
            if named and code != 0 and listed == (codes["operator"] == "In"):
                return f"Container {container['name']} for pod {where} failed with exit code {code}"
        return ""
    for pattern in rule.get("onPodConditions") or []:
        for condition in status.get("conditions") or []:
            if condition["type"] == pattern["type"] and condition["status"] == pattern.get("status", "True"):
                return f"Pod {where} has condition {condition['type']}"
    return ""


def failure_action(job: Object, pod: Object) -> tuple[str, str]:
    """Return the failure policy's (action, message) for a failed pod; Count if no rule matches."""
    policy = job["spec"].get("podFailurePolicy") or {}
    for number, rule in enumerate(policy.get("rules") or []):
        why = _rule_matches(pod, rule)
        if why:
            return rule["action"], f"{why} matching {rule['action']} rule at index {number}"
    return "Count", ""


def success_rule(job: Object, completed: set[int]) -> int | None:
    """Return the number of the success policy's first rule that the completed indexes satisfy."""
    for number, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules") or []):
        required = parse_indexes(rule["succeededIndexes"]) if rule.get("succeededIndexes") else None
        good = completed if required is None else completed & required
        needed = rule.get("succeededCount")
        if (needed is not None and len(good) >= needed) or (
            needed is None and required is not None and good == required
        ):
            return number
    return None
