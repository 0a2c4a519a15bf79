"""The state that a run leaves for a later attach: it fits, and as untrusted text it neither fills memory nor sets
options."""

import base64
import json
import random
import zlib

import pytest

from checks.framework.attaching import arguments
from checks.framework.version import version
from jobs.cluster.client.errors import Forbidden, NotFound
from jobs.run.begun import MOST_BYTES, Begun, differences, packed, read
from jobs.run.creation import JobError
from jobs.trial.manifests import build, trial_json
from tests.jobs.test_trial_manifests import spec

NAME = "seatrial-abc"


class Api:
    """A server with one ConfigMap."""

    namespace = "ns"
    events = ()

    def __init__(self, begun=None, trial="{}", **labels):
        tags = {"app.kubernetes.io/managed-by": "seatrial", "app.kubernetes.io/instance": "abc"} | labels
        self.item = {"metadata": {"labels": tags}, "data": {"trial.json": trial}}
        self.item |= {"binaryData": {"begun": begun}} if begun is not None else {}

    def require(self, verb, resource, *, group, namespace):
        """Permit access to every kind."""

    def list(self, url):
        assert url == "/api/v1/namespaces/ns/events"
        return self.events, "1"

    def get(self, url):
        if not url.startswith("/api/v1/namespaces/ns/configmaps/seatrial-abc"):
            raise NotFound(url, status=404)
        return self.item


def test_it_comes_back_as_it_was_left():
    """The second attempt has a different name."""
    api = Api(packed({"remaining": ["a.b"]}), '{"nodes": 2}')
    assert read(api, NAME) == Begun("abc", 1, {"remaining": ["a.b"]}, {"nodes": 2})
    assert read(api, f"{NAME}-2").attempt == 2


def test_the_largest_fits_with_the_largest_program():
    """400 KB of program (tests/pod/test_probe_shipping.py) and the state; larger state is not stored at all."""
    noise = random.Random(1).randbytes(255_000).hex()
    largest = packed({"record": noise})
    assert 0.9 * MOST_BYTES < 3 * len(largest) / 4 <= MOST_BYTES
    made = build(spec(), {"__main__.py": "x" * 400_000}, largest)
    assert made.configmap["binaryData"]["begun"] == largest and made.configmap["immutable"] is True
    assert "begun" not in json.dumps(made.job)  # invisible to the pods
    assert packed({"record": random.Random(2).randbytes(MOST_BYTES).hex()}) == ""
    assert "begun" not in build(spec(), {"__main__.py": "x"}).configmap["binaryData"]


def bomb():
    return base64.b64encode(zlib.compress(b"[" + b"0," * (48 << 20), 9)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "%",
        "eJw=",
        base64.b64encode(zlib.compress(b"[1]")).decode(),
        base64.b64encode(zlib.compress(b"{")).decode(),
        bomb,
    ],
    ids=["empty", "no-base64", "cut", "list", "torn", "bomb"],
)
def test_what_no_run_has_written_is_refused_in_one_line(text):
    """Any user with permission for ConfigMaps in that namespace may have written it."""
    with pytest.raises(JobError, match="is damaged"):
        read(Api(text() if callable(text) else text), NAME)


def test_deep_nesting_is_no_crash():
    deep = base64.b64encode(zlib.compress(b'{"a":' + b"[" * 200_000)).decode()
    with pytest.raises(JobError, match="is damaged"):
        read(Api(deep), NAME)
    with pytest.raises(JobError, match="is damaged"):
        read(Api(packed({}), trial="nope"), NAME)


@pytest.mark.parametrize(
    ("api", "name", "said"),
    [
        (Api(packed({})), "training", "there is no job training in namespace ns, and no event of it"),
        (Api(), NAME, "has no record of the run"),
        (Api(packed({}), **{"app.kubernetes.io/managed-by": "helm"}), NAME, "is not a trial of seatrial"),
        (Api(packed({}), **{"app.kubernetes.io/instance": "xyz"}), NAME, "is not a trial of seatrial"),
        (Api(packed({})), f"{NAME}-copy", "is not a trial of seatrial"),
    ],
)
def test_what_is_no_trial_is_left_alone(api, name, said):
    with pytest.raises(JobError, match=said):
        read(api, name)


def test_a_job_that_was_there_is_distinguished_from_one_that_never_was():
    """A Job's events outlive it for an hour; events of its pods, and of jobs with a longer name, do not count."""
    api = Api(packed({}))
    completed = {"reason": "Completed", "message": "Job completed", "lastTimestamp": "2026-03-01T10:00:00Z"}
    api.events = [{**completed, "involvedObject": {"kind": "Pod", "name": "other"}}]
    with pytest.raises(JobError, match="no event of it: it never existed"):
        read(api, "other")
    api.events = [{**completed, "involvedObject": {"kind": "Job", "name": "other"}}]
    with pytest.raises(JobError, match=r"any more: .* last event is of 2026-03-01T10:00:00Z: Completed job/other"):
        read(api, "other")


def test_a_job_without_what_its_run_left_is_not_said_to_be_gone(monkeypatch):
    def job_alone(_, url):
        if "/configmaps/" in url:
            raise NotFound(url, status=404)
        return {"metadata": {"name": "training"}}

    monkeypatch.setattr(Api, "get", job_alone)
    with pytest.raises(JobError, match="has no ConfigMap of that name"):
        read(Api(), "training")


def test_events_that_may_not_be_read_leave_it_open(monkeypatch):
    def denied(*_):
        raise Forbidden("events is forbidden", status=403)

    monkeypatch.setattr(Api, "list", denied)
    with pytest.raises(JobError, match=r"cannot be read: .*forbidden"):
        read(Api(packed({})), "other")


def left(**options):
    return Begun("abc", 1, {"seatrial": version(), "options": options}, {})


def test_options_are_taken_over_and_foreign_ones_are_not():
    """Unknown words, options of pytest and file names are refused."""
    options = left(
        profile="h100-ib",
        nodes="-p evil",
        queue="kueue:a b",
        training=True,
        soak_s=60,
        dcgm=0,
        kubeconfig="/etc/x",
        on=["a", "b"],
        plugins="evil",
        out="/tmp/x",
    )
    assert arguments(options, None) == [
        "--profile=h100-ib",
        "--nodes=-p evil",
        "--queue=kueue:a b",
        "--training",
        "--on=a,b",
        "--soak=60s",
        "--dcgm=0",
    ]
    assert arguments(left(profile="/etc/passwd"), "mine.yaml") == ["--profile=mine.yaml"]
    with pytest.raises(JobError, match="a custom profile, /etc/passwd: pass it"):
        arguments(left(profile="/etc/passwd"), None)
    with pytest.raises(JobError, match=r"damaged: options\.tenant is the text 'yes', not true or false"):
        arguments(left(tenant="yes"), None)
    with pytest.raises(JobError, match="attach with the same version"):
        arguments(Begun("abc", 1, {"seatrial": "9.9", "options": {}}, {}), None)


def test_another_trial_than_the_one_under_way_is_distinguished():
    """Other options request another trial, and its evidence would be compared with the wrong expectations."""
    asked = spec()
    same = Begun("abc", 1, {}, json.loads(json.dumps(trial_json(asked))))
    assert differences(same, asked) == ""
    assert "nodes: 2 there, 4 asked" in differences(same, spec(nodes=4))
