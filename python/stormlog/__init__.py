"""Stormlog: memory telemetry that survives the crash.

Importing this package must stay cheap (a watched program pays for it): nothing is imported here, every name
is loaded when it is first asked for.
"""

__version__ = "0.5.0"
__author__ = "Stormlog Team"

# What type checkers call it; importing it from `typing` would cost more than the rest of this file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import analyzer as analyzer
    from . import attributed_viz as attributed_viz
    from . import collective_attribution as collective_attribution
    from . import collector_health as collector_health
    from . import context_profiler as context_profiler
    from . import correlation as correlation
    from . import cpu_profiler as cpu_profiler
    from . import cuda_native_debug as cuda_native_debug
    from . import derived_fields as derived_fields
    from . import device_collectors as device_collectors
    from . import diagnose as diagnose
    from . import diagnose_report as diagnose_report
    from . import distributed_analysis as distributed_analysis
    from . import errors as errors
    from . import exit_codes as exit_codes
    from . import formatting as formatting
    from . import gap_analysis as gap_analysis
    from . import heap as heap
    from . import hidden_memory as hidden_memory
    from . import issues as issues
    from . import module_memory as module_memory
    from . import oom_flight_recorder as oom_flight_recorder
    from . import phases as phases
    from . import profiler as profiler
    from . import query as query
    from . import recording as recording
    from . import report as report
    from . import run_catalog as run_catalog
    from . import scrub as scrub
    from . import session as session
    from . import shapes as shapes
    from . import system_info as system_info
    from . import telemetry as telemetry
    from . import telemetry_classification as telemetry_classification
    from . import telemetry_model as telemetry_model
    from . import telemetry_rollups as telemetry_rollups
    from . import telemetry_sink as telemetry_sink
    from . import tensor_tracker as tensor_tracker
    from . import tensorflow as tensorflow
    from . import timeline_markers as timeline_markers
    from . import torch_snapshot as torch_snapshot
    from . import tracker as tracker
    from . import utils as utils
    from . import visualizer as visualizer
    from ._ipython import load_ipython_extension as load_ipython_extension
    from .analyzer import MemoryAnalyzer, MemoryPattern, PerformanceInsight
    from .context_profiler import (
        MemoryProfiler,
        ProfiledModule,
        get_global_profiler,
        profile_context,
        profile_function,
        profile_model_training,
        set_global_profiler,
    )
    from .cpu_profiler import CPUMemoryProfiler, CPUMemorySnapshot, CPUMemoryTracker, CPUProfileResult
    from .device_collectors import (
        DeviceMemoryCapabilities,
        DeviceMemoryCollector,
        DeviceMemorySample,
        build_device_memory_collector,
        detect_torch_runtime_backend,
    )
    from .errors import ConfigurationError, MemoryError, ProfilerError, VisualizationError
    from .gap_analysis import GapFinding
    from .oom_flight_recorder import (
        OOMExceptionClassification,
        OOMFlightRecorder,
        OOMFlightRecorderConfig,
        classify_oom_exception,
    )
    from .profiler import GPUMemoryProfiler, MemorySnapshot, ProfileResult
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
    from .tensor_tracker import TensorTracker
    from .timeline_markers import (
        TimelineMarker,
        derive_session_timeline_markers,
        derive_timeline_markers,
        timeline_marker_to_dict,
    )
    from .tracker import MemoryTracker, MemoryWatchdog, TrackingEvent
    from .utils import (
        check_memory_fragmentation,
        convert_bytes,
        format_bytes,
        format_memory,
        get_gpu_info,
        get_system_info,
        memory_summary,
        suggest_memory_optimization,
    )
    from .visualizer import MemoryVisualizer

_HOME_OF = {
    "CPUMemoryProfiler": "cpu_profiler",
    "CPUMemorySnapshot": "cpu_profiler",
    "CPUMemoryTracker": "cpu_profiler",
    "CPUProfileResult": "cpu_profiler",
    "ConfigurationError": "errors",
    "DeviceMemoryCapabilities": "device_collectors",
    "DeviceMemoryCollector": "device_collectors",
    "DeviceMemorySample": "device_collectors",
    "GPUMemoryProfiler": "profiler",
    "GapFinding": "gap_analysis",
    "MemoryAnalyzer": "analyzer",
    "MemoryPattern": "analyzer",
    "MemoryProfiler": "context_profiler",
    "MemorySnapshot": "profiler",
    "MemoryTracker": "tracker",
    "MemoryVisualizer": "visualizer",
    "MemoryWatchdog": "tracker",
    "OOMExceptionClassification": "oom_flight_recorder",
    "OOMFlightRecorder": "oom_flight_recorder",
    "OOMFlightRecorderConfig": "oom_flight_recorder",
    "PerformanceInsight": "analyzer",
    "ProfileResult": "profiler",
    "ProfiledModule": "context_profiler",
    "MemoryError": "errors",
    "ProfilerError": "errors",
    "TelemetryEventV2": "telemetry",
    "TelemetryEventV3": "telemetry",
    "TelemetryEventV4": "telemetry",
    "TensorTracker": "tensor_tracker",
    "TimelineMarker": "timeline_markers",
    "TrackingEvent": "tracker",
    "VisualizationError": "errors",
    "build_device_memory_collector": "device_collectors",
    "check_memory_fragmentation": "utils",
    "classify_oom_exception": "oom_flight_recorder",
    "convert_bytes": "utils",
    "derive_session_timeline_markers": "timeline_markers",
    "derive_timeline_markers": "timeline_markers",
    "detect_torch_runtime_backend": "device_collectors",
    "format_bytes": "utils",
    "format_memory": "utils",
    "get_global_profiler": "context_profiler",
    "get_gpu_info": "utils",
    "get_system_info": "utils",
    "load_ipython_extension": "_ipython",
    "load_telemetry_events": "telemetry",
    "load_telemetry_sessions": "telemetry",
    "memory_summary": "utils",
    "profile_context": "context_profiler",
    "profile_function": "context_profiler",
    "profile_model_training": "context_profiler",
    "resolve_distributed_identity": "telemetry",
    "set_global_profiler": "context_profiler",
    "suggest_memory_optimization": "utils",
    "telemetry_event_from_record": "telemetry",
    "telemetry_event_to_dict": "telemetry",
    "timeline_marker_to_dict": "timeline_markers",
    "validate_telemetry_record": "telemetry",
}
_MODULES = frozenset(
    {
        "analyzer",
        "attributed_viz",
        "collective_attribution",
        "collector_health",
        "context_profiler",
        "correlation",
        "cpu_profiler",
        "cuda_native_debug",
        "derived_fields",
        "device_collectors",
        "diagnose",
        "diagnose_report",
        "distributed_analysis",
        "errors",
        "exit_codes",
        "formatting",
        "gap_analysis",
        "heap",
        "hidden_memory",
        "issues",
        "module_memory",
        "oom_flight_recorder",
        "phases",
        "profiler",
        "query",
        "recording",
        "report",
        "run_catalog",
        "scrub",
        "session",
        "shapes",
        "system_info",
        "telemetry",
        "telemetry_classification",
        "telemetry_model",
        "telemetry_rollups",
        "telemetry_sink",
        "tensor_tracker",
        "tensorflow",
        "timeline_markers",
        "torch_snapshot",
        "tracker",
        "utils",
        "visualizer",
    }
)

__all__ = [
    "CPUMemoryProfiler",
    "CPUMemorySnapshot",
    "CPUMemoryTracker",
    "CPUProfileResult",
    "ConfigurationError",
    "DeviceMemoryCapabilities",
    "DeviceMemoryCollector",
    "DeviceMemorySample",
    "GPUMemoryProfiler",
    "GapFinding",
    "MemoryAnalyzer",
    "MemoryError",
    "MemoryPattern",
    "MemoryProfiler",
    "MemorySnapshot",
    "MemoryTracker",
    "MemoryVisualizer",
    "MemoryWatchdog",
    "OOMExceptionClassification",
    "OOMFlightRecorder",
    "OOMFlightRecorderConfig",
    "PerformanceInsight",
    "ProfileResult",
    "ProfiledModule",
    "ProfilerError",
    "TelemetryEventV2",
    "TelemetryEventV3",
    "TelemetryEventV4",
    "TensorTracker",
    "TimelineMarker",
    "TrackingEvent",
    "VisualizationError",
    "build_device_memory_collector",
    "check_memory_fragmentation",
    "classify_oom_exception",
    "convert_bytes",
    "derive_session_timeline_markers",
    "derive_timeline_markers",
    "detect_torch_runtime_backend",
    "format_bytes",
    "format_memory",
    "get_global_profiler",
    "get_gpu_info",
    "get_system_info",
    "load_ipython_extension",
    "load_telemetry_events",
    "load_telemetry_sessions",
    "memory_summary",
    "profile_context",
    "profile_function",
    "profile_model_training",
    "resolve_distributed_identity",
    "set_global_profiler",
    "suggest_memory_optimization",
    "telemetry_event_from_record",
    "telemetry_event_to_dict",
    "timeline_marker_to_dict",
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
