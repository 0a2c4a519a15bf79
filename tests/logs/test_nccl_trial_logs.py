"""explain reads the logs of a trial's pods and compares their numbers with a profile."""

from __future__ import annotations

import io
import json

import pytest

from cli import explain
from jobs.cluster.client.errors import NotFound, Unreachable
from seatrial.logs import conclude, merge, read
from seatrial.logs.job_document import Expected
from tests.logs.logmaker import Maker, interleaved, sequential, table_of, with_busbw

MAKER = Maker(gpus=8, rails=8, channels=16)
TABLE = with_busbw(table_of(MAKER), 380.0, factor=1.875)


def evidence(
    maker: Maker, rank: int, *, run: str = "7f3a", skipped: str = "", attempt: int = 0, stopped: str = ""
) -> str:
    """Return the output of one node's probe: progress, evidence lines, and the analysis split into parts."""
    own = {key: lines for key, lines in maker.processes().items() if key[0] == maker.hosts[rank]}
    log = sequential(own) + ("".join(line + "\n" for line in TABLE).encode() if rank == 0 else b"")
    data = {"name": "ring", "nccl": read([("ring.log", io.BytesIO(log))]).to_dict()}
    text = json.dumps({"skipped": skipped} if skipped else data, separators=(",", ":"))
    chunks = [text[at : at + 5000] for at in range(0, len(text), 5000)]
    env = {"MASTER_ADDR": f"seatrial-{run}-{attempt}-0.seatrial-{run}-{attempt}"} if attempt else {}
    lines = [{"stage": "start", "seconds": 0.1, "data": {"python": "3.11", "time": 1e9 + attempt, "env": env}}]
    lines += [
        {"stage": "collective.ring", "seconds": 9, "part": n, "parts": len(chunks), "chunk": c}
        for n, c in enumerate(chunks, 1)
    ]
    lines.append({"stage": "end", "seconds": 10, "data": {"total": 10, **({"stopped": stopped} if stopped else {})}})
    out = ["collective ring: 3 s"]
    out += [
        json.dumps({"seatrial": 1, "run": run, "rank": rank, "n": n, **line}, separators=(",", ":"))
        for n, line in enumerate(lines, 1)
    ]
    return "\n".join(out) + "\n"


def explained(capsys, *arguments: str) -> tuple[int, dict]:
    code = explain.main([*arguments, "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def logs(tmp_path):
    for rank in range(2):
        (tmp_path / f"pod-{rank}.log").write_text(evidence(MAKER, rank))
    return tmp_path


def test_the_pods_of_a_run_are_one_job(logs, capsys):
    """The merged reports of the probes equal the whole log's verdict: ranks, hosts, transport, table."""
    code, said = explained(capsys, str(logs))
    (job,) = said["jobs"]
    assert (code, job["verdict"], job["ranks"], job["nodes"], job["inter_node_transport"], job["gdr"]) == (
        0,
        "go",
        16,
        2,
        "ib",
        True,
    )
    assert job["tables"][0]["peak_busbw_gbps"] == 380.0
    assert all("ring" in name for name in job["files"])


def test_one_pod_alone_is_not_the_whole_job(logs, capsys):
    """One half of the ranks proves nothing about the other half."""
    code, said = explained(capsys, str(logs / "pod-1.log"))
    assert code == 10
    assert said["jobs"][0]["ranks"] == 16


@pytest.mark.parametrize("front", ["[pod/x-0/main] ", "2026-01-02T03:04:05.123456789Z "])
def test_interleaved_and_prefixed_pods_are_distinguished(front, tmp_path, capsys):
    """One file by kubectl for both pods, with its prefix, is the same job."""
    both = [evidence(MAKER, rank).splitlines() for rank in range(2)]
    mixed = [line for pair in zip(*both, strict=False) for line in pair] + both[0][len(both[1]) :]
    (tmp_path / "all.log").write_text("".join(front + line + "\n" for line in mixed))
    assert explained(capsys, str(tmp_path / "all.log"))[1]["jobs"][0]["verdict"] == "go"


def test_an_attempt_that_was_stopped_is_not_the_run_that_went_on(tmp_path, capsys):
    """A pod was deleted, and the retried trial completed: the logs get the trial's verdict, in any file order."""
    for rank in range(2):
        first = evidence(MAKER, rank, skipped="stopped: SIGTERM", attempt=1, stopped="SIGTERM")
        (tmp_path / f"z-{rank}.log").write_text(first)
        (tmp_path / f"a-{rank}.log").write_text(evidence(MAKER, rank, attempt=2))
    code, said = explained(capsys, str(tmp_path))
    (job,) = said["jobs"]
    assert (code, job["verdict"], job["ranks"]) == (0, "go", 16)
    assert not any("z-" in name for name in job["files"])
    together = tmp_path / "both.txt"
    together.write_text("".join((tmp_path / f"{name}-{rank}.log").read_text() for name in "za" for rank in range(2)))
    assert explained(capsys, str(together))[0] == 0


def test_an_attempt_that_failed_by_itself_is_not_passed_over(tmp_path, capsys):
    for rank in range(2):
        (tmp_path / f"1-{rank}.log").write_text(evidence(MAKER, rank, skipped="no free port", attempt=1))
        (tmp_path / f"2-{rank}.log").write_text(evidence(MAKER, rank, attempt=2))
    code, said = explained(capsys, str(tmp_path))
    assert code == 10
    assert [job["verdict"] for job in said["jobs"]] == ["inconclusive", "go"]


def test_a_stopped_attempt_alone_says_that_it_was_stopped(tmp_path, capsys):
    for rank in range(2):
        log = evidence(MAKER, rank, skipped="stopped: SIGTERM", attempt=1, stopped="SIGTERM")
        (tmp_path / f"{rank}.log").write_text(log)
    code, said = explained(capsys, str(tmp_path))
    assert (code, "SIGTERM" in said["jobs"][0]["sentence"]) == (10, True)


def test_a_log_whose_start_is_cut_off_belongs_to_its_run(tmp_path, capsys):
    (tmp_path / "0.log").write_text(evidence(MAKER, 0, attempt=1))
    (tmp_path / "1.log").write_text(evidence(MAKER, 1, attempt=1).partition("\n")[2].partition("\n")[2])
    code, said = explained(capsys, str(tmp_path))
    assert (code, len(said["jobs"]), said["jobs"][0]["ranks"]) == (0, 1, 16)


def test_a_collective_that_was_not_run_says_why(tmp_path, capsys):
    """The sentence is the probe's reason, without a conclusion."""
    (tmp_path / "pod.log").write_text(evidence(MAKER, 0, skipped="dns: peer 1 is unknown"))
    code, said = explained(capsys, str(tmp_path / "pod.log"))
    assert code == 10
    assert "dns: peer 1 is unknown" in said["jobs"][0]["sentence"]


@pytest.mark.parametrize(
    ("error", "code"),
    [(Unreachable("no answer from https://a"), 10), (NotFound("x", status=404, message="no pod of job y"), 4)],
)
def test_a_cluster_that_fails_while_a_log_is_read_is_one_line(error, code, monkeypatch, capsys):
    """A broken connection is undetermined (10), a missing job a usage error (4); no traceback."""

    def broken(*_):
        yield "pod-0", chunks()

    def chunks():
        yield b"gpu-node-0:1:1 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n" * 9000
        raise error

    monkeypatch.setattr(explain._Workload, "open", broken)
    assert explain.main(["job/y"]) == code
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_a_profile_says_what_the_platform_gives(logs, capsys):
    """The profile's rows are shown with its floors; slow RDMA is a separate finding."""
    (logs / "slow.log").write_bytes(
        interleaved(MAKER.processes(), 1) + "".join(line + "\n" for line in table_of(MAKER)).encode()
    )
    code, said = explained(capsys, str(logs / "slow.log"), "--profile", "h100-ib")
    (job,) = said["jobs"]
    assert (code, job["diagnosis"]) == (1, "rdma-but-slow")
    assert [fault["fault"] for fault in job["faults"]] == ["nccl.low-bandwidth"]
    (row,) = job["tables"][0]["reference"]
    assert (row["busbw_gbps"], row["floor_gbps"], row["ratio"]) == (153.6, 325, 0.473)
    assert job["tables"][0]["wire"]["rail_gbit_s"] == 153.7
    assert explain.main([str(logs / "slow.log"), "--profile", "h100-ib"]) == 1
    assert "47% of the 325 GB/s" in capsys.readouterr().out


@pytest.fixture(autouse=True)
def _ring(monkeypatch):
    """Every maker's processes print NCCL_ALGO=Ring."""
    monkeypatch.setitem(MAKER.env, "NCCL_ALGO", "Ring")


def test_more_than_the_links_carry_is_nvlink(tmp_path, capsys, monkeypatch):
    """On two hosts NCCL's own choice may exceed the link rate: healthy, since NVLink is the limit."""
    monkeypatch.delitem(MAKER.env, "NCCL_ALGO")
    table = with_busbw(table_of(MAKER), 466)
    (tmp_path / "x.log").write_bytes(
        interleaved(MAKER.processes(), 1) + "".join(line + "\n" for line in table).encode()
    )
    code, said = explained(capsys, str(tmp_path / "x.log"), "--profile", "h100-ib")
    assert (code, said["jobs"][0]["diagnosis"]) == (10, "not-judged")  # the profile's floors are at 8G
    (tmp_path / "profile.yaml").write_text(
        "name: made\ngpu: {per_node: 8}\nfabric: {kind: ib, rails: 8, rail_gbit_s: 400, gdr: true}\nfloors:\n"
        "  - {collective: all_reduce, algorithm: default, nodes: 2, size: 1G, busbw_gbps: 400, topology: made up, source: made up}\n"
    )
    code, said = explained(capsys, str(tmp_path / "x.log"), "--profile", str(tmp_path / "profile.yaml"))
    assert (code, said["jobs"][0]["diagnosis"]) == (0, "healthy-nvlink-limited")


def test_an_unknown_profile_is_a_usage_error(logs, capsys):
    """The refusal is one line with the nearest name."""
    assert explain.main([str(logs), "--profile", "h100-ip"]) == 4
    assert "h100-ib" in capsys.readouterr().err


def test_a_job_on_some_of_the_gpus_needs_some_of_the_rails(tmp_path, capsys):
    """Two GPUs of eight use two rails of eight: nothing is missing, but the unasked part is not a go."""
    (tmp_path / "x.log").write_bytes(interleaved(Maker().processes(), 1))
    code, said = explained(capsys, str(tmp_path / "x.log"), "--profile", "h100-ib")
    assert (code, said["jobs"][0]["faults"]) == (10, [])


def test_a_rank_whose_file_ends_before_its_channels_misses_no_rail():
    """Peers show channels and one host's ranks end after Init COMPLETE: the rail was not shown, which does not make it
    missing."""
    maker = Maker(gpus=4, rails=4, channels=4)
    cut = {
        key: lines
        if key[0] == "gpu-node-0"
        else [line for line in lines if " via " not in line and "Connected" not in line and "Destroy" not in line]
        for key, lines in maker.processes().items()
    }
    (job,) = conclude(merge([read([("x", io.BytesIO(sequential(cut)))])]), Expected(rails=4))
    assert "nccl.rail-missing" not in {fault["fault"] for fault in job["faults"]}
    assert [host["connected"] for host in job["hosts"]] == [[0, 1, 2, 3], []]
    assert job["verdict"] == "inconclusive"
