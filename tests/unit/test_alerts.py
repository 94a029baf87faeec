"""The dashboard and the alert rules name metrics, labels and pages that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gnomon.telemetry.metrics import METRICS

PAGES = Path(__file__).parents[2] / "docs" / "operate"
RULES = (PAGES / "alerts.yml").read_text()
DASHBOARD = json.loads((PAGES / "grafana.json").read_text())
RUNBOOK = (PAGES / "alerts.md").read_text()
ALERTS = re.findall(r"^ +- alert: (\w+)$", RULES, re.MULTILINE)
BUILT_IN = {"job", "instance", "le"}
NAMES = {
    name: metric
    for metric in METRICS
    for name in (
        [f"{metric.exported_name}{end}" for end in ("_bucket", "_sum", "_count")]
        if metric.kind == "histogram"
        else [metric.exported_name]
    )
}


def expressions() -> list[str]:
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    return shown + re.findall(r"^ +expr: '(.*)'$", RULES, re.MULTILINE)


def names_in(expression: str) -> list[str]:
    return re.findall(r"\bgnomon_\w+", expression)


def labels_in(expression: str) -> set[str]:
    """Those that it groups by or filters by."""
    grouped = re.findall(r"\bby \(([^)]*)\)", expression)
    filtered = re.findall(r"(\w+)=~?\"", expression)
    return {name.strip() for group in grouped for name in group.split(",")} | set(filtered)


def slips(expression: str) -> list[str]:
    """What is named and does not exist, and gauges of the installation that are added up."""
    unknown = [name for name in names_in(expression) if name not in NAMES]
    metrics = [NAMES[name] for name in names_in(expression) if name in NAMES]
    known = BUILT_IN | {label for metric in metrics for label in metric.labels}
    added = [
        metric.name
        for metric in metrics
        if metric.of == "installation"
        and re.search(rf"sum(?: by \([^)]*\))? ?\({metric.exported_name}", expression)
    ]
    return unknown + sorted(labels_in(expression) - known) + added


def test_every_expression_names_what_there_is() -> None:
    """A renamed metric would leave an alert that never fires."""
    assert len(expressions()) > 30
    assert [] == [f"{text}: {slips(text)}" for text in expressions() if slips(text)]


@pytest.mark.parametrize(
    "expression",
    [
        "max(gnomon_worker_alive)",
        "max by (quue) (gnomon_actions_overdue)",
        'max(gnomon_actions_overdue{que="x"})',
        "sum(gnomon_actions_overdue)",
        "sum by (queue) (gnomon_actions_dead)",
        "rate(gnomon_lateness_seconds[5m])",
    ],
)
def test_the_check_can_fail(expression: str) -> None:
    assert slips(expression)


def test_every_alert_has_its_entry_in_the_runbook() -> None:
    """And every entry its alert, in the same order."""
    assert ALERTS == re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE)
    anchors = re.findall(r"^ +runbook: docs/operate/alerts.md#(\w+)$", RULES, re.MULTILINE)
    assert [name.lower() for name in ALERTS] == anchors
    assert len(ALERTS) == len(set(ALERTS))


def test_the_rules_are_complete() -> None:
    """Each with an expression, a time, a severity and a sentence."""
    (group,) = yaml.safe_load(RULES)["groups"]
    assert ALERTS == [rule["alert"] for rule in group["rules"]]
    for rule in group["rules"]:
        assert {"alert", "expr", "for", "labels", "annotations"} == rule.keys()
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"].endswith(".")
