"""What the rules of the schema ask of others: of the store, and of the operators' webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from .kinds import Kind, Kinds
    from .requests import Request
    from .values import Object


class Webhook(Protocol):
    """What an operator has to say about a write: it may change a new object, and refuse by raising ApiError."""

    def __call__(self, kind: Kind, new: Object, old: Object | None) -> None:
        """Look at an object that is to be created (old is None), or changed but for its status."""


class Objects(Protocol):
    """What the rules ask of the store."""

    kinds: Kinds
    clock: Callable[[], float]
    webhooks: list[Webhook]

    def get(self, key: str, ns: str | None, name: str) -> Object | None:
        """Return an object or None."""

    def list(self, key: str, ns: str | None = None, selector: Any = "") -> list[Object]:
        """Return the objects of a namespace."""

    def now(self) -> str:
        """Return the current time as objects carry it."""

    def create(self, key: str, obj: Object, ns: str | None = None, *, request: Request | None = None) -> Object:
        """Create an object."""

    def mutate(self, key: str, ns: str | None, name: str, change: Callable[[Object], object]) -> Object | None:
        """Edit an object."""

    def delete(self, key: str, ns: str | None, name: str) -> Object:
        """Delete an object."""
