"""Texts of NCCL warnings without their heads (host, process, "NCCL WARN"), which log shippers and copies remove.

Such a line is NCCL's, or a program's repetition of it. It proves no fault by itself, but no job with it is judged
healthy.
"""

from __future__ import annotations

from typing import Optional

from ..lines.patterns import needed
from .symptoms import CAUSE, SYMPTOMS, Symptom
from .trouble import reported_as_failure

# Texts without a symptom that begin with the part of NCCL that prints them: socket.cc, proxy.cc, init.cc,
# mem_manager.cc.
NAMES_ITSELF = (
    rb"^(?:WARN )?(?:Call to ibv_\w{4,30} failed|\[(?:Proxy )?[Ss]ervice(?: \w{3,6})?\] .{0,40}(?:fail|closed)"
    rb"|(?:ncclOs|socket(?=[A-Z])|commDestroy|commReclaim|ncclProxy|MemManager)\w{0,24}(?:: |\(| ).{0,80}"
    rb"(?:fail|(?<!no e)rror|nvalid|returned -?\d)"
    rb"|NET/(?:IB|MLX5|Socket) ?: .{0,60}(?:Invalid argument|rror|different number|not initialized|exceed))"
)
WORDS = (
    *(word for item in SYMPTOMS if item.role == CAUSE for word in item.words),
    *needed(NAMES_ITSELF),
)  # such a line holds one of them


def fault_of(raw: bytes, symptom: Optional[Symptom]) -> Optional[str]:
    """Return the fault that a line mentions by its symptom, "" if it only names itself (NAMES_ITSELF).

    None if it is reported at a lower level, as possible, or as retried.
    """
    if symptom is None:
        return "" if reported_as_failure(raw, NAMES_ITSELF) else None
    return symptom.fault if symptom.role == CAUSE and reported_as_failure(raw, symptom.pattern) else None
