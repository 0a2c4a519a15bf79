"""Failures of other libraries: cuBLAS and cuDNN, UCX, PSM, libfabric; and stacks that locate a termination."""

from __future__ import annotations

import pytest

from tests.logs.logmaker import Maker, sequential
from tests.logs.test_nccl_causes import HEALTHY, judged
from tests.logs.test_nccl_other_software import died, first
from tests.table import table

SIGNAL = "[gpu-node-0:1000] *** Process received signal ***\n[gpu-node-0:1000] Signal: Aborted (6)\n"
UCX = "[1790000000.000001] [gpu-node-0:1000 :0] "

INTERPOSER = "nccl.cuda-interposer"
SAID = [
    # cublasStatus_t and cudnnStatus_t, as torch and Paddle print them
    (
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(handle, opa)`",
        "nccl.cuda-library",
        "cuBLAS (cublasGemmEx) says EXECUTION_FAILED: a library that does not fit",
    ),
    (
        "RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm(handle)`",
        "nccl.cuda-library",
        "cuBLAS (cublasSgemm) says INVALID_VALUE: mostly a library of another CUDA release",
    ),
    (
        "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        "nccl.cuda-library",
        "cuDNN says NOT_INITIALIZED: mostly the GPU has no memory left",
    ),
    ("OSError: (External) CUBLAS error(13).", "nccl.cuda-library", "a library of another CUDA release"),
    (
        "Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: undefined symbol: _ZN5cudnn1aE",
        "nccl.library",
        "a library of another CUDA release is found first",
    ),
    # UCX (select.c, sock.c, ib_device.c, cuda_ipc_cache.c) and UCC (tl_cuda_cache.c)
    (
        UCX
        + "select.c:1 UCX  ERROR no active messages transport to <no debug data>: self/memory - Destination is unreachable",
        "nccl.ucx-error",
        "UCX has no transport that reaches that peer",
    ),
    (
        UCX + "sock.c:323  UCX  ERROR   connect(fd=9, dest_addr=172.17.0.1:42887) failed: Connection refused",
        "nccl.bootstrap-unroutable",
        "172.17.0.1, an address of Docker's own bridges",
    ),
    (
        UCX + "sock.c:323  UCX  ERROR   connect(fd=9, dest_addr=10.0.0.2:42887) failed: Connection refused",
        "nccl.connect-refused",
        "nothing listens at 10.0.0.2 any more",
    ),
    (UCX + "ib_device.c:9  UCX  ERROR Invalid gid[3] on mlx5_6:1", "nccl.gid-empty", "the local GID is ::"),
    (
        "[gpu-node-0:1000:0:7] cuda_ipc_cache.c:1  Fatal: dest:9: failed to open ipc mem handle. addr:0x7f len:8 (Element already exists)",
        "nccl.ucx-error",
        "over CUDA IPC",
    ),
    (
        UCX + "tl_cuda_cache.c:1  UCC  ERROR ipc-cache: failed to open ipc mem handle. addr:0x7f len:8 err:201",
        "nccl.ucx-error",
        "over CUDA IPC",
    ),
    (
        UCX + "sock.c:261  UCX  ERROR connect(fd=23, dest_addr=127.0.0.1:4779) failed: Connection refused",
        "nccl.bootstrap-unroutable",
        "127.0.0.1, the peer's loopback address",
    ),
    (
        "pml_ucx.c:323 Error: ucp_ep_create(proc=1) failed: Destination is unreachable",
        "nccl.ucx-error",
        "UCX_TLS or UCX_NET_DEVICES",
    ),
    # PSM2 and libfabric's psm3
    ("train: Assertion failure at psm_ep.c:832: ep->epid != 0", "nccl.psm", "libfabric chose psm3"),
    ("gpu-node-0:rank1: PSM3 can't open nic unit: 0 (err=23)", "nccl.psm", "PSM cannot open this NIC"),
    (
        "gpu-node-0.1000train: CUDA failure: cuIpcOpenMemHandle() (at /b/libpsm2-12/ptl_am/am_cuda.c:4) returned 709",
        "nccl.psm",
        "PSM2 could not open a peer GPU's memory",
    ),
    # libfabric's EFA provider, Open MPI over libfabric
    (
        "Error 4126: Unresponsive receiver (reachable by EFA device but handshake failed)",
        "nccl.efa-peer-gone",
        "OOM-killed",
    ),
    (
        "[gpu-node-0:1000] mtl_ofi_endpoint.h:49: *** The Open MPI OFI MTL is aborting the MPI job (via exit(3)).",
        "nccl.ofi-error",
        "MPI's own transport over libfabric gave up",
    ),
    (
        "MPIDI_OFI_handle_cq_error(1062): OFI poll failed (ofi_events.c:1064:handle_cq_error:Input/output error - UNDELIVERABLE)",
        "nccl.ofi-error",
        "could not deliver a message",
    ),
    (
        "MPIDI_OFI_handle_cq_error(1075): OFI poll failed (ofi_events.c:1077:handle_cq_error:Input/output error - PTLTE_NOT_FOUND)",
        "nccl.ofi-error",
        "MPI's own transport over libfabric gave up",
    ),
    (
        "[node][[4,1],7][btl_ofi_component.c:238:mca_btl_ofi_exit] BTL OFI will now abort.",
        "nccl.ofi-error",
        "MPI's own",
    ),
    # NVSHMEM's ibgda.cpp
    (
        "/nvshmem/src/modules/transport/ibgda/ibgda.cpp:2234: NULL value Unable to create ah.",
        "nccl.nvshmem",
        "no address handle for the peer",
    ),
    (
        "/nvshmem/src/modules/transport/ibgda/ibgda.cpp:1889: NULL value cannot allocate mlx5dv_devx_uar",
        "nccl.nvshmem",
        "the container lacks permissions",
    ),
    (
        "ibv_modify_qp failed\n/nvshmem/src/modules/transport/ibrc/ibrc.cpp:1433: non-zero status: 7 ",
        "nccl.nvshmem",
        "found no route to each other",
    ),
    # the kernel, and the service that starts the NVSwitches
    (
        "[9.1] mlx5_core 0000:41:00.0: mlx5_cmd_out_err:800:(pid 2): CREATE_MKEY(0x200) op_mod(0x0) failed, status limits exceeded(0x8)",
        "nccl.ib-memlock",
        "no memory keys or queue pairs left",
    ),
    ("[ERROR] failed to configure all the available GPUs or NVSwitches", "nccl.fabric-manager", "nvidia-fabricmanager"),
    ("Error: rank 27 and rank 19 both on CUDA device 53000", "nccl.duplicate-gpu", "no device is selected per rank"),
    (
        'CUDA error at simpleP2P.cu:111 code=205(cudaErrorMapBufferObjectFailed) "cudaDeviceEnablePeerAccess(1, 0)"',
        "nccl.gpu-mapping",
        "P2P that this GPU or board does not support",
    ),
    ("Couldn't create IB resource.", "nccl.ib-create", "rdma-core in the image"),
    # nccl-tests: CUDA's error for a call without its own rule
    ("Test CUDA failure common.cu:730 'unknown error'", "nccl.driver-state", "a GPU failed or was lost"),
    # requests for CUDA memory that other nodes may open, and for a card's queue pair
    (
        "[CUDA_ERROR_NOT_PERMITTED] operation not permitted in expression cuMemCreate(&handle, size, &prop, 0)",
        "nccl.mnnvl-failed",
        "no IMEX channel",
    ),
    ("CUDA error in cuMemImportFromShareableHandle: invalid resource handle", "nccl.imex-import", "IMEX daemon"),
    ("Failed to modify QP to RTR: Connection timed out", "nccl.ib-unreachable", "without a route"),
    ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "nccl.driver-mismatch", "forward-compatibility"),
    # launchers and limits
    ("A process or daemon was unable to complete a TCP connection", "nccl.mpi", "cannot connect to each other"),
    (
        "[node:1] [[INVALID],INVALID] ORTE_ERROR_LOG: Not found in file ess_env_module.c at line 135",
        "nccl.mpi",
        "launcher and library",
    ),
    ("srun: error: task 0 launch failed: Unspecified error", "nccl.launch-failed", "Slurm could not start the tasks"),
    ("srun: StepId=7.0 aborted before step completely launched.", "nccl.launch-failed", "Slurm could not start"),
    ("slurmstepd: error: Job 7 exceeded memory limit (6 > 5), being killed", "nccl.oom-killed", "memory limit"),
    ("ConnectionError: Tried to launch distributed communication on port `29144`", "nccl.port-in-use", "listens at"),
    ("(pid=7) E0328 18:23:00.165781 7 core_worker.cc:382] Raylet failed. Shutting down.", "nccl.node-lost", "node"),
    # nvmlErrorString and NVIDIA's go-nvml
    ("Failed to initialize NVML: Unknown Error", "nccl.no-gpu", "systemctl daemon-reload"),
    ("Failed to initialize NVML: could not load NVML library.", "nccl.no-gpu", "toolkit is not set up"),
    # HAMi-core (src/multiprocess/multiprocess_memory_limit.c, src/allocator/allocator.c)
    (
        "[HAMI-core ERROR (pid:5 thread=1 multiprocess_memory_limit.c:831)]: Illegal device id: 8",
        INTERPOSER,
        "preloads",
    ),
    ('  File "/libvgpu/src/cuda/memory.c", line 582, in cuMemCreate', INTERPOSER, "preloads a library"),
    ("[HAMI-core ERROR (pid:5 thread=1 allocator.c:52)]: Device 0 OOM 12 / 8", "nccl.cuda-memory", "is used up"),
    # ld.so(8), cudaGetErrorString, and programs that load libraries by name
    (
        "ImportError: libcuda.so.1: cannot open shared object file: No such file",
        "nccl.cuda-symbols",
        "not in the container",
    ),
    ("RuntimeError: CUDA error: CUDA driver is a stub library", "nccl.cuda-symbols", "a stub of the build image"),
    ("ncclGetUniqueId(&id) failed: Unable to load NCCL library.", "nccl.library", "no such library"),
    # systemd and Chef about a service, pyxis about the kernel
    ("nvidia-fabricmanager.service: Failed with result 'exit-code'.", "nccl.fabric-manager", "is not running"),
    (
        "service[nvidia-fabricmanager] (x::y line 35) had an error: CommandTimeout",
        "nccl.fabric-manager",
        "is not running",
    ),
    ("Failed to start NVIDIA fabric manager service.", "nccl.fabric-manager", "is not running"),
    ("slurmstepd: error: pyxis: seccomp filter failed: Function not implemented", "nccl.launch-failed", "container"),
    # perftest
    (" GID: " + ":".join(["00"] * 16) + "\nFailed to modify QP 218 to RTR", "nccl.gid-empty", "an empty entry"),
    # gdb, glog and Python's faulthandler for a SIGBUS; the kernel for a GPU, on the line after the device's
    ('Thread 787 "train" received signal SIGBUS, Bus error.', "nccl.bus-error", "/dev/shm"),
    ("*** SIGBUS (@0x7f2) received by PID 7 (TID 0x7f) from PID 2; stack trace: ***", "nccl.bus-error", "/dev/shm"),
    ("Fatal Python error: Bus error", "nccl.bus-error", "/dev/shm"),
    ("               NVRM: fallen off the bus and is not responding to commands.", "nccl.gpu-lost", "PCIe"),
]


@table("said, fault, cause_text", SAID)
def test_what_failed_is_named_by_library_and_call(said, fault, cause_text):
    """The faults are nccl.cuda-library, nccl.psm, nccl.cuda-interposer, and those of other libraries."""
    job = judged(died("ValueError: x") + said + "\n")
    assert (job["verdict"], job["causes"][0]["fault"]) == ("no-go", fault), job["sentence"]
    assert cause_text in job["causes"][0]["cause"]
    assert judged(HEALTHY + said + "\n")["verdict"] != "go"


@table(
    "said",
    [
        "cublasCreate returned CUBLAS_STATUS_SUCCESS",
        "checking cuDNN: CUDNN_STATUS_SUCCESS, version 90100",
        UCX + "ucp_worker.c:1 UCX  INFO  ep_cfg[1]: rma(cuda_ipc/cuda)",
        UCX + "sock.c:1 UCX  DEBUG connect(fd=68, dest_addr=172.17.0.1:38467): Operation now in progress",
        "libfabric:1:1:psm3:core:psmx3_getinfo():1<info> no PSM3 device is active.",
        "provider: psm3",
        "linked against /usr/lib64/libpsm2.so.2",
        "mtl_ofi_component.c:347: mtl:ofi:prov: efa;ofi_rxr",
        "cuMemImportFromShareableHandle: mapped 8 buffers",
        "Modified QP to RTR in 3 us",
        "rank 2 and rank 3 both on node gpu-7",
        "psm_ep.cpp is compiled",
        "OFI poll interval 3 us",
        "step 7: 33 lines, memory limit 512 GB",
        "Launched distributed communication on port `29144`",
        "core_worker.cc:382] Raylet started.",
        "initialized NVML: Unknown processes are left out",
        "[HAMI-core Msg(5:1:libvgpu.c:836)]: Initializing.....",
        "[HAMI-core Warn(5:1:utils.c:181)]: get default cuda from (null)",
        "LD_PRELOAD=/usr/local/vgpu/libvgpu.so",
        "found libcuda.so.1 at /usr/lib64, no stub library",
        "INFO utils.py:580] Loaded NCCL library from libnccl.so.2",
        "give the container --shm-size to avoid SIGBUS",
        "Started nvidia-fabricmanager.service, NVIDIA fabric manager service.",
        " GID: " + ":".join(["00"] * 10) + ":255:255:10:00:00:01",
        " GID: " + ":".join(["00"] * 16),  # normal over InfiniBand, which uses the LID
        "[2026-01-20 10:00:00,123] [WARNING] [runner.py:206:fetch_hostfile] Unable to find hostfile, will proceed with training"
        " with local resources only.",
        # TensorFlow continues without GPUs (dso_loader.cc)
        "W dso_loader.cc:64] Could not load dynamic library 'libcuda.so.1'; dlerror: libcuda.so.1: cannot open shared object",
        "W dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object",
        "I0906 topology.cpp:232] Topology discovery complete. Found 8 HCAs.",
        "NVRM: the bus is responding to commands",
    ],
)
def test_what_only_names_a_library_contradicts_nothing(said):
    """These are near misses of the lines above."""
    assert judged(HEALTHY)["verdict"] == "go"
    assert judged(HEALTHY + said + "\n")["verdict"] == "go"


def test_a_kernel_that_went_wrong_precedes_the_library_that_sees_it():
    library = "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(handle)`"
    kernel = "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert first(died(library) + died(kernel)) == "nccl.kernel-fault"


def test_what_ends_a_rank_precedes_what_nccl_only_warns_of():
    """NCCL continues without optional symbols; an index out of range ends the program."""
    warned = "gpu-node-0:1000:1000 [0] misc/cudawrap.cc:90 NCCL WARN Failed to find CUDA library in (null) (NCCL_CUDA_PATH=(null))\n"
    assertion = "Indexing.cu:1141: indexSelectLargeIndex: block: [545,0,0], thread: [96,0,0] Assertion `srcIndex < size` failed.\n"
    assert first(warned + assertion) == "nccl.kernel-fault"
    assert first(warned + died("ValueError: x")) == "nccl.cuda-symbols"


def test_a_call_of_a_benchmark_that_failed_is_quoted_where_no_rule_knows_it():
    assert first("node: Test CUDA failure common.cu:401 'invalid argument'\n") == "nccl.crash"


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        (
            "[gpu-node-0:1000] [ 0] /lib64/libc.so.6(+0x42520)[0x7ff0ef68c520]\n"
            "[gpu-node-0:1000] [ 1] /lib64/libfabric.so.1(+0x1d3f0)[0x1545f48eb3f0]\n",
            "in libfabric.so.1",
        ),
        (
            "[gpu-node-0:1000] [ 0] /lib64/libpthread.so.0(+0x1)[0x7f]\n"
            "[gpu-node-0:1000] [ 1] /opt/lib/libnccl-net.so(ncclIbTest+0x1d3f0)[0x1545f48eb3f0]\n",
            "in ncclIbTest of libnccl-net.so",
        ),
        (
            "==== backtrace (tid:   1000) ====\n 0 0x0000000000043090 killpg()  ???:0\n"
            " 1 0x000000000007587d ncclTopoCompute()  ???:0\n",
            "in ncclTopoCompute()",
        ),
    ],
)
def test_a_stack_shows_in_which_library_a_process_ended(frames, place):
    """Frames of the C library, in which every process ends, are skipped."""
    job = judged(SIGNAL + frames)
    assert (job["verdict"], place in job["causes"][0]["cause"]) == ("no-go", True), job["causes"]
    later = judged(SIGNAL + "step\n" * 60 + frames.partition("(tid")[2])  # from another process or another time
    assert place not in later["causes"][0]["cause"]


def test_a_stack_that_python_prints_names_file_and_line():
    said = 'Fatal Python error: Segmentation fault\n\nThread 0x7f (most recent call first):\n  File "/a/b/store.py", line 31 in get_all\n'
    assert "in b/store.py, line 31 in get_all" in judged(said)["sentence"]
    assert "store.py" not in judged(said.replace(", line 31 in", ", line 31, in"))["sentence"]  # a traceback's form


def test_a_missing_iommu_setting_is_reported_where_a_job_hangs_and_not_where_it_ends():
    warned = 'gpu-node-0:1000:1000 [0] init.cc:9 NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!\n'
    watchdog = (
        "[rank0]:[E1122 10:00:00.1 ProcessGroupNCCL.cpp:6] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600011 milliseconds before timing out.\n"
    )
    alone = sequential(Maker(hosts=("gpu-node-0",)).processes()).decode()
    assert "iommu=pt" in judged(warned + alone + watchdog)["causes"][0]["cause"]
    assert "it does show: the kernel command line lacks iommu=pt" in judged(warned)["sentence"]  # nccl.iommu
    assert all("iommu=pt" not in cause["cause"] for cause in judged(alone + watchdog)["causes"])
    assert judged(warned + HEALTHY)["verdict"] == "go"


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("rdma_context.cpp:1343] DMA BUF supported required for GPU RDMA without nvidia-peermem", "nccl.gdr-no-module"),
        ("rdma_transport.cpp:827] RdmaTransport: No available RNIC", "nccl.ib-no-device"),
        ("topology.cpp:152] No RDMA devices found, check your device installation", "nccl.ib-no-device"),
    ],
)
def test_what_mooncake_lacks_is_a_cause_and_no_end(said, fault):
    """Mooncake's transfer engine continues without RDMA, so the failure itself is not shown."""
    job = judged(f"E20260821 12:30:19.433391 {said}\n")
    assert (job["verdict"], job["causes"][0]["fault"]) == ("inconclusive", fault)


@pytest.mark.parametrize("before", ["", "RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: "])
def test_the_macro_of_nccls_examples_shows_a_result(before):
    """Many programs have copied NCCLCHECK of NVIDIA's guide: printf("Failed, NCCL error %s:%d '%s'")."""
    job = judged(f"{before}Failed, NCCL error ../runtime/ncclCommunicator.cpp:90 'invalid usage'\n")
    assert (job["verdict"], job["diagnosis"]) == ("no-go", "crash")
    assert "two ranks use the same GPU" in job["causes"][0]["cause"]
    assert judged(f"{before}Failed, NCCL error is what NCCLCHECK prints\n")["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    "said",
    ["[HAMI-core ERROR (pid:5 thread=1 utils.c:71)]: unlocking failed", "handler of a received signal SIGBUS is set"],
)
def test_an_error_that_ends_no_program_names_no_cause(said):
    """HAMi-core prints ERROR for recoverable conditions, too: the line is quoted without a fault."""
    assert [cause["fault"] for cause in judged(said + "\n")["causes"]] == ["nccl.unexplained"]
    assert judged(HEALTHY + said + "\n")["verdict"] != "no-go"
