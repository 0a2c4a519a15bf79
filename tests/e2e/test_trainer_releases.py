"""Kubeflow Trainer before and after v2.2, which changed how a TrainJob modifies the pods of its runtime."""

import pytest
import yaml

from jobs.cluster.client.errors import Invalid
from jobs.cluster.client.kube import Kube, path
from lab.background import running
from tests.program import seatrial

FIELDS = {"runtimePatches": "podTemplateOverrides", "podTemplateOverrides": "runtimePatches"}


def printed(*options):
    """Return the printed manifests: (the note, the TrainJob)."""
    done = seatrial("accept", "--profile", "h100-ib", "--launcher", "trainjob", "--print-manifests", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    note = " ".join(line for line in done.stdout.splitlines() if line.startswith("# The API server"))
    return note, next(each for each in yaml.safe_load_all(done.stdout) if each["kind"] == "TrainJob")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operators", "field"),
    [(["trainer"], "runtimePatches"), (["trainer", "trainer-2.1"], "podTemplateOverrides")],
    ids=["2.2", "2.1"],
)
def test_a_trainjob_is_printed_and_created_as_the_trainer_here_takes_it(operators, field, tmp_path):
    """The printed form passes a strict dry run, the other one does not; the trial is launched, also in a queue."""
    world = {"name": "t", "extends": "healthy-kueue", "title": "t", "breaks": "b", "faults": [], "outcome": "go"}
    scenario = tmp_path / "trainer.yaml"
    scenario.write_text(yaml.safe_dump({**world, "world": {"operators": ["kueue", *operators]}}))
    with running(str(scenario)) as cluster:
        config = str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        note, job = printed("--kubeconfig", config)
        kube = Kube.connect(kubeconfig=config)
        place = path("trainjobs", namespace="default", group="trainer.kubeflow.org", version="v1alpha1")
        kube.create(place, job, dry_run=True)
        other = {**job, "spec": {FIELDS.get(key, key): value for key, value in job["spec"].items()}}
        with pytest.raises(Invalid, match=FIELDS[field]):
            kube.create(place, other, dry_run=True)
        common = ("--profile", "h100-ib", "--launcher", "trainjob", "--kubeconfig", config)
        runs = [seatrial("accept", *common, *queue) for queue in ((), ("--queue", "kueue:trial"))]
    assert (note, field in job["spec"]) == ("", True)
    assert [done.returncode for done in runs] == [0, 0], [done.stdout for done in runs]


def test_without_a_server_the_newest_form_is_printed_and_that_is_said(tmp_path):
    """The port has no listener; no other part of the manifests needs a server."""
    config = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config.write_text(
        yaml.safe_dump(
            {"clusters": [cluster], "contexts": [context], "current-context": "c", "users": [{"name": "u", "user": {}}]}
        )
    )
    note, job = printed("--kubeconfig", str(config))
    assert "runtimePatches" in job["spec"]
    assert (
        note.startswith("# The API server did not return its schema of TrainJob")
        and "as the newest kubeflow-trainer" in note
    )
