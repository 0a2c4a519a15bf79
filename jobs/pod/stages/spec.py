"""The tasks of this pod: `trial.json` and the pod's own identity, read and validated once.

Both are external input: a wrong value raises one clear sentence (`SpecError`), never a traceback in the middle of a
stage.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence

from .files import content

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "sendrecv", "broadcast")
MAX_FILE_BYTES = 1 << 20  # a ConfigMap cannot be larger (kubernetes.io/docs/concepts/configuration/configmap)


class SpecError(Exception):
    """trial.json or the pod's environment is unusable."""


class Identity:
    """The identity of this pod among the trial's pods."""

    def __init__(self, rank: int, pod_ip: str, node: str, pod: str) -> None:
        self.rank = rank
        self.pod_ip = pod_ip
        self.node = node
        self.pod = pod


class Trial:
    """The validated content of trial.json; times are seconds, sizes are bytes."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.run = _text(raw, "run")
        self.job = _text(raw, "job")
        self.peers = _names(raw)
        self.nodes = _whole(raw, "nodes", len(self.peers), low=1)
        if self.nodes != len(self.peers):
            raise SpecError("trial.json: %d nodes but %d peers" % (self.nodes, len(self.peers)))
        self.gpus_per_node = _whole(raw, "gpus_per_node", 0, low=0)
        self.ranks_per_node = max(1, self.gpus_per_node)  # a node without GPUs has one process
        self.gpu_kind = str(raw.get("gpu_kind") or "nvidia")
        self.master_port = _whole(raw, "master_port", 29500, low=1, high=65535)
        self.deadline_s = _seconds(raw, "deadline_s", 540)
        self.publish_s = _seconds(raw, "publish_s", 1)
        self.dns_timeout_s = _seconds(raw, "dns_timeout_s", 90)
        self.port_timeout_s = _seconds(raw, "port_timeout_s", 60)
        self.collective_timeout_s = _seconds(raw, "collective_timeout_s", 240)
        self.collectives = _collectives(raw)
        self.bench = _bench(raw)
        self.launcher = str(raw.get("launcher") or "indexed")
        self.program = _choice(raw, "program", ("auto", "torch", "nccl-tests"))
        self.storage: Optional[Dict[str, Any]] = _storage(_section(raw, "storage"))
        self.network = raw.get("network") if isinstance(raw.get("network"), dict) else None
        self.endpoints = _endpoints(raw)
        self.sweep = _sweep(_section(raw, "sweep"))
        self.training = _training(_section(raw, "training"))
        self.checkpoint = _checkpoint(_section(raw, "checkpoint"))
        self.dcgm = _dcgm(_section(raw, "dcgm"))
        self.perftest = _perftest(_section(raw, "perftest"))
        # How long to wait for a peer that has not started yet (its image is being pulled, its node is joining). If
        # given, this time precedes the deadline, which then starts at the ranks' rendezvous.
        spare = self.deadline_s - self.collective_timeout_s - reserve(self.deadline_s)
        self.peer_wait_s = _seconds(raw, "peer_wait_s", max(self.port_timeout_s, spare))
        self.before_s = self.peer_wait_s if "peer_wait_s" in raw else 0.0


def reserve(deadline_s: float) -> float:
    """Return how long before the deadline the probe stops its stages, to print their results."""
    return min(20.0, max(deadline_s / 10, min(4.0, deadline_s / 3)))


def read(path: str) -> Trial:
    """Read and validate trial.json; raise SpecError with the mistake."""
    try:
        with open(path, "rb") as stream:
            raw = json.loads(stream.read(MAX_FILE_BYTES).decode("utf-8"))
    except OSError as error:
        raise SpecError("cannot read %s: %s" % (path, error.strerror)) from error
    except ValueError as error:
        raise SpecError("%s is not JSON: %s" % (path, error)) from error
    if not isinstance(raw, dict):
        raise SpecError("%s is not a JSON object" % path)
    if raw.get("schema") != 1:
        raise SpecError("%s has schema %r; this probe reads schema 1" % (path, raw.get("schema")))
    return Trial(raw)


def identify(env: Mapping[str, str], trial: Trial) -> Identity:
    """Return this pod's rank and address: from the environment that the manifests set, else by its host name.

    A process that mpirun starts through ssh has the environment of an ssh session, not the container's.
    """
    host = os.uname().nodename.partition(".")[0]
    named = [index for index, peer in enumerate(trial.peers) if peer.partition(".")[0] == host]
    indices = [env.get(name, "").strip() for name in ("JOB_COMPLETION_INDEX", "NODE_RANK")]
    indices += [str(index) for index in named]
    indices += [env.get(name, "").strip() for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "RANK")]
    ranks = [int(value) for value in indices if value.isdigit() and len(value) < 7]
    if not ranks:
        raise SpecError("neither JOB_COMPLETION_INDEX nor NODE_RANK is a number: is this pod part of an Indexed Job?")
    if ranks[0] >= trial.nodes:
        raise SpecError("rank %d, but the trial has %d pods" % (ranks[0], trial.nodes))
    pod = env.get("SEATRIAL_POD_NAME") or host
    address = env.get("SEATRIAL_POD_IP", "").strip() or (_own_address(host) if named else "")
    return Identity(ranks[0], address, env.get("SEATRIAL_NODE_NAME", ""), pod)


def _own_address(host: str) -> str:
    """Return this pod's address from /etc/hosts, where the kubelet writes it; '' if it is missing."""
    for line in content("/etc/hosts").decode("utf-8", "replace").splitlines():
        fields = line.partition("#")[0].split()
        if host in fields[1:] and not fields[0].startswith(("127.0.", "::1", "fe80")):
            return fields[0]
    return ""


def _section(raw: Mapping[str, Any], key: str) -> Optional[Dict[str, Any]]:
    """Return the settings of a part of the trial; None if the trial has no such part."""
    value = raw.get(key)
    if value and not isinstance(value, dict):
        raise SpecError("trial.json: %s must be an object" % key)
    return value or None


def _endpoints(raw: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Return the endpoints that the pods must, or must not, reach."""
    return [
        {
            "text": _text(entry, "text"),
            "host": _text(entry, "host"),
            "port": _whole(entry, "port", 0, low=1, high=65535),
            "kind": _choice(entry, "kind", ("tcp", "tls", "http")),
            "forbidden": entry.get("forbidden") is True,
        }
        for entry in raw.get("endpoints") or []
    ]


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or not value:
        raise SpecError("trial.json: %s is missing" % key)
    return value


def _names(raw: Mapping[str, Any]) -> List[str]:
    value = raw.get("peers")
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name for name in value):
        raise SpecError("trial.json: peers must be a list of names")
    return [str(name) for name in value]


def _whole(raw: Mapping[str, Any], key: str, default: int, *, low: int, high: int = 1 << 62) -> int:
    value = raw.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SpecError("trial.json: %s is %r (expected a whole number from %d)" % (key, value, low))
    return value


def _seconds(raw: Mapping[str, Any], key: str, default: float) -> float:
    value = raw.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 7 * 86400:
        raise SpecError("trial.json: %s is %r (expected seconds)" % (key, value))
    return float(value)


def _choice(raw: Mapping[str, Any], key: str, choices: Sequence[str]) -> str:
    value = raw.get(key, choices[0])
    if value not in choices:
        raise SpecError("trial.json: %s is %r (expected one of %s)" % (key, value, ", ".join(choices)))
    return str(value)


def _collectives(raw: Mapping[str, Any]) -> List[Dict[str, Any]]:
    collectives = []
    for entry in raw.get("collectives") or []:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name.replace("-", "").replace("_", "").isalnum():
            raise SpecError("trial.json: a collective needs a name of letters, digits and '-', not %r" % (name,))
        env = {str(key): str(value) for key, value in (entry.get("env") or {}).items()}
        known: Dict[str, Any] = {"name": name, "env": env, "op": _choice(entry, "op", OPERATIONS)}
        known["scope"] = _choice(entry, "scope", ("job", "node"))
        known["repeats"] = _whole(entry, "repeats", 1, low=1, high=100)
        known["bench"] = _bench(entry) if entry.get("bench") else None
        known["command"] = [str(word) for word in entry.get("command") or []]
        collectives.append(known)
    return collectives


def _bench(raw: Mapping[str, Any]) -> Dict[str, int]:
    bench = raw.get("bench") or {}
    sizes = {
        "min_bytes": _whole(bench, "min_bytes", 1 << 20, low=4),
        "max_bytes": _whole(bench, "max_bytes", 1 << 30, low=4),
        "factor": _whole(bench, "factor", 2, low=2),
        "iters": _whole(bench, "iters", 20, low=1),
        "warmup": _whole(bench, "warmup", 5, low=0),
    }
    if sizes["max_bytes"] < sizes["min_bytes"]:
        raise SpecError("trial.json: bench.max_bytes is smaller than bench.min_bytes")
    return sizes


def _sweep(raw: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return the settings of a sweep over a fleet; None if the trial is not one."""
    if raw is None:
        return None
    known = {key: str(raw.get(key) or "") for key in ("fabric", "history")}
    return {
        **known,
        "token": _text(raw, "token"),
        "leaves": {str(node): str(leaf) for node, leaf in (raw.get("leaves") or {}).items()},
        "nodes": [str(node) for node in raw.get("nodes") or []],
        "rules": dict(raw.get("rules") or {}),
        "gdr": raw.get("gdr") is True,
        "budget_s": _seconds(raw, "budget_s", 3600),
        "settle_s": _seconds(raw, "settle_s", 120),
        "test_s": _seconds(raw, "test_s", 120),
        "pair": _bench({"bench": raw.get("pair")}),
        "alone": _bench({"bench": raw.get("alone")}),
        "end": raw.get("end") is not False,
    }


def _training(raw: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return the settings of the training steps; None if the trial has none."""
    if raw is None:
        return None
    return {
        "steps": _whole(raw, "steps", 40, low=5, high=100_000),
        "seed": _whole(raw, "seed", 1, low=0, high=1 << 31),
        "soak_s": _whole(raw, "soak_s", 0, low=0, high=86400),
        "limit_s": _seconds(raw, "limit_s", 240),
    }


def _checkpoint(raw: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return the settings of a checkpoint; None if the trial saves none."""
    if raw is None:
        return None
    return {
        "path": _text(raw, "path"),
        "local": str(raw.get("local") or ""),
        "shared": raw.get("shared") is True,
        "kinds": {str(key): str(kind) for key, kind in (raw.get("kinds") or {}).items()},
        "bytes": _whole(raw, "bytes", 1 << 28, low=1 << 20, high=1 << 33),
        "limit_s": _seconds(raw, "limit_s", 600),
    }


def _dcgm(raw: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return the settings of DCGM's diagnostics; None if the trial runs none."""
    if raw is None:
        return None
    return {"level": _whole(raw, "level", 1, low=1, high=4), "limit_s": _seconds(raw, "limit_s", 90)}


def _perftest(raw: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return the settings of the RDMA writes between neighbours; None if the trial makes none."""
    if raw is None:
        return None
    return {
        "seconds": _whole(raw, "seconds", 2, low=1, high=60),
        "layer": str(raw.get("layer") or ""),
        "gpu": raw.get("gpu") is True,
        "limit_s": _seconds(raw, "limit_s", 120),
    }


def _storage(raw: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return the paths and buckets to examine; None without any."""
    if raw is None:
        return None
    paths = []
    for entry in raw.get("paths") or []:
        path = _text(entry, "path")
        if not path.startswith("/"):
            raise SpecError("trial.json: storage: path %r is not absolute" % path)
        known = {"name": _text(entry, "name"), "path": path}
        known["kind"] = _choice(entry, "kind", ("path", "claim", "scratch"))
        paths.append(
            dict(
                known,
                shared=entry.get("shared") is True,
                write=entry.get("write") is True,
                bytes=_whole(entry, "bytes", 1 << 20, low=0),
                files=[str(name) for name in entry.get("files") or []],
            )
        )
    s3 = []
    for entry in raw.get("s3") or []:
        names = [str(name) for name in entry.get("env") or []]
        s3.append({"uri": str(entry.get("uri") or ""), "endpoint": str(entry.get("endpoint") or ""), "env": names})
    keys = [{key: _text(entry, key) for key in ("env", "secret", "key")} for entry in raw.get("credentials") or []]
    return {"paths": paths, "s3": s3, "credentials": keys, "burst_bytes": _whole(raw, "burst_bytes", 0, low=0)}
