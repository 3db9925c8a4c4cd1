"""Stormlog for TensorFlow programs.

Importing it needs no TensorFlow, and nothing is loaded before it is asked for.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stormlog.tensorflow import analyzer as analyzer
    from stormlog.tensorflow import visualizer as visualizer
    from stormlog.tensorflow.analyzer import GapFinding as TensorFlowGapFinding
    from stormlog.tensorflow.analyzer import MemoryAnalyzer as TensorFlowAnalyzer
    from stormlog.tensorflow.visualizer import MemoryVisualizer as TensorFlowVisualizer
    from stormlog.utils import get_system_info

_HOME_OF = {
    "TensorFlowAnalyzer": ("stormlog.tensorflow.analyzer", "MemoryAnalyzer"),
    "TensorFlowGapFinding": ("stormlog.tensorflow.analyzer", "GapFinding"),
    "TensorFlowVisualizer": ("stormlog.tensorflow.visualizer", "MemoryVisualizer"),
    "get_system_info": ("stormlog.utils", "get_system_info"),
}

_MODULES = frozenset({"analyzer", "visualizer"})

__all__ = ["TensorFlowAnalyzer", "TensorFlowGapFinding", "TensorFlowVisualizer", "get_system_info"]


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
