"""Owners, namespaces, endpoints, taints and claims behave like a real control plane's (api-contract)."""

import asyncio

from lab.apiserver.store import Store
from lab.controlplane import Controllers
from tests.waiting import in_no_time


def run(*steps, pause=0.01):
    """Run the controllers and the steps with a pause after each; return the store."""

    async def go():
        store = Store()
        controllers = Controllers(store)
        controllers.start()
        for step in steps:
            step(store)
            await asyncio.sleep(pause)
        controllers.close()
        return store

    return in_no_time(go())


def config(name, owner=None, **meta):
    def step(store):
        references = []
        if owner:
            uid = store.need("configmaps", "default", owner)["metadata"]["uid"]
            references = [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": True}
            ]
        store.create("configmaps", {"metadata": {"name": name, "ownerReferences": references, **meta}}, "default")

    return step


def delete(name, policy):
    return lambda store: store.delete("configmaps", "default", name, propagation=policy)


def names(store, key="configmaps"):
    return [o["metadata"]["name"] for o in store.list(key, "default") if o["metadata"]["name"] != "kube-root-ca.crt"]


def test_dependents_follow_in_the_background():
    """Children and grandchildren are deleted with their owner."""
    assert names(run(config("a"), config("b", "a"), config("c", "b"), delete("a", "Background"))) == []


def test_a_foreground_deletion_waits_for_who_blocks_it():
    """The owner stays until the dependent's finalizer is removed."""

    def look(store):
        assert names(store) == ["a", "b"]
        assert store.get("configmaps", "default", "a")["metadata"]["finalizers"] == ["foregroundDeletion"]
        store.mutate("configmaps", "default", "b", lambda o: o["metadata"].pop("finalizers"))

    store = run(config("a"), config("b", "a", finalizers=["example.com/hold"]), delete("a", "Foreground"), look)
    assert names(store) == []


def test_orphans_stay_without_the_reference():
    """Orphan keeps the dependent and removes the reference."""
    store = run(config("a"), config("b", "a"), delete("a", "Orphan"))
    assert names(store) == ["b"]
    assert "ownerReferences" not in store.get("configmaps", "default", "b")["metadata"]


def test_a_dependent_of_an_owner_that_never_was_is_collected():
    """An unknown uid means that the owner was deleted."""
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "00000000-0000-0000-0000-000000000002"}
    assert (
        names(run(lambda s: s.create("configmaps", {"metadata": {"name": "x", "ownerReferences": [ghost]}}, "default")))
        == []
    )


def test_a_namespace_is_furnished_and_emptied():
    """Default service account and root CA are recreated; deletion removes the content, then the namespace."""

    def check(store):
        assert store.get("serviceaccounts", "team", "default")
        assert list(store.get("configmaps", "team", "kube-root-ca.crt")["data"]) == ["ca.crt"]
        store.delete("serviceaccounts", "team", "default")

    def drop(store):
        assert store.get("serviceaccounts", "team", "default")
        store.create("configmaps", {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}, "team")
        store.delete("namespaces", None, "team")

    def release(store):
        namespace = store.get("namespaces", None, "team")
        assert namespace["status"]["phase"] == "Terminating"
        message_of = {c["type"]: c["message"] for c in namespace["status"]["conditions"]}
        assert message_of["NamespaceFinalizersRemaining"].endswith("example.com/hold in 1 resource instances")
        store.mutate("configmaps", "team", "held", lambda o: o["metadata"].pop("finalizers"))

    store = run(
        lambda s: s.create("namespaces", {"metadata": {"name": "team"}}),
        check,
        drop,
        release,
        lambda _: None,
        pause=0.06,
    )
    assert store.get("namespaces", None, "team") is None


def pod(name, ip, *, ready=True, **spec):
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "a"}], "nodeName": "n", **spec},
        "status": {
            "phase": "Running",
            "podIP": ip,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def service(**spec):
    return {"metadata": {"name": "peers"}, "spec": {"clusterIP": "None", "selector": {"app": "x"}, **spec}}


def slices(store):
    return store.list("endpointslices.discovery.k8s.io", "default", "kubernetes.io/service-name=peers")


def test_a_headless_service_lists_hostnames_and_readiness():
    """Only pods whose subdomain is the service get a hostname; an unready pod is listed as not ready."""
    store = run(
        lambda s: s.create("services", service(), "default"),
        lambda s: s.load("pods", pod("a", "10.244.0.2", hostname="a", subdomain="peers")),
        lambda s: s.load("pods", pod("b", "10.244.0.3", ready=False, hostname="b", subdomain="other")),
    )
    (endpoint_slice,) = slices(store)
    assert {e["addresses"][0]: (e.get("hostname"), e["conditions"]["ready"]) for e in endpoint_slice["endpoints"]} == {
        "10.244.0.2": ("a", True),
        "10.244.0.3": (None, False),
    }
    assert endpoint_slice["ports"] is None
    assert endpoint_slice["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
    subset = store.get("endpoints", "default", "peers")["subsets"][0]
    assert [a["ip"] for a in subset["notReadyAddresses"]] == ["10.244.0.3"]


def test_publish_not_ready_addresses_makes_unready_pods_ready_endpoints():
    """A rendezvous needs names before the pods are ready (recordings/happy-two-nodes)."""
    store = run(
        lambda s: s.create("services", service(publishNotReadyAddresses=True), "default"),
        lambda s: s.load("pods", pod("a", "10.244.0.2", ready=False)),
    )
    assert slices(store)[0]["endpoints"][0]["conditions"] == {"ready": True, "serving": False, "terminating": False}


def test_slices_hold_at_most_a_hundred_endpoints():
    """250 pods make three slices."""

    def many(store):
        for number in range(250):
            store.load("pods", pod(f"p{number}", f"10.244.{number // 200}.{number % 200 + 2}"))

    store = run(lambda s: s.create("services", service(), "default"), many)
    assert sorted(len(s["endpoints"]) for s in slices(store)) == [50, 100, 100]


def load_node(store, **spec):
    store.load("nodes", {"metadata": {"name": "n"}, "spec": spec, "status": {}})


def test_a_cordon_becomes_a_taint_and_goes_again():
    """kubectl cordon adds the taint, and uncordon removes it."""

    def uncordon(store):
        assert [t["key"] for t in store.get("nodes", None, "n")["spec"]["taints"]] == [
            "node.kubernetes.io/unschedulable"
        ]
        store.mutate("nodes", None, "n", lambda n: n["spec"].pop("unschedulable"))

    store = run(lambda s: load_node(s, unschedulable=True), uncordon)
    assert "taints" not in store.get("nodes", None, "n")["spec"]


def test_no_execute_evicts_who_does_not_tolerate_it():
    """The pod is marked as disrupted, deleted, and gets an event; one with a toleration stays."""

    def taint(store):
        store.mutate("nodes", None, "n", lambda n: n["spec"].update(taints=[{"key": "x", "effect": "NoExecute"}]))

    tolerations = [{"key": "x", "operator": "Exists", "tolerationSeconds": 300}]
    store = run(
        load_node,
        lambda s: s.load("pods", pod("a", "10.244.0.2")),
        lambda s: s.load("pods", pod("b", "10.244.0.3", tolerations=tolerations)),
        taint,
    )
    evicted = store.get("pods", "default", "a")
    assert evicted["metadata"]["deletionTimestamp"]
    assert evicted["status"]["conditions"][-1]["reason"] == "DeletionByTaintManager"
    assert "deletionTimestamp" not in store.get("pods", "default", "b")["metadata"]
    assert [e["message"] for e in store.list("events", "default")] == ["Marking for deletion Pod default/a"]


def claim(**spec):
    return {
        "metadata": {"name": "data", "namespace": "default"},
        "status": {"phase": "Pending"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec},
    }


def test_a_claim_without_a_class_stays_pending_and_says_so():
    """The event is FailedBinding (case pvc-claims)."""
    store = run(lambda s: s.load("persistentvolumeclaims", claim()))
    (event,) = store.list("events", "default")
    assert (event["reason"], event["message"]) == (
        "FailedBinding",
        "no persistent volumes available for this claim and no storage class is set",
    )


def test_a_claim_of_an_offered_class_is_bound():
    """The class's provisioner creates a volume."""
    store = run(
        lambda s: s.load("storageclasses.storage.k8s.io", {"metadata": {"name": "fast"}, "provisioner": "x"}),
        lambda s: s.load("persistentvolumeclaims", claim(storageClassName="fast")),
    )
    assert store.get("persistentvolumeclaims", "default", "data")["status"]["phase"] == "Bound"
    assert len(store.list("persistentvolumes")) == 1


def test_a_quotas_status_follows_what_exists():
    """status.hard and status.used are recounted after each change (case resource-quota)."""
    hard = {"pods": "2", "requests.nvidia.com/gpu": "8", "configmaps": "5"}
    gpus = {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}}
    store = run(
        lambda s: s.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}}, "default"),
        lambda s: s.load("pods", pod("a", "10.244.0.2", containers=[{"name": "c", "image": "a", "resources": gpus}])),
    )
    quota_status = store.get("resourcequotas", "default", "q")["status"]
    assert quota_status["hard"] == hard
    assert quota_status["used"] == {"pods": "1", "requests.nvidia.com/gpu": "8", "configmaps": "1"}
