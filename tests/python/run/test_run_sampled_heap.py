"""Plain `stormlog run`: a sampled, bounded heap names the lines that held memory, or a sentence why not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from heap_captures import stats
from run_command import STORMLOG, command, newest, start, stormlog

HOLDS = """
import time
def hold_in_small_blocks():
    return [bytes(4000) for _ in range(10_000)]
def hold_in_large_blocks():
    return [bytearray(4 << 20) for _ in range(10)]
held = hold_in_small_blocks(), hold_in_large_blocks()
print("ready", flush=True)
time.sleep(600)
"""
LARGE = 40 << 20
needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")


def test_a_killed_program_has_its_lines_in_summary_and_bundle(tmp_path: Path) -> None:
    script = tmp_path / "holds.py"
    script.write_text(HOLDS)
    runs = tmp_path / "runs"
    with start(runs, sys.executable, str(script)) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        (child,) = (int(path.name.partition(".")[0]) for path in runs.glob("*/heap/*.live"))
        os.kill(child, signal.SIGKILL)
        _, summary = running.communicate()
    assert "  heap      peak about " in summary
    held = [line for line in summary.splitlines() if "holds.py:" in line]
    assert any("hold_in_large_blocks" in line and "about" in line for line in held), summary
    rows = {row["place"].split()[-1]: row for row in newest(runs)["evidence"]["held_by"]}
    small = next(row for place, row in rows.items() if "hold_in_small_blocks" in place)
    large = next(row for place, row in rows.items() if "hold_in_large_blocks" in place)
    assert small["note"] == large["note"] == "estimated from a sample"
    # Four standard deviations of 76 samples.
    assert abs(small["bytes"] - 40_000_000) < 20_000_000
    assert abs(large["bytes"] - LARGE) < LARGE // 20
    (capture,) = runs.glob("*/rank*/heap.bin")
    assert stats(capture)["sample_bytes"] == 512 << 10
    # A bundle is as good a name of the capture as the run.
    bundle = Path(stormlog("oom", "list", str(runs))[0]["path"])
    for view in ("stats", "leaks", "table"):
        outputs = {
            subprocess.run([*STORMLOG, view, str(path)], capture_output=True, text=True, check=True).stdout
            for path in (bundle, runs, capture)
        }
        assert len(outputs) == 1 and "hold_in_large_blocks" in outputs.pop(), view
    assert stormlog("diff", str(bundle), str(runs)) == []


@pytest.mark.parametrize(("options", "is_kept"), [((), False), (("--heap",), True)])
def test_wrappers_and_small_tools_leave_captures_only_where_they_are_asked_for(
    tmp_path: Path, options: tuple[str, ...], is_kept: bool
) -> None:
    tools = "for name in 1 2 3; do uname > /dev/null; ls / > /dev/null; done; "
    program = "held = [bytearray(4 << 20) for _ in range(10)]"
    chain = ["bash", "-c", tools + 'exec env "$@"', "bash", sys.executable, "-c", program]
    runs = tmp_path / "runs"
    done = subprocess.run(command(runs, *chain, options=options), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    captures = stormlog("captures", str(runs))
    assert captures[0]["main"] and captures[0]["peak_bytes"] > LARGE * 3 // 4
    assert (len(captures) > 6) == is_kept, captures
    if not is_kept:
        assert len(captures) == 1 and " of " not in done.stderr.partition("  heap ")[2], done.stderr


def test_without_heap_and_gpu_nothing_is_loaded_into_the_program(tmp_path: Path) -> None:
    words = command(tmp_path, "env", options=("--no-heap", "--no-gpu", "--quiet"))
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "LD_PRELOAD" not in done.stdout and "STORMLOG_HEAP" not in done.stdout
    assert list(tmp_path.rglob("*.bin*")) == []


@needs_compiler
@pytest.mark.parametrize("heap", [(), ("--heap",)])
def test_a_static_program_is_named_as_such(tmp_path: Path, heap: tuple[str, ...]) -> None:
    source = tmp_path / "seven.c"
    source.write_text("int main(void) { return 7; }")
    subprocess.run(["gcc", "-static", "-o", tmp_path / "seven", source], check=True)
    done = subprocess.run(
        command(tmp_path / "runs", str(tmp_path / "seven"), options=heap), capture_output=True, text=True
    )
    assert done.returncode == 7
    assert done.stderr.count("no heap was recorded") == 1
    assert "no heap was recorded: the program is statically linked" in done.stderr


@needs_compiler
def test_a_program_of_another_c_library_is_started_without_the_recording_library(tmp_path: Path) -> None:
    """The loader of glibc under another name stands in for another library's."""
    loader = tmp_path / "ld-other-x86_64.so.1"
    shutil.copy("/lib64/ld-linux-x86-64.so.2", loader)
    source = tmp_path / "prints.c"
    headers = "#include <stdio.h>\n#include <stdlib.h>\n"
    source.write_text(
        headers + 'int main(void) { puts(getenv("LD_PRELOAD") ? "loaded" : "bare"); return 5; }'
    )
    built = ["gcc", "-o", str(tmp_path / "prints"), str(source), f"-Wl,--dynamic-linker={loader}"]
    subprocess.run(built, check=True)
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    words = command(tmp_path / "runs", str(tmp_path / "prints"))
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (5, "bare\n")
    assert "another C library than glibc (loader ld-other-x86_64.so.1)" in done.stderr
