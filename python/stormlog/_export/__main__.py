"""`python -m stormlog._export check|deliver`: how the commands reach services that only Python speaks to.

What is to be done comes as JSON on standard input. A missing package is exit 2; a failed export is a warning
and exit 0, because what was tracked is safe already and its exit code must not change.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from stormlog.exit_codes import ExitCode
from stormlog.mlflow_integration import (
    MlflowExportConfig,
    ensure_mlflow_available,
    export_diagnose_bundle_to_mlflow,
    export_tracking_run_to_mlflow,
)
from stormlog.session import session_summary_from_dict
from stormlog.wandb_integration import (
    WandbExportConfig,
    ensure_wandb_available,
    export_diagnose_bundle_to_wandb,
    export_tracking_run_to_wandb,
)

_TRACKED = ("stats", "events", "output_path", "telemetry_sink_dir", "oom_dump_path")


def check(asked: dict[str, Any]) -> int:
    """Whether all that was asked for is installed."""
    settings = asked["settings"]
    try:
        if "wandb" in settings:
            ensure_wandb_available(WandbExportConfig(enabled=True, **settings["wandb"]))
        if "mlflow" in settings:
            ensure_mlflow_available(MlflowExportConfig(enabled=True, **settings["mlflow"]))
    except ImportError as missing:
        sys.stderr.write(f"{missing}\n")
        return ExitCode.USAGE
    return ExitCode.OK


def deliver(done: dict[str, Any]) -> int:
    """Sends to every service that was asked for."""
    settings, name = done["settings"], f"{done['program']}-{done['command']}"
    wanted: list[tuple[str, Callable[..., None], Callable[..., None], Any]] = []
    if "wandb" in settings:
        config = WandbExportConfig(enabled=True, **settings["wandb"])
        wanted.append(("W&B", export_tracking_run_to_wandb, export_diagnose_bundle_to_wandb, config))
    if "mlflow" in settings:
        mlflow = MlflowExportConfig(enabled=True, **settings["mlflow"])
        wanted.append(("MLflow", export_tracking_run_to_mlflow, export_diagnose_bundle_to_mlflow, mlflow))
    for service, tracked, diagnosed, config in wanted:
        try:
            if done["command"] == "diagnose":
                diagnosed(config, command_name=name, artifact_dir=done["artifact_dir"])
            else:
                session = session_summary_from_dict(done["session"])
                rest = {key: done[key] for key in _TRACKED}
                tracked(config, command_name=name, session_summary=session, **rest)
        except (Exception, KeyboardInterrupt) as error:
            words = (
                f"{done['program']} {done['command']} {service} export skipped: {error or 'stopped by user'}"
            )
            sys.stderr.write(f"Warning: {words}\n")
        else:
            sys.stdout.write(f"{service} export completed.\n")
            sys.stdout.flush()
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit({"check": check, "deliver": deliver}[sys.argv[1]](json.load(sys.stdin)))
