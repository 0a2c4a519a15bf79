"""A real Kubernetes on this machine: control plane, nodes, networks between them, without a container engine.

It runs in separate process, mount and network namespaces (`unshare`, see `__main__`): everything ends with the process
that started it, and outside its folder only empty control groups are left, which are removed.

Each node has its own `/var/lib`, `/var/log` and `/run`: a kubelet removes the logs of unknown pods, and its device
plugin folder is a constant. It also has a network with its own address. Pods of all nodes reach each other by routes,
Services by kube-proxy.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.waiting import until

from . import image, programs
from .hardware import labels, offers, plugin_arguments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CONTROL, SERVICES, SERVICE, DNS = "172.30.0.1", "10.96.0.0/16", "10.96.0.1", "10.96.0.10"
PORT = 6443
GROUPS = Path("/sys/fs/cgroup")
USERS = {
    "admin": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
    "system:kube-proxy": "",
}
# Only the metadata of requests is needed; bodies would be gigabytes.
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}


class NotStartedError(Exception):
    """A part of the cluster did not start; the text names it, and ends with its last lines."""


class Cluster:
    """The cluster below a folder; `built`: the folders of each module's programs."""

    runs_pods = True

    def __init__(self, folder: Path, built: dict[str, Path], kubernetes: str, nodes: Sequence[str]) -> None:
        """Prepare the cluster; `kubernetes`: the module of its programs."""
        self.folder, self.programs, self._kubernetes, self.nodes = folder, built, kubernetes, list(nodes)
        self._tokens = {name: secrets.token_hex(16) for name in (*USERS, *(f"system:node:{each}" for each in nodes))}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._holders: dict[str, int] = {}
        self.kubeconfig = folder / "kubeconfig.yaml"
        self.minor = kubernetes.removeprefix("kubernetes-")

    # -- the whole cluster

    def start(self) -> None:
        """Start everything and return when all nodes are Ready and names resolve."""
        for name in ("logs", "pki", "etc"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._network()
        self._keys()
        self.start_control_plane()
        self._start_nodes()
        until(self._all_ready, "the nodes are Ready and CoreDNS answers")

    def _start_nodes(self) -> None:
        self._start_proxy("control-plane")
        for number, name in enumerate(self.nodes, start=1):
            self._open_node(name, number)
        for name in self.nodes:
            self.start_node(name)
        for name in self.nodes:
            until(
                lambda name=name: self._alive(f"{name}-kubelet") and self.kubectl("get", "node", name, check=False),
                f"{name} is registered",
            )
            self.kubectl("label", "node", name, *(f"{key}={value}" for key, value in labels().items()))
        self.apply(Path(__file__).parent / "dns.yaml")

    def stop(self) -> None:
        """End every process that was started, newest first; the others end with the namespaces."""
        for name in reversed(list(self._running)):
            self.stop_program(name, signal.SIGKILL)

    def _all_ready(self) -> bool:
        for name in self._running:
            self._alive(name)
        nodes = json.loads(self.kubectl("get", "nodes", "-o", "json", check=False) or "{}").get("items", [])
        ready = [
            all(each["status"].get("allocatable", {}).get(name) == str(count) for name, count in offers().items())
            for each in nodes
            if {"type": "Ready", "status": "True"}.items() <= _ready(each).items()
        ]
        dns = self.kubectl(
            "-n", "kube-system", "get", "deployment", "coredns", "-o", "jsonpath={.status.readyReplicas}", check=False
        )
        return ready == [True] * len(self.nodes) and (dns.strip() == "1" or not self.runs_pods)

    # -- programs

    def _spawn(self, name: str, *argv: object, inside: str | None = None) -> None:
        """Start a program; its output goes to `logs`/`name`.log. `inside`: the node whose namespaces it runs in."""
        if inside is not None:
            argv = ("nsenter", "--mount", "--net", f"--target={self._holders[inside]}", *argv)
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                list(map(str, argv)), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def stop_program(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End a program that was started, and wait for its end."""
        process = self._running.pop(name)
        process.send_signal(how)
        process.wait()

    def _program(self, module: str, name: str) -> Path:
        return self.programs[module] / name

    def _alive(self, name: str) -> bool:
        if self._running[name].poll() is not None:
            log = (self.folder / "logs" / f"{name}.log").read_text(encoding="utf-8", errors="replace")
            raise NotStartedError(f"{name} ended with {self._running[name].returncode}:\n{log[-3000:]}")
        return True

    # -- the control plane

    def start_control_plane(self) -> None:
        """Start etcd, API server, controllers and scheduler."""
        self._spawn(
            "etcd",
            self._program("etcd", "etcd"),
            f"--data-dir={self.folder / 'etcd'}",
            "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        self.start_api_server()
        here = self._program(self._kubernetes, "kube-controller-manager")
        self._spawn(
            "kube-controller-manager",
            here,
            f"--kubeconfig={self._kubeconfig('system:kube-controller-manager')}",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self._pki('sa.key')}",
            f"--root-ca-file={self._pki('server.crt')}",
            "--leader-elect=false",
            "--node-monitor-grace-period=20s",
            "--bind-address=127.0.0.1",
        )
        self.start_scheduler()

    def start_scheduler(self) -> None:
        """Start the scheduler."""
        self._spawn(
            "kube-scheduler",
            self._program(self._kubernetes, "kube-scheduler"),
            f"--kubeconfig={self._kubeconfig('system:kube-scheduler')}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        )

    def start_api_server(self) -> None:
        """Start the API server and return when it is ready."""
        self._spawn(
            "kube-apiserver",
            self._program(self._kubernetes, "kube-apiserver"),
            "--etcd-servers=http://127.0.0.1:2379",
            f"--advertise-address={CONTROL}",
            f"--secure-port={PORT}",
            f"--tls-cert-file={self._pki('server.crt')}",
            f"--tls-private-key-file={self._pki('server.key')}",
            f"--service-cluster-ip-range={SERVICES}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={self._pki('sa.key')}",
            f"--service-account-signing-key-file={self._pki('sa.key')}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--token-auth-file={self._pki('tokens.csv')}",
            "--allow-privileged",
            f"--client-ca-file={self._pki('server.crt')}",
            f"--requestheader-client-ca-file={self._pki('server.crt')}",  # as in kubeadm: for APIs of Kueue and others
            f"--proxy-client-cert-file={self._pki('server.crt')}",
            f"--proxy-client-key-file={self._pki('server.key')}",
            "--requestheader-allowed-names=seatrial-real",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--kubelet-preferred-address-types=InternalIP",
            f"--audit-policy-file={self._pki('audit.yaml')}",
            f"--audit-log-path={self.folder / 'audit.jsonl'}",
        )
        until(lambda: self._alive("kube-apiserver") and self.ready(), "the API server is ready")

    def ready(self) -> bool:
        """Say whether the API server is ready."""
        return self.kubectl("get", "--raw", "/readyz", check=False) == "ok"

    def _pki(self, name: str) -> Path:
        return self.folder / "pki" / name

    def _keys(self) -> None:
        """Create keys, the server's self-signed certificate, and a token for each user."""
        names = f"IP:127.0.0.1,IP:{CONTROL},IP:{SERVICE},DNS:localhost,DNS:kubernetes.default.svc"
        more = [
            "-keyout",
            self._pki("server.key"),
            "-out",
            self._pki("server.crt"),
            "-addext",
            f"subjectAltName={names}",
        ]
        kind = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=seatrial-real"]
        subprocess.run(["openssl", "req", *kind, *map(str, more)], check=True, capture_output=True)
        subprocess.run(["openssl", "genrsa", "-out", str(self._pki("sa.key")), "2048"], check=True, capture_output=True)
        lines = [f'{token},{name},{name},"{USERS.get(name, "system:nodes")}"' for name, token in self._tokens.items()]
        self._pki("tokens.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._pki("tokens.csv").chmod(0o600)
        self._pki("audit.yaml").write_text(yaml.safe_dump(AUDIT), encoding="utf-8")
        shutil.copyfile(self._kubeconfig("admin"), self.kubeconfig)

    def _kubeconfig(self, user: str) -> Path:
        path = self._pki(user.replace(":", "-") + ".yaml")
        self.write_kubeconfig(path, self._tokens[user])
        return path

    def write_kubeconfig(self, path: Path, token: str, namespace: str = "default") -> None:
        """Write a kubeconfig for the owner of this token."""
        certificate = base64.b64encode(self._pki("server.crt").read_bytes()).decode()
        server = {"server": f"https://{CONTROL}:{PORT}", "certificate-authority-data": certificate}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "real", "cluster": server}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "user", "namespace": namespace}}],
            "current-context": "real",
        }
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        path.chmod(0o600)

    # -- networks

    def _network(self) -> None:
        """Create a bridge for all nodes; each node routes the pods of the others."""
        _run("ip", "link", "set", "lo", "up")
        _run("mount", "-t", "tmpfs", "tmpfs", "/run")
        Path("/run/netns").mkdir()
        _run("ip", "link", "add", "nodes", "type", "bridge")
        _run("ip", "address", "add", f"{CONTROL}/24", "dev", "nodes")
        _run("ip", "link", "set", "nodes", "up")
        _run("ip", "route", "add", SERVICES, "dev", "nodes")  # kube-proxy forwards it, but only with a route
        _forward()
        for number in range(1, len(self.nodes) + 1):
            _run("ip", "route", "add", f"10.244.{number}.0/24", "via", _address(number))

    def _open_node(self, name: str, number: int) -> None:
        """Create the namespaces of a node, held open by a sleeping process."""
        home = self.folder / "nodes" / name
        home.mkdir(parents=True)
        script = f"mount --make-rshared / && mount -t tmpfs tmpfs /var/lib && mount -t tmpfs tmpfs /run && mkdir -p /var/lib/kubelet {home}/kubelet {home}/log && mount --bind {home}/kubelet /var/lib/kubelet && mount --bind {home}/log /var/log && exec sleep infinity"
        self._spawn(f"{name}-holder", "unshare", "--mount", "--net", "--propagation=private", "sh", "-c", script)
        holder = self._running[f"{name}-holder"].pid
        self._holders[name] = holder
        until(
            lambda: (
                self._alive(f"{name}-holder") and "sleep" in Path(f"/proc/{holder}/comm").read_text(encoding="utf-8")
            ),
            name,
        )
        _run("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", str(holder))
        _run("ip", "link", "set", f"to-{name}", "master", "nodes", "up")
        self.inside(name, "ip", "link", "set", "lo", "up")
        self.inside(name, "ip", "address", "add", f"{_address(number)}/24", "dev", "eth0")
        self.inside(name, "ip", "link", "set", "eth0", "up")
        self.inside(name, "ip", "route", "add", "default", "via", CONTROL)
        self.inside(name, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        for other in range(1, len(self.nodes) + 1):
            if other != number:
                self.inside(name, "ip", "route", "add", f"10.244.{other}.0/24", "via", _address(other))

    def inside(self, node: str, *argv: str) -> None:
        """Run a program in the namespaces of a node."""
        _run("nsenter", "--mount", "--net", f"--target={self._holders[node]}", *argv)

    # -- nodes

    def start_node(self, name: str) -> None:
        """Start containerd, kubelet, kube-proxy and device plugin of a node, and import the images."""
        number = self.nodes.index(name) + 1
        home = self.folder / "nodes" / name
        (home / "cni").mkdir(exist_ok=True)
        (home / "cni" / "10-bridge.conflist").write_text(json.dumps(_cni(number, home)), encoding="utf-8")
        (home / "containerd.toml").write_text(_containerd(home, self.programs["cni"]), encoding="utf-8")
        path = f"PATH={self.programs['containerd']}:{os.environ['PATH']}"
        self._spawn(
            f"{name}-containerd",
            "env",
            path,
            self._program("containerd", "containerd"),
            "--config",
            home / "containerd.toml",
            inside=name,
        )
        socket = home / "containerd.sock"
        until(lambda: self._alive(f"{name}-containerd") and socket.exists(), f"containerd of {name}")
        self.import_images(name, self.folder / "images.tar")
        self.start_kubelet(name)
        self._start_proxy(name, inside=name)
        self._spawn(
            f"{name}-deviceplugin",
            self._program("deviceplugin", "deviceplugin"),
            *plugin_arguments(home, name),
            inside=name,
        )

    def _start_proxy(self, host: str, inside: str | None = None) -> None:
        self._spawn(
            f"{host}-kube-proxy",
            self._program(self._kubernetes, "kube-proxy"),
            f"--kubeconfig={self._kubeconfig('system:kube-proxy')}",
            "--proxy-mode=nftables",
            "--cluster-cidr=10.244.0.0/16",
            f"--hostname-override={host}",
            "--conntrack-max-per-core=0",
            *(
                ["--feature-gates=NFTablesProxyMode=true"] if self._kubernetes == "kubernetes-1.30" else []
            ),  # beta in 1.31
            inside=inside,
        )

    def import_images(self, name: str, archive: Path) -> None:
        """Import an archive's images into a node."""
        socket = self.folder / "nodes" / name / "containerd.sock"
        ctr = (str(self._program("containerd", "ctr")), "--address", str(socket), "--namespace", "k8s.io")
        self.inside(name, *ctr, "images", "import", "--local", str(archive))

    def start_kubelet(self, name: str) -> None:
        """Start the kubelet of a node, for the first time or again."""
        home = self.folder / "nodes" / name
        group = f"/seatrial-real-{os.environ.get('SEATRIAL_REAL_GROUP', '0')}/{name}"
        for hierarchy in _hierarchies():
            (hierarchy / group.lstrip("/")).mkdir(parents=True, exist_ok=True)
            _inherit_cpus(hierarchy / group.lstrip("/"))
        config = home / "kubelet.yaml"
        config.write_text(yaml.safe_dump(_kubelet(home, group, _address(self.nodes.index(name) + 1))), encoding="utf-8")
        self._spawn(
            f"{name}-kubelet",
            self._program(self._kubernetes, "kubelet"),
            f"--config={config}",
            f"--kubeconfig={self._kubeconfig(f'system:node:{name}')}",
            f"--hostname-override={name}",
            f"--node-ip={_address(self.nodes.index(name) + 1)}",
            inside=name,
        )

    # -- queries

    def kubectl(self, *arguments: str, given: str | None = None, check: bool = True) -> str:
        """Return kubectl's output; raise CalledProcessError with its message, unless `check` is false."""
        done = self.asked(*arguments, given=given)
        if check and done.returncode:
            error = subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr)
            error.add_note(done.stderr)
            raise error
        return done.stdout

    def asked(self, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run `kubectl` as an administrator; return its output, its warnings, its exit code."""
        argv = [str(self._program(self._kubernetes, "kubectl")), f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(argv, input=given, capture_output=True, text=True, check=False)

    def audit(self) -> Iterator[dict[str, Any]]:
        """Return every request so far from the API server's audit log."""
        with (self.folder / "audit.jsonl").open(encoding="utf-8") as lines:
            for line in lines:
                if line.endswith("\n"):
                    yield json.loads(line)

    def behave(self, **collective: Any) -> None:
        """Set the behaviour of collectives in pods started from now on, in the lab's terms (docs/scenarios.md)."""
        for name in self.nodes:
            path = self.folder / "nodes" / name / "hardware" / "node.json"
            state = json.loads(path.read_text(encoding="utf-8"))
            path.write_text(json.dumps({**state, "collective": collective}), encoding="utf-8")

    def make_unhealthy(self, node: str, *devices: str) -> None:
        """Make a node's device plugin report these devices as unhealthy, and wait until the node offers fewer."""
        before = self._allocatable(node)
        (self.folder / "nodes" / node / "unhealthy").write_text("\n".join(devices) + "\n", encoding="utf-8")
        until(lambda: self._allocatable(node) != before, f"{node} offers other devices")

    def _allocatable(self, node: str) -> dict[str, str]:
        return dict(json.loads(self.kubectl("get", "node", node, "-o", "json"))["status"]["allocatable"])

    def restore(self) -> None:
        """Revert changes of a test: stopped programs, cordoned nodes, taints, behaviour."""
        self.behave()
        for name in self.nodes:
            (self.folder / "nodes" / name / "unhealthy").unlink(missing_ok=True)
            if self.runs_pods and f"{name}-kubelet" not in self._running:
                self.start_kubelet(name)
            self.kubectl("uncordon", name)
            taints = json.loads(self.kubectl("get", "node", name, "-o", "json"))["spec"].get("taints", [])
            for taint in taints:
                if not taint["key"].startswith("node.kubernetes.io/"):
                    self.kubectl("taint", "node", name, f"{taint['key']}:{taint['effect']}-")
        until(self._all_ready, "the nodes are Ready and CoreDNS answers")

    def apply(self, path: Path) -> None:
        """Run `kubectl apply` on one of our files."""
        self.kubectl("apply", "-f", str(path))


class Simulated(Cluster):
    """The same control plane with the nodes of KWOK: for users other than root. Their pods are reported as running, but
    do not run."""

    runs_pods = False

    def _start_nodes(self) -> None:
        status = {"capacity": _SIMULATED | offers(), "allocatable": _SIMULATED | offers()}
        nodes = [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {**labels(), "kubernetes.io/hostname": name}},
                "status": json.loads(json.dumps(status), parse_int=str),
            }
            for name in self.nodes
        ]
        self.kubectl("create", "-f", "-", given=yaml.safe_dump_all(nodes))
        stages = self.folder / "stages.yaml"  # the lifecycle of nodes and pods, from the module
        there = programs.folder_of("kwok", "sigs.k8s.io/kwok") / "kustomize/stage/fast"
        stages.write_text(self.kubectl("kustomize", str(there)), encoding="utf-8")
        manage = ["--manage-all-nodes=true", f"--kubeconfig={self.kubeconfig}", f"--config={stages}"]
        self._spawn("kwok", self._program("kwok", "kwok"), *manage)

    def behave(self, **_: Any) -> None:
        """Do nothing, since no collective runs."""

    def start_kubelet(self, name: str) -> None:
        """Do nothing, since there is no kubelet."""


_SIMULATED = {"cpu": "8", "memory": "64Gi", "pods": "110", "ephemeral-storage": "1Ti"}


def _ready(node: dict[str, Any]) -> dict[str, Any]:
    return next((each for each in node["status"].get("conditions", []) if each["type"] == "Ready"), {})


def _address(number: int) -> str:
    return f"172.30.0.{10 + number}"


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def _forward() -> None:
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")


def _hierarchies() -> list[Path]:
    """Return the control group trees: one (version 2), or one for each controller (version 1)."""
    if (GROUPS / "cgroup.controllers").exists():
        return [GROUPS]
    return [each for each in sorted(GROUPS.iterdir()) if (each / "cgroup.procs").exists() and each.name != "unified"]


def _inherit_cpus(group: Path) -> None:
    """Assign CPUs, since a new group of the cpuset controller (version 1) has none."""
    for each in reversed([group, *group.parents]):
        for name in ("cpuset.cpus", "cpuset.mems"):
            file, above = each / name, each.parent / name
            if file.exists() and above.exists() and not file.read_text(encoding="ascii").strip():
                file.write_text(above.read_text(encoding="ascii"), encoding="ascii")


def remove_groups(name: str) -> None:
    """Remove the control groups of the nodes, as soon as the last of their processes has ended."""
    until(lambda: _removed(name), f"the end of all processes in the control groups {name}")


def _removed(name: str) -> bool:
    places = [each / name for each in (*_hierarchies(), GROUPS / "unified")]  # runc creates some in version 2, too
    for place in places:
        for folder, _, _ in os.walk(place, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
    return not any(place.exists() for place in places)


def _cni(number: int, home: Path) -> dict[str, Any]:
    ranges = [[{"subnet": f"10.244.{number}.0/24"}]]
    ipam = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}], "dataDir": str(home / "ipam")}
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": ipam}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


def _containerd(home: Path, cni: Path) -> str:
    return f"""version = 3
root = "{home}/containerd"
state = "/run/containerd"
[grpc]
  address = "{home}/containerd.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{image.PAUSE}"
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{cni}"]
  conf_dir = "{home}/cni"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
"""


def _kubelet(home: Path, group: str, address: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": group,
        "clusterDNS": [DNS],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{home}/containerd.sock",
        "evictionHard": {"memory.available": "100Mi"},  # this machine's disk is not the nodes'
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageMinimumGCAge": "24h",
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "4s",
        "resolvConf": "",
        "registryPullQPS": 0,
        "serializeImagePulls": False,
        "syncFrequency": "10s",
    }
