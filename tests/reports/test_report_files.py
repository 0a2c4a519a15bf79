"""The files under --out: complete or absent, valid, escaped, and marked SIMULATED for a simulated cluster."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from reports import html
from reports.markdown import markdown
from reports.matrix import matrix
from reports.plain import sentence
from reports.record import CheckResult, Finding, Run, verdict_of
from reports.schema import Outcome, Verdict
from tests.program import run_pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
import checks.framework.session
checks.framework.session.Session.open = lambda self, cwd: None
pytest_plugins = ["checks.framework.fixtures", "checks.framework.plugin", "reports.plugin"]
"""
HOSTILE = '<script>alert(1)</script>&"\x1b[31m\x00'
CHECKS = f"""
import pytest
@pytest.mark.check("a.bad", "Bad <b>title</b>")
def test_bad(evidence):
    '''Doc <img src=x onerror=alert(1)>'''
    evidence.add({"node " + HOSTILE!r}, ok=False, observed={HOSTILE!r}, expected={HOSTILE!r}, fault="gpu.missing")
    evidence.note({HOSTILE!r})
    evidence.verdict()

@pytest.mark.check("b.blocked", "Blocked", requires=["a.bad"])
def test_blocked(evidence):
    evidence.add("x", ok=True, observed=1); evidence.verdict()

@pytest.mark.check("c.error", "Error")
def test_error(evidence):
    evidence.unknown({HOSTILE!r})

@pytest.mark.parametrize("x", ["<script>alert(2)</script>"])
def test_plain(x, request):
    import os
    if request.config.getoption("--out"):
        scratch = request.config.pluginmanager.get_plugin("seatrial-renderers")._scratch
        print("drafts at", scratch, "now:", scratch.exists())
    if "SPOIL" in os.environ:  # somebody puts a folder where the report belongs
        os.makedirs("out/report.json/x")
"""


@pytest.fixture
def reported(pytester, monkeypatch):
    """Run the checks above; return the folder of the reports."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_sample=CHECKS)

    def run(*arguments):
        result = run_pytest("-p", "no:cacheprovider", "--cluster", "sim:x", *arguments, cwd=pytester.path)
        return pytester.path, result

    return run


class Page(HTMLParser):
    """A browser's view of a page: its scripts, event handlers, addresses, and the scripts that its policy permits."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.handlers, self.asked, self.policy = [], [], [], ""
        self._tag = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._tag = tag
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.asked += [value for name, value in attrs if name in ("src", "href") and not value.startswith("#")]
        known = dict(attrs)
        if known.get("http-equiv") == "Content-Security-Policy":
            self.policy = known["content"]

    def handle_data(self, data):
        if self._tag == "script" and data.strip():
            self.scripts.append(data)

    def handle_endtag(self, _):
        self._tag = ""


def test_junit_is_valid_xml_and_says_verdict_and_simulated(reported):
    """CI systems show the suite's name and its properties; each outcome has JUnit's term."""
    path, _ = reported("--out", "out")
    root = ElementTree.parse(path / "out" / "junit.xml").getroot()
    suite = root.find("testsuite")
    facts = {p.get("name"): p.get("value") for p in suite.find("properties")}
    assert suite.get("name") == "seatrial (SIMULATED)"
    assert (facts["verdict"], facts["exit_code"], facts["simulated"]) == ("no-go", "1", "true")
    kinds = {
        case.get("name").partition("[")[0]: [child.tag for child in case if child.tag != "properties"]
        for case in suite.iter("testcase")
    }
    assert kinds == {"test_bad": ["failure"], "test_blocked": ["skipped"], "test_error": ["error"], "test_plain": []}


def test_a_junit_file_of_the_users_own_choice_is_stamped_too(reported):
    """`--junitxml` is pytest's option and works as pytest users expect."""
    path, _ = reported("--junitxml", "mine.xml")
    assert ElementTree.parse(path / "mine.xml").find("testsuite").get("name") == "seatrial (SIMULATED)"


def test_nothing_of_the_cluster_becomes_markup_in_the_html_report(reported):
    """Names and messages of a cluster are untrusted: all are escaped, and none adds a script or a handler."""
    path, _ = reported("--out", "out")
    text = (path / "out" / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    page = Page(text)
    assert (page.handlers, page.asked, len(page.scripts)) == ([], [], 1)
    digest = base64.b64encode(hashlib.sha256(page.scripts[0].encode()).digest()).decode()
    assert page.policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert "Doc &lt;img" in text and "test_plain[&lt;script&gt;" in text
    assert "SIMULATED" in text


def test_a_page_of_the_users_own_choice_is_the_same_page(reported):
    """`--html` is an option of pytest-html, whose own page has no verdict."""
    path, _ = reported("--html", "mine.html")
    text = (path / "mine.html").read_text(encoding="utf-8")
    assert "no-go (SIMULATED)" in text and "pytest-html" not in text and "took" not in text.partition("<main>")[0]


def test_the_json_record_is_plain_and_complete(reported):
    """The record has no NaN, no path of this machine, and the outcome of every check."""
    path, _ = reported("--out", "out")
    text = (path / "out" / "report.json").read_text(encoding="utf-8")
    record = json.loads(text, parse_constant=pytest.fail)
    assert {c["id"]: c["outcome"] for c in record["checks"]} == {
        "a.bad": "failed",
        "b.blocked": "blocked",
        "c.error": "error",
    }
    assert str(path) not in text


def test_no_draft_is_left_and_no_draft_is_named(reported):
    """JUnit and pytest-html write elsewhere until complete; the summary names the final place only."""
    path, result = reported("--out", "out")
    assert sorted(p.name for p in (path / "out").iterdir()) == [
        "junit.xml",
        "metrics.prom",
        "report.html",
        "report.json",
        "report.md",
    ]
    assert "seatrial-report-" not in result.stdout.str()
    assert f"Report: {path / 'out' / 'report.html'}" in result.stdout.str()


def test_a_run_that_is_killed_leaves_no_folder_of_drafts(reported):
    """No such folder exists while checks run or after the run."""
    _, result = reported("--out", "out", "-s")
    folder, there = re.search(r"drafts at (\S+) now: (\w+)", result.stdout.str()).groups()
    assert there == "False" and not Path(folder).exists()


def test_a_report_that_cannot_be_written_is_no_verdict(reported, monkeypatch):
    """A gate that reads the exit code must not accept a run without a report as go or no-go."""
    monkeypatch.setenv("SPOIL", "1")
    _, result = reported("--out", "out")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    assert "The report could not be written" in result.stdout.str()


@pytest.mark.parametrize("where", ["no-such-folder/summary.md", "out-of-the-way", "test_sample.py/summary.md"])
def test_a_step_summary_that_cannot_be_written_leaves_the_verdict(reported, pytester, monkeypatch, where):
    """For a missing folder, a folder, or a path below a file there is one line, and exit code and reports are
    unchanged."""
    pytester.mkdir("out-of-the-way")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / where))
    path, result = reported("--out", "out", "--github")
    assert result.ret == 1
    assert json.loads((path / "out" / "report.json").read_text())["verdict"] == "no-go"
    lines = result.stdout.lines
    assert len([line for line in lines if "The step summary could not be written: " in line]) == 1
    assert [line for line in lines if line.startswith("::error title=seatrial a.bad::")]


def test_a_step_summary_is_appended_to(reported, pytester, monkeypatch):
    """The output of earlier commands of the step is kept."""
    file = pytester.path / "summary.md"
    file.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    _, result = reported("--github")
    assert result.ret == 1
    assert file.read_text().startswith("before\n# seatrial: no-go")
    assert "could not be written" not in result.stdout.str()


@pytest.mark.parametrize("option", ["--junitxml", "--html"])
@pytest.mark.parametrize("where", ["test_sample.py/report", "."])
def test_a_report_of_the_users_own_choice_that_cannot_be_written_is_refused_at_once(reported, option, where):
    """The option is refused like --out; pytest itself would fail after the trial, with a traceback in place of the
    verdict."""
    path, result = reported(option, where)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "Traceback" not in result.stderr.str() + result.stdout.str()
    assert "test_sample.py" in [each.name for each in path.iterdir() if each.is_file()]


def a_run(**more):
    """Return a run with one required check that a tenant cannot see, and one that shows the same."""
    results = [
        CheckResult(id="gpu.allocatable", title="t", outcome=Outcome.SKIPPED, proven_by=("runtime.gpus",)),
        CheckResult(id="runtime.gpus", title="t", outcome=more.pop("shown", Outcome.PASSED)),
    ]
    return Run(run_id="r", required=("gpu.allocatable",), results=results, **more)


@pytest.mark.parametrize("code", [2, 3, 4, 5])
def test_a_run_that_pytest_did_not_end_well_is_never_go(code):
    """Every check passed, but pytest reports an incomplete run: its own exit code, and not go."""
    run = a_run(pytest_exit=code)
    assert (run.verdict, run.exit_code) == (Verdict.INCONCLUSIVE, code)
    assert verdict_of(run.to_dict()) is Verdict.INCONCLUSIVE
    assert a_run().verdict is Verdict.GO


def test_a_tenants_skip_counts_where_the_trial_showed_the_same():
    """A hidden fact was seen from inside the trial; if that check did not pass either, nothing is proven."""
    assert a_run(tenant=True).verdict is Verdict.GO
    assert a_run(shown=Outcome.SKIPPED).verdict is Verdict.INCONCLUSIVE
    assert a_run(shown=Outcome.FAILED).verdict is Verdict.NO_GO
    assert a_run().required_but_unseen == ()


def test_what_was_not_seen_and_what_is_installed_are_in_every_report(capsys):
    """Hidden and installed parts are escaped, in the page and in the record; the verdict says that a tenant ran it."""
    run = a_run(tenant=True, not_seen=["nodes <b>"], bom={"kubernetes": "v1.36.2", "nodes": {"kernel": {"<6.8>": 2}}})
    page = html.page(run)
    assert "<li>nodes &lt;b&gt;</li>" in page
    assert '<th scope="row">nodes kernel</th><td>&lt;6.8&gt; (2)</td>' in page
    assert run.to_dict()["bom"]["kubernetes"] == "v1.36.2"
    assert run.to_dict()["not_seen"] == ["nodes <b>"]


def test_the_picture_shows_the_floors_of_each_curve():
    """A mark shows the floor, above the curve that misses it; the table below has the same."""
    row = {"size_bytes": 2**30, "out_of_place": {"busbw_gbps": 100.0}, "in_place": None}
    small = {"size_bytes": 2**20, "out_of_place": {"busbw_gbps": 10.0}, "in_place": None}
    run = Run(
        collectives={"ring": {"tables": [{"rows": [small, row]}], "sentence": "2 ranks <b>"}, "default": None},
        floors={"ring": [{"size_bytes": 2**30, "busbw_gbps": 300.0, "source": "s"}]},
    )
    page = html.page(run)
    curve = re.search(r'polyline points="([^"]*)"', page)[1].split()[-1].split(",")
    mark = re.search(r'<path d="M([\d.]+) ([\d.]+)h', page)
    assert float(mark[1]) + 9 == pytest.approx(float(curve[0]), abs=0.2)
    assert float(mark[2]) < float(curve[1])  # downwards in SVG
    assert "floor 300 GB/s at 1G" in page
    assert '<th scope="row">1G</th><td>100.0 (floor 300)</td>' in page
    assert "2 ranks &lt;b&gt;" in page


def test_a_node_that_a_finding_only_mentions_is_not_at_fault():
    """A job over all nodes failed, and one node's message is quoted: no node is at fault."""
    end = Finding(subject="all_reduce of 2 nodes", ok=False, observed="failed (gpu-a: exit code 1)", fault="f")
    checks = [CheckResult(id="sweep.scale", title="t", outcome=Outcome.FAILED, findings=(end,))]
    assert states(Run(pool=("gpu-a", "gpu-b"), results=checks)) == {"gpu-a": "u", "gpu-b": "n"}


def states(run):
    """Return the state of each node in the first family, in row order."""
    return dict(re.findall(r'<tr id="node/([^"]*)"><td>.*?<td class="(\w)">', matrix(run)))


NAMES = ("gpu-a", "gpu-b", "gpu-c", "gpu-aa")


def test_a_node_of_the_matrix_has_its_worst_state():
    """A pair's finding is shown at both nodes, another node's at none; an unjudged node is a dot."""
    pair = Finding(subject="gpu-a -> gpu-b (ring)", ok=False, observed="sockets", fault="f")
    run = Run(
        pool=NAMES,
        results=[
            CheckResult(id="nccl.one", title="t", outcome=Outcome.FAILED, findings=(pair,)),
            CheckResult(
                id="nccl.two",
                title="t",
                outcome=Outcome.PASSED,
                findings=tuple(Finding(subject=n, ok=True, observed="x") for n in ("gpu-a", "gpu-c")),
            ),
        ],
    )
    assert states(run) == dict(zip(NAMES, "ffpn", strict=True))
    assert matrix(run).count("<template") == 2
    slow = Finding(subject="all_reduce 8G in place", ok=False, observed="126 GB/s", fault="f")
    run.trial = {"hosts": {"pod-0": "gpu-c", "pod-1": "gpu-b"}}
    run.results.append(CheckResult(id="nccl.three", title="t", outcome=Outcome.FAILED, findings=(slow,)))
    assert states(run) == dict(zip(NAMES, "ffun", strict=True))
    run.results.append(CheckResult(id="nccl.four", title="t", outcome=Outcome.BLOCKED))
    assert states(run) == dict(zip(NAMES, "ffuu", strict=True))  # blocked: no node was judged
    assert matrix(Run(results=run.results)) == ""


def test_the_page_has_every_check_without_its_script():
    """A check appears once with its observations; a failed one has a separate section, to which its id links."""
    made = [
        CheckResult(
            id="a.good", title="t", outcome=Outcome.PASSED, findings=(Finding(subject="n", ok=True, observed="8"),)
        ),
        CheckResult(
            id="a.bad", title="t", outcome=Outcome.FAILED, findings=(Finding(subject="m", ok=False, observed="7"),)
        ),
        CheckResult(id="b.skipped", title="t", outcome=Outcome.SKIPPED, reason="not asked for"),
    ]
    others = [html.UserTest("test_mine.py::test_<x>", "failed", "assert <1> == 2")]
    text = re.sub(r"<script>.*</script>", "", html.page(Run(results=made), others), flags=re.DOTALL)
    for check in made:
        assert text.count(f'id="{check.id}"') == 1
        assert f"{check.id}: t" in text
    assert '<section id="a.bad">' in text and '<details class="check" id="a.good">' in text
    assert "not asked for" in text and "test_mine.py::test_&lt;x&gt;" in text and "assert &lt;1&gt; == 2" in text


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59.6, "1 min 0 s"), (372, "6 min 12 s"), (3599.7, "1 h 0 min"), (7380, "2 h 3 min")],
)
def test_a_duration_is_said_in_two_units_at_most(seconds, said):
    assert html.duration(seconds) == said


def test_the_head_says_where_and_when():
    """The head has server, context, namespace, date with its zone, profile, nodes and duration; unknown values are
    omitted."""
    cluster = {"server": "https://a:6443", "namespace": "gpu", "context": "prod"}
    text = html.page(
        Run(cluster=cluster, started="2026-03-04T05:06:07+02:00", seconds=61, profile="h100-ib", pool=("a", "b"))
    )
    assert (
        "<p>https://a:6443 · context prod · namespace gpu · 4 Mar 2026, 05:06 UTC+02:00 · profile h100-ib · "
        "no pod was started · 1 min 1 s</p>" in text
    )
    title = re.search(r"<title>(.*)</title>", text)[1]
    assert title.startswith("inconclusive · no check could be judged · https://a:6443 · context prod")
    assert "some day" in html.page(Run(started="some day"))


def test_of_a_large_fleet_the_nodes_without_findings_share_rows():
    """Nodes with findings come first, the worst on top; findings of all nodes together are shown once."""
    nodes = tuple(f"n{number}" for number in range(40))
    bad = Finding(subject="n30", ok=False, observed="7", fault="f")
    unclear = Finding(subject="n5", ok=None, observed="?")
    of_all = Finding(subject="the fabric", ok=False, observed="slow", fault="f")
    fine = [Finding(subject=node, ok=True, observed="8") for node in nodes if node not in ("n5", "n30")]
    one = CheckResult(id="a.one", title="t", outcome=Outcome.FAILED, findings=(*fine, unclear, bad))
    two = CheckResult(id="b.two", title="t", outcome=Outcome.FAILED, findings=(of_all,))
    text = matrix(Run(pool=nodes, results=[one, two], trial={"hosts": dict(enumerate(nodes[:39]))}))
    assert list(states(Run(pool=nodes, results=[one], trial={}))) == ["n30", "n5"]
    assert re.findall(r"<summary>(\d+ more nodes?[^<]*)</summary>", text) == ["37 more nodes", "1 more node, not tried"]
    assert text.count("the fabric") == 1
    assert set(re.findall(r'id="node/(\w+)"', text)) == set(nodes)


@pytest.mark.parametrize(
    ("text", "begins"),
    [("the cable", "The"), ("kubectl get", "kubectl"), ("nvidia-smi", "nvidia"), ("MTU", "MTU"), ("", "")],
)
def test_a_sentence_begins_with_a_capital_and_a_command_does_not(text, begins):
    assert sentence(text).startswith(begins)
    assert sentence(text).lower() == text.lower()


def test_a_ticket_has_prose_as_prose_and_keeps_units():
    """A number's unit follows the observation and the expectation; no text becomes markup or ends its cell."""
    low = Finding(
        subject="n|1", ok=False, observed=r"24.6 a\|b `x` $y$", expected="at least 35", unit="GB/s", fault="f"
    )
    text = markdown(Run(results=[CheckResult(id="a.b", title="t", outcome=Outcome.FAILED, findings=(low,))]).to_dict())
    (row,) = (line for line in text.splitlines() if "24.6" in line and line.startswith("|"))
    assert row == r"| `n\|1` | 24.6 a\\\|b \`x\` \$y\$ GB/s | at least 35 GB/s | f |"
