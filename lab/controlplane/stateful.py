"""The StatefulSet controller: ordered pods, each with its name and claims."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.errors import ApiError
from ..apiserver.schema.values import clone
from .endpoints import is_ready
from .owned import ENDED, WorkloadController, available_in, new_pod, template_hash

if TYPE_CHECKING:
    from .queue import Key

Object = dict[str, Any]
HASH = "controller-revision-hash"


class StatefulSetController(WorkloadController):
    """Keeps all StatefulSets."""

    key, kind, component = "statefulsets.apps", "StatefulSet", "statefulset-controller"

    def sync(self, key: Key) -> float | None:
        """The next step: a pod is created, deleted or replaced only when those before it are ready."""
        found = self.living(key)
        if found is None:
            return None
        revision = f"{key[1]}-{template_hash(found['spec']['template'])}"
        pods = {p["metadata"]["name"]: p for p in self.pods(found)}
        again = self._step(found, pods, revision)
        self._status(found, revision)
        return self.queue.failed(key) if again else None

    def _step(self, found: Object, pods: dict[str, Object], revision: str) -> str:
        """Do what may be done now; the reason why not, where something was refused."""
        parallel = found["spec"].get("podManagementPolicy") == "Parallel"
        first = (found["spec"].get("ordinals") or {}).get("start", 0)
        wanted = [f"{found['metadata']['name']}-{first + i}" for i in range(int(found["spec"].get("replicas", 1)))]
        for name in wanted:
            pod = pods.get(name)
            if pod is None:
                refused = self._make(found, name, revision)
                if refused or not parallel:
                    return refused
            elif pod["status"].get("phase") in ENDED and not pod["metadata"].get("deletionTimestamp"):
                self.remove(found, pod)
                return ""
            elif not parallel and (not is_ready(pod) or pod["metadata"].get("deletionTimestamp")):
                return ""
        surplus = sorted((n for n in pods if n not in wanted), key=_ordinal, reverse=True)
        outdated = [
            n for n in reversed(wanted) if n in pods and (pods[n]["metadata"].get("labels") or {}).get(HASH) != revision
        ]
        if (found["spec"].get("updateStrategy") or {}).get("type") == "OnDelete":
            outdated = []
        for name in [*surplus, *outdated]:
            if not pods[name]["metadata"].get("deletionTimestamp"):
                self.remove(found, pods[name])
            if not parallel or name in outdated:
                break
        return ""

    def _make(self, found: Object, name: str, revision: str) -> str:
        number = name.rpartition("-")[2]
        pod = new_pod(
            found,
            **{"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": number, HASH: revision},
        )
        del pod["metadata"]["generateName"]
        pod["metadata"]["name"] = pod["spec"]["hostname"] = name
        if found["spec"].get("serviceName"):
            pod["spec"]["subdomain"] = found["spec"]["serviceName"]
        volumes = pod["spec"].setdefault("volumes", [])
        for template in found["spec"].get("volumeClaimTemplates") or []:
            claim = clone(template)
            volume = claim["metadata"]["name"]
            claim["metadata"]["name"] = f"{volume}-{name}"
            claim.pop("status", None)
            with contextlib.suppress(ApiError):  # it is there since the pod's last life
                self.store.create("persistentvolumeclaims", claim, found["metadata"]["namespace"])
            volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": f"{volume}-{name}"}})
        return self.create(found, pod)

    def _status(self, found: Object, revision: str) -> None:
        pods = self.active(found)
        updated = sum((p["metadata"].get("labels") or {}).get(HASH) == revision for p in pods)
        held = found.get("status") or {}
        done = updated == len(pods) == int(found["spec"].get("replicas", 1))
        current = revision if done else held.get("currentRevision", revision)
        waits = [available_in(p, found["spec"].get("minReadySeconds", 0), self.store.clock()) for p in pods]
        counts = {
            "readyReplicas": sum(map(is_ready, pods)),
            "updatedReplicas": updated,
            "currentReplicas": sum((p["metadata"].get("labels") or {}).get(HASH) == current for p in pods),
        }
        self.write(
            found,
            {
                "observedGeneration": found["metadata"].get("generation", 1),
                "replicas": len(pods),
                **{name: count for name, count in counts.items() if count},
                "currentRevision": current,
                "updateRevision": revision,
                "collisionCount": 0,
                "availableReplicas": sum(w == 0 for w in waits),
            },
        )


def _ordinal(name: str) -> int:
    text = name.rpartition("-")[2]
    return int(text) if text.isdigit() else -1
