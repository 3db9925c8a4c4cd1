"""The `stormlog.report` envelope, version 1: what a command found, for scripts and other programs to read.

A verdict that goes with the exit code, findings with the evidence for them, numbers, and the files that were
written. What only one command knows goes into `payload`. Nothing invalid is ever written.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stormlog import _native
from stormlog.exit_codes import VERDICT_STATUSES, verdict_status

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

REPORT_FORMAT = "stormlog.report"
REPORT_SCHEMA_VERSION = 1
REPORT_FILENAME = _native.catalog.DIAGNOSE_REPORT_FILE
SEVERITY_INFO = "info"
SEVERITY_WARNING = "warning"
SEVERITY_CRITICAL = "critical"
SEVERITIES = frozenset({SEVERITY_INFO, SEVERITY_WARNING, SEVERITY_CRITICAL})

_REPORT_KIND = re.compile("[a-z][a-z0-9_]*")
_FINDING_ID = re.compile("[a-z][a-z0-9_.]*")
_POINTER = re.compile("|/[^\n]*")

_REQUIRED = ("schema_version", "format", "report_kind", "generated_at_utc", "tool", "verdict", "findings")
_OPTIONAL = ("metrics", "artifacts", "recommendations", "session_id", "run_id", "payload")


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
    """A report whose verdict goes with the exit code; ValueError for a number that is no exit code."""
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
    _object(report, "report", (*_REQUIRED, *_OPTIONAL), _REQUIRED)
    version = report["schema_version"]
    if not _is_whole(version) or version != REPORT_SCHEMA_VERSION:
        raise ValueError(f"schema_version must be {REPORT_SCHEMA_VERSION}")
    if report["format"] != REPORT_FORMAT:
        raise ValueError(f"format must be {REPORT_FORMAT!r}")
    _pattern(report, "report_kind", _REPORT_KIND)
    _name(report, "generated_at_utc")
    _check_tool(report["tool"])
    _check_verdict(report["verdict"])
    _each(report.get("findings", []), "findings", _check_finding)
    _check_metrics(report.get("metrics", {}), "metrics")
    _each(report.get("artifacts", []), "artifacts", _check_artifact)
    advice = report.get("recommendations", [])
    if not isinstance(advice, list) or not all(isinstance(item, str) and item for item in advice):
        raise ValueError("recommendations must be a list of non-empty strings")
    for key in ("session_id", "run_id"):
        _optional_name(report, key)
    if "payload" in report and not isinstance(report["payload"], Mapping):
        raise ValueError("payload must be an object")


def _check_tool(tool: Any) -> None:
    _object(tool, "tool", ("name", "command", "version", "argv"))
    _name(tool, "name", "tool.")
    _name(tool, "command", "tool.")
    _optional_name(tool, "version", "tool.")
    argv = tool.get("argv", [])
    if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
        raise ValueError("tool.argv must be a list of strings")


def _check_verdict(verdict: Any) -> None:
    _object(verdict, "verdict", ("status", "exit_code", "summary"))
    status, code = verdict.get("status"), verdict.get("exit_code")
    if not isinstance(status, str) or status not in VERDICT_STATUSES:
        raise ValueError(f"verdict.status {status!r} is not a verdict status")
    if not _is_whole(code):
        raise ValueError("verdict.exit_code must be an integer")
    if verdict_status(int(code)) != status:
        raise ValueError(f"verdict.status {status!r} does not pair with exit_code {code}")
    _name(verdict, "summary", "verdict.")


def _check_finding(finding: Any, label: str) -> None:
    keys = ("id", "kind", "severity", "title", "message", "metrics", "evidence")
    _object(finding, label, keys)
    _pattern(finding, "id", _FINDING_ID, f"{label}.")
    _name(finding, "kind", f"{label}.")
    _name(finding, "title", f"{label}.")
    severity = finding.get("severity")
    if not isinstance(severity, str) or severity not in SEVERITIES:
        raise ValueError(f"{label}.severity must be one of {sorted(SEVERITIES)}")
    _optional_text(finding, "message", label)
    if "metrics" in finding:
        _check_metrics(finding["metrics"], f"{label}.metrics")
    _each(finding.get("evidence"), f"{label}.evidence", _check_evidence)


def _check_evidence(evidence: Any, label: str) -> None:
    keys = ("kind", "path", "pointer", "session_id", "record_id", "start_ns", "end_ns", "description")
    _object(evidence, label, keys)
    _name(evidence, "kind", f"{label}.")
    for key in ("path", "session_id", "record_id"):
        _optional_name(evidence, key, f"{label}.")
    pointer = evidence.get("pointer")
    if pointer is not None and not (isinstance(pointer, str) and _POINTER.fullmatch(pointer)):
        raise ValueError(f"{label}.pointer must be a single-line JSON pointer")
    for key in ("start_ns", "end_ns"):
        _optional_whole(evidence, key, label, 0)
    _optional_text(evidence, "description", label)


def _check_artifact(artifact: Any, label: str) -> None:
    _object(artifact, label, ("kind", "path", "format", "schema_version"))
    _name(artifact, "kind", f"{label}.")
    _name(artifact, "path", f"{label}.")
    _optional_name(artifact, "format", f"{label}.")
    _optional_whole(artifact, "schema_version", label, 1)


def _check_metrics(metrics: Any, label: str) -> None:
    if not isinstance(metrics, Mapping):
        raise ValueError(f"{label} must be an object")
    for key, value in metrics.items():
        if not isinstance(key, str):
            raise ValueError(f"{label} keys must be strings")
        if value is not None and (not isinstance(value, (int, float)) or isinstance(value, bool)):
            raise ValueError(f"{label}.{key} must be a number or null")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{label}.{key} must be finite")


def _object(value: Any, label: str, known: Collection[str], required: Sequence[str] = ()) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"{label} must be an object")
    missing = [key for key in required if key not in value]
    if missing:
        raise ValueError(f"{label} is missing required fields: {', '.join(missing)}")
    unknown = sorted(str(key) for key in value if key not in known)
    if unknown:
        raise ValueError(f"{label} has unknown fields: {', '.join(unknown)}")


def _each(items: Any, label: str, check: Callable[[Any, str], None]) -> None:
    if not isinstance(items, list):
        raise ValueError(f"{label} must be a list")
    for index, item in enumerate(items):
        check(item, f"{label}[{index}]")


def _name(value: Mapping[str, Any], key: str, prefix: str = "") -> None:
    if not isinstance(value.get(key), str) or not value[key]:
        raise ValueError(f"{prefix}{key} must be a non-empty string")


def _optional_name(value: Mapping[str, Any], key: str, prefix: str = "") -> None:
    if value.get(key) is not None:
        _name(value, key, prefix)


def _pattern(value: Mapping[str, Any], key: str, pattern: re.Pattern[str], prefix: str = "") -> None:
    _name(value, key, prefix)
    if pattern.fullmatch(value[key]) is None:
        raise ValueError(f"{prefix}{key} must match ^{pattern.pattern}$")


def _optional_text(value: Mapping[str, Any], key: str, label: str) -> None:
    if not isinstance(value.get(key), (str, type(None))):
        raise ValueError(f"{label}.{key} must be a string or null")


def _optional_whole(value: Mapping[str, Any], key: str, label: str, minimum: int) -> None:
    number = value.get(key)
    if number is not None and (not _is_whole(number) or number < minimum):
        raise ValueError(f"{label}.{key} must be an integer >= {minimum}")


def _is_whole(value: Any) -> bool:
    """An integer as JSON has them: 3 and 3.0, but no truth value."""
    return type(value) is int or (isinstance(value, float) and value.is_integer())
