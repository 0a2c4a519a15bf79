"""Training steps over all ranks of the trial, and the state of the GPUs during them.

Clocks, power, throttle reasons and errors of the GPUs are sampled. The program is the bench's (bench/training.py),
started like a collective. It is terminated with all its children at its time limit, when a peer fails and when the pod
is terminated; the measurements until then are kept.
"""

from __future__ import annotations

import copy
import os
import statistics
import threading
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import collective, command, gpus, programs, rdma, smi
from .barrier import Barrier
from .deadline import Watch
from .spec import Identity, Trial

NAME = "training"
SAMPLE_S = 2.0  # between two samples of the clocks; one sample of eight GPUs takes about a second
WHOLE_S = 20.0  # between two full samples: errors, throttle reasons
SAMPLE_LIMIT_S = 30.0
HURRY_S = 1.0  # the pod is being terminated: send the results first
SAMPLE_BYTES = 1 << 16
MOST_SAMPLES = 5000
QUESTION = [
    "--query-gpu=index,uuid,clocks.sm,power.draw,temperature.gpu,utilization.gpu",
    "--format=csv,noheader,nounits",
]
HEALTHY: Tuple[Any, ...] = (0, False, [], "None", "N/A")  # values that mean nothing once the GPU no longer answers
FIELDS = ("sm_mhz", "power_w", "temperature_c", "utilisation")


def blank() -> Dict[str, Any]:
    """Return the stage's keys, all unknown."""
    unknown = dict.fromkeys("skipped command exit stopped seconds error xid".split())
    lists: Dict[str, Any] = {"ranks": [], "gpus": [], "samples": []}
    return dict(unknown, name=NAME, timed_out=False, output_tail="", output_bytes=0, rdma_counters={}, **lists)


class Training(collective.BenchRun):
    """The training steps of this pod's ranks."""

    def __init__(self, trial: Trial, me: Identity, watch: Watch, barrier: Barrier, place: str, archive: str) -> None:
        own = copy.copy(trial)
        assert trial.training is not None
        own.collective_timeout_s = trial.training["limit_s"]
        super().__init__(own, me, watch, barrier, place, archive)

    def train(self, data: Dict[str, Any], why: str) -> str:
        """Run the steps, or agree with all ranks not to; return the stage's status."""
        argv, problem = programs.training(self.trial, self.me, self.env, self.archive)
        go, why = self._agree(NAME, why or problem, alone=False)
        if not go or argv is None:
            data["skipped"] = why
            return "skipped"
        env = self.child_env(NAME, {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_SUBSYS": ""})
        data["command"] = argv
        before = rdma.counters()
        reports = gpus.xids(os.path.join("/", "dev/kmsg"))
        meanwhile = Meanwhile(self.trial.gpu_kind, self.env)
        meanwhile.start()
        try:
            self._start(data, NAME, argv, env, alone=False)
        finally:
            meanwhile.stop(HURRY_S if self.watch.stopped() else SAMPLE_LIMIT_S)
            data["rdma_counters"] = rdma.difference(before, rdma.counters())
            data["ranks"] = self.rank_facts(env)
            data["xid"] = grown(reports, gpus.xids(os.path.join("/", "dev/kmsg")))
            data["samples"], data["gpus"] = meanwhile.medians(_window(data["ranks"])), meanwhile.last
            self.barrier.announce_end("collective." + NAME, collective.failure(data))
        if data["timed_out"]:
            return "timeout"
        return "ok" if data["exit"] == 0 else "failed"


class Meanwhile(threading.Thread):
    """A thread that samples this pod's GPUs during training; it has no samples without nvidia-smi."""

    def __init__(self, kind: str, env: Mapping[str, str]) -> None:
        super().__init__(daemon=True)
        self.tool = gpus.find(env, "nvidia-smi") if kind == "nvidia" else None
        self.last: List[Dict[str, Any]] = []  # the GPUs at the end, with all throttle reasons since the beginning
        self._samples: List[Tuple[float, Dict[str, List[Optional[float]]]]] = []
        self._slowed: Dict[str, List[str]] = {}
        self._enough = threading.Event()
        self._looked_after = False  # the last sample, after the steps, succeeded

    def run(self) -> None:
        """Sample until `stop`."""
        if self.tool is None:
            return
        looked = 0.0
        while not self._enough.wait(SAMPLE_S):
            self._look()
            if time.monotonic() - looked >= WHOLE_S:
                self._whole()
                looked = time.monotonic()
        self._looked_after = self._whole()

    def stop(self, limit_s: float) -> None:
        """Take a last sample and end; abandon one that takes longer.

        If the last sample fails, earlier findings remain, and no value counts as healthy.
        """
        self._enough.set()
        if self.is_alive():
            self.join(timeout=limit_s)
        if not self._looked_after:
            self.last = [
                {key: value if key == "index" or value not in HEALTHY else None for key, value in gpu.items()}
                for gpu in self.last
            ]

    def medians(self, window: Optional[Tuple[float, float]]) -> List[Dict[str, Any]]:
        """Return by GPU the medians, the lowest clock and the highest temperature in `window` (epoch seconds)."""
        if window and window[0] > window[1]:  # a clock was set back
            window = None
        samples = [each for at, each in self._samples if not window or window[0] <= at <= window[1]]
        by_gpu = []
        for key in sorted({key for each in samples for key in each}):
            index, _, uuid = key.partition(" ")
            columns = list(zip(*(each[key] for each in samples if key in each)))
            known = [[value for value in column if value is not None] for column in columns]
            medians: Dict[str, Any] = {"index": int(index), "uuid": uuid, "samples": len(columns[0]) if columns else 0}
            for name, values in zip(FIELDS, known):
                medians[name] = round(statistics.median(values), 1) if values else None
            medians["sm_mhz_least"] = min(known[0]) if known[0] else None
            medians["temperature_c"] = max(known[2]) if known[2] else None
            medians["utilisation_least"] = min(known[3]) if known[3] else None
            by_gpu.append(medians)
        return by_gpu

    def _look(self) -> None:
        assert self.tool is not None
        answer = command.run([self.tool, *QUESTION], SAMPLE_LIMIT_S, SAMPLE_BYTES)
        by_gpu = {}
        for line in answer.out.decode("utf-8", "replace").splitlines():
            cells = [cell.strip() for cell in line.split(",")]
            if len(cells) == 2 + len(FIELDS) and cells[0].isdigit():
                by_gpu["%d %s" % (int(cells[0]), cells[1][:60])] = [_figure(cell) for cell in cells[2:]]
        if len(self._samples) >= MOST_SAMPLES:  # drop every second one, so that a long soak's end fits
            del self._samples[::2]
        if by_gpu:
            self._samples.append((time.time(), by_gpu))

    def _whole(self) -> bool:
        assert self.tool is not None
        answer = command.run([self.tool, "-q", "-x"], SAMPLE_LIMIT_S, smi.MAX_BYTES)
        answered, _ = smi.read(answer.out)
        for gpu in answered["gpus"]:
            reasons = self._slowed.setdefault(str(gpu["uuid"]), [])
            reasons += [reason for reason in gpu["throttle"] or [] if reason not in reasons]
            gpu["throttle"] = list(reasons) if gpu["throttle"] is not None or reasons else None
        self.last = answered["gpus"] or self.last
        return bool(answered["gpus"])


def grown(
    before: Optional[List[Dict[str, Any]]], after: Optional[List[Dict[str, Any]]]
) -> Optional[List[Dict[str, Any]]]:
    """Return the driver's reports since `before`; None if a pod may not read them."""
    if before is None or after is None:
        return None
    old = {(each["bus_id"], each["xid"]): each["count"] for each in before}
    more = [dict(each, count=each["count"] - old.get((each["bus_id"], each["xid"]), 0)) for each in after]
    return [each for each in more if each["count"] > 0]


def _window(ranks: List[Dict[str, Any]]) -> Optional[Tuple[float, float]]:
    spans = [rank["window"] for rank in ranks if rank.get("window")]
    return (max(span[0] for span in spans), min(span[1] for span in spans)) if spans else None


def _figure(cell: str) -> Optional[float]:
    try:
        return float(cell)
    except ValueError:  # [N/A], [Unknown Error]
        return None
