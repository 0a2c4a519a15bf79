"""What may a check ask for? The facts of a run, each read once, when the first check asks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from checks.profile import Profile
    from checks.session import Session
    from jobs.inventory import Inventory
    from jobs.kube import Kube
    from jobs.launcher import TrialResult
    from jobs.trial import TrialSpec


SIMULATED_DEADLINES = {"start_s": 20, "dns_s": 20, "port_s": 6, "collective_s": 15, "probe_s": 90}
"""Seconds. Simulated hardware answers at once, so a rehearsed fault need not be waited for as long as a real one."""


@pytest.fixture(scope="session")
def seatrial(request: pytest.FixtureRequest) -> Session:
    """The session of this run; what a check needs of it has a fixture of its own."""
    from checks.plugin import SESSION  # noqa: PLC0415 -- the plugin imports this module

    session: Session = request.config.stash[SESSION]
    return session


@pytest.fixture(scope="session")
def kube(seatrial: Session) -> Kube:
    """The connection to the cluster."""
    return seatrial.kube


@pytest.fixture(scope="session")
def profile(seatrial: Session) -> Profile:
    """What this cluster must offer."""
    return seatrial.profile


@pytest.fixture(scope="session")
def cluster(seatrial: Session) -> Inventory:
    """One snapshot of nodes and pods."""
    from jobs.inventory import Inventory  # noqa: PLC0415 -- collection stays light

    return Inventory.read(seatrial.kube, selector=seatrial.options.nodes)


@pytest.fixture(scope="session")
def spec(seatrial: Session, request: pytest.FixtureRequest) -> TrialSpec:
    """The trial that the acceptance runs; without a profile the nodes say how many GPUs a pod can ask for."""
    known = seatrial.profile.known
    return trial_spec(seatrial, None if known else request.getfixturevalue("cluster"))


@pytest.fixture(scope="session")
def trial(seatrial: Session, spec: TrialSpec) -> TrialResult:
    """The trial job, run on first use: its state, its pods, their evidence."""
    from jobs.launcher import Launcher  # noqa: PLC0415 -- collection stays light

    out = seatrial.options.out
    launcher = Launcher(seatrial.kube, progress=seatrial.progress, ledger=seatrial.ledger,
                        logs=out / "logs" if out else None)
    return launcher.run(spec)


@pytest.fixture(scope="session")
def nccl_jobs(seatrial: Session, trial: TrialResult, profile: Profile) -> dict[str, Any]:
    """The analyzer's job document of each collective; None where a rank sent no analysis."""
    from checks.collectives import conclude_collectives  # noqa: PLC0415 -- collection stays light

    found = conclude_collectives(trial, profile)
    seatrial.run.collectives = found
    return found


def trial_spec(session: Session, cluster: Inventory | None = None) -> TrialSpec:
    """Build the trial from the profile and the options.

    Raises SpecError for what the user typed wrong.
    """
    from checks.trial_spec import build_spec  # noqa: PLC0415 -- collection stays light
    from jobs.trial import Deadlines  # noqa: PLC0415

    spec = build_spec(
        session.profile, session.options, run_id=session.run.run_id, namespace=session.kube.namespace, cluster=cluster
    )
    return replace(spec, deadlines=Deadlines(**SIMULATED_DEADLINES)) if session.options.simulated else spec


def manifests(session: Session) -> str:
    """The objects that the trial would create, as YAML."""
    from jobs import manifests as build  # noqa: PLC0415
    from jobs.probes import files  # noqa: PLC0415

    return build.to_yaml(build.build(trial_spec(session), files()))


def explain_fault(fault: str, subject: str, namespace: str) -> dict[str, str]:
    """The catalogue entry of a fault, its command filled in for the first subject that has it."""
    from checks.faults import explain  # noqa: PLC0415 -- collection stays light

    return explain(fault, subject, namespace)
