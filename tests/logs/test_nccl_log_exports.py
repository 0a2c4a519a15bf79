"""A log exported from a store or a shipper is read like the original."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import shutil
import subprocess
import tarfile
import zipfile

import pytest

from seatrial.logs import conclude, exports, open_sources, read
from seatrial.logs.reader.errors import NcclLogError
from tests.logs.logmaker import Maker, interleaved, table_of
from tests.logs.test_nccl_prefixes import essence

ONE, TWO = Maker(hosts=("gpu-node-0",), gpus=8), Maker(gpus=4, rails=4, channels=4)


def whole(maker: Maker) -> str:
    return interleaved(maker.processes(), 3).decode() + "\n".join(table_of(maker)) + "\n"


LOGS = {
    "one-host": whole(ONE),
    "two-hosts": whole(TWO),
    "no-gpudirect": whole(Maker(gpus=4, gdr=False)),
    "wrong-sums": whole(TWO).replace("153.60       0", "153.60       7"),
    "crash": whole(ONE)
    + "gpu-node-0:1000:1000 [0] NCCL WARN Cuda failure 'an illegal memory access was encountered'\n",
}


def time_of(at: int) -> str:
    return f"2026-11-20T10:{at // 6000:02d}:{at // 100 % 60:02d}.{at % 100 * 10:03d}"


def as_csv(names, record, newest=False, quoting=csv.QUOTE_MINIMAL, separator=","):
    """Return a function that writes lines as a CSV file; ``record`` makes a line's fields."""

    def write(lines: list[str]) -> str:
        out = io.StringIO()
        writer = csv.writer(out, quoting=quoting, delimiter=separator)
        if names:
            writer.writerow(names)
        records = [record(at, line) for at, line in enumerate(lines)]
        writer.writerows(records[::-1] if newest else records)
        return out.getvalue()

    return write


def each(record, newest=False):
    """Return a function that writes each line as a separate record."""

    def write(lines: list[str]) -> str:
        records = [
            text if isinstance(text := record(at, line), str) else json.dumps(text) for at, line in enumerate(lines)
        ]
        return "".join(text + "\n" for text in (records[::-1] if newest else records))

    return write


ALL = csv.QUOTE_ALL
FORMS = {
    "insights": as_csv(("@timestamp", "@message"), lambda at, line: (time_of(at), line)),
    "insights-json": as_csv(
        ("@timestamp", "@message"), lambda at, line: (time_of(at), json.dumps({"log": line, "stream": "stdout"}))
    ),
    "datadog": as_csv(
        ("Date", "Host", "Message"), lambda at, line: (time_of(at) + "Z", "ip-10-0-0-1", line), False, ALL
    ),
    "splunk": as_csv(("_raw", "_time", "host"), lambda at, line: (line, time_of(at) + "+0000", "h"), False, ALL),
    "bigquery": as_csv(
        ("timestamp", "textPayload", "resource"), lambda at, line: (time_of(at), line, '{"type":"k8s_container"}')
    ),
    "azure": as_csv(("TimeGenerated", "PodName", "LogMessage"), lambda at, line: (time_of(at), "w-0", line)),
    "semicolons": as_csv(("time", "message"), lambda at, line: (time_of(at), line), separator=";"),
    "logcli": each(lambda at, line: f'{time_of(at)}Z {{pod="w-0"}} {line}'),
    "logcli-jsonl": each(lambda at, line: {"labels": {"pod": "w"}, "line": line, "timestamp": time_of(at)}),
    "journal-bytes": each(lambda at, line: {"__CURSOR": "s", "MESSAGE": list(line.encode()) if at % 5 == 0 else line}),
}
NOT_READ = {
    "fluent-bit": each(lambda at, line: f'[{at}] kube.log: [[17.{at:09d}, {{}}], {{"log"=>{json.dumps(line)}}}]'),
    "fluentd": each(lambda at, line: f"{time_of(at)}+00:00\tkube.app\t" + json.dumps({"log": line + "\n"})),
    "logfmt": each(lambda at, line: f"time={time_of(at)}Z level=info msg={json.dumps(line)}"),
    "cloud-logging": each(lambda at, line: {"insertId": "x", "jsonPayload": {"message": line}}),
    "open-telemetry": each(
        lambda at, line: {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": line}}]}]}]}
    ),
    "elastic": each(lambda at, line: {"_index": "x", "_source": {"message": line, "@timestamp": time_of(at)}}),
    "splunk-json": each(lambda at, line: {"preview": False, "result": {"_raw": line}}),
    "list": json.dumps,
    "indented-list": lambda lines: json.dumps(lines, indent=1),
    "one-text": lambda lines: json.dumps({"changed": True, "stdout": "\n".join(lines)}),
    "loki": lambda lines: json.dumps(
        {"data": {"result": [{"values": [[str(10**18 + at), line] for at, line in enumerate(lines)]}]}}
    ),
    "kubernetes-list": lambda lines: json.dumps({"items": [{"message": line} for line in lines]}, indent=2),
}
NEWEST_FIRST = {
    "plain": each(lambda at, line: f"{time_of(at)}Z {line}", newest=True),
    "logcli": each(lambda at, line: f'{time_of(at)}Z {{pod="w-0"}} {line}', newest=True),
    "insights": as_csv(("@timestamp", "@message"), lambda at, line: (time_of(at), line), newest=True),
    "json-lines": each(lambda at, line: {"time": time_of(at), "log": line}, newest=True),
    "kibana": as_csv(
        ("@timestamp", "message"),
        lambda at, line: (f"Nov 20, 2026 @ 10:{at // 60:02d}:{at % 60:02d}.000", line),
        True,
        ALL,
    ),
}


def judged(tmp_path, data: bytes | str) -> dict:
    (tmp_path / "job.log").write_bytes(data.encode() if isinstance(data, str) else data)
    (job,) = conclude(read(open_sources([str(tmp_path / "job.log")])))
    return job


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", LOGS)
def test_what_carried_a_log_changes_nothing_of_what_it_says(form, case, tmp_path):
    log = LOGS[case]
    assert essence(judged(tmp_path, FORMS[form](log.splitlines()))) == essence(judged(tmp_path, log))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_chunks_end_anywhere(size):
    """A pipe's chunks end anywhere, within a quoted field or a character."""
    for form in ("datadog", "logcli"):
        data = FORMS[form](LOGS["one-host"].replace("gpu", "gpü").splitlines()).encode()
        pieces = (data[at : at + size] for at in range(0, len(data), size))
        assert b"".join(exports.opened(pieces, "log")) == b"".join(exports.opened(iter([data]), "log"))


@pytest.mark.parametrize(
    "text",
    [
        "size,count,type\n1,2,float\n3,4,float\n",
        "time, step, loss\n2026-11-20T10:00:00, 3, 0.1\n2026-11-20T10:00:01, 4, 0.1\n",
        '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.4}\n',
        "a,message\nstep 1, loss 2, lr 3\n",
        # four hosts in sequence, of which the last have slow clocks
        "".join(f"2026-11-20T10:00:0{9 - host}Z host-{host} line {at}\n" for host in range(4) for at in (1, 2))
        + "2026-11-20T10:00:09Z end\n",
        "2026-11-20T10:00:03Z a\n2026-11-20T10:00:02Z b\n2026-11-20T10:00:01Z c\n",
        "x" * 200_000,
        "",
    ],
    ids=["table", "numbers", "records", "few-fields", "hosts", "few-times", "no-end", "empty"],
)
def test_what_is_no_export_is_passed_on_to_the_byte(text):
    assert b"".join(exports.opened(iter([text.encode()]), "log")) == text.encode()


@pytest.mark.parametrize("form", NOT_READ)
def test_what_is_carried_in_a_form_that_is_not_read_is_refused_with_what_to_do(form, tmp_path):
    """Such files are never judged by a half of their lines."""
    with pytest.raises(NcclLogError, match=r"job\.log: its lines are inside of JSON or quotes.*jq -r"):
        judged(tmp_path, NOT_READ[form](LOGS["two-hosts"].splitlines()))


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize("case", LOGS)
@pytest.mark.parametrize("form", ["loki", "elastic", "open-telemetry", "cloud-logging", "indented-list", "one-text"])
def test_what_the_command_prints_is_judged_as_the_log(form, case, tmp_path):
    written = NOT_READ[form](LOGS[case].splitlines())
    printed = subprocess.run(["jq", "-r", ".. | strings"], input=written, capture_output=True, text=True, check=True)
    assert essence(judged(tmp_path, printed.stdout)) == essence(judged(tmp_path, LOGS[case]))


@pytest.mark.parametrize("form", NEWEST_FIRST)
def test_a_log_whose_newest_line_comes_first_is_refused(form, tmp_path):
    """The last messages of a rank would be read as its first."""
    with pytest.raises(NcclLogError, match=r"job\.log: the newest line comes first.*tac FILE"):
        judged(tmp_path, NEWEST_FIRST[form](LOGS["two-hosts"].splitlines()))


def test_a_program_that_quotes_nccl_is_read(tmp_path):
    """A few quoted lines among many are not an export."""
    quoted = 'trainer: last message was "NCCL INFO comm 0x1 init", as text = "NCCL WARN nothing"\n'
    assert judged(tmp_path, quoted + LOGS["one-host"])["verdict"] == "go"


# -- omissions of a store or a copy ------------------------------------------------------------------------------------
@pytest.mark.parametrize(("lines", "verdict"), [(5000, "inconclusive"), (10_000, "inconclusive"), (4999, "go")])
@pytest.mark.parametrize("form", ["datadog", "logcli", "logcli-jsonl"])
def test_as_many_lines_as_a_store_gives_at_most_may_not_be_all(form, lines, verdict, tmp_path):
    """The files do not mention a limit, but the number of lines equals it."""
    log = LOGS["two-hosts"].splitlines()
    log[-3:-3] = [f"step {at}" for at in range(lines - len(log))]
    job = judged(tmp_path, FORMS[form](log))
    assert job["verdict"] == verdict
    assert (f"beyond these {lines} lines" in job["sentence"]) is (verdict != "go")


@pytest.mark.parametrize("case", ["one-host", "two-hosts"])
def test_what_comes_behind_a_cut_of_the_compressed_data_no_one_knows(case, tmp_path):
    """gzip, copied while the pod crashed: the crash is in the missing part."""
    steps = "".join(f"step {at} loss {at * 7919 % 1000}\n" for at in range(4000))
    packed = gzip.compress((LOGS[case] + steps + "RuntimeError: CUDA error: unspecified launch failure\n").encode())
    job = judged(tmp_path, packed[: len(packed) * 9 // 10])
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "truncated")
    assert "the compressed data end here" in job["sentence"]


def tar(text: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("job.log")
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text))
    return out.getvalue()


def stored(text: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("job.log", text)
    return out.getvalue()


@pytest.mark.parametrize(
    ("pack", "said"),
    [
        (lzma.compress, "xz -dc"),
        (bz2.compress, "bzip2 -dc"),
        (lambda text: b"\x28\xb5\x2f\xfd" + lzma.compress(text), "zstd -dc"),
        (stored, "unzip -p"),
        (tar, "tar archive"),
        (lambda text: gzip.compress(tar(text)), "tar archive"),
    ],
    ids=["xz", "bzip2", "zstd", "zip", "tar", "tar.gz"],
)
def test_what_is_packed_in_another_way_gets_advice_how_to_unpack(pack, said, tmp_path):
    with pytest.raises(NcclLogError, match=said):
        judged(tmp_path, pack(LOGS["one-host"].encode()))


def test_utf_32_is_read(tmp_path):
    assert judged(tmp_path, LOGS["one-host"].encode("utf-32"))["verdict"] == "go"
