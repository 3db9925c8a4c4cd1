"""JAX where it is installed: imported when it is first needed, never before.

What JAX does not answer is unknown: None, never 0. Nothing here may start a backend by itself where
`started_devices` is asked, because that takes 75 % of a GPU.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

INSTALL = "JAX is required for this feature. Install with: pip install 'stormlog[jax]'"
MIB = 1024 * 1024
_LOGGER = logging.getLogger("stormlog.jax")
_T = TypeVar("_T")


def jax_or_none() -> Any:
    """JAX, or None where it is not installed."""
    if "jax" not in sys.modules and importlib.util.find_spec("jax") is None:
        return None
    try:
        return import_module("jax")
    except ImportError as error:
        _LOGGER.warning("JAX is installed but cannot be imported: %s", error)
        return None


def jax() -> Any:
    """JAX; ImportError with the command that installs it."""
    found = jax_or_none()
    if found is None:
        raise ImportError(INSTALL)
    return found


def quietly(ask: Callable[[], _T], otherwise: _T, what: str) -> _T:
    """The answer to a question, or `otherwise` where JAX has none."""
    try:
        return ask()
    except Exception as error:
        _LOGGER.debug("JAX does not report %s: %s", what, error)
        return otherwise


def started_devices() -> list[Any]:
    """The devices of this process once the program itself has started a backend; empty before."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    # Looked at and not asked: JAX would answer under a lock, which a fork at that moment would leave taken.
    if not getattr(bridge, "_backends", None):
        return []
    return quietly(lambda: list(jax().local_devices()), [], "its devices")


def memory_stats(device: Any) -> dict[str, int] | None:
    """The counters of a device's allocator; None where it has none, as on the CPU."""
    found = quietly(device.memory_stats, None, f"the memory of {device}")
    if not found or "bytes_in_use" not in found:
        return None
    return {str(name): int(value) for name, value in dict(found).items()}


def live_bytes(jax_module: Any, device: Any = None) -> int:
    """Bytes of the arrays that are alive: of a device, or of all."""
    return sum(_bytes_on(array, device) for array in jax_module.live_arrays())


def _bytes_on(array: Any, device: Any) -> int:
    try:
        shards = [shard for shard in array.addressable_shards if device is None or shard.device == device]
        return sum(int(shard.data.nbytes) for shard in shards)
    except Exception:
        return 0  # deleted or donated since it was listed


def memory_profile(jax_module: Any) -> bytes:
    """What is alive now by the Python line that made it, as gzip pprof: about 1 ms for 1000 arrays."""
    return bytes(jax_module.profiler.device_memory_profile())


def number_of(device: Any) -> int:
    """The number of a device among those of this process; -1 for the CPU, whose memory is the host's."""
    if device.platform == "cpu":
        return -1
    number = getattr(device, "local_hardware_id", None)
    return int(device.id if number is None else number)
