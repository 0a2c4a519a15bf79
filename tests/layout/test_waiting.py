"""Tests wait for conditions: by `tests/waiting.py`, and never for the clock."""

import ast
import asyncio
from pathlib import Path

import pytest

from tests.waiting import in_no_time

SLEEPS = {
    "tests/hang/ras_standin.py": "plays a program that is slow to answer",
    "tests/jobs/conftest.py": "plays a server that has nothing to say",
    "tests/lab/operators/conftest.py": "is run in no time",
    "tests/lab/world/test_api_faults.py": "puts an object behind those that the same event loop holds back",
    "tests/real/server.py": "on the clock of the world that is played",
    "tests/real/virtual.py": "is that clock",
    "tests/waiting.py": "looks again",
}
WAITS = {"wait", "join", "communicate", "result"}


def _calls(tree):
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            owner, name = getattr(call.func, "value", None), getattr(call.func, "attr", getattr(call.func, "id", ""))
            yield getattr(owner, "id", None if owner is None else ""), name, call


def _number(value):
    return isinstance(value, ast.Constant) and isinstance(value.value, int | float)


def _sleeps(tree):
    """Lines that sleep; a turn of the event loop is none, nor what passes in no time."""
    calls = list(_calls(tree))
    asleep = {"time"} if any(name == "in_no_time" for _, name, _ in calls) else {"time", "asyncio"}
    for owner, name, call in calls:
        if name == "sleep" and owner in asleep and ast.dump(call.args[0]) != "Constant(value=0)":
            yield call.lineno


def _limits(tree):
    """Lines that wait for so many seconds, and for what a test is not to be made of."""
    for owner, name, call in _calls(tree):
        given = [each.value for each in call.keywords if each.arg == "timeout"]
        given += call.args[:1] if name in WAITS and owner is not None else []
        if any(map(_number, given)):
            yield call.lineno


@pytest.fixture(scope="module")
def trees(root):
    paths = [path for path in sorted((root / "tests").rglob("*.py")) if "data" not in path.parts]
    return {path.relative_to(root).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def test_no_test_sleeps(trees):
    """What has happened by then, has not on a slow machine; who waits is told why it is no test in SLEEPS."""
    sleeping = {path: lines for path, tree in trees.items() if (lines := list(_sleeps(tree)))}
    assert {path: lines for path, lines in sleeping.items() if path not in SLEEPS} == {}
    assert [path for path in SLEEPS if not Path(path).exists()] == []


def test_what_ends_a_hang_is_longer_than_anything_takes(trees):
    """A limit of its own is too short somewhere: `HANG_S` is the one for all."""
    assert {path: lines for path, tree in trees.items() if (lines := list(_limits(tree)))} == {}


@pytest.mark.parametrize(
    ("code", "sleeps", "limits"),
    [
        ("time.sleep(1)", [1], []),
        ("asyncio.sleep(0.1)", [1], []),
        ("asyncio.sleep(0)", [], []),
        ("in_no_time(run())\nasyncio.sleep(5)", [], []),
        ("until(done)\nprocess.wait(timeout=HANG_S)", [], []),
        ("process.wait(timeout=60)", [], [1]),
        ("subprocess.run([], timeout=3.5)", [], [1]),
        ("thread.join(60)\n','.join(parts)", [], [1]),
    ],
)
def test_a_wait_for_the_clock_is_seen(code, sleeps, limits):
    tree = ast.parse(code)
    assert (list(_sleeps(tree)), list(_limits(tree))) == (sleeps, limits)


def test_in_no_time_seconds_pass_in_their_order():
    """Each timer at its moment, also one that another sets; what is due has been done before time goes on."""

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
    with pytest.raises(AssertionError, match="nothing is left that could happen"):
        in_no_time(asyncio.Event().wait())
