"""The GPU profiler beside the real stormlog 0.4.3, both over the same stand-in for CUDA."""

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
pytestmark = pytest.mark.skipif(
    not PEER, reason="STORMLOG_PEER_PYTHON names no interpreter with stormlog 0.4.3"
)
Both = tuple[dict[str, Any], dict[str, Any]]


def run(python: str, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [python, str(HELPERS / "peer_profiler.py"), str(folder)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    return results


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Both:
    assert PEER
    root = tmp_path_factory.mktemp("profiler-compat")
    return run(PEER, root / "theirs"), run(sys.executable, root / "ours")


@pytest.mark.parametrize(
    "name", ["empty", "results", "names", "decorated", "limited", "loaded", "attributed"]
)
def test_results_equal_those_of_0_4_3(results: Both, name: str) -> None:
    theirs, ours = results
    assert ours[name] == theirs[name]


def test_snapshot_writes_the_same_files(results: Both) -> None:
    (their_files, theirs), (our_files, ours) = (side["native"] for side in results)
    our_files.remove("cuda_memory_categories.json")
    del ours["cuda_memory_categories.json"]
    assert our_files == their_files and ours == theirs


@pytest.mark.parametrize("name", ["summary", "saved"])
def test_ours_says_how_many_results_it_dropped(results: Both, name: str) -> None:
    theirs, ours = results
    summary = ours[name].get("summary", ours[name])
    assert summary.pop("results_dropped") == 0
    assert ours[name] == theirs[name]


def test_whatever_could_be_given_can_be_given(results: Both) -> None:
    theirs, ours = results
    for name, parameters in theirs["signatures"].items():
        assert ours["signatures"][name][: len(parameters)] == parameters, name
    assert set(theirs["public"]) <= set(ours["public"])
