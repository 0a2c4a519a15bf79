"""The attributes of a write that defaults, validation and admission look at."""

from __future__ import annotations

from dataclasses import dataclass, field

ISSUER = "https://kubernetes.default.svc.cluster.local"  # of service account tokens, and their audience here


@dataclass(slots=True)
class Request:
    """One write on its way through the chain; warnings collect here and reach the client as headers."""

    user: str = ""
    groups: tuple[str, ...] = ()
    operation: str = ""  # CREATE, UPDATE, DELETE
    subresource: str = ""
    dry_run: bool = False
    trusted: bool = False  # a controller's own write: not validated again
    manager: str = ""  # the field manager; empty: fields are not tracked
    apply: bool = False
    force: bool = False
    warnings: list[str] = field(default_factory=list)
