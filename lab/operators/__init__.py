"""The operators of a world: custom kinds, pods, objects, webhooks, controllers.

    operators: [kueue, mpi, {dra: {device_plugin: true}}]

The order is the order of installation. An operator's objects are those that its manifests would create; its controllers
run in the cluster's own process.
"""

from __future__ import annotations

from .registry import OPERATORS, Operator, furnished, options, start

__all__ = ["OPERATORS", "Operator", "furnished", "options", "start"]
