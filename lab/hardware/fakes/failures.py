"""Output of torch and torchrun for a job that fails.

The texts and their order are as recorded with torch 2.11 (`NCCL_NET=IB` without a device) and as in torchrun's summary
of failed children.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .options import Options

_LINE = "=" * 60
_DASH = "-" * 60


def announce_threads(local: int) -> None:
    """Print torchrun's first message if it starts several processes without OMP_NUM_THREADS."""
    if local > 1 and not os.environ.get("OMP_NUM_THREADS"):
        head = _head("W", "torch/distributed/run.py:851")
        stars = "*" * 41
        text = (
            "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system "
            "being overloaded, please further tune the variable for optimal performance in your application as needed. "
        )
        print("\n".join(head + " " + line for line in ("", stars, text, stars)), file=sys.stderr, flush=True)


def nccl(
    options: Options,
    ranks: Sequence[dict[str, Any]],
    reason: str,
    version: str,
    error: str = "invalid usage",
    meaning: str = "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
) -> int:
    """Print every rank's exception after NCCL failed; by default because no network could be initialised."""
    for rank in ranks:
        head = f"[rank{rank['rank']}]: "
        lines = [
            "Traceback (most recent call last):",
            f'  File "{options.script}", line 1, in <module>',
            "    dist.all_reduce(tensor)",
            '  File "/usr/local/lib/python3.12/dist-packages/torch/distributed/distributed_c10d.py", line 3068, in '
            "all_reduce",
            "    work = group.allreduce([tensor], opts)",
            "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:93, "
            f"{error} (run with NCCL_DEBUG=WARN for details), NCCL version {version}",
            meaning,
            "Last error:",
            reason,
        ]
        print("\n".join(head + line for line in lines), file=sys.stderr)
    return _child_failed(options, ranks, 1)


def invalid_device(options: Options, node: dict[str, Any], gpus: int) -> int:
    """Print the errors for more processes than GPUs."""
    ranks = node["ranks"][gpus:]
    for rank in ranks:
        head = f"[rank{rank['rank']}]: "
        why = "no CUDA-capable device is detected" if gpus == 0 else "invalid device ordinal"
        lines = [
            "Traceback (most recent call last):",
            f'  File "{options.script}", line 1, in <module>',
            "    torch.cuda.set_device(local_rank)",
            f"torch.AcceleratorError: CUDA error: {why}",
            "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might "
            "be incorrect.",
        ]
        print("\n".join(head + line for line in lines), file=sys.stderr)
    return _child_failed(options, ranks, 1)


def rendezvous(reason: str) -> int:
    """Print the error for nodes that did not join."""
    print(
        "Traceback (most recent call last):\n"
        '  File "/usr/local/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
        '  File "/usr/local/lib/python3.12/dist-packages/torch/distributed/elastic/rendezvous/'
        'static_tcp_rendezvous.py", line 67, in next_rendezvous\n    self._store = TCPStore(\n' + reason,
        file=sys.stderr,
    )
    return 1


def terminated(number: int) -> None:
    """Print the agent's messages for SIGTERM: it stops its children."""
    head = _head("W", "torch/distributed/elastic/agent/server/api.py:739")
    print(f"{head} Received {number} death signal, shutting down workers", file=sys.stderr)
    print(
        f"torch.distributed.elastic.multiprocessing.api.SignalException: Process {os.getpid()} got signal: {number}",
        file=sys.stderr,
        flush=True,
    )


def _child_failed(options: Options, ranks: Sequence[dict[str, Any]], code: int) -> int:
    first = ranks[0]
    head = _head("E", "torch/distributed/elastic/multiprocessing/api.py:984")
    print(
        f"{head} failed (exitcode: {code}) local_rank: {first['local']} (pid: {first['pid']}) of binary: "
        "/usr/bin/python3",
        file=sys.stderr,
    )
    summary: list[str] = [
        "Traceback (most recent call last):",
        '  File "/usr/local/bin/torchrun", line 8, in <module>',
        "    sys.exit(main())",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        _LINE,
        f"{options.script} FAILED",
        _DASH,
        "Failures:",
    ]
    for number, rank in enumerate(ranks[1:], 1):
        summary += _entry(number, rank, code)
    if len(ranks) == 1:
        summary.append("  <NO_OTHER_FAILURES>")
    summary += [_DASH, "Root Cause (first observed failure):", *_entry(0, first, code), _LINE]
    print("\n".join(summary), file=sys.stderr, flush=True)
    return 1


def _entry(number: int, rank: dict[str, Any], code: int) -> list[str]:
    return [
        f"[{number}]:",
        "  time      : " + time.strftime("%Y-%m-%d_%H:%M:%S"),
        f"  host      : {rank['host']}",
        f"  rank      : {rank['rank']} (local_rank: {rank['local']})",
        f"  exitcode  : {code} (pid: {rank['pid']})",
        "  error_file: <N/A>",
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
    ]


def _head(level: str, place: str) -> str:
    now = time.time()
    return "{}{}.{:06d} {} {}]".format(
        level, time.strftime("%m%d %H:%M:%S", time.localtime(now)), int(now % 1 * 1e6), os.getpid(), place
    )
