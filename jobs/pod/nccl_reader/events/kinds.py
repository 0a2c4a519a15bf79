"""What a message of NCCL is, by its first four bytes, where that says enough."""

from __future__ import annotations

from typing import Dict

CHANNEL_STARTS = frozenset((b"Chan", b"Ring", b"Coll"))  # channels, and other things
SILENT, OPERATION = 1, 2
# Says nothing that is judged (GRAPH and TUNING dumps, proxy threads, affinities).
_SILENT = b"Tree|Sett|thre|Allo|CC O|=== |====|Patt|work|Mem |[Pro|Max |ID  |NIC/|PCI/"
KINDS: Dict[bytes, int] = dict.fromkeys(_SILENT.split(b"|"), SILENT)
# Operations (NCCL_DEBUG_SUBSYS=COLL): millions of lines that only say that the process exists.
_OPERATIONS = b"AllR|AllG|Broa|Redu|Send|Recv|Gath|Scat|Allt|AllT"
KINDS.update(dict.fromkeys(_OPERATIONS.split(b"|"), OPERATION))
