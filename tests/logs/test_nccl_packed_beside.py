"""Unread files next to plain logs (packed or unreadable) are reported and prevent a healthy verdict."""

import bz2
import gzip
import io
import lzma
import os
import socket
import tarfile
import zipfile

import pytest

from cli import explain
from tests.logs.test_nccl_cut_lines import HEALTHY

LOG = HEALTHY.encode()
DATA = bytes(range(256)) * 40


def tar(content: bytes, name: str = "rank1") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def zipped(content: bytes, name: str = "rank1") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return out.getvalue()


ZSTD, LZ4 = b"\x28\xb5\x2f\xfd" + DATA, b"\x04\x22\x4d\x18" + DATA
BESIDE = {
    # known content
    "rank1": (bz2.compress(LOG), 10),
    "rank1.txt": (lzma.compress(LOG), 10),
    "rank1.log": (zipped(LOG), 10),
    "rank1.dat": (tar(LOG), 10),
    "rank1.tgz": (gzip.compress(tar(LOG)), 10),
    "table.xz": (lzma.compress(b"# size count type busbw\n"), 10),
    "weights.xz": (lzma.compress(DATA), 0),
    "model.tar": (tar(DATA, "weights"), 0),
    "model.tar.gz": (gzip.compress(tar(DATA, "weights")), 0),
    "data.zip": (zipped(DATA, "weights"), 0),
    "a.pt": (zipped(DATA, "archive/data.pkl"), 0),
    "notes.bz2": (bz2.compress(b"read me\n"), 0),
    # unknown content: its name shows it
    "rank1.log.zst": (DATA, 10),
    "job.out.1.xz": (DATA, 10),
    "rank2": (ZSTD, 10),
    "3.lz4": (LZ4, 10),
    "stderr.zst": (ZSTD, 10),
    "logs.tar.zst": (ZSTD, 10),
    "train.parquet": (ZSTD, 0),
    "model.safetensors.lz4": (LZ4, 0),
    "rank4.log": (DATA, 10),
    "picture.png": (DATA, 0),
    "rank5.log.gz": (gzip.compress(LOG)[:9] + DATA, 10),
    "logs.tar": (tar(DATA, "first"), 10),
}


def explained(folder, capsys):
    code = explain.main([str(folder)])
    return code, " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", BESIDE)
def test_a_packed_log_with_a_plain_one_is_no_go(tmp_path, capsys, name):
    """The first bytes identify packed files of any name; checkpoints and data sets are packed, too."""
    content, code = BESIDE[name]
    (tmp_path / "rank0.log").write_text(HEALTHY)
    (tmp_path / name).write_bytes(content)
    got, text = explained(tmp_path, capsys)
    assert got == code, text
    assert ("not read: " in text) == (code == 10)
    assert (name in text) == (code == 10)


def test_a_packed_log_that_is_read_is_no_obstacle(tmp_path, capsys):
    """Near miss: gzip, also without a suffix; hidden files are not logs."""
    (tmp_path / "rank0").write_bytes(gzip.compress(LOG))
    (tmp_path / ".rank1.log.zst").write_bytes(ZSTD)
    assert explained(tmp_path, capsys)[0] == 0


def missing_link(path):
    path.symlink_to("../gone.log")


def pipe(path):
    os.mkfifo(path)


def local_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def link_to_a_device(path):
    path.symlink_to("/dev/null")


def link_to_another_folder(path):
    path.symlink_to("/proc")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (missing_link, "a link to nothing"),
        (pipe, "a fifo"),
        (local_socket, "a socket"),
        (link_to_a_device, "a device"),
        (link_to_another_folder, "a link to a folder elsewhere"),
    ],
)
def test_what_cannot_be_read_in_a_folder_is_said(tmp_path, capsys, monkeypatch, make, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rank0.log").write_text(HEALTHY)
    make(tmp_path / "rank1")
    code, text = explained(".", capsys)
    assert (code, reason in text) == (10, True), text


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
@pytest.mark.parametrize("name", ["rank1", "node1/rank1.log"])
def test_what_may_not_be_read_in_a_folder_is_said(tmp_path, capsys, name):
    (tmp_path / "rank0.log").write_text(HEALTHY)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(HEALTHY)
    closed = path if path.parent == tmp_path else path.parent
    closed.chmod(0)
    code, text = explained(tmp_path, capsys)
    closed.chmod(0o700)
    assert (code, "permission denied" in text) == (10, True), text


def test_a_link_to_another_folder_of_the_same_logs_is_none_to_anything_unread(tmp_path, capsys):
    """Near miss: latest -> run-1, as trackers create it."""
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-1" / "rank0.log").write_text(HEALTHY)
    (tmp_path / "latest").symlink_to("run-1")
    assert explained(tmp_path, capsys)[0] == 0


def test_a_folder_of_packed_logs_alone_says_so(tmp_path, capsys):
    (tmp_path / "rank0.log.zst").write_bytes(ZSTD)
    assert explain.main([str(tmp_path)]) == 4
    assert "packed by zstd" in capsys.readouterr().err
