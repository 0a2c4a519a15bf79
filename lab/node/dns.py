"""The cluster's DNS server.

A real DNS server on the cluster's 10.96.0.10:53, with records from Services and EndpointSlices like CoreDNS' kubernetes
plugin: headless names, NXDOMAIN with an SOA, and a cache, which keeps a negative response for a while after the name
exists.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import dnslib

if TYPE_CHECKING:
    from collections.abc import Callable

    from .network import Network

ADDRESS, PORT = "10.96.0.10", 53
LOOPBACK = "127.96.0.10"
ZONE = "cluster.local"
CACHE_S = 30
"""`cache 30` of the default Corefile: the maximum time for which a response is cached
(https://coredns.io/plugins/cache)."""
TTL_S = 5
"""Default `ttl` of the kubernetes plugin, also the negative TTL in its SOA (https://coredns.io/plugins/kubernetes)."""
MAX_CACHED = 10_000
MAX_UDP = 1232

Mode = Literal["ok", "servfail", "timeout", "nxdomain"]
Object = dict[str, Any]


class Objects(Protocol):
    """The store as this module uses it."""

    def get(self, key: str, ns: str | None, name: str) -> Object | None:
        """Return an object or None."""

    def list(self, key: str, ns: str | None = None, selector: str = "") -> list[Object]:
        """Return objects."""

    def subscribe(self, key: str, callback: Callable[[str, Object, Object | None], object]) -> Callable[[], None]:
        """Call back after changes."""


@dataclass(slots=True)
class Behaviour:
    """The server's behaviour in a scenario: `mode` affects all names of the cluster, `delay_s` new endpoints."""

    mode: Mode = "ok"
    delay_s: float = 0.0
    wrong_address: str = ""
    """The address returned for every headless hostname, instead of the pod's."""


class Names:
    """The kubernetes plugin: addresses of a name, None if it does not exist."""

    def __init__(self, store: Objects, behaviour: Behaviour, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._behaviour, self._clock = store, behaviour, clock
        self._first_seen: dict[tuple[str, str, str], float] = {}
        self._end = store.subscribe("endpointslices.discovery.k8s.io", self._learn)

    def close(self) -> None:
        """Stop watching the store."""
        self._end()

    def _learn(self, change: str, new: Object, _: Object | None) -> None:
        meta = new["metadata"]
        service = (meta.get("labels") or {}).get("kubernetes.io/service-name", "")
        addresses = {a for endpoint in new.get("endpoints") or [] for a in endpoint.get("addresses", [])}
        for address in addresses if change != "DELETED" else ():
            self._first_seen.setdefault((meta["namespace"], service, address), self._clock())

    def _old_enough(self, ns: str, service: str, address: str) -> bool:
        first_seen = self._first_seen.setdefault(
            (ns, service, address), self._clock()
        )  # a query may come before the watch event
        return self._clock() - first_seen >= self._behaviour.delay_s

    def addresses(self, name: str) -> list[str] | None:
        """Return the IPv4 addresses of a full name without the final dot."""
        labels = name.lower().removesuffix("." + ZONE).split(".")
        if len(labels) == 3 and labels[2] == "pod":
            with contextlib.suppress(ValueError):
                return [str(ipaddress.IPv4Address(labels[0].replace("-", ".")))]
            return None
        if labels[-1] != "svc" or len(labels) not in (3, 4):
            return [] if labels in (["svc"], [ZONE]) or (len(labels) == 2 and self._namespace(labels)) else None
        *host, service, ns, _ = labels
        return self._service(host[0] if host else "", service, ns)

    def _namespace(self, labels: list[str]) -> bool:
        return labels[1] == "svc" and self._store.get("namespaces", None, labels[0]) is not None

    def _service(self, host: str, name: str, ns: str) -> list[str] | None:
        service = self._store.get("services", ns, name)
        if service is None:
            return None
        address = service["spec"].get("clusterIP")
        if address and address != "None":
            return None if host else [address]
        addresses = [
            self._behaviour.wrong_address or address
            for slice_ in self._store.list("endpointslices.discovery.k8s.io", ns, f"kubernetes.io/service-name={name}")
            for endpoint in slice_.get("endpoints") or []
            if (endpoint.get("conditions") or {}).get("ready") is not False
            for address in endpoint["addresses"]
            if host in ("", endpoint.get("hostname") or address.replace(".", "-"))
            and self._old_enough(ns, name, address)
        ]
        return sorted(set(addresses)) or None

    def pointer(self, address: str) -> str | None:
        """Return the name of an address: a headless hostname or a service."""
        for slice_ in self._store.list("endpointslices.discovery.k8s.io"):
            for endpoint in slice_.get("endpoints") or []:
                if address in endpoint["addresses"] and endpoint.get("hostname"):
                    service = (slice_["metadata"].get("labels") or {}).get("kubernetes.io/service-name", "")
                    return f"{endpoint['hostname']}.{service}.{slice_['metadata']['namespace']}.svc.{ZONE}"
        for service_ in self._store.list("services"):
            if service_["spec"].get("clusterIP") == address:
                return f"{service_['metadata']['name']}.{service_['metadata']['namespace']}.svc.{ZONE}"
        return None


class Resolver:
    """The resolver from a query to a response, as bytes, through the cache; None: no response."""

    def __init__(self, names: Names, behaviour: Behaviour, clock: Callable[[], float] = time.monotonic) -> None:
        self._names, self._behaviour, self._clock = names, behaviour, clock
        self._cache: dict[tuple[str, int], tuple[float, int, list[dnslib.RR], list[dnslib.RR]]] = {}

    def answer(self, data: bytes) -> bytes | None:
        """Resolve one message; invalid messages get no response."""
        try:
            query = dnslib.DNSRecord.parse(data)
        except (dnslib.DNSError, struct.error, ValueError, IndexError):
            return None
        if not query.questions or query.header.qr:
            return None
        name = str(query.q.qname).rstrip(".")
        ours = name.lower() == ZONE or name.lower().endswith("." + ZONE)
        reply = query.reply(aa=1 if ours else 0, ra=1)
        if ours and self._behaviour.mode == "timeout":
            return None
        if ours and self._behaviour.mode == "servfail":
            reply.header.rcode = dnslib.RCODE.SERVFAIL
            return bytes(reply.pack())
        code, answers, authority = self._cached(name, query.q.qtype)
        reply.header.rcode = code
        for record in answers:
            reply.add_answer(record)
        for record in authority:
            reply.add_auth(record)
        return bytes(reply.pack())

    def _cached(self, name: str, kind: int) -> tuple[int, list[dnslib.RR], list[dnslib.RR]]:
        key, now = (name.lower(), kind), self._clock()
        held = self._cache.get(key)
        if held is None or held[0] <= now:
            code, answers, authority = self._look_up(name, kind)
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            held = (now + min(TTL_S, CACHE_S), code, answers, authority)
            self._cache[key] = held
        left = max(1, round(held[0] - now))
        for record in (*held[2], *held[3]):
            record.ttl = min(record.ttl, left)
        return held[1], held[2], held[3]

    def _look_up(self, name: str, kind: int) -> tuple[int, list[dnslib.RR], list[dnslib.RR]]:
        reverse = name.lower().removesuffix(".in-addr.arpa")
        if reverse != name.lower():
            target = self._names.pointer(".".join(reversed(reverse.split("."))))
            answers = [dnslib.RR(name, dnslib.QTYPE.PTR, rdata=dnslib.PTR(target), ttl=TTL_S)] if target else []
            exists = target is not None
        else:
            addresses = self._addresses(name)
            exists = addresses is not None
            returned = addresses or [] if kind in (dnslib.QTYPE.A, dnslib.QTYPE.ANY) else []
            answers = [dnslib.RR(name, dnslib.QTYPE.A, rdata=dnslib.A(address), ttl=TTL_S) for address in returned]
        code = dnslib.RCODE.NOERROR if exists else dnslib.RCODE.NXDOMAIN
        return code, answers, [] if answers else [_authority()]

    def _addresses(self, name: str) -> list[str] | None:
        lower = name.lower()
        if self._behaviour.mode == "nxdomain" or not (lower == ZONE or lower.endswith("." + ZONE)):
            return None  # there is no upstream server to forward to
        return [] if lower == ZONE else self._names.addresses(lower)


def _loopback() -> tuple[socket.socket, socket.socket]:
    """Return a datagram and a stream socket on one free port; port 53 would need privileges."""
    for _ in range(20):
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind((LOOPBACK, 0))
        stream = socket.socket()
        try:
            stream.bind(datagrams.getsockname())
        except OSError:  # the port belongs to another process: try another pair
            datagrams.close()
            stream.close()
            continue
        stream.listen()
        datagrams.setblocking(False)
        stream.setblocking(False)
        return datagrams, stream
    raise OSError("no port of the loopback is free for both UDP and TCP")


def _authority() -> dnslib.RR:
    start = dnslib.SOA(f"ns.dns.{ZONE}", f"hostmaster.{ZONE}", (int(time.time()), 7200, 1800, 86400, TTL_S))
    return dnslib.RR(ZONE, dnslib.QTYPE.SOA, rdata=start, ttl=TTL_S)


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        answer = self._resolver.answer(data)
        if answer is None or self._transport is None:
            return
        if len(answer) > MAX_UDP:
            cut = dnslib.DNSRecord.parse(data).reply()
            cut.header.tc = 1
            answer = bytes(cut.pack())
        self._transport.sendto(answer, addr)


class DnsServer:
    """The cluster's DNS: `await start(network)`, change `behaviour` at any time, `close()`."""

    def __init__(self, store: Objects, behaviour: Behaviour | None = None) -> None:
        self.behaviour = behaviour or Behaviour()
        self.names = Names(store, self.behaviour)
        self.resolver = Resolver(self.names, self.behaviour)
        self._transport: asyncio.BaseTransport | None = None
        self._server: asyncio.Server | None = None

    async def start(self, network: Network) -> None:
        """Serve UDP and TCP on 10.96.0.10:53 inside; in a plain network on the loopback, and publish that address."""
        if network.mode == "plain":
            datagrams, stream = _loopback()
            network.services[f"{ADDRESS}:{PORT}"] = list(datagrams.getsockname())
            await self.serve(datagrams, stream)
            return
        await self.serve(await network.socket("udp", (ADDRESS, PORT)), await network.socket("tcp", (ADDRESS, PORT)))

    async def serve(self, datagrams: socket.socket, stream: socket.socket) -> None:
        """Serve on these sockets."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self.resolver), sock=datagrams)
        self._server = await asyncio.start_server(self._converse, sock=stream)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            while True:
                async with asyncio.timeout(10):
                    (length,) = struct.unpack("!H", await reader.readexactly(2))
                    answer = self.resolver.answer(await reader.readexactly(length))
                if answer is None:
                    break
                writer.write(struct.pack("!H", len(answer)) + answer)
                await writer.drain()
        writer.close()

    def close(self) -> None:
        """Stop serving."""
        self.names.close()
        if self._transport:
            self._transport.close()
        if self._server:
            self._server.close()
