"""A program's own failure and a pod that did not start: damaged files, extensions, exit signals, kubelet reasons."""

from __future__ import annotations

import pytest

from tests.logs.logmaker import Maker, sequential
from tests.logs.test_nccl_causes import HEALTHY, judged
from tests.logs.test_nccl_other_software import REFUSED, TORCHRUN, died, first
from tests.table import table

SAID = [
    # file readers' messages about truncated and invalid files
    (
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "nccl.file-broken",
        "was cut",
    ),
    (
        "RuntimeError: unexpected EOF, expected 9 more bytes. The file might be corrupted.",
        "nccl.file-broken",
        "was cut",
    ),
    ("safetensors_rust.SafetensorError: Error while deserializing header: x", "nccl.file-broken", "was cut"),
    ("_pickle.UnpicklingError: invalid load key, 'v'.", "nccl.file-broken", "was cut"),
    ("OSError: Unable to open file (truncated file: eof = 1, sblock->base_addr = 0)", "nccl.file-broken", "was cut"),
    ("pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer.", "nccl.file-broken", "was cut"),
    # Ray's memory monitor; CUDA's errors by name; UCX by the syndrome of the completion; the IMEX daemon
    (
        "[2026-11-22 10:00:00,1 E 3 3] (raylet) node_manager.cc:1: 13 Workers (tasks / actors) killed due to memory pressure (OOM), 0",
        "nccl.oom-killed",
        "memory monitor",
    ),
    ("(raylet) System memory low at node with IP 10.0.0.1. Used memory", "nccl.oom-killed", "memory monitor"),
    (
        "E a.cc:414] cuMemAlloc failed: CUDA_ERROR_CONTAINED: Invalid access of peer GPU memory",
        "nccl.cuda-failure",
        "peer",
    ),
    ("E a.cc:4] CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "nccl.cuda-driver", "driver"),
    (
        "[node:5:0:5] ib_mlx5_log.c:139  Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x85 hw_synd 0/0)",
        "nccl.ib-retry",
        "GID index",
    ),
    # verbs in words: Mooncake (worker_pool.cpp, rdma_context.cpp, rdma_transport.cpp)
    (
        "E0325 09:33:41.5 8274 worker_pool.cpp:294] Worker: Process failed for slice (opcode: 1, "
        + "x" * 300
        + " dest_rkey: 2): "
        "transport retry counter exceeded",
        "nccl.ib-retry",
        "GID index",
    ),
    (
        "E0710 rdma_context.cpp:1] GID is NULL, please check your GID index by specifying MC_GID_INDEX",
        "nccl.gid-empty",
        "GID",
    ),
    (
        "W0302 rdma_transport.cpp:400] RdmaTransport: Failed to register memory: addr 0x7 length 2",
        "nccl.gdr-register",
        "nvidia-peermem",
    ),
    ("Couldn't register GPU MR", "nccl.gdr-register", "nvidia-peermem"),
    ("ibv_reg_mr(gpu) failed: Bad address", "nccl.gdr-register", "nvidia-peermem"),
    # AMD's kernel driver and runtime
    ("[  510.633592] amdgpu 0000:67:00.0: GPU reset begin!", "nccl.gpu-reset", ""),
    (
        "[1.1] amdgpu 0000:1c:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
        "nccl.gpu-xid",
        "",
    ),
    (
        "Call returned HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate",
        "nccl.driver-state",
        "/dev/kfd",
    ),
    (
        "Memory access fault by GPU node-1 (Agent handle: 0x5) on address 0x7. Reason: Page not present",
        "nccl.kernel-fault",
        "P2P",
    ),
    (
        'msg="unable to load cuda driver library" error="cuda driver library init failure: 802"',
        "nccl.fabric-manager",
        "802",
    ),
    # text at the end of a long line; libnvidia-container's messages
    (
        "Warning  Failed  10s  kubelet  Error: failed to start container: "
        + "because " * 40
        + "nvidia-container-cli.real: "
        "container error: cgroup subsystem devices not found: unknown",
        "nccl.no-gpu",
        "cgroups (v2)",
    ),
    (
        "Failed to start nvml with error:  could not load NVML library",
        "nccl.no-gpu",
        "check that this runtime is the default",
    ),
    ("Reason:       ImagePullBackOff", "nccl.launch-failed", "cannot pull the image"),
    ("ninja: build stopped: subcommand failed.", "nccl.library", "compiler's lines"),
    ("[ERROR] [tid 33] Failed to get new memory reference with rc: 87", "nccl.imex-import", "IMEX"),
    # torch's agents
    (
        "[E socket.cpp:719] [c10d] The client socket has timed out after 60s while trying to connect to (worker-0.ns.svc, 43461).",
        "nccl.rendezvous",
        "nothing answered at worker-0.ns.svc, port 43461",
    ),
    ("torch.distributed.elastic.rendezvous.api.RendezvousClosedError", "nccl.rendezvous", "with a new id"),
    # extensions and toolkits of another release
    (
        "ImportError: /x/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
        "nccl.library",
        "built for another torch",
    ),
    (
        "RuntimeError: The detected CUDA version (11.5) mismatches the version that was used to compile PyTorch (12.1).",
        "nccl.library",
        "CUDA toolkit",
    ),
    (
        "deepspeed.ops.op_builder.builder.CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA version 11.2 does "
        "not match the version torch was compiled with 11.3, unable to compile cuda/cpp extensions",
        "nccl.library",
        "CUDA toolkit",
    ),
    ("RuntimeError: Error building extension 'fused_adam'", "nccl.library", "compiler's lines"),
    # the kubelet's reasons (event.go, predicate.go) and messages of the container runtime
    (
        "Warning  UnexpectedAdmissionError  1s  kubelet  Allocate failed due to requested number of devices unavailable "
        "for nvidia.com/gpu. Requested: 1, Available: 0, which is unexpected",
        "nccl.no-gpu",
        "fewer free GPUs",
    ),
    (
        "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "
        "nvidia.com/gpu, which is unexpected",
        "nccl.no-gpu",
        "marks the node's GPUs unhealthy",
    ),
    (
        "Allocate failed due to rpc error: code = Unavailable desc = transport is closing, which is unexpected",
        "nccl.no-gpu",
        "device plugin of the node did not register",
    ),
    ('MountVolume.SetUp failed for volume "data" : mount failed: exit status 32', "nccl.launch-failed", "mounted"),
    ('Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) a', "nccl.launch-failed", "attached"),
    ('Error: secret "hf-token" not found', "nccl.launch-failed", "the Secret hf-token"),
    ("exec /usr/bin/python: exec format error", "nccl.launch-failed", "a different CPU architecture"),
    (
        "Error: failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed",
        "nccl.launch-failed",
        "container runtime could not start",
    ),
    ("command terminated with exit code 137", "nccl.process-killed", "host memory ran out"),
    (
        'failed to "SetupNetwork" for "train-0_ns" with SetupNetworkError: "cni": Unhandled',
        "nccl.launch-failed",
        "network could not be set up",
    ),
    ("Warning NetworkNotReady 1s kubelet network is not ready", "nccl.launch-failed", "network could not be set up"),
    ("ValueError: Total available GPUs 8 is less than total desired GPUs 16.", "nccl.launch-failed", "fewer GPUs"),
    ("The node was low on resource: ephemeral-storage. Container a was using 9Ki", "nccl.storage", "evicted the pod"),
    ("The node had condition: [DiskPressure].", "nccl.storage", "evicted the pod"),
    ("The node had condition: [MemoryPressure].", "nccl.oom-killed", "evicted the pod"),
    ("[1.1] EXT4-fs error (device nvme0n1p1): ext4_find_entry:1455", "nccl.storage", "a disk of this node"),
    ("[1.1] critical target error, dev nvme0n1, blk_update_request: I/O error, dev nvme0n1", "nccl.storage", "disk"),
    (
        "(autoscaler +4s) Instance k-1 (node IP: 10.1.1.9) will be terminated soon (reason: kubernetes-pod-termination).",
        "nccl.ended-outside",
        "removed",
    ),
    ("Container trainer failed liveness probe, will be restarted", "nccl.ended-outside", "probe in time"),
    ("Pod was active on the node longer than the specified deadline", "nccl.ended-outside", "activeDeadlineSeconds"),
    # Ray's head, JAX's coordinator, XLA's cliques
    (
        "2026-03-30 17:22:35,502 WARNING node.py:1465 -- Unable to connect to GCS at 10.0.0.1:6379. Check that (1) Ray",
        "nccl.rendezvous",
        "Ray's head",
    ),
    (
        "[2026-03-24 10:00:00,1 E 10 10] gcs_rpc_client.h:151: Failed to connect to GCS at address 10.0.0.1:6379 within 5 seconds.",
        "nccl.rendezvous",
        "Ray's head",
    ),
    ("Exception: Version mismatch: The cluster was started with:", "nccl.library", "same image"),
    (
        "E coordination_service.cc:1] UNAVAILABLE: Task /job:jax_worker/replica:0/task:0 heartbeat timeout. This indicates that",
        "nccl.node-lost",
        "preempted",
    ),
    ("ray.exceptions.RayActorError: The actor died because its node has died.", "nccl.node-lost", "Ray lost a node"),
    ("DEADLINE_EXCEEDED: GetKeyValue() timed out with key: devices=[0,1]", "nccl.rendezvous", "NCCL id"),
    ("Worker unexpectedly exits with a connection error code 2. End of file.", "nccl.process-killed", "Ray"),
    ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 12.0 GiB", "nccl.oom-killed", "host memory"),
    ("terminate called after throwing an instance of 'std::bad_alloc'", "nccl.oom-killed", "host memory"),
    # downloads of the program
    (
        "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/x",
        "nccl.download",
        "too many requests",
    ),
    (
        "OSError: We couldn't connect to 'https://huggingface.co' to load this file",
        "nccl.download",
        "no external connectivity",
    ),
    (
        "urllib.error.URLError: <urlopen error [Errno 110] Connection timed out>",
        "nccl.download",
        "no external connectivity",
    ),
    (
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='h.co', port=443): Max retries exceeded with url: /a "
        "(Caused by NameResolutionError(Failed to resolve 'h.co' ([Errno -3] Temporary failure in name resolution)",
        "nccl.name-resolution",
        "a server outside",
    ),
    (
        "huggingface_hub.errors.GatedRepoError: 403 Client Error. Access to it is restricted",
        "nccl.download",
        "no token",
    ),
    (
        'Failed to pull image "nvcr.io/nvidia/driver:510": rpc error: code = Unknown desc = failed to pull and unpack image '
        '"nvcr.io/nvidia/driver:510.47.03-ubuntu18.04": failed to resolve reference "nvcr.io/nvidia/driver:510.47.03": failed '
        "to do request: Head https://nvcr.io/v2/nvidia/driver/manifests/510: dial tcp: lookup nvcr.io: no such host",
        "nccl.launch-failed",
        "registry does not resolve",
    ),
    ('Failed to pull image "a/b:1": manifest unknown', "nccl.launch-failed", "no such tag"),
    ("slurmstepd: error: pyxis: failed to import docker image", "nccl.launch-failed", "could not be imported"),
    ("chroot: failed to run command 'nvidia-smi': No such file or directory", "nccl.no-gpu", "no driver"),
    (
        "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 212 params, while rank 0 has inconsistent 0",
        "nccl.collective-mismatch",
        "different models",
    ),
    # libraries of other networks
]


@table("said, fault, words", SAID)
def test_what_ended_a_program_or_kept_its_pod_from_starting_is_named(said, fault, words):
    """A cause is named even in an otherwise empty log; messages of NCCL's peers about it come second."""
    line = died(said) if "Error: " in said and not said.startswith(("Error", "Warning")) else said + "\n"
    for log in (line, line + TORCHRUN):
        (cause, *_) = judged(log)["causes"]
        assert (cause["fault"], words in cause["cause"]) == (fault, True), cause["cause"]


@pytest.mark.parametrize("said", [said for said, *_ in SAID])
def test_said_before_a_run_that_came_to_its_end_it_condemns_no_one(said):
    assert judged(said + "\n" + HEALTHY)["verdict"] != "no-go"


@table(
    "said",
    [
        "RuntimeError: the file is whole",
        "ImportError: /usr/lib/libfoo.so: undefined symbol: foo_bar",
        "Allocated 8 devices nvidia.com/gpu for pod train-0",
        "ValueError: the extension 'fused_adam' is built already",
        "OSError: cannot mount",
        "RuntimeError: exit code 0",
        "RuntimeError: the state_dict was loaded, and no key is missing",
        "RuntimeError: a completion (synd 0x5 vend 0xf9)",
        "RuntimeError: amdgpu 0000:67:00.0: GPU reset succeeded, trying to resume",
        "RuntimeError: HSA_STATUS_SUCCESS",
        "RuntimeError: connected to GCS at 10.0.0.1:6379",
        "(autoscaler +4s) Instance k-1 (node IP: 10.1.1.9) will be terminated soon (reason: idle).",
        "RuntimeError: Thread is unstuck! Warning above was a false-positive.",
        "RuntimeError: the url https://huggingface.co/x was fetched",
        "RuntimeError: node had condition: [Ready]",
        "RuntimeError: heartbeat timeout is 100 s",
        "RuntimeError: no image is to be pulled",
        "RuntimeError: ran the command 'nvidia-smi'",
        "[9.9] NVRM: Xid (PCI:0000:3b:00): 63, pid=12, Row Remapper: New row marked for remapping",
        "etcd.EtcdKeyNotFound: Key not found : /torch/elastic/store",
        "subprocess.TimeoutExpired: Command 'git' timed out after 5 seconds",
    ],
)
def test_what_is_like_it_is_only_quoted(said):
    assert first(died(said) + TORCHRUN) == "nccl.crash"


def test_a_damaged_file_of_one_rank_comes_before_what_its_peers_saw():
    late = HEALTHY + REFUSED + died("safetensors_rust.SafetensorError: Error while deserializing header") + TORCHRUN
    assert first(late) == "nccl.file-broken"


@pytest.mark.parametrize(
    ("code", "signal"),
    [("-11", "SIGSEGV"), ("-6", "SIGABRT"), ("-4", "SIGILL"), ("139", "SIGSEGV"), ("1", ""), ("111", "")],
)
def test_a_launchers_exit_code_is_reported_as_the_signal_that_it_represents(code, signal):
    """Python's subprocess reports the negated signal number, a shell 128 plus it (signal(7))."""
    said = {
        "deepspeed": f"[2026-11-22 10:00:00,1] [ERROR] [launch.py:321:sigkill_handler] ['python'] exits with return code = {code}",
        "srun": f"srun: error: gpu-3: task 3: Exited with exit code {code}",
    }
    for line in said.values():
        cause = judged(line + "\n")["causes"][0]["cause"]
        assert ("SIG" in cause, signal in cause) == (bool(signal), True), cause
    assert judged(said["deepspeed"] + "\n")["diagnosis"] == "crash"


def test_xlas_warning_of_a_clique_that_is_late_is_reported_and_condemns_no_one():
    """XLA withdraws the warning ("Thread is unstuck!") if the others were only late."""
    job = judged(
        "E rendezvous.cc:38] This thread has been waiting for `initialize clique for rank 6` for 10 seconds and may be "
        "stuck. Expected 8 threads to join the rendezvous, but not all of them arrived on time.\n"
    )
    assert job["verdict"] == "inconclusive"
    assert "XLA's rendezvous" in job["causes"][0]["cause"]


def test_what_ray_says_of_a_worker_that_is_gone_comes_behind_what_the_worker_said():
    gone = "Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. Some causes\n"
    said = "(WorkerDict pid=2) Unhandled exception. what(): thread: Resource temporarily unavailable [system:11]\n"
    assert first(gone + said) == "nccl.process-limit"
    assert first(gone) == "nccl.process-killed"


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("invalid usage, NCCL version 2.7.8", "two ranks use the same GPU"),
        ("remote process exited or there was a network error, NCCL version 2.7.8", "an earlier failure"),
    ],
)
def test_a_wrong_use_of_nccl_comes_before_what_peers_see_of_that_ranks_end(error, cause):
    text = (
        f"RuntimeError: NCCL error in: /w/ProcessGroupNCCL.cpp:825, {error}\n"
        "vm1:7389:7453 [0] include/socket.h:421 NCCL WARN Call to recv failed : Broken pipe\n"
        "vm1:7389:7453 [0] NCCL INFO include/socket.h:438 -> 2\n"
    )
    assert cause in judged(text)["causes"][0]["cause"]


@pytest.mark.parametrize(("number", "words"), [(31, "MMU fault"), (13, "a kernel"), (45, "another error"), (1, "")])
def test_an_xid_that_condemns_no_gpu_is_quoted_with_what_nvidias_catalog_says_of_it(number, words):
    job = judged(f"[9.9] NVRM: Xid (PCI:0000:3b:00): {number}, pid=12, name=python, Ch 00000010\n")
    assert job["verdict"] == "inconclusive"
    assert (words in job["causes"][0]["cause"], "NVIDIA" in job["causes"][0]["cause"]) == (True, bool(words))


BARE_END = """\
E1128 10:00:00.000000 100 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0 (pid: 12) of binary: /usr/bin/python3
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


@pytest.mark.parametrize("prefix", ["[9.9] ", "Nov 28 10:00:00 node-a kernel: "])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("number", "words"), [(31, "MMU fault"), (13, "a kernel of the program"), (43, "a channel")])
def test_an_xid_next_to_a_launchers_bare_end_is_quoted(number, words, after, prefix):
    """torchrun says which rank ended, and the driver why; it is no defect of a GPU."""
    xid = f"{prefix}NVRM: Xid (PCI:0000:3b:00): {number}, pid=12, name=python, Ch 00000010\n"
    job = judged(BARE_END + xid if after else xid + BARE_END)
    (fault,) = job["faults"]
    assert (fault["fault"], job["verdict"]) == ("nccl.crash", "no-go")
    assert f"3b:00): {number}, pid=12" in fault["cause"] and words in fault["cause"]
    assert any(f"): {number}, pid=12" in line["text"] for line in fault["evidence"])
    assert "exitcode: 1" in fault["cause"] and f"): {number}, pid=12" in job["sentence"]


def test_a_bare_end_next_to_other_words_of_the_kernel_is_quoted_alone():
    """A link that went down says nothing of a program's end."""
    (fault,) = judged("mlx5_core 0000:1a:00.0 ens1f0np0: Link down\n" + BARE_END)["faults"]
    assert "Link down" not in fault["cause"]


def test_an_exception_is_quoted_as_cause_where_nothing_else_is_known():
    """The exception is quoted also without a launcher's message or an NCCL line; a log that proves its job healthy has
    no causes."""
    job = judged(died("LookupError: no codec of that name: 'a'"))
    assert job["verdict"] == "inconclusive"
    assert job["causes"][0]["cause"].startswith("the log says: ")
    assert "LookupError" in job["causes"][0]["cause"]
    assert "LookupError" in job["sentence"]
    assert judged(sequential(Maker().processes()).decode())["causes"] == []


def test_an_exception_without_a_class_of_its_own_is_quoted_and_not_the_line_that_raises_it():
    text = 'Traceback (most recent call last):\n    raise Exception("no layer to wrap")\nException: no layer to wrap\n'
    assert judged(text)["causes"][0]["cause"] == "the log says: Exception: no layer to wrap"


def test_what_failed_behind_ncclunhandledcudaerror_is_shown_and_held_against_nccls_defects():
    text = (
        "[rank1]: torch.distributed.DistBackendError: NCCL error in: a.cpp:1333, unhandled cuda error, NCCL version 2.18.1\n"
        "[rank1]: ncclUnhandledCudaError: Call to CUDA function failed.\n[rank1]: Last error:\n"
        "[rank1]: Cuda failure 'invalid argument'\n"
    )
    job = judged(text)
    assert job["faults"][0]["evidence"][-1]["text"].endswith("Cuda failure 'invalid argument'")
    assert "NVIDIA/nccl#957" in job["causes"][1]["cause"]
    assert "957" not in str(judged(text.replace("2.18.1", "2.21.5"))["causes"])


@pytest.mark.parametrize(
    ("card", "told"), [("erdma_0 is not enumerated as an mlx5 device", True), ("mlx5_0 is used", False)]
)
def test_nvshmem_on_another_nic_than_mlx5_is_reported(card, told):
    text = f"WARN: device {card}. Skipping...\n/n/nvshmem/src/transport.cpp:275: init failed for transport: IBGDA\n"
    assert ("mlx5 NICs alone" in judged(text)["causes"][0]["cause"]) is told


def test_what_a_hook_says_below_the_runtimes_line_is_reported():
    """The runtime's failure is shown; the missing driver is in the next line."""
    cause, *_ = judged(
        "Error: failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed\n"
        "nvidia-container-cli.real: initialization error: load library failed: libnvidia-ml.so.1: cannot open: unknown\n"
    )["causes"]
    assert cause["fault"] == "nccl.no-gpu"
    assert "no driver on the node" in cause["cause"]


def test_a_link_local_gid_of_ucx_is_reported_over_roce_alone():
    """Over InfiniBand all GIDs are in fe80::/64."""
    text = (
        "[n:5:0:5] ib_mlx5_log.c:143  Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)\n"
        "[n:5:0:5] ib_mlx5_log.c:143  DCI QP 0x1 wqe[0]: SEND [rqpn 0x2 rmac 0c:42 sgix 0 dgid fe80::e42:a1ff:fe7d:dfc8 tc 0]\n"
    )
    for log, why in (
        (text, "nccl.gid-link-local"),
        (text.replace("/RoCE", "/IB"), None),
        (text.replace("fe80::", "2001:db8::"), None),
    ):
        assert judged(log)["faults"][0]["why"] == why


def test_an_address_of_a_bridge_of_dockers_own_is_reported():
    """Compose networks start at 172.18.0.1 (the default address pools); a host behind a router does not have such an
    address."""
    for peer, why in (("172.18.0.1", "nccl.bootstrap-unroutable"), ("172.18.0.7", None), ("172.40.0.1", None)):
        text = REFUSED.replace("10.0.0.2", peer)
        assert judged(HEALTHY + text)["faults"][0]["why"] == why
