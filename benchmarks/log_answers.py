"""The answers of `explain` to every log in some folders, for a comparison before and after a change.

    python benchmarks/log_answers.py FOLDER... > before.json
    python benchmarks/log_answers.py --compare before.json after.json

The exit code, verdicts, faults and sentence of each log are kept, and a hash of the whole answer. The comparison names
every log with a difference in the first four, and counts those that differ elsewhere (advice).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cli.explain import main as explain  # noqa: E402 -- after the path is set

ENDINGS = (".log", ".txt", ".out")


def answer(log: Path) -> dict[str, Any]:
    """Return the answer to one log."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        try:
            code = explain([str(log), "--format", "json"])
        except SystemExit as end:
            code = end.code
    text = printed.getvalue()
    found = json.loads(text) if text else []
    jobs = found if isinstance(found, list) else found.get("jobs", [found])
    return {
        "exit": code,
        "jobs": [[job["verdict"], [fault["fault"] for fault in job["faults"]], job["sentence"]] for job in jobs],
        "hash": hashlib.sha256(text.encode()).hexdigest()[:12],
    }


def compare(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Print every log with a different judgement, and how many differ in other parts of the answer."""
    judged = [name for name in before.keys() & after.keys() if _judged(before[name]) != _judged(after[name])]
    for name in sorted(judged):
        print(name, f"  - {_judged(before[name])}", f"  + {_judged(after[name])}", sep="\n")
    for name in sorted(before.keys() ^ after.keys()):
        print(f"{name}\n  only {'before' if name in before else 'after'}")
    others = [name for name in before.keys() & after.keys() if before[name]["hash"] != after[name]["hash"]]
    print(f"{len(judged)} judged otherwise, {len(others) - len(judged)} reported otherwise, of {len(before)}")


def _judged(of: dict[str, Any]) -> tuple[Any, Any]:
    return of["exit"], of["jobs"]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compare"]:
        compare(*(json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[2:4]))
    else:
        logs = sorted(path for each in sys.argv[1:] for path in Path(each).rglob("*") if path.name.endswith(ENDINGS))
        print(json.dumps({str(log): answer(log) for log in logs}, indent=1))
