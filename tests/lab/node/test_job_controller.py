"""Jobs have the states, reasons and counts of Kubernetes 1.36 (api-contract, job-*; recordings/)."""

import asyncio

import pytest

from lab.apiserver.store import ApiError, Store
from lab.controlplane import Controllers
from lab.controlplane import job as module
from lab.controlplane.job_pods import failure_action, format_indexes, new_pod, parse_indexes, success_rule
from tests.waiting import in_no_time

TRACKING = "batch.kubernetes.io/job-tracking"


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Remove the controller's one-second batching of pod changes, which is not under test."""
    monkeypatch.setattr(module, "BATCH_S", 0.0)
    monkeypatch.setattr(module, "STATUS_LAG_S", 0.0)


def job(name="train", **spec):
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "a"}]}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"backoffLimit": 0, "parallelism": 1, "completions": 1, "template": template, **spec},
    }


def scenario(*steps, wish=None):
    """Run the controllers, and the steps with a pause after each; return the store."""

    async def run():
        store = Store()
        controllers = Controllers(store)
        controllers.start()
        store.create("jobs.batch", wish or job(), "default")
        await asyncio.sleep(0.01)
        for step in steps:
            step(store)
            await asyncio.sleep(0.01)
        controllers.close()
        return store

    return in_no_time(run())


def finish(index=None, code=0):
    """Return a step in which the pod (of that index) ends with this exit code."""

    def step(store):
        for pod in store.list("pods", "default"):
            if pod["status"]["phase"] not in ("Pending", "Running"):
                continue
            if index is None or pod["metadata"]["labels"].get("batch.kubernetes.io/job-completion-index") == str(index):
                store.mutate(
                    "pods",
                    "default",
                    pod["metadata"]["name"],
                    lambda p: p["status"].update(
                        phase="Failed" if code else "Succeeded",
                        containerStatuses=[
                            {
                                "name": "c",
                                "restartCount": 0,
                                "state": {"terminated": {"exitCode": code, "finishedAt": store.now()}},
                            }
                        ],
                    ),
                )
                return

    return step


def status(store, name="train"):
    return store.get("jobs.batch", "default", name)["status"]


def conditions(store):
    return [(c["type"], c["status"], c["reason"], c["message"]) for c in status(store).get("conditions") or []]


def reasons(store):
    return sorted(e["reason"] for e in store.list("events", "default") if e["involvedObject"]["kind"] == "Job")


INDEXED = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}


def test_pods_of_an_indexed_job_carry_their_index_everywhere():
    """Name prefix, host name, label, annotation, environment, owner and finalizer equal the recordings."""
    store = scenario(wish=job(**INDEXED))
    pods = store.list("pods", "default")
    assert [p["spec"]["hostname"] for p in pods] == ["train-0", "train-1"]
    first = pods[0]
    assert first["metadata"]["name"].startswith("train-0-")
    assert len(first["metadata"]["name"]) == len("train-0-") + 5
    assert first["metadata"]["annotations"] == {"batch.kubernetes.io/job-completion-index": "0"}
    assert first["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0"
    assert first["metadata"]["finalizers"] == [TRACKING]
    assert first["metadata"]["ownerReferences"][0] | {"uid": ""} == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "train",
        "uid": "",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    assert first["spec"]["containers"][0]["env"] == [
        {
            "name": "JOB_COMPLETION_INDEX",
            "valueFrom": {
                "fieldRef": {
                    "apiVersion": "v1",
                    "fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']",
                }
            },
        }
    ]
    assert status(store)["active"] == 2


def test_a_job_completes_with_both_conditions_and_without_finalizers_on_its_pods():
    """The conditions are SuccessCriteriaMet, then Complete, both with CompletionsReached; completedIndexes is set, and
    the event is Completed."""
    store = scenario(finish(0), finish(1), wish=job(**INDEXED))
    message = "Reached expected number of succeeded pods"
    assert conditions(store) == [
        ("SuccessCriteriaMet", "True", "CompletionsReached", message),
        ("Complete", "True", "CompletionsReached", message),
    ]
    job_status = status(store)
    assert (
        job_status["succeeded"],
        job_status["completedIndexes"],
        job_status["ready"],
        job_status["terminating"],
    ) == (2, "0,1", 0, 0)
    assert "active" not in job_status
    assert "failed" not in job_status
    assert job_status["completionTime"]
    assert all("finalizers" not in p["metadata"] for p in store.list("pods", "default"))
    assert reasons(store) == ["Completed", "SuccessfulCreate", "SuccessfulCreate"]


def test_a_failed_pod_beyond_the_backoff_limit_fails_the_job_and_ends_the_others():
    """FailureTarget, then Failed with BackoffLimitExceeded; pods that were still running count as failed."""
    store = scenario(finish(0, code=1), wish=job(**INDEXED))
    message = "Job has reached the specified backoff limit"
    assert conditions(store) == [
        ("FailureTarget", "True", "BackoffLimitExceeded", message),
        ("Failed", "True", "BackoffLimitExceeded", message),
    ]
    assert status(store)["failed"] == 2
    assert "BackoffLimitExceeded" in reasons(store)
    assert "completionTime" not in status(store)


def test_a_job_with_attempts_left_waits_before_the_next_pod():
    """A pause of ten seconds follows the first failure, instead of an immediate new pod."""
    store = scenario(finish(code=1), wish=job(backoffLimit=2))
    assert status(store) | {"startTime": ""} == {
        "startTime": "",
        "failed": 1,
        "ready": 0,
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }
    assert len(store.list("pods", "default")) == 1


def test_a_suspended_job_has_no_pods_until_it_is_resumed():
    """Conditions and events of suspension and resumption; startTime only while it is not suspended."""

    def resume(store):
        assert store.list("pods", "default") == []
        assert conditions(store) == [("Suspended", "True", "JobSuspended", "Job suspended")]
        assert "startTime" not in status(store)
        store.mutate("jobs.batch", "default", "train", lambda j: j["spec"].update(suspend=False))

    store = scenario(resume, wish=job(suspend=True))
    assert conditions(store) == [("Suspended", "False", "JobResumed", "Job resumed")]
    assert status(store)["active"] == 1
    assert status(store)["startTime"]
    assert reasons(store) == ["Resumed", "SuccessfulCreate", "Suspended"]


def test_suspending_again_deletes_pods_without_counting_them_as_failed():
    """The status has no failed count and no startTime, as in recordings/suspended-job/03."""
    store = scenario(lambda s: s.mutate("jobs.batch", "default", "train", lambda j: j["spec"].update(suspend=True)))
    assert store.list("pods", "default") == []
    assert "failed" not in status(store)
    assert reasons(store) == ["SuccessfulCreate", "SuccessfulDelete", "Suspended"]


def test_a_refused_pod_becomes_an_event_and_no_condition(monkeypatch):
    """Quota and PodSecurity refuse the pod, not the Job: FailedCreate with the API server's text, and no failure."""
    text = 'pods "train-abcde" is forbidden: exceeded quota: gpus'

    real = Store.create

    def create(self, key, obj, ns=None, **more):
        if key == "pods":
            raise ApiError(403, "Forbidden", text)
        return real(self, key, obj, ns, **more)

    monkeypatch.setattr(Store, "create", create)
    store = scenario()
    events = [(e["type"], e["reason"], e["message"]) for e in store.list("events", "default")]
    assert events == [("Warning", "FailedCreate", f"Error creating: {text}")]
    assert status(store) | {"startTime": ""} == {
        "startTime": "",
        "ready": 0,
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }


def test_a_deadline_ends_the_job_while_its_pods_run():
    """DeadlineExceeded, and the running pod is deleted."""
    store = scenario(lambda _: None, wish=job(activeDeadlineSeconds=0))
    assert conditions(store)[-1] == (
        "Failed",
        "True",
        "DeadlineExceeded",
        "Job was active longer than specified deadline",
    )


def test_a_ttl_removes_the_job_and_its_pods():
    """ttlSecondsAfterFinished 0: both are deleted right after completion, in the foreground."""
    store = scenario(finish(), lambda _: None, wish=job(ttlSecondsAfterFinished=0))
    assert store.list("jobs.batch", "default") == []
    assert store.list("pods", "default") == []


def test_the_failure_policy_ends_the_job_or_ignores_the_pod():
    """FailJob names container, pod, exit code and rule; Ignore does not count."""
    rules = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    ]
    store = scenario(finish(code=42), wish=job(backoffLimit=6, podFailurePolicy={"rules": rules}))
    kind, _, reason, message = conditions(store)[0]
    name = store.list("pods", "default")[0]["metadata"]["name"]
    assert (kind, reason) == ("FailureTarget", "PodFailurePolicy")
    assert message == f"Container c for pod default/{name} failed with exit code 42 matching FailJob rule at index 1"
    disrupted = {
        "metadata": {"name": "p", "namespace": "default"},
        "status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]},
    }
    assert failure_action(job(podFailurePolicy={"rules": rules}), disrupted)[0] == "Ignore"


@pytest.mark.parametrize(
    ("indexes", "text"),
    [({0}, "0"), ({0, 1}, "0,1"), ({0, 1, 2}, "0-2"), ({0, 2, 3, 5, 6, 7, 9}, "0,2,3,5-7,9"), (set(), "")],
    ids=["one", "two", "three", "mixed", "none"],
)
def test_completed_indexes_are_written_as_the_controller_writes_them(indexes, text):
    """Three in a row become a range, two do not; the text can be parsed again."""
    assert format_indexes(indexes) == text
    assert parse_indexes(text) == indexes


def test_a_success_policy_names_its_rule():
    """The first matching rule decides."""
    wish = job(successPolicy={"rules": [{"succeededIndexes": "0,1"}, {"succeededCount": 1}]})
    assert success_rule(wish, {2}) == 1
    assert success_rule(wish, {0, 1}) == 0
    assert success_rule(wish, set()) is None


def test_a_long_job_name_leaves_room_for_index_and_suffix():
    """Generated names stay within 63 characters and keep the index readable."""
    meta = {"name": "j" * 63, "namespace": "default", "uid": "u"}
    prefix = new_pod({**job(**INDEXED), "metadata": meta}, 12)["metadata"]["generateName"]
    assert prefix.endswith("-12-")
    assert len(prefix) <= 58


def test_a_deleted_job_lets_its_pods_go():
    """Background deletion: no finalizer keeps a pod of a deleted Job."""
    store = scenario(lambda s: s.delete("jobs.batch", "default", "train", propagation="Background"))
    assert store.list("pods", "default") == []
