"""What an out-of-memory exception knows of itself: its chain, its traceback, the variables that hold most.

Private. Called while memory is short: imports nothing, copies nothing large, keeps no frame, never raises.
"""

from __future__ import annotations

import itertools
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, NamedTuple

from stormlog._native.text import binary_size

# A chain is rarely longer than three; a cycle of them is possible.
_MAX_CHAIN = 16
_MAX_FRAMES = 200
# Parts of one container that are looked at; the rest is estimated from them.
_MAX_PARTS = 10_000
_HOLDERS = 8
# What is smaller explains nothing.
_LEAST_BYTES = 1 << 20


class Holder(NamedTuple):
    """A place that holds memory, how many bytes, and what more is known."""

    place: str
    size: int
    note: str | None

    def to_dict(self) -> dict[str, Any]:
        """As a bundle has it."""
        return {"place": self.place, "bytes": self.size, "note": self.note}


def chain(exc: BaseException) -> Iterator[BaseException]:
    """The exception, what it was raised from, and what was being handled when it was raised."""
    seen: set[int] = set()
    current: BaseException | None = exc
    while current is not None and id(current) not in seen and len(seen) < _MAX_CHAIN:
        seen.add(id(current))
        yield current
        hidden = current.__suppress_context__
        current = current.__cause__ or (None if hidden else current.__context__)


def traceback_of(exc: BaseException) -> list[dict[str, Any]]:
    """File, line and function of each frame, outermost first."""
    return [
        {"file": frame.f_code.co_filename, "line": line, "function": frame.f_code.co_name}
        for frame, line in _frames(exc.__traceback__)
    ]


def holders(exc: BaseException) -> list[Holder]:
    """The lines that hold most where tracemalloc knows them, else the largest variables of the frames."""
    try:
        found = list(_traced()) if tracemalloc.is_tracing() else list(_variables(exc, _size_of))
    except Exception:
        return []
    return sorted(found, key=lambda holder: holder.size, reverse=True)[:_HOLDERS]


def device_holders(exc: BaseException, device: str) -> list[Holder]:
    """The largest variables of the frames by their tensors on TensorFlow's devices of this kind (`GPU`)."""
    try:
        found = list(_variables(exc, lambda value: _size_of(value, lambda part: _on_device(part, device))))
    except Exception:
        return []
    return sorted(found, key=lambda holder: holder.size, reverse=True)[:_HOLDERS]


def largest_tensors(index: dict[str, Any]) -> list[Holder]:
    """The largest tensors of an attribution index by name, where no stack shows what allocated them."""
    rows = sorted(index["attributed_storage_pointers"], key=lambda row: row["storage_bytes"], reverse=True)
    found = []
    for row in rows[:_HOLDERS]:
        one = row["tensors"][0]
        name = row["names"][0] if row["names"] else "a tensor without a name"
        note = f"{row['category'].replace('_', ' ')}, {one['dtype']} {one['shape']}"
        found.append(Holder(name, row["storage_bytes"], note))
    return found


def advice(found: list[Holder], is_host: bool) -> list[str]:
    """What to try."""
    tries = []
    if found and found[0].size >= _LEAST_BYTES:
        first = found[0]
        tries.append(
            f"{first.place} holds {binary_size(first.size)}: process it in parts, or release it earlier"
        )
    if is_host:
        tries.append("see every line that holds memory: stormlog run --heap -- python <your program>")
    else:
        tries.append("a smaller batch or activation checkpointing")
    return tries


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    for _ in range(_MAX_FRAMES):
        if traceback is None:
            return
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _traced() -> Iterator[Holder]:
    lines: dict[tuple[str, int], list[int]] = {}
    for trace in tracemalloc.take_snapshot().traces:
        frame = trace.traceback[-1]
        total = lines.setdefault((frame.filename, frame.lineno), [0, 0])
        total[0] += trace.size
        total[1] += 1
    for (file, line), (size, count) in lines.items():
        if size >= _LEAST_BYTES:
            yield Holder(f"{file}:{line}", size, f"{count} allocation{'' if count == 1 else 's'}")


def _variables(exc: BaseException, size_of: Callable[[object], int]) -> Iterator[Holder]:
    """Locals of every frame, and the globals of the modules they are in, with their sizes."""
    seen: set[int] = set()
    for error in chain(exc):
        for frame, line in reversed(list(_frames(error.__traceback__))):
            code = frame.f_code
            for name, value in [*frame.f_locals.items(), *frame.f_globals.items()]:
                if id(value) in seen:
                    continue
                seen.add(id(value))
                size = size_of(value)
                if size >= _LEAST_BYTES:
                    place = f"{code.co_filename}:{line} {code.co_name}: {name}"
                    yield Holder(place, size, _kind_of(value))


def _size_of(value: object, own_size: Callable[[object], int] | None = None) -> int:
    """Bytes of an object and of what a container of the usual kinds holds directly; 0 where unknown."""
    parts: Any = ()
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = value
    own_size = own_size or _own_size
    size = own_size(value)
    if parts:
        looked = [own_size(part) for part in itertools.islice(parts, _MAX_PARTS)]
        size += sum(looked) * len(parts) // len(looked)
    return size


def _own_size(value: object) -> int:
    try:
        # Arrays and tensors own memory that Python does not count; others might compute when asked.
        kind = type(value)
        if kind.__module__.partition(".")[0] in {"numpy", "torch", "pandas", "cupy", "jax", "jaxlib"}:
            held = getattr(value, "nbytes", 0)
            return int(held) if isinstance(held, int) else 0
        if kind.__module__.partition(".")[0] in {"tensorflow", "keras"}:
            return _tensorflow_size(value)
        return sys.getsizeof(value, 0)
    except Exception:
        return 0


def _tensorflow_size(value: Any) -> int:
    """Bytes of a tensor or variable of TensorFlow by its shape: `nbytes` would copy it to the host."""
    each = getattr(getattr(value, "dtype", None), "size", None)
    size = each if isinstance(each, int) else 0
    for extent in tuple(getattr(value, "shape", ())) if size else ():
        size *= int(extent or 0)
    return size


def _on_device(value: object, device: str) -> int:
    """Bytes of a tensor or variable of TensorFlow on such a device; 0 for anything else."""
    try:
        if type(value).__module__.partition(".")[0] not in {"tensorflow", "keras"}:
            return 0
        return _tensorflow_size(value) if f":{device}:" in str(getattr(value, "device", "")) else 0
    except Exception:
        return 0


def _kind_of(value: object) -> str:
    kind = type(value).__name__
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        return f"{kind} of {len(value):,}"
    shape = getattr(value, "shape", None) if type(value).__module__ != "builtins" else None
    return f"{kind} {tuple(shape)}" if isinstance(shape, tuple) else kind
