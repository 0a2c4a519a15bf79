"""A remedy that changes profile, option or label is applied to its fault's scenario, which must then pass.

Obsolete and useless remedies leave the verdict unchanged.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from lab.rehearse import trials as rehearse
from seatrial.faults.advice import FAULTS
from seatrial.faults.variants import told_of
from tests.program import Program

ENFORCE = "pod-security.kubernetes.io/enforce"
MPI_IMAGE = "registry.example.com/training/pytorch-mpi:25.08"


def namespace(level: str) -> dict[str, Any]:
    labels = {ENFORCE: level}
    return {
        "world": {
            "objects": [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}}]
        }
    }


def topology(policy: str) -> dict[str, Any]:
    attributes = [
        {"name": "topologyManagerPolicy", "value": policy},
        {"name": "topologyManagerScope", "value": "container"},
    ]
    objects = [
        {
            "apiVersion": "topology.node.k8s.io/v1alpha2",
            "kind": "NodeResourceTopology",
            "metadata": {"name": f"gpu-node-{number}"},
            "attributes": attributes,
        }
        for number in range(2)
    ]
    return {"world": {"hardware": {"*": {"topology_policy": policy}}, "objects": objects}}


def profile(**pod: Any) -> dict[str, Any]:
    return {"run": {"profile": {"pod": pod}}}


def options(*words: str) -> dict[str, Any]:
    return {"run": {"options": list(words)}}


QUOTA = {
    "world": {
        "objects": [
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "team-quota", "namespace": "default"},
                "spec": {"hard": {"requests.nvidia.com/gpu": "16"}},
            }
        ]
    }
}
HELPS = [
    ("psa-restricted", namespace("privileged"), "enforce=privileged"),
    ("psa-warning-only", namespace("privileged"), "enforce=privileged"),
    ("out-of-memory", profile(memory=None, limits=None), "pod.limits.memory"),
    ("mpi-sshd-missing", options("--launcher", "indexed"), "--launcher indexed"),
    ("mpi-sshd-missing", options("--launcher", "mpijob", "--image", MPI_IMAGE), "--image"),
    ("mpi-mpirun-missing", options("--launcher", "indexed"), "--launcher indexed"),
    ("mpi-not-installed", options("--launcher", "indexed"), "--launcher indexed"),
    ("numa-inadmissible", topology("restricted"), "restricted admits"),
    ("runtimeclass-missing", profile(runtime_class=None), "remove runtime_class"),
    ("priorityclass-missing", profile(priority_class=None), "remove priority_class"),
    ("service-account-missing", profile(service_account=None), "remove service_account"),
    ("memlock-small", profile(capabilities=["IPC_LOCK"]), "IPC_LOCK"),
    ("shm-small", profile(memory="64Gi", limits={"memory": "64Gi"}), "pod.limits.memory"),
    ("quota-gpu", QUOTA, "raise the quota"),
    ("node-cordoned", {"world": {"node": {"gpu-node-1": {"spec": {"unschedulable": None}}}}}, "uncordon"),
]


@pytest.fixture
def tried(tmp_path, monkeypatch):
    """Rehearse a scenario with a change; return its verdict, its faults, and the scenario's own faults."""

    def run(scenario, change):
        file = tmp_path / "scenario.yaml"
        head = {"name": "tried", "title": "A remedy", "breaks": "nothing", "extends": scenario, "faults": []}
        file.write_text(yaml.safe_dump(head | {"outcome": "go"} | change))
        asked, of_scenario = rehearse.rehearsals(rehearse.parse([str(file), scenario]))
        monkeypatch.setattr(rehearse.subprocess, "Popen", Program)
        rehearse.rehearse(asked, tmp_path / "out", tmp_path, [])
        record = json.loads((tmp_path / "out" / "report.json").read_text())
        return record["verdict"], list(record["faults"]), list(of_scenario.expected)

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "change", "told"), HELPS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_remedy_that_is_carried_out_ends_its_fault(scenario, change, told, tried):
    verdict, found, (fault,) = tried(scenario, change)
    assert told in told_of(FAULTS[fault].remedy, trial=True)
    assert (verdict, found) == ("go", [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "change", "told"),
    [("psa-restricted", namespace("baseline"), "enforce=baseline")],
    ids=["IPC_LOCK under baseline"],
)
def test_what_does_not_help_is_not_reported(scenario, change, told, tried):
    verdict, found, expected = tried(scenario, change)
    assert (verdict, found) == ("no-go", expected)
    assert not [fault for fault in expected if told in told_of(FAULTS[fault].remedy, trial=True)]
