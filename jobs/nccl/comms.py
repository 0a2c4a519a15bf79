"""What does a communicator's line say? Rank, size, id, and whether its set-up began or ended (catalogue 1.1).

Forms: ``comm 0x.. rank 0 nranks 2 cudaDev 0 .. commId 0x.. - Init START`` (2.18.3+), ``- Init COMPLETE`` (2.4.2+),
``rank 2 nRanks 8 nNodes 4 localRanks 2 localRank 0 MNNVL 0`` (2.20.3+), ``ncclCommSplit ..``, ``Destroy`` and
``Abort``.
"""

from __future__ import annotations

import re
from typing import Dict, NamedTuple, Optional, Tuple

_RANK = re.compile(rb"\brank (\d{1,7}) n[rR]anks (\d{1,7})\b")
_COMM = re.compile(rb"\bcomm (0x[0-9a-fA-F]+)")
_COMM_ID = re.compile(rb"\bcommId (0x[0-9a-fA-F]+)")
_ENDING = re.compile(rb" - (?:(Init|Destroy|Abort|Revoke) )?(START|COMPLETE)\b")
_NODES = re.compile(rb"n[nN]odes (\d{1,6}) localRanks (\d{1,5})(?: localRank \d+)?(?: MNNVL (\d))?")


class Said(NamedTuple):
    """One line about a communicator."""

    rank: int
    nranks: int
    what: bytes  # Init, Destroy, Abort, Revoke; empty where the line reports no step
    done: bool
    pointer: bytes
    ident: str
    nodes: Optional[Tuple[int, int, int]]  # nodes, local ranks, MNNVL


_SAID: Dict[bytes, Optional[Said]] = {}


def names_rank(text: bytes) -> bool:
    """Say whether the line names a rank of a communicator."""
    return _RANK.search(text) is not None


def parse_communicator(text: bytes) -> Optional[Said]:
    """Read a communicator's line; None where it is none."""
    if text in _SAID:
        return _SAID[text]
    rank = _RANK.search(text)
    said = None
    if rank is not None and 0 <= int(rank.group(1)) < int(rank.group(2)):
        ending = _ENDING.search(text)
        pointer, ident, nodes = _COMM.search(text), _COMM_ID.search(text), _NODES.search(text)
        said = Said(
            int(rank.group(1)),
            int(rank.group(2)),
            (ending.group(1) or b"Init") if ending else b"",
            ending is not None and ending.group(2) == b"COMPLETE",
            pointer.group(1) if pointer else b"",
            ident.group(1).decode("ascii").lower() if ident else "",
            (int(nodes.group(1)), int(nodes.group(2)), int(nodes.group(3) or 0)) if nodes else None,
        )
    if len(_SAID) >= 20_000:
        _SAID.clear()
    _SAID[text] = said
    return said
