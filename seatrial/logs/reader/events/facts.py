"""The content of one INFO message of NCCL about its process, as effects.

The effects are facts, settings, devices, notes and communicators.

The content of a message depends only on its text, so that it is read once for all processes that print it; the
process's tracker applies it. Forms differ by version; each pattern names those it covers. A text without a matching
pattern has no effect.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Tuple

from ..lines.clean import name
from ..state.channels import TAIL
from .comms import parse_communicator
from .devices import listed_devices
from .symptoms import BENIGN, classify

_VERSION = re.compile(rb"^(?:NCCL|RCCL) version (?:: )?(\d+\.\d+[^\s,]*)")
_ENV = re.compile(rb"^((?:R?NCCL|FI|UCX|OFI)_[A-Z0-9_]{1,60}) set (?:by environment )?to (.*)$")
_INTERFACE = re.compile(rb"(?:\[\d+\])?([A-Za-z0-9_.@-]{1,32}):([0-9A-Za-z.:%_-]{0,64})<\d+>")
_OOB = re.compile(rb"OOB ([A-Za-z0-9_.@-]{1,32}):([0-9A-Za-z.:%_-]{0,64})<\d+>")
_TRACE = re.compile(rb"^\S{1,160}:\d+ (?:\([^()]{1,120}\) )?-> (\d{1,2})\b")
_RINGS = re.compile(rb"^Connected all rings, use ring PXN (\d) GDR (\d)")
_PROVIDER = re.compile(rb"Selected [Pp]rovider is ([A-Za-z0-9_;.-]{1,40})")
_PLATFORM = re.compile(rb"\bRunning on ([a-z][a-z0-9-]{1,15}\.[a-z0-9-]{2,15}) platform")
_LOADED = re.compile(rb"Loaded net plugin (.+?)(?: \(v\d+\))?$")
_ASSIGNED = re.compile(rb"Assigned NET plugin (.+?) to comm")
# The interface alone, without index and address, is the form on web pages about NCCL: 'NET/Socket : Using eth0'.
_LISTED = re.compile(rb"^NET/([A-Za-z0-9_ -]{1,40}?) ?: Using (?:\[\d+\]|(?<=Socket : Using )[a-z][\w.@-]{1,15}\s*$)")
_NVLS = re.compile(rb"(\d{1,6}) nvls channels")
_MNNVL = re.compile(rb"^MNNVL (\d) cliqueId|MNNVL .*fabric UUID (\S+)")
_LINK = re.compile(rb"^NET/IB: .*\b(?:qpn|mtu) .*\b(GID|LID) ")
# 'NET/IB: [0] mlx5_0:uverbs0:1/IB provider=Mlx5 speed=400000 ..' (transport/net_ib, ncclIbInitDevices): Mb/s
_PORT = re.compile(
    rb"^NET/IB ?: \[\d{1,3}\] ?([\w.+-]{1,64}):(?:[\w.+-]{1,32}:)?(\d{1,3})/([A-Za-z]{1,12})\b[^=]{0,40}"
    rb"(?:=\S{1,40} )?speed=(\d{1,9})\b"
)
# A device by its index, in any of NET/IB's lines: as above, also truncated; '.. for HCA 0 'mlx5_0''; 'Made virtual
# device [0] name=mlx5_0 ..' (ncclIbMakeVDeviceInternal)
_NAMED = re.compile(
    rb"^NET/IB ?: (?:\[|.{1,40} for HCA |Made virtual device \[)(\d{1,3})\]? ?(?:name=|')?([\w.+-]{1,64})"
    rb"(?::[\w.+-]{1,32})?(?::\d{1,3}(/[A-Za-z]{1,12})?)?"
)
_HCA_GDR = re.compile(rb"GPU Direct RDMA (En|Dis)abled for HCA \d{1,3} '([\w.+:-]{1,64})'")
_ALGORITHM = re.compile(rb"^(\w{4,24}): \d+ Bytes -> Algo (\w{1,20}) proto \w+")  # a line of subsystem TUNING
# 'NET/0-0 (0/0/0/50.000000)' in the dump of a host's topology (GRAPH): a NIC, and its GB/s
_WIRE = re.compile(rb"\+ NET\[[\d.]{1,12}\] - NET/([\d-]{1,12}) \([^()]{0,80}?([\d.]{1,16})\)")
RING_ORDER = re.compile(rb"^Channel (\d+)(?:/(\d+))? :((?:\s+\d+)+)\s*$")


# NCCL's texts about a missing plugin, by version: hosts with different texts run different versions.
_PLUGIN_FORMS = (
    ("2.21 to 2.25", b"Using internal network plugin"),
    ("2.26 or later", b"NET/Plugin: Could not find: libnccl-net"),
    ("2.19 to 2.20", b"NET/Plugin : dlerror="),
    ("2.17 to 2.18", b"NET/Plugin : Plugin load"),
    ("2.5 to 2.16", b"NET/Plugin : No plugin found (libnccl-net.so), using internal"),
    ("2.4", b"NET/Plugin : No plugin found (libnccl-net.so)"),
)

# Settings that explain a job's choices: a fault that they cause quotes the line that shows them.
_TELLING = frozenset(
    (
        "NCCL_NET",
        "NCCL_NET_PLUGIN",
        "NCCL_IB_DISABLE",
        "NCCL_IB_HCA",
        "NCCL_NET_GDR_LEVEL",
        "NCCL_NET_GDR_READ",
        "NCCL_IB_CUDA_SUPPORT",
        "NCCL_P2P_DISABLE",
        "NCCL_P2P_LEVEL",
        "NCCL_SHM_DISABLE",
        "NCCL_SOCKET_IFNAME",
        "NCCL_MNNVL_ENABLE",
        "NCCL_ALGO",
        "NCCL_PROTO",
    )
)

Effect = Tuple[Any, ...]
# The first item of an effect is its kind; the others are:
FACT = 0  # name, value
NOTE = 1  # name: a line of that kind was seen
ENV = 2  # variable, value
DEVICES = 3  # index -> device, of NET/IB's list
IB = 4  # NET/IB's result: none, empty, list
CHOSE = 5  # the network that a communicator uses
TRACE = 6  # the code of an error that a function returned, and whether it asked for a network's properties
COMM = 7  # the facts about a communicator (comms.CommLine)
RING = 8  # the ranks of a ring, in order
QUOTE = 9  # name of a line that a fault may quote, kept once
HEAD = 10  # a device and a launcher's tag in a line's prefix; of a process, and no line's effect
READ_BACK = (("flag", "no-pci-path"), ("flag", "mnnvl"))  # facts that the reading of later lines needs
_RING_TEXT = 1000  # bytes of a ring's order; NCCL cuts it at its buffer's end


def effects_of(text: bytes) -> Tuple[Effect, ...]:
    """Return the content of one INFO message; nothing for one without relevant content."""
    if text.endswith(b"across cluster]"):  # the mark of Ray's de-duplication
        text = text[: text.rfind(b"[repeated ")]
    text = text.rstrip()
    said: List[Effect] = []
    handler = _HANDLERS.get(text[:4])
    if handler is None or not handler(text, said):
        _others(text, said)
    return tuple(said)


def keeps_line(effects: Tuple[Effect, ...]) -> bool:
    """Return whether the line of a message may be shown."""
    return any(effect[0] in (NOTE, TRACE, QUOTE) for effect in effects)


def _others(text: bytes, said: List[Effect]) -> None:
    """Read a message whose first four bytes are unknown."""
    if b" nranks " in text or b" nRanks " in text:
        communicator = parse_communicator(text)
        if communicator is not None:
            said.append((COMM, communicator))
        return
    channels = _NVLS.search(text) if b" nvls channels" in text else None
    if channels:
        said.append((FACT, "flag", "nvls-channels" if int(channels.group(1)) else "no-nvls-channels"))
        return
    if b"+ NVL[" in text:  # links in the topology as the driver reports them, used or not (graph/topo.cc)
        said.append((FACT, "flag", "nvlink"))
        return
    wire = _WIRE.search(text) if b"+ NET[" in text else None
    if wire:
        said.append((FACT, "wire", "%s %s" % (name(wire.group(1)), name(wire.group(2)))))
        return
    algorithm = _ALGORITHM.match(text)
    if algorithm:
        said.append((FACT, "algorithm", "%s %s" % (name(algorithm.group(1)), name(algorithm.group(2)))))
        return
    trace = _TRACE.match(text)
    if trace:
        if 1 <= int(trace.group(1)) <= 6:  # code 7 is "in progress"
            said.append((TRACE, int(trace.group(1)), text.startswith(b"include/net.h")))
        return
    symptom = classify(text)
    if symptom is not None and symptom.role != BENIGN:
        said.append((NOTE, symptom.fault if symptom.role != "cause" else "info:" + symptom.fault, symptom.shows))


# A channel's line without its transport, or with half of it: truncated by a web page, a pager or a full disk.
_CUT_CHANNEL = re.compile(
    rb"(?:Ring|Channel) \d{1,4}(?:/\d{1,3})? : \d{1,7}(?:\[\w{1,16}\])? -> (?:\d{1,7}(?:\[\w{0,16}\]?)?)?"
    rb"(?: \[(?:send|receive)\])?(?: v(?:ia?)?"
    rb"| via (?:N(?:E(?:T(?:/[^/]{0,60}(?:/\d{0,4}/\w{0,5})?)?)?)?|P(?:2(?:P/?)?)?))?\s*$"
)


# A whole line of a channel with a transport that this reader does not know: a later NCCL's, or a network plugin with a
# name of other characters (ncclNetName: any text). What begins like a known one may be torn.
_UNKNOWN_CARRIER = re.compile(
    rb"(?:Ring|Channel) \d{1,4}(?:/\d{1,3})? : \d{1,7}\[\w{1,16}\] -> \d{1,7}\[\w{1,16}\](?: \[(?:send|receive)\])?"
    rb" via (?:(?!NET|P2P|SHM|COLLNET|direct)[A-Za-z]\w{2,30}|P2P/(?![ICMcdi])\w{3,30}"
    rb"|NET/(?!.{0,60}:\d)[^/\[\]]{0,58}[^\w.:+ /\[\]-][^/\[\]]{0,58}/\d{1,4}(?:\(\d{1,7}\))?)"
    rb"(?:/[\w.()+-]{1,40}){0,4}\s*$"
)


def ring_order(text: bytes) -> Tuple[Effect, ...]:
    """Return the ring order that rank 0 prints (``Channel 00/32 : 0 1 2 ...``): it names every rank."""
    match = RING_ORDER.match(TAIL.sub(b"", text)) if len(text) < _RING_TEXT else None
    if match is None:
        if _UNKNOWN_CARRIER.match(text):
            return ((NOTE, "line channel-unknown"),)
        return ((NOTE, "line channel-cut"),) if _CUT_CHANNEL.match(text) else ()
    ranks = frozenset(int(item) for item in match.group(3).split())
    return ((RING, ranks),) if ranks == frozenset(range(len(ranks))) else ()


# -- by the first four bytes: each adds the content, and returns whether that is complete ------------------------------
def _choose(net: str, said: List[Effect]) -> None:
    said.append((CHOSE, net))
    if net == "Socket":
        said.append((NOTE, "line chose-socket"))


def _using(text: bytes, said: List[Effect]) -> bool:
    if text.startswith((b"Using network ", b"Using internal Network ")):
        net = name(text.split(b"etwork ", 1)[1], 40)
        if net:
            _choose(net, said)
        return True
    return text.startswith((b"Using non-device", b"Using tuner"))


def _assigned(text: bytes, said: List[Effect]) -> bool:
    match = _ASSIGNED.match(text)
    if match:
        net = name(match.group(1), 40)
        if net:
            _choose(net, said)
    return True


def _env(text: bytes, said: List[Effect]) -> bool:
    version = _VERSION.match(text)
    if version:
        label = ("RCCL " if text[:1] == b"R" else "") + (name(version.group(1), 40) or "")
        said.append((FACT, "version", label))
        return True
    match = _ENV.match(text)
    if match is None:
        return False
    variable = match.group(1).decode("ascii")
    value = match.group(2).rstrip()
    if value.endswith(b".") and not value.endswith(b".."):
        value = value[:-1]  # ncclLoadParam ends its sentence
    shown = (name(match.group(1) + b"=" + value, 240) or "").partition("=")[2]
    said.append((ENV, variable, shown))
    if variable in _TELLING:
        said.append((NOTE, "env " + variable))
    if variable == "NCCL_HOSTID":
        said.append((FACT, "hostid", shown))
    return True


def _bootstrap(text: bytes, said: List[Effect]) -> bool:
    if b"Using" not in text:
        return False
    for interface, address in _INTERFACE.findall(text)[:16]:
        said.append((FACT, "boot", "%s %s" % (name(interface), name(address))))
    return True


def _net(text: bytes, said: List[Effect]) -> bool:  # noqa: PLR0911 -- one return per form
    if text.startswith(b"NET/IB"):
        return _ib(text, said)
    if text.startswith(b"NET/OFI"):
        return _ofi(text, said)
    for form, start in _PLUGIN_FORMS:
        if start in text:
            said.append((FACT, "plugin-form", form))
            break
    loaded = _LOADED.search(text) if b"Loaded net plugin" in text else None
    if loaded:
        said.append((FACT, "loaded", name(loaded.group(1), 40) or ""))
        return True
    listed = _LISTED.match(text)
    if listed:
        said.append((FACT, "listed", name(listed.group(1).strip(), 40) or ""))
        if listed.group(1).strip() == b"Socket":
            for interface, address in _INTERFACE.findall(text)[:16]:
                said.append((FACT, "socket", "%s %s" % (name(interface), name(address))))
        return True
    if text.startswith(b"NET/Socket") and b"GPU Direct" in text:
        return True
    if b"GPU Direct RDMA Enabled" in text or b"GPU Direct RDMA enabled" in text:
        said.append((FACT, "flag", "gdr-hca"))
        return True
    return False


def _ib(text: bytes, said: List[Effect]) -> bool:  # noqa: PLR0911 -- one return per form
    if b" : Using interface " in text:  # 2.2 and 2.3: the side band, which shows nothing about verbs in use
        return True
    if b": Using " in text or b":Using " in text:
        devices = listed_devices(text)
        said.append((DEVICES, devices))
        said.append((IB, "list" if devices else "empty"))
        oob = _OOB.search(text)
        if oob:
            said.append((FACT, "oob", "%s %s" % (name(oob.group(1)), name(oob.group(2)))))
        if not devices:
            said.append((NOTE, "nccl.ib-no-device"))
        return True
    if b"No device found" in text:
        said.append((IB, "none"))
        said.append((NOTE, "nccl.ib-no-device"))
        return True
    named = _NAMED.match(text)
    if named:
        said.append((FACT, "device", "%s %s" % (int(named.group(1)), name(named.group(2) + (named.group(3) or b"")))))
    port = _PORT.match(text)
    if port:
        said.append((FACT, "port", "%s:%s/%s %s" % tuple(name(item) or "" for item in port.groups())))
        return True
    hca = _HCA_GDR.search(text)
    if hca:
        said.append((FACT, "gdr-on" if hca.group(1) == b"En" else "gdr-off", name(hca.group(2)) or ""))
    if b"GPU Direct RDMA" in text and b"nabled" in text:
        said.append((FACT, "flag", "gdr-hca"))
        return True
    if b"GPU Direct RDMA Disabled" in text and b"(distance " in text:  # 2.4 prints it as NET/IB
        said.append((NOTE, "nccl.gdr-distance"))
        return True
    if b"GPU Direct RDMA Disabled" in text:
        said.append((NOTE, "nccl.gdr-no-module"))
        said.append((FACT, "flag", "gdr-hca-off"))
        return True
    link = _LINK.match(text)
    if link:
        said.append((FACT, "link", "RoCE" if link.group(1) == b"GID" else "IB"))
        return True
    return False


def _ofi(text: bytes, said: List[Effect]) -> bool:
    provider = _PROVIDER.search(text)
    if provider:
        said.append((FACT, "provider", provider.group(1).decode("ascii").lower()))
        said.append((NOTE, "line provider"))
        return True
    if b"No NIC info for dev" in text:
        said.append((FACT, "flag", "no-pci-path"))
        return True
    platform = _PLATFORM.search(text)
    if platform:
        said.append((FACT, "platform", platform.group(1).decode("ascii")))
    if b"AWS-specific" in text or b"platform: AWS" in text or b"Running on p" in text or b"-aws" in text:
        said.append((FACT, "flag", "aws"))
    return False


def _connected(text: bytes, said: List[Effect]) -> bool:
    if text.startswith(b"Connected to "):  # its own proxy thread (SUBSYS=ALL), before any channel is set up
        return True
    rings = _RINGS.match(text)
    if rings:
        said.append((FACT, "ring", "pxn%d gdr%d" % (int(rings.group(1)), int(rings.group(2)))))
    if text.startswith(b"Connected NVLS"):
        said.append((FACT, "flag", "nvls"))
    if text.startswith(b"Connected Coll"):
        said.append((FACT, "flag", "collnet"))
    said.append((FACT, "flag", "connected"))
    return True


def _gpu(text: bytes, said: List[Effect]) -> bool:
    if b"GPU Direct RDMA Enabled" in text:
        said.append((FACT, "flag", "gdr-pair"))
        return True
    if b"GPU Direct RDMA Disabled" in text:
        said.append((NOTE, "nccl.gdr-distance"))
        return True
    return b"/" in text[:5]


def _could(text: bytes, said: List[Effect]) -> bool:
    if text.startswith(b"Could not find real path of /sys/class/net/"):
        said.append((FACT, "flag", "no-pci-path"))
        return True
    return False


def _driver(text: bytes, said: List[Effect]) -> bool:
    if text.startswith(b"cudaDriverVersion "):
        said.append((FACT, "driver", name(text[18:], 12) or ""))
        return True
    return False


def _nvls(text: bytes, said: List[Effect]) -> bool:
    if text.startswith((b"NVLS comm ", b"NVLS Head")):
        said.append((FACT, "flag", "nvls"))
        return True
    if text.startswith(b"NVLS multicast support is available"):
        said.append((FACT, "flag", "nvlink"))
    return text.startswith(b"NVLS multicast support")


def _mnnvl(text: bytes, said: List[Effect]) -> bool:
    if b"DEGRADED_BANDWIDTH" in text:
        said.append((NOTE, "line degraded"))
        return True
    match = _MNNVL.search(text)
    if match and match.group(1) == b"1":
        said.append((FACT, "flag", "mnnvl"))
        return True
    if match and match.group(2):
        said.append((FACT, "flag", "no-fabric" if match.group(2) in (b"0.0", b"0x0.0x0") else "fabric"))
        return True
    return False


def _p2p(text: bytes, said: List[Effect]) -> bool:
    if text.startswith(b"P2P plugin "):
        plugin = text[11:].split(b" ")
        said.append((FACT, "loaded", name(plugin[-1], 40) or ""))
        return True
    return text.startswith(b"P2P Chunksize")


def _collnet(text: bytes, said: List[Effect]) -> bool:
    if b"via COLLNET/" in text:
        said.append((FACT, "flag", "collnet"))
        return True
    return False


def _ras(text: bytes, said: List[Effect]) -> bool:
    if text.startswith(b"RAS declaring peer ") and b" DEAD" in text:
        said.append((NOTE, "line dead-peer"))
    return True


def _initialized(text: bytes, said: List[Effect]) -> bool:
    if text.startswith(b"Init timings"):
        return True
    match = re.match(rb"Initialized NET plugin (.+)$|Initializing network (\w+)", text)
    if match:
        said.append((FACT, "loaded", name(match.group(1) or match.group(2), 40) or ""))
        return True
    return False


def _failed(text: bytes, said: List[Effect]) -> bool:
    if text.startswith(b"Failed to initialize NET plugin "):
        said.append((FACT, "failed-net", name(text[32:], 40) or ""))
    return False


_HANDLERS: Dict[bytes, Callable[[bytes, List[Effect]], bool]] = {
    b"Usin": _using,
    b"Assi": _assigned,
    b"NCCL": _env,
    b"RCCL": _env,
    b"FI_P": _env,
    b"UCX_": _env,
    b"Boot": _bootstrap,
    b"NET/": _net,
    b"NET ": _bootstrap,  # the form of NCCL 2.2 and 2.3
    b"Conn": _connected,
    b"GPU ": _gpu,
    b"Coul": _could,
    b"cuda": _driver,
    b"NVLS": _nvls,
    b"MNNV": _mnnvl,
    b"P2P ": _p2p,
    b"Coll": _collnet,
    b"Init": _initialized,
    b"Fail": _failed,
    b"RAS ": _ras,
}
STARTS = frozenset(_HANDLERS)  # beginnings of messages that a handler reads
