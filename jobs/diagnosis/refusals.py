"""Why the API server refused to create something: quota, limits, PodSecurity, a webhook, rights.

One reader for three places where the same texts turn up: our own requests (403, 422), the dry run of a pod, and the
FailedCreate events of a Job whose pods the controller may not create. The texts are those of Kubernetes 1.28 to 1.36
(plugin/pkg/admission, pkg/registry/rbac); the recordings of a real 1.36 cluster hold most of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from ..cluster.redact import safe
from ..cluster.unstructured import quantity


@dataclass(frozen=True, slots=True)
class Refusal:
    """What refused: the fault, whose name it is about, and what to do."""

    fault: str
    subject: str
    suggestion: str
    in_use: bool = False  # of a quota that is large enough and used by other pods: nothing is at fault


# Kinds of which a trial makes one, as a quota counts them.
OBJECTS = r"(?:count/)?(?:configmaps|services)|count/(?!pods)[a-z.]+|services\.[a-z]+"
_RUNTIME = "Apply Trainer's runtimes, or name another one (launch.runtime in the profile)."
# In order: the first that fits. Named groups become the subject.
_TEXTS: tuple[tuple[str, str, str, str], ...] = (
    # plugin/pkg/admission/resourcequota/controller.go names of what is requested only what there is no room for.
    (
        r"exceeded quota: (?P<name>[^,\s]+), requested: (?:[^;]*?,)?limits\.",
        "quota.exceeded",
        "resourcequota/{name}",
        "The quota counts limits: lower limits of the pod in the profile, free what holds the quota, or raise it.",
    ),
    (
        rf"exceeded quota: (?P<name>[^,\s]+), requested: (?:{OBJECTS})=",
        "quota.exceeded",
        "resourcequota/{name}",
        "The quota counts objects, and a trial makes one of each kind: delete what nobody needs, or raise it.",
    ),
    (
        r"exceeded quota: (?P<name>[^,\s]+)",
        "quota.exceeded",
        "resourcequota/{name}",
        "Free what holds the quota, raise it, or ask for fewer nodes (kubectl describe resourcequota).",
    ),
    (
        r"failed quota: (?P<name>[^:\s]+): must specify [^\n]*limits\.",
        "quota.exceeded",
        "resourcequota/{name}",
        "The quota wants every pod to state limits: set limits (cpu, memory) of the pod in the profile.",
    ),
    (
        r"failed quota: (?P<name>[^:\s]+): must specify (?P<what>[^\n]+)",
        "quota.exceeded",
        "resourcequota/{name}",
        "The quota wants every pod to state these amounts: set cpu and memory of the pod in the profile.",
    ),
    (
        r"status unknown for quota|unable to get.*quota|insufficient quota",
        "quota.exceeded",
        "resourcequota",
        "The quota cannot be evaluated: kubectl describe resourcequota.",
    ),
    (
        r"violates PodSecurity \"(?P<name>[^\"]+)\"",
        "pod-security.denied",
        "podsecurity/{name}",
        "Take what it forbids out of the profile, or use a namespace whose enforce level admits it: baseline admits "
        "what only restricted forbids; IPC_LOCK, hostNetwork and hostPath need privileged.",
    ),
    (
        # OpenShift, in the place of Pod Security: openshift/apiserver-library-go, pkg/securitycontextconstraints.
        r"unable to validate against any security context constraint",
        "admission.denied",
        "securitycontextconstraints",
        "Let the pod's service account use a constraint that admits it (oc adm policy add-scc-to-user SCC -z NAME), or "
        "take what it forbids out of the profile.",
    ),
    (
        r"(?:maximum|minimum) [\w./-]+ usage per (?:Container|Pod|container|pod)"
        r"|[\w./-]+ max limit to request ratio per|No limit is specified"
        r"|must be less than or equal to (?:memory|cpu) limit of",
        "limitrange.denied",
        "limitrange",
        "Raise the LimitRange of the namespace, or change cpu and memory of the pod in the profile.",
    ),
    (
        r"RuntimeClass \"?(?P<name>[^\"\s]+)\"? not found|runtimeclass\.\S+ \"(?P<name2>[^\"]+)\" not found",
        "runtimeclass.missing",
        "runtimeclass/{name}",
        "Create the RuntimeClass, or take runtime_class out of the profile.",
    ),
    (
        r"no PriorityClass with name (?P<name>\S+) was found",
        "priorityclass.missing",
        "priorityclass/{name}",
        "Create the PriorityClass, or take priority_class out of the profile.",
    ),
    (
        r"serviceaccounts? \"?(?P<name>[^\"\s]+?)\"? (?:was )?not found"
        r"|error looking up service account [^/\s]+/(?P<name2>[^:\s]+): ",
        "serviceaccount.missing",
        "serviceaccount/{name}",
        "Create the service account that the pod names, or name another.",
    ),
    (
        # kubeflow/trainer pkg/runtime/core: the webhook of a TrainJob whose runtime is not there.
        r"[Cc]lusterTrainingRuntime\S* \"?(?P<name>[^\"\s:]+)\"? not found|(?P<name2>[^\"\s]+): specified"
        r" clusterTrainingRuntime must be created",
        "launcher.runtime-missing",
        "clustertrainingruntime/{name}",
        _RUNTIME,
    ),
    (
        # kubernetes-sigs/kueue pkg/controller/jobs/trainjob: its webhook reads the runtime, too, and may answer first.
        r"webhook \"[^\"]*trainjob[^\"]*\" denied the request: runtime '(?P<name>[^'\n]+)' not found",
        "launcher.runtime-missing",
        "clustertrainingruntime/{name}",
        _RUNTIME,
    ),
    (
        r"webhook \"(?P<name>[^\"]*trainjob[^\"]*)\" denied the request: unsupported runtime: ",
        "launcher.runtime-unknown",
        "webhook/{name}",
        "Kueue has not found Trainer's kinds yet: run it again two minutes after Trainer was installed; where that "
        "does not help, restart Kueue's controller.",
    ),
    (
        r"(?:in namespace (?P<name>\S+) )?because it is being terminated",
        "namespace.terminating",
        "{name}",
        "Wait until the namespace is gone, or use another one.",
    ),
    (
        r"admission webhook \"(?P<name>[^\"]+)\" (?:denied|does not support)",
        "admission.denied",
        "webhook/{name}",
        "The webhook's message says what it wants; exempt the namespace or change the pod.",
    ),
    (
        # k8s.io/apiserver pkg/admission/plugin/webhook: its own error, where the call itself failed.
        r"failed calling (?:admission )?webhook \"(?P<name>[^\"]+)\"",
        "admission.webhook-down",
        "webhook/{name}",
        "Nobody answers for the webhook: let its controller run, which the address in the message names.",
    ),
    (
        r"ValidatingAdmissionPolicy '(?P<name>[^']+)'",
        "admission.denied",
        "policy/{name}",
        "The policy's message says what it wants; exempt the namespace or change the pod.",
    ),
    (
        r"cannot (?P<verb>\w+) resource \"(?P<what>[^\"]+)\" in API group \"(?P<group>[^\"]*)\""
        r"(?: in the namespace \"(?P<place>[^\"]+)\")?",
        "rights.missing",
        "{verb} {what}{place}",
        "Ask for this right in the namespace (kubectl auth can-i).",
    ),
)
_WAIT = "Other pods use the quota: run it again once they have ended (kubectl describe resourcequota)."
# The API server itself could not be reached: Go's net and net/http, as a controller's client words it.
_UNREACHED = re.compile(r"dial tcp|connect: connection refused|connection reset by peer|i/o timeout|\bEOF\b")
_COMPILED = tuple((re.compile(text), fault, subject, advice) for text, fault, subject, advice in _TEXTS)


def is_policys(message: str) -> bool:
    """Tell whether a webhook or a policy speaks, whatever HTTP status it chose: 400, 403 and 422 are in use.

    A ValidatingAdmissionPolicy answers 422 where it names no reason (API reference, Validation.reason).
    """
    return bool(re.search(r"webhook|(?:Validating|Mutating)AdmissionPolicy '", message))


_QUOTA = re.compile(r"exceeded quota: [^,\s]+, requested: (\S+), used: \S+, limited: (\S+)")


def _in_use(message: str, pods: int) -> bool:
    """Tell whether a quota that refused one of so many equal pods would have room for all, were it not in use."""
    match = _QUOTA.search(message)
    if match is None:
        return False
    asked, limits = (dict(_amounts(part)) for part in match.groups())
    return bool(asked) and all(
        not re.fullmatch(OBJECTS, key) and key in limits and amount * pods <= limits[key]
        for key, amount in asked.items()
    )


def _amounts(text: str) -> Iterator[tuple[str, Decimal]]:
    for part in text.split(","):
        key, _, value = part.partition("=")
        if (amount := quantity(value)) is not None:
            yield key, amount


def read_refusal(message: str, pods: int = 0) -> Refusal:
    """Tell which rule refused; an unknown refusal is admission.denied, with its message to go by.

    ``pods``: how many such pods are wanted together, where that is known: a quota with room for all is only in use.
    """
    for pattern, fault, subject, advice in _COMPILED:
        match = pattern.search(message)
        if not match:
            continue
        names = match.groupdict()
        group = names.get("group") or ""
        parts = {
            "name": names.get("name") or names.get("name2") or "?",
            "verb": names.get("verb") or "",
            "place": f" in {names['place']}" if names.get("place") else "",
            "what": (names.get("what") or "") + (f".{group}" if group else ""),
        }
        if fault == "quota.exceeded" and pods and _in_use(message, pods):
            return Refusal("quota.in-use", safe(subject.format(**parts), 200), _WAIT, in_use=True)
        return Refusal(fault, safe(subject.format(**parts), 200), advice)
    if not _UNREACHED.search(message) and re.search(r"(?i)forbidden|denied|invalid|not allowed|refused", message):
        return Refusal("admission.denied", "pod", "The API server's message says what it objects to.")
    # "Internal error occurred", "etcdserver: request timed out", ...: no refusal, it is tried again.
    return Refusal("job.start-timeout", "pod", "The API server could not create the pod yet; see its message.")
