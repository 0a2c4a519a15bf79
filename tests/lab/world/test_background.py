"""A cluster for blocking programs: in a thread, for the duration of a `with` block."""

import subprocess
import sys
import threading

import pytest

from lab import ScenarioError, running


def nodes(path):
    from kubernetes import client, config

    with client.ApiClient(_settings(client, config, path)) as api:
        return client.CoreV1Api(api).list_node().items


def _settings(client, config, path):
    settings = client.Configuration()
    config.load_kube_config(str(path), client_configuration=settings)
    settings.proxy = None
    return settings


def test_a_blocking_client_meets_the_cluster(tmp_path):
    """The official client runs in the test's thread; the kubeconfig is private; afterwards nothing remains."""
    before = threading.active_count()
    with running("gpu-missing") as cluster:
        path = cluster.write_kubeconfig(tmp_path / "kubeconfig")
        assert path.stat().st_mode & 0o777 == 0o600
        assert [node.status.allocatable["nvidia.com/gpu"] for node in nodes(path)] == ["8", "7"]
        assert cluster.server in cluster.nobody_kubeconfig
    assert threading.active_count() <= before + 1  # the client's own pool, if any


def test_a_test_breaks_something_while_it_runs(tmp_path):
    """`do` runs between two requests and returns or raises the change's result."""
    with running() as cluster:
        path = cluster.write_kubeconfig(tmp_path / "kubeconfig")

        def cordon(node):
            node["spec"]["unschedulable"] = True

        cluster.do(lambda store: store.mutate("nodes", None, "gpu-node-1", cordon))
        assert [bool(node.spec.unschedulable) for node in nodes(path)] == [False, True]
        with pytest.raises(KeyError):
            cluster.do(lambda _: {}["nothing"])


def test_api_faults_are_counted():
    """The number of faults so far is available, so that a test knows that it was effective."""
    with running(api_faults="throttled:1") as cluster:
        script = "import sys, urllib.request, ssl\nfor _ in range(30):\n try: urllib.request.urlopen(sys.argv[1] + '/version', context=ssl._create_unverified_context())\n except OSError: pass"
        subprocess.run([sys.executable, "-c", script, cluster.server], check=True, env={})
        assert 0 < cluster.happened["throttle"] < 30


def test_a_scenario_that_does_not_exist_starts_nothing():
    """The message is the usual one."""
    before = threading.active_count()
    with pytest.raises(ScenarioError, match="did you mean"), running("heathy"):
        pass
    assert threading.active_count() == before


def test_a_dead_server_has_no_store():
    """api-down: there is an address without a server."""
    with running("api-down") as cluster, pytest.raises(ValueError, match="nothing behind"):
        cluster.do(lambda store: store)
