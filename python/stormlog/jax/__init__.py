"""Stormlog for JAX programs: 0.4.3's names, memory by line, and what compiled functions need.

Importing it needs no JAX, and nothing is loaded before it is asked for.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stormlog import __version__ as __version__
    from stormlog._jax.compiled import CompiledMemory, compiled_memory
    from stormlog.jax import analyzer as analyzer
    from stormlog.jax import attributed_viz as attributed_viz
    from stormlog.jax import context_profiler as context_profiler
    from stormlog.jax import diagnose as diagnose
    from stormlog.jax import jax_env as jax_env
    from stormlog.jax import pprof_parser as pprof_parser
    from stormlog.jax import profiler as profiler
    from stormlog.jax import tracker as tracker
    from stormlog.jax import utils as utils
    from stormlog.jax import visualizer as visualizer
    from stormlog.jax.analyzer import MemoryAnalyzer
    from stormlog.jax.context_profiler import (
        JAXProfiler,
        ProfiledFunction,
        profile_context,
        profile_function,
    )
    from stormlog.jax.profiler import JAXMemoryProfiler
    from stormlog.jax.tracker import MemoryTracker, MemoryWatchdog
    from stormlog.jax.utils import get_device_info, get_system_info

_HOME_OF = {
    "CompiledMemory": "stormlog._jax.compiled",
    "JAXMemoryProfiler": "stormlog.jax.profiler",
    "JAXProfiler": "stormlog.jax.context_profiler",
    "MemoryAnalyzer": "stormlog.jax.analyzer",
    "MemoryTracker": "stormlog.jax.tracker",
    "MemoryWatchdog": "stormlog.jax.tracker",
    "ProfiledFunction": "stormlog.jax.context_profiler",
    "__version__": "stormlog",
    "compiled_memory": "stormlog._jax.compiled",
    "get_device_info": "stormlog.jax.utils",
    "get_system_info": "stormlog.jax.utils",
    "profile_context": "stormlog.jax.context_profiler",
    "profile_function": "stormlog.jax.context_profiler",
}

_MODULES = frozenset(
    {
        "analyzer",
        "attributed_viz",
        "context_profiler",
        "diagnose",
        "jax_env",
        "pprof_parser",
        "profiler",
        "tracker",
        "utils",
        "visualizer",
    }
)

__all__ = [
    "CompiledMemory",
    "JAXMemoryProfiler",
    "JAXProfiler",
    "MemoryAnalyzer",
    "MemoryTracker",
    "MemoryWatchdog",
    "ProfiledFunction",
    "__version__",
    "compiled_memory",
    "get_device_info",
    "get_system_info",
    "profile_context",
    "profile_function",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF and name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"stormlog.jax.{name}")
    value: object = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, *_MODULES})
