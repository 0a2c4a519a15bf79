"""Merged parts conclude the same as the whole log, since pods see only their own ranks."""

from __future__ import annotations

import io
import json
import random
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.pod.stages.lines import Writer
from seatrial.logs import POD_BUDGET, NcclLogError, Partial, conclude, merge, read
from tests.logs.logmaker import Maker, interleaved, sequential, table_of
from tests.table import table

CASES = {
    "healthy": Maker(),
    "old": Maker(version="2.7.8"),
    "mixed": Maker(socket_ranks=(2,)),
    "no-gpudirect-on-one-host": Maker(no_gdr_hosts=("gpu-node-1",)),
    "sockets": Maker(net="Socket"),
    "stopped": Maker(stop="init"),
    "four-hosts": Maker(hosts=("a1", "a2", "a3", "a4"), gpus=3, channels=4),
}


def of(*logs: bytes) -> Partial:
    return read([(f"log{index}", io.BytesIO(log)) for index, log in enumerate(logs)])


def said(job: dict) -> dict:
    """Return a job document without file names and line numbers, which differ."""
    compared = {key: value for key, value in job.items() if key not in ("files", "faults")}
    compared["faults"] = [(fault["fault"], fault["subject"], fault["why"], fault["cause"]) for fault in job["faults"]]
    return json.loads(json.dumps(compared))


@table("case, by", product(CASES, ["process", "host"]))
def test_merged_parts_conclude_what_the_whole_concludes(case, by):
    """Each pod reads its own files; the merge equals the analysis of all of them."""
    maker = CASES[case]
    groups: dict[object, dict] = {}
    for key, lines in maker.processes().items():
        groups.setdefault(key if by == "process" else key[0], {})[key] = lines
    table = "".join(line + "\n" for line in table_of(maker)).encode()
    parts = [of(sequential(group)) for group in groups.values()] + [of(table)]
    sent = [Partial.from_dict(json.loads(json.dumps(part.to_dict(POD_BUDGET)))) for part in parts]
    (whole,) = conclude(of(sequential(maker.processes()) + table), one_job=True)
    (merged,) = conclude(merge(sent), one_job=True)
    assert said(merged) == said(whole)


@table("case, seed", product(CASES, range(4)))
def test_how_ranks_interleave_does_not_matter(case, seed):
    """The arrival order of different processes' lines has no effect."""
    processes = CASES[case].processes()
    (first,) = conclude(of(sequential(processes)))
    (mixed,) = conclude(of(interleaved(processes, seed)))
    assert said(mixed) == said(first)


def test_the_order_of_parts_does_not_matter():
    """Pods respond in any order."""
    parts = [of(sequential({key: lines})) for key, lines in CASES["mixed"].processes().items()]
    shuffled = list(parts)
    random.Random(5).shuffle(shuffled)
    (one,), (other,) = conclude(merge(parts), one_job=True), conclude(merge(shuffled), one_job=True)
    assert said(one) == said(other)


@pytest.mark.parametrize("chunk", [1, 7, 100, 4096])
def test_where_the_stream_is_cut_into_chunks_does_not_matter(chunk):
    """Chunks may end in the middle of lines."""
    log = interleaved(CASES["healthy"].processes(), 2)
    pieces = [log[at : at + chunk] for at in range(0, len(log), chunk)]
    assert said(conclude(read([("x", pieces)]))[0]) == said(conclude(read([("x", io.BytesIO(log))]))[0])


def test_merging_leaves_the_parts_alone():
    """A part can be merged twice."""
    part = of(sequential(CASES["healthy"].processes()))
    before = json.dumps(part.to_dict(), sort_keys=True)
    merge([part, part])
    assert json.dumps(part.to_dict(), sort_keys=True) == before


def test_a_pods_partial_is_small():
    """A partial of eight ranks, 32 channels, several communicators, and alltoall to 2,048 peers has at most 200 KiB,
    and is still judged."""
    maker = Maker(hosts=tuple(f"n{index:03d}" for index in range(4)), gpus=8, rails=8, channels=32)
    lines: dict = {key: list(value) for key, value in maker.processes().items() if key[0] == "n000"}
    for rank, out in enumerate(lines.values()):
        head = out[0].split("NCCL INFO")[0] + "NCCL INFO "
        out += [f"{head}NCCL_SETTING_{number} set by environment to {'x' * 60}." for number in range(40)]
        for peer in range(2048):
            out.append(
                f"{head}Channel {peer % 32:02d}/1 : {rank}[{rank}] -> {peer}[{peer % 8}] [send] via NET/IB/{peer % 8}/GDRDMA/Shared"
            )
    part = of(sequential(lines))
    data = part.to_dict(POD_BUDGET)
    assert len(json.dumps(data, separators=(",", ":"))) <= POD_BUDGET
    assert data["compacted"] is True
    (job,) = conclude(Partial.from_dict(data))
    assert (job["inter_node_transport"], job["gdr"], job["ranks"]) == ("ib", True, 32)


def test_an_ordinary_partial_is_not_compacted():
    """Eight ranks with 32 channels and three communicators fit without loss."""
    maker = Maker(gpus=8, rails=8, channels=32)
    data = of(sequential({key: lines for key, lines in maker.processes().items() if key[0] == "gpu-node-0"})).to_dict(
        POD_BUDGET
    )
    assert data["compacted"] is False
    assert len(json.dumps(data)) < 40_000


@pytest.mark.parametrize(
    "broken", [{}, {"schema": 9}, {"schema": 1, "sources": 3}, {"schema": 1, "sources": [], "procs": [[1]], "pool": []}]
)
def test_damaged_evidence_is_one_clear_error(broken):
    """A pod's data may be truncated or of another version: NcclLogError, and no other exception."""
    with pytest.raises(NcclLogError):
        Partial.from_dict(broken)


MAKERS = st.builds(
    Maker,
    version=st.sampled_from(["2.7.8", "2.12.9", "2.18.3", "2.20.5", "2.24.3", "2.28.9+cuda13.0"]),
    hosts=st.integers(1, 4).map(lambda count: tuple(f"host-{index}" for index in range(count))),
    gpus=st.integers(1, 3),
    net=st.sampled_from(["IB", "Socket", "AWS Libfabric"]),
    rails=st.integers(1, 3),
    gdr=st.booleans(),
    channels=st.integers(1, 4),
    pxn=st.booleans(),
    socket_ranks=st.sampled_from([(), (), (1,)]),
    no_gdr_hosts=st.sampled_from([(), (), ("host-1",)]),
    stop=st.sampled_from(["", "", "init", "channels"]),
)
WARNED = "\n{}misc/x.cc:10 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory\n{}NCCL INFO init.cc:903 -> 2\n"


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(MAKERS, st.data())
def test_any_parting_of_the_files_merges_to_the_whole(maker, data):
    """The assignment of files to pods and the order of the parts have no effect, also for tables and failures."""
    processes = maker.processes()
    files: list[bytes] = []
    keys = list(processes)
    while keys:  # one process per file, or several interleaved
        some = [keys.pop() for _ in range(data.draw(st.integers(1, min(3, len(keys)))))]
        files.append(interleaved({key: processes[key] for key in some}, data.draw(st.integers(0, 9))))
    if data.draw(st.booleans()):
        files.append("".join(line + "\n" for line in table_of(maker)).encode())
    if data.draw(st.booleans()):
        head = f"{maker.hosts[0]}:{maker.pid(0)}:{maker.pid(0)} [0] "
        files[data.draw(st.integers(0, len(files) - 1))] += WARNED.format(head, head).encode()
    parts = data.draw(st.lists(st.integers(0, 3), min_size=len(files), max_size=len(files)))
    groups = [
        [file for file, part in zip(files, parts, strict=True) if part == number]
        for number in data.draw(st.permutations(range(4)))
    ]
    (whole,) = conclude(of(*files), one_job=True)
    sent = [Partial.from_dict(json.loads(json.dumps(of(*group).to_dict(POD_BUDGET)))) for group in groups if group]
    (merged,) = conclude(merge(sent), one_job=True)
    assert said(merged) == said(whole)


def test_what_a_pod_of_a_job_of_512_ranks_sends_fits(tmp_path):
    """The job has 64 pods of 8 ranks: evidence lines of a partial have at most 8 KiB, and its termination message has
    at most 4,096 bytes."""
    maker = Maker(hosts=tuple(f"pod-{index:03d}" for index in range(64)), gpus=8, rails=8, channels=16)
    processes = maker.processes()
    parts = []
    for host in maker.hosts:
        part = of(sequential({key: lines for key, lines in processes.items() if key[0] == host}))
        data = part.to_dict(POD_BUDGET)
        assert len(json.dumps(data, separators=(",", ":"))) <= POD_BUDGET
        with (tmp_path / host).open("wb") as out:
            Writer("run", 0, out.fileno(), str(tmp_path / "message")).stage(
                "collective.ring", 1.0, {"nccl": data}, "ok"
            )
        lines = (tmp_path / host).read_bytes().splitlines(keepends=True)
        assert lines
        assert max(map(len, lines)) <= 8192
        parts.append(Partial.from_dict(json.loads(json.dumps(data))))
    (job,) = conclude(merge(parts), one_job=True)
    assert (job["verdict"], job["ranks"], job["nodes"], len(job["hosts"])) == ("go", 512, 64, 64)
