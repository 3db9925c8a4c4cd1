"""Where we differ from stormlog 0.4.3 on purpose, and why.

Case name to (what ours does, reason): (error type, part of its text), or None where ours gives a result.
"""

from __future__ import annotations

Expected = tuple[str, str] | None

UNKNOWN = "an unknown counter of a legacy record stays unknown; 0.4.3 refuses the record"
BUNDLE = "the names that an OOM bundle uses are understood, so a bundle reloads with all it held"
WIDTH = "counters and times are 64-bit in every file format we write; a wider number is refused, not cut"
SENTENCE = "the error says which field is wrong, not which Python function failed"
PLACE = "every error of a reader starts with the file and the line"
DAMAGE = "the sentence says what is wrong with the file; a JSONDecodeError is a ValueError, and so is this"
NOT_JSON = "what is not JSON is refused rather than guessed at"
DIRECTORY = "a directory is a fine thing to load; this one has nothing in it"
TORN = "a torn last line is left out as in 0.4.3, and said so in the warnings"
TEXT = "a text that no file could hold is refused when the event is made, not when it is written"

DIFFERENCES: dict[str, tuple[Expected, str]] = {
    "legacy/null-counters": (None, UNKNOWN),
    "legacy/null-used": (None, UNKNOWN),
    "legacy/oom-bundle": (None, BUNDLE),
    "legacy/timestamp-nan": (("ValueError", "timestamp must be a finite number, not nan"), SENTENCE),
    "legacy/timestamp-infinite": (("ValueError", "timestamp must be a finite number, not inf"), SENTENCE),
    "legacy/memory-mb-nan": (("ValueError", "memory_mb must be a finite number, not nan"), SENTENCE),
    "legacy/allocated-huge": (("ValueError", "memory_allocated does not fit 64 bits"), WIDTH),
    "validate/v4/timestamp-huge": (("ValueError", "timestamp_ns does not fit 64 bits"), WIDTH),
    "read/v4/timestamp-huge": (("ValueError", "timestamp_ns does not fit 64 bits"), WIDTH),
    "validate/v4/change-huge": (("ValueError", "allocator_change_bytes does not fit 64 bits"), WIDTH),
    "read/v4/change-huge": (("ValueError", "allocator_change_bytes does not fit 64 bits"), WIDTH),
    "validate/v4/change-most": (("ValueError", "allocator_change_bytes must be at most"), WIDTH),
    "read/v4/change-most": (("ValueError", "allocator_change_bytes must be at most"), WIDTH),
    "read/v4/pid-most": (("ValueError", "pid must be at most"), WIDTH),
    "validate/v4/rank-huge": (("ValueError", "rank does not fit 64 bits"), WIDTH),
    "read/v4/rank-huge": (("ValueError", "rank does not fit 64 bits"), WIDTH),
    "read/v4/metadata-missing": (("ValueError", "Missing required telemetry fields: metadata"), SENTENCE),
    "read/v3/metadata-missing": (("ValueError", "Missing required telemetry fields: metadata"), SENTENCE),
    "validate/v4/host-surrogate": (("ValueError", "host must be valid Unicode"), TEXT),
    "read/v4/host-surrogate": (("ValueError", "host must be valid Unicode"), TEXT),
    "validate/not-a-mapping-list": (("ValueError", "record must be a mapping"), SENTENCE),
    "validate/not-a-mapping-text": (("ValueError", "record must be a mapping"), SENTENCE),
    "validate/not-a-mapping-none": (("ValueError", "record must be a mapping"), SENTENCE),
    "session/from-dict-word-start": (("ValueError", "started_at_ns must be an integer"), SENTENCE),
    "session/from-dict-list-pid": (("ValueError", "pid must be an integer"), SENTENCE),
    "session/from-dict-bool-pid": (("ValueError", "pid must be an integer"), "a truth value is not a number"),
    "session/from-dict-null-rank": (("ValueError", "rank must be an integer"), SENTENCE),
    "session/from-dict-huge-start": (("ValueError", "started_at_ns does not fit 64 bits"), WIDTH),
}


def _both(name: str, expected: Expected, reason: str) -> None:
    """The same file through both loaders."""
    DIFFERENCES[f"load/{name}"] = DIFFERENCES[f"load-events/{name}"] = (expected, reason)


_both("null-counters.json", None, UNKNOWN)
_both("truncated.json", ("ValueError", "it is truncated"), DAMAGE)
_both("blank.json", ("ValueError", "the file is empty"), DAMAGE)
_both("byte-order-mark.json", None, "a byte-order mark is passed over; some editors leave one")
_both("duplicate-keys.json", ("ValueError", "is given twice"), NOT_JSON)
_both("nan.json", ("ValueError", "not JSON"), NOT_JSON)
_both("huge.json", ("ValueError", "does not fit 64 bits"), WIDTH)
_both("huge-counter.json", ("ValueError", "does not fit 64 bits"), WIDTH)
_both("directory", ("ValueError", "no telemetry found here"), DIRECTORY)
DIFFERENCES["load/sink-torn"] = (None, TORN)
_both("sink-damaged", ("ValueError", "segment-000001.jsonl:3:"), PLACE)
_both("sink-empty", ("ValueError", "retained no segments"), PLACE)
_both("sink-empty/manifest.json", ("ValueError", "retained no segments"), PLACE)

# Of `stormlog.query`: where its answers differ, and why. Each is shown by a test of test_query_module.py.
QUERY_DIFFERENCES: dict[str, str] = {
    "summarize peak": "an unknown counter has no say in a peak; 0.4.3 fails with a TypeError",
    "telemetry_timeline.json": "the timeline of a diagnose bundle is part of it; 0.4.3 tries to load it",
    "csv": "metadata that 0.4.3 wrote into a CSV as Python text is read; 0.4.3 leaves it out",
    "running": "a session whose process is gone from this machine was interrupted; 0.4.3 calls it running",
    "path": "one path need not be in a list; 0.4.3 takes each letter of it for a path",
}
