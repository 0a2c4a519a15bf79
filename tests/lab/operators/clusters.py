"""A whole cluster of the lab in this process, from a scenario that is written for the test."""

import asyncio
import contextlib
import json
import time

from lab.cluster import Cluster
from lab.scenario import load
from tests.waiting import HANG_S


@contextlib.asynccontextmanager
async def cluster(tmp_path, *operators, **world):
    """Start it with these operators; it ends with the block."""
    path = tmp_path / "w.yaml"
    path.write_text(
        json.dumps(
            {
                "name": "w",
                "title": "t",
                "breaks": "nothing",
                "faults": [],
                "outcome": "go",
                "world": {"operators": list(operators), **world},
            }
        )
    )
    async with await Cluster.start(load(str(path))) as started:
        yield started


async def until(condition, what):
    """Wait until something holds; its value."""
    deadline = time.monotonic() + HANG_S
    while True:
        with contextlib.suppress(KeyError, TypeError, IndexError, StopIteration, AttributeError):
            if value := condition():
                return value
        assert time.monotonic() < deadline, f"{what} did not come true"
        await asyncio.sleep(0.02)
