"""`docs/tested-on.md`: the tests run on real clusters, written by the runs themselves.

Each run leaves its results next to its programs, one file per Kubernetes minor; the page is made from all of them.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from . import programs
from .operators import OPERATORS

HEAD = """# What it is tested on

Not only on the embedded cluster: `make test-real` builds a real Kubernetes from its published modules, brings it up on one
machine (API server, controllers, scheduler, kubelets over containerd, CoreDNS, operators) and runs what follows against it. The
GPUs alone are not there: a device plugin offers them, and the programs of the pods are the embedded cluster's.

A ServiceAccount that has exactly what `seatrial rbac` prints runs every trial. Of each test the API server's audit log is
read: a request that was refused makes it fail, and so does an object that is left.

This page is written by the runs (`make test-real PAGE=1`).
"""


class Results:
    """A pytest plugin that stores outcome and duration of every test."""

    def __init__(self, about: dict[str, str], folder: Path) -> None:
        """Prepare the plugin. `about`: version by program. `folder`: the results of all runs."""
        self._about, self._folder = about, folder
        self._rows: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        """Store the result of a test; set-up and teardown count."""
        report: pytest.TestReport = yield
        row = self._rows.setdefault(item.nodeid.rpartition("/")[2], {"outcome": "passed", "seconds": 0.0})
        row["seconds"] = round(row["seconds"] + report.duration, 1)
        if report.outcome != "passed":
            row["outcome"] = report.outcome
        row |= dict(item.user_properties) | {"ended": report.when == "teardown"}
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the results of this run: they replace the last one's of the same minor or, for a partial run, are
        merged into them."""
        path = self._folder / f"results-{self._about['Kubernetes'].rpartition('.')[0]}.json"
        some = session.config.option.keyword or session.config.args != [str(Path(__file__).parent)]
        before = json.loads(path.read_text(encoding="utf-8")) if some and path.exists() else {"about": {}, "tests": {}}
        day = time.strftime("%Y-%m-%d", time.gmtime())
        ended = {
            name: row for name, row in self._rows.items() if row.pop("ended", False)
        }  # an interrupted run has no result
        content = {"about": before["about"] | self._about, "day": day, "tests": before["tests"] | ended}
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def about(kubernetes: str, *, operators: bool) -> dict[str, str]:
    """Return the version by program of a run, with those of operators if used."""
    names = {
        kubernetes: "Kubernetes",
        "etcd": "etcd",
        "containerd": "containerd",
        "coredns": "CoreDNS",
        "cni": "CNI plugins",
    }
    more = {each.title: programs.version_of(each.built, each.module) for each in OPERATORS.values() if operators}
    return {name: programs.version(module) for module, name in names.items()} | more


def write(folder: Path, page: Path) -> None:
    """Write the page of all results below `folder`."""
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("results-*.json"))]
    lines = [HEAD, "## Versions", "", "| program | " + " | ".join(f"run of {run['day']}" for run in runs) + " |"]
    lines.append("|---" * (len(runs) + 1) + "|")
    for program in dict.fromkeys(name for run in runs for name in run["about"]):
        lines.append(f"| {program} | " + " | ".join(run["about"].get(program, "") for run in runs) + " |")
    lines += [
        "",
        "## Situations",
        "",
        "Verdict and faults of the last run; seconds of each test, preparation included. An empty cell: not run there.",
        "",
    ]
    heads = [run["about"]["Kubernetes"].rpartition(".")[0] for run in runs]
    lines += ["| situation | verdict | faults | " + " | ".join(heads) + " |", "|---|---|---" + "|---" * len(runs) + "|"]
    for name in _names(runs):
        rows = [run["tests"].get(name) for run in runs]
        last: dict[str, Any] = next((row for row in reversed(rows) if row), {})
        said = [f"{row['outcome']}, {row['seconds']:.0f} s" if row else "" for row in rows]
        faults = ", ".join(f"`{fault}`" for fault in last.get("faults", []))
        lines.append(f"| {title(name)} | {last.get('verdict', '')} | {faults} | " + " | ".join(said) + " |")
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _names(runs: list[dict[str, Any]]) -> list[str]:
    """Return the existing tests, each with its cases; one without a result also has a row."""
    ran = {name for run in runs for name in run["tests"]}
    found = []
    for path in Path(__file__).parent.glob("test_*.py"):
        for test in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            name = f"{path.name}::{test}"
            found += [each for each in ran if each.partition("[")[0] == name] or [name]
    return sorted(found)


def title(name: str) -> str:
    """Return a test's name as a sentence."""
    test, _, case = name.partition("::")[2].partition("[")
    words = test.removeprefix("test_").replace("_", " ")
    return words[:1].upper() + words[1:] + (f" ({case.rstrip(']')})" if case else "")
