"""The report of a diagnose bundle: 0.4.3's names over the rule that the command has too."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stormlog import _native
from stormlog.exit_codes import ExitCode, verdict_status
from stormlog.report import REPORT_FILENAME, write_report

__all__ = [
    "DIAGNOSE_REPORT_KIND",
    "MANIFEST_FILENAME",
    "DiagnoseUsageError",
    "build_diagnose_report",
    "validate_output_directory",
    "write_incomplete_bundle",
    "write_verdict_report",
]

DIAGNOSE_REPORT_KIND = "diagnose"
DIAGNOSE_MANIFEST_SCHEMA_VERSION = _native.catalog.DIAGNOSE_MANIFEST_VERSION
SUMMARY_FILENAME = _native.catalog.DIAGNOSE_SUMMARY_FILE
MANIFEST_FILENAME = _native.catalog.DIAGNOSE_MANIFEST_FILE


class DiagnoseUsageError(ValueError):
    """What was asked for cannot be: a wrong option, a runtime without the feature, a file in the way."""


def validate_output_directory(output: str | None) -> None:
    """DiagnoseUsageError where a directory could not be made because something else is in the way."""
    if not output:
        return
    there = _native.catalog.diagnose_obstacle(Path(output).resolve())
    if there is not None:
        raise DiagnoseUsageError(f"Output path is not a directory: {there}")


def build_diagnose_report(
    *,
    tool_name: str,
    summary: Mapping[str, Any],
    exit_code: int,
    session_id: str,
    files: Sequence[str],
    thresholds: Mapping[str, float] | None = None,
    tool_version: str | None = None,
    error: str | None = None,
) -> dict[str, Any]:
    """The report of one bundle. With an error it claims no findings: the summary may be half of one."""
    stated = summary.get("risk_flags")
    risks = {str(k): bool(v) for k, v in stated.items()} if isinstance(stated, Mapping) else {}
    numbers = {
        str(key): _finite(value) for key, value in summary.items() if value is None or _is_number(value)
    }
    backend = summary.get("backend")
    measured = _native.catalog.DiagnoseSummary(
        None if backend is None else str(backend),
        risks,
        numbers,
        [str(item) for item in summary.get("suggestions", [])],
    )
    from stormlog import __version__

    return _native.catalog.diagnose_report(
        measured,
        tool_name=tool_name,
        tool_version=__version__ if tool_version is None else tool_version,
        exit_code=exit_code,
        status=verdict_status(exit_code),
        session_id=session_id,
        files=list(files),
        thresholds=dict(thresholds or {}),
        error=error,
        generated_at_utc=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def write_verdict_report(
    artifact_dir: Path,
    *,
    tool_name: str,
    summary: Mapping[str, Any],
    exit_code: int,
    session_id: str,
    files: Sequence[str],
    thresholds: Mapping[str, float] | None = None,
    error: str | None = None,
) -> None:
    """Writes the report of one bundle into it."""
    report = build_diagnose_report(
        tool_name=tool_name,
        summary=summary,
        exit_code=exit_code,
        session_id=session_id,
        files=files,
        thresholds=thresholds,
        error=error,
    )
    write_report(artifact_dir / REPORT_FILENAME, report)


def write_incomplete_bundle(
    artifact_dir: Path,
    *,
    tool_name: str,
    summary: Mapping[str, Any],
    session_id: str,
    files_written: Sequence[str],
    error: str,
    thresholds: Mapping[str, float] | None,
    write_manifest: Callable[[list[str]], None],
) -> None:
    """Makes the best of a bundle that could not be written: a report and a manifest that say so."""
    files = [name for name in files_written if name != REPORT_FILENAME]
    try:
        write_verdict_report(
            artifact_dir,
            tool_name=tool_name,
            summary=summary,
            exit_code=int(ExitCode.ERROR),
            session_id=session_id,
            files=[*files, REPORT_FILENAME, MANIFEST_FILENAME],
            thresholds=thresholds,
            error=error,
        )
        files.append(REPORT_FILENAME)
    except (OSError, ValueError):
        # A report that claims success must not stay beside a failure.
        with suppress(OSError):
            (artifact_dir / REPORT_FILENAME).unlink()
    if MANIFEST_FILENAME not in files:
        files.append(MANIFEST_FILENAME)
    with suppress(OSError):
        write_manifest(files)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _finite(value: Any) -> float | int | None:
    """A number that JSON can hold."""
    return None if value is None or not math.isfinite(value) else value
