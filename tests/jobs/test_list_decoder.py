"""A list decoded object by object equals json's result; text that is not JSON is refused, too."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.cluster.client.errors import Unreachable
from jobs.cluster.client.kube import path
from jobs.cluster.client.list_decoder import decode_list
from jobs.cluster.facts.inventory import read_node

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.just("items"), inner, max_size=3)
    ),
    max_leaves=8,
)
LISTS = st.fixed_dictionaries(
    {"kind": st.just("NodeList"), "items": st.lists(VALUES, max_size=4)}, optional={"metadata": VALUES, "after": VALUES}
)


def decoded(data):
    """Return the whole response, reassembled."""
    answer, items = decode_list(data, lambda _, items: list(items))
    return answer if items is None else {**answer, "items": items}


@given(
    st.permutations(["kind", "items", "metadata", "after"]), LISTS | VALUES, st.sampled_from([None, 1]), st.booleans()
)
def test_a_list_is_what_json_makes_of_it(order, value, indent, ascii_only):
    """The decoder's result equals json's for any key order and any content."""
    if isinstance(value, dict):
        value = {key: value[key] for key in sorted(value, key=lambda key: order.index(key) if key in order else 9)}
    data = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert decoded(data) == json.loads(data)


@given(LISTS, st.data())
def test_what_is_no_json_is_refused(value, data):
    """Truncated text, or text with a changed character, is refused if json refuses it."""
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.sampled_from(["", "}", "]", ",", ":", '"', "x", "{", "[", "0"])) + text[at + 1 :]
    cut = data.draw(st.sampled_from([changed, text[:at], text + changed[:1]])).encode()
    try:
        expected = json.loads(cut)
    except ValueError:
        with pytest.raises(ValueError):
            decoded(cut)
    else:
        assert decoded(cut) == expected


def test_each_object_is_read_before_the_next_is_decoded():
    """A page of large objects is never in memory as a whole."""
    taken = []

    def read(head, items):
        assert head == {"kind": "NodeList", "metadata": {"continue": "t"}}
        taken.extend(items)

    with pytest.raises(ValueError):
        decode_list(b'{"kind":"NodeList","metadata":{"continue":"t"},"items":[1,2,{"broken":}', read)
    assert taken == [1, 2]


def test_a_list_whose_kind_comes_last_is_read_all_the_same(kube, api):
    """Kubernetes writes the kind first; a proxy may not."""
    node = {"metadata": {"name": "a"}}
    api.answer = lambda _: (200, {}, json.dumps({"items": [node], "metadata": {}, "kind": "NodeList"}).encode())
    assert [n.name for page, _ in kube.read_pages(path("nodes"), read_node) for n in page] == ["a"]


def test_a_wrong_answer_is_not_asked_for_again(kube, api):
    """A response of another kind is reported at once; a truncated one is requested again."""
    api.answer = lambda _: (200, {}, b'{"kind":"PodList","items":[]}')
    with pytest.raises(Unreachable, match="not a list of nodes"):
        kube.list(path("nodes"))
    assert len(api.asked) == 1
