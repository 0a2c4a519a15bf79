"""DCGM evidence: what `dcgmi diag` says of each GPU of this pod, asked of a host engine that lives as long as the test.

The engine listens on a socket in the probe's own folder: no port is taken, and no other process reaches it. Its JSON
has two shapes, DCGM 3's with lists of GPUs and DCGM 4's with an entity each (github.com/NVIDIA/DCGM,
nvvs/include/NvvsCommon.h and testing/python3/tests/test_dcgm_diag.py). The text is untrusted: it is bounded, and
credentials are taken out.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from seatrial.logs.reader import redact

from . import children, command
from .deadline import Watch
from .files import content

TOOLS = ("dcgmi", "nv-hostengine")
ENGINE_S = 60.0  # its start initialises NVML, as nvidia-smi does (gpus.QUERY_TIMEOUT_S)
MAX_BYTES = 4 << 20
MOST_RESULTS, MOST_SAID, MOST_GPUS, TEXT = 256, 4, 64, 300
MOST_SAID_ALONE, TEXT_ALONE, BYTES_ALONE = 2, 200, 12 << 10  # of a node in a sweep: one message holds all of it
ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")  # of DCGM 4, of DCGM 3 and before


def blank(level: int) -> Dict[str, Any]:
    """Return the stage's keys, all unknown."""
    return {"level": level, "found": None, "missing": [], "exit": None, "version": None, "results": [], "error": None}


def tools_of(env: Mapping[str, str]) -> List[Optional[str]]:
    """Return the paths of DCGM's programs, None for one that the image lacks."""
    return [shutil.which(name, path=env.get("PATH")) for name in TOOLS]


def alone(
    asked: Mapping[str, Any], place: str, env: Mapping[str, str], watch: Watch, over: Callable[[], bool]
) -> Dict[str, Any]:
    """Run the diagnostics of a node in a sweep until `over`; returns the stage of a trial, shortened."""
    data = blank(asked["level"])
    try:
        run(data, asked["limit_s"], place, env, watch, over)
    except OSError as problem:  # a program that cannot be started must not cost the node's other tests
        data["error"] = plain("%s: %s" % (type(problem).__name__, problem))
    return brief(data)


def brief(data: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the stage in at most BYTES_ALONE; the results that are left out, failures last, are an error."""
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
    """Run the diagnostics where the image has them; a missing program is an answer, not an error."""
    tools = tools_of(env)
    data["missing"] = [name for name, tool in zip(TOOLS, tools) if tool is None]
    data["found"] = not data["missing"]
    dcgmi, host_engine = tools
    if dcgmi is None or host_engine is None:
        return "skipped"
    until = time.monotonic() + min(limit_s, watch.left())
    socket, log = os.path.join(place, "dcgm.sock"), os.path.join(place, "dcgm.out")
    for stale in ("dcgm.sock", "dcgm.pid"):  # of an engine before this one
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
        children.end(engine, 2.0)  # and the test program below it, which would disturb what comes next
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


def read(text: bytes) -> Tuple[Optional[str], List[Dict[str, Any]], str]:
    """Return DCGM's version, the results and what is wrong of the JSON; warnings may precede and follow it."""
    whole = text.decode("utf-8", "replace")
    first, last = whole.find("{"), whole.rfind("}")
    if first < 0 or last < first:
        return None, [], "no JSON: %s" % whole[:TEXT] if whole.strip() else "no output"
    try:
        document = json.loads(whole[first : last + 1])
    except (ValueError, RecursionError) as error:
        return None, [], "broken JSON: %s" % error
    body = next((document[root] for root in ROOTS if isinstance(document.get(root), dict)), None)
    if body is None:
        return None, [], "the JSON is not from dcgmi diag: %s" % whole[first : first + TEXT]
    meta = document.get("metadata")
    version = body.get("version") or (meta.get("version") if isinstance(meta, dict) else None)
    results = _results(body)
    problem = body.get("runtime_error") or body.get("error")
    if not problem and not results:
        problem = "it reports no result: %s" % (body.get("warning") or "")
    return plain(version)[:40] or None, results, plain(problem)


def _results(body: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Return one entry of each test and its outcome; GPUs that say the same, and no more, share one."""
    results: List[Dict[str, Any]] = []
    known: Dict[str, Dict[str, Any]] = {}
    for result in _each_result(body):
        key = json.dumps([result[name] for name in ("category", "test", "status", "said")])
        shares = known.get(key) if result["who"] and result["status"] != "fail" else None
        if shares is not None:
            shares["who"] = (shares["who"] + result["who"])[:MOST_GPUS]
        elif len(results) < MOST_RESULTS or result["status"] == "fail":
            known[key] = result
            results.append(result)
    failed = [result for result in results if result["status"] == "fail"]
    return (failed + [result for result in results if result["status"] != "fail"])[:MOST_RESULTS]


def _each_result(body: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    for category in _objects(body.get("test_categories")):
        for test in _objects(category.get("tests")):
            head = {"category": plain(category.get("category"))[:40], "test": plain(test.get("name"))[:60]}
            statuses = set()
            given = test.get("test_summary")
            summary = given if isinstance(given, dict) else {}
            for result in _objects(test.get("results")):
                statuses.add(_status(result))
                said = _said(result) or (_said(summary) if _status(summary) == _status(result) else [])
                yield dict(head, who=_who(result), status=_status(result), said=said)
            if summary and _status(summary) not in statuses:
                yield dict(head, who=[], status=_status(summary), said=_said(summary))


def _status(result: Mapping[str, Any]) -> str:
    """Return pass, fail, warn or skip, whatever the release's spelling; anything else as it is printed."""
    word = plain(result.get("status")).lower()[:20]
    known = {"skipped": "skip", "not run": "skip", "notrun": "skip", "warning": "warn", "passed": "pass"}
    return {**known, "failed": "fail"}.get(word, word)


def _who(result: Mapping[str, Any]) -> List[str]:
    """Name the subject of a result: "GPU 3", or another kind of entity."""
    if result.get("entity_id") is not None:
        return ["%s %s" % (plain(result.get("entity_group"))[:20] or "entity", plain(result["entity_id"])[:10])]
    named = result.get("gpu_ids", result.get("gpu_id"))
    listed = named if isinstance(named, list) else str("" if named is None else named).split(",")
    return ["GPU %s" % each for each in map(plain, listed[:MOST_GPUS]) if re.match(r"\d{1,4}$", each)]


def _said(result: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Return the warnings, each with DCGM's own numbers where it gives some; without one, its other text."""
    said: List[Dict[str, Any]] = []
    for key in ("warnings", "info"):
        given = result.get(key)
        for each in given if isinstance(given, list) else [given]:
            words = each if isinstance(each, dict) else {"warning": each}
            text = plain(words.get("warning"))
            numbers = {name: _number(words.get("error_" + name)) for name in ("id", "severity", "category")}
            if text and len(said) < MOST_SAID:
                said.append(dict(numbers, text=text))
        if said or _status(result) == "pass":
            break
    return said


def _number(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else None


def _objects(value: Any) -> List[Dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def plain(value: Any) -> str:
    """Return a text or a number as one line without credentials."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return ""
    return redact.redact(" ".join(str(value)[: 4 * TEXT].split()))[:TEXT]
