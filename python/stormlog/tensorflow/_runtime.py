"""TensorFlow where it is installed: imported when it is first needed, never before.

Questions to it may fail in ways of their own (a driver that is gone, a device it does not know): a profiler
must not fail the program for that, so what cannot be answered is unknown.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from stormlog.tensorflow.tf_env import configure_tensorflow_logging

MIB = 1024 * 1024
_LOGGER = logging.getLogger("stormlog.tensorflow")
_T = TypeVar("_T")


def tensorflow_or_none() -> Any:
    """TensorFlow, or None where it is not installed."""
    if "tensorflow" not in sys.modules and importlib.util.find_spec("tensorflow") is None:
        return None
    configure_tensorflow_logging()
    try:
        return import_module("tensorflow")
    except ImportError as error:
        _LOGGER.warning("TensorFlow is installed but cannot be imported: %s", error)
        return None


def tensorflow() -> Any:
    """TensorFlow; ImportError that says how to get it."""
    found = tensorflow_or_none()
    if found is None:
        raise ImportError(
            "TensorFlow is required for this feature. Install with `pip install 'stormlog[tf]'`."
        )
    return found


def quietly(ask: Callable[[], _T], otherwise: _T, what: str) -> _T:
    """The answer to a question, or `otherwise` where TensorFlow has none."""
    try:
        return ask()
    except Exception as error:
        _LOGGER.debug("TensorFlow did not report %s: %s", what, error)
        return otherwise


def backend_of_keras() -> str:
    """What Keras 3 computes with; `tensorflow` where Keras is older or not imported."""
    keras: Any = sys.modules.get("keras")
    return quietly(lambda: str(keras.backend.backend()), "tensorflow", "what Keras runs on")


def gpus(tf: Any) -> list[Any]:
    """The GPUs TensorFlow can use."""
    return quietly(lambda: list(tf.config.list_physical_devices("GPU")), [], "which GPUs there are")


def is_gpu(device: str) -> bool:
    """Whether a device is a GPU by its name."""
    return "GPU:" in device.upper()


def build_info(tf: Any) -> dict[str, Any]:
    """What TensorFlow was built for."""
    return quietly(lambda: dict(tf.sysconfig.get_build_info()), {}, "what it was built for")


def memory_limit(tf: Any, number: int) -> int | None:
    """The most that TensorFlow's allocator takes of a GPU; None where it is not known, or not yet.

    `list_local_devices` makes devices where there are none: with the default settings, so that the allocator
    takes the whole GPU whatever the program configures later. Once the program has devices, they are used.
    """
    if not is_started() or not gpus(tf):
        return None

    def ask() -> int | None:
        devices = import_module("tensorflow.python.client.device_lib")
        for device in devices.list_local_devices():
            if device.device_type == "GPU" and device.name.endswith(f":{number}"):
                return int(device.memory_limit) or None
        return None

    return quietly(ask, None, f"the limit of GPU {number}")


def device_memory(tf: Any, device: str) -> tuple[int, int]:
    """Bytes in use on a GPU and the most since its peak was reset; zeros where TensorFlow does not say."""
    return pool_memory(tf, device) if is_gpu(device) else (0, 0)


def pool_memory(tf: Any, device: str) -> tuple[int, int]:
    """Bytes that TensorFlow's allocator of a device has handed out, and the most since its peak was reset.

    Zeros where it does not count: on a CPU it does only with oneDNN, whose allocator keeps freed memory; and
    before the program has its devices, when there is no allocator.
    """
    if not is_started():
        return 0, 0
    asked = tf.config.experimental.get_memory_info
    memory: dict[str, int] = quietly(lambda: dict(asked(device)), {}, f"the memory of {device}")
    return int(memory.get("current", 0)), int(memory.get("peak", 0))


def forget_peak(tf: Any, device: str) -> None:
    """Begins a new peak."""
    if is_started():
        forget = tf.config.experimental.reset_memory_stats
        quietly(lambda: forget(device), None, f"that the peak of {device} was reset")


def is_started() -> bool:
    """Whether TensorFlow has its devices; a question would make them, and then they cannot be configured."""
    context: Any = sys.modules.get("tensorflow.python.eager.context")
    return context is not None and quietly(
        lambda: bool(context.context_safe()._initialized), False, "whether it has started"
    )


def grow_memory(tf: Any) -> list[Any]:
    """Lets TensorFlow take GPU memory as it needs it, not all at once; the GPUs where that could be set."""
    grow = tf.config.experimental.set_memory_growth

    def turn_on(gpu: Any) -> bool:
        grow(gpu, True)
        return True

    return [gpu for gpu in gpus(tf) if quietly(partial(turn_on, gpu), False, f"to grow {gpu}")]
