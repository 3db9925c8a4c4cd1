"""The profiler of TensorFlow programs with the real TensorFlow, on the CPU."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest

tf = pytest.importorskip("tensorflow")

from stormlog.tensorflow import TensorFlowProfiler, TFMemoryProfiler, context_profiler, utils  # noqa: E402


@pytest.fixture(autouse=True)
def _no_profiler_of_another_test() -> None:
    context_profiler.clear_global_profiler()


def model() -> object:
    made = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(2)])
    made.compile(optimizer="sgd", loss="mse")
    return made


def test_calls_and_blocks_are_counted() -> None:
    profiler = TFMemoryProfiler()

    @profiler.profile_function
    def double(x: int) -> int:
        return 2 * x

    assert double(21) == 42
    with profiler.profile_context("outer"), profiler.profile_context("inner"):
        time.sleep(0.01)
    with pytest.raises(KeyError), profiler.profile_context("broken"):
        raise KeyError
    found = profiler.get_results()
    assert {name: profile["calls"] for name, profile in found.function_profiles.items()} == {
        "double": 1,
        "inner": 1,
        "outer": 1,
        "broken": 1,
    }
    inner, outer = found.function_profiles["inner"], found.function_profiles["outer"]
    assert outer["total_duration"] >= inner["total_duration"] >= 0.01
    assert all(snapshot.cpu_memory_mb > 50 for snapshot in found.snapshots)
    assert profiler.device == "/CPU:0" and found.peak_memory_mb == 0.0
    profiler.reset()
    assert profiler.get_results().function_profiles == {}


def test_a_call_that_raises_is_not_counted() -> None:
    profiler = TFMemoryProfiler()

    @profiler.profile_function
    def fails() -> None:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fails()
    assert profiler.get_results().function_profiles == {}
    assert [snapshot.name for snapshot in profiler.snapshots] == ["fails_before", "fails_error"]


def test_tensors_are_measured_without_a_copy_and_not_kept_alive() -> None:
    profiler = TFMemoryProfiler()
    assert profiler.tensor_tracker is not None
    tensor = tf.zeros((256, 1024), tf.float32)
    profiler.tensor_tracker.track_tensor(tensor, "zeros")
    assert profiler.tensor_tracker.get_active_tensors() == {
        "count": 1,
        "total_size_mb": 1.0,
        "average_size_mb": 1.0,
    }
    del tensor
    gc.collect()
    assert profiler.tensor_tracker.get_active_tensors()["count"] == 0
    assert profiler.tensor_tracker.get_tensor_lifecycle()[0]["shape"] == [256, 1024]


def test_snapshots_in_the_background() -> None:
    with TFMemoryProfiler(enable_tensor_tracking=False) as profiler:
        profiler.start_continuous_profiling(0.01)
        assert profiler.profiling_active
        until = time.monotonic() + 30
        while len(profiler.snapshots) < 4 and time.monotonic() < until:
            time.sleep(0.01)
    assert not profiler.profiling_active
    assert sum(snapshot.name == "continuous" for snapshot in profiler.snapshots) >= 3


def test_training_and_inference_of_a_model() -> None:
    profiler = TensorFlowProfiler()
    data = tf.data.Dataset.from_tensor_slices((numpy.ones((8, 4), "f4"), numpy.ones((8, 2), "f4")))
    profiler.profile_training(model(), data.batch(2), epochs=2, steps_per_epoch=3)
    profiler.profile_inference(model(), numpy.ones((5, 4), "f4"), batch_size=2)
    calls = {name: one["calls"] for name, one in profiler.get_results().function_profiles.items()}
    assert calls["training"] == calls["epoch_0"] == calls["epoch_1"] == calls["inference"] == 1
    assert calls["step_0"] == calls["step_2"] == 2 and "step_3" not in calls
    assert {"inference_batch_0", "inference_batch_2"} <= calls.keys() and "inference_batch_3" not in calls
    with profiler.profile_context("block"):
        pass
    latest = context_profiler.get_profile_summaries(limit=1)[0]
    assert (latest["name"], latest["calls"]) == ("block", 1)


def test_keras_training_and_layers() -> None:
    made = context_profiler.profile_model(model())
    x, y = numpy.ones((4, 4), "f4"), numpy.ones((4, 2), "f4")
    context_profiler.profile_keras_training(made, x, y, batch_size=2, validation_data=(x, y))
    made(x)
    calls = {one["name"]: one["calls"] for one in context_profiler.get_profile_summaries()}
    assert calls["keras_training"] == calls["validation"] == 1 and calls["train_step"] == 2
    assert any(name.startswith("layer_dense") for name in calls)


def test_a_decorated_function_uses_the_profiler_of_the_moment() -> None:
    @context_profiler.profile_function(name="renamed")
    def nothing() -> str:
        return "done"

    own = TFMemoryProfiler()
    context_profiler.set_global_profiler(own)
    assert nothing() == "done" and nothing.__name__ == "nothing"
    assert own.get_results().function_profiles["renamed"]["calls"] == 1


def test_what_tensorflow_says_of_the_machine() -> None:
    info = utils.get_system_info()
    assert info["tensorflow_version"] == tf.__version__
    assert info["gpu"]["error"] == "No GPU devices found"
    assert info["backend"]["runtime_backend"] == "cpu"
    found = utils.validate_tensorflow_environment()
    assert found["version_compatible"] and found["issues"] == ["No GPU devices found"]
    assert utils.get_tensorflow_memory_usage()["cpu_mb"] > 50
    report = utils.generate_summary_report(TFMemoryProfiler().get_results())
    assert f"TensorFlow Version: {tf.__version__}" in report


def test_info_shows_the_tensorflow_that_is_installed() -> None:
    tool = Path(sys.executable).with_name("tfmemprof")
    shown = subprocess.run([tool, "info"], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert f"TensorFlow Version: {tf.__version__}" in shown.stdout, shown.stdout
    assert "TensorFlow not available" not in shown.stdout
