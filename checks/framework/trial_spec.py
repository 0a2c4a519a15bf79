"""The trial that the acceptance runs: the profile's, with additions from the command line and the cluster."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.trial.job_spec import queue_of
from jobs.trial.names import SpecError
from jobs.trial.parts import Collective, TrainingSpec

from ..profiles.cluster_defaults import pod_defaults
from ..profiles.trial import COMMAND, checkpoint_of, spec_of

if TYPE_CHECKING:
    from jobs.cluster.facts.inventory import Inventory
    from jobs.trial.spec import TrialSpec

    from ..profiles.cluster_defaults import Listed
    from ..profiles.profile import Profile
    from .options import Options


PAIR = 2


def build_spec(
    profile: Profile,
    options: Options,
    *,
    run_id: str,
    namespace: str,
    cluster: Inventory | None = None,
    listed: Listed | None = None,
) -> TrialSpec:
    """Return the trial that the acceptance runs.

    Pod settings that the profile does not define are read from ``cluster`` and ``listed`` (lists DeviceClasses, ...) by
    pod_defaults. Raises SpecError (a ValueError, one line) for invalid user input.
    """
    defaults, named = pod_defaults(profile, cluster, listed), options.on or options.trial_on
    if options.sweep and named:
        count = len(set(named))
        if count < PAIR:
            raise SpecError(f"--on {named[0]}: a sweep tests nodes in pairs, name two or more; one alone is never a go")
        profile = replace(profile, nodes=min(profile.nodes, count))  # the size of a trial does not apply to a sweep
    if options.dcgm is not None:
        profile = replace(profile, runtime=replace(profile.runtime, dcgm=options.dcgm))
    made = spec_of(
        profile,
        run_id=run_id,
        namespace=namespace,
        gpus_per_node=defaults.pop("gpus_per_node"),
        node_names=named,
        image=mirrored(options.image or profile.pod.image, options.registry),
        # Named nodes need no additional selector: --nodes selects them, in any form that the API accepts.
        node_selector={**profile.pool, **profile.pod.node_selector, **equalities("" if named else options.nodes)},
        launcher=options.launcher or profile.launch.launcher,
        queue=queue_of(options.queue) if options.queue else profile.launch.queue,
    )
    if options.dcgm and made.dcgm is None:
        raise SpecError("--dcgm: DCGM diagnoses NVIDIA GPUs only, and the profile has none")
    made = replace(made, **defaults)
    if options.command:
        own = Collective(name=COMMAND, command=("/bin/bash", "-c", options.command))
        made = replace(made, collectives=(own,))
    made = trained(made, options.soak_s) if options.training else made
    return checkpointed(made, profile) if options.checkpoint else made


def trained(spec: TrialSpec, soak_s: int) -> TrialSpec:
    """Return the trial with training steps after its collectives, and a longer time limit."""
    steps = TrainingSpec(soak_s=soak_s, limit_s=TrainingSpec().limit_s + soak_s)
    return replace(spec, training=steps, deadlines=spec.deadlines.longer(steps.extra_s))


def checkpointed(spec: TrialSpec, profile: Profile) -> TrialSpec:
    """Return the trial with a checkpoint after its collectives, and a longer time limit. Raises SpecError."""
    asked = checkpoint_of(profile)
    if asked is None:
        raise SpecError(
            f"--checkpoint: profile {profile.name or '(none)'} names no path that training writes (storage.paths with "
            "write: true)"
        )
    return replace(spec, checkpoint=asked, deadlines=spec.deadlines.longer(asked.limit_s))


def mirrored(image: str, registry: str) -> str:
    """Prefix an image with a registry: 'nvcr.io/nvidia/pytorch:1' keeps its path behind 'mirror:5000/x'."""
    if not registry:
        return image
    first, _, rest = image.partition("/")
    named = rest and ("." in first or ":" in first or first == "localhost")
    return f"{registry.rstrip('/')}/{rest if named else image}"


def equalities(selector: str) -> dict[str, str]:
    """Convert a label selector to a pod's nodeSelector. Raises SpecError for operators that it lacks (in, !, !=)."""
    labels: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in selector.split(","))):
        match = re.fullmatch(r"([\w./-]+)\s*==?\s*([\w.-]*)", part)
        if match is None:
            raise SpecError(f"--nodes {selector!r}: {part!r} is not key=value; a pod can select by nothing else")
        labels[match[1]] = match[2]
    return labels
