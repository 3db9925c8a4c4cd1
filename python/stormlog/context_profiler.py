"""Profiling in one line: a decorator, a block, a wrapped module, and the profiler they share.

The shared profiler is made when it is first needed, one a device. PyTorch is needed only for what is about
its modules: `ProfiledModule` and `profile_model_training`.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from stormlog import _native
from stormlog._tracking.monitor import StopsAtExit
from stormlog.profiler import GPUMemoryProfiler, ProfileResult

if TYPE_CHECKING:
    from stormlog._torch.profiled_module import ProfiledModule

__all__ = [
    "MemoryProfiler",
    "ProfiledModule",
    "clear_results",
    "get_global_profiler",
    "get_profile_results",
    "get_summary",
    "profile_context",
    "profile_function",
    "profile_model_training",
    "set_global_profiler",
    "start_monitoring",
    "stop_monitoring",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_LOCK = threading.Lock()
_global_profiler: GPUMemoryProfiler | None = None
# Those of the other devices that were asked for by name.
_of_devices: dict[str, GPUMemoryProfiler] = {}


def get_global_profiler(device: Any = None) -> GPUMemoryProfiler:
    """The shared profiler, or that of the named device."""
    global _global_profiler
    with _LOCK:
        if _global_profiler is None:
            _global_profiler = GPUMemoryProfiler(device=device)
        if device is None or _is_of(_global_profiler, device):
            return _global_profiler
        found = next((one for one in _of_devices.values() if _is_of(one, device)), None)
        if found is None:
            found = GPUMemoryProfiler(device=device)
            _of_devices[str(found.device)] = found
        return found


def set_global_profiler(profiler: GPUMemoryProfiler) -> None:
    """Use this profiler as the shared one."""
    global _global_profiler
    with _LOCK:
        _global_profiler = profiler
        _of_devices.clear()


@overload
def profile_function(
    func: Callable[_P, _T],
    *,
    name: str | None = None,
    device: Any = None,
    profiler: GPUMemoryProfiler | None = None,
) -> Callable[_P, _T]: ...


@overload
def profile_function(
    func: None = None,
    *,
    name: str | None = None,
    device: Any = None,
    profiler: GPUMemoryProfiler | None = None,
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]: ...


def profile_function(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    device: Any = None,
    profiler: GPUMemoryProfiler | None = None,
) -> Any:
    """Profile every call of a function: `@profile_function` or `@profile_function(name=...)`.

    The function returns and raises what it did before; an `async` one is profiled until it is done.
    """

    def decorate(inner: Callable[..., Any]) -> Callable[..., Any]:
        title = str(name if name is not None else getattr(inner, "__name__", "unknown_function"))

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            with (profiler or get_global_profiler(device)).profile_context(title):
                return inner(*args, **kwargs)

        @functools.wraps(inner)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            with (profiler or get_global_profiler(device)).profile_context(title):
                return await inner(*args, **kwargs)

        wrapper: Any = call_async if inspect.iscoroutinefunction(inner) else call
        wrapper._is_profiled = True
        wrapper._profile_name = title
        return wrapper  # type: ignore[no-any-return]

    return decorate if func is None else decorate(func)


@contextmanager
def profile_context(
    name: str = "context", device: Any = None, profiler: GPUMemoryProfiler | None = None
) -> Iterator[GPUMemoryProfiler]:
    """Profile a block; `as` gives the profiler."""
    used = profiler or get_global_profiler(device)
    with used.profile_context(name):
        yield used


class MemoryProfiler(StopsAtExit):
    """A profiler with short names, and files of its results."""

    def __init__(self, device: Any = None) -> None:
        self.profiler = GPUMemoryProfiler(device=device)

    def start_monitoring(self, interval: float | None = 0.1) -> None:
        """Take snapshots in the background."""
        self.profiler.start_monitoring(interval)

    def stop_monitoring(self) -> None:
        """Stop taking snapshots."""
        self.profiler.stop_monitoring()

    def profile(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> ProfileResult:
        """Call a function and return what it took."""
        return self.profiler.profile_function(func, *args, **kwargs)

    @contextmanager
    def context(self, name: str = "context") -> Iterator[None]:
        """Measure a block under a name."""
        with self.profiler.profile_context(name):
            yield

    def wrap_module(self, module: Any, name: str | None = None) -> ProfiledModule:
        """Profile every forward pass of a PyTorch module."""
        return _profiled_module_class()(module, name=name, profiler=self.profiler)

    def get_summary(self) -> dict[str, Any]:
        """Totals of all results and of each function."""
        return self.profiler.get_summary()

    def clear(self) -> None:
        """Remove all results."""
        self.profiler.clear_results()

    def save_results(self, filename: str | os.PathLike[str]) -> None:
        """Write summary, results and snapshots as JSON."""
        payload = {
            "summary": self.get_summary(),
            "results": [result.to_dict() for result in list(self.profiler.results)],
            "snapshots": [snapshot.to_dict() for snapshot in list(self.profiler.snapshots)],
        }
        Path(filename).write_text(json.dumps(payload, indent=2, default=str), encoding="utf-8")

    def load_results(self, filename: str | os.PathLike[str]) -> Any:
        """What `save_results` wrote, as it stands in the file."""
        with os.fdopen(_native.files.open_regular(filename), encoding="utf-8") as file:
            return json.load(file)


def start_monitoring(interval: float | None = 0.1, device: Any = None) -> None:
    """Take snapshots with the shared profiler."""
    get_global_profiler(device).start_monitoring(interval)


def stop_monitoring() -> None:
    """Stop taking snapshots, on every device."""
    for profiler in _shared():
        profiler.stop_monitoring()


def get_summary() -> dict[str, Any]:
    """The results of the shared profiler in a few numbers."""
    if _global_profiler is None:
        return {"message": "No global profiler instance"}
    return _global_profiler.get_summary()


def clear_results() -> None:
    """Forget the results, on every device."""
    for profiler in _shared():
        profiler.clear_results()


def get_profile_results(limit: int | None = None) -> list[ProfileResult]:
    """The last results, on every device, oldest first."""
    found = [result for profiler in _shared() for result in list(profiler.results)]
    if len(_shared()) > 1:
        found.sort(key=lambda result: result.memory_after.timestamp)
    return found[-limit:] if limit else found


def profile_model_training(
    model: Any,
    train_loader: Any,
    epochs: int = 1,
    device: Any = None,
    *,
    step: Callable[[Any, Any], Any] | None = None,
    max_batches: int = 11,
) -> dict[str, Any]:
    """Profile the first batches of each epoch; what each took, and the summary.

    `step(model, batch)` is your training step. Without one the model is called with the batch (the first of a
    pair), and what it gives is summed and sent backward, for the memory of it: weights stay as they are,
    gradients are dropped.
    """
    profiler = get_global_profiler(device)
    run = step or _forward_and_backward
    batch_results: list[dict[str, Any]] = []
    epoch_summaries: list[dict[str, Any]] = []
    with profiler.profile_context("training_setup"):
        model.train()
    for epoch in range(epochs):
        with profiler.profile_context(f"epoch_{epoch}"):
            found: list[dict[str, Any]] = []
            for number, batch in enumerate(train_loader):
                if number >= max_batches:
                    break
                result = profiler.profile_function(_named(f"batch_{epoch}_{number}", run), model, batch)
                found.append(result.to_dict())
        batch_results += found
        epoch_summaries.append(
            {
                "epoch": epoch,
                "batches_profiled": len(found),
                "total_memory_allocated": sum(one["memory_allocated"] for one in found),
                "average_batch_time": sum(one["execution_time"] for one in found) / max(len(found), 1),
            }
        )
    return {
        "total_epochs": epochs,
        "batch_results": batch_results,
        "epoch_summaries": epoch_summaries,
        "overall_summary": profiler.get_summary(),
    }


def _is_of(profiler: GPUMemoryProfiler, device: Any) -> bool:
    wanted = f"cuda:{device}" if isinstance(device, int) else str(device)
    return str(profiler.device) == (f"cuda:{profiler._meter.device_id}" if wanted == "cuda" else wanted)


def _shared() -> list[GPUMemoryProfiler]:
    first = [] if _global_profiler is None else [_global_profiler]
    return [*first, *_of_devices.values()]


def _named(name: str, inner: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def call(model: Any, batch: Any) -> None:
        inner(model, batch)

    call.__name__ = name
    return call


def _forward_and_backward(model: Any, batch: Any) -> None:
    inputs = batch[0] if isinstance(batch, (list, tuple)) else batch
    parameter = next(iter(model.parameters()), None)
    if parameter is not None and hasattr(inputs, "to"):
        inputs = inputs.to(parameter.device)
    output = model(inputs)
    while isinstance(output, (list, tuple)):
        output = output[0]
    if getattr(output, "requires_grad", False):
        output.sum().backward()
        model.zero_grad(set_to_none=True)


def _profiled_module_class() -> type[ProfiledModule]:
    from stormlog._torch.profiled_module import ProfiledModule

    return ProfiledModule


def __getattr__(name: str) -> Any:
    # A subclass of a PyTorch module, so it cannot exist before PyTorch does.
    if name != "ProfiledModule":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return _profiled_module_class()
    except ImportError:
        return _WithoutTorch


class _WithoutTorch:
    """Stands in for `ProfiledModule` where there is no PyTorch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _profiled_module_class()
