"""A served scenario, a small probe, and a run's leftovers: for tests that need a cluster with real pods."""

import json
import sys

import pytest

from jobs.cluster.client.kube import path
from jobs.trial.job_spec import new_run_id
from jobs.trial.parts import Collective, Deadlines, NetworkSpec
from jobs.trial.spec import TrialSpec
from tests.program import Lab
from tests.waiting import HANG_S

PROBE = """
import json, os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))  # the first process of a pod has no default for it
rank = int(os.environ["NODE_RANK"])
def say(n, stage, data):
    print(json.dumps({"seatrial": 1, "run": os.environ["SEATRIAL_RUN"], "rank": rank, "n": n, "stage": stage, "seconds": 0.0, "data": data}), flush=True)
print("seatrial rank %d: start starts" % rank)
say(1, "start", {"env": dict(os.environ)})
time.sleep(float(os.environ.get("NAP", "0")))
print("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz")
say(2, "end", {})
with open("/dev/termination-log", "w") as out:
    json.dump({"seatrial": 1, "run": os.environ["SEATRIAL_RUN"], "rank": rank, "lines": 2, "stages": {"start": "ok"}}, out)
raise SystemExit(int(os.environ.get("EXIT", "0")))
"""
SLEEPS = "trap 'exit 143' TERM; sleep 600 & wait"
"""For a shell: until it is asked to end, which the first process of a pod does not heed by itself."""
HERE = Deadlines(start_s=HANG_S, probe_s=HANG_S)


class Sim:
    """A served scenario."""

    def __init__(self, root, folder, scenario):
        self.config = folder / f"{scenario}.kubeconfig"
        arguments = [scenario, "--write-kubeconfig", str(self.config), "--json", "--until-stdin-closes"]
        self._process = Lab([sys.executable, "-m", "lab", *arguments], cwd=root)
        line = self._process.stdout.readline()
        if not line:
            pytest.fail(f"the simulated cluster did not start: {self._process.stderr.read()[-500:]!r}")
        assert json.loads(line)["ready"]

    def close(self):
        self._process.stdin.close()
        self._process.wait(HANG_S)
        self._process.stdout.close()
        self._process.stderr.close()


def spec(kube, **more):
    fields = {
        "run_id": new_run_id(),
        "namespace": kube.namespace,
        "image": "nvcr.io/nvidia/pytorch:25.08-py3",
        "deadlines": HERE,
        "tolerations": ({"key": "nvidia.com/gpu", "operator": "Exists"},),
        "collectives": (Collective(name="ring"),),
        "network": NetworkSpec(seconds=0.1),
    }
    return TrialSpec(**(fields | more))


def left_over(kube):
    kinds = (("jobs", "batch"), ("services", ""), ("configmaps", ""), ("pods", ""))
    leftovers = []
    for resource, group in kinds:
        items, _ = kube.list(
            path(resource, namespace=kube.namespace, group=group), labelSelector="app.kubernetes.io/managed-by=seatrial"
        )
        leftovers += [f"{resource}/{item['metadata']['name']}" for item in items]
    return leftovers
