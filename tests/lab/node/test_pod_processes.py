"""Pods are real processes with their own addresses, files and names, and leave nothing behind.

Needs user namespaces (any user may have them); without them these tests are skipped with the kernel's reason, and the
plain network is still tested.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from lab.apiserver.store import ApiError
from tests.waiting import until

PROGRAM = """
    import os, socket, time
    index = int(os.environ["JOB_COMPLETION_INDEX"])
    print(open("/seatrial/hello").read(), socket.gethostname(), flush=True)
    def find(name):
        while True:
            try:
                return socket.gethostbyname(name)
            except OSError:
                time.sleep(0.05)
    peer = find("train-%d.peers" % (1 - index))
    if index == 0:
        server = socket.create_server(("0.0.0.0", 29500))
        connection, address = server.accept()
        print("from", address[0] == peer, flush=True)
    else:
        while True:
            try:
                socket.create_connection((peer, 29500), 5)
                break
            except OSError:
                time.sleep(0.05)
    with open("/dev/termination-log", "w") as file:
        file.write("said by %d" % index)
"""


def training(store):
    store.create(
        "configmaps", {"metadata": {"name": "files"}, "data": {"p": textwrap.dedent(PROGRAM), "h": "hello"}}, "default"
    )
    store.create(
        "services",
        {
            "metadata": {"name": "peers"},
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"job-name": "train"}},
        },
        "default",
    )
    items = [{"key": "p", "path": "probe.py"}, {"key": "h", "path": "hello"}]
    container = {
        "name": "c",
        "image": "i",
        "command": ["python3", "/seatrial/probe.py"],
        "volumeMounts": [{"name": "v", "mountPath": "/seatrial", "readOnly": True}],
    }
    store.create(
        "jobs.batch",
        {
            "metadata": {"name": "train"},
            "spec": {
                "completionMode": "Indexed",
                "completions": 2,
                "parallelism": 2,
                "backoffLimit": 0,
                "template": {
                    "metadata": {"labels": {"job-name": "train"}},
                    "spec": {
                        "subdomain": "peers",
                        "restartPolicy": "Never",
                        "containers": [container],
                        "volumes": [{"name": "v", "configMap": {"name": "files", "items": items}}],
                    },
                },
            },
        },
        "default",
    )


@pytest.mark.parametrize("mode", ["namespaces", "plain"])
def test_two_ranks_of_a_job_find_each_other(run, mode):
    """Names, addresses, the port of 0.0.0.0 and ConfigMap files work, also without namespaces."""

    async def scenario(lab):
        training(lab.store)
        await lab.until(
            lambda: lab.store.get("jobs.batch", "default", "train")["status"]["conditions"][-1]["type"] == "Complete",
            "the job completed",
        )
        names = [p["metadata"]["name"] for p in lab.store.list("pods")]
        assert await lab.log(names[0]) == "hello train-0\nfrom True\n"
        assert await lab.log(names[1]) == "hello train-1\n"
        assert lab.state(names[1])["terminated"]["message"] == "said by 1"

    run(scenario, mode)


def test_a_command_that_is_not_there_is_a_start_error(run):
    """The result is exit code 128, StartError, the runtime's text, and the event Failed; never exit code 127."""

    async def scenario(lab):
        lab.pod("p", ["no-such-command"])
        ended = await lab.ended("p")
        assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
        assert ended["message"].endswith('exec: "no-such-command": executable file not found in $PATH')
        assert ended["startedAt"] == "1970-01-01T00:00:00Z"
        assert "Failed" in lab.reasons("p")
        assert "Started" not in lab.reasons("p")
        assert await lab.log("p") == ""

    run(scenario)


class Registry:
    """A registry without one image, and with images without python3."""

    async def pull(self, image):
        class ImageMissing(Exception):  # noqa: N818 - the kubelet knows it by this name
            pass

        if image == "i":
            raise ImageMissing("not found")

    def lacks(self, image):
        return ["python3"] if image == "slim" else []


def test_images_may_be_missing_or_lack_a_command(run):
    """ErrImagePull, then ImagePullBackOff with the cause; python3 in an image without Python is a StartError."""

    async def scenario(lab):
        lab.pod("none", ["true"])
        lab.pod("slim", ["python3", "-c", ""], container={"image": "slim"})
        assert (await lab.ended("slim"))["reason"] == "StartError"
        await lab.until(lambda: lab.state("none")["waiting"]["reason"] == "ErrImagePull", "ErrImagePull")
        with pytest.raises(ApiError) as caught:
            await lab.log("none")
        assert caught.value.message == 'container "c" in pod "none" is waiting to start: image can\'t be pulled'
        await lab.until(lambda: lab.state("none")["waiting"]["reason"] == "ImagePullBackOff", "ImagePullBackOff")
        assert lab.state("none")["waiting"]["message"] == 'Back-off pulling image "i": ErrImagePull: not found'

    run(scenario, images=Registry())


def test_a_container_has_its_own_files_and_writes_nothing_on_the_host(run, tmp_path):
    """/dev/shm of the requested size, a private /tmp, read-only ConfigMap, mount points that the host lacks."""
    mark = f"seatrial-mark-{os.getpid()}"

    async def scenario(lab):
        lab.store.create("configmaps", {"metadata": {"name": "m"}, "data": {"k": "v\n"}}, "default")
        script = (
            f"df -k --output=size /dev/shm | tail -1; touch /tmp/{mark} /usr/{mark} 2>/dev/null; cat /new/place/k; "
            "touch /new/place/x 2>/dev/null || echo read-only; cat /sys/fs/cgroup/memory.max; id -u"
        )
        lab.pod(
            "p",
            ["bash", "-c", script],
            container={
                "resources": {"limits": {"memory": "32Gi"}},
                "securityContext": {"runAsUser": 1000},
                "volumeMounts": [{"name": "s", "mountPath": "/dev/shm"}, {"name": "m", "mountPath": "/new/place"}],
            },
            volumes=[
                {"name": "s", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
                {"name": "m", "configMap": {"name": "m"}},
            ],
        )
        await lab.ended("p")
        lines = (await lab.log("p")).split()
        assert lines == ["8192", "v", "read-only", str(32 << 30), "1000"]

    run(scenario)
    assert not any(Path(path).exists() for path in (f"/tmp/{mark}", f"/usr/{mark}", "/new"))


def test_a_missing_config_map_holds_the_container_until_it_comes(run):
    """The container waits with CreateContainerConfigError, and the pod continues automatically."""

    async def scenario(lab):
        lab.pod("p", ["sh", "-c", "echo $A"], container={"envFrom": [{"configMapRef": {"name": "late"}}]})
        await lab.until(lambda: lab.state("p")["waiting"]["reason"] == "CreateContainerConfigError", "waiting")
        lab.store.create("configmaps", {"metadata": {"name": "late"}, "data": {"A": "b"}}, "default")
        assert (await lab.ended("p"))["exitCode"] == 0
        assert await lab.log("p") == "b\n"

    run(scenario)


@pytest.mark.parametrize("mode", ["namespaces", "plain"])
def test_a_network_policy_blocks_the_port(run, mode):
    """Default deny drops (the client times out); an allowed port is reachable; the node's probes always pass."""
    listen = [
        "python3",
        "-c",
        "import socket, time; a = socket.create_server(('0.0.0.0', 2222)); "
        "b = socket.create_server(('0.0.0.0', 2223)); print('up', flush=True); time.sleep(6000)",
    ]

    async def scenario(lab):
        if lab.network.mode == "shared":
            pytest.skip("this kernel grants no veth pairs: network policies have no effect")
        policy = {
            "metadata": {"name": "p"},
            "spec": {
                "podSelector": {"matchLabels": {"app": "server"}},
                "policyTypes": ["Ingress"],
                "ingress": [{"ports": [{"port": 2223}, {"port": 60000, "endPort": 65535}]}],
            },
        }
        lab.store.create("networkpolicies.networking.k8s.io", policy, "default")
        lab.pod("server", listen, labels={"app": "server"})
        await lab.until(lambda: lab.state("server")["running"], "running")
        await lab.says("server", "up")
        address = lab.get("server")["status"]["podIP"]
        ask = (
            f"import socket\nfor port in 2222, 2223:\n  try: socket.create_connection(('{address}', port), 0.3)\n"
            "  except OSError as error: print(type(error).__name__)\n  else: print('open')"
        )
        lab.pod("client", ["python3", "-c", ask])
        await lab.ended("client")
        assert await lab.log("client") == "TimeoutError\nopen\n"

    run(scenario, mode)


def test_a_mount_above_the_clusters_own_folder_moves_nothing_of_it(run):
    """Plain: the cluster's files may be in /dev/shm, where pods mount their own; each path is moved once."""

    async def scenario(lab):
        above = str(Path(lab.network.root).parent)
        say = (
            f"import os; open('{above}/x', 'w').write('kept'); print(sorted(os.listdir('{above}'))); "
            f"print(open('{above}/x').read(), open(os.environ['SIM_PLAIN']).read(1))"
        )
        lab.pod(
            "p",
            ["python3", "-c", say],
            container={"volumeMounts": [{"name": "shm", "mountPath": above}]},
            volumes=[{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        )
        assert (await lab.ended("p"))["exitCode"] == 0, await lab.log("p")
        assert await lab.log("p") == "['x']\nkept {\n"
        assert not os.path.exists(f"{above}/x")  # noqa: ASYNC240, PTH110 - once, at the end

    run(scenario, "plain")


LOOKS = """
    import os, subprocess, sys, tempfile
    with open("/data/part", "w") as file:
        file.write("kept")
        print(os.readlink("/proc/self/fd/%d" % file.fileno()), os.environ["PLACE"], os.uname().nodename)
    os.replace("/data/part", "/data/whole")
    os.mkdir("/data/folder"), os.rmdir("/data/folder")
    os.symlink("/data/whole", "/data/link")
    print(sorted(os.listdir("/data")), os.readlink("/data/link"), tempfile.gettempdir(), flush=True)
    print([name for name in os.listdir("/tmp") if name.startswith("seatrial-mark-")], flush=True)
    if len(sys.argv) < 2:
        again = [sys.executable, "/files/p", "again"]  # its errors on the same stream: those of two have no order
        print(subprocess.run(again, cwd="/data", stderr=subprocess.STDOUT, check=False).returncode)
"""


@pytest.mark.parametrize("mode", ["namespaces", "plain"])
def test_a_python_program_and_what_it_starts_find_the_pods_files(run, mode):
    """Files, variables, links of open files, a private /tmp and a program are found by the pod's paths."""
    mark = Path(tempfile.gettempdir(), f"seatrial-mark-{os.getpid()}")

    async def scenario(lab):
        data = {"p": textwrap.dedent(LOOKS)}
        lab.store.create("configmaps", {"metadata": {"name": "m"}, "data": data}, "default")
        mounts = [{"name": "f", "mountPath": "/files"}, {"name": "d", "mountPath": "/data"}]
        env = [{"name": "PLACE", "value": "/data/x:/elsewhere"}]
        container = {"volumeMounts": mounts, "env": env}
        volumes = [{"name": "f", "configMap": {"name": "m"}}, {"name": "d", "emptyDir": {}}]
        lab.pod("p", [sys.executable, "/files/p"], container=container, volumes=volumes)
        assert (await lab.ended("p"))["exitCode"] == 0, await lab.log("p")
        first, second, marks, *rest = (await lab.log("p")).splitlines()
        assert first == "/data/part /data/x:/elsewhere p"
        assert second == "['link', 'whole'] /data/whole /tmp"
        assert marks == "[]", "a clone below /tmp has its folder there, too"
        assert (rest[0], rest[-1]) == (first, "1"), "the link exists the second time"

    mark.touch()
    try:
        run(scenario, mode)
    finally:
        mark.unlink()


VICTIM = """
    import asyncio, os, sys
    from lab.node.network import open_network
    async def main():
        network = await open_network(sys.argv[1])
        out = os.open(os.devnull, os.O_WRONLY)
        script = "trap '' TERM HUP; for i in 1 2; do setsid sh -c 'sleep 999; : MARK' & done; sleep 999; : MARK"
        for number in range(3):
            sandbox = await network.sandbox(network.pod_address(0, number), "v")
            await sandbox.start(["bash", "-c", script.replace("MARK", sys.argv[2])], {"PATH": os.environ["PATH"]},
                                stdio=[out, out])
        print(network.root, flush=True)
        await asyncio.sleep(999)
    asyncio.run(main())
"""


def having(mark):
    entries = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            entries += [entry] if mark.encode() in entry.read_bytes() else []
    return entries


@pytest.mark.parametrize("mode", ["namespaces", "plain"])
def test_no_process_and_no_file_outlives_the_cluster(root, mode):
    """After SIGKILL to the cluster's process its pods, even in other sessions, and its folder are removed."""
    mark = f"mark-{os.getpid()}-{mode}"
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(VICTIM), mode, mark],
        cwd=root,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as victim:
        folder = victim.stdout.readline().strip()
        if not folder:
            victim.wait()
            reason = victim.stderr.read().strip().splitlines()[-1]
            pytest.skip(reason) if "Unavailable" in reason else pytest.fail(reason)
        until(lambda: len(having(mark)) >= 10, "the pods' processes")
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    until(lambda: not having(mark), "their end", lambda: having(mark))
    until(lambda: not Path(folder).exists(), "the folder's end")
