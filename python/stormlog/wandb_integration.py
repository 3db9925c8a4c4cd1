"""Sessions and diagnose bundles to Weights & Biases, where it is installed: `pip install 'stormlog[wandb]'`.

The names are 0.4.3's. `wandb` is imported when something is sent and not before.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stormlog._export.rows import (
    Table,
    run_name,
    text_or_none,
)
from stormlog._export.send import Tracked, send_diagnosed, send_tracked
from stormlog.session import SessionSummary

__all__ = [
    "WANDB_INSTALL_GUIDANCE",
    "WandbExportConfig",
    "add_wandb_arguments",
    "ensure_wandb_available",
    "export_diagnose_bundle_to_wandb",
    "export_tracking_run_to_wandb",
    "wandb_config_from_namespace",
]

WANDB_INSTALL_GUIDANCE = (
    "Weights & Biases integration requires optional dependencies. "
    "Install with `pip install 'stormlog[wandb]'`."
)


@dataclasses.dataclass(frozen=True)
class WandbExportConfig:
    """Where and as what a session is sent."""

    enabled: bool = False
    project: str | None = None
    entity: str | None = None
    mode: str | None = None
    run_id: str | None = None
    run_name: str | None = None
    group: str | None = None
    job_type: str | None = None
    log_tables: bool = True
    log_artifacts: bool = False
    log_attribution: bool = False

    def __post_init__(self) -> None:
        if self.mode not in {None, "online", "offline"}:
            raise ValueError("wandb mode must be 'online', 'offline', or omitted")


def wandb_config_from_namespace(args: Any) -> WandbExportConfig:
    """The configuration that the flags of `add_wandb_arguments` make."""

    def text(name: str) -> str | None:
        return text_or_none(getattr(args, f"wandb_{name}", None))

    return WandbExportConfig(
        enabled=bool(getattr(args, "wandb", False)),
        project=text("project"),
        entity=text("entity"),
        mode=text("mode"),
        run_id=text("run_id"),
        run_name=text("name"),
        group=text("group"),
        job_type=text("job_type"),
        log_artifacts=bool(getattr(args, "wandb_log_artifacts", False)),
        log_attribution=bool(getattr(args, "wandb_log_attribution", False)),
    )


def add_wandb_arguments(parser: Any) -> None:
    """Adds the flags to an `argparse` parser."""
    flag = functools.partial(parser.add_argument, default=None)
    parser.add_argument("--wandb", action="store_true", help="Log Stormlog summaries to Weights & Biases")
    flag("--wandb-project", help="W&B project (default: stormlog)")
    flag("--wandb-entity", help="W&B entity or team")
    flag("--wandb-mode", choices=["online", "offline"], help="W&B mode (default: online)")
    flag("--wandb-run-id", help="W&B run to continue")
    flag("--wandb-name", help="Name of the W&B run")
    flag("--wandb-group", help="W&B group (default: the job id)")
    flag("--wandb-job-type", help="W&B job type (default: the command)")
    parser.add_argument(
        "--wandb-log-artifacts", action="store_true", help="Upload the files that were written"
    )
    parser.add_argument(
        "--wandb-log-attribution",
        action="store_true",
        help="Log the holders of GPU memory, if a bundle has them",
    )


def ensure_wandb_available(config: WandbExportConfig) -> None:
    """ImportError if it is required and not installed."""
    if config.enabled and find_spec("wandb") is None:
        raise ImportError(WANDB_INSTALL_GUIDANCE)


class _Run:
    """A run of W&B. One that is open already is used and left open."""

    def __init__(self, config: WandbExportConfig, command: str, session: SessionSummary | None) -> None:
        ensure_wandb_available(config)
        self._wandb: Any = import_module("wandb")
        self._run: Any = self._wandb.run
        self._is_ours = self._run is None
        if self._run is None:
            wanted = {
                "project": config.project or "stormlog",
                "entity": config.entity,
                "mode": config.mode,
                "name": config.run_name or run_name(command, session),
                "group": config.group or (session.job_id if session else None),
                "job_type": config.job_type or command,
                "id": config.run_id,
                "resume": "allow" if config.run_id else None,
            }
            self._run = self._wandb.init(**{key: value for key, value in wanted.items() if value is not None})

    def summary(self, fields: Mapping[str, Any]) -> None:
        self._run.summary.update(dict(fields))

    def series(self, points: Sequence[Mapping[str, Any]]) -> None:
        for point in points:
            self._run.log({name: value for name, value in point.items() if name != "step"})

    def table(self, name: str, table: Table) -> None:
        # 0.4.3 has a table and a plot of this one.
        name = f"{name}_table" if name == "stormlog_memory_timeline" else name
        self._run.log({name: self._wandb.Table(columns=list(table.columns), data=table.rows)})

    def page(self, name: str, text: str) -> None:
        self._run.log({name: self._wandb.Html(text)})

    def files(self, kind: str, session: str, path: Path) -> None:
        artifact = self._wandb.Artifact(name=f"{kind}-{session}", type=kind)
        add = artifact.add_dir if path.is_dir() else artifact.add_file
        add(local_path=str(path), name=path.name)
        self._run.log_artifact(artifact)

    def end(self) -> None:
        if self._is_ours:
            self._run.finish()


def export_tracking_run_to_wandb(
    config: WandbExportConfig,
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


def export_diagnose_bundle_to_wandb(
    config: WandbExportConfig, *, command_name: str, artifact_dir: str | Path
) -> None:
    """Sends a diagnose bundle, if the configuration is enabled."""
    if config.enabled:
        send_diagnosed(lambda session: _Run(config, command_name, session), config, Path(artifact_dir))
