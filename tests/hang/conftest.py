"""Shared fixture of the hang tests: explain, called as on the command line."""

import json

import pytest

from cli.explain import main


@pytest.fixture
def explain(capsys):
    """Return a function: paths to (exit code, the first job's document)."""

    def run(*paths):
        code = main(["--format", "json", *map(str, paths)])
        out = capsys.readouterr()
        return code, (json.loads(out.out)["jobs"][0] if out.out else out.err)

    return run
