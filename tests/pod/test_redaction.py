"""The only redactor: it removes secrets in any notation, and keeps the text that later rules need."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

import pytest

from jobs.cluster.redact import LineRedactor, redact_value, safe
from jobs.diagnosis.refusals import read_refusal
from jobs.diagnosis.symptoms import pull, start_error
from jobs.diagnosis.verdict import Issue
from jobs.trial import payload
from seatrial.faults.catalogue import fault_catalogue, formed, worded
from seatrial.faults.lines import read_lines
from seatrial.logs.reader.events.symptoms import classify
from seatrial.logs.reader.lines.clean import printable
from seatrial.logs.reader.redact import MASK, environment, redact, secret_name
from tests.secretforms import LINES, VALUES, WRITTEN, shown

ROOT = Path(__file__).resolve().parents[2]
WITH_SECRETS = {"test_nccl_secrets.py", "test_nccl_robust.py", "test_redact.py", "test_redaction.py"}


@cache
def lines_of(*folders: str) -> tuple[str, ...]:
    """Yield every line of every text in the tests of some folders, except those about secrets."""
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    nodes = [
        node for path in files if path.name not in WITH_SECRETS for node in ast.walk(ast.parse(path.read_text("utf-8")))
    ]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant)]
    decoded = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in texts]
    return tuple(dict.fromkeys(line for text in decoded if isinstance(text, str) for line in text.splitlines()))


def logged() -> dict[str, None]:
    """Return log lines: the examples of the catalogue, and those of the log reader's tests."""
    variants = [each for fault in fault_catalogue().values() for each in fault.variants]
    examples = [each.example for each in variants]
    missed = [each.near_miss for each in variants if each.near_miss]
    examples += [text for line in read_lines() for text in (*line.example, *line.near_miss)]
    return dict.fromkeys([*examples, *missed, *lines_of("tests/logs", "tests/hang")])


def fault_of(line: str) -> tuple[object, ...]:
    """Return the fault of a log line, with the variant."""
    symptom = classify(line.encode())
    if symptom is None:
        return ()
    said = formed(symptom.fault, line) or worded(symptom.fault, line)
    return symptom.fault, symptom.role, said and said.variant and said.variant.example


def test_no_line_that_a_rule_knows_is_known_as_another_or_none_afterwards() -> None:
    """A redactor that removes the deciding word makes a fault unknown: each line is the same fault, and variant, when
    redacted."""
    found = {line: fault_of(line) for line in logged()}
    assert [line for line, fault in found.items() if fault_of(redact(line)) != fault] == []
    assert len({fault[0] for fault in found.values() if fault}) > 150


@pytest.mark.parametrize(
    "judged",
    [
        read_refusal,
        lambda text: pull(Issue("ErrImagePull", text), "image").suggestion,
        lambda text: (start_error(Issue("x", text)).fault, start_error(Issue("x", text)).suggestion),
    ],
    ids=["refusals", "pulls", "starts"],
)
def test_no_word_of_the_cluster_is_judged_otherwise_afterwards(judged) -> None:
    """Refusals, pulls and starts of the tests have the same result, except for the quoted text."""
    texts = [text for text in lines_of("tests/jobs", "tests/checks", "tests/e2e") if " " in text]
    found = {text: repr(judged(text)) for text in texts}
    assert [text for text in texts if redact(text) == text and repr(judged(safe(text))) != found[text]] == []
    altered = [text for text in texts if redact(text) != text]
    assert [text for text in altered if repr(judged(redact(text))) != redact(found[text])] == []
    assert len(set(found.values())) > 5


@pytest.mark.parametrize(
    "text",
    [
        "failed to authorize: unauthorized: authentication required",
        "failed to fetch oauth token: unexpected status from POST request to https://nvcr.io/token: 401 Unauthorized",
        "failed to authorize: failed to fetch anonymous token: unexpected status: 403 Forbidden",
        "pull access denied, repository does not exist or may require authorization: server message: insufficient_scope",
        "no basic auth credentials",
        "Basic authentication failed for this registry",
        'MountVolume.SetUp failed for volume "ssh-auth" : secret "seatrial-x-ssh" not found',
        'MountVolume.SetUp failed for volume "ngc-token" : configmap "a" not found',
        "couldn't find key token in Secret ns/ngc",
        "token: expired",
        "the token is expired, log in again",
        "Invalid token: signature is invalid",
        "secret/ngc-token: does not exist",
        "munge: Invalid credential: Replayed credential",
        "/etc/passwd: Permission denied",
        "mpirun: auth: failed to open the key file",
        'spec.affinity.topologyKey: Invalid value: "rack"',
        "Waiting in store based barrier, key: store_based_barrier_key:1 (world_size=8, worker_count=7)",
        "containerd: docker-pullable://nvcr.io/nvidia/pytorch@sha256:" + "ab12" * 16,
        '{"kind": "ExecCredential", "status": {"phase": "x"}}',
        '{"n_tokens": 5, "max_tokens": 4096, "tokenizer": "llama"}',
        "AWS_WEB_IDENTITY_TOKEN_FILE=/var/run/secrets/eks/token",
        "UCX_IB_PKEY=0xffff NCCL_IB_PKEY=0",
        "pip install hf_transfer",
        "a TrainJob leaves this to its runtime: env_secrets: team-a, registry",
        '{"signature": "8 GPUs, NIC 0 beside GPU 0", "source": "nvidia-smi"}',
        "GPU-1bc46a35-2f0a-4d2e-9c3b-0123456789ab appears twice",
        "MIG-1bc46a35-2f0a-4d2e-9c3b-0123456789ab MIG-GPU-1bc46a35-2f0a-4d2e-9c3b-0123456789ab/1/0",
        "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition",
        "Standard_ND96isr_H100_v5-NVIDIA-H100-80GB-HBM3-SHARED",
    ],
)
def test_the_words_of_a_refusal_stay(text: str) -> None:
    """A registry's, an API server's, munge's or sshd's refusal; and text that only resembles a secret's name."""
    assert redact(text) == text
    assert printable(text) == text
    assert safe(text) == text


@pytest.mark.parametrize("value", VALUES)
def test_every_way_to_write_a_secret_is_masked_by_all(value: str) -> None:
    """Pods, log reader and host mask the same notations."""
    secret = VALUES[value]
    for written in WRITTEN:
        for line in LINES:
            text = line.replace("{}", written.format(secret))
            said = (redact(text), printable(text), safe(text), LineRedactor().line(text), *redact_value([text]))
            assert not any(shown(secret, each) for each in said), text
            assert all(MASK in each for each in said[:1]), text


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "clientSecret",
        "client-secret",
        "AWS_SECRET_ACCESS_KEY",
        "awsSecretAccessKey",
        "accessKey",
        "X-Api-Key",
        "x-auth-token",
        "dbPassword",
        "PASSWORD",
        "SSH_PASSPHRASE",
        "REGISTRY_CREDENTIALS",
        "_auth",
        "HTTP_AUTH",
        "Cookie",
        "private_key",
        "client-key-data",
        "SENTRY_DSN",
        "SLACK_WEBHOOK_URL",
        "DB_PWD",
        "GITHUB_PAT",
        "AZURE_STORAGE_CONNECTION_STRING",
        "AccountKey",
        "LICENSE_KEY",
        "TOKEN_READ",
    ],
)
@pytest.mark.parametrize(
    "form", ["{n}={v}", "{n}: {v}", '"{n}": "{v}"', "('{n}', '{v}')", "<{n}>{v}</{n}>", "{n}%3D{v}", "x{n}={v}"]
)
def test_names_of_secrets_are_known_in_every_form(name: str, form: str) -> None:
    """A value without a typical form is recognised by its name, whatever text precedes it."""
    for value in ("swordfish", "hunter2", "0123456789abcdef", "a-b_c.d/e+f=="):
        masked = redact(f"before {form.format(n=name, v=value)} after")
        assert value not in masked and masked.startswith("before ") and masked.endswith(" after")


def test_no_key_of_the_evidence_is_a_secrets_name() -> None:
    """Values under such keys are masked when evidence is read, and different nodes would look equal."""
    folder = ROOT / "jobs" / "run" / "stages"
    nodes = [node for path in folder.glob("*.py") for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    keys = {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    assert len(keys) > 100 and "signature" in keys
    assert {key for key in keys if secret_name(key)} == {"secret", "credentials"}  # a list, and the name of a Secret


def test_variables_are_hidden_by_their_names() -> None:
    """Sorted and bounded; each value is checked, too."""
    told = environment({"NCCL_DEBUG": "INFO", "FI_AUTH": "abc", "A": "token=abcdef " + "x" * 2000})
    assert list(told) == ["A", "FI_AUTH", "NCCL_DEBUG"]
    assert (told["FI_AUTH"], told["NCCL_DEBUG"]) == (MASK, "INFO")
    assert "abcdef" not in told["A"] and len(told["A"]) < 1100


def test_there_is_one_mask_and_one_place_that_knows_secrets() -> None:
    """A second implementation would recognise different secrets."""
    for folder in ("checks", "cli", "jobs", "reports", "seatrial"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and path.name != "redact.py":
                    assert not any(mask in node.value.lower() for mask in ("[redacted]", "<redacted>", "***")), path
                    assert "PASSW" not in node.value, path


@pytest.mark.parametrize("version", ["3.8.18", "3.13.0"])
def test_other_pythons_mask_the_same(version: str, tmp_path: Path) -> None:
    """Pods run the image's Python."""
    python = Path.home() / ".pyenv" / "versions" / version / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} is not installed here")
    (tmp_path / payload.ARCHIVE).write_bytes(payload.archive(payload.files()))
    texts = [written.format(secret) for written in WRITTEN for secret in VALUES.values()]
    code = f"import sys; sys.path.insert(0, {payload.ARCHIVE!r}); from {payload.PACKAGE}.reader.redact import redact\n"
    code += "for line in sys.stdin: print(redact(line.rstrip('\\n')))"
    done = subprocess.run(
        [python, "-c", code], input="\n".join(texts), capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout.splitlines() == [redact(text) for text in texts]
