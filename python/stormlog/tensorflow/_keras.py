"""A Keras callback: phases for epochs and steps, the peak of each step, and a way out before memory runs out.

A plain class with every hook of a callback: Keras 3 and tf.keras (Keras 2) have different base classes, and
neither requires its own. Importing it needs no TensorFlow. Its own failures are logged once and never reach
`fit`; after an exception in a step Keras calls no further hook, so the next training ends what is left open.
"""

from __future__ import annotations

import copy
import functools
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

from stormlog import _native
from stormlog.phases import PhaseProtocolError
from stormlog.tensorflow import _runtime
from stormlog.tensorflow._peak import BlockPeak, begin_peak, held

if TYPE_CHECKING:
    from stormlog.phases import PhaseHandle
    from stormlog.tensorflow.tracker import MemoryTracker

_LOGGER = logging.getLogger("stormlog.tensorflow")
_MAX_STEPS = 100_000
_P = ParamSpec("_P")
_T = TypeVar("_T")
# A copy has these by reference: they belong to the program or the system.
_SHARED = {"tracker", "model", "on_forecast", "_probe"}


class StepMemory(NamedTuple):
    """One training step, in megabytes: the highest memory inside it, and how far above its start that was."""

    epoch: int
    step: int
    seconds: float
    peak_mb: float
    increase_mb: float


def _never_raises(
    call: Callable[Concatenate[StormlogCallback, _P], _T],
) -> Callable[Concatenate[StormlogCallback, _P], _T | None]:
    """None where it failed; only the first failure is a warning, because a hook is called at every step."""

    @functools.wraps(call)
    def wrapped(self: StormlogCallback, /, *args: _P.args, **kwargs: _P.kwargs) -> _T | None:
        try:
            return call(self, *args, **kwargs)
        except Exception as error:
            level = logging.DEBUG if self._has_warned else logging.WARNING
            self._has_warned = True
            _LOGGER.log(level, "StormlogCallback failed, and training continues: %s", error)
            return None

    return wrapped


class StormlogCallback:
    """For `model.fit(..., callbacks=[StormlogCallback()])`.

    `tracker` is used as it is; without one, a tracker is made and runs while the model trains. Phases are
    named `epoch`, `step` and `validation`. `steps` keeps the peak of each step, `epoch_peaks_mb` that of each
    epoch; with `log_peak` it is also in the logs of the epoch.

    While memory is forecast to reach its limit, by the rule that raises forecast alerts: `on_forecast` is
    called between two steps, in the training thread, with the seconds left, and training stops when what
    it returns is true; `stop_before_limit` stops training when that many seconds or fewer are left.
    """

    # Where this is true Keras 3 may call from another thread; phases belong to the training thread.
    async_safe = False

    def __init__(
        self,
        tracker: MemoryTracker | None = None,
        *,
        phases: bool = True,
        step_phases: bool = True,
        on_forecast: Callable[[float], object] | None = None,
        stop_before_limit: float | None = None,
        log_peak: bool = False,
        sampling_interval: float = 0.1,
    ) -> None:
        self.tracker = tracker
        self.model: Any = None
        self.params: dict[str, Any] = {}
        self.phases = phases
        self.step_phases = phases and step_phases
        self.on_forecast = on_forecast
        self.stop_before_limit = stop_before_limit
        self.log_peak = log_peak
        self.sampling_interval = sampling_interval
        self.steps: deque[StepMemory] = deque(maxlen=_MAX_STEPS)
        self.epoch_peaks_mb: list[float] = []
        self.stopped_by_forecast = False
        self._probe = _native.tracking.ProcessProbe()
        self._is_recording = False
        self._has_warned = False
        self._has_made_tracker = False
        # The session that this callback started; another one is the program's to stop.
        self._own_session: str | None = None
        self._open: list[PhaseHandle] = []
        self._epoch = 0
        self._step: tuple[BlockPeak, int, float] | None = None
        self._epoch_peak = 0.0

    # What Keras calls

    def set_model(self, model: Any) -> None:
        """The model that is trained."""
        self.model = model

    def set_params(self, params: dict[str, Any]) -> None:
        """Epochs, steps and so on, as Keras has them."""
        self.params = params

    def on_train_begin(self, logs: Any = None) -> None:
        """Starts the tracker where it does not run yet."""
        self.stopped_by_forecast = False
        self._is_recording = False
        self._begin()

    @_never_raises
    def on_train_end(self, logs: Any = None) -> None:
        """Stops a tracker that was started for this training."""
        self._is_recording = False
        self._leave_phases()
        self._stop_own_session()

    @_never_raises
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """A phase for the epoch."""
        if not self._is_recording:
            return
        self._leave_phases()
        self._epoch, self._epoch_peak = epoch, 0.0
        self._enter("epoch", {"epoch": epoch}, self.phases)

    @_never_raises
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Store the epoch's peak in `epoch_peaks_mb`, and end its phase."""
        if not self._is_recording:
            return
        self._leave_phases()
        self.epoch_peaks_mb.append(self._epoch_peak)
        if self.log_peak and isinstance(logs, dict):
            logs["memory_peak_mb"] = self._epoch_peak

    @_never_raises
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """A phase for the step, and the beginning of its peak."""
        if not self._is_recording:
            return
        self._leave_step()
        self._enter("step", {"epoch": self._epoch, "step": batch}, self.step_phases)
        tf, device = _runtime.tensorflow(), self._device()
        before = held(tf, device, self._probe)
        self._step = (begin_peak(tf, device, self._probe), before, time.perf_counter())

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """The step's peak, and what is to be done about a forecast."""
        self._end_step(batch)
        left = self._forecast()
        if left is not None:
            self._act_on(left)

    @_never_raises
    def on_test_begin(self, logs: Any = None) -> None:
        """A phase for the validation inside a training."""
        if self._is_recording:
            self._leave_step()
            self._enter("validation", {"epoch": self._epoch}, self.phases)

    @_never_raises
    def on_test_end(self, logs: Any = None) -> None:
        """End the phase of the evaluation."""
        if self._open and self._open[-1].name == "validation":
            _close(self._open.pop())

    def __getattr__(self, name: str) -> Any:
        """The other hooks of a callback (`on_predict_begin`, `on_batch_end`, …) do nothing."""
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """For another training, as tuners make one per trial; a tracker that was given is shared."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        # What is open belongs to the training of the original.
        changed: dict[str, Any] = {"_open": [], "_step": None, "_is_recording": False, "_own_session": None}
        if self._has_made_tracker:
            changed |= {"tracker": None, "_has_made_tracker": False}
        for name, value in (vars(self) | changed).items():
            vars(copied)[name] = value if name in _SHARED else copy.deepcopy(value, memo)
        return copied

    # The rest

    @_never_raises
    def _begin(self) -> None:
        backend = _runtime.backend_of_keras()
        if backend != "tensorflow":
            # TensorFlow would be imported, and take a GPU, beside the library that trains.
            raise RuntimeError(
                f"Keras runs on {backend} here, and this callback records TensorFlow; "
                "`stormlog run` records any program"
            )
        if self.tracker is None:
            from stormlog.tensorflow.tracker import MemoryTracker

            self.tracker = MemoryTracker(self.sampling_interval, enable_logging=False)
            self._has_made_tracker = True
        self._leave_phases()
        # One that a failed training left running.
        self._stop_own_session()
        if not self.tracker.is_tracking:
            self.tracker.start_tracking()
            self._own_session = self._session()
        self._is_recording = True

    def _session(self) -> str | None:
        session = None if self.tracker is None else self.tracker.get_session_summary()
        return None if session is None else session.session_id

    def _stop_own_session(self) -> None:
        own, self._own_session = self._own_session, None
        if own is not None and self.tracker is not None and own == self._session():
            self.tracker.stop_tracking()

    @_never_raises
    def _end_step(self, batch: int) -> None:
        if self._step is not None:
            (peak, before, began), self._step = self._step, None
            ended = peak.end()
            seconds = time.perf_counter() - began
            highest, increase = max(ended.held, before), max(ended.held - before, ended.increase)
            found = StepMemory(self._epoch, batch, seconds, highest / _runtime.MIB, increase / _runtime.MIB)
            self.steps.append(found)
            self._epoch_peak = max(self._epoch_peak, found.peak_mb)
        self._leave_step()

    def _device(self) -> str:
        return "/CPU:0" if self.tracker is None else self.tracker.device

    def _enter(self, name: str, metadata: dict[str, Any], wanted: bool) -> None:
        if wanted and self.tracker is not None and self.tracker.is_tracking:
            self._open.append(self.tracker.enter_phase(name, metadata=metadata))

    def _leave_step(self) -> None:
        """Ends what a step left open."""
        if self._step is not None:
            step, self._step = self._step, None
            step[0].end()
        while self._open and self._open[-1].name != "epoch":
            _close(self._open.pop())

    def _leave_phases(self) -> None:
        self._leave_step()
        while self._open:
            _close(self._open.pop())

    @_never_raises
    def _forecast(self) -> float | None:
        is_wanted = self.on_forecast is not None or self.stop_before_limit is not None
        if self.tracker is None or not is_wanted or self.stopped_by_forecast:
            return None
        return self.tracker.forecast_seconds

    def _act_on(self, left: float) -> None:
        """Asks the program's function, whose exceptions are the program's."""
        is_near = self.stop_before_limit is not None and left <= self.stop_before_limit
        # A truth value of NumPy is not `True` itself.
        if self.on_forecast is not None and bool(self.on_forecast(left)):
            is_near = True
        if is_near:
            self.stopped_by_forecast = True
            _LOGGER.warning("Memory reaches its limit in %.0f s: training stops after this step", left)
            if self.model is not None:
                self.model.stop_training = True


def _close(handle: PhaseHandle) -> None:
    try:
        handle.close()
    except PhaseProtocolError as error:
        # A session that ended, or that was started again, has closed its phases.
        _LOGGER.debug("Phase %s: %s", handle.name, error)


def _nothing(*args: Any, **kwargs: Any) -> None:
    """A hook that does nothing."""
