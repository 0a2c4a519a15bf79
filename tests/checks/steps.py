"""Training steps of a healthy trial of sixteen ranks, as their probes report them."""

import random

from jobs.pod.bench import model

STEPS, COMPUTE_MS, STEP_MS = 40, 50.0, 52.0
SHAPE = model.described(model.GPU)
FLOPS = model.flops(model.GPU)


def around(usual, seed, count=STEPS, spread=0.01):
    drawn = random.Random(seed)
    return [usual * (1 + drawn.gauss(0, spread)) for _ in range(count)]


def rank(number, local, **changes):
    mode = {
        "mode": "ddp",
        "steps": STEPS,
        "bad_step": None,
        "step_ms": around(STEP_MS, f"step {number}", spread=0.005),
        "losses": [9.7 - 0.1 * place for place in range(20)],
    }
    training = {
        "rank": number,
        "local": local,
        "world": 16,
        "seed": 1,
        "device": "cuda",
        "name": "NVIDIA H100 80GB HBM3",
        "torch": "2.9.0",
        "library": "cuda 13.0",
        "multiprocessors": 132,
        "bus_id": None,
        "flops": FLOPS,
        "comm_ms": 6.0,
        "compute_ms": around(COMPUTE_MS, number),
        "losses": mode["losses"],
        "bad_step": None,
        "shape": SHAPE,
        "products": [
            {"kind": "bf16", "seed": 1, "side": 4096, "made": 5000, "differs": 0, "digest": "aa", "why": None}
        ],
        "modes": [mode, {**mode, "mode": "fsdp2"}],
    }
    return training | changes


def steps_of(trial, node=1, local=5):
    return trial.evidence[node].stages["training"]["ranks"][local]


def faults(findings):
    return {(f.fault, f.subject) for f in findings if f.fault}


def undecided(findings):
    return [f.subject for f in findings if f.ok is None]
