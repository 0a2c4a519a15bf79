"""A container starts with a kubelet's environment and files (api-contract, pod-env, pod-volumes)."""

import base64
from pathlib import Path

import pytest

from lab.node.environment import ConfigError, Environment, expand, field, service_links
from lab.node.volumes import MountError, Volumes, pod_files
from tests.table import table

CM = {
    "kind": "ConfigMap",
    "data": {"CM_A": "1", "other": "two"},
    "binaryData": {"b": base64.b64encode(b"\x00").decode()},
}
SECRET = {"kind": "Secret", "data": {"k": base64.b64encode(b"secret value").decode()}}
OBJECTS = {("configmaps", "cm"): CM, ("secrets", "s"): SECRET}
POD = {
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "labels": {"app": "x", "q": 'a"b'},
        "annotations": {"note": "hi"},
    },
    "spec": {"nodeName": "n", "serviceAccountName": "default", "containers": []},
    "status": {"podIP": "10.244.0.7", "podIPs": [{"ip": "10.244.0.7"}], "hostIP": "10.0.0.1"},
}


def lookup(key, name):
    return OBJECTS.get((key, name))


def build(env=(), env_from=(), resources=None):
    container = {"name": "c", "env": list(env), "envFrom": list(env_from), "resources": resources or {}}
    return Environment(POD, container, lookup, {"cpu": "96", "memory": "1Ti"}, {"PATH": "/bin"}).build()


def source(**reference):
    return {"name": "V", "valueFrom": reference}


@table(
    "reference, value",
    [
        ({"fieldRef": {"fieldPath": "metadata.name"}}, "p"),
        ({"fieldRef": {"fieldPath": "metadata.labels['app']"}}, "x"),
        ({"fieldRef": {"fieldPath": "metadata.annotations['note']"}}, "hi"),
        ({"fieldRef": {"fieldPath": "status.podIP"}}, "10.244.0.7"),
        ({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}, "500"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "1"),
        ({"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}, "32"),
        ({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Gi"}}, "1024"),
        ({"configMapKeyRef": {"name": "cm", "key": "other"}}, "two"),
        ({"secretKeyRef": {"name": "s", "key": "k"}}, "secret value"),
    ],
)
def test_a_variable_can_come_from_everywhere(reference, value):
    """Fields, resources (rounded up; without a limit the node's amount), ConfigMap and Secret keys."""
    resources = {"limits": {"cpu": "500m"}, "requests": {"memory": "32Mi"}}
    assert build([source(**reference)], resources=resources)["V"] == value


def test_later_variables_win_and_see_earlier_ones():
    """envFrom with a prefix, then env; $(NAME) for known names, $$ as an escape, unknown ones unchanged."""
    env = build(
        [{"name": "F", "value": "p"}, {"name": "SUM", "value": "$(F)-$(CM_A)-$(UNKNOWN)-$$(F)"}],
        [{"configMapRef": {"name": "cm"}}, {"prefix": "X_", "configMapRef": {"name": "cm"}}],
    )
    assert env["SUM"] == "p-1-$(UNKNOWN)-$(F)"
    assert (env["CM_A"], env["X_other"], env["PATH"]) == ("1", "two", "/bin")
    assert expand("$$ $(F) $x", {"F": "1"}) == "$ 1 $x"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"env_from": [{"configMapRef": {"name": "no"}}]}, 'configmap "no" not found'),
        ({"env": [source(secretKeyRef={"name": "no", "key": "k"})]}, 'secret "no" not found'),
        ({"env": [source(secretKeyRef={"name": "s", "key": "no"})]}, "couldn't find key no in Secret ns/s"),
    ],
    ids=["config-map", "secret", "key"],
)
def test_what_is_missing_is_said_in_the_kubelets_words(arguments, text):
    """The waiting message of CreateContainerConfigError; optional references are no error."""
    with pytest.raises(ConfigError) as caught:
        build(**arguments)
    assert str(caught.value) == text


def test_optional_references_do_not_matter():
    """optional: true omits the variable."""
    env = build(
        [source(configMapKeyRef={"name": "no", "key": "k", "optional": True})],
        [{"secretRef": {"name": "no", "optional": True}}],
    )
    assert env == {"PATH": "/bin"}


def test_labels_are_quoted_in_the_downward_api():
    """One key="value" line each, quotes escaped."""
    assert field(POD, "metadata.labels") == 'app="x"\nq="a\\"b"'


def test_services_with_an_address_become_variables():
    """NAME_SERVICE_HOST and the link variables; headless services have none."""
    service = {"metadata": {"name": "my-db"}, "spec": {"clusterIP": "10.96.1.2", "ports": [{"port": 80}]}}
    headless = {"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}
    env = service_links([service, headless])
    assert (env["MY_DB_SERVICE_HOST"], env["MY_DB_SERVICE_PORT"]) == ("10.96.1.2", "80")
    assert env["MY_DB_PORT_80_TCP"] == "tcp://10.96.1.2:80"
    assert not any(name.startswith("H_") for name in env)


def volumes(tmp_path, *specs, mounts=()):
    pod = {**POD, "spec": {**POD["spec"], "volumes": list(specs)}}
    mounted = Volumes(pod, tmp_path / "pod", lookup, {"memory": "1Ti"}, tmp_path / "claims", lambda *_: "token")
    mounted.set_up()
    return mounted, mounted.mounts({"volumeMounts": list(mounts)}, {})


def test_a_config_map_is_mounted_by_items_with_modes_and_read_only(tmp_path):
    """Keys are written to the paths in items only."""
    spec = {"name": "cm", "configMap": {"name": "cm", "items": [{"key": "other", "path": "dir/a", "mode": 0o400}]}}
    _, mounts = volumes(tmp_path, spec, mounts=[{"name": "cm", "mountPath": "/seatrial"}])
    (mount,) = [m for m in mounts if m["target"] == "/seatrial"]
    assert mount["readonly"]
    folder = tmp_path / "pod" / "volumes" / "cm"
    assert str(folder) == mount["source"]
    assert [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()] == ["dir/a"]
    assert (folder / "dir" / "a").stat().st_mode & 0o777 == 0o400


def test_a_volume_never_leaves_its_folder(tmp_path):
    """A path with .. is not written."""
    volumes(tmp_path, {"name": "v", "configMap": {"name": "cm", "items": [{"key": "other", "path": "../../out"}]}})
    assert not (tmp_path / "pod" / "out").exists()


def test_memory_volumes_say_their_size(tmp_path):
    """emptyDir with medium Memory mounted at /dev/shm replaces the pod's 64 MiB."""
    spec = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    pod_volumes, mounts = volumes(tmp_path, spec, mounts=[{"name": "shm", "mountPath": "/dev/shm"}])
    assert [m["target"] for m in mounts] == ["/dev/shm"]
    assert pod_volumes.tmpfs[mounts[0]["source"]] == 1 << 30
    assert sorted(pod_volumes.tmpfs.values()) == [64 << 20, 1 << 30]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"name": "v", "configMap": {"name": "missing"}},
            'MountVolume.SetUp failed for volume "v" : configmap "missing" not found',
        ),
        (
            {"name": "v", "secret": {"secretName": "s", "items": [{"key": "no", "path": "x"}]}},
            'MountVolume.SetUp failed for volume "v" : references non-existent secret key: no',
        ),
        (
            {"name": "v", "hostPath": {"path": "/etc"}},
            'MountVolume.SetUp failed for volume "v" : hostPath /etc is refused: this simulated node has no such folder',
        ),
    ],
    ids=["config-map", "key", "host-path"],
)
def test_a_volume_without_its_source_says_so(tmp_path, spec, text):
    """The text is that of the FailedMount event."""
    with pytest.raises(MountError) as caught:
        volumes(tmp_path, spec)
    assert str(caught.value) == text


def test_projected_volumes_gather_their_sources(tmp_path):
    """The kube-api-access volume contains token, root certificate and namespace."""
    sources = [
        {"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": "cm", "items": [{"key": "other", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    volumes(tmp_path, {"name": "api", "projected": {"sources": sources}})
    folder = tmp_path / "pod" / "volumes" / "api"
    assert {p.name: p.read_text() for p in folder.iterdir()} == {"token": "token", "ca.crt": "two", "namespace": "ns"}


def test_a_pods_own_files_name_it_and_the_clusters_resolver(tmp_path):
    """/etc/hosts starts with the full name (hostname -f), resolv.conf has the order of the recordings."""
    mounts = pod_files(
        tmp_path,
        hostname="job-0",
        fqdn="job-0.job.ns.svc.cluster.local",
        ip="10.244.0.7",
        nameserver="10.96.0.10",
        search=["ns.svc.cluster.local"],
        options=["ndots:5"],
        aliases=[],
    )
    texts = {m["target"]: Path(m["source"]).read_text() for m in mounts}
    assert texts["/etc/hosts"].endswith("10.244.0.7\tjob-0.job.ns.svc.cluster.local\tjob-0\n")
    assert texts["/etc/resolv.conf"] == "search ns.svc.cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n"
