"""What does one NCCL line say about its process? Turns messages into facts, communicators, edges and notes.

Forms differ by version (catalogue 1.1 to 1.8); each pattern says which it covers. What no pattern knows is left alone.
"""

from __future__ import annotations

import re
from typing import AbstractSet, Any, Callable, Dict, FrozenSet, List, Optional, Set, Tuple

from ..lines.clean import name
from ..state.seen import Comm, Proc, shared
from .comms import names_rank, parse_communicator
from .devices import listed_devices
from .signals import HEX
from .symptoms import BENIGN, SUSPICIOUS, classify, suspicious
from .transports import TAIL, Channel

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
_LISTED = re.compile(rb"^NET/([A-Za-z0-9_ -]{1,40}?) ?: Using \[\d+\]")
_NVLS = re.compile(rb"(\d{1,6}) nvls channels")
_MNNVL = re.compile(rb"^MNNVL (\d) cliqueId|MNNVL .*fabric UUID (\S+)")
_LINK = re.compile(rb"^NET/IB: .*\b(?:qpn|mtu) .*\b(GID|LID) ")
_ALGORITHM = re.compile(rb"^(\w{4,24}): \d+ Bytes -> Algo (\w{1,20}) proto \w+")  # subsystem TUNING
_RING_ORDER = re.compile(rb"^Channel (\d+)(?:/(\d+))? :((?:\s+\d+)+)\s*$")
_GLOBAL = re.compile(rb"\b(?:localGid|remoteGids?|GID index)\b")


# How NCCL says that there is no plugin, by version (catalogue 1.3). Two hosts that say it differently run two versions
# (row 43).
_PLUGIN_FORMS = (
    ("2.22 to 2.25", b"Using internal network plugin"),
    ("2.26 or later", b"NET/Plugin: Could not find: libnccl-net"),
    ("2.21", b"NET/Plugin: No plugin found (libnccl-net.so)"),
    ("2.19 to 2.20", b"NET/Plugin : dlerror="),
    ("2.17 to 2.18", b"NET/Plugin : Plugin load"),
    ("2.5 to 2.16", b"NET/Plugin : No plugin found (libnccl-net.so), using internal"),
    ("2.4", b"NET/Plugin : No plugin found (libnccl-net.so)"),
)

VIA_SOCKET, VIA_NO_GDR = "line via-socket", "line via-no-gdr"
# Settings that explain what a job uses: a fault that they cause quotes the line that shows them.
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

NOTHING: Set[bytes] = set()  # messages that say nothing that is judged, whoever prints them
_MAX_NOTHING = 20_000
_MAX_KNOWN = 400  # bytes of a message that is remembered
_NONE: FrozenSet[bytes] = frozenset()
_MAX_TURNS = 8  # communicators of one size and rank that have no id (before 2.16.2), told apart by their order
_MAX_POINTERS = 64
_UNUSED: Dict[Any, int] = {}  # never written to: most processes of a large job wait for nothing at any one time


class Tracker:
    """Follows one process through one stream."""

    __slots__ = (
        "_current",
        "_ordinals",
        "_pointers",
        "_turns",
        "announced",
        "line",
        "pending",
        "proc",
        "raw",
        "same",
        "seen",
        "source",
    )

    def __init__(self, proc: Proc, source: int) -> None:
        self.proc = proc
        self.source = source
        self.line = 0
        self.raw = b""
        self._current: Optional[Tuple[str, int]] = next(reversed(list(proc.comms)), None)
        self.announced = bool(proc.comms)  # this version says when a set-up begins: channels belong to what is current
        self._pointers: Tuple[Tuple[bytes, Tuple[str, int]], ...] = ()  # the latest last
        self._ordinals: Dict[Tuple[int, int], int] = _UNUSED
        self.seen: AbstractSet[bytes] = _NONE  # messages that say nothing new
        self.same: AbstractSet[bytes] = _NONE  # messages that say nothing new while the state is what it is
        self.pending: Dict[Channel, int] = _UNUSED  # lanes that wait for their communicator -> channels, as bits
        self._turns = 0  # how often a communicator got another name than by its id

    # -- channels ------------------------------------------------------------------------------------------------------
    def settle(self) -> None:
        """Add the channels that wait to the communicator they belong to."""
        fresh, self.pending = self.pending, _UNUSED
        comms, comm = self.proc.comms, self._current
        for channel, mask in fresh.items():
            if channel.size:
                self.proc.add("nranks", channel.size)
            name = "" if comm is None else comm[0]
            if comms and (name, channel.own) not in comms:
                name = next((key[0] for key in reversed(list(comms)) if key[1] == channel.own), name)
            self.proc.edge(name, channel.key, mask)

    def wait(self) -> Dict[Channel, int]:
        """Return where channels wait for their communicator."""
        if self.pending is _UNUSED:
            self.pending = {}
        return self.pending

    def first_sight(self, channel: Channel, line: int, raw: bytes) -> None:
        """Keep the first channel line that shows sockets, or no GPUDirect: what a fault about them quotes."""
        kind, net, gdr = channel.key[4], channel.key[5], channel.key[7]
        if kind == "net" and not gdr:
            self.proc.note(VIA_SOCKET if net == "Socket" else VIA_NO_GDR, self.source, line, raw)

    def remember(self, text: bytes, always: bool) -> None:
        """Know a message that would say nothing new: in any state, or in this one."""
        known = self.seen if always else self.same
        if len(text) > _MAX_KNOWN:
            return
        if isinstance(known, set):
            known.add(text)
        elif always:
            self.seen = {text}
        else:
            self.same = {text}

    def forget(self, always: bool = True) -> None:
        """Forget what would say nothing new; ``always`` also where that does not depend on the state."""
        self.same = _NONE
        if always:
            self.seen = _NONE

    def state(self) -> Tuple[Optional[Tuple[str, int]], bool, bool, int]:
        """Return what decides how the next lines are read, besides what was seen before."""
        return self._current, self.announced, self.proc.last_error is None, self._turns

    def resume(self, current: Optional[Tuple[str, int]], last_error: Optional[List[int]]) -> None:
        """Go on as if lines that were read before had been read again."""
        self._current, self.proc.last_error = current, last_error
        self.same = _NONE

    def ring_order(self, text: bytes) -> None:
        """Take the ring order that rank 0 prints (``Channel 00/32 : 0 1 2 ...``): it names every rank."""
        match = _RING_ORDER.match(TAIL.sub(b"", text)) if len(text) < 1000 else None  # NCCL cuts it at its buffer's end
        if match:
            ranks = {int(item) for item in match.group(3).split()}
            if len(ranks) > len(self.proc.ranks) and ranks == set(range(len(ranks))):
                self.proc.ranks = shared(ranks)

    def changes_communicator(self, text: bytes) -> bool:
        """Say whether the message begins or ends a communicator's set-up.

        So that channels before it are settled first.
        """
        return b" START" in text and names_rank(text)

    # -- INFO ----------------------------------------------------------------------------------------------------------
    def info(self, text: bytes, line: int, raw: bytes) -> bool:  # noqa: PLR0911 -- one return per form
        """Read one INFO message; say whether the same message again would say nothing new."""
        handler = self._HANDLERS.get(text[:4])
        self.line, self.raw = line, raw  # for the handlers
        if handler is not None and handler(self, text):
            return text[:4] not in (b"Usin", b"Assi")
        if b" nranks " in text or b" nRanks " in text:
            self._communicator(text)
            return False
        if b" nvls channels" in text and self._channels(text):
            return True
        algorithm = _ALGORITHM.match(text)
        if algorithm:
            self.proc.add("algorithm", "%s %s" % (name(algorithm.group(1)), name(algorithm.group(2))))
            return True
        trace = _TRACE.match(text)
        if trace:
            code = int(trace.group(1))
            if text.startswith(b"include/net.h") and self.proc.has("flag", "no-pci-path"):
                return False  # up to 2.5: a NIC without a PCI path counts as far away, and that is all
            if 1 <= code <= 6:  # 7 is "in progress"
                self.proc.note("trace", self.source, line, raw)
                if self.proc.last_error is None:
                    self.proc.last_error = [self.source, line, code]
            return False
        if suspicious(text):
            return self.symptom(text, line, raw, warn=False)
        if handler is None and len(NOTHING) < _MAX_NOTHING and len(text) <= _MAX_KNOWN:
            NOTHING.add(text)
        return True

    def symptom(self, text: bytes, line: int, raw: bytes, warn: bool) -> bool:
        """Keep the line if it is a symptom (a warning that is none is kept as unknown); say whether it says nothing."""
        found = classify(text)
        if found is None:
            if warn:
                self.proc.note("warn", self.source, line, raw)
            return not warn
        if found.role == BENIGN:
            return True
        self.proc.note(found.fault if warn or found.role != "cause" else "info:" + found.fault, self.source, line, raw)
        return False

    def warn(self, place: bytes, text: bytes, line: int, raw: bytes) -> None:
        """Read one WARN message; ``place`` is where in the code, or what a plugin puts there."""
        text = text.rstrip()
        if b"NET/IB" in text and _GLOBAL.search(text):
            self.proc.add("link", "RoCE")
        if b"net_ib" in place or b"NET/IB" in text or b"ib_plugin" in place:
            self.proc.add("flag", "verbs-used")
        full = place + b" NCCL WARN " + text if place else text
        known = classify(text)
        if (
            known is not None and known.fault == "nccl.cuda-failure"
        ):  # a call failed: for what it was made, its place says
            inside = place.startswith(b"transport/p2p.cc") and self.proc.has("flag", "mnnvl")
            full = b"MNNVL not working: " + text if inside else full
            known = None
        self.symptom(full if known is None else text, line, raw, warn=True)

    # -- communicators -------------------------------------------------------------------------------------------------
    def _communicator(self, text: bytes) -> None:
        said = parse_communicator(text)
        if said is None:
            return
        rank, nranks, what, done, pointer, ident, nodes = said
        key = self._key(ident, pointer, rank, nranks, what == b"Init" and done)
        comm = self.proc.comms.get(key)
        if what in (b"Destroy", b"Abort") and done:
            self.proc.add("flag", "destroyed")
        if comm is None:
            ending = what in (b"Destroy", b"Abort", b"Revoke")  # all that an excerpt may show of a communicator
            if (ending and self.proc.comms) or not self.proc.joins():
                return
            comm = self.proc.comms[key] = Comm(rank, nranks)
        if what == b"Init":
            comm.started = True
            self.announced = self.announced or not done
            comm.completed = comm.completed or done
            self._current = key
            if done:
                self.proc.last_error = None
        if nodes is not None:
            comm.nnodes = max(comm.nnodes, nodes[0])
            comm.local = max(comm.local, nodes[1])
            comm.mnnvl = max(comm.mnnvl, nodes[2])

    def _key(self, ident: str, pointer: bytes, rank: int, nranks: int, completes: bool) -> Tuple[str, int]:
        """Name a communicator.

        By its id, which all ranks share (2.16.2+), else by its size and its turn in this process.
        """
        if ident:
            key = (ident, rank)
            self._named(pointer, key)
            return key
        known = self._pointed(pointer) or self._with_id(rank, nranks)
        if known is not None and not completes and known[1] == rank:
            return known
        turn = self._ordinals.get((nranks, rank), 0)
        if completes and pointer:
            if known is not None and known in self.proc.comms and not self.proc.comms[known].completed:
                return known
        key = ("n%d.%d" % (nranks, turn), rank)
        if completes and turn < _MAX_TURNS:
            self._ordinals = {**self._ordinals, (nranks, rank): turn + 1}
            self._turns += 1
        self._named(pointer, key)
        return key

    def _named(self, pointer: bytes, key: Tuple[str, int]) -> None:
        """Remember which communicator a pointer names; a freed one may come again for another."""
        if pointer and self._pointed(pointer) != key:
            others = tuple(item for item in self._pointers if item[0] != pointer)
            self._pointers = (*others[-_MAX_POINTERS:], (pointer, key))
            self._turns += 1

    def _with_id(self, rank: int, nranks: int) -> Optional[Tuple[str, int]]:
        """Return the latest communicator with an id, of this rank and size: lines behind its START leave the id out."""
        for key in reversed(list(self.proc.comms)):
            if key[1] == rank and key[0].startswith("0x") and self.proc.comms[key].nranks == nranks:
                return key
        return None

    def _pointed(self, pointer: bytes) -> Optional[Tuple[str, int]]:
        """Return the communicator that a pointer names."""
        for known, key in self._pointers:
            if known == pointer and pointer:
                return key
        return None

    # -- by the first four bytes ---------------------------------------------------------------------------------------
    def _using(self, text: bytes) -> bool:
        if text.startswith((b"Using network ", b"Using internal Network ")):
            net = name(text.split(b"etwork ", 1)[1], 40)
            if net:
                self._chose(net)
            return True
        return text.startswith((b"Using non-device", b"Using tuner"))

    def _assigned(self, text: bytes) -> bool:
        match = _ASSIGNED.match(text)
        if match:
            net = name(match.group(1), 40)
            if net:
                self._chose(net)
        return True

    def _chose(self, net: str) -> None:
        """Take the network that a process chose: what failed before it is overcome."""
        self.proc.add("net", net)
        self.proc.last_error = None
        if net == "Socket":
            self.proc.note("line chose-socket", self.source, self.line, self.raw)

    def _env(self, text: bytes) -> bool:
        version = _VERSION.match(text)
        if version:
            label = ("RCCL " if text[:1] == b"R" else "") + (name(version.group(1), 40) or "")
            self.proc.add("version", label)
            return True
        match = _ENV.match(text)
        if match is None:
            return False
        variable = match.group(1).decode("ascii")
        value = match.group(2).rstrip()
        if value.endswith(b".") and not value.endswith(b".."):
            value = value[:-1]  # ncclLoadParam ends its sentence (catalogue 1.1)
        shown = (name(match.group(1) + b"=" + value, 240) or "").partition("=")[2]
        self.proc.set_env(variable, shown)
        if variable in _TELLING:
            self.proc.note("env " + variable, self.source, self.line, self.raw)
        if variable == "NCCL_HOSTID":
            self.proc.add("hostid", shown)
        return True

    def _bootstrap(self, text: bytes) -> bool:
        if b"Using" not in text:
            return False
        for interface, address in _INTERFACE.findall(text)[:16]:
            self.proc.add("boot", "%s %s" % (name(interface), name(address)))
        return True

    def _net(self, text: bytes) -> bool:  # noqa: PLR0911 -- one return per form
        if text.startswith(b"NET/IB"):
            return self._ib(text)
        if text.startswith(b"NET/OFI"):
            return self._ofi(text)
        for form, start in _PLUGIN_FORMS:
            if start in text:
                self.proc.add("plugin-form", form)
                break
        loaded = _LOADED.search(text) if b"Loaded net plugin" in text else None
        if loaded:
            self.proc.add("loaded", name(loaded.group(1), 40) or "")
            return True
        listed = _LISTED.match(text)
        if listed:
            self.proc.add("listed", name(listed.group(1).strip(), 40) or "")
            if listed.group(1).strip() == b"Socket":
                for interface, address in _INTERFACE.findall(text)[:16]:
                    self.proc.add("socket", "%s %s" % (name(interface), name(address)))
            return True
        if text.startswith(b"NET/Socket") and b"GPU Direct" in text:
            return True
        if b"GPU Direct RDMA Enabled" in text or b"GPU Direct RDMA enabled" in text:
            self.proc.add("flag", "gdr-hca")
            return True
        return False

    def _ib(self, text: bytes) -> bool:  # noqa: PLR0911 -- one return per form
        if b" : Using interface " in text:  # 2.2 and 2.3: the side band, says nothing of verbs in use
            return True
        if b": Using " in text or b":Using " in text:
            devices = listed_devices(text)
            self.proc.list_devices(devices)
            self.proc.ibs.setdefault("list" if devices else "empty", self.line)
            oob = _OOB.search(text)
            if oob:
                self.proc.add("oob", "%s %s" % (name(oob.group(1)), name(oob.group(2))))
            if not devices:
                self.proc.note("nccl.ib-no-device", self.source, self.line, self.raw)
            return True
        if b"No device found" in text:
            self.proc.ibs.setdefault("none", self.line)
            self.proc.note("nccl.ib-no-device", self.source, self.line, self.raw)
            return True
        if b"GPU Direct RDMA" in text and b"nabled" in text:
            self.proc.add("flag", "gdr-hca")
            return True
        if b"GPU Direct RDMA Disabled" in text and b"(distance " in text:  # 2.4 says it in NET/IB's name
            self.proc.note("nccl.gdr-distance", self.source, self.line, self.raw)
            return True
        if b"GPU Direct RDMA Disabled" in text:
            self.proc.note("nccl.gdr-no-module", self.source, self.line, self.raw)
            self.proc.add("flag", "gdr-hca-off")
            return True
        link = _LINK.match(text)
        if link:
            self.proc.add("link", "RoCE" if link.group(1) == b"GID" else "IB")
            return True
        return False

    def _ofi(self, text: bytes) -> bool:
        provider = _PROVIDER.search(text)
        if provider:
            self.proc.add("provider", provider.group(1).decode("ascii").lower())
            self.proc.note("line provider", self.source, self.line, self.raw)
            return True
        if b"No NIC info for dev" in text:
            self.proc.add("flag", "no-pci-path")
            return True
        platform = _PLATFORM.search(text)
        if platform:
            self.proc.add("platform", platform.group(1).decode("ascii"))
        if b"AWS-specific" in text or b"platform: AWS" in text or b"Running on p" in text or b"-aws" in text:
            self.proc.add("flag", "aws")
        return False

    def _connected(self, text: bytes) -> bool:
        rings = _RINGS.match(text)
        if rings:
            self.proc.add("ring", "pxn%d gdr%d" % (int(rings.group(1)), int(rings.group(2))))
        if text.startswith(b"Connected NVLS"):
            self.proc.add("flag", "nvls")
        if text.startswith(b"Connected Coll"):
            self.proc.add("flag", "collnet")
        self.proc.add("flag", "connected")
        return True

    def _gpu(self, text: bytes) -> bool:
        if b"GPU Direct RDMA Enabled" in text:
            self.proc.add("flag", "gdr-pair")
            return True
        if b"GPU Direct RDMA Disabled" in text:
            self.proc.note("nccl.gdr-distance", self.source, self.line, self.raw)
            return True
        return b"/" in text[:5]

    def _could(self, text: bytes) -> bool:
        if text.startswith(b"Could not find real path of /sys/class/net/"):
            self.proc.add("flag", "no-pci-path")
            return True
        return False

    def _driver(self, text: bytes) -> bool:
        if text.startswith(b"cudaDriverVersion "):
            self.proc.add("driver", name(text[18:], 12) or "")
            return True
        return False

    def _nvls(self, text: bytes) -> bool:
        if text.startswith((b"NVLS comm ", b"NVLS Head")):
            self.proc.add("flag", "nvls")
            return True
        return text.startswith(b"NVLS multicast support")

    def _mnnvl(self, text: bytes) -> bool:
        match = _MNNVL.search(text)
        if match and match.group(1) == b"1":
            self.proc.add("flag", "mnnvl")
            return True
        if match and match.group(2):
            self.proc.add("flag", "no-fabric" if match.group(2) in (b"0.0", b"0x0.0x0") else "fabric")
            return True
        return False

    def _p2p(self, text: bytes) -> bool:
        if text.startswith(b"P2P plugin "):
            plugin = text[11:].split(b" ")
            self.proc.add("loaded", name(plugin[-1], 40) or "")
            return True
        return text.startswith(b"P2P Chunksize")

    def _channels(self, text: bytes) -> bool:
        match = _NVLS.search(text)
        if match:
            self.proc.add("flag", "nvls-channels" if int(match.group(1)) else "no-nvls-channels")
            return True
        return False

    def _collnet(self, text: bytes) -> bool:
        if b"via COLLNET/" in text:
            self.proc.add("flag", "collnet")
            return True
        return False

    def _initialized(self, text: bytes) -> bool:
        if text.startswith(b"Init timings"):
            return True
        match = re.match(rb"Initialized NET plugin (.+)$|Initializing network (\w+)", text)
        if match:
            self.proc.add("loaded", name(match.group(1) or match.group(2), 40) or "")
            return True
        return False

    def _failed(self, text: bytes) -> bool:
        if text.startswith(b"Failed to initialize NET plugin "):
            self.proc.add("failed-net", name(text[32:], 40) or "")
        return False

    _HANDLERS: Dict[bytes, Callable[[Tracker, bytes], bool]] = {  # noqa: RUF012 -- a constant table
        b"Usin": _using,
        b"Assi": _assigned,
        b"NCCL": _env,
        b"RCCL": _env,
        b"FI_P": _env,
        b"UCX_": _env,
        b"Boot": _bootstrap,
        b"NET/": _net,
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
    }


# What INFO messages that say something hold, or begin with, every hexadecimal digit a 0.
_TELLING_WORDS = (b" NCCL ", b" nranks ", b" nRanks ", b" nvls channels", b" -> ", b"> Algo ", *SUSPICIOUS)
_GARBLED = tuple(word.translate(HEX) for word in _TELLING_WORDS)
_GARBLED_STARTS = frozenset(start.translate(HEX) for start in (*Tracker._HANDLERS, b"Chan", b"Ring"))  # noqa: SLF001 -- of this module


def idle(shape: bytes) -> bool:
    """Say whether no INFO message of a shape, every hexadecimal digit a 0, says more than that its process exists."""
    return shape[:4] not in _GARBLED_STARTS and not any(word in shape for word in _GARBLED)
