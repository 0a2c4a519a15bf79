"""The whole pod side on one real GPU: two pods that act as two hosts share it, and NCCL connects them by sockets.

NCCL refuses two ranks of one host on one GPU; with separate host ids (`NCCL_HOSTID`) they are two hosts.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.by_hand import misfit
from tests.ports import free_port
from tests.waiting import HANG_S

from .conftest import Pods

pytestmark = pytest.mark.slow
BENCH = {"min_bytes": 1 << 20, "max_bytes": 1 << 24, "factor": 4, "iters": 5, "warmup": 2}


class Sharers(Pods):
    """Pods with this machine's own tools, each a separate host to NCCL."""

    def began(self) -> None:
        """Start all of them."""
        for tool in ("torchrun", "nvidia-smi"):
            beside = shutil.which(tool, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
            (self.bin / tool).symlink_to(beside or pytest.skip(f"there is no {tool}"))
        libraries = {key: os.environ[key] for key in ("LD_LIBRARY_PATH", "CUDA_HOME") if key in os.environ}
        for rank in range(self.trial["nodes"]):
            self.start(rank, **libraries, NCCL_HOSTID=f"host{rank}", NCCL_SOCKET_IFNAME="lo", HOME=str(self.folder))

    def ended(self) -> dict[int, dict]:
        """Wait for all; return rank -> stage -> data, and keep their output in the folder."""
        for rank, process in self.processes.items():
            said, _ = process.communicate(timeout=HANG_S)
            (self.folder / f"pod{rank}.log").write_bytes(said)
        return {rank: self.evidence((self.folder / f"pod{rank}.log").read_bytes(), rank) for rank in self.processes}


@pytest.fixture(scope="module")
def shared_gpu(tmp_path_factory):
    """Run pods of a trial on the one GPU to their end."""
    if importlib.util.find_spec("torch") is None or not importlib.import_module("torch").cuda.is_available():
        pytest.skip("needs a GPU that torch can use")
    made = []

    def run(name: str, nodes: int, **options) -> dict[int, dict]:
        folder = tmp_path_factory.mktemp(name)
        trial = {
            "schema": 1,
            "run": "r-gpu",
            "job": "seatrial-r-gpu",
            "nodes": nodes,
            "gpus_per_node": 1,
            "gpu_kind": "nvidia",
            "peers": [f"127.0.0.{number + 1}" for number in range(nodes)],
            "master_port": free_port(),
            "deadline_s": 500,
            "dns_timeout_s": 5,
            "port_timeout_s": 5,
            "collective_timeout_s": 120,
            "peer_wait_s": 60,
            "bench": BENCH,
            "collectives": [],
            **options,
        }
        made.append(Sharers(folder, trial))
        made[-1].began()
        return made[-1].ended()

    yield run
    for pods in made:
        pods.stop()


@pytest.fixture(scope="module")
def evidence(shared_gpu, tmp_path_factory) -> dict[int, dict]:
    """Return the evidence of two pods with every option of a trial."""
    plain = [{"name": "ring", "env": {"NCCL_ALGO": "Ring"}}, {"name": "default", "env": {}}]
    operations = ("all_gather", "reduce_scatter", "all_to_all", "sendrecv", "broadcast")
    place = str(tmp_path_factory.mktemp("volume"))
    return shared_gpu(
        "trial",
        2,
        collectives=[*plain, *({"name": op, "op": op, "env": {}} for op in operations)],
        training={"steps": 20, "limit_s": 200},
        checkpoint={"path": place, "shared": True, "kinds": {"path": "claim"}, "bytes": 1 << 28},
    )


def test_a_fleet_is_swept(shared_gpu) -> None:
    """Four agents on the GPU: every node in two pairs, then all of them in one job; no test fails."""
    stages_of = shared_gpu(
        "fleet",
        4,
        sweep={
            "token": "a-token",
            "nodes": [f"gpu-node-{number}" for number in range(4)],
            "rules": {"alone": False, "matchings": 2},
            "pair": BENCH,
            "alone": BENCH,
            "fabric": "socket",
            "gdr": False,
            "budget_s": 400,
            "settle_s": 20,
            "test_s": 90,
        },
    )[0]
    tests = [test for name, data in stages_of.items() if name.startswith("sweep.round.") for test in data["tests"]]
    assert {test["outcome"] for test in tests} == {"measured"}, tests
    assert all(test["busbw"] > 0 for test in tests)
    assert stages_of["sweep.job"]["outcome"] == "measured"
    assert stages_of["sweep.end"] == {"why": ""}


def test_every_collective_is_measured_and_right(evidence) -> None:
    """Real NCCL over sockets: complete tables, no wrong value; each rank's copies and products are reported."""
    names = [name for name in evidence[0] if name.startswith("collective.")]
    assert len(names) == 7
    for name in names:
        collective = evidence[0][name]
        assert [evidence[rank][name]["exit"] for rank in (0, 1)] == [0, 0], collective["output_tail"]
        assert "# Out of bounds values : 0 OK" in collective["output_tail"]


def test_the_ranks_train(evidence) -> None:
    """DDP and FSDP2 on a GPU: bf16, fp16 and fp8 products are bitwise identical, the loss falls, clocks are sampled."""
    digests = set()
    for rank in (0, 1):
        training = evidence[rank]["training"]
        assert training["exit"] == 0, training["output_tail"]
        assert misfit("training", training) == ""
        (mine,) = training["ranks"]
        assert [each["kind"] for each in mine["products"] if each["made"] and not each["differs"]] == [
            "bf16",
            "fp16",
            "fp8",
        ]
        digests.add(tuple(each["digest"] for each in mine["products"]))
        assert [mode["mode"] for mode in mine["modes"]] == ["ddp", "fsdp2"]
        for mode in mine["modes"]:
            assert mode["steps"] >= 20
            assert mode["bad_step"] is None
            assert mode["losses"][-1] < mode["losses"][0]
        assert training["samples"][0]["sm_mhz"] > 0
    assert len(digests) == 1


def test_a_checkpoint_is_saved_torn_and_resumed(evidence) -> None:
    """DTensors on GPUs, saved by all ranks; one is killed while saving, and the last verified step is loaded."""
    for rank in (0, 1):
        checkpoint = evidence[rank]["checkpoint"]
        assert checkpoint["error"] is None, checkpoint
        assert checkpoint["verified"]["ok"] is True
        assert (checkpoint["crash"]["torn"], checkpoint["resume"]["step"], checkpoint["resume"]["wrong"]) == (
            True,
            2,
            0,
        )
