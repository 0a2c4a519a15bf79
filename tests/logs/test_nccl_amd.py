"""An RCCL log is explained with AMD's drivers and commands."""

from __future__ import annotations

import json

import pytest

from cli import explain
from seatrial.faults.catalogue import fault_catalogue
from seatrial.logs.diagnosis.amd import PHRASES, of_amd
from tests.logs.logmaker import Maker, sequential


def texts():
    """Return the catalogue's texts of each fault."""
    for fault in fault_catalogue().values():
        yield from (fault.meaning, fault.confirm, fault.remedy)
        yield from (text for each in fault.alternatives for text in (each.cause, each.confirm))


def explained(capsys, path, text):
    (path / "job.log").write_text(text)
    explain.main([str(path / "job.log"), "--format", "json"])
    return json.loads(capsys.readouterr().out)["jobs"][0]


@pytest.mark.parametrize("rccl", [True, False])
def test_what_to_do_without_gpudirect_is_said_of_the_gpus_that_there_are(rccl, tmp_path, capsys):
    """nvidia-peermem is not a remedy on an MI300X."""
    text = sequential(Maker(gpus=8, rails=8, channels=8, gdr=False).processes()).decode()
    if rccl:
        text = text.replace("NCCL version 2.", "RCCL version : 2.")
    job = explained(capsys, tmp_path, text)
    assert job["nccl_version"].startswith("RCCL") == rccl
    assert job["diagnosis"] == "rdma-without-gpudirect"
    told = json.dumps([job["sentence"], job["causes"], [fault["remedy"] for fault in job["faults"]]])
    assert ("nvidia" in told, "amdkfd" in told, "amd-smi topology" in told) == (not rccl, rccl, rccl)


def test_each_of_nvidias_words_is_one_of_the_catalogue():
    """A text that changed in the catalogue must be changed here."""
    known = " ".join(texts())
    assert [words for words in PHRASES if words not in known] == []


def test_no_command_of_nvidias_is_left():
    """No fault of an RCCL log mentions nvidia-smi, MIG or an NVLink fabric's state."""
    left = [text for text in texts() if "nvidia-smi" in of_amd(text)]
    features = ("Fabric", "MIG Mode", "Compute Mode", "-c DEFAULT", "recovery")
    assert [text for text in left if not any(feature in text for feature in features)] == []
    assert [text for text in texts() if "nvidia-peermem" in of_amd(text) or "nvidia_peermem" in of_amd(text)] == []


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("nvidia-smi topo -p2p r on the host", "amd-smi topology on the host"),
        (
            "nvidia-smi -q -d ECC,PERFORMANCE on that rank's node; dmesg | grep -i xid",
            "amd-smi metric --ecc --clock on that rank's node; dmesg | grep -i amdgpu",
        ),
        ("dmesg | grep -i -E 'oom|xid' on the nodes", "dmesg | grep -i -E 'oom|amdgpu' on the nodes"),
        ("nvidia-smi fails, too", "amd-smi fails, too"),
        (
            "lsmod | grep nvidia_peermem on every host",
            "ls -d /sys/kernel/mm/memory_peers/amdkfd /sys/kernel/memory_peers/amdkfd /sys/memory_peers/amdkfd on every host",
        ),
    ],
)
def test_commands_are_translated_with_their_options(ours, theirs):
    assert of_amd(ours) == theirs
