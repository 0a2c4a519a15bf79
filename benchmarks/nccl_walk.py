"""The number of our functions that a line of an NCCL log passes from its file to the report of `seatrial explain`.

Two figures for a log of channel lines: all functions entered, and those that a log of one foreign line does not enter.
Two more for a log that ends with a WARN line: all, and those that the channel lines do not enter. Comprehensions and
lambdas count as part of their function. With --list each function is named.
"""

import contextlib
import io
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cli import explain  # noqa: E402 -- after the path is set

PACKAGES = tuple(str(ROOT / name) for name in ("checks", "cli", "jobs", "reports", "seatrial"))
LINE = (
    "gpu-{node}:{pid}:{pid} [{gpu}] NCCL INFO Channel {channel:02d}/0 : {src}[{gpu}] -> {dst}[{gpu}] [send]"
    " via NET/IB/{gpu}/GDRDMA\n"
)


def entered(text):
    """Return the functions that judging a log enters, as (file, name)."""
    found = set()

    def trace(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_name[0] != "<" and code.co_filename.startswith(PACKAGES):
            found.add((str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname))

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        log = Path(folder, "x.log")
        log.write_text(text)
        for profile in (None, trace):  # work done only once comes first
            sys.setprofile(profile)
            try:
                explain.main([str(log)])
            finally:
                sys.setprofile(None)
    return found


ORDER = f"gpu-0:1000:1000 [0] NCCL INFO Channel 00/04 : {' '.join(map(str, range(16)))}\n"  # states the job's size
CHANNELS = ORDER + "".join(
    LINE.format(node=rank // 8, pid=1000 + rank, gpu=rank % 8, channel=channel, src=rank, dst=(rank + 8) % 16)
    for rank in range(16)
    for channel in range(4)
)
WARN = (
    "gpu-0:1000:1050 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4000> with"
    " status=12 opcode=0 len=0 vendor err 129 (Recv) localGid ::ffff:10.1.0.1 remoteGids::ffff:10.2.0.1 hca mlx5_1\n"
)
walk, warned = entered(CHANNELS), entered(CHANNELS + WARN)
for name, functions in (
    ("a log of channel lines", walk),
    ("of which its lines are the reason", walk - entered("hello\n")),
    ("a log that ends with a warning", warned),
    ("of which the warning is the reason", warned - walk),
):
    print(f"{name}: {len(functions)} functions of {len({file for file, _ in functions})} files")
    if "--list" in sys.argv:
        print(*(f"  {file} {function}" for file, function in sorted(functions)), sep="\n")
