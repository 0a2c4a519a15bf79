"""The stages outside the pod: names, the rendezvous port, the pod network, storage."""

from __future__ import annotations

from typing import TypedDict

from .kinds import Count


class ResolvConf(TypedDict, total=False):
    """The pod's resolv.conf."""

    nameservers: list[str]
    search: list[str]
    ndots: float


class DnsPeer(TypedDict, total=False):
    """The resolved addresses of another rank's name."""

    name: str
    error: str
    first_error: str
    index: Count
    attempts: Count
    addresses: list[str]
    pod_ip_matches: bool
    seconds_to_first_answer: float


class DnsStage(TypedDict, total=False):
    """The resolved names of all ranks."""

    error: str
    resolver: ResolvConf
    peers: list[DnsPeer]


class PortPeer(TypedDict, total=False):
    """Whether another rank was reachable from this one, and this one from it."""

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
    """A port of another rank that was tested."""

    port: Count
    ok: bool
    error: str


class NetworkPeer(TypedDict, total=False):
    """The pod network to another rank."""

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


class LockTry(TypedDict, total=False):
    """A lock: this rank's own, and its attempts on the next rank's lock while that is held and after its release."""

    held: bool
    refused: bool
    apart: bool
    freed: bool
    freed_s: float
    error: str


class TriedPath(TypedDict, total=False):
    """The operations that work at a path."""

    name: str
    path: str
    kind: str
    fs: str
    device: str
    options: list[str]
    error: str
    errno: str
    exists: bool
    writable: bool
    rename_ok: bool
    read_back_ok: bool
    shared: bool
    write: bool
    readonly: bool
    peer_file_ok: bool
    peer_rename_ok: bool
    entries: Count
    files_tried: Count
    files_bad: Count
    files_bad_named: list[str]
    files_empty: Count
    files_empty_named: list[str]
    write_bytes: Count
    free_bytes: Count
    total_bytes: Count
    write_mb_s: float
    fsync_s: float
    read_mb_s: float
    peer_seconds: float
    flock: LockTry
    posix: LockTry
    attributes_ok: bool
    attributes_s: float
    attributes_seen: str
    small_files: Count
    small_made_s: float
    small_missing: Count
    small_bad: Count
    small_read: Count
    small_read_s: float
    small_removed: Count
    small_removed_s: float
    swap_versions: Count
    swap_missing: Count
    swap_torn: Count
    semantics_error: str


class Burst(TypedDict, total=False):
    """Simultaneous writes of all ranks."""

    path: str
    error: str
    errno: str
    bytes: Count
    writers: Count
    seconds: float
    mb_s: float
    slowest_rank_s: float


class Bucket(TypedDict, total=False):
    """Whether an S3 bucket is reachable."""

    uri: str
    endpoint: str
    region: str
    error: str
    reachable: bool
    can_sign: bool
    status: Count
    seconds: float
    missing: list[str]


class TriedEndpoint(TypedDict, total=False):
    """A host that must answer, or must not; through its proxy, or directly."""

    endpoint: str
    forbidden: bool
    reached: bool
    by: str
    error: str


class EndpointsStage(TypedDict, total=False):
    """The hosts that the profile names."""

    error: str
    tried: list[TriedEndpoint]


class CredentialFacts(TypedDict, total=False):
    """Whether a variable from a Secret's key is set; never its value."""

    env: str
    secret: str
    key: str
    present: bool


class StorageStage(TypedDict, total=False):
    """Paths, the burst, buckets, and credentials."""

    error: str
    paths: list[TriedPath]
    credentials: list[CredentialFacts]
    burst: Burst
    s3: list[Bucket]
