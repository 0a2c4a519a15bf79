"""What carried the data? Reads the transport of a channel line and names the family of a network.

Grammar (catalogue 1.5): ``(Ring|Channel) CC[/CONN] : SRC[[x]] -> DST[[y]] [send|receive] via TRANSPORT``. A network's
name may hold blanks (``AWS Libfabric``), the proxy rank of PXN stands in parentheses (``NET/IB/1(5)/GDRDMA``). A suffix
that is half of a known one is a torn line and is dropped: it must not turn "with GPUDirect" into "without".
"""

from __future__ import annotations

import re
import sys
from typing import Dict, NamedTuple, Optional, Tuple

_CHANNEL = re.compile(
    rb"(Ring|Channel|CollNet|Coll) (\d{1,4})(?:/(\d{1,3}))? : (\d{1,7})(?:\[([0-9a-fA-F]{1,16})\])? "
    rb"(?:-> (\d{1,7})(?:\[([0-9a-fA-F]{1,16})\])? )?(?:\[(send|receive)\] )?via (\S.*)"
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
_SUFFIXES = (b"GDRDMA(PCI)", b"Shared")


class Edge(NamedTuple):
    """One channel line: ranks are those of its communicator."""

    channel: int
    conn: int  # 0 ring or tree, 1 point to point
    src: int
    dst: int  # -1 on a collective-network line
    direction: str  # "s", "r", or "" where the line does not say
    kind: str  # "net", "p2p", "mnnvl", "shm", "collnet"
    net: str  # the network's name as printed, or what kind of P2P
    device: int  # the network device's index, -1 without one
    gdr: bool
    proxy: int  # the rank whose NIC is used (PXN), -1 without


class Channel:
    """A channel line as a process adds it to its edges: compared by identity, so that a set of them is cheap."""

    __slots__ = ("bit", "key", "own", "size")

    def __init__(self, edge: Edge, size: str = "") -> None:
        self.size = size  # of the communicator, which RCCL prints behind every channel
        self.own = edge.dst if edge.direction == "r" else edge.src  # the rank that printed the line
        self.bit = 1 << edge.channel
        self.key = (*edge[2:5], edge.conn, *edge[5:8], int(edge.gdr), edge.proxy)


_PARSED: Dict[bytes, Optional[Edge]] = {}
_LIMIT = 8_000
_LONGEST = 200  # bytes of a line that is remembered
# The pieces of channel lines repeat far more often than the lines do: "00/0", "3[3]", "NET/IB/0/GDRDMA".
_NUMBERS: Dict[bytes, Tuple[int, int]] = {}
_RANKS: Dict[bytes, int] = {}
_VIAS: Dict[bytes, Tuple[str, str, int, bool, int]] = {}
_SIDES = {b"[send]": "s", b"[receive]": "r"}


def channel_of(text: bytes) -> Optional[Channel]:
    """Return what a channel line says; None where it is none, or torn."""
    edge = _quick(text) or parse_channel(text)
    if edge is None:
        return None
    size = _SIZE.search(text) if b"anks " in text else None
    return Channel(edge, size.group(1).decode("ascii") if size else "")


def _quick(text: bytes) -> Optional[Edge]:
    """Put an edge together from pieces that were read before; None where one of them is new."""
    head, _, via = text.partition(b" via ")
    carrier = _VIAS.get(via)
    if carrier is None:
        return None
    pieces = head.split(b" ")
    if len(pieces) not in (6, 7) or pieces[4] != b"->" or pieces[2] != b":":
        return None
    number, src, dst = _NUMBERS.get(pieces[1]), _RANKS.get(pieces[3]), _RANKS.get(pieces[5])
    side = _SIDES.get(pieces[6]) if len(pieces) == 7 else ""
    if number is None or src is None or dst is None or side is None or pieces[0] not in (b"Channel", b"Ring"):
        return None
    return Edge(number[0], number[1], src, dst, side, *carrier)


def _remember(text: bytes, edge: Edge) -> None:
    """Keep the pieces of a line that the grammar has read."""
    head, _, via = text.partition(b" via ")
    pieces = head.split(b" ")
    if len(pieces) not in (6, 7) or edge.kind == "collnet" or len(text) > _LONGEST:
        return
    if max(len(_NUMBERS), len(_RANKS), len(_VIAS)) >= _LIMIT:
        _NUMBERS.clear()
        _RANKS.clear()
        _VIAS.clear()
    _VIAS[via] = edge[5:]
    _NUMBERS[pieces[1]] = edge[:2]
    _RANKS[pieces[3]], _RANKS[pieces[5]] = edge.src, edge.dst


def parse_channel(text: bytes) -> Optional[Edge]:
    """Read one channel line by its grammar; None where it is none, or torn."""
    if text in _PARSED:
        return _PARSED[text]
    if len(_PARSED) >= _LIMIT:
        _PARSED.clear()
    edge = _parse(text)
    if edge is not None:
        _remember(text, edge)
    elif len(text) <= _LONGEST:
        _PARSED[text] = None
    return edge


def _parse(text: bytes) -> Optional[Edge]:  # noqa: PLR0911 -- one return per form
    match = _CHANNEL.match(text)
    if match is None:
        return None
    word, channel, conn, src, _, dst, _, direction, via = match.groups()
    via = TAIL.sub(b"", via)
    side = {b"send": "s", b"receive": "r"}.get(direction, "")
    common = (int(channel), int(conn or 0), int(src), -1 if dst is None else int(dst), side)
    if via[:4] == b"NET/" and dst is not None:
        net = _NET.match(via)
        if net is None:
            return None
        suffixes = [item for item in net.group(4).split(b"/") if item]
        if any(_is_half(item) for item in suffixes):
            return None
        gdr = any(item.startswith(b"GDRDMA") for item in suffixes)
        return Edge(
            *common,
            "net",
            sys.intern(net.group(1).decode("ascii").strip()),
            int(net.group(2)),
            gdr,
            int(net.group(3) or -1),
        )
    if via[:8] == b"COLLNET/" or word in (b"Coll", b"CollNet"):
        tree = _COLLNET.match(via)
        if tree is None:
            return None
        return Edge(
            *common, "collnet", tree.group(1).decode("ascii"), int(tree.group(2)), b"GDRDMA" in tree.group(3), -1
        )
    if dst is None:
        return None
    peer = _P2P.match(via)
    if peer is not None:
        form = peer.group(1).decode("ascii").split("/")[0]
        return Edge(*common, "mnnvl" if form == "MNNVL" else "p2p", form, -1, False, -1)
    return Edge(*common, "shm", "SHM", -1, False, -1) if _SHM.match(via) else None


def _is_half(suffix: bytes) -> bool:
    """Say whether a suffix is the beginning of a known one (``GDRD``); others (``flush=None``) are a plugin's own."""
    return suffix != b"GDRDMA" and any(known.startswith(suffix) and known != suffix for known in _SUFFIXES)


# Network name as printed -> family. Where the family depends on more (link layer, libfabric provider) it is decided in
# view.py.
_FAMILIES = {
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
}  # type: Dict[str, str]
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
