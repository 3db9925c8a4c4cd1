"""The documents' samples that need TensorFlow, with the real one on the CPU."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy
from documents import blocks, run

keras: Any = import_module("keras")


def test_context_of_the_reference_profiles_a_training() -> None:
    texts = [block.text for block in blocks("api-reference.md")]
    (text,) = [text for text in texts if text.startswith("from tfmemprof import")]
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile(loss="mse")
    x_train, y_train = numpy.ones((64, 4), "float32"), numpy.ones((64, 2), "float32")
    profiler = run(text, model=model, x_train=x_train, y_train=y_train)["profiler"]
    results = profiler.get_results()
    assert results.peak_memory_mb > 0
    assert "training" in results.function_profiles or results.snapshots
