"""Credentials and TLS of a kubeconfig or a service account, read by the official client.

The only module that imports `kubernetes`, and only when a cluster is accessed. The official ApiClient handles
authentication (certificates, tokens, exec plugins) and TLS.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

from ..redact import safe
from .errors import ConfigError
from .kubeconfig import ClusterSource
from .reading import is_loopback

POOL = 64  # connections kept: at least as many as threads that follow logs
_EXEC_PLUGIN_S = 60.0


def api_client(source: ClusterSource) -> Any:
    """Let the official client read credentials and TLS settings; convert each of its errors into a ConfigError."""
    from kubernetes import client, config  # noqa: PLC0415  (0.2 s, only when a cluster is meant)

    settings = client.Configuration()
    settings.retries = False
    settings.keep_alive = True
    settings.connection_pool_maxsize = POOL
    problems: list[str] = []
    # Annotated because the client is only partly typed.
    load_file: Any = config.load_kube_config
    load_account: Any = config.load_incluster_config

    def load() -> None:
        with _root_log(problems):
            try:
                if source.paths:
                    load_file(source.paths, context=source.context, client_configuration=settings, persist_config=False)
                else:
                    load_account(client_configuration=settings)
            except Exception as error:  # noqa: BLE001  (ConfigException, KeyError, binascii.Error, ... of foreign data)
                problems.append(f"{type(error).__name__}: {error}")

    # An exec plugin may wait for a browser or a dead network for ever; the thread bounds that wait.
    worker = threading.Thread(target=load, name="credentials", daemon=True)
    worker.start()
    worker.join(_EXEC_PLUGIN_S)
    plugin = f" (credential plugin {source.exec_plugin})" if source.exec_plugin else ""
    if worker.is_alive():
        raise ConfigError(f"{origin(source)}: no credentials within {_EXEC_PLUGIN_S:.0f} s{plugin}")
    without = source.exec_plugin and not settings.api_key and not settings.cert_file
    if problems and (without or not source.exec_plugin):
        raise ConfigError(f"{origin(source)}: credentials cannot be used{plugin}: {safe('; '.join(problems), 300)}")
    if is_loopback(source.server) and not source.own_proxy:
        settings.proxy = None  # HTTPS_PROXY from the environment cannot reach our own loopback
    if not settings.verify_ssl:  # the kubeconfig disables verification; a warning at every request does not help
        import urllib3  # noqa: PLC0415

        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    try:
        return _as_kubectl_verifies(client.ApiClient(settings))
    except ImportError as error:  # urllib3 reports SOCKS only with PySocks
        raise ConfigError(
            f"{origin(source)}: a SOCKS proxy needs another package here: pip install pysocks ({safe(error, 100)})"
        ) from error
    except (OSError, ValueError) as error:  # an invalid certificate
        raise ConfigError(f"{origin(source)}: TLS settings cannot be used: {safe(error, 300)}") from error


def _as_kubectl_verifies(client: Any) -> Any:
    """Accept the certificates that kubectl does: since 3.13 Python refuses a CA without a key identifier.

    RFC 5280, 4.2.1.1, allows a self-signed CA without one; the CAs of EKS and of older clusters have none
    (kubernetes-client/python#2394). All else is verified as before.
    """
    import ssl  # noqa: PLC0415  (only when a cluster is meant)

    import urllib3.util.ssl_  # noqa: PLC0415

    pool = client.rest_client.pool_manager.connection_pool_kw
    context = urllib3.util.ssl_.create_urllib3_context(cert_reqs=pool.get("cert_reqs"))
    if context.verify_flags & ssl.VERIFY_X509_STRICT:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not pool.get("ca_certs") and not pool.get("ca_cert_data"):
            context.load_default_certs()
        pool["ssl_context"] = context
    return client


def origin(source: ClusterSource) -> str:
    """Name the source of the settings, for messages."""
    return f"kubeconfig {source.paths}, context {source.context!r}" if source.paths else "in-cluster service account"


@contextlib.contextmanager
def _root_log(into: list[str]) -> Iterator[None]:
    """Collect errors that the client only logs: it ignores a failing exec plugin and would continue as 'anonymous'.

    A plugin that exceeded its time may still fail in its own thread, while another cluster's credentials are read.
    """
    own = threading.get_ident()

    class Catch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.thread == own:
                into.append(record.getMessage())

    handler = Catch(logging.ERROR)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
