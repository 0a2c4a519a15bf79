"""The client with misbehaving servers: bounded, with retries only if safe, and with clear errors."""

import contextlib
import gzip
import itertools
import json
import subprocess
import sys
import threading
import time

import pytest

from jobs.cluster.client import http_client as exchange
from jobs.cluster.client import reading as wire
from jobs.cluster.client.errors import (
    ApiError,
    ClusterError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Unauthorized,
    Unreachable,
)
from jobs.cluster.client.kube import Kube, path
from tests.jobs.conftest import drips
from tests.waiting import HANG_S


def status(code, reason, message, **details):
    return (
        code,
        {},
        {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, "details": details},
    )


def pod(name):
    return {"metadata": {"name": name}, "spec": {"containers": []}}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, Invalid),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Gone),
        (422, Invalid),
    ],
)
def test_an_error_names_server_verb_path_and_reason(kube, api, code, kind):
    """The error is one line with server, verb, path and observation; the exception's class gives the kind."""
    api.answer = lambda _: status(code, "Because", "no such luck", name="x")
    with pytest.raises(kind) as caught:
        kube.get("/api/v1/nodes/x")
    error = caught.value
    assert isinstance(error, ApiError) and isinstance(error, ClusterError)
    assert (error.status, error.reason, error.message, error.details["name"]) == (code, "Because", "no such luck", "x")
    for part in (api.url, "GET", "/api/v1/nodes/x", "Because", "no such luck"):
        assert part in str(error)
    assert "\n" not in str(error)


def test_the_token_is_sent_and_never_shown(kube, api):
    """Authentication uses the official client; messages do not repeat credentials that a server echoes."""
    kube.sends_credentials = True  # like https
    api.answer = lambda asked: status(401, "Unauthorized", f"bad {asked.headers['authorization']}")
    with pytest.raises(Unauthorized) as caught:
        kube.get("/x")
    assert api.asked[0].headers["authorization"] == "Bearer secret-token"
    assert "secret-token" not in str(caught.value)


def test_no_credentials_go_over_plain_http(kube, api):
    """Credentials are omitted, as in kubectl, and a refusal says so."""
    api.answer = lambda asked: status(401, "Unauthorized", "who are you?")
    with pytest.raises(Unauthorized, match="plain http: no credentials are sent"):
        kube.get("/x")
    with pytest.raises(Unauthorized), kube.log_stream("ns", "p", deadline_s=HANG_S):
        pass
    assert api.asked and not any("authorization" in asked.headers for asked in api.asked)


def test_nothing_listening_is_one_clear_line(tmp_path, kubeconfig):
    """A refused connection is Unreachable, well before the deadline."""
    client = Kube.connect(str(kubeconfig(tmp_path / "k", "http://127.0.0.1:9")))
    began = time.monotonic()
    with pytest.raises(
        Unreachable, match=r"http://127.0.0.1:9: GET /version: connection refused: nothing listens there"
    ):
        client.version()
    assert time.monotonic() - began < exchange.DEADLINE_S


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
def test_a_read_is_repeated_on_temporary_failures(kube, api, code):
    """Requests to a busy or restarting API server are retried within the deadline."""
    answers = itertools.chain([(code, {}, {})] * 2, itertools.repeat((200, {}, {"ok": 1})))
    api.answer = lambda _: next(answers)
    assert kube.get("/x") == {"ok": 1}
    assert len(api.asked) == 3


def test_a_create_is_repeated_only_where_nothing_can_have_happened(kube, api):
    """429 is sent before processing; after a 500 or a lost connection the object may exist."""
    answers = itertools.chain([(429, {"Retry-After": "0"}, {})], itertools.repeat((500, {}, {})))
    api.answer = lambda _: next(answers)
    with pytest.raises(ApiError):
        kube.create("/api/v1/namespaces/ns/pods", {})
    assert len(api.asked) == 2


def test_a_dry_run_may_be_repeated(kube, api):
    """A dry run changes nothing."""
    answers = iter([(503, {}, {}), (201, {}, {})])
    api.answer = lambda _: next(answers)
    assert kube.create("/x", {}, dry_run=True).status == 201
    assert api.asked[0].query["dryRun"] == "All"


def test_a_long_retry_after_does_not_outlast_the_deadline(kube, api):
    """A server may request an hour, but the caller's deadline applies."""
    api.answer = lambda _: (429, {"Retry-After": "3600"}, {})
    began = time.monotonic()
    with pytest.raises(ApiError, match="429"):
        kube.get("/x", deadline_s=1.0)
    assert time.monotonic() - began < wire.LONGEST_PAUSE_S


@pytest.mark.parametrize("text", ["nan", "inf", "-5", "1e300", "soon", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_any_retry_after_gives_a_bounded_pause(text):
    """The header is untrusted input."""
    assert 0 < wire.pause(3, text) <= wire.LONGEST_PAUSE_S


def test_a_server_that_drips_is_left_at_the_deadline(kube, api):
    """A timeout for silence alone would never expire while single bytes arrive."""
    api.answer = lambda _: (200, {}, drips(b" "))
    with pytest.raises(Unreachable, match="not complete after"):
        kube.request("GET", "/x", deadline_s=2.0, repeatable=False)


def test_an_answer_that_never_comes_is_left_at_the_deadline(kube, api):
    """A hanging server is asked once: it costs the deadline, not four times the timeout."""
    release = threading.Event()
    api.answer = lambda _: (release.wait(HANG_S) or 200) and (200, {}, {})
    with pytest.raises(Unreachable, match="no answer in time"):
        kube.get("/x", deadline_s=2.0)
    release.set()
    assert len(api.asked) == 1


def test_a_torn_answer_is_not_taken_for_a_whole_one(kube, api):
    """An answer with less data than its Content-Length is an error."""
    api.answer = lambda _: (200, {"Content-Length": "1000"}, b'{"items": []}')
    with pytest.raises(Unreachable, match=r"ended early|closed"):
        kube.request("GET", "/x", repeatable=False)


def test_an_endless_answer_is_refused(kube, api, monkeypatch):
    """Memory is bounded for any response."""
    monkeypatch.setattr(wire, "LARGEST_ANSWER", 1 << 20)
    api.answer = lambda _: (200, {}, iter(itertools.repeat(b"x" * 65536)))
    with pytest.raises(Unreachable, match="larger than 1 MiB"):
        kube.request("GET", "/x", repeatable=False)


def test_a_web_page_is_no_api(kube, api):
    """A proxy's login page with status 200 must not look like an empty cluster."""
    api.answer = lambda _: (200, {"Content-Type": "text/html"}, b"<html>Sign in</html>")
    with pytest.raises(Unreachable, match="is this a Kubernetes API"):
        kube.version()
    api.answer = lambda _: (403, {}, b"<html>no\x1b[31m</html>")
    with pytest.raises(Forbidden, match="<html>no</html>"):
        kube.version()


def test_lists_are_read_page_by_page(kube, api):
    """Pages have 500 objects and the server's token, and yield the version for the watch."""

    def answer(asked):
        page = int(asked.query.get("continue", "0"))
        meta = {"resourceVersion": "7"} | ({"continue": str(page + 1)} if page < 2 else {})
        return 200, {}, {"metadata": meta, "items": [pod(f"p{page}")]}

    api.answer = answer
    items, version = kube.list("/api/v1/pods", labelSelector="a=b")
    assert [item["metadata"]["name"] for item in items] == ["p0", "p1", "p2"] and version == "7"
    assert all(asked.query["limit"] == "500" and asked.query["labelSelector"] == "a=b" for asked in api.asked)


def test_an_expired_page_token_goes_on_where_the_server_says(kube, api):
    """410 in the middle of a long list has a token for the rest."""

    def answer(asked):
        token = asked.query.get("continue", "")
        if token == "old":
            return (
                410,
                {},
                {"kind": "Status", "reason": "Expired", "message": "too old", "metadata": {"continue": "new"}},
            )
        return 200, {}, {"metadata": {"continue": "" if token == "new" else "old"}, "items": [pod(token or "first")]}

    api.answer = answer
    items, _ = kube.list("/api/v1/pods")
    assert [item["metadata"]["name"] for item in items] == ["first", "new"]


def test_a_list_without_items_is_empty_and_a_wrong_one_is_an_error(kube, api):
    """Go writes an empty list as items: null; a string is not a list."""
    api.answer = lambda _: (200, {}, {"metadata": {}, "items": None})
    assert kube.list("/x") == ([], "")
    api.answer = lambda _: (200, {}, {"metadata": {}, "items": "no"})
    with pytest.raises(Unreachable, match="items is not a list"):
        kube.list("/x")


def test_far_answers_are_asked_for_compressed(kube, api):
    """The factor is 11:1 for node lists; streams are not compressed, because they would be delayed."""
    body = gzip.compress(json.dumps({"items": [{"a": "x" * 1000}] * 1000}).encode())
    api.answer = lambda _: (200, {"Content-Encoding": "gzip"}, body)
    kube.loopback = False
    items, _ = kube.list("/x")
    assert len(items) == 1000 and api.asked[0].headers["accept-encoding"] == "gzip"
    api.answer = lambda _: (200, {}, iter([b"line"]))
    with kube.log_stream("ns", "p", deadline_s=HANG_S) as chunks:
        assert b"".join(chunks) == b"line"
    assert "gzip" not in api.asked[1].headers.get("accept-encoding", "")


def test_a_watch_yields_events_and_survives_blank_and_torn_lines(kube, api):
    """Lines may be split anywhere, be empty, or be truncated at the end."""
    event = json.dumps({"type": "ADDED", "object": {"kind": "Pod", **pod("a")}}).encode() + b"\n"
    stream = event + b"\n" + event + b'{"type": "MOD'
    api.answer = lambda _: (200, {}, iter([stream[i : i + 7] for i in range(0, len(stream), 7)]))
    got = list(kube.watch("/api/v1/pods", resource_version="5", timeout_s=HANG_S))
    assert [kind for kind, _ in got] == ["ADDED", "ADDED"]
    assert api.asked[0].query["resourceVersion"] == "5" and api.asked[0].query["allowWatchBookmarks"] == "true"


def test_a_watch_that_is_too_old_says_so_in_both_forms(kube, api):
    """The server sends HTTP 410, or an ERROR event in a stream that started normally."""
    api.answer = lambda _: status(410, "Expired", "too old")
    with pytest.raises(Gone):
        list(kube.watch("/x", resource_version="1"))
    error = {
        "type": "ERROR",
        "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"},
    }
    api.answer = lambda _: (200, {}, iter([json.dumps(error).encode() + b"\n"]))
    with pytest.raises(Gone):
        list(kube.watch("/x", resource_version="1"))


def test_a_watch_can_be_ended_from_another_thread(kube, api):
    """The caller does not wait for a silent server."""
    silent = threading.Event()

    def nothing():
        yield b" \n"
        silent.wait(2 * HANG_S)

    api.answer = lambda _: (200, {}, nothing())
    cancel_token = wire.CancelToken()
    threading.Timer(0.3, cancel_token.cut).start()
    began = time.monotonic()
    with contextlib.suppress(Unreachable):
        list(kube.watch("/x", resource_version="1", timeout_s=HANG_S, cancel_token=cancel_token))
    assert time.monotonic() - began < HANG_S  # the watch's own time
    silent.set()


def test_warnings_of_the_server_are_kept(kube, api):
    """`Warning: 299` headers accompany a Job whose pods PodSecurity will refuse."""
    api.answer = lambda _: (201, {"Warning": '299 - "would violate PodSecurity \\"restricted\\""'}, {})
    assert kube.create("/x", {}).warnings == ('would violate PodSecurity "restricted"',)


def test_rights_are_asked_as_the_server_wants_it(kube, api):
    """One SelfSubjectAccessReview contains namespace, group, resource and subresource."""
    api.answer = lambda _: (201, {}, {"status": {"allowed": True, "reason": "RBAC: allowed"}})
    assert kube.can("get", "pods", subresource="log").allowed
    assert api.asked[0].body["spec"]["resourceAttributes"] == {
        "verb": "get",
        "resource": "pods",
        "subresource": "log",
        "namespace": "ns",
    }
    api.answer = lambda _: (201, {}, {"status": {"allowed": False, "denied": True}})
    assert not kube.can("list", "nodes", namespace="").allowed
    assert "namespace" not in api.asked[1].body["spec"]["resourceAttributes"]
    api.answer = lambda _: (201, {}, {"status": {}})
    with pytest.raises(Unreachable, match="does not say whether it is allowed"):
        kube.can("list", "nodes")


def test_the_clock_of_the_server_is_compared(kube, api):
    """The skew comes from the Date header, whose resolution is one second."""
    api.answer = lambda _: (200, {"Date": "Wed, 01 Jan 2020 00:00:00 GMT"}, {})
    assert kube.server_time_skew() < -1e8


def test_names_are_escaped_in_paths():
    """A foreign name cannot change the path."""
    assert path("jobs", "../x", namespace="a/b", group="batch") == "/apis/batch/v1/namespaces/a%2Fb/jobs/..%2Fx"


def test_connections_are_used_again(kube, api):
    """A complete response returns its connection; an unread one does not corrupt the next."""
    api.answer = lambda _: (200, {}, {"a": "x" * 100_000})
    for _ in range(5):
        kube.get("/x")
    pools = kube._pool.pools
    assert sum(pools[key].num_connections for key in list(pools.keys())) == 1


def test_the_collector_is_paused_only_while_decoding():
    """The garbage collector's earlier state is restored, also after an error."""
    import gc

    with exchange.gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), exchange.gc_paused():
        raise KeyError
    assert gc.isenabled()


def test_importing_the_package_does_not_import_the_client(root):
    """Importing `kubernetes` takes 0.2 s and more, so only a real connection may import it."""
    code = (
        "import sys, jobs.cluster.client.kube, jobs.run.launcher, jobs.cluster.facts.inventory, jobs.run.cleanup, jobs.diagnosis.verdict, jobs.trial.manifests;"
        "print([m for m in ('kubernetes', 'urllib3', 'yaml', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
