"""Unread files of a folder of logs: compressed ones, and those that cannot be opened or found.

The first bytes of a file show its kind. If the standard library can decompress it, its content is searched for NCCL
lines; otherwise its name shows whether it is a log, since checkpoints and data sets are compressed, too.
"""

from __future__ import annotations

import bz2
import codecs
import lzma
import os
import re
import stat
import zipfile
import zlib

from .reader.errors import NcclLogError
from .reader.lines.clean import printable

_LOOKED_AT = 64 * 1024
_MEMBERS = 64  # members of an archive
_STRANGE = bytes(set(range(32)) - {7, 8, 9, 10, 11, 12, 13, 27})  # control bytes that no text holds
PACKED = (
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"),
    (b"\xfd7zXZ\x00", "xz", "xz -dc"),
    (b"BZh", "bzip2", "bzip2 -dc"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4 -dc"),
    (b"PK\x03\x04", "zip", "unzip -p"),
)
"""The beginnings of compressed files (RFC 8878, the formats' own pages), their formats, and unpacking tools."""
ARCHIVE = re.compile(rb"PK\x03\x04|.{257}ustar", re.DOTALL)  # zip may store its files uncompressed
ANCHORS = (b"NCCL", b"RCCL", b"busbw", b"bus_bw", b'{"seatrial"')
_MAGIC = {magic: what for magic, what, _ in PACKED} | {b"\x1f\x8b": "gzip"}
_LOG_NAME = re.compile(r"(?:^|[._-])(?:logs?|out|err|stdout|stderr)(?:[._-]|\d|$)", re.IGNORECASE)
_NO_OTHER = re.compile(r"[^.]*(?:\.\d+)?(?:\.(?:zst|lz4|zstd))?$", re.IGNORECASE)
"""A name without a suffix of another kind: rank0, rank0.zst."""
_KINDS = {
    stat.S_IFIFO: "a FIFO, which never ends",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def unread_below(folder: str) -> list[str]:
    """List the unread files below a directory that may be logs, each with the reason."""
    unread: list[str] = []

    def failed(error: OSError) -> None:
        unread.append(_said(str(error.filename), error.strerror or "cannot be read"))

    root = os.path.realpath(folder)
    for parent, names, files in os.walk(folder, onerror=failed):
        names[:] = sorted(name for name in names if not name.startswith("."))
        for name in names:
            path = os.path.join(parent, name)
            if os.path.islink(path) and not _below(os.path.realpath(path), root):
                unread.append(_said(path, "a link to a folder elsewhere, which is not followed"))
        for name in sorted(files):
            reason = "" if name.startswith(".") else _why_unread(os.path.join(parent, name), name)
            if reason:
                unread.append(_said(os.path.join(parent, name), reason))
    return unread


def _said(path: str, reason: str) -> str:
    return "%s (%s)" % (printable(path, 200), printable(reason, 120).lower())


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _why_unread(path: str, name: str) -> str:
    """Explain why a file is not read; nothing if it is read, or is something else."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return _KINDS.get(stat.S_IFMT(status.st_mode), "")
        with open(path, "rb") as file:
            head = file.read(_LOOKED_AT)
    except FileNotFoundError:
        return "a link to nothing" if os.path.islink(path) else "gone while the folder was read"
    except OSError as error:
        return error.strerror or "cannot be read"
    return packed(path, name, head)


def packed(path: str, name: str, head: bytes) -> str:
    """Return the compression of a log; empty if it is not compressed, or is something else."""
    by = next((what for magic, what in _MAGIC.items() if head.startswith(magic)), "")
    if not by and not ARCHIVE.match(head):
        suffix = name.rpartition(".")[2].lower()
        named_log = _LOG_NAME.search(name) and is_binary(head)
        how = "packed, as its name says" if suffix in ("zst", "zstd", "xz", "bz2", "lz4", "zip") else "binary data"
        return how if named_log else ""
    content = _content(path, by, head)
    archive = by == "zip" or ARCHIVE.match(content or b"") is not None
    if by == "gzip" and content is not None and not archive:
        return ""  # the file is read
    is_log = content is not None and any(anchor in content for anchor in ANCHORS)
    if content is None or archive:  # the content is unknown, or only its beginning is known
        is_log = is_log or bool(_LOG_NAME.search(name) or (not archive and _NO_OTHER.match(name)))
    how = "packed by %s" % by if by else "a tar archive"
    return ("damaged gzip data" if by == "gzip" and content is None else how) if is_log else ""


def _content(path: str, by: str, head: bytes) -> bytes | None:
    """Return the beginning of a compressed file's content; None if unknown."""
    try:
        if by == "xz":
            return lzma.LZMADecompressor(memlimit=1 << 28).decompress(head, _LOOKED_AT)
        if by == "bzip2":
            return bz2.BZ2Decompressor().decompress(head, _LOOKED_AT)
        if by == "gzip":
            return zlib.decompressobj(31).decompress(head, _LOOKED_AT)
        if by == "zip":
            return _of_zip(path)
    except (lzma.LZMAError, OSError, zlib.error, EOFError, ValueError, NcclLogError):
        return None
    return None if by else head


def _of_zip(path: str) -> bytes | None:
    """Return the beginnings of some members of a zip archive that may be logs by their names."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [each for each in archive.infolist() if not each.is_dir() and not each.flag_bits & 1]
            begins = b""
            for each in members[:_MEMBERS]:
                with archive.open(each) as member:
                    begins += member.read(4096)
            return begins
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, lzma.LZMAError, zlib.error, EOFError):
        return None


def is_binary(head: bytes) -> bool:
    """Return whether these bytes are not text: many control bytes, or NULs that no UTF-16 mark explains."""
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return False
    sample = head[:65536]
    strange = len(sample) - len(sample.translate(None, _STRANGE))
    if not sample:
        return False
    try:
        sample[:-4].decode("utf-8")
    except UnicodeDecodeError:
        high = len(sample) - len(sample.translate(None, bytes(range(128, 256))))
        return strange * 50 > len(sample) or high * 4 > len(sample)
    return strange * 20 > len(sample)
