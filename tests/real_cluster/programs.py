"""The real programs, built from their published modules: etcd, Kubernetes, containerd, CoreDNS, operators.

Each folder below `programs/` is one of our Go modules: its `go.mod` names the packages (`tool`) and pins their
versions, its `go.sum` their checksums. The repository contains no foreign code. A build is made once for each pair of
those two files.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

MODULES = Path(__file__).parent / "programs"
# The default build folder.
BUILT = Path(__file__).parents[2] / ".real/programs"
# The Kubernetes minors that can be built: the newest release of the module, and the oldest that Go still compiles.
MINORS = sorted(
    (each.name.removeprefix("kubernetes-") for each in MODULES.glob("kubernetes-*")),
    key=lambda minor: [int(part) for part in minor.split(".")],
)
_REQUIRED = re.compile(r"^(?:require )?\s*(\S+/\S+) (v\S+)(?: // indirect)?$", re.MULTILINE)
# Programs of a cluster with nodes; operators are built in addition.
BASE = ("etcd", "containerd", "cni", "coredns", "deviceplugin", "helm")
# Programs of a cluster with simulated nodes.
SIMULATED = ("etcd", "kwok")
# `go build` names a program after the last part of its package's path: etcd's is `server`.
CALLED_OTHERWISE = {"server": "etcd"}


class MissingToolError(Exception):
    """This machine cannot build or run a real cluster; the text names the missing part."""


def version(module: str) -> str:
    """Return the version of the first package that one of our modules builds or requires."""
    text, required = _pinned(module)
    built = re.search(r"^\s*(?:tool )?([\w.-]+\.[\w.-]+/\S+)$", text, re.MULTILINE)
    of_it = [each for each in required if built and f"{built[1]}/".startswith(f"{each}/")]
    return required[max(of_it, key=len)] if of_it else next(iter(required.values()))


def version_of(module: str, required: str) -> str:
    """Return the version of a module that one of our modules requires."""
    return _pinned(module)[1][required]


def _pinned(module: str) -> tuple[str, dict[str, str]]:
    text = (MODULES / module / "go.mod").read_text(encoding="utf-8")
    return text, dict(_REQUIRED.findall(text))


def build(module: str, folder: Path) -> Path:
    """Build the programs of one module into `folder`/`module`; return that folder.

    Raises `MissingToolError` without Go, and if the build fails (its output is printed).
    """
    source, target = MODULES / module, folder / module
    mark = target / ".built"
    pins = b"".join(path.read_bytes() for path in sorted(source.iterdir()))
    wanted = hashlib.sha256(pins).hexdigest()
    if mark.exists() and mark.read_text(encoding="utf-8") == wanted:
        return target
    if shutil.which("go") is None:
        raise MissingToolError("no Go toolchain: install Go (go.dev/doc/install)")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    started = time.monotonic()
    print(f"building {module} {version(module)} ...", flush=True)
    what = "." if (source / "main.go").exists() else "tool"
    done = subprocess.run(
        ["go", "build", "-trimpath", f"-ldflags=-s -w {_stamp(module)}", "-o", f"{target}/", what],
        cwd=source,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"},
        check=False,
    )
    if done.returncode:
        raise MissingToolError(f"{module} could not be built: go build ended with {done.returncode}")
    for name, better in CALLED_OTHERWISE.items():
        if (target / name).exists():
            (target / name).rename(target / better)
    mark.write_text(wanted, encoding="utf-8")
    print(f"built {module} in {time.monotonic() - started:.0f} s", flush=True)
    return target


def folder_of(module: str, required: str) -> Path:
    """Return the folder in which Go stores the files of a required module."""
    argv = ["go", "list", "-m", "-f", "{{.Dir}}", required]
    return Path(subprocess.run(argv, cwd=MODULES / module, capture_output=True, text=True, check=True).stdout.strip())


def on_path(built: Path = BUILT) -> None:
    """Put helm, kubectl and actionlint built here before those of the machine on the PATH."""
    places = [
        str(built / module)
        for module in (f"kubernetes-{MINORS[-1]}", "helm", "actionlint")
        if (built / module / ".built").exists()
    ]
    before = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join([*places, *(each for each in before if each not in places)])


def _stamp(module: str) -> str:
    """Return the version stamp of Kubernetes' own build, which its API reports."""
    if not module.startswith("kubernetes-"):
        return ""
    full = version(module)
    major, minor = full.removeprefix("v").split(".")[:2]
    place = "k8s.io/component-base/version"
    return f"-X {place}.gitVersion={full} -X {place}.gitMajor={major} -X {place}.gitMinor={minor}"


if __name__ == "__main__":
    try:
        for wanted in sys.argv[1:]:
            build(wanted, BUILT)
    except (MissingToolError, subprocess.CalledProcessError) as error:
        raise SystemExit(str(error)) from None
