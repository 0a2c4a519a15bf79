"""DNS evidence: which peers' names resolve in this pod, after what time, and to which address.

The name of a Job's pod is NXDOMAIN until its endpoint is published, and caches keep that answer for a while. So every
name is queried again until it resolves or its time is over, and the time to the first answer is evidence.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from . import dnsquery
from .deadline import Watch

WORKERS = 32
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0  # CoreDNS caches a denial for 5 s (its default) to 30 s (kubeadm's Corefile), which is shorter
# A denial for an early query is cached. So the own name is queried first, which the same Service publishes, and the
# peers' names once it resolves, or after this time.
OWN_FIRST_S = 3.0
_CODES = {
    getattr(socket, name): name
    for name in ("EAI_NONAME", "EAI_AGAIN", "EAI_FAIL", "EAI_NODATA")
    if hasattr(socket, name)
}

# The answer for the name of a pod without an address yet, in dnsquery's terms.
NOT_THERE = ("NXDOMAIN", "NODATA")

Resolved = Callable[[int, List[str]], None]
Until = Callable[[Dict[str, Any]], float]


class _Name:
    """One peer's name and the results of its queries."""

    def __init__(self, index: int, name: str) -> None:
        self.record: Dict[str, Any] = {
            "index": index,
            "name": name,
            "addresses": [],
            "seconds_to_first_answer": None,
            "attempts": 0,
            "first_error": None,
            "error": None,
            "pod_ip_matches": None,
        }
        self.due = 0.0
        self.pause = FIRST_PAUSE_S


class _Board:
    """The open names, shared by a few threads: a resolver that hangs must not delay the other names."""

    def __init__(self, names: List[_Name], until: Until) -> None:
        self.waiting = list(names)
        self.until = until
        self.open = len(names)
        self._looked = 0.0
        self.changed = threading.Condition()

    def ask_first(self, own: Optional[int], began: float) -> None:
        """Delay the other names until this rank's own resolves, by OWN_FIRST_S and half of their own time at most."""
        for name in self.waiting if own is not None else []:
            if name.record["index"] != own:
                name.due = began + min(OWN_FIRST_S, (self.until(name.record) - began) / 2)

    def take(self, watch: Watch) -> Optional[_Name]:
        """Return the next name that is due; None when no name is open."""
        with self.changed:
            while self.open and not watch.stopped():
                now = time.monotonic()
                self._give_up(now)
                due = [name for name in self.waiting if name.due <= now]
                if due:
                    self.waiting.remove(due[0])
                    return due[0]
                soonest = min([name.due for name in self.waiting] + [now + 0.2])
                self.changed.wait(max(0.005, soonest - now))
            return None

    def _give_up(self, now: float) -> None:
        """Drop the names that timed out; not at every call, since there may be thousands."""
        if now - self._looked < 0.1:
            return
        self._looked = now
        hopeful = [name for name in self.waiting if now < self.until(name.record)]
        self.open -= len(self.waiting) - len(hopeful)
        self.waiting = hopeful

    def put_back(self, name: _Name) -> None:
        """Schedule another query of this name."""
        with self.changed:
            name.due = time.monotonic() + name.pause
            name.pause = min(LONGEST_PAUSE_S, name.pause * 1.6)
            self.waiting.append(name)
            self.changed.notify_all()

    def done(self, *, hurry: bool) -> None:
        """Count one name as resolved; with `hurry` the others are due at once."""
        with self.changed:
            self.open -= 1
            for name in self.waiting if hurry else []:
                name.due = 0.0
            self.changed.notify_all()


def resolve_all(
    data: Dict[str, Any],
    peers: List[str],
    *,
    until: Until,
    watch: Watch,
    on_resolved: Resolved,
    own: Optional[int] = None,
    resolv_conf: str = "/etc/resolv.conf",
    lookup: Optional[Callable[[str], List[str]]] = None,
) -> None:
    """Fill the `dns` stage's data; `on_resolved` is called for every resolved peer at once, to connect to it.

    `until` returns the time (monotonic) until which to query a name, from its record, and may change it. `own` is the
    index of this rank's own name, which is queried first.
    """
    resolver, began = dnsquery.read_resolver(resolv_conf), time.monotonic()
    names = [_Name(index, name) for index, name in enumerate(peers)]
    data.update(resolver=resolver.to_dict(), peers=[name.record for name in names])
    board = _Board(names, until)
    board.ask_first(own, began)

    def work() -> None:
        while True:
            name = board.take(watch)
            if name is None:
                return
            if _try(name, resolver, min(watch.soft_ends, until(name.record)), began, lookup or addresses):
                board.done(hurry=name.record["index"] == own)
                on_resolved(name.record["index"], name.record["addresses"])
            else:
                board.put_back(name)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(WORKERS, len(names)))]
    for worker in workers:
        worker.start()
    for worker in workers:
        while worker.is_alive() and time.monotonic() < _latest(names, until) + 0.5 and not watch.stopped():
            worker.join(timeout=0.1)
    _name_timeouts(data["peers"])


def _name_timeouts(records: List[Dict[str, Any]]) -> None:
    for record in records:
        if not record["addresses"] and record["error"] is None:
            record.update(error="timeout", first_error=record["first_error"] or "timeout")


def _latest(names: List[_Name], until: Until) -> float:
    """Return when the last open name's time is over."""
    return max([until(name.record) for name in names if not name.record["addresses"]] + [0.0])


def addresses(name: str) -> List[str]:
    """Return the name's addresses from the C library, in its order."""
    answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def _try(
    name: _Name, resolver: dnsquery.Resolver, limit: float, began: float, lookup: Callable[[str], List[str]]
) -> bool:
    record = name.record
    record["attempts"] += 1
    try:
        answer = lookup(record["name"])
    except socket.gaierror as problem:
        record["error"] = reason(record["name"], problem, resolver, limit)
    except (OSError, UnicodeError) as problem:
        record["error"] = str(problem)[:200] or type(problem).__name__
    else:
        record["addresses"] = answer[:16]
        record["seconds_to_first_answer"] = round(time.monotonic() - began, 3)
        record["error"] = None
        return True
    record["first_error"] = record["first_error"] or record["error"]
    return False


def reason(name: str, problem: socket.gaierror, resolver: dnsquery.Resolver, limit: float) -> str:
    """Return the DNS answer that explains a getaddrinfo failure."""
    said = dnsquery.explain(name, resolver, min(limit, time.monotonic() + 6))
    if said != dnsquery.ANSWERED:
        return said
    # It answers our query but not the C library's: the name appeared in between, or nsswitch lacks "dns".
    return "%s (but the DNS server answers)" % _CODES.get(problem.errno or 0, "EAI %s" % problem.errno)
