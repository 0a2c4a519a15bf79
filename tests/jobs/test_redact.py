"""No credential reaches a file, a terminal or a report; names of settings remain readable."""

import ast
import time
from itertools import product
from pathlib import Path

import pytest
import yaml

from jobs.cluster.redact import MASK, LineRedactor, clean, redact, redact_value, safe, secret_name
from tests.table import table

ROOT = Path(__file__).resolve().parents[2]
SECRET = "Zx81q" * 8


@table(
    "text",
    [
        "NGC_KEY={}",
        "NGC_API_KEY: {}",
        "export HF_TOKEN='{}'",
        'AWS_SECRET_ACCESS_KEY="{}"',
        "aws_session_token={}",
        "DB_PASSWORD={}",
        "FOO_SECRET={}",
        "MY_TOKEN_2={}",
        "password: {}",
        "--password {}",
        "--api-key={}",
        "--token={}",
        '{{"HF_TOKEN": "{}"}}',
        '{{\\"HF_TOKEN\\": \\"{}\\"}}',
        "Authorization: Bearer {}",
        "authorization: Basic {}",
        "Bearer {}",
        "https://user:{}@host/x",
        "https://{}@github.com/x",
        "postgres://u:{}@db/x",
        "https://b.s3/x?X-Amz-Signature={}&a=b",
        "https://a/x?sig={}",
        "?access_token={}",
        '{{"auths": {{"nvcr.io": {{"auth": "{}"}}}}}}',
        "-----BEGIN RSA PRIVATE KEY----- {}",
        "ghp_{}",
        "github_pat_{}",
        "glpat-{}",
        "hf_{}",
        "nvapi-{}",
        "xoxb-{}",
        "sk-{}",
        "sk-proj-{}",
        "npm_{}",
        "AccountKey={}",
        "client_secret={}",
        "X-Auth-Token: {}",
        "WANDB_API_KEY={}",
        "PASSWORD='{}",
        "Cookie: {}",
        "private_key={}",
        "x-api-key: {}",
        "REGISTRY_CREDENTIALS={}",
    ],
)
def test_credentials_are_masked_in_every_form(text):
    """Credentials are masked in the environment, JSON, JSON in JSON, headers, URLs, flags, and well-known forms."""
    line = f"before {text.format(SECRET)} after"
    masked = redact(line)
    assert SECRET not in masked and "[REDACTED]" in masked
    assert masked.startswith("before")
    assert SECRET not in safe(line) and SECRET not in LineRedactor().line(line)


@pytest.mark.parametrize(
    "text",
    ["AKIAIOSFODNN7EXAMPLE", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "AIzaSyA-1234567890abcdefghijklmnopqrstu"],
)
def test_well_known_keys_are_masked_wherever_they_stand(text):
    """AWS key ids, JSON web tokens and Google keys are masked."""
    assert text not in redact(f"x={text};")
    assert "123456" not in redact("PASSWORD=123456")


@table(
    "text",
    [
        "NCCL_IB_PKEY=0",
        "NCCL INFO NCCL_IB_HCA set to mlx5",
        "tokenizer=llama",
        "TOKENIZERS_PARALLELISM=false",
        "max_tokens=512",
        "next_token_id: 5",
        "keyboard=us",
        "MASTER_PORT=29500",
        'secret "ngc" not found',
        'configmap "no-such-map" not found',
        "couldn't find key token in Secret ns/s",
        "NCCL WARN Bootstrap : no socket interface found",
        "monkey=1",
        "https://nvcr.io/v2/",
        "image nvcr.io/nvidia/pytorch@sha256:" + "a" * 64,
        "PATH=/usr/bin:/bin",
        "author: me",
    ],
)
def test_what_is_no_credential_stays(text):
    """A report without its settings would be useless."""
    assert redact(text) == text


def own_sentences():
    """Return every text of this project: the fault catalogue, titles of checks, and all strings of the code."""
    for file in sorted((ROOT / "seatrial" / "faults").rglob("*.yaml")):
        todo = [yaml.safe_load(file.read_text())]
        while todo:
            item = todo.pop()
            todo += list(item.values()) if isinstance(item, dict) else item if isinstance(item, list) else []
            if isinstance(item, str):
                yield item
    for folder in ("checks", "jobs", "reports", "seatrial"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if "redact" in file.name:
                continue
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value
                if isinstance(node, ast.JoinedStr):
                    yield "".join(str(part.value) if isinstance(part, ast.Constant) else "name" for part in node.values)


def test_our_own_sentences_stay_whole():
    """Advice with the words credentials, secret or token is not redacted, whatever name it contains."""
    sentences = list(own_sentences())
    assert [text for text in sentences if MASK not in text and MASK in redact(text)] == []
    assert len(sentences) > 5000


@table(
    "value, name",
    product(
        ["{}", "Abcdefgh", "hunter2", "swordfish", "a-b-c", "secret", "'create' a", '"create" a', "create"],
        ["credentials", "CREDENTIALS", "registry_credentials", "secret", "password", "pod/x password", "token"],
    ),
)
def test_a_sentence_must_look_like_one(name, value):
    """A word that is not lower case is a value; after a password all words are."""
    assert MASK in redact(f"{name}: {value.format(SECRET)}")


@pytest.mark.parametrize(
    "text",
    [
        "pod/x with password: swordfish is",
        "path/to/token: swordfish is",
        "password: correct horse battery",
        "DB_CREDENTIALS: correct horse",
    ],
)
def test_a_passphrase_is_no_sentence(text):
    """Words after a name other than the plain word credentials or an object's name are masked."""
    assert "horse" not in redact(text).split(":")[1][:12] and "swordfish" not in redact(text)


@table(
    "kind, name",
    product(
        ["secret", "pod", "job", "serviceaccount", "clusterqueue"],
        ["ngc-secret", "registry-credentials", "my-token", "api-key"],
    ),
)
def test_an_object_may_be_called_as_a_secret_is(kind, name):
    """A message about the object remains readable; a value in its place does not."""
    for said in ("does not exist", "of another type", "is forbidden"):
        assert redact(f"{kind}/{name}: {said}") == f"{kind}/{name}: {said}"
    assert SECRET not in redact(f"{kind}/{name}: {SECRET} x")


def test_json_stays_json():
    """Evidence lines in a log remain readable after redaction."""
    import json

    for value in (SECRET, 'quo"te', "back\\slash", ""):
        line = json.dumps({"env": {"HF_TOKEN": value, "A": "b"}, "n": 1})
        assert json.loads(redact(line))["env"]["A"] == "b"


def test_a_private_key_over_many_lines_is_masked():
    """A key is printed line by line."""
    redactor = LineRedactor()
    lines = ["-----BEGIN OPENSSH PRIVATE KEY-----", SECRET, SECRET[::-1], "-----END OPENSSH PRIVATE KEY-----", "after"]
    masked = [redactor.line(line) for line in lines]
    assert masked[1:] == ["[REDACTED]", "[REDACTED]", "[REDACTED]", "after"] and SECRET not in "".join(masked)
    unended = LineRedactor()
    unended.line(lines[0])
    assert [unended.line("x") for _ in range(300)][-1] == "x"


def test_values_under_secret_names_are_masked_whole():
    """Decoded JSON: by the key's name, and elsewhere by the text itself."""
    masked = redact_value(
        {"HF_TOKEN": "a b c", "n": [{"PASSWORD": "x"}], "plain": "Bearer " + SECRET, "TOKEN": 5, "EMPTY_TOKEN": ""}
    )
    assert masked == {
        "HF_TOKEN": "[REDACTED]",
        "n": [{"PASSWORD": "[REDACTED]"}],
        "plain": "Bearer [REDACTED]",
        "TOKEN": 5,
        "EMPTY_TOKEN": "",
    }
    assert secret_name("AWS_SECRET_ACCESS_KEY") and not secret_name("TOKENIZER") and not secret_name("NCCL_IB_PKEY")


def test_terminal_escapes_and_invisible_characters_are_dropped():
    """A log line must not repaint the terminal, hide text or reverse it."""
    assert clean("\x1b[31mred\x1b[0m \x1b]0;title\x07ok\x00\u202e\u200b\r") == "red ok"
    assert safe("two\nlines\tand\x07 more") == "two lines and more"


def test_texts_are_bounded():
    """A truncated text shows the truncation."""
    assert len(safe("x" * 10**7, 100)) <= 100 and safe("x" * 10**7, 100).endswith("[truncated]")
    assert len(clean("x" * 10**6)) <= 16_384


def test_a_secret_at_the_cut_is_not_half_shown():
    """Redaction comes before truncation."""
    assert "Zx81q" not in safe("x" * 80 + f" NGC_KEY={SECRET}", 100)


@table(
    "text",
    [
        "a_" * 8000,
        "a" * 16_000,
        "token=" * 2700,
        "://" * 5300,
        "-" * 16_000,
        "A" * 8000 + "://" + "b" * 8000,
        "eyJ" * 5300,
        "sk-" + "a-" * 8000,
        '\\"' * 8000,
        "token:" + '\\"' * 5000,
        "---" * 5000 + "token ",
        "auth" * 4000,
        "_" * 16_000 + "token",
        '"auth": "' + "a" * 16_000,
        "Bearer " * 2200,
        "key=" * 4000,
        "?sig=" * 3000,
        "ghp_" * 4000,
        "x=1 " * 4000 + "secret",
    ],
)
def test_no_line_takes_long(text):
    """No pattern is quadratic, so a hostile log cannot stop the run."""
    began = time.process_time()
    redact(text)
    assert time.process_time() - began < 0.5


def test_the_value_of_a_variable_ends_with_its_line():
    """The lines after the variable in a program's output explain its end."""
    said = safe("HF_TOKEN=a b c\nTraceback (most recent call last):\nRuntimeError: shard 7 is torn")
    assert said == f"HF_TOKEN={MASK} Traceback (most recent call last): RuntimeError: shard 7 is torn"
    assert "hunter2" not in safe("first\nMY_PASSWORD=hunter2 hunter2\nlast") + safe("password:\n  hunter2x")
