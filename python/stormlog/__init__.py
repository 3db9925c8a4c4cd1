"""Stormlog: memory telemetry that survives the crash.

Importing this package must stay cheap (a recorded program pays for it): nothing is imported here, every name
is loaded when it is first used. `__init__.pyi` declares the same names for type checkers.
"""

__version__ = "0.5.0"
__author__ = "Stormlog Team"

# Every submodule that is an attribute of this package, and the names it gives to the package itself.
# `auto` is not here: importing it starts recording.
_LAZY: dict[str, tuple[str, ...]] = {
    "_notebook.ipython": ("load_ipython_extension",),
    "analyzer": (
        "MemoryAnalyzer",
        "MemoryPattern",
        "PerformanceInsight",
    ),
    "attributed_viz": (),
    "catalog": (),
    "collective_attribution": (),
    "collector_health": (),
    "context_profiler": (
        "MemoryProfiler",
        "ProfiledModule",
        "get_global_profiler",
        "profile_context",
        "profile_function",
        "profile_model_training",
        "set_global_profiler",
    ),
    "correlation": (),
    "cpu_profiler": (
        "CPUMemoryProfiler",
        "CPUMemorySnapshot",
        "CPUMemoryTracker",
        "CPUProfileResult",
    ),
    "cuda_native_debug": (),
    "derived_fields": (),
    "device_collectors": (
        "DeviceMemoryCapabilities",
        "DeviceMemoryCollector",
        "DeviceMemorySample",
        "build_device_memory_collector",
        "detect_torch_runtime_backend",
    ),
    "diagnose": (),
    "diagnose_report": (),
    "distributed_analysis": (),
    "errors": (
        "ConfigurationError",
        "MemoryError",
        "ProfilerError",
        "VisualizationError",
    ),
    "exit_codes": (),
    "formatting": (),
    "gap_analysis": ("GapFinding",),
    "heap": (),
    "hidden_memory": (),
    "issues": (),
    "jax": (),
    "module_memory": (),
    "oom_flight_recorder": (
        "OOMExceptionClassification",
        "OOMFlightRecorder",
        "OOMFlightRecorderConfig",
        "classify_oom_exception",
    ),
    "phases": (),
    "profiler": (
        "GPUMemoryProfiler",
        "MemorySnapshot",
        "ProfileResult",
    ),
    "query": (),
    "recording": (),
    "report": (),
    "run_catalog": (),
    "scrub": (),
    "session": (),
    "shapes": (),
    "snapshots": (
        "component",
        "snapshot",
        "snapshot_on",
        "step",
    ),
    "system_info": (),
    "telemetry": (
        "TelemetryEventV2",
        "TelemetryEventV3",
        "TelemetryEventV4",
        "load_telemetry_events",
        "load_telemetry_sessions",
        "resolve_distributed_identity",
        "telemetry_event_from_record",
        "telemetry_event_to_dict",
        "validate_telemetry_record",
    ),
    "telemetry_classification": (),
    "telemetry_model": (),
    "telemetry_rollups": (),
    "telemetry_sink": (),
    "tensor_tracker": ("TensorTracker",),
    "tensorflow": (),
    "timeline_markers": (
        "TimelineMarker",
        "derive_session_timeline_markers",
        "derive_timeline_markers",
        "timeline_marker_to_dict",
    ),
    "torch_snapshot": (),
    "tracker": (
        "MemoryTracker",
        "MemoryWatchdog",
        "TrackingEvent",
    ),
    "utils": (
        "check_memory_fragmentation",
        "convert_bytes",
        "format_bytes",
        "format_memory",
        "get_gpu_info",
        "get_system_info",
        "memory_summary",
        "suggest_memory_optimization",
    ),
    "visualizer": ("MemoryVisualizer",),
}
_HOME_OF = {name: module for module, names in _LAZY.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> object:
    if name not in _HOME_OF and (name not in _LAZY or "." in name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"{__name__}.{_HOME_OF.get(name, name)}")
    if name not in _HOME_OF:
        return module
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, *(module for module in _LAZY if "." not in module)})
