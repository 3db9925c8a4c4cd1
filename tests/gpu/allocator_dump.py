"""TensorFlow and JAX on a GPU: the allocator's own dump, the device's peaks and limit. Run by hand.

`python tests/gpu/allocator_dump.py [jax|tensorflow]`: prints what was read, and fails where it is wrong. What
is not installed is named and skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from stormlog._native.oom import explain_allocation_failure

OF_TENSORFLOW = """
import tensorflow as tf
gpu = tf.config.list_physical_devices("GPU")[0]
limit = [tf.config.LogicalDeviceConfiguration(memory_limit=1024)]
tf.config.set_logical_device_configuration(gpu, limit)
kept = [tf.ones((16 << 20,)) for _ in range(12)]
tf.ones((128 << 20,))
"""
OF_JAX = """
import jax, jax.numpy as jnp
kept = [jnp.ones((16 << 20,)) for _ in range(4)]
jax.block_until_ready(jnp.ones((1 << 40,), jnp.int8))
"""


def show(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def dump(program: str) -> None:
    """The dump of the real allocator is read: request, limit, bytes in use, chunks by size."""
    settings = {"TF_CPP_MIN_LOG_LEVEL": "0", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.02"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **settings}
    )
    show(done.stderr[-4000:])
    found = explain_allocation_failure(done.stderr)
    assert done.returncode != 0, "the program did not run out of memory"
    assert found is not None, "no report was recognised"
    show(found.page)
    assert found.requested_bytes and found.verdict == "too_large", found.verdict
    assert found.limit_bytes and found.in_use_bytes and found.holders


def peaks(tf: Any) -> None:
    """A block has the device's peak inside it, and the limit is the allocator's."""
    from stormlog.tensorflow import TensorFlowMemoryTracker, TFMemoryProfiler

    profiler = TFMemoryProfiler(device="/GPU:0")
    with profiler.profile_context("outer"):
        with tf.device("/GPU:0"), profiler.profile_context("transient"):
            tf.reduce_sum(tf.ones((50 << 20,))).numpy()
        with profiler.profile_context("small"):
            pass
    found = profiler.get_results().function_profiles
    increase = {name: profile["peak_increase"] for name, profile in found.items()}
    show(f"peak above the start of each block, MB: {increase}")
    assert 199 < increase["transient"] < 260 and increase["outer"] >= increase["transient"]
    assert increase["small"] < 20
    with TensorFlowMemoryTracker(0.05) as tracker:
        limit = tracker.get_statistics()["memory_limit"]
    show(f"backend {tracker.backend}, limit {limit}")
    assert tracker.device == "/GPU:0" and limit and limit > 256 << 20


def main() -> None:
    """The libraries named, or both."""
    for name in sys.argv[1:] or ["jax", "tensorflow"]:
        if find_spec(name) is None:
            show(f"SKIPPED: {name} is not installed")
            continue
        if name == "jax":
            dump(OF_JAX)
            continue
        dump(OF_TENSORFLOW)
        peaks(import_module("tensorflow"))
    show("OK")


if __name__ == "__main__":
    main()
