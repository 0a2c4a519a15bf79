"""Causes shown by other lines than the failed one: interfaces, cards, settings, GPU models."""

from __future__ import annotations

import pytest

from tests.logs.test_nccl_causes import INFO, RETRY, WARN, A, fault_reasons, judged

OLD_NET = "".join(f"{A}{INFO}NET : Using interface {each}<0>\n" for each in ("eth0:10.0.0.1", "{0}"))


@pytest.mark.parametrize(("second", "why"), [("lo:127.0.0.1", "nccl.bootstrap-unroutable"), ("eth1:10.0.1.1", None)])
def test_the_loopback_interface_with_a_real_one_reaches_no_other_host(second, why):
    """The messages are those of NCCL 2.2 and 2.3."""
    said = f"{OLD_NET.format(second)}{A}{INFO}comm 0x7f rank 0 nranks 4\n"
    said += said.replace("gpu-node-0", "gpu-node-1").replace("rank 0", "rank 2").replace("10.0.0.1", "10.0.0.2")
    text = f"{said}{A}include/socket.h:361 NCCL WARN Call to connect timeout : Connection refused\n{A}{INFO}init.cu:420 -> 2\n"
    assert fault_reasons(text) == [("nccl.connect-refused", why)]


@pytest.mark.parametrize(
    ("address", "why"), [("fe80::ba59:9f03:fc:765c%ib0", "nccl.bootstrap-link-local"), ("10.0.0.1", None)]
)
def test_an_interface_with_a_link_local_address_alone(address, why):
    """A link-local address cannot be bound without its zone; with no other sign, it is the cause."""
    head = f"{A}{INFO}Bootstrap : Using ib0:{address}<0>\n"
    bound = f"{head}{A}misc/socket.cc:379 NCCL WARN Call to bind failed : Cannot assign requested address\n{A}{INFO}bootstrap.cc:176 -> 2\n"
    assert fault_reasons(bound) == [("nccl.bootstrap-interface", why)]
    waiting = (
        head
        + head.replace("gpu-node-0", "gpu-node-1").replace(address, "10.0.0.2")
        + f"{A}{INFO}cudaDriverVersion 12040\n"
    )
    seen = [cause["fault"] for cause in judged(waiting)["causes"]]
    assert seen == ([why] if why else [])


def gdr_at(sender: str, receiver: str) -> str:
    """Return two hosts, a sender and a receiver."""
    other = A.replace("gpu-node-0", "gpu-node-1")
    return (
        f"{A}{INFO}Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0{sender}\n"
        f"{other}{INFO}Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0{receiver}\n"
    )


def test_a_host_that_receives_without_gpudirect_has_no_module_whatever_reads_are_set_to():
    """NCCL_NET_GDR_READ affects only a sender's card (transport/net.cc, ncclTopoCheckGdr)."""
    (fault,) = judged(gdr_at("/GDRDMA", ""))["faults"]
    assert (fault["fault"], fault["subject"]) == ("nccl.gdr-mixed", "gpu-node-1")
    assert "no channel of gpu-node-1 has GPUDirect" in fault["cause"]
    (fault,) = judged(gdr_at("", "/GDRDMA"))["faults"]
    assert "GDR reads are off" in fault["cause"]


@pytest.mark.parametrize(("device", "first"), [(2, True), (0, False)])
def test_edges_between_different_cards_speak_for_rails_that_nothing_connects(device, first):
    joined = gdr_at("", "").replace("[receive] via NET/IB/0", f"[receive] via NET/IB/{device}")
    causes = [
        each["cause"] for each in judged(f"{joined}{A}{WARN}{RETRY}\n{A}{INFO}transport/net.cc:870 -> 6\n")["causes"]
    ]
    assert ["nothing connects these rails" in cause for cause in causes[:1]] == [first]
    assert any("nothing connects these rails" in cause for cause in causes) == first
    assert "nothing connects these rails" not in str(
        judged(f"{A}{WARN}{RETRY}\n{A}{INFO}transport/net.cc:870 -> 6\n")["causes"]
    )


@pytest.mark.parametrize("plugin", ["IBext_v8", "IB"])
def test_a_verbs_plugin_does_not_obey_the_switch_of_nccls_own_verbs(plugin):
    said = f"{A}{INFO}NCCL_IB_DISABLE set by environment to 1.\n{A}{INFO}Using network {plugin}\n"
    failed = "Call to ibv_modify_qp failed with error Connection timed out"
    job = judged(f"{said}{A}{WARN}{failed}\n{A}{INFO}ib_plugin.c:297 -> 2\n")
    assert ("NCCL_IBEXT_DISABLE" in job["causes"][0]["cause"]) == (plugin != "IB")


def test_gpus_of_several_kinds_are_named_where_results_are_wrong():
    lines = "".join(
        f"#  Rank {rank:2} Group  0 Pid   {rank + 90} on gpu-node-0 device  {rank} [0x0{rank}] {{{rank}}}\n"
        for rank in (0, 1)
    )
    row = "          64            16     float     sum      -1    297.3    0.00    0.00     30    298.8    0.00    0.00     24\n"
    head = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
    for kinds, several in ((("NVIDIA RTX A2000", "Quadro K620"), True), (("NVIDIA A100", "NVIDIA A100"), False)):
        job = judged("# nThread 1 nGpus 2\n# Using devices\n" + lines.format(*kinds) + head + row)
        cause = next(fault["cause"] for fault in job["faults"] if fault["fault"] == "nccl.wrong-results")
        assert ("of several kinds (" in cause) == several


def test_gpus_without_peer_access_are_distinguished_from_memory_that_cannot_be_shared():
    """nccl.p2p-refused with an engine's own all-reduce."""
    said = "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:307 '{}'\nWorker exited\nTraceback (most recent call last):\n"
    refused = judged(
        "NCCL version 2.20.5+cuda12.4\n" + said.format("peer access is not supported between these two devices")
    )
    assert refused["faults"][0]["why"] == "nccl.p2p-refused" and "no peer access" in refused["causes"][0]["cause"]
    other = judged("NCCL version 2.20.5+cuda12.4\n" + said.format("invalid argument"))
    assert other["faults"][0]["why"] is None and "no peer access" not in str(other["causes"])
    failed = "NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'"
    for source, why in (("transport/shm.cc", "nccl.cumem-host"), ("transport/p2p.cc", None)):
        assert [why] == [each for _, each in fault_reasons(f"{A}{source}:238 {failed}\n{A}{INFO}{source}:300 -> 1\n")]
