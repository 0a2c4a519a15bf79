#!/usr/bin/env python3
"""Try the README's commands where users type them, and print what came of each: .ci/fresh.py [--quick] [WORD ...].

A place is a fresh clone of HEAD, in which `make demo` installs and runs; what takes no installation is tried by further
demos in it. Root tries all as itself and as a user made for it, anyone else as themselves what needs no root. `--quick`
is what CI has time for; a word picks the conditions that have it in their line.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PASSED_ON = ("PIP_", "SSL_CERT_", "HTTP_", "HTTPS_", "NO_PROXY", "http_", "https_", "no_proxy")  # to the package index
LIMIT_S = 1800  # a demo takes ten seconds, and a busy machine is to be no reason
NOT_SO = 77
GO = "VERDICT: go (SIMULATED) · 2 of 2 nodes tried · exit code 0"
DEMO = "make $ARGUMENTS demo"
TESTS = 'make test ARGS="tests/layout tests/lab/node tests/checks/test_signals.py"'


@dataclass(frozen=True)
class Condition:
    """What is different: `as_root` makes it so in the namespaces of `unshare`; `proof` ends with 0 where it is so."""

    name: str
    proof: str = "true"
    as_root: str = ""
    unshare: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    run: str = DEMO
    quick: bool = False


@dataclass(frozen=True)
class Place(Condition):
    """A clone at `path`, $ID being a new name; `before` is run in it ahead of the demo."""

    path: str = "$HOME/$ID"
    cloned: str = 'git -c advice.detachedHead=false clone --quiet "$BUNDLE" "$PLACE"'
    before: str = "true"
    further: bool = False
    """Whether what takes no installation is tried in it, too."""


WITHOUT_GIT = """
mount -t tmpfs none "$SCRATCH/mounted" && mkdir "$SCRATCH/mounted/upper" "$SCRATCH/mounted/work"
mount -t overlay -o "lowerdir=/usr/bin,upperdir=$SCRATCH/mounted/upper,workdir=$SCRATCH/mounted/work" none /usr/bin
rm /usr/bin/git"""
# /dev anew: a mount point of the machine's cannot be missing for one process alone.
WITHOUT_SHM = """
mount -t tmpfs none "$SCRATCH/mounted" && cd /dev
cp -a null zero full random urandom tty ptmx fd stdin stdout stderr "$SCRATCH/mounted/"
mkdir "$SCRATCH/mounted/pts" && mount --bind pts "$SCRATCH/mounted/pts" && mount --move "$SCRATCH/mounted" /dev"""
PLACES = [
    Place("a clone in the home", quick=True),
    Place("a clone below /tmp", path="/tmp/$ID", further=True, quick=True),  # noqa: S108
    Place("a path with a blank", path="$HOME/$ID of mine", quick=True),
    Place(
        "a symlinked .venv", before='python3 -m venv "../$ID.venv" && ln -s "../$ID.venv" .venv', proof="[ -L .venv ]"
    ),
    Place("PYTHON exported", environment={"PYTHON": "/usr/bin/python2.7"}, proof='! "$PYTHON" -c "" 2>/dev/null'),
    Place(
        "a home that cannot be written",
        path="/var/tmp/$ID.clone",  # noqa: S108
        unshare=("--mount",),
        as_root='mount --bind "$HOME" "$HOME" && mount -o remount,bind,ro "$HOME"',
        proof='! touch "$HOME/file" 2>/dev/null',
    ),
    Place(
        "an archive, and no git",
        cloned='mkdir -p "$PLACE" && tar -x -f "$ARCHIVE" -C "$PLACE"',
        unshare=("--mount",),
        as_root=WITHOUT_GIT,
        proof="! command -v git && [ ! -e .git ]",
    ),
]
FURTHER = [
    Condition(
        "no network after the installation",
        unshare=("--net",),
        as_root="ip link set lo up",
        proof="! ip route | grep .",
        quick=True,
    ),
    Condition(
        "user namespaces refused",  # the kernel does so in a changed root, user_namespaces(7)
        unshare=("--mount",),
        as_root='mount --rbind / "$SCRATCH/mounted" && set -- chroot "$SCRATCH/mounted" "$@"',
        proof="! unshare --user true 2>/dev/null",
        quick=True,
    ),
    Condition(
        "user namespaces without a map",  # as by AppArmor of Ubuntu 24.04: made, and of no use
        unshare=("--mount",),
        as_root="mount -o remount,bind,ro /proc",
        proof="unshare --user true && ! unshare --map-root-user true 2>/dev/null",
    ),
    Condition("no /dev/shm", unshare=("--mount",), as_root=WITHOUT_SHM, proof="[ ! -e /dev/shm ]", quick=True),
    Condition("a part of the tests", run=TESTS, quick=True),
]


def interpreters() -> Iterator[Place]:
    """Yield a place for each Python that is found; it is mounted where the made user may read it, too."""
    for name in ("python3.11", "python3.12", "python3.13"):
        candidates = [*Path.home().glob(f".pyenv/versions/{name[6:]}*/bin/{name}"), shutil.which(name)]
        for found in filter(None, candidates):
            asked = [found, "-c", "import sys, ensurepip; print(sys.base_prefix)"]
            said = subprocess.run(asked, capture_output=True, text=True, check=False)
            if said.returncode == 0:
                yield Place(
                    f"Python {name[6:]}",
                    unshare=("--mount",),
                    as_root=f'mount --bind "{said.stdout.strip()}" "$SCRATCH/mounted"',
                    environment={"ARGUMENTS": f"PYTHON=$SCRATCH/mounted/bin/{name}"},
                    proof=f'"$SCRATCH/mounted/bin/{name}" -c ""',
                )
                break
        else:
            print(f"not tried   Python {name[6:]}: none is found")


def outcome(condition: Condition, user: pwd.struct_passwd, place: Path, given: Mapping[str, str]) -> tuple[str, str]:
    """Run a condition; return (what came of it, all that was printed)."""
    if condition.as_root and os.geteuid():
        return "not tried: needs root", ""
    made = {**given, "HOME": user.pw_dir, "USER": user.pw_name, "ARGUMENTS": ""}
    made = {**made, "PLACE": str(place), **{k: filled(v, made) for k, v in condition.environment.items()}}
    lines = ['cd "$PLACE"', f"{{ {condition.proof}; }} || exit {NOT_SO}", condition.run]
    if isinstance(condition, Place):
        lines = [condition.cloned, lines[0], condition.before, *lines[1:]]
    command = ["sh", "-ec", "\n".join(lines)]
    if user.pw_uid != os.geteuid():
        command = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *command]
    if condition.as_root:
        changed = ["unshare", *condition.unshare, "sh", "-ec", f'{condition.as_root}\nexec "$@"', "sh"]
        if subprocess.run([*changed, "true"], env=made, capture_output=True, check=False).returncode:
            return "not tried: it cannot be made so here", ""
        command = [*changed, *command]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env=made, cwd="/", encoding="utf-8", start_new_session=True, **streams) as started:
        try:
            printed, _ = started.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"failed: not done after {LIMIT_S} s", ""
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGTERM)
    return _meaning(condition, started.returncode, printed), printed


def _meaning(condition: Condition, code: int, printed: str) -> str:
    if code == NOT_SO:
        return "failed: it is not as it was made"
    if code:
        return f"failed: exit code {code}"
    if "WARNING" in printed:
        return "failed: a warning is printed"
    if condition.run != DEMO:
        return "passed"
    return "go" if GO in printed else f"failed: not {GO}"


def filled(text: str, environment: Mapping[str, str]) -> str:
    """Fill in variables as a shell does."""
    for name, value in environment.items():
        text = text.replace(f"${name}", value)
    return text


@contextlib.contextmanager
def users(new: str) -> Iterator[list[pwd.struct_passwd]]:
    """Who tries: the caller, and where that is root a new user, who is removed afterwards."""
    me = pwd.getpwuid(os.geteuid())
    if me.pw_uid:
        print("not tried   as root, and what only root can make so: .ci/fresh.py is not run as root")
        yield [me]
        return
    subprocess.run(["useradd", "--create-home", new], check=True)
    try:
        yield [pwd.getpwnam(new), me]
    finally:
        subprocess.run(["userdel", "--force", "--remove", new], check=False, stderr=subprocess.DEVNULL)


def chosen(place: Place, who: str, options: argparse.Namespace) -> list[Condition]:
    """Return what is to be tried in a place, itself first; nothing where nothing is."""
    there = [c for c in [place, *(FURTHER if place.further else [])] if c.quick or not options.quick]
    wanted = [c for c in there if all(word in f"{who}: {c.name}" for word in options.words)]
    return [place, *(c for c in wanted if c != place)] if wanted else []


def main() -> None:
    """Try what was asked for; exit 1 if one is not as it should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--quick", action="store_true", help="what CI has time for")
    parser.add_argument("words", nargs="*", help="only conditions with all of these words in their line")
    options = parser.parse_args()
    failed = 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # what was made is removed
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="seatrial-", dir="/var/tmp"))
        tried = stack.enter_context(users(Path(scratch).name))
        Path(scratch).chmod(0o755)
        Path(scratch, "mounted").mkdir()
        given = {k: v for k, v in os.environ.items() if k.startswith(PASSED_ON)}
        given |= {
            "PATH": PATH,
            "SCRATCH": scratch,
            "ID": Path(scratch).name,
            "BUNDLE": f"{scratch}/bundle",
            "ARCHIVE": f"{scratch}/archive.tar",
        }
        git = ["git", "-c", "safe.directory=*"]  # of a checkout that another user owns, as in containers of CI
        subprocess.run([*git, "bundle", "create", "--quiet", given["BUNDLE"], "HEAD"], cwd=ROOT, check=True)
        subprocess.run([*git, "archive", "--output", given["ARCHIVE"], "HEAD"], cwd=ROOT, check=True)
        for user, place in itertools.product(tried, [*PLACES, *interpreters()]):
            who = "root" if user.pw_uid == 0 else "user"
            at = Path(filled(place.path, {"HOME": user.pw_dir, **given}))
            for condition in chosen(place, who, options):
                began = time.monotonic()
                came, printed = outcome(condition, user, at, given)
                failed |= came.startswith("failed")
                line = f"{who}  {condition.name:<33}  {came}  ({time.monotonic() - began:.0f} s)"
                print(printed if came.startswith("failed") else "", line, sep="", flush=True)
            for made in at, at.parent / f"{given['ID']}.venv":
                shutil.rmtree(made, ignore_errors=True)
    sys.exit(failed)


main()
