"""`stormlog.tui` beside stormlog 0.4.3: equal inputs give equal rows, sessions, warnings and texts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import HELPERS

PEER = os.environ.get("STORMLOG_PEER_PYTHON")
Results = dict[str, Any]


def run(python: str, folder: Path) -> Results:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [python, str(HELPERS / "peer_tui.py"), str(folder)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    results: Results = json.loads(done.stdout)
    return results


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Results]:
    if not PEER:
        pytest.skip("STORMLOG_PEER_PYTHON names no interpreter with stormlog 0.4.3")
    folder = tmp_path_factory.mktemp("tui").resolve()
    return run(sys.executable, folder), run(PEER, folder)


def compare(ours: Any, theirs: Any, place: str) -> None:
    if isinstance(theirs, dict):
        assert isinstance(ours, dict), place
        assert ours.keys() == theirs.keys(), place
        for key, value in theirs.items():
            compare(ours[key], value, f"{place}.{key}")
    elif isinstance(theirs, list) and theirs and isinstance(theirs[0], (dict, list)):
        assert len(ours) == len(theirs), place
        for number, value in enumerate(theirs):
            compare(ours[number], value, f"{place}[{number}]")
    else:
        assert ours == theirs, place


@pytest.mark.parametrize("part", ["models", "selected", "unknown", "loads", "filters", "tables"])
def test_the_same_inputs_give_the_same_results(part: str, both: tuple[Results, Results]) -> None:
    ours, theirs = both
    compare(ours[part], theirs[part], part)


def test_the_stories_show_every_signal(both: tuple[Results, Results]) -> None:
    models = both[0]["models"].values()
    signals = {row["first_anomaly_signal"] for model in models for row in model["rows"]}
    signals |= {indicator["signal"] for model in models for indicator in model["indicators"]}
    kinds = {signal.partition(":")[0] for signal in signals - {None}}
    assert kinds == {"alert", "gap_ratio_breach", "gap", "collective"}
