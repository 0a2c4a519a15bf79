"""The permissions printed by `seatrial rbac` are sufficient and necessary, and no API request is repeated."""

import collections
import json
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

import lab.cluster
from lab.apiserver.paths import route
from lab.background import running
from tests.program import seatrial

TRAINING_ONLY = {("get", "", "pods", ""), ("delete", "", "pods", "")}  # requested for training, not used here
OURS = {"app.kubernetes.io/managed-by": "seatrial", "app.kubernetes.io/instance": "r1"}
SUSPENDED = {
    "spec": {
        "runPolicy": {"suspend": True},
        "pytorchReplicaSpecs": {
            "Worker": {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}}
        },
    }
}
LAUNCHING = {("get", "batch", "jobs", ""), ("get", "", "services", ""), ("get", "", "configmaps", "")}


def granted(*options):
    """Return the rules that rbac prints: (of the Role, of the ClusterRole)."""
    done = seatrial("rbac", "--profile", "h100-ib", *options)
    assert done.returncode == 0, done.stderr
    rules = {each["kind"]: each["rules"] for each in yaml.safe_load_all(done.stdout) if "rules" in each}
    return rules.get("Role", []), rules.get("ClusterRole", [])


def spread(rules):
    """Return every (verb, group, resource, subresource) of some rules."""
    return {
        (verb, group, *f"{resource}/".split("/")[:2])
        for rule in rules
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


@pytest.fixture
def requests(monkeypatch):
    """Return every request to the lab's API server, as (user, method, path and query, attributes)."""
    requests_made = []

    def listening(scenario, injection):
        def around(handler):
            async def answer(request):
                asked = route(request.method, request.path, request.rel_url.query).attributes()
                requests_made.append((request.headers.get("Authorization", ""), request.method, request.path_qs, asked))
                return await handler(request)

            return answer

        return around

    monkeypatch.setattr(lab.cluster, "_around", listening)
    return requests_made


def scenario(folder, rules, cluster_rules, **world):
    """Return a world whose user has exactly these permissions."""
    user = {"name": "seatrial", "rules": rules, "cluster_rules": cluster_rules}
    path = folder / "exactly.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "name": "exactly",
                "title": "t",
                "breaks": "nothing",
                "faults": [],
                "outcome": "go",
                "world": {"user": user, **world},
            }
        )
    )
    return str(path)


@pytest.mark.parametrize("mode", ["--tenant", pytest.param("--cluster", marks=pytest.mark.slow)])
def test_the_printed_rights_are_enough_and_each_is_used(mode, tmp_path, requests):
    """A run with exactly these permissions is go; each is used by a run or its clean-up, or requested for training."""
    role, cluster_role = granted(mode)
    assert bool(cluster_role) == (mode == "--cluster")
    assert not any("secrets" in resource for rule in [*role, *cluster_role] for resource in rule["resources"])
    with running(scenario(tmp_path, role, cluster_role)) as cluster:
        config = str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        options = ["--tenant"] if mode == "--tenant" else []
        done = seatrial(
            "accept", "--kubeconfig", config, "--profile", "h100-ib", *options, "--out", str(tmp_path / "out")
        )
        record = json.loads((tmp_path / "out" / "report.json").read_text())
        assert record["verdict"] == "go", done.stdout
        assert record["tenant"] == (mode == "--tenant")
        assert bool(record["not_seen"]) == record["tenant"]
        denied = [n for c in record["checks"] for n in c["notes"] if n.startswith("not granted")]
        assert not denied
        once(requests)
        assert seatrial("cleanup", "--kubeconfig", config).returncode == 0
    used = {(a.verb, a.group, a.resource, a.subresource) for _, _, _, a in requests if a.resource}
    unused = spread(role) | spread(cluster_role)
    unused -= used | TRAINING_ONLY | LAUNCHING
    assert not unused


def once(requests):
    """Assert that no list is requested twice, and /version, the namespace and the pod's dry run once each."""
    counted = collections.Counter()
    for _, method, target, asked in requests:
        query = parse_qs(urlsplit(target).query)
        polled = (
            "watch" in query
            or asked.resource in ("events", "jobs")
            or (asked.resource == "pods" and "labelSelector" in query)
        )
        if method == "GET" and not polled and asked.subresource != "log" and not asked.name.startswith("seatrial-"):
            counted[target] += 1
        elif asked.resource == "pods" and "dryRun" in query:
            counted["dry run of the pod"] += 1
    assert {target: n for target, n in counted.items() if n > 1 and "seatrial-" not in target} == {}


def test_without_a_right_the_run_says_which(tmp_path):
    """With one permission removed the run names it and stops before anything is created."""
    role, _ = granted("--tenant")
    fewer = [{**rule, "verbs": [v for v in rule["verbs"] if v != "watch"]} for rule in role]
    done = seatrial(
        "accept", "--cluster", f"sim:{scenario(tmp_path, fewer, [])}", "--tenant", "--out", str(tmp_path / "out")
    )
    record = json.loads((tmp_path / "out" / "report.json").read_text())
    assert record["verdict"] == "no-go", done.stdout
    (check,) = [c for c in record["checks"] if c["id"] == "rights.run"]
    assert [f["subject"] for f in check["findings"] if not f["ok"]] == [
        "watch jobs.batch in default",
        "watch pods in default",
    ]


def test_without_cluster_rights_the_run_is_inconclusive_and_names_the_ways_out(tmp_path):
    """A user without administrator rights learns of both alternatives: more permissions, or --tenant."""
    role, _ = granted("--tenant")
    done = seatrial("preflight", "--cluster", f"sim:{scenario(tmp_path, role, [])}")
    assert done.returncode == 10, done.stdout
    said = " ".join(done.stdout.split())
    assert "nodes are not seen" in said
    assert "seatrial rbac --cluster" in said
    assert "--tenant" in said


def test_rbac_prints_the_rights_of_a_selection_only():
    """A version check needs no permission; a launcher needs those of its kind; a typo gets one line."""
    assert "Role" not in seatrial("rbac", "--check", "api.version").stdout
    role, cluster_role = granted("--tenant", "--launcher", "mpijob", "--queue", "kueue:team")
    assert cluster_role == []
    assert ("create", "kubeflow.org", "mpijobs", "") in spread(role)
    assert ("get", "kueue.x-k8s.io", "localqueues", "") in spread(role)
    wrong = seatrial("rbac", "-k", "no-such-check")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (4, 1)


def test_drains_take_two_rights_more_and_are_skipped_without_them(tmp_path):
    """Only --training requests the two permissions; without them the skip states the reason."""
    role, cluster_role = granted("--cluster")
    _, more = granted("--cluster", "--training")
    asked = {("list", "policy", "poddisruptionbudgets", ""), ("list", "apps", "daemonsets", "")}
    assert spread(more) - spread(cluster_role) == asked
    for rules, outcome in ((cluster_role, "skipped"), (more, "passed")):
        with running(scenario(tmp_path, role, rules)) as cluster:
            config = str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
            arguments = ("--kubeconfig", config, "--profile", "h100-ib", "--out", str(tmp_path / "out"))
            done = seatrial("preflight", "--training", "--check", "drains.safe", *arguments)
        checks = json.loads((tmp_path / "out" / "report.json").read_text())["checks"]
        (drains_check,) = (check for check in checks if check["id"] == "drains.safe")
        assert drains_check["outcome"] == outcome, done.stdout
        assert outcome == "passed" or "seatrial rbac --training" in drains_check["reason"]


@pytest.mark.slow
def test_nodes_are_marked_and_opened_with_the_rights_that_are_documented(tmp_path):
    """Condition, label and taint need only the output of `seatrial rbac --label-nodes --node-condition`."""
    role, rules = granted("--label-nodes", "--node-condition")
    with running(scenario(tmp_path, role, rules)) as cluster:
        config = str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        arguments = ("--kubeconfig", config, "--profile", "h100-ib", "--out", str(tmp_path / "out"))
        assert seatrial("accept", *arguments).returncode == 0
        done = seatrial(
            *("mark", str(tmp_path / "out"), "--kubeconfig", config),
            *("--node-condition", "--label-nodes", "--untaint", "seatrial/canary"),
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(": passed") == 2


@pytest.mark.slow
def test_a_trial_is_attached_to_with_the_rights_of_a_run(tmp_path):
    """One Role is enough to detach the trial and to judge it later."""
    role, _ = granted("--tenant")
    with running(scenario(tmp_path, role, [])) as cluster:
        config = str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        arguments = ("--kubeconfig", config, "--profile", "h100-ib", "--tenant", "--out", str(tmp_path / "begun"))
        begun = seatrial("accept", "--detach", *arguments)
        assert begun.returncode == 10, begun.stdout
        job = json.loads((tmp_path / "begun" / "report.json").read_text())["trial"]["job"]
        done = seatrial("job", "attach", job, "--kubeconfig", config, "--out", str(tmp_path / "out"))
        assert done.returncode == 0, done.stdout + done.stderr
        record = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (record["verdict"], record["tenant"]) == ("go", True)


def test_cleanup_with_the_printed_role_is_done_where_kinds_of_other_operators_are_served(tmp_path):
    """A Role for Indexed Jobs does not include MPIJob, PyTorchJob, TrainJob or PodGroup: hidden kinds are not a
    failure."""
    role, _ = granted("--tenant")
    with running(scenario(tmp_path, role, [], operators=["mpi", "training", "trainer", "volcano"])) as cluster:
        config = str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        clean = seatrial("cleanup", "--kubeconfig", config)
        made = {"name": "seatrial-r1", "labels": OURS}
        cluster.do(lambda store: store.create("configmaps", {"metadata": dict(made)}, "default"))
        swept = seatrial("cleanup", "--run", "r1", "--kubeconfig", config)
        launched = cluster.do(
            lambda store: store.create("pytorchjobs.kubeflow.org", SUSPENDED | {"metadata": dict(made)}, "default")
        )
        owner = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "name": "seatrial-r1",
            "uid": launched["metadata"]["uid"],
        }
        owned = {"metadata": made | {"ownerReferences": [owner]}}
        cluster.do(lambda store: store.create("configmaps", owned, "default"))
        left = seatrial("cleanup", "--run", "r1", "--kubeconfig", config)
    assert (clean.returncode, clean.stdout) == (0, "nothing of seatrial in namespace default\n")
    assert clean.stderr.startswith("not looked for, since this account may not list them: ")
    assert len(clean.stderr.split(", ")) == 5 and "mpijobs.kubeflow.org" in clean.stderr
    assert (swept.returncode, swept.stdout) == (0, "deleted configmap/seatrial-r1\n")
    assert left.returncode == 1 and "could not delete pytorchjob/seatrial-r1: " in left.stderr
