"""The stages outside the pod: names, the rendezvous port, the pod network, storage."""

from __future__ import annotations

from typing import TypedDict

from .kinds import Count


class ResolvConf(TypedDict):
    """The pod's resolv.conf."""

    nameservers: list[str]
    search: list[str]
    ndots: float | None


class DnsPeer(TypedDict):
    """The resolved addresses of another rank's name."""

    name: str | None
    error: str | None
    first_error: str | None
    index: Count | None
    attempts: Count | None
    addresses: list[str] | None
    pod_ip_matches: bool | None
    seconds_to_first_answer: float | None


class DnsStage(TypedDict):
    """The resolved names of all ranks."""

    error: str | None
    resolver: ResolvConf
    peers: list[DnsPeer]


class PortPeer(TypedDict):
    """Whether another rank was reachable from this one, and this one from it."""

    index: Count | None
    address: str | None
    name: str | None
    outbound_error: str | None
    pod_ip: str | None
    outbound: bool | None
    inbound: bool | None
    clock_skew_s: float | None
    outbound_seconds: float | None


class PortStage(TypedDict):
    """The stage "port": connections between the ranks at the rendezvous port."""

    port: Count | None
    listening: bool | None
    error: str | None
    peers: list[PortPeer]


class Interface(TypedDict):
    """A network interface of the pod."""

    name: str | None
    mtu: Count | None
    up: bool | None
    addresses: list[str]
    speed_mbit: float | None


class PortTry(TypedDict):
    """A port of another rank that was tested."""

    port: Count | None
    ok: bool | None
    error: str | None


class NetworkPeer(TypedDict):
    """The pod network to another rank."""

    index: Count | None
    address: str | None
    error: str | None
    mtu_error: str | None
    first_mtu: Count | None
    path_mtu: Count | None
    learned_mtu: Count | None
    bytes: Count | None
    throughput_gbit_s: float | None
    peak_gbit_s: float | None
    df_ok: bool | None
    cpu_wait: float | None
    ports: list[PortTry]


class NetworkStage(TypedDict):
    """The pod network."""

    error: str | None
    seconds: float | None
    port_range: list[Count] | None
    interfaces: list[Interface]
    peers: list[NetworkPeer]


class LockTry(TypedDict):
    """A lock: this rank's own, and its attempts on the next rank's lock while that is held and after its release."""

    held: bool | None
    refused: bool | None
    apart: bool | None
    freed: bool | None
    freed_s: float | None
    error: str | None


class TriedPath(TypedDict):
    """The operations that work at a path."""

    name: str | None
    path: str | None
    kind: str | None
    fs: str | None
    device: str | None
    options: list[str]
    error: str | None
    errno: str | None
    exists: bool | None
    writable: bool | None
    rename_ok: bool | None
    read_back_ok: bool | None
    shared: bool | None
    write: bool | None
    readonly: bool | None
    peer_file_ok: bool | None
    peer_rename_ok: bool | None
    entries: Count | None
    files_tried: Count | None
    files_bad: Count | None
    files_bad_named: list[str]
    files_empty: Count | None
    files_empty_named: list[str]
    write_bytes: Count | None
    free_bytes: Count | None
    total_bytes: Count | None
    write_mb_s: float | None
    fsync_s: float | None
    read_mb_s: float | None
    peer_seconds: float | None
    flock: LockTry
    posix: LockTry
    attributes_ok: bool | None
    attributes_s: float | None
    attributes_seen: str | None
    small_files: Count | None
    small_made_s: float | None
    small_missing: Count | None
    small_bad: Count | None
    small_read: Count | None
    small_read_s: float | None
    small_removed: Count | None
    small_removed_s: float | None
    swap_versions: Count | None
    swap_missing: Count | None
    swap_torn: Count | None
    semantics_error: str | None


class Burst(TypedDict):
    """Simultaneous writes of all ranks."""

    path: str | None
    error: str | None
    errno: str | None
    bytes: Count | None
    writers: Count | None
    seconds: float | None
    mb_s: float | None
    slowest_rank_s: float | None


class Bucket(TypedDict):
    """Whether an S3 bucket is reachable."""

    uri: str | None
    endpoint: str | None
    region: str | None
    error: str | None
    reachable: bool | None
    can_sign: bool | None
    status: Count | None
    seconds: float | None
    missing: list[str]


class TriedEndpoint(TypedDict):
    """A host that must answer, or must not; through its proxy, or directly."""

    endpoint: str | None
    forbidden: bool | None
    reached: bool | None
    by: str | None
    error: str | None


class EndpointsStage(TypedDict):
    """The hosts that the profile names."""

    error: str | None
    tried: list[TriedEndpoint]


class CredentialFacts(TypedDict):
    """Whether a variable from a Secret's key is set; never its value."""

    env: str | None
    secret: str | None
    key: str | None
    present: bool | None


class StorageStage(TypedDict):
    """Paths, the burst, buckets, and credentials."""

    error: str | None
    paths: list[TriedPath]
    credentials: list[CredentialFacts]
    burst: Burst | None
    s3: list[Bucket]
