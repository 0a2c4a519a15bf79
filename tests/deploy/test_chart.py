"""The Helm chart: rendered, its objects equal kustomize's, so that each is defined once."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

from jobs.cluster.client.kube import Kube
from tests.onsim import Sim
from tests.program import seatrial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Render = Callable[..., list[dict[str, Any]]]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "seatrial"
VALUES = {
    "tenant": ["tenant=true"],
    "cluster": [],
    "kueue": ["queue=kueue:seatrial"],
    "airgapped": ["registry=registry.example.internal", "image=registry.example.internal/seatrial"],
    "results-pvc": ["claim=5Gi"],
    "openshift": ["openshift=true"],
    "new-nodes": [
        "newNodes=seatrial/new",
        "schedule=*/10 * * * *",
        "profile.pod.tolerations[0].key=nvidia.com/gpu",
        "profile.pod.tolerations[0].operator=Exists",
        "profile.pod.tolerations[1].key=seatrial/new",
        "profile.pod.tolerations[1].operator=Exists",
    ],
}
FILES = {"cronjob": "base", "serve": "serve", "priorityclass": "overlays/cluster", "claim": "overlays/results-pvc"}


def helm(*settings: str, namespace: str = "default", code: int = 0) -> str:
    """Render the chart; return helm's message if it must refuse."""
    program = shutil.which("helm")
    if program is None:
        pytest.skip("needs helm, to render the chart")
    options = [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run(
        [program, "template", "seatrial", str(CHART), "--namespace", namespace, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) == bool(code), done.stderr
    return done.stderr if code else done.stdout


def by_name(objects: Iterable[dict[str, Any] | None]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return objects by kind, namespace and name; a profile is compared by content, not by formatting."""
    by_key: dict[tuple[str, str, str], dict[str, Any]] = {}
    for thing in filter(None, objects):
        key = (thing["kind"], thing["metadata"].get("namespace", ""), thing["metadata"]["name"])
        assert key not in by_key
        if "profile.yaml" in thing.get("data", {}):
            thing["data"]["profile.yaml"] = yaml.safe_load(thing["data"]["profile.yaml"])
        by_key[key] = thing
    return by_key


@pytest.mark.parametrize("namespace", ["default", "gpu-acceptance"])
@pytest.mark.parametrize("overlay", VALUES)
def test_the_chart_makes_what_kustomize_makes(overlay: str, namespace: str, rendered: Render) -> None:
    """Rendered objects are equal for every overlay, in its own namespace and in another one."""
    chart = by_name(yaml.safe_load_all(helm(*VALUES[overlay], namespace=namespace)))
    assert chart == by_name(rendered(overlay, namespace))


def test_the_chart_serves_metrics_as_the_component_does(rendered: Render) -> None:
    """Rendered objects are equal with the component around an overlay, in another namespace."""
    chart = by_name(yaml.safe_load_all(helm("serve=true", namespace="gpu-acceptance")))
    assert chart == by_name(rendered("cluster", "gpu-acceptance", "serve"))


def test_what_the_chart_takes_over_is_the_kustomizations_own() -> None:
    """make chart was run after a change: the files are copies, and the permissions are the output of seatrial rbac."""
    for name, source in FILES.items():
        assert (CHART / "files" / f"{name}.yaml").read_bytes() == (
            ROOT / "deploy" / source / f"{name}.yaml"
        ).read_bytes()
    ends = {"": [], "-kueue": ["--queue", "kueue:any"]}
    for scope, more in {"tenant": ends, "cluster": ends | {"-new-nodes": ["--new-nodes", "any"]}}.items():
        for end, flags in more.items():
            where = ["--namespace", "release-namespace", "--profile", "deploy/base/profile.yaml"]
            said = seatrial("rbac", "--cron", f"--{scope}", *flags, *where)
            assert (said.returncode, said.stdout) == (0, (CHART / "files" / f"rights-{scope}{end}.yaml").read_text())


def test_the_values_are_checked() -> None:
    """The defaults follow the schema, which covers every value; a misspelt one is refused."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.validate(values, schema)
    assert values.keys() == schema["properties"].keys() - {"global"}
    for wrong in ({"images": "x"}, {"queue": "seatrial"}, {"arguments": ["every=1"]}, {"claim": "much"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(values | wrong, schema)
    assert "images" in helm("images=x", code=1)
    assert "    --sweep=64\n" in helm("sweep=64")
    assert "--sweep" not in helm()
    assert "rights=false" in helm("newNodes=seatrial/new", "queue=kueue:trial", code=1)


def test_what_one_release_must_not_make_twice_can_be_left_out() -> None:
    """A second release in a cluster shares the PriorityClass; with custom permissions there is no Role."""
    objects = by_name(
        yaml.safe_load_all(helm("priorityClass=false", "rights=false", "arguments={--check=a,--push=http://b}"))
    )
    assert {kind for kind, *_ in objects} == {"ConfigMap", "CronJob"}
    pod = objects["CronJob", "default", "seatrial"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == "seatrial"
    arguments = objects["ConfigMap", "default", "seatrial-settings"]["data"]["arguments"]
    assert arguments.splitlines()[-2:] == ["--check=a", "--push=http://b"]


@pytest.mark.slow
def test_helm_installs_it_and_takes_it_away(tmp_path: Path) -> None:
    """The release has its own namespace; an upgrade changes the settings; after removal nothing is left."""
    program = shutil.which("helm")
    if program is None:
        pytest.skip("needs helm")
    cluster = Sim(ROOT, tmp_path, "healthy")
    try:
        kube = Kube.connect(kubeconfig=str(cluster.config))
        release = ["seatrial", "--namespace", "gpu-acceptance", "--kubeconfig", str(cluster.config)]

        def run(verb: str, *more: str) -> None:
            subprocess.run(
                [program, verb, *release[:1], *more, *release[1:]], check=True, capture_output=True, cwd=tmp_path
            )

        run("install", str(CHART), "--create-namespace", "--set", "serve=true")
        run("upgrade", str(CHART), "--set", "every=24")
        settings = kube.get("/api/v1/namespaces/gpu-acceptance/configmaps/seatrial-settings")
        assert "--every=24" in settings["data"]["arguments"].splitlines()
        run("uninstall")
        for place in (
            "/apis/batch/v1/namespaces/gpu-acceptance/cronjobs",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        ):
            assert not [item for item in kube.list(place)[0] if "seatrial" in item["metadata"]["name"]]
    finally:
        cluster.close()
