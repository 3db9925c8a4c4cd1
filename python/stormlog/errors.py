"""The exceptions of the profilers.

Each is also what Python would have raised in its place, so that `except ValueError` and the like still work.
"""

from builtins import MemoryError

__all__ = ["ConfigurationError", "MemoryError", "ProfilerError", "VisualizationError"]


class ProfilerError(RuntimeError):
    """A profiler could not do its work; the base of the others."""


class ConfigurationError(ProfilerError, ValueError):
    """An argument or a setting is wrong."""


class VisualizationError(ProfilerError, ImportError):
    """A picture could not be made: no data for it, or the library that draws it is missing."""
