"""TensorFlow on a real GPU: the limit and the peaks of its allocator, Keras, out-of-memory errors.

Every program is a process of its own: TensorFlow's devices are configured once per process. Only element-wise
operations are used, so that no cuBLAS or cuDNN is needed. Without pytest:
`python tests/gpu/plain.py tests/gpu/test_tensorflow_gpu.py`. Where TensorFlow has no GPU they are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import SkipTest

MB = 1 << 20
GROWTH = """
import json, subprocess, os
import tensorflow as tf
gpu = tf.config.list_physical_devices("GPU")[0]
tf.config.experimental.set_memory_growth(gpu, True)
from stormlog.tensorflow import TensorFlowMemoryTracker
with TensorFlowMemoryTracker(0.05) as tracker:
    kept = tf.ones((64 << 20,))
    kept.numpy()
    statistics = tracker.get_statistics()
query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
used = int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0])
print(json.dumps({"used_mb": used, "limit": statistics["memory_limit"], "backend": tracker.backend,
                  "device": tracker.device, "peak_mb": statistics.get("peak_memory")}))
"""
LIMITED = """
import json
import tensorflow as tf
gpu = tf.config.list_physical_devices("GPU")[0]
tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=1024)])
"""
PEAKS = (
    LIMITED
    + """
from stormlog.tensorflow import TensorFlowMemoryTracker, TFMemoryProfiler
tf.ones((4,)).numpy()
profiler = TFMemoryProfiler(device="/GPU:0")
with profiler.profile_context("outer"):
    with tf.device("/GPU:0"), profiler.profile_context("transient"):
        tf.reduce_sum(tf.ones((50 << 20,))).numpy()
    with profiler.profile_context("small"):
        pass
found = profiler.get_results().function_profiles
with TensorFlowMemoryTracker(0.05) as tracker:
    limit = tracker.get_statistics()["memory_limit"]
print(json.dumps({"increase": {name: row["peak_increase"] for name, row in found.items()}, "limit": limit}))
"""
)
KERAS = (
    LIMITED
    + """
import numpy
from stormlog.tensorflow import StormlogCallback

class Scale(tf.keras.layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(8,), initializer="ones")
    def call(self, x):
        return tf.reduce_sum(x * self.scale, -1, keepdims=True) + tf.reduce_min(tf.ones((25 << 20,))) * 0

model = tf.keras.Sequential([tf.keras.layers.Input((8,)), Scale()])
model.compile(optimizer="sgd", loss="mse", run_eagerly=True)
callback = StormlogCallback()
x, y = numpy.ones((32, 8), "f4"), numpy.ones((32, 1), "f4")
model.fit(x, y, batch_size=16, epochs=2, callbacks=[callback], verbose=0)
increase = [step.increase_mb for step in callback.steps]
print(json.dumps({"increase": increase, "device": callback.tracker.device}))
"""
)
EXHAUSTED = (
    LIMITED
    + """
from stormlog.tensorflow import TensorFlowMemoryTracker
tracker = TensorFlowMemoryTracker(0.05, enable_oom_flight_recorder=True, oom_dump_dir="bundles")
weights = tf.Variable(tf.ones((48 << 20,)))  # 192 MiB
try:
    with tracker, tracker.capture_oom("training"):
        kept = [tf.ones((16 << 20,)) for _ in range(8)]
        tf.ones((128 << 20,))
except tf.errors.ResourceExhaustedError as error:
    print(json.dumps({"bundle": tracker.last_oom_dump_path, "message": str(error)}))
"""
)


@cache
def has_gpu() -> bool:
    """Whether TensorFlow finds a GPU; asked in a process of its own."""
    if find_spec("tensorflow") is None:
        return False
    ask = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
    return done.stdout.strip() not in ("", "0")


def ask(folder: Path, source: str) -> dict[str, Any]:
    """The JSON that a program prints; its standard error is a file, from which a bundle takes the dump."""
    if not has_gpu():
        raise SkipTest("TensorFlow has no GPU here")
    program = folder / "train.py"
    program.write_text(source, encoding="utf-8")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"}
    with (folder / "train.log").open("wb") as log:
        done = subprocess.run(
            [sys.executable, str(program)], stdout=subprocess.PIPE, stderr=log, cwd=folder, env=environment
        )
    lines = done.stdout.decode().splitlines()
    assert lines, (folder / "train.log").read_text()[-3000:]
    found = dict(json.loads(lines[-1]))
    sys.stdout.write(f"{json.dumps(found)[:800]}\n")
    return found


def test_tracker_leaves_memory_growth_as_the_program_set_it(tmp_path: Path) -> None:
    found = ask(tmp_path, GROWTH)
    assert found["device"] == "/GPU:0" and found["backend"] == "cuda"
    assert found["limit"] > 1024 * MB
    assert found["used_mb"] < 8192, "the tracker made TensorFlow take the whole device"


def test_peak_of_a_block_is_the_device_allocators(tmp_path: Path) -> None:
    found = ask(tmp_path, PEAKS)
    increase = found["increase"]
    assert 199 < increase["transient"] < 260
    assert increase["outer"] >= increase["transient"] and increase["small"] < 20
    assert found["limit"] == 1024 * MB


def test_keras_callback_has_the_peak_of_each_step(tmp_path: Path) -> None:
    found = ask(tmp_path, KERAS)
    assert found["device"] == "/GPU:0"
    assert len(found["increase"]) == 4
    assert all(99 < increase < 210 for increase in found["increase"])


def test_exhausted_device_leaves_a_bundle_that_explains_it(tmp_path: Path) -> None:
    found = ask(tmp_path, EXHAUSTED)
    bundle = tmp_path / found["bundle"]
    assert bundle.is_dir()
    shown = subprocess.run(
        [sys.executable, "-m", "stormlog", "oom", "show", str(bundle)], capture_output=True, text=True
    )
    sys.stdout.write(shown.stdout[:3000])
    assert shown.returncode == 0, shown.stderr
    assert "512.0 MiB" in shown.stdout, "the request"
    held = shown.stdout.split("held by", 1)[1]
    assert "`kept`" in held and "`weights`" in held, "the variables whose tensors are on the device"
    explained = subprocess.run(
        [sys.executable, "-m", "stormlog", "oom", "explain", "--json", str(tmp_path / "train.log")],
        capture_output=True,
        text=True,
    )
    assert explained.returncode == 0, explained.stderr
    (failure,) = json.loads(explained.stdout)["failures"]
    assert failure["verdict"] == "too_large" and failure["stats"]["limit"] == 1024 * MB
