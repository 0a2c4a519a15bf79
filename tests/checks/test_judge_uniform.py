"""Allowed differences between nodes of one pool, and drift."""

from dataclasses import replace

import pytest

from checks.profiles.loader import Profile
from checks.profiles.schema import StackSection
from checks.rules import nodes as node_rules


def test_drift_names_the_odd_one(node, bad):
    """The node that differs from the majority is at fault, with value and count (nodes.drift)."""
    nodes = [node("a"), node("b"), replace(node("c"), kernel="6.8.0-52")]
    (wrong,) = [f for f in node_rules.unlike_nodes(nodes) if not f.ok]
    assert (wrong.subject, wrong.fault) == ("c", "nodes.drift")
    assert (wrong.observed, wrong.expected) == ("kernel 6.8.0-52", "kernel 6.8 as on 2 of 3 nodes")
    assert bad(node_rules.unlike_nodes(nodes, ["kernel"])) == []
    assert (
        bad(node_rules.unlike_nodes([node("a"), node("b", labels={"nvidia.com/cuda.driver-version.full": "580"})]))
        == []
    )


@pytest.mark.parametrize(
    ("other", "drifts"),
    [
        ({"kubelet": "v1.36.4-gke.1201000"}, False),
        ({"kubelet": "v1.35.9"}, True),
        ({"os": "Ubuntu 24.04.1 LTS"}, False),
        ({"os": "Ubuntu 22.04.5 LTS"}, True),
        ({"runtime": "containerd://1.7.28"}, True),
        ({"kernel": "6.8.0-1030-aws"}, True),
    ],
)
def test_patch_releases_of_kubelet_and_system_are_no_drift(node, bad, other, drifts):
    """A managed pool has two of them during a rollout; kernel and runtime must match in the last number."""
    nodes = [replace(node(name), os="Ubuntu 24.04.3 LTS") for name in "ab"]
    faults_raised = bad(node_rules.unlike_nodes([*nodes, replace(nodes[0], name="c", **other)]))
    assert faults_raised == ([("c", "nodes.drift")] if drifts else [])


def test_a_tie_raises_no_fault(node, bad):
    """With two against two, or one against one, the finding lists every value; a third node decides."""
    old = replace(node("b"), kernel="6.8.0-52", os="Ubuntu 22.04")
    for nodes in ([node("a"), old], [old, node("a")], [node("a"), old, replace(old, name="c"), node("d")]):
        assert bad(node_rules.unlike_nodes(nodes)) == [("kernel", "nodes.drift")]
        finding = next(f for f in node_rules.unlike_nodes(nodes) if f.subject == "kernel")
        assert "6.8 on a" in finding.observed
        assert "6.8.0-52 on b" in finding.observed
    assert bad(node_rules.unlike_nodes([node("a"), old, replace(old, name="c")])) == [("a", "nodes.drift")]
    thirds = [replace(node(name), kernel=name) for name in "abc"]
    assert bad(node_rules.unlike_nodes(thirds)) == [("kernel", "nodes.drift")]
    assert bad(node_rules.unlike_nodes(thirds, ["kernel"])) == []


def test_machines_of_another_kind_are_compared_with_their_own(node, bad):
    """GB200 next to H100, or two instance types, if no profile selects one pool; an unlabelled node is not a separate
    kind."""
    x86 = {"kubernetes.io/arch": "amd64", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    arm = {"kubernetes.io/arch": "arm64", "nvidia.com/gpu.product": "NVIDIA-GB200"}
    nodes = [
        node("a", labels=x86),
        node("b", labels=x86),
        *(replace(node(n, labels=arm), kernel="6.8.0-nvidia-64k") for n in "cd"),
    ]
    assert bad(node_rules.unlike_nodes(nodes)) == []
    silent = replace(node("e", labels={"kubernetes.io/arch": "amd64"}), kernel="6.8.0-52")
    assert bad(node_rules.unlike_nodes([*nodes, silent])) == [("e", "nodes.drift")]
    types = [
        replace(node(n, labels={"node.kubernetes.io/instance-type": t}), kernel=t)
        for n, t in zip("abcd", ("p4d", "p4d", "g5", "g5"), strict=True)
    ]
    assert bad(node_rules.unlike_nodes(types)) == []


@pytest.mark.parametrize(
    ("kubelet", "ok"), [("v1.36.9", True), ("v1.33.0", True), ("v1.32.9", False), ("v1.37.0", False), ("", None)]
)
def test_kubelets_are_held_to_kubernetes_own_rule(node, kubelet, ok):
    """A kubelet is not newer than the server and at most three minor versions older (nodes.kubelet-skew); an unknown
    version is not judged."""
    (finding,) = node_rules.kubelet_skew([replace(node("a"), kubelet=kubelet)], "v1.36.2")
    assert finding.ok is ok
    assert finding.fault == ("nodes.kubelet-skew" if ok is False else "")


def test_the_profile_says_what_may_differ_in_words_that_exist():
    """A misspelt fact would allow every difference, or none."""
    with pytest.raises(ValueError, match="did you mean kernel"):
        StackSection(may_differ=("kernal",))
    assert Profile().stack.may_differ == ()
