"""The Keras callback with the real Keras, on the CPU."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy
import pytest

tf = pytest.importorskip("tensorflow")

from host_allocator import unused_mb  # noqa: E402
from stormlog.tensorflow import StormlogCallback, TensorFlowMemoryTracker  # noqa: E402

UNUSED = unused_mb()

X, Y = numpy.ones((32, 8), "f4"), numpy.ones((32, 1), "f4")


def model(*layers: Any, eager: bool = False) -> Any:
    made = tf.keras.Sequential([tf.keras.layers.Input((8,)), *layers, tf.keras.layers.Dense(1)])
    made.compile(optimizer="sgd", loss="mse", run_eagerly=eager)
    return made


class Hungry(tf.keras.layers.Layer):  # type: ignore[misc]
    """Takes 100 MiB for the time of its call."""

    def call(self, x: Any) -> Any:
        return x + tf.reduce_min(tf.ones((25 << 20,))) * 0


def test_epochs_steps_and_validation_are_phases_with_a_peak() -> None:
    tracker = TensorFlowMemoryTracker(10)
    callback = StormlogCallback(tracker, log_peak=True)
    history = model(Hungry(), eager=True).fit(
        X, Y, batch_size=16, epochs=2, validation_data=(X, Y), callbacks=[callback], verbose=0
    )
    assert not tracker.tracking, "a tracker that the callback started is stopped by it"
    entered = [event for event in tracker.events if event["event_type"] == "phase_enter"]
    contexts = Counter(event["context"] for event in entered)
    assert contexts == {
        "Phase entered: epoch": 2,
        "Phase entered: epoch / step": 4,
        "Phase entered: epoch / validation": 2,
    }
    assert [(step.epoch, step.step) for step in callback.steps] == [(e, s) for e in (0, 1) for s in range(2)]
    # The layer's 100 MiB are in every step, also where they are free again at its end.
    assert all(95 < step.increase_mb < 160 + UNUSED for step in list(callback.steps)[1:]), callback.steps
    assert history.history["memory_peak_mb"] == callback.epoch_peaks_mb
    assert callback.epoch_peaks_mb[1] >= max(step.peak_mb for step in callback.steps if step.epoch == 1)


def test_a_tracker_that_runs_already_continues() -> None:
    with TensorFlowMemoryTracker(10) as tracker:
        model().fit(X, Y, epochs=1, callbacks=[StormlogCallback(tracker, step_phases=False)], verbose=0)
        assert tracker.tracking
        contexts = {event["context"] for event in tracker.events if event["event_type"] == "phase_enter"}
    assert contexts == {"Phase entered: epoch"}


def test_predicting_and_evaluating_alone_need_no_tracker() -> None:
    callback = StormlogCallback()
    model().predict(X, callbacks=[callback], verbose=0)
    model().evaluate(X, Y, callbacks=[callback], verbose=0)
    assert callback.tracker is None


class Fails(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """An out-of-memory error in the second step."""

    is_on = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.is_on and batch == 1:
            raise MemoryError


def fit_twice(callback: StormlogCallback, between: Callable[[], object] = lambda: None) -> None:
    fails = Fails()
    made = model()
    # The failing one first: the step of the other is open when it raises.
    with pytest.raises(MemoryError):
        made.fit(X, Y, batch_size=8, callbacks=[fails, callback], verbose=0)
    between()
    fails.is_on = False
    made.fit(X, Y, batch_size=8, callbacks=[fails, callback], verbose=0)


def test_tracker_that_a_failed_fit_left_running_is_stopped_by_the_next() -> None:
    callback = StormlogCallback(sampling_interval=10)
    fit_twice(callback)
    assert callback.tracker is not None and not callback.tracker.is_tracking
    entered = [event["event_type"] for event in callback.tracker.events if "phase" in event["event_type"]]
    assert entered.count("phase_enter") == entered.count("phase_exit") == 5, "a session of its own"


def test_phases_of_an_ended_session_do_not_fail_the_next_fit(caplog: pytest.LogCaptureFixture) -> None:
    tracker = TensorFlowMemoryTracker(10)
    tracker.start_tracking()
    fit_twice(StormlogCallback(tracker), tracker.stop_tracking)
    tracker.start_tracking()

    def restart() -> None:
        tracker.stop_tracking()
        tracker.start_tracking()

    fit_twice(StormlogCallback(tracker), restart)
    assert tracker.is_tracking, "a session that the program started is the program's to stop"
    tracker.stop_tracking()
    assert "StormlogCallback failed" not in caplog.text


def test_failures_of_the_callback_do_not_reach_fit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr("stormlog.tensorflow._keras.begin_peak", broken)
    model().fit(X, Y, batch_size=8, epochs=2, callbacks=[StormlogCallback()], verbose=0)
    assert caplog.text.count("the device is gone") == 1


def test_copy_shares_a_given_tracker_and_makes_its_own_otherwise() -> None:
    tracker = TensorFlowMemoryTracker(10)
    assert copy.deepcopy(StormlogCallback(tracker)).tracker is tracker
    used = StormlogCallback()
    model().fit(X, Y, callbacks=[used], verbose=0)
    copied = copy.deepcopy(used)
    assert copied.tracker is None and copied.steps == used.steps and copied.steps is not used.steps
    model().fit(X, Y, callbacks=[copied], verbose=0)
    assert copied.tracker is not None and copied.tracker is not used.tracker


@pytest.fixture
def foretold(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """What the tracker's rule says at each step, the last for ever."""
    left: list[float | None] = [None, None, 90.0, 80.0, 30.0]

    def ask(tracker: TensorFlowMemoryTracker) -> float | None:
        return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(TensorFlowMemoryTracker, "forecast_seconds", property(ask))
    return left


def test_training_stops_before_the_limit(foretold: list[float | None]) -> None:
    callback = StormlogCallback(stop_before_limit=60)
    history = model().fit(X, Y, batch_size=8, epochs=100, callbacks=[callback], verbose=0)
    assert callback.stopped_by_forecast and len(history.history["loss"]) < 100
    # Two steps without a forecast, two with the limit too far away, then the one that stops.
    assert len(callback.steps) == 5 or len(history.history["loss"]) == 2


def test_a_function_of_the_users_is_asked_and_may_stop_training(foretold: list[float | None]) -> None:
    asked: list[float] = []

    def decide(seconds: float) -> bool:
        asked.append(seconds)
        return len(asked) == 2

    callback = StormlogCallback(on_forecast=decide)
    model().fit(X, Y, batch_size=8, epochs=100, callbacks=[callback], verbose=0)
    assert asked == [90.0, 80.0] and callback.stopped_by_forecast


def test_true_of_numpy_stops_training_and_an_exception_is_the_users(foretold: list[float | None]) -> None:
    callback = StormlogCallback(on_forecast=lambda seconds: numpy.True_)
    model().fit(X, Y, batch_size=8, epochs=100, callbacks=[callback], verbose=0)
    assert callback.stopped_by_forecast

    def fails(seconds: float) -> None:
        raise ValueError("the user's")

    with pytest.raises(ValueError, match="the user's"):
        model().fit(X, Y, epochs=9, callbacks=[StormlogCallback(on_forecast=fails)], verbose=0)


def test_without_a_wish_a_forecast_changes_nothing(foretold: list[float | None]) -> None:
    callback = StormlogCallback()
    history = model().fit(X, Y, batch_size=8, epochs=3, callbacks=[callback], verbose=0)
    assert len(history.history["loss"]) == 3 and not callback.stopped_by_forecast


ON_JAX = """
import logging, sys
logging.basicConfig(format="%(message)s")
import keras, numpy
from stormlog.tensorflow import StormlogCallback

model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(loss="mse")
callback = StormlogCallback()
model.fit(numpy.ones((8, 4)), numpy.ones((8, 1)), verbose=0, callbacks=[callback])
print(len(callback.steps), "tensorflow" in sys.modules)
"""


def test_keras_on_another_library_does_not_get_tensorflow_beside_it() -> None:
    pytest.importorskip("jax")
    done = subprocess.run(
        [sys.executable, "-c", ON_JAX],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "0 False\n", done.stderr
    assert done.stderr.count("Keras runs on jax here") == 1, done.stderr
