"""The shape of what a rank's probe prints: every stage's fields, checked once where they come in.

Anybody who can write to a pod's output can print a line that looks like evidence. A stage whose fields have other types
or bounds than the probe gives them is not taken at all, so that no rule meets it. A field may be null or missing:
unknown. Fields that are not listed are nobody's to read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..cluster.redact import safe
from ..cluster.unstructured import as_map
from ..pod.nccl_reader.errors import NcclLogError
from ..pod.nccl_reader.state.partial import Partial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LARGEST = 2**64
"""Counters of ports have 64 bits; nothing that a probe tells is larger."""
COLLECTIVE = "collective."


@dataclass(frozen=True, slots=True)
class Whole:
    """An object in which none of these fields is missing; some more may be there."""

    fields: dict[str, object]
    more: dict[str, object]


@dataclass(frozen=True, slots=True)
class Of:
    """A map with text as keys and one shape of values."""

    values: object


TEXT, FLAG, NUMBER, COUNT = "text", "true or false", "a number", "a count"
LABEL = "a number or text"
FIGURE = "a figure"  # as a log had it: damaged ones may have any size
RECORD = "a list of numbers and text"
RANK = "rank, host, process, device, bus, name and line"
_TEXTS = (TEXT,)

_PEER = {"index": COUNT, "address": TEXT}
_GPU = {
    "index": COUNT,
    **dict.fromkeys(("uuid", "name", "bus_id", "vbios", "recovery_action", "mig"), TEXT),
    **dict.fromkeys(("fabric_state", "fabric_status", "pcie"), TEXT),
    **dict.fromkeys(("ecc_uncorrected_volatile", "ecc_uncorrected_aggregate"), COUNT),
    **dict.fromkeys(("mig_devices", "nvlinks_active"), COUNT),
    **dict.fromkeys(("retired_pending", "remap_pending", "remap_failure", "persistence"), FLAG),
    **dict.fromkeys(("throttle", "clock_limits"), _TEXTS),
    **dict.fromkeys(("temperature_c", "memory_mib"), NUMBER),
    "fabric_health": Of(TEXT),
}
_PORT = {
    **dict.fromkeys(("name", "state", "phys_state", "link_layer", "netdev", "fw", "board"), TEXT),
    **dict.fromkeys(("lid", "sm_lid", "mtu", "counters"), COUNT),
    "rate_gbps": NUMBER,
    "port": LABEL,
    "gid": FLAG,
    "usable": FLAG,
    "gids": [{"index": COUNT, "gid": TEXT, "type": TEXT}],
    "pkeys": [TEXT],
    "errors": Of(COUNT),
}
_PATH = {
    **dict.fromkeys(("name", "path", "kind", "fs", "device", "error", "errno"), TEXT),
    **dict.fromkeys(("exists", "writable", "rename_ok", "read_back_ok", "shared", "write", "readonly"), FLAG),
    **dict.fromkeys(("peer_file_ok", "peer_rename_ok"), FLAG),
    **dict.fromkeys(("entries", "write_bytes", "free_bytes", "total_bytes"), COUNT),
    **dict.fromkeys(("write_mb_s", "fsync_s", "read_mb_s", "peer_seconds"), NUMBER),
}
_SIDE = Whole(dict.fromkeys(("time_us", "algbw_gbps", "busbw_gbps", "wrong"), FIGURE), {})
_ROW: dict[str, object] = {
    **dict.fromkeys(("type", "redop"), TEXT),
    **dict.fromkeys(("size_bytes", "count", "root"), FIGURE),
    **dict.fromkeys(("out_of_place", "in_place"), _SIDE),
}
_TABLE: dict[str, object] = {
    **dict.fromkeys(("collective", "version"), TEXT),
    **dict.fromkeys(("out_of_bounds_ok", "avg_ok", "complete"), FLAG),
    **dict.fromkeys(("out_of_bounds", "avg_busbw", "line", "unreadable"), FIGURE),
    **dict.fromkeys(("columns", "odd"), _TEXTS),
    "wrong_line": RECORD,
    "config": Of(LABEL),
    "rows": [Whole(_ROW, {})],
}
_SOURCE: dict[str, object] = {
    "tables": [Whole(_TABLE, {"swapped": FLAG, "left": _TEXTS, "avg_line": FIGURE})],
    "ranks": [RANK],
}
STAGES: dict[str, dict[str, object]] = {
    "start": {
        **dict.fromkeys(("python", "hostname", "pod_ip", "node", "kernel", "cap_eff", "error"), TEXT),
        **dict.fromkeys(("time", "memlock_bytes", "shm_bytes", "memory_max", "cpu_max"), NUMBER),
        "uid": COUNT,
        "env": Of(TEXT),
    },
    "runtime": {
        **dict.fromkeys(("driver", "cuda", "kind", "toolkit", "error"), TEXT),
        **dict.fromkeys(("requested", "extra_gpus"), COUNT),
        **dict.fromkeys(("assigned", "devices", "mig_devices"), _TEXTS),
        "nvidia_smi": {"found": FLAG, "listed": FLAG, "exit": NUMBER, "error": TEXT, "name": TEXT},
        "gpus": [_GPU],
        "xid": [{"bus_id": TEXT, "xid": COUNT, "count": COUNT}],
    },
    "rdma": {"devices": [_PORT], "uverbs": [TEXT], "source": TEXT, "error": TEXT},
    "topology": {
        **dict.fromkeys(("signature", "source", "error", "matrix"), TEXT),
        "gpus": [{"index": COUNT, "bus_id": TEXT, "numa": NUMBER}],
        "nics": [{"name": TEXT, "bus_id": TEXT, "numa": NUMBER}],
        "paths": [{"gpu": COUNT, "nic": TEXT, "path": TEXT}],
        "rows": [TEXT],
        "acs": [{"bus_id": TEXT, "enabled": FLAG, "control": COUNT}],
    },
    "dns": {
        "error": TEXT,
        "resolver": {"nameservers": [TEXT], "search": [TEXT], "ndots": NUMBER},
        "peers": [
            {
                **dict.fromkeys(("name", "error", "first_error"), TEXT),
                **dict.fromkeys(("index", "attempts"), COUNT),
                "addresses": [TEXT],
                "pod_ip_matches": FLAG,
                "seconds_to_first_answer": NUMBER,
            }
        ],
    },
    "port": {
        "port": COUNT,
        "listening": FLAG,
        "error": TEXT,
        "peers": [
            {
                **_PEER,
                **dict.fromkeys(("name", "outbound_error", "pod_ip"), TEXT),
                **dict.fromkeys(("outbound", "inbound"), FLAG),
                **dict.fromkeys(("clock_skew_s", "outbound_seconds"), NUMBER),
            }
        ],
    },
    "network": {
        "error": TEXT,
        "seconds": NUMBER,
        "port_range": [COUNT],
        "interfaces": [{"name": TEXT, "mtu": COUNT, "up": FLAG, "addresses": [TEXT], "speed_mbit": NUMBER}],
        "peers": [
            {
                **_PEER,
                **dict.fromkeys(("error", "mtu_error"), TEXT),
                **dict.fromkeys(("first_mtu", "path_mtu", "learned_mtu", "bytes"), COUNT),
                **dict.fromkeys(("throughput_gbit_s", "peak_gbit_s"), NUMBER),
                "df_ok": FLAG,
                "ports": [{"port": COUNT, "ok": FLAG, "error": TEXT}],
            }
        ],
    },
    "storage": {
        "error": TEXT,
        "paths": [_PATH],
        "burst": {
            **dict.fromkeys(("path", "error", "errno"), TEXT),
            **dict.fromkeys(("bytes", "writers"), COUNT),
            **dict.fromkeys(("seconds", "mb_s", "slowest_rank_s"), NUMBER),
        },
        "s3": [
            {
                **dict.fromkeys(("uri", "endpoint", "region", "error"), TEXT),
                **dict.fromkeys(("reachable", "can_sign"), FLAG),
                "status": COUNT,
                "seconds": NUMBER,
                "missing": [TEXT],
            }
        ],
    },
    COLLECTIVE: {
        **dict.fromkeys(("name", "op", "scope", "program", "stopped", "output_tail", "error", "skipped"), TEXT),
        **dict.fromkeys(("repeats", "world_size", "output_bytes", "log_bytes"), COUNT),
        **dict.fromkeys(("exit", "seconds"), NUMBER),
        **dict.fromkeys(("command", "logs"), _TEXTS),
        "timed_out": FLAG,
        "env": Of(TEXT),
        "nccl_conf": Of(TEXT),
        "rdma_counters": Of(COUNT),
        "facts": {"op": TEXT, "cycles": COUNT, "largest": COUNT, "first_us": Of(NUMBER)},
        "nccl": {"sources": [_SOURCE]},
    },
    "end": {"seconds": NUMBER, "stopped": TEXT},
}


def misfit(stage: str, data: dict[str, object]) -> str:
    """Return where a stage's data is not as the probe gives it, and how; '' where it is, or nobody reads the stage."""
    shape = STAGES.get(COLLECTIVE if stage.startswith(COLLECTIVE) else stage, {})
    return _differs(data, shape, stage) or _unread(data.get("nccl"), stage)


def _unread(found: object, stage: str) -> str:
    """Say why the log reader cannot read its own part back."""
    if found:
        try:
            Partial.from_dict(as_map(found))
        except NcclLogError as error:
            return f"{stage}.nccl: {error}"
    return ""


def _differs(value: object, shape: object, where: str) -> str:
    """Return the first place, in the order of the text, at which a value is not of a shape."""
    if value is None:
        return ""
    if isinstance(shape, str):
        return "" if _is(value, shape) else f"{where} is not {shape}"
    inner: Iterable[tuple[str, object, object]]
    if isinstance(shape, list | tuple):
        if not isinstance(value, list):
            return f"{where} is no list"
        inner = ((f"{where}[{number}]", each, shape[0]) for number, each in enumerate(value))
    elif not isinstance(value, dict):
        return f"{where} is no object"
    elif isinstance(shape, Whole):
        if lost := [key for key in shape.fields if key not in value]:
            return f"{where} lacks {lost[0]}"
        inner = ((f"{where}.{key}", value.get(key), each) for key, each in {**shape.fields, **shape.more}.items())
    elif isinstance(shape, Of):
        inner = ((f"{where}.{safe(key, 60)}", each, shape.values) for key, each in value.items())
    else:
        inner = ((f"{where}.{key}", value.get(key), each) for key, each in as_map(shape).items())
    return next((said for at, each, of in inner if (said := _entry(each, of, at, shape))), "")


def _entry(value: object, of: object, where: str, shape: object) -> str:
    """Look into a container: an entry of a list is never null."""
    return f"{where} is null" if value is None and isinstance(shape, list | tuple) else _differs(value, of, where)


def _is(value: object, kind: str) -> bool:
    """Tell whether a value is of a kind, and within bounds."""
    return _KINDS[kind](value)


def _is_rank(value: object) -> bool:
    """Tell whether a table's line about a rank can be read: numbers where it is compared with processes."""
    return isinstance(value, list) and len(value) == 7 and all(isinstance(value[at], int) for at in (0, 2, 6))


def _is_record(value: object) -> bool:
    return isinstance(value, list) and all(each is None or isinstance(each, str | int | float) for each in value)


def is_number(value: object) -> bool:
    """Tell whether a value is a number that a probe may tell: finite, and of a size that things have."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


_KINDS: dict[str, Callable[[object], bool]] = {
    TEXT: lambda value: isinstance(value, str),
    FLAG: lambda value: isinstance(value, bool),
    NUMBER: is_number,
    COUNT: lambda value: is_number(value) and isinstance(value, int) and value >= 0,
    LABEL: lambda value: isinstance(value, str | int | float),
    FIGURE: lambda value: isinstance(value, int | float) and abs(value) < 1e300,
    RECORD: _is_record,
    RANK: _is_rank,
}
