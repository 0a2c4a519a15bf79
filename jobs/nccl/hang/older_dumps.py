"""Bring Flight Recorder dumps of torch 2.2 and 2.3 into the form of later ones (TraceUtils.h, NCCLTraceBuffer::dump).

2.2 writes a bare list of entries; 2.3 a dictionary (version 1.1), later with the members of each group (1.4). Until
2.4 an entry names its group only by ``pg_id``, which counts the groups that a process is in; 0 is the default group.
``seq_id`` numbers collectives, sends and receives alike.
"""

from __future__ import annotations

from typing import Any

from .plain import number, word

UNTOLD = "a group whose ranks the dump does not tell"


def modern(content: Any, rank: int) -> Any:
    """Return a dump with the keys that later versions have; anything else as it is."""
    if isinstance(content, list) and content and all(isinstance(e, dict) and "profiling_name" in e for e in content):
        content = {"entries": content}
    entries = content.get("entries") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        return content
    old = [e for e in entries if isinstance(e, dict) and "process_group" not in e and type(e.get("pg_id")) is int]
    if not old:
        return content
    config = content.get("pg_config")
    ranks_of = {word(counted): ranks for counted, ranks in config.items()} if isinstance(config, dict) else {}
    groups = _groups(ranks_of, {str(entry["pg_id"]) for entry in old}, rank)
    pairs = {(e["pg_id"], number(e.get("seq_id"))) for e in old if _named(e).startswith(("send ", "recv "))}
    for entry in old:
        count = number(entry.get("seq_id"))
        paired = (entry["pg_id"], count) in pairs
        entry |= {"is_p2p": paired, "collective_seq_id": 0 if paired else count, "p2p_seq_id": count if paired else 0}
        entry["process_group"] = groups[str(entry["pg_id"])][0]
        if isinstance(microseconds := entry.get("time_created_us"), int):
            entry["time_created_ns"] = microseconds * 1000
    listed = {
        name: {"name": name, "desc": described, "ranks": ranks}
        for (name, described), ranks in groups.values()
        if ranks is not None
    }
    return {**content, "pg_config": listed}


def _named(entry: dict[str, Any]) -> str:
    return word(entry.get("profiling_name")).rpartition(":")[2]


def _groups(ranks_of: dict[str, Any], used: set[str], rank: int) -> dict[str, tuple[tuple[str, str], list[int] | None]]:
    """Return for each number of a group in this process its name and description, alike on all ranks, and members."""
    groups: dict[str, tuple[tuple[str, str], list[int] | None]] = {}
    alike: dict[tuple[int, ...], int] = {}
    for own in sorted(ranks_of.keys() | used, key=lambda text: (len(text), text)):
        ranks = ranks_of.get(own)
        if not isinstance(ranks, list) or not all(type(member) is int for member in ranks):
            default = own == "0"
            groups[own] = (
                ("0", "default_pg") if default else (f"{own} of rank {rank}", UNTOLD),
                None if default else [rank],
            )
            continue
        nth = alike[tuple(ranks)] = alike.get(tuple(ranks), 0) + 1
        few = ", ".join(map(str, ranks[:4])) + (f" to {ranks[-1]} ({len(ranks)})" if len(ranks) > 4 else "")
        name = f"{hash(tuple(ranks)) & 0xFFFFFFFF:08x}-{nth}"
        described = "default_pg" if own == "0" else f"group of ranks {few}" + (f", number {nth}" if nth > 1 else "")
        groups[own] = ("0" if own == "0" else name, described), ranks
    return groups
