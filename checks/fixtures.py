"""What may a check ask for? The facts of a run, each read once, when the first check asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from checks.session import SESSION, Session

if TYPE_CHECKING:
    from checks.profile import Profile
    from jobs.inventory import Inventory
    from jobs.kube import Kube
    from jobs.launcher import TrialResult
    from jobs.trial import TrialSpec


@pytest.fixture(scope="session")
def seatrial(request: pytest.FixtureRequest) -> Session:
    """The session of this run; what a check needs of it has a fixture of its own."""
    return request.config.stash[SESSION]


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
    return seatrial.trial_spec(None if seatrial.profile.known else request.getfixturevalue("cluster"))


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
    from checks.judgement.collectives import conclude_collectives  # noqa: PLC0415 -- collection stays light

    found = conclude_collectives(trial, profile)
    seatrial.run.collectives = found
    return found
