"""The recorder of a JAX program behind `stormlog.auto`: from its first use of a device to its end.

Private. Runs inside the user's program, so nothing here may raise into it, print, start a backend, wait for
a device, or keep an array. One thread looks: it waits until the program has started a backend, then has each
device sampled, and takes a memory profile when more is in use than ever before.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

from stormlog import _native
from stormlog._jax import profiles, runtime
from stormlog._jax.collector import JaxDeviceCollector
from stormlog._jax.compiled import CompiledMemory, live_programs
from stormlog._jax.preallocation import Preallocation
from stormlog._jax.tracker import DeviceTracker
from stormlog._torch import auto as _host
from stormlog._torch.auto_settings import Settings, is_off, session_directory
from stormlog._tracking.uncaught import when_uncaught
from stormlog.device_collectors import CPUDeviceCollector, DeviceMemoryCollector
from stormlog.oom_flight_recorder import OOMFlightRecorderConfig, classified
from stormlog.telemetry import resolve_distributed_identity

_LOGGER = logging.getLogger("stormlog.auto")
_HOST = -1
# Seconds between two looks: for a backend, and for a new peak or new programs.
_SOON, _LATER = 0.05, 1.0
# A profile is taken when use has risen by this factor, and by at least this size, since the last one.
_RISE, _LEAST_RISE = 1.1, 1 << 20
_MAX_EVENTS = 10_000
_MAX_BUNDLES, _MAX_MEGABYTES = 5, 512


class _Recording:
    """What is recorded of this process. A forked child has none: JAX does not work there."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.pid = os.getpid()
        self.directory = settings.directory()
        self.trackers: dict[int, DeviceTracker] = {}
        self.ending = threading.Event()
        self.profiled_bytes = 0
        self.programs: list[CompiledMemory] = []
        self.has_compiled = threading.Event()
        self.lock = threading.Lock()

    def begin(self) -> None:
        """Look from now on."""
        listen = getattr(runtime.jax().monitoring, "register_event_duration_secs_listener", None)
        if listen is not None:
            listen(self._heard)
        _host.record_host()
        threading.Thread(target=self._look, name="stormlog-jax", daemon=True).start()

    def end(self) -> None:
        """The last profile, and the sessions are complete."""
        if self.ending.is_set() or os.getpid() != self.pid:
            return
        self.ending.set()
        if self.devices():
            self._quietly(lambda: self._profile(profiles.AT_END))
            self._quietly(self._state)
        for tracker in self.trackers.values():
            tracker.stop_tracking()

    def devices(self) -> list[Any]:
        """The devices, once the program uses them."""
        return runtime.started_devices()

    def ran_out(self, error: BaseException) -> None:
        """An exception that was not caught and means that memory ran out."""
        devices = self.devices()
        if os.getpid() != self.pid or not devices or not _is_of_jax(error):
            return
        self._tracker(devices[_device_in(str(error), len(devices))]).handle_exception(error)

    def _look(self) -> None:
        while not self.devices():
            if self.ending.wait(_SOON):
                return
        for device in self.devices():
            if device.platform != "cpu":
                self._quietly(lambda device=device: self._tracker(device).start_tracking())
        self.has_compiled.set()
        while not self.ending.wait(_LATER):
            self._quietly(self._look_at_peak)
            if self.has_compiled.is_set():
                self._quietly(self._state)

    def _tracker(self, device: Any) -> DeviceTracker:
        number = runtime.number_of(device)
        with self.lock:
            if number not in self.trackers:
                collector: DeviceMemoryCollector = (
                    CPUDeviceCollector() if number == _HOST else JaxDeviceCollector(device)
                )
                folder = self._folder(number)
                self.trackers[number] = DeviceTracker(
                    collector,
                    sampling_interval=self.settings.interval,
                    alert_threshold_mb=None,
                    enable_logging=False,
                    max_history=_MAX_EVENTS,
                    enable_alerts=True,
                    recorder=OOMFlightRecorderConfig(
                        self.settings.writes_bundles, str(folder), _MAX_EVENTS, _MAX_BUNDLES, _MAX_MEGABYTES
                    ),
                    identity=(None, None, None, None),
                    telemetry_sink_config=None,
                    recording_dir=folder,
                )
            return self.trackers[number]

    def _folder(self, number: int) -> Path:
        rank = int(resolve_distributed_identity(env=os.environ)["rank"])
        return session_directory(self.directory, rank, number)

    def _file(self, name: str) -> Path:
        """In the directory of the first device: a profile and the programs are of all devices."""
        folder = self._folder(min(runtime.number_of(device) for device in self.devices()))
        _native.files.create_directory(folder)
        return folder / name

    def _look_at_peak(self) -> None:
        in_use = self._in_use()
        if in_use > max(self.profiled_bytes * _RISE, self.profiled_bytes + _LEAST_RISE):
            self._profile(profiles.AT_PEAK)
            self.profiled_bytes = in_use
            self._state()

    def _in_use(self) -> int:
        jax, total = runtime.jax(), 0
        for device in self.devices():
            stats = runtime.memory_stats(device)
            total += runtime.live_bytes(jax, device) if stats is None else stats["bytes_in_use"]
        return total

    def _profile(self, name: str) -> None:
        began = time.perf_counter()
        size = profiles.write(self._file(name), runtime.jax())
        _LOGGER.debug("%s: %d bytes in %.1f ms", name, size, (time.perf_counter() - began) * 1e3)

    def _state(self) -> None:
        """What the program needs and has, for the views of the run: rewritten as it changes."""
        if self.has_compiled.is_set():
            self.has_compiled.clear()
            self.programs = live_programs()
        devices = [(device, runtime.memory_stats(device)) for device in self.devices()]
        preallocation = Preallocation.of()
        page = {
            "format": "stormlog.jax",
            "schema_version": 1,
            "jax_version": str(runtime.jax().__version__),
            "devices": [
                {
                    "number": runtime.number_of(device),
                    "kind": str(device.device_kind),
                    **preallocation.to_dict(stats),
                }
                for device, stats in devices
                if stats is not None
            ],
            "programs": [program.to_dict() for program in self.programs],
        }
        path = self._file(_native.catalog.JAX_FILE)
        _native.files.replace_file(path, json.dumps(page, indent=1).encode())

    def _heard(self, name: str, *_: Any, **__: Any) -> None:
        if name.endswith("backend_compile_duration"):
            self.has_compiled.set()

    def _quietly(self, work: Any) -> None:
        try:
            work()
        except Exception as error:
            _LOGGER.debug("JAX: %s", error)


RECORDING: _Recording | None = None


def arm() -> None:
    """JAX is imported: wait for its first use. A second time does nothing."""
    global RECORDING
    settings = Settings.of(os.environ)
    if RECORDING is not None or is_off(os.environ, "STORMLOG_JAX"):
        return
    RECORDING = _Recording(settings)
    RECORDING.begin()
    when_uncaught(_died_of)
    # Registered after JAX's own, so called before it closes its backends.
    atexit.register(stop)


def stop() -> None:
    """End what was begun here."""
    if RECORDING is not None:
        RECORDING.end()


def _died_of(error: BaseException) -> None:
    try:
        recording = RECORDING
        if recording is not None and recording.settings.writes_bundles and classified(error).is_oom:
            recording.ran_out(error)
    except Exception as problem:
        _LOGGER.debug("JAX: %s", problem)


def _is_of_jax(error: BaseException) -> bool:
    kind = type(error)
    return kind.__module__.partition(".")[0] in {"jax", "jaxlib"} or "RESOURCE_EXHAUSTED" in str(error)


def _device_in(text: str, count: int) -> int:
    """The device that the message names; the first where it names none."""
    _, found, rest = text.partition("on device ")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    number = int(digits) if found and digits else 0
    return number if number < count else 0
