"""Tests wait for conditions: by `tests/waiting.py`, and never for the clock."""

import ast
import asyncio
import re
from pathlib import Path

import pytest

from tests.table import table
from tests.waiting import in_no_time

SLEEPS = {
    "tests/hang/ras_standin.py": "simulates a program that responds slowly",
    "tests/jobs/conftest.py": "simulates a silent server",
    "tests/lab/operators/conftest.py": "runs in virtual time",
    "tests/lab/world/test_api_faults.py": "queues an object after those that the event loop delays",
    "tests/real/server.py": "uses the clock of the played world",
    "tests/real/virtual.py": "implements that clock",
    "tests/waiting.py": "polls",
}
WAITS = {"wait": 0, "join": 0, "communicate": 0, "result": 0, "settimeout": 0, "timeout": 0, "wait_for": 1}
"""Functions that wait, and the argument with the time limit."""
PROVES_A_LIMIT = "refused"  # kubectl must refuse within its own limit, which that test is about


def _calls(tree):
    """Yield each call with its object (or None) and its name, as the library's modules call it."""
    imported = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None)
            for each in node.names:
                imported[each.asname or each.name] = (module, each.name) if module else (each.name, "")
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            owner, name = getattr(call.func, "value", None), getattr(call.func, "attr", getattr(call.func, "id", ""))
            if owner is None:
                owner, name = imported.get(name, (None, name))
            elif isinstance(owner, ast.Name):
                owner = imported.get(owner.id, (owner.id,))[0]
            else:
                owner = ""
            yield owner, name, call


def _number(value, named):
    """Say whether it is a literal number, also by name or as a product."""
    if isinstance(value, ast.Name):
        return value.id in named
    if isinstance(value, ast.BinOp):
        return _number(value.left, named) and _number(value.right, named)
    return isinstance(value, ast.Constant) and isinstance(value.value, int | float)


def _sleeps(tree):
    """Return lines that sleep, except for a turn of the event loop and virtual time."""
    calls = list(_calls(tree))
    asleep = {"time"} if any(name == "in_no_time" for _, name, _ in calls) else {"time", "asyncio"}
    for owner, name, call in calls:
        if name == "sleep" and owner in asleep and [ast.dump(each) for each in call.args] != ["Constant(value=0)"]:
            yield call.lineno


def _limits(tree):
    """Return lines that wait with a literal time limit, and lines with forbidden constructs."""
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    named = {getattr(node.targets[0], "id", "") for node in assigned if _number(node.value, ())}
    for owner, name, call in _calls(tree):
        given = [each.value for each in call.keywords if each.arg == "timeout"]
        given += call.args[WAITS[name] :][:1] if name in WAITS and owner is not None else []
        words = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        told = name != PROVES_A_LIMIT and any(re.match(r"--timeout=\d", word) for word in words)
        if told or any(_number(each, named) for each in given):
            yield call.lineno


@pytest.fixture(scope="module")
def trees(root):
    paths = [path for path in sorted((root / "tests").rglob("*.py")) if "data" not in path.parts]
    return {path.relative_to(root).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def test_no_test_sleeps(trees):
    """A fixed time is too short on a slow machine; SLEEPS gives the reasons of the exceptions."""
    sleeping = {path: lines for path, tree in trees.items() if (lines := list(_sleeps(tree)))}
    assert {path: lines for path, lines in sleeping.items() if path not in SLEEPS} == {}
    assert [path for path in SLEEPS if not Path(path).exists()] == []


def test_what_ends_a_hang_is_longer_than_anything_takes(trees):
    """Separate limits are too short on some machine: `HANG_S` is the common one."""
    assert {path: lines for path, tree in trees.items() if (lines := list(_limits(tree)))} == {}


@table(
    "code, sleeps, limits",
    [
        ("time.sleep(1)", [1], []),
        ("asyncio.sleep(0.1)", [1], []),
        ("asyncio.sleep(0)", [], []),
        ("in_no_time(run())\nasyncio.sleep(5)", [], []),
        ("until(done)\nprocess.wait(timeout=HANG_S)", [], []),
        ("process.wait(timeout=60)", [], [1]),
        ("subprocess.run([], timeout=3.5)", [], [1]),
        ("thread.join(60)\n','.join(parts)", [], [1]),
        ("':'.join(['00'] * 16)", [], []),
        ("from time import sleep\nsleep(1)", [2], []),
        ("import time as clock\nclock.sleep(1)", [2], []),
        ("from asyncio import sleep as pause\npause(delay=1)\npause(0)", [2], []),
        ("monkeypatch.setattr(dns.time, 'sleep', waits)\npath.sleep(3)", [], []),
        ("asyncio.wait_for(coroutine, 5)\nchanged.wait_for(done, HANG_S)", [], [1]),
        ("asyncio.timeout(5)\nline.settimeout(3)", [], [1, 2]),
        ("process.wait(timeout=2 * 60)\nqueue.get(timeout=2 * HANG_S)", [], [1]),
        ("LIMIT_S = 60\nprocess.wait(timeout=LIMIT_S)", [], [2]),
        ("kubectl('wait', 'pod/a', '--timeout=120s')", [], [1]),
        ("kubectl.refused('wait', 'pod/a', '--timeout=1s')\nkubectl('wait', KUBECTL_LIMIT)", [], []),
    ],
)
def test_a_wait_for_the_clock_is_seen(code, sleeps, limits):
    tree = ast.parse(code)
    assert (list(_sleeps(tree)), list(_limits(tree))) == (sleeps, limits)


def test_in_no_time_seconds_pass_in_their_order():
    """Each timer fires at its moment, also one set by another; due callbacks run before time advances."""

    async def go():
        loop, done = asyncio.get_running_loop(), []
        loop.call_later(7200, done.append, "two hours")
        loop.call_later(60, lambda: (done.append("a minute"), loop.call_later(3600, done.append, "an hour later")))
        await asyncio.sleep(3660)
        loop.call_soon(done.append, "at once")
        await asyncio.sleep(3600)
        return done, loop.time()

    assert in_no_time(go()) == (["a minute", "an hour later", "at once", "two hours"], 7260)


def test_in_no_time_a_wait_for_nothing_fails():
    with pytest.raises(AssertionError, match="no event remains"):
        in_no_time(asyncio.Event().wait())
