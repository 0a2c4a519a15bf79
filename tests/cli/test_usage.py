"""A user's mistake gets one clear line and exit code 4, without partial effects."""

import functools
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli import listing, start
from cli.__main__ import COMMANDS, HELP, _verbosity, main
from cli.usage import run_parser
from seatrial.faults.advice import FAULTS
from tests import program
from tests.waiting import HANG_S

ROOT = Path(__file__).resolve().parents[2]


def seatrial(*arguments, cwd=ROOT, stdin="", env=None):
    if not stdin and env is None:
        return program.seatrial(*map(str, arguments), cwd=cwd)
    command = [sys.executable, "-m", "checks", *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, input=stdin, timeout=HANG_S, check=False, env=env
    )


def said(done):
    """Return all output without empty lines."""
    return [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]


@pytest.fixture
def kubeconfig(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "prod",
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    return path


CASES = {
    "an unknown command": (["acept"], "did you mean accept"),
    "a sweep with a checkpoint": (
        ["sweep", "--cluster", "sim:healthy", "--checkpoint"],
        "an option of seatrial accept",
    ),
    "a sweep with a gang": (["sweep", "--cluster", "sim:healthy", "--gang"], "an option of seatrial accept"),
    **{
        f"preflight with {options[0]}": (
            ["preflight", "--cluster", "sim:healthy", "--training", *options],
            "starts no trial",
        )
        for options in (["--checkpoint"], ["--gang"], ["--soak", "20m"], ["--dcgm", "0"], ["--detach"])
    },
    "a model of no size": (["accept", "--cluster", "sim:healthy", "--checkpoint", "--model-size", ""], "such as 70B"),
    "a job by no name": (["job", "status", "../../x", "--kubeconfig", "no-such-file"], "is not the name of a job"),
    "an unknown check": (["preflight", "--check", "gpu.alocatable", "--cluster", "sim:healthy"], "gpu.allocatable"),
    "an unknown scenario": (["accept", "--cluster", "sim:helthy"], "healthy"),
    "an unknown profile": (["accept", "--cluster", "sim:healthy", "--profile", "h100-bi"], "h100-ib"),
    "an unknown kind of cluster": (["accept", "--cluster", "simm:healthy"], "sim"),
    "a missing kubeconfig": (["preflight", "--kubeconfig", "no-such-file"], "no-such-file"),
    "an unknown option": (["accept", "--clutser", "sim:healthy"], "did you mean --cluster?"),
    "a profile that is empty": (["accept", "--cluster", "sim:healthy", "--profile", "/dev/null"], "/dev/null"),
    "an option without its value": (["accept", "--cluster"], "--cluster"),
    "a kubeconfig for a simulated run": (["accept", "--cluster", "sim:healthy", "--kubeconfig", "x"], "contradicts"),
    "a context for a simulated run": (["accept", "--cluster", "sim:healthy", "--context", "x"], "contradicts"),
    "a broken selection": (["accept", "--cluster", "sim:healthy", "-k", "a and"], "a and"),
    "a file that is none of checks": (["accept", "--cluster", "sim:healthy", "extra-word"], "extra-word"),
    "a profile that is a folder": (["accept", "--cluster", "sim:healthy", "--profile", "./checks"], "checks"),
    "an image that is none": (["accept", "--cluster", "sim:healthy", "--image", "NOT AN IMAGE"], "NOT AN IMAGE"),
    "a namespace that is none": (["accept", "--cluster", "sim:healthy", "--namespace", "Bad_NS"], "Bad_NS"),
    "an HTML report on a folder": (["accept", "--cluster", "sim:healthy", "--html", "checks"], "--html"),
    "cleanup with a missing kubeconfig": (["cleanup", "--kubeconfig", "no-such-file"], "no-such-file"),
    "cleanup of too much": (["cleanup", "everything"], "everything"),
    "explain in an unknown format": (["explain", "--format", "jsn", "x.log"], "json"),
    "serving an unknown scenario": (["sim", "helthy", "--write-kubeconfig", "k"], "healthy"),
    "an unknown check to show": (["checks", "gpu.alocatable"], "did you mean gpu.allocatable"),
    "an unknown fault to show": (["faults", "gpu.mising"], "did you mean gpu.missing"),
    "a log that does not exist": (["explain", "no-such.log"], "no-such.log"),
    "explain without a log": (["explain"], "LOG"),
    "a node that does not exist": (
        ["accept", "--cluster", "sim:healthy", "--on", "gpu-node-0,gpu-node-9"],
        "--on gpu-node-9: no such node is in the cluster; did you mean gpu-node-",
    ),
    "a node alone that does not exist": (
        ["accept", "--cluster", "sim:healthy", "--on", "gpu-node-9"],
        "did you mean gpu-node-",
    ),
    "nodes of a preflight that do not exist": (
        ["preflight", "--cluster", "sim:healthy", "--on", "gpu-node-8,gpu-nod-9"],
        "--on gpu-node-8, gpu-nod-9: no such nodes are in the cluster; did you mean gpu-node-",
    ),
    "a node of a sweep that does not exist": (
        ["sweep", "--cluster", "sim:healthy", "--on", "gpu-node-0,gpu-node-1,gpu-node-2"],
        "--on gpu-node-2: no such node",
    ),
    "one node for a trial": (["accept", "--cluster", "sim:healthy", "--on", "gpu-node-0"], "1 node is named"),
    "a folder of a run that does not exist": (
        ["accept", "--cluster", "sim:healthy", "--on", "no/run"],
        "no such folder",
    ),
    "a folder that holds no run": (["accept", "--cluster", "sim:healthy", "--on", "checks"], "holds no report.json"),
    "a replay of nothing": (["accept", "--cluster", "sim:replay=no-such.log"], "no-such.log"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_one_clear_line_and_exit_code_4(name, tmp_path):
    """The line names the mistake and suggests the nearest name; no report is left."""
    arguments, expected = CASES[name]
    out = tmp_path / "out"
    extra = ["--out", out] if arguments[0] in ("accept", "preflight") else []
    done = seatrial(*arguments, *extra)
    assert done.returncode == 4, done.stdout + done.stderr
    assert expected in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert len(said(done)) == 1, said(done)
    assert done.stdout.strip() == ""
    assert not out.exists()


def test_a_profile_with_a_wrong_key_names_the_nearest(tmp_path):
    """An ignored threshold would be a check that passes without a comparison."""
    profile = tmp_path / "mine.yaml"
    profile.write_text("extends: h100-ib\nfabric: {rials: 8}\n")
    done = seatrial("accept", "--cluster", "sim:healthy", "--profile", profile)
    assert done.returncode == 4
    assert "rials" in done.stdout + done.stderr
    assert "rails" in done.stdout + done.stderr
    assert len(said(done)) == 1, said(done)


def test_broken_yaml_is_one_line(tmp_path):
    """The line has the file and the position."""
    profile = tmp_path / "broken.yaml"
    profile.write_text("gpu: {per_node: [\n")
    done = seatrial("accept", "--cluster", "sim:healthy", "--profile", profile)
    assert done.returncode == 4
    assert "broken.yaml" in done.stdout + done.stderr
    assert len(said(done)) == 1, said(done)


def test_an_unknown_context_names_the_nearest(kubeconfig):
    """The kubeconfig exists, the context does not."""
    done = seatrial("preflight", "--kubeconfig", kubeconfig, "--context", "prdo")
    assert done.returncode == 4
    assert "prod" in done.stdout + done.stderr
    assert len(said(done)) == 1, said(done)


def test_a_broken_kubeconfig_is_one_line(tmp_path):
    """The file is not YAML, or YAML that is not a kubeconfig."""
    path = tmp_path / "kubeconfig"
    path.write_text("{")
    done = seatrial("preflight", "--kubeconfig", path)
    assert done.returncode == 4
    assert len(said(done)) == 1, said(done)


@pytest.mark.parametrize("where", ["a-file", "a-file/below", "/proc/nowhere"])
def test_a_report_that_could_not_be_written_is_refused_before_the_trial(tmp_path, where):
    """An early error is better than minutes of trial without a report."""
    (tmp_path / "a-file").touch()
    done = seatrial("accept", "--cluster", "sim:healthy", "--out", tmp_path / where)
    assert done.returncode == 4
    assert len(said(done)) == 1, said(done)
    assert where in done.stderr


def test_an_empty_name_of_a_folder_is_no_folder():
    """`--out "$DIR"` with DIR unset must not run for minutes without a report."""
    done = seatrial("accept", "--cluster", "sim:healthy", "--out", "")
    assert (done.returncode, len(said(done))) == (4, 1), said(done)


def test_a_selection_that_selects_nothing_says_so(tmp_path):
    """pytest's own exit code is kept, with a message and without an empty report."""
    done = seatrial("accept", "--cluster", "sim:healthy", "-k", "no-such-check", "--out", tmp_path / "out")
    assert done.returncode == 5
    assert "nothing was selected" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_file_of_checks_that_cannot_be_read_says_why(tmp_path):
    """The error of the user's file is shown, and nothing is judged without it."""
    path = tmp_path / "test_broken_checks.py"
    path.write_text("import no_such_module_anywhere\n")
    done = seatrial("preflight", "--cluster", "sim:healthy", path)
    assert done.returncode == 2
    assert "No module named 'no_such_module_anywhere'" in done.stdout
    assert "test_broken_checks.py" in done.stdout


def test_a_pipe_that_closes_early_is_not_a_go(tmp_path):
    """`seatrial checks | head -1` ends like other programs; with pipefail a broken pipe is never exit code 0."""
    line = f"set -o pipefail; {shlex.quote(sys.executable)} -m checks faults nccl.{{hang,crash}} {'nccl.hang ' * 2000} | head -1; exit $?"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 141, done.stderr
    assert "Traceback" not in done.stderr


def test_the_printed_manifests_are_yaml_and_nothing_else():
    """The output can be piped into `kubectl create -f -`."""
    yaml = pytest.importorskip("yaml")
    done = seatrial("accept", "--cluster", "sim:healthy", "--print-manifests", "--with-files")
    assert done.returncode == 0, done.stderr
    shown = [d for d in yaml.safe_load_all(done.stdout) if d]
    assert [d["kind"] for d in shown] == ["Job", "ConfigMap", "Service"]
    assert "probe.pyz" in shown[1]["binaryData"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ((), ["seatrial accept --cluster sim:healthy --out report", "seatrial explain LOG", "seatrial help"]),
        (("kubeconfig",), ["seatrial preflight", "seatrial profile detect > my.yaml"]),
        (("kubeconfig", "report"), ["seatrial compare report new"]),
        (("kubeconfig", "demo"), ["seatrial preflight"]),
    ],
)
def test_without_a_command_it_says_what_comes_next(files, expected, tmp_path, monkeypatch, capsys):
    """Three commands that depend on what exists: a kubeconfig, a report, or neither."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    if "kubeconfig" in files:
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube" / "config").touch()
    if {"report", "demo"} & set(files):
        (tmp_path / "report").mkdir()
        (tmp_path / "report" / "report.json").write_text(json.dumps({"simulated": "demo" in files}))
    assert start.main() == 0
    said = capsys.readouterr().out
    assert len([line for line in said.splitlines() if line.startswith("  seatrial ")]) == 3
    assert not [line for line in expected if f"  {line}" not in said], said


@pytest.mark.parametrize(("kind", "word", "shown"), [("checks", "nccl", "nccl.gdr"), ("faults", "gdr", "nccl.gdr-off")])
def test_a_word_finds_what_is_about_it(kind, word, shown, capsys):
    """A search matches a family, or a word of id, title or text; without a match the nearest id is shown."""
    show = {"checks": listing.show_checks, "faults": listing.show_faults}[kind]
    assert show([word]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row for row in rows if row.startswith(shown + " ")]
    assert not [row for row in rows if row.startswith("storage.claims")]
    assert show(["no-such-word"]) == 4


def test_a_fault_in_full_has_the_causes_that_messages_tell(capsys):
    """Causes have their own confirm and remedy; placeholders replace the names of a message."""
    assert listing.show_faults(["container.config"]) == 0
    said = capsys.readouterr().out
    assert "- the Secret NAME that a container of the pod refers to" in said
    assert "confirm: kubectl -n NAMESPACE get secret NAME\n" in said
    assert "{" not in said.replace("{.spec", "")
    assert listing.show_faults(["nccl.launch-failed"]) == 0
    assert "image.pull, mpi.ssh-failed" in capsys.readouterr().out
    assert listing.show_faults(["gpu.ecc"]) == 0
    assert "with a separate message" not in capsys.readouterr().out


def faults_shown(capsys, *words):
    """Return the ids that seatrial faults lists, or its message if there are none."""
    code = listing.show_faults(list(words))
    out, err = capsys.readouterr()
    return [line.split()[0] for line in out.splitlines()[2:]] if code == 0 else err.strip()


@pytest.mark.parametrize(
    ("word", "found", "left"),
    [
        ("straggler", "training.slow-gpu", "storage.corrupt"),
        ("Stragglers", "sweep.node", "storage.corrupt"),
        ("stragg", "training.slow-node", "storage.corrupt"),
        ("GID", "nccl.gid-empty", "nccl.hang"),
        ("IPC_LOCK", "runtime.memlock", "nccl.hang"),
        ("ipc_lock", "pod-security.denied", "nccl.hang"),
        ("rubin", "nccl.mnnvl-failed", "gpu.ecc"),
        ("GB300", "nccl.imex-asleep", "gpu.ecc"),
        ("OOM", "container.oom", "quota.exceeded"),  # contains "room"
        ("rail", "sweep.rail", "training.slow-gpu"),  # contains "training"
        ("FORCE_NUM_RAILS", "nccl.nic-count", "sweep.rail"),
        ("OFI_NCCL_FORCE", "nccl.nic-count", "sweep.rail"),
        ("kubelet", "nodes.kubelet-skew", "sweep.rail"),
        ("mig.config.state", "stack.device-plugin-down", "gpu.ecc"),
        ("hugepages", "job.unschedulable", "gpu.ecc"),  # of a message only
    ],
)
def test_faults_are_found_by_the_beginnings_of_words_and_by_what_people_call_them(word, found, left, capsys):
    """Letters in the middle of a word do not match."""
    shown = faults_shown(capsys, word)
    assert found in shown
    assert left not in shown


def test_ids_that_hold_the_word_come_first(capsys):
    shown = faults_shown(capsys, "memlock")
    assert shown[:2] == ["runtime.memlock", "nccl.ib-memlock"]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("strangler", "none found: seatrial faults lists them all"),  # one letter different from straggler
        ("nccl.socket-falback", "did you mean nccl.socket-fallback"),  # an id with the correct family
        ("nccl.sockt", "did you mean nccl.socket-address or nccl.socket-fallback or nccl.local-socket?"),  # by a part
        ("nccl.adress-sockt", "did you mean nccl.socket-address?"),
        ("nccl.zzz", "none found"),
        ("nccl.sea-sockt", "none found"),  # one part of two
        ("ncl.socket-fallback", "none found"),
        ("stack", None),
        ("[", "none found"),
        ("nccl", None),
        ("no such thing", "none found"),
    ],
)
def test_what_nothing_is_about_is_never_answered_by_letters_alone(word, said, capsys):
    shown = faults_shown(capsys, word)
    if said is None:
        assert all(name.startswith(word + ".") for name in shown)
    else:
        assert said in shown


def test_each_synonym_represents_faults_that_do_not_hold_it_all_by_themselves():
    """A word contained in all of its entries needs no synonym, and a removed id must not be shown."""
    about = {name: f"{name} {f.title} {f.meaning} {f.confirm} {f.remedy}".casefold() for name, f in FAULTS.items()}
    for word, names in listing._synonyms().items():
        assert word == word.casefold()
        assert not set(names) - set(FAULTS), word
        assert not all(re.search(rf"(?<![a-z0-9]){word}", about[name]) for name in names), word


def test_an_empty_log_and_a_folder_without_logs_are_usage_errors(tmp_path):
    """An input without a log has no verdict."""
    empty = tmp_path / "empty.log"
    empty.touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (empty, folder):
        done = seatrial("explain", path)
        assert done.returncode == 4, path
        assert len(said(done)) == 1, said(done)
    assert seatrial("explain", "-").returncode == 4


def test_help_fits_80_columns_and_names_every_command():
    """A command that --help omits is unknown to its user."""
    assert max(map(len, HELP.splitlines())) <= 80
    assert not [name for name in COMMANDS if f"  seatrial {name}" not in HELP]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_of_each_command_is_one_screen_with_examples(command, monkeypatch, capsys):
    """A help text has at most 80 columns and 50 lines, and contains an example command line."""
    monkeypatch.setenv("COLUMNS", "200")
    assert main([command, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 50
    assert [line for line in lines if line.startswith((f"  seatrial {command}", '  eval "$(seatrial completion'))]


@pytest.mark.parametrize("command", ["accept", "preflight"])
def test_help_of_a_run_fits_a_terminal_and_help_all_shows_the_rest(command, monkeypatch, capsys):
    """The help has 24 lines of 80 columns, and --help-all shows every option."""
    monkeypatch.setenv("COLUMNS", "200")
    assert main([command, "--help"]) == 0
    short = capsys.readouterr().out
    assert len(short.splitlines()) <= 24
    assert main([command, "--help-all"]) == 0
    whole = capsys.readouterr().out
    hidden = ("--trial-on", "--attach", "--sweep", "--budget", "--no-scale", "--take-in", "--at-once", "--resume")
    for option in (text for each in run_parser(command).arguments() for text in each.option_strings):
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", whole) or option in hidden, option
    assert "--help-all" in short
    assert "--queue " in whole
    assert "  --queue" not in short


def _examples():
    """Return the words of each example in a help text, including its subcommands."""
    for command in COMMANDS:
        for action in ((), *((name,) for name in ACTIONS.get(command, ()))):
            done = program.seatrial(command, *action, "--help")
            for line in re.findall(r"^  (?:.*\| )?seatrial (.*)$", done.stdout, re.MULTILINE):
                yield shlex.split(re.split(r" [|>] ?", line)[0])


ACTIONS = {"job": ("status", "logs", "attach", "cancel"), "profile": ("detect", "capture")}
HELPED = {"preflight": "--help-all", "accept": "--help-all"}


def test_every_example_of_a_help_text_has_options_and_ids_that_exist():
    """An example with an error would be refused."""
    helps = functools.cache(lambda *words: program.seatrial(*words).stdout)
    ids = set(listing.all_checks())
    examples = [words for words in _examples() if words and words[0] in COMMANDS]
    assert len(examples) > 40
    assert {words[0] for words in examples} >= set(COMMANDS) - {"completion"}
    for command, *words in examples:
        action = [words[0]] if words and words[0] in ACTIONS.get(command, ()) else []
        known = helps(command, *action, HELPED.get(command, "--help"))
        if command == "sweep":
            known += helps("accept", "--help-all") + "--resume --take-in"
        for option in (
            (word for word in words[: words.index("--")] if word.startswith("-"))
            if "--" in words
            else (word for word in words if word.startswith("-") and word != "-")
        ):
            if command != "job" or action:
                assert re.search(rf"(?<![\w-]){option}(?![\w-])", known), (command, option)
        if "--check" in words:
            assert words[words.index("--check") + 1] in ids


def on_a_terminal(*arguments):
    """Run a command on its own terminal; return the whole output."""
    screen, terminal = pty.openpty()
    started = subprocess.Popen(
        [sys.executable, "-m", "checks", *arguments], cwd=ROOT, stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            read = os.read(screen, 65536)
        except OSError:  # Linux reports this if no process holds the terminal any more
            read = b""
        if not read:
            break
        shown += read
    os.close(screen)
    started.wait(HANG_S)
    return shown.decode()


def test_a_terminal_shows_at_once_what_begins():
    """The message comes before slow imports; later output replaces its line."""
    shown = on_a_terminal("accept", "--cluster", "sim:no-such-scenario")
    first, rest = shown.split("\r", 1)
    assert first == "  · starting the embedded cluster (no-such-scenario) ..."
    assert "unknown scenario 'no-such-scenario'" in rest
    assert rest.count("starting the embedded cluster") == rest.count("\r  · starting the embedded cluster")
    quiet = on_a_terminal("accept", "--cluster", "sim:no-such-scenario", "-q")
    assert "starting" not in quiet
    assert "starting" not in seatrial("accept", "--cluster", "sim:no-such-scenario").stdout


BASH = """
eval "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_shtab_seatrial
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("arguments", "completed"),
    [
        (["ex"], {"explain"}),
        (["accept", "--profile", "h200"], {"h200-ib", "h200-roce"}),
        (["sweep", "--at"], {"--at-once"}),
        (["faults", "nccl.socket-f"], {"nccl.socket-fallback"}),
        (["job", "st"], {"status"}),
    ],
)
def test_bash_completes_commands_options_and_values(arguments, completed):
    """A real bash runs the output of `seatrial completion bash`."""
    pytest.importorskip("shtab")
    script = _completion()
    done = subprocess.run(
        ["bash", "-c", BASH, "bash", script, "seatrial", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_S,
    )
    assert set(done.stdout.split()) == completed


@functools.cache
def _completion():
    done = seatrial("completion", "bash")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_and_the_catalogues_work_from_any_directory(tmp_path):
    """The working directory has no effect."""
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from checks.__main__ import main;"
        "raise SystemExit(main(sys.argv[1:]))",
    ]
    for arguments, expected in (
        (["--help"], "seatrial accept"),
        (["checks"], "gpu.allocatable"),
        (["faults"], "gpu.missing"),
    ):
        done = subprocess.run([*command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout


def test_an_unreachable_cluster_is_inconclusive_and_reported(kubeconfig, tmp_path):
    """If nothing listens, the exit code is 10, and the report states the reason without a traceback."""
    done = seatrial("preflight", "--kubeconfig", kubeconfig, "--out", tmp_path / "out")
    assert done.returncode == 10, done.stdout + done.stderr
    record = json.loads((tmp_path / "out" / "report.json").read_text())
    assert record["verdict"] == "inconclusive"
    assert record["checks"][0]["fault"] == "api.unreachable"
    assert "Traceback" not in done.stdout


def test_a_real_cluster_without_a_profile_is_not_judged_on_what_only_a_profile_knows(kubeconfig):
    """The header says so, and missing values are not assumed."""
    done = seatrial("preflight", "--kubeconfig", kubeconfig)
    assert "profile none" in done.stdout


def test_a_mistyped_option_leaves_no_older_report_for_a_gate_to_believe(tmp_path):
    """pytest refuses the option before any plugin runs: an old verdict must still be removed."""
    (tmp_path / "report.json").write_text('{"verdict": "go", "exit_code": 0}')
    done = seatrial("accept", "--cluster", "sim:healthy", "--profil", "h100-ib", "--out", tmp_path)
    assert done.returncode == 4
    assert not (tmp_path / "report.json").exists()


def test_the_value_of_an_option_is_not_what_is_collected():
    """`--deselect checks/x.py` once collected this repository's tests in place of the checks."""
    done = seatrial("accept", "--collect-only", "-q", "--deselect", "checks/test_nccl.py")
    collected = [line for line in done.stdout.splitlines() if line.startswith(("checks", "tests"))]
    assert collected
    assert all(line.startswith("checks/") for line in collected)


def test_an_error_of_the_program_is_not_the_clusters(tmp_path):
    """A missing package or a bug has exit code 3, since 1 would mean a cluster fault."""
    (tmp_path / "tabulate.py").write_text("raise RuntimeError('broken installation')")
    done = seatrial("accept", "--cluster", "sim:healthy", env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 3
    assert "broken installation" in done.stderr


def test_the_nodes_of_an_earlier_run_are_named_by_its_folder(tmp_path):
    """The second trial of a gate uses the nodes of the first; a run without tried nodes is a usage error."""
    from checks.framework.named_nodes import names_in, tried

    record = {"schema": 1, "run_id": "a", "verdict": "go", "scope": "full", "checks": [], "collectives": {}}
    for name, hosts in (
        ("before", {"p-1": "node-b", "p-0": "node-a"}),
        ("preflight", {}),
        ("repeats/one", {"p": "node-c"}),
    ):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "report.json").write_text(json.dumps({**record, "trial": {"hosts": hosts}}))
    assert tried("before", tmp_path) == ("node-a", "node-b")
    assert tried("before/report.json", tmp_path) == ("node-a", "node-b")
    assert tried("repeats", tmp_path) == ("node-c",)
    assert tried("node-x, node-y", tmp_path) == tried("", tmp_path) == names_in("") == ()
    assert names_in("node-x, node-y,node-x,") == ("node-x", "node-y")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "report.json").write_text("{")
    for name, said_of in (("preflight", "tried no nodes"), ("broken", "damaged")):
        with pytest.raises(pytest.UsageError, match=said_of):
            tried(name, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "rest", "verbosity"),
    [
        ([], [], -1),
        (["-v"], [], 0),
        (["-vv", "-q"], [], 0),
        (["--verbose", "--out", "x"], ["--out", "x"], 0),
        (["-q"], [], -2),
        (["--tenant", "-q"], ["--tenant"], -2),
        (["-k", "v"], ["-k", "v"], -1),
        (["-vs", "v"], ["-vs", "v"], -1),
    ],
)
def test_how_much_is_reported_is_taken_from_the_words(arguments, rest, verbosity):
    """An option's value does not count as -v or -q."""
    assert _verbosity(arguments) == (rest, verbosity)


def test_each_check_has_a_line_and_no_file():
    """-v lists each check with its skip reason, without file names, which only pytest itself prints."""
    done = seatrial("preflight", "--cluster", "sim:healthy", "--check", "api.version", "-v")
    assert done.returncode == 0
    assert [line.split()[:2] for line in done.stdout.splitlines() if line.startswith("PASSED")] == [
        ["PASSED", "api.reachable"],
        ["PASSED", "api.version"],
    ]
    assert "checks/" not in done.stdout
