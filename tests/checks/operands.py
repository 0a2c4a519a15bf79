"""Pods of the GPU stack and labelled nodes, as the inventory holds them."""

from jobs.cluster.client.errors import api_error
from jobs.cluster.facts.inventory import PodUse

PLUGIN = "nvidia-device-plugin-daemonset"


def pod(name, node="a", *, ready=True, trouble="", images=(), app=""):
    return PodUse(
        namespace="gpu-operator",
        name=name,
        node=node,
        requests={},
        owner=f"DaemonSet/{name}",
        phase="Running",
        ready=ready,
        trouble=trouble,
        images=tuple(images),
        app=app,
    )


def labelled(node, name, **labels):
    return node(name, labels={key.replace("__", "/").replace("_", "."): value for key, value in labels.items()})


def policy(state, name="p", **conditions):
    said = [{"type": kind, "status": "True", "reason": "R", "message": text} for kind, text in conditions.items()]
    return {
        "metadata": {"name": name},
        "status": {"state": state, "conditions": said},
        "spec": {"toolkit": {"version": "v1.19.0-ubuntu20.04"}, "driver": {"version": "580.1", "enabled": False}},
    }


class Lists:
    """A server that serves some versions of a kind."""

    namespace = "team"

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def list(self, path):
        self.asked.append(path)
        answer = next((value for key, value in self.answers.items() if f"/{key}/" in path), 404)
        if isinstance(answer, int):
            raise api_error(f"GET {path}", answer, {"message": "no"})
        return answer, "1"

    def get(self, path):
        return self.list(path)[0]
