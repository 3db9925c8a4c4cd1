"""What every trainer's callback is made of: phases by epoch and step, peaks, bundles, forecasts.

Private. Runs inside the user's training loop: what fails here is logged and never ends the training. A
callback calls it from the thread that trains.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self

from stormlog._torch.auto_settings import Settings, session_directory
from stormlog._torch.meter import Meter, Stretch, end_stretch, meter_for
from stormlog._tracking.base import BaseTracker
from stormlog._tracking.event import TrackingEvent
from stormlog.device_collectors import detect_torch_runtime_backend
from stormlog.integrations._shards import sharded_categories
from stormlog.phases import PhaseHandle
from stormlog.telemetry import resolve_distributed_identity
from stormlog.tracker import MemoryTracker

_LOGGER = logging.getLogger("stormlog.integrations")
_P = ParamSpec("_P")
#: What to do when memory is about to run out: stop the training, or call this with the forecast.
OnForecast = str | Callable[[TrackingEvent], object] | None
STEP_EVENT = "training_step"
CATEGORIES_EVENT = "memory_categories"
LOG_EVENT = "training_log"
_KEPT_PEAKS = 10_000
_STOP = "stop"
_MOST_VALUES = 64
_HOST = -1


class StepPeak(NamedTuple):
    """The highest memory of one step: of the allocator on a GPU, resident memory without one."""

    epoch: int | None
    step: int
    peak_bytes: int
    end_bytes: int


def _never_raises(
    call: Callable[Concatenate[TrainerRecorder, _P], object],
) -> Callable[Concatenate[TrainerRecorder, _P], None]:
    def wrapped(self: TrainerRecorder, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            call(self, *args, **kwargs)
        except Exception as error:
            _LOGGER.warning("%s: %s", getattr(call, "__name__", "call"), error)

    functools.update_wrapper(wrapped, call)
    return wrapped


class TrainerRecorder:
    """Records one training; also for loops of one's own: `with TrainerRecorder() as recorder`."""

    def __init__(
        self,
        *,
        tracker: MemoryTracker | None = None,
        directory: str | os.PathLike[str] | None = None,
        sampling_interval: float | None = None,
        on_forecast: OnForecast = None,
        name: str = "train",
    ) -> None:
        if isinstance(on_forecast, str) and on_forecast != _STOP:
            raise ValueError(f"on_forecast is {on_forecast!r}: give 'stop', a function or None")
        self.peaks: deque[StepPeak] = deque(maxlen=_KEPT_PEAKS)
        #: Whether a forecast asked for the training to be stopped; the trainer's callback obeys it.
        self.should_stop = False
        self.epoch: int | None = None
        self.step: int | None = None
        self.last_bundle: str | None = None
        self._given = tracker
        self._directory = directory
        self._interval = sampling_interval
        self._on_forecast = on_forecast
        self._name = name
        self._tracker: BaseTracker | None = None
        self._is_ours = False
        self._meter: Meter | None = None
        self._stretch: Stretch | None = None
        self._open: list[tuple[str, PhaseHandle]] = []
        self._forecasts: deque[TrackingEvent] = deque(maxlen=16)
        self._hook: Callable[..., object] | None = None
        self._thread: int | None = None

    @property
    def tracker(self) -> BaseTracker | None:
        """The tracker, from `begin` on."""
        return self._tracker

    # The life of a training

    @_never_raises
    def begin(self) -> None:
        """The training begins; while one is recorded, a second call does nothing."""
        # What stopped an earlier training must not stop this one.
        self.should_stop = False
        self._forecasts.clear()
        if self._tracker is not None and self._tracker.is_tracking:
            return
        tracker = self._given if self._given is not None else self._make()
        self.epoch = self.step = None
        self._is_ours = not tracker.is_tracking
        if self._is_ours:
            tracker.start_tracking()
        self._tracker = tracker
        self._thread = threading.get_ident()
        device = tracker.device if tracker.backend in {"cuda", "rocm"} else "cpu"
        self._meter = meter_for(device)
        tracker.add_prediction_callback(self._foresaw)
        self._chain_exception_hook()
        self._enter(self._name)

    @_never_raises
    def end(self) -> None:
        """End the open step and epoch, and the session."""
        tracker, self._tracker = self._tracker, None
        if tracker is None:
            return
        try:
            self._leave_to(0, tracker)
        finally:
            tracker.remove_prediction_callback(self._foresaw)
            self._unchain_exception_hook()
            if self._is_ours:
                tracker.stop_tracking()

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            self.failed(error)
        self.end()

    # Epochs and steps, counted from 0 as trainers do

    @_never_raises
    def begin_epoch(self, epoch: int) -> None:
        """An epoch begins; one that is open ends."""
        self._end_open_step()
        self._leave("epoch")
        self.epoch = int(epoch)
        self._enter("epoch", {"epoch": self.epoch})

    @_never_raises
    def end_epoch(self) -> None:
        """End the open epoch and its phase."""
        self._end_open_step()
        self._leave("epoch")

    @_never_raises
    def begin_step(self, step: int) -> None:
        """A step begins; one that is open ends."""
        self._end_open_step()
        self.step = int(step)
        if self._meter is not None:
            self._stretch = self._meter.begin()
        self._enter("step", {"epoch": self.epoch, "step": self.step})

    @_never_raises
    def end_step(self) -> None:
        """The step has ended: its peak is recorded, and a forecast is acted on."""
        self._end_open_step()
        self._act_on_forecasts()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A part of a step: forward, backward, validation."""
        self._enter_quietly(name)
        try:
            yield
        finally:
            self._leave_quietly(name)

    @contextmanager
    def capture_oom(self) -> Iterator[None]:
        """Write a bundle that names epoch and step if the block runs out of memory; the error is raised."""
        try:
            yield
        except BaseException as error:
            self.failed(error)
            raise

    @_never_raises
    def failed(self, error: BaseException) -> None:
        """An exception ends the training: if memory ran out, its bundle names epoch and step."""
        tracker = self._tracker
        if tracker is None or getattr(error, "_stormlog_is_recorded", False):
            return
        place = {"epoch": self.epoch, "step": self.step}
        path = tracker.handle_exception(error, context=self._place() or self._name, metadata=place)
        if path is not None:
            self.last_bundle = path
            error._stormlog_is_recorded = True  # type: ignore[attr-defined]

    @_never_raises
    def categories(self, found: Mapping[str, int | None]) -> None:
        """Record what this rank holds, by category: the bytes of its shards."""
        self._record_categories(found)

    @_never_raises
    def shards(self, model: Any, optimizer: Any) -> None:
        """Count what this rank holds of a model and its optimizer, and record it by category."""
        self._record_categories(sharded_categories(model, optimizer))

    @_never_raises
    def note(self, values: Mapping[str, Any]) -> None:
        """Record numbers of the training's own: a loss, a rate."""
        known = {key: value for key, value in list(values.items())[:_MOST_VALUES] if _is_plain(value)}
        if known:
            self._add_event(LOG_EVENT, ", ".join(known), known)

    def metrics(self) -> dict[str, float]:
        """The last step's memory, as numbers for a logger."""
        last = self.peaks[-1] if self.peaks else None
        if last is None:
            return {}
        return {"stormlog/peak_bytes": float(last.peak_bytes), "stormlog/bytes": float(last.end_bytes)}

    # Inside

    def _place(self) -> str:
        """`epoch 1, step 6, backward`; `after step 6` where no step is open, as in a validation."""
        open_phases = [name for name, _ in self._open]
        words = [] if self.epoch is None else [f"epoch {self.epoch}"]
        if self.step is not None:
            words.append(f"{'' if 'step' in open_phases else 'after '}step {self.step}")
        inner = open_phases[-1:]
        return ", ".join(words + [name for name in inner if name not in {self._name, "epoch", "step"}])

    def _record_categories(self, found: Mapping[str, int | None]) -> None:
        if self._tracker is not None:
            known = {key: value for key, value in found.items() if value is not None}
            words = ", ".join(f"{key.removesuffix('_bytes')} {value}" for key, value in known.items())
            self._add_event(CATEGORIES_EVENT, words, dict(known))

    def _make(self) -> MemoryTracker:
        settings = Settings.of(os.environ)
        device = None
        if detect_torch_runtime_backend() in {"cuda", "rocm"}:
            device = int(import_module("torch").cuda.current_device())
        root = settings.directory() if self._directory is None else Path(self._directory).absolute()
        rank = int(resolve_distributed_identity(env=os.environ)["rank"])
        folder = session_directory(root, rank, _HOST if device is None else device)
        return MemoryTracker(
            device=device,
            sampling_interval=self._interval or settings.interval,
            enable_oom_flight_recorder=True,
            oom_dump_dir=os.fspath(folder),
            recording_dir=folder,
        )

    def _end_open_step(self) -> None:
        if not any(name == "step" for name, _ in self._open):
            return
        stretch, self._stretch = self._stretch, None
        if stretch is not None and self._meter is not None and self.step is not None:
            highest, held = end_stretch(stretch, self._meter)
            peak = StepPeak(self.epoch, self.step, highest.allocated, held.allocated)
            self.peaks.append(peak)
            words = f"step {peak.step}" if peak.epoch is None else f"epoch {peak.epoch}, step {peak.step}"
            self._add_event(STEP_EVENT, words, peak._asdict())
        self._leave("step")

    def _act_on_forecasts(self) -> None:
        while self._forecasts:
            event = self._forecasts.popleft()
            if self._on_forecast == _STOP:
                self.should_stop = True
                self._add_event("training_stopped", event.context or "forecast", {"step": self.step})
            elif callable(self._on_forecast):
                self._on_forecast(event)

    def _foresaw(self, event: TrackingEvent) -> None:
        """On the tracker's thread: kept for the end of the step, where the training can be stopped."""
        if self._on_forecast is not None:
            self._forecasts.append(event)

    def _add_event(self, kind: str, context: str, metadata: dict[str, Any]) -> None:
        if self._tracker is not None:
            self._tracker._add_event(kind, 0, context, metadata)

    # Phases are those of the thread that trains: another one's would be left in the wrong thread.

    def _enter(self, name: str, metadata: dict[str, Any] | None = None) -> None:
        if self._tracker is not None and threading.get_ident() == self._thread:
            self._open.append((name, self._tracker.enter_phase(name, metadata=metadata)))

    def _leave(self, name: str) -> None:
        at = next((at for at, (known, _) in enumerate(self._open) if known == name), None)
        if at is not None and threading.get_ident() == self._thread:
            self._leave_to(at, self._tracker)

    def _leave_to(self, depth: int, tracker: BaseTracker | None) -> None:
        """Leave the phases above, the innermost first. The tracker ends what is open when it stops."""
        while len(self._open) > depth:
            _, handle = self._open.pop()
            if tracker is not None and tracker.is_tracking and threading.get_ident() == self._thread:
                handle.close()
        if depth == 0 and self._stretch is not None:
            stretch, self._stretch = self._stretch, None
            stretch.end()

    @_never_raises
    def _enter_quietly(self, name: str) -> None:
        self._enter(name)

    @_never_raises
    def _leave_quietly(self, name: str) -> None:
        self._leave(name)

    # An exception that the trainer does not report and the program does not catch

    def _chain_exception_hook(self) -> None:
        previous = sys.excepthook

        def on_exception(kind: Any, error: Any, trace: Any) -> None:
            if error is not None:
                self.failed(error)
            previous(kind, error, trace)

        self._hook = on_exception
        self._previous_hook = previous
        sys.excepthook = on_exception

    def _unchain_exception_hook(self) -> None:
        # Where another hook was put over ours it stays: without a tracker it does nothing.
        if self._hook is not None and sys.excepthook is self._hook:
            sys.excepthook = self._previous_hook
        self._hook = None


def _is_plain(value: object) -> bool:
    return isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= 200)
