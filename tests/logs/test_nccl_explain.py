"""The explanation shows the most important facts first, fits a terminal, and cannot act on its reader."""

from __future__ import annotations

import io
import json
import re

import pytest

from reports import explain_forms
from reports.explain_forms import RENDERERS, to_markdown
from reports.record import EXIT_CODES, worst
from seatrial.logs import conclude, read
from tests.logs.logmaker import Maker, sequential, table_of


def jobs_of(maker: Maker, extra: str = ""):
    log = sequential(maker.processes()) + "".join(line + "\n" for line in table_of(maker)).encode() + extra.encode()
    return conclude(read([("logs/job.log", io.BytesIO(log))]))


def test_the_verdict_and_one_sentence_come_first():
    """The first two lines contain the result."""
    lines = explain_forms.to_text(jobs_of(Maker())).splitlines()
    assert lines[0] == "GO  logs/job.log"
    assert lines[1].startswith("4 ranks on 2 hosts: data crosses hosts over InfiniBand with GPUDirect RDMA")


def test_a_fault_is_shown_with_evidence_cause_confirmation_and_remedy():
    """Every fault comes with instructions."""
    text = explain_forms.to_text(jobs_of(Maker(net="Socket")))
    assert re.search(r"DEGRADED  nccl\.socket-fallback  \(why: nccl\.ib-no-device\)", text)
    assert re.search(r"\| job\.log:\d+  gpu-node-0:1000:1000 \[0\] NCCL INFO NET/IB : No device found", text)
    assert re.search(r"(?m)^  cause    no ACTIVE verbs port", text)
    assert re.search(r"(?m)^  1 the pod requested no RDMA device", text)
    assert re.search(r"(?m)^    confirm  ls /dev/infiniband", text)
    assert re.search(r"(?m)^  remedy   request the RDMA resource", text)


def test_the_average_is_only_shown_with_its_sweep():
    """Verda's document calls the average the key metric, but it is meaningless without its message sizes."""
    text = " ".join(explain_forms.to_text(jobs_of(Maker())).split())
    assert (
        "Avg bus bandwidth 90.105 GB/s over 1 MiB to 1 GiB (2 rows): it depends on that sweep and is not judged."
        in text
    )


def test_the_pairs_of_hosts_are_shown_in_both_directions():
    """A pair shows its transport in both directions."""
    text = explain_forms.to_text(jobs_of(Maker(pxn=True)))
    assert "gpu-node-0 → gpu-node-1\n    ib x2  GPUDirect, PXN  mlx5_0:1 mlx5_1:1" in text
    assert "gpu-node-1 → gpu-node-0" in text


def test_the_pair_that_differs_comes_first_among_many():
    """The bad pair is not truncated among hundreds."""
    maker = Maker(
        hosts=tuple(f"node{index:02d}" for index in range(40)), gpus=1, channels=1, rails=1, socket_ranks=(37,)
    )
    text = explain_forms.to_text(jobs_of(maker))
    first = text.split("Between hosts (channels by transport)\n")[1].splitlines()[0]
    assert "node37" in first
    assert "more pairs" in text


@pytest.mark.parametrize(
    "maker",
    [
        Maker(),
        Maker(net="Socket", hosts=("a" * 60, "b" * 60)),
        Maker(hosts=tuple(f"n{index}" for index in range(30)), gpus=1, channels=1),
    ],
)
def test_every_line_fits_eighty_columns(maker):
    """Lines fit 80 columns with names of any length."""
    text = explain_forms.to_text(jobs_of(maker, "x" * 3000 + "\n"))
    assert max(len(line) for line in text.splitlines()) <= 80


def test_real_logs_fit_eighty_columns_in_text_and_are_valid_in_json(shared):
    """Every log of the corpus is explained in all three forms."""
    for path in sorted((shared / "nccl-corpus").glob("*.log")):
        with path.open("rb") as file:
            jobs = conclude(read([(str(path), file)]))
        assert max(len(line) for line in explain_forms.to_text(jobs).splitlines()) <= 80, path.name
        assert json.loads(explain_forms.to_json(jobs))["jobs"][0]["verdict"] in ("go", "no-go", "inconclusive")
        assert "**" in to_markdown(jobs)


def test_colour_is_only_used_when_asked_for():
    """A file or a pipe contains no escape sequences."""
    jobs = jobs_of(Maker())
    assert "\x1b" not in RENDERERS["text"](jobs)
    assert "\x1b[32mGO\x1b[0m" in RENDERERS["text"](jobs, color=True)
    assert "\x1b" not in RENDERERS["markdown"](jobs, color=True)


def test_nothing_of_a_log_is_markup_in_markdown():
    """Host names and lines of a log cannot open tables, links, HTML or code blocks."""
    log = (
        "ho|st`<img>:1:1 [0] x.cc:1 NCCL WARN Duplicate GPU detected ``` <script>alert(1)</script> [x](http://y) | a\n"
    )
    text = to_markdown(conclude(read([("x", io.BytesIO(log.encode()))])))
    assert "Duplicate GPU" in text
    outside = re.sub(r"(`+)(?:(?!\1).)*\1", "", text)
    assert "<script>" not in outside
    assert "<img>" not in outside


def test_the_json_form_is_one_document_with_a_schema():
    """{"schema": 1, "jobs": [...]}, and every label key is in each job."""
    document = json.loads(explain_forms.to_json(jobs_of(Maker())))
    assert document["schema"] == 1
    required = {
        "inter_node_transport",
        "gdr",
        "socket_fallback",
        "mixed",
        "ranks",
        "nodes",
        "nccl_version",
        "avg_busbw",
        "hang",
        "crash",
        "verdict",
        "diagnosis",
        "sentence",
        "faults",
        "tables",
        "pairs",
        "hosts",
        "rails",
        "intra_node",
        "sharp",
        "bootstrap",
        "init",
        "truncated",
        "evidence_shown",
        "advice",
        "env",
    }
    assert required <= set(document["jobs"][0])


def test_the_worst_job_decides_the_exit_code():
    """0 go, 1 no-go, 10 undetermined; a log without a job is not go."""
    good, bad = jobs_of(Maker()), jobs_of(Maker(net="Socket"))
    unknown = conclude(read([("x", io.BytesIO(b"nothing\n"))]))
    cases = (good, bad, unknown, good + unknown, good + bad + unknown, [])
    assert [EXIT_CODES[worst(job["verdict"] for job in jobs)] for jobs in cases] == [0, 1, 10, 10, 1, 10]


def test_a_log_without_evidence_says_what_to_set():
    """The text says that the log lacks evidence and gives the variables for the next run."""
    text = " ".join(explain_forms.to_text(conclude(read([("x", io.BytesIO(b"epoch 1 loss 0.3\n"))]))).split())
    assert text.startswith("INCONCLUSIVE")
    assert "NCCL_DEBUG=INFO" in text
