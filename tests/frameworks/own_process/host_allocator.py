"""How TensorFlow's allocator of the CPU behaves on this machine."""

from __future__ import annotations

import tensorflow as tf


def unused_mb() -> int:
    """Megabytes of a chunk that may be unused and yet count; 0 where freed memory goes back at once.

    With oneDNN, the default on some CPUs, the allocator is BFC: it keeps what is freed, and splits a chunk
    only where 128 MiB or more are left over.
    """
    tf.ones((1,))
    try:
        tf.config.experimental.get_memory_info("CPU:0")
    except ValueError:
        return 0
    return 128
