"""What the tests against a real cluster may ask for; without one (`python -m tests.real_cluster`) none is collected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.real_cluster.trials import Bench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.real_cluster.cluster import Cluster


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """The plugin brings the cluster."""
    return None if any(hasattr(each, "REAL_CLUSTER") for each in config.pluginmanager.get_plugins()) else True


@pytest.fixture
def bench(cluster: Cluster, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A namespace of the test's own, a ServiceAccount with the printed rights, and what starts the product there."""
    with Bench.opened(cluster, request.node.name, tmp_path) as opened:
        yield opened
