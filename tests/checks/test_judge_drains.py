"""Drains: blocking budgets, exposed jobs, and unaffected pods."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from checks.framework.evidence import Evidence
from checks.rules.drains import drain_findings, drain_notes
from checks.rules.rights import NEEDS
from checks.test_drains import test_drains_respect_training_jobs as drains_safe
from jobs.cluster.client.errors import Forbidden
from jobs.cluster.facts.drains import Budget, Drains, Rebooter, read_drains
from jobs.cluster.facts.stack import Listing
from reports.record import Run
from tests.table import table

GPU = "nvidia.com/gpu"
KURED = Rebooter(name="kube-system/kured", window="start-time 02:00", waits_for=(), draining=frozenset())


def budget(*pods, never=True, namespace="team"):
    return Budget(namespace, "guard", "maxUnavailable 0" if never else "maxUnavailable 1", never, frozenset(pods))


def judged(inventory, node, pods=(), *, labels=None, **drains):
    (finding,) = drain_findings([node("a", labels=labels)], inventory([], pods), Drains(**drains), GPU)
    return finding.ok, finding.fault, finding.observed


SERVICE, TRAINING = ("team", "web-0", "a", 0, "ReplicaSet/web"), ("team", "train-0", "a", 8, "Job/train")


def test_a_lasting_pod_whose_budget_never_lets_it_go_blocks_every_drain(inventory, node):
    """kubernetes.io: zero voluntary evictions, and the node cannot be drained."""
    ok, fault, observed = judged(inventory, node, [SERVICE], budgets=(budget("web-0"),))
    assert (
        (ok, fault) == (False, "drains.blocked")
        and "team/web-0" in observed
        and "team/guard (maxUnavailable 0)" in observed
    )


@pytest.mark.parametrize(
    ("pod", "guard"),
    [
        (SERVICE, budget("web-0", never=False)),
        (SERVICE, budget("web-0", namespace="other")),
        (SERVICE, budget("web-1")),
        (TRAINING, budget("train-0")),  # the job completes, then the drain continues
        (("team", "agent-0", "a", 0, "DaemonSet/agent"), budget("agent-0")),  # a drain ignores DaemonSet pods
        (("team", "web-0", "b", 0, "ReplicaSet/web"), budget("web-0")),  # on another node
    ],
)
def test_what_ends_or_may_go_blocks_no_drain(inventory, node, pod, guard):
    """A budget that works as intended is not a fault."""
    assert judged(inventory, node, [pod], budgets=(guard,))[:2] == (True, "")


def test_a_job_without_a_budget_is_exposed_where_nodes_reboot_by_themselves(inventory, node):
    """Without kured, or if kured waits, a missing budget is not a fault, since no drain is unannounced."""
    ok, fault, observed = judged(inventory, node, [TRAINING], rebooters=(KURED,))
    assert (ok, fault) == (None, "drains.unannounced") and "team/train-0" in observed and "start-time 02:00" in observed
    waiting = replace(KURED, holding=frozenset({("team", "train-0")}))
    uncounted = replace(budget("train-0", never=False), uncounted=True)
    guarded = ({"rebooters": (KURED,), "budgets": (each,)} for each in (budget("train-0"), uncounted))
    for drains in ({}, {"rebooters": (waiting,)}, *guarded):
        assert judged(inventory, node, [TRAINING], **drains)[:2] == (True, "")
    for owner in ("ReplicaSet/web", "StatefulSet/web", "DaemonSet/exporter", "Node/a"):
        assert judged(inventory, node, [("team", "web-0", "a", 8, owner)], rebooters=(KURED,))[0] is True
    for owner in ("PyTorchJob/train", "RayCluster/train", ""):  # pods without an owner train, too
        assert judged(inventory, node, [("team", "train-0", "a", 8, owner)], rebooters=(KURED,))[0] is None


@pytest.mark.parametrize(
    "drains",
    [
        {"budgets": (budget("train-0", never=False),)},  # the budget permits one eviction, and that ends the whole job
        {"rebooters": (replace(KURED, waits_for=("pods with app=web",)),)},  # it matches no pod of this node
        {"rebooters": (replace(KURED, holding=frozenset({("team", "web-7")})),)},
        {"rebooters": (replace(KURED, waits_for=("no alert in Prometheus",)),)},
        {"rebooters": (replace(KURED, holding=frozenset({("team", "train-0")})), KURED)},
    ],
)
def test_a_guard_that_does_not_hold_this_job_is_none(inventory, node, drains):
    assert judged(inventory, node, [TRAINING], **{"rebooters": (KURED,), **drains})[:2] == (None, "drains.unannounced")


def test_a_drain_under_way_is_nobodys_fault(inventory, node):
    """Detected by kured's lock or GKE's label; a scheduled drain is reported."""
    lock = replace(KURED, draining=frozenset({"a"}))
    assert judged(inventory, node, rebooters=(lock,))[:2] == (None, "drains.under-way")
    assert judged(inventory, node, rebooters=(replace(KURED, draining=frozenset({"b"})),))[0] is True
    label = "cloud.google.com/active-node-maintenance"
    assert judged(inventory, node, labels={label: "ONGOING"})[:2] == (None, "drains.under-way")
    ok, _, observed = judged(inventory, node, labels={"cloud.google.com/scheduled-maintenance-time": "1733083200"})
    assert ok is True and "1733083200" in observed


# -------------------------------------------------------------------------------------------------------------- reading


class Api:
    """Answers lists by path."""

    def __init__(self, budgets=(), daemons=(), refuses=False):
        self.budgets, self.daemons, self.refuses, self.asked = budgets, daemons, refuses, []

    def list(self, url, **params):
        if self.refuses:
            raise Forbidden("h: GET", status=403, message="poddisruptionbudgets is forbidden")
        self.asked.append((url, params.get("labelSelector")))
        if "poddisruptionbudgets" in url:
            return list(self.budgets), "1"
        if "daemonsets" in url:
            return list(self.daemons), "1"
        return [{"metadata": {"name": "web-0"}}], "1"


def pdb(spec, expected=1, namespace="team"):
    return {"metadata": {"name": "guard", "namespace": namespace}, "spec": spec, "status": {"expectedPods": expected}}


@table(
    "asks, never",
    [
        ({"maxUnavailable": 0}, True),
        ({"maxUnavailable": "0%"}, True),
        ({"maxUnavailable": 1}, False),
        ({"maxUnavailable": "10%"}, False),
        ({"minAvailable": "100%"}, True),
        ({"minAvailable": "50%"}, False),
        ({"minAvailable": "67%"}, True),  # 2.01 of 3 rounds up to 3
        ({"minAvailable": "x"}, False),
        ({"minAvailable": 2}, False),
        ({"minAvailable": 3}, True),
        ({"minAvailable": True}, False),
        ({}, False),
    ],
)
def test_a_budget_says_whether_it_ever_lets_a_pod_go(asks, never):
    """The budget's spec decides, not the number of currently ready pods."""
    drains = read_drains(Api([pdb(asks | {"selector": {}}, expected=3)]), {"team"})
    assert [each.never for each in drains.budgets] == [never]


def test_selectors_are_asked_as_they_stand():
    """An empty selector matches all pods of the namespace, an absent one none; other namespaces are not listed."""
    expression = {"key": "tier", "operator": "NotIn", "values": ["a", "b"]}
    both = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [expression, {"key": "gone", "operator": "DoesNotExist"}],
    }
    api = Api([pdb({"selector": both}), pdb({"selector": {}}), pdb({}), pdb({"selector": {}}, namespace="far")])
    drains = read_drains(api, {"team"})
    assert [sorted(each.pods) for each in drains.budgets] == [["web-0"], ["web-0"], []]
    assert [asked for _, asked in api.asked[2:]] == ["app=web,tier notin (a,b),!gone", ""]


def kured(command=(), env=(), lock=None, image="ghcr.io/kubereboot/kured:1.21.0"):
    containers = [{"name": "kured", "image": image, "command": list(command), "env": list(env)}]
    meta = {"name": "kured", "namespace": "kube-system", "annotations": {"weave.works/kured-node-lock": lock}}
    return {"metadata": meta, "spec": {"template": {"spec": {"containers": containers}}}}


def test_kured_is_read_from_its_options_and_its_lock():
    """kured's options may be one word or two, or in the environment, with several lock holders; malformed values are
    ignored."""
    command = ["/usr/bin/kured", "--start-time=02:00", "--end-time", "04:00", "--blocking-pod-selector=app=train"]
    one = '{"nodeID":"gpu-1","created":"2026-01-01T00:00:00Z"}'
    many = '{"maxOwners":2,"locks":[{"nodeID":"gpu-2"},{"nodeID":"gpu-3"},7]}'
    day = [{"name": "KURED_REBOOT_DAYS", "value": "sat"}]
    daemons = [kured(command, lock=one), kured(env=day, lock=many), kured(lock="{torn"), kured(image="x/other:1")]
    first, second, third = read_drains(Api(daemons=daemons), set()).rebooters
    assert first.window == "start-time 02:00 end-time 04:00" and first.draining == {"gpu-1"}
    assert first.waits_for == ("pods with app=train",) and first.holding == {("None", "web-0")}
    assert (second.window, second.draining, second.waits_for) == ("reboot-days sat", {"gpu-2", "gpu-3"}, ())
    assert (third.window, third.draining) == ("at any time", frozenset())


def test_a_budget_that_its_controller_cannot_count_is_reported():
    """A Job has no scale subresource, so its budget permits no eviction."""
    failed = pdb({"maxUnavailable": 1, "selector": {}})
    failed["status"]["conditions"] = [{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed"}]
    budgets = read_drains(Api([failed, pdb({"maxUnavailable": 1, "selector": {}})]), {"team"}).budgets
    assert [(each.never, each.uncounted) for each in budgets] == [(False, True), (False, False)]


def test_each_selector_of_kured_is_asked():
    """The option may be repeated; pods of any namespace match."""
    api = Api(daemons=[kured(["kured", "--blocking-pod-selector=app=train", "--blocking-pod-selector", "app=x"])])
    read_drains(api, set())
    assert [asked for url, asked in api.asked if url.endswith("/pods")] == ["app=train", "app=x"]


def test_what_may_not_be_seen_is_said_and_costs_no_right_by_default():
    """Only --training requests permission for budgets and DaemonSets."""
    assert "forbidden" in read_drains(Api(refuses=True), set()).hidden
    many = Api([pdb({"selector": {}})] * 501)
    assert "more than 500" in read_drains(many, {"team"}).hidden
    assert {right.resource for right in NEEDS["drains"]} == {"poddisruptionbudgets", "daemonsets"}


def test_a_run_that_may_not_see_budgets_lists_what_it_did_not_judge(inventory):
    """A skip is easily overlooked, so hidden budgets are listed under the verdict with the reason."""
    run, pool = Run(), SimpleNamespace(nodes=())
    with pytest.raises(pytest.skip.Exception, match="budgets and DaemonSets are not seen"):
        drains_safe(SimpleNamespace(run=run), Api(refuses=True), inventory([], []), pool, None, None, Evidence())
    assert len(run.not_seen) == 1 and "drains.safe" in run.not_seen[0] and "forbidden" in run.not_seen[0]


@pytest.mark.parametrize(
    ("policy", "noted"),
    [
        ({"autoUpgrade": True}, "it deletes the pods with GPUs and waits for no job"),
        ({"autoUpgrade": True, "drain": {"enable": True}}, "it drains the node and waits for no job"),
        (
            {"autoUpgrade": True, "drain": {"enable": True}, "waitForCompletion": {"podSelector": "app=train"}},
            "it waits for pods with app=train, then drains the node",
        ),
        ({"autoUpgrade": False}, ""),
        ({}, ""),
    ],
)
def test_what_a_driver_upgrade_would_do_to_jobs_is_noted(policy, noted):
    """An upgrade policy is not a scheduled action, so no check fails because of it."""
    notes = list(drain_notes(Drains(), Listing(({"spec": {"driver": {"upgradePolicy": policy}}},))))
    assert len(notes) == bool(noted) and all(noted in note for note in notes)
