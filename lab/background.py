"""A cluster for synchronous programs: it runs in a thread, for the duration of a `with` block.

    with running("gpu-missing", api_faults="storm:7") as cluster:
        cluster.write_kubeconfig(path)
        subprocess.run(["my-tool", "--kubeconfig", path])

A program with its own event loop uses `Cluster` in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from .chaos.api_faults import ApiFaults
from .cluster import Cluster
from .scenario import Scenario, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from .apiserver.store import Store

T = TypeVar("T")
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Running:
    """A cluster that runs in another thread."""

    cluster: Cluster
    _loop: asyncio.AbstractEventLoop

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self.cluster.server

    @property
    def kubeconfig(self) -> str:
        """The kubeconfig as text: the administrator's, or that of the scenario's user."""
        return self.cluster.kubeconfig

    @property
    def nobody_kubeconfig(self) -> str:
        """The kubeconfig of a user without permissions, as text."""
        return self.cluster.nobody_kubeconfig

    @property
    def happened(self) -> Mapping[str, int]:
        """The number of API faults so far, by kind."""
        return dict(self.cluster.happened)

    def write_kubeconfig(self, path: Path) -> Path:
        """Write the kubeconfig to a file; return its path."""
        path.touch(mode=0o600)
        path.write_text(self.kubeconfig, encoding="utf-8")
        return path

    def do(self, change: Callable[[Store], T]) -> T:
        """Run `change(store)` in the cluster's own thread, between two requests: inspect objects, or break something.

        Raises its exceptions; ValueError for a cluster that does not listen (api-down).
        """
        store = self.cluster.store
        if store is None:
            raise ValueError(f"{self.cluster.scenario.name}: there is nothing behind this address")

        async def within() -> T:
            return change(store)

        return asyncio.run_coroutine_threadsafe(within(), self._loop).result(PATIENCE_S)


@contextlib.contextmanager
def running(scenario: str | Scenario = "healthy", *, api_faults: str = "", network: str = "auto") -> Iterator[Running]:
    """Run a scenario (a name, a path, or a loaded one) until the block ends, then remove everything.

    `api_faults`: NAME[:SEED]; `network`: auto, namespaces or plain. Raises ScenarioError for an invalid scenario.
    """
    chosen = load(scenario) if isinstance(scenario, str) else scenario
    if api_faults:
        chosen = chosen.under(ApiFaults.parse(api_faults))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=f"sim {chosen.name}", daemon=True)
    thread.start()

    def wait(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(PATIENCE_S)

    try:
        cluster: Cluster = wait(Cluster.start(chosen, network=network))
        try:
            yield Running(cluster, loop)
        finally:
            wait(cluster.stop())
    finally:
        wait(_end_tasks())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()


async def _end_tasks() -> None:
    """Cancel the remaining tasks of the loop, as asyncio.run does."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await asyncio.get_running_loop().shutdown_default_executor()
