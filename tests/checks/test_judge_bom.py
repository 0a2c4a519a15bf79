"""The bill of materials, and the metrics that the profile asks for."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from checks import test_bom as bom_checks
from checks import test_observability as metric_checks
from checks.framework.evidence import CannotTell, CheckFailed
from checks.profiles.loader import Profile
from checks.profiles.schema import ImagesSection, ObservabilitySection, StackSection
from checks.rules import bom as bom_rules
from checks.rules import pool
from jobs.cluster.facts.stack import Listing
from tests.checks.operands import PLUGIN, pod, policy


def test_metrics_are_asked_for_by_the_profile(inventory, node, h100, evidence):
    """Each node needs a ready exporter (observability.dcgm-missing)."""
    cluster = replace(inventory([node("a"), node("b")]), pods=(pod("nvidia-dcgm-exporter-1", "a"),))
    mine = pool.pool_of(cluster, h100)
    with pytest.raises(pytest.skip.Exception):
        metric_checks.test_gpu_metrics_are_exported(cluster, mine, h100, evidence)
    with pytest.raises(CheckFailed):
        metric_checks.test_gpu_metrics_are_exported(
            cluster, mine, replace(h100, observability=ObservabilitySection(dcgm_exporter=True)), evidence
        )
    assert [(f.subject, f.fault) for f in evidence.findings if not f.ok] == [("b", "observability.dcgm-missing")]


@pytest.mark.parametrize(
    ("monitors", "ok"),
    [
        (Listing(served=False), False),
        (Listing(), False),
        (Listing(({"metadata": {"name": "coredns"}, "spec": {}},)), False),
        (
            Listing(
                ({"metadata": {"name": "gpu"}, "spec": {"selector": {"matchLabels": {"app": "nvidia-dcgm-exporter"}}}},)
            ),
            True,
        ),
        (Listing(({"metadata": {"name": "nvidia-dcgm-exporter"}},)), True),
    ],
)
def test_a_service_monitor_must_mean_the_exporter(monitors, ok, h100, evidence):
    """A ServiceMonitor is recognised by name or by selector (observability.servicemonitor-missing)."""
    monitored = replace(h100, observability=ObservabilitySection(service_monitor=True))
    if ok:
        return metric_checks.test_gpu_metrics_are_scraped(lambda _: monitors, monitored, evidence)
    with pytest.raises(CheckFailed):
        metric_checks.test_gpu_metrics_are_scraped(lambda _: monitors, monitored, evidence)
    assert [f.fault for f in evidence.findings] == ["observability.servicemonitor-missing"]
    return None


def recorded(version="v1.36.2"):
    kube = SimpleNamespace(version=lambda: {"gitVersion": version})
    return SimpleNamespace(kube=kube, run=SimpleNamespace(bom={}), profile=Profile())


def test_storage_clients_and_firmware_are_recorded_as_they_are_seen(inventory, node):
    """CSI drivers come from images without sidecars, BMC and firmware from labels; a plain node has none."""
    labels = {"feature.node.kubernetes.io/local-bmc-version": "2.1", "example.com/bios": "1.4", "zone": "bios"}
    labels["example.com/nvswitch.fw"] = "96.10.6D.00.01"
    pods = (
        pod(
            "efs-csi-node-x",
            images=["r/eks/aws-efs-csi-driver:v2.1.0", "r/sig-storage/csi-node-driver-registrar:v2.10"],
        ),
        pod("csi-rbd-x", images=["quay.io/cephcsi/cephcsi:v3.12.0", "r/livenessprobe:v2"]),
        pod("app-x", images=["r/physics:v1"]),
    )
    cluster = replace(inventory([node("a", labels=labels), node("b")]), pods=pods)
    bom = bom_rules.from_api("v1.36.2", cluster.nodes, cluster, ())
    assert bom["storage clients"] == {
        "r/eks/aws-efs-csi-driver:v2.1.0": "v2.1.0",
        "quay.io/cephcsi/cephcsi:v3.12.0": "v3.12.0",
    }
    assert bom["firmware labels"] == {
        "example.com/bios": {"1.4": 1},
        "example.com/nvswitch.fw": {"96.10.6D.00.01": 1},
        "feature.node.kubernetes.io/local-bmc-version": {"2.1": 1},
    }
    bare = inventory([node("b")])
    assert not {"storage clients", "firmware labels"} & bom_rules.from_api("v1", bare.nodes, bare, ()).keys()


def test_what_no_one_can_see_is_repeated_as_not_verified():
    """A switch baseline comes from the profile; a model's image is pinned by digest or not."""
    models = ("r/m:1", "r/n@sha256:" + "a" * 64)
    asked = replace(
        Profile(), stack=StackSection(baseline={"switches": "Quantum-2 31.2014"}), images=ImagesSection(models=models)
    )
    assert bom_rules.from_profile(Profile()) == {}
    bom = bom_rules.from_profile(asked)
    assert bom["not verified"] == {"switches": "Quantum-2 31.2014"}
    assert list(bom["model images"].values()) == ["by a mutable tag", "by digest"]


def test_the_platform_is_recorded_with_counts(inventory, node, h100, evidence):
    """Every value has its number of nodes, so that two reports can be compared."""
    cluster = replace(inventory([node("a"), node("b")]), pods=(pod(f"{PLUGIN}-1", images=["nvcr.io/p:v0.18.0"]),))
    session = recorded()
    listed = Listing((policy("ready"),))
    bom_checks.test_platform_is_on_record(session, cluster, pool.pool_of(cluster, h100), lambda _: listed, evidence)
    bom = session.run.bom
    assert bom["kubernetes"] == "v1.36.2"
    assert bom["nodes"]["kernel"] == {"6.8": 2}
    assert bom["software"]["device-plugin"] == {"nvcr.io/p:v0.18.0": "v0.18.0"}
    assert bom["container toolkit"] == "v1.19.0"


def test_a_tenant_records_what_it_sees_and_nothing_is_an_error(inventory, evidence):
    """The version alone is recorded; without it there is no record."""
    session = recorded()
    bom_checks.test_platform_is_on_record(
        session, inventory([]), pool.Pool(), lambda _: Listing(hidden="tenant"), evidence
    )
    assert session.run.bom == {"kubernetes": "v1.36.2"}
    evidence.__init__()
    with pytest.raises(CannotTell):
        bom_checks.test_platform_is_on_record(recorded(""), inventory([]), pool.Pool(), lambda _: Listing(), evidence)


def test_a_tag_that_nodes_resolved_to_two_images_is_recorded_with_both():
    """The tag moved between two pulls: the second pod does not hide the first pod's image."""
    pulled = [{"c": ("r/pytorch:25.08", "r/pytorch@sha256:aa")}, {"c": ("r/pytorch:25.08", "r/pytorch@sha256:bb")}]
    trial = SimpleNamespace(evidence={}, pods=[SimpleNamespace(images=images) for images in pulled])
    both = {"r/pytorch:25.08": "r/pytorch@sha256:aa and r/pytorch@sha256:bb"}
    assert bom_rules.from_trial(trial, {})["images"] == both
    assert bom_rules.from_trial(SimpleNamespace(evidence={}, pods=trial.pods[:1]), {})["images"] == dict(
        [pulled[0]["c"]]
    )
