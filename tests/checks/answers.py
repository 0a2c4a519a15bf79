"""A server with configured answers, and its request objects, for tests of the API, admission and quota."""

from typing import Any

from jobs.cluster.client.errors import api_error
from jobs.cluster.client.http_client import Response
from jobs.cluster.client.kube import Allowed


class FakeKube:
    """Answers from a table that maps (method, path end) to a value or an error."""

    namespace = "team"
    server = "https://k"

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    def _answer(self, key, default=None):
        value = self.answers.get(key, default)
        if isinstance(value, Exception):
            raise value
        return value

    def version(self):
        return self._answer("version", {"gitVersion": "v1.36.2"})

    def whoami(self):
        return self._answer("whoami", "trainer")

    def server_time_skew(self):
        return self._answer("skew", 0.0)

    def get(self, path, **_):
        return self._answer("get", {"status": {"phase": "Active"}})

    def list(self, path, **_):
        return self._answer("quotas", []), "1"

    def create(self, path, body, *, dry_run=False, **_):
        assert dry_run, "a check creates nothing"
        self.asked.append(body["kind"])
        return self._answer(body["kind"], Response(201, body))

    def can(self, verb, resource, *, group="", subresource="", namespace=None, name=""):
        self.asked.append((verb, resource, group, subresource, namespace))
        denied = self.answers.get("denied", ())
        return Allowed((verb, resource) not in denied, "no RBAC policy matched")


def error(status, message, reason=""):
    return api_error("POST /x", status, {"message": message, "reason": reason})


JOB: dict[str, Any] = {
    "kind": "Job",
    "metadata": {"name": "seatrial-abc", "namespace": "team"},
    "spec": {
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "containers": [
                    {
                        "name": "trial",
                        "resources": {
                            "requests": {"cpu": "8", "memory": "32Gi"},
                            "limits": {"memory": "32Gi", "nvidia.com/gpu": "8"},
                        },
                    }
                ],
                "initContainers": [
                    {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
                    {"name": "once", "resources": {"requests": {"cpu": "9"}}},
                ],
            },
        }
    },
}


POD = {"kind": "Pod", "metadata": {"name": "seatrial-abc-0"}, "spec": JOB["spec"]["template"]["spec"]}


def quota(hard, used=None, **spec):
    return {"metadata": {"name": "q"}, "spec": spec, "status": {"hard": hard, "used": used or {}}}
