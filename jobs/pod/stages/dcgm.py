"""DCGM evidence: the results of `dcgmi diag` for each GPU of this pod, from a host engine started for the test.

The engine listens on a socket in the probe's own folder: it uses no port, and no other process can reach it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from seatrial.logs.reader.dcgm import plain, read

from . import children, command
from .deadline import Watch
from .files import content

TOOLS = ("dcgmi", "nv-hostengine")
ENGINE_S = 60.0  # its start initialises NVML, as nvidia-smi does (gpus.QUERY_TIMEOUT_S)
MAX_BYTES = 4 << 20
MOST_SAID_ALONE, TEXT_ALONE, BYTES_ALONE = 2, 200, 12 << 10  # of a node in a sweep: one message holds all of it


def blank(level: int) -> Dict[str, Any]:
    """Return the stage's keys, all unknown."""
    return {"level": level, "found": None, "missing": [], "exit": None, "version": None, "results": [], "error": None}


def tools_of(env: Mapping[str, str]) -> List[Optional[str]]:
    """Return the paths of DCGM's programs, None for a missing one."""
    return [shutil.which(name, path=env.get("PATH")) for name in TOOLS]


def alone(
    asked: Mapping[str, Any], place: str, env: Mapping[str, str], watch: Watch, over: Callable[[], bool]
) -> Dict[str, Any]:
    """Run the diagnostics of a node in a sweep until `over`; return the stage of a trial, shortened."""
    data = blank(asked["level"])
    try:
        run(data, asked["limit_s"], place, env, watch, over)
    except OSError as problem:  # a program that cannot be started must not cost the node its other tests
        data["error"] = plain("%s: %s" % (type(problem).__name__, problem))
    return brief(data)


def brief(data: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the stage in at most BYTES_ALONE; dropping results, failures last, is an error."""
    kept: List[Dict[str, Any]] = []
    size = 0
    for result in data["results"]:
        said = [dict(each, text=each["text"][:TEXT_ALONE]) for each in result["said"][:MOST_SAID_ALONE]]
        short = dict(result, said=said)
        size += len(json.dumps(short))
        if size > BYTES_ALONE:
            break
        kept.append(short)
    left = len(data["results"]) - len(kept)
    error = "; ".join(filter(None, [data["error"], "%d of its results are left out" % left if left else ""]))
    return dict(data, results=kept, error=error or None)


def run(
    data: Dict[str, Any],
    limit_s: float,
    place: str,
    env: Mapping[str, str],
    watch: Watch,
    over: Optional[Callable[[], bool]] = None,
) -> str:
    """Run the diagnostics if the image has them; a missing program is a result, not an error."""
    tools = tools_of(env)
    data["missing"] = [name for name, tool in zip(TOOLS, tools) if tool is None]
    data["found"] = not data["missing"]
    dcgmi, host_engine = tools
    if dcgmi is None or host_engine is None:
        return "skipped"
    until = time.monotonic() + min(limit_s, watch.left())
    socket, log = os.path.join(place, "dcgm.sock"), os.path.join(place, "dcgm.out")
    for stale in ("dcgm.sock", "dcgm.pid"):  # of an earlier engine
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(place, stale))
    with open(log, "wb") as stream:
        engine = subprocess.Popen(
            [host_engine, "-n", "-d", socket, "--pid", "dcgm.pid", "-f", "dcgm.log"],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd=place,
            env=dict(env, DCGM_HOME_DIR=place),  # DCGM 4 writes its working files there
            start_new_session=True,
        )
    try:
        if _listens(engine, socket, min(until, time.monotonic() + ENGINE_S), over or watch.stopped):
            question = [dcgmi, "diag", "--host", "unix://" + socket, "-r", str(data["level"]), "-j"]
            _take(data, command.run(question, max(1.0, until - time.monotonic()), MAX_BYTES, env, over))
        else:
            data["error"] = plain("nv-hostengine does not listen: %s" % content(log, 2048).decode("utf-8", "replace"))
    finally:
        children.end(engine, 2.0)  # also stops its test program, which would disturb the next test
    if data["error"]:
        return "failed"
    return "failed" if any(result["status"] == "fail" for result in data["results"]) else "ok"


def _listens(engine: subprocess.Popen[bytes], socket: str, until: float, over: Callable[[], bool]) -> bool:
    while time.monotonic() < until and engine.poll() is None and not over():
        if os.path.exists(socket):
            return True
        time.sleep(0.05)
    return False


def _take(data: Dict[str, Any], answer: command.Answer) -> None:
    data["exit"] = answer.exit
    data["version"], data["results"], problem = read(answer.out)
    said = [answer.error, problem]
    if problem and answer.err:
        said.append(answer.err[:2048].decode("utf-8", "replace"))
    data["error"] = plain("; ".join(text for text in said if text)) or None
