"""Loaded events as a list that costs what it is used for.

The events stay in a compact native buffer; an element becomes an object when it is touched and is the same
object from then on, so a change made to it is seen later. Where a list would hand out a new list (slices,
copies, sums), this gives a real one. It must never make two objects of one event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from stormlog import _native

if TYPE_CHECKING:
    from stormlog.telemetry import TelemetryEventV4

_T = TypeVar("_T")
# A key of the metadata and the values asked for, in lower case; any where there are none.
Said = tuple[str, Sequence[str] | None]
# A repr is for people: beyond this many events it says how many there are instead.
_REPR_LIMIT = 100


class TelemetryEventList(MutableSequence["TelemetryEventV4"]):
    """Behaves like a list of events; see the module for what it does not do."""

    __slots__ = ("_class", "_state")
    # A list is not hashable either.
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        events: Iterable[TelemetryEventV4] = (),
        *,
        buffer: _native.telemetry.EventBuffer | None = None,
        event_class: type[TelemetryEventV4] | None = None,
    ) -> None:
        self._class = event_class
        # The buffer, the objects made of it by index, and what was added behind it. One tuple, replaced as a
        # whole, so that a thread that reads while another changes the list sees one state or the other.
        self._state: tuple[
            _native.telemetry.EventBuffer | None, dict[int, TelemetryEventV4], list[TelemetryEventV4]
        ]
        self._state = (buffer, {}, list(events))

    def __len__(self) -> int:
        buffer, _, tail = self._state
        return len(tail) if buffer is None else len(buffer) + len(tail)

    @overload
    def __getitem__(self, index: SupportsIndex) -> TelemetryEventV4: ...
    @overload
    def __getitem__(self, index: slice) -> list[TelemetryEventV4]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> TelemetryEventV4 | list[TelemetryEventV4]:
        if isinstance(index, slice):
            return [self._at(position) for position in range(*index.indices(len(self)))]
        return self._at(self._position(index, "list index out of range"))

    @overload
    def __setitem__(self, index: SupportsIndex, value: TelemetryEventV4) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[TelemetryEventV4]) -> None: ...
    def __setitem__(self, index: SupportsIndex | slice, value: Any) -> None:
        if isinstance(index, slice):
            self._plain()[index] = value
            return
        position = self._position(index, "list assignment index out of range")
        buffer, made, tail = self._state
        if buffer is not None and position < len(buffer):
            made[position] = value
        else:
            tail[position - (0 if buffer is None else len(buffer))] = value

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        del self._plain()[index]

    def __iter__(self) -> Iterator[TelemetryEventV4]:
        position = 0
        while position < len(self):
            yield self._at(position)
            position += 1

    def __contains__(self, value: object) -> bool:
        return any(event is value or event == value for event in self.passing())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (list, TelemetryEventList)):
            return NotImplemented
        if len(self) != len(other):
            return False
        return all(a is b or a == b for a, b in zip(self.passing(), passing(other), strict=False))

    def __repr__(self) -> str:
        if len(self) <= _REPR_LIMIT:
            return repr(self[:])
        return f"[{self._at(0)!r}, ..., {self._at(len(self) - 1)!r}] ({len(self)} events)"

    def __add__(self, other: list[Any] | TelemetryEventList) -> list[Any]:
        if not isinstance(other, (list, TelemetryEventList)):
            return NotImplemented
        return [*self, *other]

    def __radd__(self, other: list[Any]) -> list[Any]:
        return [*other, *self] if isinstance(other, list) else NotImplemented

    def __mul__(self, times: SupportsIndex) -> list[TelemetryEventV4]:
        return self[:] * times

    __rmul__ = __mul__

    def __copy__(self) -> list[TelemetryEventV4]:
        return self[:]

    def __reduce__(self) -> tuple[type[TelemetryEventList], tuple[list[TelemetryEventV4]]]:
        return TelemetryEventList, (list(self.passing()),)

    def append(self, value: TelemetryEventV4) -> None:
        """Adds an event at the end."""
        self._state[2].append(value)

    def extend(self, values: Iterable[TelemetryEventV4]) -> None:
        """Adds events at the end."""
        self._state[2].extend(list(values))

    def insert(self, index: SupportsIndex, value: TelemetryEventV4) -> None:
        """Puts an event before another."""
        self._plain().insert(index, value)

    def pop(self, index: SupportsIndex = -1) -> TelemetryEventV4:
        """Takes an event out."""
        return self._plain().pop(index)

    def clear(self) -> None:
        """Takes all events out."""
        self._state = (None, {}, [])

    def copy(self) -> list[TelemetryEventV4]:
        """A real list of the same events."""
        return self[:]

    def count(self, value: object) -> int:
        """How many events equal a value."""
        return sum(event is value or event == value for event in self.passing())

    def index(self, value: object, start: SupportsIndex = 0, stop: SupportsIndex | None = None) -> int:
        """Where the first event is that equals a value; ValueError where none does."""
        for position in range(*slice(start, stop).indices(len(self))):
            event = self._at(position, keep=False)
            if event is value or event == value:
                return position
        raise ValueError(f"{value!r} is not in list")

    def reverse(self) -> None:
        """Turns the order around."""
        self._plain().reverse()

    def sort(self, *, key: Callable[[TelemetryEventV4], Any] | None = None, reverse: bool = False) -> None:
        """Sorts in place; events have no order of their own, so a key is needed."""
        self._plain().sort(key=key, reverse=reverse)  # type: ignore[arg-type]

    def passing(self) -> Iterator[TelemetryEventV4]:
        """The events one by one, keeping none that was not touched: for readers that keep none either."""
        position = 0
        while position < len(self):
            yield self._at(position, keep=False)
            position += 1

    def likely(
        self,
        types: Sequence[str] | None = None,
        said: Sequence[Said] = (),
        rank: int | None = None,
        time_ns: tuple[int | None, int | None] = (None, None),
    ) -> Iterator[TelemetryEventV4]:
        """The events in which something may be found, passing: none that has it is left out.

        Those of one of the types or with something said in their metadata, of the rank and in the time.
        """
        buffer, made, tail = self._state
        if buffer is not None:
            places = _native.telemetry.likely_events(buffer, types, said, rank, time_ns)
            # An object that was handed out may say something else by now.
            for place in sorted({*places, *made}) if made else places:
                yield self._at(place, keep=False)
        yield from tail

    def firsts(self) -> Iterator[TelemetryEventV4]:
        """The first event of each session and rank, perhaps others too; passing."""
        buffer, made, tail = self._state
        if buffer is not None:
            for place in sorted({*_native.telemetry.first_events(buffer), *made}):
                yield self._at(place, keep=False)
        yield from tail

    def _position(self, index: SupportsIndex, error: str) -> int:
        try:
            position = index.__index__()
        except AttributeError:
            name = type(index).__name__
            raise TypeError(f"list indices must be integers or slices, not {name}") from None
        length = len(self)
        if not -length <= position < length:
            raise IndexError(error)
        return position % length

    def _at(self, position: int, keep: bool = True) -> TelemetryEventV4:
        buffer, made, tail = self._state
        if buffer is None or self._class is None:
            return tail[position]
        if position >= len(buffer):
            return tail[position - len(buffer)]
        event = made.get(position)
        if event is None:
            event = buffer.event(position, self._class)
            if keep:
                # Of two threads that come here at once, the first one's object is the one that stays.
                event = made.setdefault(position, event)
        return event

    def _plain(self) -> list[TelemetryEventV4]:
        """All events as objects in one list, which is the state from now on: for changes of the order."""
        buffer, _, tail = self._state
        if buffer is not None:
            tail = self[:]
            self._state = (None, {}, tail)
        return tail


def untouched(events: object) -> _native.telemetry.EventBuffer | None:
    """The buffer of a list that is still exactly what was loaded; None for any other events."""
    if not isinstance(events, TelemetryEventList):
        return None
    buffer, made, tail = events._state
    # An object that was handed out may have been changed since.
    return None if made or tail else buffer


def likely(events: Iterable[_T], types: Sequence[str], said: Sequence[Said] = ()) -> Iterable[_T]:
    """The events of any iterable in which something may be found: see `TelemetryEventList.likely`."""
    if isinstance(events, TelemetryEventList):
        return events.likely(types, said)  # type: ignore[return-value]
    return events


def firsts(events: Iterable[_T]) -> Iterable[_T]:
    """The events of any iterable that tell which sessions and ranks there are."""
    return events.firsts() if isinstance(events, TelemetryEventList) else events  # type: ignore[return-value]


def passing(events: Iterable[_T]) -> Iterable[_T]:
    """The events of any iterable one by one, for readers that keep none."""
    return events.passing() if isinstance(events, TelemetryEventList) else events  # type: ignore[return-value]
