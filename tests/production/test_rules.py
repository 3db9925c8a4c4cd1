"""The printed alert rules, by Prometheus's own `promtool`: they fire on what they are for, and resolve."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import components
import pytest

HERE = Path(__file__).parent


def printed(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "stormlog", *words], capture_output=True, text=True, check=True
    )
    return done.stdout


def promtool(*words: str | Path) -> str:
    tool = components.unpacked("sid", *components.MONITORING) / "usr/bin/promtool"
    done = subprocess.run([str(tool), *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(printed("rules"))
    assert "SUCCESS: 14 rules found" in promtool(
        "check", "rules", "--lint=all", "--lint-fatal", tmp_path / "rules.yml"
    )


def test_every_alert_fires_on_what_it_is_for_and_on_nothing_like_it(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(printed("rules"))
    shutil.copy(HERE / "rules_cases.yml", tmp_path)
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "rules_cases.yml")


def test_resource_for_the_operator_holds_rules_that_promtool_accepts(tmp_path: Path) -> None:
    """The operator cannot be had here: its groups are handed to promtool as the operator does."""
    head, spec = printed("rules", "--format", "kubernetes").split("\nspec:\n")
    assert "kind: PrometheusRule" in head and "apiVersion: monitoring.coreos.com/v1" in head
    lines = [line.removeprefix("  ") for line in spec.splitlines(keepends=True)]
    (tmp_path / "rules.yml").write_text("".join(lines))
    assert "SUCCESS: 14 rules found" in promtool("check", "rules", tmp_path / "rules.yml")


@pytest.fixture(scope="module")
def dashboard() -> Any:
    return json.loads(printed("dashboard"))


def test_schema_of_the_dashboard_without_a_grafana(dashboard: Any) -> None:
    """Grafana itself cannot be had: what an import needs is checked here, never by eye."""
    (entry,) = dashboard["__inputs"]
    assert entry["type"] == "datasource" and entry["pluginId"] == "prometheus"
    names = [variable["name"] for variable in dashboard["templating"]["list"]]
    assert names == ["datasource", "job_id", "host", "rank"]
    assert dashboard["templating"]["list"][0]["current"]["value"] == "${" + entry["name"] + "}"
    titles = [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"]
    assert titles == ["Near the limit", "Host", "Device split", "Ranks", "Deaths", "What holds it", "Reader"]
    kinds = {"row", "timeseries", "table", "status-history", "bargauge", "stat"}
    ids, cells = set(), set()
    for panel in dashboard["panels"]:
        assert panel["type"] in kinds and panel["id"] not in ids
        ids.add(panel["id"])
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not covered & cells, f"{panel['title']} is over another panel"
        cells |= covered
        if panel["type"] == "row":
            continue
        assert panel["title"] and panel["description"] and panel["fieldConfig"]["defaults"]["unit"]
        letters = [target["refId"] for target in panel["targets"]]
        assert letters and len(set(letters)) == len(letters)
        for target in panel["targets"]:
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert target["expr"] and target["legendFormat"]
