"""An existing cluster, given by its kubeconfig: the interface of `cluster.Cluster`, as far as possible."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import yaml

from .cluster import Cluster, NotStartedError
from .hardware import offers

if TYPE_CHECKING:
    from collections.abc import Iterator


class Given(Cluster):
    """Nothing is started or stopped here. A test that would is skipped; nodes are restored to their original state."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        """Connect to the cluster; `folder`: files read by the fakes of its nodes, if available (`behave`)."""
        super().__init__(folder, {}, "", [])
        self.kubeconfig = kubeconfig
        self._found = {name: node for name, node in self._listed().items() if self._fits(node)}
        self.nodes = sorted(self._found)
        if not self.nodes:
            wanted = " and ".join(offers())
            raise NotStartedError(f"no node of this cluster offers {wanted}: tests/real_cluster/kind.py shows how")

    def _listed(self) -> dict[str, dict[str, Any]]:
        items = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]
        return {node["metadata"]["name"]: node for node in items}

    def _fits(self, node: dict[str, Any]) -> bool:
        allocatable, spec = node["status"].get("allocatable", {}), node["spec"]
        return all(int(allocatable.get(name, "0")) >= count for name, count in offers().items()) and not spec.get(
            "unschedulable"
        )

    def _program(self, module: str, name: str) -> Path:
        found = shutil.which(name)
        if found is None:
            raise NotStartedError(f"{name} does not exist")
        return Path(found)

    def write_kubeconfig(self, path: Path, token: str, namespace: str = "default") -> None:
        """Write a kubeconfig for the owner of this token."""
        config = json.loads(self.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
        config["users"] = [{"name": "user", "user": {"token": token}}]
        config["contexts"][0]["context"] |= {"user": "user", "namespace": namespace}
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config), encoding="utf-8")

    def restore(self) -> None:
        """Remove the tests' additions to the nodes."""
        if self._has_fakes():
            self.behave()
        for name, before in self._found.items():
            node = self._listed()[name]
            if node["spec"].get("unschedulable"):
                self.kubectl("uncordon", name)
            had = [(each["key"], each["effect"]) for each in before["spec"].get("taints", [])]
            for taint in node["spec"].get("taints", []):
                if (taint["key"], taint["effect"]) not in had and not taint["key"].startswith("node.kubernetes.io/"):
                    self.kubectl("taint", "node", name, f"{taint['key']}:{taint['effect']}-")

    def _has_fakes(self) -> bool:
        return all((self.folder / "nodes" / name / "hardware/node.json").exists() for name in self.nodes)

    def behave(self, **collective: Any) -> None:
        """Behave as in our own cluster, if the files of its fakes are on this machine."""
        if not self._has_fakes():
            self._not_ours("change how its GPUs behave")
        super().behave(**collective)

    def make_unhealthy(self, node: str, *devices: str) -> None:
        """Skip: its device plugin is not ours."""
        self._not_ours(f"report {', '.join(devices)} of {node} as unhealthy")

    def audit(self) -> Iterator[dict[str, Any]]:
        """Return nothing: only the verdict shows a refused request (tests/e2e reads audit logs, too)."""
        return iter(())

    def start(self) -> NoReturn:
        """Start nothing."""
        self._not_ours("start it")

    start_control_plane = start_scheduler = start_api_server = start

    def stop_program(self, *_: object) -> NoReturn:
        """Skip: nothing is stopped."""
        self._not_ours("stop its programs")

    def start_node(self, name: str) -> NoReturn:
        """Skip: no node is started."""
        self._not_ours(f"start {name}")

    start_kubelet = start_node

    def inside(self, node: str, *argv: str) -> NoReturn:
        """Skip: nothing runs on a node itself."""
        self._not_ours(f"run {argv[0]} on {node}")

    @staticmethod
    def _not_ours(what: str) -> NoReturn:
        pytest.skip(f"needs our own cluster: to {what}")
