"""Declarations of the checks, and their results without a profile or without permissions."""

import ast
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from checks import test_bandwidth as bandwidth
from checks import test_nccl as nccl
from checks import test_nodes as nodes
from checks.framework.evidence import CannotTell, CheckFailed
from checks.profiles.loader import Profile
from checks.profiles.schema import FabricSection, LaunchSection
from checks.rules.job import UNFIT
from checks.rules.pool import Pool, pool_of
from jobs.cluster.facts.stack import Listing

MOST_LINES = 25

ANY_NODE = SimpleNamespace(options=SimpleNamespace(nodes=""))  # a session without --nodes


def functions(root):
    """Every check as (file, function node)."""
    for path in sorted((root / "checks").glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield path, node


def test_checks_are_declarations(root):
    """A check is short, has a docstring for operators, and neither catches, sleeps nor imports kubernetes."""
    checks = list(functions(root))
    assert len(checks) >= 20
    for path, node in checks:
        body = ast.unparse(node)
        assert not any(isinstance(n, ast.Try | ast.While) for n in ast.walk(node)), (path, node.name)
        assert "sleep" not in body
        lines = node.end_lineno - node.body[0].end_lineno
        assert lines <= MOST_LINES, (path, node.name, lines)
        doc = ast.get_docstring(node)
        assert doc, node.name
        assert len(doc.splitlines()) >= 3, node.name
    for path in {p for p, _ in checks}:
        assert not re.search(r"^\s*(import|from) kubernetes\b", path.read_text(), re.MULTILINE)


def test_every_check_declares_its_stage_and_ends_with_a_verdict(root):
    """One stage marker, a check marker with a stable id, and a verdict or a delegate that gives one."""
    ids = []
    for path, node in functions(root):
        marks = [ast.unparse(d) for d in node.decorator_list]
        stages = [m for m in marks if m in ("pytest.mark.preflight", "pytest.mark.acceptance")]
        assert len(stages) == 1, node.name
        (check,) = [m for m in marks if m.startswith("pytest.mark.check(")]
        ids.append(re.match(r"pytest\.mark\.check\('([a-z0-9.-]+)'", check)[1])
        last = ast.unparse(node.body[-1])
        assert last == "evidence.verdict()" or last.startswith(("evidence.judge(", "judge(")), (path, node.name)
    assert len(ids) == len(set(ids))


def test_prerequisites_are_checks_that_exist(root):
    """A misspelt prerequisite would block always or never."""
    markers = [d for _, n in functions(root) for d in n.decorator_list if "mark.check" in ast.unparse(d)]
    ids = {m.args[0].value for m in markers}
    named = [e for m in markers for k in m.keywords if k.arg in ("requires", "unless_failed") for e in k.value.elts]
    assert {ast.unparse(e) for e in named if not isinstance(e, ast.Constant)} == {"*UNFIT"}
    assert {*UNFIT, *(e.value for e in named if isinstance(e, ast.Constant))} <= ids
    assert set(Profile().required) <= ids


def test_a_tenant_without_nodes_gets_no_guess(spec, inventory, h100, evidence):
    """Hidden data is reported as not visible and neither passes nor fails."""
    hidden = inventory([], not_seen={"nodes": "nodes cannot be listed: forbidden"})
    with pytest.raises(CannotTell, match="not seen: nodes cannot be listed"):
        nodes.test_gpu_nodes_are_ready(hidden, Pool(), h100, spec, ANY_NODE, evidence)
    assert not evidence.findings


def nothing_listed(resource):
    return Listing()


def test_gpus_behind_their_own_name_are_counted_in_slices(inventory, node, spec, evidence, h100):
    """Kubernetes 1.36: a DeviceClass maps to nvidia.com/gpu. Pods request it as before, but no node counts it."""
    classes = Listing(({"metadata": {"name": "gpu.nvidia.com"}, "spec": {"extendedResourceName": "nvidia.com/gpu"}},))
    slices = Listing(
        tuple(
            {
                "spec": {
                    "driver": "gpu.nvidia.com",
                    "nodeName": name,
                    "pool": {"name": name, "generation": 1},
                    "devices": [{"name": f"gpu-{i}"} for i in range(count)],
                }
            }
            for name, count in (("a", 8), ("b", 7))
        )
    )
    listed = {"deviceclasses": classes, "resourceslices": slices}.__getitem__
    cluster = inventory([node(name, None, None, labels={"nvidia.com/gpu.present": "true"}) for name in "ab"])
    mine = pool_of(cluster, h100)
    with pytest.raises(CheckFailed, match=r"b: 7 devices of gpu\.nvidia\.com"):
        nodes.test_every_gpu_node_offers_all_its_gpus(mine, h100, spec, listed, evidence, cluster)
    assert [(f.subject, f.fault) for f in evidence.findings if not f.ok] == [("b", "dra.slices-missing")]
    with pytest.raises(pytest.skip.Exception, match="only the scheduler knows"):
        nodes.test_enough_gpus_are_free(cluster, mine, h100, spec, listed, evidence)
    with pytest.raises(CheckFailed, match=r"no nvidia\.com/gpu at all"):
        nodes.test_every_gpu_node_offers_all_its_gpus(
            mine, h100, spec, lambda _: Listing(hidden="no"), evidence, cluster
        )


def test_a_profile_that_counts_claimed_gpus_is_another_kinds(inventory, node, spec, evidence, h100):
    """The GPUs are published for claims, so the cluster is not at fault and is not judged."""
    cel = [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]
    classes = Listing(({"metadata": {"name": "gpu.nvidia.com"}, "spec": {"selectors": cel}},))
    slices = Listing(
        (
            {
                "spec": {
                    "driver": "gpu.nvidia.com",
                    "nodeName": "a",
                    "pool": {"name": "a", "generation": 1},
                    "devices": [{"name": f"gpu-{i}"} for i in range(8)],
                }
            },
        )
    )
    cluster = inventory([node(name, None, None, labels={"nvidia.com/gpu.present": "true"}) for name in "ab"])
    mine = pool_of(cluster, h100)
    with pytest.raises(CannotTell, match=r"8 devices of gpu\.nvidia\.com in ResourceSlices"):
        nodes.test_every_gpu_node_offers_all_its_gpus(
            mine, h100, spec, {"deviceclasses": classes, "resourceslices": slices}.__getitem__, evidence, cluster
        )
    assert {(f.ok, f.fault) for f in evidence.findings} == {(None, "nodes.other-kind")}
    with pytest.raises(
        CheckFailed, match=r"no nvidia\.com/gpu at all"
    ):  # no slices published: the device plugin is down
        nodes.test_every_gpu_node_offers_all_its_gpus(mine, h100, spec, nothing_listed, evidence, cluster)


def test_hidden_pods_make_free_gpus_unknown(inventory, node, spec, evidence):
    """Allocatable is visible, requests are not, so the free number is unknown."""
    hidden = inventory([node("a"), node("b")], not_seen={"pods": "forbidden"})
    with pytest.raises(CannotTell, match="the holders of the GPUs cannot be read"):
        nodes.test_enough_gpus_are_free(hidden, Pool(hidden.nodes), Profile(), spec, nothing_listed, evidence)


def test_without_a_profile_the_gpu_count_is_an_error_or_a_failure(inventory, node, spec, evidence):
    """A self-consistent node is not judged; a node that lost a GPU since then is at fault."""
    alike, lost = inventory([node("a"), node("b")]), inventory([node("a"), node("b", 8, 7)])
    with pytest.raises(CannotTell, match=r"no profile: the expected number of GPUs .* \(pass --profile NAME\)"):
        nodes.test_every_gpu_node_offers_all_its_gpus(Pool(alike.nodes), Profile(), spec, None, evidence, alike)
    evidence.findings.clear()
    with pytest.raises(CheckFailed, match="b: 7 allocatable of 8"):
        nodes.test_every_gpu_node_offers_all_its_gpus(Pool(lost.nodes), Profile(), spec, None, evidence, lost)


def test_nodes_that_are_not_needed_may_be_busy(inventory, node, spec, evidence):
    """Two free nodes of four are enough; the owners of the other GPUs are shown but not judged."""
    pods = [("x", "p", name, 8, "Job/other") for name in ("c", "d")]
    cluster = inventory([node(n) for n in "abcd"], pods)
    nodes.test_enough_gpus_are_free(cluster, Pool(cluster.nodes), Profile(), spec, nothing_listed, evidence)
    assert [f.ok for f in evidence.findings] == [True] * 4
    assert "in use by other workloads: Job/other" in evidence.findings[2].observed


def test_one_free_node_is_not_enough(inventory, node, spec, evidence):
    """Only the node that prevents the trial is named; a node in use is not a cluster fault."""
    cluster = inventory([node("a"), node("b")], [("x", "p", "b", 1, "")])
    with pytest.raises(CannotTell, match="7 of 8 free; in use by other workloads: Pod/p in x"):
        nodes.test_enough_gpus_are_free(cluster, Pool(cluster.nodes), Profile(), spec, nothing_listed, evidence)
    assert [(f.subject, f.fault) for f in evidence.findings if not f.ok] == [("b", "gpu.taken")]


def test_nodes_that_come_on_demand_are_waived(inventory, node, spec, evidence):
    """The profile may allow missing nodes, which are waived only if they do not exist yet."""
    awaited = Profile(launch=LaunchSection(nodes_on_demand=True))
    one = inventory([node("a")])
    with pytest.raises(pytest.skip.Exception, match="1 of 2 nodes exist"):
        nodes.test_gpu_nodes_are_ready(one, Pool(one.nodes), awaited, spec, ANY_NODE, evidence)
    assert evidence.waived
    both = inventory([node("a"), node("b")])
    nodes.test_enough_gpus_are_free(both, Pool(both.nodes), awaited, spec, nothing_listed, evidence)


def test_no_gpu_node_at_all_is_not_enough(inventory, spec, evidence):
    """An empty observation is never a pass."""
    with pytest.raises(CannotTell):
        nodes.test_enough_gpus_are_free(inventory([]), Pool(), Profile(), spec, nothing_listed, evidence)


def test_without_a_profile_fabric_rails_and_gdr_are_not_judged(trial, jobs, spec, evidence):
    """Without a profile, the right fabric and the number of rails are unknown."""
    for check in (nccl.test_data_goes_over_the_right_fabric, nccl.test_gpudirect_rdma_is_used):
        with pytest.raises(CannotTell, match="no profile"):
            check(trial, jobs, Profile(), evidence)
    with pytest.raises(CannotTell, match="no profile"):
        nccl.test_every_rail_carries_data(trial, jobs, spec, Profile(), evidence)


def test_a_fabric_without_gpudirect_skips_it(trial, jobs, evidence, h100):
    """The check is skipped with a reason, because it does not apply."""
    profile = replace(h100, fabric=FabricSection(kind="fastsocket", gdr=False))
    with pytest.raises(pytest.skip.Exception, match="has no GPUDirect"):
        nccl.test_gpudirect_rdma_is_used(trial, jobs, profile, evidence)


def test_without_a_floor_bandwidth_is_an_error(trial, jobs, spec, h100, evidence):
    """An unknown platform or node count never passes silently."""
    for profile, said in ((Profile(), "no profile"), (replace(h100, floors=()), "profile h100-ib has no floor")):
        with pytest.raises(CannotTell, match=said):
            bandwidth.test_the_network_reaches_its_floor(trial, jobs, spec, profile, evidence)
    with pytest.raises(CannotTell, match="3 nodes"):
        bandwidth.test_the_network_reaches_its_floor(trial, jobs, replace(spec, nodes=3), h100, evidence)


def test_where_no_floor_is_published_bandwidth_is_measured_and_waived(trial, jobs, spec, h100, evidence):
    """If the profile says so, the number is reported, and a floor given on the command line still applies."""
    profile = replace(h100, floors=(), unjudged="no floor published")
    with pytest.raises(pytest.skip.Exception, match=r"no floor published; measured, not judged: 38\d\.\d GB/s"):
        bandwidth.test_the_network_reaches_its_floor(trial, jobs, spec, profile, evidence)
    assert evidence.waived
    bandwidth.test_the_network_reaches_its_floor(trial, jobs, spec, replace(h100, unjudged="x"), evidence)


@pytest.mark.parametrize(
    ("busbw", "fabric", "said"),
    [(199.0, {}, "less than half"), (float("nan"), {}, "no number"), (386.0, {"rails": None}, "fabric.rails")],
)
def test_unjudged_is_no_pass_for_what_half_of_the_links_would_reach(
    trial, jobs, spec, h100, evidence, busbw, fabric, said
):
    """A fallback is inconclusive, and so is a missing number; an unknown link rate proves neither."""
    for row in jobs["ring"]["tables"][0]["rows"]:
        row["in_place"]["busbw_gbps"] = row["out_of_place"]["busbw_gbps"] = busbw
    profile = replace(h100, floors=(), unjudged="no floor published", fabric=replace(h100.fabric, **fabric))
    with pytest.raises(CannotTell, match=said):
        bandwidth.test_the_network_reaches_its_floor(trial, jobs, spec, profile, evidence)


def test_unjudged_still_fails_what_cannot_be(trial, jobs, spec, h100, evidence):
    """A rate above the link rate is a fault with any profile."""
    jobs["ring"]["tables"][0]["rows"][-1]["in_place"]["busbw_gbps"] = 480.0
    profile = replace(h100, floors=(), unjudged="no floor published")
    with pytest.raises(CheckFailed, match="480"):
        bandwidth.test_the_network_reaches_its_floor(trial, jobs, spec, profile, evidence)


def test_bandwidth_shows_its_floor_and_source(trial, jobs, spec, h100, evidence):
    """Every floor has a topology and a source."""
    bandwidth.test_the_network_reaches_its_floor(trial, jobs, spec, h100, evidence)
    assert any("coreweave/nccl-tests" in note and "350" in note for note in evidence.notes)
    evidence.findings.clear()
    bandwidth.test_users_get_the_bandwidth(trial, jobs, spec, h100, evidence)


def test_no_table_is_an_error(trial, jobs, spec, h100, evidence):
    """No measurement is never a pass."""
    jobs["ring"]["tables"] = []
    with pytest.raises(CannotTell, match="no table"):
        bandwidth.test_the_network_reaches_its_floor(trial, jobs, spec, h100, evidence)


def test_no_collective_at_all_is_an_error(trial, h100, evidence):
    """A missing log is reported."""
    with pytest.raises(CannotTell, match="no collective left a log"):
        nccl.test_no_data_goes_through_sockets(trial, {"ring": None}, h100, evidence)
