"""A tour of the Python API for TensorFlow: what a block took, each step of a training, memory over time.

Usage: python examples/tfmemprof_tour.py
Runs on a GPU where there is one, else on the CPU.
"""

from __future__ import annotations

import numpy
import tensorflow as tf
from stormlog.tensorflow import StormlogCallback, TensorFlowMemoryTracker
from tfmemprof import TFMemoryProfiler


def build() -> tf.keras.Model:
    layers = [tf.keras.Input((64,)), tf.keras.layers.Dense(1024), tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential(layers)
    model.compile(loss="mse")
    return model


def main() -> None:
    # One block: the highest memory inside it.
    profiler = TFMemoryProfiler()
    with profiler.profile_context("augment"):
        tf.reduce_sum(tf.random.normal((2048, 2048))).numpy()
    row = profiler.get_results().function_profiles["augment"]
    print(f"augment: {row['calls']} call, peak {row['peak_memory']:.0f} MB")

    # A training: the highest memory of each step, and all of it over time.
    callback = StormlogCallback()
    tracker = TensorFlowMemoryTracker(0.05, enable_oom_flight_recorder=True)
    x, y = numpy.ones((512, 64), "float32"), numpy.ones((512, 1), "float32")
    with tracker, tracker.capture_oom("training"):
        build().fit(x, y, epochs=2, batch_size=64, callbacks=[callback], verbose=0)
    worst = max(callback.steps, key=lambda step: step.peak_mb)
    where = f"epoch {worst.epoch} step {worst.step}"
    print(f"steps: {len(callback.steps)}, worst: {where}, peak {worst.peak_mb:.0f} MB")
    print(f"{len(tracker.get_events())} events over time")


if __name__ == "__main__":
    main()
