"""Kills runs at random moments: cleanup or the next run must delete their objects, and give the right verdict.

Each round starts a trial on the embedded cluster and sends SIGKILL, SIGTERM, SIGINT or SIGQUIT to its runner, or to the
processes of one of its pods, at a random moment. Then three things must hold. A runner that could clean up left
nothing, with 2 in both record and exit code unless it had already ended. The objects that SIGKILL left are gone after
`cleanup` or after the next run, which is go. Objects of other owners in the namespace are unchanged. In a share of the
rounds a second trial, the neighbour, runs in the same namespace. It is go at its first attempt, and none of its objects
is deleted while it runs. Exit code 1 if a round fails.

Usage: python benchmarks/kills.py [--kills N] [--seed S] [--minutes M] [--neighbours SHARE]
"""

import argparse
import collections
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from checks.framework.session import RUN_ID  # noqa: E402
from jobs.cluster.client.kube import Kube  # noqa: E402
from jobs.trial.job_spec import new_run_id  # noqa: E402

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
LAUNCHERS = ("indexed", "indexed", "indexed", "mpijob", "pytorchjob", "trainjob")
WORLD = {
    "name": "kills",
    "title": "Healthy, with all operators",
    "breaks": "nothing",
    "faults": [],
    "outcome": "go",
    "world": {"nodes": 4, "operators": ["mpi", "training", "trainer"]},
}
IMAGE = "registry.example.com/training/pytorch-mpi:25.08"  # NVIDIA's PyTorch image has no sshd
PROFILE = {"extends": "h100-ib", "name": "kills", "pod": {"image": IMAGE}, "deadlines": {"lease_s": 8}}
OURS = "app.kubernetes.io/managed-by=seatrial"
HERE = "namespaces/default"
JOBS, PODS = f"/apis/batch/v1/{HERE}/jobs", f"/api/v1/{HERE}/pods"
SERVICES, CONFIGMAPS = f"/api/v1/{HERE}/services", f"/api/v1/{HERE}/configmaps"
OPERATORS = (
    f"/apis/kubeflow.org/v2beta1/{HERE}/mpijobs",
    f"/apis/kubeflow.org/v1/{HERE}/pytorchjobs",
    f"/apis/trainer.kubeflow.org/v1alpha1/{HERE}/trainjobs",
)
KINDS = (JOBS, PODS, SERVICES, CONFIGMAPS, *OPERATORS)
LIMIT_S = 600


def foreign():
    """Return objects of another user: with a similar name, with one common label, or with nothing in common."""
    meta = {"namespace": "default"}
    lookalike = {"app.kubernetes.io/name": "seatrial", "app.kubernetes.io/instance": "r1"}
    labelled = {"app.kubernetes.io/managed-by": "seatrial"}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}
    service = {"clusterIP": "None", "ports": [{"port": 80}]}
    for named in ({"name": "seatrial-notes"}, {"name": "other", "labels": labelled}):
        yield CONFIGMAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta | named}
    yield (
        SERVICES,
        {
            "apiVersion": "v1",
            "kind": "Service",
            "spec": service,
            "metadata": meta | {"name": "seatrial-dash", "labels": lookalike},
        },
    )
    yield (
        JOBS,
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": meta | {"name": "training"},
            "spec": {"suspend": True, "template": {"spec": pod}},
        },
    )


class Lab:
    """A served cluster and its objects."""

    def __init__(self, folder):
        self.folder = folder
        self.config, self.profile = str(folder / "kubeconfig"), str(folder / "kills.yaml")
        (folder / "world.yaml").write_text(json.dumps(WORLD))
        Path(self.profile).write_text(json.dumps(PROFILE))
        command = [
            sys.executable,
            "-m",
            "lab",
            str(folder / "world.yaml"),
            "--write-kubeconfig",
            self.config,
            "--json",
            "--until-stdin-closes",
        ]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stdout.readline(), "the cluster did not start"
        self.kube = Kube.connect(kubeconfig=self.config)
        self.strangers = {}
        for path, body in foreign():
            self.kube.create(path, body)
            self.strangers[f"{path}/{body['metadata']['name']}"] = ""
        while not self.kube.get(f"{JOBS}/training").get("status"):  # the Job controller writes the suspended status
            time.sleep(0.1)
        self.strangers = self.touched()

    def touched(self):
        """Return the uid and version of every object of other owners."""
        found = {}
        for path in self.strangers:
            meta = self.kube.get(path)["metadata"]
            found[path] = (meta["uid"], meta["resourceVersion"])
        return found

    def left(self, run=""):
        """Return every object of ours, or of one run, by kind and name."""
        selector = OURS + (f",app.kubernetes.io/instance={run}" if run else "")
        items = ((path, item) for path in KINDS for item in self.kube.list(path, labelSelector=selector)[0])
        names = (f"{path.rpartition('/')[2]}/{item['metadata']['name']}" for path, item in items)
        return sorted(name for name in names if "/seatrial-" in name)

    def gone(self, within_s=60.0, run=""):
        """Return the objects that are left after the garbage collector had time to run."""
        end = time.monotonic() + within_s
        while (left := self.left(run)) and time.monotonic() < end:
            time.sleep(0.2)
        return left

    def accept(self, out, launcher, run_id=""):
        """Start a trial; its output goes to a file next to `out`."""
        command = [
            sys.executable,
            "-m",
            "checks",
            "accept",
            "--kubeconfig",
            self.config,
            "--profile",
            self.profile,
            "--launcher",
            launcher,
            "--out",
            str(out),
        ]
        shutil.rmtree(out, ignore_errors=True)
        told = os.environ | ({RUN_ID: run_id} if run_id else {})
        with said_by(out).open("w") as said:
            return subprocess.Popen(
                command, cwd=ROOT, env=told, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
            )

    def pods(self, run):
        """Return the processes of a trial's pods, by pod."""
        found = collections.defaultdict(list)
        for place in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if place.name.isdigit() and str(self.process.pid) != place.name:
                    told = dict(each.partition(b"=")[::2] for each in (place / "environ").read_bytes().split(b"\0"))
                    if run.encode() in (name := told.get(b"SEATRIAL_POD_NAME", b"")) and self.owns(int(place.name)):
                        found[name.decode()].append(int(place.name))
        return found

    def owns(self, pid):
        """Return whether a process descends from this cluster, not from another one on this machine."""
        for _ in range(30):
            if pid == self.process.pid:
                return True
            if pid <= 1:
                return False
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return False


class Neighbour:
    """A trial next to the one that is killed; it must not be affected."""

    def __init__(self, lab, launcher):
        self.lab, self.out, self.run = lab, lab.folder / "neighbour", new_run_id()
        self.process = lab.accept(self.out, launcher, self.run)
        self.seen, self.lost, self.looks = set(), set(), 0  # objects seen, objects lost, and number of looks
        self.watch = threading.Thread(target=self.keep_looking)
        self.watch.start()

    def keep_looking(self):
        """Check while it runs that no object of a Job vanishes unless the Job has ended or is being deleted."""
        while self.process.poll() is None:
            owned = {(path, meta["uid"]) for path, meta, _ in self.has((SERVICES, CONFIGMAPS))}
            if any(not over(meta, status) for _, meta, status in self.has((JOBS, *OPERATORS))):  # read afterwards
                self.lost |= {path for path, _ in self.seen - owned}
                self.seen |= owned
                self.looks += 1
            time.sleep(0.3)

    def has(self, kinds):
        """Yield its objects of these kinds: path, metadata, status."""
        for path in kinds:
            for item in self.lab.kube.list(path, labelSelector=f"{OURS},app.kubernetes.io/instance={self.run}")[0]:
                yield path, item["metadata"], item.get("status") or {}

    def ended(self):
        """Yield the errors of its end."""
        code, record = self.process.wait(LIMIT_S), record_of(self.out)
        self.watch.join()
        if code or record is None or record["verdict"] != "go":
            yield f"the neighbour ended with {code}: {said_by(self.out).read_text()[-9000:]}"
        elif record["trial"]["job"] != f"seatrial-{self.run}":
            yield f"the neighbour needed a second attempt: {record['trial']['job']}"
        if self.lost:
            yield f"the neighbour lost {sorted(self.lost)} while it ran"


def over(meta, status):
    """Return whether the object that launches pods has ended or is being deleted."""
    ends = {"Complete", "Failed", "Succeeded", "FailureTarget", "SuccessCriteriaMet"}
    told = {each.get("type") for each in status.get("conditions") or [] if each.get("status") == "True"}
    return bool(told & ends or "deletionTimestamp" in meta)


def said_by(out):
    """Return the file with the output of a run."""
    return out.with_name(f"{out.name}.said")


def record_of(out):
    """Return the record of a run; None if it left none."""
    try:
        return json.loads((out / "report.json").read_text())
    except OSError:
        return None


def ended(out, code):
    """Yield the errors after a run was interrupted: record, exit code and terminal must agree."""
    record, said = record_of(out), said_by(out).read_text()
    if "!!!" in said or "Traceback" in said:
        yield f"printed {said[-400:]!r}"
    if record is None:
        if code != 2 and code >= 0:  # negative: Python had not started
            yield f"no record, exit code {code}"
        return
    if record["exit_code"] != code or f"exit code {code}" not in said:
        yield f"exit code {code}, the record says {record['exit_code']}, the terminal {said[-200:]!r}"
    if record["verdict"] == "go" and record["interrupted"]:
        yield "go, and yet interrupted"
    if record["verdict"] != "go" and code != 2:
        failed = [check["id"] for check in record["checks"] if check["outcome"] == "failed"]
        yield f"{record['verdict']}, exit code {code}: {failed}"


def strike(lab, dice, process, lasts, run):
    """Wait for a random moment and signal the runner or a pod; return the target, the signal and the moment."""
    moment, number, target = dice.uniform(0, 1.1 * lasts), dice.choice(SIGNALS), dice.choice(("runner",) * 3 + ("pod",))
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(moment)
    if target == "pod":
        end = time.monotonic() + lasts
        while not (pods := lab.pods(run)) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        victims = pods[dice.choice(sorted(pods))] if pods else []
    else:
        victims = [process.pid] * dice.choice((1, 1, 1, 3)) if process.poll() is None else []
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        time.sleep(0.02 if target == "runner" else 0)
    return (target if victims else "nothing"), number, moment


def swept(lab, counts, neighbour):
    """Run `cleanup` and yield its errors."""
    command = [sys.executable, "-m", "checks", "cleanup", "--kubeconfig", lab.config]
    told = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=LIMIT_S, check=False)
    kept = [line for line in told.stdout.splitlines() if line.startswith("kept")]
    counts["cleanup"] += 1
    counts["cleanup kept a neighbour's trial"] += bool(kept)
    if told.returncode or any(not neighbour or neighbour.run not in line for line in kept):
        yield f"cleanup said {told.stdout} {told.stderr}"


def followed(lab, counts, launcher, left):
    """Yield the errors of the next run: it must delete what a killed run left, report that, and be go."""
    following = lab.accept(lab.folder / "next", launcher).wait(LIMIT_S)
    record = record_of(lab.folder / "next")
    counts["next run"] += 1
    if following or record is None or record["verdict"] != "go":
        yield f"the next run ended with {following}: {said_by(lab.folder / 'next').read_text()[-9000:]}"
    launched = [name for name in left if name.split("/")[0] not in ("services", "configmaps", "pods")]
    if launched and record and not record["cleaned"]:
        yield f"the next run does not say that it deleted {left}"


def one_round(lab, dice, lasts, counts, share):
    """Run one round with one kill; yield its errors."""
    out, launcher, run = lab.folder / "out", dice.choice(LAUNCHERS), new_run_id()
    neighbour = Neighbour(lab, dice.choice(LAUNCHERS)) if dice.random() < share else None
    if neighbour:
        time.sleep(dice.uniform(0, lasts / 2))
    process = lab.accept(out, launcher, run)
    target, number, moment = strike(lab, dice, process, lasts, run)
    code = process.wait(LIMIT_S)
    record = record_of(out)
    left = lab.left(run)
    how = f"{launcher}: {number.name} to {target} after {moment:.1f} s{', with a neighbour' if neighbour else ''}"
    counts[f"{number.name} to {target}"] += 1
    if target == "pod":
        counts[f"a pod was killed: {record['verdict'] if record else code}"] += 1
        if record is None or record["exit_code"] != code:
            yield f"{how}: exit code {code}, record {record and record['exit_code']}"
    elif number != signal.SIGKILL:
        yield from (f"{how}: {text}" for text in ended(out, code))
    if left and (number != signal.SIGKILL or target == "pod") and (left := lab.gone(10, run)):
        yield f"{how}: left {left}; the run itself said {record and record['leftovers']}"
    if left:
        counts["left objects"] += 1
    lives = neighbour is not None and neighbour.process.poll() is None
    how_cleaned = swept(lab, counts, neighbour) if dice.random() < 0.5 else followed(lab, counts, launcher, left)
    yield from (f"{how}: {text}" for text in how_cleaned)
    if still := lab.gone(run=run):
        yield f"{how}: {still} is left"
    if neighbour:
        counts["a neighbour lived when others cleaned up"] += lives
        yield from (f"{how}: {text}" for text in neighbour.ended())
        counts["looks at a neighbour's objects"] += neighbour.looks
        if still := lab.gone():
            yield f"{how}: the neighbour left {still}"
    if lab.touched() != lab.strangers:
        yield f"{how}: an object of another user was touched: {lab.touched()}"


def main():
    """Run the campaign and print its results."""
    options = argparse.ArgumentParser()
    options.add_argument("--kills", type=int, default=500)
    options.add_argument("--seed", type=int, default=random.randrange(10**6))
    options.add_argument("--minutes", type=float, default=600.0)
    options.add_argument("--neighbours", type=float, default=0.5, help="share of the rounds with a second trial")
    asked = options.parse_args()
    print(f"seed {asked.seed}", flush=True)
    dice, counts, wrong = random.Random(asked.seed), collections.Counter(), []
    end, done = time.monotonic() + 60 * asked.minutes, 0
    with tempfile.TemporaryDirectory(prefix="seatrial-kills-") as folder:
        lab = Lab(Path(folder))
        try:
            began = time.monotonic()
            code = lab.accept(lab.folder / "first", "indexed").wait(LIMIT_S)
            assert code == 0, said_by(lab.folder / "first").read_text()
            lasts = time.monotonic() - began
            while done < asked.kills and time.monotonic() < end:
                for text in one_round(lab, dice, lasts, counts, asked.neighbours):
                    wrong.append(text)
                    print(f"WRONG in round {done}: {text}", flush=True)
                done += 1
                if done % 10 == 0:
                    print(f"{done} kills, {len(wrong)} wrong, {time.monotonic() - began:.0f} s", flush=True)
        finally:
            lab.process.stdin.close()
            lab.process.wait(60)
            lab.process.stdout.close()
    for name, number in sorted(counts.items()):
        print(f"{number:>5}  {name}")
    print(f"{done} kills (seed {asked.seed}): {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
