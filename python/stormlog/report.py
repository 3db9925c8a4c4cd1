"""The `stormlog.report` envelope, version 1: what a command found, for scripts and other programs to read.

A verdict that goes with the exit code, findings with the evidence for them, numbers, and the files that were
written. What only one command knows goes into `payload`. Nothing invalid is ever written; the rules are
native (`crates/catalog/src/report_check.rs`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stormlog import _native
from stormlog.exit_codes import verdict_status

__all__ = [
    "REPORT_FILENAME",
    "REPORT_FORMAT",
    "REPORT_SCHEMA_VERSION",
    "SEVERITIES",
    "SEVERITY_CRITICAL",
    "SEVERITY_INFO",
    "SEVERITY_WARNING",
    "Artifact",
    "Evidence",
    "Finding",
    "build_report",
    "load_report",
    "validate_report",
    "write_report",
]

REPORT_FORMAT = _native.catalog.REPORT_FORMAT
REPORT_SCHEMA_VERSION = _native.catalog.REPORT_SCHEMA_VERSION
REPORT_FILENAME = _native.catalog.DIAGNOSE_REPORT_FILE
SEVERITY_INFO = "info"
SEVERITY_WARNING = "warning"
SEVERITY_CRITICAL = "critical"
SEVERITIES = frozenset(_native.catalog.REPORT_SEVERITIES)


@dataclass(frozen=True)
class Evidence:
    """Where the data behind a finding is: a file beside the report, a place in it, a session, a time."""

    kind: str
    path: str | None = None
    pointer: str | None = None
    session_id: str | None = None
    record_id: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    description: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """What is known, as a dictionary for JSON."""
        return _known(self)


@dataclass(frozen=True)
class Finding:
    """Something that was found, how bad it is, and what shows it."""

    id: str
    kind: str
    severity: str
    title: str
    message: str | None = None
    metrics: Mapping[str, float | int | None] | None = None
    evidence: Sequence[Evidence] = field(default_factory=tuple)

    def as_dict(self) -> dict[str, Any]:
        """What is known, as a dictionary for JSON."""
        fields = _known(self)
        if self.metrics is not None:
            fields["metrics"] = dict(self.metrics)
        return {**fields, "evidence": [item.as_dict() for item in self.evidence]}


@dataclass(frozen=True)
class Artifact:
    """A file that was written or used."""

    kind: str
    path: str
    format: str | None = None
    schema_version: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """What is known, as a dictionary for JSON."""
        return _known(self)


def _known(one: object) -> dict[str, Any]:
    return {name: value for name, value in vars(one).items() if value is not None}


def build_report(
    *,
    report_kind: str,
    tool_name: str,
    command: str,
    exit_code: int,
    summary: str,
    findings: Sequence[Finding] = (),
    metrics: Mapping[str, float | int | None] | None = None,
    artifacts: Sequence[Artifact] = (),
    recommendations: Sequence[str] = (),
    session_id: str | None = None,
    run_id: str | None = None,
    payload: Mapping[str, Any] | None = None,
    argv: Sequence[str] | None = None,
    tool_version: str | None = None,
    generated_at_utc: str | None = None,
) -> dict[str, Any]:
    """A report whose verdict goes with the exit code; ValueError for a number that is not an exit code."""
    if tool_version is None:
        from stormlog import __version__ as tool_version
    tool: dict[str, Any] = {"name": tool_name, "command": command, "version": tool_version}
    report: dict[str, Any] = {
        "schema_version": REPORT_SCHEMA_VERSION,
        "format": REPORT_FORMAT,
        "report_kind": report_kind,
        "generated_at_utc": generated_at_utc or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "tool": tool if argv is None else {**tool, "argv": list(argv)},
        "verdict": {"status": verdict_status(exit_code), "exit_code": int(exit_code), "summary": summary},
        "findings": [finding.as_dict() for finding in findings],
        "metrics": dict(metrics or {}),
        "artifacts": [artifact.as_dict() for artifact in artifacts],
        "recommendations": list(recommendations),
        "session_id": session_id,
        "run_id": run_id,
    }
    return report if payload is None else {**report, "payload": dict(payload)}


def write_report(path: Path, report: Mapping[str, Any]) -> None:
    """Checks a report and writes it whole or not at all."""
    validate_report(report)
    text = json.dumps(report, indent=2, allow_nan=False) + "\n"
    unfinished = path.with_name(path.name + ".tmp")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    finally:
        with suppress(OSError):
            unfinished.unlink()


def load_report(path: Path) -> dict[str, Any]:
    """Reads and checks a report; ValueError where the file is none."""
    try:
        with os.fdopen(_native.files.open_regular(path), encoding="utf-8") as file:
            report = json.load(file)
    except (OSError, ValueError) as error:
        raise ValueError(f"Cannot read report {path}: {error}") from error
    if not isinstance(report, dict):
        raise ValueError(f"Report {path} is not a JSON object")
    validate_report(report)
    return report


def validate_report(report: Mapping[str, Any]) -> None:
    """Checks a report: ValueError for the first rule it breaks."""
    _native.catalog.check_report(report)
