"""Kueue: jobs that name a queue stay suspended until all of their pods fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .controller import KueueController
from .webhook import Webhook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...apiserver.store import Store
    from ...controlplane import Controller

__all__ = ["KueueController", "Webhook", "start"]


def start(store: Store, world: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Controller, ...]:
    """Return Kueue's controllers, and register its webhook."""
    del world
    store.webhooks.append(Webhook(store))
    return (KueueController(store, given),)
