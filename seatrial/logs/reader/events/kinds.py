"""The kind of an NCCL message, by its first four bytes if they suffice."""

from __future__ import annotations

from typing import Dict

CHANNEL_STARTS = frozenset((b"Chan", b"Ring", b"Coll"))  # channels, and other messages
_SILENT, OPERATION = 1, 2
# No relevant content (GRAPH and TUNING dumps, proxy threads, affinities).
SILENT = frozenset(b"Tree|Sett|thre|Allo|CC O|=== |====|Patt|work|Mem |[Pro|Max |ID  |NIC/|PCI/".split(b"|"))
KINDS: Dict[bytes, int] = dict.fromkeys(SILENT, _SILENT)
# Operations (NCCL_DEBUG_SUBSYS=COLL): millions of lines that only show that the process exists.
_OPERATIONS = b"AllR|AllG|Broa|Redu|Send|Recv|Gath|Scat|Allt|AllT"
KINDS.update(dict.fromkeys(_OPERATIONS.split(b"|"), OPERATION))
