"""Every request of every mode is compared with the rights that are printed for it, as the lab's API server saw it.

None goes beyond (what Kubernetes grants every account aside), and none is printed that no mode uses.
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
"""By system:basic-user; discovery and /version by system:discovery and system:public-info-viewer."""
ON_BEHALF = {
    # What a tool that trains needs and the trial itself does not (judgement/rights.py, TRAINING), and what undoes a
    # create whose answer was lost (running/creation.py).
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
    # Who submits to a queue looks at it; a tenant's run does so only where it sees the ClusterQueue, too.
    ("get", "kueue.x-k8s.io", "localqueues"),
    ("get", "scheduling.volcano.sh", "podgroups"),
    ("get", "resource.k8s.io", "resourceclaimtemplates"),
}
OTHER_TOOLS = {
    *((verb, "batch", "jobs") for verb in ("create", "list", "watch", "delete")),
    *((verb, "", kind) for verb in ("create", "delete") for kind in ("services", "configmaps")),
}
"""Where an operator launches the trial: training tools submit Jobs with Services and ConfigMaps all the same."""
BY_THE_QUEUE = {("patch", "batch", "jobs"), ("get", "kueue.x-k8s.io", "topologies")}
"""Kueue resumes what it admits; where nothing goes wrong with the queue, a run changes nothing itself. A topology is read
where a flavor names one."""
Request = tuple[str, str, str, str, str]  # verb, group, resource[/subresource], namespace, name


Requests = list[tuple[Request, str]]


def listening(hear: Callable[[tuple[Request, str]], object]) -> Callable[[Any, Any], Callable[[Any], Any]]:
    """Return what stands around the API server's handler: it passes on each request for a resource, with its target."""

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
    """Every request that reached the API server of a cluster in this process from outside."""
    requests: Requests = []
    monkeypatch.setattr(lab.cluster, "_around", listening(requests.append))
    return requests


def noting(arguments: list[str]) -> int:
    """Serve a cluster that writes the requests into a file of the folder that comes first."""
    with Path(arguments[0], "requests").open("w", encoding="utf-8", buffering=1) as file:
        vars(lab.cluster)["_around"] = listening(lambda each: file.write(json.dumps(each) + "\n"))
        return program.lab(arguments[1:])


@contextlib.contextmanager
def served(
    folder: Path, scenario: str, rules: dict[str, list[dict[str, Any]]], **more: Any
) -> Iterator[tuple[str, Requests]]:
    """Serve a shipped scenario to a user with these rights; yield the kubeconfig, and what was seen once it is over."""
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
    """The rules that rbac prints, by the kind of role."""
    done = seatrial("rbac", *options)
    assert done.returncode == 0, done.stderr
    return {each["kind"]: each["rules"] for each in yaml.safe_load_all(done.stdout) if "rules" in each}


def granting(rules: Iterable[dict[str, Any]], asked: Request) -> set[tuple[str, str, str]]:
    """The (verb, group, resource) of these rules by which a request is granted."""
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
    """Return the requests that no printed rule grants, and what was printed and not used."""
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
    """A shipped scenario whose user has these rights and no others."""
    loaded = load(scenario)
    user = {"name": "seatrial", "rules": rules.get("Role", []), "cluster_rules": rules.get("ClusterRole", [])}
    return replace(loaded, world={**loaded.world, "user": user})


def profile_of(scenario: str, folder: Path) -> str:
    """The profile with which a scenario is rehearsed, as a name or a file."""
    loaded = load(scenario)
    asked = loaded.run.get("profile", loaded.platform)
    if isinstance(asked, str):
        return asked
    file = folder / "profile.yaml"
    file.write_text(yaml.safe_dump(dict(asked)))
    return str(file)


def modes() -> Iterator[Any]:
    """Each way to run a trial, with the scenario in which it is played."""
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
    """Preflight, trial, clean-up: with exactly what is printed the run is go, and it asks for nothing else."""
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
    # Whether a kind of the stack is served decides which of its objects are read; a run that is refused lists events.
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
    """What explains a failure is within the same rights: a tenant's run lists no nodes."""
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
    """Of what other kinds of jobs there may be, whether a right is granted is asked first."""
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
        for command in ("status", "logs", "cancel", "attach"):  # there is none any more
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
    """Created, looked at, canceled; the guard asks for nodes only where that is granted."""
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
    """Nothing of it is taken for not being there."""
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
    """What a killed run left goes by the same Role, and its deletion is seen."""
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
    """A node after another boot: no pass of the one before counts."""
    node["status"]["nodeInfo"]["bootID"] = boot


@pytest.mark.parametrize(
    "extra",
    [(), ("--label-nodes", "--node-condition"), ("--tenant",), ("--new-nodes",), ("--new-nodes=seatrial/new",)],
    ids=["plain", "marking", "tenant", "condition-of-new-nodes", "new-nodes"],
)
def test_scheduled_runs_ask_for_what_is_printed_for_them(
    extra: tuple[str, ...], tmp_path: Path, requests: Requests
) -> None:
    """`cron`: Lease, state, results, events, marks of nodes, and a label of new ones that is taken away."""
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
    # An Event is written on the Job in which a scheduled run runs; started by hand there is none.
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
def test_what_only_prints_asks_nobody(
    command: tuple[str, ...], tmp_path: Path, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a kubeconfig at hand, too."""
    with running("healthy") as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.write_kubeconfig(tmp_path / "kubeconfig")))
        assert seatrial(*command).returncode == 0
    assert requests == []


def test_the_audit_can_fail() -> None:
    """A right too few, one too many, another namespace and another name are each seen."""
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
