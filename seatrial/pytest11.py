"""`pytest --pyargs seatrial.checks`: adds the suite's options; it does not change any other run of pytest.

Its name is the same in a clone and in a wheel: pytest imports it in every installation, including editable ones.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SUITE = "seatrial.checks"
PLUGINS = ("checks.framework.fixtures", "checks.framework.plugin", "reports.plugin")
"""As in conftest.py, which pytest reads too late: after the options."""


def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Register the suite's plugins if its checks are requested, named by their files as in a clone."""
    if "--pyargs" not in args or not any(map(_is_ours, args)):
        return
    from importlib.util import find_spec  # noqa: PLC0415 -- every run of pytest imports this module
    from pathlib import Path  # noqa: PLC0415

    spec = find_spec(SUITE)
    if spec is None or spec.origin is None:
        return
    checks = Path(spec.origin).parent
    sys.path.insert(0, str(checks.parent))
    for plugin in PLUGINS:
        early_config.pluginmanager.import_plugin(plugin)
    args[:] = [_file(checks, arg) if _is_ours(arg) else arg for arg in args]


def _is_ours(arg: str) -> bool:
    name = arg.partition("::")[0]
    return name == SUITE or name.startswith(f"{SUITE}.")


def _file(checks: Path, arg: str) -> str:
    name, separator, node = arg.partition("::")
    parts = name.removeprefix(SUITE).strip(".").split(".")
    place = checks.joinpath(*filter(None, parts))
    return f"{place if place.is_dir() else place.with_suffix('.py')}{separator}{node}"
