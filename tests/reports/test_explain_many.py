"""`explain` of many logs, for a workflow step, and the remaining causes, in every form."""

import json

import pytest

from cli.explain import main
from reports.explain_forms import FEW, RENDERERS, summary, to_text
from seatrial.logs import conclude, read
from tests.logs.logmaker import Maker, sequential

HEALTHY = sequential(Maker().processes()).decode()
SOCKETS = sequential(Maker(net="Socket").processes()).decode()
ROCE = sequential(Maker(link="RoCE").processes()).decode()
A = "gpu-node-0:1000:1000 [0] "
RETRY = "NET/IB: Got completion from peer 10.0.0.2<4> with status=IBV_WC_RETRY_EXC_ERR(12) vendor err 129 (Recv)"
GIDS = " localGid ::ffff:10.1.1.1 remoteGids::ffff:10.1.1.2 hca mlx5_1"


def jobs_of(*texts):
    return [job for text in texts for job in conclude(read([("log", [text.encode()])]))]


def failing(text, start=HEALTHY):
    return f"{start}\n{A}misc/x.cc:10 NCCL WARN {text}\n{A}NCCL INFO init.cc:903 -> 6\n"


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json"])
def test_the_causes_that_remain_are_ranked_in_every_form(form):
    """Each has the command that distinguishes it from the next; the first is the likeliest."""
    (job,) = jobs_of(failing(RETRY))
    assert len(job["causes"]) > 2
    assert len({cause["confirm"] for cause in job["causes"]}) == len(job["causes"])
    text = " ".join(RENDERERS[form]([job]).replace("\\", "").split())
    places = [text.find(cause["confirm"].split(" ")[0]) for cause in job["causes"]]
    assert min(places) >= 0
    assert "Likely causes, most likely first" in text or form == "json"


def test_what_the_log_rules_out_is_no_cause_and_what_it_answers_for_comes_first():
    """InfiniBand has no GID index; in a job that had worked before, a lost link or peer comes first."""
    ib = [cause["cause"] for cause in jobs_of(failing(RETRY))[0]["causes"]]
    roce = [cause["cause"] for cause in jobs_of(failing(RETRY + GIDS, ROCE))[0]["causes"]]
    assert any("GID" in text for text in roce)
    assert not any("GID" in text for text in ib)
    assert "link" in ib[0]


def test_a_healthy_job_has_no_causes_and_a_certain_one_is_not_numbered():
    assert jobs_of(HEALTHY)[0]["causes"] == []
    (job,) = jobs_of(f"{A}NCCL INFO NCCL_IB_DISABLE set by environment to 1.\n" + SOCKETS)
    assert [cause["fault"] for cause in job["causes"]][:1] == ["nccl.ib-disabled"]


@pytest.mark.parametrize("number", [FEW + 1, 200])
def test_many_logs_take_a_screen(tmp_path, capsys, number):
    """A folder of 200 logs: each no-go log with its reason, at 80 columns; each in full on demand."""
    for index in range(number):
        text = (HEALTHY, SOCKETS, failing(RETRY))[index % 3].replace("0xfc119181e70bb2ba", f"0x{index + 1:016x}")
        (tmp_path / f"job-{index:03d}.log").write_text(text.replace(":10", f":{index + 10}"))
    assert main([str(tmp_path)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert len(out) <= 24
    assert max(map(len, out)) <= 80
    assert out[0].startswith(f"{number} jobs: ")
    assert any(line.startswith("NO-GO") and "crash" in line for line in out)
    main([str(tmp_path), "--full"])
    assert len(capsys.readouterr().out.splitlines()) > 24


def test_a_summary_is_bounded_whatever_the_names_are():
    jobs = []
    for index in range(60):
        (job,) = jobs_of(HEALTHY)
        jobs.append({**job, "diagnosis": f"kind-{index}-" + "x" * 90, "files": ["y" * 300]})
    lines = summary(jobs).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_a_workflow_gets_annotations_and_a_step_summary(tmp_path, capsys, monkeypatch):
    """A job has one annotation command, and no text of a log can form another."""
    log, step = tmp_path / "a.log", tmp_path / "summary.md"
    log.write_text(failing("Duplicate GPU detected ::error::forged\r::warning::too"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    assert main([str(log), "--github"]) == 1
    out = capsys.readouterr().out
    commands = [line for line in out.splitlines() if line.startswith("::")]
    assert len(commands) == 1
    assert commands[0].startswith("::error title=seatrial ")
    assert "::" not in commands[0].partition("::")[2].partition("::")[2]
    assert step.read_text().startswith("**NO-GO**")


@pytest.mark.parametrize("where", ["no-such-folder/summary.md", "a.log/summary.md", "."])
@pytest.mark.parametrize(("text", "code"), [(failing(RETRY), 1), (HEALTHY, 0), ("epoch 1\n", 10)])
def test_a_step_summary_that_cannot_be_written_leaves_the_verdict(tmp_path, capsys, monkeypatch, where, text, code):
    """Standard error has one line; annotations and exit code are those of the logs."""
    log = tmp_path / "a.log"
    log.write_text(text)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / where))
    assert main([str(log), "--github"]) == code
    out, err = capsys.readouterr()
    assert err.startswith("seatrial explain: the step summary could not be written: ")
    assert len(err.splitlines()) == 1
    assert [line for line in out.splitlines() if line.startswith("::")]


def test_causes_are_in_the_document_of_every_verdict_but_go():
    """Every cause in the text is also in the document."""
    for text in (HEALTHY, SOCKETS, failing(RETRY), "epoch 1\n"):
        (job,) = jobs_of(text)
        json.dumps(job["causes"])
        assert bool(job["causes"]) == (job["verdict"] == "no-go")
        assert max(len(line) for line in to_text([job]).splitlines()) <= 80
