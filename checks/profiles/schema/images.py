"""Profile section `images`: where the images of a run may come from, and how they are named."""

from __future__ import annotations

from dataclasses import dataclass

from ..yaml_schema import require


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagesSection:
    """The images of the trial's pods, sidecars and whatever a webhook adds included."""

    digest: bool = False  # every image must be named by its digest: a tag can be moved
    registries: tuple[str, ...] = ()  # prefixes such as registry.example.com/mirror; none: any registry may serve
    models: tuple[str, ...] = ()  # images of models and services; on record with whether a digest pins them
    pull_max_s: float | None = None
    check_secrets: bool = False  # get the pull secrets by name, as --check-secrets does

    def __post_init__(self) -> None:
        require(self.pull_max_s is None or self.pull_max_s > 0, "pull_max_s", "must be above 0")
        require(all(self.registries), "registries", "must not hold an empty name")
