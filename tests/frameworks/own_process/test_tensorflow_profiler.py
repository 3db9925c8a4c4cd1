"""The profiler of TensorFlow programs with the real TensorFlow, on the CPU."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest

tf = pytest.importorskip("tensorflow")

from host_allocator import unused_mb  # noqa: E402
from stormlog.tensorflow import TensorFlowProfiler, TFMemoryProfiler, context_profiler, utils  # noqa: E402

UNUSED = unused_mb()


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
    assert profiler.device == "/CPU:0" and found.peak_memory_mb >= found.average_memory_mb > 50
    profiler.reset()
    assert profiler.get_results().function_profiles == {}


def test_memory_that_a_block_took_and_gave_back_is_its_peak_on_the_cpu() -> None:
    profiler = TFMemoryProfiler()
    tf.ones((1,))

    @profiler.profile_function
    def transient() -> None:
        tf.ones((50 << 20,))

    with profiler.profile_context("outer"):
        transient()
        with profiler.profile_context("small"):
            tf.ones((1,))
    found = profiler.get_results()
    for name in ("transient", "outer"):
        profile = found.function_profiles[name]
        assert 195 < profile["peak_increase"] < 230 + UNUSED, (name, profile["peak_increase"])
        # An allocator that keeps what was freed has it resident still.
        assert UNUSED or profile["total_memory_used"] < 30
        assert profile["peak_memory"] > 195 + 50
    assert found.function_profiles["small"]["peak_increase"] < 30
    assert found.peak_memory_mb >= found.min_memory_mb + 195


def test_memory_that_the_allocator_had_kept_counts_when_it_is_taken_again() -> None:
    tf.ones((50 << 20,))
    profiler = TFMemoryProfiler()
    with profiler.profile_context("outer"), profiler.profile_context("again"):
        tf.ones((50 << 20,))
    found = profiler.get_results().function_profiles
    assert 195 < found["again"]["peak_increase"] < 230 + UNUSED, found["again"]
    assert found["outer"]["peak_increase"] >= found["again"]["peak_increase"] - 1
    # What is taken from the allocator's store is an increase, and no memory that the process had.
    assert found["outer"]["peak_memory"] >= found["again"]["peak_memory"]
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert profiler.get_results().peak_memory_mb <= highest + 1


def test_layers_have_a_peak_of_their_own_on_the_cpu() -> None:
    class Hungry(tf.keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: object) -> object:
            return x + tf.reduce_min(tf.ones((25 << 20,)))

    layers = [tf.keras.layers.Input((4,)), Hungry(name="hungry"), tf.keras.layers.Dense(2, name="dense")]
    made = context_profiler.profile_model(tf.keras.Sequential(layers))
    context_profiler.clear_profiles()
    made(numpy.ones((4, 4), "f4"))
    found = {one["name"]: one["peak_increase"] for one in context_profiler.get_profile_summaries()}
    assert 95 < found["layer_hungry_0"] < 130 + UNUSED and found["layer_dense_1"] < 30, found


def test_blocks_on_a_gpu_keep_the_peak_of_the_blocks_around_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow has one peak a device; two profilers reset it in turn."""
    memory = {"current": 10 << 20, "peak": 10 << 20}
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", lambda device: dict(memory))

    def reset(device: str) -> None:
        memory["peak"] = memory["current"]

    monkeypatch.setattr(tf.config.experimental, "reset_memory_stats", reset)
    first, second = TFMemoryProfiler(device="/GPU:0"), TFMemoryProfiler(device="/GPU:0")
    with first.profile_context("outer"):
        memory["peak"] = 90 << 20
        with second.profile_context("inner"):
            memory["peak"] = 30 << 20
    outer = first.get_results().function_profiles["outer"]
    assert (outer["peak_memory"], outer["peak_increase"]) == (90.0, 80.0)
    assert second.get_results().function_profiles["inner"]["peak_memory"] == 30.0


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


def test_system_info_has_tensorflows_devices() -> None:
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
