"""Profiling by decorators, blocks and whole loops, over one profiler for the program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from stormlog.jax.profiler import (
    JAXMemoryProfiler,
    ProfileResult,
    clear_global_profiler,
    clear_profiles,
    get_global_profiler,
    get_profile_summaries,
    set_global_profiler,
)

__all__ = [
    "JAXProfiler",
    "ProfiledFunction",
    "clear_global_profiler",
    "clear_profiles",
    "get_global_profiler",
    "get_profile_summaries",
    "profile_context",
    "profile_function",
    "set_global_profiler",
]

F = TypeVar("F", bound=Callable[..., Any])


def profile_function(
    func: F | None = None, *, name: str | None = None, profiler: JAXMemoryProfiler | None = None
) -> Any:
    """A decorator, with or without arguments; the global profiler where none is given."""

    def decorate(function: F) -> Any:
        label = name or str(getattr(function, "__name__", "unknown_function"))

        @functools.wraps(function)
        def profiled(*args: Any, **kwargs: Any) -> Any:
            with (profiler or get_global_profiler()).profile_context(label):
                return function(*args, **kwargs)

        # 0.4.3's marks of a decorated function.
        vars(profiled).update(_is_profiled=True, _profile_name=label)
        return profiled

    return decorate if func is None else decorate(func)


@contextmanager
def profile_context(
    name: str = "context", profiler: JAXMemoryProfiler | None = None
) -> Iterator[JAXMemoryProfiler]:
    """A block that is counted under a name; gives the profiler."""
    chosen = profiler or get_global_profiler()
    with chosen.profile_context(name):
        yield chosen


class ProfiledFunction:
    """Any callable, jitted or not, profiled at each call."""

    def __init__(
        self, func: Callable[..., Any], profiler: JAXMemoryProfiler | None = None, name: str | None = None
    ) -> None:
        functools.update_wrapper(self, func)
        self.func = func
        self.profiler = profiler or get_global_profiler()
        self.name = name or str(getattr(func, "__name__", type(func).__name__))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls it."""
        with self.profiler.profile_context(self.name):
            return self.func(*args, **kwargs)

    def __repr__(self) -> str:
        return f"ProfiledFunction({self.name!r})"


class JAXProfiler:
    """Profiles training and inference loops; its profiler becomes the global one."""

    def __init__(self, device_index: int = 0) -> None:
        self.profiler = JAXMemoryProfiler(device_index=device_index)
        set_global_profiler(self.profiler)

    def profile_training(
        self,
        train_step_fn: Callable[..., Any],
        dataset: Any,
        epochs: int = 1,
        steps_per_epoch: int | None = None,
    ) -> None:
        """Calls a step with each batch; the whole, each epoch and each step are counted.

        The dataset is an iterable, or a function that gives one for each epoch.
        """
        is_factory = callable(dataset) and not hasattr(dataset, "__iter__")
        if not is_factory and epochs > 1 and isinstance(dataset, Iterator):
            # It can be read once; all epochs need it.
            dataset = list(islice(dataset, steps_per_epoch))
        steps_of_first = 0
        with self.profiler.profile_context("training"):
            for epoch in range(epochs):
                with self.profiler.profile_context(f"epoch_{epoch}"):
                    steps = 0
                    batches = dataset() if is_factory else dataset
                    if not hasattr(batches, "__iter__"):
                        raise TypeError("dataset must be an iterable of training batches")
                    for batch in islice(batches, steps_per_epoch):
                        with self.profiler.profile_context(f"step_{steps}"):
                            train_step_fn(batch)
                        steps += 1
                steps_of_first = steps_of_first or steps
                if steps_of_first and not steps:
                    raise ValueError(
                        f"dataset has no batches for epoch {epoch}; pass one that can be read again, or a "
                        "function that gives one"
                    )

    def profile_inference(self, inference_fn: Callable[..., Any], data: Any, batch_size: int = 32) -> None:
        """Calls a function with each batch of an iterable, or of an array split into batches."""
        with self.profiler.profile_context("inference"):
            batches = data
            if hasattr(data, "shape"):
                batches = (data[at : at + batch_size] for at in range(0, len(data), batch_size))
            for number, batch in enumerate(batches):
                with self.profiler.profile_context(f"inference_batch_{number}"):
                    inference_fn(batch)

    def get_results(self) -> ProfileResult:
        """The results up to now, as one object."""
        return self.profiler.get_results()

    def reset(self) -> None:
        """Remove everything that was recorded."""
        self.profiler.reset()
