"""The probe's main program: the order of the stages, each with a time limit.

Every stage runs in a thread and fills a record that starts with all its keys. Its results so far are printed even if it
never ends, when the pod is terminated, and at the probe's own deadline.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Set

# Modules that only some trials need are imported on use: loading them takes as long as all the others.
from seatrial.logs.reader import redact

from . import children, collective, dns, gpus, host, network, payload, rdma, spec, topology
from .barrier import Barrier
from .collective import BenchRun
from .deadline import Watch
from .lines import TERMINATION_LOG, Writer
from .rendezvous import Rendezvous

START_S, RUNTIME_S, RDMA_S, TOPOLOGY_S, NETWORK_S = 15.0, 100.0, 25.0, 35.0, 90.0
STORAGE_S = 240.0
ENDPOINTS_S = 40.0  # for all endpoints, which are tried in parallel
DCGM_END_S = 15.0  # to terminate its host engine and the engine's children
PERFTEST_END_S = 45.0  # for the last write, and for the other ranks
WAITING_SAY_S = 5.0
ANALYSIS_S = 60.0  # the analyzer reads about 100 MB/s; NCCL at INFO writes megabytes
# Time limits of a stage after SIGTERM, to terminate its children and to analyse, and of the clean-up. Together they are
# less than the pods' terminationGracePeriodSeconds (jobs/trial/pod.py), after which the evidence would be lost.
STOP_GRACE_S = 6.5
STOP_CLEANING_S = 1.0


class Probe:
    """One run of the stages."""

    def __init__(self, trial: spec.Trial, me: spec.Identity, archive: str) -> None:
        self.trial, self.me, self.archive = trial, me, archive
        self.watch = Watch(trial.deadline_s, spec.reserve(trial.deadline_s), trial.before_s)
        message = os.environ.get("SEATRIAL_TERMINATION_LOG") or TERMINATION_LOG
        self.writer = Writer(trial.run, me.rank, message_path=message)
        self.rendezvous = Rendezvous(trial, me, self.watch)
        self.barrier = Barrier(self.rendezvous)
        self.place = ""
        self.gpus: List[Dict[str, Any]] = []  # from the runtime stage
        self.paths: List[Dict[str, Any]] = []  # between GPUs and NICs, from the topology stage
        self.places: Set[str] = set()  # further folders to remove at the end
        self.shared: Set[str] = set()  # those also used by other ranks
        self.apart = ""  # why there is no collective

    def run(self) -> int:
        """Run all stages, always with the `end` stage and the termination message last; return the exit code.

        A probe that a signal ended early must fail. Otherwise its pod has Succeeded, and a Job that was drained,
        evicted or preempted is Complete. podFailurePolicy then never reads the condition DisruptionTarget: the Job
        controller examines only failed pods (kubernetes pkg/controller/job, getNewFinishedPods and
        matchPodFailurePolicy).
        """
        trial, me, writer, watch = self.trial, self.me, self.writer, self.watch
        self.stage("start", START_S, {}, self.start)
        self.rendezvous.open()
        self.stage("runtime", RUNTIME_S, {}, self.runtime)
        self.stage("rdma", RDMA_S, {}, rdma.read)
        self.stage("topology", TOPOLOGY_S, {}, self.topology)
        patience = max(trial.peer_wait_s, trial.dns_timeout_s) + trial.dns_timeout_s + 4
        self.stage("dns", patience, {"resolver": None, "peers": []}, self.dns)
        self.meet()
        if trial.endpoints:
            self.stage("endpoints", ENDPOINTS_S, {}, self.endpoints, binds=False)
        if trial.storage:
            from . import storage  # noqa: PLC0415

            work = storage.Storage(trial, me, watch, self.barrier, self.places).run
            limit = min(STORAGE_S, 2 * trial.collective_timeout_s)
            self.stage("storage", limit, {}, work, binds=False)
        if trial.dcgm:
            self.diagnostics(trial.dcgm)
        watch.all_met()
        self.programs()
        seconds = watch.elapsed()
        writer.stage("end", seconds, {"seconds": round(seconds, 3), "stopped": watch.reason or None}, "ok")
        writer.message()
        if self.shared and self.barrier.through("end", 0):
            self.places |= self.shared
        self.rendezvous.leave()
        return 128 + getattr(signal, watch.reason) if watch.interrupted() else 0

    def meet(self) -> None:
        """Connect to the other ranks on MASTER_PORT and test the network; with a single node, free the port."""
        trial = self.trial
        if trial.nodes == 1:
            self.rendezvous.close_port()
            return
        limit = trial.peer_wait_s + 2 * trial.dns_timeout_s + 4 * trial.port_timeout_s + 60
        self.stage("port", limit, {"peers": []}, self.port)
        self.watch.all_met()
        if not self.apart:
            self.stage("network", NETWORK_S, {}, self.network)
            if trial.perftest:
                self.writes(trial.perftest)
            self.rendezvous.keep_only_control()

    def programs(self) -> None:
        """Run the collectives, the training steps and the checkpoint of the trial."""
        trial = self.trial
        bench = BenchRun(trial, self.me, self.watch, self.barrier, self.place, self.archive)
        bench.say, bench.analyze, bench.places = self.writer.say, analyze, self.places
        for chosen in trial.collectives:
            self.collective(bench, chosen, trial.collective_timeout_s * 2 + collective.READY_S + ANALYSIS_S)
        if trial.training:
            self.training(bench.ahead)
        if trial.checkpoint:
            self.checkpoint(trial.checkpoint["limit_s"])

    def stage(
        self, name: str, limit_s: float, data: Dict[str, Any], work: Callable[..., Optional[str]], *, binds: bool = True
    ) -> None:
        """Run one stage in its own thread and print its results, complete or not.

        `binds`: later stages are useless if this one does not end.
        """
        if self.watch.stopped():
            return
        self.writer.say("%s starts" % name)
        began = time.monotonic()
        outcome: List[str] = []

        def guarded() -> None:
            try:
                outcome.append(work(data) or "ok")
            except Exception as problem:  # noqa: BLE001  (one stage's bug must not cost the others' evidence)
                data["error"] = redact.redact("%s: %s" % (type(problem).__name__, problem))[:500]
                outcome.append("error")

        worker = threading.Thread(target=guarded, daemon=True)
        worker.start()
        self._wait(worker, began + limit_s)
        seconds = time.monotonic() - began
        if worker.is_alive():
            data["error"] = "%s after %.0f s" % (self.watch.reason or "not finished", seconds)
            outcome.append("timeout")
        self._print(name, seconds, data, outcome[0])
        if worker.is_alive() and binds and not self.apart:
            self.apart = "the stage %s did not end" % name

    def _wait(self, worker: threading.Thread, limit: float) -> None:
        """Wait for a stage; at most STOP_GRACE_S once the probe is terminating."""
        while worker.is_alive() and time.monotonic() < limit:
            if self.watch.stopped():
                limit = min(limit, time.monotonic() + STOP_GRACE_S, self.watch.ends - 1)
                worker.join(timeout=max(0.0, limit - time.monotonic()))
                return
            worker.join(timeout=0.25)

    def _print(self, name: str, seconds: float, data: Dict[str, Any], status: str) -> None:
        for _ in range(5):
            try:
                self.writer.stage(name, seconds, data, status)
            except RuntimeError:  # an abandoned stage is still adding to it
                time.sleep(0.02)
            else:
                return
        self.writer.stage(name, seconds, {"error": "the stage's record kept changing"}, "error")

    # -- the stages ------------------------------------------------------------------------------------------------

    def start(self, data: Dict[str, Any]) -> None:
        """Describe the pod."""
        host.read(data, env=os.environ, node=self.me.node, pod_ip=self.me.pod_ip)
        data["probe"] = payload.of_archive(self.archive)

    def runtime(self, data: Dict[str, Any]) -> str:
        """Query the GPU runtime."""
        trial = self.trial
        gpus.read(data, requested=trial.gpus_per_node, kind=trial.gpu_kind, env=os.environ, watch=self.watch)
        self.gpus = list(data["gpus"])
        count = len(data["gpus"])
        self.writer.say("runtime: %d of %d GPUs, driver %s" % (count, trial.gpus_per_node, data["driver"]))
        return "ok" if count == trial.gpus_per_node or trial.gpu_kind not in ("nvidia", "amd") else "failed"

    def dns(self, data: Dict[str, Any]) -> str:
        """Resolve every peer, connect to each at once, and compare its addresses with those that it reports."""
        trial, rendezvous = self.trial, self.rendezvous
        while self.watch.elapsed() < trial.publish_s and not self.watch.stopped():
            time.sleep(0.05)
        until = self.patience(data, time.monotonic())
        dns.resolve_all(data, trial.peers, until=until, watch=self.watch, on_resolved=rendezvous.dial, own=self.me.rank)
        resolved = [record for record in data["peers"] if record["addresses"]]
        self.writer.say("dns: %d of %d names resolve" % (len(resolved), trial.nodes))
        limit = time.monotonic() + 1  # a running peer answers at once; the port stage reports the others
        with rendezvous.changed:
            while time.monotonic() < limit and any(
                not r["pod_ip"] and r["address"] for r in rendezvous.records.values()
            ):
                rendezvous.changed.wait(0.05)
        for record in resolved:
            index = record["index"]
            known = self.me.pod_ip if index == self.me.rank else rendezvous.records[index]["pod_ip"]
            record["pod_ip_matches"] = known in record["addresses"] if known else None
        wrong = any(record["pod_ip_matches"] is False for record in resolved)
        if len(resolved) < trial.nodes:
            self.apart = "names that do not resolve: %s" % ", ".join(
                "%s (%s)" % (r["name"], r["error"]) for r in data["peers"][:8] if not r["addresses"]
            )
        return "ok" if len(resolved) == trial.nodes and not wrong else "failed"

    def patience(self, data: Dict[str, Any], began: float) -> Callable[[Dict[str, Any]], float]:
        """Return the function with which `resolve_all` limits the queries for a peer's name (monotonic).

        A kubelet reports a pod's address only after its image is there (kubernetes pkg/kubelet/kubelet.go: SyncPod sets
        the status before it pulls and starts), and until then the name does not exist. So a missing name shows nothing
        about DNS while this rank's own name, published by the same Service, resolves.
        """
        trial, rendezvous = self.trial, self.rendezvous
        spoke = [began]

        def until(record: Dict[str, Any]) -> float:
            base = began + trial.dns_timeout_s
            now = time.monotonic()
            if record["error"] in dns.NOT_THERE and now - spoke[0] > WAITING_SAY_S:
                spoke[0] = now
                why = "its pod has not started, or a cache still denies it (CoreDNS: 30 s)"
                parts = (record["name"], record["error"], now - began, why)
                self.writer.say("dns: waits for %s, %s for %.0f s: %s" % parts)
            if record["index"] == self.me.rank or not data["peers"][self.me.rank]["addresses"]:
                return base
            if record["error"] not in dns.NOT_THERE or self.barrier.decided("port"):
                return base
            met = rendezvous.met(record["index"])
            if met is not None:  # it has connected to us: its pod runs, so its name must exist soon
                return max(base, met + trial.dns_timeout_s)
            return began + max(trial.peer_wait_s, trial.dns_timeout_s)

        return until

    def port(self, data: Dict[str, Any]) -> str:
        """Connect every pair of ranks on MASTER_PORT, free the port, and agree to continue."""
        trial, rendezvous = self.trial, self.rendezvous
        data.update(port=trial.master_port, listening=rendezvous.listening, error=rendezvous.listen_error)
        data["peers"] = list(rendezvous.records.values())
        rendezvous.wait(lambda: self.barrier.decided("port"))
        rendezvous.close_port()
        complaint = self.apart or rendezvous.complaint()
        met = sum(1 for record in rendezvous.records.values() if record["outbound"] and record["inbound"])
        self.writer.say("port: met %d of %d peers on %d %s" % (met, trial.nodes - 1, trial.master_port, complaint))
        patience = trial.dns_timeout_s + 2 * trial.port_timeout_s + 15  # for the other ranks
        go, why = self.barrier.agree("port", complaint, min(patience, self.watch.left()))
        data["peers"] = [dict(record) for record in rendezvous.records.values()]
        self.apart = "" if go else (complaint or why)
        return "failed" if rendezvous.complaint() else "ok"

    def topology(self, data: Dict[str, Any]) -> str:
        """Read the distances between GPUs and NICs."""
        topology.read(data, runtime_gpus=self.gpus, env=os.environ, watch=self.watch)
        self.paths = list(data["paths"])
        return "failed" if data.get("error") else "ok"

    def network(self, data: Dict[str, Any]) -> str:
        """Test packet sizes, ports and a short TCP transfer with the peers."""
        outcome = network.run(data, self.rendezvous, self.barrier, self.trial.network)
        shown = ["rank %d: MTU %s, %s Gb/s" % (r["index"], r["path_mtu"], r["peak_gbit_s"]) for r in data["peers"][:4]]
        self.writer.say("network: %s" % "; ".join(shown))
        return outcome

    def writes(self, asked: Dict[str, Any]) -> None:
        """Write from each NIC to those of the neighbouring ranks, while all of them are still connected."""
        from . import perftest, rdmaprogram  # noqa: PLC0415

        program = rdmaprogram.Program(asked, os.environ, self.watch)
        work = perftest.Perftest(self.rendezvous, self.barrier, asked, program, self.paths).run
        self.stage("perftest", asked["limit_s"] + PERFTEST_END_S, perftest.blank(), work, binds=False)

    def endpoints(self, data: Dict[str, Any]) -> str:
        """Try the hosts that must, or must not, be reachable from this pod."""
        from . import endpoints  # noqa: PLC0415

        return endpoints.run(data, self.trial.endpoints, self.watch)

    def diagnostics(self, asked: Dict[str, Any]) -> None:
        """Run DCGM's diagnostics on idle GPUs.

        A rank that has finished waits for the others, so that its collectives do not disturb them.
        """
        from . import dcgm  # noqa: PLC0415

        def work(data: Dict[str, Any]) -> str:
            return dcgm.run(data, asked["limit_s"], self.place, os.environ, self.watch)

        limit = asked["limit_s"] + DCGM_END_S
        began = time.monotonic()
        self.stage("dcgm", limit, dcgm.blank(asked["level"]), work, binds=False)
        if not self.watch.stopped():
            self.barrier.through("dcgm", limit - (time.monotonic() - began))

    def collective(self, bench: BenchRun, chosen: Dict[str, Any], limit_s: float) -> None:
        """Run one collective, or report why not."""
        name = "collective.%s" % chosen["name"]
        why = self.watch.reason and "stopped: %s" % self.watch.reason
        why = why or self.apart
        if why:
            self.writer.stage(name, 0, {"skipped": why}, "skipped")
            return
        data = collective.blank(chosen)

        def work(record: Dict[str, Any]) -> str:
            skipped = bench.run(record, chosen)
            if skipped:
                record.clear()
                record["skipped"] = skipped
                return "skipped"
            if record["timed_out"]:
                return "timeout"
            return "ok" if record["exit"] == 0 else "failed"

        self.stage(name, limit_s, data, work)

    def training(self, ahead: str) -> None:
        """Run the training steps, or report why not; `ahead`: why the network cannot be used."""
        from . import training  # noqa: PLC0415

        assert self.trial.training is not None
        steps = training.Training(self.trial, self.me, self.watch, self.barrier, self.place, self.archive)
        steps.say, steps.places = self.writer.say, self.places
        why = (self.watch.reason and "stopped: %s" % self.watch.reason) or self.apart or ahead
        limit = self.trial.training["limit_s"] + collective.READY_S + ANALYSIS_S
        self.stage("training", limit, training.blank(), lambda data: steps.train(data, why))

    def checkpoint(self, limit_s: float) -> None:
        """Save a checkpoint of all ranks, read it back on another node, and resume from it."""
        from . import checkpoint  # noqa: PLC0415

        work = checkpoint.Checkpoint(self.trial, self.me, self.watch, self.barrier, self.place, self.archive)
        work.say, work.places = self.writer.say, self.shared
        why = (self.watch.reason and "stopped: %s" % self.watch.reason) or self.apart
        self.stage("checkpoint", limit_s, checkpoint.blank(), lambda data: work.work(data, why), binds=False)


class SweepPod(Probe):
    """A pod of a sweep over a fleet: an agent that runs tests, and in rank 0's pod also the coordinator."""

    def run(self) -> int:
        """Take part until the sweep ends; return the exit code as for a trial."""
        from . import agent, coordinator  # noqa: PLC0415

        self.stage("start", START_S, {}, self.start)
        own = agent.Agent(self.trial, self.me, self.watch, self.place, self.archive, self.unmet)
        if self.me.rank == 0:
            lead = coordinator.Coordinator(self.trial, self.me, self.watch, self.writer)
            helper = threading.Thread(target=own.run, daemon=True)
            lead.run(helper.start)
            own.stop()
        else:
            own.run()
        seconds = self.watch.elapsed()
        self.writer.stage("end", seconds, {"seconds": round(seconds, 3), "stopped": self.watch.reason or None}, "ok")
        self.writer.message()
        return 128 + getattr(signal, self.watch.reason) if self.watch.interrupted() else 0

    def unmet(self, number: int, address: str, error: str) -> None:
        """Print why the agent has not reached the coordinator."""
        data = {"address": address, "error": redact.redact(error)[:200]}
        self.writer.stage("sweep.agent.%d" % number, self.watch.elapsed(), data, "failed")
        self.writer.say("agent: waits for rank 0 at %s: %s" % (address, data["error"]))


def analyze(paths: List[str]) -> Dict[str, Any]:
    """Return the shipped analyzer's partial verdict on these files, small enough for the evidence."""
    from seatrial.logs.reader.scan import read  # noqa: PLC0415
    from seatrial.logs.reader.state.partial import POD_BUDGET  # noqa: PLC0415

    streams = [open(path, "rb") for path in paths]
    try:
        partial = read([(os.path.basename(path), stream) for path, stream in zip(paths, streams)])
        state: Dict[str, Any] = partial.to_dict(POD_BUDGET)
        return state
    finally:
        for stream in streams:
            stream.close()


def workplace() -> str:
    """Create a writable folder: many images run as user nobody, or with a read-only root."""
    for parent in (os.environ.get("TMPDIR"), "/tmp", "/dev/shm", "/var/tmp", os.getcwd()):  # noqa: S108
        if parent:
            try:
                return tempfile.mkdtemp(prefix="seatrial-", dir=parent)
            except OSError:
                continue
    raise spec.SpecError("no folder to write in: neither TMPDIR, /tmp, /dev/shm nor /var/tmp can be written")


def remove(places: List[str], limit_s: float) -> None:
    """Remove the probe's folders; give up after a moment on a file system that does not answer."""
    removers = [threading.Thread(target=shutil.rmtree, args=(place, True), daemon=True) for place in places]
    for remover in removers:
        remover.start()
    limit = time.monotonic() + limit_s
    for remover in removers:
        remover.join(timeout=max(0.0, limit - time.monotonic()))


def main(archive: str) -> int:
    """Run the trial of `trial.json` next to the archive; exit with its exit code."""
    try:
        trial = spec.read(os.environ.get("SEATRIAL_TRIAL") or os.path.join(os.path.dirname(archive), "trial.json"))
        made = SweepPod if trial.sweep else Probe
        probe = made(trial, spec.identify(os.environ, trial), archive)
        probe.place = workplace()
    except spec.SpecError as error:
        sys.stdout.write("seatrial probe: %s\n" % error)
        sys.stdout.flush()
        return 66
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: setattr(probe.watch, "asked", signal.Signals(got).name))
    children.adopt_orphans()
    try:
        code = probe.run()
    finally:
        hurry = probe.watch.interrupted()
        children.kill_all(STOP_CLEANING_S if hurry else 2.0)
        remove([probe.place, *probe.places], STOP_CLEANING_S if hurry else 3.0)
    sys.stdout.flush()
    os._exit(code)  # threads in a hung kernel call would block a normal exit
