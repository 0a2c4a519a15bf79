"""`rocm-smi --json` of each GPU, in the form of nvidia-smi's data, so that one rule reads both.

Names of fields differ between ROCm releases ("Card series", "Card Series"; with and without a unit), so every value is
looked up under all of them, ignoring case; a missing one is null. `amd-smi` is used if rocm-smi is missing.
"""

from __future__ import annotations

import glob
import json
import os
import re
from typing import Any, Dict, List, Optional, Tuple

from . import smi
from .files import content

MAX_BYTES = 4 << 20
# github.com/ROCm/rocm_smi_lib, python_smi_tools: the options that rocm-smi has had since ROCm 4.
QUESTION = (
    "--showuniqueid --showproductname --showdriverversion --showmeminfo vram --showbus --showtemp --showvbios"
    " --showretiredpages --showpendingpages --json"
).split()


def add_errors(gpus: List[Dict[str, Any]], root: str = "/") -> None:
    """Add the uncorrectable errors of each GPU that the driver has counted since it was loaded.

    Null if none reports them.

    Each block of a GPU (umc: its memory) has a file with the lines "ue: 0" and "ce: 0" (docs.kernel.org, AMDGPU RAS
    Support, "RAS Error Count sysfs Interface"). Corrected errors are normal with ECC.
    """
    for gpu in gpus:
        folder = os.path.join(root, "sys/bus/pci/devices", str(gpu.get("bus_id") or "").lower(), "ras")
        counts = []
        for name in sorted(glob.glob(os.path.join(glob.escape(folder), "*_err_count"))) if gpu.get("bus_id") else []:
            counts += re.findall(rb"(?m)^\s*ue:\s*(\d{1,18})\s*$", content(name, 4096))
        gpu["ecc_uncorrected_volatile"] = sum(map(int, counts)) if counts else None


def read(text: bytes) -> Tuple[Dict[str, Any], str]:
    """Return ({driver, cuda, gpus}, error) of rocm-smi's JSON; warnings may precede and follow it."""
    result: Dict[str, Any] = {"driver": None, "cuda": None, "gpus": []}
    plain = text.decode("utf-8", "replace")
    first, last = plain.find("{"), plain.rfind("}")
    if first < 0 or last < first:
        return result, "no JSON: %s" % " ".join(plain.split())[:300] if plain.strip() else "no output"
    try:
        document = json.loads(plain[first : last + 1])
    except ValueError as error:
        return result, "broken JSON: %s" % error
    if not isinstance(document, dict):
        return result, "the JSON is not an object"
    system = document.get("system")
    result["driver"] = _value(system, "driver version") if isinstance(system, dict) else None
    cards = [(int(name[4:]), card) for name, card in document.items() if re.match(r"card\d{1,4}$", str(name))]
    for index, card in sorted(cards, key=lambda pair: pair[0]):
        if isinstance(card, dict):
            result["gpus"].append(_gpu(index, card))
            result["driver"] = result["driver"] or _value(card, "driver version")
    return result, ""


def _gpu(index: int, fields: Dict[str, Any]) -> Dict[str, Any]:
    gpu = dict(smi.blank(index), mig_devices=0, clock_limits=[])
    total = smi.number(_value(fields, "vram total memory (b)", "vram total memory"))
    gpu["uuid"] = _value(fields, "unique id")
    gpu["name"] = _value(fields, "card series", "card model", "product name", "marketing name")
    gpu["bus_id"] = _value(fields, "pci bus")
    gpu["memory_mib"] = None if total is None else total >> 20
    gpu["vbios"] = _value(fields, "vbios version")
    junction = ("temperature (sensor junction) (c)", "temperature (sensor edge) (c)", "temperature (sensor memory) (c)")
    gpu["temperature_c"] = smi.number(_value(fields, *junction))
    gpu["retired_pending"] = _pages(fields, "pending")
    return gpu


def _pages(fields: Dict[str, Any], word: str) -> Optional[bool]:
    """Return whether memory pages are pending retirement; null if rocm-smi does not report pages."""
    pages = {str(name).lower(): value for name, value in fields.items() if "page" in str(name).lower()}
    return any(word in name and _some(value) for name, value in pages.items()) if pages else None


def _some(value: Any) -> bool:
    text = str(value).strip().lower()
    return bool(value) and text not in ("0", "none", "n/a", "no", "[]", "{}", "")


def _value(fields: Dict[str, Any], *names: str) -> Optional[str]:
    known = {str(name).lower(): value for name, value in fields.items()}
    for name in names:
        text = str(known.get(name, "")).strip()
        if text and text.lower() not in ("n/a", "none", "unknown", "null"):
            return text[:200]
    return None
