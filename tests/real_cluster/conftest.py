"""Fixtures of the tests on a real cluster; without one (`python -m tests.real_cluster`) none is collected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.real_cluster.operators import Operators
from tests.real_cluster.trials import Bench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.real_cluster.cluster import Cluster


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Ignore the tests unless a plugin provides the cluster (__main__.py)."""
    return None if _brought(config) else True


def _brought(config: pytest.Config) -> list[Cluster]:
    plugins = config.pluginmanager.get_plugins()
    return [each.real_cluster for each in plugins if hasattr(each, "real_cluster")]


@pytest.fixture(scope="session")
def real(request: pytest.FixtureRequest) -> Cluster:
    """Return the cluster of the tests."""
    return _brought(request.config)[0]


@pytest.fixture(scope="module")
def operators(real: Cluster) -> Iterator[Operators]:
    """Return the real operators: a test installs those that it needs; after the last test of a file all are removed."""
    if "operators" not in real.programs:
        pytest.skip("operators were not built: start with --operators")
    installed = Operators(real)
    yield installed
    installed.remove()


@pytest.fixture
def pods(real: Cluster) -> None:
    """Skip unless pods really run, for tests with a trial."""
    if not real.runs_pods:
        pytest.skip("pods do not run on simulated nodes")


@pytest.fixture
def bench(real: Cluster, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """Create the test's namespace and a ServiceAccount with the printed permissions, and return a runner of the
    product."""
    with Bench.opened(real, request.node.name, tmp_path, request.node.user_properties) as opened:
        yield opened
