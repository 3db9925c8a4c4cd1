"""Which rows are asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from stormlog._moment import parse_utc
from stormlog._telemetry.event_list import Said, TelemetryEventList, likely
from stormlog.query._rows import (
    EventFilter,
    OOMBundleFilter,
    OOMBundleRow,
    SessionFilter,
    SessionRow,
)
from stormlog.telemetry import LoadedTelemetrySession, TelemetryEvent
from stormlog.telemetry_classification import (
    ALERT_EVENT_TYPES,
    COLLECTOR_DEGRADED_STATUSES,
    COLLECTOR_TRANSITION_TYPES,
    is_alert_event,
)

_Check = Callable[[TelemetryEvent], bool]


def matching(loaded: LoadedTelemetrySession, filters: EventFilter) -> Iterator[TelemetryEvent]:
    """The events of a session that are asked for."""
    summary = loaded.summary
    if filters.session_id in (None, summary.session_id) and filters.status in (None, summary.status):
        checks = _event_checks(filters)
        for event in _likely(loaded.events, filters):
            if all(check(event) for check in checks):
                yield event


def signs(loaded: LoadedTelemetrySession) -> Iterable[TelemetryEvent]:
    """The events of a session that may be a sign of trouble."""
    types = (*ALERT_EVENT_TYPES, *COLLECTOR_TRANSITION_TYPES)
    degraded = ("collector_health_status", tuple(COLLECTOR_DEGRADED_STATUSES))
    return likely(loaded.events, types, (("severity", None), degraded))


def _likely(events: Sequence[TelemetryEvent], filters: EventFilter) -> Iterable[TelemetryEvent]:
    """The events that may pass the checks; of a value of another kind than events have, all of them."""
    if not isinstance(events, TelemetryEventList):
        return events
    types: tuple[str, ...] | None = None
    said: tuple[Said, ...] = ()
    if isinstance(filters.event_type, str):
        types = (filters.event_type.strip(),)
    elif filters.has_alert is True:
        types, said = tuple(ALERT_EVENT_TYPES), (("severity", None),)
    elif isinstance(filters.collector_health_status, str):
        said = (("collector_health_status", (filters.collector_health_status.strip().lower(),)),)
    elif isinstance(filters.backend, str):
        said = (("backend", (filters.backend.strip().lower(),)),)
    time_ns = _whole(filters.time_start_ns), _whole(filters.time_end_ns)
    return events.likely(types, said, _whole(filters.rank), time_ns)


def _whole(number: object) -> int | None:
    return number if isinstance(number, int) and 0 <= number < 1 << 64 else None


def _event_checks(filters: EventFilter) -> list[_Check]:
    """Only what is asked for is looked at: there may be millions of events."""
    start, end, alert = filters.time_start_ns, filters.time_end_ns, filters.has_alert
    checks: list[_Check] = []
    for name in ("event_type", "rank", "collector"):
        checks += _equal(attrgetter(name), getattr(filters, name))
    for name in ("collector_health_status", "backend"):
        checks += _equal(partial(_said, name), getattr(filters, name))
    if start is not None:
        checks.append(lambda event: event.timestamp_ns >= start)
    if end is not None:
        checks.append(lambda event: event.timestamp_ns <= end)
    if alert is not None:
        checks.append(lambda event: is_alert_event(event) == alert)
    return checks


def _said(name: str, event: TelemetryEvent) -> object:
    return event.metadata.get(name)


def _equal(read: Callable[[TelemetryEvent], Any], wanted: object) -> list[_Check]:
    return [] if wanted is None else [lambda event: read(event) == wanted]


def session_matches(row: SessionRow, filters: SessionFilter) -> bool:
    """Whether a session is asked for."""
    asked = dataclasses.replace(filters, has_oom_bundle=None)
    return is_like(row, asked) and filters.has_oom_bundle in (None, row.oom_bundle_count > 0)


def bundle_matches(row: OOMBundleRow, filters: OOMBundleFilter) -> bool:
    """Whether a bundle is asked for."""
    created = parse_utc(row.created_at_utc)
    after, before = parse_utc(filters.created_after), parse_utc(filters.created_before)
    return (
        is_like(row, dataclasses.replace(filters, created_after=None, created_before=None))
        and (after is None or (created is not None and created >= after))
        and (before is None or (created is not None and created <= before))
    )


def is_like(row: object, filters: object) -> bool:
    """Whether a row has every value that a filter of the same field names asks for."""
    return all(wanted is None or getattr(row, name) == wanted for name, wanted in vars(filters).items())
