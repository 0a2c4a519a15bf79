"""A local copy of a list: complete after every break, without busy loops, never silently stale."""

import json
import threading

from jobs.cluster.client.informer import Informer
from tests.jobs.conftest import drips
from tests.waiting import HANG_S, until


def item(name, version="1"):
    return {
        "kind": "Pod",
        "metadata": {"name": name, "uid": name, "resourceVersion": version},
        "spec": {"containers": []},
    }


def events(*pairs):
    return iter([json.dumps({"type": kind, "object": obj}).encode() + b"\n" for kind, obj in pairs])


def held(*pairs):
    yield from events(*pairs)
    yield from drips()  # the server sends nothing and keeps the watch open


def names(informer):
    return {each["metadata"]["name"] for each in informer.objects()}


def test_list_then_watch(kube, api):
    """Added, modified and deleted objects arrive, and both requests have the selector."""

    def answer(asked):
        if "watch" in asked.query:
            return (
                200,
                {},
                held(
                    ("ADDED", item("b", "6")),
                    ("DELETED", item("a", "7")),
                    ("BOOKMARK", {"metadata": {"resourceVersion": "9"}}),
                ),
            )
        return 200, {}, {"metadata": {"resourceVersion": "5"}, "items": [item("a")]}

    api.answer = answer
    with Informer(kube, "/api/v1/pods", threading.Condition(), labelSelector="x=y") as informer:
        until(lambda: names(informer) == {"b"})
        assert informer.synced and informer.error is None
    assert {asked.query["labelSelector"] for asked in api.asked} == {"x=y"}
    assert api.asked[1].query["resourceVersion"] == "5"


def test_after_the_end_of_a_watch_it_goes_on_where_it_was(kube, api):
    """A watch continues also from a bookmark's version; a server that ends watches at once is not flooded."""

    def answer(asked):
        if "watch" not in asked.query:
            return 200, {}, {"metadata": {"resourceVersion": "5"}, "items": []}
        if len(api.asked) == 2:
            return 200, {}, events(("BOOKMARK", {"metadata": {"resourceVersion": "8"}}))
        return 200, {}, held(("ADDED", item("late", "9")))

    api.answer = answer
    with Informer(kube, "/x", threading.Condition()) as informer:
        until(lambda: names(informer) == {"late"})
    assert api.asked[2].query["resourceVersion"] == "8"


def test_too_old_means_a_new_list(kube, api):
    """410 in the stream: the new list has the missed changes and omits deleted objects."""

    def answer(asked):
        if "watch" in asked.query:
            if asked.query["resourceVersion"] == "5":
                return (
                    200,
                    {},
                    events(("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})),
                )
            return 200, {}, held()
        return (
            200,
            {},
            {
                "metadata": {"resourceVersion": "5" if len(api.asked) == 1 else "50"},
                "items": [item("a" if len(api.asked) == 1 else "b")],
            },
        )

    api.answer = answer
    with Informer(kube, "/x", threading.Condition()) as informer:
        until(lambda: names(informer) == {"b"})


def test_an_outage_is_reported_with_its_length_and_ends(kube, api, drop):
    """The error lasts as long as the outage, and ends with the first response."""
    working = []

    def answer(asked):
        if not working:
            return 0, {}, drop
        return (
            (200, {}, held())
            if "watch" in asked.query
            else (200, {}, {"metadata": {"resourceVersion": "1"}, "items": [item("a")]})
        )

    api.answer = answer
    with Informer(kube, "/x", threading.Condition()) as informer:
        until(lambda: informer.error is not None and informer.silent_s() > 0.1)
        assert not informer.synced
        working.append(1)
        until(lambda: informer.synced and informer.error is None)
        assert informer.silent_s() == 0


def test_without_the_right_to_watch_it_polls(kube, api):
    """A tenant may have permission to list but not to watch."""

    def answer(asked):
        if "watch" in asked.query:
            return 403, {}, {"reason": "Forbidden", "message": "no watch"}
        return 200, {}, {"metadata": {"resourceVersion": "1"}, "items": [item(f"n{len(api.asked)}")]}

    api.answer = answer
    with Informer(kube, "/x", threading.Condition()) as informer:
        until(lambda: len(api.asked) >= 4 and informer.synced)
        assert informer.error is None


def test_leaving_does_not_wait_for_the_server(kube, api):
    """A watch that is silent for a minute is cancelled."""
    over = threading.Event()

    def silent():
        yield b"\n"
        over.wait(2 * HANG_S)

    def answer(asked):
        return (200, {}, silent() if "watch" in asked.query else {"metadata": {"resourceVersion": "1"}, "items": []})

    api.answer = answer
    with Informer(kube, "/x", threading.Condition()) as informer:
        until(lambda: len(api.asked) >= 2)
    until(lambda: not informer._thread.is_alive())
    over.set()


def versions(informer):
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in informer.objects()}


def shown(kube, api, lists, *changes):
    """Return known objects (versions by name) and deleted ones after these lists, a watch ending in 410 between two,
    and events."""
    left, end = list(lists), ("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    last = ("ADDED", item("end", "999"))

    def answer(asked):
        if "watch" in asked.query:
            return 200, {}, events(end) if left else held(*changes, last)
        version, items = left.pop(0)
        return 200, {}, {"metadata": {"resourceVersion": version}, "items": items}

    api.answer = answer
    with Informer(kube, "/x", threading.Condition()) as informer:
        until(lambda: "end" in names(informer))
        known = versions(informer)
        del known["end"]
        return known, {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in informer.departed()}


def test_a_stale_list_replaces_nothing_newer_and_takes_nothing_newer_away(kube, api):
    """A lagging cache: "a" in its old state, "b" missing; versions are numbers, not words."""
    fresh = ("100", [item("a", "99"), item("b", "100")])
    assert shown(kube, api, [fresh, ("9", [item("a", "9")])]) == ({"a": "99", "b": "100"}, {})


def test_a_newer_list_takes_away(kube, api):
    fresh = ("100", [item("a", "99"), item("b", "100")])
    assert shown(kube, api, [fresh, ("101", [item("a", "101")])]) == ({"a": "101"}, {"b": "100"})


def test_a_late_event_replaces_nothing_newer(kube, api):
    changes = ("MODIFIED", item("a", "12")), ("MODIFIED", item("a", "9")), ("ADDED", item("a", "8"))
    assert shown(kube, api, [("5", [item("a", "5")])], *changes) == ({"a": "12"}, {})


def test_a_deletion_holds(kube, api):
    """Late and repeated events, and an older list, restore nothing; a recreated object exists."""
    again = item("a", "13")
    again["metadata"]["uid"] = "another"
    changes = ("DELETED", item("a", "12")), ("MODIFIED", item("a", "11")), ("MODIFIED", item("a", "12"))
    assert shown(kube, api, [("5", [item("a", "5")])], *changes) == ({}, {"a": "12"})
    assert shown(kube, api, [("5", [item("a", "5")])], *changes, ("ADDED", again)) == ({"a": "13"}, {"a": "12"})
    assert shown(kube, api, [("5", [item("a", "5")]), ("9", []), ("5", [item("a", "5")])]) == ({}, {"a": "5"})


def test_what_selects_an_object_again_shows_it_again(kube, api):
    changes = ("DELETED", item("a", "12")), ("ADDED", item("a", "13"))
    assert shown(kube, api, [("5", [item("a", "5")])], *changes)[0] == {"a": "13"}


def test_versions_that_are_no_numbers_are_taken_as_they_come(kube, api):
    """Such versions are not interpreted: an absent one is not older, and one of thousands of digits is not compared."""
    for earlier, later in (
        ("zz", "aa"),
        ("99", ""),
        ("", "1"),
        ("99", "0x1"),
        ("9" * 5000, "1"),
        ("\u0662\u0662", "1"),
    ):
        changes = ("MODIFIED", item("a", earlier)), ("MODIFIED", item("a", later))
        assert shown(kube, api, [("", [])], *changes) == ({"a": later}, {})
