"""The life of a pod: init containers, crashes, deletions, deadlines and memory limits of real processes."""

import contextlib
from pathlib import Path

from lab.node.container import Container


def test_a_pod_that_is_deleted_while_its_container_is_being_started_ends(run, monkeypatch):
    """A container without a process yet gets the signal as soon as the process exists."""
    spawn = Container._spawn

    async def scenario(lab):
        async def deleted_meanwhile(container, *given):
            lab.store.delete("pods", "default", "late")
            await lab.until(lambda: container.worker.stopping and container.worker._stop_task.done())
            return await spawn(container, *given)

        monkeypatch.setattr(Container, "_spawn", deleted_meanwhile)
        lab.pod("late", ["sleep", "600"], terminationGracePeriodSeconds=30)
        await lab.until(lambda: lab.get("late") is None, "late is gone")
        assert "Killing" in lab.reasons("late")

    run(scenario, mode="plain")


def test_a_deleted_pod_gets_sigterm_and_then_sigkill(run):
    """A pod that handles SIGTERM has its own exit code, otherwise 137; there is an event Killing; the object is removed
    after the process."""

    async def scenario(lab):
        trap = "echo up; while :; do sleep 0.05; done"
        for name, what in ("good", "echo bye; exit 4"), ("bad", ""):
            lab.pod(name, ["bash", "-c", f"trap '{what}' TERM; {trap}"], terminationGracePeriodSeconds=1)
            lab.store.mutate("pods", "default", name, lambda p: p["metadata"].update(finalizers=["example.com/look"]))
        for name in ("good", "bad"):
            await lab.until(lambda name=name: lab.state(name)["running"], "running")
            await lab.says(name, "up")
            lab.store.delete("pods", "default", name)
        assert (await lab.ended("good"))["exitCode"] == 4
        assert (await lab.ended("bad"))["exitCode"] == 137
        assert "Killing" in lab.reasons("good")
        for name in ("good", "bad"):
            lab.store.mutate("pods", "default", name, lambda p: p["metadata"].pop("finalizers"))
        await lab.until(lambda: not lab.store.list("pods"), "both gone")

    run(scenario)


def test_a_container_without_a_command_ends_when_it_is_asked_to(run):
    """It exits on SIGTERM like an image's own pause or daemon, long before a SIGKILL."""

    async def scenario(lab):
        lab.pod("daemon", [], terminationGracePeriodSeconds=86400)
        lab.store.mutate("pods", "default", "daemon", lambda p: p["metadata"].update(finalizers=["example.com/look"]))
        await lab.until(lambda: lab.state("daemon")["running"], "running")
        await lab.until(lambda: _sleeps("daemon"), "its shell listens")
        lab.store.delete("pods", "default", "daemon")
        assert (await lab.ended("daemon"))["exitCode"] == 0

    run(scenario)


def _sleeps(pod):
    """Say whether the shell of a container without a command is waiting."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (place / "environ").read_bytes().split(b"\0")
            if (place / "cmdline").read_bytes() == b"sleep\0infinity\0" and f"HOSTNAME={pod}".encode() in words:
                return True
    return False


def test_init_containers_come_first_and_sidecars_do_not_hold_the_pod(run):
    """An init container's file exists, the sidecar ran concurrently and is stopped at the end."""

    async def scenario(lab):
        mounts = [{"name": "e", "mountPath": "/e"}]
        inits = [
            {
                "name": "side",
                "image": "i",
                "restartPolicy": "Always",
                "volumeMounts": mounts,
                "command": ["bash", "-c", "trap 'exit 0' TERM; echo s > /e/side; while :; do sleep 0.05; done"],
            },
            {
                "name": "init",
                "image": "i",
                "command": ["bash", "-c", "while ! [ -e /e/side ]; do sleep 0.02; done; echo i > /e/init"],
                "volumeMounts": mounts,
            },
        ]
        lab.pod(
            "p",
            ["cat", "/e/side", "/e/init"],
            container={"volumeMounts": mounts},
            initContainers=inits,
            volumes=[{"name": "e", "emptyDir": {}}],
            terminationGracePeriodSeconds=2,
        )
        assert (await lab.ended("p"))["exitCode"] == 0
        assert await lab.log("p") == "s\ni\n"
        assert lab.get("p")["status"]["phase"] == "Succeeded"

    run(scenario)


CRASHES_TWICE = "echo up >> /e/starts; until [ -e /e/main ]; do sleep 0.02; done; [ $(wc -l < /e/starts) -gt 2 ] || exit 1; sleep 600"


def with_crashing_sidecar(lab):
    """Create a pod whose container ends when its sidecar was started for the second time."""
    mounts = [{"name": "e", "mountPath": "/e"}]
    side = {"name": "side", "image": "i", "volumeMounts": mounts, "command": ["sh", "-c", CRASHES_TWICE]}
    lab.pod(
        "p",
        ["sh", "-c", "touch /e/main; until [ $(wc -l < /e/starts) = 2 ]; do sleep 0.05; done"],
        container={"volumeMounts": mounts},
        initContainers=[{**side, "restartPolicy": "Always"}],
        volumes=[{"name": "e", "emptyDir": {}}],
        terminationGracePeriodSeconds=1,
    )


def test_a_sidecar_in_back_off_is_not_started_again_when_its_pod_ends(run):
    async def scenario(lab):
        with_crashing_sidecar(lab)
        await lab.until(lambda: lab.get("p")["status"].get("phase") == "Succeeded", "Succeeded")
        (side,) = lab.get("p")["status"]["initContainerStatuses"]
        assert side["restartCount"] == 1
        assert "terminated" in side["state"]

    run(scenario)


def test_a_sidecar_that_is_being_started_when_its_pod_ends_is_stopped(run, monkeypatch):
    spawn, held = Container._spawn, []

    async def scenario(lab):
        async def at_the_end(container, *given):
            if container.name == "side" and container.state.restarts:
                held.append(await spawn(container, *given))
                await lab.until(lambda: container.worker.finishing, "the pod ends")
                return held[0]
            return await spawn(container, *given)

        monkeypatch.setattr(Container, "_spawn", at_the_end)
        monkeypatch.setattr("tests.lab.node.test_pod_life.CRASHES_TWICE", CRASHES_TWICE.replace("-gt 2", "-gt 1"))
        with_crashing_sidecar(lab)
        await lab.until(lambda: lab.get("p")["status"].get("phase") == "Succeeded", "Succeeded")
        (side,) = lab.get("p")["status"]["initContainerStatuses"]
        assert held
        assert side["state"]["terminated"]["exitCode"] == 137

    run(scenario)


def test_a_crashing_container_backs_off_and_keeps_its_previous_log(run):
    """The state is CrashLoopBackOff with the pod's name, the event is BackOff, and previous=true returns the log."""

    async def scenario(lab):
        lab.pod("p", ["sh", "-c", "echo try; exit 7"], restartPolicy="OnFailure")
        await lab.until(lambda: lab.state("p")["waiting"]["reason"] == "CrashLoopBackOff", "CrashLoopBackOff")
        status = lab.get("p")["status"]
        assert status["phase"] == "Running"
        assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 7
        assert lab.state("p")["waiting"]["message"].startswith(
            "back-off 10s restarting failed container=c pod=p_default("
        )
        assert await lab.log("p", previous=True) == "try\n"
        assert "BackOff" in lab.reasons("p")

    run(scenario)


def test_a_container_above_its_memory_limit_is_oom_killed(run):
    """The container has exit code 137 and reason OOMKilled."""

    async def scenario(lab):
        lab.pod(
            "p",
            ["python3", "-c", "x = bytearray(120 << 20); import time; time.sleep(6000)"],
            container={"resources": {"limits": {"memory": "48Mi"}}},
        )
        ended = await lab.ended("p")
        assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")

    run(scenario)


def test_a_pod_has_a_deadline_of_its_own(run):
    """After activeDeadlineSeconds the pod is Failed with DeadlineExceeded."""

    async def scenario(lab):
        lab.pod("p", ["sleep", "6000"], activeDeadlineSeconds=1)
        await lab.ended("p")
        status = lab.get("p")["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")

    run(scenario)
