"""The series of `stormlog serve` that come from devices, limits, forecasts and heap captures."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exposition import Metrics, once
from run_command import cgroup, command, in_cgroup, until

MIB = 1 << 20
HOLDS_A_DEVICE = """
import os, sys
with open(os.environ["STAND_IN_HOLDERS"], "w") as holders:
    holders.write(f"{os.getpid()} 1536\\n4194304 512\\n")
sys.stdin.read()
"""
# Grows by about 8 MiB a second; the line is what holds it.
GROWS = """
import select, sys
kept = []
while not select.select([sys.stdin], [], [], 0.05)[0]:
    kept.append(b"x" * 400_000)  # held
"""


@contextmanager
def living(words: list[str], **env: str) -> Iterator[None]:
    pipe, known = subprocess.PIPE, {**os.environ, **env}
    with subprocess.Popen(words, stdin=pipe, stderr=subprocess.DEVNULL, env=known) as run:
        assert run.stdin
        try:
            yield
        finally:
            run.stdin.close()
            run.wait()


def test_devices_have_one_series_each_and_ranks_their_share(tmp_path: Path, nvml_stand_in: Path) -> None:
    runs, holders = tmp_path / "runs", tmp_path / "holders"
    runs.mkdir()
    env = {
        "LD_LIBRARY_PATH": str(nvml_stand_in.parent), "STAND_IN_KIND": "plain", "STAND_IN_USED_GIB": "4",
        "STAND_IN_HOLDERS": str(holders),
    }  # fmt: skip
    words = command(runs, sys.executable, "-c", HOLDS_A_DEVICE, options=("--no-heap", "--no-why"))
    with living(words, **env), living(words, **env):

        def look() -> Metrics | None:
            metrics = once(runs)
            held = metrics.named("stormlog_device_process_bytes")
            return metrics if 1536 * MIB in held.values() else None

        metrics: Metrics = until(look)
        device = {"device": "0", "uuid": "GPU-stand-in"}
        assert metrics.one("stormlog_device_total_bytes", **device) == 16 << 30
        assert metrics.one("stormlog_device_used_bytes", **device) == 4 << 30, (
            "once, whatever the number of runs"
        )
        (holder,) = [
            dict(labels)
            for labels, value in metrics.named("stormlog_device_process_bytes", device="0").items()
            if value == 1536 * MIB
        ]

        def own(name: str, **labels: str) -> float:
            # Of two runs of one name only one has a slot, so its other labels are those of both.
            found = metrics.named(name, **labels, **holder).items()
            (value,) = [value for have, value in found if dict(have).get("slot") == holder.get("slot")]
            return value

        assert own("stormlog_hidden_bytes", part="others") == (4 << 30) - 1536 * MIB
        assert own("stormlog_limit_bytes", limit="device") == 16 << 30
        assert own("stormlog_window_max_bytes", what="device_process") == 1536 * MIB
        rank = {key: holder.get(key) for key in ("job_id", "rank", "slot")}
        series = [
            labels for _, labels in metrics.series if {key: dict(labels).get(key) for key in rank} == rank
        ]
        assert len(series) <= 60


def test_growth_in_a_cgroup_has_a_rate_and_a_time_to_its_limit(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    options = ("--no-heap", "--no-gpu", "--no-why")
    with (
        cgroup(160 * MIB) as group,
        living(in_cgroup(group, command(runs, sys.executable, "-c", GROWS, options=options))),
    ):
        metrics: Metrics = until(
            lambda: (found := once(runs)).named("stormlog_time_to_limit_seconds") and found
        )
        rank = {"rank": "0", "limit": "cgroup"}
        assert metrics.one("stormlog_limit_bytes", **rank) == 160 * MIB
        assert 0 < metrics.one("stormlog_time_to_limit_seconds", **rank) < 120
        assert metrics.one("stormlog_growth_bytes_per_second", what="resident") > MIB
        label = metrics.labels("stormlog_run_info")["cgroup"]
        assert label.endswith(group.name)
        assert metrics.one("stormlog_cgroup_limit_bytes", cgroup=label) == 160 * MIB
        used = metrics.one("stormlog_cgroup_usage_bytes", cgroup=label)
        assert 0 < metrics.one("stormlog_cgroup_working_set_bytes", cgroup=label) <= used <= 160 * MIB


def test_holders_are_served_only_on_request_with_a_token(tmp_path: Path) -> None:
    runs, program = tmp_path / "runs", tmp_path / "train.py"
    runs.mkdir()
    program.write_text(GROWS)
    with living(command(runs, sys.executable, str(program), options=("--heap", "--no-gpu"))):
        held = "stormlog_heap_line_bytes"

        def lines() -> dict[str, float]:
            found = once("--holders", runs).named(held)
            return {dict(labels)["line"]: value for labels, value in found.items()}

        def is_held(lines: dict[str, float]) -> bool:
            return any("train.py:5" in line and value >= 400_000 for line, value in lines.items())

        until(lambda: is_held(lines()))
        assert len(lines()) <= 10 and not once(runs).named(held)
