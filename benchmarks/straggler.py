"""The detection rate of a rank that computes 10 % slower, and the false positive rate on healthy ranks.

    python benchmarks/straggler.py --runs 1000 --slow-runs 100 --seed 1
    python benchmarks/straggler.py --recorded                           # with the noise of a real H100's steps
    python benchmarks/straggler.py --torch --slow-runs 100 --seed 1     # real steps on this machine's CPUs

Synthetic: each rank has its own pace (normal, --spread) and its steps scatter around it (--noise). One step in a
hundred takes up to three times as long, and sometimes all ranks are slowed for a while. Recorded: the same paces, with
the scatter of the steps in h100_steps.json, recorded on one GPU at different times. Real: the trial's training program
(jobs/pod/bench) over gloo, one process for each of --ranks; only the slow one repeats a tenth of its work.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from checks.rules import training as rules
from checks.rules import training_pace
from checks.rules.training import Member
from jobs.pod.bench import stragglers

STEPS = 80  # DDP and FSDP2
TENTHS = 10  # work units of a step; the slow rank does one more


RECORDED = json.loads(Path(__file__).with_name("h100_steps.json").read_text())["steps_ms"]


def noises(draw, options):
    """Return the relative deviations of a rank's steps from its pace."""
    if not options.recorded:
        return [1 + draw.gauss(0, options.noise) for _ in range(options.steps)]
    series, begin = draw.choice(RECORDED), draw.randrange(options.steps)
    return [series[(begin + step) % len(series)] / statistics.median(series) for step in range(options.steps)]


def healthy(draw, nodes, gpus, options):
    """Return the times of every rank: (node, GPU) -> milliseconds of each step."""
    shared = [1.0] * options.steps
    if draw.random() < 0.3:
        begin = draw.randrange(options.steps)
        shared[begin : begin + 20] = [draw.uniform(1.05, 1.5)] * len(shared[begin : begin + 20])
    found = {}
    for node in range(nodes):
        for gpu in range(gpus):
            pace = 50.0 * (1 + draw.gauss(0, options.spread))
            steps = [pace * each * noise for each, noise in zip(shared, noises(draw, options), strict=True)]
            found[node, gpu] = [ms * (draw.uniform(1.2, 3.0) if draw.random() < 0.01 else 1.0) for ms in steps]
    return found


def judged(times, device="cuda"):
    """Return the faults that the rules find as (fault, subject), and how many could not be determined."""
    members = [
        Member(f"node-{node}", gpu, {"name": "GPU", "device": device, "compute_ms": steps}, None)
        for (node, gpu), steps in times.items()
    ]
    found = list(rules.slow_members(members))
    return {(f.fault, f.subject) for f in found if f.fault}, sum(f.ok is None for f in found)


def synthetic(options):
    """Count both kinds of errors in jobs of several sizes."""
    for nodes, gpus in ((2, 1), (2, 2), (2, 4), (2, 8), (4, 8), (8, 8)):
        draw = random.Random(f"{options.seed}/{nodes}/{gpus}")
        loud = unreported = named = nodes_named = waves = 0
        for _ in range(options.runs):
            times = healthy(draw, nodes, gpus, options)
            found, unknown = judged(times)
            loud += bool(found)
            unreported += bool(unknown)
            waves += _waves(draw, options)
        for _ in range(options.slow_runs):
            times = healthy(draw, nodes, gpus, options)
            slow = draw.choice(list(times))
            times[slow] = [ms * 1.1 for ms in times[slow]]
            found, _ = judged(times)
            named += found == {("training.slow-gpu", f"node-{slow[0]} GPU {slow[1]}")}
            times = healthy(draw, nodes, gpus, options)
            times = {key: [ms * (1.1 if key[0] == 1 else 1.0) for ms in steps] for key, steps in times.items()}
            found, _ = judged(times)
            whole = {("training.slow-node", "node-1")} if gpus > 1 else {("training.slow-gpu", "node-1 GPU 0")}
            nodes_named += found == whole
        print(
            f"{nodes} x {gpus}: {loud} of {options.runs} healthy runs name a rank, {unreported} are undecided, {waves} "
            f"have waves; a GPU 10 % slower is named in {named} of {options.slow_runs}, a node in {nodes_named}",
            flush=True,
        )


def _waves(draw, options):
    """Return whether healthy steps of the job, one in a hundred of them an outlier, are reported as waves."""
    steps = [50.0 * (1 + draw.gauss(0, options.noise)) for _ in range(STEPS // 2)]
    steps = [ms * (draw.uniform(1.2, 3.0) if draw.random() < 0.01 else 1.0) for ms in steps]
    pace = training_pace.Pace(statistics.median(steps), 50.0, 6.0, 400.0, 8192, 4, tuple(steps))
    return training_pace.waves([], pace, "job").ok is False


def rank_program(number, options, orders, answers):
    """Run the training program in one process, for each order: the share of its own work that is repeated."""
    import torch  # noqa: PLC0415

    from jobs.pod.bench import model, training  # noqa: PLC0415

    torch.set_num_threads(1)  # as torchrun sets it
    address = f"file://{options.meet}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=number, world_size=options.ranks)
    asked = argparse.Namespace(device="cpu", steps=40, soak=0.0, seed=options.seed, fsdp_on_cpu=False)

    class Alone(training.Steps):
        """Steps in tenths, so that one step can take a tenth longer."""

        def one(self):
            for _ in range(TENTHS + self.training.extra):
                loss = super().one()
            return loss

    class Stand(training.Training):
        def alone(self, own, batch):
            return Alone(self, own, batch, super().alone(own, batch).clock)

        def fitting(self, _shape):
            return model.CPU._replace(layers=1, hidden=32, sequence=16, vocabulary=64)

    for extra in iter(orders.get, None):
        rank = Stand(torch, asked)
        rank.extra = extra
        with contextlib.redirect_stdout(None):
            rank.run()
        answers.put((number, rank.facts))


def real(options):
    """Run the program on CPUs, with one rank slowed in every other run; print the counts and how often it was named."""
    context, numbers, draw = multiprocessing.get_context("spawn"), range(options.ranks), random.Random(options.seed)
    orders, answers = [context.Queue() for _ in numbers], context.Queue()
    counted = dict.fromkeys(("named", "others_accused", "unreported", "healthy_accused", "healthy_untold"), 0)
    spreads, steps = [], []
    with tempfile.TemporaryDirectory() as folder:
        options.meet = f"{folder}/meet"
        ranks = [context.Process(target=rank_program, args=(n, options, orders[n], answers)) for n in numbers]
        for rank in ranks:
            rank.daemon = True
            rank.start()
        for _ in range(options.slow_runs):
            for slow in (None, draw.randrange(options.ranks)):
                for n in numbers:
                    orders[n].put(int(n == slow))
                facts = dict(answers.get(timeout=600) for _ in ranks)
                times = {n: facts[n]["compute_ms"] for n in numbers}
                accused, unknown = judged({(n % 2, n // 2): times[n] for n in numbers}, "cpu")
                steps.append(len(times[0]))
                if slow is None:
                    counted["healthy_accused"] += bool(accused)
                    counted["healthy_untold"] += bool(unknown)
                    medians = [statistics.median(each) for each in times.values()]
                    spreads.append((max(medians) - min(medians)) / statistics.median(medians))
                else:
                    right = {("training.slow-gpu", f"node-{slow % 2} process {slow // 2}")}
                    counted["named"] += accused == right
                    counted["others_accused"] += bool(accused - right)
                    counted["unreported"] += not accused and bool(unknown)
                    if accused != right:
                        stood = stragglers.standings(times)
                        said = ", ".join(f"{n}: {s.excess:+.1%} of {s.limit:.1%}" for n, s in stood.items())
                        print(f"rank {slow} is slow, not named in {len(times[0])} steps: {said}", flush=True)
            print(json.dumps({"steps": len(times[0]), **counted}), file=sys.stderr, flush=True)
        for each in orders:
            each.put(None)
        for rank in ranks:
            rank.join(30)
    load = [round(each, 1) for each in os.getloadavg()]
    told = {"spread_of_medians": round(statistics.median(spreads), 4), "steps_mean": statistics.fmean(steps)}
    print(json.dumps({"runs_of_each": options.slow_runs, **counted, **told, "load_average": load}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="healthy runs of each size")
    parser.add_argument("--slow-runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spread", type=float, default=0.01, help="between healthy ranks, standard deviation")
    parser.add_argument("--noise", type=float, default=0.02, help="between the steps of one rank")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each rank; a soak keeps up to 240")
    parser.add_argument("--torch", action="store_true", help="real steps on this machine's CPUs")
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--ranks", type=int, default=4)
    options = parser.parse_args()
    if options.torch:
        real(options)
    else:
        synthetic(options)


if __name__ == "__main__":
    main()
