"""Gangs: a PodGroup with its pods, its creation by a job's controller, and its progress."""

from __future__ import annotations

import collections
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ..controlplane.scheduler.placement import ENDED, requests
from .parts import phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Object = dict[str, Any]
GROUPS = "podgroups.scheduling.volcano.sh"
GROUP = "scheduling.k8s.io/group-name"
SCHEDULER = "volcano"


def decorate(template: Object, group: str) -> None:
    """Set the gang scheduler for the pods of a template, in place."""
    template["spec"]["schedulerName"] = SCHEDULER
    template.setdefault("metadata", {}).setdefault("annotations", {})[GROUP] = group


def pod_group(job: Object, members: int) -> Object:
    """Return the PodGroup of a Kubeflow job; its schedulingPolicy may set fewer members, a queue and a priority."""
    policy = (job["spec"].get("runPolicy") or {}).get("schedulingPolicy") or {}
    spec: Object = {"minMember": policy.get("minAvailable") or members}
    for name, field in ("queue", "queue"), ("priorityClass", "priorityClassName"), ("minResources", "minResources"):
        if policy.get(name):
            spec[field] = policy[name]
    return {"metadata": {"name": job["metadata"]["name"]}, "spec": spec}


class Gang:
    """A PodGroup with its pods."""

    def __init__(self, group: Object, pods: list[Object]) -> None:
        self.group, self.pods = group, pods
        self.needed = int(group["spec"].get("minMember") or 1)
        self.queue = str(group["spec"].get("queue", "default"))
        self.phase = str((group.get("status") or {}).get("phase", ""))
        self.pending = [p for p in pods if not p["spec"].get("nodeName") and phase(p) not in ENDED]
        self.held = [p for p in pods if p["spec"].get("nodeName") and phase(p) not in ENDED]
        self.succeeded = sum(phase(p) == "Succeeded" for p in pods)

    def not_ready(self, fates: Mapping[str, str]) -> str:
        """Return the message about a gang that cannot start; `fates`: the state of each pending pod."""
        counts = collections.Counter(
            "Running"
            if phase(p) == "Running"
            else "Succeeded"
            if phase(p) == "Succeeded"
            else "Failed"
            if phase(p) == "Failed"
            else "Bound"
            if p["spec"].get("nodeName")
            else "Pending"
            for p in self.pods
        )
        parts = sorted([*(f"{count} {word}" for word, count in counts.items()), f"{self.needed} minAvailable"])
        text = f"pod group is not ready, {', '.join(parts)}"
        by_fate = collections.Counter(fates.values())
        if by_fate:
            text += "; Pending: " + ", ".join(sorted(f"{count} {word}" for word, count in by_fate.items()))
        return text


def allocated(gangs: Iterable[Gang]) -> dict[str, Fraction]:
    """Return the resources that the placed pods of some gangs use."""
    totals: dict[str, Fraction] = {}
    for gang in gangs:
        for pod in gang.held:
            for name, amount in requests(pod).items():
                totals[name] = totals.get(name, Fraction(0)) + amount
    return totals
