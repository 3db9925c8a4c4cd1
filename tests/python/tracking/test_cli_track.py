"""`info`, `monitor` and `track` as users and scripts run them: real processes, real signals, real files."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CGROUPS = Path("/sys/fs/cgroup/memory")
FLAGS = {
    "info": ["--device", "--detailed", "--json"],
    "monitor": ["--device", "--duration", "--interval", "--output", "--format", "--pid", "--json"],
    "track": [
        "--device",
        "--duration",
        "--interval",
        "--output",
        "--format",
        "--watchdog",
        "--warning-threshold",
        "--critical-threshold",
        "--job-id",
        "--rank",
        "--local-rank",
        "--world-size",
        "--oom-flight-recorder",
        "--oom-dump-dir",
        "--oom-buffer-size",
        "--oom-max-dumps",
        "--oom-max-total-mb",
        "--telemetry-sink-dir",
        "--telemetry-flush-seconds",
        "--telemetry-rollover-mb",
        "--telemetry-retention-files",
        "--telemetry-retention-total-mb",
        "--pid",
        "--json",
    ],
}
GROWING = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "x = bytearray(64 << 20); print(flush=True); input()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
held = bytearray(64 << 20)
print("ready", flush=True)
sys.stdin.readline()
child.kill()
sys.exit(7)
"""


def command(program: str, *args: str) -> list[str]:
    return [sys.executable, "-m", program, *args]


def run(program: str, *args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(program, *args), capture_output=True, text=True, timeout=120, check=False, cwd=cwd
    )


def answer(*args: str) -> Any:
    done = run("stormlog", *args, "--json")
    return json.loads(done.stdout)


def start(*args: str, cwd: Path) -> subprocess.Popen[str]:
    """`track`, once it says that it watches."""
    child = subprocess.Popen(
        command("stormlog", "track", "--interval", "0.02", *args), stdout=subprocess.PIPE, text=True, cwd=cwd
    )
    assert child.stdout
    for line in child.stdout:
        if line.startswith("Elapsed:"):
            break
    return child


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    """A program with 64 MiB, and a child with as much."""
    with subprocess.Popen(
        [sys.executable, "-c", GROWING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout and child.stdout.readline() == "ready\n"
        yield child
        child.kill()


@pytest.mark.parametrize("name", ["stormlog", "gpumemprof"])
@pytest.mark.parametrize("subcommand", FLAGS)
def test_every_flag_of_0_4_3_is_there(name: str, subcommand: str) -> None:
    help_text = run(name, subcommand, "--help").stdout
    assert [flag for flag in FLAGS[subcommand] if flag not in help_text] == []


def test_info_names_the_machine_and_says_unknown_rather_than_zero() -> None:
    done = run("gpumemprof", "info", "--detailed")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[:3] == ["Stormlog - System Information", "=" * 50, "Platform: Linux"]
    for start_of_line in (
        "Python Version: 3.",
        "Detected Backend: ",
        "Process RSS: ",
        "CPU Count: ",
        "Limit: ",
    ):
        assert any(line.startswith(start_of_line) for line in lines), start_of_line
    facts = answer("info")
    assert facts["memory"]["total"] > facts["memory"]["available"] > 0
    assert facts["detected_backend"] in {"cpu", "cuda", "rocm"}
    assert isinstance(facts["gpus"], list) and "cgroup" in facts and "pressure" in facts


def test_tfmemprof_has_its_own_page_and_flags(tmp_path: Path) -> None:
    page = run("tfmemprof", "info")
    assert page.returncode == 0 and page.stdout.startswith("TensorFlow Stormlog - System Information\n")
    assert run("tfmemprof", "track").returncode == 2
    output = tmp_path / "deep" / "results.json"
    args = ["--device", "/CPU:0", "--interval", "0.05", "--duration", "1", "--output", str(output)]
    done = run("tfmemprof", "-v", "track", "--threshold", "1", *args)
    assert done.returncode == 0 and f"Results saved to {output}" in done.stdout
    results = json.loads(output.read_text())
    assert len(results["memory_usage"]) == len(results["timestamps"]) > 3
    assert results["peak_memory"] >= results["average_memory"] > 1
    assert len(results["alerts"]) == 1 and "exceeds threshold" in results["alerts"][0]["message"]
    assert results["events"][0]["event_type"] == "start" and results["history_dropped_events"] == 0


def test_tfmemprof_watches_the_cpu_where_there_is_no_gpu(tmp_path: Path) -> None:
    if json.loads(run("stormlog", "info", "--json").stdout)["gpus"]:
        pytest.skip("there is a GPU here")
    args = ["--interval", "0.05", "--duration", "0.3"]
    done = run("tfmemprof", "track", *args, "--output", str(tmp_path / "results.json"))
    assert done.returncode == 0, done.stderr
    assert "/GPU:0 has no GPU here; this watches the command itself on the CPU" in done.stderr
    assert json.loads((tmp_path / "results.json").read_text())["peak_memory"] > 1
    monitored = run("tfmemprof", "monitor", *args)
    assert monitored.returncode == 0 and "/GPU:0 has no GPU here" in monitored.stderr


def test_monitor_ends_with_a_summary_and_a_file(tmp_path: Path) -> None:
    output = tmp_path / "monitor.json"
    done = run("gpumemprof", "monitor", "--duration", "0.5", "--output", str(output), "--format", "json")
    assert done.returncode == 0
    for text in ("for 0.5 seconds...", "Monitoring Summary:", "Snapshots collected: ", "Peak memory usage: "):
        assert text in done.stdout
    assert "\r" not in done.stdout and "\x1b" not in done.stdout
    events = json.loads(output.read_text())
    assert events[0]["event_type"] == "start" and events[-1]["event_type"] == "stop"
    assert list(tmp_path.iterdir()) == [output]


def test_track_writes_what_it_says(tmp_path: Path) -> None:
    args = ["--job-id", "j", "--rank", "1", "--world-size", "2", "--telemetry-sink-dir", "sink"]
    done = run("gpumemprof", "track", "--duration", "0.5", "--output", "t.csv", *args, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("Starting real-time memory tracking...\nDevice: current\n")
    assert "Duration: 0.5s\n" in done.stdout and "Append-only telemetry sink: sink\n" in done.stdout
    assert "\nTracking Summary:\n" + "-" * 30 + "\nTotal events: " in done.stdout
    assert done.stdout.endswith("Events saved to: t.csv\n")
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert (rows[0]["event_type"], rows[-1]["event_type"]) == ("start", "stop")
    assert {(row["job_id"], row["rank"], row["world_size"]) for row in rows} == {("j", "1", "2")}
    (session,) = answer("sessions", str(tmp_path / "sink"))
    assert (session["status"], session["event_count"]) == ("completed", len(rows))
    assert run("stormlog", "validate", str(tmp_path / "t.csv")).returncode == 0


def test_thresholds_hold_on_the_host_too(tmp_path: Path) -> None:
    args = ["--device", "-1", "--duration", "0.3", "--warning-threshold", "0.0001"]
    done = run("stormlog", "track", *args, cwd=tmp_path)
    assert done.returncode == 0
    warnings = [line for line in done.stdout.splitlines() if "] WARNING: " in line]
    assert len(warnings) == 1 and warnings[0].startswith("[")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_it_with_everything_saved(tmp_path: Path, number: signal.Signals, code: int) -> None:
    child = start("--output", "out.json", "--format", "json", "--telemetry-sink-dir", "sink", cwd=tmp_path)
    child.send_signal(number)
    rest = child.communicate(timeout=60)[0]
    assert child.returncode == code and "Tracking stopped by " in rest and "Tracking Summary:" in rest
    events = json.loads((tmp_path / "out.json").read_text())
    assert events[-1]["event_type"] == "stop"
    (session,) = answer("sessions", str(tmp_path / "sink"))
    assert (session["status"], session["event_count"]) == ("interrupted", len(events))


def test_killed_itself_it_leaves_a_recording(tmp_path: Path) -> None:
    child = start("--output", "out.csv", cwd=tmp_path)
    child.kill()
    child.communicate()
    assert not (tmp_path / "out.csv").exists()
    (session,) = answer("sessions", str(tmp_path / "out.csv.recording"))
    assert session["status"] == "interrupted" and session["event_count"] >= 2
    done = run("stormlog", "track", "--duration", "0.2", "--output", "out.csv", cwd=tmp_path)
    assert done.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "out.csv.recording"]


def test_closed_pipe_does_not_panic(tmp_path: Path) -> None:
    child = start("--output", "out.csv", cwd=tmp_path)
    assert child.stdout
    child.stdout.close()
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=60) in (0, 1)
    assert (tmp_path / "out.csv").exists()


def test_a_process_and_its_children_are_watched(program: subprocess.Popen[str]) -> None:
    found = answer("monitor", "--pid", str(program.pid), "--duration", "0.3", "--device", "-1")
    (device,) = found["devices"]
    assert device["peak_bytes"] > 128 << 20
    assert found["stopped_by"] == "duration" and found["process"]["has_ended"] is False


def test_its_end_is_noticed_and_named(program: subprocess.Popen[str], tmp_path: Path) -> None:
    args = ["--pid", str(program.pid), "--device", "-1", "--interval", "0.02", "--output", "out.json"]
    child = subprocess.Popen(
        command("stormlog", "track", *args, "--format", "json"),
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert child.stdout and program.stdin
    while not child.stdout.readline().startswith("Elapsed:"):
        pass
    program.stdin.write("\n")
    program.stdin.flush()
    rest = child.communicate(timeout=60)[0]
    assert child.returncode == 3
    # The status is known to all on new kernels, on older ones only until the parent took it.
    assert f"(pid {program.pid}) exited with status 7" in rest or "so the cause is unknown" in rest
    events = json.loads((tmp_path / "out.json").read_text())
    assert [event["event_type"] for event in events[-2:]] == ["process_exit", "stop"]
    assert {event["pid"] for event in events} == {program.pid}


def is_open_in(pid: int, prefix: str) -> bool:
    """Whether a process has a file open whose path begins so."""
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(link.readlink()).startswith(prefix):
                    return True
    return False


def test_a_kill_becomes_a_bundle(program: subprocess.Popen[str], tmp_path: Path) -> None:
    args = ["--pid", str(program.pid), "--oom-flight-recorder", "--oom-dump-dir", str(tmp_path), "--json"]
    child = subprocess.Popen(command("stormlog", "track", *args), stdout=subprocess.PIPE, text=True)
    while not is_open_in(child.pid, f"/proc/{program.pid}/"):
        time.sleep(0.02)
    program.kill()
    found = json.loads(child.communicate(timeout=60)[0])
    assert child.returncode == 3 and found["stopped_by"] == "process_ended"
    # Nobody has waited for it yet: how it ended can be seen on any kernel.
    assert (found["process"]["cause"], found["process"]["signal"]) == ("sigkill", 9)
    bundle = answer("oom", "show", found["oom_dump"])
    assert (bundle["cause"], bundle["session_id"]) == ("sigkill", found["session"]["session_id"])


@pytest.mark.parametrize("verb", ["track", "monitor"])
def test_a_kill_becomes_a_bundle_of_tfmemprof_too(
    program: subprocess.Popen[str], tmp_path: Path, verb: str
) -> None:
    recorder = ["--oom-flight-recorder", "--oom-dump-dir", str(tmp_path), "--oom-max-dumps", "2"]
    args = ["--pid", str(program.pid), *recorder, "--output", str(tmp_path / "results.json"), "--json"]
    child = subprocess.Popen(command("tfmemprof", verb, *args), stdout=subprocess.PIPE, text=True)
    while not is_open_in(child.pid, f"/proc/{program.pid}/"):
        time.sleep(0.02)
    program.kill()
    found = json.loads(child.communicate(timeout=60)[0])
    assert child.returncode == 3 and found["stopped_by"] == "process_ended"
    assert answer("oom", "show", found["oom_dump"])["cause"] == "sigkill"


@contextlib.contextmanager
def limited_group() -> Iterator[Path]:
    """A memory cgroup of 64 MiB."""
    if not (CGROUPS / "memory.limit_in_bytes").exists() or os.getuid() != 0:
        pytest.skip("needs root and a version 1 memory cgroup")
    group = CGROUPS / f"stormlog-track-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
        yield group
    finally:
        for _ in range(100):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.05)


@pytest.mark.parametrize("when", ["before", "while"])
def test_the_oom_killer_is_named_with_its_limit(tmp_path: Path, when: str) -> None:
    """Also where the program came into its group only while it was watched already."""
    grow = "print(flush=True); input(); held = []\nwhile True: held.append(bytearray(1 << 20))"
    words = [sys.executable, "-c", grow]
    with (
        limited_group() as group,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as victim,
    ):
        assert victim.stdin and victim.stdout and victim.stdout.readline() == "\n"
        if when == "before":
            (group / "cgroup.procs").write_text(str(victim.pid))
        child = start(
            "--pid", str(victim.pid), "--oom-flight-recorder", "--oom-dump-dir", "dumps", cwd=tmp_path
        )
        if when == "while":
            (group / "cgroup.procs").write_text(str(victim.pid))
        victim.stdin.write("\n")
        victim.stdin.flush()
        rest = child.communicate(timeout=60)[0]
    if when == "while" and not os.access("/dev/kmsg", os.R_OK):
        pytest.skip("only the kernel's log knows of a group that was joined later")
    assert child.returncode == 3 and "killed by the kernel's OOM killer" in rest
    bundle = answer("oom", "show", str(tmp_path / "dumps"))
    assert (bundle["cause"], bundle["limit_bytes"]) == ("cgroup_oom_kill", 64 << 20)


def test_on_a_terminal_one_line_is_kept_up_to_date() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command("stormlog", "monitor", "--duration", "3"), stdout=theirs, stderr=subprocess.DEVNULL
    ) as child:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal is gone with its last user
            while piece := os.read(ours, 4096):
                shown += piece
        assert child.wait(timeout=60) == 0
    os.close(ours)
    assert shown.count(b"\r\x1b[KElapsed: ") >= 3
    assert b"Monitoring Summary:" in shown


def test_a_process_that_is_not_there_is_5_in_one_sentence() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    for subcommand in ("monitor", "track"):
        done = run("gpumemprof", subcommand, "--pid", str(gone.pid))
        assert done.returncode == 5
        # Nothing is announced that cannot begin.
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1 and f"there is no process {gone.pid}" in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "sentence"),
    [
        (["--interval", "0"], 1, "sampling_interval must be > 0"),
        (["--interval", "nan"], 1, "sampling_interval must be > 0"),
        (["--rank", "3"], 1, "rank must be < world_size"),
        (["--telemetry-sink-dir", "x", "--telemetry-rollover-mb", "0"], 1, "rollover_max_bytes must be >= 1"),
        (["--output", "no/such/dir/x.csv"], 5, "no/such/dir/x.csv"),
        (["--format", "xml"], 2, "xml"),
        (["--pid", "0"], 2, "0 is not in"),
    ],
)
def test_each_wrong_use_has_its_code(args: list[str], code: int, sentence: str, tmp_path: Path) -> None:
    done = run("gpumemprof", "track", "--duration", "0.1", *args, cwd=tmp_path)
    assert (done.returncode, sentence in done.stderr) == (code, True), done.stderr
    assert "panicked" not in done.stderr


def test_an_ignored_ctrl_c_stays_ignored(tmp_path: Path) -> None:
    script = 'trap "" INT; exec "$@"'
    words = command("stormlog", "track", "--duration", "1.5")
    child = subprocess.Popen(["sh", "-c", script, "sh", *words], stdout=subprocess.PIPE, text=True)
    time.sleep(0.7)
    os.kill(child.pid, signal.SIGINT)
    assert "stopped by user" not in child.communicate(timeout=60)[0]
    assert child.returncode == 0
