"""What does one run hold open? The cluster (real or simulated), the ledger of what was created, the record."""

from __future__ import annotations

import contextlib
import datetime
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from checks import fixtures, selection
from checks.profile import Profile, ProfileError, load_profile
from jobs.cleanup import Ledger
from jobs.kube import ConfigError, Kube
from jobs.trial import SpecError, new_run_id
from reports.record import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from checks.options import Options
    from checks.simulation import Simulation

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Session:
    """Everything that outlives a single check; opened before the first one, closed after the last."""

    def __init__(self, options: Options, progress: Callable[[str], None]) -> None:
        self.options = options
        self.progress = progress
        self.ledger = Ledger()
        self.run = Run(
            run_id=new_run_id(),
            started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            simulated=options.simulated,
        )
        self.profile = Profile()
        self.simulation: Simulation | None = None
        self._kube: Kube | None = None
        self._began = time.monotonic()

    def open(self, cwd: Any) -> None:
        """Read the profile, start the simulated cluster if one is asked for, read the kubeconfig.

        No request is sent. Raises pytest.UsageError for what the user got wrong, before anything else happens.
        """
        profile = self.options.profile
        selection.known(self.options.cluster.partition(":")[0], ("kubeconfig", "sim"), "kind of cluster")
        try:
            if profile:
                self.profile = load_profile(profile)
            if self.options.scenario is not None:
                from checks.simulation import Simulation  # noqa: PLC0415 -- only a simulated run needs it

                self.simulation = Simulation(self.options.scenario, cwd)
                if not profile:
                    self.profile = load_profile(self.simulation.facts["platform"])
            self._kube = Kube.connect(
                kubeconfig=self.simulation.kubeconfig if self.simulation else self.options.kubeconfig,
                context=None if self.simulation else self.options.context,
                namespace=self.options.namespace,
            )
        except (ProfileError, ConfigError) as error:
            raise pytest.UsageError(str(error)) from error
        try:
            fixtures.trial_spec(self)
        except SpecError as error:
            raise pytest.UsageError(str(error)) from error
        self.run.profile = self.profile.name
        self.run.required = tuple(self.profile.required)
        self.run.cluster = {"server": self.kube.server, "namespace": self.kube.namespace}
        if self.simulation:
            facts = self.simulation.facts
            self.run.cluster |= {k: facts[k] for k in ("scenario", "platform", "network", "lost") if k in facts}

    @property
    def kube(self) -> Kube:
        """The connection to the cluster under test."""
        if self._kube is None:
            raise RuntimeError("the session was not opened")
        return self._kube

    def close(self) -> None:
        """Delete what was created, name what could not be deleted, end the simulated cluster."""
        with deaf():
            self.run.leftovers += self.ledger.unwind()
            if self.simulation is not None:
                self.simulation.close()
            self.run.seconds = time.monotonic() - self._began


def install_handlers(run: Run) -> None:
    """Turn every signal to end into the KeyboardInterrupt that pytest unwinds on, so that clean-up runs."""

    def stop(number: int, _: FrameType | None) -> None:
        run.interrupted = f"received {signal.Signals(number).name}"
        raise KeyboardInterrupt(run.interrupted)

    for number in ENDING:
        signal.signal(number, stop)


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """Ignore further signals to end: clean-up is bounded by its own deadlines and must not be cut short."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
