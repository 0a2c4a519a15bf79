"""The simulated collective: effects of the world and the environment."""

import re
import signal
import socket

import pytest

from tests.ports import free_port
from tests.waiting import HANG_S, until

GIB = 1 << 30


def test_a_healthy_pair_uses_infiniband_on_every_rank_and_channel(pair):
    """Sixteen ranks, one file each, complete start-up, all hops between nodes by IB with GPUDirect over eight rails."""
    answer = pair.run(NCCL_ALGO="Ring")
    assert answer.codes == [0, 0]
    assert len(answer.logs) == 16
    assert answer.log.count("Init START") == answer.log.count("Init COMPLETE") == 16
    assert answer.log.count("Using network IB") == 16
    assert answer.log.count("Connected all rings, use ring PXN 0 GDR 1") == 16
    hops = re.findall(r"Channel \d\d/0 : (\d+)\[\d\] -> (\d+)\[\d\] \[(send|receive)\] via (\S+)", answer.log)
    assert {transport for *_, transport in hops} == {f"NET/IB/{card}/GDRDMA" for card in range(8)}
    sent = sorted((a, b) for a, b, way, _ in hops if way == "send")
    assert sent == sorted((a, b) for a, b, way, _ in hops if way == "receive")  # both ends agree
    assert len(set(re.findall(r"commId (0x[0-9a-f]+)", answer.log))) == 1


def test_the_bandwidth_is_that_of_published_machines(pair):
    """Ring stays below the link rate (8 x 50 GB/s); NCCL's own choice on two nodes exceeds it, as published."""
    ring, default = pair.run(NCCL_ALGO="Ring"), pair.run()
    assert 370 < ring.busbw(8 * GIB) < 400
    assert 455 < default.busbw(8 * GIB) < 480
    assert [int(row[0]) for row in ring.rows] == [1 << power for power in range(20, 34)]
    assert "# Out of bounds values : 0 OK" in ring.out[0]
    assert ring.out[1] == ""
    assert "Connected NVLS tree" in default.log
    assert "NCCL_ALGO set by environment to Ring\n" in ring.log


def test_a_run_is_repeatable(pair):
    """The small noise in the numbers is the same in every run."""
    assert pair.run(NCCL_ALGO="Tree").busbw(GIB) == pair.run(NCCL_ALGO="Tree").busbw(GIB)


@pytest.mark.parametrize(
    ("env", "line"),
    [
        ({"NCCL_IB_DISABLE": "1"}, "NCCL_IB_DISABLE set by environment to 1."),
        ({"NCCL_IB_HCA": "=mlx5_9"}, "NCCL_IB_HCA set to =mlx5_9"),
        ({"NCCL_NET": "Socket"}, "NET/Socket : Using [0]eth0:"),
    ],
)
def test_settings_that_exclude_infiniband_fall_back_to_sockets(pair, env, line):
    """Like the real library, the simulated one falls back silently, with a line that gives the reason."""
    answer = pair.run(**env)
    assert answer.codes == [0, 0]
    assert line in answer.log
    assert answer.log.count("Using network Socket") == 16
    assert "via NET/Socket/0" in answer.log
    assert "NET/IB/" not in answer.log
    assert answer.busbw(GIB) < 5


def test_a_pod_without_the_rdma_resource_finds_no_device(pair):
    """Without a device in the pod the lines have the forms of a recorded NCCL 2.28.9 without one."""
    pair.rdma = [False, False]
    answer = pair.run()
    assert answer.log.count("NET/IB : No device found.") == 16
    assert "NET/IB : Using [RO]; OOB eth0:" in answer.log
    assert answer.log.count("Failed to initialize NET plugin IB") == 16


def test_a_filter_chooses_among_the_cards(pair):
    """NCCL_IB_HCA may be a prefix, an exclusion, or a port."""
    answer = pair.run(NCCL_IB_HCA="^=mlx5_0,mlx5_1,mlx5_2,mlx5_3")
    assert "Using [0]mlx5_4:1/IB [1]mlx5_5:1/IB [2]mlx5_6:1/IB [3]mlx5_7:1/IB [RO]" in answer.log
    assert set(re.findall(r"NET/IB/(\d)/", answer.log)) == {"0", "1", "2", "3"}
    assert answer.busbw(8 * GIB) < 250


def test_forcing_a_network_that_is_not_there_fails(pair):
    """NCCL_NET=IB without a device is an error, not a fallback; torchrun reports it as usual."""
    pair.rdma = [False, False]
    answer = pair.run(NCCL_NET="IB")
    assert answer.codes == [1, 1]
    assert "NCCL WARN Failed to initialize any NET plugin" in answer.log
    assert "ChildFailedError" in answer.err[0]
    assert "Last error:\n[rank0]: Failed to initialize any NET plugin" in answer.err[0]
    assert answer.rows == []


def test_gdr_off_shows_in_every_place(pair):
    """With NCCL_NET_GDR_LEVEL=LOC there is no /GDRDMA anywhere, GDR 0 in the summary, and less bandwidth."""
    answer = pair.run(NCCL_NET_GDR_LEVEL="LOC", NCCL_ALGO="Ring")
    assert "/GDRDMA" not in answer.log
    assert answer.log.count("use ring PXN 0 GDR 0") == 16
    assert answer.busbw(8 * GIB) < 200


def test_p2p_disabled_goes_through_shared_memory(pair):
    """NCCL_P2P_DISABLE=1 replaces NVLink by SHM inside the nodes."""
    answer = pair.run(NCCL_P2P_DISABLE="1")
    assert "via SHM/direct/direct" in answer.log
    assert "P2P/CUMEM" not in answer.log
    assert "NVLS" not in answer.log


def test_without_nccl_debug_nothing_is_logged(pair):
    """NCCL_DEBUG unset prints nothing; VERSION and WARN print the version once, to standard output or the file."""
    assert pair.run(NCCL_DEBUG=None).logs == {}
    quiet = pair.run(NCCL_DEBUG=None, NCCL_DEBUG_FILE=None)
    assert "NCCL" not in quiet.out[0].replace("nccl 2.28.9", "")
    version = pair.run(NCCL_DEBUG="VERSION", NCCL_DEBUG_FILE=None)
    assert version.out[0].count("NCCL version 2.28.9+cuda13.0") == 1
    assert "NCCL INFO" not in version.out[0]


def test_without_a_file_the_log_is_on_standard_output(pair):
    """NCCL_DEBUG_FILE unset: the ranks' lines are between those of the bench."""
    answer = pair.run(NCCL_DEBUG_FILE=None)
    assert "NCCL INFO Init timings" not in answer.out[0] or "Init COMPLETE" in answer.out[0]
    assert "job-1:" in answer.out[1]
    assert answer.rows


def test_subsystems_are_honoured(pair):
    """Channel lines need INIT (or NET); without both the log shows no transport."""
    assert "via NET/" not in pair.run(NCCL_DEBUG_SUBSYS="ENV").log
    assert "via NET/IB" in pair.run(NCCL_DEBUG_SUBSYS=None).log
    assert "Ring 00 :" not in pair.run(NCCL_DEBUG_SUBSYS=None, NCCL_ALGO="Ring").log
    assert "via NET/" not in pair.run(NCCL_DEBUG_SUBSYS="^INIT,NET").log


def test_one_rank_on_sockets(pair):
    """mixed-transport has fifteen ranks on IB, only rank 11 on sockets, and the whole job is slow."""
    pair.collective = {"socket_ranks": [11]}
    answer = pair.run(NCCL_ALGO="Ring")
    assert answer.log.count("Using network IB") == 15
    assert "Using network Socket" in answer.rank(11)
    assert "NET/IB/" not in answer.rank(11)
    assert answer.busbw(8 * GIB) < 60


def test_wrong_results_are_counted(pair):
    """wrong-results: every row has wrong elements, the footer prints FAILED; the bench itself ends normally."""
    pair.collective = {"wrong": 17}
    answer = pair.run()
    assert {row[-1] for row in answer.rows} == {"17"}
    assert "FAILED" in answer.out[0]
    assert answer.codes == [0, 0]


def test_a_full_file_system_cuts_the_logs_but_not_the_table(pair):
    """log-truncated: files end in mid-line before the transport, the table is complete."""
    pair.collective = {"log_limit_bytes": 6000}
    answer = pair.run()
    assert {len(text.encode()) for text in answer.logs.values()} == {6000}
    assert "via NET/" not in answer.log
    assert answer.busbw(8 * GIB) > 400


def test_a_hanging_collective_ends_by_signal_only(pair):
    """nccl-hang: everything is connected, no row is printed; SIGTERM ends it with torchrun's messages."""
    pair.collective = {"hang": True}
    port = free_port()
    jobs = [pair.start(node, {}, port) for node in (1, 0)]
    logs = pair.folder
    until(lambda: sum("Connected" in path.read_text() for path in logs.glob("nccl.*.log")) == 16, "16 ranks connected")
    assert all(job.poll() is None for job in jobs)
    for job in jobs:
        job.send_signal(signal.SIGTERM)
    answer = pair.answer([job.wait(timeout=HANG_S) for job in jobs])
    assert answer.codes == [1, 1]
    assert "got signal: 15" in answer.err[0]
    assert answer.rows == []


def test_a_recorded_log_is_replayed_by_the_first_node_only(pair):
    """replay prints the whole file on node 0 and nothing on the other, and creates no further files."""
    (pair.folder / "recorded.log").write_text("a real log\nof two lines\n")
    pair.collective = {"replay": "recorded.log"}
    answer = pair.run()
    assert answer.out == ["a real log\nof two lines\n", ""]
    assert answer.logs == {}


def test_a_missing_node_times_out_as_in_torch(pair):
    """No listener at MASTER_PORT: the client gives up with torch's message."""
    job = pair.start(1, {}, free_port(), "--rdzv-conf=timeout=1")
    assert job.wait(timeout=HANG_S) == 1
    said = (pair.folder / "err1").read_text()
    assert "The client socket has timed out after 1000ms while trying to connect to (127.0.0.1" in said


def test_whoever_listened_before_does_not_matter(pair):
    """A connection closed without an answer (another program has just released the port) is retried."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as before:
        late = pair.start(1, {}, port)
        before.accept()[0].close()
    first = pair.start(0, {}, port)
    assert [first.wait(timeout=HANG_S), late.wait(timeout=HANG_S)] == [0, 0]


def test_more_processes_than_gpus_is_an_error(pair):
    """A pod with fewer GPUs than processes fails like CUDA."""
    answer = pair.ask("torchrun", "--nproc-per-node=9", "train.py")
    assert answer.returncode == 1
    assert "CUDA error: invalid device ordinal" in answer.stderr


def test_a_wrong_option_is_a_usage_error(pair):
    """torchrun's options are known, others are refused with exit code 2."""
    answer = pair.ask("torchrun", "--nnode=2", "train.py")
    assert answer.returncode == 2
    assert "unrecognized arguments: --nnode" in answer.stderr
    assert pair.ask("torchrun", "--nnodes=2").returncode == 2


def test_the_slowest_card_sets_the_pace_of_all(pair):
    """Channels share the data evenly: one rail at a quarter of its rate leaves a quarter of the bandwidth."""
    pair.rates = {(1, 3): 100}
    assert 85 < pair.run(NCCL_ALGO="Ring").busbw(8 * GIB) < 100
