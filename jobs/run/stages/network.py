"""The stages between pods: names, the rendezvous port, the pod network."""

from __future__ import annotations

from typing import TypedDict

from .kinds import Count


class ResolvConf(TypedDict, total=False):
    """The pod's resolv.conf."""

    nameservers: list[str]
    search: list[str]
    ndots: float


class DnsPeer(TypedDict, total=False):
    """What the name of another rank resolved to."""

    name: str
    error: str
    first_error: str
    index: Count
    attempts: Count
    addresses: list[str]
    pod_ip_matches: bool
    seconds_to_first_answer: float


class DnsStage(TypedDict, total=False):
    """Names of the other ranks."""

    error: str
    resolver: ResolvConf
    peers: list[DnsPeer]


class PortPeer(TypedDict, total=False):
    """Whether another rank could be reached, and reached this one."""

    index: Count
    address: str
    name: str
    outbound_error: str
    pod_ip: str
    outbound: bool
    inbound: bool
    clock_skew_s: float
    outbound_seconds: float


class PortStage(TypedDict, total=False):
    """The stage "port": connections between the ranks at the rendezvous port."""

    port: Count
    listening: bool
    error: str
    peers: list[PortPeer]


class Interface(TypedDict, total=False):
    """A network interface of the pod."""

    name: str
    mtu: Count
    up: bool
    addresses: list[str]
    speed_mbit: float


class PortTry(TypedDict, total=False):
    """A port of another rank that was tried."""

    port: Count
    ok: bool
    error: str


class NetworkPeer(TypedDict, total=False):
    """What the pod network carries to another rank."""

    index: Count
    address: str
    error: str
    mtu_error: str
    first_mtu: Count
    path_mtu: Count
    learned_mtu: Count
    bytes: Count
    throughput_gbit_s: float
    peak_gbit_s: float
    df_ok: bool
    cpu_wait: float
    ports: list[PortTry]


class NetworkStage(TypedDict, total=False):
    """The pod network."""

    error: str
    seconds: float
    port_range: list[Count]
    interfaces: list[Interface]
    peers: list[NetworkPeer]
