"""seatrial.logs in another program: alone with the catalogue, with the same answers as `seatrial explain`."""

import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cli.explain import main
from seatrial.logs import NcclLogError, explain
from seatrial.logs.bandwidth.hardware import said
from tests.logs.symptom_rows import HEALTHY

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests" / "logs" / "data" / "recorded"
LOG = RECORDED / "ib-disabled.log"
LOGS = sorted(RECORDED.glob("*.log"))


def by_command(capsys, *arguments):
    """Return the documents that `seatrial explain` prints."""
    main([*map(str, arguments), "--format", "json"])
    return json.loads(capsys.readouterr().out)["jobs"]


def unnamed(jobs, name="(text)"):
    """Return a text's documents without their file name."""
    return json.loads(json.dumps(jobs).replace(json.dumps(name)[1:-1], str(LOG)))


@pytest.fixture
def alone(tmp_path):
    """Return a folder with only the two packages and PyYAML."""
    for package in ("faults", "logs"):
        shutil.copytree(ROOT / "seatrial" / package, tmp_path / "seatrial" / package)
    (tmp_path / "yaml").symlink_to(Path(yaml.__file__).parent)
    return tmp_path


def run(alone, code):
    """Run Python with only the packages of a folder."""
    code = f"import sys; sys.path.insert(0, {str(alone)!r})\n{code}"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, cwd=alone, check=False
    )


def test_logs_and_the_catalogue_explain_a_log_alone(alone, capsys):
    """Runs in an empty folder without clusters, checks, profiles, reports and the command line."""
    done = run(
        alone,
        f"import json, pathlib\nfrom seatrial.logs import explain\nprint(json.dumps(explain(pathlib.Path({str(LOG)!r}))))"
        "\nassert not {'jobs', 'checks', 'cli', 'reports', 'kubernetes'} & {name.split('.')[0] for name in sys.modules}",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == by_command(capsys, LOG)


def test_what_it_needs_of_its_own_is_found_missing(alone):
    """The folder holds only what is imported; without the catalogue the explanation fails."""
    shutil.rmtree(alone / "seatrial" / "faults")
    done = run(alone, "from seatrial.logs import explain")
    assert done.returncode == 1 and "seatrial.faults" in done.stderr


def test_the_package_alone_loads_no_reader(alone):
    """The reader is loaded at its first use."""
    done = run(
        alone, "import seatrial.logs, seatrial.logs.reader\nprint([m for m in sys.modules if 'seatrial.logs.' in m])"
    )
    assert done.stdout.strip() == "['seatrial.logs.reader']", done.stderr


def test_the_program_on_the_page_prints_what_the_command_says(capsys):
    """The program is extracted from docs/explain.md."""
    page = (ROOT / "docs" / "explain.md").read_text(encoding="utf-8")
    program = re.search(r"```python\n# explained.py\n(.*?)```", page, re.DOTALL)[1]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    (job,) = by_command(capsys, LOG)
    assert done.stdout.startswith(f"{job['verdict']} {job['sentence']}\n{job['faults'][0]['fault']} "), done.stderr


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_a_program_gets_the_answer_of_the_command(log, capsys):
    assert json.loads(json.dumps(explain(log))) == by_command(capsys, log)


def test_a_folder_of_dumps_is_explained_as_by_the_command(capsys):
    """A hang's dumps next to logs are also read."""
    folder = ROOT / "tests" / "hang" / "data" / "dies"
    (job,) = documents = explain(folder)
    assert json.loads(json.dumps(documents)) == by_command(capsys, folder)
    assert job["verdict"] != "go"


def test_a_path_a_text_bytes_and_lines_are_one_log():
    """Lines may have line ends, as from an open file, or not."""
    text, whole = LOG.read_text(), unnamed(explain(LOG))
    with LOG.open() as file, LOG.open("rb") as raw:
        for log in (text, text.encode(), text.splitlines(), file, iter(raw), gzip.compress(text.encode())):
            assert unnamed(explain(log)) == whole


def test_logs_of_one_call_are_read_together():
    """Two halves of a job, one of them as text, are one job; in separate calls they are not."""
    one, other = (RECORDED / f"torchrun-node{node}.log" for node in (0, 1))
    both = explain(one, other)
    mixed = explain(one, other.read_text())
    assert [job["ranks"] for job in both] == [job["ranks"] for job in mixed]
    assert [job["verdict"] for job in both] == [job["verdict"] for job in mixed]
    assert [job["files"] for job in mixed] != [job["files"] for job in explain(one)]


def test_a_hang_is_read_of_a_text_as_of_standard_input():
    """Reports of torch's watchdog count in any input."""
    path = next(log for log in LOGS if log.stem == "rank-hangs")
    (of_text,), (of_file,) = explain(path.read_text()), explain(path)
    assert (of_text["verdict"], of_text["faults"][0]["fault"]) == (of_file["verdict"], of_file["faults"][0]["fault"])


def test_hardware_that_is_named_is_what_numbers_are_compared_with(capsys):
    log = RECORDED / "mpirun-alltoall.log"
    known = said("8xH100", "8x400")
    assert json.loads(json.dumps(explain(log, known=known))) == by_command(
        capsys, log, "--gpu", "8xH100", "--nics", "8x400"
    )


def test_files_of_a_folder_that_are_not_read_withhold_a_go(tmp_path):
    """Near miss: the folder without unread files is go."""
    (tmp_path / "a.log").write_text(HEALTHY)
    assert explain(tmp_path)[0]["verdict"] == "go"
    (tmp_path / "b.log.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    (job,) = explain(tmp_path)
    assert job["verdict"] == "inconclusive" and "b.log.zst" in job["sentence"] + str(job["not_seen"])


@pytest.mark.parametrize(
    ("logs", "said"),
    [
        ((), "no log was given"),
        (("",), "the log is empty"),
        (([],), "the log is empty"),
        ((bytes(1000),), "binary data"),
        ((Path("/no/such.log"),), "No such file"),
        ((str(LOG),), "give pathlib.Path"),
    ],
    ids=["none", "empty", "no-lines", "binary", "missing", "name"],
)
def test_what_cannot_be_read_is_an_error(logs, said):
    """Unreadable input raises an error and never yields a document."""
    with pytest.raises(NcclLogError, match=re.compile(re.escape(said), re.IGNORECASE)):
        explain(*logs)


def test_a_text_of_which_nothing_is_nccls_is_inconclusive():
    """One line without a line end is a text, unless a file has that name; the line of a healthy job is go."""
    assert [job["verdict"] for log in ("hello", HEALTHY) for job in explain(log)] == ["inconclusive", "go"]
