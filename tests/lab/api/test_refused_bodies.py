"""Refusals of the API server with the fields that they name, compared with a kube-apiserver.

(v1.20.2, built from its source; rules that have changed since then are omitted.)
"""

import copy

import pytest

CONTAINER = {"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
SPECS = {
    "pods": {"containers": [CONTAINER], "volumes": [{"name": "v", "emptyDir": {}}], "securityContext": {}},
    "limitranges": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}}]},
    "persistentvolumeclaims": {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "fast",
    },
}
SECCOMP = "spec.securityContext.seccompProfile"
LIMIT = "spec.limits[0]"


def placed(spec, path, value):
    """Return the spec with another value at that path."""
    made = copy.deepcopy(spec)
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return made


@pytest.mark.parametrize(
    ("plural", "path", "value", "fields"),
    [
        ("pods", ["securityContext", "seccompProfile"], {}, {f"{SECCOMP}.type"}),
        ("pods", ["securityContext", "seccompProfile"], {"type": "runtimedefault"}, {f"{SECCOMP}.type"}),
        ("pods", ["securityContext", "seccompProfile"], {"type": "Localhost"}, {f"{SECCOMP}.localhostProfile"}),
        ("pods", ["securityContext", "runAsUser"], -1, {"spec.securityContext.runAsUser"}),
        ("pods", ["containers", 0, "env"], [None], {"spec.containers[0].env[0].name"}),
        ("pods", ["volumes", 0], None, {"spec.volumes[0].name", "spec.containers[0].volumeMounts[0].name"}),
        (
            "pods",
            ["volumes", 0, "emptyDir"],
            {"sizeLimit": "-1"},
            {"spec.volumes[0].emptyDir.sizeLimit", "spec.containers[0].volumeMounts[0].name"},
        ),
        ("limitranges", ["limits", 0, "type"], "container", {f"{LIMIT}.type"}),
        ("limitranges", ["limits"], [{"type": "Pod", "max": {"cpu": "1"}}] * 2, {"spec.limits[1].type"}),
        (
            "limitranges",
            ["limits", 0, "max"],
            {"cpu": "0.5"},
            {f"{LIMIT}.min[cpu]", f"{LIMIT}.default[cpu]", f"{LIMIT}.defaultRequest[cpu]"},
        ),
        ("limitranges", ["limits", 0, "defaultRequest"], {"cpu": "3"}, {f"{LIMIT}.defaultRequest[cpu]"}),
        ("limitranges", ["limits", 0], {"type": "Pod", "default": {"cpu": "1"}}, {f"{LIMIT}.default"}),
        ("limitranges", ["limits", 0], {"type": "PersistentVolumeClaim"}, {f"{LIMIT}.limits"}),
        ("persistentvolumeclaims", ["storageClassName"], "Not a class", {"spec.storageClassName"}),
    ],
)
def test_the_same_fields_are_named_as_by_a_real_server(cluster, space, plural, path, value, fields):
    """The response is 422 with the causes that a real API server lists."""
    body = {"metadata": {"name": "x"}, "spec": placed(SPECS[plural], path, value)}
    answer = cluster("POST", f"/api/v1/namespaces/{space}/{plural}?dryRun=All", body)
    assert answer.code == 422, answer.raw
    assert {cause["field"] for cause in answer.json["details"]["causes"]} == fields


def test_metadata_that_is_null_is_empty(cluster, space):
    """A null is not a value of the wrong type."""
    answer = cluster("POST", f"/api/v1/namespaces/{space}/configmaps?dryRun=All", {"metadata": None, "data": {}})
    assert (answer.code, answer.json["details"]["causes"][0]["field"]) == (422, "metadata.name")


def test_an_event_may_have_any_name_that_a_path_holds(cluster, space):
    """Event names contain the name of their object, which may be anything."""
    about = {"kind": "Pod", "name": "P", "namespace": space}
    body = {
        "metadata": {"name": "Upper Case"},
        "involvedObject": about,
        "reason": "R",
        "message": "m",
        "type": "Normal",
    }
    assert cluster("POST", f"/api/v1/namespaces/{space}/events?dryRun=All", body).code == 201
