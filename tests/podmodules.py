"""The modules of the pods' program, imported once: a forked pod with the same text in its files uses them unchanged.

Each of the tests' many pods would spend a quarter of its time on importing them.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.trial import payload
from jobs.trial.pod import MOUNT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

PACKAGES = ("reader", "stages", "sweep")
"""The part of `payload.PACKAGE` that a pod's own process imports."""


class _Text(SourceFileLoader):
    """Loads a module as in a pod, with the path there, from the text that the pod will get."""

    def get_data(self, path: str) -> bytes:
        return payload.files()[path.removeprefix(f"{MOUNT}/{payload.ARCHIVE}/")].encode()

    def path_stats(self, path: str) -> dict[str, float]:
        raise OSError(path)  # no compiled file is next to it


class _Finder:
    """Finds the modules of the pods' program outside a pod."""

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        stem = name.replace(".", "/")
        relative = next((path for path in (f"{stem}/__init__.py", f"{stem}.py") if path in payload.files()), None)
        if relative is None:
            return None
        place = f"{MOUNT}/{payload.ARCHIVE}/{relative}"
        return spec_from_file_location(name, place, loader=_Text(name, place))


def _imported() -> dict[str, ModuleType]:
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        within = tuple(f"{payload.PACKAGE}/{name}" for name in PACKAGES)
        paths = [path for path in payload.files() if path.startswith(within) and path.endswith(".py")]
        for path in paths:
            importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        names = [name for name in sys.modules if name.partition(".")[0] == payload.PACKAGE]
        return {name: sys.modules.pop(name) for name in names}
    finally:
        sys.meta_path.remove(finder)


MODULES = _imported()
ARCHIVE = payload.archive(payload.files())


def _make_ready() -> None:
    """Fill the log reader's caches, which each of the pods would do after many lines."""
    patterns: Any = MODULES[f"{payload.PACKAGE}.reader.lines.patterns"]
    things = {id(thing): thing for module in MODULES.values() for thing in vars(module).values()}
    for thing in things.values():
        if isinstance(thing, patterns.AnyOf):
            thing.pattern()
        elif isinstance(thing, patterns.Gate):
            for end in (1 << 20, 1):  # a long text, then a short one
                thing.places(bytes(end), 0, end)
        elif isinstance(thing, patterns.Patterns):
            for _ in range(2000):
                list(thing.matches(b"-"))


_make_ready()


def take(program: str) -> None:
    """Use the imported modules for a pod's program if it is the archive that they were imported from."""
    if program == f"{MOUNT}/{payload.ARCHIVE}" and Path(program).read_bytes() == ARCHIVE:
        sys.modules.update(MODULES)
