"""The tracker of one JAX device, and the bundle of an out-of-memory error of JAX.

Private; `stormlog.jax` and `stormlog.auto` use it. The bundle has the memory profile of the moment at which
the exception is handled: every live array by the line that made it. Must never start a backend.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from stormlog import _native
from stormlog._jax import profiles, runtime
from stormlog._jax.compiled import live_programs
from stormlog._jax.preallocation import Preallocation, limit_bytes, pool_bytes
from stormlog._tracking.failure import Holder
from stormlog._tracking.framework import FrameworkTracker
from stormlog.oom_flight_recorder import classified

_LOGGER = logging.getLogger("stormlog.jax")
# A failure on a GPU has the page that every framework's has; on the CPU it is the host's memory that ran out.
OOM_FILE, HOST_OOM_FILE = _native.oom.CUDA_OOM_FILE, "jax_oom.json"
_SHAPES, _PROGRAMS = 16, 8


class DeviceTracker(FrameworkTracker):
    """Tracks a device; an error that means that memory ran out leaves a bundle."""

    session_source = "stormlog.jax.tracker"
    _logger = _LOGGER
    _knows_lines = True

    def handle_exception(
        self, exc: BaseException, context: str | None = None, metadata: dict[str, Any] | None = None
    ) -> str | None:
        """Write a bundle if this exception means that memory ran out; its path."""
        if self._recorder_config.enabled and classified(exc).is_oom:
            # First of all: what the failed call holds is still alive.
            self._take_profile()
        try:
            return super().handle_exception(exc, context=context, metadata=metadata)
        finally:
            self._unplaced().unlink(missing_ok=True)

    def _take_profile(self) -> None:
        try:
            _native.files.create_directory(self._unplaced().parent)
            profiles.write(self._unplaced(), runtime.jax())
        except Exception as error:
            _LOGGER.warning("JAX's memory profile could not be taken for the OOM bundle: %s", error)

    def _holders(self, exc: BaseException) -> list[Holder]:
        """The lines whose arrays are alive; the variables of the frames where there is no profile."""
        try:
            found = profiles.holders(self._unplaced())
        except Exception as error:
            _LOGGER.debug("JAX's memory profile: %s", error)
            found = []
        return found or super()._holders(exc)

    def _add_evidence(self, bundle: Path) -> None:
        """The profile, the allocator's counters, the arrays by shape and the largest compiled programs."""
        try:
            names = [HOST_OOM_FILE if self._is_host else OOM_FILE]
            if self._unplaced().exists():
                self._unplaced().replace(bundle / profiles.AT_OOM)
                names.append(profiles.AT_OOM)
            page = self._page(json.loads((bundle / "metadata.json").read_text(encoding="utf-8")))
            evidence = json.loads((bundle / "evidence.json").read_text(encoding="utf-8"))
            page["held_by"], page["try"] = evidence["held_by"], evidence["try"]
            _replace(bundle / names[0], page)
            _state(bundle, names, {**evidence, "verdict": page["verdict"]})
        except Exception as error:
            _LOGGER.warning("The OOM bundle lacks JAX's own evidence: %s", error)
        config = self._recorder_config
        _native.oom.prune_bundles(config.dump_dir, bundle, config.max_dumps, config.max_total_mb)

    @property
    def _device_or_none(self) -> Any:
        """The device of JAX; None where the process is sampled natively."""
        return getattr(self.collector, "device", None)

    @property
    def _is_host(self) -> bool:
        # JAX's CPU device has the backend `jax` too.
        device = self._device_or_none
        return device is None or device.platform == "cpu"

    def _metadata(self) -> dict[str, Any]:
        device = self._device_or_none
        return {
            # 0.4.3's word for it, by which a device is the same one as the driver's.
            "backend": self.backend if device is None else str(device.platform),
            "sampling_source": self.collector_capabilities.sampling_source,
            **super()._metadata(),
        }

    def _system(self) -> dict[str, Any]:
        # Not the general one: it imports PyTorch where that is installed, while memory is short.
        return {
            "python_version": sys.version,
            "jax_version": str(getattr(runtime.jax(), "__version__", "unknown")),
            "memory_total": _native.tracking.host_memory()[0],
        }

    def _page(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """The failure under the names that every view of such a bundle reads, and JAX's own facts."""
        device = None if self._is_host else self._device_or_none
        stats = None if device is None else runtime.memory_stats(device)
        preallocation = Preallocation.of()
        sentence = None if stats is None else preallocation.sentence(stats)
        message = str(metadata.get("exception_message") or "").partition("\n")[0]
        failed = "JAX ran out of memory" + ("" if device is None else f" on GPU {runtime.number_of(device)}")
        custom = metadata.get("custom_metadata", {})
        frames = custom.get("traceback") or []
        report = custom.get("allocator_failure") or {}
        return {
            "format": "stormlog.cuda_oom",
            "schema_version": 1,
            "framework": "jax",
            "framework_version": str(getattr(runtime.jax(), "__version__", "unknown")),
            "device_index": None if device is None else runtime.number_of(device),
            "device_name": None if device is None else str(device.device_kind),
            "allowed_bytes": None if stats is None else limit_bytes(stats, preallocation),
            "allocated_bytes": None if stats is None else stats["bytes_in_use"],
            "reserved_bytes": None if stats is None else pool_bytes(stats, preallocation),
            "largest_usable_block_bytes": None if stats is None else stats.get("largest_free_block_bytes"),
            "requested_bytes": report.get("requested_bytes"),
            "verdict": f"{failed}: {message}",
            "reason": report.get("sentence"),
            "memory_stats": stats,
            "preallocation": {**preallocation.to_dict(stats), "sentence": sentence},
            "live_arrays": _shapes(runtime.jax()),
            "compiled_programs": [program.to_dict() for program in live_programs()[:_PROGRAMS]],
            "stack": [f"{row['file']}:{row['line']} {row['function']}" for row in reversed(frames)],
        }

    def _unplaced(self) -> Path:
        """The profile before there is a bundle for it."""
        return Path(self._recorder_config.dump_dir) / f".{os.getpid()}-{profiles.AT_OOM}"


def _shapes(jax: Any) -> list[dict[str, Any]]:
    """The live arrays by shape and type, the largest sum first."""
    sums: dict[tuple[str, str], list[int]] = {}
    arrays: list[Any] = runtime.quietly(jax.live_arrays, [], "its live arrays")
    for array in arrays:
        total = sums.setdefault((str(array.dtype), str(array.shape)), [0, 0])
        total[0] += int(array.nbytes)
        total[1] += 1
    rows = sorted(sums.items(), key=lambda item: item[1][0], reverse=True)[:_SHAPES]
    return [
        {"dtype": dtype, "shape": shape, "bytes": size, "count": count}
        for (dtype, shape), (size, count) in rows
    ]


def _state(bundle: Path, names: list[str], evidence: dict[str, Any]) -> None:
    """The bundle's own files list the others, and begin with the verdict."""
    manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    manifest["files"] = list(dict.fromkeys([*manifest.get("files", []), *names]))
    # 0.4.3's key for it.
    manifest["jax_device_profile"] = profiles.AT_OOM in names
    _replace(bundle / "manifest.json", manifest)
    _replace(bundle / "evidence.json", evidence)


def _replace(path: Path, payload: dict[str, Any]) -> None:
    """Whole or not at all: the process may be killed while it writes this."""
    _native.files.replace_file(path, json.dumps(payload, indent=2, default=str).encode())
