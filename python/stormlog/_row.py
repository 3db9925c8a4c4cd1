"""Rows of a query as dictionaries for JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Row:
    """A dataclass that can say all its fields as a dictionary, each one level deep."""

    def as_dict(self) -> dict[str, Any]:
        """The row as a dictionary for JSON."""
        # What is mixed into a dataclass is one, but the type checker cannot know.
        names = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        return {name: _plain(getattr(self, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    return str(value) if isinstance(value, Path) else value
