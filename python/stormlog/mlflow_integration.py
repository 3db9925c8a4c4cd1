"""Sessions and diagnose bundles to MLflow, where it is installed: `pip install 'stormlog[mlflow]'`.

The names are 0.4.3's. `mlflow` is imported when something is sent and not before.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import uuid
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stormlog._export.rows import (
    Table,
    run_name,
    session_fields,
    slug,
    text_or_none,
)
from stormlog._export.send import Tracked, send_diagnosed, send_tracked
from stormlog.session import SessionSummary

__all__ = [
    "MLFLOW_INSTALL_GUIDANCE",
    "MlflowExportConfig",
    "add_mlflow_arguments",
    "ensure_mlflow_available",
    "export_diagnose_bundle_to_mlflow",
    "export_tracking_run_to_mlflow",
    "mlflow_config_from_namespace",
]

MLFLOW_INSTALL_GUIDANCE = (
    "MLflow integration requires optional dependencies. Install with `pip install 'stormlog[mlflow]'`."
)
# Numbers that are names.
_TAGS = frozenset({"stormlog_rank", "stormlog_local_rank", "stormlog_world_size"})
# What MLflow takes in one request.
_MOST_METRICS = 1000


@dataclasses.dataclass(frozen=True)
class MlflowExportConfig:
    """Where and as what a session is sent."""

    enabled: bool = False
    tracking_uri: str | None = None
    experiment: str | None = None
    run_id: str | None = None
    run_name: str | None = None
    group: str | None = None
    job_type: str | None = None
    log_tables: bool = True
    log_artifacts: bool = False
    log_attribution: bool = False


def mlflow_config_from_namespace(args: Any) -> MlflowExportConfig:
    """The configuration that the flags of `add_mlflow_arguments` make."""

    def text(name: str) -> str | None:
        return text_or_none(getattr(args, f"mlflow_{name}", None))

    return MlflowExportConfig(
        enabled=bool(getattr(args, "mlflow", False)),
        tracking_uri=text("tracking_uri"),
        experiment=text("experiment"),
        run_id=text("run_id"),
        run_name=text("run_name"),
        group=text("group"),
        job_type=text("job_type"),
        log_artifacts=bool(getattr(args, "mlflow_log_artifacts", False)),
        log_attribution=bool(getattr(args, "mlflow_log_attribution", False)),
    )


def add_mlflow_arguments(parser: Any) -> None:
    """Adds the flags to an `argparse` parser."""
    flag = functools.partial(parser.add_argument, default=None)
    parser.add_argument("--mlflow", action="store_true", help="Log Stormlog summaries to MLflow")
    flag("--mlflow-tracking-uri", help="MLflow server or store (default: MLFLOW_TRACKING_URI)")
    flag("--mlflow-experiment", help="MLflow experiment (default: stormlog)")
    flag("--mlflow-run-id", help="MLflow run to continue")
    flag("--mlflow-run-name", help="Name of the MLflow run")
    flag("--mlflow-group", help="Group tag (default: the job id)")
    flag("--mlflow-job-type", help="Job type tag (default: the command)")
    parser.add_argument(
        "--mlflow-log-artifacts", action="store_true", help="Upload the files that were written"
    )
    parser.add_argument(
        "--mlflow-log-attribution",
        action="store_true",
        help="Log the holders of GPU memory, if a bundle has them",
    )


def ensure_mlflow_available(config: MlflowExportConfig) -> None:
    """ImportError if it is required and not installed."""
    if config.enabled and find_spec("mlflow") is None:
        raise ImportError(MLFLOW_INSTALL_GUIDANCE)


class _Run:
    """A run of MLflow. One that is open already is used and left open."""

    def __init__(self, config: MlflowExportConfig, command: str, session: SessionSummary | None) -> None:
        ensure_mlflow_available(config)
        self._mlflow: Any = import_module("mlflow")
        self._run: Any = self._mlflow.active_run()
        self._is_ours = self._run is None
        if self._run is None:
            self._run = self._start(config, command, session)
        # A second export into the same run must not append to the tables of the first.
        self._folder = f"stormlog-exports/{slug(session)}/{uuid.uuid4().hex}"
        group = config.group or (session.job_id if session else None)
        tags = {**session_fields(session), "stormlog_command": command, "stormlog_group": group}
        tags["stormlog_job_type"] = config.job_type or command
        self._mlflow.set_tags({name: str(value) for name, value in tags.items() if value is not None})

    def _start(self, config: MlflowExportConfig, command: str, session: SessionSummary | None) -> Any:
        if config.tracking_uri is not None:
            self._mlflow.set_tracking_uri(config.tracking_uri)
        if config.run_id is not None:
            return self._mlflow.start_run(run_id=config.run_id, run_name=config.run_name)
        self._mlflow.set_experiment(config.experiment or "stormlog")
        return self._mlflow.start_run(run_name=config.run_name or run_name(command, session))

    def summary(self, fields: Mapping[str, Any]) -> None:
        tags: dict[str, str] = {}
        metrics: dict[str, float] = {}
        for name, value in fields.items():
            if isinstance(value, bool):
                tags[name] = "true" if value else "false"
            elif isinstance(value, int | float) and name not in _TAGS:
                metrics[name] = float(value)
            elif value is not None:
                tags[name] = str(value)
        self._mlflow.set_tags(tags)
        self._mlflow.log_metrics(metrics)

    def series(self, points: Sequence[Mapping[str, Any]]) -> None:
        metric = import_module("mlflow.entities").Metric
        now = int(time.time() * 1000)
        metrics = [
            metric(name, float(value), now, int(point["step"]))
            for point in points
            for name, value in point.items()
            if name != "step"
        ]
        client = self._mlflow.MlflowClient()
        for first in range(0, len(metrics), _MOST_METRICS):
            client.log_batch(self._run.info.run_id, metrics=metrics[first : first + _MOST_METRICS])

    def table(self, name: str, table: Table) -> None:
        columns = {column: [row[at] for row in table.rows] for at, column in enumerate(table.columns)}
        self._mlflow.log_table(data=columns, artifact_file=f"{self._folder}/{name}.json")

    def page(self, name: str, text: str) -> None:
        name = "stormlog_attribution_preview" if name == "stormlog_attribution_html" else name
        self._mlflow.log_text(text, artifact_file=f"{name}.html")

    def files(self, kind: str, session: str, path: Path) -> None:
        send = self._mlflow.log_artifacts if path.is_dir() else self._mlflow.log_artifact
        send(str(path), artifact_path=f"{kind}-{session}")

    def end(self) -> None:
        if self._is_ours:
            self._mlflow.end_run()


def export_tracking_run_to_mlflow(
    config: MlflowExportConfig,
    *,
    command_name: str,
    session_summary: SessionSummary | None,
    stats: Mapping[str, Any],
    events: Sequence[Any],
    output_path: str | Path | None = None,
    telemetry_sink_dir: str | Path | None = None,
    oom_dump_path: str | Path | None = None,
    attribution_bundle_dir: str | Path | None = None,
) -> None:
    """Sends a tracked session, if the configuration is enabled."""
    if not config.enabled:
        return
    done = Tracked.of(
        session_summary,
        stats,
        events,
        output_path,
        telemetry_sink_dir,
        oom_dump_path,
        attribution_bundle_dir,
    )
    send_tracked(lambda: _Run(config, command_name, session_summary), config, done)


def export_diagnose_bundle_to_mlflow(
    config: MlflowExportConfig, *, command_name: str, artifact_dir: str | Path
) -> None:
    """Sends a diagnose bundle, if the configuration is enabled."""
    if config.enabled:
        send_diagnosed(lambda session: _Run(config, command_name, session), config, Path(artifact_dir))
