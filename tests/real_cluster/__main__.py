"""`python -m tests.real_cluster`: build a real Kubernetes, run it on this machine, and the tests of this folder against it.

    python -m tests.real_cluster [--minor 1.37] [--folder .real] [--operators] [--shell] [PYTEST-ARGUMENTS]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from . import cluster, image, programs
from .operators import MODULES as OPERATORS

ROOT = Path(__file__).parents[2]
INSIDE = "SEATRIAL_REAL_INSIDE"
NODES = ("n1", "n2", "n3", "n4")
NEEDED = ("unshare", "nsenter", "ip", "nft", "mount", "openssl", "runc")


def main() -> int:
    """Build, then start again in namespaces of its own, where cluster and tests run."""
    parser = argparse.ArgumentParser(prog="python -m tests.real_cluster", description=__doc__)
    parser.add_argument("--minor", choices=programs.MINORS, default=programs.MINORS[-1], help="of Kubernetes")
    parser.add_argument("--folder", type=Path, default=ROOT / ".real", help="everything is below it")
    parser.add_argument("--shell", action="store_true", help="a shell beside the cluster instead of the tests")
    parser.add_argument("--operators", action="store_true", help="Kueue, Trainer and the like, too: minutes more to build")
    options, rest = parser.parse_known_args()
    folder = options.folder.resolve()
    kubernetes = f"kubernetes-{options.minor}"
    if os.environ.get(INSIDE):
        return _inside(folder, kubernetes, rest, shell=options.shell, operators=options.operators)
    started = time.monotonic()
    try:
        _able()
        built = _build(folder, kubernetes, operators=options.operators)
        image.build(folder, built["coredns"] / "coredns")
    except programs.MissingToolError as error:
        print(f"no real cluster here: {error}")
        return 3
    print(f"built in {time.monotonic() - started:.0f} s", flush=True)
    group = str(os.getpid())
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private"]
    environment = {**os.environ, INSIDE: "1", "SEATRIAL_REAL_GROUP": group}
    try:
        return subprocess.run([*command, sys.executable, "-m", "tests.real_cluster", *sys.argv[1:]], env=environment, cwd=ROOT, check=False).returncode
    finally:
        cluster.remove_groups(f"seatrial-real-{group}")


class Plugin:
    """Brings the cluster to the tests (conftest.py)."""

    def __init__(self, here: cluster.Cluster) -> None:
        self.real_cluster = here


def tests(here: cluster.Cluster, rest: list[str]) -> int:
    """Run the tests of this folder against a cluster."""
    arguments = ["-p", "no:cacheprovider", *(rest or ["-v"])]
    if not any(not each.startswith("-") and "tests/" in each for each in rest):
        arguments.append(str(Path(__file__).parent))
    return int(pytest.main(arguments, plugins=[Plugin(here)]))


def _able() -> None:
    if os.geteuid() != 0:
        raise programs.MissingToolError("kubelets need root")
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        raise programs.MissingToolError(f"install {', '.join(missing)} (Debian: apt-get install runc iproute2 nftables openssl util-linux)")


def _build(folder: Path, kubernetes: str, *, operators: bool) -> dict[str, Path]:
    modules = (*programs.BASE, kubernetes, *(OPERATORS if operators else ()))
    return {module: programs.build(module, folder / "programs") for module in modules}


def _inside(folder: Path, kubernetes: str, rest: list[str], *, shell: bool, operators: bool) -> int:
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    (run / "images.tar").symlink_to(folder / "images.tar")
    built = _build(folder, kubernetes, operators=operators)
    started = time.monotonic()
    here = cluster.Cluster(run, built, kubernetes, NODES)
    try:
        here.start()
        print(f"the cluster is up after {time.monotonic() - started:.0f} s", flush=True)
        environment = {**os.environ, "KUBECONFIG": str(here.kubeconfig)}
        if shell:
            return subprocess.run([os.environ.get("SHELL", "sh"), *rest], env=environment, check=False).returncode
        return tests(here, rest)
    finally:
        here.stop()


if __name__ == "__main__":
    raise SystemExit(main())
