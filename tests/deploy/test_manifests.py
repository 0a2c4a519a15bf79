"""The shipped manifests: rendered by kustomize, with exactly the permissions of seatrial rbac, and runnable."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.program import run_pytest, seatrial

if TYPE_CHECKING:
    from collections.abc import Callable

    Render = Callable[[str], list[dict[str, Any]]]

ROOT = Path(__file__).resolve().parents[2]
OVERLAYS = ("tenant", "cluster", "kueue", "airgapped", "results-pvc", "openshift", "new-nodes")
FLAGS = {
    "tenant": ["--tenant"],
    "kueue": ["--cluster", "--queue", "kueue:seatrial"],
    "new-nodes": ["--cluster", "--new-nodes", "seatrial/new"],
}


@functools.cache
def printed(*flags: str) -> dict[tuple[str, str], Any]:
    """Return the rules that seatrial rbac prints for scheduled runs of the shipped profile."""
    said = seatrial("rbac", "--cron", "--namespace", "default", "--profile", "deploy/base/profile.yaml", *flags)
    assert said.returncode == 0, said.stderr
    return rules(list(yaml.safe_load_all(said.stdout)))


@functools.cache
def options() -> str:
    """Return pytest's help text with its and the suite's options."""
    said = run_pytest("--help", cwd=ROOT)
    assert said.ret == 0, said.errlines
    return str(said.stdout)


def rules(objects: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    """Return the rules of all roles, sorted."""

    def plain(rule: dict[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
        return sorted((key, tuple(values)) for key, values in rule.items())

    return {(o["kind"], o["metadata"]["name"]): sorted(map(plain, o["rules"])) for o in objects if "rules" in o}


def runner(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the pod spec of the CronJob."""
    (cronjob,) = (o for o in objects if o["kind"] == "CronJob")
    spec: dict[str, Any] = cronjob["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_rights_are_those_that_rbac_prints(overlay: str, rendered: Render) -> None:
    """Permissions are equal for each overlay, so a manually added one is detected."""
    assert rules(rendered(overlay)) == printed(*FLAGS.get(overlay, ["--cluster"]))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_overlay_is_whole(overlay: str, rendered: Render) -> None:
    """An overlay has one CronJob without concurrent runs and retries, with a deadline, and its mounted settings exist."""
    objects = rendered(overlay)
    (cron,) = (o for o in objects if o["kind"] == "CronJob")
    job = cron["spec"]["jobTemplate"]["spec"]
    assert cron["spec"]["concurrencyPolicy"] == "Forbid"
    assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (0, "Never")
    assert job["activeDeadlineSeconds"] > 0
    assert job["ttlSecondsAfterFinished"] > 0
    maps = {o["metadata"]["name"]: o["data"] for o in objects if o["kind"] == "ConfigMap"}
    mounted = next(v["configMap"]["name"] for v in runner(objects)["volumes"] if "configMap" in v)
    arguments = maps[mounted]["arguments"].split()
    assert "--profile=/etc/seatrial/profile.yaml" in arguments
    assert yaml.safe_load(maps[mounted]["profile.yaml"])["extends"]
    assert ("--tenant" in arguments) == (overlay == "tenant")


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_arguments_are_options_that_exist(overlay: str, rendered: Render) -> None:
    """cron accepts its settings, and accept the others."""
    from cli.schedule.cron import parser

    maps = [o["data"] for o in rendered(overlay) if o["kind"] == "ConfigMap"]
    _, further = parser().parse_known_args(maps[0]["arguments"].split())
    for word in further:
        assert word.partition("=")[0] in options()


def test_the_trial_of_new_nodes_tolerates_their_taint_and_no_other_of_a_site(rendered: Render) -> None:
    """The arguments give the taint; a toleration without a key would tolerate all of them."""
    (settings,) = (o["data"] for o in rendered("new-nodes") if o["kind"] == "ConfigMap")
    keys = [each["key"] for each in yaml.safe_load(settings["profile.yaml"])["pod"]["tolerations"]]
    assert keys == ["nvidia.com/gpu", "seatrial/new"]
    assert "--new-nodes=seatrial/new" in settings["arguments"].split()


def test_the_priority_never_preempts(rendered: Render) -> None:
    """The trial in a busy cluster preempts no pod."""
    (priority,) = (o for o in rendered("cluster") if o["kind"] == "PriorityClass")
    assert priority["preemptionPolicy"] == "Never"
    assert priority["value"] < 0
    assert runner(rendered("cluster"))["priorityClassName"] == priority["metadata"]["name"]


def test_an_air_gapped_cluster_pulls_from_one_registry(rendered: Render) -> None:
    """The runner's image and the trial's come from the same registry."""
    objects = rendered("airgapped")
    registry = runner(objects)["containers"][0]["image"].split("/")[0]
    arguments = next(o["data"]["arguments"] for o in objects if o["kind"] == "ConfigMap")
    assert f"--registry={registry}" in arguments.split()


def test_what_serves_the_metrics_serves_what_runs_leave(rendered: Render) -> None:
    """The server has no permissions and no token, reads the runs' ConfigMap, and listens on serve's port; a
    ServiceMonitor matches it."""
    from checks.rules.rights import RESULTS
    from cli.serve import PORT

    objects = {o["kind"]: o for o in rendered("tenant", "default", "serve")}
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["volumes"][0]["configMap"] == {"name": RESULTS, "optional": True}
    assert pod["containers"][0]["args"][1] == pod["containers"][0]["volumeMounts"][0]["mountPath"]
    assert pod["containers"][0]["ports"] == [{"name": "metrics", "containerPort": PORT}]
    service, labels = objects["Service"], objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    monitor = yaml.safe_load((ROOT / "deploy" / "monitoring" / "servicemonitor.yaml").read_text())
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]


def test_on_openshift_the_namespace_chooses_the_user(rendered: Render) -> None:
    """restricted-v2 refuses user and group ids outside the namespace's range; all other settings remain as strict."""
    assert runner(rendered("openshift"))["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Containerfile, continuation lines joined."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "deploy" / "Containerfile").read_text())
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_image_is_as_small_and_as_fixed_as_it_can_be() -> None:
    """The image has two stages on a base pinned by an argument, hashes for all installed packages, a non-root user, and
    no shell."""
    steps = instructions()
    assert [rest for word, rest in steps if word == "FROM"] == ["${BASE} AS build", "${BASE}"]
    assert ("ARG", "BASE") in steps  # no default: a moving tag is not a base
    assert not [rest for word, rest in steps if word in ("ADD", "SHELL")]
    assert all(rest.startswith("[") for word, rest in steps if word in ("RUN", "ENTRYPOINT", "CMD"))
    assert any("--require-hashes" in rest for word, rest in steps if word == "RUN")
    last = steps[max(i for i, (word, _) in enumerate(steps) if word == "FROM") :]
    assert [rest for word, rest in last if word == "USER"] == ["65532:65532"]
    assert [rest for word, rest in last if word == "RUN"] == []
    assert [rest for word, rest in last if word == "COPY"] == ["--from=build /opt/seatrial /opt/seatrial"]
    assert any("org.opencontainers.image.version" in rest for word, rest in last if word == "LABEL")


def test_runner_and_image_agree(rendered: Render) -> None:
    """The pod's user is the image's, and all its writable paths are volumes: its root is read-only."""
    pod = runner(rendered("cluster"))
    (user,) = (rest for word, rest in instructions() if word == "USER")
    assert str(pod["securityContext"]["runAsUser"]) == user.split(":")[0]
    container = pod["containers"][0]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert {m["mountPath"] for m in container["volumeMounts"]} >= {"/tmp", "/results"}
    assert container["command"] == ["seatrial"]
