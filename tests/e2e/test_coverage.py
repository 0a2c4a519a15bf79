"""Coverage: every check can fail, every fault is shown, and the page about it is correct."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.listing import all_checks
from lab.rehearse.matrix import page
from seatrial.faults.advice import FAULTS
from seatrial.faults.lines import read_lines

ROOT = Path(__file__).resolve().parents[2]
HANGS = "tests/hang/test_hang.py"
SYMPTOMS, ROWS = "tests/logs/test_nccl_symptoms.py", "tests/logs/symptom_rows.py"
LOGS = "tests/e2e/test_told_by_logs.py"
CAUSES = "tests/logs/test_nccl_causes.py"
IN_LINES = ("gid-subnets", "gid-link-local", "verbs-provider", "gdrcopy", "bootstrap-link-local", "node-count")
IN_LINES += ("shm-name", "chunk-size", "nvls-slots", "uneven-hosts")
# Faults that a catalogue line reports for a job: tests/logs/test_nccl_lines.py shows each by its examples.
BY_LINES = {line.fault for line in read_lines() if line.role in ("cause", "degraded")}
# Faults without a scenario, their substitute (a labelled log, a recording, facts as data), and the reason.
SHOWN_OTHERWISE = {
    **{
        f"nccl.hang-{kind}": (HANGS, "of dumps and reports that a hung job leaves, not of a trial")
        for kind in ("dead", "mismatch", "stalled", "order", "inside")
    },
    "nccl.hang-watchdog": ("tests/hang/test_blocked_watchdogs.py", "a watchdog's report, which no trial leaves"),
    "nccl.iommu": ("tests/logs/test_nccl_libraries.py", "words of a library beside NCCL"),
    **{
        f"nccl.{name}": ("tests/logs/test_nccl_starts.py", "words of a start that failed below the program")
        for name in ("file-access", "not-all-came")
    },
    "network.unreachable": (
        "tests/checks/test_judge_rendezvous.py",
        "the lab's DNS answers every pod, whatever lies between the pods",
    ),
    "sweep.misplaced": ("tests/checks/test_judge_sweep.py", "pods of the lab report their real node"),
    "sweep.groups": ("tests/checks/test_judge_sweep.py", "clusters of the lab are smaller than such groups"),
    **{
        f"sweep.{name}": ("tests/checks/test_judge_sweep.py", "a fault of the majority needs a synthetic cluster")
        for name in ("noise", "plane")
    },
    "sweep.level": (
        "tests/checks/test_sweep_levels.py",
        "no cluster of the lab is uniformly slow and meets its floors",
    ),
    "sweep.suspect": ("tests/checks/test_judge_sweep.py", "a suspect depends on the number of rounds"),
    **{f"nccl.{name}": (CAUSES, "a cause in a log line, which no simulated cluster has") for name in IN_LINES},
    **{
        f"nccl.{name}": ("tests/logs/test_nccl_environment.py", "messages of NCCL's environment")
        for name in ("cumem-host", "ib-length", "too-many-processes")
    },
    **dict.fromkeys(
        ("job.canceled", "queue.unnamed", "dns.service-missing"),
        ("tests/jobs/test_why_it_does_not_run.py", "a fault of a user's own job, and scenarios run trials"),
    ),
    **{
        f"rdma.{name}": (
            "tests/checks/test_judge_perftest.py",
            "a scenario shows one slow link, which represents the others",
        )
        for name in ("low-bandwidth-all", "low-bandwidth-gpu", "write-failed")
    },
    "training.no-end": ("tests/checks/test_judge_training.py", "it needs the whole time limit of the steps"),
    # another fault of the same world is found first, and describes it better
    "rdma.no-device": ("tests/checks/test_judge_fabric.py", "pods without a device are rdma.not-mounted in the lab"),
    "nccl.gdr-no-module": (ROWS, "a cause that older NCCL prints"),
    "nccl.gdr-distance": (ROWS, "a cause that older NCCL prints"),
    "nccl.topology-virtual": (ROWS, "a cause that occurs with another"),
    "nccl.net-intra-node": (ROWS, "the profile's expectation is judged first: nccl.intra-node-path"),
    "nccl.net-env": (LOGS, "NCCL does not print NCCL_NET"),
    "nccl.mnnvl-unused": (LOGS, "the profile's expectation is judged first: nccl.wrong-fabric"),
    "nccl.plugin-init-failed": (LOGS, "if the built-in InfiniBand finds no device either, that is reported"),
    # logs that no trial writes
    "nccl.separate-runs": ("tests/logs/test_nccl_pasted.py", "several runs in one pasted log"),
    "nccl.crash": (SYMPTOMS, "a crash whose cause the log does not show"),
    "nccl.odd-numbers": ("tests/logs/test_nccl_tables.py", "impossible measurements"),
    **{
        f"nccl.{name}": ("tests/logs/test_nccl_devices.py", "device messages that the lab's NCCL does not print")
        for name in ("gdr-hca-off", "port-rate")
    },
    **{
        f"nccl.{name}": ("tests/logs/test_nccl_not_at_fault.py", "hardware, or an errno, that the lab lacks")
        for name in ("gdr-unsupported", "mixed-hcas", "mixed-rails")
    },
    **{
        f"nccl.{name}": (
            "tests/logs/test_nccl_remedies.py",
            "a line of a kernel, a runtime or a daemon that the lab lacks",
        )
        for name in ("imex-asleep", "dmabuf-topology")
    },
    "nccl.slow-version": ("tests/logs/test_nccl_slow_versions.py", "a note about versions that the lab lacks"),
    "nccl.restarted": ("tests/logs/test_nccl_restarts.py", "no launcher of the lab restarts a job"),
    "nccl.unexplained": ("tests/logs/test_nccl_trouble.py", "no scenario has a line without a rule"),
    "nccl.below-published": ("tests/logs/test_nccl_rescaled.py", "accept judges by the profile's floors"),
    "nccl.bandwidth-falls": ("tests/logs/test_nccl_tables.py", "the simulated fabric has no such curve"),
    "checkpoint.failed": ("tests/checks/test_judge_checkpoint.py", "storage.paths reports a refused path first"),
    "checkpoint.corrupt": ("tests/checks/test_judge_checkpoint.py", "storage.corrupt reports changed bytes first"),
    "storage.stale-metadata": ("tests/checks/test_judge_storage.py", "pods of the lab share the caches of one kernel"),
    "storage.locks-stuck": ("tests/checks/test_judge_storage.py", "pods of the lab share the locks of one kernel"),
    "storage.small-files-slow": (
        "tests/checks/test_judge_storage.py",
        "small files of the lab are as fast as its disk",
    ),
    "checkpoint.gather-memory": ("tests/checks/test_judge_checkpoint.py", "pods of the lab have no memory limit"),
    # conditions that the embedded cluster lacks, or that take longer than a rehearsal
    "job.start-timeout": ("tests/jobs/test_launcher_on_sim.py", "it needs the whole time limit of a start"),
    "job.deadline": ("tests/jobs/test_diagnosis_general.py", "it needs the whole time limit of a job"),
    "job.failed": ("tests/jobs/test_diagnosis_recordings.py", "recorded with a real Job"),
    "job.one-after-another": ("tests/checks/test_judge_trial.py", "pods of the lab wait for their peers for minutes"),
    "job.no-evidence": ("tests/checks/test_judge_trial.py", "a probe that ends without its last line"),
    "admission.webhook-down": ("tests/jobs/test_refusals.py", "webhooks of the lab are part of its API server"),
    "launcher.runtime-unknown": ("tests/jobs/test_refusals.py", "Kueue of the lab starts together with Trainer"),
    **{
        f"manifest.{name}": ("tests/checks/test_judge_contract.py", "a fault of the user's manifests, not of a cluster")
        for name in ("no-rdma", "no-network", "no-ipc-lock", "no-queue", "no-shm", "service", "rendezvous", "nccl-env")
    },
    **{
        f"nccl.{name}": ("tests/e2e/test_own_programs.py", "a fault of the user's own program, which scenarios lack")
        for name in ("own-program", "nothing-shown")
    },
    "lab.machine": ("tests/lab/box/test_machines.py", "a limitation of the lab is not a scenario"),
}
# Platforms without a shipped profile: a healthy verdict is impossible.
NO_PROFILE = {"kind-cpu", "small-unknown", "dra-unknown"}
# Checks that cannot fail independently: they record, or forward other faults of the log.
RECORDS = {"bom.platform", "bom.runtime", "gpu.shapes", "nccl.other"}


@pytest.fixture(scope="module")
def entries():
    done = subprocess.run(
        [sys.executable, "-m", "lab", "--list", "--json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def shown(entries):
    faults = {fault for entry in entries for fault in entry["faults"]}
    return faults | {
        word
        for entry in entries
        for subject_words in entry["words"].values()
        for word in subject_words
        if word in FAULTS
    }


def test_every_fault_of_the_catalogue_is_shown(shown):
    """A scenario or a line finds the fault or names it as the cause; otherwise a recorded case is listed here."""
    assert shown <= set(FAULTS)
    missing = set(FAULTS) - shown
    assert missing - set(SHOWN_OTHERWISE) - BY_LINES == set()
    assert set(SHOWN_OTHERWISE) & BY_LINES == set(), "these are shown by their own lines: remove them from the list"
    assert set(SHOWN_OTHERWISE) - missing == set(), "these are shown by a scenario now: remove them from the list"
    for fault, (place, _) in SHOWN_OTHERWISE.items():
        assert fault in (ROOT / place).read_text(), f"{place} does not mention {fault}"


def test_no_check_is_beyond_failing(shown):
    """Every check has a scenario that raises one of its faults."""
    checks = all_checks()
    assert {name for name, each in checks.items() if not each.faults} == RECORDS
    assert [name for name, each in checks.items() if each.faults and not set(each.faults) & shown] == []


def test_the_lab_is_as_large_as_it_claims_to_be(entries):
    """There are at least 80 scenarios and 20 healthy variants; every fault has a subject; every platform has a healthy
    scenario."""
    healthy = [entry for entry in entries if not entry["faults"]]
    assert len(entries) - len(healthy) >= 80
    assert len(healthy) >= 20
    assert [e["name"] for e in entries if set(e["faults"]) - set(e["subjects"])] == []
    platforms = {path.stem for path in (ROOT / "lab" / "hardware" / "platforms").glob("*.yaml")} - NO_PROFILE
    assert platforms - {entry["platform"] for entry in healthy} == set()


def test_the_page_of_rehearsals_is_the_commands_output(entries):
    """`seatrial rehearse --matrix > docs/rehearsals.md` regenerates the page."""
    assert (ROOT / "docs" / "rehearsals.md").read_text() == page(entries)
