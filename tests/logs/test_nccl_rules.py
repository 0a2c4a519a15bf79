"""A rule is skipped only if the log has nothing that it could judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.logs import conclude, read
from seatrial.logs.diagnosis.judge import Judgement
from tests.logs.logmaker import Maker, interleaved, sequential, table_of
from tests.logs.symptom_rows import HEALTHY, ROWS, WARN, A, B

CONDITIONS = ("network inside a host", "NVLink fabric", "split hosts")
"""The only preconditions of their rules: if they hold, there is a fault."""
RECORDED = sorted((Path(__file__).parent / "data").rglob("*.log"))


def made(**options) -> str:
    """Return a job's log followed by a benchmark's table."""
    maker = Maker(**options)
    return sequential(maker.processes()).decode() + "\n".join(table_of(maker))


LOGS = {
    "nothing": "",
    "another program": "hello\n",
    "healthy": made(),
    "torn": interleaved(Maker().processes(), seed=3).decode()[:-700],
    "sockets": made(net="Socket"),
    "no GPUDirect": made(gdr=False),
    "one host": made(hosts=("gpu-node-0",)),
    "cut": made()[:4000],
    "table alone": "\n".join(table_of(Maker())),
    "warning that no rule knows": HEALTHY.replace(A, f"{A}{WARN}something else\n{A}", 1),
    "versions": "\n".join(
        line.replace("2.28.9", "2.27.5") if line.startswith("gpu-node-1") else line for line in HEALTHY.splitlines()
    ),
    "shared memory": "\n".join(
        line.replace("P2P/CUMEM/read", "SHM/direct/direct") if line.startswith("gpu-node-1") else line
        for line in HEALTHY.splitlines()
    ),
    "uneven hosts": HEALTHY.replace(B.partition(" ")[0], B.partition(" ")[0].replace("node-1", "node-0")),
    "one rank not connected": HEALTHY.replace("Connected all rings", "Something of rings", 1),
    "hosts apart": made(hosts=("gpu-1",), comm_id=1) + "\n" + made(hosts=("gpu-2",), comm_id=2),
    **{f"row {row}": log for row, (log, _, _) in ROWS.items()},
    **{f"{path.parent.name}/{path.name}": path.read_bytes().decode("utf-8", "replace") for path in RECORDED},
}


@pytest.mark.parametrize("name", LOGS)
def test_a_rule_that_is_passed_over_would_have_found_nothing(monkeypatch, name):
    """Applying every rule, whatever its preconditions, yields the same document."""
    text = LOGS[name]
    for log in (text, "\n".join(line for line in text.splitlines() if "WARN" not in line)):
        source = ("x", [log.encode()])
        chosen = conclude(read([source]))
        with monkeypatch.context() as patch:
            patch.setattr(Judgement, "__init__", everything(Judgement.__init__))
            assert conclude(read([source])) == chosen


def everything(begin):
    """Make a judgement whose log has all kinds of evidence."""

    def begun(judgement: Judgement, *given) -> None:
        begin(judgement, *given)
        judgement.shows = {kind: kind not in CONDITIONS or held for kind, held in judgement.shows.items()}

    return begun
