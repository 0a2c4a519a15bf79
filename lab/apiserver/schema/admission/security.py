"""Admission plugin PodSecurity: the levels that a namespace enforces, or warns about.

Checks, their order and their messages are those of k8s.io/pod-security-admission/policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import forbidden

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..kinds import Kind
    from ..requests import Request
    from ..seams import Objects
    from ..values import Object

    Finding = tuple[str, str] | None

LABELS = "pod-security.kubernetes.io/"
LEVELS = ("privileged", "baseline", "restricted")
TEMPLATES = {
    "jobs.batch": ("spec", "template"),
    "cronjobs.batch": ("spec", "jobTemplate", "spec", "template"),
    "deployments.apps": ("spec", "template"),
    "replicasets.apps": ("spec", "template"),
    "daemonsets.apps": ("spec", "template"),
    "replicationcontrollers": ("spec", "template"),
    "podtemplates": ("template",),
}
DEFAULT_CAPABILITIES = {
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
}
SAFE_SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
}
FREE_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
    "image",
}
SELINUX_TYPES = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}


def judge(store: Objects, kind: Kind, obj: Object, request: Request) -> None:
    """Reject a pod below the enforced level; warn about pods and templates below the warn level."""
    if not kind.namespaced or (kind.key != "pods" and kind.key not in TEMPLATES):
        return
    namespace = store.get("namespaces", None, obj["metadata"]["namespace"])
    labels = (namespace or {}).get("metadata", {}).get("labels") or {}
    if not any(label.startswith(LABELS) for label in labels):
        return
    spec = obj.get("spec", {})
    if kind.key in TEMPLATES:
        template: Any = obj
        for part in TEMPLATES[kind.key]:
            template = template.get(part) or {}
        spec = template.get("spec") or {}
    else:
        level, version = policy(labels, "enforce")
        reasons = violations(spec, level)
        if reasons:
            why = f'violates PodSecurity "{level}:{version}": {reasons}'
            raise forbidden("pods", "", obj["metadata"].get("name", ""), why)
    level, version = policy(labels, "warn")
    reasons = violations(spec, level)
    if reasons:
        request.warnings.append(f'would violate PodSecurity "{level}:{version}": {reasons}')


def policy(labels: Object, mode: str) -> tuple[str, str]:
    """Return (level, version) of a mode; an unknown level counts as restricted."""
    level = labels.get(LABELS + mode, "privileged")
    return (level if level in LEVELS else "restricted"), labels.get(f"{LABELS}{mode}-version", "latest")


def relabelled(store: Objects, old: Object, new: Object, request: Request) -> None:
    """Warn if the running pods of a namespace violate the level that it starts to enforce."""
    before = policy(old["metadata"].get("labels") or {}, "enforce")
    after = policy(new["metadata"].get("labels") or {}, "enforce")
    if LEVELS.index(after[0]) <= LEVELS.index(before[0]):
        return
    name = new["metadata"]["name"]
    by_text: dict[str, list[str]] = {}
    for pod in store.list("pods", name):
        failures = findings(pod.get("spec", {}), after[0])
        if failures:
            by_text.setdefault(", ".join(reason for reason, _ in failures), []).append(pod["metadata"]["name"])
    if by_text:
        request.warnings.append(
            f'existing pods in namespace "{name}" violate the new PodSecurity enforce level "{after[0]}:{after[1]}"'
        )
        for text, pods in sorted(by_text.items(), key=lambda item: item[1]):
            more = "" if len(pods) == 1 else f" (and {len(pods) - 1} other pod{'s' if len(pods) > 2 else ''})"
            request.warnings.append(f"{pods[0]}{more}: {text}")


def violations(spec: Object, level: str) -> str:
    """Return all violations of a pod spec as one sentence; "" if there are none."""
    return ", ".join(f"{reason} ({detail})" if detail else reason for reason, detail in findings(spec, level))


def findings(spec: Object, level: str) -> list[tuple[str, str]]:
    """Return (reason, detail) of each check that fails at a level."""
    if level == "privileged":
        return []
    checks = list(BASELINE)
    if level == "restricted":
        checks = [check for check in checks if check not in OVERRIDDEN] + RESTRICTED
    return [finding for check in checks if (finding := check(spec)) is not None]


def _containers(spec: Object) -> list[Object]:
    return [c for part in ("initContainers", "containers", "ephemeralContainers") for c in spec.get(part) or []]


def _context(container: Object) -> Object:
    return container.get("securityContext") or {}


def _named(word: str, names: list[str], plural: str = "") -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"{word if len(names) == 1 else plural or word + 's'} {quoted}"


def _offenders(spec: Object, bad: Callable[[Object], bool]) -> list[str]:
    return [container["name"] for container in _containers(spec) if bad(container)]


# -- baseline


def _capabilities_baseline(spec: Object) -> Finding:
    added = {name for c in _containers(spec) for name in (_context(c).get("capabilities") or {}).get("add") or []}
    extra = sorted(added - DEFAULT_CAPABILITIES)
    if not extra:
        return None
    names = _offenders(spec, lambda c: bool(set((_context(c).get("capabilities") or {}).get("add") or []) & set(extra)))
    quoted = ", ".join(f'"{name}"' for name in extra)
    return (
        "non-default capabilities",
        f"{_named('container', names)} must not include {quoted} in securityContext.capabilities.add",
    )


def _host_namespaces(spec: Object) -> Finding:
    shared = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    return ("host namespaces", ", ".join(shared)) if shared else None


def _host_paths(spec: Object) -> Finding:
    names = [volume["name"] for volume in spec.get("volumes") or [] if volume.get("hostPath") is not None]
    return ("hostPath volumes", _named("volume", names)) if names else None


def _host_ports(spec: Object) -> Finding:
    def ports(container: Object) -> list[int]:
        return [port["hostPort"] for port in container.get("ports") or [] if port.get("hostPort")]

    names = _offenders(spec, lambda c: bool(ports(c)))
    if not names:
        return None
    numbers = sorted({number for c in _containers(spec) for number in ports(c)})
    verb = "uses" if len(names) == 1 else "use"
    word = "hostPort" if len(numbers) == 1 else "hostPorts"
    return "hostPort", f"{_named('container', names)} {verb} {word} {', '.join(str(n) for n in numbers)}"


def _privileged(spec: Object) -> Finding:
    names = _offenders(spec, lambda c: bool(_context(c).get("privileged")))
    return (
        ("privileged", f"{_named('container', names)} must not set securityContext.privileged=true") if names else None
    )


def _proc_mount(spec: Object) -> Finding:
    names = _offenders(spec, lambda c: _context(c).get("procMount") not in (None, "Default"))
    if not names:
        return None
    kinds = sorted({_context(c)["procMount"] for c in _containers(spec) if c["name"] in names})
    quoted = ", ".join(f'"{kind}"' for kind in kinds)
    return "procMount", f"{_named('container', names)} must not set securityContext.procMount to {quoted}"


def _selinux(spec: Object) -> Finding:
    def bad(context: Object) -> bool:
        options = context.get("seLinuxOptions") or {}
        return bool(options.get("user") or options.get("role")) or options.get("type", "") not in SELINUX_TYPES

    setters = ["pod"] if bad(spec.get("securityContext") or {}) else []
    names = _offenders(spec, lambda c: bad(_context(c)))
    setters += [_named("container", names)] if names else []
    if not setters:
        return None
    return "seLinuxOptions", f"{' and '.join(setters)} set forbidden securityContext.seLinuxOptions"


def _seccomp_baseline(spec: Object) -> Finding:
    def bad(context: Object) -> bool:
        return (context.get("seccompProfile") or {}).get("type") == "Unconfined"

    setters = ["pod"] if bad(spec.get("securityContext") or {}) else []
    names = _offenders(spec, lambda c: bad(_context(c)))
    setters += [_named("container", names)] if names else []
    if not setters:
        return None
    return "seccompProfile", f'{" and ".join(setters)} must not set securityContext.seccompProfile.type to "Unconfined"'


def _sysctls(spec: Object) -> Finding:
    given = (spec.get("securityContext") or {}).get("sysctls") or []
    names = [item.get("name", "") for item in given if item.get("name") not in SAFE_SYSCTLS]
    return ("forbidden sysctls", ", ".join(names)) if names else None


# -- restricted


def _escalation(spec: Object) -> Finding:
    names = _offenders(spec, lambda c: _context(c).get("allowPrivilegeEscalation") is not False)
    if not names:
        return None
    return (
        "allowPrivilegeEscalation != false",
        f"{_named('container', names)} must set securityContext.allowPrivilegeEscalation=false",
    )


def _capabilities_restricted(spec: Object) -> Finding:
    def dropped(container: Object) -> bool:
        return "ALL" in ((_context(container).get("capabilities") or {}).get("drop") or [])

    def added(container: Object) -> list[str]:
        return [n for n in (_context(container).get("capabilities") or {}).get("add") or [] if n != "NET_BIND_SERVICE"]

    details = []
    missing = _offenders(spec, lambda c: not dropped(c))
    if missing:
        details.append(f'{_named("container", missing)} must set securityContext.capabilities.drop=["ALL"]')
    adding = _offenders(spec, lambda c: bool(added(c)))
    if adding:
        quoted = ", ".join(f'"{n}"' for n in sorted({n for c in _containers(spec) for n in added(c)}))
        details.append(f"{_named('container', adding)} must not include {quoted} in securityContext.capabilities.add")
    return ("unrestricted capabilities", "; ".join(details)) if details else None


def _volume_types(spec: Object) -> Finding:
    bad = [
        (volume["name"], kind)
        for volume in spec.get("volumes") or []
        for kind in volume
        if kind != "name" and kind not in FREE_VOLUMES
    ]
    if not bad:
        return None
    kinds = sorted({kind for _, kind in bad})
    verb, word = ("uses", "restricted volume type") if len(bad) == 1 else ("use", "restricted volume types")
    quoted = ", ".join(f'"{kind}"' for kind in kinds)
    if len(bad) > 1 and len(kinds) == 1:
        word = "restricted volume type"
    return "restricted volume types", f"{_named('volume', [name for name, _ in bad])} {verb} {word} {quoted}"


def _non_root(spec: Object) -> Finding:
    pod = (spec.get("securityContext") or {}).get("runAsNonRoot")
    denied = _offenders(spec, lambda c: _context(c).get("runAsNonRoot") is False)
    setters = (["pod"] if pod is False else []) + ([_named("container", denied)] if denied else [])
    if setters and (denied or pod is False):
        unset = _offenders(spec, lambda c: _context(c).get("runAsNonRoot") is None)
        if denied or unset:
            return "runAsNonRoot != true", f"{' and '.join(setters)} must not set securityContext.runAsNonRoot=false"
    if pod:
        return None
    missing = _offenders(spec, lambda c: _context(c).get("runAsNonRoot") is None)
    if not missing:
        return None
    return "runAsNonRoot != true", f"pod or {_named('container', missing)} must set securityContext.runAsNonRoot=true"


def _root_user(spec: Object) -> Finding:
    setters = ["pod"] if (spec.get("securityContext") or {}).get("runAsUser") == 0 else []
    names = _offenders(spec, lambda c: _context(c).get("runAsUser") == 0)
    setters += [_named("container", names)] if names else []
    return ("runAsUser=0", f"{' and '.join(setters)} must not set runAsUser=0") if setters else None


def _seccomp_restricted(spec: Object) -> Finding:
    allowed = ("RuntimeDefault", "Localhost")
    pod = ((spec.get("securityContext") or {}).get("seccompProfile") or {}).get("type")

    def own(container: Object) -> Any:
        return (_context(container).get("seccompProfile") or {}).get("type")

    bad = _offenders(spec, lambda c: own(c) is not None and own(c) not in allowed)
    setters = (["pod"] if pod is not None and pod not in allowed else []) + ([_named("container", bad)] if bad else [])
    if setters:
        kinds = {pod if pod not in (None, *allowed) else None, *(own(c) for c in _containers(spec) if c["name"] in bad)}
        quoted = ", ".join(f'"{kind}"' for kind in sorted(k for k in kinds if k))
        return "seccompProfile", f"{' and '.join(setters)} must not set securityContext.seccompProfile.type to {quoted}"
    if pod in allowed:
        return None
    missing = _offenders(spec, lambda c: own(c) is None)
    if not missing:
        return None
    subject = f"pod or {_named('container', missing)}"
    return (
        "seccompProfile",
        f'{subject} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"',
    )


BASELINE: list[Callable[[Object], Finding]] = [
    _capabilities_baseline,
    _host_namespaces,
    _host_paths,
    _host_ports,
    _privileged,
    _proc_mount,
    _selinux,
    _seccomp_baseline,
    _sysctls,
]
RESTRICTED: list[Callable[[Object], Finding]] = [
    _escalation,
    _capabilities_restricted,
    _volume_types,
    _non_root,
    _root_user,
    _seccomp_restricted,
]
OVERRIDDEN = (_capabilities_baseline, _host_paths, _seccomp_baseline)
