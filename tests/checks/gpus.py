"""Shared parts of the GPU tests: all findings about single GPUs, and the GPU report of one pod."""

from checks.rules import gpu_health


def every_ailment(trial, spec):
    """Return all findings about single GPUs."""
    health = gpu_health
    for ailments in (health.memory_ailments, health.fabric_ailments, health.link_ailments(18), health.clock_ailments):
        findings = health.each_gpu(trial, spec, ailments, ("name", *health.MEMORY), "")
        yield from (f for f in findings if f.ok is not True)


def runtime(trial, **changes):
    trial.evidence[1].stages["runtime"].update(changes)
