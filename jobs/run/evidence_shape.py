"""Holds what a rank's probe prints against the types of its stages, once, where it comes in.

Anybody who can write to a pod's output can print a line that looks like evidence. A stage whose fields have other types
or bounds than the probe gives them is not taken at all, so that no rule meets it. A field may be null or missing:
unknown. Fields that are not listed are nobody's to read.
"""

from __future__ import annotations

from functools import cache

from ..cluster.json_types import Check, at, checker
from ..cluster.unstructured import as_map
from .stages import COLLECTIVE, NUMBERED, STAGES, SWEEP_STAGES

BY_PREFIX = (COLLECTIVE, *NUMBERED)


def misfit(stage: str, data: dict[str, object]) -> str:
    """Return where a stage's data is not as the probe gives it, and how; '' where it is, or nobody reads the stage."""
    check = _checks().get(next((name for name in BY_PREFIX if stage.startswith(name)), stage))
    if check and (problem := check(data)):
        return at(stage, problem)
    return _unread(data.get("nccl"), stage)


@cache
def _checks() -> dict[str, Check]:
    return {stage: checker(hint) for stage, hint in {**STAGES, **SWEEP_STAGES}.items()}


def _unread(part: object, stage: str) -> str:
    """Say why the log reader cannot read its own part back."""
    if part:
        from ..pod.nccl_reader.errors import NcclLogError  # noqa: PLC0415 -- who only collects checks reads no log
        from ..pod.nccl_reader.state.partial import Partial  # noqa: PLC0415

        try:
            Partial.from_dict(as_map(part))
        except NcclLogError as error:
            return f"{stage}.nccl: {error}"
    return ""
