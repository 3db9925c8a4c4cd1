"""`diagnose` under its three names: the bundle, exit codes, what it must not write; 0.4.3 reads it."""

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
FILES = {
    "diagnostic_summary.json",
    "environment.json",
    "manifest.json",
    "report.json",
    "telemetry_timeline.json",
}
THEIRS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import cuda_stand_in
sys.modules["torch"] = cuda_stand_in.make()
from pathlib import Path
from stormlog import query
from stormlog.diagnose import run_diagnose
from stormlog.report import load_report
made, _ = run_diagnose(sys.argv[2], None, 0.2, 0.1, "gpumemprof diagnose")
report = load_report(Path(sys.argv[3]) / "report.json")
rows = query.open([sys.argv[3]]).list_sessions()
print(json.dumps([report["verdict"], [row.session_id for row in rows]]))
"""


def diagnose(name: str, folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; from stormlog._entry import {name}; sys.exit({name}())"
    command = [sys.executable, "-c", code, "diagnose", *arguments]
    env = {**os.environ, **more}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)


def contents(folder: Path) -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in folder.iterdir()}


def shape(value: Any) -> Any:
    return sorted(value) if isinstance(value, dict) else type(value).__name__


def test_the_bundle_is_whole_and_says_so(tmp_path: Path) -> None:
    done = diagnose("gpumemprof", tmp_path, "--duration", "0.3", "--interval", "0.1", "--output", "new")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines == [
        f"Artifact: {tmp_path / 'new'}",
        "Status: OK (exit_code=0)",
        "Findings: no memory risk detected",
    ]
    found = contents(tmp_path / "new")
    assert set(found) == FILES == set(found["manifest.json"]["files"])
    manifest, report = found["manifest.json"], found["report.json"]
    assert (manifest["exit_code"], manifest["session_status"]) == (0, "completed")
    assert manifest["session_id"] == report["session_id"] == manifest["session"]["session_id"]
    timeline = found["telemetry_timeline.json"]
    assert len(timeline["timestamps"]) == len(timeline["allocated"]) >= 2
    assert all(size > 0 for size in timeline["allocated"])
    assert sum(path.stat().st_size for path in (tmp_path / "new").iterdir()) < 1 << 20


def test_an_existing_folder_gets_a_new_one_in_it(tmp_path: Path) -> None:
    for _ in range(2):
        done = diagnose("tfmemprof", tmp_path, "--duration", "0", "--device", "/GPU:0", "--output", ".")
        assert done.returncode == 0, done.stderr
    made = sorted(tmp_path.iterdir())
    assert len(made) == 2 and all(path.name.startswith("stormlog-tensorflow-diagnose-2") for path in made)
    found = contents(made[0])
    assert found["telemetry_timeline.json"] == {"timestamps": [], "allocated": [], "reserved": []}
    assert "native_history_enabled" not in found["manifest.json"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--duration", "-1"], 2, "--duration must be >= 0"),
        (["--interval", "0"], 2, "--interval must be > 0"),
        (["--native-history"], 2, "recorded inside the program"),
        (["--native-history-max-entries", "0"], 2, "must be > 0"),
        (["--wandb"], 2, "pip install 'stormlog[wandb]'"),
        (["--output", "file/below"], 2, "Output path is not a directory"),
        (["--pid", "999999999"], 5, "there is no process"),
        (["--device", "shed"], 2, "unknown device"),
    ],
)
def test_invalid_request_is_reported_and_leaves_nothing(
    tmp_path: Path, arguments: list[str], code: int, sentence: str
) -> None:
    (tmp_path / "file").write_text("")
    done = diagnose("stormlog", tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert sentence in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_no_secret_gets_in(tmp_path: Path) -> None:
    secrets = {"TORCH_TOKEN": "hush-1", "SLURM_API_KEY": "hush-2", "STORMLOG_DIR": "http://me:hush-3@host/x"}
    done = diagnose("stormlog", tmp_path, "--duration", "0", "--output", "b", OTHER="hush-4", **secrets)
    assert done.returncode == 0, done.stderr
    text = "".join(path.read_text() for path in (tmp_path / "b").iterdir())
    assert "hush" not in text
    assert contents(tmp_path / "b")["environment.json"]["variables"].get("TORCH_TOKEN") is None


def test_hostile_surroundings_neither_leak_nor_swell_the_bundle(tmp_path: Path) -> None:
    hostile = {
        "TORCH_URL": "https://ghp_hush@host/a,http://a:hush@b?sig=hush",
        "NCCL_CONF": "a=1;access_token=hush;b=2",
        "SLURM_JWT_KEY": "hush",
        "CUDA_CERT": "-----BEGIN PRIVATE KEY-----hush",
        "STORMLOG_LONG": "x" * 100_000,
        "OMP_ODD": "\udcff\udcfe\n\t\x01",
        **{f"TF_MANY_{number}": "y" * 5_000 for number in range(300)},
    }
    done = diagnose("stormlog", tmp_path, "--duration", "0", "--output", "hush-dir=x", **hostile)
    assert done.returncode == 0, done.stderr
    (made,) = tmp_path.iterdir()
    sizes = {path.name: path.stat().st_size for path in made.iterdir()}
    assert sum(sizes.values()) < 3 << 20, sizes
    environment = (made / "environment.json").read_text()
    assert "hush" not in environment
    assert len(contents(made)["environment.json"]["variables"]) <= 256


@pytest.mark.parametrize(("used", "code", "flags"), [(15, 3, ["high_utilization"]), (2, 0, [])])
def test_a_gpu_that_is_nearly_full_is_a_risk(
    tmp_path: Path, nvml_stand_in: Path, used: int, code: int, flags: list[str]
) -> None:
    """Through a library that stands in for NVML: one GPU of 16 GiB."""
    env = {"LD_LIBRARY_PATH": str(nvml_stand_in.parent), "STAND_IN_USED_GIB": str(used)}
    done = diagnose("stormlog", tmp_path, "--duration", "0.2", "--interval", "0.1", "--output", "b", **env)
    assert done.returncode == code, done.stdout + done.stderr
    found = contents(tmp_path / "b")
    raised = found["diagnostic_summary.json"]["risk_flags"]
    assert [name for name, is_up in raised.items() if is_up] == flags
    assert found["diagnostic_summary.json"]["total_bytes"] == 16 << 30
    kinds = [finding["kind"] for finding in found["report.json"]["findings"]]
    assert kinds == flags and found["manifest.json"]["risk_detected"] is bool(flags)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    done = diagnose("stormlog", tmp_path, "--duration", "0")
    assert done.returncode == 1 and "Cannot create output directory" in done.stderr


def test_our_own_commands_open_it(tmp_path: Path) -> None:
    assert diagnose("stormlog", tmp_path, "--duration", "0.2", "--interval", "0.1").returncode == 0
    code = "import sys; from stormlog._entry import stormlog; sys.exit(stormlog())"
    (made,) = tmp_path.iterdir()
    done = subprocess.run(
        [sys.executable, "-c", code, "analyze", str(made)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "nothing wrong in 1 session" in done.stdout, done.stderr


@pytest.mark.skipif(not PEER, reason="STORMLOG_PEER_PYTHON names no interpreter with stormlog 0.4.3")
def test_the_older_release_reads_it_and_writes_the_same_keys(tmp_path: Path) -> None:
    assert PEER
    assert diagnose("gpumemprof", tmp_path, "--duration", "0.2", "--output", "ours").returncode == 0
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    here = str(HELPERS)
    command = [PEER, "-W", "ignore", "-c", THEIRS, here, str(tmp_path / "theirs"), str(tmp_path / "ours")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    verdict, sessions = json.loads(done.stdout)
    assert verdict == {"status": "pass", "exit_code": 0, "summary": "No memory risk detected"}
    ours, theirs = contents(tmp_path / "ours"), contents(tmp_path / "theirs")
    assert sessions == [ours["manifest.json"]["session_id"]]
    assert set(ours) == set(theirs)
    for name in ("manifest.json", "diagnostic_summary.json", "telemetry_timeline.json", "report.json"):
        assert shape(ours[name]) == shape(theirs[name]), name
        if name != "telemetry_timeline.json":
            kinds = {key: shape(value) for key, value in theirs[name].items() if key != "tool"}
            assert {key: shape(value) for key, value in ours[name].items() if key != "tool"} == kinds, name
    assert set(theirs["environment.json"]) <= set(ours["environment.json"])
