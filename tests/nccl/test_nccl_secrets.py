"""Does a secret ever leave the analyzer? Keys, tokens and passwords, however a log writes them down."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.nccl import conclude, open_sources, read
from reports import explain_forms
from reports.explain_forms import to_markdown

# Made up, in the shapes that the real ones have.
VALUES = {
    "ngc": "bmdjLWtleS0xMjM0NTY3ODkwMTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDEyMzQ1",
    "nvapi": "nvapi-AbCdEf0123456789AbCdEf0123456789_-xyz",
    "hugging-face": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
    "aws-secret": "aBcDeFgHiJ/kLmNoP0123/456789qRsTuVwXyZaB",
    "aws-id": "AKIAABCDEFGHIJKLMNOP",
    "jwt": "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl",
    "hex": "0123456789abcdef0123456789abcdef01234567",
    "password": "Sup3rS3cretPw",
    "github": "ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
    "slack": "xoxb-1234567890-abcdefghij",
    "openai": "sk-proj-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
    "pem": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj",
}
WRITTEN = [
    "AWS_SECRET_ACCESS_KEY={}",
    "WANDB_API_KEY = {}",
    '"NGC_API_KEY": "{}"',
    "{{'HF_TOKEN': '{}', 'PATH': '/bin'}}",
    "environ([('DB_PASSWORD', '{}'), ('HOME', '/root')])",
    "mpirun -x MY_TOKEN={} -np 2",
    "--password {} --verbose",
    "--token={}",
    "Authorization: Bearer {}",
    "https://user:{}@registry.example/x",
    "https://{}@git.example/x/y",
    "https://x.example/log?access_token={}&page=1",
    "https://bucket.example/k?X-Amz-Signature={}",
    "password: {}",
    "<password>{}</password>",
    '{{"name": "HF_TOKEN", "value": "{}"}}',
    "- name: API_SECRET value: {}",
    "client-key-data: {}",
    "docker login -u me -p {} registry.example",
    "curl -u user:{} https://x.example",
    "X-Api-Key: {}",
    "-----BEGIN RSA PRIVATE KEY----- {} -----END RSA PRIVATE KEY-----",
    "Password is {}",
    '\\"HF_TOKEN\\":\\"{}\\"',
    "token%3D{}",
    "AccountName=x;AccountKey={};EndpointSuffix=y",
]
LINES = [
    "a:1:1 [0] x.cc:1 NCCL WARN Duplicate GPU detected {}\na:1:1 [0] NCCL INFO init.cc:1 -> 5\n",
    "a:1:1 [0] x.cc:1 NCCL WARN whatever {}\na:1:1 [0] NCCL INFO init.cc:1 -> 5\n",
    "a:1:1 [0] NCCL INFO {}\n",
    "a:1:1 [0] NCCL INFO NCCL_NET set by environment to {}.\na:1:1 [0] NCCL INFO Using network Socket\n",
    "a:1:1 [0] NCCL INFO NCCL_CONF_TOKEN set by environment to {}.\n",
    "a:1:1 [0] NCCL INFO Using network {}\n",
    "a:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin {} (v8)\n",
    "Test NCCL failure common.cu:1 {}\n",
    "Last error:\n{} Connection refused NCCL\n",
    "#  Rank  0 Group  0 Pid 1 on host device  0 [0x1b] {}\n",
    "srun: error: node: task 3: Exited with exit code 1 {}\n",
    "CANCELLED AT x DUE TO TIME LIMIT {}\n",
    "{} a:1:1 [0] x.cc:1 NCCL WARN Duplicate GPU detected\n",
]


def everything(text: str, name: str = "log") -> str:
    """Return all that the analyzer, the partial and the renderers say of a log."""
    partial = read([(name, io.BytesIO(text.encode()))])
    jobs = conclude(partial)
    texts = [json.dumps(partial.to_dict()), explain_forms.to_json(jobs), explain_forms.to_text(jobs), to_markdown(jobs)]
    return "".join(texts)


def shown(value: str, text: str) -> bool:
    """Say whether a value, or its first half, is in a text: wrapped, escaped or cut."""
    flat = text.replace("\\", "").replace("\n", "").replace(" ", "")
    return value in text or value[: max(12, len(value) // 2)] in flat


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("value", VALUES)
def test_no_way_to_write_a_secret_lets_it_out(written, value):
    """Every kind of secret, as shells, JSON, YAML, XML, URLs, Python and container specs write it, on lines that are shown."""
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
def test_what_stands_around_a_secret_does_not_matter(value, written, line, before, after):
    """Whatever text is in front of it and behind it."""
    secret = VALUES[value]
    text = line.replace("{}", f"{before} {written.format(secret)} {after}")
    assert not shown(secret, everything(text))


def test_a_secret_that_runs_over_several_lines_stays_inside():
    """A private key, a kubeconfig and a dumped environment between NCCL's lines."""
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
    """A file can be called anything."""
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
    """Evidence that is blacked out is no evidence."""
    from jobs.pod.nccl_reader.lines.clean import printable

    assert printable(text) == text
