"""A profile's network requirements compared with the log."""

from __future__ import annotations

import re

import pytest

from seatrial.logs.job_document import Expected
from tests.logs.logmaker import Maker, sequential


def test_what_the_profile_expects_is_compared(judge):
    """Fewer rails than in the profile, and a different fabric, are reported."""
    log = sequential(Maker(rails=2).processes())
    fewer = judge(log, expect=Expected(rails=8, fabric="ib"))
    other = judge(log, expect=Expected(rails=2, fabric="efa"))
    right = judge(log, expect=Expected(rails=2, fabric="ib", gdr=True))
    assert [(item["fault"], item["subject"]) for item in fewer["faults"]] == [
        ("nccl.rail-missing", "gpu-node-0"),
        ("nccl.rail-missing", "gpu-node-1"),
    ]
    assert [item["fault"] for item in other["faults"]] == ["nccl.wrong-fabric"]
    assert right["faults"] == []


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, "efa was expected and ib is used"),
        (
            {"NCCL_NET_PLUGIN": "none"},
            "efa was expected and ib is used; NCCL_NET_PLUGIN=none is set (in the job's environment, or the image)",
        ),
    ],
    ids=["nothing set", "chosen"],
)
def test_another_fabric_names_what_chose_it(judge, env, said):
    """If the environment disables the fabric, the cards need no inspection."""
    job = judge(sequential(Maker(env=env).processes()), expect=Expected(fabric="efa"))
    assert [(item["fault"], item["cause"]) for item in job["faults"]] == [("nccl.wrong-fabric", said)]


def test_a_tcp_plugin_is_another_fabric_where_rdma_was_bought_and_right_where_it_was(judge):
    """FastSocket is not a fallback of NCCL, but differs from the profile's fabric."""
    log = sequential(Maker(net="FastSocket", gdr=False).processes()).replace(b"NET/IB/", b"NET/FastSocket/")
    jobs = [judge(log, expect=Expected(fabric=kind)) for kind in ("ib", "fastsocket")]
    assert [[item["fault"] for item in job["faults"]] for job in jobs] == [["nccl.wrong-fabric"], []]
    assert [(job["verdict"], job["diagnosis"]) for job in jobs] == [("no-go", "wrong-fabric"), ("go", "tcp-plugin")]


def test_sockets_are_right_where_they_were_bought(judge):
    """A profile with plain TCP as its fabric allows sockets without a fallback."""
    log = sequential(Maker(socket_ranks=(0, 1, 2, 3)).processes())
    jobs = [judge(log, expect=Expected(fabric=kind)) for kind in (None, "ib", "socket")]
    faults = [[item["fault"] for item in job["faults"]] for job in jobs]
    assert faults == [["nccl.socket-fallback"], ["nccl.socket-fallback"], []]
    assert [job["verdict"] for job in jobs] == ["no-go", "no-go", "go"]


def test_gpudirect_that_no_one_bought_is_not_missing(judge):
    """A profile may state that its fabric has no GPUDirect; without a profile its absence is a fault."""
    log = sequential(Maker(gdr=False).processes())
    jobs = [judge(log, expect=Expected(gdr=gdr)) for gdr in (None, True, False)]
    assert [[item["fault"] for item in job["faults"]] for job in jobs] == [["nccl.gdr-off"], ["nccl.gdr-off"], []]


def test_a_host_that_lost_a_device_is_named_without_a_profile(judge):
    """Other hosts list and use more devices."""
    whole, short = Maker(rails=4, channels=4).processes(), Maker(rails=3, channels=4).processes()
    job = judge(sequential({key: (whole if key[0] == "gpu-node-0" else short)[key] for key in whole}))
    assert [(item["fault"], item["subject"]) for item in job["faults"]] == [("nccl.rail-missing", "gpu-node-1")]


@pytest.mark.parametrize(("rails", "verdict"), [(1, "no-go"), (2, "no-go"), (4, "go")])
def test_a_host_whose_channels_crowd_on_few_of_its_cards_is_named_without_a_profile(judge, rails, verdict):
    """nccl.rail-missing: it has as many GPUs and cards as its peer, but all its channels use one or two cards."""
    log = sequential(Maker(gpus=8, rails=8, channels=8).processes()).decode()
    crowded = [
        re.sub(r"NET/IB/(\d)", lambda found: f"NET/IB/{int(found.group(1)) % rails}", line)
        if line.startswith("gpu-node-1")
        else line
        for line in log.splitlines()
    ]
    job = judge("\n".join(crowded) + "\n")
    assert (job["verdict"], "gpu-node-1" in job["sentence"]) == (verdict, verdict == "no-go")
