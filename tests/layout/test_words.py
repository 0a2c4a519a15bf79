"""The words of the house: a module's first line says what it is."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("checks", "cli", "jobs", "reports")
NOT_YET = ("jobs/nccl", "jobs/pod/nccl_reader", "checks/rules/transport.py")


def test_a_modules_first_line_says_what_it_is():
    """A noun phrase or a sentence, never a question: whoever looks for a place reads the first lines only."""
    questions = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if not any(path.is_relative_to(ROOT / place) for place in NOT_YET)
        and "?" in (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "?").splitlines()[0]
    ]
    assert not questions
