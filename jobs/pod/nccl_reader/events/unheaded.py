"""Texts of NCCL's warnings whose heads (host, process, "NCCL WARN") a log shipper or a copy has cut off.

Such a line is what NCCL would have said, or a program that repeats it. It condemns nobody by itself, and nothing beside
it is called healthy.
"""

from __future__ import annotations

from typing import Optional

from ..lines.patterns import needed
from .symptoms import CAUSE, SYMPTOMS, Symptom
from .trouble import told_as_failure

# What no symptom knows, and begins with the part of NCCL that says it: socket.cc, proxy.cc, init.cc, mem_manager.cc.
NAMES_ITSELF = (
    rb"^(?:WARN )?(?:Call to ibv_\w{4,30} failed|\[(?:Proxy )?[Ss]ervice(?: \w{3,6})?\] .{0,40}(?:fail|closed)"
    rb"|(?:ncclOs|socket(?=[A-Z])|commDestroy|commReclaim|ncclProxy|MemManager)\w{0,24}(?:: |\(| ).{0,80}"
    rb"(?:fail|(?<!no e)rror|nvalid|returned -?\d)"
    rb"|NET/(?:IB|MLX5|Socket) ?: .{0,60}(?:Invalid argument|rror|different number|not initialized|exceed))"
)
WORDS = (
    *(word for item in SYMPTOMS if item.role == CAUSE for word in item.words),
    *needed(NAMES_ITSELF),
)  # of which such a line holds one


def fault_of(raw: bytes, symptom: Optional[Symptom]) -> Optional[str]:
    """Return the fault that a line mentions by its symptom, "" where it only names itself (NAMES_ITSELF).

    None where it is told at a lower level, as what may come, or as what was tried again.
    """
    if symptom is None:
        return "" if told_as_failure(raw, NAMES_ITSELF) else None
    return symptom.fault if symptom.role == CAUSE and told_as_failure(raw, symptom.pattern) else None
