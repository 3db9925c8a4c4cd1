"""`serve --otlp` into a real VictoriaMetrics, `serve --pyroscope` into a stand-in that Go's pprof checks."""

from __future__ import annotations

import base64
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import components
import pytest
from monitoring import Start, get
from run_command import command, until

HOLDS = """
import sys
kept = [bytearray(1 << 20) for _ in range(40)]
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """The directory of a run that holds 40 MiB, by a line of train.py."""
    program, runs = tmp_path / "train.py", tmp_path / "runs"
    program.write_text(HOLDS)
    words = command(runs, sys.executable, str(program), options=("--heap", "--no-gpu"))
    pipe, env = subprocess.PIPE, {**os.environ, "SLURM_JOB_ID": "night"}
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=env) as run:
        assert run.stdin and run.stdout and run.stdout.readline() == b"ready\n"
        yield runs
        run.stdin.close()
        run.wait()


def serve(started: Start, port: int, *words: str | Path, **env: str) -> None:
    serve = [sys.executable, "-m", "stormlog", "serve", "--listen", f"127.0.0.1:{port}"]
    started(*serve, *words, name="serve", env={**os.environ, **env})


def test_metrics_reach_a_victoriametrics_by_otlp(
    runs: Path, tmp_path: Path, started: Start, port: Callable[[], int]
) -> None:
    root, store = components.unpacked("sid", *components.MONITORING), port()
    data = f"-storageDataPath={tmp_path}/victoria"
    listen = [f"-httpListenAddr=127.0.0.1:{store}", "-search.latencyOffset=0s"]
    started(root / "usr/bin/victoria-metrics", data, *listen, name="victoria")
    until(lambda: get(store, "/api/v1/status/tsdb"))
    url = f"http://127.0.0.1:{store}/opentelemetry/v1/metrics"
    env = {"OTEL_METRIC_EXPORT_INTERVAL": "500", "OTEL_SERVICE_NAME": "training"}
    own = port()
    serve(started, own, "--otlp", url, runs, **env)

    def stored(name: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{store}/internal/force_flush", timeout=10):
            pass
        found = get(store, "/api/v1/query", query=f'{{__name__="{name}"}}')
        return found and found["data"]["result"]

    (resident,) = until(lambda: stored("process.memory.usage"))
    labels = resident["metric"]
    assert (labels["stormlog.job_id"], labels["stormlog.rank"], labels["stormlog.role"]) == (
        "night",
        "0",
        "main",
    )
    assert labels["service.name"] == "training" and labels["host.name"]
    assert float(resident["value"][1]) >= 40 << 20
    assert {row["metric"]["stormlog.cause"] for row in stored("stormlog.deaths")} >= {"sigkill", "exit"}
    assert stored("stormlog.run_info"), "identity is there"
    with urllib.request.urlopen(f"http://127.0.0.1:{own}/metrics", timeout=10) as answer:
        assert 'stormlog_push_failures_total{receiver="otlp"} 0' in answer.read().decode()


class Pyroscope(http.server.BaseHTTPRequestHandler):
    """A stand-in: Pyroscope itself cannot be had. Takes and refuses what its push API does."""

    series: list[Any]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_right = (
            self.path == "/push.v1.PusherService/Push" and self.headers["Content-Type"] == "application/json"
        )
        for series in body["series"]:
            names = [label["name"] for label in series["labels"]]
            is_right &= all(re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name) for name in names)
            is_right &= {"__name__", "service_name"} <= set(names)
        self.send_response(200 if is_right else 422)
        self.end_headers()
        self.wfile.write(b"{}")
        if is_right:
            self.series.extend(body["series"])

    def log_message(self, *_: object) -> None:
        pass


def test_live_heaps_reach_a_stand_in_of_pyroscope_as_pprof(
    runs: Path, tmp_path: Path, started: Start, port: Callable[[], int]
) -> None:
    taken: list[Any] = []
    handler = type("Handler", (Pyroscope,), {"series": taken})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    serve(
        started,
        port(),
        "--pyroscope",
        f"http://127.0.0.1:{server.server_port}",
        "--pyroscope-interval",
        "1",
        runs,
    )
    series = until(lambda: taken and taken[-1])
    server.shutdown()
    server.server_close()
    labels = {label["name"]: label["value"] for label in series["labels"]}
    assert labels["__name__"] == "memory" and labels["service_name"] == "night"
    assert labels["rank"] == "0" and labels["memory"] == "host"
    profile = tmp_path / "live.pb.gz"
    profile.write_bytes(base64.b64decode(series["samples"][0]["rawProfile"]))
    words = [str(components.pprof()), "-raw", str(profile)]
    raw = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "PeriodType: space bytes" in raw
    assert "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt]" in raw
    assert "thread:" not in raw, "each label of a sample would be a series"
    held = [int(match[1]) for match in re.finditer(r"^ +\d+ +\d+ +\d+ +(\d+): ", raw, re.MULTILINE)]
    assert sum(held) >= 40 << 20 and "train.py:3 " in raw
