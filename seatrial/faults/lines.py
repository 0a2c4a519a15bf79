"""The lines by which the reader of logs recognises a fault: `lines:` of an entry of logs/*.yaml, and all of quiet.yaml.

A line has ``pattern``, a regular expression or several. Each needs constant words, as long and rare as possible (no
``(?i)``): a gate looks for those words, so that most lines of a log meet no pattern.

Its other fields:

- ``role``: cause (the default: by itself the reason of a failure), why (explains a choice such as sockets or no
  GPUDirect, and is a fault only together with that choice, even if other lines of its entry are causes), degraded
  (works, but below the hardware's performance), consequence (another rank failed first), or benign (harmless).
- ``who``: nccl if only NCCL or one of its plugins prints it, others (the default) if it is on separate lines.
- ``lasting``: an NCCL line after which nothing is proven, even by a job that completed.
- ``last``: a line with less information than any other of its ``who``: only a failed call, or a place in NCCL's code.
- ``before``: faults whose lines (of the same ``who``) are tried after this one, if both match a text.
- ``example``: a text that it matches and none before it does, or several; ``near_miss``: one that it does not match.

The first line that matches a text counts. The order: others, NCCL's, ``lasting`` ones, then the ``last`` ones; within
each the order of files and entries, except for ``before``. `python -m seatrial.faults` writes them in that order into
the pods' file (COMPILED).

The words are those of NCCL's WARN(...) texts (libnccl.so 2.18 to 2.30) and aws-ofi-nccl's (NCCL_OFI_WARN); of torch
(torch/csrc/distributed/c10d: socket.cpp, TCPStore.cpp, ProcessGroupNCCL.cpp, reducer.cpp; torch/distributed,
torch/cuda, torch/utils/data; third_party/gloo); of cudaGetErrorString, nvmlErrorString, libnvidia-container and
ld.so(8); of Open MPI's help-*.txt, Hydra, PMIx, Slurm (src/common/slurm_errno.c, plugins/auth/munge), ssh(1), enroot,
pyxis, runc (libcontainer) and Apptainer; of Ray, vLLM, SGLang, DeepSpeed, Megatron-LM, fairseq and Lightning; of oneCCL
(internal_kvs.cpp) and UCX (ib_device.c, ib_mlx5_dv.c); of modprobe(8) and the kernel (kernel/module, mlx5_core, aer.c).
Comments name the source file of a line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .catalogue import FOLDER, load

COMPILED = FOLDER.parent / "logs" / "reader" / "events" / "symptoms.json"
CAUSE, OTHERS, NCCL = "cause", "others", "nccl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One kind of line, and the fault that it shows: "" if it shows none."""

    fault: str
    pattern: tuple[str, ...]
    example: tuple[str, ...]
    near_miss: tuple[str, ...] = ()
    role: str = CAUSE
    who: str = OTHERS
    lasting: bool = False
    last: bool = False
    before: tuple[str, ...] = ()

    @classmethod
    def of(cls, fault: str, entry: Mapping[str, Any]) -> Line:
        """Return the line of an entry. Raises TypeError for an unknown key."""
        lists = {key: entry.get(key, ()) for key in ("pattern", "example", "near_miss", "before")}
        texts = {key: (each,) if isinstance(each, str) else tuple(each) for key, each in lists.items()}
        return cls(**{"fault": fault, **entry, **texts})

    def compiled(self) -> str:
        """Return the reader's part as one line of JSON: role and who only if they are not the default."""
        usual = {"role": CAUSE, "who": OTHERS, "lasting": False}
        specified = {key: value for key in usual if (value := getattr(self, key)) != usual[key]}
        return json.dumps({"fault": self.fault, **specified, "pattern": "|".join(self.pattern)}, separators=(",", ":"))


def read_lines(folder: Path = FOLDER / "logs") -> list[Line]:
    """Return the lines of the catalogue in the order of the files and of their entries."""
    lines = []
    for path in sorted(folder.glob("*.yaml")):
        document = load(path.read_text(encoding="utf-8"))
        entries = document.get("faults", {}).items()
        lines += [Line.of(fault, each) for fault, entry in entries for each in entry.get("lines", ())]
        lines += [Line.of(each.pop("fault", ""), each) for each in document.get("lines", ())]
    return lines


def in_order(lines: list[Line]) -> list[Line]:
    """Return the lines in the order of matching. Raises ValueError for a cycle of ``before``."""
    lines = sorted(lines, key=lambda line: (line.who != OTHERS, line.last, line.lasting))
    placed: dict[Line, None] = {}
    open_lines: list[Line] = []

    def place(line: Line) -> None:
        if line in open_lines:
            raise ValueError(f"before: each goes before another one: {', '.join(each.fault for each in open_lines)}")
        open_lines.append(line)
        for other in first.get((line.who, line.fault), ()):
            if other not in placed:
                place(other)
        open_lines.pop()
        placed[line] = None

    first: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        for fault in line.before:
            first.setdefault((line.who, fault), []).append(line)
    for line in lines:
        if line not in placed:
            place(line)
    return list(placed)


def compiled() -> str:
    """Return the pods' part of the catalogue: a line for each kind of line, in the order of matching."""
    return "[\n" + ",\n".join(line.compiled() for line in in_order(read_lines())) + "\n]\n"
