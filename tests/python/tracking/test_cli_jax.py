"""`jaxmemprof` as scripts for 0.4.3 run it: no JAX is needed, and real processes, signals and files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MIB = 1 << 20
# What 0.4.3 writes, without `events` and what counts them.
KEYS = {
    "peak_memory",
    "average_memory",
    "duration",
    "memory_usage",
    "timestamps",
    "alerts",
    "history_window_limit",
    "history_retained_samples",
    "history_dropped_samples",
    "device_memory_available",
    "memory_source",
    "device_memory_unavailable_reason",
    "process_memory_bytes",
}
TRACKED = {
    "events",
    "history_retained_events",
    "history_dropped_events",
    "history_retained_alerts",
    "history_dropped_alerts",
}
SHORT = ["--interval", "0.05", "--duration", "0.5"]


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "stormlog.jax", *args]


def run(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*args), capture_output=True, text=True, timeout=120, check=False, cwd=cwd)


def page(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def is_there_a_gpu() -> bool:
    return bool(json.loads(run("info", "--json").stdout)["gpus"])


def test_info_has_the_page_of_jax() -> None:
    done = run("info")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["JAX Stormlog - System Information", "=" * 50]
    for text in ("JAX Version: ", "JAX Backend Information:", "Runtime Backend: ", "Available Devices: "):
        assert any(line.startswith(text) for line in lines), done.stdout
    assert "jax_version" in json.loads(run("info", "--json").stdout)


def test_monitor_watches_the_cpu_with_one_sentence_where_there_is_no_gpu(tmp_path: Path) -> None:
    if is_there_a_gpu():
        pytest.skip("there is a GPU here")
    output = tmp_path / "deep" / "results.json"
    done = run("monitor", *SHORT, "--threshold", "1", "--output", str(output))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1
    assert "Note: device 0 has no GPU here; this watches the command itself on the CPU" in done.stderr
    for text in (
        "Starting JAX memory monitoring...",
        "Device Memory: unavailable",
        "Process RSS: ",
        "Alerts Triggered: 1",
        f"Results saved to {output}",
    ):
        assert text in done.stdout, done.stdout
    found = page(output)
    assert found.keys() >= KEYS and "events" not in found
    assert (found["device_memory_available"], found["memory_source"]) == (False, "process_rss")
    assert found["alerts"] == 1 and found["process_memory_bytes"] > MIB
    # Bytes, as 0.4.3 has them for JAX; the sums are megabytes.
    assert len(found["memory_usage"]) == len(found["timestamps"]) > 3
    assert max(found["memory_usage"]) / MIB == pytest.approx(found["peak_memory"], rel=0.5)


def test_track_keeps_the_history_it_was_asked_for(tmp_path: Path) -> None:
    args = ["--device", "cpu", "--interval", "0.02", "--duration", "1", "--max-history", "10"]
    recorder = ["--oom-flight-recorder", "--oom-dump-dir", str(tmp_path / "oom")]
    done = run("track", *args, *recorder, "--output", str(tmp_path / "results.json"))
    assert done.returncode == 0, done.stderr
    assert "  Buffer size: 10 events\n" in done.stdout
    assert "History truncation: samples=" in done.stdout and "Current memory: " in done.stdout
    found = page(tmp_path / "results.json")
    assert found.keys() >= KEYS | TRACKED
    assert found["history_window_limit"] == 10 >= len(found["events"]) and found["history_dropped_events"] > 0


def test_track_until_ctrl_c_saves_everything(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    words = command("track", "--device", "cpu", "--interval", "0.05", "--output", str(output))
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    while not child.stdout.readline().startswith("Current memory: "):
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    printed, _ = child.communicate(timeout=60)
    assert child.returncode == 0 and "Stopping tracking..." in printed and page(output)["events"]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["track"], "--output"),
        (["monitor", "--device", "tpu"], "unknown device tpu"),
        (["monitor", "--interval", "0"], "sampling_interval must be > 0"),
        (["track", "--output", "x", "--max-history", "0"], "0 is not in 1.."),
    ],
)
def test_a_wrong_request_is_refused_with_a_sentence(args: list[str], sentence: str, tmp_path: Path) -> None:
    done = run(*args, cwd=tmp_path)
    assert done.returncode in (1, 2) and sentence in done.stderr and not list(tmp_path.iterdir())


def test_a_profile_needs_the_program_that_uses_jax(tmp_path: Path) -> None:
    args = ["--device", "cpu", *SHORT, "--profile", "--output", str(tmp_path / "a.json")]
    done = run("track", *args)
    assert done.returncode == 0 and "--profile: needs the process that uses JAX" in done.stderr
    done = run("track", *args, "--pid", str(os.getpid()))
    assert done.returncode == 0 and f"process {os.getpid()} takes no requests" in done.stderr


def test_a_kill_becomes_a_bundle(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"]) as program:
        recorder = ["--oom-flight-recorder", "--oom-dump-dir", str(tmp_path)]
        words = command("track", "--pid", str(program.pid), *recorder, "--output", str(tmp_path / "r.json"))
        child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        while not child.stdout.readline().startswith("Current memory: "):
            assert child.poll() is None
        program.kill()
        printed = child.communicate(timeout=60)[0]
    assert child.returncode == 3, printed
    (saved,) = [
        line for line in printed.splitlines() if line.startswith("OOM flight recorder dump saved to: ")
    ]
    assert page(Path(saved.partition(": ")[2]) / "manifest.json")["reason"] == "sigkill"


def results(path: Path, **more: Any) -> Path:
    """A file as 0.4.3 writes it: bytes that rise by 1 MiB a second."""
    usage = [(100 + number) * MIB for number in range(120)]
    content = {
        "peak_memory": 219.0,
        "average_memory": 159.5,
        "duration": 120.0,
        "memory_usage": usage,
        "timestamps": [1_700_000_000.0 + number for number in range(120)],
        "alerts": 3,
        **more,
    }
    path.write_text(json.dumps(content))
    return path


def test_analyze_reads_bytes_and_has_the_lines_of_0_4_3(tmp_path: Path) -> None:
    file = results(tmp_path / "r.json")
    args = ["--input", str(file), "--detect-leaks", "--optimize", "--output", "plots", "--plot"]
    done = run("analyze", *args, "--report", "report.txt", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for text in (
        f"Analyzing JAX tracking results: {file}\n{'=' * 50}\n",
        "Peak Memory: 219.00 MB\n",
        "Average Memory: 159.50 MB\n",
        "Alerts Triggered: 3\n",
        "Potential memory leaks: 1\n",
        "Optimization score: ",
        "Memory timeline plot saved to plots/memory_timeline.png\n",
        "Analysis report saved to report.txt\n",
    ):
        assert text in done.stdout, done.stdout
    assert (tmp_path / "plots/memory_timeline.png").read_bytes().startswith(b"\x89PNG")
    # 119 MiB in 119 s: what was read as megabytes would be a million times that.
    assert "1.00 MiB/s" in (tmp_path / "report.txt").read_text() or "MiB" in done.stdout


def test_analyze_says_why_a_device_is_unknown(tmp_path: Path) -> None:
    unknown = {
        "memory_usage": [],
        "timestamps": [],
        "device_memory_available": False,
        "device_memory_unavailable_reason": "not exposed by this backend",
    }
    done = run("analyze", "--input", str(results(tmp_path / "r.json", **unknown)))
    assert done.returncode == 0
    assert "Device Memory: unavailable\nReason: not exposed by this backend\n" in done.stdout


def test_analyze_without_a_file_is_5(tmp_path: Path) -> None:
    done = run("analyze", "--input", str(tmp_path / "none.json"))
    assert (done.returncode, done.stdout) == (5, "") and "none.json not found" in done.stderr


def test_diagnose_writes_a_bundle_under_its_own_name(tmp_path: Path) -> None:
    done = run("diagnose", "--duration", "0", "--device", "cpu", "--output", ".", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (made,) = tmp_path.iterdir()
    assert made.name.startswith("stormlog-jax-diagnose-2")
    manifest = page(made / "manifest.json")
    assert manifest["command_line"].startswith("jaxmemprof diagnose")
    assert "native_history_enabled" not in manifest
    assert any(
        "XLA_CLIENT_MEM_FRACTION" in line for line in page(made / "diagnostic_summary.json")["suggestions"]
    )
