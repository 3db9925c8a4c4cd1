"""`--wandb` and `--mlflow` with a stand-in for wandb, and without either package.

tests/frameworks/test_experiment_trackers.py has the real ones.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from stormlog import _entry
from stormlog._export import rows as rows
from stormlog.mlflow_integration import (
    MlflowExportConfig,
    add_mlflow_arguments,
    export_tracking_run_to_mlflow,
    mlflow_config_from_namespace,
)
from stormlog.wandb_integration import (
    WandbExportConfig,
    add_wandb_arguments,
    export_diagnose_bundle_to_wandb,
    wandb_config_from_namespace,
)

SERVICES = ("wandb", "mlflow")
INSTALLED = {name: importlib.util.find_spec(name) is not None for name in SERVICES}
# Takes the place of a service: remembers what it is logged_run, or fails.
STAND_IN_WANDB = """
import json, os
run = None
class Table:
    def __init__(self, columns, data): self.content = {"columns": columns, "rows": len(data)}
class Html:
    def __init__(self, text): self.content = text[:15]
class Artifact:
    def __init__(self, name, type): self.content = {"type": type, "files": []}
    def add_file(self, local_path, name): self.content["files"].append(name)
    def add_dir(self, local_path, name): self.content["files"].append(name + "/")
class Run:
    def __init__(self, asked): self.summary, self.logged, self.artifacts, self.asked = {}, {}, [], asked
    def log(self, values): self.logged.update({k: getattr(v, "content", v) for k, v in values.items()})
    def log_artifact(self, artifact): self.artifacts.append(artifact.content)
    def finish(self):
        with open("logged_run.json", "w") as file: json.dump(vars(self), file)
def init(**asked):
    if os.environ.get("STAND_IN_FAILS"): raise RuntimeError("no answer")
    return Run(asked)
"""


def stormlog(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "stormlog", *args]
    return subprocess.run(
        words, capture_output=True, text=True, timeout=300, check=False, cwd=cwd, env={**os.environ, **env}
    )


@pytest.fixture
def stand_in(tmp_path: Path) -> dict[str, str]:
    """An environment in which `import wandb` is the stand-in."""
    (tmp_path / "stand_in" / "wandb").mkdir(parents=True)
    (tmp_path / "stand_in" / "wandb" / "__init__.py").write_text(STAND_IN_WANDB)
    path = os.pathsep.join([str(tmp_path / "stand_in"), os.environ.get("PYTHONPATH", "")])
    return {"PYTHONPATH": path.rstrip(os.pathsep)}


@pytest.mark.parametrize("command", ["track", "diagnose"])
@pytest.mark.parametrize("name", SERVICES)
def test_a_missing_extra_is_said_before_anything_is_tracked(name: str, command: str, tmp_path: Path) -> None:
    if INSTALLED[name]:
        pytest.skip(f"{name} is installed here")
    done = stormlog(command, f"--{name}", "--duration", "0.1", "--output", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert f"pip install 'stormlog[{name}]'" in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_binary_alone_says_what_it_lacks(tmp_path: Path) -> None:
    program = _entry.command()
    assert program is not None
    alone = shutil.copy2(program, tmp_path / "stormlog")
    env = {name: value for name, value in os.environ.items() if name != "STORMLOG_PYTHON"}
    words = [alone, "track", "--wandb", "--mlflow", "--duration", "0.1"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert (
        "--wandb and --mlflow is not available here" in done.stderr and "pip install stormlog" in done.stderr
    )


def test_a_failed_export_is_a_warning_and_everything_else_stands(
    tmp_path: Path, stand_in: dict[str, str]
) -> None:
    done = stormlog(
        "track",
        "--wandb",
        "--duration",
        "0.2",
        "--output",
        "t.csv",
        cwd=tmp_path,
        STAND_IN_FAILS="1",
        **stand_in,
    )
    assert done.returncode == 0 and (tmp_path / "t.csv").is_file()
    assert "Warning: stormlog track W&B export skipped: no answer" in done.stderr


def test_a_tracked_session_arrives_at_a_stand_in(tmp_path: Path, stand_in: dict[str, str]) -> None:
    flags = ["--wandb-project", "p", "--wandb-log-artifacts", "--telemetry-sink-dir", "sink", "--job-id", "j"]
    more = ["--warning-threshold", "0.0001", "--output", "t.csv", "--json"]
    done = stormlog("track", "--wandb", "--duration", "0.3", *flags, *more, cwd=tmp_path, **stand_in)
    assert done.returncode == 0, done.stderr
    session = json.loads(done.stdout)["session"]
    logged_run = json.loads((tmp_path / "logged_run.json").read_text())
    name = f"stormlog-track-{session['session_id'][:8]}"
    assert logged_run["asked"] == {"project": "p", "name": name, "group": "j", "job_type": "stormlog-track"}
    assert logged_run["summary"]["stormlog_session_id"] == session["session_id"]
    assert logged_run["summary"]["stormlog_peak_memory_bytes"] > 1 << 20
    assert (logged_run["summary"]["stormlog_backend"], logged_run["summary"]["stormlog_rank"]) == ("cpu", 0)
    assert logged_run["logged"]["stormlog_timeline_device_used_bytes"] > 1 << 20
    assert logged_run["logged"]["stormlog_alerts"]["columns"][:3] == ["timestamp_s", "event_type", "context"]
    assert logged_run["logged"]["stormlog_memory_timeline_table"]["rows"] > 3
    assert logged_run["logged"]["stormlog_tracking_dashboard"] == "<!DOCTYPE html>"
    kinds = {artifact["type"]: artifact["files"] for artifact in logged_run["artifacts"]}
    assert kinds == {"stormlog-track-output": ["t.csv"], "stormlog-telemetry-sink": ["sink/"]}


def test_a_diagnose_bundle_arrives_at_a_stand_in(tmp_path: Path, stand_in: dict[str, str]) -> None:
    done = stormlog(
        "diagnose", "--wandb", "--wandb-log-artifacts", "--duration", "0.2", cwd=tmp_path, **stand_in
    )
    assert done.returncode in (0, 3) and "W&B export completed." in done.stdout
    directory = Path(done.stdout.split("Artifact: ")[1].splitlines()[0])
    logged_run = json.loads((tmp_path / "logged_run.json").read_text())
    assert logged_run["summary"]["stormlog_artifact_dir"] == directory.name
    assert logged_run["summary"]["stormlog_exit_code"] == done.returncode
    assert logged_run["artifacts"] == [{"type": "stormlog-diagnose", "files": [f"{directory.name}/"]}]


def test_the_flags_make_the_configuration() -> None:
    parser = argparse.ArgumentParser()
    add_wandb_arguments(parser)
    add_mlflow_arguments(parser)
    args = parser.parse_args(["--wandb", "--wandb-name", " n ", "--wandb-group", " ", "--mlflow-run-id", "7"])
    assert wandb_config_from_namespace(args) == WandbExportConfig(enabled=True, run_name="n")
    assert mlflow_config_from_namespace(args) == MlflowExportConfig(run_id="7")
    with pytest.raises(ValueError, match="wandb mode must be"):
        WandbExportConfig(mode="dryrun")
    # What is not enabled does nothing, installed or not.
    export_diagnose_bundle_to_wandb(WandbExportConfig(), command_name="x", artifact_dir="/nowhere")
    export_tracking_run_to_mlflow(
        MlflowExportConfig(), command_name="x", session_summary=None, stats={}, events=[]
    )


def test_a_long_timeline_keeps_its_alerts_and_its_end() -> None:
    def event(at: int) -> dict[str, Any]:
        kind = "warning" if at in (3, 9_000) else "sample"
        return {
            "timestamp_ns": at * 10**9,
            "event_type": kind,
            "device_used_bytes": at,
            "device_total_bytes": 10**4,
        }

    points = rows.timeline(event(at) for at in range(10_000))
    assert len(points) == rows.MOST_POINTS
    indices = [point["sample_index"] for point in points]
    assert indices == sorted(set(indices)) and {0, 3, 9_000, 9_999} <= set(indices)
    assert points[-1]["utilization_percent"] == pytest.approx(99.99)
    assert len(rows.alerts(event(at) for at in range(10_000)).rows) == 2
