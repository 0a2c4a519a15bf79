"""A trial without Kubernetes: the shipped archive in a folder, and one probe process per loopback address."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from jobs.pod.stages import children, spec
from jobs.pod.stages.barrier import Barrier
from jobs.pod.stages.deadline import Watch
from jobs.pod.stages.rendezvous import Rendezvous
from jobs.run.evidence import taken
from jobs.trial import payload
from lab.hardware.files import first_lines
from tests import compiled
from tests.ports import free_port
from tests.waiting import HANG_S, until

from .ranks import Ranks

DATA = Path(__file__).parent / "data"

FAKE_TORCHRUN = r'''
"""Plays torchrun: meets the other node on MASTER_PORT, then writes logs and a table; FAKE_MODE says what goes wrong."""
import json, os, signal, socket, subprocess, sys, time

options = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:] if word.startswith("--"))
mode = os.environ.get("FAKE_MODE", "")
if mode == "old" and "nproc-per-node" in options:
    print("usage: torchrun [-h]\ntorchrun: error: unrecognized arguments: --nproc-per-node=2", file=sys.stderr)
    sys.exit(2)
rank, nodes = int(options.get("node-rank", options.get("node_rank"))), int(options["nnodes"])
local = int(options.get("nproc-per-node", options.get("nproc_per_node")))
address, port = options.get("master-addr", options.get("master_addr")), int(options.get("master-port", options.get("master_port")))
if "WORLD_SIZE" in os.environ:
    sys.exit("WORLD_SIZE=%s reached torchrun" % os.environ["WORLD_SIZE"])
if mode == "orphans":
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('worker', flush=True); time.sleep(600)"
    worker = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    with open(os.environ["FAKE_PIDS"], "a") as stream:
        stream.write("%d\n" % worker.pid)
    os._exit(0)
if mode == "recorded":  # what a real torchrun said of a program that failed before it reached NCCL
    print(open(os.environ["FAKE_SAYS"]).read())
    sys.exit(1)
if mode == "spam":
    block = b"x" * 65535 + b"\n"
    for _ in range(64):
        os.write(1, block)
store = socket.socket()
if rank == 0:
    store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    store.bind(("", port))
    store.listen(8)
    others = [store.accept()[0] for _ in range(nodes - 1)]
else:
    limit = time.monotonic() + 600
    while True:
        try:
            others = [socket.create_connection((address, port), timeout=2)]
            break
        except OSError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.05)
if mode == "crash" and rank == 1:
    sys.exit("RuntimeError: CUDA error: an illegal memory access was encountered, TOKEN=abcdef123456")
path = os.environ["NCCL_DEBUG_FILE"]
for index in range(local):
    name = path.replace("%h", "node%d" % rank).replace("%p", str(1000 + 10 * rank + index))
    with open(name, "w") as stream:
        stream.write("node%d:%d:%d [%d] NCCL INFO NCCL version 2.28.9+cuda13.0\n" % (rank, 1000 + 10 * rank + index, 1, index))
if os.environ.get("FAKE_LOGS"):
    with open("%s/nccl-2.28.9-node%d.log" % (os.environ["FAKE_LOGS"], rank)) as recorded, open(name, "w") as stream:
        stream.write(recorded.read())
if mode == "late":
    sys.exit("RuntimeError: CUDA error: an illegal memory access was encountered at 0x%x" % os.getpid())
if mode == "hang":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("asked to end"))
if mode in ("hang", "crash"):
    time.sleep(600)
for other in others:
    other.sendall(b"done")
    other.recv(4)
if rank == 0:
    print(open(os.environ["FAKE_TABLE"]).read() if "FAKE_TABLE" in os.environ else "# seatrial all_reduce bench")
    print("# algorithm", os.environ.get("NCCL_ALGO"))
'''


CLOCK = """
import os, time as real
class time:
    monotonic = staticmethod(lambda: real.monotonic() + 3600 * os.path.exists({ahead!r}))
"""


class Pods:
    """Starts the probes of one trial and reads their output."""

    def __init__(self, folder: Path, trial: dict) -> None:
        self.folder, self.trial = folder, trial
        self.source = folder / "source"
        self.here = self.source / payload.PACKAGE
        self.mount = folder / "seatrial"
        self.bin = folder / "bin"
        self.scratch = folder / "scratch"
        for directory in (self.mount, self.bin, self.scratch):
            directory.mkdir()
        for path, text in payload.files().items():
            file = self.source / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        self.processes: dict[int, subprocess.Popen] = {}

    def tool(self, name: str, text: str) -> Path:
        """Put an executable Python script on the pods' PATH."""
        file = self.bin / name
        file.write_text(f"{first_lines(Path(sys.executable))}\n{text}", encoding="utf-8")
        file.chmod(0o755)
        return file

    def clock(self, stage: str) -> Path:
        """Return a file; as soon as it exists, a stage's clock is an hour ahead."""
        file, ahead = self.here / "stages" / f"{stage}.py", self.folder / f"{stage}-is-late"
        text = file.read_text(encoding="utf-8")
        clock = CLOCK.format(ahead=str(ahead))
        assert text.count("\nimport time\n") == 1
        file.write_text(text.replace("\nimport time\n", clock), encoding="utf-8")
        return ahead

    def hang(self) -> None:
        """Run two ranks until their first collective hangs; every process has a log."""
        for rank in range(2):
            self.start(rank, FAKE_MODE="hang")
        logs = self.scratch.rglob
        until(lambda: sum(log.stat().st_size > 0 for log in logs("ring.*.log")) == 4, "the logs of all")

    def seal(self) -> None:
        """Write the archive and trial.json into a read-only folder, like a ConfigMap mount."""
        files = {path.relative_to(self.source).as_posix(): path for path in self.source.rglob("*.*")}
        self.archive.write_bytes(payload.archive({name: path.read_text("utf-8") for name, path in files.items()}))
        compiled.add_to(self.archive)
        (self.mount / "trial.json").write_text(json.dumps(self.trial), encoding="utf-8")
        for path in [self.mount, *self.mount.iterdir()]:
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222)

    @property
    def archive(self) -> Path:
        """Return the archive that the probes run, once it is sealed."""
        return self.mount / payload.ARCHIVE

    def start(self, rank: int, python: str = sys.executable, **env: str) -> subprocess.Popen:
        """Start one rank's probe on its loopback address."""
        if not self.archive.exists():
            self.seal()
        (self.scratch / f"message{rank}").touch()
        full = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": "/nonexistent",
            "TMPDIR": str(self.scratch),
            "JOB_COMPLETION_INDEX": str(rank),
            "WORLD_SIZE": str(self.trial["nodes"]),
            "SEATRIAL_POD_IP": f"127.0.0.{rank + 1}",
            "SEATRIAL_NODE_NAME": f"gpu-node-{rank}",
            "SEATRIAL_TERMINATION_LOG": str(self.scratch / f"message{rank}"),
            "NCCL_DEBUG": "INFO",
            **env,
        }
        command = [python, str(self.archive)]
        process = subprocess.Popen(command, env=full, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/")
        self.processes[rank] = process
        return process

    def run(self, **env: str) -> dict[int, dict]:
        """Run all ranks to their end; return rank -> stage -> data."""
        for rank in range(self.trial["nodes"]):
            self.start(rank, **env)
        return {rank: self.stages(rank) for rank in self.processes}

    def stages(self, rank: int, code: int = 0) -> dict:
        """Wait for a rank that ends with `code` and return its evidence, with every line checked."""
        out, _ = self.processes[rank].communicate(timeout=HANG_S)
        assert self.processes[rank].returncode == code, out[-3000:]
        return self.evidence(out, rank)

    def evidence(self, out: bytes, rank: int) -> dict:
        """Read the output of a rank."""
        return evidence(out, self.trial["run"], rank)

    @staticmethod
    def alive(pid: int) -> bool:
        """Say whether a process runs (a zombie does not)."""
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    def stop(self) -> None:
        """End the processes left by a failed test."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait(timeout=HANG_S)
            if process.stdout and not process.stdout.closed:
                process.stdout.close()
        for path in [self.mount, *self.mount.iterdir()]:
            path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o200)


def evidence(out: bytes, run: str, rank: int) -> dict:
    """Put the lines together as a reader would, insisting on the form that the seam fixes; each stage has all fields."""
    stages: dict[str, dict] = {}
    chunks: dict[str, list[str]] = {}
    numbers = []
    for line in out.splitlines(keepends=True):
        if not line.startswith(b'{"seatrial"'):
            assert line.startswith(b"seatrial rank"), line
            continue
        assert len(line) <= 8192
        entry = json.loads(line.decode("ascii"))
        assert (entry["seatrial"], entry["run"], entry["rank"]) == (1, run, rank)
        numbers.append(entry["n"])
        assert entry["seconds"] >= 0
        if "chunk" in entry:
            parts = chunks.setdefault(entry["stage"], [])
            parts.append(entry["chunk"])
            assert entry["part"] == len(parts)
            if entry["part"] == entry["parts"]:
                stages[entry["stage"]] = json.loads("".join(parts))
        else:
            stages[entry["stage"]] = entry["data"]
    assert numbers == list(range(1, len(numbers) + 1))
    read = {name: taken(name, data) for name, data in stages.items()}
    assert not [problem for _, problem in read.values() if problem]
    return {name: data for name, (data, _) in read.items()}


@pytest.fixture
def trial() -> dict:
    """A small trial of two pods with two GPUs each."""
    return {
        "schema": 1,
        "run": "r-test",
        "job": "seatrial-r-test",
        "nodes": 2,
        "gpus_per_node": 2,
        "peers": ["127.0.0.1", "127.0.0.2"],
        "gpu_kind": "nvidia",
        "master_port": free_port(),
        "deadline_s": HANG_S,
        "publish_s": 0.01,  # its peers are no names
        "dns_timeout_s": HANG_S / 20,
        "port_timeout_s": HANG_S / 20,
        "collective_timeout_s": HANG_S / 2,
        "peer_wait_s": HANG_S / 2,
        "collectives": [{"name": "ring", "env": {"NCCL_ALGO": "Ring"}}, {"name": "default", "env": {}}],
        "bench": {"min_bytes": 1024, "max_bytes": 1048576, "factor": 4, "iters": 2, "warmup": 1},
        "network": {"seconds": 0.05},  # of sending at full rate
    }


@pytest.fixture
def pods(tmp_path: Path, trial: dict):
    """Probes with a stand-in torchrun and nvidia-smi on their PATH."""
    made = Pods(tmp_path, trial)
    made.tool("torchrun", FAKE_TORCHRUN)
    xml = (DATA / "h200-q-x.xml").read_text(encoding="utf-8")
    second = xml[xml.index("\t<gpu ") : xml.rindex("</nvidia_smi_log>")]
    doubled = xml.replace("</nvidia_smi_log>", second + "</nvidia_smi_log>").replace(
        "<attached_gpus>1", "<attached_gpus>2"
    )
    (tmp_path / "smi.xml").write_text(doubled, encoding="utf-8")
    made.tool("nvidia-smi", f"import sys\nif '-x' in sys.argv: print(open({str(tmp_path / 'smi.xml')!r}).read())\n")
    yield made
    made.stop()


class Side:
    """One rank's rendezvous and barrier in this process."""

    def __init__(self, trial: dict, rank: int) -> None:
        self.trial = spec.Trial(trial)
        me = spec.Identity(rank, f"127.0.0.{rank + 1}", f"n{rank}", f"p{rank}")
        self.watch = Watch(HANG_S, 1)
        self.rendezvous = Rendezvous(self.trial, me, self.watch)
        self.barrier = Barrier(self.rendezvous)
        self.rendezvous.open()

    def meet(self, *addresses: str | None) -> None:
        for index, address in enumerate(addresses):
            if address:
                self.rendezvous.dial(index, [address])

    def agree(self) -> tuple[bool, str]:
        self.rendezvous.wait(lambda: self.barrier.decided("port"))
        self.rendezvous.close_port()
        return self.barrier.agree("port", self.rendezvous.complaint(), HANG_S)


@pytest.fixture
def sides(trial: dict):
    made: list[Side] = []

    def make(count: int, *, come: int | None = None, **changes) -> list[Side]:
        trial.update(nodes=count, peers=[f"127.0.0.{n + 1}" for n in range(count)], **changes)
        made.extend(Side(trial, rank) for rank in range(len(made), count if come is None else come))
        return made

    yield make
    for side in made:
        side.rendezvous.leave()


def connected(made: list[Side]) -> list[Side]:
    """Run the rendezvous and the agreement of all ranks, and keep the connections that stages use."""
    for rank, side in enumerate(made):
        side.meet(*[None if index == rank else f"127.0.0.{index + 1}" for index in range(len(made))])
    assert together(*[side.agree for side in made]) == [(True, "")] * len(made)
    together(*[side.rendezvous.keep_only_control for side in made])
    return made


def together(*jobs):
    """Run one callable per rank concurrently; return their results in order."""
    results: dict[int, object] = {}
    threads = [threading.Thread(target=lambda n=n, job=job: results.update({n: job()})) for n, job in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=HANG_S)
    return [results[n] for n in range(len(jobs))]


TORCH = Path(__file__).parents[2] / ".venv-torch"


def python_with_torch() -> str | None:
    """Find a Python with torch: this one, the one in SEATRIAL_TORCH_PYTHON, or that of `make test-torch`."""
    if importlib.util.find_spec("torch"):
        return sys.executable
    made = TORCH / "bin" / "python" if (TORCH / ".done").exists() else ""  # not an incomplete installation
    return shutil.which(os.environ.get("SEATRIAL_TORCH_PYTHON") or made)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that request torch, which `make test-torch` runs."""
    if "torch_python" in getattr(item, "fixturenames", ()):
        item.add_marker("torch")


@pytest.fixture(autouse=True)
def no_end_of_this_process_family(monkeypatch):
    """Code that ends everything below a pod's process runs in a separate process; here it would end other tests'
    clusters."""

    def refused(*_):
        raise AssertionError("this ends every process below the tests' own: run it in a separate process")

    monkeypatch.setattr(children, "kill_all", refused)


@pytest.fixture(scope="session")
def torch_python() -> str:
    interpreter = python_with_torch()
    if interpreter is None:
        pytest.skip("needs torch: make test-torch, or name a Python that has it in SEATRIAL_TORCH_PYTHON")
    return interpreter


@pytest.fixture(scope="session")
def ranks(torch_python: str, tmp_path_factory):
    """Return ranks of the bench on torch and gloo."""
    made = Ranks(torch_python, tmp_path_factory.mktemp("ranks"))
    yield made
    made.stop()
