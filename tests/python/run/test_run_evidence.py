"""`stormlog run`: what the bundle says beyond the cause, and the warning before it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from run_command import (
    INTERVAL_NS,
    STORMLOG,
    cgroup,
    command,
    in_cgroup,
    newest,
    pid_of,
    program,
    start,
    stormlog,
    until,
)

MARGIN_NS = 5_000_000


def test_a_real_bus_error(tmp_path: Path) -> None:
    done = subprocess.run(command(tmp_path, *program("bus_error.py")), capture_output=True, text=True)
    assert done.returncode == -signal.SIGBUS
    bundle = newest(tmp_path)
    assert (bundle["cause"], bundle["signal"]) == ("signal", signal.SIGBUS)


CAUSES = {
    "SIGKILL": "sigkill",
    "SIGTERM": "signal",
    "SIGINT": "signal",
    "SIGSEGV": "signal",
    "SIGABRT": "signal",
    "SIGBUS": "signal",
    "exit": "exit",
    "ValueError": "exit",
    "MemoryError": "memory_error",
    "worker": "sigkill",
    "oom": "cgroup_oom_kill",
}


@pytest.mark.parametrize("how", CAUSES)
def test_the_last_event_lies_within_one_interval_of_the_death(tmp_path: Path, how: str) -> None:
    # A machine that is busy with other things may be late once; it is not late every time.
    gaps = []
    for attempt in range(20):
        directory = tmp_path / str(attempt)
        words = command(directory, *program("dies_by.py", how, "0.4"), options=("--bundle", "always"))
        if how == "oom":
            with cgroup(100 << 20) as group:
                done = subprocess.run(in_cgroup(group, words), capture_output=True, text=True)
        else:
            done = subprocess.run(words, capture_output=True, text=True)
        died = int(done.stdout.split()[-1])
        (run_directory,) = directory.iterdir()
        (row,) = stormlog("oom", "list", str(run_directory))
        bundle = stormlog("oom", "show", row["path"])
        assert bundle["cause"] == CAUSES[how]
        events = directory / "events.json"
        subprocess.run(
            [*STORMLOG, "oom", "export", bundle["path"], str(events)], check=True, capture_output=True
        )
        exported = json.loads(events.read_text())["events"]
        samples = [row["timestamp_ns"] for row in exported if row["event_type"] == "sample"]
        if not samples:
            continue
        gaps.append((died - samples[-1], abs(bundle["last_event_timestamp_ns"] - died)))
        if max(gaps[-1]) <= INTERVAL_NS + MARGIN_NS:
            return
    pytest.fail(f"never within {INTERVAL_NS + MARGIN_NS} ns: {gaps}")


def anonymous(memory_map: Path) -> int:
    """What the last look into the process found of anonymous memory."""
    rows = json.loads(memory_map.read_text())
    return sum(row["rss_bytes"] or 0 for row in rows if row["name"] == "[anon]")


def test_the_memory_map_says_what_the_memory_was_made_of(tmp_path: Path) -> None:
    with start(tmp_path, *program("holds_memory.py")) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        until(lambda: any(anonymous(path) > 30 << 20 for path in tmp_path.glob("*/rank*/memory_map.json")))
        os.kill(pid_of(tmp_path), signal.SIGKILL)
        running.communicate()
    bundle = newest(tmp_path)
    rows = {row["name"]: row for row in bundle["evidence"]["memory_map"]}
    assert rows["[anon]"]["rss_bytes"] > 30 << 20
    assert rows["[anon]"]["pss_bytes"] > 30 << 20
    assert any(name.startswith("/") and "python" in name for name in rows), list(rows)
    held = {row["place"]: row["bytes"] for row in bundle["evidence"]["held_by"]}
    assert held["[anon]"] > 30 << 20
    page = subprocess.run(
        [*STORMLOG, "oom", "show", bundle["path"]], capture_output=True, text=True, check=True
    )
    assert "  layers    RSS " in page.stdout and "anonymous memory" in page.stdout


def test_address_space_limit_is_forecast_and_printed_on_a_terminal(tmp_path: Path) -> None:
    master, slave = os.openpty()
    words = command(tmp_path, *program("leaks.py", "40", "800"), options=("--limit", "400MiB"))
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=slave) as running:
        os.close(slave)
        text = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:
                break
            if not piece:
                break
            text += piece
    os.close(master)
    assert running.returncode == 1
    lines = text.decode().splitlines()
    alerts = [line for line in lines if line.startswith(("stormlog: WARNING", "stormlog: CRITICAL"))]
    assert alerts and "RLIMIT_AS" in alerts[0], lines
    assert any(line.startswith("  warned ") for line in lines), lines
    bundle = newest(tmp_path)
    assert bundle["cause"] == "memory_error"
    (directory,) = tmp_path.iterdir()
    assert "RLIMIT_AS" in (directory / "run.json").read_text()


def test_cgroup_limit_is_forecast_in_the_recording_and_not_on_a_pipe(tmp_path: Path) -> None:
    with cgroup(300 << 20) as group:
        words = in_cgroup(group, command(tmp_path, *program("leaks.py", "30", "800")))
        done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    bundle = newest(tmp_path)
    assert bundle["cause"] == "cgroup_oom_kill"
    assert not any(line.startswith("stormlog: WARNING") for line in done.stderr.splitlines())
    assert "  warned " in done.stderr
    # The killer left a warning and the time it had foreseen.
    exported = tmp_path / "events.json"
    subprocess.run(
        [*STORMLOG, "oom", "export", bundle["path"], str(exported)], check=True, capture_output=True
    )
    events = json.loads(exported.read_text())["events"]
    alerts = [row for row in events if row["event_type"] in ("warning", "critical")]
    assert alerts and alerts[0]["metadata"]["seconds_to_limit"] > 0
    assert alerts[0]["metadata"]["limit_source"].startswith("cgroup ")
    assert "growing" in bundle["evidence"]["verdict"]


def test_a_program_that_does_not_grow_is_not_warned_about(tmp_path: Path) -> None:
    words = command(tmp_path, *program("holds_memory.py", "4"), options=("--json", "--limit", "1GiB"))
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(done.stderr)["warnings"] == []


def test_without_a_driver_there_is_nothing_about_gpus(tmp_path: Path) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has one: tests/gpu/run_samples_gpus.py")
    with start(
        tmp_path, sys.executable, "-c", "import time; time.sleep(0.4); raise ValueError(3)"
    ) as running:
        _, err = running.communicate()
    assert "GPU" not in err and "NVML" not in err
    assert {row["device_id"] for row in newest(tmp_path)["evidence"]["devices"]} == {-1}
    assert stormlog("sessions", str(tmp_path))[0]["status"] == "interrupted"
