"""Trackers and profilers never make TensorFlow's devices: the program may still configure them."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("tensorflow")

# As with a GPU: with devices of the default settings TensorFlow's allocator would take all of it.
CONFIGURES_LATE = """
import time
import tensorflow as tf
from tensorflow.python.eager import context
from stormlog.tensorflow import StormlogCallback, TensorFlowMemoryTracker, TFMemoryProfiler
from stormlog.tensorflow.diagnose import build_diagnostic_summary
from stormlog.tensorflow.utils import get_gpu_info, get_tensorflow_memory_usage

list_devices = tf.config.list_physical_devices
tf.config.list_physical_devices = lambda kind=None: ["a GPU"] if kind == "GPU" else list_devices(kind)
with TensorFlowMemoryTracker(0.02, device="/GPU:0") as tracker, TFMemoryProfiler(device="/GPU:0") as profiler:
    with profiler.profile_context("set-up"):
        while len(tracker.memory_usage) < 3:
            time.sleep(0.02)
    print(tracker.get_statistics()["memory_limit"], profiler.get_results().peak_memory_mb)
StormlogCallback(TensorFlowMemoryTracker(10, device="/GPU:0")).on_train_begin()
get_gpu_info(), get_tensorflow_memory_usage(), build_diagnostic_summary()
assert not context.context_safe()._initialized
halves = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(list_devices("CPU")[0], halves)
print(len(tf.config.list_logical_devices("CPU")))
"""


def test_devices_can_be_configured_after_a_tracker_has_sampled() -> None:
    done = subprocess.run([sys.executable, "-c", CONFIGURES_LATE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["None", "0.0", "2"]
