"""The program that torchrun starts on every GPU of the trial: measures one collective, or training steps.

This file only finds its package; the work is in `bench/`, which lies beside it in the pod (/seatrial, read-only).
"""

from __future__ import annotations

import importlib
import os
import sys


def main() -> int:
    """Run the sweep; prints the reason and returns non-zero where it cannot."""
    here = os.path.dirname(os.path.abspath(__file__))
    if here not in sys.path:  # PYTHONSAFEPATH keeps the script's folder out
        sys.path.insert(0, here)
    if "--training" in sys.argv[1:]:
        return int(importlib.import_module("bench.training").main(here))
    return int(importlib.import_module("bench.sweep").main(here))


if __name__ == "__main__":
    sys.exit(main())
