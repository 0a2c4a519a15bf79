"""The transport of a channel line, and the family of a network.

Grammar (catalogue 1.5): ``(Ring|Channel) CC[/CONN] : SRC[[x]] -> DST[[y]] [send|receive] via TRANSPORT``. A network's
name may hold blanks (``AWS Libfabric``), the proxy rank of PXN stands in parentheses (``NET/IB/1(5)/GDRDMA``). A suffix
that is half of a known one is a torn line and is dropped: it must not turn "with GPUDirect" into "without".
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Dict, Optional, Tuple

_CHANNEL = re.compile(
    rb"(Ring|Channel|CollNet|Coll) (\d{1,4})(?:/(\d{1,3}))? : (\d{1,7})(?:\[[0-9a-fA-F]{1,16}\])? "
    rb"(?:-> (\d{1,7})(?:\[[0-9a-fA-F]{1,16}\])? )?(?:\[(send|receive)\] )?via (\S.*)"
)
_NET = re.compile(rb"NET/([A-Za-z0-9_.:+ -]{1,60})/(\d{1,4})(?:\((\d{1,7})\))?((?:/[A-Za-z0-9()_=.-]+)*)(?:\s.*)?$")
_COLLNET = re.compile(rb"COLLNET/([A-Za-z0-9_.-]{1,40})/(\d{1,4})((?:/[A-Za-z0-9()]+)*)(?:\s.*)?$")
_P2P = re.compile(
    rb"P2P/(IPC|CUMEM|MNNVL|direct pointer|common device|indirect/\d+(?:\[[0-9a-fA-F]+\])?)(?:/read)?(?:/CE)?(?:\s.*)?$"
)
_SHM = re.compile(rb"SHM(?:/(?:direct|CE)){0,2}(?:\s.*)?$|direct shared memory(?:\s.*)?$")
TAIL = re.compile(
    rb"\s+comm 0x[0-9a-fA-F]+ n[rR]anks \d+.*$|\s*(?:\x1b\[\d*m)?\[repeated \d+x across cluster\].*$|\s*\x1b\[.*$|\s+$"
)
_SIZE = re.compile(rb" comm 0x[0-9a-fA-F]+ n[rR]anks (\d{1,7})\b")
VIA_SOCKET, VIA_NO_GDR = "line via-socket", "line via-no-gdr"
_SIDES = {b"send": "s", b"receive": "r", None: ""}
_SUFFIXES = (b"GDRDMA(PCI)", b"Shared")


Lane = Tuple[Tuple[int, int, str, int, str, str, int, int, int], int, str]
"""All channels of one edge, as one of its ends prints them: the edge's key, the rank that printed it, and the size of
its communicator where the line says it (RCCL), else an empty text.

The key: source and destination in the communicator (destination -1 on a collective-network line); "s" or "r" for the
end that prints, "" where the line does not say; connection (0 ring or tree, 1 point to point); kind (net, p2p, mnnvl,
shm, collnet); the network's name as printed, or the kind of P2P; the network device's index, GPUDirect as 0 or 1, the
rank whose NIC is used (PXN), each -1 or 0 without one."""


def parse_channel(text: bytes) -> Optional[Tuple[Lane, int]]:
    """Return the lane and the channel of one line; None where it is none, or torn."""
    match = _CHANNEL.match(text)
    if match is None:
        return None
    word, channel, conn, src, dst, side, via = match.groups()
    carrier = _carrier(via, word[:4] == b"Coll")
    if carrier is None or (dst is None and carrier[0] != "collnet"):
        return None
    size = _SIZE.search(text) if b"anks " in text else None
    source, target = int(src), -1 if dst is None else int(dst)
    key = (source, target, _SIDES[side], int(conn or 0), *carrier)
    own = target if side == b"receive" else source
    return (key, own, size.group(1).decode("ascii") if size else ""), int(channel)


def sight_of(lane: Lane) -> Optional[str]:
    """Name a channel line that a fault may quote: one that shows sockets, or no GPUDirect."""
    kind, net, gdr = lane[0][4], lane[0][5], lane[0][7]
    if kind != "net" or gdr:
        return None
    return VIA_SOCKET if net == "Socket" else VIA_NO_GDR


@lru_cache(maxsize=4096)
def _carrier(via: bytes, tree: bool) -> Optional[Tuple[str, str, int, int, int]]:  # noqa: PLR0911 -- one return per form
    """Read what stands behind ``via``: kind, network, device, GPUDirect, proxy; None where it is torn or unknown."""
    via = TAIL.sub(b"", via)
    if via[:8] == b"COLLNET/" or (tree and via[:4] != b"NET/"):
        found = _COLLNET.match(via)
        if found is None:
            return None
        return "collnet", found.group(1).decode("ascii"), int(found.group(2)), int(b"GDRDMA" in found.group(3)), -1
    if via[:4] == b"NET/":
        net = _NET.match(via)
        if net is None:
            return None
        suffixes = [item for item in net.group(4).split(b"/") if item]
        if any(_is_half(item) for item in suffixes):
            return None
        gdr = int(any(item.startswith(b"GDRDMA") for item in suffixes))
        name = sys.intern(net.group(1).decode("ascii").strip())
        return "net", name, int(net.group(2)), gdr, int(net.group(3) or -1)
    peer = _P2P.match(via)
    if peer is not None:
        form = peer.group(1).decode("ascii").split("/")[0]
        return "mnnvl" if form == "MNNVL" else "p2p", form, -1, 0, -1
    return ("shm", "SHM", -1, 0, -1) if _SHM.match(via) else None


def _is_half(suffix: bytes) -> bool:
    """Say whether a suffix is the beginning of a known one (``GDRD``); others (``flush=None``) are a plugin's own."""
    return suffix != b"GDRDMA" and any(known.startswith(suffix) and known != suffix for known in _SUFFIXES)


# Network name as printed -> family. Where the family depends on more (link layer, libfabric provider) it is decided in
# view.py.
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
