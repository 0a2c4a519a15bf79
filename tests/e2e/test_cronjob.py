"""The CronJob in the embedded cluster: its pod's process runs the real suite with exactly the shipped permissions."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.cluster.client.kube import Kube
from reports.metrics import exposition
from reports.schema import completed
from tests import program
from tests.waiting import HANG_S, KUBECTL_LIMIT, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Render = Callable[..., list[dict[str, Any]]]

ROOT = Path(__file__).resolve().parents[2]
PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "CronJob": "/apis/batch/v1/namespaces/{namespace}/cronjobs",
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs",
}
pytestmark = pytest.mark.slow


class Lab:
    """A served cluster with the manifests applied; the pod's program is this checkout in place of the image's."""

    def __init__(self, folder: Path, scenario: str, overlay: str, render: Render, namespace: str = "default") -> None:
        self.namespace = namespace
        objects = render(overlay, namespace)
        self.kubeconfig = folder / "kubeconfig"
        arguments = [scenario, "--write-kubeconfig", str(self.kubeconfig), "--json", "--until-stdin-closes"]
        self.process = program.Lab([sys.executable, "-m", "lab", *arguments])
        facts = json.loads(self.process.stdout.readline())
        if facts["network"] == "plain":
            pytest.skip("this machine grants no namespaces: pods do not reach the API server at its own address")
        self.kube = Kube.connect(kubeconfig=str(self.kubeconfig))
        restricted = {"metadata": {"labels": {"pod-security.kubernetes.io/warn": "restricted"}}}
        if namespace != "default":
            self.kube.create(
                "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            )
        self.kube.patch(f"/api/v1/namespaces/{namespace}", restricted)
        for thing in objects:
            if thing["kind"] == "CronJob":
                self.cron = thing
                continue
            self.kube.create(self.path(thing["kind"]), thing)

    def path(self, kind: str) -> str:
        """Return the path at which objects of a kind are created."""
        return PATHS[kind].format(namespace=self.namespace)

    def run(self, name: str, *, wait: bool = True) -> str:
        """Start a Job like the CronJob's controller; return its result."""
        spec = copy.deepcopy(self.cron["spec"]["jobTemplate"]["spec"])
        container = spec["template"]["spec"]["containers"][0]
        self.program(container)
        self.kube.create(
            self.path("Job"), {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
        )
        return self.ended(name) if wait else ""

    def program(self, container: dict[str, Any]) -> None:
        """Replace the image by this checkout's program and the image's user."""
        container["securityContext"]["runAsUser"] = 65532
        container["command"] = [sys.executable, "-P", "-m", "checks"]
        container.setdefault("env", []).append({"name": "PYTHONPATH", "value": str(ROOT)})

    def scrape(self, deployment: str) -> str:
        """Return a Deployment's response to Prometheus once it is available."""
        kubectl = ["kubectl", "--kubeconfig", str(self.kubeconfig), "--namespace", self.namespace]
        subprocess.run([*kubectl, "rollout", "status", f"deployment/{deployment}", KUBECTL_LIMIT], check=True)
        read = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9464/metrics').read().decode())"
        command = [*kubectl, "exec", f"deployment/{deployment}", "--", sys.executable, "-c", read]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def ended(self, name: str) -> str:
        """Wait until the Job is Complete or Failed."""

        def end() -> str:
            conditions = self.kube.get(f"{self.path('Job')}/{name}")["status"]["conditions"]
            return next(c["type"] for c in conditions if c["status"] == "True" and c["type"] in ("Complete", "Failed"))

        return str(until(end, f"the end of {name}", lambda: self.log(name)))

    def pod(self, name: str) -> dict[str, Any]:
        """Return the Job's pod."""
        items, _ = self.kube.list(
            f"/api/v1/namespaces/{self.namespace}/pods", labelSelector=f"batch.kubernetes.io/job-name={name}"
        )
        first: dict[str, Any] = items[0]
        return first

    def exit_code(self, name: str) -> int:
        """Return the runner's exit code."""
        return int(self.pod(name)["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"])

    def log(self, name: str) -> str:
        """Return the runner's output."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.pod(name)['metadata']['name']}/log"
        return self._log(path)

    def _log(self, path: str) -> str:
        done = subprocess.run(
            ["kubectl", "--kubeconfig", str(self.kubeconfig), "get", "--raw", path],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    def results(self) -> dict[str, Any]:
        """Return the results that the run left for other programs."""
        data = self.kube.get(f"/api/v1/namespaces/{self.namespace}/configmaps/seatrial-results")["data"]
        latest: dict[str, Any] = json.loads(data["latest.json"])
        return latest | {"metrics": data["metrics.prom"]}

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return our Events on a Job."""
        items, _ = self.kube.list(f"/api/v1/namespaces/{self.namespace}/events")
        return [
            e
            for e in items
            if e["involvedObject"]["name"] == name and (e.get("source") or {}).get("component") == "seatrial"
        ]

    def close(self) -> None:
        """End the cluster."""
        self.process.stdin.close()
        self.process.wait(timeout=HANG_S)
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path, rendered: Render) -> Iterator[Lab]:
    """Start a cluster with the manifests of an overlay; parametrized by (scenario, overlay[, namespace])."""
    made = Lab(tmp_path, *request.param[:2], rendered, *request.param[2:])
    yield made
    made.close()


@pytest.mark.parametrize("lab", [("healthy", "cluster")], indirect=True, ids=["healthy"])
def test_a_healthy_cluster_is_go_and_is_left_alone_for_a_week(lab: Lab) -> None:
    """Verdict, Event, results and metrics exist; in the next run nothing is due and only the API is read."""
    assert lab.run("one") == "Complete", lab.log("one")
    latest = lab.results()
    assert (latest["verdict"], latest["scope"]) == ("go", "full")
    assert 'seatrial_run_verdict{verdict="go"} 1.0' in latest["metrics"]
    assert "seatrial_last_success_timestamp_seconds" in latest["metrics"]
    (event,) = lab.events("one")
    assert (event["type"], event["reason"]) == ("Normal", "TrialGo")
    assert lab.run("two") == "Complete", lab.log("two")
    again = lab.results()
    assert again["scope"] == "partial"
    assert "no trial" in again["said"][0]
    success = next(line for line in latest["metrics"].splitlines() if line.startswith("seatrial_last_success"))
    assert success in again["metrics"]  # preflight alone is not a new success, and keeps the last one


@pytest.mark.parametrize("lab", [("healthy", "tenant")], indirect=True, ids=["healthy"])
def test_a_tenants_one_role_is_enough(lab: Lab) -> None:
    """With only the namespace's Role the scheduled run reaches its verdict, and so does the next one."""
    assert lab.run("one") == "Complete", lab.log("one")
    assert lab.results()["verdict"] == "go"
    assert lab.run("two") == "Complete", lab.log("two")
    again = lab.results()
    assert (again["verdict"], again["run_verdict"], again["scope"]) == ("go", "inconclusive", "partial")
    assert "shown by the last trial" in " ".join(again["said"])


@pytest.mark.parametrize(
    "lab",
    [("healthy", overlay, "gpu-acceptance") for overlay in ("tenant", "cluster")],
    indirect=True,
    ids=["tenant", "cluster"],
)
def test_another_namespace_is_as_good(lab: Lab) -> None:
    """Permissions, Lease, state, results and Events are all in the CronJob's namespace, and none in the default one."""
    assert lab.run("one") == "Complete", lab.log("one")
    assert lab.results()["verdict"] == "go"
    assert [event["reason"] for event in lab.events("one")] == ["TrialGo"]
    lease = lab.kube.get("/apis/coordination.k8s.io/v1/namespaces/gpu-acceptance/leases/seatrial-cron")
    assert lease["spec"].get("holderIdentity") is None
    for kind in ("ConfigMap", "Role", "ServiceAccount", "Job"):
        items, _ = lab.kube.list(PATHS[kind].format(namespace="default"))
        assert not [item for item in items if "seatrial" in item["metadata"]["name"]]


@pytest.mark.parametrize("lab", [("healthy", "tenant", "gpu-acceptance")], indirect=True, ids=["tenant"])
def test_prometheus_scrapes_what_the_last_run_left(lab: Lab, rendered: Render) -> None:
    """The component next to the overlay reads the ConfigMap, without a permission or a PVC; restricted PodSecurity."""
    made = {o["kind"]: o for o in rendered("tenant", lab.namespace, "serve")}
    lab.kube.patch(
        f"/api/v1/namespaces/{lab.namespace}",
        {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}},
    )
    lab.kube.create(
        f"/api/v1/namespaces/{lab.namespace}/configmaps",
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "seatrial-results"},
            "data": {
                "latest.json": "{}",
                "metrics.prom": exposition(
                    completed({"verdict": "go", "scope": "full", "started": "2026-01-02T00:00:00+00:00"})
                ),
            },
        },
    )
    lab.program(made["Deployment"]["spec"]["template"]["spec"]["containers"][0])
    lab.kube.create(f"/apis/apps/v1/namespaces/{lab.namespace}/deployments", made["Deployment"])
    lab.kube.create(f"/api/v1/namespaces/{lab.namespace}/services", made["Service"])
    scraped = lab.scrape("seatrial-serve")
    assert "seatrial_record_readable 1.0" in scraped
    assert 'seatrial_run_verdict{verdict="go"} 1.0' in scraped


@pytest.mark.parametrize("lab", [("low-bandwidth", "cluster")], indirect=True, ids=["slow"])
def test_what_fails_once_is_tried_again_before_it_counts(lab: Lab) -> None:
    """The first failed trial is not yet a verdict; the second is no-go, with Events that name the fault."""
    assert lab.run("one") == "Failed"
    assert lab.exit_code("one") == 10, lab.log("one")
    assert lab.results()["run_verdict"] == "no-go"
    assert lab.run("two") == "Failed"
    assert lab.exit_code("two") == 1, lab.log("two")
    latest = lab.results()
    assert latest["verdict"] == "no-go"
    assert "nccl.low-bandwidth" in latest["faults"]
    (event,) = lab.events("two")
    assert (event["type"], event["reason"]) == ("Warning", "TrialNoGo")
    assert "found: nccl.low-bandwidth (" in event["message"]


@pytest.mark.parametrize("lab", [("nccl-hang", "cluster")], indirect=True, ids=["hang"])
def test_one_at_a_time_and_nothing_is_left_after_a_kill(lab: Lab) -> None:
    """A second run exits at once and names the lease holder; after kill -9 of the first, the next one cleans up."""
    lab.run("one", wait=False)
    until(lambda: ours(lab), "its trial", lambda: lab.log("one"))
    assert lab.run("two") == "Failed"
    assert lab.exit_code("two") == 10
    assert "is held by" in lab.log("two")
    kill_runner(lab)
    lab.ended("one")
    assert ours(lab), "the kill came after the run had cleaned up: nothing is proven"
    lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/seatrial-cron"
    lab.kube.patch(lease, {"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}})  # a minute has passed
    before = ours(lab)
    lab.run("three", wait=False)
    until(lambda: not set(before) & set(ours(lab)), "clean-up", lambda: lab.log("three"))


def ours(lab: Lab) -> list[str]:
    """Return the trial jobs in the namespace."""
    items, _ = lab.kube.list(lab.path("Job"), labelSelector="app.kubernetes.io/managed-by=seatrial")
    return [item["metadata"]["name"] for item in items]


def kill_runner(lab: Lab) -> None:
    """Kill -9 the runner's process and its child, like an OOM kill of the whole pod."""
    pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and is_runner(p, lab.process.pid)]
    assert pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # the child ends with its parent
            os.kill(pid, signal.SIGKILL)


def is_runner(process: Path, sim: int) -> bool:
    """Say whether it is a runner of this cluster: a descendant of its process whose program is this suite's."""
    try:
        argv = (process / "cmdline").read_bytes().split(b"\0")
        if b"checks" not in argv or not {b"cron", b"accept"} & set(argv):
            return False
        return sim in ancestors(process)
    except OSError:
        return False


def ancestors(process: Path) -> set[int]:
    """Return the ids of all parents."""
    pids: set[int] = set()
    while (parent := int((process / "stat").read_text().rpartition(")")[2].split()[1])) > 1:
        pids.add(parent)
        process = Path("/proc") / str(parent)
    return pids
