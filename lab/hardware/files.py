"""The text after the mounts of pods: fake programs, device files, sysfs; made once and shared."""

from __future__ import annotations

import compileall
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import sysfs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Object = dict[str, Any]
MOUNTED = "/run/sim"
REPLAY = "replay.log"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: program -> (module, function): from the image, from the driver, from the RDMA libraries of the image
IMAGE_PROGRAMS = {
    "torchrun": ("torchrun", "main"),
    "ibv_devinfo": ("ibv_devinfo", "main"),
    "ibv_devices": ("ibv_devinfo", "devices_main"),
    "ibstat": ("ibv_devinfo", "ibstat_main"),
    "ssh": ("ssh", "main"),
    "sshd": ("sshd", "main"),
    "mpirun": ("mpirun", "main"),
    "mpiexec": ("mpirun", "main"),
    "nslookup": ("nslookup", "main"),
}
#: The further files of nccl-tests' images; their name shows it.
NCCL_TESTS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv", "broadcast")
TESTS_PROGRAMS = {f"{name}_perf": ("nccl_tests", "main") for name in NCCL_TESTS}
#: Programs that are called by their full path.
PLACES = {"sshd": "/usr/sbin"}
DRIVER_PROGRAMS = {"nvidia-smi": ("nvidia_smi", "main")}
AMD_PROGRAMS = {"rocm-smi": ("rocm_smi", "main")}  # the images of ROCm bring it themselves
DCGM_PROGRAMS = {"dcgmi": ("dcgm", "main"), "nv-hostengine": ("dcgm", "engine_main")}  # where the images have DCGM
PERFTEST_PROGRAMS = {"ib_write_bw": ("perftest", "main"), "fi_pingpong": ("perftest", "pingpong_main")}
OPTIONAL = {"tests": TESTS_PROGRAMS, "dcgm": DCGM_PROGRAMS, "perftest": PERFTEST_PROGRAMS}
#: A fake: the interpreter of the cluster's own process. A trial starts dozens, which find their modules compiled
#: and spend no time on their own rubbish, neither while they run nor at the end.
PROGRAM = """{start}
import gc, os, sys
gc.disable()
sys.dont_write_bytecode = True
sys.path.append({folder!r})
from fakes.{module} import {function} as main
code = main()
for stream in sys.stdout, sys.stderr:
    print(end="", file=stream, flush=True)
os._exit(code)
"""
SHEBANG = 127
#: Beside the pods' interpreter: no package of this machine is one of theirs (site.py, PEP 405).
ENVIRONMENT = "home = {home}\ninclude-system-site-packages = false\n"


class HardwareFiles:
    """Files below a folder that containers can see and that goes with the cluster."""

    def __init__(self, root: Path, gpu: Mapping[str, Any], *, contained: bool) -> None:
        """`gpu`: the world's; `contained`: pods have mounts of their own, and fakes shut out their environment."""
        self._root, self._contained, self._flags = root, contained, " -IS" if contained else ""
        self._amd = gpu.get("vendor") == "amd"
        self._amd_sysfs = str(gpu["resource"]).startswith("amd.com/")

    def replay(self, recorded: str) -> Path:
        """Return a copy of a recorded log, which pods print instead of one of their own."""
        copy = self._root / REPLAY
        if not copy.exists():
            shutil.copyfile(recorded, copy)
        return copy

    def programs(self, lacks: frozenset[str], *, gpus: bool, more: frozenset[str] = frozenset()) -> Path:
        """The folder of fakes: what an image brings, and what the container toolkit adds to pods with GPUs.

        ``more``: what else the image contains, of OPTIONAL.
        """
        offered = dict(IMAGE_PROGRAMS)
        for name in sorted(more):
            offered |= OPTIONAL[name]
        brings = {name: program for name, program in offered.items() if name not in lacks}
        without = "".join(f"-{name}" for name in [*sorted(offered.keys() - brings), *sorted(more)])
        folder = self._root / (("bin-gpu" if gpus else "bin") + without)
        if folder.exists():
            return folder
        folder.mkdir(parents=True)
        # Not the environment's own, which may be a copy that does not find its library from elsewhere.
        python = Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()
        compileall.compile_dir(Path(__file__).resolve().parent / "fakes", quiet=2)  # where they may be written
        for name in ("python3", "python"):
            (folder / name).symlink_to(python)
        (folder / "pyvenv.cfg").write_text(ENVIRONMENT.format(home=python.parent), encoding="utf-8")
        driver = (AMD_PROGRAMS if self._amd else DRIVER_PROGRAMS) if gpus else {}
        for name, (module, function) in (brings | driver).items():
            (folder / name).write_text(script(python, self._flags, module, function), encoding="utf-8")
            (folder / name).chmod(0o755)
        return folder

    def kernel_log(self, node: str, lines: Sequence[str]) -> Path:
        """What the driver of a node has written into the kernel's log, which privileged pods can read."""
        path = self._root / f"{node}.kmsg"
        path.write_text("".join(f"4,{n},{n * 1000},-;{line}\n" for n, line in enumerate(lines)), encoding="utf-8")
        return path

    def device(self) -> Path:
        """An empty file in place of any device file."""
        path = self._root / "device"
        path.touch()
        return path

    def verbs(self, node: str, devices: int) -> Path:
        """Return /dev/infiniband of a node with so many devices."""
        folder = self._root / "verbs" / node
        if not folder.exists():
            folder.mkdir(parents=True)
            for name in (*(f"uverbs{number}" for number in range(devices)), "rdma_cm"):
                (folder / name).touch()
        return folder

    def net(self, whose: str, interfaces: Sequence[Object]) -> Path:
        """/sys/class/net of a pod that has no network of its own."""
        folder = self._root / "net" / whose
        if not folder.exists():
            sysfs.write_interfaces(folder, interfaces)
        return folder

    def sysfs(
        self, whose: str, gpus: Sequence[Object], devices: Sequence[Object], pci: Object
    ) -> list[tuple[Path, str]]:
        """What sysfs shows of the NICs of a node or a pod, and of the node's PCI tree: folders and their places."""
        folder = self._root / "sysfs" / whose
        if not folder.exists():
            tree = sysfs.TREE if self._contained else str(folder / "tree")
            sysfs.write_devices(folder / "class", folder / "live", devices, tree)
            sysfs.write_verbs(folder / "verbs", devices)
            sysfs.write_tree(folder / "tree", sysfs.entries(gpus, devices, amd=self._amd_sysfs), pci, tree)
        return [
            (folder / "class", "/sys/class/infiniband"),
            (folder / "verbs", "/sys/class/infiniband_verbs"),
            (folder / "tree", sysfs.TREE),
            (folder / "tree" / "bus", "/sys/bus/pci/devices"),
            (folder / "live", sysfs.LIVE),
        ]


def first_lines(python: Path, flags: str = "") -> str:
    """Return how a script begins: its interpreter, or a shell where the kernel cannot read that path.

    A blank ends the path there, and so did the 127th byte before Linux 5.1 (fs/binfmt_script.c). To Python the shell's
    lines are a text.
    """
    start = f"#!{python}{flags}"
    if len(start) < SHEBANG and len(str(python).split()) == 1:
        return start
    return f"""#!/bin/sh
'''exec' {shlex.quote(str(python))}{flags} "$0" "$@"
' '''"""


def script(python: Path, flags: str, module: str, function: str) -> str:
    """Return the text of a fake."""
    here = str(Path(__file__).resolve().parent)
    return PROGRAM.format(start=first_lines(python, flags), folder=here, module=module, function=function)
