"""Stormlog for TensorFlow programs.

Importing it needs no TensorFlow, and nothing is loaded before it is asked for.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stormlog import __version__ as __version__
    from stormlog.tensorflow import analyzer as analyzer
    from stormlog.tensorflow import context_profiler as context_profiler
    from stormlog.tensorflow import diagnose as diagnose
    from stormlog.tensorflow import profiler as profiler
    from stormlog.tensorflow import tf_env as tf_env
    from stormlog.tensorflow import tracker as tracker
    from stormlog.tensorflow import utils as utils
    from stormlog.tensorflow import visualizer as visualizer
    from stormlog.tensorflow._keras import StormlogCallback
    from stormlog.tensorflow.analyzer import GapFinding as TensorFlowGapFinding
    from stormlog.tensorflow.analyzer import MemoryAnalyzer as TensorFlowAnalyzer
    from stormlog.tensorflow.context_profiler import TensorFlowProfiler
    from stormlog.tensorflow.profiler import TFMemoryProfiler
    from stormlog.tensorflow.tracker import MemoryTracker as TensorFlowMemoryTracker
    from stormlog.tensorflow.utils import get_system_info
    from stormlog.tensorflow.visualizer import MemoryVisualizer as TensorFlowVisualizer

_HOME_OF = {
    "StormlogCallback": ("stormlog.tensorflow._keras", "StormlogCallback"),
    "TFMemoryProfiler": ("stormlog.tensorflow.profiler", "TFMemoryProfiler"),
    "TensorFlowAnalyzer": ("stormlog.tensorflow.analyzer", "MemoryAnalyzer"),
    "TensorFlowGapFinding": ("stormlog.tensorflow.analyzer", "GapFinding"),
    "TensorFlowMemoryTracker": ("stormlog.tensorflow.tracker", "MemoryTracker"),
    "TensorFlowProfiler": ("stormlog.tensorflow.context_profiler", "TensorFlowProfiler"),
    "TensorFlowVisualizer": ("stormlog.tensorflow.visualizer", "MemoryVisualizer"),
    "__version__": ("stormlog", "__version__"),
    "get_system_info": ("stormlog.tensorflow.utils", "get_system_info"),
}

_MODULES = frozenset(
    {"analyzer", "context_profiler", "diagnose", "profiler", "tf_env", "tracker", "utils", "visualizer"}
)

__all__ = [
    "StormlogCallback",
    "TFMemoryProfiler",
    "TensorFlowAnalyzer",
    "TensorFlowGapFinding",
    "TensorFlowMemoryTracker",
    "TensorFlowProfiler",
    "TensorFlowVisualizer",
    "__version__",
    "get_system_info",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF and name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"stormlog.tensorflow.{name}")
    module, own_name = _HOME_OF[name]
    value: object = getattr(import_module(module), own_name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, *_MODULES})
