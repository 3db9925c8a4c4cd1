"""The same phase events replayed by whichever stormlog this interpreter has; prints the outcome as JSON.

`python peer_phases.py`: run by test_phases_compat.py under 0.4.3 and under ours. The events are drawn from a
fixed seed: nested and crossing phases of several threads, ranks and sessions, and boundaries that are broken.
"""

from __future__ import annotations

import dataclasses
import json
import random
import sys
import types
from typing import Any

from stormlog.phases import (
    PhaseAttribution,
    PhaseReplayIndex,
    PhaseSpan,
    PhaseSummary,
    attribute_active_spans,
    is_phase_boundary_event,
    merge_phase_attributions,
    parse_phase_boundary,
    phase_attribution_to_payload,
    resolve_phase_for_event,
    summarize_phase_attribution,
    summarize_phase_resolution,
)

NAMES = ["train", "forward", "backward", "data", "eval"]
BROKEN: list[tuple[str, Any]] = [
    ("name", " "),
    ("name", 3),
    ("action", "enter"),
    ("action", None),
    ("path", "train"),
    ("path", []),
    ("path", ["", None, "kept"]),
    ("depth", 99),
    ("depth", "1"),
    ("scope_id", None),
    ("thread_id", "1"),
    ("thread_name", None),
    ("sequence", 1.5),
    ("sequence", True),
    ("parent_scope_id", 7),
    ("attributes", "none"),
    ("attributes", {"epoch": 1}),
]


def scope(path: list[str], number: int, thread: int, action: str) -> dict[str, Any]:
    return {
        "action": action,
        "name": path[-1],
        "path": list(path),
        "depth": len(path),
        "scope_id": f"s:{number}",
        "parent_scope_id": None,
        "thread_id": thread,
        "thread_name": f"thread-{thread}-{action}",
        "sequence": number,
    }


def story(seed: int) -> list[Any]:
    """Events of two sessions, two ranks and three threads; some broken, some objects, shuffled."""
    draw = random.Random(seed)
    open_by: dict[tuple[str, int, int], list[tuple[list[str], int]]] = {}
    events: list[Any] = []
    for number in range(1, 1201):
        session, rank, thread = draw.choice("ab"), draw.randrange(2), draw.randrange(3)
        stack = open_by.setdefault((session, rank, thread), [])
        if stack and draw.random() < 0.45:
            path, opened = stack.pop(draw.choice([-1, -1, -1, 0]))
            entered = scope(path, opened, thread, "exit")
            entered["sequence"] = number
            kind = "phase_exit"
        else:
            path = [*(stack[-1][0] if stack else []), draw.choice(NAMES)]
            stack.append((path, number))
            entered = scope(path, number, thread, "enter")
            kind = "phase_enter"
        if draw.random() < 0.15:
            key, value = draw.choice(BROKEN)
            entered[key] = value
        event: dict[str, Any] = {
            "session_id": session,
            "timestamp_ns": number // 2,
            "event_type": kind,
            "rank": draw.choice([rank, rank, rank, str(rank), f" {rank} ", True, None, "x"]),
            "metadata": {"phase_scope": entered},
        }
        events.append(event)
        if draw.random() < 0.3:
            metadata = {"origin_thread_id": draw.choice([thread, "1", None]), "origin_phase_scope_id": ""}
            events.append({**event, "event_type": "sample", "metadata": metadata})
    events += [{}, {"session_id": 1}, {"session_id": "a", "timestamp_ns": 900, "rank": 0}]
    draw.shuffle(events)
    return [types.SimpleNamespace(**event) if draw.random() < 0.3 else event for event in events]


def as_json(attribution: Any) -> Any:
    return [
        None if attribution is None else dataclasses.asdict(attribution),
        phase_attribution_to_payload(attribution),
        summarize_phase_attribution(attribution),
    ]


def replay(seed: int) -> dict[str, Any]:
    events = story(seed)
    index = PhaseReplayIndex.from_events(events)
    moments = [
        index.resolve(
            timestamp_ns=now,
            session_id=session,
            rank=rank,
            origin_thread_id=origin,
            origin_phase_scope_id=exact,
        )
        for session in ("a", "b", "c", None)
        for rank in (None, 0, 1)
        for now in range(0, 605, 41)
        for origin, exact in ((None, None), (1, None), (None, "s:7"), (2, "s:12"))
    ]
    merged = [merge_phase_attributions(one, other) for one, other in zip(moments, moments[5:], strict=False)]
    boundaries = [parse_phase_boundary(event) for event in events]
    return {
        "boundaries": [None if one is None else dataclasses.asdict(one) for one in boundaries],
        "is": [is_phase_boundary_event(event) for event in events],
        "spans": [
            [{**dataclasses.asdict(span), "depth": span.depth} for span in found]
            for found in (
                index.spans_for(session_id=session, rank=rank) for session in "abc" for rank in (None, 0, 1)
            )
        ],
        "moments": [as_json(one) for one in moments],
        "merged": [as_json(one) for one in merged],
        "of_events": [
            as_json(ask(event))
            for event in events
            for ask in (index.resolve_for_event, lambda event: resolve_phase_for_event(index, event))
        ],
    }


def small() -> dict[str, Any]:
    def span(path: tuple[str, ...], thread: int, sequence: int) -> PhaseSpan:
        return PhaseSpan("s", 0, thread, "t", f"s:{sequence}", path, 0, 9, sequence)

    cases = [
        [],
        [span(("a",), 1, 1)],
        [span(("a",), 1, 1), span(("a", "b"), 1, 2)],
        [span(("a",), 1, 1), span(("b",), 1, 2)],
        [span(("a",), 1, 1), span(("a",), 2, 2)],
        [span(("a",), 1, 5), span(("b",), 2, 2), span(("c",), 2, 3)],
        [span(("",), 1, 5), span(("b",), 2, 2)],
        [span((), 1, 1)],
    ]
    try:
        attribute_active_spans([span(("a",), 1, 1)], strategy="newest")
        refused = "nothing"
    except ValueError as error:
        refused = str(error)
    resolutions: list[tuple[str | None, str | None, list[str] | None]] = [
        ("unique", "a", None),
        ("unique", None, ["a"]),
        ("unique", None, ["a", "b"]),
        ("ambiguous", None, ["a", "", "b"]),
        ("ambiguous", None, None),
        (None, "a", ["a"]),
    ]
    return {
        "spans": [as_json(attribute_active_spans(case)) for case in cases],
        "refused": refused,
        "words": [
            summarize_phase_resolution(phase_resolution=kind, phase_path=path, phase_paths=paths)
            for kind, path, paths in resolutions
        ],
        "merged": [
            as_json(merge_phase_attributions(one, other))
            for one in (None, PhaseAttribution("unique"), PhaseAttribution("unique", phase_path="a"))
            for other in (None, PhaseAttribution("ambiguous"), PhaseAttribution("unique", phase_path="a"))
        ],
        "shown": as_json(PhaseAttribution("unique", phase_summary=PhaseSummary("a", "told"))),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"small": small(), "stories": [replay(seed) for seed in range(8)]}))
