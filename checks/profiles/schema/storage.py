"""Profile section `storage`: where training reads its data and writes its results, and how fast that must be."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobs.trial.parts import S3, Credential, StorageSpec

from ..yaml_schema import Size, require

SIXTY_FOUR_MI = Size(2**26)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePath(StorageSpec):
    """A path of the trial, with what it must offer; ``bytes`` is at most a twentieth of the free space."""

    bytes: Size = SIXTY_FOUR_MI
    free_min: Size | None = None
    write_mb_s: float | None = None  # MB/s (1e6 bytes) that one node must reach, fsync included
    read_mb_s: float | None = None
    not_empty: bool = False  # a data set: there must be something in it

    def __post_init__(self) -> None:
        for key in ("write_mb_s", "read_mb_s", "free_min"):
            value = getattr(self, key)
            require(value is None or value > 0, key, "must be above 0")
        require(self.write or self.write_mb_s is None, "write_mb_s", "needs write: true")
        require(self.bytes >= 0, "bytes", "must not be negative")
        StorageSpec.__post_init__(self)  # super() does not know a class with slots, which dataclass makes anew


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSection:
    """Layer 15. Empty: the profile asks for nothing, and nothing is tried."""

    paths: tuple[StoragePath, ...] = ()
    s3: tuple[S3, ...] = ()
    classes: tuple[str, ...] = ()  # StorageClasses that must exist
    scratch: str = ""  # where node-local scratch (an emptyDir) is mounted
    burst: Size = Size(0)  # noqa: RUF009 -- a number; what every rank writes at once, as a checkpoint does
    burst_mb_s: float | None = None  # MB/s (1e6 bytes) of all ranks of a node together
    env_secrets: tuple[str, ...] = field(default=())  # Secrets whose keys become variables; never read
    credentials: tuple[Credential, ...] = ()  # keys of Secrets that training needs; their presence is judged
    source: str = ""  # whose numbers these are

    def __post_init__(self) -> None:
        require(self.burst >= 0, "burst", "must not be negative")
        require(self.burst_mb_s is None or self.burst_mb_s > 0, "burst_mb_s", "must be above 0")
        require(not self.burst or any(p.write for p in self.paths), "burst", "needs a path with write: true")
        rates = [self.burst_mb_s, *(rate for p in self.paths for rate in (p.write_mb_s, p.read_mb_s))]
        require(not any(rates) or bool(self.source.strip()), "source", "must say where the rates come from")

    @property
    def asked(self) -> bool:
        """Whether the trial's pods look at any storage."""
        return bool(self.paths or self.s3 or self.scratch or self.credentials)
