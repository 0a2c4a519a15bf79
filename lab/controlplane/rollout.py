"""Rolling updates: the number of replicas that old and new ReplicaSets of a Deployment may have now.

The arithmetic of pkg/controller/deployment/rolling.go: never more than maxSurge above the desired number, never fewer
available than maxUnavailable below it.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def share(amount: int | str | None, total: int, *, up: bool) -> int:
    """Return a number, or a percentage of the total as a number."""
    if not isinstance(amount, str):
        return int(amount or 0)
    part = int(amount.rstrip("%") or 0) * total
    return -(-part // 100) if up else part // 100


def limits(deployment: Object) -> tuple[int, int]:
    """Return (maxSurge, maxUnavailable) as numbers; at least one of them is not 0."""
    spec = deployment["spec"]
    rolling, desired = (spec.get("strategy") or {}).get("rollingUpdate") or {}, int(spec.get("replicas", 1))
    surge = share(rolling.get("maxSurge"), desired, up=True)
    unavailable = share(rolling.get("maxUnavailable"), desired, up=False)
    return surge, unavailable if surge or unavailable else 1


def size(replica_set: Object) -> int:
    """Return the desired number of replicas."""
    return int(replica_set["spec"].get("replicas", 0))


def available(replica_set: Object) -> int:
    """Return the number of available replicas."""
    return int((replica_set.get("status") or {}).get("availableReplicas", 0))


def new_size(deployment: Object, new: Object, old: list[Object]) -> int:
    """Return the size of the new set."""
    desired = int(deployment["spec"].get("replicas", 1))
    if size(new) > desired or (deployment["spec"].get("strategy") or {}).get("type") == "Recreate":
        return desired
    surge, _ = limits(deployment)
    room = desired + surge - size(new) - sum(map(size, old))
    return size(new) + max(0, min(room, desired - size(new)))


def old_sizes(deployment: Object, new: Object, old: list[Object]) -> dict[str, int]:
    """Return the sizes of the old sets by name, oldest first: unhealthy replicas are removed first."""
    sizes = {r["metadata"]["name"]: size(r) for r in old}
    desired, (_, unavailable) = int(deployment["spec"].get("replicas", 1)), limits(deployment)
    least = desired - unavailable
    removable = size(new) + sum(sizes.values()) - least - (size(new) - available(new))
    for replica_set in old:
        broken = size(replica_set) - available(replica_set)
        cut = max(0, min(removable, broken))
        sizes[replica_set["metadata"]["name"]] -= cut
        removable -= cut
    spare = min(available(new) + sum(map(available, old)) - least, removable)
    for replica_set in old:
        name = replica_set["metadata"]["name"]
        cut = max(0, min(spare, sizes[name]))
        sizes[name] -= cut
        spare -= cut
    return sizes
