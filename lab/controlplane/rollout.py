"""Rolling updates: how many replicas old and new ReplicaSets of a Deployment may have now.

Pure arithmetic of a rolling update (pkg/controller/deployment/rolling.go): never more than maxSurge above the wish,
never fewer available than maxUnavailable below it.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def share(amount: int | str | None, total: int, *, up: bool) -> int:
    """A number, or a percentage of the total."""
    if not isinstance(amount, str):
        return int(amount or 0)
    part = int(amount.rstrip("%") or 0) * total
    return -(-part // 100) if up else part // 100


def limits(deployment: Object) -> tuple[int, int]:
    """(maxSurge, maxUnavailable) as numbers; not both are 0."""
    spec = deployment["spec"]
    rolling, wanted = (spec.get("strategy") or {}).get("rollingUpdate") or {}, int(spec.get("replicas", 1))
    surge = share(rolling.get("maxSurge"), wanted, up=True)
    unavailable = share(rolling.get("maxUnavailable"), wanted, up=False)
    return surge, unavailable if surge or unavailable else 1


def size(replica_set: Object) -> int:
    """How many replicas it is to have."""
    return int(replica_set["spec"].get("replicas", 0))


def available(replica_set: Object) -> int:
    """How many of them serve."""
    return int((replica_set.get("status") or {}).get("availableReplicas", 0))


def new_size(deployment: Object, new: Object, old: list[Object]) -> int:
    """The size of the new set."""
    wanted = int(deployment["spec"].get("replicas", 1))
    if size(new) > wanted or (deployment["spec"].get("strategy") or {}).get("type") == "Recreate":
        return wanted
    surge, _ = limits(deployment)
    room = wanted + surge - size(new) - sum(map(size, old))
    return size(new) + max(0, min(room, wanted - size(new)))


def old_sizes(deployment: Object, new: Object, old: list[Object]) -> dict[str, int]:
    """The sizes of the old sets by name, oldest first: broken replicas go first, then as many as are replaced."""
    sizes = {r["metadata"]["name"]: size(r) for r in old}
    wanted, (_, unavailable) = int(deployment["spec"].get("replicas", 1)), limits(deployment)
    least = wanted - unavailable
    removable = size(new) + sum(sizes.values()) - least - (size(new) - available(new))
    for found in old:
        broken = size(found) - available(found)
        cut = max(0, min(removable, broken))
        sizes[found["metadata"]["name"]] -= cut
        removable -= cut
    spare = min(available(new) + sum(map(available, old)) - least, removable)
    for found in old:
        name = found["metadata"]["name"]
        cut = max(0, min(spare, sizes[name]))
        sizes[name] -= cut
        spare -= cut
    return sizes
