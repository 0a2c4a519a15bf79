"""The container of a pod that `seatrial job logs` reads."""

import pytest

from jobs.run.containers import DEFAULT_CONTAINER, speaking

ENDED = {"terminated": {"exitCode": 0}}
FAILED = {"terminated": {"exitCode": 3}}
WAITS = {"waiting": {"reason": "PodInitializing"}}


def pod(*names, default="", **states):
    init = [{"name": name, "restartCount": 0, "state": state} for name, state in states.items() if name not in names]
    main = [{"name": name, "restartCount": 0, "state": state} for name, state in states.items() if name in names]
    return {
        "metadata": {"annotations": {DEFAULT_CONTAINER: default} if default else None},
        "spec": {"containers": [{"name": name} for name in names]},
        "status": {"initContainerStatuses": init, "containerStatuses": main},
    }


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (pod("main"), "main"),
        (pod("proxy", "main", default="main"), "main"),
        (pod("proxy", "main", default="gone"), "proxy"),
        (pod("main", fetch=FAILED, main=WAITS), "fetch"),
        (pod("main", fetch=ENDED, unpack=FAILED, main=WAITS), "unpack"),
        (pod("main", fetch=ENDED, main=WAITS), "main"),
        (pod("main", fetch=FAILED, main=FAILED), "main"),
        ({}, ""),
    ],
    ids=["one", "injected", "misnamed", "init", "second-init", "init-well", "sidecar-killed-later", "nothing"],
)
def test_the_container_that_reports_for_a_pod_is_read(given, name):
    """An injected proxy that comes first has no training output, and neither has a container that never started."""
    assert speaking(given) == name
