"""The operators of a world: custom kinds, pods, objects, webhooks, controllers.

    operators: [kueue, mpi, {dra: {device_plugin: true}}]

The order is the order of installation. What an operator brings are objects as its manifests would create them; its
controllers run in the cluster's own process.
"""

from __future__ import annotations

from .registry import OPERATORS, Operator, furnished, options, start

__all__ = ["OPERATORS", "Operator", "furnished", "options", "start"]
