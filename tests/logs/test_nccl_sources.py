"""Bad input gets one clear line before any work is done."""

from __future__ import annotations

import array
import fcntl
import gzip
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import termios
import threading
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobs.trial import payload
from seatrial.logs import NcclLogError, Partial, conclude, open_sources, read, sources
from tests.logs.logmaker import Maker, sequential
from tests.waiting import HANG_S, until

LOG = sequential(Maker().processes())


def test_a_missing_file_is_named(tmp_path):
    """The message contains the name."""
    with pytest.raises(NcclLogError, match=r"nothing\.log: no such file"):
        open_sources([str(tmp_path / "nothing.log")])


def test_an_empty_log_says_what_to_check(tmp_path):
    """An empty file, or one of blank lines, is not a log; the message gives advice."""
    for text in ("", "\n  \n"):
        (tmp_path / "empty.log").write_text(text)
        with pytest.raises(NcclLogError, match=r"empty.*NCCL_DEBUG=INFO"):
            open_sources([str(tmp_path / "empty.log")])


def test_a_directory_without_logs_is_an_error_and_one_with_logs_is_read(tmp_path):
    """NCCL logs in a directory are read, and other files are skipped."""
    (tmp_path / "notes.txt").write_text("nothing to see\n")
    (tmp_path / "label.json").write_text(
        json.dumps({"notes": "NCCL INFO is written about here"}).replace("NCCL INFO", "NCCL")
    )
    (tmp_path / "picture.log").write_bytes(bytes(range(256)) * 40)
    with pytest.raises(NcclLogError, match="directory without NCCL logs"):
        open_sources([str(tmp_path)])
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "job.log").write_bytes(LOG)
    assert [name for name, _ in open_sources([str(tmp_path)])] == [str(tmp_path / "sub" / "job.log")]


@pytest.mark.parametrize(
    "content",
    [
        b"\x00" * 5000,
        os.urandom(20000),
        b"\x7fELF" + bytes(range(256)) * 20,
        b"\x89PNG\r\n\x1a\n" + bytes(range(128, 256)) * 50,
    ],
)
def test_a_binary_is_no_log(tmp_path, content):
    """Zeros, random bytes, programs and pictures are refused."""
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(NcclLogError, match="binary"):
        open_sources([str(tmp_path / "x")])


def test_logs_in_other_alphabets_are_logs(tmp_path):
    """Box drawing characters, progress bars and Chinese comments are text."""
    (tmp_path / "x.log").write_bytes("训练 ████ 100%\n".encode() * 50 + LOG)
    assert conclude(read(open_sources([str(tmp_path / "x.log")])))[0]["verdict"] == "go"


def test_a_gzip_bomb_is_refused(tmp_path, monkeypatch):
    """A file that unpacks to hundreds of times its size is not a log."""
    monkeypatch.setattr(sources, "INFLATE_GRACE", 1 << 20)
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"A" * (8 << 20)))
    with pytest.raises(NcclLogError, match="unpacks to more than"):
        read(open_sources([str(tmp_path / "x.gz")]))


def test_damaged_gzip_is_one_line(tmp_path):
    """Damaged at the start: an error; damaged at the end: the part before it is read."""
    packed = gzip.compress(LOG * 20)
    (tmp_path / "a.gz").write_bytes(packed[:10] + b"junk" * 10)
    with pytest.raises(NcclLogError, match=r"damaged gzip|binary"):
        read(open_sources([str(tmp_path / "a.gz")]))
    (tmp_path / "b.gz").write_bytes(packed[: len(packed) - 20])
    assert conclude(read(open_sources([str(tmp_path / "b.gz")])))[0]["ranks"] == 4


def test_a_fifo_is_read_until_it_ends(tmp_path):
    """A pipe has no size; an endless one is bounded."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(LOG,))
    writer.start()
    assert conclude(read(open_sources([str(path)])))[0]["verdict"] == "go"
    writer.join()


@pytest.mark.parametrize(
    "end", [b" Init COMPL", b"NCCL version 2.2", b"[receive] via NET/IB/0", b" busId 1a000 c", b"\n"]
)
def test_a_stream_left_in_the_middle_of_a_line_is_never_good(end, tmp_path, monkeypatch):
    """A partial line does not lose the marker for unread data, and 2.28.9 cut to 2.2 is not another version."""
    cut = LOG + LOG[: LOG.rindex(end) + len(end)]
    pack = zlib.compressobj(9, zlib.DEFLATED, 31)
    (tmp_path / "a.gz").write_bytes(pack.compress(cut) + pack.flush(zlib.Z_SYNC_FLUSH))  # all data, no trailer
    monkeypatch.setattr(sources, "MAX_ENDLESS", 1)
    bounded = sources._bounded(iter([cut]), "pipe", None)
    for stream in (open_sources([str(tmp_path / "a.gz")]), [("x", io.BytesIO(b"".join(bounded)))]):
        job = conclude(read(stream))[0]
        assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "truncated"), job["sentence"]


def test_an_endless_stream_is_bounded(tmp_path, monkeypatch):
    """Reading stops for a text stream without an end, as it does for /dev/urandom."""
    monkeypatch.setattr(sources, "MAX_ENDLESS", 1 << 20)
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write() -> None:
        try:
            with path.open("wb", buffering=0) as file:
                while True:
                    file.write(LOG)
        except BrokenPipeError:
            return

    writer = threading.Thread(target=write)
    writer.start()
    said: list[str] = []
    job = conclude(read(open_sources([str(path)], tell=said.append)))[0]
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "truncated")  # the unread rest may contain anything
    assert said == [f"{path}: 1 MB were read of an input that continues; these are judged"]
    writer.join()


def test_a_file_that_grows_is_read_up_to_where_it_ended(tmp_path):
    """A job that writes faster than its log is read does not block the reader forever."""
    path = tmp_path / "job.log"
    path.write_bytes(LOG * 100)
    size = path.stat().st_size
    ((_, chunks),) = open_sources([str(path)])
    taken = 0
    for chunk in chunks:
        taken += len(chunk)
        with path.open("ab") as file:
            file.write(LOG * 100)
    assert taken == size


def unread(descriptor):
    """Return the number of bytes in a pipe."""
    size = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, size)
    return size[0]


def waits_in_a_call(pid):
    """Say whether a process sleeps, so that its work is done."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def catches(pid, number):
    """Say whether a process has a handler for a signal."""
    mask = re.search(r"SigCgt:\s*([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text())[1]
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_an_interrupt_ends_a_stream_that_has_no_end(tmp_path):
    """Ctrl-C on an open FIFO or pipe: the part read is judged, and a notice is printed."""
    program = (
        "import sys, json; sys.path.insert(0, sys.argv[1])\n"
        "from seatrial.logs import conclude, open_sources, read\n"
        "jobs = conclude(read(open_sources(['-'], tell=lambda text: print(text, file=sys.stderr))))\n"
        "print(json.dumps([job['ranks'] for job in jobs]))\n"
    )
    root = Path(sources.__file__).parent.parent.parent
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdin.write(LOG * 40)
        process.stdin.flush()
        until(lambda: waits_in_a_call(process.pid) and unread(process.stdin.fileno()) == 0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, out) == (0, b"[4]\n"), err
    assert b"interrupted after" in err


def test_a_timeout_ends_a_stream_that_has_no_end(tmp_path):
    """``timeout`` sends SIGTERM: the part read is judged, or the message says that there was no writer."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for written, code in ((LOG, 0), (b"", 4)):
        command = [sys.executable, "-m", "checks", "explain", str(pipe)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            end = os.open(pipe, os.O_RDWR) if written else -1
            if written:
                os.write(end, written)
            until(lambda: catches(process.pid, signal.SIGTERM) and waits_in_a_call(process.pid))
            until(lambda: not written or unread(end) == 0)  # noqa: B023 -- called at once
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=HANG_S)
            if written:
                os.close(end)
        assert process.returncode == code, err
        assert b"interrupted" in err


def test_a_stream_that_goes_on_is_reported_while_it_does(monkeypatch):
    """The terminal shows that input is being read, and how to stop."""
    said = []
    monkeypatch.setattr(sources, "PATIENCE_S", 0.0)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(LOG)))
    read(open_sources(["-"], tell=said.append, progress=True))
    assert "Ctrl-C" in said[0]


def test_a_truncated_gzip_file_is_a_log_that_was_cut(tmp_path):
    """An incomplete copy, also one that ends at a line end, is never go; several members and padding are valid."""
    packed = gzip.compress(LOG[: LOG.rindex(b"\n", 0, len(LOG) // 2) + 1])
    flushed = zlib.compressobj(wbits=31)
    half = flushed.compress(LOG) + flushed.flush(zlib.Z_FULL_FLUSH)
    for name, data, cut in (
        ("whole", packed + gzip.compress(LOG[LOG.rindex(b"\n", 0, len(LOG) // 2) + 1 :]), False),
        ("padded", gzip.compress(LOG) + b"\x00" * 600, False),
        ("followed", gzip.compress(LOG) + b"no gzip", False),
        ("cut", half, True),
    ):
        (tmp_path / name).write_bytes(data)
        partial = read(open_sources([str(tmp_path / name)]))
        assert (name, partial.sources[0].cut) == (name, cut)
        assert conclude(partial)[0]["ranks"] == 4


def test_a_gzip_file_inside_of_another_is_no_log(tmp_path):
    """A doubly packed file is reported as binary, whatever it unpacks to."""
    (tmp_path / "twice.gz").write_bytes(gzip.compress(gzip.compress(LOG * 100)))
    with pytest.raises(NcclLogError, match="binary"):
        open_sources([str(tmp_path / "twice.gz")])


def test_sockets_and_fifos_in_a_directory_are_passed_over(tmp_path):
    """The directory of a running job may contain them; the reader does not wait for them."""
    (tmp_path / "job.log").write_bytes(LOG)
    os.mkfifo(tmp_path / "pipe.log")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket.log"))
        (job,) = conclude(read(open_sources([str(tmp_path)])))
        with pytest.raises(NcclLogError, match="neither a file nor a stream"):
            open_sources([str(tmp_path / "socket.log")])
    assert job["files"] == [str(tmp_path / "job.log")]


def test_random_bytes_in_a_pipe_are_no_log(monkeypatch):
    """/dev/urandom or zeros on standard input yield one line after the first block."""
    for content in (os.urandom(1 << 16), bytes(1 << 16)):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
        with pytest.raises(NcclLogError, match="binary"):
            read(open_sources(["-"]))


def test_every_name_is_checked_before_the_first_is_read(tmp_path):
    """A wrong second name fails before the first is processed."""
    (tmp_path / "good.log").write_bytes(LOG)
    with pytest.raises(NcclLogError, match="no such file"):
        open_sources([str(tmp_path / "good.log"), str(tmp_path / "bad.log")])


def test_no_name_at_all_says_what_to_give():
    """Without an argument the message asks for one."""
    with pytest.raises(NcclLogError, match="standard input"):
        open_sources([])


def test_a_name_with_escapes_cannot_act_on_the_terminal():
    """File names are untrusted input, too."""
    with pytest.raises(NcclLogError) as error:
        open_sources(["\x1b[2Jnope"])
    assert "\x1b" not in str(error.value)


def test_streams_may_be_files_or_chunks_of_bytes_or_text():
    """read() accepts a binary file and an iterable of chunks, also of text."""
    for stream in (io.BytesIO(LOG), [LOG[:100], LOG[100:]], [LOG.decode()], iter([LOG])):
        assert conclude(read([("x", stream)]))[0]["verdict"] == "go"


def test_nothing_read_is_no_job():
    """Without a stream the result is an empty list, never a healthy job."""
    assert conclude(read([])) == []


@pytest.mark.parametrize(
    "python",
    [
        sys.executable,
        *[str(Path.home() / ".pyenv" / "versions" / version / "bin" / "python") for version in ("3.8.18", "3.9.18")],
    ],
)
def test_it_runs_from_the_archive_on_old_pythons(tmp_path, python):
    """A pod has no other part of the suite, and the image's Python may be 3.8."""
    if not Path(python).exists():
        pytest.skip(f"{python} is not installed here")
    (tmp_path / "job.log").write_bytes(LOG)
    (tmp_path / payload.ARCHIVE).write_bytes(payload.archive(payload.files()))
    code = (
        f"import sys; sys.path.insert(0, {payload.ARCHIVE!r})\n"
        f"import json; from {payload.PACKAGE}.reader.scan import read\n"
        f"from {payload.PACKAGE}.reader.state.partial import POD_BUDGET\n"
        "print(json.dumps(read([('job.log', open('job.log', 'rb'))]).to_dict(POD_BUDGET)))"
    )
    run = subprocess.run(
        [python, "-S", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert run.returncode == 0, run.stderr
    (job,) = conclude(Partial.from_dict(json.loads(run.stdout)))
    assert job["verdict"] == "go"
