"""`seatrial policy`: its CEL admits the trial's own pod and refuses the broken ones, evaluated by a CEL library."""

from __future__ import annotations

import copy
import functools
import json
from typing import TYPE_CHECKING, Any

import celpy
import pytest
import yaml
from celpy.adapter import json_to_cel
from celpy.celtypes import IntType, StringType

from checks.profiles.loader import load_profile, profile_names
from checks.profiles.trial import recorded_pod, spec_of, spec_of_record
from cli.__main__ import main
from jobs.cluster.unstructured import whole
from jobs.trial.admission_policy import policies
from jobs.trial.manifests import dry_pod
from tests.profiles import WITH_GPUS, shipped
from tests.table import table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jobs.trial.spec import TrialSpec


# Functions that Kubernetes adds to CEL and that are used here
# (kubernetes.io/docs/reference/using-api/cel/, quantity library and list library).
KUBERNETES: Any = {
    "quantity": StringType,
    "asInteger": lambda text: IntType(whole(text)),
    "sum": lambda amounts: IntType(sum(amounts)),
}


def evaluate(expression: str, thing: dict[str, Any]) -> bool:
    """Evaluate one CEL expression like the API server, with ``object`` set."""
    return bool(compiled(expression).evaluate({"object": json_to_cel(thing)}))


@functools.cache
def compiled(expression: str) -> Any:
    """Make a CEL expression ready."""
    environment = celpy.Environment()
    return environment.program(environment.compile(expression), functions=KUBERNETES)


def refused(policy: dict[str, Any], thing: dict[str, Any]) -> list[str]:
    """Return the messages of a policy's refusal; empty if it admits or does not apply."""
    spec = policy["spec"]
    if not all(evaluate(c["expression"], thing) for c in spec["matchConditions"]):
        return []
    return [v["message"] for v in spec["validations"] if not evaluate(v["expression"], thing)]


def trial(profile: str) -> TrialSpec:
    """The trial of a shipped profile."""
    return spec_of(load_profile(profile), run_id="r", namespace="train")


def pod_policy(spec: TrialSpec) -> dict[str, Any]:
    """The policy on pods."""
    return next(p for p in policies(spec) if p["kind"].endswith("Policy") and "pods" in p["metadata"]["name"])


@table("profile", [p for p in WITH_GPUS if shipped(p).pod.resources and shipped(p).gpu.resource])
def test_the_trials_own_pod_is_admitted(profile: str) -> None:
    """An accepted trial must remain possible with every shipped profile; the policy applies to it."""
    spec = trial(profile)
    pod = dry_pod(spec)
    assert refused(pod_policy(spec), pod) == []
    del pod["spec"]["containers"][0]["resources"]["limits"][next(iter(spec.resources))]
    assert refused(pod_policy(spec), pod) != []


def container(pod: dict[str, Any]) -> dict[str, Any]:
    """The trial's container."""
    first: dict[str, Any] = pod["spec"]["containers"][0]
    return first


def no_cards(pod: dict[str, Any]) -> None:
    """Return GPUs without the NIC, the most frequent mistake."""
    container(pod)["resources"]["limits"].pop("vpc.amazonaws.com/efa")


def few_cards(pod: dict[str, Any]) -> None:
    """Return eight of 32 NICs."""
    container(pod)["resources"]["limits"]["vpc.amazonaws.com/efa"] = "8"


def cards_elsewhere(pod: dict[str, Any]) -> None:
    """Return NICs in a sidecar and GPUs in another container."""
    no_cards(pod)
    pod["spec"]["containers"].append({"name": "x", "resources": {"limits": {"vpc.amazonaws.com/efa": "32"}}})


@pytest.mark.parametrize("broken", [no_cards, few_cards, cards_elsewhere])
def test_a_pod_without_its_network_cards_is_refused(broken: Callable[[dict[str, Any]], None]) -> None:
    """The message names the resource and the effect of its absence."""
    spec = trial("p5-efa")
    pod = dry_pod(spec)
    broken(pod)
    (message,) = refused(pod_policy(spec), pod)
    assert "32 vpc.amazonaws.com/efa" in message


def gpus_of_two_nodes(pod: dict[str, Any]) -> None:
    """Return a request for 16 GPUs, more than the trial's node had."""
    no_cards(pod)
    container(pod)["resources"]["limits"]["nvidia.com/gpu"] = "16"


def gpus_in_a_sidecar(pod: dict[str, Any]) -> None:
    """Return a native sidecar with all GPUs of the node."""
    no_cards(pod)
    pod["spec"]["initContainers"] = [{**container(pod), "name": "side", "restartPolicy": "Always"}]
    pod["spec"]["containers"] = [{"name": "main"}]


def gpus_in_two_containers(pod: dict[str, Any]) -> None:
    """Return two containers with four GPUs each, of which only one has NICs."""
    half, other = copy.deepcopy(container(pod)), copy.deepcopy(container(pod))
    half["resources"]["limits"] |= {"nvidia.com/gpu": "4", "vpc.amazonaws.com/efa": "16"}
    other["resources"]["limits"] = {"nvidia.com/gpu": 4}
    pod["spec"]["containers"] = [half, other]


@pytest.mark.parametrize("broken", [gpus_of_two_nodes, gpus_in_a_sidecar, gpus_in_two_containers])
def test_all_gpus_of_a_node_count_however_they_are_asked_for(broken: Callable[[dict[str, Any]], None]) -> None:
    """GPUs beyond the trial's number, of a sidecar, and of several containers are refused without NICs."""
    spec = trial("p5-efa")
    pod = dry_pod(spec)
    broken(pod)
    assert [m for m in refused(pod_policy(spec), pod) if "32 vpc.amazonaws.com/efa" in m]


def test_gpus_shared_by_containers_share_the_cards() -> None:
    """Half of each in two containers is enough; an init container that ends before them does not train."""
    spec = trial("p5-efa")
    pod = dry_pod(spec)
    container(pod)["resources"]["limits"] |= {"nvidia.com/gpu": "4", "vpc.amazonaws.com/efa": "16"}
    pod["spec"]["containers"].append(copy.deepcopy(container(pod)))
    pod["spec"]["initContainers"] = [{"name": "burn-in", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]
    assert refused(pod_policy(spec), pod) == []
    container(pod)["resources"]["limits"]["vpc.amazonaws.com/efa"] = "15"
    assert refused(pod_policy(spec), pod) != []


def test_no_expression_draws_a_warning_of_the_type_checker() -> None:
    """The checker's schema of a container has no limits (their values are quantities), so they are accessed through
    dyn() only."""
    from dataclasses import replace

    from jobs.trial.parts import Queue

    for profile in ("p5-efa", "h200-roce"):
        for policy in policies(replace(trial(profile), queue=Queue(kind="kueue", name="team-a"))):
            spec = policy["spec"]
            for rule in [*spec.get("matchConditions", ()), *spec.get("validations", ())]:
                assert rule["expression"].count(".limits") == rule["expression"].count("dyn(c.resources).limits")
                assert not any(field in rule["expression"] for field in (".requests", ".capacity", ".sizeLimit"))


def test_an_amount_that_the_api_server_has_shortened_is_enough() -> None:
    """The API server shortens 1000 shares to 1k, which is not a number in CEL: the expression must not fail."""
    spec = trial("h100-ib")
    pod = dry_pod(spec)
    container(pod)["resources"]["limits"]["rdma/hca_shared_devices_a"] = "1k"
    assert refused(pod_policy(spec), pod) == []


def test_networks_and_capability_are_asked_for() -> None:
    """Multus' annotation and IPC_LOCK are each named; a privileged container has the capability."""
    spec = trial("h200-roce")
    pod = dry_pod(spec)
    pod["metadata"]["annotations"].pop("k8s.v1.cni.cncf.io/networks")
    container(pod)["securityContext"]["capabilities"].pop("add")
    said = refused(pod_policy(spec), pod)
    assert ["annotation" in said[0], "IPC_LOCK" in said[1], len(said)] == [True, True, 2]
    container(pod)["securityContext"]["privileged"] = True
    assert len(refused(pod_policy(spec), pod)) == 1


@pytest.mark.parametrize("gpus", [None, "1", "4"])
def test_smaller_pods_are_left_alone(gpus: str | None) -> None:
    """A notebook with one GPU, or a pod without GPUs or without limits, needs no NIC."""
    spec = trial("p5-efa")
    pod = dry_pod(spec)
    if gpus is None:
        del container(pod)["resources"]
    else:
        container(pod)["resources"]["limits"] = {"nvidia.com/gpu": gpus}
    assert refused(pod_policy(spec), pod) == []


def test_a_queue_is_asked_for_where_the_trial_went_through_one() -> None:
    """The trial's Job is admitted with its label and refused without it; a Job without GPUs is ignored."""
    from dataclasses import replace

    from jobs.trial.parts import Queue

    spec = replace(trial("h100-ib"), queue=Queue(kind="kueue", name="team-a"))
    (policy,) = (p for p in policies(spec) if p["kind"].endswith("Policy") and "-jobs-" in p["metadata"]["name"])
    job = copy.deepcopy(dict(job_of(spec)))
    assert refused(policy, job) == []
    del job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    (message,) = refused(policy, job)
    assert "kueue.x-k8s.io/queue-name" in message
    del job["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert refused(policy, job) == []


def job_of(spec: TrialSpec) -> dict[str, Any]:
    """The trial's Job."""
    from jobs.trial.manifests import build

    return build(spec, {"__main__.py": ""}).job


def test_the_command_prints_what_kubectl_can_apply(capsys: pytest.CaptureFixture[str]) -> None:
    """Policy and binding, for one namespace; --warn refuses nothing."""
    assert main(["policy", "--profile", "h100-ib", "--namespace", "train"]) == 0
    policy, binding = yaml.safe_load_all(capsys.readouterr().out)
    assert policy["metadata"]["name"] == binding["spec"]["policyName"]
    assert binding["spec"]["validationActions"] == ["Deny"]
    assert binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": "train"
    }
    assert main(["policy", "--profile", "h100-ib", "--namespace", "train", "--warn"]) == 0
    assert list(yaml.safe_load_all(capsys.readouterr().out))[1]["spec"]["validationActions"] == ["Warn", "Audit"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--profile", "h100-ib"],
        ["--profile", "nobody", "--namespace", "n"],
        ["--record", "nowhere"],
        ["--profile", "h100-ib", "--namespace", "Not a name"],
        ["--profile", "dra-only", "--namespace", "n"],
        ["--profile", "gpus-only.yaml", "--namespace", "n"],
    ],
)
def test_what_cannot_be_a_policy_is_refused_in_a_line(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal has exit code 4, also if the profile has no optional requirement."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpus-only.yaml").write_text("gpu: {per_node: 8}")
    monkeypatch.delenv("TAO_K8S_NAMESPACE", raising=False)
    try:
        code = main(["policy", *arguments])
    except SystemExit as error:
        code = int(error.code or 0)
    assert code == 4
    assert len(capsys.readouterr().err.splitlines()) == 1


POD = {
    "gpu_resource": "nvidia.com/gpu",
    "gpus": 8,
    "resources": {"rdma/hca_shared_devices_a": 1},
    "networks": [],
    "capabilities": ["IPC_LOCK"],
    "queue": "",
}


def accepted(folder: Path, pod: dict[str, Any] | None, **more: Any) -> str:
    """Return the folder of a run that was fully accepted."""
    trial = {"image": "nvcr.io/nvidia/pytorch:25.08-py3"} | ({"pod": pod} if pod is not None else {})
    about = {"run_id": "r1", "verdict": "go", "scope": "full", "checks": [], "collectives": {}, "schema": 1}
    record = (
        about | {"cluster": {"namespace": "train"}, "trial": trial, "profile": "mine", "profile_digest": "x"} | more
    )
    (folder / "report.json").write_text(json.dumps(record))
    return str(folder)


def test_a_run_is_enough_whatever_its_profile_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run's record contains its pods' requests, also those of a custom profile and of options."""
    assert main(["policy", "--record", accepted(tmp_path, POD)]) == 0
    by_record = capsys.readouterr().out
    assert main(["policy", "--profile", "h100-ib", "--namespace", "train"]) == 0
    assert capsys.readouterr().out == by_record
    assert main(["policy", "--record", accepted(tmp_path, POD | {"queue": "kueue:team-a"}), "--namespace", "b"]) == 0
    names = [each["metadata"]["name"] for each in yaml.safe_load_all(capsys.readouterr().out)]
    assert "seatrial-pods-b" in names and "seatrial-jobs-b" in names


def test_a_record_keeps_what_a_policy_needs() -> None:
    """For every shipped profile, the record and the profile yield the same policies."""
    for name in profile_names():
        spec = trial(name)
        again = spec_of_record(recorded_pod(spec), image=spec.image, namespace=spec.namespace)
        assert policies(again) == policies(spec)


def test_a_record_of_an_earlier_version_goes_by_its_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The shipped profile applies if the run used it; a different profile with that name is not used."""
    digest = load_profile("h100-ib").digest
    assert main(["policy", "--record", accepted(tmp_path, None, profile="h100-ib", profile_digest=digest)]) == 0
    assert "rdma/hca_shared_devices_a" in capsys.readouterr().out
    for profile in ("h100-ib", "mine", None):
        assert main(["policy", "--record", accepted(tmp_path, None, profile=profile)]) == 4
        assert "does not contain its pods' requests: name the profile" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pod", "more", "reason"),
    [
        (POD, {"verdict": "inconclusive"}, "was not accepted in full"),
        (POD, {"scope": "partial"}, "was not accepted in full"),
        (POD, {"cluster": {}}, "--namespace is required"),
        (POD | {"gpu_resource": ""}, {}, "claim their GPUs"),
        (POD | {"resources": {}, "capabilities": []}, {}, "request nothing but GPUs"),
        (POD | {"resources": {"a/b' in {}": 1}}, {}, "is not an extended resource"),
        (POD | {"gpu_resource": "a/b' in {}"}, {}, "is not an extended resource"),
        (POD | {"queue": "slurm:x"}, {}, "is not kueue or volcano"),
        (POD | {"resources": {"a/b": "1"}}, {}, "not a whole number"),
    ],
)
def test_a_record_that_proves_nothing_or_is_damaged_is_refused(
    pod: dict[str, Any],
    more: dict[str, Any],
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The refusal is one line: no text of a record is put into an expression without validation."""
    monkeypatch.delenv("TAO_K8S_NAMESPACE", raising=False)
    assert main(["policy", "--record", accepted(tmp_path, pod, **more)]) == 4
    said = capsys.readouterr()
    assert reason in said.err and len(said.err.splitlines()) == 1 and said.out == ""
