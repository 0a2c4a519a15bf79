"""Evidence of a running job beyond its logs: pods and nodes, cluster events, NCCL RAS, Flight Recorder dumps.

Events of its pods and nodes, the nodes' conditions and lines in its logs show the course of the job. One exec into one
pod queries RAS, which describes the whole job; dumps are in every pod. Facts that cannot be read are listed with the
missing permission, and the rest continues.
"""

from __future__ import annotations

import base64
import itertools
import json
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from jobs.cluster.client.errors import ApiError, ClusterError, Forbidden
from jobs.cluster.client.kube import Kube, path
from jobs.cluster.client.pod_exec import Executed, execute
from jobs.cluster.facts.events import Event, about, read_events
from jobs.cluster.redact import redact, safe
from jobs.cluster.unstructured import Unstructured, as_list, as_map, as_texts, by_type, name_of, node_of, phase_of
from jobs.diagnosis import around
from jobs.diagnosis.around import Moment
from jobs.diagnosis.pod import examine
from jobs.diagnosis.symptoms import Surroundings
from jobs.pod import ras_client
from seatrial.logs.hang.live import take_dump, take_sample
from seatrial.logs.hang.model import Evidence, Pod
from seatrial.logs.job_document import Around

LINES = 2000
"""The last lines of each container's log: a program's output as it fails."""
AT_ONCE = 8
MOST_PODS, MOST_NODES = 256, 64


def look_around(kube: Kube, pods: Sequence[Unstructured], not_seen: list[str]) -> list[Around]:
    """Return the events during the job, in order; empty if nothing failed."""
    where = {name_of(pod): node_of(pod) for pod in pods[:MOST_PODS]}
    moments: list[Moment] = []
    for pod in pods[:MOST_PODS]:
        moments += around.from_pod(pod)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        from_logs = list(pool.map(lambda pod: _lines(kube, pod), pods[:MOST_PODS]))
        names = sorted({*where.values()} - {""})[:MOST_NODES]
        refused = _refused(kube, "get", "nodes") if names else ""
        nodes = [refused] if refused else list(pool.map(lambda name: _node(kube, name), names))
    moments += itertools.chain.from_iterable(from_logs)
    for node in nodes:
        if isinstance(node, str):
            not_seen.append(f"conditions of the nodes: {node}")
            break
        moments += around.from_node(node)
    for place, kind in ((kube.namespace, "Pod"), ("default", "Node")):  # a node's events are in the namespace default
        try:
            if place != kube.namespace:
                kube.require("list", "events", namespace=place)
            items, _ = kube.list(path("events", namespace=place), fieldSelector=f"involvedObject.kind={kind}")
        except ClusterError as error:
            not_seen.append(f"events of the {kind.lower()}s in {place}: {safe(error, 300)}")
            continue
        moments += around.from_events(read_events(items), where)
    judged = around.judged(moments, pods)
    return [_written(moment) for moment in judged] if any(m.role == "failure" for m in judged) else []


def _refused(kube: Kube, verb: str, resource: str) -> str:
    """Return the error if a cluster-wide permission is missing, without the request itself; '' if it is granted."""
    try:
        kube.require(verb, resource, namespace="")
    except ClusterError as error:
        return safe(error, 300)
    return ""


def _written(moment: Moment) -> Around:
    entry: Around = asdict(moment)  # type: ignore[assignment]  # the same keys
    entry["text"] = redact(moment.text)
    return entry


def _node(kube: Kube, name: str) -> Unstructured | str:
    try:
        return as_map(kube.get(path("nodes", name)))
    except ClusterError as error:
        return safe(error, 300)


def _lines(kube: Kube, pod: Unstructured) -> list[Moment]:
    moments: list[Moment] = []
    for container in as_list(as_map(pod.get("spec")).get("containers")):
        said = tail(kube, name_of(pod), str(container.get("name") or ""), LINES, timestamps=True)
        moments += around.from_lines(pod, said)
    return moments


SAMPLES, PAUSE_S = 3, 5.0
_EXEC_S = 150.0  # three answers of at most 30 s, the pauses, and a slow start of Python
MOST_DUMP_BYTES = 256 << 20
_DUMP_SETTINGS = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE")
# Python with our RAS client if the image has it, else ncclras, which is part of NCCL's packages (bin/ncclras).
_SHELL = """
for python in python3 /opt/conda/bin/python3 /usr/bin/python3; do
  command -v "$python" >/dev/null 2>&1 && exec "$python" -IB -c 'import sys; exec(sys.stdin.buffer.read(%d))'
done
if [ %d -gt 0 ] && command -v ncclras >/dev/null 2>&1; then
  ncclras -v -t 5 && sleep %d && ncclras -v -t 5 && sleep %d && ncclras -v -t 5
  exit $?
fi
echo 'neither python3 nor ncclras is in this container' >&2
exit 127
"""


def look(kube: Kube, pods: Sequence[Unstructured], evidence: Evidence, *, execs: bool, dumps: str = "") -> None:
    """Add the evidence of one job's pods; missing parts go into ``evidence.not_seen``."""
    running = [pod for pod in pods if _running(pod)]
    evidence.pods += _pods(kube, pods, evidence, more=bool(running))
    if not running:
        return
    if not execs:
        evidence.not_seen.append("NCCL RAS and dumps were not requested (--no-exec)")
        return
    answered = False
    try:
        rest = sorted(running, key=lambda pod: not _gpus(pod))
        for _ in range(min(3, len(rest))):  # a launcher has no communicator
            answered = _ask(kube, rest.pop(0), evidence, samples=SAMPLES, dumps=dumps) or answered
            if evidence.samples:
                break
        if rest and (answered or dumps or any(_dumps_set(pod) for pod in running)):
            _all_dumps(kube, rest, evidence, dumps)
    except Forbidden as error:
        evidence.not_seen.append(f"NCCL RAS and dumps: {_right(kube, error)}")
    except ClusterError as error:
        evidence.not_seen.append(f"NCCL RAS and dumps: {safe(error, 300)}")


def tail(kube: Kube, pod: str, container: str, lines: int = 400, *, timestamps: bool = False) -> list[str]:
    """Return the last lines of a container's log, with ``timestamps`` each after its time; none if unreadable."""
    try:
        with kube.log_stream(
            kube.namespace,
            pod,
            deadline_s=20.0,
            container=container,
            timestamps=timestamps,
            tailLines=lines,
            limitBytes=4 << 20,
        ) as chunks:
            return b"".join(chunks).decode("utf-8", "replace").splitlines()
    except ClusterError:
        return []


# -- pods and nodes ----------------------------------------------------------------------------------------------------
def _pods(kube: Kube, pods: Sequence[Unstructured], evidence: Evidence, *, more: bool) -> Iterator[Pod]:
    """Yield the job's pods; with ``more`` their events and nodes are read, too."""
    events = _events(kube, evidence) if more else []
    nodes = _nodes(kube, pods, evidence) if more else {}
    for pod in pods:
        meta, spec, status = (as_map(pod.get(key)) for key in ("metadata", "spec", "status"))
        node = str(spec.get("nodeName") or "")
        state = nodes.get(node)
        mine = about(events, "Pod", name_of(pod), str(meta.get("uid") or ""))
        symptom = examine(pod, Surroundings(events=mine, node=state))
        said = f"{symptom.issue.reason}: {symptom.issue.message}".strip(": ") if symptom else _ended(status)
        addresses = tuple(_addresses(meta, spec, status))
        yield Pod(name_of(pod), node, addresses, safe(said, 200), _node_trouble(state), kube.namespace)


def _events(kube: Kube, evidence: Evidence) -> list[Event]:
    try:
        items, _ = kube.list(path("events", namespace=kube.namespace), fieldSelector="involvedObject.kind=Pod")
    except ClusterError as error:
        evidence.not_seen.append(f"events of the pods: {_right(kube, error)}")
        return []
    return read_events(items)


def _nodes(kube: Kube, pods: Sequence[Unstructured], evidence: Evidence) -> dict[str, Unstructured]:
    nodes: dict[str, Unstructured] = {}
    names = sorted({node_of(pod) for pod in pods} - {""})
    if names and _refused(kube, "get", "nodes"):
        evidence.not_seen.append(f"state of the nodes: {_no_nodes(kube)}")
        return nodes
    for node in names[:MOST_NODES]:
        try:
            nodes[node] = kube.get(path("nodes", node))
        except ApiError as error:
            if error.status != 404:
                evidence.not_seen.append(f"state of the nodes: {_right(kube, error)}")
                break
        except ClusterError as error:
            evidence.not_seen.append(f"state of the nodes: {safe(error, 200)}")
            break
    return nodes


def _node_trouble(node: Unstructured | None) -> str:
    """Name a node's bad conditions: Ready if it is not True, and any other that is True."""
    if node is None:
        return ""
    said = []
    for kind, condition in by_type(as_map(node.get("status"))).items():
        state = str(condition.get("status"))
        if (kind == "Ready") != (state == "True"):
            trouble = f"{kind}={state}" + (
                f" ({safe(condition.get('reason') or '', 60)})" if condition.get("reason") else ""
            )
            said += [trouble] if kind == "Ready" or state == "True" else []
    if as_map(node.get("spec")).get("unschedulable") is True:
        said.append("cordoned")
    return safe(", ".join(said), 200)


def _ended(status: Unstructured) -> str:
    """Describe a container's state or last termination, if the pod has no other problem."""
    for entry in as_list(status.get("containerStatuses")):
        for state, when in ((as_map(entry.get("state")), ""), (as_map(entry.get("lastState")), "before its restart ")):
            end = as_map(state.get("terminated"))
            if end and (end.get("exitCode") or when):
                return (
                    f"{when}container {entry.get('name')} ended: {end.get('reason')}, exit code {end.get('exitCode')}"
                )
    return ""


def _addresses(meta: Unstructured, spec: Unstructured, status: Unstructured) -> Iterator[str]:
    """Yield a pod's name and addresses; RAS has that of NCCL's bootstrap interface, which may be a second network's."""
    yield str(spec.get("hostname") or name_of({"metadata": meta}))
    yield from (str(entry.get("ip")) for entry in as_list(status.get("podIPs")))
    yield str(status.get("podIP") or "")
    try:
        networks = json.loads(str(as_map(meta.get("annotations")).get("k8s.v1.cni.cncf.io/network-status") or "[]"))
    except (ValueError, RecursionError):
        return
    for network in as_list(networks):
        yield from as_texts(network.get("ips"))


# -- exec --------------------------------------------------------------------------------------------------------------
def _running(pod: Unstructured) -> bool:
    return phase_of(pod) == "Running" and bool(_container(pod))


def _container(pod: Unstructured) -> str:
    """Return the running container that runs the job: the one that requests GPUs, else the first."""
    running = {
        str(entry.get("name"))
        for entry in as_list(as_map(pod.get("status")).get("containerStatuses"))
        if "running" in as_map(entry.get("state"))
    }
    containers = [c for c in as_list(as_map(pod.get("spec")).get("containers")) if str(c.get("name")) in running]
    containers.sort(key=lambda container: not _asks_gpus(container))
    return str(containers[0].get("name")) if containers else ""


def _asks_gpus(container: Unstructured) -> bool:
    asked = as_map(container.get("resources"))
    amounts = as_map(asked.get("limits")) | as_map(asked.get("requests"))
    return any("gpu" in key for key in amounts) or bool(asked.get("claims"))


def _gpus(pod: Unstructured) -> bool:
    return any(_asks_gpus(container) for container in as_list(as_map(pod.get("spec")).get("containers")))


def _dumps_set(pod: Unstructured) -> bool:
    return any(
        entry.get("name") in _DUMP_SETTINGS
        for container in as_list(as_map(pod.get("spec")).get("containers"))
        for entry in as_list(container.get("env"))
    )


def _script(samples: int, dumps: str) -> tuple[list[str], bytes]:
    """Return the command and its standard input: the client and its call."""
    source = Path(ras_client.__file__)
    call = f"\nmain({samples!r}, {PAUSE_S!r}, {dumps!r}, {MOST_DUMP_BYTES!r})\n"
    text = source.read_bytes() + call.encode()
    return ["sh", "-c", _SHELL % (len(text), samples, PAUSE_S, PAUSE_S)], text


def _ask(kube: Kube, pod: Unstructured, evidence: Evidence, *, samples: int, dumps: str) -> bool:
    """Run the client in a pod and add its output; return whether it found dumps. Raises Forbidden and the like."""
    command, text = _script(samples, dumps)
    done = execute(
        kube, name_of(pod), _container(pod), command, stdin=text, deadline_s=_EXEC_S, most_bytes=2 * MOST_DUMP_BYTES
    )
    return _take(name_of(pod), done, evidence)


def _all_dumps(kube: Kube, pods: Sequence[Unstructured], evidence: Evidence, dumps: str) -> None:
    if len(pods) > MOST_PODS:
        evidence.not_seen.append(
            f"dumps of {len(pods) - MOST_PODS} more pods: copy them into a folder, and explain that"
        )
    command, text = _script(0, dumps)

    def one(pod: Unstructured) -> Executed:
        return execute(kube, name_of(pod), _container(pod), command, stdin=text, deadline_s=_EXEC_S)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for pod, done in zip(pods[:MOST_PODS], pool.map(one, pods[:MOST_PODS]), strict=True):
            _take(name_of(pod), done, evidence)


def _take(pod: str, done: Executed, evidence: Evidence) -> bool:
    """Read the client's lines; other output, such as a shell profile's, is ignored."""
    taken, any_taken = 0, False
    raw = done.out.decode("utf-8", "replace")
    if "Communicators..." in raw and not raw.lstrip().startswith("{"):
        taken += take_sample(evidence, f"RAS in pod {pod}", raw)
    for line in raw.splitlines():
        try:
            message = json.loads(line) if line.startswith("{") else None
            data = (
                zlib.decompressobj().decompress(base64.b64decode(message["data"]), 65 << 20)
                if message and "dump" in message
                else b""
            )
        except (ValueError, TypeError, KeyError, zlib.error, RecursionError):
            continue
        if not isinstance(message, dict):
            continue
        if isinstance(message.get("sample"), str):
            taken += take_sample(evidence, f"RAS in pod {pod}", message["sample"])
        elif isinstance(message.get("note"), str):
            evidence.not_seen.append(f"pod {pod}: {safe(message['note'], 300)}")
            taken += 1
        elif "dump" in message:
            any_taken = True
            take_dump(evidence, f"{pod}:{safe(message['dump'], 200)}", data)
    if done.code != 0 or done.cut:
        why = done.errors.decode("utf-8", "replace").strip().splitlines()[-1:] or [
            done.message or "it ended without a status"
        ]
        evidence.not_seen.append(f"pod {pod}: the RAS client did not finish: {safe(why[0], 200)}")
    return any_taken


def _right(kube: Kube, error: ClusterError) -> str:
    """Name the missing permission and the command that grants it; other errors are quoted."""
    if not isinstance(error, Forbidden):
        return safe(error, 300)
    subject, where = _subject(kube), str(error).split(": 403", maxsplit=1)[0]
    if "/nodes/" in where:
        return _no_nodes(kube)
    what, verbs = ("events", "list") if "/events" in where else ("pods/exec", "get,create")
    space = f"-n {kube.namespace}"
    return (
        f"no permission to {verbs.replace(',', ' and ')} {what} in {kube.namespace}; grant it by: kubectl"
        f" create role seatrial-hang {space} --verb={verbs} --resource={what} && kubectl create rolebinding"
        f" seatrial-hang {space} --role=seatrial-hang {subject} (seatrial rbac --hang prints all that explain can use)"
    )


def _no_nodes(kube: Kube) -> str:
    grant = f"kubectl create clusterrole seatrial-nodes --verb=get --resource=nodes, bound with {_subject(kube)}"
    return f"no permission to get nodes ({grant})"


def _subject(kube: Kube) -> str:
    who = safe(_whoami(kube), 200) or "YOU"
    account = who.removeprefix("system:serviceaccount:")
    return f"--serviceaccount={account}" if account != who else f"--user={who}"


def _whoami(kube: Kube) -> str:
    try:
        return kube.whoami()
    except ClusterError:
        return ""
