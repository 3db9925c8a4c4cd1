"""The recorder behind `stormlog.auto`: from the first use of CUDA to the end of the process.

Private. Runs inside the user's program, so nothing here may raise into it, print, make a context on a device
the program does not use, wait for a device, or keep a frame or a tensor. PyTorch calls `_ran_out` with its
allocator's lock released and the interpreter's taken, from whatever thread ran out.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec

from stormlog import _native, cuda_driver, heap, hidden_memory
from stormlog._torch import retention
from stormlog._torch.auto_device import Device
from stormlog._torch.auto_progress import STEPS, stack_of_error
from stormlog._torch.auto_settings import Settings, session_directory
from stormlog._tracking.uncaught import when_uncaught
from stormlog.oom_flight_recorder import exception_facts, exception_text
from stormlog.telemetry import resolve_distributed_identity

_LOGGER = logging.getLogger("stormlog.auto")
_P = ParamSpec("_P")
# A context is soon there once CUDA is in use; other devices may come at any time.
_SOON, _LATER = 0.01, 1.0
_SOON_LOOKS = 500
_HOST = -1


class _State:
    """The recording of this process. A forked child begins with an empty one."""

    def __init__(self) -> None:
        self.settings: Settings | None = None
        self.is_armed = False
        self.directory: Path | None = None
        self.devices: dict[int, Device] = {}
        self.has_observer = False
        self.history_is_ours = False
        self.lock = threading.RLock()
        self.ending = threading.Event()


STATE = _State()
# Hooks of the process, which stay.
_HOOKED: set[str] = set()


def _never_raises(call: Callable[_P, object]) -> Callable[_P, None]:
    @functools.wraps(call)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            call(*args, **kwargs)
        except Exception as error:
            _LOGGER.debug("%s: %s", getattr(call, "__name__", "call"), error)

    return wrapped


@_never_raises
def arm() -> None:
    """Torch is there: wait for CUDA, and for an exception that is not caught."""
    settings = Settings.of(os.environ)
    with STATE.lock:
        if STATE.is_armed or not settings.is_on:
            return
        STATE.is_armed, STATE.settings = True, settings
    # Before the first step: a request may wait for one by its number.
    STEPS.count()
    record_host()
    torch: Any = sys.modules["torch"]
    torch.cuda._lazy_call(cuda_is_used)


@_never_raises
def record_host() -> None:
    """Record what is not of a device, whichever framework is there: host memory, the heap, and requests.

    Under `stormlog run` the supervisor watches the host's side from outside.
    """
    if not _HOOKED:
        _HOOKED.add("hooks")
        when_uncaught(_died_of)
        os.register_at_fork(after_in_child=_in_child)
        atexit.register(_end)
    with STATE.lock:
        settings = STATE.settings = STATE.settings or Settings.of(os.environ)
    if settings.run_directory is None and _HOST not in STATE.devices:
        _record(_HOST)
        if settings.records_heap:
            _record_heap()
    _take_requests()


@_never_raises
def _take_requests() -> None:
    """`stormlog snapshot --pid`, `stormlog trigger`, and the signal that the user named."""
    from stormlog._requests import listener

    settings = STATE.settings
    directory = STATE.directory or (None if settings is None else settings.run_directory)
    if settings is not None and settings.takes_requests and directory is not None:
        taking = listener.start(directory)
        if settings.snapshot_signal is not None:
            taking.use_signal(settings.snapshot_signal)


@_never_raises
def cuda_is_used() -> None:
    """CUDA is being initialised: nothing is allocated yet, no context is there."""
    torch: Any = sys.modules["torch"]
    settings = STATE.settings
    if settings is None:
        return
    if settings.follows_driver:
        cuda_driver.start()
    for index in range(torch.cuda.device_count()):
        _look_before(torch, index)
    if settings.history_entries:
        _start_history(settings)
    if settings.writes_bundles and not STATE.has_observer:
        _attach_observer(torch)
    STEPS.count()
    threading.Thread(target=_look_for_devices, args=(STATE,), name="stormlog-auto", daemon=True).start()


@_never_raises
def stop() -> None:
    """End what was begun here; what the user began continues. It may be armed again."""
    global STATE
    from stormlog._requests import listener

    was = STATE
    _end()
    _native.heap.heap_stop_default()
    STEPS.stop()
    listener.stop()
    STATE = _State()
    STATE.has_observer = was.has_observer
    if was.history_is_ours:
        from stormlog import cuda_native_debug

        cuda_native_debug.stop_cuda_memory_history()


@_never_raises
def _end() -> None:
    """The sessions are complete."""
    STATE.ending.set()
    with STATE.lock:
        devices, STATE.devices = list(STATE.devices.values()), {}
    for device in devices:
        device.stop()


def device_of(index: int) -> Device | None:
    """The recording of a device; begun now if it is not yet there."""
    with STATE.lock:
        if index not in STATE.devices and not STATE.ending.is_set():
            _record(index)
        return STATE.devices.get(index)


@_never_raises
def _start_history(settings: Settings) -> None:
    from stormlog import cuda_native_debug

    # A recording of the user's stays as it is.
    if not cuda_native_debug.cuda_memory_history_is_on():
        # That a block is to be freed is reported again when it is; to leave it out makes it a third cheaper.
        cuda_native_debug.start_cuda_memory_history(
            None,
            settings.history_entries,
            skip_actions=["free_requested"],
            with_stacks=settings.history_has_stacks,
        )
        STATE.history_is_ours = True


@_never_raises
def _attach_observer(torch: Any) -> None:
    """Listen for errors.

    An allocator that is not PyTorch's own (cudaMallocAsync, a plug-in) refuses; then only an
    exception that is not caught is seen.
    """
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is not None:
        attach(_ran_out)
        STATE.has_observer = True


def _look_for_devices(state: _State) -> None:
    """Record each device from the moment the program has a context on it."""
    torch: Any = sys.modules["torch"]
    count = torch.cuda.device_count()
    pause, looks = _SOON, 0
    while not state.ending.wait(pause):
        looks += 1
        for index in range(count):
            if index not in state.devices and hidden_memory.has_context(torch, index):
                _record(index)
        has_one = any(index in state.devices for index in range(count))
        pause = _LATER if has_one or looks >= _SOON_LOOKS else _SOON


@_never_raises
def _record(index: int) -> None:
    settings = STATE.settings
    if settings is None:
        return
    with STATE.lock:
        if index in STATE.devices or STATE.ending.is_set():
            return
        if STATE.directory is None:
            STATE.directory = settings.directory()
        rank = int(resolve_distributed_identity(env=os.environ)["rank"])
        folder = session_directory(STATE.directory, rank, index)
        STATE.devices[index] = Device(index, folder, settings)


@_never_raises
def _record_heap() -> None:
    """What `stormlog run` would record of the heap and of GPUs, into the directory of the host's session."""
    host = STATE.devices.get(_HOST)
    if host is not None:
        heap.publish_backward()
        _native.heap.heap_start_default(host.folder / _native.catalog.CAPTURE_FILE)


@_never_raises
def _look_before(torch: Any, index: int) -> None:
    """What others have in use there, as long as this process has no context."""
    if not hidden_memory.has_context(torch, index):
        driver = hidden_memory.Driver(torch, index)
        hidden_memory.begin(index, driver, driver.memory()[0])


@_never_raises
def _ran_out(index: int, wanted: int, allowed: int, free: int) -> None:
    """PyTorch is about to raise OutOfMemoryError."""
    device = device_of(index)
    if STATE.directory is not None:
        # Before the bundle: what is only held by the call that failed is still there.
        _look_at_retained("cuda_oom", STATE.directory)
    if device is not None:
        device.ran_out(wanted, allowed, free, STATE.history_is_ours)


@_never_raises
def _look_at_retained(reason: str, directory: Path, error: BaseException | None = None) -> None:
    retention.look(reason, directory, None if error is None else error.__traceback__)


@_never_raises
def _died_of(error: BaseException) -> None:
    """An exception that was not caught: memory may have run out where PyTorch's allocator does not see it."""
    found = _native.oom.classify_exception(exception_facts(error))
    if not found.is_oom or found.reason is None or STATE.ending.is_set():
        return
    settings = STATE.settings
    # Under `stormlog run` its own hook looks, whether this package is there or not.
    if settings is not None and settings.run_directory is None and STATE.directory is not None:
        _look_at_retained("exception", STATE.directory, error)
    if settings is None or not settings.writes_bundles:
        return
    if found.cause == "memory_error":
        host = STATE.devices.get(_HOST)
        if host is not None:
            host.tracker.handle_exception(error)
        return
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    device = device_of(int(torch.cuda.current_device()))
    if device is not None:
        names = (type(error).__name__, type(error).__module__, exception_text(error))
        device.raised(found.reason, names, stack_of_error(error), STATE.history_is_ours)


@_never_raises
def _quietly_stop_heap() -> None:
    _native.heap.heap_stop_default()


def _in_child() -> None:
    """Threads, sessions and contexts are the parent's; what waits for CUDA waits here too."""
    global STATE
    was = STATE
    STATE = _State()
    STATE.settings, STATE.is_armed = was.settings, was.is_armed
    if was.settings is not None and was.settings.run_directory is not None:
        STATE.directory = was.directory
    hidden_memory.forget()
    # Nothing would keep a child's share of it small.
    _quietly_stop_heap()
