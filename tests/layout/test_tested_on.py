"""`docs/tested-on.md` equals the results of the last runs on real clusters, for exactly the existing tests."""

import re

from tests.conftest import ROOT
from tests.real_cluster.page import title

FOLDER = ROOT / "tests/real_cluster"


def test_the_page_has_every_situation_and_no_other():
    """`make test-real PAGE=1` regenerates it."""
    there = {
        title(f"{path.name}::{name}")
        for path in FOLDER.glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    situations = (ROOT / "docs/tested-on.md").read_text().partition("## Situations")[2]
    rows = re.findall(r"^\| ([A-Z][^|]+?)(?: \([^|]*\))? \| ", situations, re.MULTILINE)
    assert set(rows) == there
