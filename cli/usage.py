"""Refuses what was typed wrong: one line, with the exit code that pytest uses for it."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

USAGE = 4


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line; argparse's own exit code, 2, means 'interrupted' here."""

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        self.exit(USAGE, f"{self.prog}: {message}\n")


def own_program() -> tuple[list[str], dict[str, str]]:
    """Return the start of a command line that runs this program in a process of its own, and its environment."""
    root = Path(__file__).resolve().parent.parent
    wheel = (root / "__main__.py").is_file()
    paths = [str(root.parent if wheel else root), os.environ.get("PYTHONPATH")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return [sys.executable, "-P", "-m", "seatrial" if wheel else "checks"], environment
