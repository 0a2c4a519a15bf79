"""The image of the pods, made from this machine's own files: Python, a few programs, the fakes of the lab, the suite.

One layer, in the format that `docker save` writes and `ctr images import` reads.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.hardware.files import DRIVER_PROGRAMS, IMAGE_PROGRAMS, PROGRAM

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[2]
# Names of the images imported into our own cluster; another cluster pulls the last two from a registry.
PAUSE, DNS = "seatrial.test/pause:1", "seatrial.test/coredns:1"
REGISTRY = os.environ.get("SEATRIAL_REAL_REGISTRY") or "seatrial.test"
TRIAL, RUNNER = f"{REGISTRY}/trial:1", f"{REGISTRY}/seatrial:1"
PROGRAMS = (
    "sh",
    "bash",
    "sleep",
    "cat",
    "ls",
    "env",
    "true",
    "false",
    "date",
    "id",
    "hostname",
    "cp",
    "mkdir",
    "rm",
    "sort",
    "head",
    "tail",
    "grep",
    "sed",
    "seq",
    "mount",
    "ip",
)
# The user of "distroless/static:nonroot", the base of the operators' own images.
NOBODY = "65532:65532"
FAKES = "/opt/sim"
SUITE = "/opt/seatrial"
PATH = f"{FAKES}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin"
_DISTRIBUTIONS = re.compile(r"^([a-z0-9][a-z0-9._-]*)==", re.MULTILINE)
# The user of the runner's image, and its only writable volume: as in deploy/Containerfile.
_RUNS_AS, _RUNS_WITH = "65532:65532", ("PYTHONUNBUFFERED=1", "HOME=/tmp")
_LEFT_OUT = ("test", "idlelib", "tkinter", "ensurepip", "site-packages", "dist-packages", "lib2to3", "__pycache__")


def build(folder: Path, coredns: Path | None = None) -> Path:
    """Write the images as one archive below `folder`; `coredns`: the program, if the cluster lacks its own DNS."""
    root = folder / "rootfs"
    archive = folder / "images.tar"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    _python(root)
    for name in PROGRAMS:
        found = shutil.which(name)
        if found:
            _program(root, Path(found), f"/usr/bin/{name}")
    _fakes(root)
    _suite(root, folder / "wheel")
    for name in ("bin", "sbin"):
        if not (root / name).exists():
            (root / name).symlink_to(f"usr/{name}" if name == "bin" else "usr/bin")
    for name in ("tmp", "etc", "proc", "sys", "dev", "run", "var", "home", "root"):
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\nsshd:x:74:74::/run:/bin/false\n", encoding="utf-8")
    (root / "etc" / "nsswitch.conf").write_text("hosts: files dns\n", encoding="utf-8")
    if not (root / "usr/sbin").exists():
        (root / "usr/sbin").mkdir()
    (root / "usr/sbin/sshd").symlink_to(f"{FAKES}/bin/sshd")
    with tarfile.open(archive, "w") as tar:
        layer = _layer(root)
        manifest = [
            _image(tar, PAUSE, layer, ["/usr/bin/sleep", "infinity"]),
            _image(tar, TRIAL, layer, []),
            _image(tar, RUNNER, layer, ["seatrial"], user=_RUNS_AS, env=_RUNS_WITH),
        ]
        if coredns is not None:
            dns = io.BytesIO()
            with tarfile.open(fileobj=dns, mode="w") as only:
                only.add(coredns, "coredns", filter=_plain)
            manifest.append(_image(tar, DNS, dns.getvalue(), ["/coredns"]))
        _put(tar, "manifest.json", json.dumps(manifest).encode())
    shutil.rmtree(root)
    return archive


def of_program(archive: Path, name: str, program: Path, place: str) -> None:
    """Write an archive of one image with one program at `place`, run as an unprivileged user."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as only:
        only.add(program, place.lstrip("/"), filter=_plain)
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        only.addfile(folder)
    with tarfile.open(archive, "w") as tar:
        manifest = [_image(tar, name, layer.getvalue(), [place], user=NOBODY)]
        _put(tar, "manifest.json", json.dumps(manifest).encode())


def _image(
    tar: tarfile.TarFile, name: str, layer: bytes, entry: list[str], user: str = "", env: Sequence[str] = ()
) -> dict[str, object]:
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"User": user, "Entrypoint": entry, "Env": [f"PATH={PATH}", "PYTHONDONTWRITEBYTECODE=1", *env]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    place = f"{digest}/layer.tar"
    if place not in tar.getnames():
        _put(tar, place, layer)
    about = f"{hashlib.sha256(config).hexdigest()}.json"
    _put(tar, about, config)
    return {"Config": about, "RepoTags": [name], "Layers": [place]}


def _put(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def _layer(root: Path) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for path in sorted(root.iterdir()):
            tar.add(path, path.name, filter=_plain)
    return written.getvalue()


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


def _python(root: Path) -> None:
    """Return the interpreter and its library at their local paths, and `python3` on the PATH."""
    python = Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()
    _program(root, python, str(python))
    place = root / "usr" / "bin"
    place.mkdir(parents=True, exist_ok=True)
    for name in ("python3", "python"):
        (place / name).unlink(missing_ok=True)
        (place / name).symlink_to(python)
    library = Path(sysconfig.get_path("stdlib", vars={"base": sys.base_prefix, "installed_base": sys.base_prefix}))
    target = root / library.relative_to("/")
    shutil.copytree(library, target, ignore=shutil.ignore_patterns(*_LEFT_OUT, "config-*"), symlinks=True)
    for extension in (target / "lib-dynload").glob("*.so"):
        _libraries(root, extension)


def _program(root: Path, source: Path, place: str) -> None:
    target = root / place.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source.resolve(), target)
    target.chmod(0o755)
    _libraries(root, source.resolve())


def _libraries(root: Path, program: Path) -> None:
    """Return the libraries that this machine's loader resolves for a program, at the same paths."""
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
    for path in map(Path, re.findall(r"(/\S+) \(0x", listed)):
        target = root / str(path).lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path.resolve(), target)


def _fakes(root: Path) -> None:
    """Return the lab's fakes of an image's files and of the container toolkit: torchrun, nvidia-smi, sshd ..."""
    folder = root / FAKES.lstrip("/")
    shutil.copytree(ROOT / "lab/hardware/fakes", folder / "fakes", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "bin").mkdir()
    for name, (module, function) in (IMAGE_PROGRAMS | DRIVER_PROGRAMS).items():
        text = PROGRAM.format(start="#!/usr/bin/python3 -IS", folder=FAKES, module=module, function=function)
        (folder / "bin" / name).write_text(text, encoding="utf-8")
        (folder / "bin" / name).chmod(0o755)


def _suite(root: Path, built: Path) -> None:
    """Return `seatrial`: the wheel, and the packages of `requirements.lock`, as deploy/Containerfile installs them."""
    folder = root / SUITE.lstrip("/")
    shutil.rmtree(built, ignore_errors=True)
    command_line = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    subprocess.run(command_line, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for name in _DISTRIBUTIONS.findall((ROOT / "requirements.lock").read_text(encoding="utf-8")):
        for source, place in _files(name):
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            if ".so" in source.suffixes:
                _libraries(root, source)
    command = root / "usr/local/bin/seatrial"
    command.parent.mkdir(parents=True, exist_ok=True)
    lines = ["#!/usr/bin/python3", "import sys", f"sys.path.insert(0, {SUITE!r})", "from seatrial.__main__ import main"]
    command.write_text("\n".join([*lines, "raise SystemExit(main())", ""]), encoding="utf-8")
    command.chmod(0o755)


def _files(distribution: str) -> Iterator[tuple[Path, str]]:
    for file in importlib.metadata.distribution(distribution).files or ():
        if not str(file).startswith("..") and file.suffix != ".pyc":
            yield Path(str(file.locate())), str(file)


if __name__ == "__main__":
    print(build(Path(sys.argv[1]).resolve()))
