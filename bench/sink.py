"""Records per second through a sink, and the time to close it: sink.py RECORDS.jsonl DIRECTORY.

The same file runs in both environments: the packages have the same names.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from stormlog.telemetry_sink import AppendOnlyTelemetrySink, TelemetrySinkConfig

records = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
sink = AppendOnlyTelemetrySink(TelemetrySinkConfig(root_dir=Path(sys.argv[2])))
session_id = sink.start_session().session_id
for record in records:
    record["session_id"] = session_id
start = time.perf_counter()
for record in records:
    sink.append(record)
appended = time.perf_counter()
sink.close()
print(json.dumps({"rate": len(records) / (appended - start), "close": time.perf_counter() - appended}))
