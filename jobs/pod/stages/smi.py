"""`nvidia-smi -q -x` of each GPU: its XML as plain values, for all driver generations.

DTD versions 11 to 13 name and nest fields differently and print "N/A", "[N/A]", "None" or nothing at all for
unsupported ones. Every value is looked up separately, and a missing one is null. The text is untrusted: no entities, no
DTD, bounded.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

MAX_BYTES = 16 << 20  # 8 x H100 make 212 KB; the limit is far above any machine
_BEGIN = re.compile(rb"<\?xml|<!DOCTYPE|<nvidia_smi_log\b")
_END = b"</nvidia_smi_log>"
_ABSENT = frozenset(
    "|n/a|[n/a]|none|unknown|not supported|[not supported]|unknown error|[unknown error]|err!".split("|")
)
TABLE = ["--query-gpu=index,uuid,name,driver_version", "--format=csv,noheader"]
_LISTED = re.compile(r"GPU \d+: (.{1,200}?) \(UUID: ([\w-]+)\)")
# Clock reasons that protect the hardware (docs.nvidia.com, nvidia-smi: "Clocks Event Reasons").
_SLOWED = frozenset(["hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"])
# The other reasons limit clocks in normal operation (idle, configured clocks, a power cap under load).
_QUIET = frozenset(["gpu_idle", "none"])


def read(text: bytes) -> Tuple[Dict[str, Any], str]:
    """Return ({driver, cuda, attached, gpus}, error); complete GPUs are kept from truncated or mixed text."""
    result: Dict[str, Any] = {"driver": None, "cuda": None, "attached": None, "gpus": []}
    begin = _BEGIN.search(text)
    if begin is None:
        return result, "no XML: %s" % _gist(text) if text.strip() else "no output"
    end = text.rfind(_END)
    document = text[begin.start() : end + len(_END) if end >= 0 else len(text)]
    if b"<!ENTITY" in document or re.search(rb"<!DOCTYPE[^>\[]*\[", document):
        return result, "the XML defines entities; refused"
    around = _gist(text[: begin.start()] + b" " + (text[end + len(_END) :] if end >= 0 else b""))
    error = _parse(document, result)
    return result, error or around


def _parse(document: bytes, answer: Dict[str, Any]) -> str:
    parser: XMLPullParser[Any] = XMLPullParser(events=("end",))
    error = ""
    try:
        parser.feed(document)
    except ParseError as problem:
        error = "broken XML: %s" % problem
    try:
        for event in parser.read_events():
            element: Any = event[-1]
            if element.tag == "gpu":
                answer["gpus"].append(_gpu(element, len(answer["gpus"])))
            elif element.tag == "driver_version":
                answer["driver"] = answer["driver"] or _value(element.text)
            elif element.tag == "cuda_version":
                answer["cuda"] = answer["cuda"] or _value(element.text)
            elif element.tag == "attached_gpus":
                answer["attached"] = number(element.text)
        parser.close()
    except ParseError as problem:  # read_events raises the parser's error
        error = error or "broken XML: %s" % problem
    return error


def _gpu(gpu: Element, position: int) -> Dict[str, Any]:
    slowed, limited = _clock_reasons(gpu)
    volatile, aggregate = gpu.find("ecc_errors/volatile"), gpu.find("ecc_errors/aggregate")
    return {
        "index": position,
        "uuid": _at(gpu, "uuid"),
        "name": _at(gpu, "product_name"),
        "bus_id": _at(gpu, "pci/pci_bus_id") or _value(gpu.get("id")),
        "memory_mib": number(_at(gpu, "fb_memory_usage/total")),
        "vbios": _at(gpu, "vbios_version"),
        "inforom": _at(gpu, "inforom_version/img_version"),
        "gsp": _at(gpu, "gsp_firmware_version"),
        "ecc_uncorrected_volatile": _uncorrected(volatile),
        "ecc_uncorrected_aggregate": _uncorrected(aggregate),
        "retired_pending": _yes(_at(gpu, "retired_pages/pending_retirement", "retired_pages/pending_blacklist")),
        "remap_pending": _yes(_at(gpu, "remapped_rows/remapped_row_pending")),
        "remap_failure": _yes(_at(gpu, "remapped_rows/remapped_row_failure")),
        "recovery_action": _at(gpu, "gpu_recovery_action"),
        "mig": _at(gpu, "mig_mode/current_mig"),
        "mig_devices": len(gpu.findall("mig_devices/mig_device")),
        "persistence": _yes(_at(gpu, "persistence_mode")),
        "throttle": slowed,
        "clock_limits": limited,
        "fabric_state": _plain(gpu, "fabric/state"),
        "fabric_status": _plain(gpu, "fabric/status"),
        "fabric_health": _fabric_health(gpu),
        "nvlinks_active": None,
        "serial": _at(gpu, "serial"),
        "sm_mhz": number(_at(gpu, "clocks/sm_clock")),
        "temperature_c": number(_at(gpu, "temperature/gpu_temp")),
        "pcie": _pcie(gpu),
    }


def table(text: str, answer: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Parse the answer to TABLE: the GPUs, and the driver's version into `answer`."""
    gpus: List[Dict[str, Any]] = []
    for line in text.splitlines():
        fields = [_value(field) for field in line.split(",")]
        if len(fields) == 4 and fields[0] and fields[0].isdigit():
            gpus.append(dict(blank(len(gpus)), uuid=fields[1], name=fields[2]))
            answer["driver"] = answer["driver"] or fields[3]
    return gpus


def lines(text: str, _: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Parse `nvidia-smi -L`: a line for each GPU, indented ones for its MIG devices."""
    named = [match.groups() for match in map(_LISTED.match, text.splitlines()) if match]
    return [dict(blank(index), uuid=uuid, name=name) for index, (name, uuid) in enumerate(named)]


def blank(index: int) -> Dict[str, Any]:
    """Return a GPU whose other facts are unknown."""
    return dict(dict.fromkeys(_gpu(Element("gpu"), 0)), index=index)


def _clock_reasons(gpu: Element) -> Tuple[Optional[List[str]], List[str]]:
    """Return the active reasons that show a fault (None if no reason is reported), and the other active ones."""
    active, listed = [], False
    for group in ("clocks_event_reasons", "clocks_throttle_reasons"):  # the older name was dropped with driver 530
        for reason in gpu.findall(group + "/*"):
            listed = True
            if (reason.text or "").strip().lower() == "active":
                active.append(re.sub(r"^clocks_(event|throttle)_reasons?_", "", str(reason.tag)))
    slowed = sorted({name for name in active if name in _SLOWED})
    return slowed if listed else None, sorted({name for name in active if name not in _SLOWED and name not in _QUIET})


def _uncorrected(counters: Optional[Element]) -> Optional[int]:
    """Sum the uncorrectable errors; older GPUs count single and double bit errors instead of naming the memory."""
    if counters is None:
        return None
    numbers = [number(child.text) for child in counters if "uncorrectable" in str(child.tag)]
    if all(count is None for count in numbers):
        numbers = [number(_at(counters, "double_bit/total"))]
    counted = [count for count in numbers if count is not None]
    return sum(counted) if counted else None


def _fabric_health(gpu: Element) -> Optional[Dict[str, str]]:
    """Return the fabric manager's details beyond state and status; None without any."""
    said = {str(child.tag): (child.text or "").strip() for child in gpu.findall("fabric/health/*")}
    values = {name: value for name, value in said.items() if _value(value) is not None}
    return values or None


def _pcie(gpu: Element) -> Optional[str]:
    base = "pci/pci_gpu_link_info/"
    generation = _at(gpu, base + "pcie_gen/max_link_gen")
    width = _at(gpu, base + "link_widths/current_link_width")
    return "gen%s %s" % (generation, width) if generation and width else None


def links(text: str) -> Dict[str, int]:
    """Count the active NVLinks per GPU in `nvidia-smi nvlink -s`: GPU uuid (or index as text) -> links with a rate."""
    counts: Dict[str, int] = {}
    gpu = ""
    for line in text.splitlines():
        head = re.match(r"\s*GPU (\d+):.*?(?:UUID:\s*([^\s)]+))?\)?\s*$", line)
        if head:
            gpu = head.group(2) or head.group(1)
            continue
        link = re.match(r"\s*Link \d+:\s*(.*)", line)
        if link and gpu:
            counts[gpu] = counts.get(gpu, 0) + (1 if re.match(r"[\d.]+\s*GB/s", link.group(1)) else 0)
    return counts


def _at(element: Element, *paths: str) -> Optional[str]:
    for path in paths:
        value = _value(element.findtext(path))
        if value is not None:
            return value
    return None


def _plain(element: Element, path: str) -> Optional[str]:
    """Return the text as printed, "N/A" included: for the fabric it means that this GPU is on none."""
    text = element.findtext(path)
    return None if text is None else text.strip()[:100] or None


def _value(text: Optional[str]) -> Optional[str]:
    text = (text or "").strip()
    return None if text.lower() in _ABSENT or text.startswith("Requested functionality") else text[:200]


def number(text: Optional[str]) -> Optional[int]:
    """Return the whole number at the beginning of a text; None without one."""
    match = re.match(r"\s*(-?\d{1,18})(?:\.\d+)?\b", text or "")
    return int(match.group(1)) if match else None


def _yes(text: Optional[str]) -> Optional[bool]:
    return {"yes": True, "enabled": True, "no": False, "disabled": False}.get((text or "").lower())


def _gist(text: bytes) -> str:
    """Return the first words of a plain answer, for an error message."""
    return " ".join(text[:4096].decode("utf-8", "replace").split())[:300]
