"""Logs are stored in the runtime's format and read with the API's options (api-contract, pod-logs)."""

import asyncio
import os
import re

import pytest

from lab.node.logs import Log, Options, pump, read
from tests.waiting import HANG_S


def collect(log, **options):
    async def go():
        return b"".join([chunk async for chunk in read(log, Options(**options))])

    return asyncio.run(go())


@pytest.fixture
def log(tmp_path):
    log_file = Log(str(tmp_path / "0.log"))
    log_file.write("stdout", [b"line 1", b"line 2", b"late"])
    log_file.write("stderr", [b"end"], partial=True)
    log_file.end()
    return log_file


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, b"line 1\nline 2\nlate\nend"),
        ({"tail": 2}, b"late\nend"),
        ({"tail": 0}, b""),
        ({"tail": 100}, b"line 1\nline 2\nlate\nend"),
        ({"limit": 10}, b"line 1\nlin"),
        ({"since": 9e9}, b""),
        ({"since": 0.0, "tail": 1}, b"end"),
    ],
    ids=["all", "tail", "tail-0", "tail-100", "limit", "since-the-future", "since-and-tail"],
)
def test_options_choose_a_part(log, options, text):
    """tailLines, limitBytes, since; a last line without a newline stays one line."""
    assert collect(log, **options) == text


def test_timestamps_go_before_every_line(log):
    """Timestamps are in RFC 3339 with nanoseconds."""
    lines = collect(log, timestamps=True).splitlines()
    assert all(re.match(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (line|late|end)", line) for line in lines)


def test_the_file_is_in_the_runtimes_style(log):
    """A line has the form: time stream tag text."""
    tags = [line.split(b" ", 3)[1:] for line in log.path.read_bytes().splitlines()]
    assert tags[-1] == [b"stderr", b"P", b"end"]
    assert tags[0] == [b"stdout", b"F", b"line 1"]


def test_a_rotated_log_loses_its_beginning(tmp_path):
    """Only the current file is shown, and at most five are kept (recordings/log-rotated)."""
    log = Log(str(tmp_path / "0.log"), max_bytes=1000)
    for number in range(200):
        log.write("stdout", [b"line %d" % number])
    log.end()
    assert not collect(log).startswith(b"line 0")
    assert b"line 199\n" in collect(log) or log.generation
    assert len(list(tmp_path.iterdir())) <= 5


def test_following_ends_with_the_container_and_survives_a_rotation(tmp_path):
    """Every line arrives once, in order, while the file is rotated."""

    async def go():
        log = Log(str(tmp_path / "0.log"), max_bytes=2000)
        reading, writing = os.pipe()
        task = asyncio.create_task(pump(reading, "stdout", log))

        async def follow():
            return b"".join([chunk async for chunk in read(log, Options(follow=True))])

        follower = asyncio.create_task(follow())
        for number in range(100):
            os.write(writing, b"line %d\n" % number)
            await asyncio.sleep(0)
        os.close(writing)
        await task
        log.end()
        return await asyncio.wait_for(follower, HANG_S)

    assert asyncio.run(go()).splitlines() == [b"line %d" % n for n in range(100)]


def test_an_endless_line_is_cut_into_parts_and_shown_whole(tmp_path):
    """containerd's 16 KiB parts are joined for the reader."""

    async def go():
        log = Log(str(tmp_path / "0.log"))
        reading, writing = os.pipe()
        task = asyncio.create_task(pump(reading, "stdout", log))
        os.write(writing, b"x" * 40_000 + b"\n")
        os.close(writing)
        await task
        log.end()
        return log

    log = asyncio.run(go())
    assert collect(log) == b"x" * 40_000 + b"\n"
    assert log.path.read_bytes().count(b" P ") == 2
