"""The files behind the mounts of pods: fake programs, device files, sysfs; created once and shared."""

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
# Additional files of nccl-tests' images, which are recognised by name.
NCCL_TESTS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv", "broadcast")
TESTS_PROGRAMS = {f"{name}_perf": ("nccl_tests", "main") for name in NCCL_TESTS}
# Programs that are called by their full path.
PLACES = {"sshd": "/usr/sbin"}
DRIVER_PROGRAMS = {"nvidia-smi": ("nvidia_smi", "main")}
AMD_PROGRAMS = {"rocm-smi": ("rocm_smi", "main")}  # the images of ROCm contain it
DCGM_PROGRAMS = {"dcgmi": ("dcgm", "main"), "nv-hostengine": ("dcgm", "engine_main")}  # if the images have DCGM
PERFTEST_PROGRAMS = {"ib_write_bw": ("perftest", "main"), "fi_pingpong": ("perftest", "pingpong_main")}
OPTIONAL = {"tests": TESTS_PROGRAMS, "dcgm": DCGM_PROGRAMS, "perftest": PERFTEST_PROGRAMS}
# A fake runs in the interpreter of the cluster's own process. A trial starts dozens: they use compiled modules and no
# garbage collection.
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
# Next to the pods' interpreter, so that this machine's packages are not visible (site.py, PEP 405).
ENVIRONMENT = "home = {home}\ninclude-system-site-packages = false\n"


class HardwareFiles:
    """Files below a folder that containers can see; it is removed together with the cluster."""

    def __init__(self, root: Path, gpu: Mapping[str, Any], *, contained: bool) -> None:
        """`gpu`: the world's; `contained`: pods have their own mounts, and fakes ignore Python's variables."""
        self._root, self._contained, self._flags = root, contained, " -IS" if contained else ""
        self._amd = gpu.get("vendor") == "amd"
        self._amd_sysfs = str(gpu["resource"]).startswith("amd.com/")

    def replay(self, recorded: str) -> Path:
        """Return a copy of a recorded log, which pods print instead of a simulated one."""
        copy = self._root / REPLAY
        if not copy.exists():
            shutil.copyfile(recorded, copy)
        return copy

    def programs(self, lacks: frozenset[str], *, gpus: bool, more: frozenset[str] = frozenset()) -> Path:
        """Return the folder of fakes: programs of the image, and additions of the container toolkit for GPUs.

        ``more``: optional programs of the image, of OPTIONAL.
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
        # Not the virtual environment's own, which may be a copy that does not find its library from elsewhere.
        python = Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()
        compileall.compile_dir(Path(__file__).resolve().parent / "fakes", quiet=2)  # if bytecode files may be written
        for name in ("python3", "python"):
            (folder / name).symlink_to(python)
        (folder / "pyvenv.cfg").write_text(ENVIRONMENT.format(home=python.parent), encoding="utf-8")
        driver = (AMD_PROGRAMS if self._amd else DRIVER_PROGRAMS) if gpus else {}
        for name, (module, function) in (brings | driver).items():
            (folder / name).write_text(script(python, self._flags, module, function), encoding="utf-8")
            (folder / name).chmod(0o755)
        return folder

    def kernel_log(self, node: str, lines: Sequence[str]) -> Path:
        """Return the kernel log with the driver's messages on a node, which privileged pods can read."""
        path = self._root / f"{node}.kmsg"
        path.write_text("".join(f"4,{n},{n * 1000},-;{line}\n" for n, line in enumerate(lines)), encoding="utf-8")
        return path

    def device(self) -> Path:
        """Return an empty file that replaces any device file."""
        path = self._root / "device"
        path.touch()
        return path

    def verbs(self, node: str, devices: int) -> Path:
        """Return /dev/infiniband of a node with this number of devices."""
        folder = self._root / "verbs" / node
        if not folder.exists():
            folder.mkdir(parents=True)
            for name in (*(f"uverbs{number}" for number in range(devices)), "rdma_cm"):
                (folder / name).touch()
        return folder

    def net(self, whose: str, interfaces: Sequence[Object]) -> Path:
        """Return /sys/class/net of a pod without its own network."""
        folder = self._root / "net" / whose
        if not folder.exists():
            sysfs.write_interfaces(folder, interfaces)
        return folder

    def sysfs(
        self, whose: str, gpus: Sequence[Object], devices: Sequence[Object], pci: Object
    ) -> list[tuple[Path, str]]:
        """Return the sysfs folders for the NICs of a node or a pod, and for the node's PCI tree, with their places."""
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
    """Return the first lines of a script: its interpreter, or a shell if the kernel cannot parse that path.

    The path ends at a blank and, before Linux 5.1, at the 127th byte (fs/binfmt_script.c). For Python the shell's lines
    are a string.
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
