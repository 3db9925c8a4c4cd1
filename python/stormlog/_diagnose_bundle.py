"""The directory that a diagnosis leaves: a file at a time, the report, the manifest last.

A file that cannot be written makes the bundle incomplete, and report and manifest say so.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stormlog import _native
from stormlog.diagnose_report import (
    MANIFEST_FILENAME,
    validate_output_directory,
    write_incomplete_bundle,
    write_verdict_report,
)
from stormlog.exit_codes import ExitCode, completed_with_findings
from stormlog.report import REPORT_FILENAME
from stormlog.session import (
    SESSION_STATUS_COMPLETED,
    SESSION_STATUS_INCOMPLETE,
    create_session_summary,
    now_ns,
    session_summary_to_dict,
    update_session_summary,
)

HIGH_UTILIZATION_RATIO = _native.catalog.DIAGNOSE_HIGH_UTILIZATION
MANIFEST_VERSION = _native.catalog.DIAGNOSE_MANIFEST_VERSION
_LOGGER = logging.getLogger(__name__)


class DiagnoseBundle:
    """One bundle while it is written."""

    def __init__(
        self, output: str | None, prefix: str, tool_name: str, thresholds: Mapping[str, float]
    ) -> None:
        validate_output_directory(output)
        self.directory = _native.catalog.diagnose_directory(Path(output or ".").resolve(), prefix)
        self.files: list[str] = []
        self._tool_name = tool_name
        self._thresholds = thresholds
        self._session = create_session_summary(source=f"{tool_name} diagnose")

    def write(self, name: str, value: Any) -> None:
        """Writes one file; what JSON has no word for, as an array's number, is written as its text."""
        text = json.dumps(value, indent=2, default=str)
        _native.files.replace_file(self.directory / name, text.encode())
        self.files.append(name)

    def fill(self, make: Callable[[], tuple[dict[str, Any], bool]], stated: Mapping[str, Any]) -> int:
        """Has `make` write the files and say the summary and whether there is a risk; gives the exit code."""
        summary: dict[str, Any] = {}
        is_risky = False
        try:
            summary, is_risky = make()
            code = int(completed_with_findings(is_risky))
            session_id = self._session.session_id
            write_verdict_report(
                self.directory,
                tool_name=self._tool_name,
                summary=summary,
                exit_code=code,
                session_id=session_id,
                files=[*self.files, REPORT_FILENAME, MANIFEST_FILENAME],
                thresholds=self._thresholds,
            )
            self.files += [REPORT_FILENAME, MANIFEST_FILENAME]
            self._write_manifest(self.files, code, is_risky, SESSION_STATUS_COMPLETED, stated)
            return code
        except (OSError, ValueError) as error:
            _LOGGER.warning("Failed to write diagnostic artifact: %s", error)
            if not self.files:
                raise
            problem = str(error)
        code = int(ExitCode.ERROR)
        write_incomplete_bundle(
            self.directory,
            tool_name=self._tool_name,
            summary=summary,
            session_id=self._session.session_id,
            files_written=self.files,
            error=problem,
            thresholds=self._thresholds,
            write_manifest=lambda files: self._write_manifest(
                files, code, is_risky, SESSION_STATUS_INCOMPLETE, {**stated, "error": problem}
            ),
        )
        return code

    def _write_manifest(
        self, files: list[str], code: int, is_risky: bool, status: str, stated: Mapping[str, Any]
    ) -> None:
        session = update_session_summary(self._session, status=status, ended_at_ns=now_ns())
        manifest = {
            "schema_version": MANIFEST_VERSION,
            "version": MANIFEST_VERSION,
            "created_iso": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "files": files,
            "exit_code": code,
            "risk_detected": is_risky,
            "session_id": session.session_id,
            "session_status": session.status,
            "session": session_summary_to_dict(session),
            **stated,
        }
        _native.files.replace_file(
            self.directory / MANIFEST_FILENAME, json.dumps(manifest, indent=2).encode()
        )
