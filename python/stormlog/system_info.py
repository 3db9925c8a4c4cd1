"""The machine and this process, without asking any framework."""

from __future__ import annotations

import os
import sys
from typing import Any

from stormlog import _native

__all__ = ["get_system_info"]


def get_system_info() -> dict[str, Any]:
    """The platform, its processors and memory, and what this process holds; what cannot be read is None."""
    system = os.uname()
    total, available = _native.tracking.host_memory()
    resident, _ = _native.tracking.ProcessProbe().memory()
    return {
        "platform": system.sysname,
        "architecture": system.machine,
        "python_version": sys.version,
        "pid": os.getpid(),
        "cpu_count": os.cpu_count(),
        "cpu_count_logical": os.cpu_count(),
        "memory_total": total,
        "memory_available": available,
        "memory_percent": round((total - available) / total * 100, 1) if total and available else None,
        "process_rss_bytes": resident,
    }
