"""Whether the profile describes this cluster at all: asked before anything that only the profile wants accuses it.

Only evidence that the cluster is of another kind counts. What is simply not there is missing, and the cluster's fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..profiles.proposal import FABRIC
from .pool import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..framework.evidence import Evidence
    from ..profiles.loader import Profile
    from .pool import Pool

OTHER_KIND = "nodes.other-kind"


def misfit(pool: Pool, profile: Profile, resources: Collection[str]) -> str:
    """Say which key of the profile does not fit, and what is there; '' where it fits, or nobody can tell.

    ``resources``: what a pod of the trial asks for beside its GPUs. Other cards on every node, and these on none, are
    another fabric; no card at all is a device plugin that is missing.
    """
    others = {name: why for name, why in pool.outside.items() if why != LEFT_OUT}
    if others and not pool.nodes:
        node, why = next(iter(others.items()))
        return f"the profile {profile.name} (gpu.product, pool) does not fit this cluster: {node} is {why}"
    asked = {name for name in resources if name.startswith(FABRIC)}
    offers = [
        {name for name, count in node.allocatable.items() if count > 0 and name.startswith(FABRIC)}
        for node in pool.nodes
    ]
    if asked and offers and all(each and not each & asked for each in offers):
        there = ", ".join(sorted(set.union(*offers))[:4])
        return (
            f"the profile {profile.name} (pod.resources) does not fit this cluster: no node offers "
            f"{', '.join(sorted(asked))}, and every node offers {there}"
        )
    return ""


def fits(evidence: Evidence, pool: Pool, profile: Profile, resources: Collection[str] = ()) -> None:
    """End the check as unknown where the profile does not describe this cluster."""
    if why := misfit(pool, profile, resources):
        evidence.unknown(why, OTHER_KIND)
