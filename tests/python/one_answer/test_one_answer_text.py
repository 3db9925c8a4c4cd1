"""Text for people is one rule: the command and the Python package show the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from stormlog import _native

COMMAND = [sys.executable, "-c", "import sys; from stormlog._entry import stormlog; sys.exit(stormlog())"]
# Characters that a terminal obeys: an escape sequence, a change of direction, and those that one copy of the
# rule once let through.
HOSTILE = "evil\x1b[2J\u202ename\u061c\u206a\x7f"
VISIBLE = "evil␛[2J\ufffdname\ufffd\ufffd␡"


def session(folder: Path, name: str) -> Path:
    """A recording of one process whose host has a hostile name."""
    events: list[dict[str, object]] = [
        {
            "schema_version": 2,
            "timestamp_ns": at * 1_000_000_000,
            "event_type": "sample",
            "collector": "stormlog.cpu_tracker",
            "sampling_interval_ms": 100,
            "pid": 7,
            "host": name,
            "device_id": -1,
            "allocator_allocated_bytes": 10,
            "allocator_reserved_bytes": 10,
            "allocator_active_bytes": None,
            "allocator_inactive_bytes": None,
            "allocator_change_bytes": 0,
            "device_used_bytes": 10,
            "device_free_bytes": None,
            "device_total_bytes": None,
            "context": None,
            "job_id": None,
            "rank": 0,
            "local_rank": 0,
            "world_size": 1,
            "metadata": {},
        }
        for at in (1, 7262)
    ]
    path = folder / "events.json"
    path.write_text(json.dumps(events))
    return path


def test_the_command_and_python_make_the_same_characters_visible(tmp_path: Path) -> None:
    assert _native.text.inert_text(HOSTILE) == VISIBLE
    path = session(tmp_path, HOSTILE)
    done = subprocess.run([*COMMAND, "sessions", str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not set(done.stdout) & set("\x1b\u202e\u061c\u206a\x7f"), done.stdout
    if "evil" in done.stdout:
        assert VISIBLE in done.stdout


def test_the_command_and_python_word_a_duration_alike(tmp_path: Path) -> None:
    path = session(tmp_path, "host")
    done = subprocess.run([*COMMAND, "sessions", str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert _native.text.duration_in_words(7261.0) == "2 h 1 min"
    assert "2 h 1 min" in done.stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<b title='x'>&\"", "&lt;b title=&#39;x&#39;&gt;&amp;&quot;"),
        ("a\x1bb\u202e\nc", "a␛b\ufffd\nc"),
        ("größe", "größe"),
    ],
)
def test_markup_is_escaped_by_the_rule_of_the_pages(text: str, expected: str) -> None:
    assert _native.text.escape_markup(text) == expected


def test_sizes_are_those_of_the_commands() -> None:
    assert [_native.text.binary_size(size) for size in (0, 1023, 1 << 20, 5 << 50)] == [
        "0 B",
        "1023 B",
        "1.00 MiB",
        "5.00 PiB",
    ]
