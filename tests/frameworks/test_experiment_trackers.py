"""`--wandb` and `--mlflow` with the real packages: a run offline, a run in a store of files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import mlflow
import pytest


def stormlog(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stormlog", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=cwd, env={**os.environ, **env}
    )


def test_the_real_wandb_keeps_a_run_offline(tmp_path: Path) -> None:
    flags = ["--wandb-mode", "offline", "--wandb-log-artifacts", "--output", "t.csv"]
    done = stormlog("track", "--wandb", "--duration", "0.3", *flags, cwd=tmp_path, WANDB_SILENT="true")
    assert done.returncode == 0 and "W&B export completed." in done.stdout, done.stderr
    (kept,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    content = kept.read_bytes()
    for name in (
        b"stormlog_peak_memory_bytes",
        b"stormlog_timeline_device_used_bytes",
        b"stormlog-track-output",
    ):
        assert name in content, name


@pytest.mark.filterwarnings("ignore")  # of what mlflow imports
@pytest.mark.parametrize("command", ["track", "diagnose"])
def test_the_real_mlflow_stores_a_run(command: str, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/store.db"
    flags = ["--mlflow-tracking-uri", uri, "--mlflow-run-name", "mine", "--mlflow-log-artifacts"]
    done = stormlog(command, "--mlflow", "--duration", "0.3", *flags, "--output", "out", cwd=tmp_path)
    assert "MLflow export completed." in done.stdout, done.stderr
    client = mlflow.MlflowClient(uri)
    (experiment,) = client.search_experiments(filter_string="name = 'stormlog'")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "mine" and run.info.status == "FINISHED"
    assert run.data.tags["stormlog_command"] == f"stormlog-{command}"
    assert run.data.tags["stormlog_rank"] == "0"
    kept = [file.path for file in client.list_artifacts(run.info.run_id)]
    if command == "track":
        assert run.data.metrics["stormlog_peak_memory_bytes"] > 1 << 20
        points = client.get_metric_history(run.info.run_id, "stormlog_timeline_device_used_bytes")
        assert len(points) == run.data.metrics["stormlog_chart_point_count"]
        assert "stormlog_tracking_dashboard.html" in kept
        assert any(path.startswith("stormlog-track-output-") for path in kept)
    else:
        assert run.data.metrics["stormlog_exit_code"] == done.returncode
        assert any(path.startswith("stormlog-diagnose-") for path in kept)
