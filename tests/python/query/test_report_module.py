"""`stormlog.report`, `diagnose_report` and `diagnose`: the reports and sentences of stormlog 0.4.3.

The other package is the real one: STORMLOG_PEER_PYTHON names an interpreter that has it installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cuda_stand_in
import peer_report
import pytest
from stormlog import query
from stormlog.diagnose import DiagnoseUsageError, build_diagnostic_summary, run_diagnose
from stormlog.report import load_report
from stormlog.system_info import get_system_info

PEER = os.environ.get("STORMLOG_PEER_PYTHON")
NEEDS_PEER = pytest.mark.skipif(
    not PEER, reason="STORMLOG_PEER_PYTHON is not set: no interpreter with stormlog 0.4.3 to compare with"
)
FILES = [
    "environment.json",
    "telemetry_timeline.json",
    "diagnostic_summary.json",
    "report.json",
    "manifest.json",
]


@NEEDS_PEER
def test_every_report_and_sentence_is_the_peers(tmp_path: Path) -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    folder = tmp_path / "reports"
    folder.mkdir()
    command = [str(PEER), peer_report.__file__, str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)
    for path in folder.iterdir():
        path.unlink()
    mine = json.loads(json.dumps(peer_report.outcomes(folder)))
    assert mine == theirs
    assert len(mine) > 70 and mine["checked"] is None


def contents(folder: Path) -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}


def test_a_diagnosis_of_this_process(tmp_path: Path) -> None:
    folder, code = run_diagnose(str(tmp_path / "new"), None, 0.2, 0.05, "my program")
    assert (folder, code) == (tmp_path / "new", 0)
    found = contents(folder)
    assert sorted(found) == sorted(FILES)
    manifest = found["manifest.json"]
    assert manifest["files"] == FILES and manifest["command_line"] == "my program"
    assert load_report(folder / "report.json")["verdict"]["status"] == "pass"
    timeline = found["telemetry_timeline.json"]
    assert len(timeline["timestamps"]) == len(timeline["allocated"]) >= 1
    # What a query makes of it.
    (row,) = query.open([folder]).list_sessions()
    assert (row.session_id, row.status) == (manifest["session_id"], "completed")
    again, _ = run_diagnose(str(tmp_path), None, 0, 0.1, "")
    assert again.parent == tmp_path and again.name.startswith("stormlog-diagnose-2")


def test_a_diagnosis_asks_the_allocator_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = cuda_stand_in.make()
    monkeypatch.setitem(sys.modules, "torch", torch)
    summary, is_risky = build_diagnostic_summary()
    assert (summary["backend"], summary["total_bytes"], is_risky) == ("cuda", 16 << 30, False)
    torch.allocators[0].take(15 << 30)
    summary, is_risky = build_diagnostic_summary()
    assert is_risky and summary["risk_flags"] == {
        "oom_occurred": False,
        "high_utilization": True,
        "fragmentation_warning": False,
    }
    folder, code = run_diagnose(str(tmp_path / "risk"), None, 0.1, 0.05, "", native_history=True)
    found = contents(folder)
    assert code == found["manifest.json"]["exit_code"] == 3
    (finding,) = found["report.json"]["findings"]
    assert finding["metrics"] == {"utilization_ratio": 15 / 16, "threshold": 0.85}
    assert "cuda_allocator_state_history_annotated.html" in found["manifest.json"]["files"]


def test_a_wrong_request_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(DiagnoseUsageError, match="Output path is not a directory"):
        run_diagnose(str(file / "below"), None, 0, 0.1, "")
    with pytest.raises(DiagnoseUsageError, match="native_history_max_entries must be >= 1"):
        run_diagnose(str(tmp_path / "new"), None, 0, 0.1, "", True, 0)
    with pytest.raises(DiagnoseUsageError, match="only for CUDA"):
        run_diagnose(str(tmp_path / "new"), None, 0, 0.1, "", True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_bundle_that_could_not_be_written_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stormlog.diagnose.build_diagnostic_summary", refuse)
    folder, code = run_diagnose(str(tmp_path / "b"), None, 0, 0.1, "")
    found = contents(folder)
    assert code == found["manifest.json"]["exit_code"] == found["report.json"]["verdict"]["exit_code"] == 1
    assert "No space left" in found["manifest.json"]["error"]
    assert found["manifest.json"]["session_status"] == "incomplete"
    assert "Failed to write diagnostic artifact" in caplog.text


def test_the_machine_and_this_process() -> None:
    info = get_system_info()
    assert info["pid"] == os.getpid() and info["process_rss_bytes"] > 1 << 20
    assert info["memory_total"] > info["memory_available"] > 0


def test_a_diagnosis_without_tensorflow_says_what_it_can(tmp_path: Path) -> None:
    from stormlog.tensorflow import diagnose

    folder, code = diagnose.run_diagnose(str(tmp_path / "tf"), None, 0, 0.1, "tf program")
    found = contents(folder)
    assert code == 0 and found["manifest.json"]["files"] == FILES
    assert found["report.json"]["tool"]["name"] == "tfmemprof"
    assert "native_history_enabled" not in found["manifest.json"]
    assert load_report(folder / "report.json")["recommendations"]
