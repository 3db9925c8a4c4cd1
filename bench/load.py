"""Loads and validates a file with either package and says how many events it held: load.py EVENTS.json."""

from __future__ import annotations

import sys

from stormlog.telemetry import load_telemetry_events

print(len(load_telemetry_events(sys.argv[1])))
