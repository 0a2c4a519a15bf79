"""JUnit's file as pytest writes it, with the facts of the run as properties of the suite."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from .actions import in_one_line
from .record import Run, write_atomically
from .summary import summarize


def stamp(path: Path, run: Run) -> None:
    """Name the suite and add the run's facts as its properties; a file that pytest did not write is left alone."""
    if not path.is_file():
        return
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 -- pytest wrote it just now
    for suite in root.iter("testsuite"):
        suite.set("name", "seatrial (SIMULATED)" if run.simulated else "seatrial")
        facts = ElementTree.Element("properties")
        for name, value in (
            ("verdict", str(run.verdict)),
            ("headline", summarize(run.to_dict()).headline),
            ("exit_code", str(run.exit_code)),
            ("simulated", str(run.simulated).lower()),
            ("scope", run.scope),
            ("nodes_tried", str(len(run.coverage.tried))),
            ("nodes_in_pool", "unknown" if run.pool is None else str(len(run.pool))),
            ("nodes_not_tried", run.coverage.not_tried()),
            ("run_id", run.run_id),
            ("profile", run.profile or ""),
            ("node_actions", in_one_line(run.actions)),
            ("leftovers", ", ".join(run.leftovers)),
        ):
            ElementTree.SubElement(facts, "property", name=name, value=value)
        suite.insert(0, facts)
    write_atomically(path, ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n")
