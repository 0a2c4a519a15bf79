"""Removals from the trial's pod by a mutating webhook are reported; additions are not faults."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from checks.profiles.loader import load_profile
from checks.profiles.trial import spec_of
from checks.rules.admission import mutation_findings, mutation_notes
from jobs.trial.manifests import dry_pod
from tests.table import table

ASKED = dry_pod(spec_of(load_profile("a3-ultra"), run_id="abc", namespace="team"))
ASKED["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] = ["IPC_LOCK"]
NETWORKS = "networking.gke.io/interfaces"


def changed(change: Any) -> dict[str, Any]:
    """Return the pod after a webhook."""
    pod = copy.deepcopy(ASKED)
    change(pod, pod["spec"], pod["spec"]["containers"][0])
    return pod


@table(
    "change, subject",
    [
        (lambda pod, spec, main: pod["metadata"]["annotations"].pop(NETWORKS), f"annotation {NETWORKS}"),
        (lambda pod, spec, main: spec.pop("subdomain"), "pod subdomain"),
        (lambda pod, spec, main: spec["tolerations"].clear(), "toleration of nvidia.com/gpu"),
        (lambda pod, spec, main: main["resources"]["limits"].update({"nvidia.com/gpu": "4"}), "trial nvidia.com/gpu"),
        (lambda pod, spec, main: main["resources"]["limits"].pop("nvidia.com/gpu"), "trial nvidia.com/gpu"),
        (lambda pod, spec, main: main["securityContext"]["capabilities"].pop("add"), "trial capability IPC_LOCK"),
        (lambda pod, spec, main: main["volumeMounts"].pop(), "trial mount /usr/local/gib"),
        (
            lambda pod, spec, main: main["env"].append({"name": "NCCL_NET", "value": "Socket"}),
            "trial variable NCCL_NET",
        ),
        (
            lambda pod, spec, main: [main["env"].remove(e) for e in list(main["env"]) if e["name"] == "NCCL_NET"],
            "trial variable NCCL_NET",
        ),
        (
            lambda pod, spec, main: [
                v["emptyDir"].update(sizeLimit="64Mi") for v in spec["volumes"] if "emptyDir" in v
            ],
            "volume shm sizeLimit",
        ),
    ],
)
def test_what_is_taken_away_is_named(change: Any, subject: str) -> None:
    """One removal has one or more findings, and the first names it."""
    findings = list(mutation_findings(ASKED, changed(change)))
    assert subject in [f.subject for f in findings], [f.subject for f in findings]
    assert all(f.ok is False and f.fault == "admission.changed" for f in findings)


@pytest.mark.parametrize(
    "change",
    [
        lambda pod, spec, main: None,
        lambda pod, spec, main: pod["metadata"]["annotations"].update(more="x"),
        lambda pod, spec, main: spec["containers"].insert(0, {"name": "mesh", "image": "mesh"}),
        lambda pod, spec, main: main["resources"]["requests"].update(cpu="64", memory="512Gi"),
        lambda pod, spec, main: main["resources"]["limits"].update(cpu="64"),
        lambda pod, spec, main: main["securityContext"]["capabilities"].update(add=["ALL"]),
        lambda pod, spec, main: main["env"].append({"name": "HTTPS_PROXY", "value": "http://proxy"}),
        lambda pod, spec, main: main["env"].append({"name": "NCCL_DEBUG", "value": "WARN"}),
    ],
    ids=["nothing", "annotation", "sidecar", "requests", "limit", "capabilities", "variable", "log"],
)
def test_what_is_added_is_the_clusters_business(change: Any) -> None:
    """Sidecars, labels and larger requests are allowed: the pod has everything that it requested."""
    assert list(mutation_findings(ASKED, changed(change))) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda spec, main: main.update(image="mirror/pytorch"), "of mirror/pytorch, not nvcr.io"),
        (lambda spec, main: main["resources"]["requests"].update(cpu="1"), "would reserve 1 cpu for container trial"),
    ],
    ids=["image", "reservation"],
)
def test_what_moves_pods_and_breaks_none_is_a_note(change: Any, said: str) -> None:
    """A mirrored image and a smaller request are reported but not judged."""
    pod = changed(lambda _, spec, main: change(spec, main))
    assert list(mutation_findings(ASKED, pod)) == []
    assert said in " ".join(mutation_notes(ASKED, pod))


def test_the_value_of_a_secret_is_not_reported() -> None:
    """A variable with a secret name is reported by name without either value."""
    asked, pod = copy.deepcopy(ASKED), copy.deepcopy(ASKED)
    asked["spec"]["containers"][0]["env"].append({"name": "WANDB_API_KEY", "value": "local-1234567"})
    pod["spec"]["containers"][0]["env"].append({"name": "WANDB_API_KEY", "value": "other-7654321"})
    (finding,) = mutation_findings(asked, pod)
    assert finding.subject == "trial variable WANDB_API_KEY"
    assert "1234567" not in finding.expected
    assert "7654321" not in finding.observed
