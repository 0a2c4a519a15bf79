"""Names resolve as with CoreDNS: headless hostnames, NXDOMAIN with an SOA, and the cache."""

import dnslib
import pytest

from lab.apiserver.store import Store
from lab.node.dns import Behaviour, Names, Resolver


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def cluster(**behaviour):
    store, clock = Store(), Clock()
    for name, address in ("peers", "None"), ("api", "10.96.0.7"):
        store.load("services", {"metadata": {"name": name, "namespace": "ns"}, "spec": {"clusterIP": address}})
    bent = Behaviour(**behaviour)
    return store, clock, Resolver(Names(store, bent, clock), bent, clock)


def publish(store, address="10.244.0.7", host="a", *, ready=True):
    store.load(
        "endpointslices.discovery.k8s.io",
        {
            "metadata": {"name": f"peers-{host}", "namespace": "ns", "labels": {"kubernetes.io/service-name": "peers"}},
            "endpoints": [{"addresses": [address], "hostname": host, "conditions": {"ready": ready}}],
        },
    )
    store.deliver()


def ask(resolver, name="a.peers.ns.svc.cluster.local", kind="A"):
    answer = resolver.answer(dnslib.DNSRecord.question(name, kind).pack())
    if answer is None:
        return None
    record = dnslib.DNSRecord.parse(answer)
    return dnslib.RCODE[record.header.rcode], [str(r.rdata) for r in record.rr], [r.ttl for r in record.auth]


def test_a_headless_name_is_the_pods_address():
    """<hostname>.<service>, and the service with all its pods; names are case-insensitive."""
    store, _, resolver = cluster()
    publish(store)
    publish(store, "10.244.1.7", "b")
    assert ask(resolver) == ("NOERROR", ["10.244.0.7"], [])
    assert ask(resolver, "PEERS.ns.svc.cluster.local")[1] == ["10.244.0.7", "10.244.1.7"]
    assert ask(resolver, "api.ns.svc.cluster.local")[1] == ["10.96.0.7"]
    assert ask(resolver, "7.0.244.10.in-addr.arpa", "PTR")[1] == ["a.peers.ns.svc.cluster.local."]


def test_a_name_that_does_not_exist_is_denied_for_five_seconds():
    """NXDOMAIN has an SOA whose TTL limits the cached denial, even after the name has appeared."""
    store, clock, resolver = cluster()
    assert ask(resolver) == ("NXDOMAIN", [], [5])
    publish(store)
    assert ask(resolver)[0] == "NXDOMAIN"
    clock.now += 5.1
    assert ask(resolver) == ("NOERROR", ["10.244.0.7"], [])


def test_an_existing_name_has_no_ipv6_address_and_that_is_no_denial():
    """AAAA: NOERROR without an answer (otherwise musl and others give up on the name)."""
    store, _, resolver = cluster()
    publish(store)
    assert ask(resolver, kind="AAAA") == ("NOERROR", [], [5])


def test_pods_that_are_not_ready_have_no_name():
    """The recording is recordings/headless-not-ready-hidden."""
    store, _, resolver = cluster()
    publish(store, ready=False)
    assert ask(resolver)[0] == "NXDOMAIN"


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("servfail", "SERVFAIL"), ("nxdomain", "NXDOMAIN"), ("timeout", None)],
    ids=["servfail", "nxdomain", "timeout"],
)
def test_a_scenario_can_break_all_names_of_the_cluster(mode, expected):
    """Queries yield SERVFAIL, NXDOMAIN or no response."""
    store, _, resolver = cluster(mode=mode)
    publish(store)
    addresses = ask(resolver)
    assert (addresses and addresses[0]) == expected


def test_names_can_appear_late():
    """delay_s: an endpoint is known this many seconds after its publication."""
    store, clock, resolver = cluster(delay_s=20.0)
    publish(store)
    assert ask(resolver)[0] == "NXDOMAIN"
    clock.now += 21
    assert ask(resolver)[1] == ["10.244.0.7"]


@pytest.mark.parametrize(
    "data",
    [b"", b"\0", b"\xff" * 40, dnslib.DNSRecord.question("x").pack()[:13]],
    ids=["empty", "short", "garbage", "cut"],
)
def test_garbage_gets_no_answer(data):
    """No packet of a pod ends the server."""
    assert cluster()[2].answer(data) is None
