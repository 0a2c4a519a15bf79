"""Conversations with documented or recorded answers, run on one served `sim healthy`.

A case is a list of steps in the form of the recorded contract (api-contract/README.md): `do`, `body`, `headers`, `as`,
`until`; here each step also has its expectation: `code`, `expect: {path: value}`, `matches: {path: regex}`, `warnings:
[texts]`.
"""

from __future__ import annotations

import base64
import json
import random
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.lab.serving import serving
from tests.waiting import HANG_S, until

CASES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))
PREFIXES = {
    "core": "/api/v1/namespaces/{ns}",
    "batch": "/apis/batch/v1/namespaces/{ns}",
    "apps": "/apis/apps/v1/namespaces/{ns}",
    "rbac": "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}",
    "policy": "/apis/policy/v1/namespaces/{ns}",
}
ABSENT = "<absent>"
LEAST = 0.97  # minimum share of equal recorded steps


@pytest.fixture(scope="module")
def served(root, tmp_path_factory):
    with serving(root, tmp_path_factory.mktemp("contract")) as folder:
        yield folder


class Conversation:
    """One running case."""

    def __init__(self, folder: Path, case: dict):
        self.case = case
        self.names = {"rand": f"{random.randrange(16**6):06x}"}
        self.names["ns"] = f"case-{case['name'][:40]}-{self.names['rand']}"
        for key, path in PREFIXES.items():
            self.names[key] = path.format(**self.names)
        self.users = {}
        for who in ("admin", "nobody"):
            config = yaml.safe_load((folder / who).read_text())
            self.server = config["clusters"][0]["cluster"]["server"]
            self.users[who] = config["users"][0]["user"]["token"]
        ca = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        self.context = ssl.create_default_context(cadata=ca)

    def fill(self, value):
        if isinstance(value, dict):
            return {self.fill(key): self.fill(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        return (
            re.sub(r"\{(\w+)\}", lambda m: str(self.names.get(m[1], m[0])), value) if isinstance(value, str) else value
        )

    def ask(self, do: str, body=None, headers=None, who: str = "admin"):
        method, _, path = self.fill(do).partition(" ")
        sent = {"Content-Type": "application/json", "Authorization": f"Bearer {self.users[who]}", **(headers or {})}
        raw = json.dumps(self.fill(body)).encode() if body is not None else None
        request = urllib.request.Request(self.server + path, raw, sent, method=method)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=HANG_S) as answer:
                return answer.status, json.loads(answer.read()), answer.headers.get_all("Warning") or []
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read()), error.headers.get_all("Warning") or []

    def run(self) -> list[str]:
        namespace = {"metadata": {"name": self.names["ns"], "labels": self.case.get("labels", {})}}
        self.ask("POST /api/v1/namespaces", namespace)
        until(lambda: self.ask("GET {core}/serviceaccounts/default")[0] == 200, "the namespace's account")
        try:
            return [f"{step['name']}: {problem}" for step in self.case["steps"] for problem in self.step(step)]
        finally:
            for path in self.case.get("cleanup", []):
                self.ask(f"DELETE {path}")
            self.ask("DELETE /api/v1/namespaces/{ns}")

    def step(self, step: dict) -> list[str]:
        problems: list[str] = []

        def as_expected() -> bool:
            code, answer, warnings = self.ask(
                step["do"], step.get("body"), step.get("headers"), step.get("as", "admin")
            )
            problems[:] = self.compare(step, code, answer, warnings)
            for name, path in step.get("capture", {}).items():
                self.names[name] = pick(answer, path)
            return not problems

        if step.get("until"):
            until(as_expected, step["name"], lambda: problems)
        else:
            as_expected()
        return problems

    def compare(self, step: dict, code: int, answer, warnings: list[str]) -> list[str]:
        problems = []
        if code != step.get("code", 200):
            problems.append(f"code {code}, not {step.get('code', 200)}: {str(answer.get('message', ''))[:400]}")
        for path, expected in self.fill(step.get("expect", {})).items():
            if pick(answer, path) != expected:
                problems.append(f"{path} is {pick(answer, path)!r}, not {expected!r}")
        for path, pattern in self.fill(step.get("matches", {})).items():
            if not re.fullmatch(pattern, str(pick(answer, path)), re.DOTALL):
                problems.append(f"{path} is {pick(answer, path)!r}, not like {pattern!r}")
        if "warnings" in step and (texts := [text[7:-1].replace('\\"', '"') for text in warnings]) != step["warnings"]:
            problems.append(f"warnings are {texts}")
        return problems


def pick(value, path: str):
    """Evaluate a path: `a.b[0].c`, `["a.b/c"]`, `[type=Ready]`, `[*]`, and `|len`, `|sort` at the end."""
    path, *pipes = path.split("|")
    for quoted, bracket, name in re.findall(r'\["([^"]+)"\]|\[([^\]]+)\]|([^.\[\]]+)', path):
        if isinstance(value, list) and value and isinstance(value[0], Many):
            value = [
                Many(pick(item.value, f'["{quoted}"]' if quoted else f"[{bracket}]" if bracket else name))
                for item in value
            ]
        elif bracket == "*":
            value = [Many(item) for item in value] if isinstance(value, list) else ABSENT
        elif bracket and "=" in bracket:
            key, _, expected = bracket.partition("=")
            value = (
                next((item for item in value if str(item.get(key)) == expected), ABSENT)
                if isinstance(value, list)
                else ABSENT
            )
        elif bracket:
            value = value[int(bracket)] if isinstance(value, list) and len(value) > int(bracket) else ABSENT
        else:
            value = value.get(quoted or name, ABSENT) if isinstance(value, dict) else ABSENT
    if isinstance(value, list) and value and isinstance(value[0], Many):
        value = [item.value for item in value]
    for pipe in pipes:
        value = {"len": lambda v: len(v) if v != ABSENT else 0, "sort": sorted}[pipe](value)
    return value


class Many:
    """Several values that a path traverses at once."""

    def __init__(self, value):
        self.value = value


@pytest.mark.slow
@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_a_documented_conversation(path, served):
    """The expectation is that of Kubernetes 1.36."""
    case = yaml.safe_load(path.read_text())
    assert case["name"] == path.stem
    problems = Conversation(served, case).run()
    assert not problems, "\n".join(problems)


@pytest.mark.slow
def test_the_recorded_conversations(served, shared):
    """At least 97 % of the recorded steps are equal, and no case is omitted."""
    out = served / "replay.json"
    command = [sys.executable, shared / "api-contract" / "replay.py", "--jobs", "4", "--json", out, "--slow", "2"]
    command += ["--kubeconfig", served / "admin", "--nobody-kubeconfig", served / "nobody"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=HANG_S)
    outcomes = json.loads(out.read_text())
    assert [outcome["case"] for outcome in outcomes if outcome["result"] == "n/a"] == []
    steps = [step for outcome in outcomes for step in outcome["steps"]]
    equal = sum(not step["differences"] for step in steps)
    assert equal >= LEAST * len(steps), done.stdout[-4000:]
