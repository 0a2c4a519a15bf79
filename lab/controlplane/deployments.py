"""The Deployment controller: ReplicaSets and rollouts."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.errors import ApiError
from ..apiserver.schema.values import clone, epoch
from . import rollout
from .owned import WorkloadController, condition, is_of, reference, template_hash

if TYPE_CHECKING:
    from .queue import Key

Object = dict[str, Any]
SETS, HASH = "replicasets.apps", "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
DESIRED, MOST = "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"
PROGRESS = ("updatedReplicas", "readyReplicas", "availableReplicas")
NOT_COPIED = {"kubectl.kubernetes.io/last-applied-configuration", REVISION, DESIRED, MOST}


class DeploymentController(WorkloadController):
    """The controller of all Deployments."""

    key, kind, component = "deployments.apps", "Deployment", "deployment-controller"
    owns = (SETS,)

    def sync(self, key: Key) -> float | None:
        """Do one step of a rollout, and update the status."""
        deployment = self.living(key)
        if deployment is None:
            return None
        sets = sorted(
            (r for r in self.store.list(SETS, key[0]) if is_of(deployment, r)),
            key=lambda r: (r["metadata"]["creationTimestamp"], int(r["metadata"]["resourceVersion"])),
        )
        new = next((r for r in sets if _template(r) == _template(deployment)), None)
        old = [r for r in sets if r is not new]
        if deployment["spec"].get("paused"):
            self._follow_scale(deployment, new, old)
        elif new is None or _revision(new) < max(map(_revision, sets)):
            new = self._new(deployment, new, old)
        if new is not None and not deployment["spec"].get("paused"):
            self._roll(deployment, new, old)
            self._forget_history(deployment, old)
        return self._status(key)

    def _new(self, deployment: Object, held: Object | None, old: list[Object]) -> Object | None:
        """Create the set for the current template, or make the existing one the latest again."""
        revision = str(max(map(_revision, old), default=0) + 1)
        meta, surge = deployment["metadata"], rollout.limits(deployment)[0]
        desired = int(deployment["spec"].get("replicas", 1))
        notes = {k: v for k, v in (meta.get("annotations") or {}).items() if k not in NOT_COPIED}
        notes |= {DESIRED: str(desired), MOST: str(desired + surge), REVISION: revision}
        if held is not None:
            name = held["metadata"]["name"]
            updated = self.store.mutate(
                SETS, meta["namespace"], name, lambda r: r["metadata"].setdefault("annotations", {}).update(notes)
            )
            self._note_revision(deployment, revision)
            return updated
        template = clone(deployment["spec"]["template"])
        digest = template_hash(template)
        labels = {**(template["metadata"].get("labels") or {}), HASH: digest}
        template["metadata"]["labels"] = labels
        selector = clone(deployment["spec"]["selector"])
        selector.setdefault("matchLabels", {})[HASH] = digest
        body: Object = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{meta['name']}-{digest}",
                "labels": labels,
                "annotations": notes,
                "ownerReferences": [reference(deployment)],
            },
            "spec": {
                "replicas": 0,
                "selector": selector,
                "template": template,
                "minReadySeconds": deployment["spec"].get("minReadySeconds", 0),
            },
        }
        body["spec"]["replicas"] = rollout.new_size(deployment, body, old)
        if _recreates(deployment) and any(map(rollout.size, old)):
            body["spec"]["replicas"] = 0
        try:
            made = self.store.create(SETS, body, meta["namespace"])
        except ApiError as error:
            self.event(
                deployment, "Warning", "ReplicaSetCreateError", f"Failed to create new replica set: {error.message}"
            )
            return None
        self._note_revision(deployment, revision)
        count = rollout.size(made)
        if count:
            self.event(
                deployment,
                "Normal",
                "ScalingReplicaSet",
                f"Scaled up replica set {made['metadata']['name']} from 0 to {count}",
            )
        self._progress(deployment, "NewReplicaSetCreated", f'Created new replica set "{made["metadata"]["name"]}"')
        return made

    def _note_revision(self, deployment: Object, revision: str) -> None:
        meta = deployment["metadata"]
        self.store.mutate(
            self.key,
            meta["namespace"],
            meta["name"],
            lambda d: d["metadata"].setdefault("annotations", {}).update({REVISION: revision}),
        )

    def _progress(self, deployment: Object, reason: str, message: str) -> None:
        def change(d: Object) -> None:
            condition(d.setdefault("status", {}), "Progressing", "True", reason, message, self.store.now())

        self.store.mutate(
            self.key, deployment["metadata"]["namespace"], deployment["metadata"]["name"], change, "status"
        )

    def _follow_scale(self, deployment: Object, new: Object | None, old: list[Object]) -> None:
        """Scale a paused Deployment: its latest set gets the difference."""
        sets = [*old, *([new] if new else [])]
        if sets:
            rest = sum(map(rollout.size, sets[:-1]))
            self._scale(deployment, sets[-1], max(0, int(deployment["spec"].get("replicas", 1)) - rest))

    def _roll(self, deployment: Object, new: Object, old: list[Object]) -> None:
        if _recreates(deployment):
            for replica_set in old:
                self._scale(deployment, replica_set, 0)
            if any((r.get("status") or {}).get("replicas") for r in old):
                return
            self._scale(deployment, new, rollout.new_size(deployment, new, []))
            return
        new = self._scale(deployment, new, rollout.new_size(deployment, new, old))
        for name, count in rollout.old_sizes(deployment, new, old).items():
            self._scale(deployment, next(r for r in old if r["metadata"]["name"] == name), count)

    def _scale(self, deployment: Object, replica_set: Object, count: int) -> Object:
        before, meta = rollout.size(replica_set), replica_set["metadata"]
        if before == count:
            return replica_set
        desired = int(deployment["spec"].get("replicas", 1))
        notes = {DESIRED: str(desired), MOST: str(desired + rollout.limits(deployment)[0])}

        def change(r: Object) -> None:
            r["spec"]["replicas"] = count
            r["metadata"].setdefault("annotations", {}).update(notes)

        scaled = self.store.mutate(SETS, meta["namespace"], meta["name"], change)
        word = "up" if count > before else "down"
        self.event(
            deployment,
            "Normal",
            "ScalingReplicaSet",
            f"Scaled {word} replica set {meta['name']} from {before} to {count}",
        )
        return scaled or replica_set

    def _forget_history(self, deployment: Object, old: list[Object]) -> None:
        limit = deployment["spec"].get("revisionHistoryLimit", 10)
        idle = [r for r in old if not rollout.size(r) and not (r.get("status") or {}).get("replicas")]
        for replica_set in idle[: max(0, len(idle) - limit)]:
            with contextlib.suppress(ApiError):
                self.store.delete(SETS, deployment["metadata"]["namespace"], replica_set["metadata"]["name"])

    def _status(self, key: Key) -> float | None:
        deployment = self.living(key)
        if deployment is None:
            return None
        sets = [r for r in self.store.list(SETS, key[0]) if is_of(deployment, r)]
        new = next((r for r in sets if _template(r) == _template(deployment)), None)
        counts = {
            name: sum((r.get("status") or {}).get(name, 0) for r in sets)
            for name in ("replicas", "readyReplicas", "availableReplicas")
        }
        counts["updatedReplicas"] = ((new or {}).get("status") or {}).get("replicas", 0)
        counts["unavailableReplicas"] = max(0, sum(map(rollout.size, sets)) - counts["availableReplicas"])
        before = deployment.get("status") or {}
        status: Object = {
            "observedGeneration": deployment["metadata"].get("generation", 1),
            **{name: count for name, count in counts.items() if count},
        }
        if before.get("conditions"):
            status["conditions"] = clone(before["conditions"])
        again = self._conditions(deployment, new, counts, status, before)
        self.write(deployment, status)
        return again

    def _conditions(
        self, deployment: Object, new: Object | None, counts: dict[str, int], status: Object, before: Object
    ) -> float | None:
        now, desired = self.store.now(), int(deployment["spec"].get("replicas", 1))
        if counts["availableReplicas"] >= desired - rollout.limits(deployment)[1]:
            condition(
                status, "Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.", now
            )
        else:
            condition(
                status,
                "Available",
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
                now,
            )
        failure = next(
            (c for c in ((new or {}).get("status") or {}).get("conditions") or [] if c["type"] == "ReplicaFailure"),
            None,
        )
        status["conditions"] = [c for c in status["conditions"] if c["type"] != "ReplicaFailure"]
        if failure:
            condition(status, "ReplicaFailure", "True", failure["reason"], failure["message"], now)
        deadline = deployment["spec"].get("progressDeadlineSeconds")
        if new is None or deadline is None or deployment["spec"].get("paused"):
            return None
        name = f'ReplicaSet "{new["metadata"]["name"]}"'
        if counts["updatedReplicas"] == counts["replicas"] == counts["availableReplicas"] == desired:
            condition(
                status, "Progressing", "True", "NewReplicaSetAvailable", f"{name} has successfully progressed.", now
            )
            return None
        if any(counts[part] > before.get(part, 0) for part in PROGRESS):
            _touch(status, "ReplicaSetUpdated", f"{name} is progressing.", now)
            return float(deadline)
        held = next((c for c in status["conditions"] if c["type"] == "Progressing"), None)
        if held is None or held["reason"] in ("ProgressDeadlineExceeded", "NewReplicaSetAvailable"):
            return None
        left = epoch(held["lastUpdateTime"]) + float(deadline) - self.store.clock()
        if left <= 0:
            condition(
                status, "Progressing", "False", "ProgressDeadlineExceeded", f"{name} has timed out progressing.", now
            )
            return None
        return left


def _touch(status: Object, reason: str, message: str, now: str) -> None:
    condition(status, "Progressing", "True", reason, message, now)
    next(c for c in status["conditions"] if c["type"] == "Progressing")["lastUpdateTime"] = now


def _recreates(deployment: Object) -> bool:
    return bool((deployment["spec"].get("strategy") or {}).get("type") == "Recreate")


def _revision(replica_set: Object) -> int:
    text = (replica_set["metadata"].get("annotations") or {}).get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def _template(obj: Object) -> Object:
    """Return the pod template without the template hash label."""
    template = obj["spec"]["template"]
    meta = dict(template.get("metadata") or {})
    meta["labels"] = {k: v for k, v in (meta.get("labels") or {}).items() if k != HASH}
    return {**template, "metadata": meta}
