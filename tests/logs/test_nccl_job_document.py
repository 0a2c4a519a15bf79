"""The job document conforms to its types: the reader's tables come from pods, where mypy cannot check them."""

import types
import typing

import pytest

from seatrial.logs.job_document import JobDocument
from tests.logs.logmaker import Maker, sequential, table_of


def differences(value, hint, path="job"):
    """Yield the places where a value does not conform to a type hint."""
    hint = hint.__origin__ if typing.get_origin(hint) is typing.Annotated else hint
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if typing.is_typeddict(hint):
        if not isinstance(value, dict):
            return [f"{path}: {value!r} is no {hint.__name__}"]
        hints = typing.get_type_hints(hint, include_extras=True)
        required = {key for key, each in hints.items() if typing.get_origin(each) is not typing.NotRequired}
        keys = [f"{path}: {sorted(value.keys() ^ required)}"] if value.keys() != required else []
        return keys + [
            d for key in value.keys() & required for d in differences(value[key], hints[key], f"{path}.{key}")
        ]
    if origin in (typing.Union, types.UnionType):
        per_form = [differences(value, each, path) for each in inner]
        return [] if [] in per_form else min(per_form, key=len)
    if origin is list and isinstance(value, list):
        return [d for each in value for d in differences(each, inner[0], path + "[]")]
    if origin is dict and isinstance(value, dict):
        return [d for key in value for d in differences(value[key], inner[1], f"{path}.{key}")]
    return [] if right(value, hint) else [f"{path}: {value!r} is no {hint}"]


def right(value, hint):
    """Say whether a plain value has a type; a boolean is not a number."""
    if typing.get_origin(hint) is typing.Literal:
        return value in typing.get_args(hint)
    kinds = (int, float) if hint is float else hint
    return isinstance(kinds, type | tuple) and isinstance(value, kinds) and isinstance(value, bool) <= (hint is bool)


def logs(data):
    """Return our recordings, and made logs for jobs without a recording."""
    texts = [path.read_bytes() for path in sorted(data.rglob("*")) if path.suffix in (".log", ".txt")]
    maker = Maker()
    made = sequential(maker.processes())
    return [*texts, made, made + "\n".join(table_of(maker)).encode(), b"NCCL INFO nothing else\n"]


def test_every_document_is_what_its_types_say(data, judge):
    """Every key is present with its declared type for any log."""
    jobs = [judge(log) for log in logs(data)]
    assert [d for job in jobs for d in differences(job, JobDocument)] == []
    for part in ("faults", "tables", "pairs", "hosts"):
        assert any(job[part] for job in jobs), part


@pytest.mark.parametrize("change", [{"ranks": "2"}, {"hosts": [{}]}, {"verdict": "perhaps"}, {"more": 1}])
def test_a_document_of_another_shape_is_reported(judge, change):
    """The comparison can fail."""
    assert differences(judge(b"NCCL INFO nothing else\n") | change, JobDocument)
