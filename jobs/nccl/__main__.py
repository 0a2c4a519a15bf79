"""Judge logs from a shell inside a pod: ``python3 -m nccl [--partial] [--one-job] FILE...`` prints JSON."""

import json
import sys
from typing import List

from . import POD_BUDGET, NcclLogError, conclude, open_sources, read

_EXIT = {"go": 0, "no-go": 1, "inconclusive": 10}


def main(arguments: List[str]) -> int:
    """Print the job documents (or, with --partial, the state that merges with others).

    Return the exit code of the worst verdict.
    """
    flags = {item for item in arguments if item.startswith("--")}
    paths = [item for item in arguments if not item.startswith("--")]
    unknown = flags - {"--partial", "--one-job"}
    if unknown:
        print("nccl: unknown option %s; there are --partial and --one-job" % min(unknown), file=sys.stderr)
        return 4
    try:
        partial = read(open_sources(paths))
    except NcclLogError as error:
        print("nccl: %s" % error, file=sys.stderr)
        return 4
    if "--partial" in flags:
        json.dump(partial.to_dict(POD_BUDGET), sys.stdout)
        print()
        return 0
    jobs = conclude(partial, one_job="--one-job" in flags)
    json.dump({"schema": 1, "jobs": jobs}, sys.stdout, indent=1)
    print()
    verdicts = {job["verdict"] for job in jobs}
    return 1 if "no-go" in verdicts else 10 if "inconclusive" in verdicts or not jobs else _EXIT["go"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
