"""Asks `stormlog.query` of whatever package runs it about one recording: query.py EVENTS.

Prints the seconds of processor time and the rows of each question as JSON. Each is asked of a store of its
own that has its events loaded already, so that a number is the question's and `load` is the reading's.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from stormlog import query
from stormlog.correlation import CorrelationFilter


def main(path: str) -> None:
    """Asks everything."""
    found: dict[str, tuple[float, int]] = {}

    def ask(name: str, question: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        begin = time.process_time()
        rows = question()
        found[name] = (time.process_time() - begin, len(rows))
        return rows

    store = query.open([path])
    (session,) = ask("load", store.list_sessions)
    start, end = session.started_at_ns, session.ended_at_ns or session.started_at_ns
    middle = (start + end) // 2
    second = 1_000_000_000
    # A store keeps its sources; the rows of one question must not be there for the next.
    events = query.EventFilter
    ask("the first 100 events", lambda: store.query_events(events(limit=100)))
    minute = events(time_start_ns=middle, time_end_ns=middle + 60 * second)
    ask("a minute", lambda: store.query_events(minute))
    ask("the warnings", lambda: store.query_events(events(event_type="warning")))
    ask("the alerts", lambda: store.query_events(events(has_alert=True)))
    ask("a peak", lambda: store.summarize("peak_device_used_bytes"))
    ask("the growth of a gap", lambda: store.summarize("hidden_memory_gap_growth", group_by="rank"))
    ask("the issues", store.list_issues)
    around = CorrelationFilter(at_ns=middle, window_ns=10 * second, limit=20)
    ask("what went with a moment", lambda: store.correlate(around).evidence)
    ask("every event", store.query_events)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
