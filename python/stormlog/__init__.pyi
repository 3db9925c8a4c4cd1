from typing import Final

from . import analyzer as analyzer
from . import attributed_viz as attributed_viz
from . import catalog as catalog
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
from . import jax as jax
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
from . import snapshots as snapshots
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
from ._notebook.ipython import (
    load_ipython_extension as load_ipython_extension,
)
from .analyzer import (
    MemoryAnalyzer as MemoryAnalyzer,
)
from .analyzer import (
    MemoryPattern as MemoryPattern,
)
from .analyzer import (
    PerformanceInsight as PerformanceInsight,
)
from .context_profiler import (
    MemoryProfiler as MemoryProfiler,
)
from .context_profiler import (
    ProfiledModule as ProfiledModule,
)
from .context_profiler import (
    get_global_profiler as get_global_profiler,
)
from .context_profiler import (
    profile_context as profile_context,
)
from .context_profiler import (
    profile_function as profile_function,
)
from .context_profiler import (
    profile_model_training as profile_model_training,
)
from .context_profiler import (
    set_global_profiler as set_global_profiler,
)
from .cpu_profiler import (
    CPUMemoryProfiler as CPUMemoryProfiler,
)
from .cpu_profiler import (
    CPUMemorySnapshot as CPUMemorySnapshot,
)
from .cpu_profiler import (
    CPUMemoryTracker as CPUMemoryTracker,
)
from .cpu_profiler import (
    CPUProfileResult as CPUProfileResult,
)
from .device_collectors import (
    DeviceMemoryCapabilities as DeviceMemoryCapabilities,
)
from .device_collectors import (
    DeviceMemoryCollector as DeviceMemoryCollector,
)
from .device_collectors import (
    DeviceMemorySample as DeviceMemorySample,
)
from .device_collectors import (
    build_device_memory_collector as build_device_memory_collector,
)
from .device_collectors import (
    detect_torch_runtime_backend as detect_torch_runtime_backend,
)
from .errors import (
    ConfigurationError as ConfigurationError,
)
from .errors import (
    MemoryError as MemoryError,
)
from .errors import (
    ProfilerError as ProfilerError,
)
from .errors import (
    VisualizationError as VisualizationError,
)
from .gap_analysis import (
    GapFinding as GapFinding,
)
from .oom_flight_recorder import (
    OOMExceptionClassification as OOMExceptionClassification,
)
from .oom_flight_recorder import (
    OOMFlightRecorder as OOMFlightRecorder,
)
from .oom_flight_recorder import (
    OOMFlightRecorderConfig as OOMFlightRecorderConfig,
)
from .oom_flight_recorder import (
    classify_oom_exception as classify_oom_exception,
)
from .profiler import (
    GPUMemoryProfiler as GPUMemoryProfiler,
)
from .profiler import (
    MemorySnapshot as MemorySnapshot,
)
from .profiler import (
    ProfileResult as ProfileResult,
)
from .snapshots import (
    component as component,
)
from .snapshots import (
    snapshot as snapshot,
)
from .snapshots import (
    snapshot_on as snapshot_on,
)
from .snapshots import (
    step as step,
)
from .telemetry import (
    TelemetryEventV2 as TelemetryEventV2,
)
from .telemetry import (
    TelemetryEventV3 as TelemetryEventV3,
)
from .telemetry import (
    TelemetryEventV4 as TelemetryEventV4,
)
from .telemetry import (
    load_telemetry_events as load_telemetry_events,
)
from .telemetry import (
    load_telemetry_sessions as load_telemetry_sessions,
)
from .telemetry import (
    resolve_distributed_identity as resolve_distributed_identity,
)
from .telemetry import (
    telemetry_event_from_record as telemetry_event_from_record,
)
from .telemetry import (
    telemetry_event_to_dict as telemetry_event_to_dict,
)
from .telemetry import (
    validate_telemetry_record as validate_telemetry_record,
)
from .tensor_tracker import (
    TensorTracker as TensorTracker,
)
from .timeline_markers import (
    TimelineMarker as TimelineMarker,
)
from .timeline_markers import (
    derive_session_timeline_markers as derive_session_timeline_markers,
)
from .timeline_markers import (
    derive_timeline_markers as derive_timeline_markers,
)
from .timeline_markers import (
    timeline_marker_to_dict as timeline_marker_to_dict,
)
from .tracker import (
    MemoryTracker as MemoryTracker,
)
from .tracker import (
    MemoryWatchdog as MemoryWatchdog,
)
from .tracker import (
    TrackingEvent as TrackingEvent,
)
from .utils import (
    check_memory_fragmentation as check_memory_fragmentation,
)
from .utils import (
    convert_bytes as convert_bytes,
)
from .utils import (
    format_bytes as format_bytes,
)
from .utils import (
    format_memory as format_memory,
)
from .utils import (
    get_gpu_info as get_gpu_info,
)
from .utils import (
    get_system_info as get_system_info,
)
from .utils import (
    memory_summary as memory_summary,
)
from .utils import (
    suggest_memory_optimization as suggest_memory_optimization,
)
from .visualizer import (
    MemoryVisualizer as MemoryVisualizer,
)

__version__: Final[str]
__author__: Final[str]
__all__: list[str]
_LAZY: dict[str, tuple[str, ...]]
_HOME_OF: dict[str, str]
