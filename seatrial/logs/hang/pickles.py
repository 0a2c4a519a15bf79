"""Read a pickle that contains only dicts, lists, tuples, strings, numbers, booleans and None.

The interpreter knows only the few opcodes of such a pickle. It has none for a global, a call or an object, so nothing
can be imported or executed. Neither a memo index nor a length can make it allocate more than the file contains.
"""

from __future__ import annotations

import pickle
import pickletools
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_BYTES = 64 << 20
MAX_OPCODES = 6_000_000
"""A full recorder of 2,000 entries with 30 frames each needs about a tenth of that."""


class PickleRefusedError(ValueError):
    """The bytes are not a pickle of plain data; the message has the reason."""


def loads(data: bytes) -> Any:
    """Return the value of a pickle of plain data. Raises PickleRefusedError for any other, having executed nothing."""
    if len(data) > MAX_BYTES:
        raise PickleRefusedError(f"larger than the {MAX_BYTES >> 20} MiB that are read of one dump")
    try:
        return _value(data)
    except PickleRefusedError:
        raise
    except (struct.error, IndexError):
        raise PickleRefusedError("cut: the pickle is incomplete") from None
    except (KeyError, TypeError, AttributeError, ValueError, MemoryError):
        raise PickleRefusedError("damaged: not a pickle that Python or PyTorch writes") from None


def _value(data: bytes) -> Any:
    machine = _Machine()
    at = 0
    for _ in range(MAX_OPCODES):
        code = data[at]
        if code == pickle.STOP[0]:
            return machine.stack.pop()
        if code not in _OPCODES:
            raise PickleRefusedError(_refusal(code))
        number, decode, effect = _OPCODES[code]
        at += 1
        argument: Any = None
        if number:
            (argument,) = number.unpack_from(data, at)
            at += number.size
        if decode:  # the number is the length of the next part
            end = at + argument
            if end > len(data):
                raise IndexError
            argument = decode(data[at:end])
            at = end
        effect(machine, argument)
    raise PickleRefusedError(f"more than {MAX_OPCODES} opcodes")


def _refusal(code: int) -> str:
    name = next((opcode.name for opcode in pickletools.opcodes if opcode.code == chr(code)), f"0x{code:02x}")
    return (
        f"its opcode {name} is not one of plain data, as in a Flight Recorder dump; it was refused and nothing was"
        f" executed"
    )


class _Machine:
    """The state of the opcodes: a stack, those saved by a MARK, and the memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._outer: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def protocol(self, version: int) -> None:
        if version > pickle.HIGHEST_PROTOCOL:
            raise PickleRefusedError(f"pickle protocol {version}, which no recorder writes")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def mark(self) -> None:
        self._outer.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self._outer.pop()
        return items

    def recall(self, index: int) -> None:
        self.stack.append(self.memo[index])

    def memoize(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def last(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise IndexError
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def set_items(self, items: list[Any]) -> None:
        if not all(type(key) in (str, int) for key in items[::2]):  # to hash a deep tuple could end the process
            raise TypeError
        _of_type(dict, self.stack[-1]).update(zip(items[::2], items[1::2], strict=True))

    def extend(self, items: list[Any]) -> None:
        _of_type(list, self.stack[-1]).extend(items)


def _of_type(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _integer(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


_U8, _U16, _U32, _U64 = map(struct.Struct, ("<B", "<H", "<I", "<Q"))
_OPCODES: Mapping[int, tuple[struct.Struct | None, Callable[[bytes], Any] | None, Callable[[_Machine, Any], None]]] = {
    code[0]: (number, decode, effect)
    for code, number, decode, effect in (
        (pickle.PROTO, _U8, None, _Machine.protocol),
        (pickle.FRAME, _U64, None, lambda *_: None),
        (pickle.NONE, None, None, lambda machine, _: machine.stack.append(None)),
        (pickle.NEWTRUE, None, None, lambda machine, _: machine.stack.append(True)),
        (pickle.NEWFALSE, None, None, lambda machine, _: machine.stack.append(False)),
        (pickle.EMPTY_DICT, None, None, lambda machine, _: machine.stack.append({})),
        (pickle.EMPTY_LIST, None, None, lambda machine, _: machine.stack.append([])),
        (pickle.EMPTY_TUPLE, None, None, lambda machine, _: machine.stack.append(())),
        (pickle.BININT, struct.Struct("<i"), None, _Machine.push),
        (pickle.BININT1, _U8, None, _Machine.push),
        (pickle.BININT2, _U16, None, _Machine.push),
        (pickle.BINFLOAT, struct.Struct(">d"), None, _Machine.push),
        (pickle.LONG1, _U8, _integer, _Machine.push),
        (pickle.BINUNICODE, _U32, _text, _Machine.push),
        (pickle.SHORT_BINUNICODE, _U8, _text, _Machine.push),
        (pickle.BINUNICODE8, _U64, _text, _Machine.push),
        (pickle.BINPUT, _U8, None, _Machine.memoize),
        (pickle.LONG_BINPUT, _U32, None, _Machine.memoize),
        (pickle.MEMOIZE, None, None, lambda machine, _: machine.memoize(len(machine.memo))),
        (pickle.BINGET, _U8, None, _Machine.recall),
        (pickle.LONG_BINGET, _U32, None, _Machine.recall),
        (pickle.MARK, None, None, lambda machine, _: machine.mark()),
        (pickle.TUPLE, None, None, lambda machine, _: machine.push(tuple(machine.since_mark()))),
        (pickle.TUPLE1, None, None, lambda machine, _: machine.push(tuple(machine.last(1)))),
        (pickle.TUPLE2, None, None, lambda machine, _: machine.push(tuple(machine.last(2)))),
        (pickle.TUPLE3, None, None, lambda machine, _: machine.push(tuple(machine.last(3)))),
        (pickle.SETITEM, None, None, lambda machine, _: machine.set_items(machine.last(2))),
        (pickle.SETITEMS, None, None, lambda machine, _: machine.set_items(machine.since_mark())),
        (pickle.APPEND, None, None, lambda machine, _: machine.extend(machine.last(1))),
        (pickle.APPENDS, None, None, lambda machine, _: machine.extend(machine.since_mark())),
    )
}
