"""Early ends of a check: its subject cannot be read, or an autoscaler has yet to create it."""

from __future__ import annotations

from jobs.cluster.facts.inventory import Inventory
from jobs.cluster.facts.stack import Listing
from jobs.trial.spec import TrialSpec

from ..framework.evidence import Evidence
from ..profiles.schema import LaunchSection
from .rights import ADVICE


def require_seen(evidence: Evidence, cluster: Inventory, what: str, why: str = "") -> None:
    """End the check as unknown if the account may not list the nodes or pods, with the remedy."""
    if what in cluster.not_seen:
        evidence.unknown(f"{why or f'the {what} are not seen'}: {cluster.not_seen[what]}. {ADVICE}")


def skip_on_demand(evidence: Evidence, nodes: int, spec: TrialSpec, launch: LaunchSection) -> None:
    """End the check as waived if an autoscaler creates the missing nodes when pods request them."""
    if launch.nodes_on_demand and nodes < spec.nodes:
        evidence.skip(
            f"{nodes} of {spec.nodes} nodes exist; the others are created on demand (profile, "
            "launch.nodes_on_demand) by the trial",
            waived=True,
        )


def require_listed(evidence: Evidence, listing: Listing, what: str) -> Listing:
    """Return the listing; end the check as unknown if the account's permissions do not cover it."""
    if listing.hidden:
        evidence.unknown(f"{what} cannot be read: {listing.hidden}. {ADVICE}")
    return listing
