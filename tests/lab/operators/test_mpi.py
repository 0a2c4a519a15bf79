"""MPIJobs run as real processes: the launcher's mpirun reaches sshd of every worker by name, or reports the reason."""

import asyncio
import contextlib
import copy

import pytest

from lab.cluster import Cluster
from lab.scenario import load
from tests.lab.clusters import seen_in

pytestmark = pytest.mark.usefixtures("nothing_cached")

ONCE = ["-u", "OMPI_MCA_plm_rsh_args"]  # for env: the operator has ssh try ten times, a second apart
SHOW = "echo rank $OMPI_COMM_WORLD_RANK local $OMPI_COMM_WORLD_LOCAL_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname) given ${GIVEN:-none} kept ${KEPT:-none}"


def mpijob(command, name="pi", workers=2, slots=2, **spec):
    container = {
        "name": "c",
        "image": "mpi",
        "env": [{"name": "GIVEN", "value": "yes"}, {"name": "KEPT", "value": "no"}],
    }
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "slotsPerWorker": slots,
            "launcherCreationPolicy": "WaitForWorkersReady",
            **spec,
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0, **spec.get("runPolicy", {})},
            "mpiReplicaSpecs": {
                "Launcher": {
                    "replicas": 1,
                    "restartPolicy": "Never",
                    "template": {"spec": {"containers": [{**container, "command": command}]}},
                },
                "Worker": {
                    "replicas": workers,
                    "template": {
                        "spec": {"terminationGracePeriodSeconds": 0, "containers": [copy.deepcopy(container)]}
                    },
                },
            },
        },
    }


class Lab:
    def __init__(self, cluster):
        self.cluster, self.store, self.until = cluster, cluster.store, seen_in(cluster)

    def job(self, name="pi"):
        return self.store.get("mpijobs.kubeflow.org", "default", name)

    def said(self, name="pi"):
        return {
            c["type"]: (c["status"], c["reason"]) for c in (self.job(name).get("status") or {}).get("conditions") or []
        }

    def launcher(self, name="pi"):
        return next(
            p
            for p in self.store.list("pods", "default")
            if p["metadata"]["labels"].get("job-name") == f"{name}-launcher"
        )

    async def log(self, pod):
        return b"".join([piece async for piece in self.cluster.kubelet.logs("default", pod, "c")]).decode()

    async def ended(self, name="pi"):
        await self.until(lambda: {"Succeeded", "Failed"} & self.said(name).keys(), "the end")
        return await self.log(self.launcher(name)["metadata"]["name"])


@contextlib.asynccontextmanager
async def lab(tmp_path, network="auto", **world):
    path = tmp_path / "mpi.yaml"
    path.write_text(
        "name: mpi\ntitle: t\nbreaks: nothing\nfaults: []\noutcome: go\nworld: {platform: kind-cpu, operators: [mpi], **}\n".replace(
            ", **", "".join(f", {key}: {value}" for key, value in world.items())
        )
    )
    async with await Cluster.start(load(str(path)), network=network) as cluster:
        yield Lab(cluster)


@pytest.mark.parametrize("network", ["auto", "plain"])
def test_mpirun_starts_every_rank_in_its_worker(tmp_path, network):
    """Two workers with two slots: four ranks on two hosts; only -x variables and Open MPI's own are passed on."""

    async def run():
        async with lab(tmp_path, network) as box:
            command = [
                "mpirun",
                "--allow-run-as-root",
                "--tag-output",
                "-x",
                "GIVEN",
                "-bind-to",
                "none",
                "-mca",
                "btl",
                "tcp,self",
                "sh",
                "-c",
                SHOW,
            ]
            box.store.create("mpijobs.kubeflow.org", mpijob(command), "default")
            text = await box.ended()
            assert "Succeeded" in box.said(), text
            host = ["pi-worker-0", "pi-worker-1"]
            for rank in range(4):
                where = f"on {host[rank // 2]} " if network == "auto" else ""
                assert f"[1,{rank}]<stdout>:rank {rank} local {rank % 2} of 4 " in text
                assert where in text
            assert text.count("given yes kept none") == 4
            assert box.said()["Running"] == ("False", "MPIJobRunning")
            assert box.job()["status"]["replicaStatuses"]["Launcher"] == {"succeeded": 1}
            await box.until(
                lambda: not [p for p in box.store.list("pods", "default") if "-worker-" in p["metadata"]["name"]],
                "workers gone",
            )
            config = box.store.get("configmaps", "default", "pi-config")["data"]
            assert config["hostfile"] == "pi-worker-0.pi.default.svc slots=2\npi-worker-1.pi.default.svc slots=2\n"

    asyncio.run(run())


def test_a_rank_that_fails_ends_the_job(tmp_path):
    """mpirun names the rank and returns its code; the MPIJob fails with the launcher's reason."""

    async def run():
        async with lab(tmp_path) as box:
            box.store.create(
                "mpijobs.kubeflow.org",
                mpijob(
                    [
                        "mpirun",
                        "--allow-run-as-root",
                        "-np",
                        "2",
                        "sh",
                        "-c",
                        "test $OMPI_COMM_WORLD_RANK = 0 && sleep 6000; exit 7",
                    ]
                ),
                "default",
            )
            text = await box.ended()
            assert "mpirun detected that one or more processes exited with non-zero status" in text
            assert "Exit code:    7" in text
            assert box.said()["Failed"] == ("True", "BackoffLimitExceeded/")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["mpirun", "true"], "mpirun has detected an attempt to run as root"),
        (["mpirun", "--allow-run-as-root", "-np", "5", "true"], "not enough slots available"),
        (
            ["mpirun", "--allow-run-as-root", "no-such-program"],
            "mpirun was unable to find the specified executable file",
        ),
        (
            ["env", *ONCE, "mpirun", "--allow-run-as-root", "-H", "nowhere", "true"],
            "Could not resolve hostname nowhere",
        ),
        (["ssh", "-o", "ConnectionAttempts=10", "pi-worker-0.pi", "echo", "$HOSTNAME:$(hostname)"], ":pi-worker-0"),
    ],
    ids=["root", "slots", "program", "host", "ssh"],
)
def test_what_mpirun_refuses(tmp_path, command, expected):
    """The messages are those of Open MPI and OpenSSH."""

    async def run():
        async with lab(tmp_path) as box:
            box.store.create("mpijobs.kubeflow.org", mpijob(command, workers=1), "default")
            assert expected in await box.ended()

    asyncio.run(run())


def test_an_image_without_sshd_does_not_start(tmp_path):
    """The worker's container cannot be created, with a kubelet's message; no launcher is created while it waits for
    workers."""

    async def run():
        async with lab(tmp_path, registry="{lacks: {mpi: [sshd]}}") as box:
            box.store.create("mpijobs.kubeflow.org", mpijob(["true"], workers=1), "default")
            ended = await box.until(
                lambda: box.store.get("pods", "default", "pi-worker-0")["status"]["containerStatuses"][0]["state"][
                    "terminated"
                ],
                "the worker's end",
            )
            assert ended["reason"] == "StartError"
            assert 'exec: "/usr/sbin/sshd": stat /usr/sbin/sshd: no such file or directory' in ended["message"]
            assert box.store.get("jobs.batch", "default", "pi-launcher") is None

    asyncio.run(run())


def test_a_suspended_job_has_no_pods_until_it_is_resumed(tmp_path):
    """runPolicy.suspend: Service and Secret exist, pods are created on resume."""

    async def run():
        async with lab(tmp_path) as box:
            box.store.create(
                "mpijobs.kubeflow.org",
                mpijob(["mpirun", "--allow-run-as-root", "hostname"], runPolicy={"suspend": True}),
                "default",
            )
            await box.until(lambda: box.said()["Suspended"] == ("True", "MPIJobSuspended"), "suspension")
            assert not box.store.list("pods", "default")
            assert box.store.get("secrets", "default", "pi-ssh")["type"] == "kubernetes.io/ssh-auth"
            box.store.mutate(
                "mpijobs.kubeflow.org", "default", "pi", lambda j: j["spec"]["runPolicy"].update(suspend=False)
            )
            await box.ended()
            assert box.said()["Suspended"] == ("False", "MPIJobResumed")
            assert box.said()["Succeeded"] == ("True", "MPIJobSucceeded")

    asyncio.run(run())


def test_only_v1_is_served_where_another_operator_replaced_the_definition(bench):
    """operators: [mpi, mpijob-v1]: discovery offers kubeflow.org/v1 only, and the MPI Operator is idle."""
    box = bench("mpi", "mpijob-v1")
    assert [version for group, version, plural in box.store.kinds.by_path if plural == "mpijobs"] == ["v1"]
