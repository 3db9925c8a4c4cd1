"""What the exit code of a command means, for scripts and other programs.

A code is never given a second meaning. The numbers the system already uses keep theirs: 1 for an uncaught
failure, 2 for a wrong command line, 128 and up for signals.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from stormlog import _native

__all__ = [
    "VERDICT_ERROR",
    "VERDICT_FINDINGS",
    "VERDICT_GATE_FAILED",
    "VERDICT_INTERRUPTED",
    "VERDICT_INVALID_INPUT",
    "VERDICT_PASS",
    "VERDICT_STATUSES",
    "VERDICT_STATUS_BY_EXIT_CODE",
    "VERDICT_USAGE",
    "ExitCode",
    "completed_with_findings",
    "exit_code_for_status",
    "verdict_status",
]


class ExitCode(IntEnum):
    """The exit codes of every command."""

    OK = 0  # done, nothing serious found
    ERROR = 1  # it failed; what it wrote may be incomplete
    USAGE = 2  # the command line is wrong, or this installation cannot do it
    FINDINGS = 3  # done, and it found memory trouble
    GATE_FAILED = 4  # done, and a budget or tolerance was exceeded
    INVALID_INPUT = 5  # an input is missing, unreadable or not supported
    INTERRUPTED = 130  # Ctrl-C


VERDICT_PASS = "pass"
VERDICT_ERROR = "error"
VERDICT_USAGE = "usage"
VERDICT_FINDINGS = "findings"
VERDICT_GATE_FAILED = "gate_failed"
VERDICT_INVALID_INPUT = "invalid_input"
VERDICT_INTERRUPTED = "interrupted"

VERDICT_STATUS_BY_EXIT_CODE: Mapping[ExitCode, str] = MappingProxyType(
    {ExitCode(code): status for code, status in _native.catalog.VERDICT_STATUSES.items()}
)
VERDICT_STATUSES = frozenset(VERDICT_STATUS_BY_EXIT_CODE.values())

_EXIT_CODE_BY_STATUS = {status: code for code, status in VERDICT_STATUS_BY_EXIT_CODE.items()}


def verdict_status(exit_code: int) -> str:
    """The word for an exit code; ValueError for a number that is none."""
    try:
        return VERDICT_STATUS_BY_EXIT_CODE[ExitCode(exit_code)]
    except ValueError as error:
        raise ValueError(f"Exit code {exit_code!r} is not in the contract") from error


def exit_code_for_status(status: str) -> ExitCode:
    """The exit code for a word; ValueError for a word that is none."""
    try:
        return _EXIT_CODE_BY_STATUS[status]
    except (KeyError, TypeError):
        raise ValueError(f"Verdict status {status!r} is not in the contract") from None


def completed_with_findings(risk_detected: bool) -> ExitCode:
    """The exit code of a diagnosis that ran to its end."""
    return ExitCode.FINDINGS if risk_detected else ExitCode.OK
