"""Read a pickle that holds only dicts, lists, tuples, strings, numbers, booleans and None.

Its own interpreter of the few opcodes that such a pickle needs: there is no opcode for a global, a call or an object,
so nothing can be imported or run, and neither a memo index nor a length can make it allocate more than the file holds.
"""

from __future__ import annotations

import struct
from typing import Any, Final

MAX_BYTES = 64 << 20
MAX_OPCODES = 6_000_000
"""A full recorder of 2,000 entries with 30 frames each needs about a tenth of that."""
_GLOBALS: Final = {0x63: "GLOBAL", 0x93: "STACK_GLOBAL", 0x52: "REDUCE", 0x69: "INST", 0x6F: "OBJ", 0x81: "NEWOBJ"} | {
    0x92: "NEWOBJ_EX",
    0x62: "BUILD",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    0x50: "PERSID",
    0x51: "BINPERSID",
}
_MARK: Final = object()


class PickleRefusedError(ValueError):
    """The bytes are no pickle of plain data; says why."""


def loads(data: bytes) -> Any:
    """Return the value of a pickle of plain data. Raises PickleRefusedError for any other, having executed nothing."""
    if len(data) > MAX_BYTES:
        raise PickleRefusedError(f"larger than the {MAX_BYTES >> 20} MiB that are read of one dump")
    try:
        return _run(data)
    except (struct.error, IndexError):
        raise PickleRefusedError("cut: the pickle ends before its end") from None
    except (KeyError, TypeError, UnicodeDecodeError, ValueError, AttributeError, MemoryError) as error:
        if isinstance(error, PickleRefusedError):
            raise
        raise PickleRefusedError("damaged: not a pickle that Python or PyTorch writes") from None


def _run(data: bytes) -> Any:  # noqa: C901, PLR0912, PLR0915 -- one branch per opcode, in one loop for speed
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    at = 0
    size = len(data)
    uint = struct.Struct("<I").unpack_from
    push = stack.append
    for _ in range(MAX_OPCODES):
        op = data[at]
        at += 1
        if op == 0x71:  # BINPUT
            memo[data[at]] = stack[-1]
            at += 1
        elif op == 0x72:  # LONG_BINPUT
            memo[uint(data, at)[0]] = stack[-1]
            at += 4
        elif op == 0x94:  # MEMOIZE
            memo[len(memo)] = stack[-1]
        elif op == 0x68:  # BINGET
            push(memo[data[at]])
            at += 1
        elif op == 0x6A:  # LONG_BINGET
            push(memo[uint(data, at)[0]])
            at += 4
        elif op in (0x58, 0x8C, 0x8D):  # BINUNICODE, SHORT_BINUNICODE, BINUNICODE8
            if op == 0x58:
                length, at = uint(data, at)[0], at + 4
            elif op == 0x8C:
                length, at = data[at], at + 1
            else:
                length, at = struct.unpack_from("<Q", data, at)[0], at + 8
            if at + length > size:
                raise IndexError
            push(data[at : at + length].decode("utf-8", "surrogatepass"))
            at += length
        elif op == 0x4A:  # BININT
            push(struct.unpack_from("<i", data, at)[0])
            at += 4
        elif op == 0x4B:  # BININT1
            push(data[at])
            at += 1
        elif op == 0x4D:  # BININT2
            push(struct.unpack_from("<H", data, at)[0])
            at += 2
        elif op == 0x8A:  # LONG1
            length = data[at]
            if at + 1 + length > size:
                raise IndexError
            push(int.from_bytes(data[at + 1 : at + 1 + length], "little", signed=True))
            at += 1 + length
        elif op == 0x47:  # BINFLOAT
            push(struct.unpack_from(">d", data, at)[0])
            at += 8
        elif op in (0x88, 0x89, 0x4E):  # NEWTRUE, NEWFALSE, NONE
            push({0x88: True, 0x89: False, 0x4E: None}[op])
        elif op == 0x28:  # MARK
            marks.append(len(stack))
            push(_MARK)
        elif op == 0x7D:  # EMPTY_DICT
            push({})
        elif op == 0x5D:  # EMPTY_LIST
            push([])
        elif op == 0x29:  # EMPTY_TUPLE
            push(())
        elif op == 0x73:  # SETITEM
            value = stack.pop()
            key = stack.pop()
            _dict(stack[-1])[_key(key)] = value
        elif op == 0x61:  # APPEND
            value = stack.pop()
            _list(stack[-1]).append(value)
        elif op in (0x75, 0x65, 0x74, 0x6C, 0x64):  # SETITEMS, APPENDS, TUPLE, LIST, DICT
            start = marks.pop()
            items = stack[start + 1 :]
            del stack[start:]
            if op == 0x75:
                _dict(stack[-1]).update(zip(map(_key, items[::2]), items[1::2], strict=True))
            elif op == 0x65:
                _list(stack[-1]).extend(items)
            elif op == 0x64:
                push(dict(zip(map(_key, items[::2]), items[1::2], strict=True)))
            else:
                push(tuple(items) if op == 0x74 else items)
        elif op in (0x85, 0x86, 0x87):  # TUPLE1 to TUPLE3
            count = op - 0x84
            if len(stack) < count:
                raise IndexError
            items = stack[-count:]
            del stack[-count:]
            push(tuple(items))
        elif op == 0x80:  # PROTO
            if data[at] > 5:
                raise PickleRefusedError(f"pickle protocol {data[at]}, which nothing writes")
            at += 1
        elif op == 0x95:  # FRAME
            at += 8
        elif op == 0x2E:  # STOP
            return stack.pop()
        elif op in _GLOBALS:
            raise PickleRefusedError(
                f"its opcode {_GLOBALS[op]} would import or call something, which no Flight Recorder dump does; "
                "it was refused and nothing was executed"
            )
        else:
            raise PickleRefusedError(f"opcode 0x{op:02x}, which no Flight Recorder dump holds")
    raise PickleRefusedError(f"more than {MAX_OPCODES} opcodes")


def _dict(value: Any) -> dict[Any, Any]:
    if type(value) is not dict:
        raise TypeError
    return value


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise TypeError
    return value


def _key(value: Any) -> str | int:
    if type(value) not in (str, int):
        raise TypeError
    return value  # type: ignore[no-any-return]
