"""Every request of every mode is compared with its printed permissions, as the lab's API server received it.

No request exceeds them (except for what Kubernetes grants every account), and none is printed that no mode uses.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import lab.cluster
from lab.apiserver.paths import route
from lab.background import running
from lab.scenario import load
from tests import program
from tests.program import seatrial
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

pytestmark = pytest.mark.slow
EVERYBODY = {
    ("create", "authorization.k8s.io", "selfsubjectaccessreviews"),
    ("create", "authentication.k8s.io", "selfsubjectreviews"),
}
"""Granted by system:basic-user; discovery and /version by system:discovery and system:public-info-viewer."""
ON_BEHALF = {
    # Permissions that training tools need and the trial does not (judgement/rights.py, TRAINING), and those that revert
    # a create whose response was lost (running/creation.py).
    ("get", "", "pods"),
    ("delete", "", "pods"),
    ("get", "batch", "jobs"),
    ("get", "", "services"),
    ("get", "", "configmaps"),
    *(
        (verb, group, plural)
        for group, plural in (
            ("kubeflow.org", "mpijobs"),
            ("kubeflow.org", "pytorchjobs"),
            ("trainer.kubeflow.org", "trainjobs"),
        )
        for verb in ("get",)
    ),
    # Submitters to a queue read it; a tenant's run does so only if it sees the ClusterQueue.
    ("get", "kueue.x-k8s.io", "localqueues"),
    ("get", "scheduling.volcano.sh", "podgroups"),
    ("get", "resource.k8s.io", "resourceclaimtemplates"),
}
OTHER_TOOLS = {
    *((verb, "batch", "jobs") for verb in ("create", "list", "watch", "delete")),
    *((verb, "", kind) for verb in ("create", "delete") for kind in ("services", "configmaps")),
}
"""If an operator launches the trial, training tools still submit Jobs with Services and ConfigMaps."""
BY_THE_QUEUE = {("patch", "batch", "jobs"), ("get", "kueue.x-k8s.io", "topologies")}
"""Kueue resumes admitted jobs; without a queue fault, a run changes nothing itself. A topology is read if a flavor
names one."""
Request = tuple[str, str, str, str, str]  # verb, group, resource[/subresource], namespace, name


Requests = list[tuple[Request, str]]


def listening(hear: Callable[[tuple[Request, str]], object]) -> Callable[[Any, Any], Callable[[Any], Any]]:
    """Return a wrapper of the API server's handler that reports each request for a resource with its target."""

    def around(handler: Any) -> Any:
        async def answer(request: Any) -> Any:
            asked = route(request.method, request.path, request.rel_url.query).attributes()
            if asked.resource:
                resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
                hear(((asked.verb, asked.group, resource, asked.namespace, asked.name), request.path_qs))
            return await handler(request)

        return answer

    return lambda _scenario, _injected: around


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """Return every external request to the API server of a cluster in this process."""
    requests: Requests = []
    monkeypatch.setattr(lab.cluster, "_around", listening(requests.append))
    return requests


def noting(arguments: list[str]) -> int:
    """Serve a cluster that writes the requests to a file in the folder given first."""
    with Path(arguments[0], "requests").open("w", encoding="utf-8", buffering=1) as file:
        vars(lab.cluster)["_around"] = listening(lambda each: file.write(json.dumps(each) + "\n"))
        return program.lab(arguments[1:])


@contextlib.contextmanager
def served(
    folder: Path, scenario: str, rules: dict[str, list[dict[str, Any]]], **more: Any
) -> Iterator[tuple[str, Requests]]:
    """Serve a shipped scenario to a user with these permissions; yield the kubeconfig, and finally the requests."""
    user = {"name": "seatrial", "rules": rules.get("Role", []), "cluster_rules": rules.get("ClusterRole", [])}
    about = {"name": "audited", "title": "t", "breaks": "b", "faults": [], "outcome": "go"}
    file, config, requests = folder / "audited.yaml", str(folder / "kubeconfig"), Requests()
    file.write_text(yaml.safe_dump({**about, "extends": scenario, "world": {"user": user, **more}}))
    arguments = [str(folder), str(file), "--write-kubeconfig", config, "--json", "--until-stdin-closes"]
    cluster = program.Lab(["python", "-m", "lab", *arguments], main=noting)
    with cluster.stdin, cluster.stdout, cluster.stderr:
        assert cluster.stdout.readline(), cluster.stderr.read()
        yield config, requests
    cluster.wait(HANG_S)
    for line in (folder / "requests").read_text(encoding="utf-8").splitlines():
        asked, target = json.loads(line)
        requests.append((tuple(asked), target))


def printed(*options: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rules that rbac prints, by the kind of role."""
    done = seatrial("rbac", *options)
    assert done.returncode == 0, done.stderr
    return {each["kind"]: each["rules"] for each in yaml.safe_load_all(done.stdout) if "rules" in each}


def granting(rules: Iterable[dict[str, Any]], asked: Request) -> set[tuple[str, str, str]]:
    """Return the (verb, group, resource) of these rules that grants a request."""
    verb, group, resource, _, name = asked
    return {
        (verb, group, resource)
        for rule in rules
        if verb in rule["verbs"]
        and group in rule["apiGroups"]
        and resource in rule["resources"]
        and (not rule.get("resourceNames") or name in rule["resourceNames"])
    }


def audit(
    requests: Requests, rules: dict[str, list[dict[str, Any]]], namespace: str = "default"
) -> tuple[list[str], set[tuple[str, str, str]]]:
    """Return the requests that no printed rule grants, and the printed but unused rules."""
    beyond: list[str] = []
    used: set[tuple[str, str, str]] = set()
    for asked, target in requests:
        if asked[:3] in EVERYBODY:
            continue
        grants = granting(rules.get("ClusterRole", []), asked)
        grants |= granting(rules.get("Role", []), asked) if asked[3] == namespace else set()
        used |= grants
        if not grants:
            beyond.append(f"{asked[0]} {asked[2]}.{asked[1]} in {asked[3]!r}: {target}")
    given = {
        (v, g, r)
        for part in rules.values()
        for rule in part
        for v in rule["verbs"]
        for g in rule["apiGroups"]
        for r in rule["resources"]
    }
    return beyond, given - used - ON_BEHALF


def world(scenario: str, rules: dict[str, list[dict[str, Any]]]) -> lab.scenario.Scenario:
    """Return a shipped scenario whose user has exactly these permissions."""
    loaded = load(scenario)
    user = {"name": "seatrial", "rules": rules.get("Role", []), "cluster_rules": rules.get("ClusterRole", [])}
    return replace(loaded, world={**loaded.world, "user": user})


def profile_of(scenario: str, folder: Path) -> str:
    """Return the profile with which a scenario is rehearsed, as a name or a file."""
    loaded = load(scenario)
    asked = loaded.run.get("profile", loaded.platform)
    if isinstance(asked, str):
        return asked
    file = folder / "profile.yaml"
    file.write_text(yaml.safe_dump(dict(asked)))
    return str(file)


def modes() -> Iterator[Any]:
    """Yield each mode of a trial, with its scenario."""
    for scope in ("--tenant", "--cluster"):
        for scenario, options in (
            ("healthy", ()),
            ("healthy-mpijob", ("--launcher", "mpijob")),
            ("healthy-pytorchjob", ("--launcher", "pytorchjob")),
            ("healthy-trainjob", ("--launcher", "trainjob")),
            ("healthy-kueue", ("--queue", "kueue:trial")),
            ("healthy-volcano", ("--queue", "volcano")),
            ("healthy-storage", ()),
            ("healthy-roce", ()),
            ("healthy-dra-only", ()),
            ("healthy-gke-tcpxo", ()),
        ):
            yield pytest.param(scenario, scope, options, id=f"{scenario}{scope}")
    yield pytest.param("healthy-observed", "--cluster", (), id="healthy-observed--cluster")


@pytest.mark.parametrize(("scenario", "scope", "options"), list(modes()))
def test_no_request_goes_beyond_the_printed_rights_and_none_is_idle(
    scenario: str, scope: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    """Preflight, trial, clean-up: with exactly the printed permissions the run is go, and sends no other request."""
    profile = profile_of(scenario, tmp_path)
    rules = printed(scope, "--profile", profile, *options)
    assert ("ClusterRole" in rules) == (scope == "--cluster")
    with served(tmp_path, scenario, rules) as (config, requests):
        tenant = ["--tenant"] if scope == "--tenant" else []
        done = seatrial(
            "accept", "--kubeconfig", config, "--profile", profile, *tenant, *options, "--out", str(tmp_path / "out")
        )
        assert done.returncode in (0, 10) if tenant else done.returncode == 0, done.stdout
        before = (tmp_path / "requests").stat().st_size
        assert seatrial("cleanup", "--kubeconfig", config).returncode == 0
        assert (tmp_path / "requests").stat().st_size > before
    beyond, idle = audit(requests, rules)
    assert beyond == []
    # The served kinds of the stack decide which objects are read; a refused run lists events.
    allowed = (
        {("list", "", "events")}
        | (OTHER_TOOLS if "--launcher" in options else set())
        | (BY_THE_QUEUE if "kueue:trial" in options else set())
    )
    assert idle - allowed == set()


@pytest.mark.parametrize(
    ("scenario", "scope"),
    [
        (name, scope)
        for scope in ("--tenant", "--cluster")
        for name in ("unschedulable", "image-missing", "out-of-memory", "quota-gpu", "pod-deleted", "node-lost")
    ],
)
def test_a_failing_run_asks_for_nothing_more(scenario: str, scope: str, tmp_path: Path) -> None:
    """The explanation of a failure needs no more permissions: a tenant's run lists no nodes."""
    profile = str(tmp_path / "short.yaml")
    deadlines = {"start_s": HANG_S if scenario == "node-lost" else 10.0, "probe_s": HANG_S, "job_s": 2 * HANG_S}
    Path(profile).write_text(yaml.safe_dump({"extends": profile_of(scenario, tmp_path), "deadlines": deadlines}))
    rules = printed(scope, "--profile", profile)
    with served(tmp_path, scenario, rules) as (config, requests):
        done = seatrial(
            "accept", "--kubeconfig", config, "--profile", profile, *(["--tenant"] if scope == "--tenant" else [])
        )
        assert done.returncode in (0, 1, 10), done.stdout + done.stderr
        assert (scenario, scope) != ("node-lost", "--cluster") or "node.lost" in done.stdout, done.stdout
        assert seatrial("cleanup", "--all", "--kubeconfig", config).returncode == 0
    assert audit(requests, rules)[0] == []


@pytest.mark.parametrize("scope", ["--tenant", "--cluster"])
def test_every_command_keeps_to_the_printed_rights_where_all_operators_are_installed(
    scope: str, tmp_path: Path
) -> None:
    """For other kinds of jobs, the permission is checked before the request."""
    rules = printed(scope, "--profile", "h100-ib")
    operators = ["mpi", "training", "trainer", "volcano", "kueue"]
    tenant = ["--tenant"] if scope == "--tenant" else []
    ended: list[tuple[int, str]] = []
    with served(tmp_path, "healthy", rules, operators=operators) as (config, requests):

        def run(*command: str) -> str:
            done = seatrial(*command, "--kubeconfig", config)
            ended.append((done.returncode, done.stdout + done.stderr))
            return done.stdout

        def detach() -> str:
            run("accept", "--detach", "--profile", "h100-ib", *tenant, "--out", str(tmp_path / "begun"))
            job: str = json.loads((tmp_path / "begun" / "report.json").read_text())["trial"]["job"]
            return job

        job = detach()
        for command in ("status", "logs", "attach"):
            run("job", command, job)
        for command in ("status", "logs", "cancel", "attach"):  # the job no longer exists
            run("job", command, job)
        run("job", "cancel", detach())
        run("cleanup")
        run("cleanup", "--all")
        run("preflight", "--profile", "h100-ib", *tenant)
    assert [code for code, _ in ended] == [10, 0, 0, 0, 4, 4, 4, 4, 10, 0, 0, 0, 10 if tenant else 0], ended
    assert audit(requests, rules)[0] == []


@pytest.mark.parametrize("scope", ["--tenant", "--cluster"])
@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        ("healthy", ()),
        ("healthy-mpijob", ("--launcher", "mpijob")),
        ("healthy-kueue", ("--queue", "kueue:trial")),
        ("healthy-volcano", ("--queue", "volcano")),
    ],
)
def test_a_users_own_job_keeps_to_the_printed_rights(
    scenario: str, options: tuple[str, ...], scope: str, tmp_path: Path
) -> None:
    """Created, queried, canceled; the guard requests nodes only if permitted."""
    image = "registry.example.com/training/pytorch-mpi:25.08"
    asked = ("--image", image, "--gpus", "8", "--nodes", "2", "--cpu", "1", "--memory", "1Gi", *options)
    rules = printed(scope, "--profile", "h100-ib", *options)
    ended: list[tuple[int, str]] = []
    with served(tmp_path, scenario, rules) as (config, requests):

        def run(*command: str) -> None:
            done = seatrial("job", command[0], "--kubeconfig", config, *command[1:])
            ended.append((done.returncode, done.stdout + done.stderr))

        run("run", *asked, "--name", "good", "--", "true")
        run("run", *asked, "--name", "bad", "--", "false")
        run("run", *asked, "--name", "long", "--detach", "--", "sleep", "600")
        run("explain", "bad", "--no-exec")
        run("explain", "long", "--no-exec")
        for action in ("status", "logs", "cancel", "status", "explain"):
            run(action, "long")
        assert seatrial("cleanup", "--kubeconfig", config).returncode == 0
    assert [code for code, _ in ended][:5] == [0, 11, 0, 1, 10], ended
    assert ended[5][0] == 0 and [code for code, _ in ended[7:]] == [0, 4, 4], ended
    assert audit(requests, rules)[0] == []


def test_a_proposed_profile_says_what_the_printed_rights_hide(tmp_path: Path) -> None:
    """A hidden part is not treated as missing."""
    with served(tmp_path, "healthy-roce", printed("--cluster", "--profile", "h100-ib")) as (config, _):
        done = seatrial("profile", "detect", "--kubeconfig", config)
    assert done.returncode == 0, done.stderr
    hidden = [line for line in done.stdout.splitlines() if " could not be read: " in line]
    assert [line.split(" could ")[0] for line in hidden] == [
        "# - secondary networks",
        "# - deviceclasses",
        "# - resourceslices",
    ]
    with running("healthy-roce") as cluster:
        admin = seatrial("profile", "detect", "--kubeconfig", str(cluster.write_kubeconfig(tmp_path / "admin")))
    assert admin.returncode == 0 and " could not be read: " not in admin.stdout


def test_leftovers_are_removed_within_the_printed_rights(tmp_path: Path, requests: Requests) -> None:
    """A killed run's leftovers are deleted with the same Role, and the deletion is verified."""
    rules = printed("--tenant", "--profile", "h100-ib")
    with running(world("healthy", rules)) as cluster:
        config = str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        shown = seatrial("accept", "--profile", "h100-ib", "--kubeconfig", config, "--print-manifests", "--with-files")
        objects = [
            each
            for each in yaml.safe_load_all(shown.stdout)
            if each and each["kind"] in ("Service", "ConfigMap", "Job")
        ]
        assert {each["kind"] for each in objects} == {"Service", "ConfigMap", "Job"}
        for each in objects:
            key = {"Service": "services", "ConfigMap": "configmaps", "Job": "jobs.batch"}[each["kind"]]
            body = {
                "metadata": each["metadata"],
                "spec": {**each.get("spec", {}), **({"suspend": True} if each["kind"] == "Job" else {})},
            }
            cluster.do(lambda store, key=key, body=body: store.create(key, body, "default"))
        done = seatrial("cleanup", "--all", "--kubeconfig", config)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("deleted ") >= len(objects), done.stdout
    assert audit(requests, rules)[0] == []
    assert {asked[2] for asked, _ in requests if asked[0] == "delete"} >= {"jobs", "services", "configmaps"}


def booted(node: dict[str, Any], boot: str) -> None:
    """Return a node after a reboot, for which an earlier pass does not count."""
    node["status"]["nodeInfo"]["bootID"] = boot


@pytest.mark.parametrize(
    "extra",
    [(), ("--label-nodes", "--node-condition"), ("--tenant",), ("--new-nodes",), ("--new-nodes=seatrial/new",)],
    ids=["plain", "marking", "tenant", "condition-of-new-nodes", "new-nodes"],
)
def test_scheduled_runs_ask_for_what_is_printed_for_them(
    extra: tuple[str, ...], tmp_path: Path, requests: Requests
) -> None:
    """`cron` requests Lease, state, results, events, node marks, and the removal of a new node's label."""
    scope = () if "--tenant" in extra else ("--cluster",)
    rules = printed("--cron", "--profile", "h100-ib", *scope, *extra)
    scenario = world("healthy", rules)
    labelled = {"*": {"metadata": {"labels": {"seatrial/new": "true"}}}}
    with running(replace(scenario, world={**scenario.world, "node_changes": labelled})) as cluster:
        config = str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        for boot in ("first", "second"):
            for node in ("gpu-node-0", "gpu-node-1"):
                change = partial(booted, boot=boot)
                cluster.do(lambda store, at=node, change=change: store.mutate("nodes", None, at, change))
            done = seatrial(
                "cron", "--kubeconfig", config, "--profile", "h100-ib", "--out", str(tmp_path / "out"), *extra
            )
            assert done.returncode == 0, done.stdout + done.stderr
        assert seatrial("cleanup", "--kubeconfig", config).returncode == 0
    beyond, idle = audit(requests, rules)
    assert beyond == []
    # An Event is written on the Job of a scheduled run; a manual run has none.
    assert idle - {("create", "", "events"), ("list", "", "events")} == set()


@pytest.mark.parametrize(
    "command",
    [
        ("policy", "--profile", "h100-ib", "--namespace", "default"),
        ("checks",),
        ("faults",),
        ("rbac",),
        ("accept", "--profile", "h100-ib", "--print-manifests"),
    ],
)
def test_what_only_prints_asks_no_one(
    command: tuple[str, ...], tmp_path: Path, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that only print send no request, even with a kubeconfig present."""
    with running("healthy") as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.write_kubeconfig(tmp_path / "kubeconfig")))
        assert seatrial(*command).returncode == 0
    assert requests == []


def test_the_audit_can_fail() -> None:
    """A missing permission, an extra one, another namespace and another name are each detected."""
    rules = {
        "Role": [
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"]},
        ]
    }
    ours = ("get", "", "pods/log", "default", "p")
    assert audit([(ours, "/x")], rules) == ([], set())
    assert audit([], rules)[1] == {("get", "", "pods/log")}
    for other in (
        ("list", "", "pods", "default", ""),
        ("get", "", "pods/log", "kube-system", "p"),
        ("get", "", "configmaps", "default", "b"),
        ("list", "", "nodes", "", ""),
        ("get", "x", "pods/log", "default", "p"),
    ):
        assert len(audit([(other, "/y")], rules)[0]) == 1
