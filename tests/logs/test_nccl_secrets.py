"""No secret gets out of the analyzer: keys, tokens and passwords in any notation of a log."""

from __future__ import annotations

import io
import json
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reports import explain_forms
from reports.explain_forms import to_markdown
from seatrial.logs import conclude, open_sources, read

# Made up, in the form of real ones.
from tests.secretforms import LINES, VALUES, WRITTEN, shown
from tests.table import table


def everything(text: str, name: str = "log") -> str:
    """Return all output of the analyzer, the partial and the renderers for a log."""
    partial = read([(name, io.BytesIO(text.encode()))])
    jobs = conclude(partial)
    texts = [json.dumps(partial.to_dict()), explain_forms.to_json(jobs), explain_forms.to_text(jobs), to_markdown(jobs)]
    return "".join(texts)


@table("written, value", product(WRITTEN, VALUES))
def test_no_way_to_write_a_secret_lets_it_out(written, value):
    """Every kind of secret is redacted in the notation of shells, JSON, YAML, XML, URLs, Python and container specs, on
    displayed lines."""
    secret = VALUES[value]
    for line in LINES:
        assert not shown(secret, everything(line.replace("{}", written.format(secret)))), line


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted(VALUES)),
    st.sampled_from(WRITTEN),
    st.sampled_from(LINES),
    st.text(alphabet="abc XYZ019=:,;./-_'\"[](){}<>", max_size=60),
    st.text(alphabet="abc XYZ019=:,;./-_'\"[](){}<>", max_size=400),
)
def test_what_surrounds_a_secret_does_not_matter(value, written, line, before, after):
    """The text before and after a secret is arbitrary."""
    secret = VALUES[value]
    text = line.replace("{}", f"{before} {written.format(secret)} {after}")
    assert not shown(secret, everything(text))


def test_a_secret_that_runs_over_several_lines_stays_inside():
    """A private key, a kubeconfig and a dumped environment are between NCCL's lines."""
    key = "\n".join(VALUES["pem"][at:] + VALUES["pem"][:at] for at in range(8))
    dump = (
        f"-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\nusers:\n- user:\n    token: {VALUES['jwt']}\n"
    )
    dump += "".join(f'declare -x {name.upper().replace("-", "_")}_SECRET="{value}"\n' for name, value in VALUES.items())
    log = f"a:1:1 [0] x.cc:1 NCCL WARN Duplicate GPU detected\n{dump}a:1:1 [0] NCCL INFO init.cc:1 -> 5\nLast error:\n{dump}Test NCCL failure common.cu:1\n{dump}"
    text = everything(log)
    assert "Duplicate GPU" in text
    assert [name for name, value in VALUES.items() if shown(value, text)] == []


def test_a_secret_in_the_name_of_a_file_stays_inside(tmp_path):
    """A file may have any name."""
    path = tmp_path / f"HF_TOKEN={VALUES['hugging-face']}.log"
    path.write_text("a:1:1 [0] x.cc:1 NCCL WARN Duplicate GPU detected\n")
    jobs = conclude(read(open_sources([str(path)])))
    assert not shown(
        VALUES["hugging-face"], explain_forms.to_text(jobs) + explain_forms.to_json(jobs) + to_markdown(jobs)
    )


@pytest.mark.parametrize(
    "text",
    [
        "NET/IB : Got completion from peer 10.0.0.2<4> with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid fe80::1 remoteGidsfe80::2",
        "Failed to find ncclNetPlugin symbol (>= v5). ncclNetPlugin symbols v4 and lower are not supported.",
        "Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No space left on device (28)",
        "frame #1: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout(std::optional<std::chrono::duration<long, std::ratio<1l, 1000l> > >) + 0x1d1",
        "/opt/conda/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so: undefined symbol: _ZN4c10d16ProcessGroupNCCL8WorkNCCL12checkTimeoutEv",
        "ncclCommInitRankConfig comm 0x57a7c7b82cf0 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1a000 commId 0xdf5506ed2c65f234 - Init START",
    ],
)
def test_what_is_no_secret_is_shown(text):
    """Over-redaction would remove evidence."""
    from seatrial.logs.reader.lines.clean import printable

    assert printable(text) == text
