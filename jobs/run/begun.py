"""The run's state in its trial's ConfigMap, with which another process attaches to the trial and judges it.

A compressed JSON document, next to the program of the pods. The ConfigMap is immutable and deleted with the Job. It is
untrusted when read again: bounded here, and validated against its types by its user.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..cluster.client.errors import NotFound
from ..cluster.client.kube import Kube, path
from ..cluster.redact import safe
from ..cluster.unstructured import as_map, labels_of
from ..trial.manifests import BEGUN, trial_json
from ..trial.pod import LABEL_MANAGED, LABEL_RUN, MANAGED_BY
from ..trial.spec import TrialSpec
from .creation import JobError
from .job_lookup import JobLookup

MOST_BYTES = 300_000
"""Compressed; a ConfigMap holds 1 MiB, and a test keeps the program below 400 KB of it."""
_MOST_TEXT = 64 << 20  # a record over 5,000 nodes stays far below it


@dataclass(frozen=True, slots=True)
class Begun:
    """The state of a run: its id, the current attempt, its own document, and its pods' input (trial.json)."""

    run_id: str
    attempt: int
    document: Mapping[str, Any]
    trial: Mapping[str, Any]


def packed(document: Mapping[str, Any]) -> str:
    """Return the document in the form of a ConfigMap's binaryData; '' if it is too large."""
    data = zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 9)
    return base64.b64encode(data).decode() if len(data) <= MOST_BYTES else ""


def read(kube: Kube, name: str) -> Begun:
    """Read the state of the run of the job ``name`` in our namespace. Raises JobError (one line), ClusterError."""
    try:
        raw = kube.get(path("configmaps", name, namespace=kube.namespace))
    except NotFound:
        jobs = JobLookup(kube)
        if jobs.find(name)[1] is not None:
            raise JobError(
                f"job {safe(name, 100)} in namespace {kube.namespace} has no ConfigMap of that name, so it cannot be "
                "judged: only seatrial job status and logs can read it"
            ) from None
        raise JobError(jobs.absent(name)) from None
    labels = labels_of(raw)
    run_id = str(labels.get(LABEL_RUN) or "")
    attempt = re.fullmatch(rf"seatrial-{re.escape(run_id)}(?:-([2-9]))?", name)
    if labels.get(LABEL_MANAGED) != MANAGED_BY or not run_id or attempt is None:
        raise JobError(f"{safe(name, 100)} in {kube.namespace} is not a trial of seatrial: it is not changed")
    text = as_map(raw.get("binaryData")).get(BEGUN)
    if not isinstance(text, str):
        raise JobError(
            f"{name} has no record of the run that started it (a sweep, an applied manifest, or more than "
            f"{MOST_BYTES:,} bytes): only seatrial job status and logs can read it"
        )
    try:
        trial = json.loads(as_map(raw.get("data")).get("trial.json") or "")
        return Begun(run_id, int(attempt[1] or 1), _unpacked(text), as_map(trial))
    except (ValueError, TypeError, RecursionError):
        raise JobError(f"the state of the run of {name} in its ConfigMap is damaged") from None


def _unpacked(text: str) -> dict[str, Any]:
    """Decode the state. Raises ValueError for content that no run has written."""
    try:
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(base64.b64decode(text, validate=True), _MOST_TEXT)
    except (zlib.error, binascii.Error) as error:
        raise ValueError(str(error)) from error
    if not unpacking.eof:
        raise ValueError("cut off, or larger than any run")
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError("no object")  # noqa: TRY004  (about the input, not an argument)
    return content


def differences(begun: Begun, spec: TrialSpec) -> str:
    """Describe how the current trial differs from this one; '' if it does not."""
    asked = json.loads(json.dumps(trial_json(spec)))
    keys = [key for key in asked if asked[key] != begun.trial.get(key)]
    return ", ".join(f"{key}: {safe(begun.trial.get(key), 60)} there, {safe(asked[key], 60)} asked" for key in keys[:3])
