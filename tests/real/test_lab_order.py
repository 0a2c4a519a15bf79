"""The lab reports a trial in a real cluster's order: the same steps of each object, with the same predecessors."""

import asyncio
import functools
import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import Cluster, load
from lab.controlplane.job import JobController
from tests import recordings
from tests.lab.clusters import seen_in
from tests.waiting import LOOK_S

RECORDINGS = Path(__file__).parent / "recordings"
"""Interval at which a condition is checked."""
KEYS = {"jobs.batch": "Job", "pods": "Pod", "events": "Event"}
PROGRAM = "import os, signal, time; signal.signal(signal.SIGTERM, lambda *_: os._exit({asked})); print(0, flush=True); time.sleep({seconds}); os._exit({code})"
DISRUPTED = {"rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}


@dataclass(frozen=True)
class Write:
    """One change of one object, in the order in which the API server stored them."""

    version: int
    kind: str
    type: str
    object: dict

    @property
    def name(self):
        return self.object["metadata"]["name"]


def real(name):
    """Return the writes of a recording by resourceVersion: they come from one etcd, so this is their order, whatever
    the order of reception."""
    lines = recordings.read(RECORDINGS / f"{name}.jsonl.gz").lines
    writes = [
        Write(int(line.object["metadata"]["resourceVersion"]), line.kind, line.type, line.object)
        for line in lines
        if recordings.is_change(line)
    ]
    job = next(w.name for w in writes if w.kind == "Job")
    return sorted(
        (w for w in writes if w.kind in KEYS.values() and job in (w.name, _owner(w.object))), key=lambda w: w.version
    )


def _owner(item):
    labels, about = item["metadata"].get("labels") or {}, (item.get("involvedObject") or {}).get("name") or ""
    return labels.get("job-name") or "-".join(about.split("-")[:2])


def template(program, nodes):
    """Return a pod of a trial like the recorded ones."""
    return {
        "metadata": {"labels": {"app": "trial-x"}},
        "spec": {
            "restartPolicy": "Never",
            "subdomain": "trial-x",
            "terminationGracePeriodSeconds": 10,
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"labelSelector": {"matchLabels": {"app": "trial-x"}}, "topologyKey": "kubernetes.io/hostname"}
                    ]
                }
            },
            "containers": [
                {
                    "name": "trial",
                    "image": "nvcr.io/nvidia/pytorch:25.08-py3",
                    "command": ["python3", "-c", program] if isinstance(program, str) else program,
                    "resources": {"limits": {"nvidia.com/gpu": nodes}},
                }
            ],
        },
    }


def lab(program, *acts):
    """Run a trial on the lab, execute each act when its condition is met, and return all writes."""

    async def run():
        async with await Cluster.start(load("healthy")) as cluster:
            store = cluster.store
            began = store.revision
            spec = {
                "parallelism": 2,
                "completions": 2,
                "completionMode": "Indexed",
                "backoffLimit": 0,
                "suspend": True,
                "podFailurePolicy": DISRUPTED,
                "template": template(program, 8),
            }
            store.create(
                "jobs.batch", {"metadata": {"name": "trial-x", "labels": {"app": "trial-x"}}, "spec": spec}, "default"
            )
            steps = [(is_suspended, resume), *acts, (is_over, lambda _: None)]
            for reached, act in steps:
                await seen_in(cluster)(functools.partial(reached, store), reached.__name__)
                if reached is is_running:
                    await seen_in(cluster)(lambda: all(map(_has_spoken, _workers(cluster))), "a word of all")
                act(store)
            writes = [
                Write(change.revision, kind, change.type, json.loads(change.new.raw))
                for key, kind in KEYS.items()
                for change in store.history(key).since(began)
            ]
            job = next(w.object["metadata"]["uid"] for w in writes if w.kind == "Job")
            own = {w.object["metadata"]["uid"] for w in writes if _controller(w.object) == job} | {job}
            about = [
                w
                for w in writes
                if {w.object["metadata"]["uid"], (w.object.get("involvedObject") or {}).get("uid")} & own
            ]
            return sorted(about, key=lambda w: w.version)

    return asyncio.run(run())


def _workers(cluster):
    return [each for each in cluster.kubelet.workers.values() if each.pod["metadata"]["name"].startswith("trial-x")]


def _has_spoken(worker):
    """Say whether the program handles signals by now: it then prints a line."""
    logs = [container.log for container in worker.mains]
    return all(log is not None and log.path.stat().st_size for log in logs)


def _controller(item):
    return next((owner["uid"] for owner in item["metadata"].get("ownerReferences") or []), None)


def _job(store):
    return store.get("jobs.batch", "default", "trial-x")


def _pods(store):
    return [pod for pod in store.list("pods", "default") if pod["metadata"]["name"].startswith("trial-x")]


def _holds(store, *kinds):
    return [
        c
        for c in ((_job(store) or {}).get("status") or {}).get("conditions") or []
        if c["type"] in kinds and c["status"] == "True"
    ]


def is_suspended(store):
    return bool(_holds(store, "Suspended"))


def is_running(store):
    return ((_job(store) or {}).get("status") or {}).get("ready") == 2


def is_empty(store):
    return is_suspended(store) and not _pods(store)


def is_over(store):
    gone = _job(store) is None and all(
        each["status"].get("phase") in ("Succeeded", "Failed") and not each["metadata"].get("deletionTimestamp")
        for each in _pods(store)
    )
    return gone or bool(_holds(store, "Complete", "Failed"))


def resume(store):
    store.mutate("jobs.batch", "default", "trial-x", lambda job: job["spec"].update(suspend=False))


def suspend(store):
    store.mutate("jobs.batch", "default", "trial-x", lambda job: job["spec"].update(suspend=True))


def delete(propagation):
    return lambda store: store.delete("jobs.batch", "default", "trial-x", propagation=propagation)


def preempt(store):
    """Create a pod of a higher class that needs the GPUs of rank 1's node."""
    node = next(pod["spec"]["nodeName"] for pod in _pods(store) if pod["metadata"]["name"].startswith("trial-x-1"))
    store.create("priorityclasses.scheduling.k8s.io", {"metadata": {"name": "more"}, "value": 1000})
    pod = template("import time; time.sleep(6000)", 8)
    pod["spec"] |= {
        "priorityClassName": "more",
        "nodeSelector": {"kubernetes.io/hostname": node},
        "affinity": {},
        "subdomain": None,
    }
    store.create(
        "pods", {"metadata": {"name": "more-important", "labels": {"app": "other"}}, "spec": pod["spec"]}, "default"
    )


SITUATIONS = {
    "01-healthy-a": (PROGRAM.format(asked=0, seconds=2, code=0),),
    "04-both-exit-1": (PROGRAM.format(asked=0, seconds=2, code=1),),
    "17-job-deleted-background": (PROGRAM.format(asked=0, seconds=60, code=0), (is_running, delete("Background"))),
    "17b-job-deleted-foreground": (PROGRAM.format(asked=0, seconds=60, code=0), (is_running, delete("Foreground"))),
    "17c-job-deleted-orphan": (PROGRAM.format(asked=0, seconds=4, code=0), (is_running, delete("Orphan"))),
    "23-no-such-command": (["/opt/no/such/program"],),
    "23b-no-python": (["python4", "-c", "pass"],),
    "19-suspended-resumed": (PROGRAM.format(asked=0, seconds=4, code=0), (is_running, suspend), (is_empty, resume)),
    "25b-preempted-exit-143": (PROGRAM.format(asked=143, seconds=60, code=0), (is_running, preempt)),
}


def conditions(item):
    return frozenset((c["type"], c["status"]) for c in (item.get("status") or {}).get("conditions") or [])


def pod_step(write):
    """Return a watcher's possible conclusions from a pod, without names, times and addresses."""
    meta, status = write.object["metadata"], write.object.get("status") or {}
    states = [
        (next(iter(each["state"]), ""), (each["state"].get("terminated") or {}).get("exitCode"))
        for each in status.get("containerStatuses") or []
    ]
    return {
        "type": "DELETED" if write.type == "DELETED" else "",
        "phase": status.get("phase"),
        "bound": bool(write.object["spec"].get("nodeName")),
        "conditions": conditions(write.object),
        "states": tuple(states),
        # The grace period: the last write of a deleted pod removes it.
        "deleted": meta.get("deletionGracePeriodSeconds") if meta.get("deletionTimestamp") else None,
        "tracked": bool(meta.get("finalizers")),
        "address": bool(status.get("podIP")),
        # Kubelet and controller write concurrently about a terminating pod.
        "seen": None if meta.get("deletionTimestamp") else status.get("observedGeneration"),
    }


def job_step(write):
    """Return a watcher's possible conclusions from a Job; not the numbers of active, ready or terminating pods, which
    depend on timing."""
    meta, status = write.object["metadata"], write.object.get("status") or {}
    return {
        "type": "DELETED" if write.type == "DELETED" else "",
        "suspend": bool(write.object["spec"].get("suspend")),
        "conditions": conditions(write.object),
        "deleted": bool(meta.get("deletionTimestamp")),
        "began": bool(status.get("startTime")),
        "ended": bool(status.get("completionTime")),
        "counts": () if meta.get("deletionTimestamp") else tuple(status.get(key) for key in ("succeeded", "failed")),
        "uncounted": tuple(
            (name, len(uids)) for name, uids in sorted((status.get("uncountedTerminatedPods") or {}).items())
        ),
    }


def steps(writes, step):
    """Return the steps without repetitions."""
    return [each for each, _ in itertools.groupby(step(w) for w in writes)]


def by_pod(writes):
    """Return each pod's writes, in the order of ranks and of creation."""
    pods = {}
    for write in writes:
        if write.kind == "Pod":
            pods.setdefault(write.object["metadata"]["uid"], []).append(write)
    return sorted(
        pods.values(),
        key=lambda own: (
            own[0].object["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"],
            own[0].version,
        ),
    )


def milestones(own):
    """Return the version at which a pod first reached each milestone."""
    first_version = {}
    for write in own:
        step = pod_step(write)
        for name, holds in (
            ("created", True),
            ("running", step["phase"] == "Running"),
            ("terminated", any(s == "terminated" for s, _ in step["states"])),
            ("over", step["phase"] in ("Succeeded", "Failed")),
            ("deleted", step["deleted"] is not None),
            ("untracked", not step["tracked"]),
            ("gone", step["type"]),
            ("disrupted", ("DisruptionTarget", "True") in step["conditions"]),
        ):
            if holds:
                first_version.setdefault(name, write.version)
    return first_version


def precedences(writes):
    """Return for each step of the Job the milestones that all or none of its pods had reached. A partial number is
    random."""
    pods = [milestones(own) for own in by_pod(writes)]
    table, previous = [], None
    for write in (w for w in writes if w.kind == "Job"):
        if (step := job_step(write)) == previous:
            continue
        previous = step
        reached = {}
        for name in ("created", "running", "terminated", "over", "deleted", "untracked", "gone", "disrupted"):
            so = [own.get(name, write.version + 1) <= write.version for own in pods]
            reached[name] = so[0] if len(set(so)) == 1 else None
        table.append(reached)
    return table


def events(writes):
    """Return the reasons of each object's events by component, in order, a series once, with their form."""
    order, shapes = {}, {}
    for write in (w for w in writes if w.kind == "Event" and w.type == "ADDED"):
        item = write.object
        order.setdefault((item["involvedObject"]["name"], item.get("reportingComponent")), []).append(item["reason"])
        shapes[item["reason"]] = (
            item["type"],
            item.get("reportingComponent"),
            (item.get("source") or {}).get("component"),
            bool(item.get("count")),
            bool(item.get("eventTime")),
            bool(item.get("firstTimestamp")),
            bool(item.get("action")),
        )
    return sorted(order.values()), shapes


def looking_once_all_have_ended(look):
    """Delay the lab's Job controller while one of its pods has ended and another is about to.

    It looks once a second. In the recordings both pods ended between two looks; on a busy machine they end further
    apart.
    """

    def wait_or_look(controller, key):
        job = controller.store.get("jobs.batch", *key)
        pods = [] if job is None or job["metadata"].get("deletionTimestamp") else controller.pods(job)
        going = [pod for pod in pods if pod["metadata"].get("deletionTimestamp")]
        over = [pod["status"].get("phase") in ("Succeeded", "Failed") for pod in going or pods]
        under_way = bool(going) or any(map(is_terminated, pods))
        return LOOK_S if under_way and not all(over) else look(controller, key)

    return wait_or_look


def is_terminated(pod):
    return any("terminated" in each["state"] for each in pod["status"].get("containerStatuses") or [])


@pytest.fixture(scope="module", params=SITUATIONS)
def both(request):
    program, *acts = SITUATIONS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobController, "sync", looking_once_all_have_ended(JobController.sync))
        return real(request.param), lab(program, *acts)


def pod_steps(own):
    """Return a pod's steps without the sandbox, which a kubelet may write together with the previous one."""
    before = ("PodReadyToStartContainers", "False")
    return [
        each
        for each in steps(own, pod_step)
        if before not in each["conditions"] or {name for name, _ in each["states"]} != {"waiting"}
    ]


@pytest.mark.slow
def test_a_pod_goes_through_the_same_steps(both):
    ours, theirs = ([pod_steps(own) for own in by_pod(writes)] for writes in reversed(both))
    assert len(ours) == len(theirs)
    for mine, right in zip(ours, theirs, strict=True):
        assert mine == right


@pytest.mark.slow
def test_a_job_goes_through_the_same_steps(both):
    right, mine = (steps([w for w in writes if w.kind == "Job"], job_step) for writes in both)
    assert mine == right


@pytest.mark.slow
def test_the_same_had_happened_to_the_pods_at_each_step_of_the_job(both):
    """Pods are created before the Job is Resumed; a pod ends before its Job counts it; finalizers are removed before
    Complete."""
    right, mine = (precedences(writes) for writes in both)
    assert len(mine) == len(right)
    for number, (ours, theirs) in enumerate(zip(mine, right, strict=True)):
        differ = {
            name: (ours[name], theirs[name])
            for name in ours
            if None not in (ours[name], theirs[name]) and ours[name] != theirs[name]
        }
        assert not differ, f"step {number} of the Job: (lab, real) {differ}"


@pytest.mark.slow
def test_events_come_in_the_same_order_and_shape(both):
    (right, shapes), (mine, ours) = (events(writes) for writes in both)
    assert mine == right
    assert ours == shapes
