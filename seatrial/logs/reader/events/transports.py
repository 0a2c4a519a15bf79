"""Networks in channel lines: lines that a fault may quote, and a network's family."""

from __future__ import annotations

from functools import lru_cache
from typing import Dict, Optional

from ..state.channels import connector_of

VIA_SOCKET, VIA_NO_GDR = "line via-socket", "line via-no-gdr"


@lru_cache(maxsize=4096)
def quote_kind_of(text: str) -> Optional[str]:
    """Name the kind of line of a connector that a fault may quote: it shows sockets, or no GPUDirect."""
    connector = connector_of(text)
    if connector.kind != "net" or connector.gdr:
        return None
    return VIA_SOCKET if connector.net == "Socket" else VIA_NO_GDR


# Network name as printed -> family. If the family depends on more (link layer, libfabric provider), view.py decides.
_FAMILIES: Dict[str, str] = {
    "ib": "verbs",
    "socket": "socket",
    "aws libfabric": "ofi",
    "libfabric": "ofi",
    "ofi": "ofi",
    "fastsocket": "fastsocket",
    "fastrak": "fastrak",
    "gib": "gib",
    "ucx": "ucx",
    "nccl rdma plugin": "verbs",
    "sharp": "collnet",
}
RDMA = frozenset(("ib", "roce", "efa", "cxi", "gib", "ucx", "tcpx", "fastrak", "mnnvl"))  # GPU memory without plain TCP
TCP = frozenset(("socket", "fastsocket"))


@lru_cache(maxsize=256)
def family(net: str) -> str:
    """Return the family of a network's printed name.

    Verbs, ofi, socket, ucx, gib, ...; ``other`` for an unknown plugin.
    """
    low = net.strip().lower()
    if low in _FAMILIES:
        return _FAMILIES[low]
    if low.startswith(("ibext", "nccl rdma plugin", "ib_", "ib-")):  # IB-CAST is AMD's for its own NICs
        return "verbs"
    if low.startswith("gpudirecttcpx"):
        return "fastrak" if "tcpxo" in low or "fastrak" in low else "tcpx"
    for start in ("ucx", "gib", "fastsocket", "fastrak", "socket"):
        if low.startswith(start):
            return start
    if "libfabric" in low or "ofi" in low.split("_") or low.startswith("ofi"):
        return "ofi"
    return "other"
