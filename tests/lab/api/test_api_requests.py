"""The API over HTTPS: authentication, authorisation, and response formats."""

from __future__ import annotations

import contextlib
import json

from tests.waiting import HANG_S

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j"},
    "spec": {
        "suspend": True,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "a"}]}},
    },
}


def test_a_wrong_token_is_unauthenticated(cluster):
    """The response is 401, not 403: the caller must know that the credentials are wrong."""
    answer = cluster("GET", "/api/v1/nodes", who="not-a-token")
    assert (answer.code, answer.json["reason"]) == (401, "Unauthorized")


def test_without_rights_the_sentence_names_user_verb_resource_and_scope(cluster):
    """Users search for the text of a refusal."""
    answer = cluster("GET", "/api/v1/namespaces/default/pods", who="nobody")
    expected = 'pods is forbidden: User "user-without-rights" cannot list resource "pods" in API group "" in the namespace "default"'
    assert (answer.code, answer.json["message"]) == (403, expected)


def test_a_role_opens_exactly_what_it_names(cluster, space):
    """RBAC is evaluated."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space}"
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]}]
    assert cluster("POST", f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": rules}).code == 201
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"},
        "subjects": [{"kind": "User", "name": "user-without-rights", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    assert cluster("POST", f"{rbac}/rolebindings", binding).code == 201
    jobs = f"/apis/batch/v1/namespaces/{space}/jobs"
    assert cluster("POST", jobs, JOB, who="nobody").code == 201
    assert cluster("DELETE", f"{jobs}/j", who="nobody").code == 403


def test_a_service_account_token_works_until_its_account_goes(cluster, space):
    """Tokens are bound to the account's uid."""
    accounts = f"/api/v1/namespaces/{space}/serviceaccounts"
    cluster("POST", accounts, {"metadata": {"name": "robot"}})
    token = cluster("POST", f"{accounts}/robot/token", {"spec": {}}).json["status"]["token"]
    review = cluster("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, who=token)
    assert review.json["status"]["userInfo"]["username"] == f"system:serviceaccount:{space}:robot"
    cluster("DELETE", f"{accounts}/robot")
    assert cluster("GET", "/version", who=token).code == 401


def test_pages_show_one_moment_even_while_things_change(cluster, space):
    """`continue` is pinned to the revision of the first page."""
    path = f"/api/v1/namespaces/{space}/secrets"
    for number in range(5):
        cluster("POST", path, {"metadata": {"name": f"s{number}"}})
    first = cluster("GET", f"{path}?limit=2").json
    assert first["metadata"]["remainingItemCount"] == 3
    cluster("DELETE", f"{path}/s4")
    names, token = [item["metadata"]["name"] for item in first["items"]], first["metadata"]["continue"]
    while token:
        page = cluster("GET", f"{path}?limit=2&continue={token}").json
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue")
    assert names == ["s0", "s1", "s2", "s3", "s4"]


def test_list_items_lack_kind_and_version(cluster):
    """Clients that rely on kind and version of list items fail on a real cluster, and here, too."""
    listed = cluster("GET", "/api/v1/nodes").json
    assert listed["kind"] == "NodeList"
    assert "kind" not in listed["items"][0]


def test_protobuf_only_is_refused(cluster):
    """406 instead of a body that the client cannot read."""
    assert cluster("GET", "/api/v1/nodes", Accept="application/vnd.kubernetes.protobuf").code == 406


def test_strict_validation_names_the_unknown_field(cluster, space):
    """`kubectl --validate=strict` relies on the unknown field's name; by default there is only a warning."""
    body = {**JOB, "metadata": {"name": "s"}, "spec": {**JOB["spec"], "retries": 3}}
    path = f"/apis/batch/v1/namespaces/{space}/jobs"
    answer = cluster("POST", f"{path}?fieldValidation=Strict", body)
    assert answer.code == 400
    assert 'unknown field "spec.retries"' in answer.json["message"]
    warned = cluster("POST", path, body)
    assert warned.code == 201
    assert "spec.retries" not in warned.text
    assert warned.headers["warning"] == '299 - "unknown field \\"spec.retries\\""'


def test_dry_run_keeps_nothing_and_notifies_no_one(cluster, space):
    """The preflight relies on dry-run creates that leave no object and send no event."""
    path = f"/apis/batch/v1/namespaces/{space}/jobs"
    assert cluster("POST", f"{path}?dryRun=All", {**JOB, "metadata": {"name": "dry"}}).code == 201
    assert cluster("GET", f"{path}/dry").code == 404


def test_a_strategic_patch_merges_containers_by_name(cluster, space):
    """kubectl set image and kubectl edit send strategic patches."""
    path = f"/apis/apps/v1/namespaces/{space}/deployments"
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "a:1"}, {"name": "d", "image": "b:1"}]},
    }
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    assert cluster("POST", path, {"metadata": {"name": "d"}, "spec": spec}).code == 201
    change = {"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "b:2"}]}}}}
    patched = cluster("PATCH", f"{path}/d", change, media="application/strategic-merge-patch+json").json
    assert [c["image"] for c in patched["spec"]["template"]["spec"]["containers"]] == ["a:1", "b:2"]
    scaled = cluster("PATCH", f"{path}/d/scale", {"spec": {"replicas": 3}}, media="application/merge-patch+json").json
    assert scaled["kind"] == "Scale"
    assert cluster("GET", f"{path}/d").json["spec"]["replicas"] == 3


def test_a_watch_shows_what_enters_and_leaves_its_selector(cluster, space):
    """An object that loses the label is DELETED for this watch."""
    path = f"/api/v1/namespaces/{space}/configmaps"
    revision = cluster("GET", path).json["metadata"]["resourceVersion"]
    watching = f"{path}?watch=1&labelSelector=x%3Dy&resourceVersion={revision}&timeoutSeconds=60"
    with contextlib.closing(cluster.connect()) as connection:
        connection.request("GET", watching, headers={"Authorization": f"Bearer {cluster.tokens['admin']}"})
        answer = connection.getresponse()  # its header has arrived, so the watch has begun
        cluster("POST", path, {"metadata": {"name": "a"}})
        for label in ("y", "z"):
            cluster("PATCH", f"{path}/a", {"metadata": {"labels": {"x": label}}}, media="application/merge-patch+json")
        assert [json.loads(answer.readline())["type"] for _ in range(2)] == ["ADDED", "DELETED"]


def test_a_log_is_streamed_from_the_kubelet(cluster, space):
    """The API server forwards the node's output and its refusals."""
    pods = f"/api/v1/namespaces/{space}/pods"
    spec = {"nodeName": "gpu-node-0", "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}
    assert cluster("POST", pods, {"metadata": {"name": "p"}, "spec": spec}).code == 201
    assert cluster("GET", f"{pods}/p/log?container=b&tailLines=1").text == "b line 2\n"
    refused = cluster("GET", f"{pods}/p/log")
    assert refused.json["message"] == "a container name must be specified for pod p, choose one of: [a b]"
    previous = cluster("GET", f"{pods}/p/log?container=a&previous=true")
    assert previous.json["message"] == 'previous terminated container "a" in pod "p" not found'


def test_quota_refuses_what_does_not_fit(cluster, space):
    """The text is what TAO users see when a team's GPUs are used up."""
    hard = {"requests.nvidia.com/gpu": "2"}
    cluster("POST", f"/api/v1/namespaces/{space}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 8}}}]}
    answer = cluster("POST", f"/api/v1/namespaces/{space}/pods", {"metadata": {"name": "p"}, "spec": spec})
    assert answer.json["message"] == (
        'pods "p" is forbidden: exceeded quota: q, requested: requests.nvidia.com/gpu=8, '
        "used: requests.nvidia.com/gpu=0, limited: requests.nvidia.com/gpu=2"
    )


def test_limit_ranges_fill_in_and_refuse(cluster, space):
    """Defaults are set in the pod, and the maximum is enforced."""
    limits = [{"type": "Container", "default": {"memory": "1Gi"}, "max": {"memory": "2Gi"}}]
    cluster("POST", f"/api/v1/namespaces/{space}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}})
    pods = f"/api/v1/namespaces/{space}/pods?dryRun=All"
    made = cluster("POST", pods, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    assert made.json["spec"]["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}
    big = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"memory": "3Gi"}}}]}
    refused = cluster("POST", pods, {"metadata": {"name": "p"}, "spec": big})
    text = 'pods "p" is forbidden: maximum memory usage per Container is 2Gi, but limit is 3Gi'
    assert (refused.code, refused.json["message"]) == (403, text)


def test_applied_fields_belong_to_their_manager(cluster, space):
    """Server-side apply refuses to take another manager's field, and names that manager."""
    path = f"/apis/apps/v1/namespaces/{space}/deployments/d"

    def config(image: str) -> dict:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": image}]}}
        spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}

    apply = "application/apply-patch+yaml"
    assert cluster("PATCH", f"{path}?fieldManager=one", config("a:1"), media=apply).code == 201
    refused = cluster("PATCH", f"{path}?fieldManager=two", config("a:2"), media=apply)
    assert refused.code == 409
    assert refused.json["details"]["causes"][0]["field"] == '.spec.template.spec.containers[name="c"].image'
    forced = cluster("PATCH", f"{path}?fieldManager=two&force=true", config("a:2"), media=apply)
    assert forced.json["spec"]["template"]["spec"]["containers"][0]["image"] == "a:2"


def test_a_definition_serves_its_kind_until_it_goes(cluster, space):
    """CRDs at run time: defaults, pruning, validation, and 404 after deletion."""
    names = {"kind": "Widget", "plural": "widgets"}
    size = {"type": "integer", "minimum": 1, "default": 3}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": size}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    definition = {
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    assert cluster("POST", crds, definition).code == 201
    path = f"/apis/example.com/v1/namespaces/{space}/widgets"
    made = cluster(
        "POST",
        path,
        {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"colour": "red"}},
    )
    assert made.json["spec"] == {"size": 3}
    wrong = cluster(
        "POST", path, {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "b"}, "spec": {"size": 0}}
    )
    assert "spec.size in body should be greater than or equal to 1" in wrong.json["message"]
    assert cluster("DELETE", f"{crds}/widgets.example.com").code == 200
    assert cluster("GET", path).code == 404


def test_a_client_certificate_is_an_identity(cluster, tmp_path):
    """CN is the user, O are the groups."""
    import ssl
    from http.client import HTTPSConnection

    certificate, key = cluster.server.authority.certificate("carol", ["system:masters"])
    (tmp_path / "pem").write_text(certificate + key)
    context = ssl.create_default_context(cadata=cluster.server.authority.ca_pem)
    context.load_cert_chain(tmp_path / "pem")
    connection = HTTPSConnection(cluster.server.url.removeprefix("https://"), context=context, timeout=HANG_S)
    connection.request(
        "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", b"{}", {"Content-Type": "application/json"}
    )
    info = json.loads(connection.getresponse().read())["status"]["userInfo"]
    connection.close()
    assert (info["username"], info["groups"]) == ("carol", ["system:masters", "system:authenticated"])


def test_evictions_respect_disruption_budgets(cluster, space):
    """The response is 429 with the cause DisruptionBudget, which kubectl drain retries."""
    pods = f"/api/v1/namespaces/{space}/pods"
    body = {
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"nodeName": "gpu-node-0", "containers": [{"name": "c", "image": "i"}]},
    }
    cluster("POST", pods, body)
    spec = {"selector": {"matchLabels": {"a": "b"}}, "minAvailable": 1}
    cluster(
        "POST", f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets", {"metadata": {"name": "b"}, "spec": spec}
    )
    answer = cluster(
        "POST", f"{pods}/p/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    )
    assert (answer.code, answer.json["details"]["causes"][0]["reason"]) == (429, "DisruptionBudget")
