"""Causes that stand in a line: each with a line that differs in what decides, and says nothing of it."""

from __future__ import annotations

import pytest

from jobs.nccl import conclude, read
from tests.nccl.logmaker import Maker, sequential

A = "gpu-node-0:1000:1000 [0] "
INFO, WARN = "NCCL INFO ", "misc/x.cc:10 NCCL WARN "
STARTED = sequential(Maker(stop="init").processes()).decode()
SOCKETS = sequential(Maker(net="Socket").processes()).decode()
HEALTHY = sequential(Maker().processes()).decode()
RETRY = "NET/IB: Got completion from peer 10.0.0.2<4> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=0 len=0 vendor err 129 (Recv)"


def judged(text: str):
    (job,) = conclude(read([("log", [text.encode()])]))
    return job


def whys(text: str):
    return [(fault["fault"], fault["why"]) for fault in judged(text)["faults"]]


def failing(text: str, code: int = 6) -> str:
    return STARTED + f"\n{A}{WARN}{text}\n{A}{INFO}init.cc:903 -> {code}\n"


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ("localGid ::ffff:10.99.92.59 remoteGids::ffff:10.99.91.63 hca mlx5_1", "nccl.gid-subnets"),
        ("localGid ::ffff:10.99.91.59 remoteGids::ffff:10.99.91.63 hca mlx5_1", None),
        ("localGid 2001:db8:1::5 remoteGids2001:db8:2::5 hca mlx5_1", "nccl.gid-subnets"),
        ("localGid 2001:db8:1::5 remoteGids2001:db8:1::6 hca mlx5_1", None),
        (
            "localGid fe80::4ebb:47ff:fe2e:5fa6 remoteGids fe80::32c5:99ff:febe:6b46 hca roceP2p1s0f0",
            "nccl.gid-link-local",
        ),
        ("localGid ::ffff:169.254.3.1 remoteGids::ffff:169.254.3.2 hca rdma0", "nccl.gid-link-local"),
        ("", None),  # InfiniBand prints none
        ("localGid ::ffff:999.1.1.1 remoteGids:: hca x", None),
        ("localGid ::::: remoteGids::ffff: hca x", None),
    ],
)
def test_the_ends_of_a_failed_connection(ends, why):
    """nccl.gid-subnets, nccl.gid-link-local."""
    job = judged(failing(f"{RETRY} {ends}"))
    assert [(fault["fault"], fault["why"]) for fault in job["faults"]] == [("nccl.ib-retry", why)]
    if why:
        assert ends.split()[1].removeprefix("::ffff:") in job["faults"][0]["cause"]


def test_the_ends_of_a_queue_pair_that_cannot_be_changed():
    said = "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state RTR, local GID index 3, local GID ::ffff:10.1.1.2, remote GID ::ffff:10.1.2.3"
    assert whys(failing(said, 2)) == [("nccl.ib-unreachable", "nccl.gid-subnets")]
    assert whys(failing(said.replace("10.1.2.3", "10.1.1.3"), 2)) == [("nccl.ib-unreachable", None)]


def test_a_line_that_was_wrapped_is_read_whole_and_a_stranger_far_away_is_not_joined():
    wrapped = f"{RETRY}\n  localGid fe80::1:2  remoteGids fe80::3:4  hca roceP2p1s0f0"
    assert whys(failing(wrapped)) == [("nccl.ib-retry", "nccl.gid-link-local")]
    far = f"{RETRY}\n" + "step 1\n" * 5 + "  localGid fe80::1:2  remoteGids fe80::3:4  hca roceP2p1s0f0"
    assert whys(failing(far)) == [("nccl.ib-retry", None)]


@pytest.mark.parametrize(("address", "why"), [("169.254.170.23", "nccl.bootstrap-link-local"), ("10.1.2.3", None)])
def test_a_peer_at_a_link_local_address(address, why):
    """nccl.bootstrap-link-local, with NCCL's head and without any."""
    line = f"socketPollConnect: connect to {address}<41234> returned Connection refused, exceeded error retry count after 35 attempts"
    assert whys(failing(line, 2)) == [("nccl.connect-refused", why)]
    bare = f"NET/Socket : Using [0]eth0:10.1.1.1<0>\n{line}\nRuntimeError: NCCL error: remote process exited or there was a network error\n"
    assert ("nccl.connect-refused", why) in whys(bare)


def test_a_refused_connection_names_the_address_that_is_gone():
    """The suspect is the address, not the host that complains."""
    job = judged(failing("socketPollConnect: connect to 10.99.91.49<36141> returned Connection refused", 2))
    assert "10.99.91.49" in job["sentence"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Error : too many XML nodes (max 256)", ("nccl.topology-too-large", None)),
        ("Error while attaching to shared memory segment /dev/shm/nccl- (size 0), error: No such file or directory (2)",
         ("nccl.shm-attach", "nccl.shm-name")),
        ("Error while attaching to shared memory segment /dev/shm/nccl-x7Y2kq (size 9637888), error: No such file or directory (2)",
         ("nccl.shm-attach", None)),
        ("Cuda failure 802 'system not yet initialized'", ("nccl.cuda-failure", "nccl.fabric-manager")),
        ("Cuda failure 700 'an illegal memory access was encountered'", ("nccl.cuda-failure", None)),
    ],
)  # fmt: skip
def test_what_a_warning_holds(line, expected):
    """nccl.topology-too-large, nccl.shm-name, nccl.fabric-manager."""
    assert whys(failing(line, 2)) == [expected]


def test_a_provider_that_is_missing_is_no_missing_device():
    """nccl.verbs-provider: libibverbs says it on standard error, without a head."""
    said = "libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs0\n"
    head = next(line.split("NCCL INFO")[0] for line in SOCKETS.splitlines() if "Using network" in line)
    with_head = f"{head}{INFO}{said}" + SOCKETS
    assert whys(with_head)[0] == ("nccl.socket-fallback", "nccl.verbs-provider")
    assert whys(said + SOCKETS)[0] == ("nccl.socket-fallback", "nccl.verbs-provider")
    assert whys(SOCKETS)[0] == ("nccl.socket-fallback", "nccl.ib-no-device")
    assert whys(said + HEALTHY) == whys(HEALTHY)


def test_gdrcopy_is_a_hint_where_nothing_else_shows_and_quiet_in_a_healthy_job():
    """nccl.gdrcopy."""
    said = "NCCL WARN NET/OFI Failed to initialize GDRCopy: Failed to open gdr handle\n"
    assert whys(said + "NCCL INFO NET/OFI gin: Initializing\n") == [("nccl.no-evidence", "nccl.gdrcopy")]
    assert whys(HEALTHY + said) == whys(HEALTHY)


def test_a_timeout_of_expert_parallel_stands_before_the_cuda_error_that_follows_it():
    """nccl.ep-timeout: the GPU is innocent; a CUDA error that stands first is not."""
    said = "Warning: NCCL EP timeout for dispatch receive, rank 2, local_expert_idx 37, src_rank 0\n"
    failed = f"{A}{WARN}Cuda failure 'unspecified launch failure'\n{A}{INFO}init.cc:1 -> 1\n"
    assert whys(STARTED + said + failed)[0][0] == "nccl.ep-timeout"
    assert whys(STARTED + failed + said)[0][0] == "nccl.cuda-failure"


def test_parts_of_a_host_that_nccl_takes_for_nodes_are_not_counted_as_hosts():
    """nccl.node-count; hosts that were given their identity are believed."""
    split = HEALTHY.replace("nNodes 2", "nNodes 4").replace("localRanks 2", "localRanks 1")
    job = judged(split)
    assert job["nodes"] == 2
    assert "nccl.node-count" in {fault["fault"] for fault in job["faults"]}
    assert judged(HEALTHY)["nodes"] == 2
    assert "nccl.node-count" not in {fault["fault"] for fault in judged(HEALTHY)["faults"]}
