"""Every error in a kubeconfig is one line with the required change."""

import base64
import json
import os
import ssl
import stat
import sys
import threading
from pathlib import Path

import kubernetes.config
import pytest
import urllib3.util.ssl_

from jobs.cluster.client import kubeconfig as module
from jobs.cluster.client.errors import ConfigError
from jobs.cluster.client.kube import Kube
from lab.hardware.files import first_lines
from tests.waiting import HANG_S

PLAIN = """
apiVersion: v1
kind: Config
current-context: staging
contexts:
- {name: staging, context: {cluster: a, user: u, namespace: team}}
- {name: production, context: {cluster: a, user: u}}
- {name: lost, context: {cluster: nowhere, user: u}}
- {name: nobody, context: {cluster: a, user: missing}}
clusters:
- {name: a, cluster: {server: "https://10.0.0.1:6443"}}
users:
- {name: u, user: {token: t}}
"""


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("KUBECONFIG", "TAO_K8S_CONTEXT", "TAO_K8S_NAMESPACE", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "config"
    file.write_text(PLAIN)
    return file


def refuse(match, *arguments):
    with pytest.raises(ConfigError, match=match) as caught:
        Kube.connect(*arguments)
    assert "\n" not in str(caught.value)


def test_context_namespace_and_server_are_taken_from_the_file(config):
    """An explicit namespace comes first, then the context's, then 'default'."""
    assert (Kube.connect(str(config)).namespace, Kube.connect(str(config)).server) == ("team", "https://10.0.0.1:6443")
    assert Kube.connect(str(config), "production").namespace == "default"
    assert Kube.connect(str(config), "production", "mine").namespace == "mine"


def test_the_users_environment_gives_the_defaults(config, monkeypatch):
    """TAO_K8S_CONTEXT and TAO_K8S_NAMESPACE apply if none is given; a simulated cluster's file applies, too."""
    monkeypatch.setenv("TAO_K8S_CONTEXT", "production")
    monkeypatch.setenv("TAO_K8S_NAMESPACE", "tao-jobs")
    monkeypatch.setenv("KUBECONFIG", str(config))
    kube = Kube.connect()
    assert (kube.context, kube.namespace) == ("production", "tao-jobs")
    assert Kube.connect(None, "staging", "x").namespace == "x"
    assert Kube.connect(str(config)).context == "staging"


def test_a_missing_file_suggests_the_nearest(config):
    """A mistyped path is answered with the nearest file."""
    refuse(r"konfig does not exist; did you mean .*/config\?", str(config.parent / "konfig"))
    refuse(r"nor does the folder", str(config.parent / "no" / "config"))


def test_a_wrong_context_suggests_the_nearest(config):
    """The message suggests the nearest name, or lists all names."""
    refuse(r"no context 'stagin'; did you mean staging\?", str(config), "stagin")
    refuse(r"no context 'xyz'; there are: lost, nobody, production, staging", str(config), "xyz")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a: [1", r"is not valid YAML, line \d column \d"),
        ("", "is empty"),
        ("- 1\n- 2", "expected a mapping, found list"),
        ("contexts: 5", "contexts must be a list"),
        ("contexts: [{context: {}}]", "an entry of contexts has no name"),
        ("contexts: [{name: a, context: 5}]", "'a' has no context mapping"),
        ("contexts: [{name: a, context: {}}]", r"no current context: pass --context NAME \(a\)"),
        ("apiVersion: v1", "it has no contexts"),
        ("a: !!python/object/apply:os.system [x]", "is not valid YAML"),
        ("\x00\x01", "is not valid YAML"),
        (
            "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: nonsense}}]",
            "has no usable server",
        ),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(tmp_path, text, match):
    """Broken YAML has its line, a wrong structure its path."""
    file = tmp_path / "config"
    file.write_text(text)
    refuse(match, str(file))


def test_dangling_references_are_named(config):
    """A context may name a missing cluster or user."""
    refuse("names the cluster 'nowhere', not found", str(config), "lost")
    refuse("names the user 'missing', not found", str(config), "nobody")


def test_a_folder_or_an_unreadable_file_is_refused(tmp_path, config):
    """The refusal has no traceback."""
    refuse("is a directory", str(tmp_path))
    if os.geteuid() != 0:
        config.chmod(0)
        refuse("cannot be read", str(config))


def test_credential_files_that_are_missing_are_named(tmp_path, kubeconfig):
    """A client certificate or CA may have been moved."""
    file = kubeconfig(
        tmp_path / "k", "https://10.0.0.1", **{"client-certificate": "gone.crt", "client-key": "gone.key"}
    )
    refuse(r"client-certificate of user 'u' does not exist: .*gone\.crt", str(file))


def test_credentials_that_are_no_credentials_are_refused(tmp_path, kubeconfig):
    """The certificate's content is invalid."""
    garbage = base64.b64encode(b"garbage").decode()
    user = {"client-certificate-data": garbage, "client-key-data": garbage}
    kube = None
    with pytest.raises(ConfigError, match="kubeconfig") as caught:
        kube = Kube.connect(str(kubeconfig(tmp_path / "k", "https://10.0.0.1", **user)))
        kube.version()
    assert "\n" not in str(caught.value)


def plugin(tmp_path, body):
    script = tmp_path / "plugin"
    script.write_text(f"{first_lines(Path(sys.executable))}\n{body}\n")
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    return {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script), "interactiveMode": "Never"}
    }


def test_an_exec_plugin_gives_the_token(api, tmp_path, kubeconfig):
    """EKS, GKE and AKS authenticate that way."""
    credential = '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "from-plugin"}}'
    user = plugin(tmp_path, f"print('''{credential}''')")
    kube = Kube.connect(str(kubeconfig(tmp_path / "k", api.url, **user)))
    kube.sends_credentials = True  # like https
    kube.version()
    assert api.asked[0].headers["authorization"] == "Bearer from-plugin"


@pytest.mark.parametrize("text", ["from-file\n", "  from-file \r\n"])
def test_a_token_file_may_end_in_a_newline(api, tmp_path, kubeconfig, text):
    """Editors add one; kubectl removes it."""
    (tmp_path / "token").write_text(text, newline="")
    kube = Kube.connect(str(kubeconfig(tmp_path / "k", api.url, tokenFile=str(tmp_path / "token"))))
    kube.sends_credentials = True  # like https
    kube.version()
    assert api.asked[0].headers["authorization"].split() == ["Bearer", "from-file"]


def test_a_failing_exec_plugin_is_no_anonymous_user(tmp_path, kubeconfig):
    """The official client only logs the failure and continues without credentials, with a confusing 401 or 403 later."""
    user = plugin(tmp_path, "import sys; sys.exit('token expired: run login')")
    refuse("credential plugin .*plugin", str(kubeconfig(tmp_path / "k", "https://10.0.0.1", **user)))


def test_an_exec_plugin_that_hangs_is_left(tmp_path, config, kubeconfig, monkeypatch):
    """A plugin may wait forever for a browser. Its later failure, in a separate thread, does not affect another
    cluster."""
    over = tmp_path / "over"
    user = plugin(tmp_path, f"import os, time\nwhile not os.path.exists({str(over)!r}): time.sleep(0.05)")
    with monkeypatch.context() as hasty:
        hasty.setattr("jobs.cluster.client.credentials._EXEC_PLUGIN_S", 0.3)
        refuse("no credentials within", str(kubeconfig(tmp_path / "k", "https://10.0.0.1", **user)))
    (left,) = [thread for thread in threading.enumerate() if thread.name == "credentials"]
    load = kubernetes.config.load_kube_config

    def meanwhile(*arguments, **more):
        over.touch()
        left.join(HANG_S)
        load(*arguments, **more)

    monkeypatch.setattr(kubernetes.config, "load_kube_config", meanwhile)
    assert Kube.connect(str(config)).context == "staging"
    assert not left.is_alive()


def test_several_files_are_merged_as_kubectl_does(tmp_path, config, monkeypatch):
    """The first current context and the first definition apply; missing files are skipped."""
    other = tmp_path / "other"
    other.write_text(
        PLAIN.replace("current-context: staging", "current-context: production").replace("10.0.0.1", "10.9.9.9")
    )
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(tmp_path / "none"), str(config), str(other)]))
    kube = Kube.connect()
    assert (kube.context, kube.server) == ("staging", "https://10.0.0.1:6443")


def test_no_kubeconfig_and_no_pod_says_what_to_do(tmp_path, monkeypatch):
    """The message lists the searched places."""
    monkeypatch.setenv("HOME", str(tmp_path))
    refuse(r"no kubeconfig found \(tried .*/\.kube/config\) and not running in a pod", None)


def test_in_a_pod_the_service_account_is_used(tmp_path, monkeypatch):
    """A pod needs no kubeconfig; the namespace is the pod's, and a context is refused."""
    account = tmp_path / "account"
    account.mkdir()
    for name, text in (("token", "tok"), ("namespace", "tao"), ("ca.crt", "")):
        (account / name).write_text(text)
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", account)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    source = module.locate(None, None, None)
    assert (source.server, source.namespace, source.paths) == ("https://[fd00::1]:443", "tao", "")
    with pytest.raises(ConfigError, match="only its service account"):
        module.locate(None, "prod", None)


def test_a_socks_proxy_without_its_package_is_one_line(tmp_path, monkeypatch):
    """A cluster behind an SSH tunnel: urllib3 needs PySocks for it, and otherwise fails with a traceback."""
    file = tmp_path / "tunnel"
    file.write_text(PLAIN.replace('6443"', '6443", proxy-url: "socks5://127.0.0.1:1080"'))
    monkeypatch.setitem(sys.modules, "urllib3.contrib.socks", None)
    refuse("pip install pysocks", str(file))


def test_impersonation_is_not_silently_ignored(tmp_path):
    """kubectl would act as that user, the official client would not: other permissions would be tested."""
    file = tmp_path / "as"
    file.write_text(PLAIN.replace("token: t", "token: t, as: tenant"))
    refuse("impersonates 'tenant'", str(file))


@pytest.mark.parametrize("verified", [True, False])
def test_a_ca_without_a_key_identifier_is_accepted_as_kubectl_accepts_it(tmp_path, kubeconfig, monkeypatch, verified):
    """Python 3.13 refuses the CA of an EKS cluster (VERIFY_X509_STRICT); all other verification remains."""
    made = urllib3.util.ssl_.create_urllib3_context

    def strict(**settings):
        context = made(**settings)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(urllib3.util.ssl_, "create_urllib3_context", strict)
    file = kubeconfig(tmp_path / "config", "https://10.0.0.1:6443")
    if not verified:
        text = json.loads(file.read_text())
        text["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
        file.write_text(json.dumps(text))
    context = Kube.connect(str(file))._client.rest_client.pool_manager.connection_pool_kw["ssl_context"]
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_mode == (ssl.CERT_REQUIRED if verified else ssl.CERT_NONE)
    assert context.check_hostname == verified


def authority(number):
    """Return a certificate sufficient for a fingerprint: no test connects."""
    return ssl.DER_cert_to_PEM_cert(f"certificate {number}".encode())


def test_the_authority_behind_a_server_has_a_fingerprint(config, monkeypatch, tmp_path):
    """The fingerprint is the same from data and from a file, in any order, also in a pod; a file without a CA or a
    server has none."""
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path)
    bundle, turned = authority(1) + authority(2), "# ours\n" + authority(2) + authority(1)
    (tmp_path / "ca.crt").write_text(turned)
    (tmp_path / "token").write_text("t")

    def fingerprint(more):
        config.write_text(PLAIN.replace('"https://10.0.0.1:6443"', f'"https://10.0.0.1:6443", {more}'))
        return module.locate(str(config), None, None).ca

    data = base64.b64encode(bundle.encode()).decode()
    known = fingerprint(f"certificate-authority-data: {data}")
    assert known.startswith("sha256:")
    assert fingerprint("certificate-authority: ca.crt") == known
    assert fingerprint(f"certificate-authority-data: {base64.b64encode(authority(1).encode()).decode()}") not in (
        "",
        known,
    )
    assert fingerprint(f"certificate-authority-data: {data}, insecure-skip-tls-verify: true") == ""
    assert fingerprint("certificate-authority-data: '?'") == fingerprint("tls-server-name: a") == ""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert module.locate(None, None, None).ca == known
