"""Profiling by decorators, blocks and whole models, over one profiler for the program."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, overload

from stormlog.tensorflow import _runtime
from stormlog.tensorflow.profiler import ProfileResult, TFMemoryProfiler

__all__ = [
    "ProfiledLayer",
    "TensorFlowProfiler",
    "clear_global_profiler",
    "clear_profiles",
    "get_global_profiler",
    "get_profile_summaries",
    "profile_context",
    "profile_function",
    "profile_keras_training",
    "profile_model",
    "set_global_profiler",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_lock = threading.Lock()
_global: TFMemoryProfiler | None = None


def get_global_profiler() -> TFMemoryProfiler:
    """The profiler of the program, made when it is first asked for."""
    global _global
    with _lock:
        if _global is None:
            _global = TFMemoryProfiler()
        return _global


def set_global_profiler(profiler: TFMemoryProfiler) -> None:
    """Makes a profiler the program's."""
    global _global
    with _lock:
        _global = profiler


def clear_global_profiler() -> None:
    """Forgets the program's profiler and all it knows."""
    global _global
    with _lock:
        if _global is not None:
            _global.reset()
            _global = None


def clear_profiles() -> None:
    """Forgets what the program's profiler knows, and keeps it."""
    with _lock:
        if _global is not None:
            _global.reset()


def get_profile_summaries(limit: int | None = None) -> list[dict[str, Any]]:
    """What each profiled name came to, the latest first."""
    with _lock:
        profiler = _global
    if profiler is None:
        return []
    found = [
        {
            **{key: value for key, value in profile.items() if key != "snapshots"},
            "name": name,
            "last_timestamp": profile["snapshots"][-1].timestamp if profile["snapshots"] else None,
        }
        for name, profile in profiler.get_results().function_profiles.items()
    ]
    found.sort(key=lambda entry: entry["last_timestamp"] or 0.0, reverse=True)
    return found[: limit or None]


@overload
def profile_function(func: Callable[_P, _R]) -> Callable[_P, _R]: ...
@overload
def profile_function(
    func: None = None, *, profiler: TFMemoryProfiler | None = None, name: str | None = None
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...
def profile_function(
    func: Any = None, *, profiler: TFMemoryProfiler | None = None, name: str | None = None
) -> Any:
    """A decorator, with or without arguments: the function, profiled each time it is called."""
    if func is None:
        return functools.partial(profile_function, profiler=profiler, name=name)

    @functools.wraps(func)
    def profiled(*args: Any, **kwargs: Any) -> Any:
        @functools.wraps(func)
        def target(*args: Any, **kwargs: Any) -> Any:
            return func(*args, **kwargs)

        target.__name__ = name or func.__name__
        # Looked up at every call: the program's profiler may be another one by then.
        return (profiler or get_global_profiler()).profile_function(target)(*args, **kwargs)

    return profiled


@contextmanager
def profile_context(name: str = "context", profiler: TFMemoryProfiler | None = None) -> Iterator[None]:
    """Measure a block under a name."""
    with (profiler or get_global_profiler()).profile_context(name):
        yield


class ProfiledLayer:
    """A layer whose calls are counted as `layer_NAME`; everything else is the layer's own."""

    def __init__(self, layer: Any, profiler: TFMemoryProfiler | None = None, name: str | None = None) -> None:
        self.layer = layer
        self.profiler = profiler or get_global_profiler()
        self.name = name or getattr(layer, "name", type(layer).__name__)
        self._original_call = layer.call
        layer.call = self._profiled_call

    def _profiled_call(self, *args: Any, **kwargs: Any) -> Any:
        with self.profiler.profile_context(f"layer_{self.name}"):
            return self._original_call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layer, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the layer."""
        return self.layer(*args, **kwargs)


def profile_model(model: Any, profiler: TFMemoryProfiler | None = None) -> Any:
    """The same model with every layer profiled."""
    chosen = profiler or get_global_profiler()
    for number, layer in enumerate(model.layers):
        ProfiledLayer(layer, chosen, f"{layer.name}_{number}")
    return model


class TensorFlowProfiler:
    """Profiles training and inference of a model; its profiler is the program's from then on."""

    def __init__(self, device: str | None = None) -> None:
        self.profiler = TFMemoryProfiler(device=device)
        set_global_profiler(self.profiler)

    def profile_context(self, name: str = "context") -> Any:
        """Measure a block under a name."""
        return self.profiler.profile_context(name)

    def profile_training(
        self, model: Any, dataset: Any, epochs: int = 1, steps_per_epoch: int | None = None
    ) -> None:
        """Trains a model on batches; the whole, each epoch and each step are counted."""
        with self.profiler.profile_context("training"):
            for epoch in range(epochs):
                with self.profiler.profile_context(f"epoch_{epoch}"):
                    for step, batch in enumerate(dataset):
                        if steps_per_epoch and step >= steps_per_epoch:
                            break
                        with self.profiler.profile_context(f"step_{step}"):
                            _train(model, batch)

    def profile_inference(self, model: Any, data: Any, batch_size: int = 32) -> None:
        """Runs a model over a dataset or an array; each batch is counted."""
        if hasattr(data, "batch"):
            self._infer(model, data.batch(batch_size))
            return
        with self.profiler.profile_context("inference"):
            batches = range(0, len(data), batch_size)
            self._infer(model, (data[start : start + batch_size] for start in batches))

    def _infer(self, model: Any, batches: Any) -> None:
        for number, batch in enumerate(batches):
            with self.profiler.profile_context(f"inference_batch_{number}"):
                model(batch, training=False)

    def get_results(self) -> ProfileResult:
        """The results up to now, as one object."""
        return self.profiler.get_results()

    def reset(self) -> None:
        """Remove everything that was recorded."""
        self.profiler.reset()


def profile_keras_training(
    model: Any,
    x_train: Any,
    y_train: Any,
    epochs: int = 1,
    batch_size: int = 32,
    validation_data: Any = None,
    profiler: TFMemoryProfiler | None = None,
) -> None:
    """Trains a Keras model on arrays, batch by batch; epochs, steps and validation are counted."""
    chosen = profiler or get_global_profiler()
    tf = _runtime.tensorflow()
    with chosen.profile_context("keras_training"):
        batches = tf.data.Dataset.from_tensor_slices((x_train, y_train)).batch(batch_size)
        for epoch in range(epochs):
            with chosen.profile_context(f"epoch_{epoch}"):
                with chosen.profile_context("training_batches"):
                    for x, y in batches:
                        with chosen.profile_context("train_step"):
                            model.train_on_batch(x, y)
                if validation_data:
                    with chosen.profile_context("validation"):
                        model.evaluate(*validation_data, verbose=0)


def _train(model: Any, batch: Any) -> None:
    if not hasattr(model, "train_step"):
        raise TypeError(f"{type(model).__name__} has no train_step(batch) to train with")
    model.train_step(batch)
