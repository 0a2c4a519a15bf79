"""The share of correct verdicts while the API server misbehaves, for each kind of API fault.

Each seed rehearses one scenario under those API faults: even seeds the healthy one, odd seeds the broken ones in turn.
`right`: the expected verdict and exactly the expected faults; `inconclusive`: exit code 10, which is acceptable;
`wrong`: any other result. Each result that is not right is printed with the command that repeats it.

Usage: python benchmarks/api_faults.py [--kinds KIND ...] [--seeds N] [--first S] [--jobs N] [--minutes M] [--out FILE]
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from lab.chaos.api_faults import KINDS
from lab.rehearse.trials import Rehearsal, parse, rehearsals, rehearse

BROKEN = (
    "socket-fallback",
    "pod-deleted",
    "out-of-memory",
    "webhook-denies",
    "pod-preempted",
    "quota-gpu",
    "image-missing",
)
"""Faults of NCCL, of running pods, and of components that reject pods: each shows in other API objects."""


def scenario_of(seed: int) -> str:
    """Return the scenario that this seed rehearses."""
    return BROKEN[seed // 2 % len(BROKEN)] if seed % 2 else "healthy"


def judge(each: Rehearsal) -> str:
    """Classify a result as right, inconclusive or wrong."""
    if each.recognised:
        return "right"
    return "inconclusive" if each.verdict == "inconclusive" and not each.trouble else "wrong"


def main() -> int:
    """Run all combinations; return 1 if a verdict was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=[name for name in KINDS if name != "calm"])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no run after these")
    parser.add_argument("--out", type=Path, help="one JSON line for each run")
    options = parser.parse_args()
    plain = {each.name: each for each in rehearsals(parse(["healthy", *BROKEN]))}
    # Seeds are the outer loop: an early end leaves the same number of runs for each kind.
    asked = [(kind, seed) for seed in range(options.first, options.first + options.seeds) for kind in options.kinds]
    sums = {kind: Counter() for kind in options.kinds}
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="seatrial-api-faults-") as folder, ThreadPoolExecutor(options.jobs) as pool:

        def run(kind: str, seed: int) -> tuple[str, int, Rehearsal] | None:
            if time.monotonic() > end:
                return None
            base = plain[scenario_of(seed)]
            each = replace(base, name=f"{base.name}-{kind}-{seed}", where=f"{base.where}?api-faults={kind}&seed={seed}")
            rehearse(each, Path(folder) / each.name, Path(folder), [])
            shutil.rmtree(Path(folder) / each.name, ignore_errors=True)
            return kind, seed, each

        for done in as_completed([pool.submit(run, kind, seed) for kind, seed in asked]):
            if (told := done.result()) is None:
                continue
            kind, seed, each = told
            sums[kind][judge(each)] += 1
            said = {
                "kind": kind,
                "seed": seed,
                "scenario": scenario_of(seed),
                "judged": judge(each),
                "verdict": each.verdict,
                "found": each.found,
                "seconds": round(each.seconds, 1),
                "why": each.trouble or each.mistaken,
            }
            if options.out:
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(said) + "\n")
            if judge(each) != "right":
                print(
                    f"{judge(each)}: {each.verdict} {' '.join(each.found)} {said['why']}  again: seatrial rehearse "
                    f"{scenario_of(seed)} --api-faults {kind}:{seed}",
                    flush=True,
                )
    print(
        f"{'API faults':<18}{'right':>7}{'inconclusive':>14}{'wrong':>7}   {sum(map(Counter.total, sums.values()))} "
        f"runs, seeds from {options.first}"
    )
    for kind, counts in sums.items():
        print(f"{kind:<18}{counts['right']:>7}{counts['inconclusive']:>14}{counts['wrong']:>7}")
    return int(any(counts["wrong"] for counts in sums.values()))


if __name__ == "__main__":
    raise SystemExit(main())
