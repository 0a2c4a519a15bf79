"""Ranks of a program over gloo, forked from a process that has imported torch, since importing takes longer than most
of their runs."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

from jobs.trial import payload
from tests.ports import free_port

HANG_S = 600
"""Upper limit, which no passing test reaches."""

FORKS = r"""
import json, os, runpy, sys, traceback
import torch, torch.distributed.checkpoint, torch.distributed.device_mesh, torch.distributed.fsdp, torch.distributed.tensor
import torch._dynamo, torch._inductor  # the first optimizer imports them

def rank_of(order, rank):
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(os.path.join(order["folder"], "%s.%d" % (name, rank)), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    local = rank % order["local"]
    os.environ.clear()
    os.environ.update(order["env"], RANK=str(rank), LOCAL_RANK=str(local))
    sys.argv[:] = [order["archive"], *order["args"]]
    sys.path.insert(0, order["archive"])
    exec(order["before"], {"rank": rank, "torch": torch})
    runpy.run_path(order["archive"], run_name="__main__")

print("ready", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    pids = [os.fork()]
    while pids[-1] and len(pids) < order["ranks"]:
        pids.append(os.fork())
    if not pids[-1]:
        code = 0
        try:
            rank_of(order, len(pids) - 1)
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)
"""


class Ended(NamedTuple):
    """A rank's exit and output."""

    code: int
    out: str
    err: str


class Ranks:
    """Starts ranks of programs, one set after the other."""

    def __init__(self, python: str, folder: Path) -> None:
        self._folder = folder
        self._archive = folder / payload.ARCHIVE
        self._archive.write_bytes(payload.archive(payload.files()))
        self._environment = {key: value for key, value in os.environ.items() if key.startswith(("COV", "LD_"))}
        self._process = subprocess.Popen(
            [python, "-c", FORKS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        assert self._read() == b"ready\n"

    def run(self, *args: str, ranks: int = 2, local: int = 0, before: str = "", **env: str) -> list[Ended]:
        """Run a program of the archive as each rank; `local`: ranks per node; `before`: code that a rank executes
        first, with its `rank`."""
        assert self._process.stdin is not None
        local = local or ranks
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
        place |= {"LOCAL_WORLD_SIZE": str(local), "SEATRIAL_BENCH_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
        order: dict[str, Any] = {"archive": str(self._archive), "args": args, "ranks": ranks, "local": local}
        order |= {
            "before": before,
            "folder": str(self._folder),
            "env": {**self._environment, "PATH": os.environ["PATH"], **place, **env},
        }
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        codes = json.loads(self._read())
        texts = [[(self._folder / f"{name}.{rank}").read_text() for name in ("out", "err")] for rank in range(ranks)]
        return [Ended(code, *text) for code, text in zip(codes, texts, strict=True)]

    def stop(self) -> None:
        """End the process and all remaining ranks."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        until = time.monotonic() + HANG_S
        while not select.select([self._process.stdout], [], [], 1)[0]:
            assert time.monotonic() < until, "the ranks do not end"
        return self._process.stdout.readline()
