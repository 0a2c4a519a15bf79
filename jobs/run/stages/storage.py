"""The stage of storage: paths, the burst, buckets, credentials."""

from __future__ import annotations

from typing import TypedDict

from .kinds import Count


class TriedPath(TypedDict, total=False):
    """What can be done at a path."""

    name: str
    path: str
    kind: str
    fs: str
    device: str
    error: str
    errno: str
    exists: bool
    writable: bool
    rename_ok: bool
    read_back_ok: bool
    shared: bool
    write: bool
    readonly: bool
    peer_file_ok: bool
    peer_rename_ok: bool
    entries: Count
    files_tried: Count
    files_bad: Count
    files_bad_named: list[str]
    files_empty: Count
    files_empty_named: list[str]
    write_bytes: Count
    free_bytes: Count
    total_bytes: Count
    write_mb_s: float
    fsync_s: float
    read_mb_s: float
    peer_seconds: float


class Burst(TypedDict, total=False):
    """All ranks writing at once."""

    path: str
    error: str
    errno: str
    bytes: Count
    writers: Count
    seconds: float
    mb_s: float
    slowest_rank_s: float


class Bucket(TypedDict, total=False):
    """Whether an S3 bucket can be reached."""

    uri: str
    endpoint: str
    region: str
    error: str
    reachable: bool
    can_sign: bool
    status: Count
    seconds: float
    missing: list[str]


class CredentialFacts(TypedDict, total=False):
    """Whether a variable that comes from a Secret's key is set; never its value."""

    env: str
    secret: str
    key: str
    present: bool


class StorageStage(TypedDict, total=False):
    """Paths, the burst, buckets, and credentials."""

    error: str
    paths: list[TriedPath]
    credentials: list[CredentialFacts]
    burst: Burst
    s3: list[Bucket]
