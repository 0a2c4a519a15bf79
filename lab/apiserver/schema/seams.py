"""Interfaces that the rules of the schema need: the store, and the operators' webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from .kinds import Kind, Kinds
    from .requests import Request
    from .values import Object


class Webhook(Protocol):
    """An operator's webhook: it may change a new object, and reject a write by raising ApiError."""

    def __call__(self, kind: Kind, new: Object, old: Object | None) -> None:
        """Check an object that is created (old is None), or changed except for its status."""


class Objects(Protocol):
    """The interface of the store for the rules."""

    kinds: Kinds
    clock: Callable[[], float]
    webhooks: list[Webhook]

    def get(self, key: str, ns: str | None, name: str) -> Object | None:
        """Return an object or None."""

    def list(self, key: str, ns: str | None = None, selector: Any = "") -> list[Object]:
        """Return the objects of a namespace."""

    def now(self) -> str:
        """Return the current time in the format of objects."""

    def create(self, key: str, obj: Object, ns: str | None = None, *, request: Request | None = None) -> Object:
        """Create an object."""

    def mutate(self, key: str, ns: str | None, name: str, change: Callable[[Object], object]) -> Object | None:
        """Edit an object."""

    def delete(self, key: str, ns: str | None, name: str) -> Object:
        """Delete an object."""
