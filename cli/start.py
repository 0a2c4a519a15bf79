"""Suggests three next commands, depending on the context (a kubeconfig, an earlier report, or neither)."""

from __future__ import annotations

import json
import os
from pathlib import Path

REPORT = "report"
"""The report folder of README's commands."""


def _reported() -> bool:
    """Return whether there is the record of a run on a real cluster; one of a demo does not count."""
    try:
        record = json.loads((Path(REPORT) / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and not record.get("simulated")


def main() -> int:
    """Print the commands; return 0."""
    kubeconfig = any(Path(place).is_file() for place in os.environ.get("KUBECONFIG", "").split(os.pathsep) if place)
    kubeconfig = kubeconfig or (Path.home() / ".kube" / "config").is_file()
    if _reported():
        here = f"There is a report in {REPORT}/. Next:"
        rows = [
            ("seatrial accept --profile my.yaml --out new", "the same again, next to it"),
            (f"seatrial compare {REPORT} new", "regressions and improvements"),
            ("seatrial cleanup", "delete leftovers of runs"),
        ]
    elif kubeconfig:
        here = "There is a kubeconfig. Next:"
        rows = [
            ("seatrial preflight", "reads the API only, seconds"),
            ("seatrial profile detect > my.yaml", "a proposed profile of this cluster: review it"),
            ("seatrial accept --profile my.yaml --out report", "plus a two-node trial job, minutes"),
        ]
    else:
        here = "No kubeconfig was found. Next:"
        rows = [
            ("seatrial accept --cluster sim:healthy --out report", "see it on an embedded cluster"),
            ("seatrial explain LOG", "judge an NCCL log from anywhere"),
            ("seatrial help", "all commands"),
        ]
    width = max(len(command) for command, _ in rows)
    print(f"seatrial: sea trials for GPU Kubernetes clusters. {here}\n")
    for command, what in rows:
        print(f"  {command:<{width}}  {what}")
    print("\nseatrial help shows all commands; for an example: seatrial accept --cluster sim:healthy")
    return 0
