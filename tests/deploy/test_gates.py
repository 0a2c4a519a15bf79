"""The gate examples: parsed, applied if the kinds exist, and run on the embedded cluster; 10 is never a pass."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from checks.profiles.loader import load_profile
from tests.installed import installed
from tests.onsim import Sim
from tests.waiting import HANG_S, KUBECTL_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
GATES = ROOT / "deploy" / "gates"
SCRIPTS = sorted(GATES.glob("*.sh"))


def documents(name: str) -> list[dict[str, Any]]:
    """Return the objects of a file."""
    return list(yaml.safe_load_all((GATES / name).read_text()))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.name)
def test_scripts_are_plain_shell(script: Path) -> None:
    """Scripts can be parsed, and their header documents the exit codes."""
    assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0
    assert script.stat().st_mode & 0o111 or script.name == "node-by-node.sh"
    text = script.read_text()
    assert "10 inconclusive" in text or "node-by-node.sh" in text


def test_the_profile_is_sound() -> None:
    """seatrial can load the gate's profile, which tolerates the taint that excludes other pods."""
    keys = {toleration["key"] for toleration in load_profile(str(GATES / "profile.yaml")).pod.tolerations}
    assert {"seatrial/canary", "nvidia.com/gpu"} <= keys


def test_argo_cd_hooks_fail_the_sync() -> None:
    """Argo CD runs one hook before and one after; a single failure ends each; compare runs only after an accepted run."""
    before, after, opens = documents("argocd.yaml")
    annotations = opens["metadata"]["annotations"]
    assert annotations["argocd.argoproj.io/hook"] == "PostSync"
    assert annotations["argocd.argoproj.io/sync-wave"] == "1"
    ends = [job["spec"]["template"]["spec"]["containers"][0]["args"] for job in (before, opens)]
    assert ends == [
        ["mark", "/results/before", "--forget", "--node-condition"],  # after acceptance, before any change
        ["mark", "/results/after", "--node-condition", "--after=/results/before"],  # never by an earlier sync
    ]
    assert before["spec"]["template"]["spec"]["initContainers"][0]["args"][0] == "accept"
    hooks = [job["metadata"]["annotations"]["argocd.argoproj.io/hook"] for job in (before, after)]
    assert hooks == ["PreSync", "PostSync"]
    for job in (before, after):
        pod = job["spec"]["template"]["spec"]
        assert (job["spec"]["backoffLimit"], pod["restartPolicy"]) == (0, "Never")
        assert job["spec"]["activeDeadlineSeconds"] > 0
        assert pod["serviceAccountName"] == "seatrial"
        assert all(c["command"] == ["seatrial"] for c in [*pod["containers"], *pod.get("initContainers", [])])
    pod = after["spec"]["template"]["spec"]
    assert [c["args"][0] for c in (*pod["initContainers"], *pod["containers"])] == ["accept", "compare"]
    written = {
        a
        for job in (before, after)
        for part in ("containers", "initContainers")
        for c in job["spec"]["template"]["spec"].get(part, [])
        for a in c["args"]
        if a.startswith("--out=")
    }
    assert {f"--out={place}" for place in pod["containers"][0]["args"][1:]} == written


def test_flux_waits_for_the_gate() -> None:
    """Each gate is healthy only when its Job is complete; the operator waits for one, training for the other."""
    first, second, training = documents("flux.yaml")
    assert second["spec"]["dependsOn"] == [{"name": "gpu-operator"}]
    assert training["spec"]["dependsOn"] == [{"name": second["metadata"]["name"]}]
    assert first["spec"]["postBuild"] == second["spec"]["postBuild"]
    for gate, job in zip((first, second), documents("argocd.yaml")[:2], strict=True):
        assert gate["metadata"]["name"] == job["metadata"]["name"]
        (check,) = gate["spec"]["healthChecks"]
        assert (check["apiVersion"], check["kind"], check["name"]) == (
            job["apiVersion"],
            job["kind"],
            job["metadata"]["name"],
        )
        hours = job["spec"]["activeDeadlineSeconds"] / 3600
        assert gate["spec"]["timeout"] == f"{hours:.0f}h5m"  # longer than the Job may take
        assert gate["spec"]["force"] is True
        assert "${VERSION}" in (GATES / "flux.yaml").read_text()


SCENARIO = {
    "name": "three",
    "title": "Three nodes",
    "breaks": "nothing",
    "faults": [],
    "outcome": "go",
    "world": {"nodes": 3},
}


class Lab:
    """A served cluster, and a folder with the programs that the scripts call."""

    def __init__(self, folder: Path, seatrial: str) -> None:
        if shutil.which("kubectl") is None:
            pytest.skip("needs kubectl")
        (folder / "three.yaml").write_text(json.dumps(SCENARIO))
        self.sim = Sim(ROOT, folder, str(folder / "three.yaml"))
        self.folder, self.programs = folder, folder / "bin"
        self.programs.mkdir()
        self.seatrial = seatrial
        self.program("seatrial", f'exec {seatrial} "$@"')

    def program(self, name: str, script: str) -> None:
        """Put a program first on the scripts' PATH."""
        (self.programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.programs / name).chmod(0o755)

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command as the script's user."""
        env = {
            **os.environ,
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.sim.config),
            "PROFILE": str(GATES / "profile.yaml"),
            **more,
        }
        return subprocess.run(
            command, cwd=self.folder, env=env, text=True, capture_output=True, timeout=HANG_S, check=False
        )

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl, which must succeed."""
        done = self.run("kubectl", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, thing: dict[str, Any]) -> None:
        """Create an object."""
        (self.folder / "thing.yaml").write_text(json.dumps(thing))
        self.kubectl("apply", "-f", str(self.folder / "thing.yaml"))

    def node(self, name: str) -> dict[str, Any]:
        """Create a node with labels, taints, and perhaps a cordon."""
        live = json.loads(self.kubectl("get", "node", name, "-o", "json"))
        return {
            "labels": live["metadata"]["labels"],
            "cordoned": live["spec"].get("unschedulable", False),
            "taints": [t["key"] for t in live["spec"].get("taints", [])],
        }


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Serve three nodes, of which two are known to be good."""
    with installed() as command:
        made = Lab(tmp_path, shlex.join(command))
        made.kubectl("label", "node", "gpu-node-0", "gpu-node-1", "seatrial/known-good=true")
        yield made
        made.sim.close()


@pytest.mark.slow
def test_jobs_and_settings_are_admitted(lab: Lab) -> None:
    """The hooks' three Jobs, by server-side dry run, in a namespace that enforces PodSecurity 'restricted'."""
    lab.kubectl(
        "label",
        "namespace",
        "default",
        "pod-security.kubernetes.io/enforce=restricted",
        "pod-security.kubernetes.io/warn=restricted",
    )
    done = lab.run("kubectl", "apply", "--server-side", "--dry-run=server", "-f", str(GATES / "argocd.yaml"))
    assert done.returncode == 0, done.stderr
    assert "violate" not in done.stderr
    assert done.stdout.count("serverside-applied") == 3


TO_NEW = "kubectl -n gpu-operator set image daemonset/nvidia-driver-daemonset nvidia-driver-daemonset=nvcr.io/nvidia/driver:590.10"
LOSE_A_GPU = (
    """kubectl patch node gpu-node-2 --subresource=status -p '{"status":{"allocatable":{"nvidia.com/gpu":"7"}}}'"""
)
HELM = """echo "$@" >>"$PWD/helm.log"; case $1 in upgrade) %s ;; esac"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("upgrade", "meanwhile", "code", "said"),
    [
        (TO_NEW, "true", 0, "all nodes are upgraded"),
        (TO_NEW, LOSE_A_GPU, 1, "gpu-node-2 is worse: rolled back, still cordoned"),
        (TO_NEW, "kubectl cordon gpu-node-0 gpu-node-1", 10, "inconclusive (exit code 10): it stays cordoned"),
        ("never", "true", 10, "not accepted before the upgrade"),
        ("false", "true", 10, "helm upgrade did not work"),
    ],
    ids=["good", "a GPU is lost", "partners are gone", "no partners", "helm fails"],
)
def test_the_operator_is_upgraded_node_by_node(upgrade: str, meanwhile: str, code: int, said: str, lab: Lab) -> None:
    """Only helm is a stand-in: cordon, drain, pod replacement, trials and comparison are real."""
    for name in json.loads(lab.kubectl("-n", "gpu-operator", "get", "daemonset", "-o", "json"))["items"]:
        on_delete = '{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}'
        lab.kubectl("-n", "gpu-operator", "patch", "daemonset", name["metadata"]["name"], "-p", on_delete)
    lab.program("helm", HELM % upgrade)
    if upgrade == "never":
        lab.kubectl("cordon", "gpu-node-0", "gpu-node-1")
    lab.program("seatrial", f'case "$*" in */after) {meanwhile} >&2 ;; esac; exec {lab.seatrial} "$@"')
    done = lab.run("sh", str(GATES / "gpu-operator.sh"), "gpu-node-2", VERSION="v25.10.1")
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-2000:]
    assert said in done.stdout + done.stderr
    node = lab.node("gpu-node-2")
    assert "seatrial/canary" not in node["taints"]
    assert node["cordoned"] == (code == 1 or "stays cordoned" in said)
    assert ("seatrial/known-good" in node["labels"]) == (code == 0)
    helm = (lab.folder / "helm.log").read_text() if (lab.folder / "helm.log").exists() else ""
    assert ("rollback" in helm) == (code == 1)
    assert ("upgrade" in helm) == (upgrade != "never")  # nothing was changed
    assert ("stays upgraded for pods to come" in done.stderr) == (code != 0 and upgrade not in ("never", "false"))
    if code == 0:
        assert "nvcr.io/nvidia/driver:590.10" in done.stdout  # the cause is reported with the effect


@pytest.mark.slow
def test_a_validation_that_is_over_is_not_waited_for(lab: Lab) -> None:
    """The operator leaves a Completed pod on each node, which is never Ready: the script waits for the validator's own
    pod."""
    container = {"name": "c", "image": "i", "command": ["true"]}
    lab.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "nvidia-cuda-validator-x", "namespace": "gpu-operator"},
            "spec": {
                "nodeName": "gpu-node-2",
                "restartPolicy": "Never",
                "containers": [container],
                "tolerations": [{"operator": "Exists"}],
            },
        }
    )
    lab.kubectl(
        "-n",
        "gpu-operator",
        "wait",
        "pod/nvidia-cuda-validator-x",
        "--for=jsonpath={.status.phase}=Succeeded",
        KUBECTL_LIMIT,
    )
    script = f". {GATES}/node-by-node.sh; settled gpu-node-2 gpu-operator app=nvidia-operator-validator"
    done = lab.run("sh", "-c", script, "gate", "gpu-node-2", SETTLE=f"{HANG_S:.0f}s")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_driver_of_ones_own_is_upgraded_only_when_it_waits(lab: Lab) -> None:
    """A DaemonSet with automatic rollout is refused; with OnDelete the node follows, and gets the new driver."""
    command = ["sh", str(GATES / "driver-daemonset.sh"), "gpu-node-2"]
    refused = lab.run(*command, IMAGE="nvcr.io/nvidia/driver:590.10")
    assert refused.returncode == 4
    assert "not OnDelete" in refused.stderr
    lab.kubectl(
        "-n",
        "gpu-operator",
        "patch",
        "daemonset",
        "nvidia-driver-daemonset",
        "-p",
        '{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}',
    )
    done = lab.run(*command, IMAGE="nvcr.io/nvidia/driver:590.10")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    pods = json.loads(
        lab.kubectl("-n", "gpu-operator", "get", "pods", "-l", "app=nvidia-driver-daemonset", "-o", "json")
    )
    images = {pod["spec"]["nodeName"]: pod["spec"]["containers"][0]["image"] for pod in pods["items"]}
    assert images["gpu-node-2"] == "nvcr.io/nvidia/driver:590.10" != images["gpu-node-0"]


def stub(accept: int, compared: int = 0) -> str:
    """Create a seatrial stand-in with this exit code."""
    mark = f'[ "$1" = mark ] && [ "$3" = --forget ] && exit 0; [ "$1" = mark ] && exit {accept}'
    return f'[ "$1" = accept ] && exit {accept}; {mark}; echo "compared $2 $3"; exit {compared}'


@pytest.mark.parametrize(
    ("accept", "compared", "code"),
    [(0, 0, 0), (1, 0, 1), (10, 0, 10), (0, 1, 1), (0, 10, 10), (4, 0, 10), (3, 0, 10), (0, 4, 10), (137, 0, 10)],
)
def test_the_shell_gate_lets_nothing_through_but_a_pass(accept: int, compared: int, code: int, tmp_path: Path) -> None:
    """A crash or a kill of either command is inconclusive, and not a pass."""
    (tmp_path / "seatrial").write_text(f"#!/bin/sh\n{stub(accept, compared)}\n")
    (tmp_path / "seatrial").chmod(0o755)
    done = subprocess.run(
        ["sh", str(GATES / "gate.sh"), "before", "after", "--profile", "p"],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=False,
    )
    assert done.returncode == code
    assert ("gate: passed" in done.stdout) == (code == 0)


def workflow() -> dict[str, Any]:
    """Return the job of the workflow."""
    (job,) = documents("github-actions.yaml")[0]["jobs"].values()
    return dict(job)


def play(folder: Path, accept: int, compared: int, summary_file: str = "summary.md") -> tuple[int, str, list[str]]:
    """Run the workflow's steps like the runner (bash -e, outputs, conditions); return code, summary, helm's calls."""
    (folder / "seatrial").write_text(f'#!/bin/sh\necho "$1 $2" >>{folder}/asked\n{stub(accept, compared)}\n')
    (folder / "helm").write_text(f'#!/bin/sh\necho "$1" >>{folder}/helm.log\n')
    for program in ("seatrial", "helm"):
        (folder / program).chmod(0o755)
    outputs: dict[str, str] = {}
    failed, code = False, 0
    env = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PROFILE": "p",
        "VERSION": "v1",
        "GITHUB_STEP_SUMMARY": str(folder / summary_file),
        "GITHUB_OUTPUT": str(folder / "output"),
    }
    for step in workflow()["steps"]:
        if "run" not in step or not holds(step.get("if", ""), outputs, failed=failed):
            continue
        if step["name"] == "Accept before the upgrade":
            continue  # its failure ends the job before any change: GitHub's own rule
        more = {
            key: outputs.get(value.removeprefix("${{ steps.").removesuffix(" }}"), "")
            for key, value in step.get("env", {}).items()
        }
        (folder / "output").write_text("")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=folder,
            env={**env, **more},
            check=False,
        )
        for line in (folder / "output").read_text().splitlines():
            outputs[f"{step['id']}.outputs.{line.partition('=')[0]}"] = line.partition("=")[2]
        if step.get("id"):
            outputs[f"{step['id']}.outcome"] = "success" if done.returncode == 0 else "failure"
        failed, code = failed or done.returncode != 0, code or done.returncode
    summary = folder / "summary.md"
    return code, summary.read_text() if summary.exists() else "", (folder / "helm.log").read_text().split()


def holds(condition: str, outputs: dict[str, str], *, failed: bool) -> bool:
    """Evaluate a step's condition, in the few forms used here."""
    text = condition.removeprefix("${{").removesuffix("}}").strip()
    if not text:
        return not failed
    text = text.replace("!cancelled()", "True").replace("failure()", str(failed)).replace("always()", "True")
    for name in ("upgrade.outcome", "after.outputs.code", "compare.outputs.code"):
        text = text.replace(f"steps.{name}", repr(outputs.get(name, "")))
    return bool(eval(text.replace("&&", "and").replace("||", "or"), {"__builtins__": {}}))


@pytest.mark.parametrize(
    ("accept", "compared", "code", "helm"),
    [
        (0, 0, 0, ["upgrade"]),
        (1, 0, 1, ["upgrade", "rollback"]),
        (0, 1, 1, ["upgrade", "rollback"]),
        (10, 0, 10, ["upgrade"]),
        (0, 10, 10, ["upgrade"]),
        (4, 0, 10, ["upgrade"]),
        (0, 4, 10, ["upgrade"]),
    ],
)
def test_the_workflow_fails_on_all_but_a_pass_and_rolls_back_what_is_worse(
    accept: int, compared: int, code: int, helm: list[str], tmp_path: Path
) -> None:
    """The run steps are executed in order: the comparison is in the summary for any result; 10 fails and keeps the
    state.

    A passed trial that is worse than the one before releases no node, and the change is rolled back.
    """
    outcome = play(tmp_path, accept, compared)
    assert outcome == (code, "compared before after\n", helm)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert ("mark after" in asked) is (accept != 0 or compared == 0)


@pytest.mark.parametrize(("compared", "code", "helm"), [(0, 0, ["upgrade"]), (1, 1, ["upgrade", "rollback"])])
def test_a_summary_that_cannot_be_written_rolls_nothing_back(
    compared: int, code: int, helm: list[str], tmp_path: Path
) -> None:
    """The shell exits with 1 for an unwritable summary, which is also the code of `compare` for worse."""
    assert play(tmp_path, 0, compared, "no-such-folder/summary.md") == (code, "", helm)


def test_the_workflow_asks_for_little() -> None:
    """No expression is inserted into a script (injection), one run at a time, read-only permissions, a time limit."""
    job = workflow()
    assert not [step["name"] for step in job["steps"] if "${{" in step.get("run", "")]
    whole = documents("github-actions.yaml")[0]
    assert whole["permissions"] == {"contents": "read"}
    assert whole["concurrency"]["cancel-in-progress"] is False
    assert job["timeout-minutes"] > 0
