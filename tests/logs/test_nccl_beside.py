"""Causes in other lines than the failed one: interfaces, launchers, containers, versions and GPU models."""

from __future__ import annotations

import pytest

from tests.logs.logmaker import Maker, sequential
from tests.logs.test_nccl_causes import HEALTHY, STARTED, judged
from tests.logs.test_nccl_other_software import STORE, TORCHRUN, WATCHDOG, died, first

SOCKETS = (
    "n1:1:1 [0] NCCL INFO NET/Socket : Using [0]bond0:192.168.1.161<0> [1]br-05ab815fa14e:172.19.0.1<0>\n"
    "n1:1:1 [0] NCCL INFO Using network Socket\n"
)
FAILED = "RuntimeError: NCCL error in: x.cpp:1269, unhandled system error, NCCL version 2.10.3\n"


def test_bridges_among_nccls_sockets_are_suspected():
    """nccl.bootstrap-unroutable: after an unknown end, or if a peer is unreachable; never with a real link present."""
    bridges = SOCKETS + FAILED
    assert [cause["fault"] for cause in judged(bridges)["causes"]][:2] == ["nccl.bootstrap-unroutable", "nccl.crash"]
    lost = "\nn1:1:9 [0] misc/socket.cc:403 NCCL WARN Connect to 172.19.0.1<33333> failed : Connection timed out\n"
    assert (
        "br-05ab815fa14e and bond0"
        in judged(SOCKETS + lost + "n1:1:9 [0] NCCL INFO x.cc:1 -> 2\n")["causes"][0]["cause"]
    )
    other_end = lost.replace("172.19.0.1", "192.168.1.162")
    assert "br-05ab815fa14e" not in str(judged(SOCKETS + other_end + "n1:1:9 [0] NCCL INFO x.cc:1 -> 2\n")["causes"])
    for other in (
        SOCKETS.replace("br-05ab815fa14e", "bond1"),
        SOCKETS.replace("br-05ab815fa14e", "br-ex"),
        SOCKETS.replace("work Socket", "work IB"),
    ):
        assert {cause["fault"] for cause in judged(other + FAILED)["causes"]} == {"nccl.crash"}


@pytest.mark.parametrize(
    ("error", "cause_text"),
    [
        ("invalid usage (run with NCCL_DEBUG=WARN for details)", "same GPU"),
        ("unhandled system error (run with NCCL_DEBUG=INFO for details)", "interface"),
        ("invalid argument (run with NCCL_DEBUG=WARN for details)", "two copies"),
        ("unhandled cuda error (run with NCCL_DEBUG=INFO for details)", "each other's memory"),
        ("remote process exited or there was a network error", "ended first"),
    ],
)
def test_an_error_without_a_warning_has_its_usual_causes_behind_it(error, cause_text):
    """The log shows only the error; a warning of NCCL or a `Last error` line is more specific."""
    bare = died(f"torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, {error}, NCCL version 2.27.5")
    causes = judged(bare + TORCHRUN)["causes"]
    assert cause_text in causes[0]["cause"]
    assert causes[0]["confirm"]
    for more in (
        "[rank1]: Last error:\n[rank1]: ring 3 has no name\n",
        "\nn1:1:9 [0] x.cc:1 NCCL WARN ring 3 has no name\n",
    ):
        assert not [each for each in judged(bare + more + TORCHRUN)["causes"] if "mostly" in each["cause"]]


def test_a_benchmark_without_a_first_row_was_cut_or_hangs():
    one = sequential(Maker(hosts=("gpu-node-0",)).processes()).decode().replace("Destroy COMPLETE", "")
    head = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
    head += "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
    job = judged(one + head)
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "truncated")
    assert [cause["fault"] for cause in job["causes"]][:2] == ["nccl.log-truncated", "nccl.hang"]
    row = "           8             2     float     sum      -1     8.49    0.00    0.00      0     8.37    0.00    0.00      0\n"
    assert not judged(one + head + row)["causes"]


@pytest.mark.parametrize(
    ("address", "cause_text"),
    [("0.0.0.0", "none can connect"), ("127.0.1.1", "the same on each host"), ("10.0.0.1", None)],
)
def test_a_rendezvous_at_an_address_that_is_each_hosts_own(address, cause_text):
    said = f"The client socket has timed out after 300000ms while trying to connect to ({address}, 51216)."
    cause = judged(died("torch.distributed.DistNetworkError: " + said) + TORCHRUN)["causes"][0]["cause"]
    assert cause_text in cause if cause_text else "address of rank 0" not in cause


def test_a_provider_that_verbs_misses_is_reported_with_an_unknown_end():
    missing = "libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs0\n"
    assert [cause["fault"] for cause in judged(missing + died("ValueError: odd") + TORCHRUN)["causes"]][1:] == [
        "nccl.verbs-provider"
    ]


@pytest.mark.parametrize(
    ("said", "cause_text"),
    [
        ("ibgda.cpp:1526: non-zero status: 101 ibv_modify_qp failed", "NVSHMEM_IB_GID_INDEX"),
        ("transport.cpp:282: init failed for transport: IBGDA", "PeerMappingOverride"),
    ],
)
def test_nvshmem_is_reported_by_what_failed(said, cause_text):
    job = judged(f"/src/nvshmem/src/host/{said}\n" + TORCHRUN)
    assert job["causes"][0]["fault"] == "nccl.nvshmem"
    assert cause_text in job["causes"][0]["cause"]


def test_nvshmem_without_a_module_for_gpu_memory():
    lines = "nvshmem/src/host/transport/transport.cpp:275: init failed for transport: IBGDA\n"
    lines += "nvshmem/src/modules/transport/ibgda/ibgda.cpp:3626: neither nv_peer_mem, or nvidia_peermem detected. Skipping transport.\n"
    assert judged(lines + TORCHRUN)["causes"][0]["fault"] == "nccl.gdr-no-module"


def test_what_enroot_says_follows_the_container_that_did_not_start():
    lines = "slurmstepd: error: pyxis: container start failed with error code: 1\n"
    lines += "slurmstepd: error: pyxis:     [ERROR] Command not found: nvidia-container-cli\n"
    job = judged(lines)
    assert (job["faults"][0]["fault"], job["causes"][0]["fault"]) == ("nccl.launch-failed", "nccl.no-gpu")


BRIDGED = "".join(
    f"node{at}:100:110 [0] NCCL INFO {text}\n"
    for at in (1, 2)
    for text in ("NET/Socket : Using [0]eth0:10.0.0.1<0> [1]docker0:172.17.0.1<0>", "Using network Socket")
)


@pytest.mark.parametrize(
    ("error", "blamed"),
    [
        ("unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5", True),
        ("unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5", False),
    ],
)
def test_a_bridge_is_not_at_fault_for_a_cuda_call(error, blamed):
    faults = [
        cause["fault"]
        for cause in judged(BRIDGED + died("torch.distributed.DistBackendError: NCCL error in: x.cpp:1, " + error))[
            "causes"
        ]
    ]
    assert ("nccl.bootstrap-unroutable" in faults) == blamed


@pytest.mark.parametrize(("value", "fault"), [("-2147483648", "nccl.library"), ("4", "nccl.invalid-usage")])
def test_a_value_of_a_setting_that_was_never_set_is_another_library(value, fault):
    """NCCL_CONFIG_UNDEF_INT (nccl.h) is the default of a newer header, read by an older library."""
    line = f"gpu-a:1:1 [0] init.cc:1 NCCL WARN Invalid config maxCTAs attribute value {value}\n"
    assert judged(line)["causes"][0]["fault"] == fault


def test_ranks_that_only_try_again_are_reported():
    lines = "".join(
        f"gpu-{at}:1:2 [0] NCCL INFO Call to connect returned Connection refused, retrying\n" for at in "ab"
    )
    job = judged(lines)
    assert (job["verdict"], job["causes"][0]["fault"]) == ("inconclusive", "nccl.connect-refused")
    assert "a peer refused the connection" in job["sentence"]


@pytest.mark.parametrize(
    ("said", "fault", "cause_text"),
    [
        (
            "ssh: Could not resolve hostname job-worker-5.job: Name or service not known",
            "nccl.name-resolution",
            "a worker's name",
        ),
        (
            "root@job-worker-1.job's password: Permission denied, please try again.",
            "nccl.launch-failed",
            "asks for a password",
        ),
        ("Unable to connect to the server: Connection timed out", "nccl.launch-failed", "kubectl exec"),
        ('Error from server (NotFound): pods "job-worker-0" not found', "nccl.launch-failed", "kubectl exec"),
        ("slurmstepd: error: pyxis: couldn't execute enroot command", "nccl.launch-failed", "permissions"),
        (
            "ImportError: /venv/libcusparse.so.12: undefined symbol: __nvJitLinkCreate_12_8, version libnvJitLink.so.12",
            "nccl.library",
            "another CUDA release",
        ),
    ],
)
def test_what_a_launcher_says_before_orte_gives_up(said, fault, cause_text):
    after = "ORTE does not know how to route a message to the specified daemon\n"
    cause = judged(said + "\n" + after)["causes"][0]
    assert cause["fault"] == fault
    assert cause_text in cause["cause"]


@pytest.mark.parametrize(
    "said", ["connect to the server at 10.0.0.1", "Message from server (ok): ready", "please try again later"]
)
def test_what_only_sounds_like_a_launcher(said):
    assert judged(said + "\n" + HEALTHY)["verdict"] == "go"


def test_a_heap_that_is_overwritten_names_a_version_older_than_the_gpus():
    causes = judged("NCCL version 2.21.5+cuda12.8\nfree(): corrupted unsorted chunks\n[n1:5] Signal: Aborted (6)\n")[
        "causes"
    ]
    assert "free(): corrupted" in causes[0]["cause"]
    assert "older than Blackwell" in causes[1]["cause"]


@pytest.mark.parametrize(("gpu", "at"), [("NVIDIA GeForce RTX 3090", 0), ("NVIDIA H100 80GB HBM3", None)])
def test_a_geforce_card_has_no_gpudirect(gpu, at):
    table = f"# Using devices\n#  Rank  0 Group  0 Pid   92 on  node1 device  0 [0x21] {gpu}\n"
    line = "node1:92:95 [0] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Bad address\n"
    causes = [cause["cause"] for cause in judged(table + line)["causes"]]
    assert [number for number, cause in enumerate(causes) if "GeForce" in cause] == ([] if at is None else [at])


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("[gloo/transport/tcp/pair.cc:761] connect [127.0.1.1]:60817: Connection refused", "nccl.loopback-name"),
        ("[gloo/transport/tcp/pair.cc:761] connect [10.0.1.1]:60817: Connection refused", "nccl.connect-refused"),
        ("RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED at CUDAContext.cpp:49", "nccl.no-gpu"),
        (
            "node1:92:95 [0] NCCL WARN Call to ibv_modify_qp failed with 61 No data available, on dev mlx5_1:1",
            "nccl.gid-empty",
        ),
        (
            "node1:92:95 [0] NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_1:1, local GID index 3, "
            "local GID ::, remote GID ::ffff:10.0.0.2",
            "nccl.gid-empty",
        ),
        (
            "node1:92:95 [0] NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_1:1",
            "nccl.ib-unreachable",
        ),
    ],
)
def test_what_an_address_in_a_line_shows(said, why):
    """A loopback address is nccl.loopback-name, an empty GID is nccl.gid-empty."""
    assert judged(said + "\n" + TORCHRUN)["causes"][0]["fault"] == why


def test_torchs_analyser_names_the_ranks():
    said = "error msg: Culprit rank 22; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: '[[1025]]' does not match"
    job = judged(said + " found input sizes: '[[262144]]', Culprit rank 110; Error type: SIZE_OR_SYNTAX_MISMATCH\n")
    assert job["causes"][0]["cause"].startswith("ranks 22, 110 called")


def test_what_failed_precedes_that_a_cuda_call_failed():
    last = (
        "[rank0]: ncclUnhandledCudaError: Call to CUDA function failed.\n[rank0]: Last error:\n[rank0]: Failed to bind NVLink "
        "SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be performed'\n"
    )
    assert first(last + TORCHRUN) == "nccl.nvls-failed"


def test_gloo_between_addresses_of_two_families():
    said = "RuntimeError: [enforce fail at gloo/transport/tcp/address.cc:99] ss1.ss_family == ss2.ss_family. 2 vs 10"
    assert "IPv6" in judged(died(said) + TORCHRUN)["causes"][0]["cause"]


@pytest.mark.parametrize(
    ("version", "line", "cause_text"),
    [
        (
            "2.18.3",
            "misc/socket.cc:40 NCCL WARN Call to bind failed : Address already in use",
            "2.19.4 connects in steps",
        ),
        ("2.21.5", "misc/socket.cc:40 NCCL WARN Call to bind failed : Address already in use", None),
        ("2.27.7", "free(): invalid next size (fast)", None),
        ("2.18.5", "free(): invalid next size (fast)", "NVLS meets NICs of two ports"),
    ],
)
def test_a_defect_of_the_version_follows_the_likeliest_cause(version, line, cause_text):
    job = judged(f"NCCL version {version}+cuda12.2\nn1:1:9 [0] {line}\nn1:1:9 [0] NCCL INFO transport/net.cc:1 -> 2\n")
    places = [at for at, cause in enumerate(job["causes"]) if cause["cause"].startswith("NCCL 2.")]
    assert places == ([1] if cause_text else [])
    assert cause_text is None or cause_text in job["causes"][1]["cause"]


@pytest.mark.parametrize(("gpu", "known"), [("NVIDIA GeForce RTX 5090", True), ("Tesla V100-SXM2-32GB", False)])
def test_a_defect_for_other_gpus_than_those_of_the_log_explains_nothing(gpu, known):
    table = f"# Using devices\n#  Rank  0 Group  0 Pid   92 on  GENOA-06 device  0 [0x21] {gpu}\n"
    lines = "NCCL version 2.21.5+cuda12.4\nGENOA-06: Test CUDA failure common.cu:294 'no kernel image is available'\n"
    causes = judged(table + lines)["causes"]
    assert causes[0]["fault"] == "nccl.cuda-arch"
    assert any("Blackwell needs" in cause["cause"] for cause in causes) == known


def test_a_store_that_is_missed_after_a_timeout_or_an_unknown_end_is_no_cause():
    """nccl.store-gone is a consequence: rank 0, which hosts the store, has ended."""
    assert first(HEALTHY + WATCHDOG + STORE + TORCHRUN) == "nccl.hang"
    ended = judged(HEALTHY + died("ValueError: the batch is odd") + STORE + TORCHRUN)
    assert ended["causes"][0]["fault"] == "nccl.crash"
    assert "the batch is odd" in ended["sentence"]
    assert first(HEALTHY + STORE + died("ValueError: the batch is odd") + TORCHRUN) == "nccl.store-gone"


def test_a_probe_of_another_process_behind_a_run_that_came_up_condemns_no_one():
    """An obstacle to a process start without a crash: not proven healthy, and no fault."""
    probe = "Failed to initialize NVML: Driver/library version mismatch\n"
    assert judged(HEALTHY + probe)["verdict"] == "inconclusive"
    assert judged(probe + HEALTHY)["verdict"] != "no-go"
    assert judged(STARTED + "\n" + probe)["verdict"] == "no-go"


@pytest.mark.parametrize(
    ("said", "cause_text"),
    [
        ("Permission denied (publickey).", "authorized_keys"),
        ("ssh: connect to host worker-1 port 22: Connection refused", "no sshd answers"),
        ("bash: line 1: orted: command not found", "not installed"),
        ("slurmstepd: error: pyxis: container start failed with error code: 1", "enroot"),
        ("srun: error: Unable to create step for job 77: More processors requested than permitted", "allocation"),
    ],
)
def test_a_launcher_that_fails_is_reported_by_what_it_lacks(said, cause_text):
    """The fault is nccl.launch-failed."""
    assert cause_text in judged(said + "\nsrun: error: gpu-3: task 1: Exited with exit code 1\n")["causes"][0]["cause"]


@pytest.mark.parametrize(
    ("line", "cause_text"),
    [
        ("transport/nvls.cc:251 NCCL WARN Cuda failure 1 'invalid argument'", "container without /dev/nvidia-caps"),
        (
            "n1:7:9 [0] misc/ibvwrap.cc:288 NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Operation not supported",
            "too old for DMA-BUF",
        ),
    ],
)
def test_what_the_driver_refuses_names_what_is_too_old_or_missing(line, cause_text):
    """The fault is the first or the second cause (pie-project/pie#500, NVIDIA/nccl#778)."""
    causes = judged(f"{line}\nTest NCCL failure common.cu:1000 'unhandled system error'\n")["causes"]
    assert any(cause_text in cause["cause"] for cause in causes[:2])
