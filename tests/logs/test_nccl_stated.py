"""Details of a setting, a version or a word in a line: the likeliest cause names them."""

from __future__ import annotations

import pytest

from tests.logs.test_nccl_causes import HEALTHY, INFO, STARTED, WARN, A, failing, judged

ERROR = (
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled system error (run with "
    "NCCL_DEBUG=INFO for details), NCCL version 2.19.3\n"
)
GRAPH = f"{A}{INFO}NCCL_GRAPH_FILE set by environment to /opt/graph.xml\n"
RING = "Error : ring 0 does not loop back to start (13 != 15)"
RXDM = "E0312 10:00:01.1 7 fastrak_gpumem_manager.cc:200] Number of GPUs detected %s is not equal to the actual number of GPUs reported by CUDA 8\n"


def causes(text: str) -> list[str]:
    return [cause["cause"] for cause in judged(text)["causes"]]


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("Net : No interface found in the same subnet as remote address 10.1.2.3<1778>", "NCCL_COMM_ID names"),
        ("NET/Socket : No usable listening interface found", "NCCL_COMM_ID names"),
        ("Failed to find reverse path from remNode 0/41000 nlinks 2 to node 0/61000", "that one has none back"),
        ("socketPollConnect poll() returned 1, no POLLOUT events", "drops packets"),
    ],
)
def test_what_a_warning_names_comes_first(said, cause):
    assert cause in causes(failing(said))[0]


@pytest.mark.parametrize("said", ["Bootstrap : no socket interface found", "Could not find NET with id 0"])
def test_what_only_is_of_the_same_kind_names_another_cause(said):
    assert not [each for each in causes(failing(said)) if "NCCL_COMM_ID names" in each or "none back" in each]


def test_a_graph_that_was_set_is_the_first_suspect_of_an_end_without_a_word():
    assert judged(GRAPH + STARTED + ERROR)["causes"][0]["fault"] == "nccl.graph-file"
    assert "nccl.graph-file" not in {cause["fault"] for cause in judged(STARTED + ERROR)["causes"]}


def test_a_graph_that_was_set_follows_what_nccl_says():
    named = [cause["fault"] for cause in judged(GRAPH + failing(RING))["causes"]]
    assert named[:2] == ["nccl.ranks-differ", "nccl.graph-file"]
    of_another_kind = failing("Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)")
    assert "nccl.graph-file" not in {cause["fault"] for cause in judged(GRAPH + of_another_kind)["causes"]}


def test_a_graph_that_was_set_is_no_fault_of_a_healthy_job():
    assert (judged(GRAPH + HEALTHY)["verdict"], judged(GRAPH + HEALTHY)["causes"]) == ("go", [])


@pytest.mark.parametrize(("version", "named"), [("2.19.3", True), ("2.20.5", False), ("2.18.6", False)])
def test_rings_of_a_version_that_works_them_out_wrong(version, named):
    said = causes(f"NCCL version {version}+cuda12.2\n{A}graph/rings.cc:38 NCCL WARN {RING}\n")
    assert ("NVIDIA/nccl#1020" in said[1]) is named


def test_who_mostly_ended_first_is_named_by_its_address():
    said = f"{A}{WARN}Net : Call to recv from 10.2.8.4<58355> failed : Broken pipe\n{A}{INFO}misc/socket.cc:535 -> 6\n"
    assert "the process at 10.2.8.4<58355> ended first" in causes(said)[0]


def test_gpus_that_the_data_path_manager_does_not_see():
    assert "fewer GPUs in the PCI tree" in causes(RXDM % "in the PCI tree 7")[0]
    assert judged(RXDM.replace("is not equal", "is equal") % "in the PCI tree 8")["causes"] == []


@pytest.mark.parametrize("shell", ["/etc/mpi/kubexec.sh: 11: ", "/bin/sh: 1: "])
def test_a_launcher_without_its_kubectl(shell):
    job = judged(f"{shell}/opt/kube/kubectl: not found\ncommand terminated with exit code 1\n")
    assert (job["diagnosis"], "kubectl" in job["causes"][0]["cause"]) == ("launch-failed", True)
    assert judged(HEALTHY + f"{shell}/opt/kube/kubectl: not found\n")["verdict"] != "no-go"


def test_none_is_named_where_a_process_of_the_log_itself_broke_or_a_card_only_flushed_its_queue():
    ended = f"{A}{WARN}Net : Connection closed by remote peer 10.2.8.4<33806>\n{A}{INFO}socket.c:548 -> 6\n"
    assert "ended first" not in causes(ended + "Caught signal 11 (Segmentation fault: address not mapped)\n")[0]
    flushed = "NET/IB: Got completion from peer 10.0.1.23<34696> with status=5 opcode=0 len=0 vendor err 249 (Recv)"
    assert "ended first" not in causes(f"{A}{WARN}{flushed}\n{A}{INFO}transport/net.cc:1 -> 6\n")[0]
