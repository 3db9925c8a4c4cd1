"""TensorFlow and JAX on a GPU: the dump that their allocator writes when it fails. Run by hand.

`python tests/gpu/allocator_dump.py [jax|tensorflow]`: prints what was read, and fails where it is wrong. What
is not installed is named and skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

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


def main() -> None:
    """The libraries named, or both."""
    for name in sys.argv[1:] or ["jax", "tensorflow"]:
        if find_spec(name) is None:
            show(f"SKIPPED: {name} is not installed")
            continue
        dump(OF_JAX if name == "jax" else OF_TENSORFLOW)
    show("OK")


if __name__ == "__main__":
    main()
