"""How does a command refuse what was typed wrong? In one line, with the exit code that pytest uses for it."""

from __future__ import annotations

import argparse
from typing import NoReturn

USAGE = 4


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line; argparse's own exit code, 2, means 'interrupted' here."""

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        self.exit(USAGE, f"{self.prog}: {message}\n")
