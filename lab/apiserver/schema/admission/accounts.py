"""Admission plugin ServiceAccount: the account of a pod, and the token volume of its containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import forbidden
from ..values import clone, suffix

if TYPE_CHECKING:
    from ..seams import Objects
    from ..values import Object

MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_SECONDS = 3607  # one hour and seven seconds: the plugin's mark for tokens that may live longer


def service_account(store: Objects, pod: Object) -> None:
    """Add the service account, its pull secrets and a token volume to a pod."""
    spec, namespace = pod["spec"], pod["metadata"]["namespace"]
    name = spec.get("serviceAccountName") or "default"
    account = store.get("serviceaccounts", namespace, name)
    if account is None:
        why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise forbidden("pods", "", pod["metadata"].get("name", ""), why)
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = clone(account["imagePullSecrets"])
    automount = spec.get("automountServiceAccountToken")
    if automount is None:
        automount = account.get("automountServiceAccountToken", True)
    if automount:
        _mount_token(spec)


def _mount_token(spec: Object) -> None:
    volumes = [v["name"] for v in spec.get("volumes") or [] if v.get("name", "").startswith("kube-api-access-")]
    volume = volumes[0] if volumes else f"kube-api-access-{suffix()}"
    mounted = False
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        mounts = container.get("volumeMounts") or []
        if any(mount.get("mountPath") == MOUNT for mount in mounts):
            continue
        container["volumeMounts"] = [*mounts, {"name": volume, "readOnly": True, "mountPath": MOUNT}]
        mounted = True
    if mounted and not volumes:
        spec["volumes"] = [*(spec.get("volumes") or []), token_volume(volume)]


def token_volume(name: str) -> Object:
    """Return the projected volume with token, CA certificate and namespace."""
    reference = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": reference}]}},
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": 420}}
