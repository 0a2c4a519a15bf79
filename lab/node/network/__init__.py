"""The pod network: processes with their own addresses, files and network, without root.

    cluster process (API server, DNS, kubelet) --unix socket--> agent (user+pid+mount+net namespace) --> containers

`open_network()` uses the best mode that this machine's kernel allows, and reports the features that it lacks.
"""

from __future__ import annotations

from .interface import Network, NetworkError, Process, Sandbox, StartError, Unavailable

__all__ = ["Network", "NetworkError", "Process", "Sandbox", "StartError", "Unavailable", "open_network"]


async def open_network(mode: str = "auto") -> Network:
    """Start the pod network; `mode`: auto, namespaces (or Unavailable), plain."""
    from . import client  # noqa: PLC0415 - the agent imports this package too and must start fast

    if mode == "plain":
        return await client.start("plain")
    try:
        return await client.start("namespaces")
    except Unavailable as reason:
        if mode == "namespaces":
            raise
        plain = await client.start("plain")
        plain.lost = (str(reason), *plain.lost)
        return plain
