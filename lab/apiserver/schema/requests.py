"""The attributes of a write, for defaults, validation and admission."""

from __future__ import annotations

from dataclasses import dataclass, field

ISSUER = "https://kubernetes.default.svc.cluster.local"  # issuer of service account tokens, and their audience here


@dataclass(slots=True)
class Request:
    """One write in the chain of defaults, validation and admission; its warnings reach the client as headers."""

    user: str = ""
    groups: tuple[str, ...] = ()
    operation: str = ""  # CREATE, UPDATE, DELETE
    subresource: str = ""
    dry_run: bool = False
    trusted: bool = False  # a controller's own write, which is not validated again
    manager: str = ""  # the field manager; empty: fields are not tracked
    apply: bool = False
    force: bool = False
    warnings: list[str] = field(default_factory=list)
