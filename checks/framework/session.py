"""The state of one run: its cluster (real or simulated), the ledger of created objects, the record."""

from __future__ import annotations

import contextlib
import datetime
import gc
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from checks.framework import selection
from checks.framework.named_nodes import refuse_unknown
from checks.framework.options import Options
from checks.framework.progress import Progress
from checks.framework.simulation import Simulation
from checks.framework.sweep_spec import sweep_spec
from checks.framework.trial_spec import build_spec
from checks.framework.version import version
from checks.profiles.cluster_defaults import Listed
from checks.profiles.loader import Profile, ProfileError, load_profile, profile_names
from checks.rules.swept import Earlier
from jobs.cluster.client.errors import ClusterError, ConfigError
from jobs.cluster.client.kube import Kube
from jobs.cluster.facts.inventory import Inventory
from jobs.cluster.redact import redact, safe
from jobs.run.begun import Begun
from jobs.run.cleanup import Ledger, sweep_dead
from jobs.run.recorder import Recorder
from jobs.trial.job_spec import new_run_id
from jobs.trial.names import SpecError
from jobs.trial.parts import Deadlines, NetworkSpec
from jobs.trial.spec import TrialSpec
from reports.record import Run, write_json
from reports.schema import Cluster
from seatrial.faults.catalogue import OwnFaultsError

RUN_ID = "SEATRIAL_RUN_ID"
"""The environment variable that sets the run's id, for a caller that must know it in advance; ids must be unique."""
SIMULATED_SERVER = "seatrial-sim"
"""The Server header by which the embedded cluster identifies itself, on any connection."""
GANG_S = 15.0
"""Seconds for which a job that cannot fit is left in its queue: enough for several scheduling rounds."""
SIMULATED_DEADLINES = {
    "start_s": 20,
    "queue_s": 20,
    "publish_s": 0.2,
    "dns_s": 20,
    "port_s": 6,
    "collective_s": 15,
    "probe_s": 90,
}
"""Deadlines in seconds. Simulated hardware responds at once, so they are shorter than those of a real cluster."""
SIMULATED_NETWORK_S = 0.05
"""Seconds of TCP between two pods, which share this machine's network. A seemingly slow pair is measured for longer."""


SWEEP_REQUIRED = ("rights.run", "sweep.ran", "sweep.nodes", "sweep.links")
"""The checks that a sweep requires, instead of those that a profile requires of a trial."""


SIMULATED_FACTS = ("scenario", "platform", "network", "lost", "api_faults")


class Session:
    """The state that outlives a single check; opened before the first check, closed after the last."""

    def __init__(self, options: Options, progress: Progress) -> None:
        self.options = options
        self.progress = progress
        self.ledger = Ledger()
        self.run = Run(
            run_id=os.environ.get(RUN_ID) or new_run_id(),
            started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            simulated=options.simulated,
        )
        self.profile = Profile()
        self.simulation: Simulation | None = None
        self.earlier: Earlier | None = None  # the sweep that this one continues with
        self.needs: frozenset[str] = frozenset()  # of the selected checks: the API resources that they read
        self.recorders: list[Recorder] = []
        self.nodes: set[str] = set()  # all nodes that a finding may name
        self.trial_nodes: set[str] = set()  # the nodes that the trial ran on
        self.unfit: Mapping[str, tuple[str, ...]] = {}  # node -> the checks that keep the trial off it
        self.creates = False  # whether a trial is among the selected checks
        self._cleared = False
        self.leases_watched = False  # the remaining trials in this namespace have a live runner
        self._kube: Kube | None = None
        self.selected: tuple[str, ...] = ()  # the ids of all checks of this run, in their order
        self.begun: Begun | None = None  # the state stored by the run that this one continues
        self.began = time.monotonic()

    def open(self, cwd: Any) -> None:
        """Read the profile, start the simulated cluster if one is requested, read the kubeconfig.

        Of the cluster only the nodes named by --on are read. Raises pytest.UsageError for wrong user input, before
        anything else happens.
        """
        profile = self.options.profile
        selection.one_of(self.options.cluster.partition(":")[0], ("kubeconfig", "sim"), "kind of cluster")
        try:
            if profile:
                self.profile = load_profile(profile)
            if self.profile.faults:
                from seatrial.faults.own import use  # noqa: PLC0415 -- few profiles have some

                use(Path(self.profile.faults))
            if self.options.resume:
                from checks.framework.sweep_run import resumed  # noqa: PLC0415 -- few runs go on with another

                self.earlier = resumed(self.options.resume, training=self.options.training)
            if self.options.scenario is not None:
                from checks.framework.simulation import Simulation  # noqa: PLC0415 -- only a simulated run needs it

                self.simulation = Simulation(self.options.scenario, cwd)
                platform = self.simulation.facts["platform"]
                if not profile and platform in profile_names():  # only --profile knows more about a user's own platform
                    self.profile = load_profile(platform)
            self._kube = Kube.connect(
                kubeconfig=self.simulation.kubeconfig if self.simulation else self.options.kubeconfig,
                context=None if self.simulation else self.options.context,
                namespace=self.options.namespace,
            )
        except (ProfileError, OwnFaultsError, ConfigError) as error:
            raise pytest.UsageError(str(error)) from error
        gc.freeze()  # imported modules stay: the two garbage collections at pytest's end can skip them
        if self.options.on and not self.options.attach:  # the attaching user named them before
            asked = not (self.options.print_manifests or self.tenant)
            refuse_unknown(self.options.on, self.kube if asked else None, cwd)
        try:
            self.trial_spec()
        except SpecError as error:
            raise pytest.UsageError(str(error)) from error
        self._describe()
        if self.earlier and self.options.resume:
            from checks.framework.sweep_run import fits  # noqa: PLC0415

            fits(self.earlier, self.run, self.options.resume)

    def _describe(self) -> None:
        """Record the target and the scope of the run."""
        self.run.tenant, self.run.cpu_only = self.tenant, self.profile.gpu.none
        # A sweep covers all nodes unless --on names some.
        named = self.options.on or self.options.trial_on
        self.run.asks_all = self.options.all_nodes or (self.options.sweep and not named)
        self.run.seatrial = version()
        self.run.profile, self.run.profile_digest = self.profile.name, self.profile.digest
        self.run.required = SWEEP_REQUIRED if self.options.sweep else tuple(self.profile.required)
        if self.options.command:  # for a program that does not choose an algorithm, NCCL does
            swapped = {"nccl.bandwidth-ring": "nccl.bandwidth-default"}
            self.run.required = tuple(dict.fromkeys(swapped.get(each, each) for each in self.run.required))
        self.run.cluster = {"server": self.kube.server, "ca": self.kube.authority, "namespace": self.kube.namespace}
        if self.kube.context and not self.simulation:
            self.run.cluster["context"] = self.kube.context
        if self.simulation:
            facts = {key: fact for key, fact in self.simulation.facts.items() if fact and key in SIMULATED_FACTS}
            self.run.cluster |= cast("Cluster", facts)

    def trial_spec(self, cluster: Inventory | None = None, listed: Listed | None = None) -> TrialSpec:
        """Build the trial from the profile and the options.

        ``cluster`` and ``listed`` provide values that no profile has. Raises SpecError for usage errors.
        """
        spec = build_spec(
            self.profile,
            self.options,
            run_id=self.run.run_id,
            namespace=self.kube.namespace,
            cluster=cluster,
            listed=listed,
        )
        of_gpus = {
            "a sweep measures GPUs": self.options.sweep,
            "--training trains on GPUs": self.options.training,
            "--command is judged by NCCL's log about GPUs": self.options.command,
        }
        for what in [what for what, asked in of_gpus.items() if asked and self.profile.gpu.none]:
            raise SpecError(f"{what}, and profile {self.profile.name} has none (gpu.per_node: 0)")
        if self.options.sweep and spec.launcher != "indexed":
            raise SpecError(
                f"a sweep is an Indexed Job of one pod for each node; the launcher {spec.launcher} cannot start it: "
                "--launcher indexed (docs/fleet.md)"
            )
        if self.options.detach and spec.launcher == "trainjob":
            raise SpecError("a TrainJob has no TTL, so it would never be deleted: use --launcher indexed")
        if self.begun:
            spec = replace(spec, attempt=self.begun.attempt)
        if not self.options.simulated:
            return spec
        network = replace(spec.network or NetworkSpec(), seconds=SIMULATED_NETWORK_S)
        return replace(spec, deadlines=Deadlines(**SIMULATED_DEADLINES), network=network)

    def gang_spec(self, spec: TrialSpec, nodes: int) -> TrialSpec:
        """Return the same trial with its own run id and more pods than can fit; it runs for seconds only."""
        waits = min(spec.deadlines.queue_s, GANG_S)
        short = Deadlines(queue_s=waits, start_s=waits, probe_s=spec.deadlines.probe_s)
        return replace(spec, nodes=nodes, run_id=new_run_id(), deadlines=short)

    @property
    def tenant(self) -> bool:
        """Whether to judge with the permissions of one namespace, as set by the user or the profile."""
        return self.options.tenant or self.profile.tenant

    def manifests(self) -> str:
        """Return the objects that the trial would create, as YAML."""
        from jobs.trial import manifests  # noqa: PLC0415 -- only --print-manifests needs them here
        from jobs.trial.launch_stack import as_served  # noqa: PLC0415
        from jobs.trial.payload import files  # noqa: PLC0415

        spec = self.trial_spec()
        if self.options.sweep:
            spec = sweep_spec(spec, self.options.on, {}, self.profile, self.options)
        made, note = manifests.build(spec, files()), ""
        if made.kind.operator:
            job, why = as_served(self.kube, made.kind, made.job)
            made = replace(made, job=job)
            about = f"The API server did not return its schema of {made.kind.kind} ({safe(why, 200)})"
            note = f"{about}: as the newest {made.kind.operator} takes it." if why else ""
        return manifests.to_yaml(made, with_files=self.options.with_files, note=note)

    @property
    def kube(self) -> Kube:
        """Return the connection to the cluster under test."""
        if self._kube is None:
            raise RuntimeError("the session was not opened")
        return self._kube

    def write_recordings(self) -> list[str]:
        """Write the recordings of --record, after all reports; return an error, which does not change the verdict."""
        problems: list[str] = []
        folder = (self.options.out or Path()) / "recordings"  # --record requests --out
        for recorder in self.recorders:
            try:
                recorder.write(folder, server=str(self.kube.version().get("gitVersion") or ""))
                if recorder.problem:
                    problems.append(f"The recording of {recorder.job} is not complete: {recorder.problem}")
            except Exception as error:  # noqa: BLE001  (a full disk, an odd object: the verdict is valid)
                problems.append(f"The recording of {recorder.job} could not be written: {redact(str(error))}")
        return problems

    def clear(self) -> None:
        """Delete leftovers of killed runs, once and before GPUs are counted; only in a run that creates objects.

        If leftovers cannot be listed, the checks report why.
        """
        if not self.creates or self._cleared or self.begun:
            return
        self._cleared = True
        with contextlib.suppress(ClusterError):
            swept = sweep_dead(self.kube, self.trial_spec().launcher, self.progress)
            self.run.cleaned += swept.deleted
            self.run.leftovers += swept.left
            self.leases_watched = True

    def keep(self) -> None:
        """Write the record before the clean-up, which takes minutes where a node is gone; `close` completes it."""
        if self._kube is not None and self._kube.software == SIMULATED_SERVER:
            self.run.simulated = True  # a lab that runs as a server, accessed through its kubeconfig
        self.run.seconds = time.monotonic() - self.began
        if self.options.out is None or not self.ledger.open:
            return
        left = [f"{what}: not deleted before the run ended" for what in self.ledger.open]
        with contextlib.suppress(OSError):  # a report that cannot be written is reported at the end
            write_json(replace(self.run, leftovers=self.run.leftovers + left), self.options.out / "report.json")

    def close(self) -> None:
        """Delete created objects, record failures, stop the simulated cluster; bounded by deadlines."""
        self.run.leftovers += self.ledger.unwind()
        if self.simulation is not None:
            self.simulation.close()
        self.run.seconds = time.monotonic() - self.began


SESSION = pytest.StashKey[Session]()
"""The key of a run's session in pytest's stash, set just before the first check."""
