"""The rules of a run: outcomes, order, blocking, verdict, exit code. Each test runs a separate session."""

import json

import pytest

from seatrial.faults.advice import FAULTS
from tests.program import run_pytest

pytest_plugins = ["pytester"]

CONFTEST = """
import checks.framework.session
checks.framework.session.Session.open = lambda self, cwd: None
pytest_plugins = ["checks.framework.fixtures", "checks.framework.plugin", "reports.plugin"]
"""
HEAD = "import pytest\ncheck = pytest.mark.check\n"


@pytest.fixture
def trial(pytester, monkeypatch, root):
    """Run checks given as source; return (record, result)."""
    monkeypatch.setenv("PYTHONPATH", str(root))
    pytester.makeconftest(CONFTEST)

    def run(source, *arguments):
        pytester.makepyfile(test_sample=HEAD + source)
        result = run_pytest("--out", "out", "-p", "no:cacheprovider", *arguments, cwd=pytester.path)
        path = pytester.path / "out" / "report.json"
        return (json.loads(path.read_text()) if path.exists() else None), result

    return run


def outcomes(record):
    return {c["id"]: c["outcome"] for c in record["checks"]}


GOOD = """
@check("a.good", "Good")
def test_good(evidence):
    evidence.compare("node-a", observed=8, expected=8, fault="gpu.missing")
    evidence.verdict()
"""


def test_a_run_in_which_every_check_saw_and_held_is_go(trial):
    """go and exit code 0 need at least one pass and no other outcome."""
    record, result = trial(GOOD)
    assert (record["verdict"], record["exit_code"], result.ret) == ("go", 0, 0)
    assert record["checks"][0]["findings"] == [
        {"subject": "node-a", "ok": True, "observed": "8", "expected": "8", "unit": "", "fault": "", "action": ""}
    ]
    assert record["actions"] == {}


def test_a_bad_finding_is_no_go_and_names_the_fault_on_its_subject(trial):
    """A failed check makes the run no-go, whatever else passed."""
    record, result = trial(
        GOOD
        + """
@check("a.bad", "Bad")
def test_bad(evidence):
    evidence.compare("node-a", observed=8, expected=8, fault="gpu.missing")
    evidence.compare("node-b", observed=7, expected=8, fault="gpu.missing")
    evidence.verdict()
"""
    )
    assert (record["verdict"], result.ret) == ("no-go", 1)
    bad = [f for c in record["checks"] for f in c["findings"] if f["ok"] is False]
    assert [(f["subject"], f["fault"]) for f in bad] == [("node-b", "gpu.missing")]
    assert "gpu.missing" in record["faults"]
    assert "\n  node-b\n  7\n  expected 8\n" in result.stdout.str()


def test_advice_that_fits_what_was_said_comes_before_the_faults_own(trial):
    """Advice for a text in the message is shown; otherwise the entry's advice is."""
    body = """
@check("a.bad", "Bad")
def test_bad(evidence):
    evidence.advise("image.pull", confirm="kubectl -n {namespace} get secret 'a; b{subject}'", remedy="create that secret")
    evidence.advise("gpu.missing", confirm="", remedy="")
    evidence.compare("node-a", observed=1, expected=2, fault="image.pull")
    evidence.compare("node-b", observed=7, expected=8, fault="gpu.missing")
    evidence.verdict()
"""
    record, result = trial(body)
    assert record["faults"]["image.pull"]["remedy"] == "create that secret"
    assert record["faults"]["image.pull"]["confirm"].endswith(" get secret 'a; bNAME'")
    assert record["faults"]["image.pull"]["title"] == FAULTS["image.pull"].title
    assert record["faults"]["gpu.missing"]["remedy"] == FAULTS["gpu.missing"].remedy
    assert "remedy  create that secret" in result.stdout.str()


@pytest.mark.parametrize(
    "body",
    [
        "pass",
        "evidence.verdict()",
        "evidence.expect(['node-a', 'node-b']); evidence.add('node-a', ok=True, observed=1); evidence.verdict()",
        "evidence.add('node-a', ok=None, observed='not seen'); evidence.verdict()",
        "evidence.add('node-a', ok=True, observed=1)",
        "raise ConnectionError('the API went away')",
        "evidence.unknown('not seen')",
    ],
    ids=["does nothing", "no findings", "a subject unseen", "could not tell", "no verdict", "crashes", "unknown"],
)
def test_a_check_that_did_not_see_is_an_error_and_never_a_pass(trial, body):
    """An empty observation makes the run inconclusive (10)."""
    record, result = trial(f"""
@check("a.blind", "Blind")
def test_blind(evidence):
    {body}
""")
    assert outcomes(record) == {"a.blind": "error"}
    assert (record["verdict"], result.ret) == ("inconclusive", 10)


def test_a_run_of_skipped_checks_is_inconclusive(trial):
    """pytest exits 0 when everything is skipped; seatrial does not."""
    record, result = trial("""
@check("a.skipped", "Skipped")
def test_skipped(evidence):
    evidence.skip("does not apply here")
""")
    assert outcomes(record) == {"a.skipped": "skipped"}
    assert record["checks"][0]["reason"] == "does not apply here"
    assert result.ret == 10


CHAIN = """
@check("c.third", "Third", requires=["b.second"])
def test_third(evidence):
    evidence.add("x", ok=True, observed=1); evidence.verdict()

@check("b.second", "Second", requires=["a.first"])
def test_second(evidence):
    evidence.add("x", ok=True, observed=1); evidence.verdict()

@check("a.first", "First")
def test_first(evidence):
    evidence.add("x", ok=%s, observed=1); evidence.verdict()
"""


def test_checks_run_after_what_they_require(trial):
    """The order follows `requires`, not the file."""
    record, _ = trial(CHAIN % "True")
    assert list(outcomes(record)) == ["a.first", "b.second", "c.third"]


def test_what_requires_a_failed_check_is_blocked_all_the_way_down(trial):
    """One fault is one failure; dependent checks are blocked and name their blocker."""
    record, result = trial(CHAIN % "False")
    assert outcomes(record) == {"a.first": "failed", "b.second": "blocked", "c.third": "blocked"}
    assert record["checks"][2]["blocked_by"] == ["b.second"]
    assert result.ret == 1


def test_a_deselected_prerequisite_comes_back(trial):
    """-k selects a check; its prerequisites also run, and the run is marked partial."""
    record, _ = trial(CHAIN % "False", "-k", "third")
    assert outcomes(record) == {"a.first": "failed", "b.second": "blocked", "c.third": "blocked"}
    assert record["scope"] == "partial"


def test_a_check_can_be_selected_by_id(trial):
    """--check takes the stable id."""
    record, _ = trial(CHAIN % "True" + GOOD, "--check", "b.second")
    assert outcomes(record) == {"a.first": "passed", "b.second": "passed"}


def test_an_unknown_check_id_is_a_usage_error_with_the_nearest_word(trial):
    """The refusal is one clear line with exit code 4 and without a report."""
    record, result = trial(CHAIN % "True", "--check", "b.secnd")
    assert (record, result.ret) == (None, 4)
    assert "did you mean b.second" in result.stderr.str()


def test_checks_that_require_each_other_are_a_usage_error(trial):
    """The cycle is named, and no check runs."""
    record, result = trial("""
@check("a.one", "One", requires=["a.two"])
def test_one(evidence): evidence.verdict()
@check("a.two", "Two", requires=["a.one"])
def test_two(evidence): evidence.verdict()
""")
    assert (record, result.ret) == (None, 4)
    assert "a.one -> a.two -> a.one" in result.stderr.str()


def test_unless_failed_lets_an_unknown_pass_and_stops_at_a_failure(trial):
    """A tenant without visible nodes may run the trial; a cluster that lacks GPUs may not."""
    source = """
@check("a.base", "Base")
def test_base(evidence):
    evidence.add("x", ok=%s, observed=1); evidence.verdict()
@check("b.next", "Next", requires=["a.base"])
def test_next(evidence):
    evidence.add("x", ok=True, observed=1); evidence.verdict()
@check("c.trial", "Trial", unless_failed=["b.next"])
def test_trial(evidence):
    evidence.add("x", ok=True, observed=1); evidence.verdict()
"""
    record, _ = trial(source % "None")
    assert outcomes(record) == {"a.base": "error", "b.next": "blocked", "c.trial": "passed"}
    record, _ = trial(source % "False")
    assert outcomes(record) == {"a.base": "failed", "b.next": "blocked", "c.trial": "blocked"}


def test_an_error_in_teardown_amends_a_pass(trial):
    """A check whose clean-up failed did not pass."""
    record, result = trial("""
@pytest.fixture
def leaky():
    yield
    raise RuntimeError("could not clean up")

@check("a.leaky", "Leaky")
def test_leaky(leaky, evidence):
    evidence.add("x", ok=True, observed=1); evidence.verdict()
""")
    assert outcomes(record) == {"a.leaky": "error"}
    assert result.ret == 10


def test_stopping_at_the_first_failure_keeps_the_verdict(trial):
    """-x ends the run early; the failure still decides."""
    record, result = trial(CHAIN % "False" + GOOD, "-x")
    assert (record["verdict"], result.ret) == ("no-go", 1)


def test_an_interrupted_run_is_reported_and_exits_2(trial):
    """After KeyboardInterrupt (SIGINT, SIGTERM) the record exists, says so, and is inconclusive."""
    record, result = trial(
        GOOD
        + """
@check("z.slow", "Slow")
def test_slow(evidence):
    import os, signal
    os.kill(os.getpid(), signal.SIGTERM)
    import time; time.sleep(5)
"""
    )
    assert (record["verdict"], record["exit_code"], result.ret) == ("inconclusive", 2, 2)
    assert record["interrupted"] == "received SIGTERM"


def test_junit_and_html_are_written_whole_with_hostile_text_escaped(trial, pytester):
    """API responses are untrusted: they must neither run in the reader's browser nor break the XML."""
    hostile = "<img src=x onerror=alert(1)> ]]> \\x1b[31m"
    record, _ = trial(f"""
@check("a.hostile", "Hostile")
def test_hostile(evidence):
    evidence.note("{hostile}")
    evidence.add("{hostile}", ok=False, observed="{hostile}", fault="gpu.missing")
    evidence.verdict()
""")
    assert "\x1b" not in json.dumps(record, ensure_ascii=False)
    page = (pytester.path / "out" / "report.html").read_text()
    assert "<img src=x" not in page
    junit = (pytester.path / "out" / "junit.xml").read_text()
    assert 'name="outcome" value="failed"' in junit
    assert not list((pytester.path / "out").glob(".*"))


def test_an_error_is_an_error_in_junit_and_not_a_failure(trial, pytester):
    """Dashboards distinguish undetermined results from cluster faults."""
    trial("""
@check("a.blind", "Blind")
def test_blind(evidence):
    evidence.unknown("not seen")
""")
    junit = (pytester.path / "out" / "junit.xml").read_text()
    assert 'errors="1"' in junit
    assert 'failures="0"' in junit


PLAIN_BAD = (
    GOOD
    + """
def test_plain():
    assert 1 == 2
"""
)


def test_a_plain_test_that_fails_with_the_checks_is_never_go(trial):
    """A user's test without a marker fails: the record explains why the run is not go."""
    record, result = trial(PLAIN_BAD)
    assert (record["verdict"], record["interrupted"], result.ret) == (
        "inconclusive",
        "a test that is not a check failed",
        10,
    )


def test_a_session_without_a_check_is_no_success_where_a_trial_was_asked_for(trial):
    """Passed tests of other programs show nothing about a cluster."""
    record, result = trial("def test_plain(): pass")
    assert (record, result.ret) == (None, 4)
    result.stderr.fnmatch_lines(["*no check is among the 1 tests*"])


TWO = (
    GOOD
    + """
@check("a.other", "Other")
def test_other(evidence):
    evidence.add("node-a", ok=True, observed=1); evidence.verdict()
"""
)


@pytest.mark.parametrize(
    "narrowing",
    [
        ("--deselect=test_sample.py::test_other",),
        ("-o", "python_functions=test_good"),
        ("--ignore-glob=*nothing*",),
        ("-p", "dropper"),
    ],
    ids=["deselect", "override", "ignore", "plugin"],
)
def test_whatever_narrows_the_run_makes_it_partial(trial, pytester, narrowing):
    """A gate refuses a partial run, whatever excluded its checks, including a plugin that shards or deselects."""
    pytester.makepyfile(
        dropper="""
def pytest_collection_modifyitems(items):
    items[:] = [i for i in items if "other" not in i.name]
"""
    )
    pytester.syspathinsert()
    record, result = trial(TWO, *narrowing)
    assert (record["scope"], record["verdict"], result.ret) == ("partial", "go", 0)
    assert record["selection"]


@pytest.mark.parametrize("mistake", [("--check", "nope"), ("-k", "(")], ids=["check", "expression"])
def test_a_run_that_does_not_begin_leaves_no_older_report_behind(trial, pytester, mistake):
    """A gate that reads report.json must not find an old verdict."""
    trial(GOOD)
    assert (pytester.path / "out" / "report.json").exists()
    record, result = trial(GOOD, *mistake)
    assert (record, result.ret) == (None, 4)
    assert not list((pytester.path / "out").glob("report.*"))


@pytest.mark.parametrize("place", ["taken", "taken/below"])
def test_a_folder_that_cannot_hold_the_report_is_refused_at_once(trial, pytester, place):
    """The refusal is one line with exit code 4 before the trial, instead of a traceback after it."""
    (pytester.path / "taken").write_text("a file")
    _, result = trial(GOOD, "--out", place)
    assert result.ret == 4
    assert "a folder is needed" in result.stderr.str()
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_a_report_that_finds_no_place_is_no_success_in_any_word(trial, pytester):
    """The disk is full at the end of the run: the terminal must neither print go nor name a missing report."""
    record, result = trial(
        GOOD
        + """
@check("a.last", "Fills the disk")
def test_last(evidence, request):
    import shutil
    shutil.rmtree("out"); open("out", "w").close()
    evidence.add("node-a", ok=True, observed=1); evidence.verdict()
"""
    )
    assert (record, result.ret) == (None, 3)
    text = result.stdout.str()
    assert "VERDICT: inconclusive" in text
    assert "could not be written" in text
    assert "report.html" not in text


OWN = """
@check("ours.kernel", "One kernel", faults=["ours.kernel-differs"])
def test_kernel(evidence):
    evidence.compare("node-a", observed="6.8", expected="6.11", fault="ours.kernel-differs")
    evidence.verdict()
"""
ENTRY = """
layer: 4 Nodes
faults:
  ours.kernel-differs:
    title: A node runs another kernel
    meaning: It missed an upgrade.
    confirm: kubectl describe node {node}
    remedy: Reboot it.
    source: our runbook
"""


def test_a_check_of_ones_own_brings_the_words_of_its_fault(trial, pytester):
    """The YAML file next to the check is read like the catalogue, and its command is filled in for the subject."""
    pytester.path.joinpath("test_sample.faults.yaml").write_text(ENTRY)
    record, result = trial(OWN)
    assert record["exit_code"] == 1
    entry = record["faults"]["ours.kernel-differs"]
    assert (entry["title"], entry["remedy"]) == ("A node runs another kernel", "Reboot it.")
    assert entry["confirm"] == "kubectl describe node node-a"
    assert "It missed an upgrade." in result.stdout.str()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("faults: [", "ParserError"),
        (ENTRY.replace("remedy", "remdy"), "remdy"),
        ("layer: 4 Nodes", "KeyError"),
        (ENTRY.replace("ours.kernel-differs", "gpu.missing"), "gpu.missing is in the catalogue already"),
    ],
)
def test_a_file_of_faults_that_is_none_is_a_usage_error(trial, pytester, text, said):
    pytester.path.joinpath("test_sample.faults.yaml").write_text(text)
    record, result = trial(OWN)
    assert record is None
    assert result.ret == 4
    assert said in result.stderr.str()


def test_a_check_that_was_named_and_skipped_is_no_go_of_others(trial):
    """A passed prerequisite does not answer for the named check."""
    record, result = trial(
        GOOD
        + """
@check("a.off", "Off", requires=["a.good"])
def test_off(evidence):
    evidence.skip("off by default: enable it with --checkpoint")
""",
        "--check",
        "a.off",
    )
    assert outcomes(record)["a.off"] == "skipped"
    assert "passed" in outcomes(record).values()
    assert (record["verdict"], result.ret) == ("inconclusive", 10)
    assert result.stdout.str().count("equired but not judged: a.off") == 1


def test_a_check_of_another_command_is_named_with_it(trial):
    """The message gives the option that runs the named check."""
    body = CHAIN % "True" + '\n\n@pytest.mark.training\n@check("t.rate", "Rate")\ndef test_rate(evidence): pass\n'
    record, result = trial(body, "--check", "t.rate")
    assert (record, result.ret) == (None, 4)
    assert "check 't.rate' is one of seatrial accept --training" in result.stderr.str()


def test_a_log_says_which_check_is_judged(trial):
    """The name is read during the check, so a slow check is not mistaken for a slow API server."""
    record, _ = trial(
        """
@check("a.slow", "Slow")
def test_slow(evidence, seatrial):
    evidence.add("progress", ok=True, observed=seatrial.progress._last)
    evidence.verdict()
"""
    )
    assert record["checks"][0]["findings"][0]["observed"] == "judging a.slow"


ACTED = """
@check("a.gpus", "GPUs", faults=["gpu.ecc", "gpu.remap-failed", "ours.board"])
def test_gpus(evidence):
    evidence.add("node-a GPU 1", ok=False, observed="2 errors; the driver recommends: Reboot", fault="gpu.ecc")
    evidence.add("node-a GPU 2", ok=False, observed="1 error", fault="gpu.ecc")
    evidence.add("node-a GPU 3", ok=False, observed="none left", fault="gpu.remap-failed", action="RESET_GPU")
    evidence.add("node-b", ok=False, observed="cold", fault="ours.board")
    evidence.add("node-c GPU 0", ok=None, observed="not told", fault="gpu.ecc")
    evidence.add("node-d", ok=True, observed="fine", action="RESET_GPU")
    evidence.add("node-e", ok=False, observed="64 KiB", fault="runtime.memlock")
    evidence.verdict()
"""
BOARD = """
layer: 6 Node
faults:
  ours.board: {title: A board is cold, meaning: It is cold., confirm: date, remedy: Warm it., source: us, action: %s}
"""


def test_a_failed_finding_has_the_heavier_of_its_faults_action_and_its_own(trial, pytester):
    """The action comes from the fault's entry, also a user's; undetermined findings and settings require none."""
    (pytester.path / "test_sample.faults.yaml").write_text(BOARD % "CONTACT_SUPPORT")
    record, _ = trial(ACTED)
    actions = {f["subject"]: f["action"] for f in record["checks"][0]["findings"]}
    assert actions == {
        "node-a GPU 1": "REBOOT_NODE",
        "node-a GPU 2": "RESET_GPU",
        "node-a GPU 3": "CONTACT_SUPPORT",
        "node-b": "CONTACT_SUPPORT",
        "node-c GPU 0": "",
        "node-d": "",
        "node-e": "",
    }
    assert record["actions"] == {}  # without a run or a pool, the subjects may not be nodes


def test_an_action_that_there_is_not_is_refused(trial, pytester):
    (pytester.path / "test_sample.faults.yaml").write_text(BOARD % "EXPLODE")
    record, result = trial(ACTED)
    assert (record, result.ret) == (None, pytest.ExitCode.USAGE_ERROR)
    (pytester.path / "test_sample.faults.yaml").write_text(BOARD % "NONE")
    record, _ = trial(ACTED.replace('action="RESET_GPU"', 'action="EXPLODE"'))
    assert outcomes(record) == {"a.gpus": "error"}
    assert "action is 'EXPLODE', not one of NONE" in record["checks"][0]["reason"]
