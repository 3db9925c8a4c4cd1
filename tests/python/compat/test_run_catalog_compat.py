"""`stormlog.run_catalog` on objects of the caller's own: every helper answers as in 0.4.3."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import peer_run_catalog
import pytest
from places import HELPERS
from stormlog.run_catalog import run_envelope_from_payload
from stormlog.telemetry_rollups import ROLLUP_FILENAME

PEER = os.environ.get("STORMLOG_PEER_PYTHON")


@pytest.mark.skipif(not PEER, reason="STORMLOG_PEER_PYTHON is not set: no stormlog 0.4.3 to compare with")
def test_every_helper_gives_the_answers_of_the_peer(tmp_path: Path) -> None:
    (tmp_path / ROLLUP_FILENAME).write_text("{}")
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [str(PEER), str(HELPERS / "peer_run_catalog.py"), str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    theirs: dict[str, Any] = json.loads(done.stdout)
    mine = json.loads(json.dumps(peer_run_catalog.answers(tmp_path)))
    for name, value in theirs.items():
        assert mine[name] == value, name
    assert [one is None for one in mine["envelopes"]].count(False) == 6


def test_metadata_of_an_envelope_stays_the_callers_own(tmp_path: Path) -> None:
    own = object()
    payload = {**peer_run_catalog.ENVELOPE, "metadata": {"own": own, "deep": [[[{}]]]}}
    payload["sessions"] = [{"session_id": "a", "metadata": {3: own}}]
    envelope = run_envelope_from_payload(payload, tmp_path / "stormlog_run.json")
    assert envelope is not None
    assert envelope.metadata["own"] is own and list(envelope.sessions[0].metadata.values()) == [own]
