"""Names and ports between the ranks: unresolved names and blocked directions."""

import pytest

from checks.rules import rendezvous
from checks.rules.ranks import dns_seconds
from checks.rules.rendezvous import dns_findings, port_findings


def lookup(trial, rank, peer, **changes):
    trial.evidence[rank].stages["dns"]["peers"][peer].update(changes)


def test_a_name_that_never_resolves_is_reported_for_its_pair(trial, spec, bad):
    """The finding has the nodes of the asking rank and of its peer."""
    lookup(trial, 0, 1, addresses=[], error="NXDOMAIN", first_error="NXDOMAIN", attempts=40)
    assert bad(dns_findings(trial, spec)) == [("gpu-node-0 -> gpu-node-1", "dns.unresolved")]


def silent_for(trial, rank, error="timeout"):
    """Make the DNS server time out for this rank, so that it has no address and dials no peer."""
    for peer in (0, 1):
        lookup(trial, rank, peer, addresses=[], error=error, first_error=error, attempts=4)
    port(trial, rank, outbound=False, inbound=False, address=None, outbound_error="its name did not resolve")


@pytest.mark.parametrize("error", ["timeout", "unreachable"])
@pytest.mark.parametrize("dialled", ["no answer within 3 s", "no route to host"])
def test_a_server_that_is_silent_behind_a_broken_network_is_no_fault_of_dns(trial, spec, bad, error, dialled):
    """The other rank has this one's address but gets no response from it."""
    silent_for(trial, 1, error)
    port(trial, 0, outbound=False, inbound=False, outbound_error=dialled)
    arrows = ["gpu-node-1 -> gpu-node-0", "gpu-node-1 -> gpu-node-1"]
    assert bad(dns_findings(trial, spec)) == [(each, "network.unreachable") for each in arrows]
    told = [f.observed for f in dns_findings(trial, spec) if not f.ok]
    address = trial.evidence[0].stages["port"]["peers"][0]["address"]
    assert told[0] == f"{error} after 4 attempts; gpu-node-0 got no answer from its address {address} either"


@pytest.mark.parametrize(
    ("dialled", "error"),
    [
        ({"outbound": True}, "timeout"),  # the network works: the server is at fault
        ({"outbound": False, "outbound_error": "connection refused"}, "timeout"),  # the host answered
        ({"outbound": False, "outbound_error": "no answer within 3 s"}, "NXDOMAIN"),  # the server answered
        ({"outbound": False, "outbound_error": "its name did not resolve", "address": None}, "timeout"),  # not tried
    ],
)
def test_dns_is_at_fault_where_the_network_carries_or_no_one_has_tried_it(trial, spec, bad, dialled, error):
    silent_for(trial, 1, error)
    port(trial, 0, **{"inbound": False, **dialled})
    assert {fault for _, fault in bad(dns_findings(trial, spec))} == {"dns.unresolved"}


def test_the_names_are_those_of_the_attempt_that_ran(trial, spec):
    """A second attempt's Service has another name, and the first one's is no longer expected."""
    trial.attempts = 2
    expected = [finding.expected for finding in dns_findings(trial, spec)]
    assert all(f".{spec.job_name}-2 = " in each for each in expected) and len(expected) == 4


def test_a_slow_name_passes(trial, spec, bad):
    """NXDOMAIN occurs shortly after the start: it is retried and shown, not judged."""
    lookup(trial, 0, 1, first_error="NXDOMAIN", seconds_to_first_answer=3.4, attempts=6)
    assert not bad(dns_findings(trial, spec))
    assert any("first NXDOMAIN" in f.observed for f in dns_findings(trial, spec))
    assert not any("CoreDNS" in f.observed for f in dns_findings(trial, spec))
    lookup(trial, 0, 1, first_error="NXDOMAIN", seconds_to_first_answer=29.7, attempts=18)
    assert any(
        "caches keep the negative response to an early query (CoreDNS: 30 s)" in f.observed
        for f in dns_findings(trial, spec)
    )


def test_a_second_attempt_is_held_against_its_own_names(trial, spec):
    """Each attempt's Job and pods have separate names."""
    (first, *_) = dns_findings(trial, spec)
    trial.attempts = 2
    (second, *_) = dns_findings(trial, spec)
    assert first.expected.startswith(f"{spec.job_name}-0.{spec.job_name} ")
    assert second.expected.startswith(f"{spec.job_name}-2-0.{spec.job_name}-2 ")


@pytest.mark.parametrize(
    ("addresses", "fault"),
    [
        (["10.9.9.9"], "dns.wrong-address"),
        (["10.0.1.5", "10.9.9.9"], "dns.wrong-address"),
        (["10.0.1.5", "fd00::5"], ""),
        (["fd00::5"], "dns.wrong-address"),
    ],
)
def test_the_address_must_be_the_peers_own(trial, spec, bad, addresses, fault):
    """A wildcard or stale record is wrong; the second family of a dual-stack cluster is not."""
    lookup(trial, 0, 1, addresses=addresses)
    assert [f for _, f in bad(dns_findings(trial, spec))] == ([fault] if fault else [])


def test_a_name_that_was_not_asked_for_is_not_a_pass(trial, spec):
    """The probe was terminated early, so the result is undetermined."""
    trial.evidence[1].stages["dns"]["peers"].pop()
    assert [f.ok for f in dns_findings(trial, spec)] == [True, True, True, None]


def port(trial, rank, **changes):
    trial.evidence[rank].stages["port"]["peers"][0].update(changes)


def test_a_blocked_direction_is_reported_alone(trial, spec, bad):
    """One blocked direction is one finding, named in the direction of the connection."""
    port(trial, 0, outbound=False, outbound_error="no answer within 3 s")
    port(trial, 1, inbound=False)
    assert bad(port_findings(trial, spec)) == [("gpu-node-0 -> gpu-node-1", "port.blocked")]


def test_the_other_side_answers_for_a_silent_rank(trial, spec):
    """Without rank 1's evidence, rank 0 still knows its incoming peers; a connection that neither saw is not a pass."""
    del trial.evidence[1].stages["port"]
    assert [f.ok for f in port_findings(trial, spec)] == [True, True]
    port(trial, 0, inbound=False)
    assert [f.ok for f in port_findings(trial, spec)] == [True, None]


def test_a_port_that_is_taken_is_one_fault(trial, spec, bad):
    """The pod that could not listen is reported; its unreachability is a consequence."""
    trial.evidence[1].stages["port"].update(
        listening=False, error="cannot listen on port 29500: Address already in use"
    )
    port(trial, 0, outbound=False, outbound_error="connection refused")
    assert [(s, f) for s, f in bad(port_findings(trial, spec)) if f] == [("gpu-node-1", "port.in-use")]
    assert [f.ok for f in port_findings(trial, spec)] == [None, False, True]


def test_a_variable_that_was_taken_away_is_named(trial, spec):
    """The trial sets both conventions, so a variable missing in the pod was removed."""
    whole = dict.fromkeys(rendezvous.CONVENTIONS, "1")
    for rank in range(2):
        trial.evidence[rank].stages["start"]["env"] = dict(whole)
    assert list(rendezvous.convention_notes(trial, spec)) == []
    del trial.evidence[1].stages["start"]["env"]["NODE_RANK"]
    assert list(rendezvous.convention_notes(trial, spec)) == [
        "gpu-node-1: NODE_RANK is not set in the pod; a launch script that reads them starts alone"
    ]


def test_a_rank_that_never_resolved_a_peer_has_no_time_for_all_of_them(trial):
    """The longest wait of the other peers would suggest that this peer had resolved."""
    for rank, waits in ((0, [0.5, 2.5]), (1, [0.5, None])):
        trial.evidence[rank].stages["dns"] = {"peers": [{"seconds_to_first_answer": wait} for wait in waits]}
    assert dns_seconds(trial) == {"gpu-node-0": 2.5}
