"""Differences to a real cluster: conversations recorded with Kubernetes 1.36, replayed on this server.

Only cases without a running pod are replayed here; the whole contract is replayed on `python -m lab healthy`.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.waiting import HANG_S

CASES = [
    "apply-server-side",
    "auth-bad-token",
    "auth-forbidden-texts",
    "auth-rules-review",
    "auth-self-subject-access-review",
    "auth-who-am-i",
    "configmap-crud",
    "configmap-generate-name",
    "configmap-immutable",
    "crd-mpijob",
    "delete-collection",
    "delete-preconditions",
    "discovery-aggregated",
    "discovery-core-resources",
    "discovery-paths-wrong",
    "discovery-roots",
    "discovery-version-and-health",
    "dry-run",
    "events-api",
    "job-defaults",
    "list-field-selectors",
    "list-label-selectors",
    "list-metadata-only",
    "list-table",
    "malformed-bodies",
    "namespace-lifecycle",
    "owner-garbage-collection",
    "patch-json",
    "patch-merge",
    "pod-defaults",
    "pod-immutable",
    "pvc-claims",
    "rbac-objects",
    "secret-crud",
    "service-crud",
    "serviceaccount-crud",
    "watch-all-namespaces",
    "watch-from-resource-version",
    "watch-live",
]


@pytest.fixture(scope="module")
def replayed(cluster, shared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("contract")
    (folder / "admin").write_text(cluster.server.kubeconfig)
    (folder / "nobody").write_text(cluster.server.nobody_kubeconfig)
    command = [sys.executable, shared / "api-contract" / "replay.py", "--jobs", "4", "--json", folder / "out.json"]
    command += ["--kubeconfig", folder / "admin", "--nobody-kubeconfig", folder / "nobody"]
    for name in CASES:
        command += ["--case", name]
    subprocess.run(command, check=False, capture_output=True, timeout=HANG_S)
    outcomes = json.loads((folder / "out.json").read_text())
    return {
        outcome["case"]: [difference for step in outcome["steps"] for difference in step["differences"]]
        for outcome in outcomes
        if outcome["result"] != "n/a"
    }


@pytest.mark.parametrize("name", CASES)
def test_a_recorded_conversation_goes_the_same_way(replayed, name):
    """A response that once equalled the real server's must stay equal."""
    assert replayed[name] == [], replayed[name]
