"""The report of a diagnose bundle: what its summary says, as findings that point back into the bundle."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stormlog.exit_codes import ExitCode
from stormlog.report import (
    REPORT_FILENAME,
    REPORT_FORMAT,
    REPORT_SCHEMA_VERSION,
    SEVERITY_CRITICAL,
    SEVERITY_WARNING,
    Artifact,
    Evidence,
    Finding,
    build_report,
    write_report,
)

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
DIAGNOSE_MANIFEST_SCHEMA_VERSION = 2
SUMMARY_FILENAME = "diagnostic_summary.json"
MANIFEST_FILENAME = "manifest.json"

# Of each risk: the kind of finding, how bad it is, its title, and the number it is about.
_RISKS = {
    "oom_occurred": (
        "oom",
        SEVERITY_CRITICAL,
        "The allocator recorded out-of-memory events",
        "num_ooms",
    ),
    "high_utilization": (
        "high_utilization",
        SEVERITY_WARNING,
        "Device memory utilization is above the risk threshold",
        "utilization_ratio",
    ),
    "fragmentation_warning": (
        "fragmentation",
        SEVERITY_WARNING,
        "Allocator fragmentation is above the warning threshold",
        "fragmentation_ratio",
    ),
}
_METRICS = (
    "allocated_bytes",
    "reserved_bytes",
    "peak_bytes",
    "total_bytes",
    "allocator_gap_bytes",
    "utilization_ratio",
    "fragmentation_ratio",
    "num_ooms",
)
_ARTIFACTS = {
    MANIFEST_FILENAME: ("diagnose_manifest", None, DIAGNOSE_MANIFEST_SCHEMA_VERSION),
    REPORT_FILENAME: ("report", REPORT_FORMAT, REPORT_SCHEMA_VERSION),
    SUMMARY_FILENAME: ("diagnose_summary", None, None),
    "environment.json": ("environment", None, None),
    "telemetry_timeline.json": ("telemetry_timeline", None, None),
}


class DiagnoseUsageError(ValueError):
    """What was asked for cannot be: a wrong option, a runtime without the feature, a file in the way."""


def validate_output_directory(output: str | None) -> None:
    """DiagnoseUsageError where a directory could not be made because something else is in the way."""
    if not output:
        return
    path = Path(output).resolve()
    there = next((one for one in (path, *path.parents) if one.exists()), None)
    if there is not None and not there.is_dir():
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
    raised = [flag for flag, is_raised in risks.items() if is_raised and error is None]
    findings = [_finding(flag, summary, session_id, (thresholds or {}).get(flag)) for flag in raised]
    if error is not None:
        verdict = f"Bundle incomplete: {error}"
    elif findings:
        verdict = "Memory risk detected: " + ", ".join(finding.kind for finding in findings)
    else:
        verdict = "No memory risk detected"
    return build_report(
        report_kind=DIAGNOSE_REPORT_KIND,
        tool_name=tool_name,
        command="diagnose",
        exit_code=exit_code,
        summary=verdict,
        findings=findings,
        metrics={
            key: _finite(summary[key])
            for key in _METRICS
            if key in summary and (summary[key] is None or _is_number(summary[key]))
        },
        artifacts=[_artifact(name) for name in files],
        recommendations=[str(item) for item in summary.get("suggestions", [])],
        session_id=session_id,
        payload={"backend": summary.get("backend"), "risk_flags": risks},
        tool_version=tool_version,
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


def _finding(flag: str, summary: Mapping[str, Any], session_id: str, threshold: float | None) -> Finding:
    unknown = (flag, SEVERITY_WARNING, f"Risk flag {flag} is set", flag)
    kind, severity, title, number = _RISKS.get(flag, unknown)
    metrics = {number: _finite(summary[number])} if _is_number(summary.get(number)) else {}
    if threshold is not None:
        metrics["threshold"] = threshold
    shown = Evidence(kind="diagnose_summary", path=SUMMARY_FILENAME, pointer=f"/risk_flags/{flag}")
    return Finding(
        id=f"{DIAGNOSE_REPORT_KIND}.{flag}",
        kind=kind,
        severity=severity,
        title=title,
        metrics=metrics,
        evidence=[shown, Evidence(kind="session", session_id=session_id)],
    )


def _artifact(name: str) -> Artifact:
    kind, form, version = _ARTIFACTS.get(name, ("file", None, None))
    return Artifact(kind=kind, path=name, format=form, schema_version=version)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _finite(value: Any) -> float | int | None:
    """A number that JSON can hold."""
    return None if value is None or not math.isfinite(value) else value
