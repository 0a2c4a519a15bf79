"""DCGM evidence: what `dcgmi diag` says of each GPU of this pod, asked of a host engine that lives as long as the test.

The engine listens on a socket in the probe's own folder: no port is taken, and no other process reaches it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from typing import Any, Dict, Mapping

from seatrial.logs.reader.dcgm import plain, read

from . import children, command
from .deadline import Watch
from .files import content

TOOLS = ("dcgmi", "nv-hostengine")
ENGINE_S = 60.0  # its start initialises NVML, as nvidia-smi does (gpus.QUERY_TIMEOUT_S)
MAX_BYTES = 4 << 20


def blank(level: int) -> Dict[str, Any]:
    """Return the stage's keys, all unknown."""
    return {"level": level, "found": None, "missing": [], "exit": None, "version": None, "results": [], "error": None}


def run(data: Dict[str, Any], limit_s: float, place: str, env: Mapping[str, str], watch: Watch) -> str:
    """Run the diagnostics where the image has them; a missing program is an answer, not an error."""
    tools = [shutil.which(name, path=env.get("PATH")) for name in TOOLS]
    data["missing"] = [name for name, tool in zip(TOOLS, tools) if tool is None]
    data["found"] = not data["missing"]
    dcgmi, host_engine = tools
    if dcgmi is None or host_engine is None:
        return "skipped"
    until = time.monotonic() + min(limit_s, watch.left())
    socket, log = os.path.join(place, "dcgm.sock"), os.path.join(place, "dcgm.out")
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
        if _listens(engine, socket, min(until, time.monotonic() + ENGINE_S), watch):
            question = [dcgmi, "diag", "--host", "unix://" + socket, "-r", str(data["level"]), "-j"]
            _take(data, command.run(question, max(1.0, until - time.monotonic()), MAX_BYTES, env))
        else:
            data["error"] = plain("nv-hostengine does not listen: %s" % content(log, 2048).decode("utf-8", "replace"))
    finally:
        children.end(engine, 2.0)  # and the test program below it, which would disturb what comes next
    if data["error"]:
        return "failed"
    return "failed" if any(result["status"] == "fail" for result in data["results"]) else "ok"


def _listens(engine: subprocess.Popen[bytes], socket: str, until: float, watch: Watch) -> bool:
    while time.monotonic() < until and engine.poll() is None and not watch.stopped():
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
