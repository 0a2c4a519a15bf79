"""Path names of `nvidia-smi topo -m` between two devices, by their places in the PCI tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def word(one: Mapping[str, Any], two: Mapping[str, Any]) -> str:
    """Return PIX, PXB, PHB, NODE or SYS, as in the tool's legend."""
    first, second = one.get("place") or [], two.get("place") or []
    common = 0
    while common < min(len(first), len(second)) and first[common] == second[common]:
        common += 1
    if common > 1:
        return "PIX" if max(len(first), len(second)) - common <= 2 else "PXB"
    if common == 1:
        return "PHB"
    if not first or not second:  # a state without places: NIC g is next to GPU g
        rails = [device.get("rail", device.get("physical")) for device in (one, two)]
        if rails[0] is not None and rails[0] == rails[1]:
            return "PIX"
    return "NODE" if one.get("numa", 0) == two.get("numa", 0) else "SYS"
