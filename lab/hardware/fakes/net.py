"""The network that a rank chooses, and the lines of NCCL 2.28.9 about it.

The order (plugin, verbs, sockets) and the lines of NCCL 2.28.9 are as recorded in real runs: no usable device,
`NCCL_IB_DISABLE`, a filter without a match, `NCCL_NET=IB` without a device, a missing plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

# (subsystems, text); for a WARN line the subsystem is "WARN", and the text starts with its place in the source.
Line = tuple[str, str]

# Closest to farthest in the terms of `NCCL_NET_GDR_LEVEL`; by default a GPU may use a NIC below the same PCI switches
# (PXB), and the NIC of a rail is at PIX.
_LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
_LINKS = {"InfiniBand": "IB", "Ethernet": "RoCE"}


class Interface(NamedTuple):
    """A network interface of the pod."""

    name: str
    address: str


class Choice(NamedTuple):
    """The network that a rank chose; `failure` is the NCCL error if there was none."""

    network: str
    devices: list[dict[str, Any]]
    gdr: bool
    lines: list[Line]
    failure: str | None = None


def choose(env: Mapping[str, str], state: Mapping[str, Any], rank: int, interfaces: list[Interface]) -> Choice:
    """Choose the network of one rank by its environment and the devices of its pod."""
    lines: list[Line] = []
    interface = pick_interface(env, interfaces)
    if interface is None:
        place = "misc/socket.cc:399"
        lines.append(("WARN", place + "|Bootstrap : no socket interface found"))
        return Choice("", [], False, lines, failure="no socket interface found")
    mnnvl = state.get("mnnvl")
    if mnnvl and not mnnvl["channel"] and env.get("NCCL_MNNVL_ENABLE") != "0":  # mnnvl.cc of NCCL 2.28
        size = 2 * len(state["gpus"])
        lines.append(
            (
                "WARN",
                f"mnnvl.cc:58|MNNVL (cliqueSize {size}) is available but not working on this system. "
                "Check the IMEX channel configuration (/dev/nvidia-caps-imex-channels). Set NCCL_MNNVL_ENABLE=0 "
                "to ignore this issue.",
            )
        )
        return Choice("", [], False, lines, failure="MNNVL is available but not working on this system")
    requested = env.get("NCCL_NET", "").lower()
    plugged = _plugged(env, state, requested, lines)
    if plugged is not None:
        return Choice(*plugged, lines)
    if requested in ("", "ib"):
        devices = _verbs(env, state, rank, interface, lines)
        if devices:
            gdr = _gdr(env, state, "IB", devices, lines)
            lines += _chosen("IB")
            return Choice("IB", devices, gdr, lines)
        lines.append(("INIT NET", "Failed to initialize NET plugin IB"))
    if requested in ("", "socket"):
        if env.get("NCCL_SOCKET_IFNAME"):
            lines.append(("ENV", "NCCL_SOCKET_IFNAME set by environment to " + env["NCCL_SOCKET_IFNAME"]))
        usable = _filtered(env, interfaces)
        listed = " ".join(f"[{i}]{each.name}:{each.address}<0>" for i, each in enumerate(usable))
        lines.append(("INIT NET", "NET/Socket : Using " + listed))
        lines += _chosen("Socket")
        return Choice("Socket", [], False, lines)
    lines.append(("WARN", "plugin/net.cc:379|Failed to initialize any NET plugin"))
    return Choice("", [], False, lines, failure="Failed to initialize any NET plugin")


def _plugged(
    env: Mapping[str, str], state: Mapping[str, Any], requested: str, lines: list[Line]
) -> tuple[str, list[dict[str, Any]], bool] | None:
    """Return the platform's network plugin if the image has it and it finds its NICs: name, devices, GPUDirect."""
    asked, plugin = env.get("NCCL_NET_PLUGIN"), state.get("plugin")
    if asked:
        lines.append(("ENV", "NCCL_NET_PLUGIN set by environment to " + asked))
    names = ("libnccl-net.so",) if not asked else (asked, f"libnccl-net-{asked}.so")
    if plugin is None or plugin["file"] not in names:
        lines.append(("INIT NET", "NET/Plugin: Could not find: " + " ".join(names)))
        return None
    if plugin.get("cannot_load"):
        lines.append(("INIT NET", plugin["cannot_load"]))
        return None
    name, group = plugin["network"], int(plugin.get("cards_per_device", 1))
    lines.append(("INIT NET", "NET/Plugin: Loaded net plugin {} ({})".format(name, plugin.get("interface", "v11"))))
    lines.append(("INIT NET", "Successfully loaded external network plugin " + plugin["file"]))
    if requested not in ("", name.lower()):
        return None
    nics = [each for each in (state["rdma"] or {}).get("devices", []) if each.get("state", "ACTIVE") == "ACTIVE"]
    if plugin.get("orphan"):
        nics = []  # its daemon is not running in the pod
    lines += [_said(text, len(nics)) for text in plugin.get("says" if nics else "refuses", ())]
    if not nics:
        lines.append(("INIT NET", "Failed to initialize NET plugin " + name))
        return None
    devices = [
        dict(nics[first], rail=index, rate_gbps=sum(nic["rate_gbps"] for nic in nics[first : first + group]))
        for index, first in enumerate(range(0, len(nics), group))
    ]
    gdr = _gdr(env, state, name, devices, lines)
    lines += _chosen(name)
    return name, devices, gdr


def _said(text: str, count: int) -> Line:
    """Return one line of a plugin: INFO, or "WARN PLACE|TEXT"."""
    text = text.replace("{count}", str(count))
    return ("WARN", text[5:]) if text.startswith("WARN ") else ("INIT NET", text)


def pick_interface(env: Mapping[str, str], interfaces: list[Interface]) -> Interface | None:
    """Return the interface for out-of-band connections: the first that `NCCL_SOCKET_IFNAME` allows."""
    usable = _filtered(env, interfaces)
    return usable[0] if usable else None


def _filtered(env: Mapping[str, str], interfaces: list[Interface]) -> list[Interface]:
    spec = env.get("NCCL_SOCKET_IFNAME", "")
    if not spec:
        return [each for each in interfaces if each.name != "lo"]
    return [each for each in interfaces if matches(spec, each.name)]


def matches(spec: str, name: str, port: int | None = None) -> bool:
    """Return whether an NCCL interface list allows `name`: `^` excludes, `=` is exact, `name:port` is one port."""
    exclude = spec.startswith("^")
    spec = spec[1:] if exclude else spec
    exact = spec.startswith("=")
    spec = spec[1:] if exact else spec
    matched = False
    for entry in filter(None, spec.split(",")):
        listed, _, number = entry.partition(":")
        same = name == listed if exact else name.startswith(listed)
        if same and (not number or port is None or not number.isdigit() or int(number) == port):
            matched = True
    return matched != exclude


def _verbs(
    env: Mapping[str, str], state: Mapping[str, Any], rank: int, interface: Interface, lines: list[Line]
) -> list[dict[str, Any]]:
    disabled = env.get("NCCL_IB_DISABLE", "0")
    if disabled not in ("", "0"):
        lines.append(("ENV", f"NCCL_IB_DISABLE set by environment to {disabled}."))
        lines.append(("INIT NET", "transport/net_ib.cc:852 -> 3"))
        return []
    if "libibverbs.so.1" in state.get("lacks", ()):
        lines.append(("INIT NET", "Failed to open libibverbs.so[.1]"))
        return []
    spec = env.get("NCCL_IB_HCA", "")
    if spec:
        lines.append(("ENV", "NCCL_IB_HCA set to " + spec))
    behaviour = state["collective"]
    devices: list[dict[str, Any]] = []
    if state["rdma"] and rank not in behaviour.get("socket_ranks", []):
        closed = [device for device in state["rdma"]["devices"] if not device.get("opens", True)]
        lines += [
            ("WARN", f"transport/net_ib/init.cc:461|NET/IB : Unable to open device {device['name']}")
            for device in closed
        ]
        devices = [
            device
            for device in state["rdma"]["devices"]
            if device not in closed
            and device.get("state", "ACTIVE") == "ACTIVE"
            and device["link_layer"] in _LINKS  # NCCL ignores ports of any other kind, such as those of EFA
            and (not spec or matches(spec, device["name"], device["port"]))
        ]
    if not devices:
        lines.append(("INIT NET", "NET/IB : No device found."))
    listed = "".join(
        f"[{i}]{device['name']}:{device['port']}/{_LINKS.get(device['link_layer'], 'UNSPECIFIED')} "
        for i, device in enumerate(devices)
    )
    lines.append(("INIT NET", f"NET/IB : Using {listed}[RO]; OOB {interface.name}:{interface.address}<0>"))
    return devices


def _gdr(
    env: Mapping[str, str], state: Mapping[str, Any], name: str, devices: list[dict[str, Any]], lines: list[Line]
) -> bool:
    capable = bool(state["rdma"].get("gdr", True))
    for index, device in enumerate(devices):
        word = "Enabled" if capable else "Disabled"
        lines.append(("NET", f"NET/{name} : GPU Direct RDMA {word} for HCA {index} '{device['name']}'"))
    level = env.get("NCCL_NET_GDR_LEVEL", "")
    if level:
        lines.append(("ENV", "NCCL_NET_GDR_LEVEL set by environment to " + level))
        if level.upper() in _LEVELS:
            return capable and _LEVELS.index(level.upper()) >= _LEVELS.index("PIX")
        return capable and level != "0"
    return capable


def _chosen(name: str) -> list[Line]:
    return [
        ("INIT NET", "Initialized NET plugin " + name),
        ("INIT NET", f"Assigned NET plugin {name} to comm"),
        ("INIT NET", "Using network " + name),
    ]


def nic_of(devices: list[dict[str, Any]], rail: int) -> int:
    """Return the index of the NIC for rail `rail`: its own, or the nearest remaining one."""
    distance = [(abs(device.get("rail", index) - rail), index) for index, device in enumerate(devices)]
    return min(distance)[1] if distance else 0
