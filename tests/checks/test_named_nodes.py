"""Names given to `--on`: an unknown node is refused with the nearest name; an undecidable one is accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from checks.framework.named_nodes import refuse_unknown, tried
from jobs.cluster.client.errors import ClusterError, Forbidden, Unreachable

if TYPE_CHECKING:
    from pathlib import Path

NODES = ("gpu-a", "gpu-b", "gpu-c")


class Nodes:
    """A server with these nodes; ``selects``: whether it supports field selectors."""

    def __init__(self, *names: str, selects: bool = True, error: ClusterError | None = None) -> None:
        self.names, self.selects, self.error = names, selects, error
        self.lists = 0

    def list(self, path: str, *, deadline_s: float, fieldSelector: str = "") -> tuple[list[Any], str]:  # noqa: N803
        assert path == "/api/v1/nodes"
        assert 0 < deadline_s <= 15
        self.lists += not fieldSelector
        if self.error:
            raise self.error
        shown = [n for n in self.names if not (fieldSelector and self.selects) or fieldSelector == f"metadata.name={n}"]
        return [{"metadata": {"name": name}} for name in shown], "1"


@pytest.mark.parametrize("selects", [True, False])
@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("gpu-a", "gpu-d"), "--on gpu-d: no such node is in the cluster; did you mean gpu-[abc]"),
        (("Gpu-a", "gpu-b"), "--on Gpu-a: no such node is in the cluster; did you mean gpu-a"),
        (("x", "y"), "--on x, y: no such nodes are in the cluster; there are: gpu-a, gpu-b, gpu-c$"),
        (("gpu=a,x", "gpu-b"), "--on gpu=a,x: no such node"),
        (("gpu-e",), "--on gpu-e: neither the folder of a run nor two nodes of the cluster; did you mean gpu-[abc]"),
    ],
)
def test_what_is_no_node_is_refused_with_the_nearest(
    names: tuple[str, ...], said: str, tmp_path: Path, *, selects: bool
) -> None:
    with pytest.raises(pytest.UsageError, match=said) as refused:
        refuse_unknown(names, Nodes(*NODES, selects=selects), tmp_path)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("selects", [True, False])
def test_nodes_that_are_there_are_let_through_without_reading_the_fleet(tmp_path: Path, *, selects: bool) -> None:
    nodes = Nodes(*NODES, selects=selects)
    refuse_unknown(("gpu-c", "gpu-a"), nodes, tmp_path)  # type: ignore[arg-type]
    refuse_unknown(("gpu-a",), nodes, tmp_path)  # type: ignore[arg-type]  # too few is the trial's to say
    assert nodes.lists == 0


@pytest.mark.parametrize(
    "nodes",
    [
        Nodes(),
        Nodes(*NODES, error=Forbidden("GET /api/v1/nodes", status=403, message="no")),
        Nodes(*NODES, error=Unreachable("GET /api/v1/nodes: refused")),
        None,
    ],
)
def test_what_cannot_be_known_is_left_to_the_checks(nodes: Nodes | None, tmp_path: Path) -> None:
    """A server that is down, hides its nodes or has none: a typo cannot be detected."""
    refuse_unknown(("gpu-d", "gpu-e"), nodes, tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("nodes", [Nodes(*NODES), Nodes(), None])
def test_a_folder_that_is_not_there_is_refused_with_the_nearest_run(nodes: Nodes | None, tmp_path: Path) -> None:
    """Folders without a record are not proposed, however similar; a folder of repeats is."""
    for name in ("before/report.json", "befor_/notes.txt", "runs/repeat/one/report.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("{}")
    with pytest.raises(pytest.UsageError, match=r"--on befor: neither .*; did you mean before\?$"):
        refuse_unknown(("befor",), nodes, tmp_path)  # type: ignore[arg-type]
    for text, said in (
        ("./befor/", r"there is no such folder; did you mean \./before\?$"),
        ("runs/repeats", r"there is no such folder; did you mean runs/repeat\?$"),
        (f"{tmp_path}/befor", rf"no such folder; did you mean {tmp_path}/before\?$"),
        ("befor_", r"holds no report\.json; did you mean before\?$"),
        ("no/such", "there is no such folder$"),
    ):
        with pytest.raises(pytest.UsageError, match=said):
            tried(text, tmp_path)
    assert tried("befor", tmp_path) == ()  # may be a node
