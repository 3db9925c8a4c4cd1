"""Times as artifacts write them (`2026-03-03T15:20:30Z`), as moments."""

from __future__ import annotations

from datetime import UTC, datetime


def parse_utc(text: str | None) -> datetime | None:
    """The moment a text names; UTC where it says no zone, None where it is no time."""
    if not text:
        return None
    try:
        # Python reads `Z` since 3.11.
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def utc_ns(text: str | None) -> int | None:
    """The same in nanoseconds since the epoch, to the microsecond that 0.4.3 keeps."""
    moment = parse_utc(text)
    return None if moment is None else int(moment.timestamp() * 1_000_000_000)
