"""The real operators in a real cluster: built from their modules, installed by those modules' manifests.

Each runs as a pod of an image with the name in its manifest, which contains only its program. It is installed when a
test first requests it; finally all are removed, so that other tests have a cluster without them.

Volcano (volcano.sh/volcano) and the node readiness controller (sigs.k8s.io/node-readiness-controller) are not built.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.waiting import KUBECTL_LIMIT, until

from . import image, programs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .cluster import Cluster

Object = dict[str, Any]


@dataclass(frozen=True)
class Operator:
    """The paths of an operator's program and manifests."""

    title: str
    module: str
    program: str
    place: str  # path of the program in its image
    manifests: str  # the common folder of its kustomizations
    overlay: str  # below it: the operator
    built: str = "operators"  # our module that builds it
    after: str = ""  # below it: applied when it runs
    without: tuple[tuple[str, str], ...] = ()  # lines to remove: file below `manifests`, text
    arguments: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    sample: str = ""  # an object of its kind, accepted as soon as all its webhooks know their operator


OLDER = "operators-older"
"""JobSet and the Training Operator need a controller-runtime before v0.23, the others that or a later one."""
MODULES = ("operators", OLDER)
OPERATORS = {
    "jobset": Operator("JobSet", "sigs.k8s.io/jobset", "jobset", "/manager", "config", "default", built=OLDER),
    "kubeflow-trainer": Operator(
        "Kubeflow Trainer",
        "github.com/kubeflow/trainer/v2",
        "trainer-controller-manager",
        "/manager",
        "manifests",
        "overlays/manager",
        after="overlays/runtimes",
        # fetched from GitHub; the file says to remove it if JobSet is installed
        without=(("overlays/manager/kustomization.yaml", "- ../../third-party/jobset"),),
        needs=("jobset",),
        # Kueue polls for kinds that were missing at its start at growing intervals of up to two minutes
        sample="""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: sample, namespace: default}
spec: {runtimeRef: {name: torch-distributed}}
""",
    ),
    "training-operator": Operator(
        "Kubeflow Training Operator",
        "github.com/kubeflow/training-operator",
        "training-operator.v1",
        "/manager",
        "manifests",
        "overlays/standalone",
        built=OLDER,
        # its definition of MPIJob would replace the MPI Operator's
        without=(("base/crds/kustomization.yaml", "- kubeflow.org_mpijobs.yaml"),),
        arguments=("--enable-scheme=pytorchjob", f"--pytorch-init-container-image={image.TRIAL}"),
    ),
    "mpi-operator": Operator(
        "MPI Operator",
        "github.com/kubeflow/mpi-operator",
        "mpi-operator",
        "/opt/mpi-operator",
        "manifests",
        "overlays/standalone",
    ),
    "kueue": Operator("Kueue", "sigs.k8s.io/kueue", "kueue", "/manager", "config", "default"),
}


class Operators:
    """The installed `OPERATORS` of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        """Install nothing yet."""
        self._cluster = cluster
        self._installed: dict[str, list[Object]] = {}

    def install(self, *names: str) -> None:
        """Install operators and their dependencies, and return when they are ready."""
        for name in names:
            if name not in self._installed:
                self.install(*OPERATORS[name].needs)
                started = time.monotonic()
                self._install(name, OPERATORS[name])
                print(f"{name} is up after {time.monotonic() - started:.0f} s", flush=True)

    @contextlib.contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """Keep an operator installed but stopped for a while."""
        self.install(name)
        self._scale(name, 0)
        try:
            yield
        finally:
            self._scale(name, 1)

    def _scale(self, name: str, replicas: int) -> None:
        for where, what in _deployments(self._installed[name]):
            self._cluster.kubectl("-n", where, "scale", what, f"--replicas={replicas}")
            self._cluster.kubectl("-n", where, "rollout", "status", what, KUBECTL_LIMIT)
            pods = ("-n", where, "get", "pods", "-o", "name")  # a terminating pod still serves its webhooks
            until(lambda pods=pods: bool(self._cluster.kubectl(*pods)) == bool(replicas), f"{replicas} pods of {name}")

    def remove(self) -> None:
        """Remove all; the definitions first, while a controller removes the finalizers of their objects."""
        for name in reversed(list(self._installed)):
            objects = self._installed.pop(name)
            definitions = [each for each in objects if each["kind"] == "CustomResourceDefinition"]
            for some in (definitions, [each for each in objects if each not in definitions]):
                self._cluster.kubectl(
                    "delete",
                    "--ignore-not-found",
                    KUBECTL_LIMIT,
                    "-f",
                    "-",
                    given=yaml.safe_dump_all(some),
                    check=False,
                )

    def _install(self, name: str, operator: Operator) -> None:
        folder = self._copied(name, operator)
        objects = self._built_from(folder / operator.overlay)
        self._is_taken(operator, [each for each in objects if each["kind"] == "CustomResourceDefinition"])
        node = self._cluster.nodes[-1]
        for each in objects:
            if each["kind"] != "Deployment":
                continue
            each["spec"]["replicas"] = 1
            pod = each["spec"]["template"]["spec"]
            pod["nodeSelector"] = {"kubernetes.io/hostname": node}
            for container in pod["containers"]:
                container["imagePullPolicy"] = "IfNotPresent"
                container["args"] = [*container.get("args", []), *operator.arguments]
                archive = folder / "image.tar"
                image.of_program(
                    archive,
                    container["image"],
                    self._cluster.programs[operator.built] / operator.program,
                    operator.place,
                )
                self._cluster.import_images(node, archive)
                archive.unlink()
        self._installed[name] = objects
        self._apply(objects)
        for where, what in _deployments(objects):
            self._cluster.kubectl("-n", where, "rollout", "status", what, KUBECTL_LIMIT)
        if operator.after:
            later = self._built_from(folder / operator.after)
            until(lambda: self._apply(later, check=False), f"{name} takes its own objects")
        if operator.sample:
            dry = ("create", "--dry-run=server", "-f", "-")
            until(lambda: self._cluster.kubectl(*dry, given=operator.sample, check=False), f"a job of {name} is taken")

    def _is_taken(self, operator: Operator, definitions: list[Object]) -> None:
        """Skip the test if an older Kubernetes refuses an operator's definitions because of a rule that it cannot
        compile."""
        dry = ("apply", "--server-side", "--dry-run=server", "-f", "-")
        said = self._cluster.asked(*dry, given=yaml.safe_dump_all(definitions)).stderr
        if self._cluster.minor != programs.MINORS[-1] and (
            why := re.search(r"CustomResourceDefinition .* is invalid", said)
        ):
            version = programs.version_of(operator.built, operator.module)
            pytest.skip(f"{operator.title} {version} is not for Kubernetes {self._cluster.minor}: {why[0]}")

    def _copied(self, name: str, operator: Operator) -> Path:
        """Copy the manifests of the module, so that lines can be removed."""
        folder = self._cluster.folder / "operators" / name
        source = programs.folder_of(operator.built, operator.module) / operator.manifests
        shutil.rmtree(folder, ignore_errors=True)  # left by a test that was skipped because of its definitions
        shutil.copytree(source, folder, copy_function=shutil.copyfile)
        for path in folder.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        folder.chmod(0o755)
        for file, text in operator.without:
            path = folder / file
            lines = path.read_text(encoding="utf-8").splitlines()
            left = [line for line in lines if not line.strip().startswith(text)]
            assert len(left) == len(lines) - 1, f"{path}: {text}"
            path.write_text("\n".join(left) + "\n", encoding="utf-8")
        return folder

    def _built_from(self, folder: Path) -> list[Object]:
        return [each for each in yaml.safe_load_all(self._cluster.kubectl("kustomize", str(folder))) if each]

    def _apply(self, objects: list[Object], *, check: bool = True) -> str:
        """Apply server-side, since the definitions are too long for kubectl's annotation."""
        return self._cluster.kubectl(
            "apply", "--server-side", "-f", "-", given=yaml.safe_dump_all(objects), check=check
        )


def _deployments(objects: list[Object]) -> list[tuple[str, str]]:
    found = [each["metadata"] for each in objects if each["kind"] == "Deployment"]
    return [(meta["namespace"], f"deployment/{meta['name']}") for meta in found]
