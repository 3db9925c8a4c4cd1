"""The lazy list must behave like the list it replaces, and hold no objects that were not requested."""

from __future__ import annotations

import copy
import operator
import pickle
import threading
from collections.abc import Callable, MutableSequence
from pathlib import Path
from typing import Any

import pytest
from compat_cases import v4
from stormlog.telemetry import (
    TelemetryEventList,
    TelemetryEventV4,
    load_telemetry_events,
    load_telemetry_sessions,
)

Write = Callable[..., Path]
COUNT = 6


@pytest.fixture
def lazy(write: Write) -> TelemetryEventList:
    events = load_telemetry_events(write(COUNT))
    assert isinstance(events, TelemetryEventList)
    return events


@pytest.fixture
def real() -> list[TelemetryEventV4]:
    return [TelemetryEventV4(**v4(timestamp_ns=1000 + number)) for number in range(COUNT)]


def event(at: int) -> TelemetryEventV4:
    return TelemetryEventV4(**v4(timestamp_ns=at))


def made(events: TelemetryEventList) -> int:
    return len(events._state[1])


def test_equals_the_list_it_stands_for(lazy: TelemetryEventList, real: list[TelemetryEventV4]) -> None:
    assert lazy == real and real == lazy and not operator.ne(lazy, real)
    assert lazy != real[:-1] and lazy != tuple(real) and lazy != "no"
    assert made(lazy) == 0, "comparing must not keep objects"
    assert repr(lazy) == repr(real)
    assert list(lazy) == real and len(lazy) == COUNT and bool(lazy)
    assert list(reversed(lazy)) == real[::-1]


@pytest.mark.parametrize(
    "index", [0, -1, 5, -6, slice(None), slice(1, 4), slice(-2, None), slice(None, None, -2), slice(9, 20)]
)
def test_indexing(lazy: TelemetryEventList, real: list[TelemetryEventV4], index: int | slice) -> None:
    assert lazy[index] == real[index]
    assert type(lazy[index]) is type(real[index])


@pytest.mark.parametrize("index", [6, -7, 10**30, "0", 1.0, None])
def test_bad_indices_fail_like_a_list(
    lazy: TelemetryEventList, real: list[TelemetryEventV4], index: Any
) -> None:
    for use in (operator.getitem, operator.delitem):
        with pytest.raises((IndexError, TypeError)) as theirs:
            use(real, index)
        with pytest.raises(theirs.type):
            use(lazy, index)


def test_an_element_is_one_object_and_keeps_its_changes(lazy: TelemetryEventList) -> None:
    assert made(lazy) == 0
    first = lazy[0]
    first.context = "changed"
    assert lazy[0] is first and lazy[-COUNT] is first and lazy[:1][0] is first and next(iter(lazy)) is first
    assert [one.context for one in lazy][:2] == ["changed", "step"]
    assert lazy.copy()[0] is first and copy.copy(lazy)[0] is first and operator.add(lazy, [])[0] is first


def test_metadata_is_not_shared_between_elements(lazy: TelemetryEventList) -> None:
    lazy[0].metadata["mine"] = 1
    lazy[0].metadata["memory_capabilities"]["backend"] = "other"
    assert "mine" not in lazy[1].metadata
    assert lazy[1].metadata["memory_capabilities"]["backend"] == "cuda"


Step = Callable[[MutableSequence[TelemetryEventV4]], Any]
STEPS: dict[str, Step] = {
    "append": lambda events: events.append(event(1)),
    "extend": lambda events: events.extend([event(1), event(2)]),
    "extend-itself": lambda events: events.extend(events),
    "plus-equals": lambda events: events.__iadd__([event(1)]),
    "insert-first": lambda events: events.insert(0, event(1)),
    "insert-beyond": lambda events: events.insert(99, event(1)),
    "set": lambda events: operator.setitem(events, 2, event(1)),
    "set-last": lambda events: operator.setitem(events, -1, event(1)),
    "set-slice": lambda events: operator.setitem(events, slice(1, 4), [event(1)]),
    "delete": lambda events: operator.delitem(events, 1),
    "delete-slice": lambda events: operator.delitem(events, slice(None, None, 2)),
    "pop": lambda events: events.pop(),
    "pop-first": lambda events: events.pop(0),
    "remove": lambda events: events.remove(event(1003)),
    "reverse": lambda events: events.reverse(),
    "sort": lambda events: events.sort(key=lambda one: -one.timestamp_ns),  # type: ignore[attr-defined]
    "clear": lambda events: events.clear(),
    "append-then-set": lambda events: [change(events) for change in (STEPS["append"], STEPS["set-last"])],
    "index": lambda events: events.index(event(1004)),
    "index-from": lambda events: events.index(event(1004), 1, -1),
    "count": lambda events: events.count(event(1002)),
    "contains": lambda events: (event(1002) in events, event(5) in events, operator.contains(events, 5)),
    "add": lambda events: operator.add(events, [event(1)]),
    "add-before": lambda events: operator.add([event(1)], events),
    "times": lambda events: events * 2,  # type: ignore[operator]
    "times-before": lambda events: 2 * events,  # type: ignore[operator]
}


@pytest.mark.parametrize("name", STEPS)
def test_changes_like_a_list(lazy: TelemetryEventList, real: list[TelemetryEventV4], name: str) -> None:
    touched = lazy[3]
    assert STEPS[name](lazy) == STEPS[name](real) or name == "plus-equals"
    assert lazy == real
    assert len(lazy) == len(real)
    assert touched not in real or any(one is touched for one in lazy)


@pytest.mark.parametrize("name", ["remove", "index"])
def test_index_of_a_missing_event_is_a_value_error(lazy: TelemetryEventList, name: str) -> None:
    with pytest.raises(ValueError):
        getattr(lazy, name)(event(5))


def test_appending_keeps_the_rest_untouched(lazy: TelemetryEventList) -> None:
    lazy.append(event(1))
    lazy.extend(event(at) for at in (2, 3))
    assert made(lazy) == 0
    assert [one.timestamp_ns for one in lazy][-3:] == [1, 2, 3]


def test_event_list_is_not_hashable(lazy: TelemetryEventList) -> None:
    with pytest.raises(TypeError):
        hash(lazy)


def test_pickles_and_deep_copies(lazy: TelemetryEventList, real: list[TelemetryEventV4]) -> None:
    lazy[1].context = real[1].context = "changed"
    again = pickle.loads(pickle.dumps(lazy))
    assert again == real and isinstance(again, TelemetryEventList)
    deep = copy.deepcopy(lazy)
    deep[0].context = "deep"
    assert lazy == real


def test_a_long_repr_is_cut(write: Write) -> None:
    events = load_telemetry_events(write(500))
    assert len(repr(events)) < 5000 and "500 events" in repr(events)


def test_reading_sessions_keeps_no_objects(write: Write) -> None:
    (session,) = load_telemetry_sessions(write(20))
    assert isinstance(session.events, TelemetryEventList)
    assert len(session.telemetry_records()) == 20
    assert len(session.resources()) == len(session.correlations()) == 1
    assert made(session.events) == 0


def test_threads_see_one_object_each_element(write: Write) -> None:
    events = load_telemetry_events(write(400))
    seen: list[list[int]] = []
    barrier = threading.Barrier(4)

    def touch() -> None:
        barrier.wait()
        seen.append([id(one) for one in events])

    threads = [threading.Thread(target=touch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4 and all(one == seen[0] for one in seen)


def test_a_plain_list_of_events_is_welcome_too(real: list[TelemetryEventV4]) -> None:
    events = TelemetryEventList(real)
    assert events == real and events[0] is real[0]
    assert TelemetryEventList() == []
