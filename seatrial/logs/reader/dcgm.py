"""The output of `dcgmi diag`, as JSON or as its table: one result of each test and outcome.

Its JSON has two shapes, DCGM 3's with lists of GPUs and DCGM 4's with an entity each (github.com/NVIDIA/DCGM,
nvvs/include/NvvsCommon.h and testing/python3/tests/test_dcgm_diag.py); so has its table (dcgmi/Diag.cpp there: a row
"Fail - GPUs: 0, 1" of DCGM 3, rows "GPU0: Fail" of DCGM 4). The text is untrusted: it is bounded, and credentials are
redacted.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from . import redact

MOST_RESULTS, MOST_SAID, MOST_GPUS, TEXT = 256, 4, 64, 300
ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")  # the roots of DCGM 4, and of DCGM 3 and before
TABLE = b"| Diagnostic  "  # the beginning of a table's heading (dcgmi/Diag.cpp, DIAG_HEADER)
MARKS = (b'"DCGM Diagnostic"', b'"DCGM GPU Diagnostic"', TABLE)
"""The text near the beginning of every report."""


def read(text: bytes) -> Tuple[Optional[str], List[Dict[str, Any]], str]:
    """Return DCGM's version, the results and the problems of the JSON; warnings may precede and follow it."""
    whole = text.decode("utf-8", "replace")
    first, last = whole.find("{"), whole.rfind("}")
    if first < 0 or last < first:
        return None, [], "no JSON: %s" % whole[:TEXT] if whole.strip() else "no output"
    try:
        document = json.loads(whole[first : last + 1])
    except (ValueError, RecursionError) as error:
        return None, [], "broken JSON: %s" % error
    body = next((document[root] for root in ROOTS if isinstance(document.get(root), dict)), None)
    if body is None:
        return None, [], "the JSON is not from dcgmi diag: %s" % whole[first : first + TEXT]
    meta = document.get("metadata")
    version = body.get("version") or (meta.get("version") if isinstance(meta, dict) else None)
    results = _joined(_each_result(body))
    problem = body.get("runtime_error") or body.get("error")
    if not problem and not results:
        problem = "it reports no result: %s" % (body.get("warning") or "")
    return plain(version)[:40] or None, results, plain(problem)


def _joined(each_result: Iterator[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return one entry of each test and outcome; GPUs with exactly the same text share one."""
    results: List[Dict[str, Any]] = []
    known: Dict[str, Dict[str, Any]] = {}
    for result in each_result:
        key = json.dumps([result[name] for name in ("category", "test", "status", "said")])
        shares = known.get(key) if result["who"] and result["status"] != "fail" else None
        if shares is not None:
            shares["who"] = (shares["who"] + result["who"])[:MOST_GPUS]
        elif len(results) < MOST_RESULTS or result["status"] == "fail":
            known[key] = result
            results.append(result)
    failed = [result for result in results if result["status"] == "fail"]
    return (failed + [result for result in results if result["status"] != "fail"])[:MOST_RESULTS]


def _each_result(body: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    for category in _objects(body.get("test_categories")):
        for test in _objects(category.get("tests")):
            head = {"category": plain(category.get("category"))[:40], "test": plain(test.get("name"))[:60]}
            statuses = set()
            given = test.get("test_summary")
            summary = given if isinstance(given, dict) else {}
            for result in _objects(test.get("results")):
                statuses.add(_status(result))
                said = _said(result) or (_said(summary) if _status(summary) == _status(result) else [])
                yield dict(head, who=_who(result), status=_status(result), said=said)
            if summary and _status(summary) not in statuses:
                yield dict(head, who=[], status=_status(summary), said=_said(summary))


def _status(result: Mapping[str, Any]) -> str:
    """Return pass, fail, warn or skip for any release's spelling; anything else as printed."""
    word = plain(result.get("status")).lower()[:20]
    known = {"skipped": "skip", "not run": "skip", "notrun": "skip", "warning": "warn", "passed": "pass"}
    return {**known, "failed": "fail"}.get(word, word)


def _who(result: Mapping[str, Any]) -> List[str]:
    """Name the subject of a result: "GPU 3", or another kind of entity."""
    if result.get("entity_id") is not None:
        return ["%s %s" % (plain(result.get("entity_group"))[:20] or "entity", plain(result["entity_id"])[:10])]
    named = result.get("gpu_ids", result.get("gpu_id"))
    listed = named if isinstance(named, list) else str("" if named is None else named).split(",")
    return ["GPU %s" % each for each in map(plain, listed[:MOST_GPUS]) if re.match(r"\d{1,4}$", each)]


def _said(result: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Return the warnings, each with DCGM's own numbers if it has some; without one, its other text."""
    said: List[Dict[str, Any]] = []
    for key in ("warnings", "info"):
        given = result.get(key)
        for each in given if isinstance(given, list) else [given]:
            words = each if isinstance(each, dict) else {"warning": each}
            text = plain(words.get("warning"))
            numbers = {name: _number(words.get("error_" + name)) for name in ("id", "severity", "category")}
            if text and len(said) < MOST_SAID:
                said.append(dict(numbers, text=text))
        if said or _status(result) == "pass":
            break
    return said


def _number(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else None


def _objects(value: Any) -> List[Dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def plain(value: Any) -> str:
    """Return a text or a number as one line without credentials."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return ""
    return redact.redact(" ".join(str(value)[: 4 * TEXT].split()))[:TEXT]


# -- the table ---------------------------------------------------------------------------------------------------------
RULE = re.compile(r"\+-{9,}\+-{9,}\+\s*$")
"""The last line of a table, and the first; that of a category contains its name."""
_CATEGORY = re.compile(r"[|+]-{3,}  ([A-Z][\w ]{2,30}?)  -+\+-+[|+]\s*$")
_HEADING = re.compile(r"\+=+\+=+\+\s*$")
_ROW = re.compile(r"\|([^|]{9,})\|(.*)\|\s*$")
_ABOUT = re.compile(r"Diagnostic$|.* (?:Version|Detected|Version Detected)$")  # headings of rows that are not tests
_ENDED = re.compile(r"(Pass|Fail|Skip|Warn|Not Run)\b(?: - (.{1,400}))?$", re.IGNORECASE)
_ENTITY = re.compile(r"([A-Za-z]{2,20}) ?(\d{1,4}): (Pass|Fail|Skip|Warn|)$")
_DETAIL = re.compile(r"(Warning|Error|Info)(?:: ([A-Za-z]{2,20}) ?(\d{1,4}))?$")
_NAMED = re.compile(r"\s*GPU (\d{1,4})\b")
_WIDTH = 45  # characters of a text in one row (DATA_INFO_TAG_LEN)
_MOST_ROWS = 4096


def of_table(line: str) -> bool:
    """Return whether a line is part of a table."""
    return any(form.match(line) for form in (RULE, _CATEGORY, _HEADING, _ROW))


class _Test:
    """A test of a table: its overall outcome, those of entities, and its texts, by their subjects."""

    def __init__(self, category: str, name: str) -> None:
        self.head = {"category": category, "test": name}
        self.ends: List[Tuple[str, List[str]]] = []  # outcomes of its own row and those of DCGM 3 below, with the GPUs
        self.entities: List[Tuple[str, str]] = []
        self.said: List[Tuple[str, str, List[str]]] = []  # kind, subject, pieces

    def results(self) -> Iterator[Dict[str, Any]]:
        """Yield a result of each entity, or of the GPUs of each outcome."""
        ended = [status for status, _ in self.ends]
        for who, status in self.entities:
            # An entity with only a warning is printed as failed; the test's own row distinguishes them
            # (HelperDisplayDiagResult).
            how = "warn" if status == "fail" and "warn" in ended and "fail" not in ended else status
            yield dict(self.head, who=[who], status=how, said=self._of(who, how))
        known = {status for _, status in self.entities}
        for status, gpus in self.ends:
            if self.entities and (status in known or status == "warn"):
                continue
            about = [who for _, who, _ in self.said if who and (not gpus or who in gpus)]
            for who in list(dict.fromkeys(about))[:MOST_GPUS] if status == "fail" else []:
                yield dict(self.head, who=[who], status=status, said=self._of(who, status))
            rest = [who for who in gpus if who not in about]
            if status != "fail":
                yield dict(self.head, who=gpus, status=status, said=self._of("", status))
            elif rest or not about:
                for each in [[who] for who in rest] or [[]]:
                    yield dict(self.head, who=each, status=status, said=self._of("", status))

    def _of(self, who: str, status: str) -> List[Dict[str, Any]]:
        texts = {
            kind: [plain("".join(pieces)) for name, by, pieces in self.said if (name == "Info", by) == (kind, who)]
            for kind in (False, True)
        }
        chosen = texts[False] or (texts[True] if status != "pass" else [])
        numbers = dict.fromkeys(("id", "severity", "category"))
        return [dict(numbers, text=text) for text in chosen[:MOST_SAID] if text]


def read_table(lines: List[str]) -> Tuple[Optional[str], List[Dict[str, Any]], int, str]:
    """Return DCGM's version, the results, how many GPUs it found and the problems; the lines have no prefix."""
    version, gpus, category = None, 0, ""
    tests: List[_Test] = []
    whole, open_text = False, False
    for line in lines[:_MOST_ROWS]:
        heading, row = _CATEGORY.match(line), _ROW.match(line)
        if heading:
            category, open_text = heading.group(1), False
        elif RULE.match(line):
            whole = bool(tests)
        elif row:
            name, cell = row.group(1).strip(), row.group(2)[1:] if row.group(2)[:1] == " " else row.group(2)
            value = cell.strip()
            if name == "DCGM Version":
                version = plain(value)[:40] or None
            elif name.startswith("GPU Device IDs"):
                gpus = len(value.split(",")) if value else 0
            elif not _ABOUT.match(name) or _ENDED.match(value):
                open_text = _take_row(tests, category, name, cell, open_text)
    results = _joined(result for test in tests for result in test.results())
    problem = "" if results else "it reports no result"
    return version, results, gpus, problem if whole else "its table is cut short"


def _take_row(tests: List[_Test], category: str, name: str, cell: str, open_text: bool) -> bool:
    """Take one row; return whether the next one may continue its text."""
    value, detail, test = cell.strip(), _DETAIL.match(name), tests[-1] if tests else None
    if name and not detail:
        tests.append(_Test(plain(category)[:40], plain(name)[:60]))
        _end(tests[-1], value)
        return False
    if test is None:
        return False
    entity = _ENTITY.match(value) if not name else None
    if entity:
        test.entities.append(("%s %s" % entity.group(1, 2), _status({"status": entity.group(3)})))
        return False
    if detail:
        whose = _NAMED.match(cell)
        who = "GPU " + whose.group(1) if whose else ""
        who = "%s %s" % detail.group(2, 3) if detail.group(2) else who
        test.said.append((detail.group(1), who, [cell[:_WIDTH]]))
    elif open_text:
        test.said[-1][2].append(cell[:_WIDTH])
    elif value:
        _end(test, value)
    return open_text or detail is not None


def _end(test: _Test, value: str) -> None:
    match = _ENDED.match(value)
    gpus = re.findall(r"\d{1,4}", match.group(2) or "")[:MOST_GPUS] if match else []
    status = _status({"status": match.group(1) if match else value})
    test.ends.append((status, ["GPU " + each for each in gpus]))
