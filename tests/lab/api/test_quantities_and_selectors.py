"""Quantities and selectors: the basic grammars."""

from __future__ import annotations

import pytest

from lab.apiserver.schema import quantity, selectors
from lab.apiserver.store import ApiError


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1000", "1k"),
        ("90Ti", "90Ti"),
        ("1e3", "1e3"),
        ("0", "0"),
    ],
    ids=str,
)
def test_quantities_have_one_canonical_text(given, shown):
    """The user's 0.5 is shown by the server as 500m."""
    assert quantity.canonical(given) == shown


@pytest.mark.parametrize("bad", ["lots", "", "1 Gi", "1Zi", "--1"])
def test_what_is_no_quantity_is_refused(bad):
    """A typo must not count as zero."""
    with pytest.raises(ValueError):
        quantity.value(bad)


def test_sums_keep_the_format_of_the_first():
    """Memory keeps binary suffixes, CPU keeps milli."""
    assert quantity.add("1Gi", "512Mi") == "1536Mi"
    assert quantity.add("500m", "1") == "1500m"


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=x", ["a", "b"]),
        ("app==x,tier!=back", ["a"]),
        ("tier notin (front)", ["b", "c"]),
        ("app in (x, y),!tier", ["c"]),
        ("", ["a", "b", "c"]),
        ({"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}, ["a", "b"]),
        (None, []),
    ],
    ids=str,
)
def test_label_selectors(selector, names):
    """Equality, sets, existence; a null selector of an API object matches nothing."""
    objects = {"a": {"app": "x", "tier": "front"}, "b": {"app": "x", "tier": "back"}, "c": {"app": "y"}}
    matches = selectors.labels(selector)
    assert [name for name, labels in objects.items() if matches(labels)] == names


@pytest.mark.parametrize("bad", ["app in x", "a b", "=x", "app in (x", "app=x y"])
def test_a_bad_label_selector_is_400(bad):
    """An invalid selector is never interpreted as "everything"."""
    with pytest.raises(ApiError) as caught:
        selectors.labels(bad)
    assert caught.value.code == 400


def test_only_known_fields_can_be_selected():
    """The real server indexes few fields and refuses others."""
    pods = selectors.fields("spec.nodeName=,status.phase!=Failed", "pods")
    assert pods({"spec": {}, "status": {"phase": "Running"}})
    with pytest.raises(ApiError):
        selectors.fields("spec.image=x", "pods")
