"""The kubelet's services for the pods of a node: addresses, sandboxes, resolvers, images, tokens."""

from __future__ import annotations

import hashlib
import itertools
import re
from typing import Any

from ..apiserver.store import Store
from .network import Network, Sandbox
from .network.policy import PolicyController
from .seams import Hardware, Images, NoHardware, NoImages

Object = dict[str, Any]
DNS = "10.96.0.10"
HANDLERS = frozenset({"", "runc", "nvidia", "nvidia-cdi", "nvidia-legacy"})
"""Runtime handlers of a node that lists none: containerd's and those of the NVIDIA toolkit."""


class NodeServices:
    """The nodes as their pods see them."""

    def __init__(
        self, store: Store, network: Network, images: Images | None, hardware: Hardware | None, log_max_bytes: int
    ) -> None:
        self.store, self.network, self.log_max_bytes = store, network, log_max_bytes
        self.images: Images = images or NoImages()
        self.hardware: Hardware = hardware or NoHardware()
        self.offline: set[str] = set()
        """Nodes without power: their pods stay unchanged in the API."""
        self.closing = False
        self._numbers: dict[str, itertools.count[int]] = {}
        self._nodes: dict[str, int] = {}
        self._pulled: set[tuple[str, str]] = set()
        self._hosts: dict[str, Sandbox] = {}
        self.policies = PolicyController(store, network)

    def host_ip(self, node: str) -> str:
        """Return the node's own address."""
        status = (self.store.get("nodes", None, node) or {}).get("status") or {}
        return next((a["address"] for a in status.get("addresses") or [] if a["type"] == "InternalIP"), "10.0.0.1")

    def address(self, node: str) -> str:
        """Return a free address for a pod, from the node's pod CIDR if that is one of the cluster's."""
        number = next(self._numbers.setdefault(node, itertools.count()))
        cidr = ((self.store.get("nodes", None, node) or {}).get("spec") or {}).get("podCIDR", "")
        if own := re.fullmatch(r"10\.(24[4-7])\.(\d+)\.0/24", cidr):
            return self.network.pod_address((int(own[1]) - 244) * 256 + int(own[2]), number)
        return self.network.pod_address(self._nodes.setdefault(node, 255 - len(self._nodes) % 256), number)

    async def host_sandbox(self, node: str, tmpfs: dict[str, int]) -> Sandbox:
        """Return the network of the node itself, for pods with hostNetwork."""
        if node not in self._hosts:
            self._hosts[node] = await self.network.sandbox(self.host_ip(node), node, tmpfs)
        return self._hosts[node]

    def release(self, sandbox: Sandbox) -> None:
        """Remove a pod's sandbox; the node's own stays."""
        if sandbox not in self._hosts.values():
            sandbox.remove()

    def resolver(self, pod: Object) -> dict[str, Any]:
        """Return nameserver, search and options of a pod's resolv.conf, by its dnsPolicy."""
        namespace, spec = pod["metadata"]["namespace"], pod["spec"]
        policy, config = spec.get("dnsPolicy", "ClusterFirst"), spec.get("dnsConfig") or {}
        outside = policy in ("Default", "None") or (policy == "ClusterFirst" and spec.get("hostNetwork"))
        search = [] if outside else [f"{namespace}.svc.cluster.local", "svc.cluster.local", "cluster.local"]
        options = [] if outside else ["ndots:5"]
        options += [f"{o['name']}:{o['value']}" if o.get("value") else o["name"] for o in config.get("options") or []]
        servers = config.get("nameservers") or []
        # The node's own resolver does not know the cluster; this address of TEST-NET-1 does not respond.
        server = servers[0] if servers else ("192.0.2.53" if outside else DNS)
        return {"nameserver": server, "search": [*search, *(config.get("searches") or [])], "options": options}

    def no_runtime(self, node: str, runtime_class: str | None) -> str:
        """Return why the node cannot create a sandbox of that class; empty if it can."""
        if not runtime_class:
            return ""
        runtime = self.store.get("runtimeclasses.node.k8s.io", None, runtime_class) or {}
        handler = runtime.get("handler", runtime_class)
        status = (self.store.get("nodes", None, node) or {}).get("status") or {}
        known = {h.get("name", "") for h in status.get("runtimeHandlers") or []} or HANDLERS
        return "" if handler in known | HANDLERS else f'no runtime for "{handler}" is configured'

    def has_image(self, node: str, image: str) -> bool:
        """Return whether a node has an image, by its status or by an earlier pull."""
        status = (self.store.get("nodes", None, node) or {}).get("status") or {}
        listed = any(image in (i.get("names") or []) for i in status.get("images") or [])
        return listed or (node, image) in self._pulled

    def image_id(self, node: str, image: str) -> str:
        """Return a digest, the same for the same image, and record that the node has it."""
        self._pulled.add((node, image))
        return "sha256:" + hashlib.sha256(image.encode()).hexdigest()

    def token(self, pod: Object, audience: str, seconds: int) -> str:
        """Return a service account token for a pod's volume."""
        meta = pod["metadata"]
        name = pod["spec"].get("serviceAccountName", "default")
        account = self.store.get("serviceaccounts", meta["namespace"], name)
        if account is None:
            return ""
        return str(
            self.store.authority.token(
                meta["namespace"],
                name,
                account["metadata"]["uid"],
                seconds=seconds,
                audiences=(audience,) if audience else (),
                pod=(meta["name"], meta["uid"]),
            )
        )
