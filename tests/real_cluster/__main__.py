"""`python -m tests.real_cluster`: build a real Kubernetes, run it on this machine, and run this folder's tests on it.

python -m tests.real_cluster [--minor 1.37 | --kubeconfig FILE] [--folder .real] [--operators] [--shell]
[PYTEST-ARGUMENTS]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest

from . import cluster, given, image, page, programs
from .operators import MODULES as OPERATORS

ROOT = Path(__file__).parents[2]
NOT_HERE = 77
"""Exit code if no real cluster can be built, started or reached: one that pytest does not use."""
INSIDE = "SEATRIAL_REAL_INSIDE"
NEEDED = ("setpriv", "unshare", "ip", "mount", "openssl")
INOTIFY = 8
"""inotify instances per node (measured: 30 of four; kubelet, containerd)."""
NEEDED_FOR_PODS = (*NEEDED, "nsenter", "nft", "runc")


def main() -> int:
    """Build, then restart in separate namespaces, in which cluster and tests run."""
    parser = argparse.ArgumentParser(prog="python -m tests.real_cluster", description=__doc__)
    parser.add_argument("--minor", choices=programs.MINORS, default=programs.MINORS[-1], help="of Kubernetes")
    parser.add_argument("--folder", type=Path, default=ROOT / ".real", help="the folder of all files")
    parser.add_argument(
        "--simulated-nodes", action="store_true", help="nodes of KWOK, whose pods do not run: needs no root"
    )
    parser.add_argument("--nodes", type=int, default=4, help="number of nodes; 0: the control plane only")
    parser.add_argument("--page", action="store_true", help="write docs/tested-on.md from the results of all runs")
    parser.add_argument("--kubeconfig", type=Path, help="test this existing cluster; nothing is built or started")
    parser.add_argument("--shell", action="store_true", help="start a shell with the cluster instead of the tests")
    parser.add_argument(
        "--operators", action="store_true", help="build Kueue, Trainer and other operators, too, which takes minutes"
    )
    options, rest = parser.parse_known_args()
    folder = options.folder.resolve()
    kubernetes = f"kubernetes-{options.minor}"
    simulated = options.simulated_nodes or (os.geteuid() != 0 and not os.environ.get(INSIDE))
    kind = cluster.Simulated if simulated else cluster.Cluster
    if os.environ.get(INSIDE):
        names = [f"n{number}" for number in range(1, options.nodes + 1)]
        return _inside(kind, folder, kubernetes, names, rest, shell=options.shell, operators=options.operators)
    programs.on_path(folder / "programs")
    if options.kubeconfig:
        print(
            "The audit log of this cluster is not read: what a run asks beyond its rights is seen by its verdict alone."
        )
        try:
            there = given.Given(options.kubeconfig.resolve(), folder / "run")
        except (cluster.NotStartedError, subprocess.CalledProcessError) as error:
            print(f"no test can run there: {getattr(error, 'stderr', '') or error}")
            return NOT_HERE
        return tests(there, [], rest)
    started = time.monotonic()
    try:
        if simulated and not options.simulated_nodes:
            print("Kubelets need root: the nodes are KWOK's, and tests that need running pods are skipped.")
        able(NEEDED_FOR_PODS if not simulated else NEEDED, kubelets=0 if simulated else options.nodes)
        built = _build(folder, kubernetes, simulated=simulated, operators=options.operators)
        if not simulated:
            image.build(folder, built["coredns"] / "coredns")
    except programs.MissingToolError as error:
        print(f"no real cluster here: {error}")
        return NOT_HERE
    print(f"built in {time.monotonic() - started:.0f} s", flush=True)
    group = str(os.getpid())
    more = ["--simulated-nodes"] if simulated and not options.simulated_nodes else []
    environment = {**os.environ, INSIDE: "1", "SEATRIAL_REAL_GROUP": group}
    signal.signal(signal.SIGTERM, _end)
    try:
        return subprocess.run(
            apart([sys.executable, "-m", "tests.real_cluster", *more, *sys.argv[1:]]),
            env=environment,
            cwd=ROOT,
            check=False,
        ).returncode
    finally:
        cluster.remove_groups(f"seatrial-real-{group}")
        if options.page:
            page.write(folder, ROOT / "docs/tested-on.md")


def apart(argv: list[str]) -> list[str]:
    """Run a command in separate namespaces. All processes there end with the one that started it, whatever its end."""
    mapped = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    own = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private"]
    # unshare itself runs until its child ends: it blocks SIGTERM, and is not notified of its parent's end.
    return ["setpriv", "--pdeathsig=KILL", "unshare", *mapped, *own, *argv]


def _end(*_: object) -> NoReturn:
    """End like Ctrl-C; a second signal (from make, sent to the group) does not stop the clean-up."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)


class Plugin:
    """Brings the cluster to the tests (conftest.py)."""

    def __init__(self, here: cluster.Cluster) -> None:
        self.real_cluster = here


def tests(here: cluster.Cluster, more: list[object], rest: list[str]) -> int:
    """Run the tests of this folder on a cluster."""
    arguments = ["-p", "no:cacheprovider", *(rest or ["-v"])]
    if not any(not each.startswith("-") and "tests/" in each for each in rest):
        arguments.append(str(Path(__file__).parent))
    return int(pytest.main(arguments, plugins=[Plugin(here), *more]))


def able(needed: tuple[str, ...], kubelets: int) -> None:
    """Raise `MissingToolError` if this machine lacks a prerequisite for a cluster with so many kubelets."""
    missing = [name for name in needed if shutil.which(name) is None]
    if missing:
        raise programs.MissingToolError(
            f"install {', '.join(missing)} (Debian: apt-get install runc iproute2 nftables openssl util-linux)"
        )
    if kubelets * INOTIFY > (left := inotify_left()):
        raise programs.MissingToolError(
            f"{kubelets} nodes need {kubelets * INOTIFY} inotify instances and {left} are left: end another cluster of this "
            "machine, or raise fs.inotify.max_user_instances (sysctl)"
        )


def inotify_left() -> int:
    """Return the number of inotify instances that this user may still create; without one a kubelet, or containerd,
    does not start."""
    used = 0
    for each in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # closed by now, or another user's
            if each.readlink() == Path("anon_inode:inotify") and each.parents[1].stat().st_uid == os.geteuid():
                used += 1
    return int(Path("/proc/sys/fs/inotify/max_user_instances").read_text(encoding="ascii")) - used


def _build(folder: Path, kubernetes: str, *, simulated: bool, operators: bool) -> dict[str, Path]:
    modules = (*(programs.SIMULATED if simulated else programs.BASE), kubernetes, *(OPERATORS if operators else ()))
    return {module: programs.build(module, folder / "programs") for module in modules}


def _inside(
    kind: type[cluster.Cluster],
    folder: Path,
    kubernetes: str,
    names: list[str],
    rest: list[str],
    *,
    shell: bool,
    operators: bool,
) -> int:
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    (run / "images.tar").symlink_to(folder / "images.tar")
    built = _build(folder, kubernetes, simulated=not kind.runs_pods, operators=operators)
    programs.on_path(folder / "programs")
    started = time.monotonic()
    here = kind(run, built, kubernetes, names)
    try:
        here.start()
        print(f"the cluster is up after {time.monotonic() - started:.0f} s", flush=True)
        environment = {**os.environ, "KUBECONFIG": str(here.kubeconfig)}
        if shell:
            return subprocess.run([os.environ.get("SHELL", "sh"), *rest], env=environment, check=False).returncode
        return tests(here, [page.Results(page.about(kubernetes, operators=operators), folder)], rest)
    finally:
        here.stop()


if __name__ == "__main__":
    raise SystemExit(main())
