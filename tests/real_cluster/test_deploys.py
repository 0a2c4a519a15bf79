"""The installable manifests on a real cluster: accepted without a warning, and run with exactly their permissions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.real_cluster import image
from tests.waiting import KUBECTL_LIMIT, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.real_cluster.trials import Bench

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm/seatrial"
OVERLAYS = sorted(each.name for each in (DEPLOY / "overlays").iterdir())
KINDS = "cronjobs,jobs,deployments,pods,services,configmaps,leases,serviceaccounts,roles,rolebindings,persistentvolumeclaims"
CLUSTER_KINDS = "clusterroles,clusterrolebindings,priorityclasses"
OURS = "app.kubernetes.io/name=seatrial"
# An unknown field or a warning from the server is an error.
STRICT = ("--warnings-as-errors", "apply", "--validate=strict")


@dataclass
class Ended:
    """The end of a Job: its condition, its containers' exit codes by name, and their output."""

    condition: str
    codes: dict[str, int]
    text: str


class Deployed:
    """Installs into a test's namespace as documented, and removes everything again."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._folders: list[Path] = []
        bench.cluster.kubectl("label", "namespace", bench.namespace, "pod-security.kubernetes.io/warn=restricted")

    def folder(self, *resources: Path, components: tuple[str, ...] = (), **more: Any) -> Path:
        """Create a kustomization around others, as in docs/cronjob.md."""
        folder = self.bench.folder / f"kustomization-{len(self._folders)}"
        folder.mkdir()
        self._folders.append(folder)
        name, _, tag = image.RUNNER.rpartition(":")
        around = {
            "namespace": self.bench.namespace,
            "resources": [os.path.relpath(each, folder) for each in resources],
            "components": [os.path.relpath(DEPLOY / each, folder) for each in components],
            "images": [{"name": "seatrial", "newName": name, "newTag": tag}],
            **more,
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(around), encoding="utf-8")
        return folder

    def overlay(self, name: str, *components: str) -> None:
        """Apply an overlay with the profile of the test."""
        settings = {"name": "seatrial-settings", "namespace": "default", "behavior": "merge", "files": ["profile.yaml"]}
        folder = self.folder(
            DEPLOY / "overlays" / name,
            components=components,
            transformers=[os.path.relpath(DEPLOY / "anywhere", self.bench.folder / "kustomization-0")],
            configMapGenerator=[settings],
            generatorOptions={"disableNameSuffixHash": True},
        )
        shutil.copyfile(self.bench.profile_file(), folder / "profile.yaml")
        self.bench.cluster.kubectl(*STRICT, "-k", str(folder))

    def first(self, name: str) -> Ended:
        """Start a run of the CronJob at once, as in docs/cronjob.md, and wait for its end."""
        self.bench.kubectl("create", "job", "--from=cronjob/seatrial", name)
        return self.ended(name)

    def ended(self, name: str) -> Ended:
        """Wait until a Job has ended."""
        kubectl = self.bench.kubectl

        def condition() -> str:
            job = json.loads(kubectl("get", "job", name, "-o", "json"))
            held = (each["type"] for each in job["status"]["conditions"] if each["status"] == "True")
            return next(each for each in held if each in ("Complete", "Failed"))

        chosen = ("-l", f"batch.kubernetes.io/job-name={name}")

        def said() -> str:
            return kubectl("logs", *chosen, "--all-containers", "--tail=-1", check=False)

        how = str(until(condition, f"the end of {name}", lambda: said() + kubectl("get", "pods", "-o", "yaml")))
        (pod,) = json.loads(kubectl("get", "pods", *chosen, "-o", "json"))["items"]
        states = [*pod["status"].get("initContainerStatuses", []), *pod["status"]["containerStatuses"]]
        codes = {
            each["name"]: each["state"]["terminated"]["exitCode"] for each in states if "terminated" in each["state"]
        }
        return Ended(how, codes, said())

    def results(self) -> dict[str, Any]:
        """Return the results that a run leaves for other programs."""
        data = json.loads(self.bench.kubectl("get", "configmap", "seatrial-results", "-o", "json"))["data"]
        latest: dict[str, Any] = json.loads(data["latest.json"])
        return latest | {"metrics": data["metrics.prom"]}

    def events(self, job: str) -> list[str]:
        """Return the reasons of our Events on a Job."""
        listed = json.loads(self.bench.kubectl("get", "events", "-o", "json"))["items"]
        ours = (each for each in listed if each.get("source", {}).get("component") == "seatrial")
        return [each["reason"] for each in ours if each["involvedObject"]["name"] == job]

    def remove(self) -> list[str]:
        """Remove the installation as in docs/cronjob.md; return our leftovers, in the namespace and outside it."""
        for folder in reversed(self._folders):
            self.bench.cluster.kubectl("delete", "-k", str(folder), "--ignore-not-found", KUBECTL_LIMIT)
        self.bench.kubectl("delete", "configmap,lease", "--selector", OURS)
        self._folders.clear()
        left = self.bench.kubectl("get", KINDS, "--selector", OURS, "-o", "name").split()
        beside = self.bench.cluster.kubectl("get", CLUSTER_KINDS, "--selector", OURS, "-o", "name").split()
        # Jobs were created manually from the CronJob: garbage collection deletes them with it, with a delay.
        left = [each for each in left if not each.startswith(("job.batch/", "pod/"))]
        return left + [each for each in beside if each.endswith((f":{self.bench.namespace}", "/seatrial"))]


@pytest.fixture
def deployed(bench: Bench, pods: None) -> Iterator[Deployed]:
    """Return the installer; cluster-wide objects are not deleted with the namespace."""
    made = Deployed(bench)
    yield made
    made.remove()


def went(deployed: Deployed, job: str, ended: Ended) -> dict[str, Any]:
    """Assert a run with a trial on two nodes, a reported result, no leftovers and no refusals; return its output."""
    assert (ended.condition, ended.codes) == ("Complete", {"seatrial": 0}), ended.text
    told = deployed.results()
    assert (told["verdict"], told["scope"]) == ("go", "full"), ended.text
    assert set(told["checks"].values()) <= {"passed", "skipped"}
    assert told["checks"]["nccl.transport"] == "passed"
    assert 'seatrial_run_verdict{verdict="go"} 1.0' in told["metrics"]
    assert deployed.events(job) == ["TrialGo"]
    assert deployed.bench.left() == []
    assert deployed.bench.refused() == []
    return told


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_is_taken_without_a_warning_and_leaves_nothing(deployed, overlay):
    deployed.overlay(overlay)
    assert deployed.bench.kubectl("get", "cronjob", "seatrial", "-o", "name")
    assert deployed.remove() == []


@pytest.mark.parametrize("overlay", ["tenant", "cluster", "openshift"])
def test_a_cronjob_does_a_trial_with_its_own_rights(deployed, overlay):
    deployed.overlay(overlay)
    told = went(deployed, "first", deployed.first("first"))
    assert told["nodes"].startswith("2 of 4" if overlay != "tenant" else "2"), told["nodes"]
    if overlay == "tenant":  # without visible nodes; with them, the others try the remaining nodes of this cluster
        again = deployed.first("again")
        assert again.codes == {"seatrial": 0}, again.text
        assert (deployed.results()["verdict"], deployed.results()["scope"]) == ("go", "partial")
        assert "no trial" in again.text
    assert deployed.bench.refused() == []
    assert deployed.remove() == []


@pytest.fixture
def volume(deployed):
    """Return the volume for a PVC without a class: the cluster's own default, or a folder of one of our nodes."""
    classes = json.loads(deployed.bench.cluster.kubectl("get", "storageclasses", "-o", "json"))["items"]
    default = "storageclass.kubernetes.io/is-default-class"
    if any(each["metadata"].get("annotations", {}).get(default) == "true" for each in classes):
        yield
        return
    place = deployed.bench.folder / "volume"
    place.mkdir()
    name, node = deployed.bench.namespace, deployed.bench.cluster.nodes[0]
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    kind = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(place)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
    deployed.bench.cluster.kubectl("apply", "-f", "-", given=yaml.safe_dump(kind))
    yield
    deployed.remove()  # the PVC first: its volume waits for it
    deployed.bench.cluster.kubectl("delete", "persistentvolume", name, "--wait=false")


def kept(deployed: Deployed) -> dict[str, str]:
    """Return the verdict of every run stored on the PVC, by its folder, and whether metrics are next to them."""
    read = "import glob, json; print(json.dumps({p.split('/')[2]: json.load(open(p))['verdict'] for p in glob.glob('/results/*/report.json')} | {p: 'there' for p in glob.glob('/results/*.prom')}))"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "reader"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "reader",
                    "image": image.TRIAL,
                    "command": ["python3", "-c", read],
                    "volumeMounts": [{"name": "results", "mountPath": "/results"}],
                }
            ],
            "volumes": [{"name": "results", "persistentVolumeClaim": {"claimName": "seatrial-results"}}],
        },
    }
    deployed.bench.kubectl("apply", "-f", "-", given=yaml.safe_dump(pod))
    deployed.bench.kubectl("wait", "pod/reader", "--for=jsonpath={.status.phase}=Succeeded", KUBECTL_LIMIT)
    found: dict[str, str] = json.loads(deployed.bench.kubectl("logs", "reader"))
    deployed.bench.kubectl("delete", "pod", "reader")
    return found


def test_reports_stay_on_a_claim(deployed, volume):
    deployed.overlay("results-pvc")
    told = went(deployed, "first", deployed.first("first"))
    assert kept(deployed) == {told["run_id"]: "go", "/results/metrics.prom": "there"}
    assert deployed.remove() == []


def test_prometheus_scrapes_what_a_run_leaves(deployed):
    """The Deployment exists before the first run; the kubelet mounts the result into its pod."""
    deployed.overlay("tenant", "serve")
    deployed.bench.kubectl("rollout", "status", "deployment/seatrial-serve", KUBECTL_LIMIT)
    place = f"/api/v1/namespaces/{deployed.bench.namespace}/services/seatrial-serve:metrics/proxy/metrics"
    assert "seatrial_run_verdict" not in deployed.bench.cluster.kubectl("get", "--raw", place)
    went(deployed, "first", deployed.first("first"))
    go = 'seatrial_run_verdict{verdict="go"} 1.0'
    until(lambda: go in deployed.bench.cluster.kubectl("get", "--raw", place, check=False), "the result is scraped")
    assert deployed.remove() == []


def helm(bench: Bench, *arguments: str) -> str:
    """Run helm in the namespace of the test; other output than the result is a warning, and fails."""
    program = shutil.which("helm")
    if program is None:
        pytest.skip("needs helm")
    argv = [program, *arguments, "--namespace", bench.namespace]
    environment = {**os.environ, "KUBECONFIG": str(bench.cluster.kubeconfig), "HOME": str(bench.folder)}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("tenant", [False, True], ids=["cluster", "tenant"])
def test_the_chart_is_installed_runs_and_goes(deployed, tenant):
    bench = deployed.bench
    values = bench.folder / "values.yaml"
    chosen = {"profile": bench.profile, "image": image.RUNNER, "tenant": tenant}
    values.write_text(yaml.safe_dump(chosen), encoding="utf-8")
    rendered = helm(bench, "template", "seatrial", str(CHART), "--values", str(values))
    bench.cluster.kubectl(*STRICT, "--dry-run=server", "-f", "-", given=rendered)
    helm(bench, "install", "seatrial", str(CHART), "--values", str(values))
    went(deployed, "first", deployed.first("first"))
    helm(bench, "upgrade", "seatrial", str(CHART), "--values", str(values), "--set", "every=24")
    settings = bench.kubectl("get", "configmap", "seatrial-settings", "-o", "jsonpath={.data.arguments}")
    assert "--every=24" in settings.splitlines()
    helm(bench, "uninstall", "seatrial")
    assert deployed.remove() == []


def conditions(cluster: Any) -> dict[str, str]:
    """Return the nodes' condition that a trial writes."""
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    return {
        node["metadata"]["name"]: each["status"]
        for node in nodes
        for each in node["status"]["conditions"]
        if each["type"] == "SeatrialFailed"
    }


@pytest.fixture
def forgotten(bench):
    """Remove the condition from nodes afterwards."""
    yield
    for node in conditions(bench.cluster):
        gone = {"status": {"conditions": [{"type": "SeatrialFailed", "$patch": "delete"}]}}
        bench.cluster.kubectl("patch", "node", node, "--subresource=status", "-p", json.dumps(gone))


def test_a_new_node_is_opened_with_the_overlays_own_rights(deployed, forgotten):
    """Kubelet and API server keep the written values: the condition stays, the taint is removed only after the pass."""
    bench, new = deployed.bench, min(deployed.bench.cluster.nodes)
    shipped = yaml.safe_load((DEPLOY / "overlays/new-nodes/profile.yaml").read_text())
    bench.profile.setdefault("pod", {})["tolerations"] = shipped["pod"]["tolerations"]
    deployed.overlay("new-nodes")
    bench.cluster.kubectl("taint", "node", new, "seatrial/new=true:NoSchedule")
    try:
        ended = deployed.first("first")
        assert (ended.condition, ended.codes) == ("Complete", {"seatrial": 0}), ended.text
        assert f"{new}: passed" in ended.text
        assert conditions(bench.cluster)[new] == "False"
        taints = bench.cluster.kubectl("get", "node", new, "-o", "jsonpath={.spec.taints[*].key}")
        assert "seatrial/new" not in taints.split()
    finally:
        bench.cluster.kubectl("taint", "node", new, "seatrial/new-", check=False)
    assert bench.left() == []
    assert bench.refused() == []
    assert deployed.remove() == []


def turn(job: dict[str, Any]) -> tuple[bool, int]:
    """Return the order in which Argo CD runs a hook (argo-cd.readthedocs.io/en/stable/user-guide/sync-waves)."""
    annotations = job["metadata"]["annotations"]
    return annotations["argocd.argoproj.io/hook"] == "PostSync", int(annotations.get("argocd.argoproj.io/sync-wave", 0))


def test_the_hooks_of_the_upgrade_gate_close_and_open_the_nodes(deployed, volume, forgotten):
    """Argo CD runs argocd.yaml in this order: PreSync, the change, PostSync, and the hook that releases the nodes."""
    bench = deployed.bench
    deployed.overlay("results-pvc")
    flags = ["--cron", "--cluster", "--node-condition", "--namespace", bench.namespace]
    rights = bench.command(["rbac", *flags, "--profile", str(bench.profile_file())])
    bench.cluster.kubectl(*STRICT, "-f", "-", given=rights.stdout)
    folder = deployed.folder(DEPLOY / "gates/argocd.yaml")
    shutil.copyfile(DEPLOY / "gates/argocd.yaml", folder / "argocd.yaml")  # kustomize reads no file outside its folder
    (folder / "kustomization.yaml").write_text(
        (folder / "kustomization.yaml").read_text().replace(os.path.relpath(DEPLOY / "gates", folder) + "/", "")
    )
    jobs = list(yaml.safe_load_all(bench.cluster.kubectl("kustomize", str(folder))))
    jobs.sort(key=turn)
    states = []
    for job in jobs:
        bench.cluster.kubectl(*STRICT, "-f", "-", given=yaml.safe_dump(job))
        ended = deployed.ended(job["metadata"]["name"])
        assert (ended.condition, set(ended.codes.values())) == ("Complete", {0}), ended.text
        states.append(sorted(conditions(bench.cluster).values()))
    assert states == [["Unknown", "Unknown"], ["Unknown", "Unknown"], ["False", "False"]]
    assert bench.left() == []
    assert bench.refused() == []
    assert deployed.remove() == []


def pod(name: str, **limits: str) -> str:
    """Return a pod with these requests, and the capability that RDMA needs."""
    may = {"capabilities": {"add": ["IPC_LOCK"]}}
    container = {"name": "train", "image": image.TRIAL, "resources": {"limits": limits}, "securityContext": may}
    spec = {"containers": [container], "restartPolicy": "Never"}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def said(bench: Bench, given: str) -> str:
    """Return the API server's answer to an object in a dry run."""
    argv = ["create", "--dry-run=server", "-f", "-", "-n", bench.namespace]
    try:
        return bench.cluster.kubectl("--warnings-as-errors", *argv, given=given)
    except subprocess.CalledProcessError as refused:
        return str(refused.stderr)


@pytest.fixture
def policy(bench, pods):
    """Apply the output of `seatrial policy` for the profile of the test."""
    made = []

    def applied(*options: str, profile: Path | None = None) -> None:
        where = ["--profile", str(profile or bench.profile_file()), "--namespace", bench.namespace]
        printed = bench.command(["policy", *where, *options])
        assert printed.returncode == 0, printed.stderr
        made.append(printed.stdout)
        bench.cluster.kubectl(*STRICT, "-f", "-", given=printed.stdout)

    yield applied
    for each in made:
        bench.cluster.kubectl("delete", "--ignore-not-found", "-f", "-", given=each)


def checked(bench: Bench) -> list[dict[str, Any]]:
    """Return the API server's type check results for our policies, once each is checked."""
    chosen = ("-l", "app.kubernetes.io/component=policy", "-o", "json")

    def looked() -> list[dict[str, Any]]:
        listed = json.loads(bench.cluster.kubectl("get", "validatingadmissionpolicies", *chosen))["items"]
        return [each["status"]["typeChecking"] for each in listed if each["status"]["observedGeneration"]]

    found: list[dict[str, Any]] = until(looked, "the policies are checked")
    return [warning for each in found for warning in each.get("expressionWarnings", [])]


def test_our_policy_admits_a_trial_and_refuses_a_pod_without_nics(bench, policy):
    policy()
    lacks = pod("lacks", **{"nvidia.com/gpu": "8"})
    words = "must request 1 rdma/hca_shared_devices_a"
    until(lambda: words in said(bench, lacks), "the policy is in force", lambda: said(bench, lacks))
    assert "ValidatingAdmissionPolicy" in said(bench, lacks)
    assert "created" in said(bench, pod("whole", **{"nvidia.com/gpu": "8", "rdma/hca_shared_devices_a": "1"}))
    assert "created" in said(bench, pod("small", **{"nvidia.com/gpu": "1"}))
    assert checked(bench) == []
    outcome = bench.run()
    assert (outcome.verdict, outcome.code) == ("go", 0), outcome.text
    assert bench.refused() == []


def test_our_policy_warns_where_it_is_asked_to(bench, policy):
    policy("--warn")
    lacks = pod("lacks", **{"nvidia.com/gpu": "8"})
    until(lambda: "must request 1 rdma/hca_shared_devices_a" in said(bench, lacks), "the policy is in force")
    bench.kubectl("create", "--dry-run=server", "-f", "-", given=lacks)


def test_our_policy_asks_jobs_for_their_queue(bench, policy):
    bench.profile["launch"] = {"queue": {"kind": "kueue", "name": "team"}}
    policy()
    container = {"name": "train", "image": image.TRIAL, "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    spec = {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
    job: dict[str, Any] = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}
    words = "a training job must name its queue (label kueue.x-k8s.io/queue-name)"
    until(lambda: words in said(bench, yaml.safe_dump(job)), "the policy is in force")
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    assert "created" in said(bench, yaml.safe_dump(job))
    assert checked(bench) == []
