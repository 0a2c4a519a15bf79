"""The language of the repository: first lines of modules, existing file names, and the field's terms."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from cli.listing import all_checks
from seatrial.faults.advice import FAULTS

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("checks", "cli", "jobs", "lab", "reports", "seatrial", "benchmarks")


def test_a_modules_first_line_says_what_it_is():
    """A first line is a noun phrase or a sentence, never a question, since readers search the first lines."""
    questions = [
        str(path.relative_to(ROOT))
        for package in (*PACKAGES, "tests")
        for path in sorted((ROOT / package).rglob("*.py"))
        if "?" in (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "?").splitlines()[0]
    ]
    assert not questions


PLACEHOLDER = re.compile(r"[A-Z]{4,}|\*")  # NAME, FAMILY in the how-tos
NAMED = re.compile(rf"(?<![\w./-])((?:{'|'.join((*PACKAGES, 'docs', 'tests'))})/[\w*./-]+\.(?:py|yaml|md|json))\b")


def test_files_that_are_named_are_there():
    """Paths from the root in pages, docstrings and comments; a placeholder matches any name."""
    texts = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        ROOT / "Makefile",
        ROOT / "pyproject.toml",
        *(ROOT / "docs").glob("*.md"),
    ]
    texts += [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    made = set(re.findall(r"```(?:yaml|python)\n# (\S+)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    named = {(path, name) for path in texts for name in NAMED.findall(path.read_text(encoding="utf-8"))}
    made |= {"seatrial/__main__.py", "seatrial/conftest.py"}  # of a wheel: created by pyproject.toml
    named = {(path, name) for path, name in named if name not in made}  # not written by the reader
    missing = {
        f"{path.relative_to(ROOT)}: {name}" for path, name in named if not any(ROOT.glob(PLACEHOLDER.sub("*", name)))
    }
    assert len(named) > 50
    assert not missing


MOST_WORDS = 8
NOT_SAID = re.compile(
    r"\b(?:told|tells(?!:)|speaks|in vain|alike|stands?|held against|beside|besides|nobody|somebody|of its own|accuses?|blames?"
    r"|innocent|wires?|is none|is not there|comes? to|takes? away|paid for|built alike)\b"
)
"""Words that the field does not use and users do not search for."""


def test_titles_of_checks_and_faults_are_short_and_in_the_fields_words():
    """A title has a subject and its state: it appears in tables and searches."""
    titles = {fault: known.title for fault, known in FAULTS.items()}
    titles |= {check: entry.title for check, entry in all_checks().items()}
    assert len(titles) > 300
    assert not {name: title for name, title in titles.items() if len(title.split()) > MOST_WORDS}
    assert not {name: title for name, title in titles.items() if NOT_SAID.search(title)}


GENERATED = {"objects.md", "rehearsals.md", "tested-on.md"}  # generated from types, scenarios and runs
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def test_pages_are_in_the_fields_words():
    """README, changelog and the pages of docs; commands and their output are excluded."""
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]
    texts = {page.name: CODE.sub("", page.read_text(encoding="utf-8")) for page in pages if page.name not in GENERATED}
    assert len(texts) > 20
    assert not {name: found for name, text in texts.items() if (found := NOT_SAID.findall(text))}


def test_what_a_report_prints_of_a_check_is_in_the_fields_words():
    """A check's docstring has the assertion, its importance, and the usual cause."""
    docstrings = {
        node.name: ast.get_docstring(node) or ""
        for path in (ROOT / "checks").glob("test_*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    assert len(docstrings) > 80
    assert not {name: found for name, text in docstrings.items() if (found := NOT_SAID.findall(text))}


GONE = re.compile(
    r"\b(?:told|tells(?!:)|speaks?|spoke|in vain|alike|stands?(?!-)|stood|held against|beside|nobody|somebody"
    r"|accus\w+|blames?|blamed|innocent|is none|is not there|come(?:s|) to (?:an|its|their) end|takes? away|taken away"
    r"|mend|last word)\b"
)
"""Words of NOT_SAID that no sentence of the code may have in any form; names in backticks are code."""
NOT_A_SENTENCE = re.compile(r"`+[^`]*`+|\{[^{}]*\}|user nobody|--\S+")


TEXTS = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))  # the latter since Python 3.12


def sentences(path: Path) -> Iterator[str]:
    """Yield comments, docstrings and messages of a module, without single words, which are keys, names or values."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.COMMENT or (token.type in TEXTS and " " in token.string):
            yield NOT_A_SENTENCE.sub("", token.string)


def test_what_the_code_says_is_in_the_fields_words():
    """Messages for users, and docstrings and comments for developers, use the field's terms."""
    said = {path: list(sentences(path)) for room in (*PACKAGES, "seatrial") for path in (ROOT / room).rglob("*.py")}
    assert sum(map(len, said.values())) > 15_000
    found = {str(path.relative_to(ROOT)): GONE.findall("\n".join(texts)) for path, texts in said.items()}
    assert not {path: words for path, words in found.items() if words}


GONE_FROM_TESTS = re.compile(
    rf"{GONE.pattern}|\b(?:besides|whoever|everybody|wires?|paid for|of its own|word on)\b", re.IGNORECASE
)
"""Words that no docstring or comment of a test may have; its other texts are input."""


def remarks(path: Path) -> Iterator[str]:
    """Yield docstrings and comments of a module; names in backticks are code."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield NOT_A_SENTENCE.sub("", node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield NOT_A_SENTENCE.sub("", token.string)


def test_docstrings_and_comments_of_tests_are_in_the_fields_words():
    """A test's docstring is the requirement that it pins, for the reader of a failure."""
    texts = {path: list(remarks(path)) for path in (ROOT / "tests").rglob("*.py")}
    assert sum(map(len, texts.values())) > 5_000
    found = {str(path.relative_to(ROOT)): GONE_FROM_TESTS.findall("\n".join(each)) for path, each in texts.items()}
    assert not {path: words for path, words in found.items() if words}


def test_what_the_catalogue_says_is_in_the_fields_words():
    """Meaning, cause, confirmation and remedy of each fault in the YAML; quoted log texts are in its patterns."""
    shown = re.compile(
        r"^ *(?:- )?(?:title|meaning|cause|confirm|remedy): *(.*(?:\n {6,}(?!\w+:|- ).*)*)", re.MULTILINE
    )
    texts = {path.name: shown.findall(path.read_text(encoding="utf-8")) for path in ROOT.glob("*/faults/**/*.yaml")}
    assert sum(map(len, texts.values())) > 1000
    found = {name: GONE.findall("\n".join(said)) for name, said in texts.items()}
    assert not {name: words for name, words in found.items() if words}
