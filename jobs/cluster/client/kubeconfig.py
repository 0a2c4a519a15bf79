"""Selection and validation of the kubeconfig, context and namespace.

No request is sent. Every error is one line that names the file and, for a wrong context, the nearest existing one. The
search order is kubectl's: --kubeconfig, $KUBECONFIG (several files, merged, the first wins), ~/.kube/config, and inside
a pod the service account (https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/).
"""

from __future__ import annotations

import base64
import binascii
import difflib
import hashlib
import os
import re
import ssl
from dataclasses import dataclass
from pathlib import Path

from ...listing import first_of, nearest
from ..redact import safe
from ..unstructured import Unstructured
from .errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# A kubeconfig with many contexts and embedded certificates stays far below this; a larger one is a mistake.
_LARGEST = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSource:
    """The source of the connection settings; `paths` is empty for the in-cluster service account."""

    paths: str = ""
    context: str = ""
    namespace: str = "default"
    server: str = ""
    own_proxy: bool = False
    exec_plugin: str = ""
    ca: str = ""  # fingerprint of the server's certificate authority; '' if none is configured or verification is off


def locate(kubeconfig: str | None, context: str | None, namespace: str | None) -> ClusterSource:
    """Find and validate the connection settings. Raises ConfigError, which names the fix in one line."""
    if not kubeconfig:  # the environment describes the user's default cluster, not that of an explicit file
        context = context or os.environ.get("TAO_K8S_CONTEXT") or None
        namespace = namespace or os.environ.get("TAO_K8S_NAMESPACE") or None
    paths = [Path(kubeconfig).expanduser()] if kubeconfig else _default_paths()
    present = [path for path in paths if path.exists()]
    if kubeconfig and not present:
        raise ConfigError(f"kubeconfig {kubeconfig} does not exist{_nearest_file(paths[0])}")
    if not present:
        if in_pod():
            return _service_account(context, namespace)
        tried = ", ".join(str(path) for path in paths)
        raise ConfigError(
            f"no kubeconfig found (tried {tried}) and not running in a pod: pass --kubeconfig FILE, set KUBECONFIG, "
            "or use --cluster sim"
        )
    merged = _merge([(path, _load(path)) for path in present])
    return _select(present, merged, context, namespace)


def in_pod() -> bool:
    """Return whether this process has a service account token and the API server's address."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and (SERVICE_ACCOUNT / "token").is_file()


def _default_paths() -> list[Path]:
    listed = [Path(part).expanduser() for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return listed or [Path("~/.kube/config").expanduser()]


def _service_account(context: str | None, namespace: str | None) -> ClusterSource:
    if context:
        raise ConfigError(
            f"context {context!r} was requested, but this pod has only its service account, no kubeconfig"
        )
    own = SERVICE_ACCOUNT / "namespace"
    own_namespace = own.read_text(encoding="utf-8").strip() if own.is_file() else ""
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    return ClusterSource(
        namespace=namespace or own_namespace or "default",
        server=f"https://{host}:{port}",
        ca=_fingerprint(SERVICE_ACCOUNT, {"certificate-authority": "ca.crt"}),
    )


def _load(path: Path) -> Unstructured:
    import yaml  # noqa: PLC0415  (not needed by --help)

    if path.is_dir():
        raise ConfigError(f"kubeconfig {path} is a directory (expected a file)")
    try:
        if path.stat().st_size > _LARGEST:
            raise ConfigError(f"kubeconfig {path} is larger than {_LARGEST >> 20} MiB: not a kubeconfig")
        data = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except OSError as error:
        raise ConfigError(f"kubeconfig {path} cannot be read: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1} column {mark.column + 1}" if mark else ""
        problem = safe(getattr(error, "problem", None) or error, 200)
        raise ConfigError(f"kubeconfig {path} is not valid YAML{where}: {problem}") from error
    if data is None:
        raise ConfigError(f"kubeconfig {path} is empty")
    if not isinstance(data, dict):
        raise ConfigError(f"kubeconfig {path} is not a kubeconfig: expected a mapping, found {type(data).__name__}")
    return data


def _merge(loaded: list[tuple[Path, Unstructured]]) -> Unstructured:
    """Merge several files as kubectl does; every entry keeps its folder for relative file names."""
    merged: Unstructured = {"contexts": {}, "clusters": {}, "users": {}, "current-context": ""}
    for path, data in loaded:
        merged["current-context"] = merged["current-context"] or data.get("current-context") or ""
        for section, key in (("contexts", "context"), ("clusters", "cluster"), ("users", "user")):
            entries = data.get(section) or []
            if not isinstance(entries, list):
                raise ConfigError(f"kubeconfig {path}: {section} must be a list")
            for entry in entries:
                if not isinstance(entry, dict) or not entry.get("name"):
                    raise ConfigError(f"kubeconfig {path}: an entry of {section} has no name")
                body = entry.get(key)
                if body is not None and not isinstance(body, dict):
                    raise ConfigError(f"kubeconfig {path}: {section} {entry['name']!r} has no {key} mapping")
                merged[section].setdefault(str(entry["name"]), (path.parent, body or {}))
    return merged


def _select(paths: list[Path], merged: Unstructured, context: str | None, namespace: str | None) -> ClusterSource:
    files = os.pathsep.join(str(path) for path in paths)
    name = str(context or merged["current-context"] or "")
    known = sorted(merged["contexts"])
    if not name:
        raise ConfigError(
            f"kubeconfig {files} has no current context: pass --context NAME ({_some(known) or 'it has no contexts'})"
        )
    if name not in merged["contexts"]:
        raise ConfigError(
            f"kubeconfig {files} has no context {safe(name, 100)!r}{nearest(name, known) or '; it has none'}"
        )
    _, body = merged["contexts"][name]
    cluster_name, user_name = str(body.get("cluster") or ""), str(body.get("user") or "")
    if cluster_name not in merged["clusters"]:
        hint = nearest(cluster_name, merged["clusters"])
        raise ConfigError(f"kubeconfig {files}: context {name!r} names the cluster {cluster_name!r}, not found{hint}")
    folder, cluster = merged["clusters"][cluster_name]
    server = str(cluster.get("server") or "")
    if not server.startswith(("https://", "http://")):
        raise ConfigError(f"kubeconfig {files}: cluster {cluster_name!r} has no usable server (found {server!r})")
    _files_exist(files, f"cluster {cluster_name!r}", folder, cluster, ("certificate-authority",))
    plugin = ""
    if user_name:
        if user_name not in merged["users"]:
            hint = nearest(user_name, merged["users"])
            raise ConfigError(f"kubeconfig {files}: context {name!r} names the user {user_name!r}, not found{hint}")
        folder, user = merged["users"][user_name]
        _files_exist(files, f"user {user_name!r}", folder, user, ("client-certificate", "client-key", "tokenFile"))
        if user.get("as"):  # the official client ignores it and would act as a different user than kubectl
            raise ConfigError(
                f"kubeconfig {files}: user {user_name!r} impersonates {safe(user['as'], 100)!r} ('as'), which is not "
                "supported: use credentials of that user"
            )
        plugin = str((user.get("exec") or {}).get("command") or "")
    return ClusterSource(
        paths=files,
        context=name,
        namespace=namespace or str(body.get("namespace") or "") or "default",
        server=server.rstrip("/"),
        own_proxy=bool(cluster.get("proxy-url")),
        ca=_fingerprint(merged["clusters"][cluster_name][0], cluster),
        exec_plugin=plugin,
    )


def _fingerprint(folder: Path, cluster: Unstructured) -> str:
    """Return the SHA-256 of the cluster's CA certificates, in any order; '' if none are configured.

    Each cluster has its own authority; its address may vary.
    """
    if cluster.get("insecure-skip-tls-verify"):
        return ""
    try:
        if data := cluster.get("certificate-authority-data"):
            pem = base64.b64decode(str(data)).decode()
        elif name := cluster.get("certificate-authority"):
            pem = (folder / Path(str(name)).expanduser()).read_text(encoding="utf-8")
        else:
            return ""
        certificates = re.findall(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", pem, re.DOTALL)
        known = sorted({ssl.PEM_cert_to_DER_cert(certificate) for certificate in certificates})
    except (OSError, ValueError, binascii.Error):  # the client reports its error when it connects
        return ""
    return "sha256:" + hashlib.sha256(b"".join(known)).hexdigest() if known else ""


def _files_exist(files: str, owner: str, folder: Path, body: Unstructured, keys: tuple[str, ...]) -> None:
    for key in keys:
        name = body.get(key)
        if not name or body.get(f"{key}-data"):
            continue
        path = folder / Path(str(name)).expanduser()
        if not path.is_file():
            raise ConfigError(f"kubeconfig {files}: {key} of {owner} does not exist: {path}")


def _nearest_file(path: Path) -> str:
    try:
        siblings = sorted(entry.name for entry in path.parent.iterdir() if entry.is_file())
    except OSError:
        return f" (nor does the folder {path.parent})" if not path.parent.exists() else ""
    close = difflib.get_close_matches(path.name, siblings, n=1, cutoff=0.7)
    return f"; did you mean {path.parent / close[0]}?" if close else ""


def _some(names: list[str]) -> str:
    return first_of((safe(name, 80) for name in names), 6)
