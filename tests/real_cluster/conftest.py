"""What the tests against a real cluster may ask for; without one (`python -m tests.real_cluster`) none is collected."""

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
    """A plugin brings the cluster (__main__.py)."""
    return None if _brought(config) else True


def _brought(config: pytest.Config) -> list[Cluster]:
    plugins = config.pluginmanager.get_plugins()
    return [each.real_cluster for each in plugins if hasattr(each, "real_cluster")]


@pytest.fixture(scope="session")
def real(request: pytest.FixtureRequest) -> Cluster:
    """The cluster that the tests run against."""
    return _brought(request.config)[0]


@pytest.fixture(scope="module")
def operators(real: Cluster) -> Iterator[Operators]:
    """The real operators: a test installs those that it needs; after the last test of a file all are removed."""
    if "operators" not in real.programs:
        pytest.skip("operators were not built: start with --operators")
    installed = Operators(real)
    yield installed
    installed.remove()


@pytest.fixture
def pods(real: Cluster) -> None:
    """For tests with a trial that must run."""
    if not real.runs_pods:
        pytest.skip("pods do not run on simulated nodes")


@pytest.fixture
def bench(real: Cluster, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A namespace of the test's own, a ServiceAccount with the printed rights, and what starts the product there."""
    with Bench.opened(real, request.node.name, tmp_path, request.node.user_properties) as opened:
        yield opened
