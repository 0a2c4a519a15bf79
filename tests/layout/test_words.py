"""The words of the house: a module's first line says what it is."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("checks", "cli", "jobs", "lab", "reports", "benchmarks")


def test_a_modules_first_line_says_what_it_is():
    """A noun phrase or a sentence, never a question: whoever looks for a place reads the first lines only."""
    questions = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "?" in (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "?").splitlines()[0]
    ]
    assert not questions
