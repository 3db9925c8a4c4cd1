"""Stormlog: memory telemetry that survives the crash.

Importing this package must stay cheap (a watched program pays for it): nothing is imported here, every name
is loaded when it is first asked for.
"""

__version__ = "0.5.0"
__author__ = "Stormlog Team"

# What type checkers call it; importing it from `typing` would cost more than the rest of this file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import collector_health as collector_health
    from . import cpu_profiler as cpu_profiler
    from . import derived_fields as derived_fields
    from . import device_collectors as device_collectors
    from . import exit_codes as exit_codes
    from . import oom_flight_recorder as oom_flight_recorder
    from . import phases as phases
    from . import recording as recording
    from . import session as session
    from . import telemetry as telemetry
    from . import telemetry_model as telemetry_model
    from . import telemetry_rollups as telemetry_rollups
    from . import telemetry_sink as telemetry_sink
    from . import tracker as tracker
    from . import utils as utils
    from .cpu_profiler import CPUMemoryProfiler, CPUMemorySnapshot, CPUMemoryTracker, CPUProfileResult
    from .device_collectors import (
        DeviceMemoryCapabilities,
        DeviceMemoryCollector,
        DeviceMemorySample,
        build_device_memory_collector,
        detect_torch_runtime_backend,
    )
    from .oom_flight_recorder import (
        OOMExceptionClassification,
        OOMFlightRecorder,
        OOMFlightRecorderConfig,
        classify_oom_exception,
    )
    from .telemetry import (
        TelemetryEventV2,
        TelemetryEventV3,
        TelemetryEventV4,
        load_telemetry_events,
        load_telemetry_sessions,
        resolve_distributed_identity,
        telemetry_event_from_record,
        telemetry_event_to_dict,
        validate_telemetry_record,
    )
    from .tracker import MemoryTracker, MemoryWatchdog, TrackingEvent
    from .utils import convert_bytes, format_bytes, format_memory, get_gpu_info, get_system_info

_HOME_OF = {
    "CPUMemoryProfiler": "cpu_profiler",
    "CPUMemorySnapshot": "cpu_profiler",
    "CPUMemoryTracker": "cpu_profiler",
    "CPUProfileResult": "cpu_profiler",
    "DeviceMemoryCapabilities": "device_collectors",
    "DeviceMemoryCollector": "device_collectors",
    "DeviceMemorySample": "device_collectors",
    "MemoryTracker": "tracker",
    "MemoryWatchdog": "tracker",
    "OOMExceptionClassification": "oom_flight_recorder",
    "OOMFlightRecorder": "oom_flight_recorder",
    "OOMFlightRecorderConfig": "oom_flight_recorder",
    "TelemetryEventV2": "telemetry",
    "TelemetryEventV3": "telemetry",
    "TelemetryEventV4": "telemetry",
    "TrackingEvent": "tracker",
    "build_device_memory_collector": "device_collectors",
    "classify_oom_exception": "oom_flight_recorder",
    "convert_bytes": "utils",
    "detect_torch_runtime_backend": "device_collectors",
    "format_bytes": "utils",
    "format_memory": "utils",
    "get_gpu_info": "utils",
    "get_system_info": "utils",
    "load_telemetry_events": "telemetry",
    "load_telemetry_sessions": "telemetry",
    "resolve_distributed_identity": "telemetry",
    "telemetry_event_from_record": "telemetry",
    "telemetry_event_to_dict": "telemetry",
    "validate_telemetry_record": "telemetry",
}
_MODULES = frozenset(
    {
        "collector_health",
        "cpu_profiler",
        "derived_fields",
        "device_collectors",
        "exit_codes",
        "oom_flight_recorder",
        "phases",
        "recording",
        "session",
        "telemetry",
        "telemetry_model",
        "telemetry_rollups",
        "telemetry_sink",
        "tracker",
        "utils",
    }
)

__all__ = [
    "CPUMemoryProfiler",
    "CPUMemorySnapshot",
    "CPUMemoryTracker",
    "CPUProfileResult",
    "DeviceMemoryCapabilities",
    "DeviceMemoryCollector",
    "DeviceMemorySample",
    "MemoryTracker",
    "MemoryWatchdog",
    "OOMExceptionClassification",
    "OOMFlightRecorder",
    "OOMFlightRecorderConfig",
    "TelemetryEventV2",
    "TelemetryEventV3",
    "TelemetryEventV4",
    "TrackingEvent",
    "build_device_memory_collector",
    "classify_oom_exception",
    "convert_bytes",
    "detect_torch_runtime_backend",
    "format_bytes",
    "format_memory",
    "get_gpu_info",
    "get_system_info",
    "load_telemetry_events",
    "load_telemetry_sessions",
    "resolve_distributed_identity",
    "telemetry_event_from_record",
    "telemetry_event_to_dict",
    "validate_telemetry_record",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF and name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    value: object = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, *_MODULES})
