"""The grammar of channel lines: the connection and its transport.

Grammar: ``(Ring|Channel) CC[/CONN] : SRC[[x]] -> DST[[y]] [send|receive] via TRANSPORT``. A network's name may contain
blanks (``AWS Libfabric``), the proxy rank of PXN is in parentheses (``NET/IB/1(5)/GDRDMA``). A line whose suffix is
half of a known one is torn and is dropped: it must not turn "with GPUDirect" into "without".
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import NamedTuple, Optional, Tuple

_CHANNEL = re.compile(
    rb"(?:Ring|Channel|(Coll)(?:Net)?) (\d{1,4})(?:/(\d{1,3}))? : (\d{1,7})(?:\[[0-9a-fA-F]{1,16}\])? "
    rb"(?:-> (\d{1,7})(?:\[[0-9a-fA-F]{1,16}\])? )?((?:\[(?:send|receive)\] )?via \S.*)"
)
BITS = {form % number: 1 << number for form in (b"Channel %02d", b"Ring %02d : ") for number in range(100)}
"""The prefixes of most channel lines, ten bytes -> the channel, as a bit; the rest names the connection."""
_LONGEST = 180  # bytes of a channel line; longer text is something else
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
_SIDES = {b"s": "s", b"r": "r", b"": ""}  # by the first letter of [send] and [receive]
_SUFFIXES = (b"GDRDMA(PCI)", b"Shared")


class Connector(NamedTuple):
    """The transport of one end of an edge, as it is printed (NCCL: ncclConnector, the connection and its transport)."""

    side: str  # "s" or "r" for the end that prints, "" if the line does not show it
    conn: int  # connection: 0 ring or tree, 1 point to point
    kind: str  # net, p2p, mnnvl, shm, collnet
    net: str  # the network's name as printed, or the kind of P2P
    dev: int  # the network device's index, -1 without one
    gdr: int  # GPUDirect as 0 or 1
    proxy: int  # the rank of the NIC in use (PXN), -1 without one


Connection = Tuple[int, int, str]
"""All channels of one edge as one of its ends prints them: source and destination in the communicator, connector.

The destination is -1 on a collective-network line. The connector is a text: its hash is computed once, and a large job
has few of them.
"""


def connector_text(connector: Connector) -> str:
    """Write a connector as one text."""
    side, conn, kind, net, dev, gdr, proxy = connector
    return sys.intern("%s,%d,%s,%d,%d,%d,%s" % (side, conn, kind, dev, gdr, proxy, net))


@lru_cache(maxsize=4096)
def connector_of(text: str) -> Connector:
    """Read the text of a connector; raises ValueError for another text."""
    side, conn, kind, dev, gdr, proxy, net = text.split(",", 6)
    return Connector(side, int(conn), kind, net, int(dev), int(gdr), int(proxy))


CONNECTION = re.compile(
    rb"(?:/(\d{1,3}))? : (\d{1,7})(?:\[[0-9a-fA-F]{1,16}\])? -> (\d{1,7})(?:\[[0-9a-fA-F]{1,16}\])? "
    rb"((?:\[(?:send|receive)\] )?via \S.*)\n"
)
"""The text after a channel (BITS) in a line of the usual form: connection, source, destination, connector."""


def parse_channel(text: bytes) -> Optional[Tuple[Connection, int, str]]:
    """Return the connection and the channel of one line, and the size of its communicator.

    The size is empty unless the line has it (RCCL). None if the line is not a channel's, or torn.
    """
    match = _CHANNEL.match(text, 0, _LONGEST)
    if match is None:
        return None
    tree, channel, conn, src, dst, how = match.groups()
    end = parse_connector(how, conn, tree is not None)
    if end is None or (dst is None and connector_of(end[0]).kind != "collnet"):
        return None
    return (int(src), -1 if dst is None else int(dst), end[0]), int(channel), end[1]


@lru_cache(maxsize=4096)
def parse_connector(how: bytes, conn: Optional[bytes], tree: bool) -> Optional[Tuple[str, str]]:
    """Read the text after the ranks: connector, and the communicator's size if present; None if torn."""
    side, _, via = how.partition(b"via ")
    carrier = None if b" NCCL " in how else _carrier(via, tree)
    if carrier is None:
        return None
    size = _SIZE.search(via) if b"anks " in via else None
    connector = connector_text(Connector(_SIDES[side[1:2]], int(conn or 0), *carrier))
    return connector, size.group(1).decode("ascii") if size else ""


def _carrier(via: bytes, tree: bool) -> Optional[Tuple[str, str, int, int, int]]:  # noqa: PLR0911 -- one return per form
    """Read the text after ``via``: kind, network, device, GPUDirect, proxy; None if torn or unknown."""
    via = TAIL.sub(b"", via)
    if via[:8] == b"COLLNET/" or (tree and via[:4] != b"NET/"):
        match = _COLLNET.match(via)
        if match is None:
            return None
        return "collnet", match.group(1).decode("ascii"), int(match.group(2)), int(b"GDRDMA" in match.group(3)), -1
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
    """Return whether a suffix is the beginning of a known one (``GDRD``); others (``flush=None``) are a plugin's own.

    One with other text after its beginning (``GDR70bb2ba``) counts, too: processes tear each other's lines.
    """
    if suffix[:1] == b"G" and not suffix.startswith(b"GDRDMA"):
        return True
    return suffix != b"GDRDMA" and any(known.startswith(suffix) and known != suffix for known in _SUFFIXES)
