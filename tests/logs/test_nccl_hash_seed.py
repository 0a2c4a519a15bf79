"""One log has the same verdict in every process, though Python orders sets of strings by a seed per process."""

import json
import os
import subprocess
import sys

import pytest

from tests.logs.test_nccl_devices import DEVICE, MAKER, job_log
from tests.program import ROOT

SEEDS = range(1, 5)
CONCLUDE = """
import io, json, sys
from seatrial.logs import conclude, read
texts = json.load(sys.stdin)
print(json.dumps([conclude(read([("log", io.BytesIO(text.encode()))])) for text in texts]))
"""


def without_lists(log: str) -> str:
    return "\n".join(line for line in log.splitlines() if "NET/IB : Using" not in line) + "\n"


def inputs() -> list[str]:
    """Return logs with multi-member sets: devices in several lines, names, interfaces, rates, recordings."""
    made = [
        without_lists(job_log(MAKER, link=link)).replace("mlx5_", name)
        for link in ("RoCE", "IB")
        for name in ("mlx5_", "bnxt_re", "rdma", "irdma", "nic")
    ]
    host = MAKER.hosts[0]
    two = "".join(
        f"{host}:1000:1000 [0] NCCL INFO " + DEVICE % (4, name, 4, "RoCE", rate) + "\n"
        for name in ("mlx5_4", "mlx5_bond_0")
        for rate in (25000, 400000)
    )
    made += [job_log(MAKER) + two, without_lists(job_log(MAKER)) + two]
    return made + [path.read_text(errors="replace") for path in sorted((ROOT / "tests/logs/data").glob("**/*.log"))]


@pytest.fixture(scope="module")
def documents():
    """Return the documents of all inputs for the seed."""
    made = {}
    for seed in SEEDS:
        done = subprocess.run(
            [sys.executable, "-c", CONCLUDE],
            input=json.dumps(inputs()),
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        )
        made[seed] = json.loads(done.stdout)
    return made


@pytest.mark.parametrize("seed", SEEDS[1:])
def test_a_document_does_not_depend_on_the_hash_seed(documents, seed):
    first, other = documents[SEEDS[0]], documents[seed]
    assert len(first) == len(other) == len(inputs())
    for text, one, two in zip(inputs(), first, other, strict=True):
        assert one == two, text[:300]
