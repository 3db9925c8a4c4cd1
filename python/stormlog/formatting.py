"""Sizes as people read them; the same function as in `stormlog.utils`."""

from stormlog.utils import format_bytes

__all__ = ["format_bytes"]
