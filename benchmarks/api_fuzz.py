"""A full-size fuzz test: API objects that crash their readers, or make a broken cluster pass.

    python benchmarks/api_fuzz.py [OBJECTS] [SEED]

The default is a hundred thousand mutated objects (tests/jobs/apifuzz.py). Objects of the lab pass through the client,
the inventory and the judgements of a preflight. Objects from recordings of a real cluster bypass the client and pass
through facts and diagnosis. Prints the seed, results, seconds and the peak memory; exit code 1, with the seeds, if any
object failed.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.jobs.apifuzz import campaign, lab_objects  # noqa: E402 -- after the path is set


def main(arguments: list[str]) -> int:
    """Try the objects; return 0 if none failed."""
    count = int(arguments[0]) if arguments else 100_000
    seed = int(arguments[1]) if len(arguments) > 1 else 20261122
    print(f"seed {seed}, {count} mutated objects")
    seen = lab_objects()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    began = time.monotonic()
    tally = campaign(seen, count, seed, large=True)
    seconds = time.monotonic() - began
    for what, number in sorted(tally.ended.items()):
        print(f"{number:8}  {what}")
    for each in tally.trouble:
        print(f"WRONG  {each}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{tally.tried} objects in {seconds:.0f} s, {len(tally.trouble)} wrong")
    print(f"peak memory {peak} MiB, {before} before")
    return 1 if tally.trouble else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
