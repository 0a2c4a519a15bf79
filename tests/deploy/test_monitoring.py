"""Alert rules and dashboard: every expression parses, and uses only emitted metrics and labels."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import promql_parser
import yaml
from prometheus_client.parser import text_string_to_metric_families

from reports.metrics import exposition
from reports.schema import completed
from tests.table import table

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "monitoring"
SIDE = {"busbw_gbps": 380.0}
JOB = {
    "hosts": [{"name": "h", "rails": {"0": ["mlx5_0:1"]}}],
    "tables": [{"collective": "all_reduce", "rows": [{"size_bytes": 8 << 30, "in_place": SIDE}]}],
}
RECORD = {
    "verdict": "go",
    "scope": "full",
    "started": "2026-01-02T00:00:00+00:00",
    "seconds": 10.0,
    "profile": "p",
    "checks": [{"id": "a.b", "outcome": "failed", "findings": [{"fault": "c.d", "ok": False}]}],
    "collectives": {"ring": JOB},
    "trial": {"dns_seconds": {"n": 0.1}},
    "coverage": {"pool": ["n"]},
}


def emitted() -> dict[str, set[str]]:
    """Return the names of all metrics with their labels, from a record with every section."""
    labels_of = {
        s.name: set(s.labels)
        for f in text_string_to_metric_families(
            exposition(completed(RECORD), bad={"n": True}, history={"n": (1.0, 2, 1)})
        )
        for s in f.samples
    }
    labels_of |= {"seatrial_record_readable": set()}  # from seatrial serve
    return {name: labels | {"namespace"} for name, labels in labels_of.items()}  # of the push or of the scrape


def expressions() -> Iterator[tuple[str, str]]:
    """Return every shipped PromQL expression with its place."""
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
    for group in rules["spec"]["groups"]:
        yield from ((rule["alert"], rule["expr"]) for rule in group["rules"])
    for panel in json.loads((FOLDER / "dashboard.json").read_text())["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])


def selectors(node: Any) -> Iterator[Any]:
    """Return all vector selectors of a parsed expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("expr", "lhs", "rhs", "param", "vector_selector"):
        child = getattr(node, name, None)
        if child is not None:
            yield from selectors(child)
    for child in getattr(node, "args", None) or ():
        yield from selectors(child)


@table("where, expression", list(expressions()))
def test_every_expression_asks_for_what_is_emitted(where: str, expression: str) -> None:
    """A dashboard with unknown metrics is empty, and an alert on them never fires."""
    known = emitted()
    tree = promql_parser.parse(expression)
    asked = list(selectors(tree))
    assert asked, where
    for selector in asked:
        assert selector.name in known, f"{where}: {selector.name}"
        labels = {matcher.name for matcher in selector.matchers.matchers}
        assert labels <= known[selector.name], f"{where}: {labels}"


def test_a_renamed_metric_would_be_noticed() -> None:
    """The test above can fail: an expression with a renamed metric is detected."""
    (selector,) = selectors(promql_parser.parse("max by (x) (seatrial_verdict) > 1"))
    assert selector.name not in emitted()


PANELS = json.loads((FOLDER / "dashboard.json").read_text())["panels"]


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    """Panels have known types, unique ids and no overlap; every variable used exists."""
    text = (FOLDER / "dashboard.json").read_text()
    board = json.loads(text)
    assert board["schemaVersion"] >= 39
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert {panel["type"] for panel in PANELS} <= {"stat", "timeseries", "table"}
    taken = [
        (x, y)
        for panel in PANELS
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
    variables = {variable["name"] for variable in board["templating"]["list"]}
    assert set(re.findall(r"\$\{?([a-z]\w*)", text)) == variables == {"datasource", "namespace"}
    for panel in PANELS:
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert target.get("instant", False) == (panel["type"] != "timeseries")  # else a stat has past values
            assert 'namespace=~"$namespace"' in target["expr"]


def test_every_metric_that_matters_is_shown() -> None:
    """Every emitted metric is on the page or in an alert, except for those that explain others."""
    asked = {selector.name for _, text in expressions() for selector in selectors(promql_parser.parse(text))}
    assert emitted().keys() - asked == {"seatrial_run_info", "seatrial_series_left_out"}


def test_the_collector_scrapes_what_serve_offers() -> None:
    """The documented configuration: its pipeline is complete, the port is serve's, the label is the alerts' grouping
    label."""
    from cli.serve import PORT

    text = (FOLDER.parents[1] / "docs" / "cronjob.md").read_text()
    config = yaml.safe_load(re.search(r"# collector.yaml\n(.*?)```", text, re.DOTALL)[1])
    (pipeline,) = config["service"]["pipelines"].values()
    assert set(pipeline["receivers"]) == config["receivers"].keys()
    assert set(pipeline["exporters"]) == config["exporters"].keys()
    (job,) = config["receivers"]["prometheus"]["config"]["scrape_configs"]
    assert "metrics_path" not in job  # /metrics, as in serve
    (target,) = job["static_configs"]
    assert target["targets"][0].endswith(f":{PORT}")
    assert set(target["labels"]) == {"namespace"}


def test_every_alert_says_what_it_means() -> None:
    """Each has summary, description and severity; one alert fires when no run happens any more."""
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["spec"]["groups"][0]["rules"]
    for rule in rules:
        assert {"summary", "description"} <= rule["annotations"].keys()
        assert rule["labels"]["severity"] in ("warning", "critical")
    assert {"SeatrialHasNotRun", "SeatrialNeverReported"} <= {rule["alert"] for rule in rules}
