"""The CUDA allocator's history for as long as a tracker wants it, and its place in an OOM bundle.

Private to `MemoryTracker`. There is one recording for the whole process, so trackers share it, and it stops
only what it started: the user's own continues. A history that cannot be had costs a warning, never the
bundle.
"""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

from stormlog import _native, cuda_native_debug

_LOGGER = logging.getLogger("stormlog.tracker")


class _Recording:
    """The one of the process: how many want it, and whether it is ours to stop."""

    lock = threading.Lock()
    wanted = 0
    is_ours = False


class NativeHistory:
    """One tracker's share in it."""

    def __init__(self, device: Any, max_entries: int) -> None:
        self._device = device
        self._max_entries = max_entries
        self.is_on = False

    def start(self) -> None:
        """Record from now on; a recording that runs already is used as it is."""
        if self.is_on:
            return
        with _Recording.lock:
            try:
                if _Recording.wanted == 0 and not cuda_native_debug.cuda_memory_history_is_on():
                    cuda_native_debug.start_cuda_memory_history(self._device, self._max_entries)
                    _Recording.is_ours = True
            except Exception as error:
                _LOGGER.warning("The allocator's history is not recorded: %s", error)
                return
            _Recording.wanted += 1
        self.is_on = True

    def stop(self) -> None:
        """No longer wanted here; the last one stops what the first one started."""
        if not self.is_on:
            return
        self.is_on = False
        with _Recording.lock:
            _Recording.wanted -= 1
            if _Recording.wanted == 0 and _Recording.is_ours:
                _Recording.is_ours = False
                try:
                    cuda_native_debug.stop_cuda_memory_history(self._device)
                except Exception as error:
                    _LOGGER.warning("The allocator's history could not be stopped: %s", error)

    def add_to(self, bundle: Path) -> None:
        """Write the allocator's state into a bundle and say so in its manifest."""
        try:
            files = cuda_native_debug.capture_cuda_snapshot_artifacts(
                bundle, device=self._device, history_recorded=True
            )
            facts = {"native_history_enabled": True, "native_history_files": files}
            metadata = _read(bundle / "metadata.json")
            metadata["custom_metadata"] = {**metadata.get("custom_metadata", {}), **facts}
            _replace(bundle / "metadata.json", metadata)
            manifest = _read(bundle / "manifest.json")
            manifest["files"] = list(dict.fromkeys([*manifest.get("files", []), *files]))
            _replace(bundle / "manifest.json", {**manifest, **facts})
        except Exception as error:
            _LOGGER.warning("The OOM bundle lacks the allocator's history: %s", error)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _replace(path: Path, payload: dict[str, Any]) -> None:
    """Whole or not at all: the process may be killed while it writes this."""
    _native.files.replace_file(path, json.dumps(payload, indent=2).encode())
