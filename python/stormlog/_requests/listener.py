"""Takes requests to this process, and answers them.

Private. One thread that looks at one directory four times a second; a forked child has none. It ends before a
fork and begins again after it, so that a program with one thread has one when it forks. Nothing here may
raise into the program, print, or change a signal that the program uses.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path

from stormlog import _native
from stormlog._requests.steps import CLOCK
from stormlog._requests.take import forget_other_threads, take

_LOGGER = logging.getLogger("stormlog.snapshot")
_PAUSE_MS = 250
# Least seconds between two snapshots by signal.
_SIGNAL_PAUSE = 2.0
_HEAP_SECONDS = 10.0


class _Heap:
    """A heap recording that was asked for and is under way."""

    def __init__(self, request: _native.requests.Request, directory: Path, step: int | None) -> None:
        seconds = _HEAP_SECONDS if request.heap_seconds is None else request.heap_seconds
        self.request = request
        self.directory = directory
        self.began_at_step = step
        # Steps end it where one began it.
        self.until = None if request.at_step is not None else time.monotonic() + seconds


class Listener:
    """Takes the requests below one run directory."""

    def __init__(self, run: Path, rank: int) -> None:
        self.run = run
        self.rank = rank
        self.signal: int | None = None
        self.signal_state: str | None = None
        self._inbox = _native.requests.Inbox(run)
        self._lock = threading.Lock()
        self._waiting: list[_native.requests.Request] = []
        self._heap: _Heap | None = None
        self._last_by_signal = -_SIGNAL_PAUSE
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # One for each thread: that of an earlier one may be in the middle of a snapshot when the next begins.
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Look for requests from now on."""
        _native.requests.show_listener(self.run, self.rank, self.signal, self.signal_state)
        self._begin_thread()

    def stop(self) -> None:
        """Take no more of them, and answer those that were taken: their commands wait."""
        self.pause()
        heap = self._heap
        if heap is not None:
            self._end_heap(heap)
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for request in waiting:
            self._answer(
                request, "refused", reason=f"the process ended before step {request.at_step}{_last_step()}"
            )
        _native.requests.hide_listener(self.run)

    def pause(self) -> None:
        """End the thread, for a fork."""
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            self._end.set()
            os.eventfd_write(self._wake, 1)
            # Not for ever: it may be in the middle of a snapshot, and need what this thread holds.
            thread.join(1.0)

    def resume(self) -> None:
        """Begin again after a fork."""
        if self._thread is None:
            self._begin_thread()

    def use_signal(self, number: int) -> str | None:
        """Have a signal ask for a snapshot; why not, otherwise."""
        problem = _native.requests.install_notice(number, self._wake)
        self.signal, self.signal_state = number, problem or "used"
        _native.requests.show_listener(self.run, self.rank, self.signal, self.signal_state)
        return problem

    def _begin_thread(self) -> None:
        # The last thread was woken once for its end, which is not a signal.
        if self._end.is_set() and self._wakes() > 1:
            os.eventfd_write(self._wake, 1)
        self._end = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, args=(self._end,), name="stormlog-requests", daemon=True
        )
        self._thread.start()

    def _watch(self, end: threading.Event) -> None:
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        while True:
            is_woken = bool(poller.poll(_PAUSE_MS))
            if end.is_set():
                return
            is_woken = is_woken and self._wakes() > 0
            try:
                if is_woken:
                    self._signalled()
                for request in self._inbox.take():
                    self._begin(request)
                self._look_at_time()
                self._look_at_signal()
            except Exception as error:
                _LOGGER.debug("requests: %s", error)

    def _wakes(self) -> int:
        try:
            return os.eventfd_read(self._wake)
        except BlockingIOError:  # another thread was faster
            return 0

    def _signalled(self) -> None:
        now = time.monotonic()
        if now - self._last_by_signal < _SIGNAL_PAUSE:
            return
        self._last_by_signal = now
        number = secrets.token_hex(8)
        directory = _native.requests.new_snapshot_directory(self.run, number)
        take(directory, request=number, asked_by="signal")

    def _look_at_signal(self) -> None:
        if self.signal is None or self.signal_state != "used":
            return
        if not _native.requests.is_notice_installed(self.signal):
            self.signal_state = "replaced"
            _native.requests.show_listener(self.run, self.rank, self.signal, self.signal_state)
            _LOGGER.info("signal %d no longer triggers snapshots: the program handles it", self.signal)

    def _begin(self, request: _native.requests.Request) -> None:
        if request.at_step is not None:
            with self._lock:
                self._waiting.append(request)
                CLOCK.watcher = self.step_made
            self._answer(request, "waiting")
        elif request.kind == "heap":
            self._begin_heap(request, None)
        else:
            self._snapshot(request)

    def step_made(self, step: int) -> None:
        """A step has ended, in the thread that calls."""
        with self._lock:
            due = [request for request in self._waiting if (request.at_step or 0) <= step]
            self._waiting = [request for request in self._waiting if request not in due]
            heap = self._heap
            if not self._waiting and not due and heap is None:
                CLOCK.watcher = None
        if heap is not None and heap.began_at_step is not None and step > heap.began_at_step:
            self._end_heap(heap)
        for request in due:
            if request.kind == "heap":
                self._begin_heap(request, step)
            else:
                self._snapshot(request)

    def _snapshot(self, request: _native.requests.Request) -> None:
        def work() -> Path:
            directory = _native.requests.new_snapshot_directory(self.run, request.id)
            take(directory, request=request.id, asked_by=request.asked_by, at_step=request.at_step)
            return directory

        self._answered(request, work)

    def _begin_heap(self, request: _native.requests.Request, step: int | None) -> None:
        from stormlog import heap

        if heap.is_recording():
            # Its capture knows every line already.
            self._snapshot(request)
            return
        try:
            with self._lock:
                if self._heap is not None:
                    raise RuntimeError("another heap recording is running; try again when it has ended")
            directory = _native.requests.new_snapshot_directory(self.run, request.id)
            heap.start(directory / _native.catalog.CAPTURE_FILE)
            with self._lock:
                self._heap = _Heap(request, directory, step)
            self._answer(request, "waiting")
        except Exception as error:
            self._answer(request, "failed", reason=_sentence(error))

    def _end_heap(self, under_way: _Heap) -> None:
        from stormlog import heap

        with self._lock:
            if self._heap is not under_way:
                return
            self._heap = None

        def work() -> Path:
            request = under_way.request
            # While it is recorded its lines are those of the recording.
            take(
                under_way.directory,
                request=request.id,
                asked_by=request.asked_by,
                at_step=request.at_step,
            )
            heap.stop()
            return under_way.directory

        self._answered(under_way.request, work)

    def _look_at_time(self) -> None:
        heap = self._heap
        # One that a step began and no further step ends is not recorded without end.
        if heap is not None and (_is_late(heap.request) or _is_over(heap.until)):
            self._end_heap(heap)
        with self._lock:
            late = [one for one in self._waiting if _is_late(one)]
            self._waiting = [one for one in self._waiting if one not in late]
        for request in late:
            self._answer(
                request, "refused", reason=f"step {request.at_step} did not come in time{_last_step()}"
            )

    def _answered(self, request: _native.requests.Request, work: Callable[[], Path]) -> None:
        try:
            directory = work()
        except Exception as error:
            self._answer(request, "failed", reason=_sentence(error))
        else:
            self._answer(request, "done", path=directory)

    def _answer(
        self,
        request: _native.requests.Request,
        state: str,
        path: Path | None = None,
        reason: str | None = None,
    ) -> None:
        try:
            _native.requests.answer_request(
                self.run, request.id, state, path=path, reason=reason, step=CLOCK.made
            )
        except (OSError, RuntimeError) as error:  # a run directory that is gone, a full disk
            _LOGGER.debug("answer: %s", error)


def _is_late(request: _native.requests.Request) -> bool:
    return request.expires_at_ns is not None and request.expires_at_ns <= time.time_ns()


def _is_over(until: float | None) -> bool:
    return until is not None and time.monotonic() >= until


def _last_step() -> str:
    return ": no step has ended" if CLOCK.made is None else f": the last step is {CLOCK.made}"


def _sentence(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


class _Own:
    """The listener of this process."""

    def __init__(self) -> None:
        self.listener: Listener | None = None
        self.is_hooked = False


_OWN = _Own()


def own() -> Listener | None:
    """The listener of this process, where there is one."""
    return _OWN.listener


def start(run: Path) -> Listener:
    """Take requests below a run directory; a second time does nothing."""
    if _OWN.listener is None:
        from stormlog.telemetry import resolve_distributed_identity

        rank = int(resolve_distributed_identity(env=os.environ)["rank"])
        _OWN.listener = Listener(run, rank)
        if not _OWN.is_hooked:
            _OWN.is_hooked = True
            os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
            atexit.register(stop)
        _OWN.listener.start()
    return _OWN.listener


def stop() -> None:
    """Take no more requests."""
    listener, _OWN.listener = _OWN.listener, None
    if listener is not None:
        CLOCK.watcher = None
        try:
            listener.stop()
        except Exception as error:
            _LOGGER.debug("requests: %s", error)


def _before_fork() -> None:
    if _OWN.listener is not None:
        _OWN.listener.pause()


def _after_fork() -> None:
    if _OWN.listener is not None:
        _OWN.listener.resume()


def _in_child() -> None:
    _OWN.listener = None
    CLOCK.watcher = None
    forget_other_threads()
