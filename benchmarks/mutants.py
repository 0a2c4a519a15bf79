"""Change the code that judges, one place at a time, and count the changes that no test notices.

    pip install coverage
    python benchmarks/mutants.py [--count 300] [--seed 1] [--cases 4] [--seconds 60] [--lines FILE] [--only 4,17]

Each mutant is one change in a function of the packages below, or of a number at the top of a module. The changes: a
condition negated or without one of its parts, `and` for `or`, `<` for `<=`, another number, no return value, the body
of an `if` or one call left out. The code is replaced in memory, in a process forked from one that has collected the
tests. The tests that ran its line are run until one fails: files with the shortest tests first, then their other cases.
No file is changed; a separate process that a test starts runs the original code.

One pass with coverage over some cases of each test shows which test runs which line; `--lines` keeps it in a file for
the next call. A survivor, or one on a line that no test ran ("unseen"), is printed with its number, its place and the
two forms of its statement. `--only` repeats some numbers, with the same seed, count and sources. `--seconds` limits the
tests of one mutant by the time that they took in that pass. Exit code 1 if a mutant survived.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import gc
import json
import multiprocessing
import os
import random
import signal
import sys
import time
import types
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("checks/rules", "seatrial/logs", "jobs/diagnosis", "jobs/pod/sweep", "reports/record.py", "reports/compare")
TESTS = ("checks", "hang", "jobs", "logs", "pod", "reports")
FORK = multiprocessing.get_context("fork")
SAID = os.dup(1)
"""Standard output, which is hidden from pytest and the tests."""

OPPOSITES = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


class Mutant(NamedTuple):
    """One change: the module, the line, the statement before and after, and the module's tree with it."""

    path: Path
    line: int
    before: str
    after: str
    tree: ast.Module
    statement: ast.stmt


def say(text: str) -> None:
    """Print to the original standard output of this program."""
    os.write(SAID, f"{text}\n".encode())


def changes(node: ast.AST) -> list[ast.AST]:
    """Return the possible changes of this node; fields that are statements are replaced by copies."""
    found: list[ast.AST] = []

    def changed(**fields: Any) -> None:
        new = copy.copy(node)
        for name, value in fields.items():
            setattr(new, name, value)
        found.append(new)

    match node:
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            changed(test=ast.UnaryOp(ast.Not(), test))
            if isinstance(node, ast.If):
                changed(body=[ast.Pass()])
        case ast.BoolOp(op=op, values=values):
            changed(op=OPPOSITES[type(op)]())
            for left_out in range(len(values)):
                rest = values[:left_out] + values[left_out + 1 :]
                found.append(ast.BoolOp(op, rest) if len(rest) > 1 else rest[0])
        case ast.comprehension(ifs=[_, *_]):
            changed(ifs=[])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            found.append(operand)
        case ast.Compare(ops=[op]):
            changed(ops=[OPPOSITES[type(op)]()])
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            changed(value=value * 2 if isinstance(value, float) and value else value + 1)
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and not value.value):
            changed(value=ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            found.append(ast.Pass())
    return [ast.copy_location(each, node) for each in found]


def mutants_of(path: Path) -> list[tuple[Path, int, int]]:
    """Return (path, node, change) of each mutant; the node is an index in a walk of the tree."""
    tree = ast.parse(path.read_bytes())
    inside = {
        id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for part in f.body for n in ast.walk(part)
    }
    assigned = (s.value for s in tree.body if isinstance(s, (ast.Assign, ast.AnnAssign)) and s.value)
    numbers = {id(n) for value in assigned for n in ast.walk(value) if isinstance(n, ast.Constant)}
    return [
        (path, at, number)
        for at, node in enumerate(ast.walk(tree))
        if id(node) in inside | numbers
        for number in range(len(changes(node)))
    ]


def mutant(path: Path, at: int, number: int) -> Mutant:
    """Create one mutant."""
    tree = ast.parse(path.read_bytes())
    old = list(ast.walk(tree))[at]
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    statement: ast.AST = old
    while not isinstance(statement, ast.stmt):
        statement = parents[id(statement)]
    before = ast.unparse(statement)
    new = ast.fix_missing_locations(changes(old)[number])
    parent = parents[id(old)]
    for name, value in ast.iter_fields(parent):
        if value is old:
            setattr(parent, name, new)
        elif isinstance(value, list):
            setattr(parent, name, [new if each is old else each for each in value])
    after = ast.unparse(new if statement is old else statement)
    line = getattr(old, "lineno", getattr(statement, "lineno", 0))
    return Mutant(path, line, before, after, ast.fix_missing_locations(tree), statement)


def codes_of(code: types.CodeType) -> dict[tuple[str, int], types.CodeType]:
    """Return each code object within one, by its name and first line."""
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return {(each.co_qualname, each.co_firstlineno): each for each in inner} | {
        key: each for outer in inner for key, each in codes_of(outer).items()
    }


class Run:
    """A pytest plugin that runs all tests once to record their lines, then some tests for each mutant."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.functions: dict[str, list[types.FunctionType]] = defaultdict(list)
        self.failed = ""
        self.seconds: dict[str, float] = Counter()
        self.survived = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record how long a test took, and the first failed test."""
        self.seconds[report.nodeid] += report.duration
        self.failed = self.failed or (report.nodeid if report.failed else "")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try the mutants."""
        gc.unfreeze()
        for each in gc.get_objects():
            if isinstance(each, types.FunctionType):
                self.functions[each.__code__.co_filename].append(each)
        gc.freeze()
        kept = self.options.lines
        if kept and kept.is_file():
            told = json.loads(kept.read_text(encoding="utf-8"))
        else:
            told = _in_a_fork(lambda: self._lines(session), 7200)
            if told is None:
                raise pytest.UsageError("the pass for the lines of the tests did not end; is coverage installed?")
            if kept:
                kept.write_text(json.dumps(told), encoding="utf-8")
        say(f"{len(told['tests'])} tests in {sum(told['tests'].values()):.0f} s; failed: {told['failed'] or 'none'}")
        self._try_all(session, told)
        return True

    def _lines(self, session: pytest.Session) -> dict[str, Any]:
        """Run every test; return their seconds, those that failed, and the tests of each line of each file."""
        import coverage  # noqa: PLC0415 -- is in no lock: this program alone needs it

        places = [str(ROOT / room) for room in ROOMS]
        include = [place if place.endswith(".py") else f"{place}/*" for place in places]
        measured = coverage.Coverage(data_file=None, config_file=False, include=include)
        failed = []
        some = [
            case for cases in _cases(session.items).values() for case in cases[:: -(-len(cases) // self.options.cases)]
        ]
        measured.start()
        for number, (item, following) in enumerate(zip(some, [*some[1:], None], strict=True)):
            measured.switch_context(str(number))
            self.failed = ""
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            failed += [self.failed] if self.failed else []
        measured.stop()
        data = measured.get_data()
        lines = {
            str(Path(path).relative_to(ROOT)): {
                str(line): sorted(int(test) for test in tests if test)
                for line, tests in data.contexts_by_lineno(path).items()
            }
            for path in data.measured_files()
        }
        return {"tests": {item.nodeid: self.seconds[item.nodeid] for item in some}, "failed": failed, "lines": lines}

    def _try_all(self, session: pytest.Session, told: dict[str, Any]) -> None:
        files = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")) or [ROOT / room]]
        drawn = random.Random(self.options.seed).sample(
            sorted(m for path in files for m in mutants_of(path)), self.options.count
        )
        say(f"seed {self.options.seed}, {len(drawn)} mutants")
        names, cases = list(told["tests"]), _cases(session.items)
        came_to: dict[str, Counter[str]] = defaultdict(Counter)
        for number, place in enumerate(drawn):
            if self.options.only and number not in self.options.only:
                continue
            one = mutant(*place)
            path = str(one.path.relative_to(ROOT))
            of_lines = told["lines"].get(path, {})
            begins = self._begins(one)
            tests = {test for line in begins for test in of_lines.get(str(line), ())}
            chosen = self._chosen({names[test] for test in tests}, cases, told)
            began = time.monotonic()
            end = self._try(session, one, chosen)
            room = next(room for room in ROOMS if path.startswith(room))
            came_to[room][end.split()[0]] += 1
            say(f"{number:4} {end:60.150} {path}:{one.line} {len(chosen)} tests, {time.monotonic() - began:.1f} s")
            if not end.startswith("killed"):
                self.survived += 1
                pair = zip("-+", (one.before, one.after), strict=True)
                say("\n".join(f"     {sign} {line}" for sign, text in pair for line in text.splitlines()[:6]))
        for room, ends in came_to.items():
            say(f"{room:20} " + ", ".join(f"{ends[end]} {end}" for end in sorted(ends)))

    def _begins(self, one: Mutant) -> list[int]:
        """Return the tested lines that run a mutant; for a number at the top of a module, those that use its name."""
        if one.statement in one.tree.body:
            targets = getattr(one.statement, "targets", None) or [one.statement.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            return [node.lineno for node in ast.walk(one.tree) if isinstance(node, ast.Name) and node.id in names]
        return [one.statement.lineno, one.line]

    def _chosen(self, names: set[str], cases: dict[str, list[pytest.Item]], told: dict[str, Any]) -> list[pytest.Item]:
        """Return the tests to run, up to so many seconds: those that ran the line, quick files first."""
        usual = {name.partition("[")[0]: seconds for name, seconds in told["tests"].items()}
        items = [item for test in sorted({name.partition("[")[0] for name in names}) for item in cases.get(test, ())]
        took = {item: told["tests"].get(item.nodeid, usual[item.nodeid.partition("[")[0]]) for item in items}
        of_file: Counter[Path] = Counter()
        for item in items:
            of_file[item.path] += took[item] if item.nodeid in names else 0
        chosen, left = [], self.options.seconds
        for item in sorted(
            items, key=lambda item: (item.nodeid not in names, of_file[item.path], item.path, took[item])
        ):
            if item.nodeid not in told["failed"] and took[item] <= left:
                chosen.append(item)
                left -= took[item]
        return chosen

    def _try(self, session: pytest.Session, one: Mutant, items: list[pytest.Item]) -> str:
        """Run tests on a mutant in a separate process; return how it ended."""
        if not items:
            return "unseen"

        def tried() -> str:
            if not self._replace(one):
                return "unreplaced"
            session.items, session.config.option.maxfail, self.failed = items, 1, ""
            with contextlib.suppress(pytest.Session.Failed):
                _pytest_main(session)
            return f"killed by {self.failed}" if self.failed else "survived"

        return _in_a_fork(tried, 60 + 10 * self.options.seconds) or "killed by the time limit"

    def _replace(self, one: Mutant) -> bool:
        """Replace the imported code by a mutant; return whether anything was replaced."""
        if one.statement in one.tree.body:
            return _replace_value(one)
        was = codes_of(compile(one.path.read_bytes(), str(one.path), "exec"))
        becomes = codes_of(compile(one.tree, str(one.path), "exec"))
        other = {key: code for key, code in becomes.items() if was.get(key) != code}
        replaced = False
        for function in self.functions[str(one.path)]:
            code = other.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            if code is not None and code.co_freevars == function.__code__.co_freevars:
                function.__code__ = code
                replaced = True
        return replaced


def _cases(items: list[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """Return the cases of each test."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    return cases


def _replace_value(one: Mutant) -> bool:
    """Assign a new value to a name at the top of a module, in the module and wherever it was imported."""
    module = next((each for each in list(sys.modules.values()) if getattr(each, "__file__", "") == str(one.path)), None)
    if module is None:
        return False
    before = dict(vars(module))
    exec(compile(ast.Module([one.statement], []), str(one.path), "exec"), vars(module))
    for name, old in before.items():
        new = vars(module)[name]
        if new is not old:
            for each in list(sys.modules.values()):
                if vars(each).get(name) is old:
                    setattr(each, name, new)
    return True


def _pytest_main(session: pytest.Session) -> None:
    """Run the tests of a session as pytest does."""
    from _pytest.main import pytest_runtestloop  # noqa: PLC0415

    pytest_runtestloop(session)


def _in_a_fork(work: Callable[[], Any], limit: float) -> Any:
    """Return the result of `work` in a forked process; None if that ends otherwise or takes longer than `limit`."""
    ours, theirs = FORK.Pipe(duplex=False)

    def run() -> None:
        os.setsid()  # child processes of tests end with it
        theirs.send(work())

    child = FORK.Process(target=run)
    child.start()
    theirs.close()
    with contextlib.suppress(EOFError):
        if ours.poll(limit):
            return _ended(child, ours.recv())
    return _ended(child, None)


def _ended(child: multiprocessing.Process, answer: Any) -> Any:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.join()
    return answer


def main() -> int:
    """Try the mutants; return 1 if one survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--cases", type=int, default=4, help="of each test, so many cases tell its lines")
    parser.add_argument("--lines", type=Path, help="where the tests of each line are kept")
    parser.add_argument(
        "--only", type=lambda text: [int(number) for number in text.split(",")], help="numbers of mutants"
    )
    parser.add_argument("tests", nargs="*", default=[str(ROOT / "tests" / folder) for folder in TESTS])
    options = parser.parse_args()
    run = Run(options)
    with Path(os.devnull).open("w", encoding="utf-8") as nothing:
        os.dup2(nothing.fileno(), 1)
    ended = pytest.main(
        ["-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist", *options.tests], plugins=[run]
    )
    if ended != pytest.ExitCode.OK:
        say(f"pytest ended with {ended!r}")
    return int(bool(run.survived or ended))


if __name__ == "__main__":
    sys.exit(main())
