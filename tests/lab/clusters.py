"""A whole cluster of the lab in this process, from the test's own scenario."""

import contextlib
import functools
import json

from lab.apiserver.store import ApiError
from lab.cluster import Cluster
from lab.scenario import load
from tests.waiting import seen


@contextlib.asynccontextmanager
async def cluster(tmp_path, *operators, **world):
    """Start a cluster with these operators; it ends with the block."""
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


def seen_in(cluster):
    """Wait with `seen`, and report the cluster's pods on failure."""
    return functools.partial(seen, told=functools.partial(told, cluster))


async def told(cluster):
    """Return the states of a cluster's pods, and their output."""
    lines = []
    for pod in cluster.store.list("pods", "default"):
        name = pod["metadata"]["name"]
        lines.append(f"{name}: {pod['status']}")
        for container in pod["spec"]["containers"]:
            with contextlib.suppress(ApiError):  # no container has started
                pieces = [piece async for piece in cluster.kubelet.logs("default", name, container["name"])]
                lines.append(b"".join(pieces).decode(errors="replace"))
    return "\n".join(lines)
