"""Two nodes of a simulated cluster as two processes of this machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.hardware import files as hardware
from tests.ports import free_port
from tests.waiting import HANG_S

SUBSYSTEMS = "INIT,BOOTSTRAP,ENV,NET,GRAPH,TUNING"


class Pair:
    """A job of two nodes: `run` starts torchrun on both and returns their output."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.collective: dict = {}
        self.rdma: list = [True, True]
        self.rates: dict = {}  # (node, rail) -> Gb/s, if a card is slower than the others
        self.gpus = 8

    def state(self, node: int) -> Path:
        nics = [
            {
                "name": f"mlx5_{rail}",
                "port": 1,
                "state": "ACTIVE",
                "rate_gbps": self.rates.get((node, rail), 400),
                "link_layer": "InfiniBand",
                "rail": rail,
            }
            for rail in range(8)
        ]
        gpus = [
            {
                "physical": index,
                "uuid": f"GPU-{node}{index}",
                "bus_id": f"00000000:{0x1B + 16 * index:02X}:00.0",
                "cpus": "0-47",
            }
            for index in range(self.gpus)
        ]
        path = self.folder / f"node{node}.json"
        rdma = {"devices": nics} if self.rdma[node] else None
        path.write_text(
            json.dumps({"hostname": f"job-{node}", "gpus": gpus, "rdma": rdma, "collective": self.collective})
        )
        return path

    def program(self, name: str) -> str:
        path = self.folder / name
        if path.exists():  # the other node may be reading it now
            return str(path)
        module, function = (hardware.IMAGE_PROGRAMS | hardware.DRIVER_PROGRAMS)[name]
        path.write_text(hardware.script(Path(sys.executable).resolve(), " -IS", module, function))
        path.chmod(0o755)
        return str(path)

    def ask(self, name: str, *arguments: str, node: int = 0) -> subprocess.CompletedProcess:
        env = {"PATH": "/usr/bin:/bin", "SIM_NODE_JSON": str(self.state(node))}
        return subprocess.run(
            [self.program(name), *arguments], env=env, capture_output=True, text=True, timeout=HANG_S, check=False
        )

    def start(self, node: int, env: dict, port: int, *extra: str) -> subprocess.Popen:
        full = {
            "PATH": "/usr/bin:/bin",
            "SIM_NODE_JSON": str(self.state(node)),
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": SUBSYSTEMS,
            "NCCL_DEBUG_FILE": f"{self.folder}/nccl.%h.%p.log",
            **env,
        }
        with (self.folder / f"out{node}").open("w") as out, (self.folder / f"err{node}").open("w") as err:
            return subprocess.Popen(
                [
                    self.program("torchrun"),
                    "--nnodes=2",
                    f"--nproc-per-node={self.gpus}",
                    f"--node-rank={node}",
                    "--master-addr=127.0.0.1",
                    f"--master-port={port}",
                    *extra,
                    "/seatrial/allreduce.py",
                    "--min-bytes=1048576",
                    "--max-bytes=8589934592",
                    "--factor=2",
                    "--iters=20",
                    "--warmup=5",
                ],
                env={key: value for key, value in full.items() if value is not None},
                stdout=out,
                stderr=err,
            )

    def run(self, **env) -> "Answer":
        for old in self.folder.glob("nccl.*.log"):
            old.unlink()
        port = free_port()
        jobs = [self.start(node, env, port) for node in (1, 0)]
        return self.answer([job.wait(timeout=HANG_S) for job in reversed(jobs)])

    def answer(self, codes: list[int]) -> "Answer":
        return Answer(self.folder, codes)


class Answer:
    """Exit codes, standard output and error of both nodes, and the log of every rank."""

    def __init__(self, folder, codes):
        self.codes = codes
        self.out = [(folder / f"out{node}").read_text() for node in (0, 1)]
        self.err = [(folder / f"err{node}").read_text() for node in (0, 1)]
        self.logs = {path.name: path.read_text() for path in sorted(folder.glob("nccl.*.log"))}

    @property
    def log(self) -> str:
        return "".join(self.logs.values())

    def rank(self, number: int) -> str:
        return next(text for text in self.logs.values() if f" rank {number} nranks " in text)

    @property
    def rows(self) -> list[list[str]]:
        return [line.split() for line in self.out[0].splitlines() if line[:1] == " "]

    def busbw(self, size: int) -> float:
        return next(float(row[11]) for row in self.rows if int(row[0]) == size)


@pytest.fixture
def pair(tmp_path):
    return Pair(tmp_path)
