"""Fake dcgmi and nv-hostengine: the diagnostics of the GPUs of this pod, as JSON.

The formats are those of public output: DCGM 4 has "DCGM Diagnostic" with an entity in each result and numbers in each
warning (github.com/NVIDIA/DCGM, testing/python3/tests/test_dcgm_diag.py), DCGM 3 has "DCGM GPU Diagnostic" with one
result for all GPUs in the deployment tests (nvvs/tests/JsonResultTests.cpp there). The world's `registry: dcgm` is the
version; a GPU's `dcgm` defines the results of its tests: status, and warning (with category, id and severity) or info.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

from . import state

if TYPE_CHECKING:
    from collections.abc import Mapping

# level from which a test runs -> category, name in DCGM 4, name in DCGM 3 ('' if it has several)
TESTS = (
    (1, "Deployment", "software", ""),
    (2, "Integration", "pcie", "PCIe"),
    (2, "Hardware", "memory", "GPU Memory"),
    (3, "Hardware", "diagnostic", "Diagnostic"),
    (3, "Stress", "targeted_stress", "Targeted Stress"),
)
DEPLOYMENT_3 = (
    *("Denylist", "NVML Library", "CUDA Main Library", "Permissions and OS Blocks", "Persistence Mode"),
    *("Environment Variables", "Page Retirement/Row Remap", "Graphics Processes", "Inforom"),
)
PERSISTENCE = {"error_category": 8, "error_id": 29, "error_severity": 5}


def engine_main() -> int:
    """Listen on the socket until terminated."""
    if "-d" not in sys.argv[1:-1]:
        print("Started host engine version without a socket: this stand-in has no port")
        return 1
    path = sys.argv[sys.argv.index("-d") + 1]
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(os.path.dirname(path))  # the path of an AF_UNIX socket must be short
        listener.bind(os.path.basename(path))
        listener.listen(8)
        signal.pause()
    return 0


def main() -> int:
    """Run `dcgmi diag`; the exit code is not zero if a test failed."""
    words = sys.argv[1:]
    if words[:1] != ["diag"] or "-r" not in words[:-1] or "-j" not in words:
        print("Usage: dcgmi diag --host unix://PATH -r LEVEL -j")
        return 1
    host = words[words.index("--host") + 1] if "--host" in words else "localhost"
    if not _answers(host):
        print("Error: unable to establish a connection to the specified host: " + host)
        return 1
    world = state.load()
    print(json.dumps(document(world, int(words[words.index("-r") + 1]))))
    return 226 if any(_ends(gpu, world, test[2])["status"] == "Fail" for gpu in world["gpus"] for test in TESTS) else 0


def _answers(host: str) -> bool:
    if not host.startswith("unix://"):
        return False
    path = host.removeprefix("unix://")
    try:
        os.chdir(os.path.dirname(path))
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(os.path.basename(path))
    except OSError:
        return False
    return True


def document(world: Mapping[str, Any], level: int) -> dict[str, Any]:
    """Return this DCGM version's output for the world's GPUs."""
    version = str(world.get("dcgm") or "4.4.1")
    old = int(version.partition(".")[0]) < 4
    categories: dict[str, list[Any]] = {}
    for least, category, name, old_name in TESTS:
        if level >= least:
            made = _old(world, name, old_name) if old else [_new(world, name)]
            categories.setdefault(category, []).extend(made)
    listed = [{"category": category, "tests": tests} for category, tests in categories.items()]
    if old:
        return {"DCGM GPU Diagnostic": {"test_categories": listed, "version": version}}
    meta = {"Driver Version Detected": world["gpu"]["driver"], "version": version}
    return {"DCGM Diagnostic": {"test_categories": listed}, "metadata": meta}


def _new(world: Mapping[str, Any], name: str) -> dict[str, Any]:
    results = []
    for number, gpu in enumerate(world["gpus"]):
        who = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": number}
        results.append({**who, **_ends(gpu, world, name)})
    statuses = {result["status"] for result in results}
    whole = next((status for status in ("Fail", "Warn", "Pass") if status in statuses), "Skip")
    return {"name": name, "results": results, "test_summary": {"status": whole}}


def _old(world: Mapping[str, Any], name: str, old_name: str) -> list[dict[str, Any]]:
    if old_name:
        numbered = enumerate(world["gpus"])
        return [{"name": old_name, "results": [_brief(str(n), _ends(gpu, world, name)) for n, gpu in numbered]}]
    everybody = ",".join(map(str, range(len(world["gpus"]))))
    ends = [_ends(gpu, world, name) for gpu in world["gpus"]]
    worst = next((end for end in ends if end["status"] != "Pass"), {"status": "Pass"})
    return [
        {"name": each, "results": [_brief(everybody, worst if each == "Persistence Mode" else {"status": "Pass"})]}
        for each in DEPLOYMENT_3
    ]


def _brief(gpus: str, end: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result of DCGM 3: its warning is a text, without numbers."""
    texts = {"warnings": "; ".join(each["warning"] for each in end.get("warnings", [])), "info": end.get("info", "")}
    return {"gpu_ids": gpus, "status": end["status"], **{key: text for key, text in texts.items() if text}}


def _ends(gpu: Mapping[str, Any], world: Mapping[str, Any], test: str) -> dict[str, Any]:
    said = gpu.get("dcgm", {}).get(test)
    if said:
        numbers = {f"error_{name}": said[name] for name in ("category", "id", "severity") if name in said}
        key, words = ("info", said["info"]) if "info" in said else ("warnings", [_warning(said["warning"], numbers)])
        return {"status": said["status"], key: words}
    if test == "software" and not gpu.get("persistence", world["gpu"].get("persistence", True)):
        return {"status": "Fail", "warnings": [_warning("Persistence mode is disabled for this GPU.", PERSISTENCE)]}
    return {"status": "Pass"}


def _warning(text: str, numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {**numbers, "warning": text}
