"""The forms of `explain` for programs and browsers: the published schema, and the page of a hang."""

from __future__ import annotations

import html
import itertools
import json
import re
import types
import typing
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest

from cli.explain import main
from reports.explain_page import MAX_HOSTS, to_html
from seatrial.faults.actions import in_words
from seatrial.logs import job_document
from tests.hang.recorded import DATA as HANG

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "explain.schema.json"
LOG = Path(__file__).resolve().parents[1] / "logs" / "data" / "recorded" / "ib-disabled.log"
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema_of(hint, definitions):  # noqa: PLR0911 -- one return per form
    """Return the JSON Schema of a type of seatrial/logs/job_document.py."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is typing.Any:
        return {}
    if origin in (typing.NotRequired, typing.Annotated):
        return schema_of(inner[0], definitions)
    if origin is typing.Literal:
        return {"enum": list(inner)}
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [schema_of(part, definitions) for part in inner]}
    if origin is list:
        return {"type": "array", "items": schema_of(inner[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(inner[1], definitions)}
    if typing.is_typeddict(hint):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}
            hints = typing.get_type_hints(hint, vars(job_document), include_extras=True)
            optional = {name for name, part in hints.items() if typing.get_origin(part) is typing.NotRequired}
            definitions[hint.__name__] |= {
                "description": hint.__doc__.splitlines()[0],
                "type": "object",
                "properties": {name: schema_of(part, definitions) for name, part in hints.items()},
                "required": sorted(set(hints) - optional),
            }
        return {"$ref": f"#/$defs/{hint.__name__}"}
    return {"type": _PLAIN[hint]}


def made():
    definitions = {}
    job = schema_of(job_document.JobDocument, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "seatrial explain --format json",
        "type": "object",
        "properties": {"schema": {"const": 1}, "jobs": {"type": "array", "items": job}},
        "required": ["schema", "jobs"],
        "$defs": dict(sorted(definitions.items())),
    }


def test_the_published_schema_is_that_of_the_types():
    """docs/explain.schema.json; after a change write json.dumps(made(), indent=1) to it."""
    assert json.loads(SCHEMA.read_text()) == made()


XID = "[1.2] NVRM: Xid (PCI:0000:3b:00): {}, {}\n"
RECOVERY = "GPU recovery action changed from 0x0 (None) to "


@pytest.mark.parametrize(
    ("line", "action"),
    [
        (XID.format(79, "pid=1, name=python, Ch 1"), "REBOOT_NODE"),
        (XID.format(95, "pid=1, name=python, Ch 1"), "RESET_GPU"),
        (XID.format(94, "pid=1, name=python, Ch 1"), "RESTART_APP"),
        (XID.format(74, "pid=1, name=python, Ch 1"), "UNKNOWN"),
        (XID.format(145, "pid=1, name=python, Ch 1"), "UNKNOWN"),
        (XID.format(62, "pid=1, name=python, Ch 1"), "RESET_GPU"),
        (XID.format(154, RECOVERY + "0x2 (Node Reboot Required)"), "REBOOT_NODE"),
        (XID.format(154, RECOVERY + "0x1 (GPU Reset Required)"), "RESET_GPU"),
        ("pynvml.NVMLError_GpuIsLost: GPU is lost\n", "REBOOT_NODE"),
        ("Detected NVIDIA error (XID 79) on GPU 3\n", "REBOOT_NODE"),
        (
            XID.format(13, "pid=1, name=python, Ch 1")
            + "ChildFailedError\nE1 api.py:1] failed (exitcode: 1) local_rank: 0 (pid: 1) of x\n",
            "",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n", ""),
    ],
)
def test_what_to_do_with_a_node_is_in_every_form(line, action, tmp_path, capsys):
    """The action comes from the table of Xids or the fault's own entry; a program's own fault requires none."""
    (tmp_path / "x.log").write_text(line)
    said = {}
    for form in ("json", "text", "markdown", "html"):
        main([str(tmp_path / "x.log"), "--format", form])
        said[form] = capsys.readouterr().out
    assert {fault.get("action", "") for fault in json.loads(said["json"])["jobs"][0]["faults"]} == {action}
    for form in ("text", "markdown", "html"):
        text = " ".join(html.unescape(re.sub(r"<[^>]+>|\\", " " if form == "html" else "", said[form])).split())
        assert text.count(f"{action}: {in_words(action)}") == 1 if action else "RESTART_APP" not in text, form


@pytest.mark.parametrize(
    "path", [LOG, HANG / "nccl-2.28.9" / "sleep", HANG / "dies", HANG / "nested"], ids=lambda p: p.name
)
def test_what_explain_prints_is_of_that_form(path, capsys):
    main([str(path), "--format", "json"])
    jsonschema.validate(json.loads(capsys.readouterr().out), json.loads(SCHEMA.read_text()))


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.marked, self.now = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)
        self.now = dict(attrs).get("class") or ""

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "rank " in self.now:
            self.marked.append((self.now.removeprefix("rank "), data.strip()))
            self.now = ""


def test_the_page_of_a_hang_marks_the_late_rank_and_its_host(capsys):
    main([str(HANG / "nccl-2.28.9" / "sleep"), "--format", "html"])
    text = capsys.readouterr().out
    page = Page(text)
    assert page.open == []
    assert ("late", "2") in page.marked
    assert ("waiting", "0") in page.marked
    assert re.search(r'<th scope="row" class="late">vm \(gpu-node-2\)</th>', text)
    assert "socket x2" in text
    assert page.tags.count("script") == 1  # the script of every page, which the policy identifies by its digest
    assert "script-src 'sha256-" in text


def test_nothing_of_a_log_is_markup_and_a_large_job_is_bounded(capsys):
    main([str(LOG), "--format", "json"])
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    evil = "<script>alert(1)</script>"
    hosts = [f"{evil}{n}" for n in range(200)]
    job["pairs"] = [{**job["pairs"][0], "src": a, "dst": b} for a, b in itertools.pairwise(hosts)]
    job["hosts"] = [
        {**job["hosts"][0], "name": name, "ranks": list(range(n * 64, n * 64 + 64))} for n, name in enumerate(hosts)
    ]
    job["sentence"], job["places"] = (
        evil,
        {"3": {"host": evil, "gpu": None, "pid": None, "last_words": evil + "x" * 10**6}},
    )
    job["late_ranks"] = [64 * 150]
    text = to_html([job])
    assert "<script>alert" not in text
    assert len(text) < 2_000_000
    assert text.count("<tr><th scope") <= 2 * MAX_HOSTS + 2
    assert re.search(r'class="rank late">9600<', text)


def test_the_page_has_both_colour_schemes_and_says_what_to_switch_on(capsys):
    """Colours are variables that the dark scheme redefines, all of them; evidence without a line has no number."""
    main([str(HANG / "nested"), "--format", "html"])
    text = capsys.readouterr().out
    light, dark = text.partition("prefers-color-scheme: dark")[::2]
    names = set(re.findall(r"(--[\w-]+): #", light))
    assert names == set(re.findall(r"(--[\w-]+): #", dark))
    assert names
    assert names >= set(re.findall(r"var\((--[\w-]+)\)", text))
    assert re.findall(r"#[0-9a-f]{3,6}\b", text.partition("* {")[2].partition("</style>")[0]) == []
    assert "Flight Recorder rank" in re.sub(r"<[^>]*>", "", text)
    main([str(HANG / "nccl-2.28.9" / "untimed-stalled"), "--format", "html"])
    assert "<h2>Next time</h2>" in capsys.readouterr().out
