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
    "sweep.misplaced": ("tests/checks/test_judge_sweep.py", "no pod of the lab lies about its node"),
    "sweep.groups": ("tests/checks/test_judge_sweep.py", "fleets of the lab are smaller than their groups"),
    **{
        f"sweep.{name}": ("tests/checks/test_judge_sweep.py", "what most of a fleet has needs a fleet as data")
        for name in ("noise", "plane")
    },
    "sweep.level": ("tests/checks/test_sweep_levels.py", "no fleet of the lab is slow as a whole and meets its floors"),
    "sweep.suspect": ("tests/checks/test_judge_sweep.py", "what is in doubt depends on how many rounds there were"),
    **{f"nccl.{name}": (CAUSES, "a cause that stands in a line, of no cluster that is played") for name in IN_LINES},
    **{
        f"nccl.{name}": ("tests/logs/test_nccl_environment.py", "words of what stands around NCCL")
        for name in ("cumem-host", "ib-length", "too-many-processes")
    },
    **dict.fromkeys(
        ("job.canceled", "queue.unnamed", "dns.service-missing"),
        ("tests/jobs/test_why_it_does_not_run.py", "of a user's own job, and scenarios play trials"),
    ),
    **{
        f"rdma.{name}": (
            "tests/checks/test_judge_perftest.py",
            "a scenario shows one slow link; the others are its kind",
        )
        for name in ("low-bandwidth-all", "low-bandwidth-gpu", "write-failed")
    },
    "training.no-end": ("tests/checks/test_judge_training.py", "it takes the whole time that the steps may take"),
    # another fault of the same world is found first, and describes it better
    "rdma.no-device": ("tests/checks/test_judge_fabric.py", "pods without a device are rdma.not-mounted in the lab"),
    "nccl.gdr-no-module": (ROWS, "a cause that older NCCL prints"),
    "nccl.gdr-distance": (ROWS, "a cause that older NCCL prints"),
    "nccl.topology-virtual": (ROWS, "a cause beside another"),
    "nccl.net-intra-node": (ROWS, "the profile's expectation is judged first: nccl.intra-node-path"),
    "nccl.net-env": (LOGS, "NCCL does not print NCCL_NET"),
    "nccl.mnnvl-unused": (LOGS, "the profile's expectation is judged first: nccl.wrong-fabric"),
    "nccl.plugin-init-failed": (LOGS, "where the built-in InfiniBand finds no device either, that is told"),
    # logs that no trial writes
    "nccl.separate-runs": ("tests/logs/test_nccl_pasted.py", "several runs in one pasted log"),
    "nccl.crash": (SYMPTOMS, "a crash whose cause the log does not show"),
    "nccl.odd-numbers": ("tests/logs/test_nccl_tables.py", "numbers that no measurement gives"),
    **{
        f"nccl.{name}": (
            "tests/logs/test_nccl_devices.py",
            "what NCCL prints of a device, which the lab's NCCL does not",
        )
        for name in ("gdr-hca-off", "port-rate")
    },
    **{
        f"nccl.{name}": ("tests/logs/test_nccl_not_at_fault.py", "hardware, or an errno, that the lab does not have")
        for name in ("gdr-unsupported", "mixed-hcas", "mixed-rails")
    },
    **{
        f"nccl.{name}": (
            "tests/logs/test_nccl_remedies.py",
            "a line of a kernel, a runtime or a daemon, which the lab has not",
        )
        for name in ("imex-asleep", "dmabuf-topology")
    },
    "nccl.slow-version": ("tests/logs/test_nccl_slow_versions.py", "a remark on versions that the lab has not"),
    "nccl.restarted": ("tests/logs/test_nccl_restarts.py", "no launcher of the lab starts a job again"),
    "nccl.unexplained": ("tests/logs/test_nccl_trouble.py", "what no rule knows, no scenario shows"),
    "nccl.below-published": ("tests/logs/test_nccl_rescaled.py", "accept judges by the profile's floors"),
    "nccl.bandwidth-falls": ("tests/logs/test_nccl_tables.py", "the played fabric has no such curve"),
    "checkpoint.failed": ("tests/checks/test_judge_checkpoint.py", "a path that refuses is storage.paths' first"),
    "checkpoint.corrupt": (
        "tests/checks/test_judge_checkpoint.py",
        "storage that changes bytes is storage.corrupt first",
    ),
    "storage.stale-metadata": ("tests/checks/test_judge_storage.py", "pods of the lab share the caches of one kernel"),
    "storage.locks-stuck": ("tests/checks/test_judge_storage.py", "locks of the lab are those of one kernel"),
    "storage.small-files-slow": (
        "tests/checks/test_judge_storage.py",
        "small files of the lab are as fast as its disk",
    ),
    "checkpoint.gather-memory": ("tests/checks/test_judge_checkpoint.py", "pods of the lab have no limit of memory"),
    # conditions that the embedded cluster lacks, or that take longer than a rehearsal
    "job.start-timeout": ("tests/jobs/test_launcher_on_sim.py", "it takes the whole time that a start may take"),
    "job.deadline": ("tests/jobs/test_diagnosis_general.py", "it takes the whole time that a job may take"),
    "job.failed": ("tests/jobs/test_diagnosis_recordings.py", "recorded with a real Job"),
    "job.one-after-another": ("tests/checks/test_judge_trial.py", "pods of the lab wait for their peers for minutes"),
    "job.no-evidence": ("tests/checks/test_judge_trial.py", "a probe that ends without its last line"),
    "admission.webhook-down": ("tests/jobs/test_refusals.py", "webhooks of the lab are part of its API server"),
    "launcher.runtime-unknown": ("tests/jobs/test_refusals.py", "Kueue of the lab starts together with Trainer"),
    **{
        f"manifest.{name}": ("tests/checks/test_judge_contract.py", "of the user's manifests, not of a cluster")
        for name in ("no-rdma", "no-network", "no-ipc-lock", "no-queue", "no-shm", "service", "rendezvous", "nccl-env")
    },
    **{
        f"nccl.{name}": ("tests/e2e/test_own_programs.py", "of the user's own program, which no scenario brings")
        for name in ("own-program", "nothing-shown")
    },
    "lab.machine": ("tests/lab/box/test_machines.py", "what the lab cannot do is no world of its own"),
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
    """A scenario finds it or names it as the cause, or a line does; otherwise a recorded case is listed here."""
    assert shown <= set(FAULTS)
    missing = set(FAULTS) - shown
    assert missing - set(SHOWN_OTHERWISE) - BY_LINES == set()
    assert set(SHOWN_OTHERWISE) & BY_LINES == set(), "these are shown by their own lines: strike them off"
    assert set(SHOWN_OTHERWISE) - missing == set(), "these are shown by a scenario now: strike them off"
    for fault, (place, _) in SHOWN_OTHERWISE.items():
        assert fault in (ROOT / place).read_text(), f"{place} does not speak of {fault}"


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
    """docs/rehearsals.md: `seatrial rehearse --matrix > docs/rehearsals.md` regenerates it."""
    assert (ROOT / "docs" / "rehearsals.md").read_text() == page(entries)
