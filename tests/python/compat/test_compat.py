"""The same calls through stormlog 0.4.3 and through ours: equal results and equal error texts.

The peer runs in an environment of its own, named by STORMLOG_PEER_PYTHON (an interpreter that has it). Where
we differ on purpose the case is in DIFFERENCES with the reason; anything else that differs is a bug.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import compat_run
import pytest
from compat_cases import CASES
from compat_differences import DIFFERENCES
from places import HELPERS, TESTS

PEER = os.environ.get("STORMLOG_PEER_PYTHON")
pytestmark = pytest.mark.skipif(
    not PEER, reason="STORMLOG_PEER_PYTHON names no interpreter with stormlog 0.4.3"
)

Results = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compat")
    compat_run.write_files(path)
    return path


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Results:
    assert PEER
    # Neither our package nor this process's settings may reach the peer.
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [PEER, str(HELPERS / "compat_run.py"), str(folder)]
    done = subprocess.run(
        command, env=env, cwd=folder, capture_output=True, text=True, check=True, timeout=300
    )
    results: Results = json.loads(done.stdout)
    return results


@pytest.fixture(scope="module")
def ours(folder: Path) -> Results:
    results: Results = compat_run.run_all(folder)
    return results


def test_the_peer_is_the_release_we_follow() -> None:
    assert PEER
    code = "from importlib.metadata import version; print(version('stormlog'))"
    done = subprocess.run([PEER, "-c", code], capture_output=True, text=True, check=True, cwd=TESTS)
    assert done.stdout.strip() == "0.4.3"


@pytest.mark.parametrize("name", sorted(set(CASES) - set(DIFFERENCES)))
def test_same(name: str, theirs: Results, ours: Results, folder: Path) -> None:
    if name.startswith("load") and "text" in theirs[name]:
        # Ours say where in front of what, which is the only difference there may be.
        assert ours[name]["error"] == theirs[name]["error"]
        text = ours[name]["text"].removeprefix(str(folder))
        assert text.endswith(theirs[name]["text"].removeprefix(str(folder)))
    else:
        assert ours[name] == theirs[name]


@pytest.mark.parametrize("name", sorted(DIFFERENCES))
def test_different_on_purpose(name: str, theirs: Results, ours: Results) -> None:
    expected, reason = DIFFERENCES[name]
    assert reason
    assert ours[name] != theirs[name], "no longer a difference: take it off the list"
    if expected is not None:
        error, text = expected
        assert ours[name].get("error") == error, ours[name]
        assert text in ours[name]["text"]
    else:
        assert "value" in ours[name], ours[name]
