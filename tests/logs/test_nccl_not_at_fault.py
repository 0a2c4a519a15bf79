"""No fault is reported that the hardware, the software or another run in the file explains."""

from __future__ import annotations

import re

import pytest

from seatrial.logs.job_document import Expected
from tests.logs.logmaker import Maker, sequential, table_of
from tests.logs.symptom_rows import failing
from tests.table import table

EIGHT = Maker(gpus=4, rails=4, channels=4)
HEALTHY = sequential(EIGHT.processes()).decode()
TABLE = "\n".join(table_of(EIGHT)) + "\n"
NO_LIST = "\n".join(line for line in HEALTHY.splitlines() if "NET/IB : Using" not in line) + "\n"
STAGED = sequential(Maker(gdr=False, gpus=1, link="RoCE").processes()).decode()
HEAD = "gpu-node-0:1000:1000 [0] NCCL INFO "


def found(job) -> list[str]:
    return [fault["fault"] for fault in job["faults"]]


def listing(devices: str) -> str:
    """Return a healthy job whose processes list these devices."""
    return re.sub(r"Using \[0\].*? \[RO\]", f"Using {devices} [RO]", HEALTHY)


# -- GPUs without GPUDirect RDMA
@pytest.mark.parametrize(
    "line",
    [
        "|   0  NVIDIA GB10                    On  |   0000000F:01:00.0 Off |\n",
        "GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-1)\n",
        "GPU 0: GeForce GTX 1080 Ti (UUID: GPU-1)\n",
        "nvidia.com/gpu.product=NVIDIA-GeForce-RTX-5090\n",
        '      <gpu dev="0" sm="121" rank="0" gdr="0"/>\n',
        "UserWarning: Found GPU0 NVIDIA GB10 which is of cuda capability 12.1.\n",
    ],
)
def test_a_gpu_without_gpudirect_is_a_remark_and_no_fault(judge, line):
    job = judge(line + STAGED)
    assert (job["verdict"], found(job), job["gdr"]) == ("go", ["nccl.gdr-unsupported"], False)
    assert "without GPUDirect RDMA (its GPUs do not support it)" in job["sentence"]


@table(
    "line",
    [
        "",
        "GPU 0: NVIDIA RTX A6000 (UUID: GPU-1)\n",
        "GPU 0: NVIDIA RTX PRO 6000 Blackwell Server Edition (UUID: GPU-1)\n",
        "GPU 0: Quadro RTX 6000 (UUID: GPU-1)\n",
        "GPU 0: NVIDIA GB100 (UUID: GPU-1)\n",
        "GPU 0: NVIDIA GeForce GT 1030 (UUID: GPU-1)\nGPU 1: NVIDIA A100-PCIE-40GB (UUID: GPU-2)\n",
        "GPU 0: GeForce GT 1030 (UUID: GPU-1)\nGPU 1: A100-PCIE-40GB (UUID: GPU-2)\n",
        "nvidia.com/gpu.product=NVIDIA-GeForce-GT-1030\nnvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB\n",
        '      <gpu dev="0" sm="120" rank="0" gdr="0"/>\n',
        "GeForce Experience is not installed\n",
    ],
)
def test_missing_gpudirect_stays_a_fault_where_any_gpu_may_have_it(judge, line):
    job = judge(line + STAGED)
    assert (job["verdict"], found(job)) == ("no-go", ["nccl.gdr-off"])


def test_a_benchmark_that_lists_its_gpus_decides_over_what_other_lines_name(judge):
    one = Maker(gdr=False, gpus=1, link="RoCE")
    cards = "\n".join(table_of(one)).replace("NVIDIA H100", "NVIDIA GeForce RTX 5090") + "\n"
    assert found(judge(STAGED + cards)) == ["nccl.gdr-unsupported"]
    assert "nccl.gdr-off" in found(judge(STAGED + cards.replace("NVIDIA GeForce RTX 5090", "NVIDIA H100", 1)))
    assert "nccl.gdr-off" in found(judge("GPU 0: NVIDIA GB10\n" + STAGED + "\n".join(table_of(one)) + "\n"))


def test_a_profile_that_expects_gpudirect_of_such_gpus_gets_a_note_that_they_have_none(judge):
    job = judge("GPU 0: NVIDIA GB10\n" + STAGED, expect=Expected(gdr=True))
    assert (job["verdict"], found(job)) == ("no-go", ["nccl.gdr-off"])
    assert "GB10 (DGX Spark) does not have" in job["sentence"]


# -- link types
@table(
    "line, carried",
    [
        ("NET/IB: [1] rocep1s0f1:uverbs1:1/RoCE provider=Mlx5 speed=200000", "roce"),
        ("NET/IB: [0] mlx5_0:uverbs0:1/RoCE provider=Mlx5", "roce"),
        ("NET/IB: [1] rocep1s0f1:uverbs1:1/R", "roce"),
        ("NET/IB : GPU Direct RDMA Enabled for HCA 0 'roceP2p1s0f0'", "roce"),
        ("NET/IB : Made virtual device [0] name=rocep1s0f1 speed=200000 ndevs=1", "roce"),
        ("NCCL_IB_HCA set by environment to rocep1s0f0,roceP2p1s0f0.", "roce"),
        ("NET/IB : GPU Direct RDMA Enabled for HCA 0 'ibp25s0'", "ib"),
        ("NET/IB: [0] ibp25s0:uverbs0:1/IB provider=Mlx5 speed=400000", "ib"),
        # unrelated: a driver's naming, an excluded device, a bond of the rails
        ("NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'", "ib"),
        ("NCCL_IB_HCA set by environment to ^rocep1s0f0.", "ib"),
        ("NET/IB: [8] mlx5_bond_0:uverbs8:1/RoCE provider=Mlx5 speed=25000", "ib"),
    ],
)
def test_the_link_type_is_read_of_any_line_that_names_a_device(judge, line, carried):
    job = judge(HEAD + line + "\n" + NO_LIST)
    assert (job["verdict"], job["inter_node_transport"]) == ("go", carried)


@pytest.mark.parametrize(
    ("devices", "carried"),
    [
        ("[0]rocep1s0f0:1 [1]rocep1s0f1:1", "roce"),
        ("[0]mlx5_0:1/RoCE [1]mlx5_1:1/Ro", "roce"),
        ("[0]mlx5_bond_0:1/RoCE [1]mlx5_bond_1:1/RoCE [2]mlx5_bond_2:1/RoCE [3]mlx5_bond_3:1/RoCE", "roce"),
        ("[0]ibp12s0:1 [1]ibp18s0:1", "ib"),
    ],
)
def test_a_list_that_is_cut_still_shows_the_link_type(judge, devices, carried):
    assert judge(listing(devices))["inter_node_transport"] == carried


@pytest.mark.parametrize(
    ("devices", "advice"),
    [
        ("[0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [3]mlx5_bond_0:1/RoCE", "mlx5_bond_0:1 (RoCE) among 3 Infini"),
        ("[0]mlx5_1:1/RoCE [1]mlx5_10:1/IB [2]mlx5_2:1/IB [3]mlx5_3:1/IB", "NCCL_IB_HCA=^=mlx5_1 "),
        ("[0]mlx5_0:1/RoCE [1]ibp9s0:1/IB [2]mlx5_2:1/RoCE [3]mlx5_3:1/RoCE", "NCCL_IB_HCA=^ibp9s0 "),
    ],
)
def test_channels_over_both_link_types_are_a_fault(judge, devices, advice):
    job = judge(listing(devices))
    assert (job["verdict"], found(job)) == ("no-go", ["nccl.mixed-rails"])
    assert advice in job["sentence"]


def test_hosts_on_different_fabrics_are_a_fault(judge):
    own = {(host, pid): lines for (host, pid), lines in EIGHT.processes().items() if host == "gpu-node-1"}
    other = sequential(own).decode()
    job = judge(HEALTHY.replace(other, other.replace("/IB", "/RoCE").replace("NET/RoCE", "NET/IB")))
    assert found(job) == ["nccl.mixed-rails"]
    assert "gpu-node-0 over InfiniBand and gpu-node-1 over RoCE" in job["sentence"]


def test_a_storage_nic_that_carries_no_channel_is_not_mentioned(judge):
    devices = "[0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [3]mlx5_3:1/IB [4]mlx5_bond_0:1/RoCE"
    assert found(judge(listing(devices))) == []


def test_where_no_channel_shows_a_device_of_another_type_is_a_remark_and_a_cause(judge):
    listed = "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_bond_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"
    job = judge(f"{HEAD}{listed}\n{HEAD}Using network IB\n")
    assert "nccl.mixed-hcas" in found(job)
    assert "NCCL_IB_HCA=^mlx5_bond_0" in job["sentence"]
    assert job["causes"][0]["fault"] == "nccl.mixed-hcas"
    uniform = judge(f"{HEAD}{listed.replace('RoCE', 'IB')}\n{HEAD}Using network IB\n")
    assert "nccl.mixed-hcas" not in found(uniform)


# -- wording
@table(
    "said, fault, cause",
    [
        (
            "Connect to 192.168.102.1<38007> failed : Software caused connection abort",
            "nccl.connect-failed",
            "gave the",
        ),
        ("connect to 10.0.0.2<4> failed : Operation not permitted", "nccl.connect-failed", "a firewall of this host"),
        (
            "Connect to 10.0.0.2<4> failed : Cannot assign requested address",
            "nccl.connect-failed",
            "of no network of this",
        ),
        ("Connect to 10.0.0.2<4> failed : Invalid argument", "nccl.connect-failed", "Invalid argument: the system"),
        ("Call to connect failed : Software caused connection abort", "nccl.connect-failed", "gave the connection up"),
        (
            "connect to 10.0.0.2<4> returned Software caused connection abort, exceeded error retry count after 35 attempts",
            "nccl.connect-failed",
            "gave the connection up",
        ),
        (
            "connect to 10.0.0.2<4> returned Connection timed out, exceeded error retry count after 35 attempts",
            "nccl.connect-timeout",
            "packets are dropped",
        ),
        ("Connect to 10.0.0.2<4> failed : Connection timed out", "nccl.connect-timeout", "packets are dropped"),
        ("Connect to 10.0.0.2<4> failed : Connection refused", "nccl.connect-refused", "nothing listens"),
    ],
)
def test_a_connection_that_failed_is_only_called_timed_out_where_it_was(judge, said, fault, cause):
    job = judge(failing(f"socketStartConnect: {said}"))
    assert found(job)[0] == fault
    assert ("timed out" in job["sentence"]) is (fault == "nccl.connect-timeout")
    assert cause in job["sentence"]


def test_one_host_of_a_job_of_unknown_size_is_not_called_the_job(judge):
    job = judge(
        "node1:7:7 [0] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-x to 9637892 bytes\n"
    )
    assert "A job of unknown size (one host shows)" in job["sentence"]
    assert "8 ranks on 2 hosts" in judge(HEALTHY)["sentence"]


def test_a_task_of_the_launcher_without_a_host_may_be_on_another_one(judge):
    line = "[1,%d]<stdout>:%snode1:23:69 [2] NCCL INFO Connected NVLS tree\n"
    assert judge(line % (10, "") + "[1,0]<stdout>:hello\n")["nodes"] is None
    assert judge(line % (10, "") + "[1,10]<stdout>:hello\n")["nodes"] == 1


def test_a_plugin_that_lists_its_devices_is_only_selected(judge):
    log = f"{HEAD}NET/Plugin: Loaded net plugin FastSocket (v6)\n{HEAD}NET/FastSocket : Using [0]eth0:10.0.0.6<0>\n"
    job = judge(log)
    assert job["diagnosis"] == "selected-only"
    assert "FastSocket (TCP) was selected, but the log does not show" in job["sentence"]
    used = sequential(Maker(net="FastSocket", gdr=False).processes()).replace(b"NET/IB/", b"NET/FastSocket/")
    assert "data crosses hosts over FastSocket" in judge(used)["sentence"]


WATCHDOG = (
    "[rank2]:[E1 ProcessGroupNCCL.cpp:616] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, "
    "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n"
)


def test_the_sentence_names_what_the_diagnosis_says(judge):
    mixed = judge(sequential(Maker(socket_ranks=(1,)).processes()).decode() + WATCHDOG)
    assert (mixed["diagnosis"], mixed["hang"]) == ("mixed-transport", True)
    assert "ranks of one job use different transports" in mixed["sentence"]
    assert "A collective timed out" in mixed["sentence"]
    alone = judge(sequential(Maker().processes()).decode() + WATCHDOG)
    assert (alone["diagnosis"], alone["hang"]) == ("hang", True)
    assert "a collective timed out" in alone["sentence"]


def test_no_sentence_says_that_data_crosses_hosts_where_no_channel_shows(judge):
    """The last attempt completed, after one that Gloo gave up."""
    first = "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete\n"
    assert "Data crosses hosts over InfiniBand" in judge(first + HEALTHY)["sentence"]
    unseen = [line for line in HEALTHY.splitlines(keepends=True) if " via " not in line and "Connected" not in line]
    job = judge(first + "".join(unseen))
    assert (job["diagnosis"], job["inter_node_transport"]) == ("restarted", "ib")
    assert "crosses hosts" not in job["sentence"]


# -- several benchmarks in one file
BARE = "\n".join(line for line in table_of(EIGHT) if "Collective" not in line) + "\n"
ROWS = "\n".join(line for line in TABLE.splitlines() if not line.startswith("#")) + "\n"


def named(job) -> list[str | None]:
    return [table["collective"] for table in job["tables"]]


def started(*names: str) -> str:
    return "".join(f"+ mpirun -np 8 ./build/{name}_perf -b 1M -e 1G\n{BARE}" for name in names)


def test_each_benchmark_of_a_file_has_the_name_of_its_own_command(judge):
    assert named(judge(started("all_reduce", "alltoall", "sendrecv"))) == ["all_reduce", "alltoall", "sendrecv"]
    unlike = BARE.replace("sum      -1", "none      0")  # any of several, judging by its numbers
    assert named(judge(started("all_reduce") + unlike)) == ["all_reduce", None]
    assert named(judge(f"for test in broadcast_perf alltoall_perf; do\n{unlike}")) == [None]


@pytest.mark.parametrize("name", ["reduce_scatter", "alltoall", "broadcast"])
def test_a_benchmark_whose_head_was_cut_has_the_name_of_its_last_line(judge, name):
    end = (
        f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 90.105\n#\n# Collective test concluded: {name}_perf\n"
    )
    assert named(judge(ROWS + end)) == [name]
    assert named(judge(ROWS + end + started("all_gather"))) == [name, "all_gather"]
    assert named(judge("".join(end.splitlines(keepends=True)[1:]))) == [name]


# -- tables of one rank
def of_one_rank(text: str) -> str:
    """Return a single-rank table: no data crosses a bus."""
    rows = re.sub(r"(\d+ +\d+ +float +sum +-1 +\S+ +\S+ +)\S+( +0 +\S+ +\S+ +)\S+( +0)", r"\g<1>0.00\g<2>0.00\3", text)
    rows = re.sub(r"Avg bus bandwidth.*", "Avg bus bandwidth    : 0", rows)
    return re.sub(r"#  Rank  [1-9] .*\n", "", rows).replace("Pid   1000", "Pid   4242")


ONE = of_one_rank(TABLE)
ONE_ROWS = of_one_rank(ROWS)


@pytest.mark.parametrize("log", [HEALTHY + TABLE + ONE, ONE + HEALTHY + TABLE, HEALTHY + TABLE + ONE + TABLE])
def test_a_table_of_one_rank_leaves_the_others_their_worth(judge, log):
    assert (judge(log)["verdict"], found(judge(log))) == ("go", [])


def test_where_it_is_the_only_table_of_a_larger_job_its_numbers_are_odd(judge):
    assert found(judge(HEALTHY + of_one_rank(TABLE))) == ["nccl.odd-numbers"]


@pytest.mark.parametrize("rows", [ONE_ROWS * 2, ONE_ROWS * 16, "".join(line * 3 for line in ONE_ROWS.splitlines(True))])
def test_lone_ranks_are_reported_as_processes_that_ran_alone(judge, rows):
    job = judge(rows + "# Avg bus bandwidth    : 0\n")
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "separate-runs")
    assert "nccl.odd-numbers" not in found(job)
    (fault,) = (fault for fault in job["faults"] if fault["fault"] == "nccl.separate-runs")
    assert "MPI=1" in fault["remedy"]


def test_one_lone_rank_is_one_rank(judge):
    assert judge(ONE_ROWS)["diagnosis"] == "single-rank"


@pytest.mark.parametrize("rows", [ROWS * 2, ROWS])
def test_rows_that_a_bus_carried_are_not_of_lone_ranks(judge, rows):
    assert "nccl.separate-runs" not in found(judge(rows))
