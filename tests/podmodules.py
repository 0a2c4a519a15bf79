"""The modules of the pods' program, imported once: a forked pod whose files hold the same text takes them as they are.

Each of the tests' many pods would spend a quarter of its time on importing them.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import pod
from jobs.trial.pod import MOUNT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

PACKAGES = ("nccl_reader", "stages", "sweep")


class _Text(SourceFileLoader):
    """Loads a module as it lies in a pod, whose path it bears, from the text that the pod will get."""

    def get_data(self, path: str) -> bytes:
        return pod.files()[path.removeprefix(f"{MOUNT}/")].encode()

    def path_stats(self, path: str) -> dict[str, float]:
        raise OSError(path)  # nothing compiled lies beside it


class _Finder:
    """Finds the modules of the pods' program where no pod is."""

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        stem = name.replace(".", "/")
        relative = next((path for path in (f"{stem}/__init__.py", f"{stem}.py") if path in pod.files()), None)
        if relative is None or not relative.startswith(PACKAGES):
            return None
        place = f"{MOUNT}/{relative}"
        return spec_from_file_location(name, place, loader=_Text(name, place))


def _imported() -> dict[str, ModuleType]:
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        stems = [
            path.removesuffix(".py").removesuffix("/__init__")
            for path in pod.files()
            if path.startswith(PACKAGES) and path.endswith(".py")
        ]
        names = [stem.replace("/", ".") for stem in stems]
        for name in names:
            importlib.import_module(name)
        return {name: sys.modules.pop(name) for name in names}
    finally:
        sys.meta_path.remove(finder)


MODULES = _imported()


def _make_ready() -> None:
    """Make what the reader of logs makes once it has read many lines, which each of the pods would come to do."""
    patterns: Any = MODULES["nccl_reader.lines.patterns"]
    things = {id(thing): thing for module in MODULES.values() for thing in vars(module).values()}
    for thing in things.values():
        if isinstance(thing, patterns.AnyOf):
            thing.pattern()
        elif isinstance(thing, patterns.Gate):
            for end in (1 << 20, 1):  # of much text, then of little
                thing.places(bytes(end), 0, end)
        elif isinstance(thing, patterns.Patterns):
            for _ in range(2000):
                list(thing.matches(b"-"))


_make_ready()


def take(program: str) -> None:
    """Have the modules imported for a program of a pod's, if each file beside it is the one they were imported from."""
    if str(Path(program).parent) != MOUNT:
        return
    try:
        same = all(Path(MOUNT, path).read_text(encoding="utf-8") == text for path, text in pod.files().items())
    except (OSError, UnicodeDecodeError):
        return
    if same:
        sys.modules.update(MODULES)
